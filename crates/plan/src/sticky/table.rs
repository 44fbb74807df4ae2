//! Which endpoint each session belongs to: a table that all workers share, bounded, that forgets what was used least lately.
//!
//! It is split into shards by the hash of the key, each with a mutex and a list in the order of use. The count of entries
//! is one for all shards, so the bound is exact: who enters one beyond it takes the oldest out first, of the same shard
//! if that has one. Within a shard the order is exact; over all it is as good as a sample. Every operation touches one
//! shard and a few entries, whatever the size.
//!
//! Keys are hashed with a seed (SipHash), so that nobody can choose keys that fall into one shard or onto one entry.
//! Two keys of one hash would share an entry, and thus an endpoint: with 64 bits that does not happen, and would do no harm.

mod replica;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::balance::Chance;
use crate::hash::FastMap;
use crate::keyed;
use crate::padded::Padded;
use crate::sticky::Moment;
use replica::Told;
pub use replica::{SessionCopy, SharedSessions, session_age};

/// A table for fewer entries than this has one shard, in which the order of use is exact; others have [`SHARDS`], a power of
/// two.
const SPLIT_MIN: u32 = 2_000;
const SHARDS: u32 = 64;
/// Entries beyond their time that one hold of a shard removes: others wait for it meanwhile.
const EXPIRED_PER_HOLD: usize = 1024;
/// Entries beyond their time that each change of a shard removes.
const EXPIRED_PER_TURN: usize = 2;
/// No entry.
const NONE: u32 = u32::MAX;

/// Tenths of a second since the table began: 13 years fit.
pub(super) type Tick = u32;

/// See the module.
pub(crate) struct Table {
    begun: OnceLock<Begun>,
    shards: Box<[Padded<Mutex<Shard>>]>,
    entries: Padded<AtomicU32>,
    evictions: AtomicU64,
    max: AtomicU32,
    /// Of a table that is replicated.
    agreed: Option<Agreed>,
}

/// What instances that replicate a table agree on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    /// By which all hash keys.
    pub(super) seed: [u64; 2],
    /// Time without use after which they forget a session: entries of peers may be as old when the table begins.
    pub(super) expires: Duration,
}

/// What a table needs of time and chance, which its first user gives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Instant,
    seed: [u64; 2],
    /// Tenths of a second since 1970 at that moment, modulo 2³², in a table that is replicated.
    stamp: u32,
}

impl Begun {
    pub(super) fn tick(&self, now: Instant) -> Tick {
        tenths(now.saturating_duration_since(self.at))
    }

    /// The hash of a key.
    pub(super) fn key(&self, bytes: &[u8]) -> u64 {
        keyed::hash(self.seed, bytes)
    }
}

/// A duration in the unit of [`Tick`].
pub(super) fn tenths(duration: Duration) -> Tick {
    u32::try_from(duration.as_millis() / 100).unwrap_or(Tick::MAX)
}

/// What a process hands its successor of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableHandover {
    /// By which keys are hashed.
    pub seed: [u64; 2],
    /// Entries that had to go before their time.
    pub evictions: u64,
    /// Key, endpoint, and how long ago it was used, in tenths of a second; never growing.
    pub entries: Vec<(u64, u64, u32)>,
}

#[derive(Default)]
struct Shard {
    places: FastMap<u64, u32>,
    entries: Vec<Entry>,
    /// Ends of the list in the order of use.
    newest: Link,
    oldest: Link,
    /// What peers have heard, in a table that is replicated.
    told: Option<Box<Told>>,
}

/// A place in `entries`, or [`NONE`].
#[derive(Clone, Copy, PartialEq, Eq)]
struct Link(u32);

impl Default for Link {
    fn default() -> Self {
        Self(NONE)
    }
}

#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    endpoint: u64,
    seen: Tick,
    newer: Link,
    older: Link,
}

/// What an entry may take the place of.
#[derive(Clone, Copy)]
enum Over {
    Any,
    /// This one, which was seen; without, none.
    Seen(Option<u64>),
}

impl Over {
    fn allows(self, endpoint: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Seen(seen) => seen == Some(endpoint),
        }
    }
}

impl Table {
    /// For at most `max` entries; at least one. The bound may change later, the number of shards does not.
    /// `agreed`: instances replicate it.
    pub(super) fn new(max: u32, agreed: Option<Agreed>) -> Self {
        let shards = if max < SPLIT_MIN { 1 } else { SHARDS };
        let shard = || Mutex::new(Shard { told: agreed.map(|_| Box::default()), ..Shard::default() });
        Self {
            begun: OnceLock::new(),
            shards: (0..shards).map(|_| Padded(shard())).collect(),
            entries: Padded::default(),
            evictions: AtomicU64::new(0),
            max: AtomicU32::new(max.max(1)),
            agreed,
        }
    }

    /// From now on at most `max` entries: if there are more, those used least lately go, of all shards by turns.
    pub(super) fn resize(&self, max: u32) {
        let max = max.max(1);
        self.max.store(max, Ordering::Relaxed);
        let mut turn = 0;
        while self.len() > max && self.evict_from(turn) {
            turn += 1;
        }
    }

    /// The bound on its entries.
    pub(super) fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// Its beginning, which is now if nobody has used it.
    pub(super) fn begun(&self, at: Moment, chance: &mut Chance<'_>) -> Begun {
        *self.begun.get_or_init(|| match self.agreed {
            Some(agreed) => agreed.begin(at),
            None => Begun { at: at.now, seed: [chance(), chance()], stamp: 0 },
        })
    }

    /// The endpoint that is remembered for a key, which thereby counts as used now.
    pub(super) fn find(&self, key: u64, now: Tick, idle: Tick) -> Option<u64> {
        let mut shard = lock(self.shard(key));
        let place = *shard.places.get(&key)?;
        let entry = shard.entries[place as usize];
        if is_expired(entry.seen, now, idle) {
            shard.remove(place);
            self.entries.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        shard.touch(place, now, idle);
        Some(entry.endpoint)
    }

    /// The same without counting as use: nothing in the table changes.
    pub(super) fn peek(&self, key: u64, now: Tick, idle: Tick) -> Option<u64> {
        let shard = lock(self.shard(key));
        let entry = shard.entries[*shard.places.get(&key)? as usize];
        (!is_expired(entry.seen, now, idle)).then_some(entry.endpoint)
    }

    /// Remembers an endpoint for a key, whatever is remembered for it now.
    pub(super) fn put(&self, key: u64, endpoint: u64, now: Tick, idle: Tick) {
        self.put_over(Over::Any, (key, endpoint), now, idle);
    }

    /// Remembers an endpoint for a key for which `seen` was found. If it is another one by now, that one stays: whoever
    /// answers later than others does not take the session from where it went meanwhile.
    pub(super) fn replace(&self, seen: Option<u64>, entry: (u64, u64), now: Tick, idle: Tick) {
        self.put_over(Over::Seen(seen), entry, now, idle);
    }

    fn put_over(&self, over: Over, (key, endpoint): (u64, u64), now: Tick, idle: Tick) {
        if !self.put_here(over, (key, endpoint), now, idle) {
            self.evict_from(self.place(key));
            // Should another take the room meanwhile, the session is not remembered this time.
            self.put_here(over, (key, endpoint), now, idle);
        }
    }

    /// `false`: the table is full, and the shard of the key has nothing that could go.
    fn put_here(&self, over: Over, (key, endpoint): (u64, u64), now: Tick, idle: Tick) -> bool {
        let mut shard = lock(self.shard(key));
        let expired = shard.expire(now, idle, EXPIRED_PER_TURN);
        self.entries.fetch_sub(expired, Ordering::Relaxed);
        if let Some(&place) = shard.places.get(&key) {
            let known = shard.entries[place as usize];
            if over.allows(known.endpoint) || is_expired(known.seen, now, idle) {
                shard.entries[place as usize].endpoint = endpoint;
                shard.touch(place, now, idle);
                if known.endpoint != endpoint {
                    shard.note_change(place, self.stamp(now));
                }
            }
            return true;
        }
        if !self.make_room(&mut shard) {
            return false;
        }
        let place = shard.insert(key, endpoint, now);
        shard.note_change(place, self.stamp(now));
        true
    }

    /// Counts one more entry, in place of the oldest of the shard if the table is full. `false`: it is, and the shard has nothing that could go.
    fn make_room(&self, shard: &mut Shard) -> bool {
        let has_room = |count: u32| (count < self.max()).then_some(count + 1);
        let counted = self.entries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).is_ok();
        if !counted {
            // The new one is counted in place of the one that goes.
            if shard.oldest.0 == NONE {
                return false;
            }
            let oldest = shard.oldest.0;
            shard.remove(oldest);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Takes the oldest out of the next shard that has any, around the circle from some place on. `false`: none has.
    fn evict_from(&self, place: usize) -> bool {
        let (before, after) = self.shards.split_at(place % self.shards.len());
        for shard in after.iter().chain(before) {
            let mut shard = lock(shard);
            if shard.oldest.0 != NONE {
                let oldest = shard.oldest.0;
                shard.remove(oldest);
                self.entries.fetch_sub(1, Ordering::Relaxed);
                self.evictions.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Entries, those beyond their time among them until they are met.
    pub(super) fn len(&self) -> u32 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns all that is remembered, for the successor: what was used longest ago comes first.
    pub(super) fn hand_over(&self, now: Instant, idle: Tick) -> Option<TableHandover> {
        let begun = *self.begun.get()?;
        self.sweep(now, idle);
        let now = begun.tick(now);
        let mut entries: Vec<(u64, u64, u32)> = Vec::with_capacity(self.len() as usize);
        for shard in &self.shards {
            let shard = lock(shard);
            entries.extend(shard.entries.iter().map(|one| (one.key, one.endpoint, now.saturating_sub(one.seen))));
        }
        entries.sort_by_key(|(_, _, age)| std::cmp::Reverse(*age));
        Some(TableHandover { seed: begun.seed, evictions: self.evictions(), entries })
    }

    /// Remembers what the predecessor did, as long as this table is unused; as much of it as there is room for. What comes in
    /// several parts is all remembered.
    pub(super) fn inherit(&self, handed: &TableHandover, at: Moment, idle: Tick) {
        // What is older is forgotten in any case.
        let oldest = handed.entries.first().map_or(0, |(_, _, age)| (*age).min(idle));
        let begun = *self.begun.get_or_init(|| match self.agreed {
            Some(agreed) => agreed.begin(at),
            None => {
                let age = Duration::from_millis(u64::from(oldest) * 100);
                Begun { at: at.now.checked_sub(age).unwrap_or(at.now), seed: handed.seed, stamp: 0 }
            }
        });
        if begun.seed != handed.seed {
            return;
        }
        let now = begun.tick(at.now);
        // The oldest comes first, and none is older than the one before it: who told otherwise would have entries kept beyond their time.
        let mut oldest = oldest;
        for (key, endpoint, age) in &handed.entries {
            oldest = oldest.min(*age);
            self.put(*key, *endpoint, now.saturating_sub(oldest), idle);
        }
        self.evictions.fetch_add(handed.evictions, Ordering::Relaxed);
    }

    /// Entries that had to go before their time, for others.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Removes all that is beyond its time. Looks at these only.
    pub(super) fn sweep(&self, now: Instant, idle: Tick) {
        let Some(begun) = self.begun.get() else { return };
        for shard in &self.shards {
            loop {
                let expired = lock(shard).expire(begun.tick(now), idle, EXPIRED_PER_HOLD);
                self.entries.fetch_sub(expired, Ordering::Relaxed);
                if (expired as usize) < EXPIRED_PER_HOLD {
                    break;
                }
            }
        }
    }

    /// Bits that neither the map of a shard nor its tags look at first.
    fn place(&self, key: u64) -> usize {
        (key >> 40) as usize & (self.shards.len() - 1)
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[self.place(key)]
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Clocks of workers are looked at at different moments: one may be behind what another has written.
fn is_expired(seen: Tick, now: Tick, idle: Tick) -> bool {
    now.saturating_sub(seen) >= idle
}

impl Shard {
    fn insert(&mut self, key: u64, endpoint: u64, seen: Tick) -> u32 {
        let place = self.entries.len() as u32;
        self.entries.push(Entry { key, endpoint, seen, newer: Link(NONE), older: Link(NONE) });
        self.places.insert(key, place);
        self.link_newest(place);
        if let Some(told) = &mut self.told {
            told.insert(seen);
        }
        place
    }

    /// Makes an entry the newest.
    fn touch(&mut self, place: u32, now: Tick, idle: Tick) {
        let seen = self.entries[place as usize].seen.max(now);
        self.entries[place as usize].seen = seen;
        if self.newest.0 != place {
            self.unlink(place);
            self.link_newest(place);
        }
        if let Some(told) = &mut self.told {
            told.note_use((place, self.entries[place as usize].key), seen, idle);
        }
    }

    /// The session of an entry has begun or moved here.
    fn note_change(&mut self, place: u32, stamp: u32) {
        if let Some(told) = &mut self.told {
            told.note_change((place, self.entries[place as usize].key), stamp);
        }
    }

    /// Removes entries beyond their time, the oldest first, and counts them.
    fn expire(&mut self, now: Tick, idle: Tick, most: usize) -> u32 {
        let mut count = 0;
        while (count as usize) < most
            && let Some(oldest) = self.entries.get(self.oldest.0 as usize)
            && is_expired(oldest.seen, now, idle)
        {
            self.remove(self.oldest.0);
            count += 1;
        }
        count
    }

    /// The last entry comes to the place that is free then.
    fn remove(&mut self, place: u32) {
        self.unlink(place);
        let removed = self.entries.swap_remove(place as usize);
        if let Some(told) = &mut self.told {
            told.remove(place);
        }
        self.places.remove(&removed.key);
        let Some(moved) = self.entries.get(place as usize).copied() else { return };
        self.places.insert(moved.key, place);
        self.set_older_of(moved.newer, Link(place));
        self.set_newer_of(moved.older, Link(place));
    }

    fn unlink(&mut self, place: u32) {
        let Entry { newer, older, .. } = self.entries[place as usize];
        self.set_older_of(newer, older);
        self.set_newer_of(older, newer);
    }

    fn link_newest(&mut self, place: u32) {
        self.link_after(place, Link(NONE));
    }

    /// Makes an entry the next older than another, or the newest.
    fn link_after(&mut self, place: u32, newer: Link) {
        let older = self.entries.get(newer.0 as usize).map_or(self.newest, |entry| entry.older);
        self.entries[place as usize].newer = newer;
        self.entries[place as usize].older = older;
        self.set_newer_of(older, Link(place));
        self.set_older_of(newer, Link(place));
    }

    /// Without an entry it is the newest of all that is meant.
    fn set_older_of(&mut self, link: Link, older: Link) {
        match self.entries.get_mut(link.0 as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }

    /// Without an entry it is the oldest of all that is meant.
    fn set_newer_of(&mut self, link: Link, newer: Link) {
        match self.entries.get_mut(link.0 as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests;
