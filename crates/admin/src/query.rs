//! Parts of paths and parameters of queries.

use axum::http::StatusCode;
use model::snapshot::AdminRole;

use crate::problem::Problem;
use crate::table::Call;

/// Returns the parts of a path at the braces of the template, decoded, in order.
pub(crate) fn path_parts(template: &str, path: &str) -> Vec<String> {
    let pairs = template.split('/').zip(path.split('/'));
    pairs.filter(|(part, _)| part.starts_with('{')).map(|(_, text)| decoded(text)).collect()
}

/// Percent-decodes (RFC 3986 section 2.1); what is not encoded well stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        let byte = hex
            .filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Rejects unknown parameters of calls that change something: with `dry-run=true` such a call would otherwise be carried out.
pub(crate) fn check_parameters(call: &Call, query: Option<&str>) -> Result<(), Problem> {
    if call.needs != Some(AdminRole::Admin) {
        return Ok(());
    }
    let keys = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let known = call.query.iter().map(|(name, _)| *name);
    for key in keys.map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key)) {
        if known.clone().any(|name| name == key) {
            continue;
        }
        let problem = Problem::new(StatusCode::BAD_REQUEST, format!("there is no parameter `{key}` here"));
        return Err(match config::did_you_mean(&decoded(key).replace('-', "_"), known.clone()) {
            Some(suggestion) => problem.suggest(suggestion),
            None => problem.suggest("this call takes none"),
        });
    }
    Ok(())
}

/// Returns the value of a query parameter.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_are_decoded() {
        let template = "/api/clusters/{cluster}/endpoints/{endpoint}/state";
        let parts = path_parts(template, "/api/clusters/a/endpoints/unix%3A%2Frun%2Fx.sock/state");
        assert_eq!(parts, ["a", "unix:/run/x.sock"]);
        assert_eq!(path_parts("/api/status", "/api/status"), [""; 0]);
        for (encoded, plain) in
            [("%41b%2f", "Ab/"), ("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%+1", "%+1"), ("%ff", "\u{fffd}")]
        {
            assert_eq!(decoded(encoded), plain, "{encoded}");
        }
        assert_eq!(parameter(Some("a=1&as=writ%74en&b"), "as").as_deref(), Some("written"));
        assert_eq!((parameter(Some("b"), "b").as_deref(), parameter(None, "b")), (Some(""), None));
    }
}
