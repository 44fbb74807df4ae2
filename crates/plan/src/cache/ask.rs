//! What a request that finds a response on disk has be read.

use std::sync::Arc;

use super::disk::{DiskContent, DiskEntry};
use super::entry::Entry;
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

/// What came of a look.
#[derive(Clone, Debug)]
pub enum DiskRead {
    /// The response.
    Found(Arc<Entry>),
    /// The file is gone, or is not what was written. There may be another one by now.
    Gone,
    /// The disk fails, or is too slow: an endpoint is asked.
    Failed,
}

/// Two are equal if they ask for the same file.
impl PartialEq for DiskAsk {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl Eq for DiskAsk {}
