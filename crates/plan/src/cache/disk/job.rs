//! What is done with the files of a cache.

use std::fmt;
use std::sync::Arc;

use super::{DiskContent, DiskEntry, FileName};
use crate::cache::common::Begun;
use crate::cache::entry::Entry;
use crate::cache::flight::Pilot;

/// Something to be done with files. All of one cache are done one after the other.
pub enum DiskJob {
    /// A response is written. Then [`DiskContent::written`] takes it into the index.
    Write {
        /// Hash of its key.
        hash: u64,
        /// It, with its body.
        entry: Arc<Entry>,
        /// When it was asked for.
        begun: Begun,
    },
    /// A file is begun, for a body that comes in pieces.
    Begin {
        /// The number of the file among those that are being written.
        number: u64,
        /// The response, without its body.
        entry: Arc<Entry>,
    },
    /// A piece of the body: of 64 KiB, but for the last.
    Append {
        /// Of which file.
        number: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The body is over, and whole.
    Finish(Box<Finished>),
    /// The body is cut short: the file goes.
    Abort {
        /// Which.
        number: u64,
    },
    /// A file is removed.
    Delete(FileName),
    /// A file is marked: its response must be validated before it is served again.
    MarkStale(FileName),
    /// All jobs before it are done.
    Flush(Box<dyn FnOnce() + Send>),
}

/// The end of a body that came in pieces.
pub struct Finished {
    /// Of which file.
    pub number: u64,
    /// Hash of the key.
    pub hash: u64,
    /// When it was asked for.
    pub begun: Begun,
    /// Others wait for it. Dropped when it is in the index.
    pub pilot: Option<Pilot>,
}

impl DiskJob {
    /// Bytes of memory that it holds.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Write { entry, .. } if entry.body.file().is_none() => entry.bytes(),
            Self::Write { entry, .. } | Self::Begin { entry, .. } => entry.bytes() - entry.body.len(),
            Self::Append { bytes, .. } => bytes.len() as u64,
            _ => 0,
        }
    }
}

impl fmt::Debug for DiskJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskJob")
    }
}

/// What takes the jobs, and does them in their order.
pub trait DiskJobs: Send + Sync {
    /// Takes a job. It does not wait for it. [`DiskContent::done`] is called when it is done.
    fn submit(&self, job: (DiskJob, u64));
}

/// A look for a response in a file.
#[derive(Clone, Debug)]
pub struct DiskAsk {
    /// Whose file it is.
    pub content: Arc<DiskContent>,
    /// Where a small one goes.
    pub store: Arc<crate::cache::CacheStore>,
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
