//! What a table of sessions has if instances replicate it: which entries peers have not heard of, and how theirs are taken in.
//!
//! The last writer wins, by entry: the later stamp, and of two with the same stamp the greater endpoint. Stamps are tenths of a second of
//! Unix time, and a change of an entry always has a later one than the entry had. So all instances agree whatever the order in which changes
//! come, and clocks that differ decide only between changes that did not know of each other. The time of the last use is the later one.

use std::sync::atomic::Ordering;

use super::{Agreed, Begun, Link, NONE, Shard, Table, Tick, is_expired, lock, tenths};
use crate::sticky::Moment;

/// Keys that a shard notes until they are collected; beyond them, all its entries are looked at.
const PENDING_MAX: usize = 4096;
/// Entries that are looked at for the place of one of a peer in the order of use. Beyond them the order is not exact: the entry may be kept
/// longer than its time, but is never found then.
const ORDERED_MAX: usize = 2048;

/// What an instance sends about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCopy {
    /// The hash of its key.
    pub key: u64,
    /// The id of its endpoint, which is a hash of the name.
    pub endpoint: u64,
    /// When it began or moved, in tenths of a second since 1970, modulo 2³².
    pub stamp: u32,
    /// How long ago it was used, in tenths of a second.
    pub age: u32,
}

/// What peers have heard of the entries of a shard, by the same places.
#[derive(Default)]
pub(super) struct Told {
    notes: Vec<Note>,
    /// Keys of entries that peers have not heard of.
    pending: Vec<u64>,
    /// There are more than it has room for.
    is_full: bool,
}

#[derive(Clone, Copy)]
struct Note {
    stamp: u32,
    /// When it was last used, as peers know it.
    seen: Tick,
    is_pending: bool,
}

impl Told {
    pub(super) fn insert(&mut self, seen: Tick) {
        self.notes.push(Note { stamp: 0, seen, is_pending: false });
    }

    pub(super) fn remove(&mut self, place: u32) {
        self.notes.swap_remove(place as usize);
    }

    /// Peers hear of a use once an eighth of the time has passed after which they forget a session, not of each.
    pub(super) fn note_use(&mut self, (place, key): (u32, u64), seen: Tick, idle: Tick) {
        if seen.saturating_sub(self.notes[place as usize].seen) >= (idle / 8).max(1) {
            self.pend(place, key);
        }
    }

    pub(super) fn note_change(&mut self, (place, key): (u32, u64), stamp: u32) {
        let note = &mut self.notes[place as usize];
        let is_ahead = note.stamp != 0 && !is_later(stamp, note.stamp);
        note.stamp = if is_ahead { note.stamp.wrapping_add(1) } else { stamp };
        self.pend(place, key);
    }

    fn pend(&mut self, place: u32, key: u64) {
        let note = &mut self.notes[place as usize];
        if std::mem::replace(&mut note.is_pending, true) {
            return;
        }
        if self.pending.len() < PENDING_MAX {
            self.pending.push(key);
        } else {
            self.is_full = true;
        }
    }
}

/// Numbers go round.
fn is_later(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}

impl Agreed {
    /// Returns the beginning of a table at this moment, before which what peers know was used.
    pub(super) fn begin(&self, at: Moment) -> Begun {
        let begun = at.now.checked_sub(self.expires);
        let unix = at.unix.saturating_sub(begun.map_or_else(Default::default, |_| self.expires));
        let stamp = (unix.as_millis() / 100) as u32;
        Begun { at: begun.unwrap_or(at.now), seed: self.seed, stamp }
    }
}

impl Table {
    /// Returns whether instances replicate it.
    pub(in crate::sticky) fn is_replicated(&self) -> bool {
        self.agreed.is_some()
    }

    /// Returns the stamp of a change at this moment; it means something in a table that is replicated only.
    pub(super) fn stamp(&self, now: Tick) -> u32 {
        self.begun.get().map_or(0, |begun| begun.stamp.wrapping_add(now))
    }

    fn agreed_begun(&self, at: Moment) -> Option<Begun> {
        self.agreed.map(|agreed| *self.begun.get_or_init(|| agreed.begin(at)))
    }

    /// Passes on what peers have not heard of.
    pub(in crate::sticky) fn drain(&self, at: Moment, each: &mut dyn FnMut(SessionCopy)) {
        let Some(begun) = self.agreed_begun(at) else { return };
        for shard in &self.shards {
            // Others wait for the shard only while it is copied.
            let copies = lock(shard).take_pending(begun.tick(at.now));
            copies.into_iter().for_each(&mut *each);
        }
    }

    /// Passes on all that is remembered, of each shard what was used longest ago first: an entry then soon finds its place in the order of use.
    pub(in crate::sticky) fn copies(&self, at: Moment, idle: Tick, each: &mut dyn FnMut(SessionCopy)) {
        let Some(begun) = self.agreed_begun(at) else { return };
        let now = begun.tick(at.now);
        for shard in &self.shards {
            let mut copies: Vec<SessionCopy> = {
                let shard = lock(shard);
                (0..shard.entries.len()).filter_map(|place| shard.copy(place, now)).collect()
            };
            copies.sort_unstable_by_key(|copy| std::cmp::Reverse(copy.age));
            copies.into_iter().filter(|copy| copy.age < idle).for_each(&mut *each);
        }
    }

    /// Takes in what a peer sent about a session. A table that is full keeps those that were used later.
    pub(in crate::sticky) fn merge(&self, copy: &SessionCopy, at: Moment, idle: Tick) {
        let Some(begun) = self.agreed_begun(at) else { return };
        let now = begun.tick(at.now);
        if copy.age >= idle {
            return;
        }
        if !self.merge_here(copy, now, idle) {
            self.evict_from(self.place(copy.key));
            // Should another take the room meanwhile, the session is not remembered this time.
            self.merge_here(copy, now, idle);
        }
    }

    /// `false`: the table is full, and the shard of the key has nothing that could go.
    fn merge_here(&self, copy: &SessionCopy, now: Tick, idle: Tick) -> bool {
        let seen = now.saturating_sub(copy.age);
        let mut shard = lock(self.shard(copy.key));
        let expired = shard.expire(now, idle, super::EXPIRED_PER_TURN);
        self.entries.fetch_sub(expired, Ordering::Relaxed);
        if let Some(&place) = shard.places.get(&copy.key) {
            shard.merge(place, copy, (seen, now, idle));
            return true;
        }
        let oldest = shard.entries.get(shard.oldest.0 as usize).map(|oldest| oldest.seen);
        if self.len() >= self.max() && oldest.is_some_and(|oldest| oldest >= seen) {
            return true;
        }
        if !self.make_room(&mut shard) {
            return false;
        }
        let place = shard.insert(copy.key, copy.endpoint, seen);
        shard.put_in_order(place);
        if let Some(told) = &mut shard.told {
            told.notes[place as usize].stamp = copy.stamp;
        }
        true
    }
}

impl Shard {
    fn copy(&self, place: usize, now: Tick) -> Option<SessionCopy> {
        let (entry, note) = (self.entries.get(place)?, self.told.as_ref()?.notes.get(place)?);
        let age = now.saturating_sub(entry.seen);
        Some(SessionCopy { key: entry.key, endpoint: entry.endpoint, stamp: note.stamp, age })
    }

    fn take_pending(&mut self, now: Tick) -> Vec<SessionCopy> {
        let Some(told) = &mut self.told else { return Vec::new() };
        let keys = std::mem::take(&mut told.pending);
        let places: Vec<usize> = if std::mem::take(&mut told.is_full) {
            (0..told.notes.len()).collect()
        } else {
            keys.iter().filter_map(|key| self.places.get(key)).map(|place| *place as usize).collect()
        };
        let mut copies = Vec::with_capacity(keys.len());
        for place in places {
            let seen = self.entries[place].seen;
            let Some(note) = self.told.as_mut().map(|told| &mut told.notes[place]) else { continue };
            if std::mem::take(&mut note.is_pending) {
                note.seen = seen;
                copies.extend(self.copy(place, now));
            }
        }
        copies
    }

    fn merge(&mut self, place: u32, copy: &SessionCopy, (seen, now, idle): (Tick, Tick, Tick)) {
        let entry = &mut self.entries[place as usize];
        let Some(note) = self.told.as_mut().map(|told| &mut told.notes[place as usize]) else { return };
        let is_greater = copy.stamp == note.stamp && copy.endpoint > entry.endpoint;
        if is_later(copy.stamp, note.stamp) || is_greater || is_expired(entry.seen, now, idle) {
            (entry.endpoint, note.stamp) = (copy.endpoint, copy.stamp);
        }
        note.seen = note.seen.max(seen);
        if seen > entry.seen {
            entry.seen = seen;
            self.put_in_order(place);
        }
    }

    /// Puts an entry where it belongs by its last use.
    fn put_in_order(&mut self, place: u32) {
        self.unlink(place);
        let seen = self.entries[place as usize].seen;
        let (mut newer, mut next) = (Link(NONE), self.newest);
        for _ in 0..ORDERED_MAX {
            match self.entries.get(next.0 as usize) {
                Some(entry) if entry.seen > seen => (newer, next) = (next, entry.older),
                _ => break,
            }
        }
        self.link_after(place, newer);
    }
}

/// A table of sessions that instances replicate.
#[derive(Clone)]
pub struct SharedSessions {
    pub(in crate::sticky) name: String,
    pub(in crate::sticky) fingerprint: u64,
    pub(in crate::sticky) table: std::sync::Arc<Table>,
    pub(in crate::sticky) idle: Tick,
}

impl SharedSessions {
    /// Returns the name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a number that instances share whose sessions are known by the same.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns whether both are of one table.
    pub fn is_of_same_table(&self, other: &Self) -> bool {
        std::sync::Arc::ptr_eq(&self.table, &other.table)
    }

    /// Passes on what was learned or moved since the last call, and what peers would forget although it is used.
    pub fn drain(&self, at: Moment, each: &mut dyn FnMut(SessionCopy)) {
        self.table.drain(at, each);
    }

    /// Passes on all that is remembered.
    pub fn copies(&self, at: Moment, each: &mut dyn FnMut(SessionCopy)) {
        self.table.copies(at, self.idle, each);
    }

    /// Takes in what a peer sent about a session, `late` tenths of a second after it was written.
    pub fn merge(&self, copy: &SessionCopy, late: u32, at: Moment) {
        self.table.merge(&SessionCopy { age: copy.age.saturating_add(late), ..*copy }, at, self.idle);
    }
}

/// Returns a duration in the unit of [`SessionCopy::age`].
pub fn session_age(duration: std::time::Duration) -> u32 {
    tenths(duration)
}

#[cfg(test)]
mod tests;
