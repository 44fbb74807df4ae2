//! What the index knows of a file.

use std::sync::atomic::{AtomicBool, Ordering};

use super::name::FileName;
use crate::cache::entry::Entry;
use crate::cache::purges::Tagged;
use crate::cache::shard::Kept;
use crate::cache::vary::Varied;

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
    /// Its body is being copied to another file, see [`super::job::Copying`].
    pub(super) is_copied: AtomicBool,
}

impl DiskEntry {
    /// A response whose file has this name, and whose body this length.
    pub(super) fn new(entry: &Entry, (name, body_len): (FileName, u64)) -> Self {
        Self {
            key: entry.key.clone(),
            variant: entry.variant.clone(),
            tags: entry.tags.clone(),
            received: entry.clock.received,
            name,
            body_len,
            is_stale: AtomicBool::new(entry.is_marked_stale()),
            is_copied: AtomicBool::new(false),
        }
    }

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
    pub fn is_of(&self, entry: &Entry) -> bool {
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
