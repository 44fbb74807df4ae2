//! Integers and strings as HPACK (RFC 7541 section 5) and QPACK (RFC 9204 section 4.1) write them.

mod huffman;

/// Longest integer that is read: more than any bound of ours.
const INTEGER_MAX: u64 = 1 << 30;

/// Bytes that no encoder writes, or that end too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Reads an integer behind the bits that say what it is (RFC 7541 section 5.1).
pub(crate) fn integer(rest: &mut &[u8], prefix_bits: u32) -> Result<u64, Unreadable> {
    let (first, mut tail) = rest.split_first().ok_or(Unreadable)?;
    let most = (1u64 << prefix_bits) - 1;
    let mut value = u64::from(*first) & most;
    if value == most {
        let mut shift = 0;
        loop {
            let (byte, after) = tail.split_first().ok_or(Unreadable)?;
            tail = after;
            value += u64::from(byte & 0x7f) << shift;
            shift += 7;
            if value > INTEGER_MAX || shift > 35 {
                return Err(Unreadable);
            }
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = tail;
    Ok(value)
}

/// Reads a string whose length stands behind the bit that says whether it is in the Huffman code. One that is lies in `scratch`
/// afterwards.
pub(crate) fn string<'r: 'a, 'a>(
    rest: &mut &'r [u8],
    prefix_bits: u32,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], Unreadable> {
    let is_coded = rest.first().is_some_and(|first| first & (1 << prefix_bits) != 0);
    let length = integer(rest, prefix_bits)? as usize;
    let (own, tail) = rest.split_at_checked(length).ok_or(Unreadable)?;
    *rest = tail;
    if !is_coded {
        return Ok(own);
    }
    scratch.clear();
    huffman::decode(own, scratch).map_err(|huffman::BadString| Unreadable)?;
    Ok(scratch)
}

/// Writes an integer; `kind` are the bits before it.
pub(crate) fn push_integer(out: &mut Vec<u8>, kind: u8, prefix_bits: u32, value: u64) {
    let most = (1 << prefix_bits) - 1;
    if value < most {
        out.push(kind | value as u8);
        return;
    }
    out.push(kind | most as u8);
    let mut left = value - most;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Writes a string as it is.
pub(crate) fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    push_integer(out, 0, 7, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a string in the Huffman code where that is shorter.
pub(crate) fn push_shorter_string(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = huffman::encoded_len(bytes);
    if length >= bytes.len() {
        push_string(out, bytes);
        return;
    }
    push_integer(out, 0x80, 7, length as u64);
    huffman::encode(bytes, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_the_standard() {
        // RFC 7541 appendix C.1.
        let samples: [(u32, u64, &[u8]); 3] =
            [(5, 10, &[0b0000_1010]), (5, 1337, &[0b0001_1111, 0b1001_1010, 0b0000_1010]), (8, 42, &[0b0010_1010])];
        for (prefix_bits, value, bytes) in samples {
            let mut out = Vec::new();
            push_integer(&mut out, 0, prefix_bits, value);
            assert_eq!(out, bytes);
            let mut rest = bytes;
            assert_eq!((integer(&mut rest, prefix_bits), rest.len()), (Ok(value), 0));
        }
    }

    #[test]
    fn integers_that_are_cut_or_have_no_end_are_refused() {
        let cases: [&[u8]; 5] =
            [b"", b"\x1f", b"\x1f\x80", b"\x1f\xff\xff\xff\xff\xff\xff\xff\x01", b"\x1f\x80\x80\x80\x80\x80\x80\x00"];
        for bytes in cases {
            let mut rest = bytes;
            assert_eq!(integer(&mut rest, 5), Err(Unreadable), "{bytes:?}");
        }
    }

    #[test]
    fn strings_are_read_as_they_were_written_and_never_grow() {
        let every: Vec<u8> = (0..=255).collect();
        for text in [&b""[..], b"a", b"www.example.com", b"\0\0\0\0", &every[..], &b"x".repeat(1000)[..]] {
            for push in [push_string, push_shorter_string] {
                let mut out = Vec::new();
                push(&mut out, text);
                assert!(out.len() <= text.len() + 3);
                let (mut rest, mut scratch) = (&out[..], Vec::new());
                assert_eq!(string(&mut rest, 7, &mut scratch), Ok(text));
                assert!(rest.is_empty());
            }
        }
    }
}
