//! Names of the domain name system (RFC 1035 section 3.1).

use std::fmt;

/// Bytes of a name as it travels, the last zero included (RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a label (RFC 1035 section 2.3.4).
pub const LABEL_BYTES_MAX: usize = 63;

/// Pointers that are followed in one name: as many as it can have labels.
const POINTERS_MAX: usize = 127;

/// A whole name in lower case, since names are compared without regard to case (RFC 4343). What it holds is as it travels:
/// labels with their lengths, without the zero at the end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(Vec<u8>);

impl Name {
    /// Reads a name as people write it, with or without a dot at its end. `None`: a label is empty or too long, or the whole is.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let mut bytes = Vec::with_capacity(text.len() + 1);
        for label in text.split('.') {
            let length = u8::try_from(label.len()).ok()?;
            if label.is_empty() || label.len() > LABEL_BYTES_MAX {
                return None;
            }
            bytes.push(length);
            bytes.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        (bytes.len() < NAME_BYTES_MAX).then_some(Self(bytes))
    }

    /// Reads the name that begins at `at`, and gives where it ends. Pointers only go back to before the part that they end
    /// (RFC 1035 section 4.1.4), so that reading ends whatever they say.
    pub(super) fn read(message: &[u8], at: usize) -> Option<(Self, usize)> {
        let (mut here, mut bound, mut end) = (at, at, None);
        let mut pointers = 0;
        let mut bytes = Vec::new();
        loop {
            let length = *message.get(here)?;
            match length >> 6 {
                0 if length == 0 => return Some((Self(bytes), end.unwrap_or(here + 1))),
                0 => {
                    let label = message.get(here..here + 1 + usize::from(length))?;
                    if bytes.len() + label.len() >= NAME_BYTES_MAX {
                        return None;
                    }
                    bytes.extend(label.iter().map(|byte| byte.to_ascii_lowercase()));
                    here += label.len();
                }
                3 => {
                    let target = usize::from(length & 0x3f) << 8 | usize::from(*message.get(here + 1)?);
                    end.get_or_insert(here + 2);
                    pointers += 1;
                    if target >= bound || pointers > POINTERS_MAX {
                        return None;
                    }
                    (here, bound) = (target, target);
                }
                _ => return None,
            }
        }
    }

    /// Appends it as it travels.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
        out.push(0);
    }

    /// Whether it is the root, which stands for "there is none" as the target of an SRV record (RFC 2782).
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Name {
    /// Without a dot at its end. Bytes that are not letters, digits, `-` or `_` are shown as `\DDD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        let mut rest = &self.0[..];
        let mut is_first = true;
        while let Some((&length, after)) = rest.split_first() {
            let (label, next) = after.split_at(usize::from(length).min(after.len()));
            if !std::mem::take(&mut is_first) {
                f.write_str(".")?;
            }
            for &byte in label {
                match byte {
                    b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => write!(f, "{}", char::from(byte))?,
                    other => write!(f, "\\{other:03}")?,
                }
            }
            rest = next;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_regard_to_case_and_shown_without_their_last_dot() {
        let name = Name::parse("Api.Example.COM.").unwrap();
        assert_eq!(name, Name::parse("api.example.com").unwrap());
        assert_eq!(name.to_string(), "api.example.com");
        assert_eq!(Name::parse("_http._tcp.a").unwrap().to_string(), "_http._tcp.a");
        let long = "a".repeat(64);
        let whole = vec!["a".repeat(63); 4].join(".");
        for bad in ["", ".", "a..b", ".a", &long, &whole] {
            assert_eq!(Name::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn pointers_go_back_and_reading_ends_where_the_name_stood() {
        let message = b"\x01a\x00\x03www\xc0\x00zz";
        assert_eq!(Name::read(message, 3).unwrap(), (Name::parse("www.a").unwrap(), 9));
        assert_eq!(Name::read(message, 0).unwrap(), (Name::parse("a").unwrap(), 3));
    }

    #[test]
    fn loops_pointers_ahead_and_cut_names_are_no_names() {
        let long = [&[63; 64][..]; 5].concat();
        for bad in [
            &b"\xc0\x00"[..],
            b"\x01a\xc0\x00",
            b"\xc0\x02\x00",
            b"\xc0",
            b"\x05ab",
            b"\x40a\x00",
            b"\x80a\x00",
            b"",
            &long,
        ] {
            assert!(Name::read(bad, 0).is_none(), "{bad:?}");
        }
        // Two that point at each other.
        assert!(Name::read(b"\xc0\x02\xc0\x00", 2).is_none());
        // Each pointer lengthens the name by a label, and is taken back to it.
        assert!(Name::read(b"\x01a\xc0\x00", 2).is_none());
    }

    #[test]
    fn what_is_no_letter_is_shown_and_not_printed() {
        let (name, _) = Name::read(b"\x03a.\x1b\x00", 0).unwrap();
        assert_eq!(name.to_string(), "a\\046\\027");
    }
}
