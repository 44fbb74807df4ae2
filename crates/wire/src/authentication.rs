//! Authentication that holds for a connection and not for a request: NTLM, and Negotiate as some endpoints have it (RFC 4559
//! section 6). Who has authenticated on such a connection is taken for the author of all that follows there.

use std::sync::LazyLock;

use model::{FieldName, Fields, ResponseHead};

use crate::text::list;

struct Names {
    authorization: FieldName,
    www_authenticate: FieldName,
    proxy_authenticate: FieldName,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let name = |text| FieldName::new(text).expect("a token");
    Names {
        authorization: name("authorization"),
        www_authenticate: name("www-authenticate"),
        proxy_authenticate: name("proxy-authenticate"),
    }
});

/// Whether the connection on which this response came is one client's from now on: the endpoint asks for such an authentication, or
/// the `request` fields, as they were sent to it, bring one.
pub fn is_of_connection(request: &Fields, response: &ResponseHead) -> bool {
    let names = &*NAMES;
    let asked = match response.status {
        401 => Some(&names.www_authenticate),
        407 => Some(&names.proxy_authenticate),
        _ => None,
    };
    asked.is_some_and(|name| response.fields.all(name).any(|value| list(value).any(has_scheme)))
        || request.all(&names.authorization).any(has_scheme)
}

fn has_scheme(text: &[u8]) -> bool {
    let scheme = text.split(|&byte| byte == b' ').next().unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
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

    fn holds(request: &[(&str, &str)], status: u16, response: &[(&str, &str)]) -> bool {
        let mut head = ResponseHead::default();
        (head.status, head.fields) = (status, fields(response));
        is_of_connection(&fields(request), &head)
    }

    #[test]
    fn ntlm_and_negotiate_hold_for_a_connection_whoever_begins() {
        for value in ["NTLM", "ntlm TlRMTVNTUAAC", "Negotiate", "NEGOTIATE oYG2", "Basic realm=\"a\", NTLM"] {
            assert!(holds(&[], 401, &[("WWW-Authenticate", value)]), "{value}");
            assert!(holds(&[], 407, &[("Proxy-Authenticate", "Basic"), ("proxy-authenticate", value)]), "{value}");
        }
        for value in ["NTLM TlRMTVNTUAAB", "negotiate YIIZ"] {
            assert!(holds(&[("Authorization", value)], 200, &[]), "{value}");
        }
    }

    #[test]
    fn what_holds_for_a_request_leaves_the_connection_to_all() {
        for value in ["", "Basic realm=\"NTLM\"", "Bearer", "NTLMv3", "Digest realm=\"a\", nonce=\"negotiate\""] {
            assert!(!holds(&[("authorization", value)], 401, &[("www-authenticate", value)]), "{value}");
        }
        // Not what the status asks for.
        assert!(!holds(&[], 200, &[("www-authenticate", "NTLM")]));
        assert!(!holds(&[], 401, &[("proxy-authenticate", "NTLM")]));
        assert!(!holds(&[("x-authorization", "NTLM a")], 200, &[]));
    }
}
