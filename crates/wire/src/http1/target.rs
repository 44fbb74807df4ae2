//! Request targets (RFC 9112 section 3.2) and the authority in `Host` (RFC 9110 section 7.2).

use std::ops::Range;
use std::sync::LazyLock;

use model::fields::Span;
use model::{FieldName, Method, RequestHead};

pub(crate) static HOST: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("Host").expect("`Host` is a token"));

/// The form of a request target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `/path?query`.
    Origin,
    /// `*`, for OPTIONS.
    Asterisk,
    /// `http://authority/path?query`; the rest begins at `authority.end`.
    Absolute { authority: Range<usize> },
}

/// RFC 9112 section 3.2. `None`: not a target, or not one for this method. CONNECT, which alone has an authority as its
/// target, is refused before.
pub(crate) fn form(target: &[u8], method: Method) -> Option<Form> {
    // Visible ASCII only (RFC 3986 has nothing else), and no fragment, which is never sent. The few visible bytes that
    // RFC 3986 does not list, such as `|` and `{`, are common in practice and mean the same to everyone: passed on.
    if !target.iter().all(|&byte| (0x21..=0x7e).contains(&byte) && byte != b'#') {
        return None;
    }
    match target {
        [b'/', ..] => Some(Form::Origin),
        b"*" => (method == Method::Options).then_some(Form::Asterisk),
        _ => absolute(target),
    }
}

/// RFC 9112 section 3.2.2, for the schemes `http` and `https`. The scheme is not believed: how the client reached us is
/// known from the connection.
fn absolute(target: &[u8]) -> Option<Form> {
    let scheme_end = target.iter().position(|&byte| byte == b':')?;
    let (scheme, rest) = target.split_at(scheme_end);
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return None;
    }
    let rest = rest.strip_prefix(b"://")?;
    let start = scheme_end + 3;
    let len = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    // RFC 9110 section 4.2.1: an empty host is invalid; section 4.2.4: so is userinfo, which `is_authority` refuses.
    is_authority(&rest[..len]).then(|| Form::Absolute { authority: start..start + len })
}

/// Puts the target into the head in origin form; an absolute target's authority takes the place of `Host`
/// (RFC 9112 section 3.2.2). Returns whether there was a `Host` that said something else. `target` lies in the arena from
/// its byte `base`.
pub(crate) fn set_target(head: &mut RequestHead, form: &Form, target: &[u8], base: usize) -> bool {
    // The line holds every other form as it is to be.
    let Form::Absolute { authority } = form else { return false };
    let rest = authority.end;
    let span = if target.get(rest) == Some(&b'/') {
        Span::new(base + rest, base + target.len())
    } else {
        let options = head.method == Method::Options && rest == target.len();
        head.fields.write_span(|arena| {
            // RFC 9112 section 3.2.4: OPTIONS of a URI without path and query becomes `*`.
            arena.push(if options { b'*' } else { b'/' });
            arena.extend_from_slice(&target[rest..]);
        })
    };
    head.receive_target(span);
    let authority = &target[authority.clone()];
    let host_differs = !head.authority().is_empty() && !head.authority().eq_ignore_ascii_case(authority);
    head.set_authority(&HOST, authority);
    host_differs
}

/// Bytes that may stand in a name: RFC 3986 `unreserved` and `sub-delims`, without `,`, which would look like a list.
/// `%` is checked apart.
static NAME: [bool; 256] = {
    let mut table = [false; 256];
    let signs = b"-._~!$&'()*+;=";
    let mut at = 0;
    while at < signs.len() {
        table[signs[at] as usize] = true;
        at += 1;
    }
    let mut byte = 0;
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = true;
        }
        byte += 1;
    }
    table
};

/// Whether `text` is `host [":" port]` (RFC 9110 section 7.2, RFC 3986 section 3.2.2) with a host that is not empty:
/// a name, an IPv4 address, or an IPv6 address in brackets without zone. The port may be empty and is at most 65535.
pub fn is_authority(text: &[u8]) -> bool {
    if let [b'[', rest @ ..] = text {
        let Some(end) = rest.iter().position(|&byte| byte == b']') else { return false };
        let literal = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        return literal.parse::<std::net::Ipv6Addr>().is_ok() && is_port_part(&rest[end + 1..]);
    }
    let end = text.iter().position(|&byte| !NAME[usize::from(byte)]).unwrap_or(text.len());
    match text[end..] {
        [] => end > 0,
        [b':', ..] => end > 0 && is_port_part(&text[end..]),
        [b'%', ..] => is_encoded_name(text),
        _ => false,
    }
}

/// The rare name with percent-encoded bytes.
fn is_encoded_name(text: &[u8]) -> bool {
    let end = text.iter().position(|&byte| byte == b':').unwrap_or(text.len());
    let mut name = &text[..end];
    while let [first, rest @ ..] = name {
        name = match (first, rest) {
            (b'%', [high, low, rest @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            (byte, rest) if NAME[usize::from(*byte)] => rest,
            _ => return false,
        };
    }
    is_port_part(&text[end..])
}

/// Nothing, or `:` and a port.
fn is_port_part(text: &[u8]) -> bool {
    match text {
        [] => true,
        [b':', port @ ..] => {
            port.len() <= 5
                && port.iter().all(u8::is_ascii_digit)
                && port.iter().fold(0, |sum, &digit| sum * 10 + u32::from(digit - b'0')) <= 65_535
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_name_or_an_address_with_an_optional_port() {
        for good in [
            "a",
            "example.com",
            "example.com:80",
            "h:",
            "h:65535",
            "127.0.0.1:1",
            "[::1]",
            "[2001:db8::1]:8080",
            "a_b",
            "x%41y:8",
            "!$&'()*+;=",
            "localhost.",
        ] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
    }

    #[test]
    fn an_authority_with_anything_that_could_mislead_is_refused() {
        for bad in [
            "",
            ":80",
            "a b",
            "a/b",
            "a,b",
            "u@h",
            "u:p@h",
            "h:65536",
            "h:123456",
            "h:8a",
            "h:-1",
            "h: 1",
            "a:1:2",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]:x",
            "[fe80::1%25eth0]",
            "[]",
            "[1.2.3.4]",
            "a\\b",
            "a?b",
            "a#b",
            "a%4",
            "a%zz",
            "%",
            "a%",
            "a\"b",
            "<a>",
            "a|b",
            "ä",
            "a\0",
            "a\t",
            "[::1]:80:80",
            "a[::1]",
            "a]b",
            "a%41:b",
            "a%41@h",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }
}
