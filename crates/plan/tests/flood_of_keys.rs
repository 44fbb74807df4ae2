//! A million distinct keys a minute against a table and a limit of a tenth of that: memory stays what it is for, keys that come again and
//! again stay known, and a request costs what it did. With `EQUIPOISE_LONG=1` a million, or else a tenth, against a tenth of the room.
//!
//! One test, alone in its process: it measures the memory of that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::table::{Counter, Reading, TableKey};
use plan::limit::{Limit, Rates};
use plan::table::Table;

const SECOND: Duration = Duration::from_secs(1);
/// How often each of the keys that come again and again comes.
const EVERY: Duration = Duration::from_millis(500);
/// What the pages of a process vary by, beside what a table takes.
const SLACK_BYTES: usize = 2 << 20;

/// The table of the guide.
fn table(keys_max: u32) -> Table {
    let settings = model::table::Table {
        name: "abuse".into(),
        key: TableKey::Client { ipv4_prefix: 32, ipv6_prefix: 64 },
        keys_max,
        expire: 600 * SECOND,
        counters: vec![Counter::Requests, Counter::BytesOut],
        rates: vec![(Counter::Requests, 10 * SECOND), (Counter::Errors, 60 * SECOND), (Counter::Marks, 600 * SECOND)],
        is_replicated: false,
    };
    Table::compile(&Arc::new(settings), None).expect("it has a key")
}

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

/// The key of a client that comes again and again; others are below.
fn busy(number: u32) -> [u8; 4] {
    (u32::MAX - number).to_be_bytes()
}

/// Counts so many new keys over a minute, and between them those that come again. Returns the nanoseconds that each hundredth took.
fn flood(keys: u32, busy_keys: u32, mut count: impl FnMut(&[u8], Instant)) -> (Vec<u64>, Instant) {
    let begun = Instant::now();
    let at = |number: u32| begun + (60 * SECOND).mul_f64(f64::from(number) / f64::from(keys));
    let (mut took, mut next) = (Vec::new(), begun);
    for part in 0..100 {
        let clock = Instant::now();
        for number in part * (keys / 100)..(part + 1) * (keys / 100) {
            while next <= at(number) {
                (0..busy_keys).for_each(|number| count(&busy(number), next));
                next += EVERY;
            }
            count(&number.to_be_bytes(), at(number));
        }
        took.push(clock.elapsed().as_nanos() as u64);
    }
    (took, at(keys))
}

/// The part in the middle of a range, which a busy machine does not disturb.
fn median(took: &[u64]) -> u64 {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

#[test]
fn a_million_keys_a_minute_cost_no_more_memory_no_more_time_and_no_busy_key() {
    let keys: u32 = if std::env::var_os("EQUIPOISE_LONG").is_some() { 1_000_000 } else { 100_000 };
    let (keys_max, busy_keys) = (keys / 10, keys / 2_000);

    let (table, before) = (table(keys_max), resident());
    let one = |key: &[u8], now| {
        table.count(key, &[(Counter::Requests, 1), (Counter::Errors, 1)], now, &mut || 7);
    };
    let (took, end) = flood(keys, busy_keys, one);
    let grown = resident().saturating_sub(before);
    assert!(table.entry_bytes() <= 96, "{} bytes", table.entry_bytes());
    assert!(grown <= keys_max as usize * 96 + SLACK_BYTES, "{grown} bytes for {keys_max} keys");
    assert!(grown >= keys_max as usize * 48, "{grown} bytes: it is not measured");
    assert!(table.entries() <= u64::from(keys_max) && table.evictions() > u64::from(keys) * 8 / 10);
    let requests = Reading { counter: Counter::Requests, is_rate: false };
    let known = (0..busy_keys).filter(|number| table.get(&busy(*number), requests, end) == 120).count();
    assert_eq!(known, busy_keys as usize, "each was counted from the first time to the last");
    let top = table.top(requests, busy_keys as usize, end);
    assert!(top.iter().all(|row| row.readings[0].1 == 120), "the worst are those that are shown");
    // The first tenth fills it. From then on each new key pushes another out.
    let (early, late) = (median(&took[10..30]), median(&took[80..]));
    assert!(late <= 2 * early, "{early} ns, then {late} ns");

    let (rates, before) = (Rates::new(keys_max as usize), resident());
    let limit = Limit::compile("1/s", Some(10)).expect("a rate");
    let (took, end) = flood(keys, busy_keys, |key, now| {
        rates.spend(key, &limit, now, &mut || 7);
    });
    let grown = resident().saturating_sub(before);
    assert!(grown <= keys_max as usize * 16 + SLACK_BYTES, "{grown} bytes for {keys_max} keys");
    // They ask twice as often as they may.
    let limited = (0..busy_keys).filter(|number| rates.look(&busy(*number), &limit, end).left == 0).count();
    assert_eq!(limited, busy_keys as usize, "none gets a new allowance");
    let (early, late) = (median(&took[10..30]), median(&took[80..]));
    assert!(late <= 2 * early, "{early} ns, then {late} ns");
}
