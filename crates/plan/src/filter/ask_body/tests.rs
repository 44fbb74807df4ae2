//! When a body is asked for, and what becomes of what is found.

use model::ResponseHead;
use model::filter::FilterUse;
use model::matching::{Match, PathMatch, When};
use serde_json::{Value, json};

use super::super::seen_body::JSON_MAX;
use super::super::testing::{Beside, World, request, response, returned_with};
use super::super::{Chain, LocalResponse};
use super::*;
use crate::json::Path;

const LENGTH: &[(&str, &str)] = &[("content-length", "9")];
const ASKED: Flow = Flow::Need(Need::Beginning { max: BODY_SEEN_MAX, wants_part: false });

/// A condition as `when` writes it.
fn when(written: &Value) -> When {
    let text = |key: &str| written[key].as_str().map(str::to_owned);
    let list = |key: &str| written[key].as_array().map_or(Vec::new(), |list| list.iter().map(when).collect());
    When {
        matches: Match { expression: text("expression"), path: text("path").map(PathMatch::Exact), ..Match::default() },
        statuses: written["status"].as_u64().map(|status| status.to_string().parse().unwrap()).into_iter().collect(),
        any: list("any"),
        all: list("all"),
        not: written.get("not").map(|not| Box::new(when(not))),
        ..When::default()
    }
}

/// The chain of filters, each with its `when`.
fn chain(filters: Value) -> Chain {
    let one = |filter: &Value| {
        let settings = filter.as_object().unwrap().iter().find(|(key, _)| *key != "when").unwrap();
        FilterUse {
            name: settings.0.clone(),
            settings: settings.1.clone(),
            when: filter.get("when").map(when),
            calls: Vec::new(),
        }
    };
    let uses: Vec<FilterUse> = filters.as_array().unwrap().iter().map(one).collect();
    Chain::compile(&uses, None).unwrap()
}

/// What a chain does to a request, and to its body if it asks for it.
fn flow(chain: &Chain, head: &mut RequestHead, beside: &mut Beside, body: &[u8]) -> (bool, Flow) {
    let world = World::new();
    let (mut place, facts) = (0, world.facts());
    let flow = chain.on_request_from(&mut place, head, &mut beside.turn(&facts));
    if flow != ASKED {
        return (false, flow);
    }
    let body = Arc::from(body);
    let found = Found::Beginning(Beginning::Whole(&body));
    (true, chain.resume(&mut place, found, head, &mut beside.turn(&facts)))
}

fn deny(when: &Value) -> Chain {
    chain(json!([{ "deny": { "status": 403 }, "when": when }]))
}

fn refused(flow: &Flow) -> bool {
    matches!(flow, Flow::Respond(local) if matches!(**local, LocalResponse { status: 403, .. }))
}

#[test]
fn a_condition_asks_for_the_body_only_if_it_decides() {
    let body = br#"{"a":"1"}"#;
    let json = json!({ "expression": "request.body.json.a == \"1\"" });
    let slash = json!({ "expression": "request.path == \"/\" && request.body.json.a == \"1\"" });
    for (when, target, fields, is_asked, is_refused) in [
        (&json, "/", LENGTH, true, true),
        (&json, "/", &[][..], false, false),
        (&json, "/", &[("content-length", "0")], false, false),
        (&json, "/", &[("transfer-encoding", "chunked")], true, true),
        (&json, "/", &[("content-length", "9"), ("Content-Encoding", "gzip")], false, false),
        (&json, "/", &[("content-length", "9"), ("Content-Encoding", "Identity")], true, true),
        (&json, "/", &[("content-length", "9"), ("Content-Encoding", "")], true, true),
        (&json, "/", &[("content-length", "9"), ("Content-Encoding", "identity, ,Identity")], true, true),
        (&json, "/", &[("content-length", "9"), ("Content-Encoding", "identity, br")], false, false),
        (&slash, "/", LENGTH, true, true),
        (&slash, "/x", LENGTH, false, false),
        (&json!({ "path": "/y", "expression": "request.body.contains(\"a\")" }), "/x", LENGTH, false, false),
        (&json!({ "any": [{ "path": "/x" }, json.clone()] }), "/x", LENGTH, false, true),
        (&json!({ "any": [{ "path": "/x" }, json.clone()] }), "/y", LENGTH, true, true),
        (&json!({ "not": json.clone() }), "/", LENGTH, true, false),
        (&json!({ "not": json.clone() }), "/", &[], false, true),
    ] {
        let (asked, flow) = flow(&deny(when), &mut request("POST", target, fields), &mut Beside::new(), body);
        assert_eq!((asked, refused(&flow)), (is_asked, is_refused), "{when} {target} {fields:?}");
    }
}

#[test]
fn a_body_that_cannot_be_read_has_no_value_and_is_asked_for_once() {
    let filters = json!([
        { "set_request_header": { "x-a": { "expression": "request.body.json.a.orValue(\"none\")" } } },
        { "set_request_header": { "x-b": { "expression": "request.body.orValue(\"none\")" } } },
    ]);
    let chain = chain(filters);
    let world = World::new();
    let facts = world.facts();
    for found in [Beginning::Unread, Beginning::Part(b"{\"a\":1}"), Beginning::Whole(&Arc::from(&b""[..]))] {
        let (mut head, mut beside, mut place) = (request("POST", "/", LENGTH), Beside::new(), 0);
        assert_eq!(chain.on_request_from(&mut place, &mut head, &mut beside.turn(&facts)), ASKED);
        let flow = chain.resume(&mut place, Found::Beginning(found), &mut head, &mut beside.turn(&facts));
        assert_eq!(flow, Flow::Continue, "{found:?}");
        for name in ["x-a", "x-b"] {
            assert_eq!(head.fields.get(&model::FieldName::new(name).unwrap()), Some(&b"none"[..]));
        }
    }
}

#[test]
fn a_filter_with_needs_of_its_own_gets_what_it_has_asked_for() {
    // The condition holds without the body, and the step asks for another part of the same body.
    let when = json!({ "expression": "request.path == \"/\" || has(request.body.json.a)" });
    let settings = json!({ "cluster": "auth", "body_max": "1KiB", "allow_partial": true });
    let chain = chain(json!([{ "ext_authz": settings, "when": when }]));
    let world = World::new();
    let facts = world.facts();
    let (mut head, mut beside, mut place) = (request("POST", "/", LENGTH), Beside::new(), 0);
    let flow = chain.on_request_from(&mut place, &mut head, &mut beside.turn(&facts));
    assert_eq!(flow, Flow::Need(Need::Beginning { max: 1024, wants_part: true }));
    let found = Found::Beginning(Beginning::Part(b"abc"));
    let flow = chain.resume(&mut place, found, &mut head, &mut beside.turn(&facts));
    assert!(matches!(flow, Flow::Need(Need::Grpc(_))), "{flow:?}");
    let (mut head, mut beside, mut place) = (request("POST", "/x", LENGTH), Beside::new(), 0);
    assert_eq!(chain.on_request_from(&mut place, &mut head, &mut beside.turn(&facts)), ASKED);
    let body = Arc::from(&br#"{"a":1}"#[..]);
    let found = Found::Beginning(Beginning::Whole(&body));
    let flow = chain.resume(&mut place, found, &mut head, &mut beside.turn(&facts));
    assert_eq!(flow, Flow::Need(Need::Beginning { max: 1024, wants_part: true }));
}

/// Has a filter of responses act on a request with the body `{"a":"1"}`, and compares the field `x-a` of its response.
fn check_response(filter: &Value, status: u16, wanted: Option<&str>) {
    let chain = chain(json!([filter]));
    let (mut head, mut beside) = (request("POST", "/", LENGTH), Beside::new());
    let (asked, flow) = flow(&chain, &mut head, &mut beside, br#"{"a":"1"}"#);
    assert_eq!((asked, flow), (true, Flow::Continue), "{filter}");
    let head: ResponseHead = returned_with(&chain, &mut (head, beside), response(status, &[]));
    let found = head.fields.get(&model::FieldName::new("x-a").unwrap());
    assert_eq!(found, wanted.map(str::as_bytes), "{filter} {status}");
}

#[test]
fn a_condition_on_the_response_and_the_body_has_the_body_read_with_the_request() {
    let holds = json!({ "expression": "request.body.json.a == \"1\"" });
    let fails = json!({ "expression": "request.body.json.a == \"2\"" });
    let code = json!({ "expression": "response.code == 404" });
    let status = json!({ "status": 404 });
    for (when, at_404, at_200) in [
        (json!({ "status": 404, "expression": holds["expression"] }), true, false),
        (json!({ "status": 404, "expression": fails["expression"] }), false, false),
        (json!({ "status": 404, "not": holds }), false, false),
        (json!({ "status": 404, "not": fails }), true, false),
        (json!({ "all": [status, holds] }), true, false),
        (json!({ "all": [status, fails] }), false, false),
        (json!({ "all": [code, holds] }), true, false),
        (json!({ "all": [code, fails] }), false, false),
        (json!({ "any": [{ "not": status }, holds] }), true, true),
        (json!({ "any": [{ "not": status }, fails] }), false, true),
    ] {
        let filter = json!({ "set_response_header": { "x-a": "yes" }, "when": when });
        check_response(&filter, 404, at_404.then_some("yes"));
        check_response(&filter, 200, at_200.then_some("yes"));
    }
}

#[test]
fn a_filter_of_responses_has_the_body_read_with_the_request() {
    let value = json!({ "x-a": { "expression": "request.body.json.a" } });
    let of_both = json!({ "expression": "response.code == 200 && has(request.body.json.a)" });
    for (filter, status, wanted) in [
        (json!({ "set_response_header": value }), 200, Some("1")),
        (json!({ "set_response_header": value, "when": { "path": "/" } }), 200, Some("1")),
        (json!({ "set_response_header": value, "when": { "status": 404 } }), 404, Some("1")),
        (json!({ "set_response_header": value, "when": { "status": 404 } }), 200, None),
        (json!({ "set_response_header": { "x-a": "yes" }, "when": of_both }), 200, Some("yes")),
        (json!({ "set_response_header": { "x-a": "yes" }, "when": of_both }), 500, None),
    ] {
        check_response(&filter, status, wanted);
    }
    let elsewhere = chain(json!([{ "set_response_header": value, "when": { "path": "/" } }]));
    let mut head = request("POST", "/other", LENGTH);
    assert!(!flow(&elsewhere, &mut head, &mut Beside::new(), b"").0, "it does not act there");
}

#[test]
fn a_body_that_is_held_since_is_looked_at_again() {
    let value = json!({ "x-a": { "expression": "request.body.json.a.orValue(\"none\")" } });
    let add = json!({ "add_request_header": value });
    let chain = chain(json!([add, { "buffer": { "request": "1MiB" } }, add, add]));
    let world = World::new();
    let facts = world.facts();
    let (mut head, mut beside, mut place) = (request("POST", "/", LENGTH), Beside::new(), 0);
    assert_eq!(chain.on_request_from(&mut place, &mut head, &mut beside.turn(&facts)), ASKED);
    let unread = Found::Beginning(Beginning::Unread);
    let flow = chain.resume(&mut place, unread, &mut head, &mut beside.turn(&facts));
    assert!(matches!(flow, Flow::Need(Need::Hold(_))), "{flow:?}");
    beside.notes.note_body_held();
    assert_eq!(chain.resume(&mut place, Found::Now, &mut head, &mut beside.turn(&facts)), ASKED);
    let body = Arc::from(&br#"{"a":"1"}"#[..]);
    let whole = Found::Beginning(Beginning::Whole(&body));
    assert_eq!(chain.resume(&mut place, whole, &mut head, &mut beside.turn(&facts)), Flow::Continue);
    let values: Vec<_> = head.fields.iter().filter(|field| field.name == b"x-a").map(|field| field.value).collect();
    assert_eq!(values, [&b"none"[..], b"1", b"1"]);
    beside.notes.note_body_held();
    assert!(matches!(beside.notes.body, SeenBody::Held(_)), "what was found stays");
}

#[test]
fn the_json_of_a_long_body_is_not_parsed() {
    for (length, wanted) in [(JSON_MAX, true), (JSON_MAX + 1, false)] {
        let mut body = br#"{"a":"1"}"#.to_vec();
        body.resize(length, b' ');
        let body = SeenBody::held(body.into());
        assert_eq!(body.find(&Path::Name("a".into())).is_some(), wanted, "{length}");
        assert_eq!(body.bytes().map(<[u8]>::len), Some(length));
    }
}
