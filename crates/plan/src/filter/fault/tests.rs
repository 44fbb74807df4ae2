use std::time::Instant;

use serde_json::{Value, json};

use super::super::testing::{Beside, World, compiled, issue, request};
use super::*;

/// What becomes of a request, and how long it waits before.
fn outcome(settings: Value, fields: &[(&str, &str)], is_rehearsal: bool) -> (Duration, Flow) {
    let steps = compiled(&ENTRY, &settings);
    let step = steps.request.unwrap();
    let (world, mut beside) = (World::new(), Beside::new());
    beside.is_rehearsal = is_rehearsal;
    let begun: Instant = beside.now;
    let facts = world.facts();
    let (mut head, mut turn) = (request("GET", "/", fields), beside.turn(&facts));
    match step.apply(&mut head, &mut turn) {
        Flow::Need(Need::Until(moment)) => (moment - begun, step.resume(&mut head, Found::Now, &mut turn)),
        flow => (Duration::ZERO, flow),
    }
}

fn refused(status: u16) -> Flow {
    Flow::refuse(status, "injected fault")
}

#[test]
fn a_delay_comes_first_and_an_abort_after_it() {
    let time = Duration::from_millis(200);
    assert_eq!(outcome(json!({ "delay": { "time": "200ms" } }), &[], false), (time, Flow::Continue));
    assert_eq!(outcome(json!({ "abort": {} }), &[], false), (Duration::ZERO, refused(503)));
    let both = json!({ "delay": { "time": "200ms" }, "abort": { "status": 429 } });
    assert_eq!(outcome(both, &[], false), (time, refused(429)));
    assert_eq!(outcome(json!({ "abort": { "close": true } }), &[], false).1, Flow::Close);
    let none = json!({ "delay": { "time": "200ms", "share": "0%" }, "abort": { "share": "0%" } });
    assert_eq!(outcome(none, &[], false), (Duration::ZERO, Flow::Continue));
    // What is drawn in these tests is 7.
    let jitter = json!({ "delay": { "time": "200ms", "jitter": "4ms" } });
    assert_eq!(outcome(jitter, &[], false).0, Duration::from_millis(202));
}

#[test]
fn a_rehearsal_shows_only_what_is_certain() {
    let certain = json!({ "delay": { "time": "200ms", "jitter": "1s" }, "abort": {} });
    assert_eq!(outcome(certain, &[], true), (Duration::from_millis(200), refused(503)));
    let likely = json!({ "delay": { "time": "200ms", "share": "99%" }, "abort": { "share": "99%" } });
    assert_eq!(outcome(likely, &[], true), (Duration::ZERO, Flow::Continue));
}

#[test]
fn a_field_chooses_requests_and_says_how_strong_the_fault_is() {
    let settings = json!({ "delay": { "time": "2s", "header": "x-delay" }, "abort": { "header": "x-abort" } });
    let of = |fields: &[(&str, &str)]| outcome(settings.clone(), fields, false);
    assert_eq!(of(&[]), (Duration::ZERO, Flow::Continue));
    for (asked, given) in
        [("250ms", 250), ("1s", 1000), ("2s", 2000), ("1h", 2000), ("", 2000), ("x", 2000), ("-1s", 2000)]
    {
        assert_eq!(of(&[("x-delay", asked)]).0, Duration::from_millis(given), "{asked}");
    }
    for (asked, status) in [("404", 404), ("599", 599), ("200", 503), ("600", 503), ("", 503), ("99999999999", 503)] {
        assert_eq!(of(&[("x-abort", asked)]), (Duration::ZERO, refused(status)), "{asked}");
    }
    assert_eq!(of(&[("x-abort", "500"), ("x-delay", "1ms")]), (Duration::from_millis(1), refused(500)));
}

#[test]
fn calls_of_grpc_get_a_status_of_their_own() {
    let settings = json!({ "abort": { "grpc_status": 14, "status": 500 } });
    let Flow::Respond(answer) = outcome(settings.clone(), &[("content-type", "application/grpc+proto")], false).1
    else {
        panic!("no answer")
    };
    assert_eq!((answer.status, answer.fields[0].1.as_str()), (200, "application/grpc+proto"));
    assert_eq!(answer.fields[1], ("grpc-status".to_owned(), "14".to_owned()));
    assert_eq!(outcome(settings, &[("content-type", "text/plain")], false).1, refused(500));
}

#[test]
fn wrong_settings_are_issues_with_their_place() {
    for (settings, said) in [
        (json!({}), "none of `delay`, `abort` and `bandwidth` is set"),
        (json!({ "bandwidth": { "rate": "fast" } }), "`fast` is not a rate such as 1MB/s or 64KiB/s"),
        (json!({ "delay": { "time": "2h" } }), "delay/time: more than 1h"),
        (json!({ "delay": { "time": "1s", "jitter": "61m" } }), "delay/jitter: more than 1h"),
        (json!({ "delay": { "time": "1s", "share": "101%" } }), "delay/share: `101%` is more than all requests"),
        (json!({ "delay": { "time": "1s", "header": "a b" } }), "delay/header: "),
        (json!({ "abort": { "status": 200 } }), "abort/status: 200 is not an error status"),
        (json!({ "abort": { "grpc_status": 0 } }), "abort/grpc_status: 0 is not an error status of gRPC"),
        (json!({ "abort": { "close": true, "status": 500 } }), "abort/status: `status` has no effect with `close`"),
        (json!({ "abort": { "share": "half" } }), "abort/share: `half` is not a share"),
    ] {
        let told = issue("fault", settings.clone());
        assert!(told.contains(said), "{settings}: {told}");
    }
}
