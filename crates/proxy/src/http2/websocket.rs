//! WebSockets that begin with `Upgrade` on one side and as a stream on the other (RFC 8441).

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use model::base64;
use model::fields::Span;
use model::{FieldName, Known, Method, RequestHead, ResponseHead, Version};
use wire::http1::Framing;

static KEY: LazyLock<FieldName> = LazyLock::new(|| name("sec-websocket-key"));
static ACCEPT: LazyLock<FieldName> = LazyLock::new(|| name("sec-websocket-accept"));
static UPGRADE: LazyLock<FieldName> = LazyLock::new(|| name("upgrade"));

fn name(text: &str) -> FieldName {
    FieldName::new(text).unwrap_or_else(|_| unreachable!("a constant token"))
}

/// Whether a request with an `Upgrade` asks for a WebSocket (RFC 6455 section 4.1).
pub(crate) fn is_asked_for(head: &RequestHead, framing: Framing) -> bool {
    head.method == Method::Get
        && framing == Framing::None
        && head.fields.get_known(Known::Upgrade).is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

/// Whether it has a key: 16 bytes in base64 (RFC 6455 section 4.2.1).
pub(crate) fn has_key(head: &RequestHead) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let key = head.fields.get(&KEY).and_then(|key| key.strip_suffix(b"=="));
    key.is_some_and(|key| key.len() == 22 && key.iter().all(is_digit))
}

/// Makes of an endpoint's yes what the client waits for. The proof that its key was read is given here, for HTTP/2 has none
/// (RFC 8441 section 5, RFC 6455 section 4.2.2).
pub(crate) fn accept(request: &RequestHead, response: &mut ResponseHead) {
    response.set_line(101, Span::default(), Version::Http11);
    response.fields.remove_known(Known::ContentLength);
    response.fields.set(&UPGRADE, b"websocket");
    let key = request.fields.get(&KEY).unwrap_or_default();
    response.fields.set(&ACCEPT, &proof(key));
}

/// Gives a request that came as a stream the key that HTTP/1.1 asks for (RFC 6455 section 4.1). It guards against mistakes, not
/// against malice, so any chance will do.
pub(crate) fn give_key(request: &mut RequestHead, random: impl Fn() -> u64) {
    let key = [random().to_be_bytes(), random().to_be_bytes()].concat();
    request.fields.set(&KEY, base64::encode(&key).as_bytes());
}

/// Removes `sec-websocket-accept` from a positive response for a client that has sent no key. Returns `false` if the proof is wrong, or if
/// the response is for another protocol.
#[must_use]
pub(crate) fn take_proof(request: &RequestHead, response: &mut ResponseHead) -> bool {
    let key = request.fields.get(&KEY).unwrap_or_default();
    let is_proven = response.fields.get(&ACCEPT) == Some(&proof(key));
    // RFC 6455 section 4.1: what the endpoint has changed to is a WebSocket, and it says so.
    let is_websocket = response.fields.get(&UPGRADE).is_some_and(|name| name.eq_ignore_ascii_case(b"websocket"));
    response.fields.remove(&ACCEPT) && is_proven && is_websocket
}

/// RFC 6455 section 4.2.2, 5.4.
fn proof(key: &[u8]) -> Vec<u8> {
    const ID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    base64::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, ID].concat()).as_ref()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_16_bytes_in_base64() {
        let has = |key: &str| {
            let mut head = RequestHead::default();
            head.fields.set(&KEY, key.as_bytes());
            has_key(&head)
        };
        assert!(has("dGhlIHNhbXBsZSBub25jZQ==") && !has_key(&RequestHead::default()));
        for key in [
            "",
            "==",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZ\u{e9}==",
            "dGhlIHNhbXBsZSBub25jZTEx",
            "dGhlIHNhbXBsZSBub25j=Q==",
        ] {
            assert!(!has(key), "{key}");
        }
    }

    #[test]
    fn the_proof_is_that_of_the_standard() {
        // RFC 6455 section 1.3.
        assert_eq!(proof(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
