//! Authentication that holds for a connection and not for a request: NTLM, and Negotiate as some endpoints have it (RFC 4559
//! section 6). Who has authenticated on such a connection is taken for the author of all that follows there.

use std::sync::LazyLock;

use model::fields::is_token;
use model::{FieldName, Fields, ResponseHead};

use crate::text::list;

struct Names {
    www_authenticate: FieldName,
    proxy_authenticate: FieldName,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let name = |text| FieldName::new(text).expect("a token");
    Names { www_authenticate: name("www-authenticate"), proxy_authenticate: name("proxy-authenticate") }
});

/// Which clients may use a connection to an endpoint, where the endpoint may authenticate the connection itself (NTLM, Negotiate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bond {
    /// It serves all clients.
    #[default]
    None,
    /// The endpoint has authenticated one client on it: it serves that client only.
    Client,
    /// A client has sent such credentials without being asked, and its request has failed. Whether the endpoint supports the scheme is
    /// unknown. So the connection must not serve other clients, and keeping it for this one is no use.
    Doubtful,
}

/// Returns which clients may use the connection after this response: one client if the endpoint asks for such an authentication, or if the
/// `request` fields, as sent to it, have credentials that it accepted.
pub fn bond_of(request: &Fields, response: &ResponseHead) -> Bond {
    let names = &*NAMES;
    let asked = match response.status {
        401 => Some(&names.www_authenticate),
        407 => Some(&names.proxy_authenticate),
        _ => None,
    };
    if asked.is_some_and(|name| response.fields.all(name).any(|value| list(value).any(has_scheme))) {
        Bond::Client
    } else if !is_brought(request) {
        Bond::None
    } else if response.status < 400 {
        Bond::Client
    } else {
        Bond::Doubtful
    }
}

/// Returns whether a request has such credentials.
pub fn is_brought(request: &Fields) -> bool {
    // In one walk: every exchange takes it.
    let brings = |name: &[u8]| match name.len() {
        13 => name.eq_ignore_ascii_case(b"authorization"),
        19 => name.eq_ignore_ascii_case(b"proxy-authorization"),
        _ => false,
    };
    request.iter().any(|field| brings(field.name) && has_scheme(field.value))
}

/// What ends the scheme is no matter: some endpoints take a tab for a space (RFC 9110 section 11.4 has spaces alone).
fn has_scheme(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| !is_token(&[*byte])).unwrap_or(text.len());
    text[..end].eq_ignore_ascii_case(b"ntlm") || text[..end].eq_ignore_ascii_case(b"negotiate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in list {
            fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
        }
        fields
    }

    fn bond(request: &[(&str, &str)], status: u16, response: &[(&str, &str)]) -> Bond {
        let mut head = ResponseHead::default();
        (head.status, head.fields) = (status, fields(response));
        bond_of(&fields(request), &head)
    }

    #[test]
    fn ntlm_and_negotiate_hold_for_a_connection_whoever_begins() {
        for value in ["NTLM", "ntlm TlRMTVNTUAAC", "Negotiate", "NEGOTIATE oYG2", "Basic realm=\"a\", NTLM"] {
            assert_eq!(bond(&[], 401, &[("WWW-Authenticate", value)]), Bond::Client, "{value}");
            let asks = [("Proxy-Authenticate", "Basic"), ("proxy-authenticate", value)];
            assert_eq!(bond(&[], 407, &asks), Bond::Client, "{value}");
        }
        for value in ["NTLM TlRMTVNTUAAB", "negotiate YIIZ", "Negotiate\tYIIZ", "NTLM", "ntlm,x"] {
            for name in ["Authorization", "proxy-authorization"] {
                for status in [200, 204, 302] {
                    assert_eq!(bond(&[(name, value)], status, &[]), Bond::Client, "{value}");
                }
                assert!(is_brought(&fields(&[("authorization", "Basic a"), (name, value)])), "{value}");
            }
        }
    }

    #[test]
    fn what_fails_with_an_authentication_that_nobody_has_asked_for_is_of_use_to_nobody() {
        for status in [400, 401, 403, 404, 407, 500] {
            let basic = [("www-authenticate", "Basic"), ("proxy-authenticate", "Basic")];
            assert_eq!(bond(&[("authorization", "NTLM x")], status, &basic), Bond::Doubtful, "{status}");
        }
        assert_eq!(bond(&[("authorization", "NTLM x")], 401, &[("www-authenticate", "NTLM y")]), Bond::Client);
    }

    #[test]
    fn what_holds_for_a_request_leaves_the_connection_to_all() {
        for value in ["", "Basic realm=\"NTLM\"", "Bearer", "NTLMv3", "Digest realm=\"a\", nonce=\"negotiate\""] {
            assert_eq!(bond(&[("authorization", value)], 401, &[("www-authenticate", value)]), Bond::None, "{value}");
        }
        // Not what the status asks for.
        assert_eq!(bond(&[], 200, &[("www-authenticate", "NTLM")]), Bond::None);
        assert_eq!(bond(&[], 401, &[("proxy-authenticate", "NTLM")]), Bond::None);
        assert_eq!(bond(&[("x-authorization", "NTLM a")], 200, &[]), Bond::None);
    }
}
