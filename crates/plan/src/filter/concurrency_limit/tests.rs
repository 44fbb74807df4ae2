//! Places are taken, refused and given back.

use std::net::IpAddr;

use model::Facts;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, request, uses};
use super::super::{Chain, Flow, Need, Notes};
use super::*;

fn limited(settings: Value) -> Chain {
    chain(json!([{ "concurrency_limit": settings }]))
}

/// A request, with the notes that hold its place until they are dropped.
fn ask(chain: &Chain, client: &str, fields: &[(&str, &str)]) -> (Flow, Notes) {
    let (world, mut beside) = (World::new(), Beside::new());
    let facts = Facts { client: client.parse::<IpAddr>().unwrap(), ..world.facts() };
    let flow = chain.on_request(&mut request("GET", "/", fields), &mut beside.turn(&facts));
    (flow, std::mem::take(&mut beside.notes))
}

fn status(flow: &Flow) -> u16 {
    match flow {
        Flow::Continue => 200,
        Flow::Respond(answer) => {
            assert_eq!((&*answer.body, answer.fields.len()), (&b"too many requests\n"[..], 1));
            answer.status
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_has_so_many_requests_in_flight_and_each_that_ends_makes_room() {
    let chain = limited(json!({ "max": 2 }));
    let (first, second) = (ask(&chain, "192.0.2.7", &[]), ask(&chain, "192.0.2.7", &[]));
    assert_eq!((status(&first.0), status(&second.0)), (200, 200));
    let refused = ask(&chain, "192.0.2.7", &[]);
    assert_eq!((status(&refused.0), status(&ask(&chain, "192.0.2.8", &[]).0)), (429, 200));
    drop(refused);
    assert_eq!(status(&ask(&chain, "192.0.2.7", &[]).0), 429, "what was refused held no place");
    drop(first);
    let third = ask(&chain, "::ffff:192.0.2.7", &[]);
    assert_eq!((status(&third.0), status(&ask(&chain, "192.0.2.7", &[]).0)), (200, 429));
    let mut notes = second.1;
    notes.end(&Ended { status: 200, ..Ended::default() });
    assert_eq!(status(&ask(&chain, "192.0.2.7", &[]).0), 200);
    drop(notes);
    assert_eq!(status(&ask(&chain, "192.0.2.7", &[]).0), 200);
}

#[test]
fn keys_are_networks_or_header_fields() {
    let chain = limited(json!({ "max": 1, "ipv6_prefix": 48 }));
    let _held = ask(&chain, "2001:db8::1", &[]);
    assert_eq!(status(&ask(&chain, "2001:db8:0:1::1", &[]).0), 429);
    assert_eq!(status(&ask(&chain, "2001:db8:1::1", &[]).0), 200);
    let chain = limited(json!({ "max": 1, "key": { "header": "X-Api-Key" }, "status": 503 }));
    let _held = [ask(&chain, "192.0.2.7", &[("x-api-key", "a")]), ask(&chain, "192.0.2.7", &[])];
    assert_eq!(status(&ask(&chain, "192.0.2.8", &[("x-api-key", "a")]).0), 503);
    assert_eq!(status(&ask(&chain, "192.0.2.8", &[("x-api-key", "b")]).0), 200);
    assert_eq!(status(&ask(&chain, "192.0.2.8", &[("x-api-key", "c"), ("x-api-key", "d")]).0), 503);
}

#[test]
fn requests_in_flight_count_on_when_the_configuration_changes() {
    let before = limited(json!({ "max": 2 }));
    let (first, second) = (ask(&before, "192.0.2.7", &[]), ask(&before, "192.0.2.7", &[]));
    let again = |settings| Chain::compile(&uses(&json!([{ "concurrency_limit": settings }])), Some(&before)).unwrap();
    let narrow = again(json!({ "max": 1, "status": 503 }));
    assert_eq!(status(&ask(&narrow, "192.0.2.7", &[]).0), 503);
    drop(first);
    assert_eq!(status(&ask(&narrow, "192.0.2.7", &[]).0), 503);
    drop(second);
    assert_eq!(status(&ask(&narrow, "192.0.2.7", &[]).0), 200);
    let other = again(json!({ "max": 1, "ipv6_prefix": 56 }));
    let _held = ask(&narrow, "192.0.2.7", &[]);
    assert_eq!(status(&ask(&other, "192.0.2.7", &[]).0), 200, "another key begins from zero");
}

#[test]
fn a_request_beyond_the_limit_is_closed_held_back_or_marked() {
    let closing = limited(json!({ "max": 0, "over": "close" }));
    assert_eq!(ask(&closing, "192.0.2.7", &[]).0, Flow::Close);
    let marking = limited(json!({ "max": 1, "over": "mark" }));
    let (within, beyond) = (ask(&marking, "192.0.2.7", &[]), ask(&marking, "192.0.2.7", &[]));
    assert_eq!((&within.0, within.1.limit_status().as_str()), (&Flow::Continue, "passed"));
    assert_eq!((&beyond.0, beyond.1.limit_status().as_str()), (&Flow::Continue, "marked"));
    drop(within);
    assert_eq!(ask(&marking, "192.0.2.7", &[]).1.limit_status(), LimitStatus::Marked, "the one beyond is in flight");
    drop(beyond);
    assert_eq!(ask(&marking, "192.0.2.7", &[]).1.limit_status(), LimitStatus::Passed);
    let tarpit = limited(json!({ "max": 0, "over": { "tarpit": "10s" } }));
    let (world, mut beside) = (World::new(), Beside::new());
    let (mut head, now) = (request("GET", "/", &[]), beside.now);
    let flow = tarpit.on_request(&mut head, &mut beside.turn(&world.facts()));
    assert_eq!(flow, Flow::Need(Need::Until(now + std::time::Duration::from_secs(10))));
    let flow = tarpit.resume(&mut 0, Found::Now, &mut head, &mut beside.turn(&world.facts()));
    assert_eq!(status(&flow), 429);
}

#[test]
fn a_rehearsal_takes_no_place() {
    let chain = limited(json!({ "max": 1 }));
    let (world, mut beside) = (World::new(), Beside::new());
    beside.is_rehearsal = true;
    let mut rehearse = || {
        let flow = chain.on_request(&mut request("GET", "/", &[]), &mut beside.turn(&world.facts()));
        status(&flow)
    };
    assert_eq!((rehearse(), rehearse()), (200, 200));
    let held = ask(&chain, "192.0.2.7", &[]);
    assert_eq!(rehearse(), 429);
    drop(held);
    assert_eq!(rehearse(), 200);
}

#[test]
fn mistakes_are_found_when_the_configuration_is_checked() {
    for (settings, told) in [
        (json!({}), ": missing field `max`"),
        (json!({ "max": 1_000_001 }), "max: 1000001 is more than 1000000 (leave the filter out for no limit)"),
        (json!({ "max": 1, "status": 200 }), "status: 200 is not an error (use 400 to 599)"),
        (
            json!({ "max": 1, "over": { "delay": "1s" } }),
            "over/delay: a request cannot wait for others of its key to end (use `queue` of the cluster, or `rate_limit` with `over: { delay: … }`)",
        ),
        (
            json!({ "max": 1, "over": { "tarpit": "11m" } }),
            "over/tarpit: a request may be held back for at most 10m (use a few seconds)",
        ),
        (
            json!({ "max": 1, "over": "drop" }),
            ": \"drop\" is no action for requests beyond the limit: write refuse, close, mark, { delay: 2s } or { tarpit: 10s }",
        ),
        (
            json!({ "max": 1, "key": "ip" }),
            ": \"ip\" is not a key: write `client`, { header: NAME } or { expression: CEL }",
        ),
        (
            json!({ "max": 1, "ipv6_prefix": 0 }),
            "ipv6_prefix: 0 is not between 1 and 128 (use 64, or 56 or 48 if clients get larger networks)",
        ),
    ] {
        assert_eq!(issue("concurrency_limit", settings), told);
    }
}
