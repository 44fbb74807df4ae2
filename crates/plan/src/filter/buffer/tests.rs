use serde_json::json;

use super::super::testing::{Beside, World, compiled, issue, request, response};
use super::*;

fn flow(settings: serde_json::Value, fields: &[(&str, &str)], version: Version) -> Flow {
    let steps = compiled(&ENTRY, &settings);
    let (world, mut beside) = (World::new(), Beside::new());
    let mut head = request("PUT", "/", fields);
    head.version = version;
    steps.request.unwrap().apply(&mut head, &mut beside.turn(&world.facts()))
}

#[test]
fn bodies_are_asked_for_and_those_that_are_known_to_be_too_long_are_refused() {
    let asks = |fields, version| match flow(json!({ "request": "1KiB" }), fields, version) {
        Flow::Need(Need::Hold(hold)) => {
            assert_eq!((hold.memory, hold.request_max(), hold.within), (1_024, 1_024, HELD_BODY_TIME));
            true
        }
        Flow::Continue => false,
        other => panic!("{other:?}"),
    };
    assert!(asks(&[("content-length", "1024")], Version::Http11));
    assert!(asks(&[("transfer-encoding", "chunked")], Version::Http11));
    assert!(asks(&[], Version::Http2), "a stream may have one that says no length");
    assert!(!asks(&[], Version::Http11));
    assert!(!asks(&[("content-length", "0")], Version::Http11));
    let refused = Flow::refuse(413, "the body is too long");
    for version in [Version::Http11, Version::Http3] {
        assert_eq!(flow(json!({ "request": "1KiB" }), &[("content-length", "1025")], version), refused);
    }
}

#[test]
fn a_spool_takes_longer_bodies_up_to_its_bound() {
    let settings = || json!({ "request": "1KiB", "spool": { "directory": "/tmp", "body_max": "64KiB" } });
    let fits = flow(settings(), &[("content-length", "65536")], Version::Http11);
    assert!(matches!(fits, Flow::Need(Need::Hold(hold)) if hold.request_max() == 65_536));
    let refused = Flow::refuse(413, "the body is too long");
    assert_eq!(flow(settings(), &[("content-length", "65537")], Version::Http11), refused);
}

#[test]
fn responses_of_endpoints_are_held_and_no_others() {
    let steps = compiled(&ENTRY, &json!({ "response": "64KiB" }));
    assert!(steps.request.is_none());
    let step = steps.response_body.unwrap();
    let (world, mut beside) = (World::new(), Beside::new());
    let (facts, asked) = (world.facts(), request("GET", "/", &[]));
    let mut begin = |source, extent| {
        let view = ResponseView { source, ..world.view(&asked) };
        step.begin(&mut response(200, &[]), &view, extent, &mut beside.turn(&facts)).map(|(_, behind)| behind)
    };
    assert_eq!(begin(ResponseSource::Endpoint, Extent::Unknown), Some(Extent::Unknown));
    assert_eq!(begin(ResponseSource::Endpoint, Extent::Known(7)), Some(Extent::Known(7)));
    for extent in [Extent::Absent, Extent::Known(0)] {
        assert_eq!(begin(ResponseSource::Endpoint, extent), None);
    }
    assert_eq!(begin(ResponseSource::Local(None), Extent::Known(7)), None);
}

#[test]
fn settings_that_cannot_be_meant_are_issues() {
    let spool = |more: serde_json::Value| {
        let mut spool = json!({ "directory": "/tmp" });
        spool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "response": "64KiB", "spool": spool })
    };
    for (settings, told) in [
        (json!({}), "neither `request` nor `response` is set"),
        (json!({ "request": "0" }), "request: 0 bytes are not from 1 byte to 16MiB"),
        (json!({ "request": "17MiB" }), "request: 17825792 bytes are not from 1 byte to 16MiB"),
        (json!({ "request": "8GiB" }), "are not from 1 byte to 16MiB"),
        (json!({ "request": "1KiB", "request_timeout": "25h" }), "request_timeout: more than 24h"),
        (json!({ "response": "64KiB", "request_timeout": "1m" }), "`request_timeout` has no effect without `request`"),
        (json!({ "request": "1KiB", "memory_max": "1MiB" }), "`memory_max` has no effect without `response`"),
        (json!({ "response": "63KiB" }), "response: 64512 bytes are not from 64KiB to 64MiB"),
        (json!({ "response": "65MiB" }), "are not from 64KiB to 64MiB"),
        (json!({ "response": "1MiB", "memory_max": "64KiB" }), "memory_max: less than `response`"),
        (
            json!({ "response": "64KiB", "spool": { "directory": "spool" } }),
            "spool/directory: `spool` is not an absolute",
        ),
        (spool(json!({ "body_max": "1KiB" })), "spool/body_max: 1024 bytes are not from 64KiB"),
        (spool(json!({ "body_max": "1MiB", "total_max": "64KiB" })), "spool/total_max: less than `body_max`"),
    ] {
        let issue = issue("buffer", settings);
        assert!(issue.contains(told), "{issue}");
    }
}
