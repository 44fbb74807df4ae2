//! Requests in flight by key.
//!
//! A key has an entry as long as it holds a place, so there are never more entries than places held, which the limits on connections
//! and streams bound. Entries are in shards with a lock each, which is held for one look. Counting is exact: two workers that want the
//! last place of a key ask one after the other.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::handed::Handed;
use crate::keyed;
use crate::padded::Padded;

const SHARDS: u64 = 64;
/// Keys that another process may hold places of.
const INHERITED_MAX: usize = 100_000;
/// Places of a key that another process may hold: sums stay far below the range of 32 bits.
const INHERITED_PLACES_MAX: u64 = 1 << 24;
/// A shard with room for more entries gives memory back when it is a quarter full.
const IDLE_ENTRIES_MAX: usize = 1024;

type Counts = HashMap<u64, u32, BuildHasherDefault<Same>>;

/// See the module. It holds no memory until the first place is taken.
#[derive(Default)]
pub struct InFlight {
    live: OnceLock<Live>,
}

struct Live {
    key: [u64; 2],
    shards: Box<[Padded<Mutex<Counts>>]>,
    /// Places that the process before still holds, by key; they are counted in the shards as well.
    inherited: Mutex<Counts>,
}

impl InFlight {
    /// Takes a place of this key if fewer than `max` are taken. `None`: none is left. Each place is given back once, by
    /// [`Self::leave`] with the number that this returns. `chance` gives the key of the hash, once.
    pub fn enter(&self, key: &[u8], max: u32, chance: &mut dyn FnMut() -> u64) -> Option<u64> {
        let live = self.live(chance);
        let hash = keyed::hash(live.key, key);
        let mut counts = live.shard(hash);
        match counts.get_mut(&hash) {
            Some(count) if *count >= max => return None,
            Some(count) => *count += 1,
            None if max == 0 => return None,
            None => {
                counts.insert(hash, 1);
            }
        }
        Some(hash)
    }

    /// Gives a place back.
    pub fn leave(&self, place: u64) {
        if let Some(live) = self.live.get() {
            live.leave(place, 1);
        }
    }

    /// Returns how many places of this key are taken.
    pub fn count(&self, key: &[u8]) -> u32 {
        let Some(live) = self.live.get() else { return 0 };
        let hash = keyed::hash(live.key, key);
        live.shard(hash).get(&hash).copied().unwrap_or(0)
    }

    /// Returns how many keys hold a place.
    pub fn keys(&self) -> usize {
        let Some(live) = self.live.get() else { return 0 };
        live.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Returns how many places keys hold, those included that the process before holds; at most `max` keys. `None` before the first.
    pub fn hand_over(&self, max: usize) -> Option<Handed> {
        let live = self.live.get()?;
        let mut entries = Vec::new();
        for shard in &live.shards {
            let counts = lock(shard);
            let room = max - entries.len();
            entries.extend(counts.iter().take(room).map(|(hash, count)| [*hash, u64::from(*count)]));
        }
        Some(Handed { hash_key: live.key, entries })
    }

    /// Counts the places that the process before holds now, in place of those that it held when this was called last. Nothing is counted
    /// if keys were counted here under another key of the hash.
    pub fn inherit(&self, handed: &Handed) {
        let live = self.live.get_or_init(|| Live::new(handed.hash_key));
        if live.key != handed.hash_key {
            return;
        }
        let mut inherited = lock(&live.inherited);
        let mut before = std::mem::take(&mut *inherited);
        let mut held = Counts::default();
        for [hash, count] in handed.entries.iter().filter(|[_, count]| *count > 0).take(INHERITED_MAX) {
            held.insert(*hash, (*count).min(INHERITED_PLACES_MAX) as u32);
        }
        for (hash, now) in &held {
            // In one look, so that no place ever counts twice.
            let mut counts = live.shard(*hash);
            let count = counts.entry(*hash).or_default();
            *count = (*count + now).saturating_sub(before.remove(hash).unwrap_or(0));
        }
        for (hash, count) in before {
            live.leave(hash, count);
        }
        *inherited = held;
    }

    /// Gives back the places that the process before held, which has ended.
    pub fn disinherit(&self) {
        if let Some(live) = self.live.get() {
            self.inherit(&Handed { hash_key: live.key, entries: Vec::new() });
        }
    }

    fn live(&self, chance: &mut dyn FnMut() -> u64) -> &Live {
        self.live.get_or_init(|| Live::new([chance(), chance()]))
    }
}

impl Live {
    fn new(key: [u64; 2]) -> Self {
        let shards = (0..SHARDS).map(|_| Padded::default()).collect();
        Self { key, shards, inherited: Mutex::default() }
    }

    /// Gives places of a key back.
    fn leave(&self, place: u64, places: u32) {
        let mut counts = self.shard(place);
        let Some(count) = counts.get_mut(&place) else {
            debug_assert!(false, "given back more often than taken");
            return;
        };
        *count -= places;
        if *count == 0 {
            counts.remove(&place);
            // Half of it stays, so that keys that come and go do not move the entries each time.
            if counts.capacity() > IDLE_ENTRIES_MAX && counts.len() <= counts.capacity() / 4 {
                let half = counts.capacity() / 2;
                counts.shrink_to(half);
            }
        }
    }

    /// The bits in the middle of a hash: maps go by those at both ends.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Counts> {
        lock(&self.shards[((hash >> 32) % SHARDS) as usize])
    }
}

/// What a thread that panicked has left is a count like any other.
fn lock(shard: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hash of a number that is one.
#[derive(Clone, Copy, Default)]
struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {
        debug_assert!(false, "keys are numbers of 64 bits");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_has_so_many_places_and_gets_each_back() {
        let (table, mut chance) = (InFlight::default(), || 7);
        assert_eq!((table.count(b"a"), table.keys()), (0, 0));
        let places: Vec<u64> = (0..3).map(|_| table.enter(b"a", 3, &mut chance).unwrap()).collect();
        assert_eq!((table.enter(b"a", 3, &mut chance), table.enter(b"b", 0, &mut chance)), (None, None));
        assert!(table.enter(b"b", 1, &mut chance).is_some());
        assert_eq!((table.count(b"a"), table.count(b"b"), table.keys()), (3, 1, 2));
        table.leave(places[0]);
        assert!(table.enter(b"a", 3, &mut chance).is_some() && table.enter(b"a", 3, &mut chance).is_none());
        // A limit that falls refuses until enough have left.
        assert!(table.enter(b"a", 1, &mut chance).is_none());
    }

    #[test]
    fn places_of_the_process_before_never_count_twice_while_they_are_reported_again() {
        let (old, new) = (InFlight::default(), InFlight::default());
        for key in 0..100_u32 {
            old.enter(&key.to_le_bytes(), 10, &mut || 7).unwrap();
        }
        let report = old.hand_over(usize::MAX).unwrap();
        new.inherit(&report);
        let is_over = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    new.inherit(&report);
                }
                is_over.store(1, Ordering::Release);
            });
            while is_over.load(Ordering::Acquire) == 0 {
                assert!((0..100_u32).all(|key| new.count(&key.to_le_bytes()) == 1));
            }
        });
        new.disinherit();
        assert_eq!(new.keys(), 0);
    }

    #[test]
    fn a_flood_of_keys_leaves_nothing_behind() {
        let (table, mut chance) = (InFlight::default(), || 7);
        let places: Vec<u64> =
            (0..200_000_u32).map(|key| table.enter(&key.to_le_bytes(), 1, &mut chance).unwrap()).collect();
        assert_eq!(table.keys(), 200_000);
        places.into_iter().for_each(|place| table.leave(place));
        let room: usize = table.live.get().unwrap().shards.iter().map(|shard| lock(shard).capacity()).sum();
        assert_eq!(table.keys(), 0);
        assert!(room <= SHARDS as usize * IDLE_ENTRIES_MAX, "{room}");
        // One that stays in each shard holds no memory of those that have left.
        let places: Vec<u64> =
            (0..200_000_u32).map(|key| table.enter(&key.to_le_bytes(), 1, &mut chance).unwrap()).collect();
        places.into_iter().skip(1_000).for_each(|place| table.leave(place));
        let room: usize = table.live.get().unwrap().shards.iter().map(|shard| lock(shard).capacity()).sum();
        assert!(table.keys() == 1_000 && room <= SHARDS as usize * IDLE_ENTRIES_MAX, "{room}");
    }

    #[test]
    fn workers_that_enter_and_leave_at_once_never_exceed_the_limit() {
        const THREADS: u32 = 8;
        let (table, inside, most) = (InFlight::default(), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(place) = table.enter(b"a", 3, &mut || 7) else { continue };
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        table.leave(place);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        assert_eq!(table.keys(), 0);
    }

    #[test]
    fn places_of_the_process_before_count_until_it_gives_them_back() {
        let (before, after) = (InFlight::default(), InFlight::default());
        let places: Vec<u64> = (0..3).map(|_| before.enter(b"a", 3, &mut || 7).unwrap()).collect();
        before.enter(b"b", 3, &mut || 7).unwrap();
        after.inherit(&before.hand_over(10).unwrap());
        assert_eq!((after.count(b"a"), after.count(b"b"), after.enter(b"a", 3, &mut || 9)), (3, 1, None));
        before.leave(places[0]);
        after.inherit(&before.hand_over(10).unwrap());
        let own = after.enter(b"a", 3, &mut || 9).unwrap();
        assert_eq!((after.count(b"a"), after.enter(b"a", 3, &mut || 9)), (3, None));
        // A third process gets what both hold.
        let third = InFlight::default();
        third.inherit(&after.hand_over(10).unwrap());
        assert_eq!((third.count(b"a"), third.count(b"b")), (3, 1));
        after.disinherit();
        assert_eq!((after.count(b"a"), after.count(b"b"), after.keys()), (1, 0, 1));
        after.leave(own);
        third.inherit(&after.hand_over(10).unwrap());
        assert_eq!((after.keys(), third.keys()), (0, 0));
        assert!(InFlight::default().hand_over(10).is_none());
        assert_eq!(before.hand_over(1).unwrap().entries.len(), 1);
    }

    #[test]
    fn hostile_counts_of_another_process_neither_overflow_nor_stay() {
        let table = InFlight::default();
        table.enter(b"a", 1, &mut || 7).unwrap();
        let key = table.hand_over(1).unwrap().hash_key;
        let hostile = (0..300_000_u64).map(|hash| [hash % 200_000, u64::MAX - hash % 3]);
        for _ in 0..3 {
            table.inherit(&Handed { hash_key: key, entries: hostile.clone().collect() });
            assert!(table.keys() <= INHERITED_MAX + 1, "{}", table.keys());
        }
        table.inherit(&Handed { hash_key: [0, 1], entries: vec![[1, 1]] });
        table.disinherit();
        assert_eq!((table.keys(), table.count(b"a")), (1, 1));
    }

    proptest! {
        /// Against a plain count.
        #[test]
        fn counts_are_those_of_a_plain_table(steps in prop::collection::vec((0_u8..6, any::<bool>()), 0..200)) {
            let (table, mut held) = (InFlight::default(), vec![Vec::new(); 6]);
            for (key, is_in) in steps {
                let held = &mut held[usize::from(key)];
                if is_in {
                    let place = table.enter(&[key], 4, &mut || 3);
                    prop_assert_eq!(place.is_some(), held.len() < 4);
                    held.extend(place);
                } else if let Some(place) = held.pop() {
                    table.leave(place);
                }
                prop_assert_eq!(table.count(&[key]) as usize, held.len());
            }
            prop_assert_eq!(table.keys(), held.iter().filter(|held| !held.is_empty()).count());
        }
    }
}
