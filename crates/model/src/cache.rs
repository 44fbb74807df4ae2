//! Caches: stores of responses that routes share.

use crate::Name;

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Unique; the stable id.
    pub name: Name,
    /// Bytes that its responses may take, their heads and keys included.
    pub memory: u64,
    /// The folder that holds what memory has no room for.
    pub disk: Option<CacheDisk>,
}

/// The folder of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDisk {
    /// Its absolute path, without a slash at its end.
    pub path: String,
    /// Bytes that its files may take.
    pub max: u64,
}
