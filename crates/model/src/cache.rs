//! Caches: stores of responses that routes share.

use crate::Name;

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Unique; the stable id.
    pub name: Name,
    /// Bytes that its responses may take, their heads and keys included.
    pub memory: u64,
}
