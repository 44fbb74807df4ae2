//! The store of a cache, which all workers share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::fields::Fields;

use super::disk::{Disk, DiskContent, DiskEntry};
use super::entry::Entry;
use super::flight::{Flight, Flights, Pilot};
use super::marks::Marks;
use super::purges::{Purge, Tagged};
use super::shard::{Kept, Shard};
use super::validity::{Begun, Validity};

const SHARDS: usize = 64;
/// Responses that are on their way may take this share of the memory: one quarter.
pub(crate) const FILLING_SHARE: u64 = 4;
/// For how many seconds a key is known to be of no use, so that no request waits for its responses.
const PASS_SECONDS: u32 = 10;

/// A cache of the configuration with what it holds.
pub struct CacheStore {
    settings: model::cache::Cache,
    content: Arc<Content>,
    disk: Option<Disk>,
}

/// What is kept over changes of the configuration.
struct Content {
    shards: Box<[Mutex<Shard<Entry>>]>,
    flights: Arc<Flights>,
    validity: Arc<Validity>,
    bytes: AtomicU64,
    filling: AtomicU64,
    evictions: AtomicU64,
    purged: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Until when no request waits for responses of a key.
    passed: Marks,
    /// How often a key was asked for.
    asked: Marks,
}

/// Room in memory for a response that is read from disk, which is given back when it is dropped.
#[derive(Debug)]
pub struct Room<'a> {
    store: &'a CacheStore,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.store.release(self.bytes);
    }
}

impl CacheStore {
    /// A store with these settings. What `before` holds stays, within the new bounds.
    pub fn new(settings: model::cache::Cache, before: Option<&Self>) -> Self {
        let content = before.map_or_else(|| Arc::new(Content::new()), |before| Arc::clone(&before.content));
        let before = before.and_then(|before| before.disk.as_ref());
        let disk = settings.disk.clone().map(|disk| Disk::new(disk, &content.validity, before));
        Self { settings, content, disk }
    }

    /// The disk, if it has one.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    fn on_disk(&self) -> Option<&DiskContent> {
        self.disk.as_ref().map(|disk| &**disk.content())
    }

    /// The settings.
    pub fn settings(&self) -> &model::cache::Cache {
        &self.settings
    }

    /// Returns the hash of a key. `chance` gives random bits the first time.
    pub fn hash(&self, key: &[u8], chance: &mut dyn FnMut() -> u64) -> u64 {
        self.content.validity.hash(key, chance)
    }

    /// Returns the newest response that answers such a request, fresh or stale.
    pub fn find(&self, key: (u64, &[u8]), request: &Fields) -> Option<Arc<Entry>> {
        self.content.shard(key.0).find(key, request)
    }

    /// Removes this response alone: other variants of its key stay.
    pub fn remove(&self, hash: u64, entry: &Arc<Entry>) {
        // First the file: what is read from one that is in the index may come to memory, see `promote`.
        if let Some(disk) = self.on_disk() {
            disk.forget_variant(hash, entry);
        }
        let freed = self.content.shard(hash).remove_entry(hash, entry);
        self.content.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Counts an answer: from the store, or from an endpoint.
    pub fn count(&self, is_hit: bool) {
        let counter = if is_hit { &self.content.hits } else { &self.content.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins a fetch, or returns that of another exchange, to be waited for.
    ///
    /// # Errors
    /// Another exchange fetches.
    pub fn begin_flight(&self, hash: u64) -> Result<Pilot, Arc<Flight>> {
        self.content.flights.begin(hash)
    }

    /// Says that the responses of a key are not stored at present.
    pub fn note_pass(&self, hash: u64, now: u64) {
        self.content.passed.put(hash, (now as u32).saturating_add(PASS_SECONDS));
    }

    /// Returns whether responses of a key are not stored at present, so that no request should wait for one.
    pub fn is_passed(&self, hash: u64, now: u64) -> bool {
        self.content.passed.get(hash).is_some_and(|until| u64::from(until) > now)
    }

    /// Counts a request for a key that is not stored, and returns how many there were.
    pub fn ask(&self, hash: u64) -> u32 {
        let asked = self.content.asked.get(hash).unwrap_or(0).saturating_add(1);
        self.content.asked.put(hash, asked);
        asked
    }

    /// The present state, for [`Self::insert`].
    pub fn purges(&self) -> u64 {
        self.content.validity.purges.count()
    }

    /// Stores a response, which was asked for at `begun`, in memory and on disk. One that was purged or invalidated meanwhile is
    /// not stored.
    pub fn insert(&self, hash: u64, entry: Entry, begun: Begun) -> bool {
        let entry = Arc::new(entry);
        let is_on_disk = self.on_disk().is_some_and(|disk| disk.write(hash, Arc::clone(&entry), begun));
        if entry.body.file().is_some() {
            self.forget_in_memory(hash, &entry);
            return is_on_disk;
        }
        self.insert_in_memory((hash, begun), entry, |_| true) || is_on_disk
    }

    /// Stores a response in memory, if it may be, which is asked with the shard locked.
    fn insert_in_memory(
        &self,
        (hash, begun): (u64, Begun),
        entry: Arc<Entry>,
        may: impl FnOnce(&Shard<Entry>) -> bool,
    ) -> bool {
        let bytes = entry.bytes();
        let content = &*self.content;
        if bytes > self.settings.memory {
            self.forget_in_memory(hash, &entry);
            return false;
        }
        content.bytes.fetch_add(bytes, Ordering::Relaxed);
        let replaced = {
            let mut shard = content.shard(hash);
            let is_void = content.validity.is_void(hash, &*entry, begun) || !may(&shard);
            if is_void { None } else { Some(shard.insert(hash, entry, bytes)) }
        };
        content.bytes.fetch_sub(replaced.unwrap_or(bytes), Ordering::Relaxed);
        self.make_room(hash);
        replaced.is_some()
    }

    /// Removes from memory what is older than a response that goes to disk alone.
    pub(super) fn supersede(&self, hash: u64, entry: &Entry) {
        if let Some(disk) = self.on_disk() {
            disk.forget_variant(hash, entry);
        }
        self.forget_in_memory(hash, entry);
    }

    /// What is older than this must not stay.
    fn forget_in_memory(&self, hash: u64, entry: &Entry) {
        let freed = self.content.shard(hash).remove_variant((hash, &entry.key), &entry.variant);
        self.content.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Takes room for a response that is read from disk, whole. `None`: there is none.
    pub fn room(&self, hash: u64, bytes: u64) -> Option<Room<'_>> {
        self.reserve(hash, bytes).then_some(Room { store: self, bytes })
    }

    /// Takes a response into memory that was read from this file, unless there is a newer one by now, or it was purged. What purges and
    /// removes goes to the disk first and to memory then: either it finds what was taken here, or the file is gone when that is asked.
    pub fn promote(&self, (hash, begun): (u64, Begun), read: &Arc<Entry>, from: &DiskEntry) {
        let Some(disk) = self.on_disk() else { return };
        if read.bytes() > self.settings.memory {
            return;
        }
        self.insert_in_memory((hash, begun), Arc::clone(read), |shard| {
            let may = shard.of_variant((hash, &read.key), &read.variant).is_none() && disk.holds(hash, from);
            if may && from.is_marked_stale() {
                read.mark_stale();
            }
            may
        });
    }

    /// Notes at `now` that the slices of a key are out of date: each is removed when a request finds it.
    pub fn outdate_slices(&self, hash: u64, now: u64) {
        self.content.validity.slices_outdated.put(hash, now as u32);
    }

    /// Returns whether the slices of a key that were asked for then, or came then, are out of date.
    pub fn are_slices_outdated(&self, hash: u64, at: u64) -> bool {
        self.content.validity.slices_outdated.last(hash).is_some_and(|outdated| u64::from(outdated) >= at)
    }

    /// Removes a key at `now`, because its resource has changed (RFC 9111 section 4.4).
    pub fn invalidate(&self, (hash, key): (u64, &[u8]), now: u64) {
        self.content.validity.invalidated.put(hash, now as u32);
        if let Some(disk) = self.on_disk() {
            disk.remove_key(hash, key);
        }
        let freed = self.content.shard(hash).remove_key(hash, key);
        self.content.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Removes what is meant, or has it be validated before it is served again. Returns the number of responses. It looks at all of them.
    pub fn purge(&self, what: &Purge, is_soft: bool) -> u64 {
        self.content.validity.purges.add(what.clone());
        // What is in memory and on disk is one response.
        let is_alone = |hash, entry: &DiskEntry| {
            self.content.shard(hash).of_variant((hash, entry.key()), entry.variant()).is_none()
        };
        let mut count = self.on_disk().map_or(0, |disk| disk.purge(what, is_soft, is_alone));
        for shard in &self.content.shards {
            let (removed, freed) = lock(shard).purge(is_soft, |entry| what.means(entry));
            self.content.bytes.fetch_sub(freed, Ordering::Relaxed);
            count += removed;
        }
        self.content.purged.fetch_add(count, Ordering::Relaxed);
        count
    }

    /// Calls this when what has been purged is gone from the disk, too; at once without one. `false`: files could not be removed.
    pub fn when_gone(&self, then: Box<dyn FnOnce(bool) + Send>) {
        match self.on_disk() {
            Some(disk) => disk.flush(then),
            None => then(true),
        }
    }

    /// Takes room for a response on its way; `false` if there is none.
    pub(super) fn reserve(&self, hash: u64, bytes: u64) -> bool {
        let content = &*self.content;
        if content.filling.fetch_add(bytes, Ordering::Relaxed) + bytes > self.settings.memory / FILLING_SHARE {
            content.filling.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        content.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.make_room(hash);
        true
    }

    /// Gives room back.
    pub(super) fn release(&self, bytes: u64) {
        self.content.filling.fetch_sub(bytes, Ordering::Relaxed);
        self.content.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Evicts until the bound holds: first where the key belongs.
    fn make_room(&self, hash: u64) {
        let content = &*self.content;
        let start = place(hash);
        let mut tried = 0;
        while content.bytes.load(Ordering::Relaxed) > self.settings.memory && tried < SHARDS {
            let evicted = lock(&content.shards[(start + tried) % SHARDS]).evict();
            match evicted {
                Some(bytes) => {
                    content.bytes.fetch_sub(bytes, Ordering::Relaxed);
                    content.evictions.fetch_add(1, Ordering::Relaxed);
                }
                None => tried += 1,
            }
        }
    }

    /// Bytes that it holds, those of responses on their way included.
    pub fn bytes(&self) -> u64 {
        self.content.bytes.load(Ordering::Relaxed)
    }

    /// Responses that it holds.
    pub fn entries(&self) -> u64 {
        self.content.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }

    /// Responses that have made room for others.
    pub fn evictions(&self) -> u64 {
        self.content.evictions.load(Ordering::Relaxed)
    }

    /// Responses that were purged.
    pub fn purged(&self) -> u64 {
        self.content.purged.load(Ordering::Relaxed)
    }

    /// Requests that were answered from here, and those for which an endpoint was asked.
    pub fn answered(&self) -> (u64, u64) {
        (self.content.hits.load(Ordering::Relaxed), self.content.misses.load(Ordering::Relaxed))
    }
}

impl Content {
    fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            flights: Arc::default(),
            validity: Arc::default(),
            bytes: AtomicU64::new(0),
            filling: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            purged: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            passed: Marks::default(),
            asked: Marks::default(),
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<Entry>> {
        lock(&self.shards[place(hash)])
    }
}

fn place(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

fn lock(shard: &Mutex<Shard<Entry>>) -> MutexGuard<'_, Shard<Entry>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for CacheStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheStore").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
