//! Fields of requests that filters decide, so that a client must not bring them as trailers either.

use model::FieldName;
use model::fields::reads_as;

use super::pattern::NamePattern;

/// Some fields of requests.
#[derive(Clone, Debug)]
pub enum Guarded {
    /// What endpoints could read as the field of this name.
    Name(FieldName),
    /// What endpoints could read as one whose name has this pattern.
    Pattern(NamePattern),
    /// Names with other signs than these.
    Beyond(Box<Signs>),
}

impl Guarded {
    /// Whether a field of this name is one of them.
    pub fn covers(&self, name: &[u8]) -> bool {
        match self {
            Self::Name(guarded) => reads_as(name, guarded.as_str()),
            Self::Pattern(pattern) => pattern.reads_as_field(name),
            Self::Beyond(signs) => !signs.spell(name),
        }
    }
}

/// The signs that field names may be written with.
#[derive(Clone, Debug)]
pub struct Signs([bool; 256]);

impl Signs {
    /// ASCII letters and digits, `-`, and these signs more.
    pub(super) fn with(more: &str) -> Self {
        let mut known = [false; 256];
        for (byte, known) in (0_u8..=255).zip(&mut known) {
            *known = byte.is_ascii_alphanumeric() || byte == b'-' || more.as_bytes().contains(&byte);
        }
        Self(known)
    }

    /// Whether a name holds no other sign.
    pub(super) fn spell(&self, name: &[u8]) -> bool {
        name.iter().all(|&byte| self.0[usize::from(byte)])
    }
}
