use serde_json::{Value, json};

use super::super::testing::{World, chain, flow_of, issue, request};
use super::*;

fn answer(settings: Value) -> Option<LocalResponse> {
    let chain = chain(json!([{ "maintenance": settings }]));
    match flow_of(&chain, &mut request("GET", "/", &[]), &World::new().facts()) {
        Flow::Respond(answer) => Some(*answer),
        Flow::Continue => None,
        other => panic!("{other:?}"),
    }
}

fn file(text: &str) -> Value {
    json!({ "name": "switch.txt", "text": text })
}

#[test]
fn a_switch_says_whether_requests_are_answered_here() {
    for (settings, is_on) in [
        (json!({ "on": true }), true),
        (json!({ "on": false }), false),
        (json!({ "file": file("on\n") }), true),
        (json!({ "file": file("  on since noon") }), true),
        (json!({ "file": file("off") }), false),
        (json!({ "file": file("") }), false),
    ] {
        assert_eq!(answer(settings.clone()).is_some(), is_on, "{settings}");
    }
}

#[test]
fn the_page_says_when_to_come_again_and_some_clients_pass() {
    let told = answer(json!({ "on": true, "retry_after": "90s500ms" })).expect("it is on");
    assert_eq!((told.status, told.body.as_slice()), (503, &b"down for maintenance\n"[..]));
    assert_eq!(told.fields[2], ("retry-after".to_owned(), "91".to_owned()));
    let page = json!({ "name": "page.html", "text": "<h1>soon</h1>" });
    let told = answer(json!({ "on": true, "page": page, "status": 500 })).expect("it is on");
    assert_eq!((told.status, told.body.as_slice()), (500, &b"<h1>soon</h1>"[..]));
    assert_eq!(told.fields[0].1, "text/html; charset=utf-8");
    assert_eq!(told.fields[1].1, "no-store");
    // The client of these tests is 192.0.2.7.
    assert!(answer(json!({ "on": true, "except": ["10.0.0.0/8", "192.0.2.0/24"] })).is_none());
    assert!(answer(json!({ "on": true, "except": ["192.0.2.8"] })).is_some());
}

#[test]
fn wrong_settings_are_issues_with_their_place() {
    for (settings, said) in [
        (json!({}), "exactly one of `on` and `file` is needed"),
        (json!({ "on": true, "file": file("on") }), "exactly one of `on` and `file` is needed"),
        (json!({ "file": file("yes") }), "file: `switch.txt` begins with `yes`"),
        (json!({ "on": true, "status": 200 }), "status: 200 is not an error status"),
        (json!({ "on": true, "except": ["10.0.0.0/8", "x"] }), "except/1: "),
        (json!({ "on": true, "content_type": "a/b" }), "content_type: `content_type` has no effect without `page`"),
    ] {
        let told = issue("maintenance", settings.clone());
        assert!(told.contains(said), "{settings}: {told}");
    }
}
