//! Entries are counted, read, aged, pushed out, shown and handed over.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings(keys_max: u32) -> model::table::Table {
    model::table::Table {
        name: "abuse".into(),
        key: model::table::TableKey::Client { ipv4_prefix: 32, ipv6_prefix: 64 },
        keys_max,
        expire: 60 * SECOND,
        counters: vec![Counter::Requests, Counter::Errors, Counter::BytesOut],
        rates: vec![(Counter::Requests, 10 * SECOND), (Counter::BytesOut, SECOND)],
        is_replicated: false,
    }
}

fn by_text(keys_max: u32) -> model::table::Table {
    model::table::Table { key: model::table::TableKey::Header("x-api-key".to_owned()), ..settings(keys_max) }
}

fn table(settings: model::table::Table) -> Table {
    Table::compile(&Arc::new(settings), None).unwrap()
}

fn reading(text: &str) -> Reading {
    text.parse().unwrap()
}

/// A table and a clock that only the test moves.
struct Bench {
    table: Table,
    now: Instant,
}

impl Bench {
    fn new(settings: model::table::Table) -> Self {
        Self { table: table(settings), now: Instant::now() }
    }

    fn count(&self, key: &str, amounts: &[(Counter, u64)]) -> u64 {
        self.table.count(key.as_bytes(), amounts, self.now, &mut || 7)
    }

    fn get(&self, key: &str, text: &str) -> u64 {
        self.table.get(key.as_bytes(), reading(text), self.now)
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }
}

#[test]
fn what_is_counted_is_read_and_what_a_table_does_not_count_is_zero() {
    let bench = Bench::new(settings(1_000));
    assert_eq!((bench.get("a", "requests"), bench.table.alive(bench.now)), (0, 0));
    let entry = bench.count("a", &[(Counter::Requests, 1), (Counter::Marks, 5)]);
    bench.table.count_more(entry, &[(Counter::Errors, 1), (Counter::BytesOut, 700)], bench.now);
    bench.count("a", &[(Counter::Requests, 1)]);
    let read = |text| bench.get("a", text);
    assert_eq!((read("requests"), read("errors"), read("bytes_out"), read("marks")), (2, 1, 700, 0));
    assert_eq!((read("requests_rate"), read("bytes_out_rate"), read("errors_rate")), (2, 700, 0));
    assert_eq!((bench.get("b", "requests"), bench.table.alive(bench.now)), (0, 1));
    assert!(bench.table.has(reading("errors")) && !bench.table.has(reading("errors_rate")));
}

#[test]
fn a_rate_forgets_as_time_passes_and_a_counter_does_not() {
    let mut bench = Bench::new(settings(1_000));
    bench.count("a", &[(Counter::Requests, 100)]);
    bench.wait(9_999);
    assert_eq!(bench.get("a", "requests_rate"), 100);
    bench.wait(1);
    assert_eq!(bench.get("a", "requests_rate"), 100, "the while before still counts whole");
    bench.wait(5_000);
    assert_eq!(bench.get("a", "requests_rate"), 50);
    bench.count("a", &[(Counter::Requests, 10)]);
    assert_eq!(bench.get("a", "requests_rate"), 60);
    bench.wait(5_000);
    assert_eq!(bench.get("a", "requests_rate"), 10);
    bench.wait(10_000);
    assert_eq!((bench.get("a", "requests_rate"), bench.get("a", "requests")), (0, 110));
}

#[test]
fn a_clock_that_is_behind_that_of_another_worker_takes_nothing_from_a_rate() {
    let mut bench = Bench::new(settings(1_000));
    bench.wait(25_000);
    bench.count("a", &[(Counter::Requests, 100)]);
    bench.wait(6_000);
    bench.count("a", &[(Counter::Requests, 7)]);
    let (late, behind) = (bench.now, bench.now - 6 * SECOND);
    let get = |at| bench.table.get(b"a", reading("requests_rate"), at);
    let now = get(late);
    assert!(get(behind) >= now, "reading with a clock that is behind");
    bench.table.count(b"a", &[(Counter::Requests, 1)], behind, &mut || 7);
    assert_eq!(get(late), now + 1);
    bench.table.set(b"a", &[(reading("requests_rate"), 50)], behind, &mut || 7);
    assert_eq!(get(late), 50);
}

#[test]
fn an_entry_is_gone_when_it_was_not_counted_for_as_long_as_it_is_kept() {
    let mut bench = Bench::new(settings(1_000));
    let entry = bench.count("a", &[(Counter::Requests, 3)]);
    bench.wait(59_999);
    assert_eq!(bench.get("a", "requests"), 3, "reading keeps nothing");
    bench.wait(1);
    assert_eq!((bench.get("a", "requests"), bench.table.alive(bench.now)), (0, 0));
    bench.table.count_more(entry, &[(Counter::Errors, 1)], bench.now);
    assert_eq!((bench.get("a", "errors"), bench.get("a", "requests")), (1, 0), "the end of a long request counts");
    assert_eq!(bench.table.row(b"a", bench.now).unwrap().key, "…", "only its hash is known");
    assert!(bench.table.hand_over(10, 60 * SECOND, bench.now).is_empty());
    bench.count("a", &[(Counter::Requests, 1)]);
    assert_eq!(bench.get("a", "requests"), 1, "it begins from zero");
    bench.table.clear(None, bench.now);
    let bench = Bench::new(by_text(1_000));
    let entry = bench.count("a", &[]);
    bench.table.clear(None, bench.now);
    bench.table.count_more(entry, &[(Counter::Errors, 2)], bench.now);
    bench.count("a", &[]);
    let row = bench.table.row(b"a", bench.now).unwrap();
    assert_eq!((row.key.as_str(), bench.get("a", "errors")), ("a", 2), "its next request tells its key");
}

#[test]
fn the_end_of_a_request_keeps_its_entry() {
    let mut bench = Bench::new(settings(1_000));
    let entry = bench.count("a", &[(Counter::Requests, 3)]);
    bench.wait(59_000);
    bench.table.count_more(entry, &[(Counter::BytesOut, 1)], bench.now);
    bench.wait(59_000);
    assert_eq!(bench.get("a", "requests"), 3);
}

#[test]
fn entries_that_are_inherited_are_as_idle_as_they_were() {
    let mut bench = Bench::new(by_text(1_000));
    bench.count("old", &[(Counter::Requests, 1)]);
    bench.wait(50_000);
    bench.count("new", &[(Counter::Requests, 2)]);
    let handed = bench.table.hand_over(10, 60 * SECOND, bench.now);
    let mut after = Bench { table: table(by_text(1_000)), now: bench.now };
    after.table.inherit((&handed, None), after.now, &mut || 9);
    let idle = |key: &[u8]| after.table.row(key, after.now).unwrap().idle;
    assert_eq!((idle(b"old"), idle(b"new")), (50 * SECOND, Duration::ZERO));
    after.wait(10_000);
    assert_eq!((after.get("old", "requests"), after.get("new", "requests")), (0, 2));
}

#[test]
fn what_is_handed_over_is_bounded_and_those_counted_last() {
    let mut bench = Bench::new(by_text(10_000));
    for key in 0..5_000 {
        bench.wait(1);
        bench.count(&key.to_string(), &[(Counter::Requests, 1)]);
    }
    for max in [0, 1, 100] {
        let handed = bench.table.hand_over(max, 60 * SECOND, bench.now);
        let expected: Vec<Vec<u8>> = (0..max).map(|back| (4_999 - back).to_string().into_bytes()).collect();
        assert_eq!(handed.iter().map(|one| one.key.clone()).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_flood_of_keys_takes_no_more_memory_and_pushes_out_those_that_are_idle() {
    let mut bench = Bench::new(settings(8_000));
    let busy = ["192.0.2.1", "192.0.2.2"];
    for key in 0..100_000_u32 {
        if key % 100 == 0 {
            bench.wait(1);
            for key in busy {
                bench.count(key, &[(Counter::Requests, 1)]);
            }
        }
        bench.table.count(&key.to_le_bytes(), &[(Counter::Requests, 1)], bench.now, &mut || 7);
    }
    let bytes = bench.table.state.store.get().unwrap().bytes();
    assert!(bytes <= 8_000 * bench.table.entry_bytes(), "{bytes}");
    assert!(bench.table.entry_bytes() <= 96, "{}", bench.table.entry_bytes());
    for key in busy {
        assert_eq!(bench.get(key, "requests"), 1_000, "one that is counted again and again stays");
    }
    assert!(bench.table.alive(bench.now) <= 8_000 && bench.table.evictions() > 90_000);
}

#[test]
fn a_table_of_one_entry_and_of_odd_sizes_works() {
    for keys_max in [1, 2, 7, 9, 513] {
        let bench = Bench::new(settings(keys_max));
        for key in 0..2_000_u32 {
            bench.table.count(&key.to_le_bytes(), &[(Counter::Requests, 1)], bench.now, &mut || 7);
        }
        assert!((1..=keys_max as usize).contains(&bench.table.alive(bench.now)));
    }
}

#[test]
fn rows_are_shown_as_people_write_keys_and_the_greatest_first() {
    let bench = Bench::new(settings(1_000));
    for (address, count) in [("192.0.2.7", 5), ("2001:db8::1", 9), ("::ffff:192.0.2.8", 7)] {
        let key = bench.table.parse_key(address).unwrap();
        bench.table.count(&key, &[(Counter::Requests, count)], bench.now, &mut || 7);
    }
    let shown = |max| {
        let rows = bench.table.top(reading("requests"), max, bench.now);
        rows.iter().map(|row| format!("{} {}", row.key, row.readings[0].1)).collect::<Vec<_>>()
    };
    assert_eq!(shown(10), ["2001:db8:: 9", "192.0.2.8 7", "192.0.2.7 5"]);
    assert_eq!(shown(2), ["2001:db8:: 9", "192.0.2.8 7"]);
    assert_eq!(shown(0), [""; 0]);
    assert!(bench.table.top(reading("marks"), 10, bench.now).is_empty());
    let row = bench.table.row(&bench.table.parse_key("2001:db8::99").unwrap(), bench.now).unwrap();
    let names: Vec<_> = row.readings.iter().map(|(reading, _)| reading.to_string()).collect();
    assert_eq!(names, ["requests", "errors", "bytes_out", "requests_rate", "bytes_out_rate"]);
    assert_eq!(bench.table.parse_key("shop"), Err("`shop` is not an address".to_owned()));
}

#[test]
fn long_and_strange_keys_are_told_apart_by_all_of_their_bytes() {
    let bench = Bench::new(by_text(1_000));
    let long = "k".repeat(100);
    bench.count(&long, &[(Counter::Requests, 1)]);
    bench.count(&format!("{long}!"), &[(Counter::Requests, 2)]);
    bench.count("", &[(Counter::Requests, 3)]);
    bench.table.count(b"\xff\n", &[(Counter::Requests, 4)], bench.now, &mut || 7);
    assert_eq!((bench.get(&long, "requests"), bench.get(&format!("{long}!"), "requests")), (1, 2));
    let keys: Vec<_> = bench.table.top(reading("requests"), 9, bench.now).into_iter().map(|row| row.key).collect();
    let begun = format!("{}…", "k".repeat(32));
    assert_eq!(keys, ["\u{fffd}\n", "", &begun, &begun]);
}

#[test]
fn an_administrator_sets_and_clears() {
    let bench = Bench::new(settings(1_000));
    let key = bench.table.parse_key("192.0.2.7").unwrap();
    let values = [(reading("errors"), 40), (reading("requests_rate"), 9), (reading("marks"), 1)];
    bench.table.set(&key, &values, bench.now, &mut || 7);
    let get = |text| bench.table.get(&key, reading(text), bench.now);
    assert_eq!((get("errors"), get("requests_rate"), get("requests"), get("marks")), (40, 9, 0, 0));
    assert_eq!(bench.table.clear(Some(b"none"), bench.now), 0);
    assert_eq!((bench.table.clear(Some(&key), bench.now), get("errors")), (1, 0));
    for key in 0..50_u32 {
        bench.table.count(&key.to_le_bytes(), &[(Counter::Requests, 1)], bench.now, &mut || 7);
    }
    assert_eq!(bench.table.entries(), 50);
    assert_eq!((bench.table.clear(None, bench.now), bench.table.clear(None, bench.now)), (50, 0));
    assert_eq!((bench.table.entries(), bench.table.alive(bench.now)), (0, 0));
}

#[test]
fn a_table_of_the_same_shape_keeps_what_it_holds() {
    let bench = Bench::new(settings(1_000));
    bench.count("a", &[(Counter::Requests, 3)]);
    let kept = |settings: model::table::Table| {
        let after = Table::compile(&Arc::new(settings), Some(&bench.table)).unwrap();
        after.get(b"a", reading("requests"), bench.now)
    };
    assert_eq!(kept(model::table::Table { expire: SECOND, ..settings(1_000) }), 3);
    assert_eq!(kept(settings(1_001)), 0);
    assert_eq!(kept(model::table::Table { counters: vec![Counter::Requests], ..settings(1_000) }), 0);
    assert_eq!(kept(model::table::Table { rates: Vec::new(), ..settings(1_000) }), 0);
    assert_eq!(kept(by_text(1_000)), 0);
}

#[test]
fn the_process_that_follows_takes_over_what_is_alive() {
    let mut bench = Bench::new(by_text(1_000));
    bench.count("old", &[(Counter::Requests, 1)]);
    bench.wait(59_000);
    bench.count("young", &[(Counter::Requests, 2), (Counter::BytesOut, 9)]);
    let handed = bench.table.hand_over(10, Duration::MAX, bench.now);
    assert_eq!(handed.iter().map(|one| one.key.as_slice()).collect::<Vec<_>>(), [&b"young"[..], b"old"]);
    assert_eq!(handed[0].values, [2, 0, 9, 2, 9]);
    assert_eq!(bench.table.hand_over(1, Duration::MAX, bench.now).len(), 1);
    assert_eq!(bench.table.hand_over(10, SECOND, bench.now), handed[..1]);
    let next = Bench::new(by_text(1_000));
    next.table.inherit((&handed, None), next.now, &mut || 9);
    assert_eq!((next.get("old", "requests"), next.get("young", "requests_rate")), (1, 2));
    let strange = [
        Handed { key: b"few".to_vec(), hash: None, idle: Duration::ZERO, values: vec![1] },
        Handed { key: b"late".to_vec(), hash: None, idle: 60 * SECOND, values: vec![1; 5] },
        Handed { key: vec![b'x'; 5_000], hash: None, idle: Duration::ZERO, values: vec![u64::MAX; 5] },
    ];
    next.table.inherit((&strange, None), next.now, &mut || 9);
    assert_eq!((next.get("few", "requests"), next.get("late", "requests")), (0, 0));
    assert_eq!(next.table.alive(next.now), 3);
}

#[test]
fn keys_of_any_length_are_handed_over_and_counted_on() {
    let bench = Bench::new(by_text(1_000));
    let (long, other) = ("k".repeat(36), format!("{}!", "k".repeat(35)));
    bench.count(&long, &[(Counter::Requests, 3)]);
    bench.count(&other, &[(Counter::Requests, 4)]);
    bench.count("short", &[(Counter::Requests, 5)]);
    let handed = bench.table.hand_over(10, Duration::MAX, bench.now);
    let key = bench.table.hash_key();
    assert_eq!((handed.len(), handed.iter().filter(|one| one.hash.is_some()).count()), (3, 2));
    let next = Bench::new(by_text(1_000));
    for _ in 0..2 {
        next.table.inherit((&handed, key), next.now, &mut || 9);
        assert_eq!(
            (next.get(&long, "requests"), next.get(&other, "requests"), next.get("short", "requests")),
            (3, 4, 5)
        );
    }
    next.count(&long, &[(Counter::Requests, 1)]);
    assert_eq!((next.get(&long, "requests"), next.table.alive(next.now)), (4, 3));
    assert_eq!(next.table.row(long.as_bytes(), next.now).unwrap().key, format!("{}…", "k".repeat(32)));
    // The process after that gets them too; one that has counted under a key of its own gets those that are whole.
    let third = Bench::new(by_text(1_000));
    let handed = next.table.hand_over(10, Duration::MAX, next.now);
    third.table.inherit((&handed, next.table.hash_key()), third.now, &mut || 9);
    assert_eq!((third.get(&long, "requests"), third.get("short", "requests")), (4, 5));
    for hash_key in [None, key] {
        let own = Bench::new(by_text(1_000));
        own.table.count(b"own", &[(Counter::Requests, 1)], own.now, &mut || 11);
        own.table.inherit((&handed, hash_key), own.now, &mut || 9);
        assert_eq!((own.get(&long, "requests"), own.get("short", "requests"), own.get("own", "requests")), (0, 5, 1));
    }
}

#[test]
fn workers_that_count_one_key_at_once_lose_nothing() {
    let bench = Bench::new(settings(1_000));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    bench.count("a", &[(Counter::Requests, 1)]);
                }
            });
        }
    });
    assert_eq!((bench.get("a", "requests"), bench.get("a", "requests_rate")), (80_000, 80_000));
}

proptest! {
    /// Against a plain table without bounds: counters agree always, and a rate lies between what was counted in the last while and in
    /// the last two.
    #[test]
    fn counts_are_those_of_a_plain_table(steps in prop::collection::vec((0_u8..5, 0_u64..4_000, 0_u64..100), 1..200)) {
        let mut bench = Bench::new(model::table::Table { expire: 3_600 * SECOND, ..settings(10_000) });
        let mut plain = HashMap::<u8, Vec<(Instant, u64)>>::new();
        bench.wait(steps[0].1);
        // Whiles are numbered from the first count.
        let begun = bench.now;
        for (place, (key, pause, amount)) in steps.into_iter().enumerate() {
            bench.wait(if place == 0 { 0 } else { pause });
            bench.table.count(&[key], &[(Counter::Requests, amount)], bench.now, &mut || 3);
            plain.entry(key).or_default().push((bench.now, amount));
            for (key, counted) in &plain {
                let all: u64 = counted.iter().map(|(_, amount)| amount).sum();
                prop_assert_eq!(bench.table.get(&[*key], reading("requests"), bench.now), all);
                let within = |whiles: u128| -> u64 {
                    let number = |at: Instant| (at - begun).as_millis() / 10_000;
                    let recent = counted.iter().filter(|(at, _)| number(*at) + whiles > number(bench.now));
                    recent.map(|(_, amount)| amount).sum()
                };
                let rate = bench.table.get(&[*key], reading("requests_rate"), bench.now);
                prop_assert!(within(1) <= rate && rate <= within(2), "{} {} {}", within(1), rate, within(2));
            }
        }
    }

    /// Amounts of any size never overflow, and rates stay rates.
    #[test]
    fn no_amount_is_too_large(amounts in prop::collection::vec(any::<u64>(), 1..20), pause in 0_u64..30_000) {
        let mut bench = Bench::new(settings(10));
        for amount in amounts {
            bench.wait(pause);
            bench.count("a", &[(Counter::BytesOut, amount), (Counter::Requests, amount)]);
            bench.get("a", "bytes_out_rate");
            bench.get("a", "requests_rate");
        }
    }
}

fn of_connections(keys_max: u32) -> model::table::Table {
    model::table::Table {
        counters: vec![Counter::OpenConnections, Counter::Requests, Counter::Connections],
        rates: vec![(Counter::Connections, 10 * SECOND)],
        is_replicated: false,
        ..settings(keys_max)
    }
}

fn connect(bench: &Bench, address: &str) -> Option<OpenPlace> {
    bench.table.connect(address.parse().unwrap(), bench.now, &mut || 7)
}

fn of_address(bench: &Bench, address: &str, text: &str) -> u64 {
    bench.table.get(&bench.table.parse_key(address).unwrap(), reading(text), bench.now)
}

#[test]
fn open_connections_outlive_their_entry_and_end_with_what_holds_them() {
    let mut bench = Bench::new(of_connections(8));
    let mut held: Vec<_> = (0..3).map(|_| connect(&bench, "192.0.2.7").unwrap()).collect();
    let other = connect(&bench, "::ffff:192.0.2.8").unwrap();
    let read = |bench: &Bench, text| of_address(bench, "192.0.2.7", text);
    assert_eq!(["open_connections", "connections", "connections_rate"].map(|text| read(&bench, text)), [3, 3, 3]);
    assert_eq!(of_address(&bench, "192.0.2.8", "open_connections"), 1);
    let row = bench.table.row(&bench.table.parse_key("192.0.2.7").unwrap(), bench.now).unwrap();
    let readings: Vec<_> = row.readings.iter().map(|(reading, value)| format!("{reading}={value}")).collect();
    assert_eq!(readings, ["open_connections=3", "requests=0", "connections=3", "connections_rate=3"]);
    held.pop();
    // Its entry expires, and then others push its place out: what is open is still known.
    bench.wait(61_000);
    assert_eq!(["open_connections", "connections"].map(|text| read(&bench, text)), [2, 0]);
    let flood: Vec<_> = (0..100).map(|last| connect(&bench, &format!("198.51.100.{last}")).unwrap()).collect();
    assert!(bench.table.evictions() > 0);
    assert_eq!(read(&bench, "open_connections"), 2);
    held.push(connect(&bench, "192.0.2.7").unwrap());
    let top = bench.table.top(reading("open_connections"), 1, bench.now);
    assert_eq!((top[0].key.as_str(), top[0].readings[0].1), ("192.0.2.7", 3));
    bench.table.clear(None, bench.now);
    assert_eq!(read(&bench, "open_connections"), 3, "to forget entries closes no connection");
    // No one sets it.
    bench.table.set(&[192, 0, 2, 7], &[(reading("open_connections"), 9)], bench.now, &mut || 7);
    assert_eq!(read(&bench, "open_connections"), 3);
    drop((held, flood, other));
    assert_eq!(read(&bench, "open_connections"), 0);
}

#[test]
fn the_table_of_the_next_plan_knows_what_is_open_unless_its_key_is_another() {
    let bench = Bench::new(of_connections(100));
    let place = connect(&bench, "192.0.2.7").unwrap();
    let next = |settings: model::table::Table| Table::compile(&Arc::new(settings), Some(&bench.table)).unwrap();
    let read = |table: &Table| table.get(&[192, 0, 2, 7], reading("open_connections"), bench.now);
    let larger = next(model::table::Table { rates: Vec::new(), ..of_connections(1_000) });
    let wider = model::table::TableKey::Client { ipv4_prefix: 24, ipv6_prefix: 64 };
    let other = next(model::table::Table { key: wider, ..of_connections(100) });
    let without = next(settings(100));
    assert_eq!([&larger, &other, &without].map(read), [1, 0, 0]);
    assert!(!without.has(reading("open_connections")) && larger.has(reading("open_connections")));
    drop(place);
    assert_eq!([&larger, &bench.table].map(read), [0, 0]);
    assert!(table(by_text(8)).connect("192.0.2.7".parse().unwrap(), bench.now, &mut || 7).is_none());
}
