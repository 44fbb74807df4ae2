use serde_json::{Value, json};

use super::super::Chain;
use super::super::testing::{Beside, World, chain, issue, listed, passed_with, request, uses};
use super::*;

fn mirror(settings: Value) -> (Chain, Arc<Mirror>) {
    let chain = chain(json!([{ "mirror": settings }]));
    let (_, mut beside) = passed_with(&chain, request("GET", "/", &[]));
    let mirror = beside.notes.mirrors.pop().expect("it is copied");
    (chain, mirror)
}

fn counted(chain: &Chain) -> Vec<u64> {
    chain.counted().iter().map(super::super::Counted::count).collect()
}

#[test]
fn a_share_of_the_requests_is_noted_and_tunnels_never_are() {
    let noted = |settings: Value, method: &str| {
        let (_, beside) = passed_with(&chain(json!([{ "mirror": settings }])), request(method, "/", &[]));
        beside.notes.mirrors.len()
    };
    assert_eq!(noted(json!({ "cluster": "a" }), "POST"), 1);
    assert_eq!(noted(json!({ "cluster": "a", "share": "0%" }), "GET"), 0);
    // What is drawn in these tests is 7, in a million.
    assert_eq!(noted(json!({ "cluster": "a", "share": "0.0008%" }), "GET"), 1);
    assert_eq!(noted(json!({ "cluster": "a", "share": "0.0007%" }), "GET"), 0);
    assert_eq!(noted(json!({ "cluster": "a" }), "CONNECT"), 0);
    let two = chain(json!([{ "mirror": { "cluster": "a" } }, { "mirror": { "cluster": "b" } }]));
    let (_, mut beside) = passed_with(&two, request("GET", "/", &[]));
    let places: Vec<_> = beside.notes.mirrors.iter().map(|mirror| mirror.cluster.place()).collect();
    assert_eq!(places, [0, 1]);
    beside.notes.clear();
    assert!(beside.notes.mirrors.is_empty());
}

#[test]
fn copies_in_progress_and_their_bytes_are_bounded_and_given_back() {
    let settings =
        json!({ "cluster": "a", "requests_max": 2, "body_max": "64KiB", "lag_max": "64KiB", "memory_max": "96KiB" });
    let (chain, mirror) = mirror(settings);
    let (first, second) = (mirror.begin(None).expect("room"), mirror.begin(Some(64 << 10)).expect("room"));
    assert!(mirror.begin(None).is_none() && mirror.begin(Some((64 << 10) + 1)).is_none());
    first.end(MirrorEnd::Dropped);
    mirror.begin(None).expect("room again").end(MirrorEnd::Failed);
    drop(second);
    assert_eq!(counted(&chain), [3, 2, 1, 1]);
    assert!(mirror.take_room(0, 0, 64 << 10) && !mirror.take_room(0, 64 << 10, 1), "no more of one copy");
    assert!(mirror.take_room(0, 0, 32 << 10) && !mirror.take_room(0, 32 << 10, 1), "no more of all");
    mirror.give_room(64 << 10);
    assert!(mirror.take_room(0, 32 << 10, 1));
    // A plan that follows counts on.
    let again = Chain::compile(&uses(&json!([{ "mirror": { "cluster": "b" } }])), Some(&chain)).unwrap();
    assert_eq!(counted(&again), [3, 2, 1, 1]);
}

#[test]
fn a_body_of_unknown_length_is_copied_up_to_the_bound() {
    let (_, mirror) = mirror(json!({ "cluster": "a", "body_max": 100 }));
    let _place = mirror.begin(None).expect("room");
    assert!(mirror.take_room(0, 0, 60) && mirror.take_room(60, 0, 40));
    assert!(!mirror.take_room(60, 0, 41) && !mirror.take_room(100, 0, 1) && !mirror.take_room(u64::MAX, 0, 1));
}

#[test]
fn the_head_of_a_copy_is_that_of_the_request_but_for_what_is_set() {
    let settings = json!({ "cluster": "a", "host": "shadow", "set_headers": { "x-shadow": "{method}" } });
    let (_, mirror) = mirror(settings);
    let mut head = request("PUT", "/x", &[("host", "www"), ("expect", "100-continue"), ("X_Shadow", "no"), ("a", "b")]);
    let (world, mut beside) = (World::new(), Beside::new());
    mirror.fit(&mut head, &mut beside.turn(&world.facts()));
    assert_eq!(listed(&head.fields), "host: shadow|a: b|x-shadow: PUT");
}

#[test]
fn wrong_settings_are_issues_with_their_place() {
    for (settings, said) in [
        (json!({}), "missing field `cluster`"),
        (json!({ "cluster": "a", "share": "x" }), "share: `x` is not a share"),
        (json!({ "cluster": "a", "host": "a b" }), "host: `a b` is not a host"),
        (json!({ "cluster": "a", "set_headers": { "connection": "x" } }), "set_headers/connection: "),
        (json!({ "cluster": "a", "requests_max": 0 }), "requests_max: 0 is not from 1 to 100,000"),
        (json!({ "cluster": "a", "timeout": "25h" }), "timeout: more than 24h"),
        (json!({ "cluster": "a", "lag_max": "1KiB" }), "lag_max: less than 64KiB"),
        (json!({ "cluster": "a", "memory_max": "100KiB" }), "memory_max: less than `lag_max`"),
    ] {
        let told = issue("mirror", settings.clone());
        assert!(told.contains(said), "{settings}: {told}");
    }
}
