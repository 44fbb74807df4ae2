//! A response on its way into the store.

use std::sync::Arc;

use super::entry::{Body, CHUNK_BYTES, Entry};
use super::flight::Pilot;
use super::store::{Begun, CacheStore};

/// Keeps the body of a response as it passes, and stores both when it is whole. A part is dropped.
pub struct Filling {
    store: Arc<CacheStore>,
    hash: u64,
    entry: Option<Entry>,
    chunks: Vec<Vec<u8>>,
    len: u64,
    /// The bound on the body, and its length if it is known.
    body_max: u64,
    expected: Option<u64>,
    reserved: u64,
    begun: Begun,
    /// Others wait for it.
    pilot: Option<Pilot>,
}

impl Filling {
    /// Begins with the body of an entry. `expected`: its length, if it is known.
    pub fn new(
        (store, hash, entry): (Arc<CacheStore>, u64, Entry),
        (body_max, expected): (u64, Option<u64>),
        begun: Begun,
    ) -> Self {
        let (chunks, len, reserved, pilot) = (Vec::new(), 0, 0, None);
        Self { store, hash, entry: Some(entry), chunks, len, body_max, expected, reserved, begun, pilot }
    }

    /// Ends the wait of others with it.
    #[must_use]
    pub fn with(mut self, pilot: Option<Pilot>) -> Self {
        self.pilot = pilot;
        self
    }

    /// Stores it: the body is over, and whole.
    pub fn finish(&mut self) {
        let Some(mut entry) = self.entry.take() else { return };
        if self.expected.is_none_or(|expected| expected == self.len) {
            let chunks = std::mem::take(&mut self.chunks).into_iter().map(Vec::into_boxed_slice).collect();
            entry.body = Arc::new(Body::new(chunks));
            // First this, so that its bytes are not counted twice.
            self.give_up();
            self.store.insert(self.hash, entry, self.begun);
        }
        self.pilot = None;
    }

    fn give_up(&mut self) {
        self.entry = None;
        self.chunks = Vec::new();
        self.store.release(std::mem::take(&mut self.reserved));
    }

    fn take(&mut self, mut bytes: &[u8]) -> bool {
        self.len += bytes.len() as u64;
        if self.len > self.body_max || self.expected.is_some_and(|expected| self.len > expected) {
            return false;
        }
        while !bytes.is_empty() {
            if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_BYTES) {
                let taken = (self.chunks.len() * CHUNK_BYTES) as u64;
                let left = self.expected.map_or(CHUNK_BYTES as u64, |expected| expected - taken);
                let room = left.min(CHUNK_BYTES as u64);
                if !self.store.reserve(self.hash, room) {
                    return false;
                }
                self.reserved += room;
                self.chunks.push(Vec::with_capacity(room as usize));
            }
            let Some(chunk) = self.chunks.last_mut() else { return false };
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - chunk.len()));
            chunk.extend_from_slice(now);
            bytes = later;
        }
        true
    }
}

impl Filling {
    /// Keeps the next bytes.
    pub fn see(&mut self, bytes: &[u8]) {
        if self.entry.is_some() && !self.take(bytes) {
            self.give_up();
            // No request need wait for what is not stored.
            self.store.note_pass(self.hash, self.begun.at);
            self.pilot = None;
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
    }
}
