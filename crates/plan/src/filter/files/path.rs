//! From the path of a request to that of a file below the root.

/// The longest path of a file, in bytes.
const LENGTH_MAX: usize = 4_095;
/// Of all names that begin with a dot, the one that is meant for the public (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// Decodes the path of a request, once, and checks that it can only name what lies below the root. `None`: it names nothing there, or
/// something hidden, where that is refused.
pub(super) fn below_root(path: &[u8], shows_hidden: bool) -> Option<Vec<u8>> {
    let path = path.strip_prefix(b"/")?;
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.iter();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            other => *other,
        };
        // An escaped slash is part of a name, and no file has one in its name.
        if decoded == 0 || decoded == b'\\' || *byte == b'%' && decoded == b'/' {
            return None;
        }
        out.push(decoded);
    }
    if out.len() > LENGTH_MAX {
        return None;
    }
    let inside = out.strip_suffix(b"/").unwrap_or(&out);
    if inside.is_empty() {
        return out.is_empty().then_some(out);
    }
    let is_good = |segment: &[u8]| match segment {
        b"" | b"." | b".." => false,
        [b'.', ..] => shows_hidden || segment == WELL_KNOWN,
        _ => true,
    };
    inside.split(|byte| *byte == b'/').all(is_good).then_some(out)
}

/// Returns the path of the directory, relative to the address that the client has used, so that it cannot lead to another site.
pub(super) fn with_slash(received: &[u8], query: Option<&[u8]>) -> String {
    let name = received.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let query = query.map_or(String::new(), |query| format!("?{}", String::from_utf8_lossy(query)));
    format!("./{}/{query}", String::from_utf8_lossy(name))
}

fn hex(digit: &u8) -> Option<u8> {
    char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<String> {
        below_root(path.as_bytes(), false).map(|path| String::from_utf8(path).unwrap())
    }

    #[test]
    fn a_path_is_decoded_once() {
        for (path, wanted) in [
            ("/", ""),
            ("/a/b.html", "a/b.html"),
            ("/a/", "a/"),
            ("/a%20b/%C3%A9", "a b/é"),
            ("/%2561", "%61"),
            ("/%252e%252e/x", "%2e%2e/x"),
            ("/...", "..."),
            ("/a..b/c.", "a..b/c."),
            ("/.well-known/acme-challenge/x", ".well-known/acme-challenge/x"),
        ] {
            let found = if path == "/..." {
                below_root(b"/...", true).map(|path| String::from_utf8(path).unwrap())
            } else {
                read(path)
            };
            assert_eq!(found.as_deref(), Some(wanted), "{path}");
        }
    }

    #[test]
    fn what_could_leave_the_root_or_is_hidden_names_nothing() {
        for path in [
            "",
            "a",
            "*",
            "//",
            "//a",
            "/a//b",
            "/..",
            "/../a",
            "/a/../b",
            "/a/..",
            "/./a",
            "/%2e%2e/a",
            "/%2E./a",
            "/.%2e",
            "/a%2fb",
            "/..%2f..%2fetc/passwd",
            "/%2fetc/passwd",
            "/a%5cb",
            "/..\\a",
            "/%00",
            "/a%00.html",
            "/%",
            "/%4",
            "/%zz",
            "/.git/config",
            "/a/.env",
            "/%2egit/config",
            "/.htaccess",
            "/.well-known2",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
        assert_eq!(below_root(b"/.git/config", true).as_deref(), Some(&b".git/config"[..]));
        assert_eq!(below_root(b"/a/../b", true), None);
        assert!(below_root(&[b"/".as_slice(), &[b'a'; LENGTH_MAX]].concat(), false).is_some());
        assert!(below_root(&[b"/".as_slice(), &[b'a'; LENGTH_MAX + 1]].concat(), false).is_none());
    }

    #[test]
    fn a_redirect_to_a_directory_stays_on_the_site() {
        assert_eq!(with_slash(b"/a/b", Some(b"c=1")), "./b/?c=1");
        assert_eq!(with_slash(b"//evil.example", None), "./evil.example/");
        assert_eq!(with_slash(b"/https:", None), "./https:/");
    }
}
