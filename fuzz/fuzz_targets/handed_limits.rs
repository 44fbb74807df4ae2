//! What a process says of tables and limits, as the one that follows it at an upgrade reads it: no panic, no more entries than the tables
//! have room for, and what is taken in is told on.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use model::Snapshot;
use model::table::Counter;
use plan::Plan;
use plan::limit::{Limit, LimitState};
use serde_json::{Value, json};

// By their paths, as in `estate`.
#[path = "../../crates/control/src/handover.rs"]
#[allow(dead_code)]
mod handover;
#[path = "../../crates/control/src/handover_limits.rs"]
mod handover_limits;
#[path = "../../crates/control/src/handover_tables.rs"]
mod handover_tables;
mod chance {
    pub(crate) fn chance() -> u64 {
        7
    }
}

const KEYS_MAX: u64 = 16;

static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let text = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:80", connections_per_address: { max: 9, rate: 1/s, keys_max: 16 } } }
tables: { abuse: { key: { header: x }, keys_max: 16, counters: [requests], rates: { errors: 10s } } }
routes:
  - name: main
    cluster: site
    filters: [{ rate_limit: { rate: 1/s, keys_max: 16 } }, { concurrency_limit: { max: 9 } }]
clusters: { site: { endpoints: ["127.0.0.1:1"] } }
"#;
    let loader = config::Loader {
        filters: &plan::filter::specs(),
        environment: &|_| None,
        resolve_host: &|_, _, _| Err(std::io::ErrorKind::Unsupported.into()),
        within: None,
        is_offline: true,
    };
    loader.load_text("text", text, Path::new("")).unwrap_or_else(|error| panic!("{error}")).snapshot.into()
});

fuzz_target!(|input: &[u8]| {
    let now = Instant::now();
    match serde_json::from_slice::<Value>(input) {
        Ok(told) => check(&told, now),
        Err(_) => check(&around(input, now), now),
    }
});

fn plan() -> Plan {
    plan::compile(Arc::clone(&SNAPSHOT), None, 1).unwrap_or_else(|issues| panic!("{issues:?}"))
}

/// The bytes as entries of everything there is.
fn around(input: &[u8], now: Instant) -> Value {
    let plan = plan();
    plan.tables[0].count(b"a", &[(Counter::Requests, 1)], now, &mut || 7);
    let limit = Limit::compile("1/s", None).unwrap_or_else(|issue| panic!("{issue:?}"));
    for (_, limit_state) in plan.limits() {
        match limit_state {
            LimitState::Rates(rates) => drop(rates.spend(b"a", &limit, now, &mut || 7).left),
            LimitState::InFlight(places) => drop(places.enter(b"a", 9, &mut || 7).is_some()),
        }
    }
    let mut told = tell(&plan, now);
    let entries = Value::from(handover::to_hex(input));
    told["tables"]["abuse"]["entries"] = entries.clone();
    told["tables"]["abuse"]["in_part"] = entries.clone();
    for kind in ["rates", "places"] {
        told[kind].as_array_mut().into_iter().flatten().for_each(|one| one["entries"] = entries.clone());
    }
    told
}

fn check(told: &Value, now: Instant) {
    let first = plan();
    for _ in 0..2 {
        take_in(told, &first, now);
    }
    assert!(first.tables[0].entries() <= KEYS_MAX);
    for (_, state) in first.limits() {
        match state {
            LimitState::Rates(rates) => assert!(rates.spent(now) as u64 <= KEYS_MAX),
            // An entry is two numbers of sixteen digits.
            LimitState::InFlight(places) => assert!(places.keys() <= told.to_string().len() / 32),
        }
    }
    let known = tell(&first, now);
    let second = plan();
    take_in(&known, &second, now);
    let again = tell(&second, now);
    for kind in ["rates", "places"] {
        assert_eq!(sorted(&again[kind]), sorted(&known[kind]));
    }
    handover_limits::forget_places(&first);
    for (_, state) in first.limits() {
        if let LimitState::InFlight(places) = state {
            assert_eq!(places.keys(), 0);
        }
    }
    let year = now + Duration::from_secs(400 * 24 * 3_600);
    let (rates, _) = handover_limits::of_rates(&first, None, year);
    assert!(rates.as_array().into_iter().flatten().all(|one| one["entries"] == ""), "{rates}");
}

/// Entries of buckets and shards come in no order that two processes share.
fn sorted(told: &Value) -> Vec<String> {
    let of = |one: &Value| {
        let mut entries: Vec<&[u8]> = one["entries"].as_str().unwrap_or_default().as_bytes().chunks(32).collect();
        entries.sort_unstable();
        format!("{} {} {} {entries:?}", one["of"], one["filter"], one["kind"])
    };
    let mut all: Vec<String> = told.as_array().into_iter().flatten().map(of).collect();
    all.sort_unstable();
    all
}

fn take_in(told: &Value, plan: &Plan, now: Instant) {
    handover_tables::inherit_tables(plan, &told["tables"], now);
    handover_limits::inherit_limits(plan, &told["rates"], now);
    handover_limits::inherit_limits(plan, &told["places"], now);
}

fn tell(plan: &Plan, now: Instant) -> Value {
    json!({
        "tables": handover_tables::of_tables(plan, now, None),
        "rates": handover_limits::of_rates(plan, None, now).0,
        "places": handover_limits::of_places(plan),
    })
}
