//! Validators and conditional requests (RFC 9110 sections 8.8 and 13).

use model::fields::Fields;

use super::control::trimmed;
use super::date;

/// Returns whether a request whose fields these are is answered by 304, of a stored response with these validators. `If-None-Match` goes
/// before `If-Modified-Since` (RFC 9110 section 13.2.2). `modified`: `Last-Modified`, or else `Date`.
pub fn is_not_modified(request: &Fields, etag: Option<&[u8]>, modified: Option<u64>) -> bool {
    let mut tags = named(request, b"if-none-match").peekable();
    if tags.peek().is_some() {
        return tags.any(|list| matches(list, etag));
    }
    let since = named(request, b"if-modified-since").next().and_then(date::parse);
    matches!((since, modified), (Some(since), Some(modified)) if modified <= since)
}

/// Returns whether a range is answered in part: there is no `If-Range`, or it names this very response (RFC 9110 section 13.1.5).
pub fn if_range_holds(request: &Fields, etag: Option<&[u8]>, last_modified: Option<&[u8]>) -> bool {
    let Some(wanted) = named(request, b"if-range").next() else { return true };
    if wanted.starts_with(b"\"") {
        return etag == Some(wanted);
    }
    // A weak tag never matches; a date must be the same to the letter.
    !wanted.starts_with(b"W/") && last_modified.is_some_and(|modified| modified == wanted)
}

/// Whether a list of `If-None-Match` has this tag, by the weak comparison (RFC 9110 section 8.8.3.2).
fn matches(list: &[u8], etag: Option<&[u8]>) -> bool {
    if trimmed(list) == b"*" {
        return true;
    }
    let Some(etag) = etag.map(opaque) else { return false };
    let mut rest = trimmed(list);
    loop {
        rest = &rest[rest.iter().position(|byte| !matches!(byte, b',' | b' ' | b'\t')).unwrap_or(rest.len())..];
        let tag = opaque(rest);
        let Some(inside) = tag.strip_prefix(b"\"") else { return false };
        let Some(end) = inside.iter().position(|byte| *byte == b'"') else { return false };
        if &tag[..end + 2] == etag {
            return true;
        }
        rest = &inside[end + 1..];
    }
}

/// The tag without its weakness.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The values of a field.
pub(crate) fn named<'a>(fields: &'a Fields, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::entry::testing::fields;

    #[test]
    fn tags_are_compared_weakly_and_go_before_dates() {
        let ask = |name: &str, value: &str, etag: Option<&str>| {
            is_not_modified(&fields(&[(name, value)]), etag.map(str::as_bytes), Some(784_111_777))
        };
        // RFC 9110 sections 8.8.3.2 and 13.1.2.
        assert!(ask("if-none-match", "W/\"1\"", Some("\"1\"")));
        assert!(ask("If-None-Match", "\"a,b\" ,W/\"1\"", Some("W/\"1\"")));
        assert!(ask("if-none-match", "*", None));
        assert!(!ask("if-none-match", "\"2\"", Some("\"1\"")));
        assert!(!ask("if-none-match", "1", Some("1")));
        assert!(!ask("if-none-match", "\"1", Some("\"1\"")));
        // RFC 9110 section 13.1.3.
        assert!(ask("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT", None));
        assert!(!ask("if-modified-since", "Sun, 06 Nov 1994 08:49:36 GMT", None));
        assert!(!ask("if-modified-since", "yesterday", None));
        let both = fields(&[("if-none-match", "\"2\""), ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        assert!(!is_not_modified(&both, Some(b"\"1\""), Some(784_111_777)));
    }

    #[test]
    fn if_range_needs_the_very_same_response() {
        let ask = |value: &str| {
            if_range_holds(&fields(&[("if-range", value)]), Some(b"\"1\""), Some(b"Sun, 06 Nov 1994 08:49:37 GMT"))
        };
        assert!(ask("\"1\"") && ask("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert!(!ask("W/\"1\"") && !ask("\"2\"") && !ask("Sun, 06 Nov 1994 08:49:38 GMT"));
        assert!(if_range_holds(&Fields::default(), None, None));
        assert!(!if_range_holds(&fields(&[("if-range", "W/\"1\"")]), Some(b"W/\"1\""), None));
    }
}
