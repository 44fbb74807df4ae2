//! The index of a folder.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use model::fields::Fields;

use super::held::DiskEntry;
use super::job::{Copying, DiskJob, DiskJobs};
use super::name::FileName;
use crate::cache::entry::Entry;
use crate::cache::purges::{Purge, Tagged};
use crate::cache::shard::{Kept, Shard};
use crate::cache::validity::{Begun, Validity};

const SHARDS: usize = 64;
/// Bytes that wait to be written. What comes while there are more is not written.
const QUEUED_BYTES_MAX: u64 = 32 << 20;
/// Files that are written at once, of bodies that come in pieces.
const OPEN_MAX: u64 = 64;
/// For so many seconds after a file was written, a validated body of more than so many bytes is not copied to a file with its new head.
const COPIED_AFTER_SECONDS: u64 = 60;
const COPIED_AT_ONCE_BYTES: u64 = 1 << 20;
/// What a file takes is counted in these.
const BLOCK_BYTES: u64 = 4096;

/// What is called when files are gone, or `false`: some are not.
type WhenDone = Box<dyn FnOnce(bool) + Send>;

/// What is known of a folder, over changes of the configuration.
pub struct DiskContent {
    path: String,
    shards: Box<[Mutex<Shard<DiskEntry>>]>,
    validity: Arc<Validity>,
    jobs: OnceLock<Box<dyn DiskJobs>>,
    /// Bytes that the files may take; those that they take, with those that are being written.
    max: AtomicU64,
    bytes: AtomicU64,
    queued: AtomicU64,
    open: AtomicU64,
    next: AtomicU64,
    /// Which shard makes room next.
    turn: AtomicU64,
    /// Bodies in files that wait to be written to others.
    copies: Arc<AtomicU64>,
    is_paused: AtomicBool,
    /// What waits until the folder was looked through once; `None`: it was.
    first_scan: Mutex<Option<Vec<WhenDone>>>,
    /// What happened.
    pub counts: DiskCounts,
}

/// What happened to the files of a cache.
#[derive(Debug, Default)]
pub struct DiskCounts {
    /// Requests that were answered from a file.
    pub hits: AtomicU64,
    /// Files that could not be written.
    pub failed: AtomicU64,
    /// Responses that were not written, because the disk is slow or paused.
    pub dropped: AtomicU64,
    /// Files that were cut short or altered, or were none of ours, and were removed.
    pub bad: AtomicU64,
    /// Files that made room for others.
    pub evictions: AtomicU64,
}

impl DiskContent {
    pub(super) fn new(path: String, validity: Arc<Validity>) -> Self {
        validity.purges.begin_scan();
        Self {
            path,
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::noting())).collect(),
            validity,
            jobs: OnceLock::new(),
            max: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            open: AtomicU64::new(0),
            next: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            copies: Arc::default(),
            is_paused: AtomicBool::new(false),
            first_scan: Mutex::new(Some(Vec::new())),
            counts: DiskCounts::default(),
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Sets the bound on the bytes of all files.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
        self.make_room(self.next_place());
    }

    /// Has jobs be done by these from now on, if none does them yet. `make` is called once.
    pub fn attach(&self, make: impl FnOnce() -> Box<dyn DiskJobs>) {
        self.jobs.get_or_init(make);
    }

    /// Stops and resumes writing, as when the disk is full.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Bytes of all files, in whole blocks, with those that are being written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Responses in files.
    pub fn entries(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }

    /// The names of all files.
    pub fn names(&self) -> HashSet<FileName> {
        let mut names = HashSet::new();
        for shard in &self.shards {
            names.extend(lock(shard).iter().map(|entry| entry.name()));
        }
        names
    }

    /// Returns the newest response that answers such a request.
    pub fn find(&self, key: (u64, &[u8]), request: &Fields) -> Option<Arc<DiskEntry>> {
        self.shard(key.0).find(key, request)
    }

    /// Returns whether this very file is in the index.
    pub fn holds(&self, hash: u64, entry: &DiskEntry) -> bool {
        let shard = self.shard(hash);
        shard.of_variant((hash, entry.key()), entry.variant()).is_some_and(|held| held.name() == entry.name())
    }

    /// Has a response be written. `false`: it is not, because too much waits, or nothing is written at present.
    pub(in crate::cache) fn write(&self, hash: u64, entry: Arc<Entry>, begun: Begun) -> bool {
        if entry.body.file().is_some() {
            // Of a validated body in a file memory has nothing: the older one answers, or is validated again, until this is written.
            let Some(copy) = self.begin_copy(hash, &entry) else { return false };
            return self.submit_data(DiskJob::Write { hash, entry, begun, copy: Some(copy) });
        }
        // What is older must not be found when memory has dropped this.
        self.forget_variant(hash, &entry);
        self.submit_data(DiskJob::Write { hash, entry, begun, copy: None })
    }

    /// `None`: this body is not copied to another file now, because it is already, or was lately, or others are.
    fn begin_copy(&self, hash: u64, entry: &Entry) -> Option<Copying> {
        let known = self.shard(hash).of_variant((hash, &entry.key), &entry.variant).cloned();
        let written = known.as_ref().map_or(0, |known| known.received());
        let is_early = entry.clock.received.saturating_sub(written) < COPIED_AFTER_SECONDS;
        if is_early && entry.body.len() > COPIED_AT_ONCE_BYTES {
            return None;
        }
        Copying::begin(known, &self.copies)
    }

    /// Begins a file for a body that comes in pieces. Returns its number, or `None` if it is not written.
    pub(in crate::cache) fn begin(&self, entry: Arc<Entry>) -> Option<u64> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= OPEN_MAX {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.submit_data(DiskJob::Begin { number, entry }) {
            return Some(number);
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Has a piece be written, for which room on disk was taken.
    pub(in crate::cache) fn append(&self, number: u64, bytes: Vec<u8>) -> bool {
        self.submit_data(DiskJob::Append { number, bytes })
    }

    /// Has a file be ended, or be removed if its body is cut short.
    pub(in crate::cache) fn end(&self, job: DiskJob) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.submit(job, 0);
    }

    /// Takes room on disk for a file that is being written; gives it back.
    pub(in crate::cache) fn take_room(&self, bytes: u64) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > max {
            // Not where its key belongs: it is long, and would have all of that shard go.
            self.make_room(self.next_place());
        }
        let has_room = self.bytes() <= max;
        if !has_room {
            self.give_room(bytes);
        }
        has_room
    }

    pub(in crate::cache) fn give_room(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes a file into the index that was found in the folder. `false`: it is void, older than what is known, or too large, and must go.
    pub fn adopt(
        &self,
        entry: &Entry,
        (name, body_len, file_len): (FileName, u64, u64),
        chance: &mut dyn FnMut() -> u64,
    ) -> bool {
        let hash = self.validity.hash(&entry.key, chance);
        // Nothing is known of the time before this process: all purges since count.
        let begun = Begun { at: entry.clock.received, purges: 0 };
        let known = self.shard(hash).of_variant((hash, &entry.key), &entry.variant).cloned();
        match known {
            Some(known) if known.name() == name => true,
            Some(known) if known.received() >= entry.clock.received => false,
            _ => self.insert((hash, begun), entry, (name, body_len, file_len)),
        }
    }

    /// Takes a file into the index, which was just written. `false`: its response is void by now, or too large, and the file must go.
    pub fn insert(
        &self,
        (hash, begun): (u64, Begun),
        entry: &Entry,
        (name, body_len, file_len): (FileName, u64, u64),
    ) -> bool {
        let bytes = file_len.next_multiple_of(BLOCK_BYTES);
        if bytes > self.max.load(Ordering::Relaxed) {
            return false;
        }
        let held = DiskEntry::new(entry, (name, body_len));
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let (freed, gone) = {
            let mut shard = self.shard(hash);
            if self.validity.is_void(hash, &held, begun) {
                drop(shard);
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                return false;
            }
            (shard.insert(hash, Arc::new(held), bytes), shard.take_gone())
        };
        self.removed(freed, gone.into_iter().filter(|gone| gone.name() != name));
        self.make_room(place(hash));
        true
    }

    /// Removes a file that cannot be read. `is_bad`: it is not what was written.
    pub fn discard(&self, hash: u64, entry: &Arc<DiskEntry>, is_bad: bool) {
        let (freed, gone) = {
            let mut shard = self.shard(hash);
            (shard.remove_entry(hash, entry), shard.take_gone())
        };
        if is_bad && !gone.is_empty() {
            self.counts.bad.fetch_add(1, Ordering::Relaxed);
        }
        self.removed(freed, gone.into_iter());
    }

    /// Removes a file that is not in the index.
    pub fn forget_file(&self, name: FileName) {
        self.submit(DiskJob::Delete(name), 0);
    }

    /// Removes the file of this variant.
    pub(in crate::cache) fn forget_variant(&self, hash: u64, entry: &Entry) {
        let known = self.shard(hash).of_variant((hash, &entry.key), &entry.variant).cloned();
        if let Some(known) = known {
            self.discard(hash, &known, false);
        }
    }

    /// Removes all files of a key.
    pub(in crate::cache) fn remove_key(&self, hash: u64, key: &[u8]) {
        let (freed, gone) = {
            let mut shard = self.shard(hash);
            (shard.remove_key(hash, key), shard.take_gone())
        };
        self.removed(freed, gone.into_iter());
    }

    /// Removes what is meant, or marks it. Returns how many of them count, by hash and entry, which is asked with nothing locked.
    pub(in crate::cache) fn purge(&self, what: &Purge, is_soft: bool, counts: impl Fn(u64, &DiskEntry) -> bool) -> u64 {
        let mut count = 0;
        for shard in &self.shards {
            let mut marked = Vec::new();
            let (freed, gone) = {
                let mut shard = lock(shard);
                if is_soft {
                    marked.extend(shard.iter().filter(|entry| what.means(&***entry)).cloned());
                }
                let (_, freed) = shard.purge(is_soft, |entry| what.means(entry));
                (freed, shard.take_gone())
            };
            let is_counted =
                |entry: &&Arc<DiskEntry>| self.validity.known_hash(entry.key()).is_some_and(|hash| counts(hash, entry));
            count += marked.iter().chain(&gone).filter(is_counted).count() as u64;
            marked.iter().for_each(|entry| self.submit(DiskJob::MarkStale(entry.name()), 0));
            self.removed(freed, gone.into_iter());
        }
        count
    }

    /// Calls this when the folder was looked through, and all jobs that there are now are done. `false`: files are still to be removed.
    pub(in crate::cache) fn flush(&self, then: WhenDone) {
        if let Some(waiting) = &mut *self.first_scan.lock().unwrap_or_else(PoisonError::into_inner) {
            waiting.push(then);
            return;
        }
        self.submit(DiskJob::Flush(then), 0);
    }

    /// Says that the folder was looked through, so that all purged files in it are known, or that it is not going to be.
    pub fn end_first_scan(&self) {
        let waiting = self.first_scan.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waiting) = waiting {
            self.validity.purges.end_scan();
            waiting.into_iter().for_each(|then| self.submit(DiskJob::Flush(then), 0));
        }
    }

    /// Says that a job is done which [`DiskJobs::submit`] has taken with so many bytes.
    pub fn done(&self, bytes: u64) {
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Evicts until the bound holds: from one shard after the other, beginning with this one.
    fn make_room(&self, start: usize) {
        let (max, mut at, mut empty) = (self.max.load(Ordering::Relaxed), start, 0);
        while self.bytes() > max && empty < SHARDS {
            let (evicted, gone) = {
                let mut shard = lock(&self.shards[at % SHARDS]);
                (shard.evict(), shard.take_gone())
            };
            at += 1;
            empty = if evicted.is_some() { 0 } else { empty + 1 };
            if let Some(bytes) = evicted {
                self.removed(bytes, gone.into_iter());
                self.counts.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Another shard each time, so that all of them make room for long bodies.
    fn next_place(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) as usize % SHARDS
    }

    fn removed(&self, freed: u64, gone: impl Iterator<Item = Arc<DiskEntry>>) {
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        gone.for_each(|entry| self.submit(DiskJob::Delete(entry.name()), 0));
    }

    /// Submits a job that holds bytes, if there is room for them.
    fn submit_data(&self, job: DiskJob) -> bool {
        let bytes = job.bytes();
        let is_full = self.queued.fetch_add(bytes, Ordering::Relaxed) + bytes > QUEUED_BYTES_MAX;
        if is_full || self.is_paused.load(Ordering::Relaxed) {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.submit(job, bytes);
        true
    }

    fn submit(&self, job: DiskJob, bytes: u64) {
        match self.jobs.get() {
            Some(jobs) => jobs.submit((job, bytes)),
            None => self.done(bytes),
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<DiskEntry>> {
        lock(&self.shards[place(hash)])
    }
}

fn place(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

fn lock(shard: &Mutex<Shard<DiskEntry>>) -> MutexGuard<'_, Shard<DiskEntry>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for DiskContent {
    fn drop(&mut self) {
        self.end_first_scan();
    }
}

impl fmt::Debug for DiskContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskContent").field("path", &self.path).finish_non_exhaustive()
    }
}
