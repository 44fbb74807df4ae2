//! Requests with `TRACE`, whose response holds the request as the endpoint got it (RFC 9110 section 9.3.8). A filter that sets credentials
//! refuses them: the client would read what only the endpoint may have.

use model::{LocalResponse, RequestHead};

use super::Flow;

/// Returns the refusal, if the request is one. Endpoints that do not mind the case of a method are taken into account.
pub(super) fn refusal(head: &RequestHead) -> Option<Flow> {
    head.method_bytes().eq_ignore_ascii_case(b"TRACE").then(refuse)
}

#[cold]
fn refuse() -> Flow {
    let fields = vec![
        ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
        // RFC 9110 section 15.5.6.
        ("allow".to_owned(), "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS".to_owned()),
    ];
    let body = b"requests with credentials of the proxy cannot be traced\n".to_vec();
    Flow::Respond(Box::new(LocalResponse { status: 405, fields, body }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::request;
    use super::*;

    #[test]
    fn only_trace_is_refused_in_any_case() {
        for (method, is_refused) in [("TRACE", true), ("trace", true), ("GET", false), ("TRACES", false)] {
            let refusal = refusal(&request(method, "/", &[]));
            assert_eq!(refusal.is_some(), is_refused, "{method}");
            let Some(Flow::Respond(answer)) = refusal else { continue };
            assert!(answer.status == 405 && answer.fields.iter().any(|(name, _)| name == "allow"));
        }
    }
}
