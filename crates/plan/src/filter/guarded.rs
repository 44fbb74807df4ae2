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
}

impl Guarded {
    /// Whether a field of this name is one of them.
    pub fn covers(&self, name: &[u8]) -> bool {
        match self {
            Self::Name(guarded) => reads_as(name, guarded.as_str()),
            Self::Pattern(pattern) => pattern.reads_as_field(name),
        }
    }
}
