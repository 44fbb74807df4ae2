//! The algorithm, the table, and what clients see.

use std::net::IpAddr;
use std::time::Duration;

use model::Facts;
use proptest::prelude::*;
use serde_json::json;

use super::super::testing::{Beside, World, chain, issue, listed, passed_with, request, response, returned_with, uses};
use super::super::{Chain, Flow};
use super::*;

const SECOND: u64 = 1_000_000_000;

/// A chain with one limit, and a clock that only the test moves.
struct Bench {
    chain: Chain,
    beside: Beside,
    world: World,
}

impl Bench {
    fn new(settings: serde_json::Value) -> Self {
        let chain = chain(json!([{ "rate_limit": settings }]));
        Self { chain, beside: Beside::new(), world: World::new() }
    }

    fn ask(&mut self, client: &str, fields: &[(&str, &str)]) -> Flow {
        let facts = Facts { client: client.parse::<IpAddr>().unwrap(), ..self.world.facts() };
        self.chain.on_request(&mut request("GET", "/", fields), &mut self.beside.turn(&facts))
    }

    fn passes(&mut self, client: &str) -> bool {
        self.ask(client, &[]) == Flow::Continue
    }

    fn passes_with(&mut self, fields: &[(&str, &str)]) -> bool {
        self.ask("192.0.2.7", fields) == Flow::Continue
    }

    /// How many of a hundred requests are let through.
    fn count(&mut self, client: &str) -> usize {
        (0..100).filter(|_| self.passes(client)).count()
    }

    fn wait(&mut self, milliseconds: u64) {
        self.beside.now += Duration::from_millis(milliseconds);
    }
}

fn rejected(flow: Flow) -> (u16, String) {
    let Flow::Respond(answer) = flow else { panic!("{flow:?} is no answer") };
    assert_eq!((&*answer.body, &*answer.fields[0].1), (&b"too many requests\n"[..], "text/plain; charset=utf-8"));
    assert_eq!(answer.fields[1].0, "retry-after");
    (answer.status, answer.fields[1].1.clone())
}

#[test]
fn a_burst_is_let_through_and_then_the_rate() {
    let mut bench = Bench::new(json!({ "rate": "10/s", "burst": 20 }));
    assert_eq!(bench.count("192.0.2.7"), 20);
    bench.wait(99);
    assert_eq!(bench.count("192.0.2.7"), 0);
    bench.wait(1);
    assert_eq!(bench.count("192.0.2.7"), 1);
    bench.wait(1_000);
    assert_eq!(bench.count("192.0.2.7"), 10, "what is rejected costs nothing");
    bench.wait(60_000);
    assert_eq!(bench.count("192.0.2.7"), 20, "an allowance grows no further than the burst");
}

#[test]
fn the_burst_is_what_the_rate_gives_in_one_second() {
    for (rate, burst) in [("10/s", 10), ("300/m", 5), ("5/10s", 1), ("1000/h", 1), ("4/500ms", 8), ("3/2s", 1)] {
        assert_eq!(Bench::new(json!({ "rate": rate })).count("192.0.2.7"), burst, "{rate}");
    }
}

#[test]
fn an_answer_says_when_to_come_again() {
    let mut bench = Bench::new(json!({ "rate": "1/m" }));
    assert!(bench.passes("192.0.2.7"));
    assert_eq!(rejected(bench.ask("192.0.2.7", &[])), (429, "60".into()));
    bench.wait(58_999);
    assert_eq!(rejected(bench.ask("192.0.2.7", &[])), (429, "2".into()), "seconds are rounded up");
    bench.wait(2);
    assert_eq!(rejected(bench.ask("192.0.2.7", &[])), (429, "1".into()));
    bench.wait(999);
    assert!(bench.passes("192.0.2.7"));
    let mut bench = Bench::new(json!({ "rate": "1/s", "status": 503 }));
    assert!(bench.passes("192.0.2.7"));
    assert_eq!(rejected(bench.ask("192.0.2.7", &[])).0, 503);
}

#[test]
fn clients_do_not_share_an_allowance() {
    let mut bench = Bench::new(json!({ "rate": "2/s" }));
    assert_eq!((bench.count("192.0.2.7"), bench.count("192.0.2.8"), bench.count("2001:db8::1")), (2, 2, 2));
    // The same client over a socket for both families.
    assert_eq!(bench.count("::ffff:192.0.2.7"), 0);
}

#[test]
fn ipv6_addresses_count_by_their_network() {
    let mut bench = Bench::new(json!({ "rate": "2/s" }));
    assert_eq!(
        (bench.count("2001:db8::1"), bench.count("2001:db8::ffff:1"), bench.count("2001:db8:0:1::1")),
        (2, 0, 2)
    );
    let mut bench = Bench::new(json!({ "rate": "2/s", "ipv6_prefix": 128 }));
    assert_eq!((bench.count("2001:db8::1"), bench.count("2001:db8::2")), (2, 2));
    let mut bench = Bench::new(json!({ "rate": "2/s", "ipv6_prefix": 1 }));
    assert_eq!((bench.count("2001:db8::1"), bench.count("4001::1"), bench.count("8001::1")), (2, 0, 2));
}

#[test]
fn a_header_field_may_be_the_key() {
    let mut bench = Bench::new(json!({ "rate": "1/s", "key": { "header": "X-Api-Key" } }));
    assert!(bench.passes_with(&[("x-api-key", "a")]) && bench.passes_with(&[("X-API-KEY", "b")]));
    assert!(!bench.passes_with(&[("x-api-key", "a")]));
    // Without the field, empty and twice are one key, so that a second value is no new allowance.
    assert!(bench.passes_with(&[]));
    assert!(!bench.passes_with(&[("x-api-key", "")]));
    assert!(!bench.passes_with(&[("x-api-key", "c"), ("x-api-key", "d")]));
}

#[test]
fn workers_that_count_one_key_at_once_let_exactly_the_burst_through() {
    const THREADS: usize = 8;
    let chain = chain(json!([{ "rate_limit": { "rate": "1/m", "burst": 10_000 } }]));
    let (now, start) = (std::time::Instant::now(), std::sync::Barrier::new(THREADS));
    let worker = || {
        let (world, mut beside) = (World::new(), Beside::new());
        beside.now = now;
        let mut head = request("GET", "/", &[]);
        start.wait();
        let mut ask = || chain.on_request(&mut head, &mut beside.turn(&world.facts())) == Flow::Continue;
        (0..5_000).filter(|_| ask()).count()
    };
    let total: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(total, 10_000);
}

#[test]
fn a_million_keys_take_no_more_memory_than_keys_max() {
    let (now, limit) = (std::time::Instant::now(), Limit::compile("1/s", Some(2)).unwrap());
    for (keys_max, bytes) in [(100_000, 64 * 195 * 8 * 16), (1, 16), (7, 7 * 16), (9, 8 * 16), (1_000, 62 * 2 * 8 * 16)]
    {
        let table = Rates::new(keys_max);
        assert_eq!(table.bytes(), 0, "nothing is allocated before the first request");
        for key in 0..1_000_000_u32 / if keys_max == 100_000 { 1 } else { 100 } {
            table.spend(&key.to_le_bytes(), &limit, now, &mut || 7);
        }
        assert!(table.bytes() <= keys_max * 16 && table.bytes() <= bytes, "{keys_max}: {}", table.bytes());
    }
}

#[test]
fn a_full_bucket_gives_up_the_key_that_has_the_most_left() {
    let mut now = std::time::Instant::now();
    let (table, limit) = (Rates::new(8), Limit::compile("1/s", Some(10)).unwrap());
    let mut left = |key: &str, milliseconds: u64| {
        now += Duration::from_millis(milliseconds);
        table.spend(key.as_bytes(), &limit, now, &mut || 7).left
    };
    for _ in 0..10 {
        left("limited", 0);
    }
    assert_eq!(left("limited", 0), 0);
    for key in ["a", "b", "c", "d", "e", "f", "g"] {
        assert_eq!((left(key, 0), left(key, 0)), (9, 8));
    }
    // Each of a flood of new keys replaces the one before, but for the first, which finds them all alike.
    for key in 0..1_000 {
        assert_eq!(left(&format!("flood {key}"), 0), 9);
    }
    assert_eq!(left("limited", 0), 0);
    assert_eq!(["a", "b", "c", "d", "e", "f", "g"].iter().filter(|key| left(key, 0) == 7).count(), 6);
    // A key that has its whole allowance again goes first.
    let gone = left("new", 2_500);
    assert_eq!((gone, left("limited", 0)), (9, 1));
}

fn again(chain: &Chain, settings: serde_json::Value) -> Chain {
    Chain::compile(&uses(&json!([{ "rate_limit": settings }])), Some(chain)).unwrap()
}

#[test]
fn counts_survive_another_rate_and_are_lost_with_another_layout() {
    let before = json!({ "rate": "1/h", "burst": 50 });
    for (after, passed) in [
        (json!({ "rate": "2/h", "burst": 50, "status": 503, "headers": true }), 0),
        (json!({ "rate": "1/h", "burst": 50, "keys_max": 100_000 }), 0),
        (json!({ "rate": "1/h", "burst": 50, "keys_max": 1_000 }), 50),
        (json!({ "rate": "1/h", "burst": 50, "ipv6_prefix": 48 }), 50),
        (json!({ "rate": "1/h", "burst": 50, "key": { "header": "a" } }), 50),
    ] {
        let mut bench = Bench::new(before.clone());
        assert_eq!(bench.count("192.0.2.7"), 50);
        bench.chain = again(&bench.chain, after.clone());
        assert_eq!(bench.count("192.0.2.7"), passed, "{after}");
    }
}

#[test]
fn counts_stay_with_the_filter_of_equal_settings_when_others_come_before_it_or_go() {
    let (hour, second) = (json!({ "rate": "1/h", "burst": 50 }), json!({ "rate": "1/s", "burst": 20 }));
    let list = |all: &[&serde_json::Value]| {
        let all: Vec<_> = all.iter().map(|settings| json!({ "rate_limit": settings })).collect();
        uses(&json!(all))
    };
    let mut bench = Bench::new(hour.clone());
    assert_eq!(bench.count("192.0.2.7"), 50);
    bench.chain = Chain::compile(&list(&[&second, &hour]), Some(&bench.chain)).unwrap();
    assert_eq!(bench.count("192.0.2.7"), 0, "the hour is still used up");
    bench.chain = Chain::compile(&list(&[&second]), Some(&bench.chain)).unwrap();
    assert_eq!(bench.count("192.0.2.8"), 20);
    bench.chain = Chain::compile(&list(&[&hour, &second]), Some(&bench.chain)).unwrap();
    assert_eq!((bench.count("192.0.2.8"), bench.count("192.0.2.9")), (0, 20));
}

#[test]
fn after_a_change_nobody_waits_longer_than_the_new_limit_asks_for() {
    let mut bench = Bench::new(json!({ "rate": "1/h", "burst": 50 }));
    assert_eq!(bench.count("192.0.2.7"), 50);
    bench.chain = again(&bench.chain, json!({ "rate": "10/s", "burst": 20 }));
    assert_eq!(rejected(bench.ask("192.0.2.7", &[])), (429, "1".into()));
    bench.wait(100);
    assert_eq!(bench.count("192.0.2.7"), 1);
    bench.wait(2_000);
    assert_eq!(bench.count("192.0.2.7"), 20);
}

#[test]
fn a_clock_that_stands_still_or_goes_back_lets_nothing_more_through() {
    let mut bench = Bench::new(json!({ "rate": "10/s", "burst": 3 }));
    assert_eq!(bench.count("192.0.2.7"), 3);
    let epoch = bench.beside.now;
    if let Some(earlier) = epoch.checked_sub(Duration::from_secs(5)) {
        bench.beside.now = earlier;
        assert_eq!((bench.count("192.0.2.7"), bench.count("192.0.2.8")), (0, 3));
    }
    bench.beside.now = epoch + Duration::from_millis(100);
    assert_eq!((bench.count("192.0.2.7"), bench.count("192.0.2.8")), (1, 1));
}

#[test]
fn a_rehearsal_spends_nothing_and_allocates_nothing() {
    let now = std::time::Instant::now();
    let (table, limit) = (Rates::new(1_000), Limit::compile("1/s", Some(2)).unwrap());
    let left = |is_rehearsal| {
        let verdict = match is_rehearsal {
            true => table.look(b"a", &limit, now),
            false => table.spend(b"a", &limit, now, &mut || 7),
        };
        (verdict.is_allowed, verdict.left)
    };
    assert_eq!((left(true), left(true)), ((true, 1), (true, 1)));
    assert_eq!(table.bytes(), 0);
    assert_eq!((left(false), left(true), left(true)), ((true, 1), (true, 0), (true, 0)));
    assert_eq!((left(false), left(true), left(false)), ((true, 0), (false, 0), (false, 0)));
}

#[test]
fn a_worker_that_panics_with_a_lock_does_not_take_the_others_along() {
    let now = std::time::Instant::now();
    let (table, limit) = (Rates::new(8), Limit::compile("1/s", Some(2)).unwrap());
    let left = || table.spend(b"a", &limit, now, &mut || 7).left;
    assert_eq!(left(), 1);
    table.poison();
    assert_eq!(left(), 0);
}

#[test]
fn responses_say_what_is_left_if_they_are_to() {
    let settings = |extra: bool| json!([{ "rate_limit": { "rate": "2/m", "burst": 2, "headers": extra } }]);
    let filters = chain(settings(true));
    let told = |filters: &Chain| {
        let mut exchange = passed_with(filters, request("GET", "/", &[]));
        listed(&returned_with(filters, &mut exchange, response(200, &[("ratelimit", "\"origin\";r=1")])).fields)
    };
    assert_eq!(
        told(&filters),
        "ratelimit: \"origin\";r=1|ratelimit-policy: \"2/m\";q=2;w=60|ratelimit: \"2/m\";r=1;t=30"
    );
    assert_eq!(told(&chain(settings(false))), "ratelimit: \"origin\";r=1");
    // An answer that was made before the request was counted.
    let (request, world, mut beside) = (request("GET", "/", &[]), World::new(), Beside::new());
    let mut head = response(403, &[]);
    filters.on_response(&mut head, &world.view(&request), &mut beside.turn(&world.facts()));
    assert!(head.fields.is_empty());
}

#[test]
fn an_answer_that_rejects_says_so_in_the_same_terms() {
    let mut bench = Bench::new(json!({ "rate": "2/m", "burst": 2, "headers": true }));
    assert_eq!(bench.count("192.0.2.7"), 2);
    let Bench { chain, beside, world } = &mut bench;
    let (request, mut head) = (request("GET", "/", &[]), response(429, &[("retry-after", "30")]));
    chain.on_response(&mut head, &world.view(&request), &mut beside.turn(&world.facts()));
    assert_eq!(listed(&head.fields), "retry-after: 30|ratelimit-policy: \"2/m\";q=2;w=60|ratelimit: \"2/m\";r=0;t=30");
}

#[test]
fn several_limits_count_on_their_own() {
    let filters = json!([{ "rate_limit": { "rate": "3/s" } }, { "rate_limit": { "rate": "1/h", "burst": 2 } }]);
    let mut bench = Bench { chain: chain(filters), beside: Beside::new(), world: World::new() };
    assert_eq!(bench.count("192.0.2.7"), 2);
    assert_eq!(rejected(bench.ask("192.0.2.7", &[])).1, "1", "the first rejects what the second has not seen");
    bench.wait(1_000);
    assert_eq!(rejected(bench.ask("192.0.2.7", &[])).1, "3599");
}

#[test]
fn mistakes_are_found_when_the_configuration_is_checked() {
    let form = "write a number, `/` and `s`, `m`, `h` or a duration";
    let time = "the time is `s`, `m`, `h` or a duration such as 10s, at most a year";
    let rate = |text: &str, hint: &str| {
        (json!({ "rate": text }), format!("rate: `{text}` is not a rate such as 10/s, 300/m or 5/10s ({hint})"))
    };
    let other = |settings, told: &str| (settings, told.to_owned());
    for (settings, told) in [
        rate("", form),
        rate("fast", form),
        rate("10", "write `10/s` for a rate per second"),
        rate("10r/s", "write `10/s`"),
        rate("+10/s", "write `10/s`"),
        rate("/s", "write a whole number before `/`"),
        rate("10/", time),
        rate("10/0s", time),
        rate("10/9000h", time),
        rate("10/s/s", time),
        rate("10/minute", "write `10/m`"),
        rate("10/d", "write `10/24h`"),
        other(
            json!({ "rate": "0/s" }),
            "rate: `0/s` rejects every request (use the filter `deny` to reject all requests)",
        ),
        other(
            json!({ "rate": "1000000001/s" }),
            "rate: `1000000001/s` is more than one request per nanosecond (leave the filter out for no limit)",
        ),
        other(
            json!({ "rate": "1/s", "burst": 0 }),
            "burst: a burst of 0 is not between 1 and 1000000 (`burst: 1` allows no request beyond the rate)",
        ),
        other(
            json!({ "rate": "1/h", "burst": 8_761 }),
            "burst: at `1/h` a burst of 8761 takes longer than a year to refill (choose a smaller burst or a higher rate)",
        ),
        other(json!({ "rate": "1/s", "status": 200 }), "status: 200 is not an error (use 400 to 599)"),
        other(
            json!({ "rate": "1/s", "keys_max": 0 }),
            "keys_max: 0 keys are not between 1 and 10000000 (leave it out for 100000)",
        ),
        other(
            json!({ "rate": "1/s", "keys_max": 10_000_001 }),
            "keys_max: 10000001 keys are not between 1 and 10000000 (leave it out for 100000)",
        ),
        other(
            json!({ "rate": "1/s", "ipv6_prefix": 129 }),
            "ipv6_prefix: 129 is not between 1 and 128 (use 64, or 56 or 48 if clients get larger networks)",
        ),
        other(
            json!({ "rate": "1/s", "ipv6_prefix": 64, "key": { "header": "a" } }),
            "ipv6_prefix: `ipv6_prefix` has no effect with `key: { header: … }` (leave it out)",
        ),
        other(json!({ "rate": "1/s", "key": { "header": "a b" } }), "key/header: `a b` is not a header field name"),
        other(
            json!({ "rate": "1/s", "key": "ip" }),
            ": \"ip\" is not a key: write `client`, { header: NAME } or { expression: CEL }",
        ),
        other(
            json!({ "rate": "1/s", "key": { "cookie": "a" } }),
            ": {\"cookie\":\"a\"} is not a key: write `client`, { header: NAME } or { expression: CEL }",
        ),
        other(json!({}), ": missing field `rate`"),
    ] {
        assert_eq!(issue("rate_limit", settings), told);
    }
    for rate in ["1000000000/s", "1/8760h", "1/1ms", "250/1m30s"] {
        chain(json!([{ "rate_limit": { "rate": rate, "burst": 1 } }]));
    }
}

proptest! {
    /// The bound that GCRA promises, against a plain count of all that was let through.
    #[test]
    fn no_span_of_time_lets_more_through_than_a_burst_and_the_rate(
        count in 1_u64..50, burst in 1_u32..20, steps in prop::collection::vec(0_u64..SECOND / 4, 1..200),
    ) {
        let limit = Limit::compile(&format!("{count}/s"), Some(burst)).unwrap();
        let (mut now, mut tat, mut passed) = (0_u64, 0, Vec::new());
        for step in steps {
            now += step;
            let (next, verdict) = limit.judge(tat, now);
            prop_assert!(next >= tat || tat <= now);
            tat = next;
            if verdict.is_allowed {
                passed.push(now);
            } else {
                let (_, later) = limit.judge(tat, now + verdict.wait);
                prop_assert!(later.is_allowed && !limit.judge(tat, now + verdict.wait - 1).1.is_allowed);
            }
        }
        for (first, from) in passed.iter().enumerate() {
            for (last, to) in passed.iter().enumerate().skip(first) {
                let bound = u64::from(burst) + (to - from) * count / SECOND;
                prop_assert!((last - first + 1) as u64 <= bound);
            }
        }
    }
}

#[test]
fn a_rate_without_a_whole_count_is_mended_to_the_same_rate() {
    let whole = "write a whole number before `/`";
    for (rate, hint) in [
        ("0.5/s", "write `30/m`"),
        ("1.5/m", "write `90/h`"),
        ("0.01/sec", "write `36/h`"),
        ("2.0/10s", "write `2/10s`"),
        ("1k/s", "write `1000/s`"),
        ("1_000/s", "write `1000/s`"),
        ("0.3/h", whole),
        ("-5/s", whole),
        ("0.0/s", whole),
    ] {
        let issue = Limit::compile(rate, None).unwrap_err();
        assert_eq!(issue.suggestion.as_deref(), Some(hint), "{rate}");
    }
}

#[test]
fn a_request_beyond_the_burst_waits_for_its_turn_and_not_for_longer_than_it_may() {
    let mut bench = Bench::new(json!({ "rate": "10/s", "burst": 2, "over": { "delay": "250ms" } }));
    assert!(bench.passes("192.0.2.7") && bench.passes("192.0.2.7"));
    assert_eq!(bench.beside.notes.limit_status(), LimitStatus::Passed);
    let now = bench.beside.now;
    for milliseconds in [100, 200] {
        let flow = bench.ask("192.0.2.7", &[]);
        assert_eq!(flow, Flow::Need(Need::Until(now + Duration::from_millis(milliseconds))));
    }
    assert_eq!(bench.beside.notes.limit_status(), LimitStatus::Delayed);
    assert_eq!(rejected(bench.ask("192.0.2.7", &[])), (429, "1".into()), "its turn would be 300 ms away");
    let (mut head, facts) = (request("GET", "/", &[]), bench.world.facts());
    let flow = bench.chain.resume(&mut 0, Found::Now, &mut head, &mut bench.beside.turn(&facts));
    assert_eq!(flow, Flow::Continue);
    bench.wait(400);
    assert!(bench.passes("192.0.2.7") && bench.passes("192.0.2.7"));
    assert!(!bench.passes("192.0.2.7"));
}

#[test]
fn a_request_beyond_the_limit_is_closed_held_back_or_marked() {
    let mut bench = Bench::new(json!({ "rate": "1/m", "over": "close" }));
    assert!(bench.passes("192.0.2.7"));
    assert_eq!(bench.ask("192.0.2.7", &[]), Flow::Close);
    let mut bench = Bench::new(json!({ "rate": "1/m", "over": "mark", "headers": true }));
    assert_eq!(bench.count("192.0.2.7"), 100);
    assert_eq!(bench.beside.notes.limit_status().as_str(), "marked");
    let mut bench = Bench::new(json!({ "rate": "1/m", "over": { "tarpit": "10s" }, "status": 503 }));
    assert!(bench.passes("192.0.2.7"));
    let until = bench.beside.now + Duration::from_secs(10);
    assert_eq!(bench.ask("192.0.2.7", &[]), Flow::Need(Need::Until(until)));
    bench.wait(10_000);
    let (mut head, facts) = (request("GET", "/", &[]), bench.world.facts());
    let flow = bench.chain.resume(&mut 0, Found::Now, &mut head, &mut bench.beside.turn(&facts));
    assert_eq!(rejected(flow), (503, "50".into()));
    bench.wait(50_000);
    let (mut head, facts) = (request("GET", "/", &[]), bench.world.facts());
    let flow = bench.chain.resume(&mut 0, Found::Now, &mut head, &mut bench.beside.turn(&facts));
    assert_eq!(rejected(flow), (503, "0".into()), "it may come again at once");
}

#[test]
fn what_a_limit_did_is_a_variable_for_filters_after_it() {
    let status = "{limit_status}";
    let filters = chain(json!([
        { "set_request_header": { "x-before": status } },
        { "rate_limit": { "rate": "1/m", "over": "mark" } },
        { "set_request_header": { "x-after": status } },
        { "set_response_header": { "x-limit": status } },
    ]));
    let (world, mut beside) = (World::new(), Beside::new());
    let mut ask = || {
        let mut head = request("GET", "/", &[]);
        beside.notes.clear();
        assert_eq!(filters.on_request(&mut head, &mut beside.turn(&world.facts())), Flow::Continue);
        let mut answer = response(200, &[]);
        filters.on_response(&mut answer, &world.view(&head), &mut beside.turn(&world.facts()));
        format!("{} {}", listed(&head.fields), listed(&answer.fields))
    };
    // Before the limit the variable is empty, so that the field is not set.
    assert_eq!(ask(), "x-after: passed x-limit: passed");
    assert_eq!(ask(), "x-after: marked x-limit: marked");
}

proptest! {
    /// With a delay, what is let through leaves at the rate too: a moment each, in their order.
    #[test]
    fn delayed_requests_leave_one_interval_apart(
        count in 1_u64..50, burst in 1_u32..5, most in 0_u64..SECOND, steps in prop::collection::vec(0_u64..SECOND / 8, 1..200),
    ) {
        let limit = Limit::compile(&format!("{count}/s"), Some(burst)).unwrap().delaying(Duration::from_nanos(most));
        let (mut now, mut tat, mut left) = (0_u64, 0, Vec::new());
        for step in steps {
            now += step;
            let (next, verdict) = limit.judge(tat, now);
            tat = next;
            prop_assert!(verdict.delay <= most);
            if verdict.is_allowed {
                left.push(now + verdict.delay);
            } else {
                let (_, later) = limit.judge(tat, now + verdict.wait);
                prop_assert!(later.is_allowed && !limit.judge(tat, now + verdict.wait - 1).1.is_allowed);
            }
        }
        prop_assert!(left.is_sorted());
        for (first, from) in left.iter().enumerate() {
            for (last, to) in left.iter().enumerate().skip(first) {
                prop_assert!((last - first + 1) as u64 <= u64::from(burst) + (to - from) * count / SECOND);
            }
        }
    }
}

#[test]
fn a_cost_takes_more_than_one_and_a_charge_may_lead_into_debt() {
    const DAY: u64 = 86_400 * SECOND;
    let limit = Limit::compile("10/s", Some(20)).unwrap();
    let judge = |tat, cost| limit.judge_cost(tat, 0, cost);
    assert_eq!(judge(0, 1), limit.judge(0, 0), "a cost of one is a plain request");
    let (tat, verdict) = judge(0, 15);
    assert_eq!((verdict.is_allowed, verdict.left, tat), (true, 5, 15 * SECOND / 10));
    let (same, refused) = judge(tat, 6);
    assert_eq!((refused.is_allowed, refused.wait_seconds(), same), (false, 1, tat), "nothing is taken then");
    assert!(judge(tat, 5).1.is_allowed);
    // More than the burst is the burst: it is let through when all is there.
    assert_eq!(
        (judge(0, u64::MAX).1.left, judge(0, u64::MAX).1.is_allowed, judge(1, 21).1.is_allowed),
        (0, true, false)
    );
    // What costs nothing passes while one is left.
    assert_eq!(judge(tat, 0), (tat, Verdict { is_allowed: true, delay: 0, left: 5, wait: tat }));
    let empty = limit.charge(tat, 0, 5);
    assert_eq!((empty, judge(empty, 0).1.is_allowed), (2 * SECOND, false));
    let debt = limit.charge(empty, 0, 1_000);
    assert_eq!((debt, judge(debt, 1).1.wait), (102 * SECOND, 100 * SECOND + SECOND / 10));
    assert!(limit.judge_cost(debt, 101 * SECOND, 1).1.is_allowed, "paid by time");
    // A debt ends within a day, whatever was charged.
    let most = limit.charge(limit.charge(0, 0, u64::MAX), 0, u64::MAX);
    assert_eq!(most, 2 * SECOND + DAY);
    assert_eq!(judge(u64::MAX, 1).1.wait, DAY + SECOND / 10);
}

/// Has a request answered whose response says what it has cost. Returns the status, and the field `ratelimit`.
fn answered(bench: &mut Bench, fields: &[(&str, &str)], tokens: &str) -> (u16, String) {
    let facts = bench.world.facts();
    let mut head = request("POST", "/v1/chat", fields);
    let flow = bench.chain.on_request(&mut head, &mut bench.beside.turn(&facts));
    let status = if let Flow::Respond(local) = flow { local.status } else { 200 };
    let told = [("x-tokens", tokens)];
    let mut answer = response(status, if status == 200 { &told } else { &[] });
    bench.chain.on_response(&mut answer, &bench.world.view(&head), &mut bench.beside.turn(&facts));
    bench.beside.notes.clear();
    let told = answer.fields.get(&LIMIT).unwrap_or_default();
    (status, String::from_utf8(told.to_vec()).unwrap())
}

#[test]
fn a_request_takes_what_its_expression_says() {
    let mut bench =
        Bench::new(json!({ "rate": "1/s", "burst": 10, "cost": { "expression": "int(request.headers[\"x-n\"])" } }));
    assert!(bench.passes_with(&[("x-n", "7")]) && !bench.passes_with(&[("x-n", "4")]), "three are left");
    assert!(bench.passes_with(&[("x-n", "2")]) && bench.passes_with(&[("x-n", "none")]), "a missing cost is one");
    assert!(!bench.passes_with(&[]) && !bench.passes_with(&[("x-n", "0")]), "nothing is left");
    bench.wait(1_000);
    for n in ["0", "-5", "0"] {
        assert!(bench.passes_with(&[("x-n", n)]), "{n} takes nothing");
    }
    assert!(!bench.passes_with(&[("x-n", "9223372036854775807")]), "more than the burst is the whole burst");
    bench.wait(9_000);
    assert!(bench.passes_with(&[("x-n", "9223372036854775807")]) && !bench.passes_with(&[("x-n", "0")]));
}

#[test]
fn what_a_response_has_cost_is_a_debt_until_it_is_paid() {
    let mut bench = Bench::new(json!({
        "rate": "100/s", "burst": 1000, "headers": true, "cost": { "expression": "0" },
        "response_cost": { "expression": "int(response.headers[\"x-tokens\"])" },
    }));
    assert_eq!(answered(&mut bench, &[], "400"), (200, "\"100/s\";r=600;t=4".into()));
    assert_eq!(answered(&mut bench, &[], "2600"), (200, "\"100/s\";r=0;t=21".into()));
    assert_eq!(answered(&mut bench, &[], "400").0, 429, "and a request that is refused costs nothing");
    bench.wait(20_000);
    assert_eq!(answered(&mut bench, &[], "0").0, 429);
    bench.wait(100);
    for cost in ["none", "-7", "0"] {
        assert_eq!(answered(&mut bench, &[], cost).0, 200, "{cost} takes nothing");
    }
    // No answer, however large it says it was, keeps a key out for more than a day.
    assert_eq!(answered(&mut bench, &[], "9223372036854775807").0, 200);
    bench.wait(86_400_000);
    assert_eq!(answered(&mut bench, &[], "0").0, 429);
    bench.wait(100);
    assert_eq!(answered(&mut bench, &[], "0").0, 200);
}

#[test]
fn a_request_is_charged_once_even_if_its_response_cannot_be_sent() {
    let mut bench = Bench::new(json!({
        "rate": "1/s", "burst": 10, "headers": true, "cost": { "expression": "0" }, "response_cost": { "expression": "4" },
    }));
    let (facts, mut head) = (bench.world.facts(), request("GET", "/", &[]));
    assert_eq!(bench.chain.on_request(&mut head, &mut bench.beside.turn(&facts)), Flow::Continue);
    for status in [200, 502] {
        let mut answer = response(status, &[]);
        bench.chain.on_response(&mut answer, &bench.world.view(&head), &mut bench.beside.turn(&facts));
        assert_eq!(answer.fields.get(&LIMIT).unwrap_or_default(), b"\"1/s\";r=6;t=4");
    }
}

#[test]
fn what_is_wrong_with_a_cost_is_told_at_it() {
    let of = |more: serde_json::Value| {
        let mut settings = json!({ "rate": "1/s" });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        issue("rate_limit", settings)
    };
    let told = of(json!({ "cost": { "expression": "request.path" } }));
    assert!(told.starts_with("cost/expression: this is of the type string, but int is needed"), "{told}");
    let told = of(json!({ "cost": { "expression": "response.size" } }));
    assert!(told.starts_with("cost/expression: `response.size` has no value yet"), "{told}");
}

#[test]
fn a_rehearsal_of_a_cost_takes_nothing() {
    let mut bench = Bench::new(json!({ "rate": "1/h", "burst": 10, "cost": { "expression": "10" } }));
    bench.beside.is_rehearsal = true;
    assert!(bench.passes("192.0.2.7") && bench.passes("192.0.2.7"));
    bench.beside.is_rehearsal = false;
    assert!(bench.passes("192.0.2.7") && !bench.passes("192.0.2.7"));
    bench.beside.is_rehearsal = true;
    assert!(!bench.passes("192.0.2.7"));
}

#[test]
fn a_tarpit_tells_how_long_a_debt_lasts() {
    let mut bench = Bench::new(json!({
        "rate": "1/s", "burst": 10, "over": { "tarpit": "5s" }, "response_cost": { "expression": "int(response.headers[\"x-tokens\"])" },
    }));
    assert_eq!(answered(&mut bench, &[], "109").0, 200);
    let facts = bench.world.facts();
    let mut head = request("GET", "/", &[]);
    let flow = bench.chain.on_request(&mut head, &mut bench.beside.turn(&facts));
    assert!(matches!(flow, Flow::Need(Need::Until(_))), "{flow:?}");
    bench.beside.now += Duration::from_secs(5);
    let flow = bench.chain.resume(&mut 0, Found::Now, &mut head, &mut bench.beside.turn(&facts));
    assert_eq!(rejected(flow), (429, "96".into()));
}
