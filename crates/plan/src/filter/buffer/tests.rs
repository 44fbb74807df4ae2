use std::sync::Arc;

use serde_json::json;

use super::super::TooLong;
use super::super::testing::{Beside, World, compiled, issue, request};
use super::*;

fn flow(fields: &[(&str, &str)], version: Version) -> Flow {
    let steps = compiled(&ENTRY, &json!({ "request": "1KiB" }));
    let (world, mut beside) = (World::new(), Beside::new());
    let mut head = request("PUT", "/", fields);
    head.version = version;
    steps.request.unwrap().apply(&mut head, &mut beside.turn(&world.facts()))
}

#[test]
fn bodies_are_asked_for_and_those_that_are_known_to_be_too_long_are_refused() {
    let need = Flow::Need(Need::Body { max: 1_024 });
    assert_eq!(flow(&[("content-length", "1024")], Version::Http11), need);
    assert_eq!(flow(&[("transfer-encoding", "chunked")], Version::Http11), need);
    assert_eq!(flow(&[], Version::Http2), need, "a stream may have one that says no length");
    assert_eq!(flow(&[], Version::Http11), Flow::Continue);
    assert_eq!(flow(&[("content-length", "0")], Version::Http11), Flow::Continue);
    for version in [Version::Http11, Version::Http3] {
        assert_eq!(flow(&[("content-length", "1025")], version), Flow::refuse(413, "the body is too long"));
    }
}

#[test]
fn the_request_goes_on_whatever_was_found() {
    let steps = compiled(&ENTRY, &json!({ "request": "1KiB" }));
    let (world, mut beside) = (World::new(), Beside::new());
    let (facts, body) = (world.facts(), Arc::from(&b"body"[..]));
    let step = steps.request.unwrap();
    for found in [Found::Body(Ok(&body)), Found::Body(Err(TooLong))] {
        let mut head = request("PUT", "/", &[]);
        assert_eq!(step.resume(&mut head, found, &mut beside.turn(&facts)), Flow::Continue);
    }
}

#[test]
fn sizes_beyond_what_a_step_may_ask_for_are_issues() {
    for size in ["0", "17MiB", "8GiB"] {
        let told = issue("buffer", json!({ "request": size }));
        assert!(told.contains("request: ") && told.contains("are not from 1 byte to 16MiB"), "{told}");
    }
    assert!(issue("buffer", json!({})).contains("missing field `request`"));
}
