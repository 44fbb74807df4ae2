//! `/api/explain`: what would become of a request. The question stands in the query:
//! `?request=GET%20http://host/path&header=name:%20value&client=192.0.2.7&listener=web`.

use std::net::{IpAddr, Ipv4Addr};

use axum::http::StatusCode;
use control::View;
use control::explain::{Explanation, Question};

/// Header fields in one question.
const FIELDS_MAX: usize = 100;

/// Answers the question in a query.
pub(crate) fn explain(view: &View, query: &str) -> Result<Explanation, (StatusCode, String)> {
    let plan = view.plan().ok_or((StatusCode::SERVICE_UNAVAILABLE, "nothing runs yet\n".to_owned()))?;
    let explained = question(query).and_then(|question| control::explain::explain(&plan, &question));
    explained.map_err(|message| (StatusCode::BAD_REQUEST, format!("{message}\n")))
}

fn question(query: &str) -> Result<Question, String> {
    let mut question = Question {
        request: String::new(),
        fields: Vec::new(),
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        listener: None,
        // What the configuration sets may be a secret, and not everybody who may look here may know it.
        hides_values: true,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value)?;
        match name {
            "request" => question.request = value,
            "header" if question.fields.len() < FIELDS_MAX => question.fields.push(field(&value)?),
            "header" => return Err(format!("there are more than {FIELDS_MAX} header fields")),
            "client" => question.client = value.parse().map_err(|_| format!("`{value}` is not an address"))?,
            "listener" => question.listener = Some(value),
            other => return Err(format!("`{other}` is none of request, header, client and listener")),
        }
    }
    if question.request.is_empty() {
        Err("`request` is missing, such as request=GET%20http://host/path".into())
    } else {
        Ok(question)
    }
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| format!("`{text}` is not a field such as `name: value`"))?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// Resolves `%XX` and `+`.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(wrong);
                (digit()? << 4 | digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_from_a_query() {
        let query =
            "request=PUT+http%3A%2F%2Fa.example%2Fx%3Fy%3D1%26z&header=x-a:%201&header=b:&client=::1&listener=web";
        let question = question(query).unwrap();
        assert_eq!(question.request, "PUT http://a.example/x?y=1&z");
        assert_eq!(question.fields, [("x-a".into(), "1".into()), ("b".into(), String::new())]);
        assert_eq!((question.client, question.listener), ("::1".parse().unwrap(), Some("web".into())));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_it() {
        let error = |query: &str| question(query).unwrap_err();
        assert_eq!(error(""), "`request` is missing, such as request=GET%20http://host/path");
        assert_eq!(error("request=a&color=red"), "`color` is none of request, header, client and listener");
        assert_eq!(error("request=%4"), "`%4` is not percent-encoded UTF-8");
        assert_eq!(error("request=%ff"), "`%ff` is not percent-encoded UTF-8");
        assert_eq!(error("request=a&client=b"), "`b` is not an address");
        assert_eq!(error("request=a&header=b"), "`b` is not a field such as `name: value`");
        assert!(error(&"header=a:b&".repeat(101)).contains("more than 100"));
    }
}
