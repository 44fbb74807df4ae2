//! What a request that finds a response on disk has be read.

use std::sync::Arc;

use super::disk::{DiskContent, DiskEntry};
use super::store::CacheStore;
use super::validity::Begun;

/// A look for a response in a file.
#[derive(Clone, Debug)]
pub struct DiskAsk {
    /// Whose file it is.
    pub content: Arc<DiskContent>,
    /// Where a small one goes.
    pub store: Arc<CacheStore>,
    /// Hash of its key.
    pub hash: u64,
    /// Which.
    pub entry: Arc<DiskEntry>,
    /// When it was asked for.
    pub begun: Begun,
}

/// Two are equal if they ask for the same file.
impl PartialEq for DiskAsk {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl Eq for DiskAsk {}
