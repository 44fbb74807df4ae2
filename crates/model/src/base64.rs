//! Bytes as text, in the alphabet that most of the field uses (RFC 4648 section 4). That of cookies is in [`crate::cookie`].

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// With its padding.
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

/// Reads it back. `None`: there is a foreign character, or the padding is not what it has to be. Bits behind the last byte
/// are not looked at.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = text.len().checked_sub(padding).filter(|_| padding <= 2)?;
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text[..digits].chunks(4) {
        let mut word = 0_u32;
        for place in 0..4 {
            word = word << 6 | group.get(place).map_or(Some(0), |character| sextet(*character)).map(u32::from)?;
        }
        let [_, decoded @ ..] = word.to_be_bytes();
        bytes.extend_from_slice(&decoded[..group.len() - 1]);
    }
    Some(bytes)
}

/// The six bits that a character stands for.
pub fn sextet(character: u8) -> Option<u8> {
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
}
