//! Base64 in its common alphabet (RFC 4648 section 4), whole or piece by piece, and in that of URLs (section 5). What cookies of a
//! fixed length need is in [`crate::cookie`].

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes one segment, with its padding.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let symbol = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(symbol) } else { '=' });
        }
    }
    text
}

/// Reads one segment back. `None` if there is a foreign character, or the padding is wrong or missing. Bits behind the last byte
/// are ignored.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    // The decoder would read on behind padding, as another segment.
    if text[..text.len().saturating_sub(2)].contains(&b'=') {
        return None;
    }
    let (mut decoder, mut bytes) = (Decoder::default(), text.to_vec());
    let count = decoder.decode_in_place(&mut bytes).ok()?;
    bytes.truncate(count);
    decoder.is_between().then_some(bytes)
}

/// Encodes in the alphabet of URLs, without padding (RFC 7515 section 2).
pub fn encode_url(bytes: &[u8]) -> String {
    let common = encode(bytes);
    let url = |symbol| match symbol {
        '+' => '-',
        '/' => '_',
        other => other,
    };
    common.trim_end_matches('=').chars().map(url).collect()
}

/// Reads base64 in the alphabet of URLs, without padding (RFC 7515 section 2). Returns `None` for a foreign character, a length that no bytes
/// have, and bits behind the last byte: every text stands for other bytes.
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut word = 0_u32;
        for &character in group {
            word = word << 6 | u32::from(url_sextet(character)?);
        }
        let word = word << (6 * (4 - group.len()));
        let [_, one, two, three] = word.to_be_bytes();
        match group.len() {
            4 => bytes.extend([one, two, three]),
            3 if three == 0 => bytes.extend([one, two]),
            2 if two == 0 && three == 0 => bytes.push(one),
            _ => return None,
        }
    }
    Some(bytes)
}

fn url_sextet(character: u8) -> Option<u8> {
    match character {
        b'-' => Some(62),
        b'_' => Some(63),
        b'+' | b'/' => None,
        other => sextet(other),
    }
}

/// An error: the text is not base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadText;

/// Reads text piece by piece. It holds no more than the bits of one character. The text may consist of several segments with
/// padding of their own: the sender of a gRPC-Web body pads wherever it flushes (PROTOCOL-WEB.md of the gRPC project).
///
/// ```text
/// Between ── c ─► One ── c ─► Two ── c ─► Three ── c or = ─► Between
///                              └── = ─► Padding ── = ───────────┘
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decoder {
    /// Between two groups of four: the text may end here.
    #[default]
    Between,
    /// One character has come, six bits of which are left.
    One(u8),
    /// Two have, with four bits left.
    Two(u8),
    /// Three have, with two bits left.
    Three(u8),
    /// One `=` has come, and another has to.
    Padding,
}

impl Decoder {
    /// Returns whether the text may end here.
    pub fn is_between(self) -> bool {
        self == Self::Between
    }

    /// Decodes `bytes` in place and returns the number of decoded bytes, which is never more than came.
    ///
    /// # Errors
    /// A foreign character, white space included, or padding where there can be none.
    pub fn decode_in_place(&mut self, bytes: &mut [u8]) -> Result<usize, BadText> {
        let mut count = 0;
        for place in 0..bytes.len() {
            let (next, byte) = self.step(bytes[place])?;
            *self = next;
            if let Some(byte) = byte {
                bytes[count] = byte;
                count += 1;
            }
        }
        Ok(count)
    }

    fn step(self, character: u8) -> Result<(Self, Option<u8>), BadText> {
        if character == b'=' {
            return match self {
                Self::Two(_) => Ok((Self::Padding, None)),
                Self::Three(_) | Self::Padding => Ok((Self::Between, None)),
                Self::Between | Self::One(_) => Err(BadText),
            };
        }
        let six = sextet(character).ok_or(BadText)?;
        match self {
            Self::Between => Ok((Self::One(six), None)),
            Self::One(left) => Ok((Self::Two(six & 0xf), Some(left << 2 | six >> 4))),
            Self::Two(left) => Ok((Self::Three(six & 0x3), Some(left << 4 | six >> 2))),
            Self::Three(left) => Ok((Self::Between, Some(left << 6 | six))),
            Self::Padding => Err(BadText),
        }
    }
}

/// Returns the six bits that a character encodes.
fn sextet(character: u8) -> Option<u8> {
    Some(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_go_both_ways() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("ann:secret", "YW5uOnNlY3JldA=="),
        ] {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded.as_bytes()).as_deref(), Some(plain.as_bytes()));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()), Some(all));
    }

    #[test]
    fn the_form_of_urls_goes_both_ways_and_each_text_stands_for_other_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        for length in 0..=all.len() {
            let text = encode_url(&all[..length]);
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
            assert_eq!(decode_url(text.as_bytes()).as_deref(), Some(&all[..length]));
        }
        for bad in ["Z", "Zh", "Zm9", "Zm9vY", "Zg==", "Zm+_", "Zm/_", "Zm 9", "Zm9v\n", "Z\u{e9}"] {
            assert_eq!(decode_url(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn nothing_else_is_read() {
        for bad in [
            "Z",
            "Zg",
            "Zg=",
            "Z===",
            "====",
            "Zg=a",
            "Zm9\n",
            "Zm-v",
            "YW5uOnNlY3JldA",
            "YW5u=",
            "YW5u OnNl",
            "Z\u{e9}=",
        ] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }

    /// Returns what comes of a body that arrives in pieces of this size, if it may end where it does.
    fn read(text: &str, size: usize) -> Result<Vec<u8>, BadText> {
        let (mut decoder, mut out) = (Decoder::default(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            let mut piece = piece.to_vec();
            let count = decoder.decode_in_place(&mut piece)?;
            out.extend_from_slice(&piece[..count]);
        }
        if decoder == Decoder::Between { Ok(out) } else { Err(BadText) }
    }

    #[test]
    fn segments_that_are_padded_each_follow_each_other_however_they_arrive() {
        let parts = ["", "f", "fo", "foo", "foob", "\0\u{ff}?>"];
        for first in parts {
            for second in parts {
                let text = encode(first.as_bytes()) + &encode(second.as_bytes());
                for size in 1..=text.len().max(1) {
                    assert_eq!(read(&text, size), Ok([first, second].concat().into_bytes()), "{text} by {size}");
                }
            }
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(read(&encode(&all), 7), Ok(all));
    }

    #[test]
    fn what_is_no_text_of_that_form_is_refused_in_pieces_too() {
        for bad in [
            "Z",
            "Zg",
            "Zg=",
            "Zm8",
            "=",
            "====",
            "Z===",
            "Zg=a",
            "Zg==Z",
            "Zm8==",
            "Zm9v=",
            "Zm9v\n",
            "Zm 9",
            "Zm-_",
            "Zm9v\u{e9}AA",
            "Zg=\0",
            "%5A9v",
        ] {
            for size in 1..=bad.len() {
                assert_eq!(read(bad, size), Err(BadText), "{bad:?} by {size}");
            }
        }
    }
}
