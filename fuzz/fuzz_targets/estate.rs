//! What a process says it has come to know, as the one that follows it at an upgrade reads it: no panic, nothing that grows or lasts
//! beyond what is configured here, and what is taken in is told on.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use model::Snapshot;
use plan::explain::{Question, explain};
use plan::{Moment, Outcome, Plan, Seen};
use serde_json::{Value, json};
use telemetry::Telemetry;

// By its path: the crate that it is part of would have all that speaks TLS, HTTP/2 and QUIC built for this.
#[path = "../../crates/control/src/handover.rs"]
mod handover;

static SNAPSHOT: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let text = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:80" } }
routes: [{ name: main, cluster: c }]
clusters:
  c:
    endpoints: ["127.0.0.1:1", { address: "127.0.0.1:2", weight: 1000 }, "127.0.0.1:3"]
    health_check: { tcp: {} }
    agent_check: { port: 9 }
    slow_start: 10s
    passive_health: { consecutive_failures: 3, ejection_time: 1s, ejection_time_max: 10s, ejected_max: 50% }
    circuit_breaker: { error_ratio: { open_for: 5s } }
    persistence: { source: { entries_max: 5, expires: 60s } }
"#;
    config::check_text(text).unwrap_or_else(|error| panic!("{error}")).into()
});

fuzz_target!(|input: &[u8]| {
    let Ok(told) = serde_json::from_slice::<Value>(input) else { return };
    let (first, telemetry, now) = (plan(), Telemetry::new(1), Instant::now());
    take_in(&told, &first, &telemetry, now);
    let known = tell(&first, &telemetry, now);
    let text = known.to_string();
    assert!(text.len() < 20_000 + 3 * input.len(), "{} bytes of {}", text.len(), input.len());
    let entries = known["sessions"]["c"]["entries"].as_str().map_or(0, str::len);
    assert!(entries <= 5 * 40, "{entries} digits of sessions");

    // The next one that follows knows the same, but for what a moment or less is rounded to.
    let (second, counts) = (plan(), Telemetry::new(1));
    take_in(&known, &second, &counts, now);
    let again = tell(&second, &counts, now);
    for part in ["figures", "sessions"] {
        assert_eq!(again[part], known[part]);
    }
    goes_on(&first, now);
});

fn plan() -> Plan {
    plan::compile(Arc::clone(&SNAPSHOT), None, 1).unwrap_or_else(|issues| panic!("{issues:?}"))
}

fn take_in(told: &Value, plan: &Plan, telemetry: &Telemetry, now: Instant) {
    handover::inherit_endpoints(plan, &told["endpoints"], now);
    handover::inherit_circuits(plan, &told["circuits"], now);
    handover::inherit_sessions(plan, &told["sessions"], Moment { now, unix: Duration::from_secs(1_700_000_000) });
    telemetry.retain(&plan.snapshot);
    telemetry.inherit(&handover::read_figures(&told["figures"]));
}

fn tell(plan: &Plan, telemetry: &Telemetry, now: Instant) -> Value {
    json!({
        "endpoints": handover::of_endpoints(plan, now),
        "circuits": handover::of_circuits(plan, now),
        "sessions": handover::of_sessions(plan, now, None),
        "figures": handover::of_figures(&telemetry.figures()),
    })
}

/// Whatever was told, an endpoint that does its work gets some when all times are over.
fn goes_on(plan: &Plan, now: Instant) {
    let cluster = &plan.clusters[0];
    let question = Question::from_query("request=http://x/").unwrap_or_else(|why| panic!("{why}"));
    for second in [0, 1, 11, 22] {
        let now = now + Duration::from_secs(second);
        cluster.report(0, "up ready 100%\n");
        for (place, endpoint) in cluster.endpoints.iter().enumerate() {
            (0..5).for_each(|_| {
                let _ = cluster.observe(place, Outcome::Success);
            });
            let seen = if place == 0 { Seen::Answered { status: 200, latency: Duration::ZERO } } else { Seen::Failed };
            cluster.witness(&endpoint.state, seen, now);
        }
        cluster.tick(now);
        let at = Moment { now, unix: Duration::from_secs(1) };
        let told = explain(plan, &question, at, &mut || 7, &mut |_, _, _| Ok(()));
        assert!(told.is_ok(), "{told:?}");
    }
    assert!(cluster.is_up(0) && cluster.roll().weight(0) > 0, "{:?}", cluster.roll().standing(0));
}
