//! The text form of gRPC-Web: bodies in base64 (RFC 4648 section 4). A body may be cut into segments, each padded by itself,
//! wherever its sender has had to flush (PROTOCOL-WEB.md of the gRPC project).

use model::base64::{self, sextet};

/// What is no such text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadText;

/// Reads a body piece by piece, and holds no more of it than the bits of one character.
///
/// ```text
/// Between ── c ─► One ── c ─► Two ── c ─► Three ── c or = ─► Between
///                              └── = ─► Padding ── = ───────────┘
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decoder {
    /// Between two groups of four: the body may end here.
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
    /// Decodes what lies in `bytes`, which is written over; says how many bytes it is. They are never more than came.
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

/// Writes a segment with its padding.
pub fn encode(bytes: &[u8]) -> String {
    base64::encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a body that arrives in pieces of this size, if it may end where it does.
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
    fn what_is_no_text_of_that_form_is_refused() {
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
