//! Cookies as they stand in header fields (RFC 6265), and the alphabet that their values are written in.

use crate::fields::{FieldName, Fields, Known};

/// Returns the values of all cookies of this name in a request, in order (RFC 6265 section 4.2.1). Quotes belong to the value.
pub fn values<'a>(fields: &'a Fields, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let pairs = fields.all_known(Known::Cookie).flat_map(|field| field.split(|&b| b == b';'));
    pairs.filter_map(move |pair| value_of(pair, name))
}

/// Takes all cookies of this name out of a request. If there were any, those that are left stand in one field, as a client
/// would have written them. `cookie` is the field's name.
pub fn remove(fields: &mut Fields, cookie: &FieldName, name: &[u8], scratch: &mut Vec<u8>) -> bool {
    debug_assert_eq!(cookie.known(), Known::Cookie);
    if values(fields, name).next().is_none() {
        return false;
    }
    scratch.clear();
    for pair in fields.all_known(Known::Cookie).flat_map(|field| field.split(|&b| b == b';')) {
        let pair = pair.trim_ascii();
        if !pair.is_empty() && value_of(pair, name).is_none() {
            if !scratch.is_empty() {
                scratch.extend_from_slice(b"; ");
            }
            scratch.extend_from_slice(pair);
        }
    }
    if scratch.is_empty() {
        fields.remove_known(Known::Cookie);
    } else {
        fields.set(cookie, scratch);
    }
    true
}

/// Returns the value that a `Set-Cookie` field sets for the cookie of this name, or `None` if it sets another one or deletes it.
pub fn value_set<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut parts = field.split(|&b| b == b';');
    let value = value_of(parts.next()?, name).filter(|value| !value.is_empty() && *value != b"\"\"")?;
    let is_taken_away = parts.any(|part| {
        let (key, value) = split_at_equals(part);
        key.eq_ignore_ascii_case(b"max-age")
            && (value.first() == Some(&b'-') || (!value.is_empty() && value.iter().all(|&b| b == b'0')))
    });
    (!is_taken_away).then_some(value)
}

fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (key, value) = split_at_equals(pair);
    (key == name).then_some(value)
}

/// Splits a pair into key and value, without the white space around them.
fn split_at_equals(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|&b| b == b'=') {
        Some(at) => (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii()),
        None => (pair.trim_ascii(), b""),
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Appends whole groups of three bytes as four characters of base64url (RFC 4648 section 5).
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (groups, rest) = bytes.as_chunks::<3>();
    debug_assert!(rest.is_empty(), "only whole groups");
    for group in groups {
        let bits = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        out.extend([18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift) as usize & 63]));
    }
}

/// Reads base64url back: exactly `N` bytes, which are a multiple of three, so that every text stands for other bytes.
pub fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != N / 3 * 4 || !N.is_multiple_of(3) {
        return None;
    }
    let mut bytes = [0; N];
    let (groups, _) = text.as_chunks::<4>();
    for (group, out) in groups.iter().zip(bytes.as_chunks_mut::<3>().0) {
        let mut bits = 0;
        for &character in group {
            bits = bits << 6 | sextet(character)?;
        }
        *out = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
    }
    Some(bytes)
}

fn sextet(character: u8) -> Option<u32> {
    Some(u32::from(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(cookies: &[&str]) -> Fields {
        let mut fields = Fields::default();
        for cookie in cookies {
            fields.append(&FieldName::new("Cookie").unwrap(), cookie.as_bytes());
        }
        fields
    }

    fn removed(cookies: &[&str]) -> (bool, Vec<String>) {
        let mut fields = fields(cookies);
        let was_there = remove(&mut fields, &FieldName::new("cookie").unwrap(), b"id", &mut Vec::new());
        let left = fields.all_known(Known::Cookie).map(|value| String::from_utf8(value.to_vec()).unwrap());
        (was_there, left.collect())
    }

    #[test]
    fn every_cookie_of_a_name_is_found_wherever_it_stands() {
        let fields = fields(&["a=1; id = 2 ;ID=3", "id=;id; id=\"4=5\"", ";;="]);
        let found: Vec<_> = values(&fields, b"id").collect();
        assert_eq!(found, [&b"2"[..], b"", b"", b"\"4=5\""]);
        assert_eq!(values(&fields, b"d").count(), 0);
    }

    #[test]
    fn what_is_removed_leaves_the_others_as_they_were() {
        assert_eq!(removed(&["a=1; b=2"]), (false, vec!["a=1; b=2".to_owned()]));
        assert_eq!(removed(&["a=1;  id=x;b=\"2\""]), (true, vec!["a=1; b=\"2\"".to_owned()]));
        assert_eq!(removed(&["id=x"]), (true, vec![]));
        assert_eq!(removed(&["id=x; id=y;"]), (true, vec![]));
        assert_eq!(removed(&["a=1", "id=x", "b=2; id"]), (true, vec!["a=1; b=2".to_owned()]));
    }

    #[test]
    fn a_cookie_that_is_taken_away_sets_no_value() {
        assert_eq!(value_set(b"id=7; Path=/; HttpOnly", b"id"), Some(&b"7"[..]));
        assert_eq!(value_set(b" id = 7 ;Max-Age=60", b"id"), Some(&b"7"[..]));
        assert_eq!(value_set(b"id=7; a=max-age=0", b"id"), Some(&b"7"[..]));
        for other in
            [&b"id=; Path=/"[..], b"id=\"\"", b"id=7; MAX-AGE = 0", b"id=7;max-age=-1", b"idx=7", b"x; id=7", b""]
        {
            assert_eq!(value_set(other, b"id"), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn bytes_are_written_in_an_alphabet_that_reads_back_only_as_themselves() {
        let bytes: [u8; 33] = std::array::from_fn(|place| (place * 37 + 5) as u8);
        let mut text = Vec::new();
        encode(&bytes, &mut text);
        assert_eq!((text.len(), decode::<33>(&text)), (44, Some(bytes)));
        for place in 0..44 {
            for wrong in [b'=', b'+', b'/', b' ', 0, 0xff] {
                let mut forged = text.clone();
                forged[place] = wrong;
                assert_eq!(decode::<33>(&forged), None);
            }
        }
        assert_eq!((decode::<33>(&text[1..]), decode::<33>(&[&text[..], b"A"].concat())), (None, None));
    }
}
