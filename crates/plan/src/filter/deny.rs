//! `deny`.

use model::fields::is_field_value;
use model::{FieldName, Issue, LocalResponse, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{Ordered, Settings};
use super::{Compiling, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Deny>("deny", DOC);

const DOC: &str = r#"Rejects requests, usually together with `when`.

The response has `status`, `body`, `content_type` and further `headers`; `{}` gives 403 with a line of text. With `close: true` there is
no response: the connection, or the stream of HTTP/2 and HTTP/3, is closed, and the fault is `closed_by_filter`. Later filters do not see
the rejected request, but their changes of the response, such as `set_response_header`, apply.

```yaml
filters:
  - deny: { status: 403, body: "the archive is read-only\n" }
    when: { method: [POST, PUT, PATCH, DELETE] }
```
"#;

/// Bytes of a body. It is held for each route that has it, and a page belongs into a file.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Fields of the answer.
const HEADERS_MAX: usize = 32;
/// Fields that follow from the answer itself.
const OURS: [&str; 9] = [
    "content-type",
    "content-length",
    "connection",
    "date",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The answer to those that are refused.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Deny {
    /// Status of the answer, from 400 to 599; 403 by default.
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
    /// Body of the answer, up to 64 KiB; a line of text by default.
    body: Option<String>,
    /// Media type of the body; `text/plain; charset=utf-8` by default.
    content_type: Option<String>,
    /// Further header fields of the response.
    #[serde(default = "no_headers")]
    headers: Ordered<String>,
    /// Close instead of answering.
    #[serde(default)]
    close: bool,
}

fn no_headers() -> Ordered<String> {
    Ordered(Vec::new())
}

impl Settings for Deny {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.close {
            return self.closing();
        }
        let status = self.status.unwrap_or(403);
        if !(400..600).contains(&status) {
            return Err(Issue::at("status", format!("{status} is not an error status")).suggest("use 400 to 599"));
        }
        let body = self.body.unwrap_or_else(|| "this is not allowed\n".to_owned()).into_bytes();
        if body.len() > BODY_BYTES_MAX {
            let message = format!("the body has {} bytes, more than {BODY_BYTES_MAX}", body.len());
            return Err(Issue::at("body", message).suggest("put it into a file, and show that by `error_page`"));
        }
        let content_type = self.content_type.unwrap_or_else(|| "text/plain; charset=utf-8".to_owned());
        if content_type.is_empty() || !is_field_value(content_type.as_bytes()) {
            return Err(Issue::at("content_type", "it is not a valid header field value"));
        }
        let mut fields = vec![("content-type".to_owned(), content_type)];
        if self.headers.0.len() > HEADERS_MAX {
            let message = format!("{} header fields are more than {HEADERS_MAX}", self.headers.0.len());
            return Err(Issue::at("headers", message));
        }
        for (name, value) in self.headers.0 {
            fields.push(field(&name, value)?);
        }
        Ok(Steps::of_request(DenyStep { answer: Some(LocalResponse { status, fields, body }) }))
    }
}

impl Deny {
    fn closing(self) -> Result<Steps, Issue> {
        let unused = [
            ("status", self.status.is_some()),
            ("body", self.body.is_some()),
            ("content_type", self.content_type.is_some()),
            ("headers", !self.headers.0.is_empty()),
        ];
        match unused.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                let message = format!("`{key}` has no effect with `close`: no response is sent");
                Err(Issue::at(key, message).suggest("leave one of them out"))
            }
            None => Ok(Steps::of_request(DenyStep { answer: None })),
        }
    }
}

fn field(name: &str, value: String) -> Result<(String, String), Issue> {
    let at = || format!("headers/{name}");
    FieldName::new(name).map_err(|message| Issue::at(at(), message))?;
    let lower = name.to_ascii_lowercase();
    if OURS.contains(&lower.as_str()) {
        let mend = if lower == "content-type" { "write `content_type`" } else { "leave it out" };
        return Err(Issue::at(at(), format!("`{name}` is set by the proxy")).suggest(mend));
    }
    if !is_field_value(value.as_bytes()) {
        return Err(Issue::at(at(), "the value of a header field cannot contain control characters"));
    }
    Ok((lower, value))
}

struct DenyStep {
    /// `None`: it is closed without one.
    answer: Option<LocalResponse>,
}

impl RequestStep for DenyStep {
    fn apply(&self, _: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        self.answer.as_ref().map_or(Flow::Close, |answer| Flow::Respond(Box::new(answer.clone())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{Beside, World, compiled, request};
    use super::*;

    fn apply(settings: Value) -> Flow {
        let steps = compiled(&ENTRY, &settings);
        steps.request.unwrap().apply(&mut request("GET", "/", &[]), &mut Beside::new().turn(&World::new().facts()))
    }

    #[test]
    fn requests_are_refused_with_403_or_what_is_said() {
        assert_eq!(apply(json!({})), Flow::refuse(403, "this is not allowed"));
        let settings =
            json!({ "status": 451, "body": "{}", "content_type": "application/json", "headers": { "X-Why": "law" } });
        let fields = vec![("content-type".into(), "application/json".into()), ("x-why".into(), "law".into())];
        assert_eq!(
            apply(settings),
            Flow::Respond(Box::new(LocalResponse { status: 451, fields, body: b"{}".to_vec() }))
        );
        assert_eq!(apply(json!({ "close": true })), Flow::Close);
    }

    #[test]
    fn what_would_be_no_refusal_or_no_answer_is_an_issue() {
        for (settings, path, message) in [
            (json!({ "status": 200 }), "status", "200 is not an error status"),
            (json!({ "status": 600 }), "status", "600 is not an error status"),
            (json!({ "close": true, "body": "x" }), "body", "`body` has no effect with `close`: no response is sent"),
            (
                json!({ "close": true, "status": 403 }),
                "status",
                "`status` has no effect with `close`: no response is sent",
            ),
            (json!({ "content_type": "a\r\nb: c" }), "content_type", "it is not a valid header field value"),
            (
                json!({ "headers": { "Content-Length": "1" } }),
                "headers/Content-Length",
                "`Content-Length` is set by the proxy",
            ),
            (
                json!({ "headers": { "a": "b\nc" } }),
                "headers/a",
                "the value of a header field cannot contain control characters",
            ),
            (json!({ "body": "x".repeat(BODY_BYTES_MAX + 1) }), "body", "the body has 65537 bytes, more than 65536"),
        ] {
            let issue = (ENTRY.check)(&settings).unwrap_err();
            assert_eq!((issue.path.as_str(), issue.message.as_str()), (path, message), "{settings}");
        }
        assert!((ENTRY.check)(&json!({ "headers": { "a b": "c" } })).is_err());
    }
}
