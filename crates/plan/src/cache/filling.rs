//! A response on its way into the store.

use std::sync::Arc;

use super::disk::{DiskContent, DiskJob, Finished};
use super::entry::{Body, CHUNK_BYTES, Entry};
use super::flight::Pilot;
use super::store::CacheStore;
use super::validity::Begun;

/// With a disk, a longer body than this share of the memory, one sixteenth, goes there as it comes.
const IN_MEMORY_SHARE: u64 = 16;

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
    /// It is a slice of the response of this key.
    slice_of: Option<u64>,
    /// It goes to disk as it comes: by this number, and with this room taken.
    on_disk: Option<(u64, u64)>,
    /// The disk takes nothing at present, so that it stays in memory.
    is_refused: bool,
}

impl Filling {
    /// Begins with the body of an entry. `expected`: its length, if it is known.
    pub fn new(
        (store, hash, entry): (Arc<CacheStore>, u64, Entry),
        (body_max, expected): (u64, Option<u64>),
        begun: Begun,
    ) -> Self {
        let entry = Some(entry);
        let (chunks, len, reserved, pilot, on_disk, slice_of) = (Vec::new(), 0, 0, None, None, None);
        let is_refused = false;
        Self {
            store,
            hash,
            entry,
            chunks,
            len,
            body_max,
            expected,
            reserved,
            begun,
            pilot,
            slice_of,
            on_disk,
            is_refused,
        }
    }

    /// Ends the wait of others with it.
    #[must_use]
    pub fn with(mut self, pilot: Option<Pilot>) -> Self {
        self.pilot = pilot;
        self
    }

    /// Says of the key of which response it is a slice: it is not stored if those are out of date by then.
    #[must_use]
    pub fn slice_of(mut self, hash: u64) -> Self {
        self.slice_of = Some(hash);
        self
    }

    /// Stores it: the body is over, and whole.
    pub fn finish(&mut self) {
        if self.slice_of.is_some_and(|of| self.store.are_slices_outdated(of, self.begun.at)) {
            self.give_up();
        }
        if self.entry.is_some() && self.expected.is_none_or(|expected| expected == self.len) {
            if self.on_disk.is_some() {
                self.finish_on_disk();
            } else if let Some(mut entry) = self.entry.take() {
                let chunks = std::mem::take(&mut self.chunks).into_iter().map(Vec::into_boxed_slice).collect();
                entry.body = Arc::new(Body::new(chunks));
                // First this, so that its bytes are not counted twice.
                self.give_up();
                self.store.insert(self.hash, entry, self.begun);
            }
        }
        self.pilot = None;
    }

    fn give_up(&mut self) {
        self.entry = None;
        self.chunks = Vec::new();
        self.store.release(std::mem::take(&mut self.reserved));
        if let (Some((number, room)), Some(disk)) = (self.on_disk.take(), disk(&self.store)) {
            disk.end(DiskJob::Abort { number });
            disk.give_room(room);
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> bool {
        self.len += bytes.len() as u64;
        if self.len > self.body_max || self.expected.is_some_and(|expected| self.len > expected) {
            return false;
        }
        if self.on_disk.is_none() && !self.is_refused && self.is_for_disk() && !self.begin_on_disk() {
            return false;
        }
        while !bytes.is_empty() {
            if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_BYTES) && !self.begin_chunk() {
                return false;
            }
            let Some(chunk) = self.chunks.last_mut() else { return false };
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - chunk.len()));
            chunk.extend_from_slice(now);
            bytes = later;
        }
        true
    }

    fn begin_chunk(&mut self) -> bool {
        if self.on_disk.is_some() {
            let is_sent = self.send_chunks();
            self.chunks.push(Vec::with_capacity(CHUNK_BYTES));
            return is_sent;
        }
        let taken = (self.chunks.len() * CHUNK_BYTES) as u64;
        let left = self.expected.map_or(CHUNK_BYTES as u64, |expected| expected - taken);
        let room = left.min(CHUNK_BYTES as u64);
        if !self.store.reserve(self.hash, room) {
            return false;
        }
        self.reserved += room;
        self.chunks.push(Vec::with_capacity(room as usize));
        true
    }

    /// Whether it is too long for memory.
    fn is_for_disk(&self) -> bool {
        let most = self.store.settings().memory / IN_MEMORY_SHARE;
        self.expected.unwrap_or(self.len).max(self.len) > most && disk(&self.store).is_some()
    }

    /// What was kept in memory goes to disk, and what comes, too.
    fn begin_on_disk(&mut self) -> bool {
        let (Some(entry), Some(disk)) = (&self.entry, disk(&self.store)) else { return false };
        let Some(number) = disk.begin(Arc::new(entry.without_body())) else {
            self.is_refused = true;
            return true;
        };
        self.on_disk = Some((number, 0));
        // A chunk that is not full yet stays, and those before it go.
        let Some(last) = self.chunks.pop() else { return true };
        let is_sent = self.send_chunks();
        self.chunks.push(last);
        is_sent
    }

    fn send_chunks(&mut self) -> bool {
        let chunks = std::mem::take(&mut self.chunks);
        self.store.release(std::mem::take(&mut self.reserved));
        let (Some((number, room)), Some(disk)) = (&mut self.on_disk, disk(&self.store)) else { return false };
        chunks.into_iter().all(|bytes| {
            let taken = bytes.len() as u64;
            let has_room = disk.take_room(taken);
            *room += if has_room { taken } else { 0 };
            has_room && disk.append(*number, bytes)
        })
    }

    fn finish_on_disk(&mut self) {
        if !self.send_chunks() {
            self.give_up();
            return;
        }
        let (Some(entry), Some((number, room))) = (self.entry.take(), self.on_disk.take()) else { return };
        self.store.supersede(self.hash, &entry);
        if let Some(disk) = disk(&self.store) {
            let (hash, begun, pilot) = (self.hash, self.begun, self.pilot.take());
            disk.give_room(room);
            disk.end(DiskJob::Finish(Box::new(Finished { number, hash, begun, pilot })));
        }
    }

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

fn disk(store: &CacheStore) -> Option<&DiskContent> {
    store.disk().map(|disk| &**disk.content())
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
    }
}
