//! What is done with the files of a cache.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::held::DiskEntry;
use super::name::FileName;
use crate::cache::entry::Entry;
use crate::cache::flight::Pilot;
use crate::cache::validity::Begun;

/// Bodies that are copied at once, or wait for it.
const COPIES_MAX: u64 = 2;

/// Something to be done with files. All of one cache are done one after the other.
pub enum DiskJob {
    /// A response is written. Then [`super::DiskContent::written`] takes it into the index.
    Write {
        /// Hash of its key.
        hash: u64,
        /// It, with its body.
        entry: Arc<Entry>,
        /// When it was asked for.
        begun: Begun,
        /// Its body is in another file, and is copied.
        copy: Option<Copying>,
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
    /// All jobs before it are done. `false`: files are still to be removed or marked.
    Flush(Box<dyn FnOnce(bool) + Send>),
}

/// A body that is copied from one file to another, until this is dropped. There are few at once, and one of a file.
#[derive(Debug)]
pub struct Copying {
    /// The file that it takes the place of.
    of: Option<Arc<DiskEntry>>,
    count: Arc<AtomicU64>,
}

impl Copying {
    /// `None`: the file is being copied, or too many others are.
    pub(super) fn begin(of: Option<Arc<DiskEntry>>, count: &Arc<AtomicU64>) -> Option<Self> {
        if count.fetch_add(1, Ordering::Relaxed) >= COPIES_MAX {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        if of.as_ref().is_some_and(|of| of.is_copied.swap(true, Ordering::Relaxed)) {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { of, count: Arc::clone(count) })
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            of.is_copied.store(false, Ordering::Relaxed);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
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
    /// Takes a job. It does not wait for it. [`super::DiskContent::done`] is called when it is done.
    fn submit(&self, job: (DiskJob, u64));
}
