//! What the fuzz targets share: how an input is cut into pieces, as a network would cut it, and a second, simple reader
//! of heads that the real one is held to.
//!
//! Start reading at `fuzz_targets/`; each target says what must hold for every input.

pub mod filters;

/// The first byte of an input chooses; the others are the message. Empty inputs choose nothing.
pub fn choice_and_message(input: &[u8]) -> (u8, &[u8]) {
    match input {
        [choice, message @ ..] => (*choice, message),
        [] => (0, &[]),
    }
}

/// Ends of the pieces that `len` bytes arrive in: always the last end, before it others that `choice` makes. 0 gives the
/// whole at once, 1 single bytes, others steps of varying length.
pub fn cuts(choice: u8, len: usize) -> impl Iterator<Item = usize> {
    let mut state = u32::from(choice);
    let mut end = 0;
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        end += match choice {
            0 => len,
            1 => 1,
            _ => 1 + (state >> 16) as usize % (1 + usize::from(choice)),
        };
        end = end.min(len);
        ended = end == len;
        Some(end)
    })
}

/// The fields of an accepted head, read in the plainest way there is.
#[derive(Debug, Default)]
pub struct Plain {
    /// Name in lower case and value without surrounding white space, in order.
    pub fields: Vec<(String, Vec<u8>)>,
}

impl Plain {
    /// Reads a head that was accepted.
    ///
    /// # Panics
    /// When it breaks the grammar of RFC 9112: it should not have been accepted.
    pub fn read(head: &[u8]) -> Self {
        let mut head = head;
        while let Some(rest) = head.strip_prefix(b"\r\n") {
            head = rest;
        }
        let body = head.strip_suffix(b"\r\n\r\n").expect("a head ends with an empty line");
        let mut lines = Vec::new();
        let mut rest = body;
        while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
            lines.push(&rest[..at]);
            rest = &rest[at + 2..];
        }
        lines.push(rest);
        assert!(lines.iter().all(|line| !line.is_empty() && line.iter().all(|byte| !b"\r\n\0".contains(byte))));
        let fields = lines[1..].iter().map(|line| {
            let colon = line.iter().position(|&byte| byte == b':').expect("a field has a colon");
            let name = std::str::from_utf8(&line[..colon]).expect("a name is ASCII");
            assert!(
                !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte))
            );
            (name.to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_vec())
        });
        Self { fields: fields.collect() }
    }

    /// The values of this field.
    pub fn all(&self, name: &str) -> Vec<&[u8]> {
        self.fields.iter().filter(|field| field.0 == name).map(|field| &field.1[..]).collect()
    }

    /// Whether the framing fields leave no doubt, and which length or `chunked` they say.
    ///
    /// # Panics
    /// When two recipients could differ about it.
    pub fn framing(&self) -> Option<Result<u64, &'static str>> {
        match (&self.all("content-length")[..], &self.all("transfer-encoding")[..]) {
            ([], []) => None,
            ([length], []) => {
                assert!(!length.is_empty() && length.iter().all(u8::is_ascii_digit));
                Some(Ok(String::from_utf8_lossy(length).parse().expect("a length of 64 bits")))
            }
            ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => Some(Err("chunked")),
            other => panic!("accepted doubtful framing: {other:?}"),
        }
    }
}

/// The data of a whole chunked body that was accepted, read in the plainest way there is.
///
/// # Panics
/// When it breaks RFC 9112 section 7.1: it should not have been accepted.
pub fn plain_chunks(body: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut rest = body;
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("a chunk line ends");
        let line = std::str::from_utf8(&rest[..end]).map_or_else(|_| String::from_utf8_lossy(&rest[..end]), Into::into);
        assert!(!line.contains(['\r', '\n', '\0']), "{line:?}");
        let digits = rest[..end].iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(end);
        assert!(is_extension(&rest[digits..end]), "{line:?}");
        let size = &line[..digits];
        assert!(size.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let len = u64::from_str_radix(size, 16).expect("a size of 64 bits") as usize;
        rest = &rest[end + 2..];
        if len == 0 {
            break;
        }
        data.extend_from_slice(&rest[..len]);
        assert_eq!(&rest[len..len + 2], b"\r\n");
        rest = &rest[len + 2..];
    }
    if rest != b"\r\n" {
        // A trailer section has the shape of the fields of a head.
        Plain::read(&[b"line\r\n", rest].concat());
    }
    data
}

/// The grammar of chunk extensions (RFC 9112 section 7.1.1), read as it is written there.
fn is_extension(text: &[u8]) -> bool {
    fn past_space(text: &[u8]) -> &[u8] {
        let end = text.iter().position(|byte| !b" \t".contains(byte)).unwrap_or(text.len());
        &text[end..]
    }
    fn past_token(text: &[u8]) -> Option<&[u8]> {
        let is_in_token = |byte: &u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(byte);
        let end = text.iter().position(|byte| !is_in_token(byte)).unwrap_or(text.len());
        (end > 0).then(|| &text[end..])
    }
    fn past_quoted(text: &[u8]) -> Option<&[u8]> {
        let mut rest = text.strip_prefix(b"\"")?;
        loop {
            rest = match rest {
                [b'"', rest @ ..] => return Some(rest),
                [b'\\', b'\t' | b' '..=b'~' | 0x80.., rest @ ..] => rest,
                [b'\t' | b' '..=b'[' | b']'..=b'~' | 0x80.., rest @ ..] => rest,
                _ => return None,
            };
        }
    }
    let mut rest = text;
    while !rest.is_empty() {
        let Some(behind) = past_space(rest).strip_prefix(b";") else { return false };
        let Some(behind) = past_token(past_space(behind)) else { return false };
        rest = behind;
        if let Some(value) = past_space(behind).strip_prefix(b"=") {
            let value = past_space(value);
            let Some(behind) = past_token(value).or_else(|| past_quoted(value)) else { return false };
            rest = behind;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_rise_and_end_at_the_end() {
        for choice in 0..=255 {
            for len in 0..50 {
                let all: Vec<_> = cuts(choice, len).collect();
                assert_eq!(all.last(), Some(&len));
                assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{choice} {len} {all:?}");
            }
        }
    }
}
