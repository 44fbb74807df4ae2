//! What is known of each key, shared by all workers.
//!
//! A table of fixed size, in shards with a lock each, so that workers seldom meet. A lock is held for one look at a bucket of eight
//! entries, some tens of nanoseconds, and never while anything waits. Counting is exact: what two workers spend of one key at once,
//! they spend one after the other.
//!
//! An entry is 16 bytes: a hash of the key under a key of our own, and its theoretical arrival time. A client cannot choose its bucket,
//! because it does not know our key. Two keys share an entry if all 64 bits of their hashes are equal, which does not happen in
//! practice.
//!
//! When a bucket is full, the entry with the earliest moment is replaced: one that has its whole allowance again if there is one, and
//! else the one that is nearest to it, whose loss gives the least away. A flood of new keys therefore replaces its own entries, and a
//! key that has used up its allowance stays limited.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::handed::Handed;
use super::rate::{Limit, Verdict};
use crate::padded::Padded;
use crate::{keyed, random, units};

const SHARDS_MAX: usize = 64;
const WAYS: usize = 8;
/// Nanoseconds that the turns of a key may lie ahead: five minutes. It bounds what a slow rate leaves to a faster one after a reload.
const AHEAD_MAX: u64 = 300_000_000_000;
/// Nanoseconds that another process may say a key is ahead: the longest time in which an allowance refills.
const INHERITED_AHEAD_MAX: u64 = units::DURATION_MAX.as_nanos() as u64;
/// Entries that one lock is held for when all are looked at.
const LOOK_ENTRIES: usize = 1024;

/// Hash and theoretical arrival time, in nanoseconds since the epoch of the table. All zero: no one's, with a whole allowance. An array
/// and no struct, because the allocator gives zeroed memory for it, which takes no page before it is written.
type Entry = [u64; 2];

/// Some of the buckets, one behind the other. Empty before the first request that falls here.
type Shard = Padded<Mutex<Box<[Entry]>>>;

/// See the module. It holds no memory until the first request is counted.
pub struct Rates {
    keys_max: usize,
    live: OnceLock<Live>,
}

struct Live {
    epoch: Instant,
    key: [u64; 2],
    ways: usize,
    buckets_per_shard: usize,
    shards: Box<[Shard]>,
}

impl Rates {
    /// Returns a table for so many keys at most, at least 1.
    pub fn new(keys_max: usize) -> Self {
        Self { keys_max: keys_max.max(1), live: OnceLock::new() }
    }

    /// Counts a request of this key if the limit lets it through. `chance` gives the key of the hash, once.
    pub fn spend(&self, key: &[u8], limit: &Limit, now: Instant, chance: &mut dyn FnMut() -> u64) -> Verdict {
        self.live_with(now, chance).spend(key, limit, now)
    }

    /// Counts a request of a key, by its number, that costs this much, if the limit lets it through; see [`Limit::judge_cost`].
    pub fn spend_cost(&self, number: u64, (limit, cost): (&Limit, u64), now: Instant) -> Verdict {
        self.change(number, now, |tat, now| limit.judge_cost(tat, now, cost))
    }

    /// Takes a cost of a key, by its number, whatever is left, and returns what a request would find then; see [`Limit::charge`].
    pub fn charge(&self, number: u64, (limit, cost): (&Limit, u64), now: Instant) -> Verdict {
        self.change(number, now, |tat, now| {
            let tat = limit.charge(tat, now, cost);
            (tat, limit.judge_cost(tat, now, 0).1)
        })
    }

    /// Changes the theoretical arrival time of a key, by its number.
    fn change(&self, number: u64, now: Instant, change: impl FnOnce(u64, u64) -> (u64, Verdict)) -> Verdict {
        let Some(live) = self.live.get() else { return change(0, 0).1 };
        live.with_bucket_of(number, now, |bucket, now| {
            let place = place_of(bucket, number);
            let (tat, verdict) = change(known(bucket[place], number), now);
            bucket[place] = [number, tat];
            verdict
        })
    }

    /// Returns what would become of a request of this key that costs this much, and counts nothing.
    pub fn look_cost(&self, key: &[u8], (limit, cost): (&Limit, u64), now: Instant) -> Verdict {
        match self.live.get() {
            Some(live) => live.look_with(key, now, |tat, now| limit.judge_cost(tat, now, cost).1),
            None => limit.judge_cost(0, 0, cost).1,
        }
    }

    /// Returns what would become of a request of this key, and counts nothing.
    pub fn look(&self, key: &[u8], limit: &Limit, now: Instant) -> Verdict {
        match self.live.get() {
            Some(live) => live.look(key, limit, now),
            None => limit.judge(0, 0).1,
        }
    }

    /// Returns the number by which [`Self::reserve`] finds a key. `chance` gives the key of the hash, once.
    pub fn number_of(&self, key: &[u8], now: Instant, chance: &mut dyn FnMut() -> u64) -> u64 {
        keyed::hash(self.live_with(now, chance).key, key)
    }

    /// Reserves the next `cost` nanoseconds of a key whose time may run behind by `burst`. Returns how many nanoseconds are left until
    /// what was reserved may begin.
    pub fn reserve(&self, number: u64, (cost, burst): (u64, u64), now: Instant) -> u64 {
        let Some(live) = self.live.get() else { return 0 };
        live.with_bucket_of(number, now, |bucket, now| {
            let place = place_of(bucket, number);
            let begins = known(bucket[place], number).clamp(now.saturating_sub(burst), now + AHEAD_MAX);
            bucket[place] = [number, begins.saturating_add(cost)];
            begins.saturating_sub(now)
        })
    }

    /// Gives back `cost` nanoseconds that [`Self::reserve`] gave and that were not used.
    pub fn give_back(&self, number: u64, cost: u64, now: Instant) {
        let Some(live) = self.live.get() else { return };
        live.with_bucket_of(number, now, |bucket, _| {
            if let Some(entry) = bucket.iter_mut().find(|entry| entry[0] == number) {
                entry[1] = entry[1].saturating_sub(cost);
            }
        });
    }

    /// Returns how many keys have less than their whole allowance. It looks at all entries.
    pub fn spent(&self, now: Instant) -> usize {
        let mut count = 0;
        self.each_ahead(now, |_, _| count += 1);
        count
    }

    /// Returns how many nanoseconds keys are ahead, at most `max` keys: those that are furthest ahead. `None` before the first request.
    pub fn hand_over(&self, max: usize, now: Instant) -> Option<Handed> {
        let hash_key = self.live.get()?.key;
        let mut entries = Vec::new();
        self.each_ahead(now, |hash, ahead| {
            entries.push([hash, ahead]);
            // No more than twice as many as are wanted are held.
            if entries.len() >= 2 * max.max(1) {
                keep_largest(&mut entries, max);
            }
        });
        keep_largest(&mut entries, max);
        Some(Handed { hash_key, entries })
    }

    /// Takes over what [`Self::hand_over`] returned, in place of what is known of these keys. Nothing is taken over if keys were counted
    /// here under another key of the hash. No key replaces one that is further ahead.
    pub fn inherit(&self, handed: &Handed, now: Instant) {
        let live = self.live.get_or_init(|| Live::new(self.keys_max, now, handed.hash_key));
        if live.key != handed.hash_key {
            return;
        }
        for [hash, ahead] in &handed.entries {
            live.with_bucket_of(*hash, now, |bucket, now| {
                let (place, tat) = (place_of(bucket, *hash), now + (*ahead).min(INHERITED_AHEAD_MAX));
                if bucket[place][0] == *hash || bucket[place][1] < tat {
                    bucket[place] = [*hash, tat];
                }
            });
        }
    }

    /// Calls with each key that is ahead, and by how many nanoseconds. Locks are held for [`LOOK_ENTRIES`] at a time.
    fn each_ahead(&self, now: Instant, mut look: impl FnMut(u64, u64)) {
        let Some(live) = self.live.get() else { return };
        let now = live.since_epoch(now);
        for shard in &live.shards {
            let mut from = 0;
            loop {
                let entries = lock(shard);
                let some = &entries[from..entries.len().min(from + LOOK_ENTRIES)];
                if some.is_empty() {
                    break;
                }
                from += some.len();
                some.iter().filter(|[_, tat]| *tat > now).for_each(|[hash, tat]| look(*hash, tat - now));
            }
        }
    }

    fn live_with(&self, now: Instant, chance: &mut dyn FnMut() -> u64) -> &Live {
        self.live.get_or_init(|| Live::new(self.keys_max, now, [chance(), chance()]))
    }

    /// Returns the bytes that the entries take.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let of_shard = |shard: &Shard| size_of_val(&**shard.lock().unwrap());
        self.live.get().map_or(0, |live| live.shards.iter().map(of_shard).sum())
    }

    /// Damages the locks as a thread does that panics while it holds them.
    #[cfg(test)]
    pub fn poison(&self) {
        for shard in &self.live.get().unwrap().shards {
            let hold = || {
                let _held = shard.lock();
                std::panic::resume_unwind(Box::new(()));
            };
            assert!(std::thread::scope(|scope| scope.spawn(hold).join()).is_err() && shard.is_poisoned());
        }
    }
}

impl Live {
    fn new(keys_max: usize, now: Instant, key: [u64; 2]) -> Self {
        let ways = WAYS.min(keys_max);
        let buckets = keys_max / ways;
        let shards = SHARDS_MAX.min(buckets);
        Self {
            epoch: now,
            key,
            ways,
            buckets_per_shard: buckets / shards,
            shards: (0..shards).map(|_| Padded::default()).collect(),
        }
    }

    fn spend(&self, key: &[u8], limit: &Limit, now: Instant) -> Verdict {
        self.with_bucket(key, now, |bucket, hash, now| {
            let place = place_of(bucket, hash);
            let (tat, verdict) = limit.judge(known(bucket[place], hash), now);
            bucket[place] = [hash, tat];
            verdict
        })
    }

    fn look(&self, key: &[u8], limit: &Limit, now: Instant) -> Verdict {
        self.look_with(key, now, |tat, now| limit.judge(tat, now).1)
    }

    fn look_with(&self, key: &[u8], now: Instant, judge: impl FnOnce(u64, u64) -> Verdict) -> Verdict {
        self.with_bucket(key, now, |bucket, hash, now| {
            judge(bucket.iter().map(|entry| known(*entry, hash)).max().unwrap_or(0), now)
        })
    }

    /// Calls with the bucket of a key, its hash, and the time in nanoseconds since the epoch. A worker whose clock was read before the
    /// epoch is at the epoch: it lets less through, never more.
    fn with_bucket<T>(&self, key: &[u8], now: Instant, look: impl FnOnce(&mut [Entry], u64, u64) -> T) -> T {
        let hash = keyed::hash(self.key, key);
        self.with_bucket_of(hash, now, |bucket, now| look(bucket, hash, now))
    }

    fn with_bucket_of<T>(&self, hash: u64, now: Instant, look: impl FnOnce(&mut [Entry], u64) -> T) -> T {
        let now = self.since_epoch(now);
        let all = self.shards.len() * self.buckets_per_shard;
        let place = random::scale(hash, all as u64) as usize;
        let (shard, bucket) = (place % self.shards.len(), place / self.shards.len());
        let mut entries = lock(&self.shards[shard]);
        if entries.is_empty() {
            *entries = vec![[0; 2]; self.buckets_per_shard * self.ways].into();
        }
        look(&mut entries[bucket * self.ways..][..self.ways], now)
    }

    /// Nanoseconds since the epoch; 0 before it.
    fn since_epoch(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

/// What a thread that panicked has left is an entry like any other.
fn lock(shard: &Shard) -> MutexGuard<'_, Box<[Entry]>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the entries with the largest second number, at most so many.
fn keep_largest(entries: &mut Vec<Entry>, max: usize) {
    if entries.len() > max {
        entries.select_nth_unstable_by_key(max, |entry| std::cmp::Reverse(entry[1]));
        entries.truncate(max);
    }
}

/// Returns where the entry of a hash is or is to be.
fn place_of(bucket: &[Entry], hash: u64) -> usize {
    let mut place = 0;
    for (at, entry) in bucket.iter().enumerate() {
        if entry[0] == hash {
            return at;
        }
        if entry[1] < bucket[place][1] {
            place = at;
        }
    }
    place
}

/// Returns what an entry says of a key: nothing if it is another's, which is a whole allowance.
fn known([hash, tat]: Entry, wanted: u64) -> u64 {
    if hash == wanted { tat } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn limit() -> Limit {
        Limit::compile("1/s", Some(5)).unwrap()
    }

    fn spend(rates: &Rates, key: &[u8], now: Instant) -> Verdict {
        rates.spend(key, &limit(), now, &mut || 7)
    }

    #[test]
    fn the_process_that_follows_has_the_allowances_of_the_one_before() {
        let (before, now) = (Rates::new(100), Instant::now());
        assert!(before.hand_over(10, now).is_none() && before.spent(now) == 0);
        (0..5).for_each(|_| assert!(spend(&before, b"all", now).is_allowed));
        spend(&before, b"one", now);
        let later = now + Duration::from_millis(1_500);
        // The key that has its whole allowance again is not told.
        let handed = before.hand_over(10, later).unwrap();
        assert_eq!((handed.entries.len(), before.spent(later), before.spent(now)), (1, 1, 2));
        let after = Rates::new(5_000);
        after.inherit(&handed, later);
        assert_eq!((spend(&after, b"all", later).left, spend(&after, b"one", later).left), (0, 4));
        assert!(!spend(&after, b"all", later).is_allowed);
        // What is told later counts, and keys counted under another key of the hash stay.
        after.inherit(&before.hand_over(10, later).unwrap(), later);
        assert!(spend(&after, b"all", later).is_allowed);
        let own = Rates::new(100);
        own.spend(b"all", &limit(), later, &mut || 9);
        own.inherit(&handed, later);
        assert_eq!(own.look(b"all", &limit(), later).left, 3);
    }

    #[test]
    fn what_is_told_is_bounded_and_hostile_entries_are_no_harm() {
        let (before, now) = (Rates::new(10_000), Instant::now());
        for key in 0..1_000_u32 {
            let _: Vec<_> = (0..=key % 3).map(|_| spend(&before, &key.to_le_bytes(), now)).collect();
        }
        for max in [0, 1, 100] {
            let handed = before.hand_over(max, now).unwrap();
            assert!(handed.entries.len() == max && handed.entries.iter().all(|entry| entry[1] == 3_000_000_000));
        }
        let after = Rates::new(100);
        let entries = (0..100_000).map(|hash: u64| [hash << 40, u64::MAX - hash]).chain([[0, 0]]).collect();
        after.inherit(&Handed { hash_key: [7, 7], entries }, now);
        assert!(after.spent(now) <= 100 && after.bytes() <= 1_600);
        let year = now + Duration::from_secs(366 * 24 * 3_600);
        assert_eq!((after.spent(year), spend(&after, b"a", year).left), (0, 4));
    }

    proptest! {
        /// Two processes, of which one follows the other, let through what one would.
        #[test]
        fn an_upgrade_changes_no_verdict(steps in prop::collection::vec((0_u8..4, 0_u64..900), 1..60), at in 0_usize..60) {
            let (alone, mut now) = (Rates::new(1_000), Instant::now());
            let (mut served, mut chance) = (Rates::new(1_000), || 7);
            for (place, (key, pause)) in steps.into_iter().enumerate() {
                now += Duration::from_millis(pause);
                if place == at && let Some(handed) = served.hand_over(1_000, now) {
                    served = Rates::new(1_000);
                    served.inherit(&handed, now);
                }
                let expected = alone.spend(&[key], &limit(), now, &mut chance);
                prop_assert_eq!(served.spend(&[key], &limit(), now, &mut chance), expected);
            }
        }
    }
}
