//! What is purged, and the last purges, by which a response that comes later is judged.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Purges that are remembered. A response that was asked for before all of them is not stored.
const KEPT: usize = 64;
/// The same while files are looked for that were written before all of them.
const HELD: usize = 4_096;

/// A stored response, by what is purged.
pub(super) trait Tagged {
    /// The key, see [`super::key`].
    fn key(&self) -> &[u8];

    /// Its tags.
    fn tags(&self) -> &[Box<[u8]>];

    /// The URL of the key.
    fn url(&self) -> &[u8] {
        let key = self.key();
        &key[key.iter().rposition(|byte| *byte == 0).map_or(0, |zero| zero + 1)..]
    }
}

/// What is purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All.
    All,
    /// A URL, in the form of keys: all its variants, of all routes.
    Url(Vec<u8>),
    /// All URLs that begin so.
    Prefix(Vec<u8>),
    /// All that have this tag.
    Tag(Vec<u8>),
}

impl Purge {
    /// Returns whether it removes this entry.
    pub(super) fn means(&self, entry: &impl Tagged) -> bool {
        match self {
            Self::All => true,
            Self::Url(url) => entry.url() == url,
            Self::Prefix(prefix) => entry.url().starts_with(prefix),
            Self::Tag(tag) => entry.tags().iter().any(|known| **known == **tag),
        }
    }
}

/// The last purges of a store.
#[derive(Default)]
pub(super) struct Purges {
    /// How many there were. It rises with `last` locked.
    count: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    purges: VecDeque<Purge>,
    /// Folders that are looked through for the first time.
    scans: usize,
}

impl Last {
    fn forget(&mut self) {
        let kept = if self.scans == 0 { KEPT } else { HELD };
        self.purges.drain(..self.purges.len().saturating_sub(kept));
    }
}

impl Purges {
    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Adds one.
    pub(super) fn add(&self, purge: Purge) {
        let mut last = self.last();
        last.purges.push_back(purge);
        last.forget();
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether one of those after the first `count` would have removed this entry, or that is not known any more.
    pub(super) fn have_meant(&self, entry: &impl Tagged, count: u64) -> bool {
        if self.count() == count {
            return false;
        }
        let last = self.last();
        let later = self.count().saturating_sub(count);
        let purges = &last.purges;
        later > purges.len() as u64 || purges.iter().rev().take(later as usize).any(|purge| purge.means(entry))
    }

    /// More of them are remembered until [`Self::end_scan`].
    pub(super) fn begin_scan(&self) {
        self.last().scans += 1;
    }

    pub(super) fn end_scan(&self) {
        let mut last = self.last();
        last.scans = last.scans.saturating_sub(1);
        last.forget();
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
