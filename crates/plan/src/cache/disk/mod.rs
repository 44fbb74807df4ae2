//! The disk tier: which responses are in files, and which of them go next. It does no I/O.
//!
//! Every stored response is written to a file of its own, and the index of them is in memory. What is to be done with files are jobs, which a
//! thread of the data plane does, see [`DiskJob`]. Reading is done by the threads that read files.
//!
//! A name belongs to one file, which never changes but for one byte. So two processes may use one folder during an upgrade: neither
//! touches what the other reads or writes, and each finds the files of the other when it looks through the folder.

pub mod chunks;
mod content;
mod job;
mod name;
pub mod record;

pub use content::{DiskContent, DiskCounts};
pub use job::{DiskAsk, DiskJob, DiskJobs, Finished};
pub use name::FileName;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::cache::CacheDisk;

use super::common::Common;
use super::purges::Tagged;
use super::shard::Kept;
use super::vary::Varied;

/// The disk of a cache, with these settings.
#[derive(Clone)]
pub struct Disk {
    settings: CacheDisk,
    content: Arc<DiskContent>,
}

impl Disk {
    /// One with these settings. What `before` knows of the same folder stays.
    pub(super) fn new(settings: CacheDisk, common: &Arc<Common>, before: Option<&Self>) -> Self {
        let same = before.filter(|before| before.settings.path == settings.path);
        let content = match same {
            Some(before) => Arc::clone(&before.content),
            None => Arc::new(DiskContent::new(settings.path.clone(), Arc::clone(common))),
        };
        Self { settings, content }
    }

    /// The settings.
    pub fn settings(&self) -> &CacheDisk {
        &self.settings
    }

    /// What it knows of its folder.
    pub fn content(&self) -> &Arc<DiskContent> {
        &self.content
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A response in a file, as the index knows it.
#[derive(Debug)]
pub struct DiskEntry {
    key: Box<[u8]>,
    variant: Box<[Varied]>,
    tags: Box<[Box<[u8]>]>,
    received: u64,
    name: FileName,
    body_len: u64,
    is_stale: AtomicBool,
}

impl DiskEntry {
    /// The name of the file.
    pub fn name(&self) -> FileName {
        self.name
    }

    /// Bytes of the body.
    pub fn body_len(&self) -> u64 {
        self.body_len
    }

    /// Returns whether it must be validated before it is served as fresh again.
    pub fn is_marked_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Returns whether a header is that of this file.
    pub fn is_of(&self, entry: &super::Entry) -> bool {
        self.key == entry.key && self.variant == entry.variant && self.received == entry.clock.received
    }
}

impl Tagged for DiskEntry {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn tags(&self) -> &[Box<[u8]>] {
        &self.tags
    }
}

impl Kept for DiskEntry {
    fn variant(&self) -> &[Varied] {
        &self.variant
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn mark_stale(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
