//! Names of files: 32 hexadecimal digits, below a folder that the first two of them name.

use std::fmt;

/// The name of a file, which no other file ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileName(u128);

impl FileName {
    /// One by chance.
    pub fn new(chance: &mut dyn FnMut() -> u64) -> Self {
        Self(u128::from(chance()) << 64 | u128::from(chance()))
    }

    /// Reads the digits. Returns `None` if they are no name.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_name = text.len() == 32 && text.bytes().all(is_digit);
        is_name.then(|| u128::from_str_radix(text, 16).ok())?.map(Self)
    }

    /// The folder that it is in.
    pub fn folder(self) -> String {
        format!("{:02x}", self.0 >> 120)
    }
}

/// The digits.
impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_nothing_else_is_one() {
        let name = FileName::new(&mut || 0x0a);
        assert_eq!((FileName::parse(&name.to_string()), name.folder().as_str()), (Some(name), "00"));
        for bad in [
            "",
            "+a",
            &"A".repeat(32),
            &"a".repeat(33),
            "+000000000000000000000000000000a",
            "../../../../../../../etc/passwd..",
        ] {
            assert_eq!(FileName::parse(bad), None, "{bad}");
        }
    }
}
