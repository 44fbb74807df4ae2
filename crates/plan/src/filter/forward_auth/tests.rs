//! What the service is asked, and what comes of its responses.

use model::ResponseHead;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, compiled, issue, listed, request, response};
use super::*;

fn step(settings: Value) -> Box<dyn RequestStep> {
    compiled(&ENTRY, &settings).request.unwrap()
}

fn called(flow: Flow) -> Call {
    let Flow::Need(Need::Call(call)) = flow else { panic!("{flow:?} is no call") };
    *call
}

fn apply(step: &dyn RequestStep, head: &mut RequestHead) -> Flow {
    let world = World::new();
    step.apply(head, &mut Beside::new().turn(&world.facts()))
}

fn resume(step: &dyn RequestStep, head: &mut RequestHead, found: Found<'_>) -> Flow {
    let world = World::new();
    step.resume(head, found, &mut Beside::new().turn(&world.facts()))
}

fn reply(head: ResponseHead, body: &str) -> Found<'static> {
    Found::Call(Ok(Box::new(Reply { head, body: body.into() })))
}

const FIELDS: [(&str, &str); 10] = [
    ("host", "shop.example"),
    ("cookie", "a=b"),
    ("x-user", "forged"),
    ("x_user", "forged"),
    ("content-length", "4"),
    ("if-none-match", "\"x\""),
    ("range", "bytes=0-1"),
    ("x-forwarded-uri", "/forged"),
    ("x-original-url", "/forged"),
    ("connection", "close"),
];

#[test]
fn the_call_has_the_request_and_no_field_about_its_body_or_caches() {
    let step = step(json!({ "cluster": "auth", "path": "/verify?a=1", "response_headers": ["X-User"] }));
    let mut head = request("PUT", "/cart?item=1", &FIELDS);
    let call = called(apply(&*step, &mut head));
    assert_eq!((call.head.method_bytes(), call.head.path()), (&b"GET"[..], &b"/verify"[..]));
    assert_eq!((call.head.query(), &*call.body, call.timeout), (Some(&b"a=1"[..]), &b""[..], Duration::from_secs(5)));
    let told = "x-forwarded-uri: /cart?item=1|x-forwarded-method: PUT|x-forwarded-proto: http|\
                x-forwarded-host: shop.example|x-original-uri: /cart?item=1|x-original-method: PUT|\
                x-forwarded-for: 192.0.2.7";
    assert_eq!(listed(&call.head.fields), format!("cookie: a=b|x-user: forged|x_user: forged|{told}"));
    assert_eq!(resume(&*step, &mut head, reply(response(200, &[]), "")), Flow::Continue);
    let left = listed(&head.fields);
    assert!(!left.contains("x-user") && !left.contains("x_user"), "{left}");
}

#[test]
fn only_the_fields_that_are_listed_are_sent_and_the_host_is_that_of_the_settings() {
    let step = step(json!({ "cluster": "auth", "request_headers": ["Accept"], "host": "auth.internal" }));
    let mut head = request("GET", "/", &[("host", "a"), ("accept", "x"), ("cookie", "a=b")]);
    let call = called(apply(&*step, &mut head));
    let fields = listed(&call.head.fields);
    assert!(fields.starts_with("accept: x|host: auth.internal|x-forwarded-method: GET|"), "{fields}");
}

#[test]
fn a_2xx_lets_the_request_pass_with_the_fields_of_the_response() {
    let step = step(json!({ "cluster": "auth", "response_headers": ["x-user"] }));
    let mut head = request("GET", "/", &[("x-user", "forged")]);
    apply(&*step, &mut head);
    let found = reply(response(204, &[("X-User", "ann"), ("x-user", "bob"), ("x-other", "1")]), "");
    assert_eq!(resume(&*step, &mut head, found), Flow::Continue);
    assert_eq!(listed(&head.fields), "x-user: ann|x-user: bob");
}

#[test]
fn any_other_response_below_500_goes_to_the_client() {
    let step = step(json!({ "cluster": "auth" }));
    let sent = [("Location", "/login"), ("content-length", "2"), ("connection", "close"), ("set-cookie", "a=b")];
    let flow = resume(&*step, &mut request("GET", "/", &[]), reply(response(302, &sent), "go"));
    let fields = [("Location", "/login"), ("set-cookie", "a=b")].map(|(name, value)| (name.into(), value.into()));
    let body = b"go".to_vec();
    assert_eq!(flow, Flow::Respond(Box::new(LocalResponse { status: 302, fields: fields.into(), body })));
}

#[test]
fn a_failure_is_denied_unless_the_settings_allow_it() {
    let failures = || [reply(response(500, &[]), ""), Found::Call(Err(model::Fault::ConnectFailed)), Found::Now];
    for (settings, expected) in [
        (json!({ "cluster": "auth" }), Flow::refuse(503, "the authorization service is not available")),
        (json!({ "cluster": "auth", "on_failure": "allow" }), Flow::Continue),
    ] {
        let step = step(settings);
        for failure in failures() {
            assert_eq!(resume(&*step, &mut request("GET", "/", &[]), failure), expected);
        }
    }
}

#[test]
fn a_body_is_asked_for_first_and_then_sent() {
    let step = step(json!({ "cluster": "auth", "body_max": "1KiB" }));
    let mut head = request("PUT", "/", &[]);
    assert_eq!(apply(&*step, &mut head), Flow::Need(Need::Body { max: 1024 }));
    let call = called(resume(&*step, &mut head, Found::Body(Ok(&Arc::from(*b"body")))));
    assert_eq!((call.head.method_bytes(), &*call.body), (&b"POST"[..], &b"body"[..]));
    assert_eq!(called(resume(&*step, &mut head, Found::Body(Ok(&Arc::from([]))))).head.method_bytes(), b"GET");
    let flow = resume(&*step, &mut head, Found::Body(Err(super::super::TooLong)));
    assert_eq!(flow, Flow::refuse(413, "the request's body is too large to be authorized"));
}

#[test]
fn bad_settings_are_issues_with_their_place() {
    for (more, expected) in [
        (
            json!({ "path": "verify" }),
            "path: `verify` is not a path (write one such as `/verify`, without variables: the request is in `x-forwarded-uri`)",
        ),
        (
            json!({ "path": "/a b" }),
            "path: `/a b` is not a path (write one such as `/verify`, without variables: the request is in `x-forwarded-uri`)",
        ),
        (json!({ "host": "a/b" }), "host: `a/b` is not a host (write one such as `auth.internal`)"),
        (
            json!({ "body_max": "17MiB" }),
            "body_max: 17825792 bytes are not between 1 byte and 16MiB (write a size such as 64KiB, or leave `body_max` out)",
        ),
        (
            json!({ "body_max": 0 }),
            "body_max: 0 bytes are not between 1 byte and 16MiB (write a size such as 64KiB, or leave `body_max` out)",
        ),
    ] {
        let mut settings = json!({ "cluster": "auth" });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(issue("forward_auth", settings), expected);
    }
    for (key, list, expected) in [
        ("response_headers", ["a", "Host"], "response_headers/1: `Host` cannot be changed by a filter"),
        ("request_headers", ["a", "Host"], "request_headers/1: calls have their own `host`"),
        (
            "request_headers",
            ["a", "content-length"],
            "request_headers/1: `content-length` cannot be changed by a filter",
        ),
        (
            "response_headers",
            ["a", "x-*"],
            "response_headers/1: `x-*` is a pattern, and `response_headers` takes complete names",
        ),
        ("response_headers", ["a", "A"], "response_headers/1: `A` is listed twice"),
    ] {
        let found = issue("forward_auth", json!({ "cluster": "auth", key: list }));
        assert!(found.starts_with(expected), "{found}");
    }
}
