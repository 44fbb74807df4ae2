//! One form for the many in which the same path can be written (RFC 3986 section 6.2.2), so that a route that guards a path guards
//! it however it is spelt. `docs/adr/0019-one-form-of-a-path.md` has the reasons.
//!
//! What is compared is what endpoints are sent: were one path decided about and another sent, an endpoint that reads the second in
//! its own way would get past the decision.

use model::snapshot::Paths;
use model::{Fault, RequestHead, path};

/// Brings the path of a request into its normal form: unreserved characters are not escaped, the digits of other escapes are upper
/// case, dot segments are resolved, and slashes are what `rules` make of them. The query stays as it is, and so do `*` and the empty
/// path of CONNECT. Costs one look at each byte where that changes nothing, and allocates nothing once `scratch` has its working
/// size.
///
/// # Errors
/// [`Fault::AmbiguousPath`]: what [`path::write_normal`] refuses.
pub fn normalise(head: &mut RequestHead, rules: &Paths, scratch: &mut Vec<u8>) -> Result<(), Fault> {
    let path = head.path();
    if is_plain(path) || path.first() != Some(&b'/') {
        return Ok(());
    }
    scratch.clear();
    path::write_normal(path, rules, scratch).ok_or(Fault::AmbiguousPath)?;
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
            b'/' | b'.' | b';' => before == b'/',
            _ => false,
        };
        if is_odd {
            return false;
        }
        before = byte;
    }
    true
}

#[cfg(test)]
mod tests {
    use model::Version;
    use model::fields::Span;
    use model::snapshot::EscapedSlashes;
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
            ("/;jsessionid=1", "/;jsessionid=1"),
            ("/a/;x", "/a/;x"),
            ("/x/../;a", "/;a"),
            ("/a|{b}", "/a|{b}"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(read(path, &STRICT).as_deref(), Some(wanted), "{path}");
        }
    }

    #[test]
    fn what_endpoints_read_in_several_ways_is_refused() {
        let broken = ["/a%00", "/%", "/a%4", "/%zz", "/%%36%31"];
        let dots = ["/..;/admin", "/.;a", "/x/..;a=b/y", "/%2e%2e;/a", "/..%3b/a"];
        // An endpoint that strips parameters sees an empty segment, and then none.
        let nameless = ["/;/admin", "/;x=1/admin", "/a/;/../admin", "/a//;/b", "/%3B/admin", "/;/", "/%2e/;/admin"];
        for path in broken.into_iter().chain(dots).chain(nameless) {
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
            ("/@a%2f.b%2f...", "/@a%2F.b%2F...", "/@a/.b/..."),
            ("//a//b/", "//a//b/", "/a/b/"),
            ("/a//../b", "/a/b", "/b"),
            ("//..", "/", "/"),
        ] {
            assert_eq!(read(path, &LOOSE).as_deref(), Some(kept), "{path}");
            assert_eq!(read(path, &DECODING).as_deref(), Some(decoded), "{path}");
        }
    }

    #[test]
    fn dot_segments_do_not_hide_behind_slashes_that_are_kept() {
        for (path, decoded) in [
            ("/public%2f..%2fadmin", "/admin"),
            ("/public/..%2fadmin", "/admin"),
            ("/public/..\\admin", "/admin"),
            ("/x%2F..%2F..%2Fadmin", "/admin"),
            ("/a%5c.", "/a/"),
            ("/.%2fadmin", "/admin"),
        ] {
            assert_eq!(read(path, &LOOSE), None, "{path}");
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
        fn a_normal_form_is_its_own_and_hides_nothing(path in "/([./%;a-cA-F0-9]|%2[eEfF]|%61|%3b|\\\\){0,24}") {
            for rules in [&STRICT, &LOOSE, &DECODING] {
                prop_assert_eq!(read(&path, rules), model::path::normal(&path, rules));
                let Some(once) = read(&path, rules) else { continue };
                prop_assert!(once.starts_with('/'));
                prop_assert_eq!(read(&once, rules), Some(once.clone()));
                prop_assert!(!path::has_dots(once.as_bytes()), "{}", once);
                prop_assert!(!once.contains("/;/"), "{}", once);
                prop_assert!(!rules.merge_slashes || !once.contains("//"), "{}", once);
                prop_assert!(!once.contains("%61") && !once.contains("%2e") && !once.contains("%2E"), "{}", once);
            }
        }
    }
}
