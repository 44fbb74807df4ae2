use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::table::{Counter, Reading, TableKey};
use proptest::prelude::*;

use super::{Change, Table, Totals};

const SECOND: Duration = Duration::from_secs(1);

/// A table of an instance, with a clock that all share.
struct Side(Table, Instant);

impl Side {
    fn new(keys_max: u32, begun: Instant) -> Self {
        let settings = model::table::Table {
            name: "t".into(),
            key: TableKey::Header("x-key".to_owned()),
            keys_max,
            expire: 60 * SECOND,
            counters: vec![Counter::Requests, Counter::BytesOut],
            rates: vec![(Counter::Requests, 10 * SECOND), (Counter::Errors, SECOND)],
            is_replicated: true,
        };
        Self(Table::compile(&Arc::new(settings), None).unwrap(), begun)
    }

    fn count(&self, key: &str, amount: u64) {
        let amounts = [(Counter::Requests, amount), (Counter::Errors, 1)];
        self.0.count(key.as_bytes(), &amounts, self.1, &mut || 7);
    }

    fn get(&self, key: &str, reading: &str) -> u64 {
        self.0.get(key.as_bytes(), reading.parse().unwrap(), self.1)
    }

    fn drained(&self) -> Vec<Change> {
        let mut all = Vec::new();
        self.0.drain(&mut |change| all.push(change));
        all
    }

    fn apply(&self, changes: &[Change], age: u64) {
        changes.iter().for_each(|change| assert!(self.0.apply(change, age, (self.1, &mut || 9))));
    }

    fn totals(&self) -> Totals {
        let mut all = Totals::new();
        self.0.totals(self.1, |key, idle, values| _ = all.insert(key.to_vec(), (idle, values)));
        all
    }

    fn adopt(&self, from: &Self, own: &HashMap<Vec<u8>, Vec<i64>>, is_exact: bool) {
        self.0.adopt(from.totals(), (own, is_exact), (self.1, &mut || 9));
    }
}

fn pair() -> (Side, Side) {
    let now = Instant::now() + 1_000 * SECOND;
    (Side::new(1_000, now), Side::new(1_000, now))
}

#[test]
fn what_is_counted_is_drained_once_and_added_without_an_echo() {
    let (one, other) = pair();
    let long = "k".repeat(500);
    for key in ["a", "a", "b", &long] {
        one.count(key, 2);
    }
    let changes = one.drained();
    assert_eq!((changes.len(), one.drained().len()), (3, 0));
    other.apply(&changes, 0);
    assert_eq!(other.drained(), []);
    let read = |key| ["requests", "requests_rate", "errors_rate"].map(|reading| other.get(key, reading));
    assert_eq!((read("a"), read("b"), read(&long)), ([4, 4, 2], [2, 2, 1], [2, 2, 1]));
    assert_eq!(other.get(&format!("{long}k"), "requests"), 0);
    other.count("a", 1);
    one.apply(&other.drained(), 0);
    assert_eq!((one.get("a", "requests"), other.get("a", "requests")), (5, 5));
    let row = one.0.row(long.as_bytes(), one.1).unwrap();
    assert!(row.key.starts_with("kkkkkkkkkkkkkkk~") && row.key.len() == 32, "{}", row.key);
}

#[test]
fn what_is_old_counts_in_sums_and_no_more_in_rates() {
    let (one, other) = pair();
    one.count("a", 3);
    other.apply(&one.drained(), 9_999);
    one.count("a", 3);
    other.apply(&one.drained(), 10_000);
    assert_eq!((other.get("a", "requests"), other.get("a", "requests_rate"), other.get("a", "errors_rate")), (6, 3, 0));
    one.count("b", 3);
    other.apply(&one.drained(), 60_000);
    assert_eq!((other.get("b", "requests"), other.0.entries()), (0, 1), "its time is over");
}

#[test]
fn an_administrator_sets_and_removes_for_all_whatever_comes_between() {
    let (one, other) = pair();
    one.count("a", 10);
    other.apply(&one.drained(), 0);
    // At the same time, one is set and the other counts.
    let reading = |text: &str| text.parse::<Reading>().unwrap();
    one.0.set(b"a", &[(reading("requests"), 4), (reading("requests_rate"), 0)], one.1, &mut || 7);
    other.count("a", 5);
    let (ones, others) = (one.drained(), other.drained());
    one.apply(&others, 0);
    other.apply(&ones, 0);
    assert_eq!((one.get("a", "requests"), other.get("a", "requests")), (9, 9));
    one.count("a", 1);
    assert_eq!((one.0.clear(Some(b"a"), one.1), one.get("a", "requests")), (1, 0));
    other.apply(&one.drained(), 0);
    assert_eq!((other.get("a", "requests"), other.get("a", "requests_rate"), other.0.entries()), (0, 0, 0));
    // What is taken away comes before what it is taken from.
    other.count("c", 7);
    let counted = other.drained();
    one.apply(&counted, 0);
    one.0.clear(None, one.1);
    let third = Side::new(10, one.1);
    third.count("c", 1);
    third.apply(&one.drained(), 0);
    assert_eq!(third.get("c", "requests"), 1, "its own, which no one else knows");
    third.apply(&counted, 0);
    assert_eq!(third.get("c", "requests"), 8, "what was on its way is still there");
}

#[test]
fn what_an_administrator_takes_off_gives_no_credit_where_the_entry_is_another() {
    let requests = "requests".parse::<Reading>().unwrap();
    for is_set in [false, true] {
        let (one, other) = pair();
        let forgive = || match is_set {
            true => one.0.set(b"a", &[(requests, 1)], one.1, &mut || 7),
            false => _ = one.0.clear(Some(b"a"), one.1),
        };
        one.count("a", 1_000);
        one.drained();
        forgive();
        // No entry is there at all.
        other.apply(&one.drained(), 0);
        assert_eq!((other.0.entries(), other.get("a", "requests")), (0, 0));
        other.count("a", 5);
        assert_eq!(other.get("a", "requests"), 5);
        // One is there, made again since. What peers have not heard of stays.
        one.count("a", 1_000);
        one.drained();
        forgive();
        other.drained();
        other.count("a", 3);
        other.apply(&one.drained(), 0);
        other.count("a", 1);
        assert_eq!(other.get("a", "requests"), 4);
    }
    // What the taught one has taken off is more than the teacher knows.
    let (one, other) = pair();
    let own = [(b"a".to_vec(), vec![-900, 0, 0])].into();
    one.count("a", 2);
    one.drained();
    other.count("a", 1);
    other.adopt(&one, &own, true);
    assert_eq!(other.get("a", "requests"), 1);
}

#[test]
fn all_entries_are_cleared_however_many_and_what_is_over_is_sent_to_none() {
    let now = Instant::now() + 1_000 * SECOND;
    let (mut one, other) = (Side::new(200_000, now), Side::new(1_000_000, now));
    for key in 0..100_000 {
        one.count(&key.to_string(), 2);
        if key % 50_000 == 0 {
            other.apply(&one.drained(), 0);
        }
    }
    other.apply(&one.drained(), 0);
    other.count("7", 3);
    other.count("8", 1);
    other.drained();
    other.count("8", 4);
    assert!(one.0.clear(None, one.1) > 90_000);
    one.count("9", 6);
    let changes = one.drained();
    assert_eq!(changes.iter().filter(|change| change.is_all).count(), 1);
    other.apply(&changes, 0);
    assert_eq!((one.0.lost(), other.0.alive(other.1)), (0, 2));
    assert_eq!(["7", "8", "9", "10"].map(|key| other.get(key, "requests")), [0, 4, 6, 0]);
    assert_eq!(["8", "9"].map(|key| other.get(key, "requests_rate")), [0, 6]);
    // An entry whose time is over is none at a peer either.
    one.drained();
    one.1 += 61 * SECOND;
    assert_eq!((one.0.clear(None, one.1), one.drained()), (1, vec![]));
}

#[test]
fn a_flood_of_keys_keeps_to_its_bounds_and_loses_nothing_on_the_way() {
    let now = Instant::now();
    let (one, other) = (Side::new(200_000, now), Side::new(1_000_000, now));
    for key in 0..300_000 {
        one.count(&key.to_string(), 1);
    }
    let changes = one.drained();
    other.apply(&changes, 0);
    assert_eq!(changes.len() as u64 + one.0.lost(), 300_000);
    assert!(one.0.lost() > 0, "more are removed between two turns than are kept");
    assert_eq!(one.drained(), []);
    one.count("0", 1);
    assert_eq!(one.drained().len(), 1);
}

#[test]
fn one_that_begins_is_taught_and_keeps_what_it_counted_meanwhile() {
    let (one, other) = pair();
    one.count("a", 10);
    one.count("b", 20);
    one.drained();
    one.count("a", 1);
    other.count("a", 3);
    other.count("own", 4);
    let sent: HashMap<_, _> = other.drained().into_iter().map(|change| (change.key, change.values)).collect();
    other.count("a", 2);
    other.adopt(&one, &sent, true);
    assert_eq!(["a", "b", "own"].map(|key| other.get(key, "requests")), [15, 20, 4]);
    // What it had not sent is still to be sent; and what the teacher had not comes as ever.
    one.apply(&other.drained(), 0);
    other.apply(&one.drained(), 0);
    assert_eq!((one.get("a", "requests"), other.get("a", "requests")), (13, 16));
    // What the teacher does not know is not there.
    one.0.clear(None, one.1);
    one.drained();
    other.adopt(&one, &HashMap::new(), true);
    assert_eq!((other.0.entries(), other.get("a", "requests")), (0, 0));
    // Where it is not known what is missing, the greater stays.
    one.count("a", 5);
    other.count("a", 7);
    one.drained();
    other.adopt(&one, &HashMap::new(), false);
    assert_eq!(other.get("a", "requests"), 7);
}

#[test]
fn the_process_that_follows_counts_nothing_twice_not_even_in_rates() {
    let (before, after) = pair();
    before.count("a", 5);
    before.drained();
    before.count("a", 2);
    after.0.inherit((&before.0.hand_over(10, 60 * SECOND, before.1), None), after.1, &mut || 9);
    let read = || ["requests", "requests_rate", "errors_rate"].map(|reading| after.get("a", reading));
    assert_eq!(read(), [5, 5, 1]);
    after.apply(&before.drained(), 0);
    assert_eq!(read(), [7, 7, 2]);
}

#[test]
fn changes_of_another_shape_are_passed_over() {
    let (one, _) = pair();
    let change = |values: usize, key: usize| Change { key: vec![1; key], values: vec![1; values], ..Change::default() };
    for bad in [change(2, 3), change(4, 3), change(3, 33)] {
        assert!(!one.0.apply(&bad, 0, (one.1, &mut || 1)));
    }
    assert!(one.0.apply(&change(3, 32), u64::MAX, (one.1, &mut || 1)));
    let strange: Totals =
        [(vec![1; 40], (0, vec![1])), (vec![2], (u64::MAX, vec![])), (vec![3], (0, vec![i64::MIN]))].into();
    one.0.adopt(strange, (&HashMap::new(), true), (one.1, &mut || 1));
    assert_eq!(one.0.get(&[3], "requests".parse().unwrap(), one.1), 0);
}

proptest! {
    /// In whatever order increments of either side come, both have the same sums in the end, and no client has credit.
    #[test]
    fn both_sides_agree(
        steps in prop::collection::vec((any::<bool>(), 0_u8..3, 0_u8..4, 1_u64..50), 1..100),
        has_two in any::<bool>(),
    ) {
        let (one, other) = pair();
        let (mut to_one, mut to_other) = (Vec::new(), Vec::new());
        for (is_one, key, what, amount) in steps {
            // Two administrators at a time may take off the same twice: then sums differ by what was on its way.
            let side = if is_one || what < 2 && !has_two { &one } else { &other };
            let key = key.to_string();
            match what {
                0 => side.0.set(key.as_bytes(), &[("requests".parse().unwrap(), amount)], side.1, &mut || 7),
                1 => _ = side.0.clear(Some(key.as_bytes()), side.1),
                _ => side.count(&key, amount),
            }
            if amount % 3 == 0 {
                to_other.extend(one.drained());
                other.apply(&std::mem::take(&mut to_other), amount);
            }
            if amount % 5 == 0 {
                to_one.extend(other.drained());
            }
        }
        to_one.extend(other.drained());
        one.apply(&to_one, 3);
        other.apply(&one.drained(), 1);
        let sums = |side: &Side| [0, 1, 2].map(|key: u8| side.get(&key.to_string(), "requests"));
        prop_assert!(has_two || sums(&one) == sums(&other), "{:?} {:?}", sums(&one), sums(&other));
        for side in [&one, &other] {
            let before = sums(side);
            (0..3).for_each(|key| side.count(&key.to_string(), 2));
            prop_assert_eq!(sums(side), before.map(|sum| sum + 2));
        }
    }
}
