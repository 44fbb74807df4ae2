//! One form for the many in which the same path can be written (RFC 3986 section 6.2.2): what a request asks for and what a
//! configuration names are brought into it by the same hand. `docs/adr/0019-one-form-of-a-path.md` has the reasons.

use crate::snapshot::{EscapedSlashes, Paths};

/// Appends the normal form of `path`, which begins with `/`, to the empty `out`: unreserved characters are not escaped, the digits of
/// other escapes are upper case, dot segments are resolved, and slashes are what `rules` make of them. No path grows by it.
///
/// `None`: some endpoints read it in another way than others. That is a `%` that no two hexadecimal digits follow, an escaped NUL, a
/// slash that `rules` refuse, a dot segment with parameters or beside an escaped slash, and parameters of an empty segment before
/// others.
pub fn write_normal(path: &[u8], rules: &Paths, out: &mut Vec<u8>) -> Option<()> {
    decode(path, rules.escaped_slashes, out)?;
    resolve(out, rules.merge_slashes)
}

/// Returns the normal form of a text, see [`write_normal`].
pub fn normal(path: &str, rules: &Paths) -> Option<String> {
    let mut out = Vec::with_capacity(path.len());
    write_normal(path.as_bytes(), rules, &mut out)?;
    String::from_utf8(out).ok()
}

/// Returns whether some endpoint may find a dot segment in a path, or in one segment of it: after it decodes all escapes, splits at slashes
/// of either kind and removes parameters.
pub fn has_dots(path: &[u8]) -> bool {
    let (mut dots, mut is_named, mut is_over) = (0, false, false);
    let mut rest = path;
    loop {
        let (byte, after) = match rest {
            [] => (b'/', None),
            [b'%', one, two, after @ ..] => match (hex(*one), hex(*two)) {
                (Some(one), Some(two)) => (one << 4 | two, Some(after)),
                _ => (b'%', Some(&rest[1..])),
            },
            [byte, after @ ..] => (*byte, Some(after)),
        };
        match byte {
            b'/' | b'\\' => {
                if !is_named && matches!(dots, 1 | 2) {
                    return true;
                }
                (dots, is_named, is_over) = (0, false, false);
            }
            _ if is_over => {}
            b';' => is_over = true,
            b'.' => dots += 1,
            _ => is_named = true,
        }
        let Some(after) = after else { return false };
        rest = after;
    }
}

/// Decodes escapes by RFC 3986 sections 6.2.2.1 and 6.2.2.2. Returns `None` if the path is rejected.
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
                    // It would end the path for anyone who reads it as text of C.
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

/// Appends a character that only some endpoints read as a slash.
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

/// Returns whether a byte is unreserved (RFC 3986 section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Resolves dot segments by RFC 3986 section 5.2.4, in place. Returns `None` if the path is rejected.
fn resolve(path: &mut Vec<u8>, merges: bool) -> Option<()> {
    // What precedes `write` is done. At `read` stands the slash before the next segment.
    let (mut read, mut write) = (0, 0);
    while read < path.len() {
        let start = read + 1;
        let end = path[start..].iter().position(|&byte| byte == b'/').map_or(path.len(), |length| start + length);
        let is_last = end == path.len();
        let segment = &path[start..end];
        if matches!(segment, b"." | b"..") {
            if segment == b".." {
                write = path[..write].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            }
            if is_last {
                path[write] = b'/';
                write += 1;
            }
        } else if has_dots(segment) || (is_nameless(segment) && !is_last) {
            // Endpoints that know parameters (RFC 3986 section 3.3), or undo the escapes of slashes, may see dots alone here, or
            // nothing at all. Others do not.
            return None;
        } else if !merges || !segment.is_empty() || is_last {
            path.copy_within(read..end, write);
            write += end - read;
        }
        read = end;
    }
    path.truncate(write);
    Some(())
}

/// Returns whether a segment consists of parameters only.
fn is_nameless(segment: &[u8]) -> bool {
    segment.starts_with(b";") || segment.starts_with(b"%3B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_found_however_they_are_hidden() {
        for path in [
            "/..",
            "/./a",
            "..",
            ".",
            "/a/../b",
            "/%2e%2E/a",
            "/.%2e",
            "/a%2F..%2fb",
            "/a%5c..",
            "/a\\.\\b",
            "..\\a",
            "/..;x/a",
            "/%2e;/a",
            "/a/..%3Bx",
            "%2f..",
        ] {
            assert!(has_dots(path.as_bytes()), "{path}");
        }
        for path in [
            "", "/", "//", "/a", "/...", "/.a", "/a.", "/..a/b..", "/a;..", "/;/..a", "/%2e%", "/%252e", "/.%",
            "/.%zz/", "/a%2F.b",
        ] {
            assert!(!has_dots(path.as_bytes()), "{path}");
        }
    }
}
