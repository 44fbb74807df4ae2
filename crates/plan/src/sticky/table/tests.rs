//! The table beside a naive map, from seeds, and under threads.

use std::collections::HashMap;

use super::*;
use crate::Random;

fn at(now: Instant) -> Moment {
    Moment { now, unix: Duration::from_secs(1_700_000_000) }
}

/// What the table of one shard must do, written as plainly as possible.
struct Model {
    max: usize,
    /// Key, endpoint, seen; the oldest first.
    entries: Vec<(u64, u64, Tick)>,
}

impl Model {
    fn find(&mut self, key: u64, now: Tick, idle: Tick) -> Option<u64> {
        let place = self.entries.iter().position(|(known, ..)| *known == key)?;
        let (_, endpoint, seen) = self.entries.remove(place);
        if now - seen >= idle {
            return None;
        }
        self.entries.push((key, endpoint, now));
        Some(endpoint)
    }

    fn put(&mut self, key: u64, endpoint: u64, now: Tick, idle: Tick) {
        for _ in 0..EXPIRED_PER_TURN {
            if self.entries.first().is_some_and(|(.., seen)| now - seen >= idle) {
                self.entries.remove(0);
            }
        }
        let before = self.entries.len();
        self.entries.retain(|(known, ..)| *known != key);
        if self.entries.len() == before && before == self.max {
            self.entries.remove(0);
        }
        self.entries.push((key, endpoint, now));
    }
}

/// The links of a shard, both ways, are one list of all entries.
pub(super) fn check(shard: &Shard) {
    let mut seen = Vec::new();
    let mut at = shard.oldest;
    let mut before = Link(NONE);
    while let Some(entry) = shard.entries.get(at.0 as usize) {
        assert!(entry.older == before, "the way back");
        assert_eq!(shard.places.get(&entry.key), Some(&at.0));
        seen.push(at.0);
        (before, at) = (at, entry.newer);
    }
    assert!(shard.newest == before);
    assert_eq!((seen.len(), shard.places.len()), (shard.entries.len(), shard.entries.len()));
}

#[test]
fn a_table_does_what_a_naive_map_does() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let max = 1 + random.below(12) as u32;
        let idle = 1 + random.below(30) as Tick;
        let (table, mut model) = (Table::new(max, None), Model { max: max as usize, entries: Vec::new() });
        let mut now = 0;
        for step in 0..200 {
            now += random.below(4) as Tick;
            let key = random.below(20);
            if random.below(2) == 0 {
                assert_eq!(table.find(key, now, idle), model.find(key, now, idle), "seed {seed}, step {step}");
            } else {
                let endpoint = random.next_u64();
                table.put(key, endpoint, now, idle);
                model.put(key, endpoint, now, idle);
            }
            let shard = lock(&table.shards[0]);
            check(&shard);
            assert_eq!(shard.entries.len(), model.entries.len(), "seed {seed}, step {step}");
            assert!(table.len() <= max && table.len() as usize == shard.entries.len(), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn many_shards_never_hold_more_than_the_bound_nor_give_what_has_expired() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let max = 2_000 + random.below(3_000) as u32;
        let table = Table::new(max, None);
        assert!(table.shards.len() > 1);
        let (idle, mut now) = (50, 0);
        let mut written: HashMap<u64, (u64, Tick)> = HashMap::new();
        for _ in 0..40_000 {
            now += u32::from(random.below(100) == 0);
            let key = random.below(8_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if random.below(3) == 0 {
                if let Some(endpoint) = table.find(key, now, idle) {
                    let (known, seen) = written.get_mut(&key).expect("nothing comes from nowhere");
                    assert!(*known == endpoint && now - *seen < idle, "seed {seed}");
                    *seen = now;
                }
            } else {
                let endpoint = random.next_u64();
                table.put(key, endpoint, now, idle);
                written.insert(key, (endpoint, now));
            }
            assert!(table.len() <= max, "seed {seed}");
        }
        let held: usize = table.shards.iter().map(|shard| lock(shard).entries.len()).sum();
        assert_eq!(held, table.len() as usize, "seed {seed}");
        table.shards.iter().for_each(|shard| check(&lock(shard)));
    }
}

#[test]
fn a_table_that_is_not_full_forgets_nothing_and_a_flood_only_what_is_old() {
    let table = Table::new(10_000, None);
    let key = |number: u64| crate::random::mix(number);
    (0..10_000).for_each(|number| table.put(key(number), number, 0, 1_000));
    assert!((0..10_000).all(|number| table.find(key(number), 1, 1_000) == Some(number)));
    assert_eq!((table.len(), table.evictions()), (10_000, 0));
    // Sessions in use survive as many strangers as would fill half of the table.
    assert!((0..500).all(|number| table.find(key(number), 2, 1_000).is_some()));
    for stranger in 0..5_000 {
        table.put(key(1 << 32 | stranger), 7, 2, 1_000);
        table.find(key(stranger % 500), 2, 1_000);
    }
    assert!((0..500).all(|number| table.find(key(number), 3, 1_000).is_some()));
    assert_eq!((table.len(), table.evictions()), (10_000, 5_000));
}

#[test]
fn a_full_table_has_room_for_a_key_whose_shard_is_empty() {
    let table = Table::new(SPLIT_MIN, None);
    let of_shard = |shard: u64, number: u64| shard << 40 | number;
    (0..u64::from(table.max())).for_each(|number| table.put(of_shard(0, number), number, 0, 10));
    table.put(of_shard(1, 5), 99, 1, 10);
    assert_eq!(table.find(of_shard(1, 5), 1, 10), Some(99));
    assert_eq!((table.len(), table.evictions()), (table.max(), 1));
    assert_eq!(table.find(of_shard(0, 0), 1, 10), None, "the oldest went");
}

#[test]
fn another_size_keeps_what_was_used_last() {
    let table = Table::new(100, None);
    let begun = table.begun(at(Instant::now()), &mut || 7);
    (0..100).for_each(|number| table.put(begun.key(&[number]), u64::from(number), Tick::from(number), 1_000));
    table.resize(10);
    assert_eq!((table.len(), table.max(), table.evictions()), (10, 10, 90));
    assert!((90..100).all(|number| table.find(begun.key(&[number]), 100, 1_000) == Some(u64::from(number))));
    table.resize(50_000);
    assert_eq!(table.find(begun.key(&[95]), 100, 1_000), Some(95));
    (0..20_000_u32).for_each(|number| table.put(begun.key(&number.to_le_bytes()), 1, 100, 1_000));
    assert_eq!((table.len(), table.evictions()), (20_010, 90));
    let split = Table::new(SPLIT_MIN, None);
    (0..1_000).for_each(|number| split.put(crate::random::mix(number), 1, 0, 1_000));
    split.resize(64);
    assert_eq!((split.len(), split.evictions()), (64, 936));
    split.resize(0);
    assert_eq!((split.len(), split.max()), (1, 1), "one there may always be");
}

#[test]
fn what_another_process_tells_in_parts_is_all_remembered_but_not_by_a_table_in_use() {
    let (now, idle) = (Instant::now(), 1_000);
    let later = now + Duration::from_secs(3);
    let (old, new, used) = (Table::new(100, None), Table::new(100, None), Table::new(100, None));
    let begun = old.begun(at(now), &mut || 7);
    (0..10).for_each(|number| old.put(begun.key(&[number]), 1, begun.tick(now), idle));
    let first = old.hand_over(later, idle).unwrap();
    new.inherit(&first, at(later), idle);
    (8..12).for_each(|number| old.put(begun.key(&[number]), 2, begun.tick(later), idle));
    let mut second = old.hand_over(later, idle).unwrap();
    second.entries.retain(|(_, _, age)| *age <= 2);
    assert_eq!((first.entries.len(), second.entries.len()), (10, 4));
    new.inherit(&second, at(later), idle);
    let begun = new.begun(at(later), &mut || unreachable!("it has begun"));
    let found = |number: u8| new.peek(begun.key(&[number]), begun.tick(later), idle);
    assert!((0..12).all(|number| found(number) == Some(if number < 8 { 1 } else { 2 })));
    assert_eq!(new.len(), 12);
    used.begun(at(now), &mut || 9);
    used.inherit(&first, at(later), idle);
    assert_eq!(used.len(), 0);
}

#[test]
fn what_another_process_says_is_older_than_anything_stops_no_clock() {
    let (now, idle) = (Instant::now(), 1_000);
    let table = Table::new(100, None);
    let entries = vec![(1, 1, u32::MAX), (2, 1, 5), (3, 1, 7)];
    table.inherit(&TableHandover { seed: [1, 2], evictions: u64::MAX, entries }, at(now), idle);
    let begun = table.begun(at(now), &mut || unreachable!("it has begun"));
    let found = |key: u64, later: u64| table.peek(key, begun.tick(now + Duration::from_secs(later)), idle);
    assert_eq!([1, 2, 3].map(|key| found(key, 1)), [None, Some(1), Some(1)]);
    assert_eq!([2, 3].map(|key| found(key, 200)), [None; 2], "they expire as any");
}

#[test]
fn what_another_process_says_out_of_order_is_not_kept_beyond_its_time() {
    let (now, idle) = (Instant::now(), 600);
    let table = Table::new(100, None);
    let entries = vec![(3, 4, 20), (5, 0, 600), (7, 1, 30)];
    table.inherit(&TableHandover { seed: [1, 2], evictions: 0, entries }, at(now), idle);
    let told = table.hand_over(now, idle).unwrap();
    let next = Table::new(100, None);
    next.inherit(&told, at(now), idle);
    assert_eq!(next.hand_over(now, idle).unwrap().entries, told.entries);
    assert!(table.hand_over(now + Duration::from_secs(58), idle).unwrap().entries.is_empty());
}

#[test]
fn a_sweep_removes_all_that_has_expired_and_nothing_else() {
    let table = Table::new(5_000, None);
    let start = Instant::now();
    let begun = table.begun(at(start), &mut || 1);
    for number in 0..3_000_u32 {
        table.put(begun.key(&number.to_le_bytes()), 1, if number < 2_000 { 0 } else { 50 }, 100);
    }
    table.sweep(start + Duration::from_millis(10_050), 100);
    assert_eq!(table.len(), 1_000);
    table.sweep(start + Duration::from_secs(60), 100);
    assert_eq!(table.len(), 0);
}

#[test]
fn threads_never_put_more_into_a_table_than_its_bound() {
    for max in [3, 3_000] {
        let table = Table::new(max, None);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..20_000 {
                        let key = crate::random::mix(random.below(6_000));
                        if random.below(2) == 0 {
                            table.put(key, key, 0, 10);
                        } else {
                            assert!(table.find(key, 0, 10).is_none_or(|found| found == key));
                        }
                        assert!(table.len() <= max);
                    }
                });
            }
        });
        let held: usize = table.shards.iter().map(|shard| lock(shard).entries.len()).sum();
        assert_eq!(held, table.len() as usize);
    }
}

#[test]
fn keys_of_tables_with_other_seeds_are_others() {
    let key = |seed: u64, bytes: &[u8]| Table::new(1, None).begun(at(Instant::now()), &mut || seed).key(bytes);
    assert_eq!(key(1, b"a"), key(1, b"a"));
    assert_ne!(key(1, b"a"), key(2, b"a"));
    assert_ne!(key(1, b"a"), key(1, b"a\0"));
}
