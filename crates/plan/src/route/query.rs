//! Parameters of a query and cookies, as conditions ask for them: the first of its name.

use model::head::percent_encoded;

/// Returns the raw value of the first parameter of this name, which is compared percent-decoded. Without `=` the value is empty.
pub(crate) fn parameter<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut pairs = query.split(|&b| b == b'&').filter(|pair| !pair.is_empty()).map(split_at_equals);
    pairs.find(|(key, _)| equals_decoded(key, name)).map(|(_, value)| value)
}

/// Returns the value of the first cookie of this name in one `Cookie` field (RFC 6265 section 4.2.1); quotes belong to the value.
pub(crate) fn cookie<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut pairs = field.split(|&b| b == b';').map(|pair| split_at_equals(pair.trim_ascii()));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns whether `raw`, percent-decoded, is `text`.
pub(crate) fn equals_decoded(raw: &[u8], text: &[u8]) -> bool {
    if is_plain(raw) { raw == text } else { decoded(raw).eq(text.iter().copied()) }
}

/// Returns whether decoding changes nothing.
pub(crate) fn is_plain(raw: &[u8]) -> bool {
    !raw.iter().any(|b| matches!(b, b'%' | b'+'))
}

/// Returns the bytes that a part of a query stands for (WHATWG URL, application/x-www-form-urlencoded): `+` is a space, and a broken escape
/// stands for itself.
pub(crate) fn decoded(raw: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = raw;
    std::iter::from_fn(move || {
        let (&first, tail) = rest.split_first()?;
        rest = tail;
        match (first, tail) {
            (b'+', _) => Some(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    Some(high << 4 | low)
                }
                _ => Some(first),
            },
            _ => Some(first),
        }
    })
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Percent-encodes what stands in `out` from `start` on, so that it is one name or one value of a query: all but the characters
/// that RFC 3986 section 2.3 reserves for no purpose. Allocates nothing once `out` has its working size.
pub(crate) fn encode_from(out: &mut Vec<u8>, start: usize) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let mut from = out.len();
    let more = 2 * out[start..].iter().filter(|&&byte| !is_plain(byte)).count();
    if more == 0 {
        return;
    }
    let mut to = from + more;
    out.resize(to, 0);
    // From the end, so that nothing is overwritten before it is read.
    while from > start {
        from -= 1;
        let byte = out[from];
        if is_plain(byte) {
            to -= 1;
            out[to] = byte;
        } else {
            to -= 3;
            out[to..to + 3].copy_from_slice(&percent_encoded(byte));
        }
    }
}

/// Splits a parameter into name and value; without `=` the value is empty.
pub(crate) fn split_at_equals(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|&b| b == b'=') {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_parameter_counts_and_is_decoded() {
        assert_eq!(parameter(b"a=1&a=2&b", b"a"), Some(&b"1"[..]));
        assert_eq!(parameter(b"&&a=1&b", b"b"), Some(&b""[..]));
        assert_eq!(parameter(b"%61+c=x%20y", b"a c"), Some(&b"x%20y"[..]));
        assert_eq!(parameter(b"a=1", b""), None);
        assert_eq!(parameter(b"", b""), None);
        assert!(equals_decoded(b"x%20y+%4a%", b"x y J%"));
        assert!(!equals_decoded(b"x%2", b"x"));
        assert_eq!(decoded(b"%zz%2%").collect::<Vec<_>>(), b"%zz%2%");
    }

    #[test]
    fn encoding_leaves_only_what_has_no_meaning_and_can_be_undone() {
        let mut out = b"a&b=".to_vec();
        encode_from(&mut out, 4);
        assert_eq!(out, b"a&b=");
        let text: Vec<u8> = (0..=255).collect();
        out.extend_from_slice(&text);
        encode_from(&mut out, 4);
        assert!(out[4..].iter().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(b)));
        assert_eq!(decoded(&out[4..]).collect::<Vec<_>>(), text);
        let mut out = "x /&=+%\u{e9}~".as_bytes().to_vec();
        encode_from(&mut out, 0);
        assert_eq!(out, b"x%20%2F%26%3D%2B%25%C3%A9~");
    }

    #[test]
    fn the_first_cookie_counts_and_keeps_its_quotes() {
        assert_eq!(cookie(b"a=1; b=\"2\";a=3", b"a"), Some(&b"1"[..]));
        assert_eq!(cookie(b"a=1; b=\"2\";a=3", b"b"), Some(&b"\"2\""[..]));
        assert_eq!(cookie(b"a=1", b"A"), None);
    }
}
