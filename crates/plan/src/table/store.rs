//! Entries, shared by all workers.
//!
//! A table of fixed size, in shards with a lock each, which is held for one look at a bucket of eight entries. Entries are found by a
//! hash under a key of our own, so that no client can choose its bucket. When a bucket is full, the entry that was not counted for the
//! longest time makes room: a flood of new keys pushes out entries that are idle, and its own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::layout::Entry;
use crate::padded::Padded;
use crate::{keyed, random};

const SHARDS_MAX: usize = 64;
const WAYS: usize = 8;
/// Entries that one lock is held for when all are looked at: requests wait for some microseconds at most.
const LOOK_ENTRIES: usize = 256;

/// Words of the entries of some buckets, one behind the other. Empty before the first entry that falls here, and zeroed memory then,
/// which takes no page before it is written.
type Shard = Padded<Mutex<Box<[u64]>>>;

/// See the module.
pub(super) struct Store {
    epoch: Instant,
    key: [u64; 2],
    ways: usize,
    buckets_per_shard: usize,
    /// Words of an entry, and of the key in it.
    words: (usize, usize),
    shards: Box<[Shard]>,
}

/// When something is looked at, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub now: u64,
    /// Entries that were counted before are no more; one more than the moment, as entries keep it.
    pub alive_from: u64,
}

/// The entries of one bucket, while their lock is held.
pub(super) struct Bucket<'a> {
    words: &'a mut [u64],
    sizes: (usize, usize),
}

/// An entry that was found or made.
pub(super) struct Found {
    pub place: usize,
    /// Another, whose time was not over, made room.
    pub has_evicted: bool,
    /// It takes a place that was no one's.
    pub is_more: bool,
}

impl Store {
    pub(super) fn new(keys_max: usize, words: (usize, usize), epoch: Instant, key: [u64; 2]) -> Self {
        let keys_max = keys_max.max(1);
        let ways = WAYS.min(keys_max);
        let buckets = keys_max / ways;
        let shards = SHARDS_MAX.min(buckets);
        let buckets_per_shard = buckets / shards;
        Self { epoch, key, ways, buckets_per_shard, words, shards: (0..shards).map(|_| Padded::default()).collect() }
    }

    pub(super) fn key(&self) -> [u64; 2] {
        self.key
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        keyed::hash(self.key, key)
    }

    /// Milliseconds since the epoch; 0 before it.
    pub(super) fn tick(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis() as u64
    }

    pub(super) fn with_bucket<T>(&self, hash: u64, look: impl FnOnce(&mut Bucket<'_>) -> T) -> T {
        let all = self.shards.len() * self.buckets_per_shard;
        let place = random::scale(hash, all as u64) as usize;
        let (shard, bucket) = (place % self.shards.len(), place / self.shards.len());
        let size = self.ways * self.words.0;
        let mut words = lock(&self.shards[shard]);
        if words.is_empty() {
            *words = vec![0; self.buckets_per_shard * size].into();
        }
        look(&mut Bucket { words: &mut words[bucket * size..][..size], sizes: self.words })
    }

    /// Forgets all entries by `forget`, which hears whether the time of each is not over. Returns how many there were, those whose time
    /// is over included.
    pub(super) fn clear(&self, time: Time, mut forget: impl FnMut(Entry<'_>, bool)) -> usize {
        let mut count = 0;
        self.each(Time { now: 0, alive_from: 0 }, |entry| {
            let is_alive = is_alive(&entry, time);
            forget(entry, is_alive);
            count += 1;
        });
        count
    }

    /// Calls with every entry whose time is not over. Locks are held for [`LOOK_ENTRIES`] at a time.
    pub(super) fn each(&self, time: Time, mut look: impl FnMut(Entry<'_>)) {
        for shard in &self.shards {
            let mut from = 0;
            loop {
                let mut words = lock(shard);
                let to = words.len().min(from + LOOK_ENTRIES * self.words.0);
                if from == to {
                    break;
                }
                for words in words[from..to].chunks_exact_mut(self.words.0) {
                    let entry = Entry::over(words, self.words.1);
                    if is_alive(&entry, time) {
                        look(entry);
                    }
                }
                from = to;
            }
        }
    }

    /// Bytes that the entries take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| size_of_val(&**lock(shard))).sum()
    }
}

/// What a thread that panicked has left is an entry like any other.
fn lock(shard: &Mutex<Box<[u64]>>) -> MutexGuard<'_, Box<[u64]>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_alive(entry: &Entry<'_>, time: Time) -> bool {
    entry.counted_at() > 0 && entry.counted_at() > time.alive_from
}

impl Bucket<'_> {
    pub(super) fn entry(&mut self, place: usize) -> Entry<'_> {
        let (words, key_words) = self.sizes;
        Entry::over(&mut self.words[place * words..][..words], key_words)
    }

    fn len(&self) -> usize {
        self.words.len() / self.sizes.0
    }

    /// Returns where the entry of a hash is.
    pub(super) fn find(&mut self, hash: u64, time: Time) -> Option<usize> {
        (0..self.len()).find(|place| {
            let entry = self.entry(*place);
            entry.hash() == hash && is_alive(&entry, time)
        })
    }

    /// Returns where the entry of a hash is, made if there was none, and counted now. One whose key is not known yet takes `key`.
    pub(super) fn find_or_make(&mut self, key: (u64, Option<&[u8]>), time: Time) -> Found {
        self.find_or_make_over(key, time, |_| {})
    }

    /// The same; `over` sees the entry whose place is taken, before it is gone.
    pub(super) fn find_or_make_over(
        &mut self,
        (hash, key): (u64, Option<&[u8]>),
        time: Time,
        over: impl FnOnce(&Entry<'_>),
    ) -> Found {
        let (mut oldest, mut at) = (0, u64::MAX);
        for place in 0..self.len() {
            let mut entry = self.entry(place);
            let is_alive = is_alive(&entry, time);
            if entry.hash() == hash && is_alive {
                entry.touch(time.now);
                if let Some(key) = key.filter(|_| entry.is_nameless()) {
                    entry.name(key);
                }
                return Found { place, has_evicted: false, is_more: false };
            }
            let counted_at = if is_alive { entry.counted_at() } else { 0 };
            if counted_at < at {
                (oldest, at) = (place, counted_at);
            }
        }
        let mut entry = self.entry(oldest);
        let is_more = entry.counted_at() == 0;
        over(&entry);
        entry.begin(hash);
        key.into_iter().for_each(|key| entry.name(key));
        entry.touch(time.now);
        Found { place: oldest, has_evicted: at > 0, is_more }
    }
}
