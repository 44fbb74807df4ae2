//! Replicated tables: what they count here is noted for peers, and what peers count is added.
//!
//! Each entry has a word more for each counter: what peers have not heard yet. Sums go round, so that increments of either sign may come in
//! any order; one that is below zero reads as zero. The store of such a table is not where that of others is: the others find theirs at
//! once, and pay nothing for this.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use model::table::{Counter, Reading};

use super::Table;
use super::layout::{Entry, TEXT_BYTES};
use super::store::{Bucket, Store, Time};
use crate::keyed;

/// Lists of entries that peers are to hear of, and hashes in each. With more, all entries are looked at.
const LISTS: usize = 16;
const LIST_MAX: usize = 4096;
/// Removed entries of each list that peers have not heard of: 65,536 in all.
const REMOVED_MAX: usize = 65_536 / LISTS;
/// Bytes that a key begins with when it is longer than a table keeps.
const BEGINNING_BYTES: usize = 15;

/// What a replicated table has beside others.
pub(super) struct Shared {
    pub(super) store: OnceLock<Store>,
    /// Hashes of entries that peers are to hear of.
    noted: [Mutex<Vec<u64>>; LISTS],
    is_flooded: AtomicBool,
    /// By the list of their hash.
    removed: [Mutex<Vec<Change>>; LISTS],
    /// The administrator has removed more entries than `removed` keeps.
    is_cleared: AtomicBool,
    lost: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            store: OnceLock::new(),
            noted: std::array::from_fn(|_| Mutex::default()),
            is_flooded: AtomicBool::new(false),
            removed: std::array::from_fn(|_| Mutex::default()),
            is_cleared: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }
    }
}

/// What was counted of a key since peers heard of it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// At most [`Table::KEY_BYTES_MAX`] bytes.
    pub key: Vec<u8>,
    /// The administrator has removed the entry.
    pub is_reset: bool,
    /// The administrator has removed all entries of the table; there is no key and no value then.
    pub is_all: bool,
    /// Increments, in an order that all tables of one [`Table::fingerprint`] have.
    pub values: Vec<i64>,
}

/// All entries of a table by key: the milliseconds since their last count; what each counter and then each rate has.
pub type Totals = HashMap<Vec<u8>, (u64, Vec<i64>)>;

impl Shared {
    fn note(&self, hash: u64) {
        let mut list = lock(&self.noted[hash as usize % LISTS]);
        if list.len() < LIST_MAX {
            list.push(hash);
        } else {
            self.is_flooded.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps what peers are to hear of an entry that is gone. Returns whether there was room.
    fn remove(&self, hash: u64, change: Change) -> bool {
        let mut removed = lock(&self.removed[hash as usize % LISTS]);
        let has_room = removed.len() < REMOVED_MAX;
        if has_room {
            removed.push(change);
        }
        has_room
    }

    fn remove_evicted(&self, (hash, change): (u64, Change)) {
        if !self.remove(hash, change) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the key that every instance knows a key by: a longer one by its beginning and 96 bits of its SHA-256.
pub(super) fn whole_key(key: &[u8]) -> Cow<'_, [u8]> {
    if key.len() <= TEXT_BYTES {
        return key.into();
    }
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let hash = digest(&SHA256, key);
    let mut kept = [&key[..BEGINNING_BYTES], b"~"].concat();
    for three in hash.as_ref()[..12].chunks_exact(3) {
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        kept.extend([18, 12, 6, 0].map(|shift| LETTERS[(bits >> shift) as usize & 63]));
    }
    kept.into()
}

impl Table {
    /// Returns whether it is replicated.
    pub fn is_replicated(&self) -> bool {
        self.state.shared.is_some()
    }

    /// Returns what two tables have in common whose increments may be added to each other.
    pub fn fingerprint(&self) -> u64 {
        keyed::hash([0; 2], self.shape().as_bytes())
    }

    /// Returns the number of values that an entry has in [`Totals`].
    pub fn totals_len(&self) -> usize {
        self.layout.unsent().len() + self.layout.rates().count()
    }

    /// Returns the increments that peers do not get, because too many entries were removed at once.
    pub fn lost(&self) -> u64 {
        self.state.shared.as_ref().map_or(0, |shared| shared.lost.load(Ordering::Relaxed))
    }

    #[cold]
    pub(super) fn count_first(
        &self,
        key: &[u8],
        amounts: &[(Counter, u64)],
        now: Instant,
        chance: &mut dyn FnMut() -> u64,
    ) -> u64 {
        let store = self.store(now, chance);
        let Some(shared) = &self.state.shared else { return self.count(key, amounts, now, chance) };
        let key = whole_key(key);
        let (tick, hash) = (store.tick(now), store.hash(&key));
        self.count_shared((shared, store), (hash, Some(&key)), amounts, tick);
        hash
    }

    #[cold]
    pub(super) fn count_more_shared(&self, entry: u64, amounts: &[(Counter, u64)], now: Instant) {
        let Some((shared, store)) = self.shared() else { return };
        self.count_shared((shared, store), (entry, None), amounts, store.tick(now));
    }

    #[cold]
    pub(super) fn get_shared(&self, key: &[u8], reading: Reading, now: Instant) -> u64 {
        let (Some((_, store)), Some(place)) = (self.shared(), self.layout.place(reading)) else { return 0 };
        let (tick, hash) = (store.tick(now), store.hash(&whole_key(key)));
        store.with_bucket(hash, |bucket| {
            let found = bucket.find(hash, self.time(tick));
            found.map_or(0, |found| shown(self.layout.read(&bucket.entry(found), place, tick)))
        })
    }

    fn shared(&self) -> Option<(&Shared, &Store)> {
        let shared = self.state.shared.as_deref()?;
        Some((shared, shared.store.get()?))
    }

    fn count_shared(
        &self,
        (shared, store): (&Shared, &Store),
        key: (u64, Option<&[u8]>),
        amounts: &[(Counter, u64)],
        tick: u64,
    ) {
        let gone = store.with_bucket(key.0, |bucket| {
            let (place, gone) = self.place_shared(bucket, key, self.time(tick));
            let mut entry = bucket.entry(place);
            for (counter, amount) in amounts.iter().filter(|(_, amount)| *amount > 0) {
                let amount = i64::try_from(*amount).unwrap_or(i64::MAX);
                self.layout.add_shared(&mut entry, (*counter, amount), 0, tick);
                self.add_unsent(shared, &mut entry, *counter, amount);
            }
            gone
        });
        gone.into_iter().for_each(|gone| shared.remove_evicted(gone));
    }

    fn add_unsent(&self, shared: &Shared, entry: &mut Entry<'_>, counter: Counter, amount: i64) {
        let Some((_, word)) = self.layout.unsent().iter().find(|(known, _)| *known == counter) else { return };
        entry.set_unsent(*word, entry.unsent(*word).wrapping_add(amount));
        if entry.note() {
            shared.note(entry.hash());
        }
    }

    /// As [`Table::place`]. Returns with it what peers have not heard of the entry that makes room, to be kept for them once the lock of the
    /// bucket is free.
    fn place_shared(
        &self,
        bucket: &mut Bucket<'_>,
        key: (u64, Option<&[u8]>),
        time: Time,
    ) -> (usize, Option<(u64, Change)>) {
        let mut unsent = None;
        let found = bucket.find_or_make_over(key, time, |gone| {
            unsent = self.unsent_of(gone).map(|change| (gone.hash(), change));
        });
        self.count_found(&found);
        (found.place, unsent)
    }

    /// What peers have not heard of an entry.
    fn unsent_of(&self, entry: &Entry<'_>) -> Option<Change> {
        let values: Vec<i64> = self.layout.unsent().iter().map(|(_, word)| entry.unsent(*word)).collect();
        let key = entry.key().filter(|_| !entry.is_nameless() && values.iter().any(|value| *value != 0))?;
        Some(Change { key: key.to_vec(), values, ..Change::default() })
    }

    fn take_unsent(&self, entry: &mut Entry<'_>) -> Option<Change> {
        // One without a key is noted again with its next count, when its key may be known.
        let change = entry.unnote().then(|| self.unsent_of(entry)).flatten()?;
        self.layout.unsent().iter().for_each(|(_, word)| entry.set_unsent(*word, 0));
        Some(change)
    }

    /// Takes what was counted since the last call, for peers.
    pub fn drain(&self, sink: &mut dyn FnMut(Change)) {
        let Some((shared, store)) = self.shared() else { return };
        // What was removed before all entries comes first, and what was counted since comes after it.
        let is_cleared = shared.is_cleared.swap(false, Ordering::Relaxed);
        for list in &shared.removed {
            let removed = std::mem::take(&mut *lock(list));
            removed.into_iter().for_each(&mut *sink);
        }
        if is_cleared {
            sink(Change { is_all: true, ..Change::default() });
        }
        if shared.is_flooded.swap(false, Ordering::Relaxed) {
            shared.noted.iter().for_each(|list| lock(list).clear());
            let all = Time { now: 0, alive_from: 0 };
            return store.each(all, |mut entry| self.take_unsent(&mut entry).into_iter().for_each(&mut *sink));
        }
        for list in &shared.noted {
            let hashes = std::mem::take(&mut *lock(list));
            for hash in hashes {
                let change = store.with_bucket(hash, |bucket| {
                    let place = bucket.find(hash, Time { now: 0, alive_from: 0 })?;
                    self.take_unsent(&mut bucket.entry(place))
                });
                change.into_iter().for_each(&mut *sink);
            }
        }
    }

    /// Adds what a peer has counted so many milliseconds ago. Returns whether it is of use: its values are as many as the table has.
    ///
    /// What is taken off never leaves less than this instance has counted and not sent: an entry may have expired, or have made room for
    /// others, at this instance alone. Otherwise its client would have credit here.
    pub fn apply(&self, change: &Change, age: u64, (now, chance): (Instant, &mut dyn FnMut() -> u64)) -> bool {
        let Some(shared) = &self.state.shared else { return false };
        if change.is_all {
            self.forget_sent(now);
            return true;
        }
        if change.values.len() != self.layout.unsent().len() || change.key.len() > TEXT_BYTES {
            return false;
        }
        let store = self.store(self.begins(now), chance);
        let (tick, hash) = (store.tick(now), store.hash(&change.key));
        let gone = store.with_bucket(hash, |bucket| {
            let time = self.time(tick);
            let is_old = u128::from(age) >= self.settings.expire.as_millis();
            let adds = change.values.iter().any(|value| *value > 0);
            if (is_old || !adds) && bucket.find(hash, time).is_none() {
                return None;
            }
            let at = Time { now: if is_old { 0 } else { tick.saturating_sub(age) }, ..time };
            let (place, gone) = self.place_shared(bucket, (hash, Some(&change.key)), at);
            let mut entry = bucket.entry(place);
            if change.is_reset {
                self.layout.rates().for_each(|(_, place, _)| self.layout.write(&mut entry, place, tick, 0));
            }
            for ((counter, word), value) in self.layout.unsent().iter().zip(&change.values) {
                let before = self.layout.sum(&entry, *counter);
                self.layout.add_shared(&mut entry, (*counter, *value), age, tick);
                if let Some(before) = before.filter(|_| *value < 0) {
                    let least = entry.unsent(*word).max(0).min(before);
                    self.layout.set_sum(&mut entry, *counter, before.saturating_add(*value).max(least));
                }
            }
            if change.is_reset && self.is_empty(&entry) {
                entry.forget();
                self.state.entries.fetch_sub(1, Ordering::Relaxed);
            }
            gone
        });
        gone.into_iter().for_each(|gone| shared.remove_evicted(gone));
        true
    }

    /// Forgets all that peers have heard of; what they have not stays.
    fn forget_sent(&self, now: Instant) {
        let Some((_, store)) = self.shared() else { return };
        let tick = store.tick(now);
        let mut gone = 0;
        store.clear(self.time(tick), |mut entry, _| {
            self.layout.rates().for_each(|(_, place, _)| self.layout.write(&mut entry, place, tick, 0));
            for (counter, word) in self.layout.unsent() {
                let unsent = entry.unsent(*word).max(0);
                self.layout.set_sum(&mut entry, *counter, unsent);
            }
            if self.is_empty(&entry) {
                entry.forget();
                gone += 1;
            }
        });
        self.state.entries.fetch_sub(gone, Ordering::Relaxed);
    }

    /// Returns whether an entry has no counts, of which peers have heard.
    fn is_empty(&self, entry: &Entry<'_>) -> bool {
        let has_none = |(counter, word): &(Counter, u8)| {
            entry.unsent(*word) == 0 && self.layout.sum(entry, *counter).is_none_or(|sum| sum == 0)
        };
        self.layout.unsent().iter().all(has_none)
    }

    /// Calls with each entry as peers know it: without what they have not heard yet. With its key, and the two of [`Totals`].
    pub fn totals(&self, now: Instant, mut sink: impl FnMut(&[u8], u64, Vec<i64>)) {
        self.each(now, |entry, tick| {
            let Some(key) = entry.key().filter(|_| !entry.is_nameless()) else { return };
            sink(&key, entry.idle(tick).as_millis() as u64, self.sent(entry, tick));
        });
    }

    fn sent(&self, entry: &Entry<'_>, tick: u64) -> Vec<i64> {
        let sum = |(counter, word): &(Counter, u8)| {
            self.layout.sum(entry, *counter).map_or(0, |sum| sum.wrapping_sub(entry.unsent(*word)))
        };
        let rate = |(counter, place, _)| {
            self.handed_value(entry, Reading { counter, is_rate: true }, self.layout.read(entry, place, tick)) as i64
        };
        self.layout.unsent().iter().map(sum).chain(self.layout.rates().map(rate)).collect()
    }

    /// Takes over what a peer knows, to which comes what this instance has counted that the peer has not heard: `own`, and what is not
    /// sent yet. With `is_exact` that is all there is afterwards; otherwise the greater of both sides stays, because some of `own` is
    /// not known any more.
    pub fn adopt(
        &self,
        mut totals: Totals,
        (own, is_exact): (&HashMap<Vec<u8>, Vec<i64>>, bool),
        (now, chance): (Instant, &mut dyn FnMut() -> u64),
    ) {
        let Some(shared) = &self.state.shared else { return };
        let store = self.store(self.begins(now), chance);
        let tick = store.tick(now);
        let mut gone = 0;
        store.each(self.time(tick), |mut entry| {
            let Some(key) = entry.key().filter(|_| !entry.is_nameless()) else { return };
            let theirs = totals.remove(&*key);
            let values = theirs.as_ref().map(|(_, values)| values.as_slice());
            self.settle(&mut entry, values, (own.get(&*key), is_exact), tick);
            if is_exact && values.is_none() && self.is_empty(&entry) {
                entry.forget();
                gone += 1;
            }
        });
        self.state.entries.fetch_sub(gone, Ordering::Relaxed);
        let expire = self.settings.expire.as_millis();
        for (key, (idle, values)) in totals {
            let hash = store.hash(&key);
            if u128::from(idle) >= expire || key.len() > TEXT_BYTES {
                continue;
            }
            let gone = store.with_bucket(hash, |bucket| {
                let time = Time { now: tick.saturating_sub(idle), ..self.time(tick) };
                let (place, gone) = self.place_shared(bucket, (hash, Some(&key)), time);
                self.settle(&mut bucket.entry(place), Some(&values), (own.get(&key), is_exact), tick);
                gone
            });
            gone.into_iter().for_each(|gone| shared.remove_evicted(gone));
        }
    }

    fn settle(
        &self,
        entry: &mut Entry<'_>,
        theirs: Option<&[i64]>,
        (own, is_exact): (Option<&Vec<i64>>, bool),
        tick: u64,
    ) {
        let value = |place: usize| theirs.and_then(|values| values.get(place)).copied().unwrap_or(0);
        let counters = self.layout.unsent();
        for (place, (counter, word)) in counters.iter().enumerate() {
            let Some(mine) = self.layout.sum(entry, *counter) else { continue };
            let own = own.and_then(|own| own.get(place)).copied().unwrap_or(0);
            let sent = value(place).wrapping_add(own).max(0);
            let sum = if is_exact { sent.wrapping_add(entry.unsent(*word)).max(0) } else { mine.max(value(place)) };
            self.layout.set_sum(entry, *counter, sum);
        }
        for (rate, (_, place, _)) in self.layout.rates().enumerate() {
            // What is behind is over after two whiles.
            let theirs = value(counters.len() + rate).max(0) as u64;
            if theirs > self.layout.read(entry, place, tick) {
                self.layout.write(entry, place, tick, theirs);
            }
        }
    }

    /// The administrator has set an entry: peers are to hear by how much.
    pub(super) fn note_set(&self, entry: &mut Entry<'_>, reading: Reading, (before, after): (u64, u64)) {
        if let Some(shared) = self.state.shared.as_deref().filter(|_| !reading.is_rate) {
            self.add_unsent(shared, entry, reading.counter, after.wrapping_sub(before) as i64);
        }
    }

    /// The administrator removes an entry: peers are to take off what there is, unless its time is over. Returns whether there was room to
    /// note that.
    pub(super) fn note_removed(&self, entry: &Entry<'_>, is_alive: bool) -> bool {
        let (Some(shared), Some(key)) = (&self.state.shared, entry.key().filter(|_| is_alive)) else { return true };
        let value = |(counter, word): &(Counter, u8)| {
            entry.unsent(*word).wrapping_sub(self.layout.sum(entry, *counter).unwrap_or(0))
        };
        let values = self.layout.unsent().iter().map(value).collect();
        shared.remove(entry.hash(), Change { key: key.to_vec(), is_reset: true, is_all: false, values })
    }

    /// There was no room for what the administrator has removed: one entry, or all.
    pub(super) fn note_cleared(&self, is_one: bool) {
        let Some(shared) = &self.state.shared else { return };
        if is_one {
            shared.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            shared.is_cleared.store(true, Ordering::Relaxed);
        }
    }

    /// What peers know of a reading. That is what the process that follows gets: it hears the rest from this one, as a peer.
    pub(super) fn handed_value(&self, entry: &Entry<'_>, reading: Reading, value: u64) -> u64 {
        let unsent = self.unsent(entry, reading.counter);
        if reading.is_rate { value.saturating_sub(unsent.max(0) as u64) } else { value.wrapping_sub(unsent as u64) }
    }

    fn unsent(&self, entry: &Entry<'_>, counter: Counter) -> i64 {
        let known = self.layout.unsent().iter().find(|(known, _)| *known == counter);
        known.map_or(0, |(_, word)| entry.unsent(*word))
    }

    /// What a reading is for those who look: zero, if decrements have come before what they take away from.
    pub(super) fn shown_value(&self, value: u64) -> u64 {
        if self.state.shared.is_some() { shown(value) } else { value }
    }

    /// The time of the table begins so early that entries can have been idle.
    pub(super) fn begins(&self, now: Instant) -> Instant {
        now.checked_sub(self.settings.expire.max(Duration::from_secs(1))).unwrap_or(now)
    }
}

fn shown(value: u64) -> u64 {
    if value > i64::MAX as u64 { 0 } else { value }
}
