//! Tables that instances replicate: whatever comes late, twice or out of order, all are alike in the end.

use std::time::{Duration, Instant};

use super::*;
use crate::Random;

const IDLE: Tick = 600;

fn table(max: u32) -> Table {
    Table::new(max, Some(Agreed { seed: [1, 2], expires: Duration::from_secs(60) }))
}

fn begin() -> Instant {
    Instant::now() + Duration::from_secs(1_000_000)
}

/// A moment, by a clock that is off by some seconds.
fn at(now: Instant, begun: Instant, off: u64) -> Moment {
    Moment { now, unix: Duration::from_secs(1_700_000_000 + off) + (now - begun) }
}

fn all(table: &Table, at: Moment) -> Vec<(u64, u64, u32)> {
    let mut all = Vec::new();
    table.copies(at, IDLE, &mut |copy| all.push((copy.key, copy.endpoint, copy.stamp)));
    all.sort_unstable();
    all
}

fn drained(table: &Table, at: Moment) -> Vec<SessionCopy> {
    let mut all = Vec::new();
    table.drain(at, &mut |copy| all.push(copy));
    all
}

fn learn(table: &Table, (key, endpoint): (u64, u64), at: Moment) {
    let begun = table.begun(at, &mut || unreachable!("all share one seed"));
    table.put(key, endpoint, begun.tick(at.now), IDLE);
}

fn find(table: &Table, key: u64, at: Moment) -> Option<u64> {
    table.find(key, table.begun(at, &mut || 0).tick(at.now), IDLE)
}

#[test]
fn all_is_passed_on_in_the_order_of_use() {
    let (table, begun) = (table(100), begin());
    for (after, key) in [(0, 3), (1, 1), (2, 2), (3, 3), (4, 5)] {
        learn(&table, (key, 1), at(begun + Duration::from_secs(after), begun, 0));
    }
    let mut keys = Vec::new();
    table.copies(at(begun + Duration::from_secs(9), begun, 0), IDLE, &mut |copy| keys.push(copy.key));
    assert_eq!(keys, [1, 2, 3, 5]);
}

#[test]
fn instances_with_clocks_that_differ_agree_whatever_the_order_in_which_changes_come() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let begun = begin();
        let tables: Vec<(Table, u64)> = [0, 3, 500].into_iter().map(|off| (table(100), off)).collect();
        let mut now = begun;
        let mut wires: Vec<(usize, SessionCopy, Instant)> = Vec::new();
        for _ in 0..300 {
            now += Duration::from_millis(random.below(150));
            let node = random.below(3) as usize;
            let (table, off) = &tables[node];
            let moment = at(now, begun, *off);
            match random.below(4) {
                0 => learn(table, (random.below(6), random.below(4)), moment),
                1 => _ = find(table, random.below(6), moment),
                2 => {
                    let copies = drained(table, moment);
                    for other in (0..3).filter(|other| *other != node) {
                        wires.extend(copies.iter().map(|copy| (other, *copy, now)));
                    }
                }
                _ if !wires.is_empty() => {
                    let place = random.below(wires.len() as u64) as usize;
                    // Some come twice.
                    let (to, copy, sent) = if random.below(5) == 0 { wires[place] } else { wires.swap_remove(place) };
                    let copy = SessionCopy { age: copy.age + tenths(now - sent), ..copy };
                    tables[to].0.merge(&copy, at(now, begun, tables[to].1), IDLE);
                }
                _ => {}
            }
        }
        for (node, (table, off)) in tables.iter().enumerate() {
            let copies = drained(table, at(now, begun, *off));
            for other in (0..3).filter(|other| *other != node) {
                wires.extend(copies.iter().map(|copy| (other, *copy, now)));
            }
        }
        for (to, copy, sent) in wires {
            let copy = SessionCopy { age: copy.age + tenths(now - sent), ..copy };
            tables[to].0.merge(&copy, at(now, begun, tables[to].1), IDLE);
        }
        let [one, two, three] = [0, 1, 2].map(|node: usize| all(&tables[node].0, at(now, begun, tables[node].1)));
        assert!(one == two && two == three && !one.is_empty(), "seed {seed}: {one:?} {two:?} {three:?}");
        for (table, off) in &tables {
            super::super::tests::check(&lock(&table.shards[0]));
            assert!(drained(table, at(now, begun, *off)).is_empty(), "seed {seed}: what came is not told again");
        }
    }
}

#[test]
fn a_use_is_told_once_in_an_eighth_of_the_time_and_keeps_the_session_elsewhere() {
    let begun = begin();
    let (one, other) = (table(10), table(10));
    let moment = |seconds: u64| at(begun + Duration::from_secs(seconds), begun, 0);
    learn(&one, (1, 7), moment(0));
    let mut told = 0;
    for second in 0..=200 {
        assert_eq!(find(&one, 1, moment(second)), Some(7));
        for copy in drained(&one, moment(second)) {
            told += 1;
            other.merge(&copy, moment(second), IDLE);
        }
    }
    assert!((25..=30).contains(&told), "{told}");
    assert_eq!(find(&other, 1, moment(250)), Some(7), "used 50 seconds ago, or up to 8 more");
    assert_eq!(drained(&other, moment(250)).len(), 1, "peers hear of this use");
    assert_eq!(find(&other, 1, moment(311)), None);
}

#[test]
fn an_older_change_does_not_undo_a_newer_one_and_does_not_shorten_the_session() {
    let begun = begin();
    let table = table(10);
    let moment = |seconds: u64| at(begun + Duration::from_secs(seconds), begun, 0);
    let copy = |endpoint, seconds, age| SessionCopy {
        key: 1,
        endpoint,
        stamp: ((1_700_000_000_u64 + seconds) * 10) as u32,
        age,
    };
    table.merge(&copy(5, 10, 0), moment(10), IDLE);
    table.merge(&copy(6, 9, 0), moment(11), IDLE);
    assert_eq!(find(&table, 1, moment(12)), Some(5));
    // One from an instance whose clock is ahead, and a change after it.
    table.merge(&copy(6, 5_000, 100), moment(13), IDLE);
    assert_eq!(find(&table, 1, moment(13)), Some(6));
    learn(&table, (1, 4), moment(14));
    let told = drained(&table, moment(14));
    assert_eq!((told.len(), told[0].endpoint, told[0].stamp), (1, 4, copy(0, 5_000, 0).stamp + 1));
    table.merge(&SessionCopy { age: IDLE, ..copy(9, 9_000, 0) }, moment(15), IDLE);
    assert_eq!(find(&table, 1, moment(15)), Some(4), "one beyond its time is none");
}

#[test]
fn a_peer_with_more_sessions_takes_no_room_beyond_the_bound_nor_of_those_used_later() {
    for max in [50, 3_000] {
        let begun = begin();
        let table = table(max);
        let moment = at(begun, begun, 0);
        (0..u64::from(max)).for_each(|key| learn(&table, (crate::random::mix(key), 1), moment));
        for key in 0..20_000 {
            let copy = SessionCopy { key: crate::random::mix(1 << 40 | key), endpoint: 2, stamp: 5, age: 10 };
            table.merge(&copy, moment, IDLE);
        }
        assert_eq!(table.len(), max);
        assert!((0..u64::from(max)).all(|key| find(&table, crate::random::mix(key), moment) == Some(1)));
        let later = at(begun + Duration::from_secs(5), begun, 0);
        let copy = SessionCopy { key: crate::random::mix(1 << 50), endpoint: 2, stamp: 5, age: 10 };
        table.merge(&copy, later, IDLE);
        assert_eq!((table.len(), find(&table, copy.key, later)), (max, Some(2)));
    }
}

#[test]
fn a_flood_between_two_collections_is_told_as_a_whole_and_bounded() {
    let begun = begin();
    let table = table(100_000);
    let moment = at(begun, begun, 0);
    let table_small = Table::new(1_999, table.agreed);
    (0..90_000_u64).for_each(|key| learn(&table, (key & 3 | key << 8, key), moment));
    assert!(table.shards.iter().all(|shard| lock(shard).told.as_ref().unwrap().pending.len() <= PENDING_MAX));
    assert_eq!(drained(&table, moment).len(), 90_000, "all keys are of one shard");
    assert!(drained(&table, moment).is_empty());
    (0..90_000_u64).for_each(|key| learn(&table_small, (key, 1), moment));
    assert_eq!(drained(&table_small, moment).len(), 1_999);
}

#[test]
fn what_a_peer_used_before_this_table_began_expires_in_time() {
    let begun = begin();
    let table = table(10);
    let moment = |seconds: u64| at(begun + Duration::from_secs(seconds), begun, 0);
    table.merge(&SessionCopy { key: 1, endpoint: 5, stamp: 9, age: 500 }, moment(0), IDLE);
    assert_eq!(table.peek(1, table.begun(moment(9), &mut || 0).tick(moment(9).now), IDLE), Some(5));
    assert_eq!(find(&table, 1, moment(11)), None);
}
