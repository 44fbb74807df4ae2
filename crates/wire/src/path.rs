//! One form for the many in which the same path can be written (RFC 3986 section 6.2.2), so that a route that guards a path guards
//! it however it is spelt. `docs/adr/0019-one-form-of-a-path.md` has the reasons.
//!
//! What is compared is what endpoints are sent: were one path decided about and another sent, an endpoint that reads the second in
//! its own way would get past the decision.

use model::snapshot::{EscapedSlashes, Paths};
use model::{Fault, RequestHead};

/// Brings the path of a request into its normal form: unreserved characters are not escaped, the digits of other escapes are upper
/// case, dot segments are resolved, and slashes are what `rules` make of them. The query stays as it is, and so do `*` and the empty
/// path of CONNECT. Costs one look at each byte where that changes nothing, and allocates nothing once `scratch` has its working
/// size.
///
/// # Errors
/// [`Fault::AmbiguousPath`]: a `%` that no two hexadecimal digits follow, an escaped NUL, a dot segment with parameters, which
/// some endpoints take for one without, or a slash that `rules` refuse.
pub fn normalise(head: &mut RequestHead, rules: &Paths, scratch: &mut Vec<u8>) -> Result<(), Fault> {
    let path = head.path();
    if is_plain(path) || path.first() != Some(&b'/') {
        return Ok(());
    }
    scratch.clear();
    decode(path, rules.escaped_slashes, scratch).ok_or(Fault::AmbiguousPath)?;
    resolve(scratch, rules.merge_slashes).ok_or(Fault::AmbiguousPath)?;
    if scratch.as_slice() != path {
        head.set_path(scratch);
    }
    Ok(())
}

/// Whether nothing in a path could be written otherwise, as is true of nearly all.
#[inline]
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    for &byte in path {
        let is_odd = match byte {
            b'%' | b'\\' => true,
            b'/' | b'.' => before == b'/',
            _ => false,
        };
        if is_odd {
            return false;
        }
        before = byte;
    }
    true
}

/// RFC 3986 sections 6.2.2.1 and 6.2.2.2. `None`: it is refused.
fn decode(path: &[u8], slashes: EscapedSlashes, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let escaped = [b'%', digits[0].to_ascii_uppercase(), digits[1].to_ascii_uppercase()];
                match hex(digits[0])? << 4 | hex(digits[1])? {
                    // It would end the path for whoever reads it as text of C.
                    0 => return None,
                    b'/' | b'\\' => push_slash(&escaped, slashes, out)?,
                    byte if is_unreserved(byte) => out.push(byte),
                    _ => out.extend(escaped),
                }
            }
            b'\\' => push_slash(b"\\", slashes, out)?,
            byte => out.push(byte),
        }
    }
    Some(())
}

/// What many an endpoint reads as a slash, and many another does not.
fn push_slash(written: &[u8], slashes: EscapedSlashes, out: &mut Vec<u8>) -> Option<()> {
    match slashes {
        EscapedSlashes::Refuse => return None,
        EscapedSlashes::Keep => out.extend_from_slice(written),
        EscapedSlashes::Decode => out.push(b'/'),
    }
    Some(())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// RFC 3986 section 5.2.4, in place: no path grows by it. `None`: it is refused.
fn resolve(path: &mut Vec<u8>, merges: bool) -> Option<()> {
    // What stands before `write` is done. At `read` stands the slash before the next segment.
    let (mut read, mut write) = (0, 0);
    while read < path.len() {
        let start = read + 1;
        let end = path[start..].iter().position(|&byte| byte == b'/').map_or(path.len(), |length| start + length);
        let is_last = end == path.len();
        let segment = &path[start..end];
        let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
        if matches!(name, b"." | b"..") {
            // Endpoints that know parameters (RFC 3986 section 3.3) may see dots alone here, others do not.
            if name.len() < segment.len() {
                return None;
            }
            if name == b".." {
                write = path[..write].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            }
            if is_last {
                path[write] = b'/';
                write += 1;
            }
        } else if !merges || !segment.is_empty() || is_last {
            path.copy_within(read..end, write);
            write += end - read;
        }
        read = end;
    }
    path.truncate(write);
    Some(())
}

#[cfg(test)]
mod tests {
    use model::Version;
    use model::fields::Span;
    use proptest::prelude::*;

    use super::*;

    const STRICT: Paths = Paths { merge_slashes: true, escaped_slashes: EscapedSlashes::Refuse };
    const LOOSE: Paths = Paths { merge_slashes: false, escaped_slashes: EscapedSlashes::Keep };
    const DECODING: Paths = Paths { merge_slashes: true, escaped_slashes: EscapedSlashes::Decode };

    fn head(target: &str) -> RequestHead {
        let mut head = RequestHead::default();
        let start = head.fields.load(b"GET");
        let method = Span::new(start, start + 3);
        let start = head.fields.load(target.as_bytes());
        head.set_line(method, Span::new(start, start + target.len()), Version::Http11);
        head
    }

    fn read(target: &str, rules: &Paths) -> Option<String> {
        let mut head = head(target);
        normalise(&mut head, rules, &mut Vec::new()).ok()?;
        Some(String::from_utf8(head.path().to_vec()).unwrap())
    }

    #[test]
    fn one_path_has_one_form() {
        for (path, wanted) in [
            ("/", "/"),
            ("/admin", "/admin"),
            ("/%61dmin", "/admin"),
            ("/%41%5a%2D%2e%5F%7e%30", "/AZ-._~0"),
            ("/%2561", "/%2561"),
            ("/caf%c3%A9/%3a%28", "/caf%C3%A9/%3A%28"),
            ("//admin", "/admin"),
            ("/admin//", "/admin/"),
            ("/a///b", "/a/b"),
            ("///", "/"),
            ("/./admin", "/admin"),
            ("/%2e/admin", "/admin"),
            ("/public/../admin", "/admin"),
            ("/public/%2E%2e/admin", "/admin"),
            ("/a/b/../../admin/.", "/admin/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/..", "/"),
            ("/../../admin", "/admin"),
            ("/a//../b", "/b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("/..a/.b", "/..a/.b"),
            ("/a;b/c;d=.", "/a;b/c;d=."),
            ("/a|{b}", "/a|{b}"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(read(path, &STRICT).as_deref(), Some(wanted), "{path}");
        }
    }

    #[test]
    fn what_endpoints_read_in_several_ways_is_refused() {
        for path in ["/a%00", "/%", "/a%4", "/%zz", "/%%36%31", "/..;/admin", "/.;a", "/x/..;a=b/y", "/%2e%2e;/a"] {
            for rules in [&STRICT, &LOOSE, &DECODING] {
                assert_eq!(normalise(&mut head(path), rules, &mut Vec::new()), Err(Fault::AmbiguousPath), "{path}");
            }
        }
        for path in ["/a%2fb", "/a%2Fb", "/a%5cb", "/a%5Cb", "/a\\b", "/..%2fadmin", "/a/..\\admin"] {
            assert_eq!(read(path, &STRICT), None, "{path}");
        }
    }

    #[test]
    fn slashes_are_what_the_rules_make_of_them() {
        for (path, kept, decoded) in [
            ("/a%2fb", "/a%2Fb", "/a/b"),
            ("/%2fadmin", "/%2Fadmin", "/admin"),
            ("/a%5c\\b", "/a%5C\\b", "/a/b"),
            ("/public%2f..%2fadmin", "/public%2F..%2Fadmin", "/admin"),
            ("/public/..%2fadmin", "/public/..%2Fadmin", "/admin"),
            ("//a//b/", "//a//b/", "/a/b/"),
            ("/a//../b", "/a/b", "/b"),
            ("//..", "/", "/"),
        ] {
            assert_eq!(read(path, &LOOSE).as_deref(), Some(kept), "{path}");
            assert_eq!(read(path, &DECODING).as_deref(), Some(decoded), "{path}");
        }
    }

    #[test]
    fn the_query_and_what_was_received_stay() {
        let mut head = head("/x/../%61?q=%61//../b");
        normalise(&mut head, &STRICT, &mut Vec::new()).unwrap();
        assert_eq!((head.path(), head.query()), (&b"/a"[..], Some(&b"q=%61//../b"[..])));
        assert_eq!(head.received_path(), b"/x/../%61");
    }

    #[test]
    fn a_path_that_is_normal_costs_no_memory() {
        let mut head = head("/a/b.html?x=%61");
        let before = head.fields.capacity_bytes();
        let mut scratch = Vec::new();
        normalise(&mut head, &STRICT, &mut scratch).unwrap();
        assert_eq!((head.fields.capacity_bytes(), scratch.capacity()), (before, 0));
    }

    proptest! {
        #[test]
        fn a_normal_form_is_its_own_and_hides_nothing(path in "/([./%;a-cA-F0-9]|%2[eEfF]|%61|\\\\){0,24}") {
            for rules in [&STRICT, &LOOSE, &DECODING] {
                let Some(once) = read(&path, rules) else { continue };
                prop_assert!(once.starts_with('/'));
                prop_assert_eq!(read(&once, rules), Some(once.clone()));
                prop_assert!(once.split('/').all(|segment| segment != "." && segment != ".."), "{}", once);
                prop_assert!(!rules.merge_slashes || !once.contains("//"), "{}", once);
                prop_assert!(!once.contains("%61") && !once.contains("%2e") && !once.contains("%2E"), "{}", once);
            }
        }
    }
}
