//! What is purged, and the last purges, by which a response that comes later is judged.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Purges that are remembered. A response that was asked for before all of them is not stored.
const KEPT: usize = 64;

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
    last: Mutex<VecDeque<Purge>>,
}

impl Purges {
    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Adds one.
    pub(super) fn add(&self, purge: Purge) {
        let mut last = self.last();
        if last.len() == KEPT {
            last.pop_front();
        }
        last.push_back(purge);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether one of those after the first `count` would have removed this entry, or that is not known any more.
    pub(super) fn have_meant(&self, entry: &impl Tagged, count: u64) -> bool {
        if self.count() == count {
            return false;
        }
        let last = self.last();
        let later = self.count().saturating_sub(count);
        later > last.len() as u64 || last.iter().rev().take(later as usize).any(|purge| purge.means(entry))
    }

    fn last(&self) -> MutexGuard<'_, VecDeque<Purge>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
