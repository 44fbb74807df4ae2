//! A body in chunks (RFC 9112 section 7.1), read only to find its end.

use super::http1::Malformed;

/// The longest line with the size of a chunk, and the longest field behind the last one.
const LINE_MAX: usize = 8 * 1024;

/// Where the reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// Before the size of a chunk.
    Size,
    /// Within a chunk: so many bytes are left, with its line end.
    Data(u64),
    /// Behind the last chunk, before an empty line.
    Trailers,
    /// Behind that line.
    Over,
}

impl Chunks {
    /// Throws away what has arrived of the body, and tells how many bytes that was. They may end anywhere.
    pub(crate) fn skip(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while *self != Self::Over {
            let left = &bytes[at..];
            let (next, used) = match *self {
                Self::Data(0) => (Self::Size, 0),
                Self::Data(_) if left.is_empty() => break,
                Self::Data(size) => {
                    let used = usize::try_from(size).unwrap_or(usize::MAX).min(left.len());
                    (Self::Data(size - used as u64), used)
                }
                Self::Size => match httparse::parse_chunk_size(left).map_err(|_| Malformed)? {
                    httparse::Status::Partial => break,
                    httparse::Status::Complete((used, 0)) => (Self::Trailers, used),
                    httparse::Status::Complete((used, size)) => (Self::Data(size.saturating_add(2)), used),
                },
                Self::Trailers => match left.windows(2).position(|pair| pair == b"\r\n") {
                    None => break,
                    Some(0) => (Self::Over, 2),
                    Some(line) => (Self::Trailers, line + 2),
                },
                Self::Over => break,
            };
            *self = next;
            at += used;
        }
        if bytes.len() - at > LINE_MAX && *self != Self::Over { Err(Malformed) } else { Ok(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"5;name=value\r\nhel\r\n\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nX-Sum: 1\r\n\r\n";

    #[test]
    fn the_end_is_found_however_the_bytes_arrive_and_what_follows_is_left() {
        let all = [BODY, b"GET /12 HTTP/1.1\r\n"].concat();
        let mut chunks = Chunks::Size;
        assert_eq!((chunks.skip(&all), chunks), (Ok(BODY.len()), Chunks::Over));
        for size in 1..BODY.len() {
            let (mut chunks, mut kept, mut used) = (Chunks::Size, Vec::new(), 0);
            for piece in BODY.chunks(size) {
                assert_ne!(chunks, Chunks::Over, "{size}");
                kept.extend_from_slice(piece);
                let skipped = chunks.skip(&kept).unwrap();
                kept.drain(..skipped);
                used += skipped;
            }
            assert_eq!((chunks, used), (Chunks::Over, BODY.len()), "{size}");
        }
        let mut empty = Chunks::Size;
        assert_eq!((empty.skip(b"0\r\n\r\n"), empty), (Ok(5), Chunks::Over));
    }

    #[test]
    fn what_are_no_chunks_or_has_no_end_is_an_error() {
        for bytes in [&b"x\r\n"[..], b"-1\r\n", b"fffffffffffffffffffff\r\n"] {
            assert_eq!(Chunks::Size.skip(bytes), Err(Malformed), "{bytes:?}");
        }
        let endless = [b"5;".to_vec(), vec![b'x'; LINE_MAX + 1]].concat();
        assert_eq!(Chunks::Size.skip(&endless), Err(Malformed));
        assert_eq!(Chunks::Trailers.skip(&vec![b'x'; LINE_MAX + 1]), Err(Malformed));
        let mut large = Chunks::Size;
        assert_eq!((large.skip(b"ffffffffffffffff\r\nabc"), large), (Ok(21), Chunks::Data(u64::MAX - 3)));
    }
}
