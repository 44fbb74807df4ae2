use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn frames() -> Vec<Frame<'static>> {
    let hello = Hello { version: 1, instance: u128::MAX - 7, is_settled: true, name: "edge-1".to_owned() };
    vec![
        Frame::Hello(hello),
        Frame::Follow { after: 7, known: vec![1, u128::MAX] },
        Frame::Gap(vec![3]),
        Frame::Teach,
        Frame::NotYet,
        Frame::Segment(Segment { first: 8, last: 9, age: 40, blocks: b"x" }),
        Frame::Ack(9),
        Frame::State(b"y"),
        Frame::StateEnd { head: 3, vector: vec![(4, 5), (6, u64::MAX)] },
        Frame::Ping,
        Frame::FollowSessions(7),
        Frame::Sessions(Sessions { number: 8, age: 40, blocks: b"z" }),
        Frame::AckSessions(8),
    ]
}

fn one(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(frame, &mut bytes);
    bytes
}

#[test]
fn frames_are_read_as_they_were_written_and_every_cut_is_incomplete() {
    for frame in frames() {
        let mut bytes = one(&frame);
        for cut in 0..bytes.len() {
            assert_eq!(next(&bytes[..cut]), Ok(None), "{frame:?} {cut}");
        }
        bytes.push(7);
        assert_eq!(next(&bytes), Ok(Some((frame, bytes.len() - 1))));
    }
}

#[test]
fn newer_versions_may_add_types_and_lengthen_the_greeting() {
    assert_eq!(next(&[0, 0, 0, 3, 200, 1, 2]), Ok(Some((Frame::Unknown(200), 7))));
    let mut bytes = one(&frames()[0]);
    bytes.push(9);
    bytes[3] += 1;
    assert!(matches!(next(&bytes), Ok(Some((Frame::Hello(_), _)))));
    bytes[13] = 0;
    bytes[14] = 0;
    assert!(next(&bytes).is_err(), "version 0");
}

#[test]
fn frames_that_are_broken_or_too_long_are_refused() {
    let long = ((FRAME_BYTES_MAX + 1) as u32).to_be_bytes();
    for bad in [&[0, 0, 0, 0][..], &long, &[0, 0, 0, 2, 4, 0], &[0, 0, 0, 1, 7], b"GET / HTTP/1.1\r\n\r\n"] {
        assert!(next(bad).is_err(), "{bad:?}");
    }
    let many = [&[0, 0, 0, 11, 2][..], &[0; 8], &[0xff, 0xff]].concat();
    assert!(next(&many).is_err());
    let backward = one(&Frame::Segment(Segment { first: 9, last: 8, age: 0, blocks: b"" }));
    assert!(next(&backward).is_err());
}

fn blocks(table: &str, records: &[(&[u8], &[i64])]) -> Vec<u8> {
    let (mut bytes, mut all) = (Vec::new(), Vec::new());
    for (key, values) in records {
        Record { key, values: values.to_vec(), ..Record::default() }.write(&mut bytes);
    }
    write_block(&Block { table, fingerprint: 7, records: &bytes }, &mut all);
    all
}

/// Sums by table and key of what follows a position.
fn sums(journal: &Journal, mut position: u64) -> Result<BTreeMap<Vec<u8>, i64>, Gap> {
    let mut sums = BTreeMap::new();
    while let Some((first, last, _, bytes)) = journal.after(position)? {
        assert_eq!(first, position + 1);
        position = last;
        for block in Blocks::new(bytes) {
            for record in Records::new(block.unwrap().records) {
                let record = record.unwrap();
                *sums.entry(record.key.to_vec()).or_default() += record.values[0];
            }
        }
    }
    assert_eq!(position, journal.head());
    Ok(sums)
}

#[test]
fn a_peer_that_is_away_gets_one_sum_for_each_key_however_long_it_takes() {
    let mut journal = Journal::new(10_000);
    for turn in 0..5_000_u64 {
        journal.push(turn, blocks("t", &[(&[turn as u8 % 10], &[1])]), &[3, turn]);
        assert!(journal.bytes() <= 10_000);
    }
    assert_eq!(sums(&journal, 3).unwrap().values().sum::<i64>(), 4_997);
    assert_eq!((journal.dropped(), sums(&journal, 2).is_err()), (0, true));
}

#[test]
fn a_flood_of_keys_drops_the_oldest_and_says_so() {
    let mut journal = Journal::new(10_000);
    for turn in 0..5_000_u64 {
        journal.push(turn, blocks("t", &[(&turn.to_be_bytes(), &[1])]), &[0]);
        assert!(journal.bytes() <= 10_000);
    }
    assert!(journal.dropped() > 0);
    assert_eq!((journal.after(0), journal.after(9_999), journal.after(5_000)), (Err(Gap), Err(Gap), Ok(None)));
}

#[test]
fn what_was_removed_stays_apart_from_what_was_counted_since() {
    let write = |records: &[Record<'_>]| {
        let (mut bytes, mut all) = (Vec::new(), Vec::new());
        records.iter().for_each(|record| record.write(&mut bytes));
        write_block(&Block { table: "t", fingerprint: 7, records: &bytes }, &mut all);
        all
    };
    let of = |key, value: i64| Record { key, values: vec![value], ..Record::default() };
    let removed = |key, value| Record { is_reset: true, ..of(key, value) };
    let mut journal = Journal::new(2_000);
    for records in [
        vec![of(b"x", 100)],
        vec![Record { is_all: true, ..Record::default() }, of(b"a", 7)],
        vec![removed(b"a", -9), of(b"b", 1)],
        vec![of(b"a", 3)],
        vec![of(b"a", 2), removed(b"b", -5)],
    ] {
        journal.push(0, write(&records), &[0]);
    }
    // Until it is joined.
    while journal.after(0).unwrap().is_some_and(|(_, last, ..)| last < 5) {
        journal.push(0, write(&[of(b"c", 1)]), &[0]);
    }
    let bytes = journal.after(0).unwrap().unwrap().3;
    let block = Blocks::new(bytes).next().unwrap().unwrap();
    let mut records: Vec<_> = Records::new(block.records).map(Result::unwrap).collect();
    assert!(records.remove(0).is_all);
    assert!(records[..2].iter().all(|record| record.is_reset));
    records.retain(|record| record.key != b"c");
    records.sort_by_key(|record| (record.key, record.values[0]));
    assert_eq!(records, [removed(b"a", -2), of(b"a", 5), removed(b"b", -4)]);
}

proptest! {
    /// Whatever comes is read without a panic, and what is read is within its bounds.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..15) {
        let framed = [&((bytes.len() + 1) as u32).to_be_bytes()[..], &[kind], &bytes].concat();
        for bytes in [&framed[..], &bytes[..]] {
            if let Ok(Some((frame, taken))) = next(bytes) {
                prop_assert!(taken <= bytes.len());
                if let Frame::Segment(Segment { blocks, .. }) | Frame::State(blocks) = frame {
                    for block in Blocks::new(blocks).flatten() {
                        prop_assert!(Records::new(block.records).flatten().all(|one| one.key.len() <= KEY_BYTES_MAX));
                    }
                }
            }
        }
    }

    /// Records of any values come back.
    #[test]
    fn records_come_back(
        key in prop::collection::vec(any::<u8>(), 0..KEY_BYTES_MAX),
        values in prop::collection::vec(any::<i64>(), 0..VALUES_MAX),
        (is_reset, is_all, idle) in (any::<bool>(), any::<bool>(), any::<u64>()),
    ) {
        let record = Record { key: &key, is_reset, is_all, idle, values };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        prop_assert_eq!(Records::new(&bytes).collect::<Vec<_>>(), vec![Ok(record)]);
        for cut in 1..bytes.len() {
            prop_assert!(Records::new(&bytes[..cut]).any(|read| read.is_err()));
        }
    }

    /// Whatever peers have, and however often it shrinks: what is kept after their position is all that they lack.
    #[test]
    fn no_increment_is_lost_or_doubled_by_shrinking(
        steps in prop::collection::vec((0_u8..6, -5_i64..50, prop::option::of(0_usize..3)), 1..300),
        bytes_max in 300_usize..5_000,
    ) {
        let mut journal = Journal::new(bytes_max);
        let mut positions = [0_u64; 3];
        let mut all = Vec::new();
        for (key, value, moves) in steps {
            journal.push(0, blocks("t", &[(&[key], &[value])]), &positions);
            all.push((key, value));
            if let Some(peer) = moves {
                positions[peer] = journal.head();
            }
            for position in positions {
                let mut expected = BTreeMap::<Vec<u8>, i64>::new();
                for (key, value) in &all[position as usize..] {
                    *expected.entry(vec![*key]).or_default() += value;
                }
                if let Ok(found) = sums(&journal, position) {
                    prop_assert_eq!(found, expected);
                } else {
                    prop_assert!(journal.dropped() > 0);
                }
            }
        }
    }
}

#[test]
fn sessions_come_back_and_other_records_are_none() {
    let session = SessionRecord { key: u64::MAX - 3, endpoint: 1 << 63 | 5, stamp: u32::MAX, age: 70_000 };
    let mut bytes = Vec::new();
    session.write(&mut bytes);
    SessionRecord::default().write(&mut bytes);
    let read: Vec<_> = Records::new(&bytes).flatten().map(|record| SessionRecord::of(&record)).collect();
    assert_eq!(read, [Some(session), Some(SessionRecord::default())]);
    let key = &[7; 8];
    let others = [
        Record { key: &[7; 7], values: vec![1, 2], ..Record::default() },
        Record { key, values: vec![1], ..Record::default() },
        Record { key, values: vec![1, 2, 3], ..Record::default() },
        Record { key, values: vec![1, -1], ..Record::default() },
        Record { key, values: vec![1, 1 << 32], ..Record::default() },
        Record { key, values: vec![1, 2], is_reset: true, ..Record::default() },
        Record { key, values: vec![1, 2], is_all: true, ..Record::default() },
    ];
    assert!(others.iter().all(|record| SessionRecord::of(record).is_none()));
    let ancient = Record { key, values: vec![1, 2], idle: u64::MAX, ..Record::default() };
    assert_eq!(SessionRecord::of(&ancient).map(|session| session.age), Some(u32::MAX));
}
