//! What the service gets, and what comes of its answers.

use std::sync::Arc;

use model::protobuf::{Reader, Writer};
use model::{ResponseHead, Version};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, compiled, issue, listed, request, response};
use super::super::{Call, Notes, Reply};
use super::*;

fn called(flow: Flow) -> Call {
    let Flow::Need(Need::Grpc(call)) = flow else { panic!("{flow:?} is no call") };
    *call
}

/// The first message or text at the end of these numbers.
fn at<'a>(message: &'a [u8], path: &[u32]) -> &'a [u8] {
    path.iter().fold(message, |message, number| {
        let mut fields = Reader::new(message).map(|field| field.expect("a message"));
        fields.find(|(field, _)| field == number).and_then(|(_, value)| value.bytes()).unwrap_or_default()
    })
}

/// The entries of a map.
fn entries(message: &[u8], field: u32) -> Vec<String> {
    let all = Reader::new(message).map(|field| field.expect("a message")).filter(|(number, _)| *number == field);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    all.map(|(_, value)| value.bytes().unwrap())
        .map(|one| format!("{}={}", text(at(one, &[1])), text(at(one, &[2]))))
        .collect()
}

const HTTP: [u32; 3] = [1, 4, 2];

fn question(settings: &Value, mut head: RequestHead, facts: &model::Facts<'_>) -> Call {
    let step = compiled(&ENTRY, settings).request.unwrap();
    called(step.apply(&mut head, &mut Beside::new().turn(facts)))
}

#[test]
fn the_call_has_the_request_by_the_numbers_of_envoy() {
    let fields = [
        ("host", "shop.example"),
        ("Cookie", "a=1"),
        ("x-many", "1"),
        ("X-Many", "2"),
        ("cookie", "b=2"),
        ("connection", "close"),
        ("x-bytes", "\u{e9}"),
    ];
    let call = question(
        &json!({ "cluster": "auth", "timeout": "1s" }),
        request("GET", "/a?b=c", &fields),
        &World::new().facts(),
    );
    assert_eq!((call.head.method_bytes(), call.head.path()), (&b"POST"[..], CHECK.as_bytes()));
    assert_eq!(call.timeout, Duration::from_secs(1));
    let (prefix, message) = call.body.split_at(5);
    assert_eq!(prefix, [&[0][..], &(message.len() as u32).to_be_bytes()].concat());
    let http = at(message, &HTTP);
    let texts = [1, 2, 4, 5, 6, 10].map(|field| String::from_utf8(at(http, &[field]).to_vec()).unwrap());
    assert_eq!(texts, ["id-1", "GET", "/a?b=c", "shop.example", "http", "HTTP/1.1"]);
    let headers = [
        ":authority=shop.example",
        ":method=GET",
        ":path=/a?b=c",
        ":scheme=http",
        "cookie=a=1; b=2",
        "x-many=1,2",
        "x-bytes=\u{e9}",
    ];
    assert_eq!(entries(http, 3), headers);
    assert_eq!(at(message, &[1, 1, 1, 1, 2]), b"192.0.2.7");
    assert_eq!(at(message, &[1, 2, 1, 1, 2]), b"127.0.0.1");
    // Seconds since 1970.
    assert_eq!(at(message, &[1, 4, 1]), [0x08, 0x80, 0xa8, 0xd6, 0xb9, 0x07]);
    assert_eq!(at(message, &[1, 1, 4]), b"", "without a certificate there is no principal");
}

#[test]
fn only_the_fields_that_are_listed_are_sent_beside_those_of_the_request_line() {
    let settings =
        json!({ "cluster": "auth", "request_headers": ["Accept"], "extensions": { "user": "{user}", "b": "2" } });
    let head = request("GET", "/", &[("host", "a"), ("accept", "x"), ("cookie", "a=b")]);
    let call = question(&settings, head, &World::new().tls_facts());
    let message = &call.body[5..];
    assert_eq!(entries(at(message, &HTTP), 3)[4..], ["accept=x"]);
    assert_eq!(entries(at(message, &[1]), 10), ["user=", "b=2"]);
    assert_eq!(at(message, &[1, 1, 4]), b"spiffe://a.example/b");
    assert_eq!(at(message, &[1, 12, 1]), b"shop.example.com");
}

#[test]
fn the_body_is_sent_as_text_or_as_bytes_and_its_size_is_told() {
    for (raw, field) in [(false, 11), (true, 12)] {
        let settings = json!({ "cluster": "auth", "body_max": "1KiB", "body_as_bytes": raw });
        let step = compiled(&ENTRY, &settings).request.unwrap();
        let (world, mut head, mut beside) = (World::new(), request("PUT", "/", &[]), Beside::new());
        let facts = world.facts();
        assert_eq!(step.apply(&mut head, &mut beside.turn(&facts)), Flow::Need(Need::Body { max: 1024 }));
        let body = Arc::from(&b"a\xffb"[..]);
        let call = called(step.resume(&mut head, Found::Body(Ok(&body)), &mut beside.turn(&facts)));
        let expected = if raw { &b"a\xffb"[..] } else { b"a!b" };
        assert_eq!(at(&call.body[5..], &[1, 4, 2, field]), expected);
        assert!(entries(at(&call.body[5..], &HTTP), 3).contains(&"x-envoy-auth-partial-body=false".to_owned()));
        let flow = step.resume(&mut head, Found::Body(Err(super::super::TooLong)), &mut beside.turn(&facts));
        assert_eq!(flow, Flow::refuse(413, "the request's body is too large to be authorized"));
    }
}

#[test]
fn the_beginning_of_a_body_is_sent_where_that_is_allowed() {
    let settings = json!({ "cluster": "auth", "body_max": 4, "allow_partial": true });
    let step = compiled(&ENTRY, &settings).request.unwrap();
    let (world, mut head) = (World::new(), request("PUT", "/", &[("content-length", "77")]));
    let facts = world.facts();
    let mut beside = Beside::new();
    let wanted = Flow::Need(Need::Beginning { max: 4, wants_part: true });
    assert_eq!(step.apply(&mut head, &mut beside.turn(&facts)), wanted);
    let mut told = |found: Beginning<'_>| {
        let call = called(step.resume(&mut head, Found::Beginning(found), &mut beside.turn(&facts)));
        let http = at(&call.body[5..], &HTTP).to_vec();
        let size = Reader::new(&http).filter_map(Result::ok).find(|(field, _)| *field == 9);
        let partial = entries(&http, 3)
            .iter()
            .find_map(|entry| Some(entry.strip_prefix("x-envoy-auth-partial-body=")? == "true"));
        (at(&http, &[11]).to_vec(), partial.unwrap(), size.and_then(|(_, value)| value.number()))
    };
    let whole = |bytes: &[u8]| Arc::<[u8]>::from(bytes);
    assert_eq!(told(Beginning::Whole(&whole(b"abcd"))), (b"abcd".to_vec(), false, Some(4)));
    assert_eq!(
        told(Beginning::Whole(&whole(b"abcde"))),
        (b"abcd".to_vec(), true, Some(77)),
        "one that is held already"
    );
    assert_eq!(told(Beginning::Part(b"abcd")), (b"abcd".to_vec(), true, Some(77)));
    assert_eq!(told(Beginning::Whole(&whole(b""))), (Vec::new(), false, None));
    let flow = step.resume(&mut head, Found::Beginning(Beginning::Unread), &mut beside.turn(&facts));
    assert_eq!(flow, Flow::refuse(413, "the request's body is too large to be authorized"), "it lies in a file");
    let wrong = issue("ext_authz", json!({ "cluster": "auth", "allow_partial": true }));
    assert_eq!(wrong, "allow_partial: no body is sent (add `body_max`, or leave it out)");
}

#[test]
fn the_size_of_a_body_that_is_not_known_is_minus_one() {
    let size = |version, fields: &[(&str, &str)]| {
        let mut head = request("PUT", "/", fields);
        head.version = version;
        let call = question(&json!({ "cluster": "auth" }), head, &World::new().facts());
        let http = at(&call.body[5..], &HTTP).to_vec();
        Reader::new(&http).filter_map(Result::ok).find(|(field, _)| *field == 9).and_then(|(_, value)| value.number())
    };
    assert_eq!(size(Version::Http11, &[("content-length", "77")]), Some(77));
    assert_eq!(size(Version::Http11, &[]), None, "0 is left out");
    assert_eq!(size(Version::Http11, &[("transfer-encoding", "chunked")]), Some(u64::MAX));
    assert_eq!(size(Version::Http2, &[]), Some(u64::MAX));
}

/// A `HeaderValueOption`; what is appended says so by `append`.
fn option(out: &mut Writer, field: u32, name: &str, value: &str, append: Option<bool>) {
    out.message(field, |option| {
        option.entry(1, name.as_bytes(), value.as_bytes());
        if let Some(append) = append {
            option.message(2, |truth| truth.number(1, append.into()));
        }
    });
}

fn allowing(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut message = Writer::default();
    message.message(1, |_| {});
    message.message(3, write);
    message.into_bytes()
}

fn denying(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut message = Writer::default();
    message.message(1, |status| status.number(1, 7));
    message.message(2, write);
    message.into_bytes()
}

fn judged(settings: &Value, head: &mut RequestHead, body: Vec<u8>) -> (Flow, Beside) {
    let step = compiled(&ENTRY, settings).request.unwrap();
    let mut beside = Beside::new();
    let found = Found::Call(Ok(Box::new(Reply { head: ResponseHead::default(), body })));
    let flow = step.resume(head, found, &mut beside.turn(&World::new().facts()));
    (flow, beside)
}

fn alone() -> Value {
    json!({ "cluster": "auth" })
}

#[test]
fn a_request_that_is_allowed_is_changed_as_the_answer_says() {
    let body = allowing(|ok| {
        option(ok, 2, "x-user", "ann", None);
        option(ok, 2, "x-group", "ops", Some(true));
        ok.bytes(5, b"token");
        option(ok, 6, "set-cookie", "a=b", None);
        ok.entry(7, b"who", b"a&b");
        ok.entry(7, b"who", b"ann b");
        ok.bytes(8, b"key");
    });
    let fields = [("x-user", "forged"), ("x_user", "forged"), ("x-group", "web"), ("token", "t")];
    let mut head = request("GET", "/a?%6bey=1&b=2&who=me&key", &fields);
    let (flow, mut beside) = judged(&alone(), &mut head, body);
    assert_eq!(flow, Flow::Continue);
    assert_eq!(head.query(), Some(&b"b=2&who=ann%20b"[..]));
    let mut left: Vec<_> = listed(&head.fields).split('|').map(str::to_owned).collect();
    left.sort();
    assert_eq!(left, ["x-group: ops", "x-group: web", "x-user: ann"]);
    let world = World::new();
    let (facts, mut answer) = (world.facts(), response(200, &[("set-cookie", "c=d")]));
    let step = compiled(&ENTRY, &alone()).response.unwrap();
    step.apply(&mut answer, &world.view(&head), &mut beside.turn(&facts));
    assert_eq!(listed(&answer.fields), "set-cookie: c=d|set-cookie: a=b");
    beside.notes.clear();
    let mut next = response(200, &[]);
    step.apply(&mut next, &world.view(&head), &mut beside.turn(&facts));
    assert_eq!(listed(&next.fields), "", "the next exchange has none of it");
}

#[test]
fn fields_are_set_appended_or_left_as_their_action_says() {
    for (action, present, absent) in
        [(0, "x-a: new", "x-a: new"), (1, "x-a: old", "x-a: new"), (2, "x-a: new", "x-a: new"), (3, "x-a: new", "")]
    {
        let body = allowing(|ok| {
            ok.message(2, |option| {
                option.entry(1, b"x-a", b"new");
                option.number(3, action);
            });
        });
        for (fields, expected) in [(&[("x-a", "old")][..], present), (&[], absent)] {
            let mut head = request("GET", "/", fields);
            assert_eq!(judged(&alone(), &mut head, body.clone()).0, Flow::Continue);
            assert_eq!(listed(&head.fields), expected, "{action}");
        }
    }
}

#[test]
fn trusted_fields_are_removed_from_each_request_whatever_the_answer_says() {
    let settings = json!({ "cluster": "auth", "trusted_headers": ["x-user"], "on_failure": "allow" });
    for body in [allowing(|_| {}), b"\xff".to_vec()] {
        let mut head = request("GET", "/", &[("X-User", "forged"), ("x_user", "forged"), ("a", "b")]);
        assert_eq!(judged(&settings, &mut head, body).0, Flow::Continue);
        assert_eq!(listed(&head.fields), "a: b");
    }
}

#[test]
fn a_denial_is_sent_on_without_what_an_answer_cannot_have() {
    let body = denying(|denied| {
        denied.message(1, |status| status.number(1, 401));
        option(denied, 2, "set-cookie", "a=b", None);
        option(denied, 2, "set-cookie", "c=d", None);
        option(denied, 2, "content-length", "1", None);
        option(denied, 2, "x-a", "1\r\nx-b: 2", None);
        option(denied, 2, ":status", "200", None);
        denied.bytes(3, b"no");
    });
    let fields = [("set-cookie", "a=b"), ("set-cookie", "c=d"), ("content-type", "text/plain; charset=utf-8")];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let expected = LocalResponse { status: 401, fields, body: b"no".to_vec() };
    assert_eq!(judged(&alone(), &mut request("GET", "/", &[]), body).0, Flow::Respond(Box::new(expected)));
    for status in [0, 7, 199, 600, u64::MAX] {
        let body = denying(|denied| denied.message(1, |number| number.number(1, status)));
        let Flow::Respond(local) = judged(&alone(), &mut request("GET", "/", &[]), body).0 else { panic!("no answer") };
        assert_eq!(local.status, 403, "{status}");
    }
}

#[test]
fn an_answer_that_cannot_be_carried_out_is_a_failure() {
    let many = allowing(|ok| (0..65).for_each(|number| option(ok, 2, &format!("x-{number}"), "1", None)));
    let bad = |name: &'static str, value: &'static str| allowing(move |ok| option(ok, 2, name, value, None));
    for body in [
        bad("x-a", "1\r\nx-b: 2"),
        bad("x-a", "1\0"),
        bad("x a", "1"),
        bad("", "1"),
        bad(":path", "/"),
        bad("host", "evil.example"),
        bad("content-length", "1"),
        bad("transfer-encoding", "chunked"),
        bad("connection", "close"),
        allowing(|ok| ok.bytes(5, b"host")),
        allowing(|ok| ok.bytes(5, b"transfer-encoding")),
        allowing(|ok| option(ok, 6, "content-length", "1", None)),
        allowing(|ok| ok.entry(7, b"", b"1")),
        allowing(|ok| option(ok, 2, "x-a", &"x".repeat(40_000), None)),
        many,
        // `status { code: 0 }` beside a `denied_response`.
        [&[0x0a, 0][..], &[0x12, 0]].concat(),
        b"\x0a\xff".to_vec(),
    ] {
        let mut head = request("GET", "/", &[("a", "b")]);
        let expected = Flow::refuse(403, "the authorization service is not available");
        assert_eq!(judged(&alone(), &mut head, body.clone()).0, expected);
        assert_eq!(judged(&json!({ "cluster": "auth", "on_failure": "allow" }), &mut head, body).0, Flow::Continue);
        assert_eq!(listed(&head.fields), "a: b");
    }
}

#[test]
fn a_denial_stays_one_however_malformed_the_rest_of_the_answer_is() {
    let settings = json!({ "cluster": "auth", "on_failure": "allow" });
    for body in [
        // A name that is not UTF-8, a field that is cut, a status that is none, and an answer that breaks off.
        denying(|denied| denied.message(2, |option| option.message(1, |header| header.bytes(1, b"\xff")))),
        denying(|denied| denied.bytes(2, b"\x0a\xff")),
        denying(|denied| denied.bytes(1, b"\xff")),
        [denying(|_| {}), b"\x12\xff".to_vec()].concat(),
    ] {
        let Flow::Respond(local) = judged(&settings, &mut request("GET", "/", &[]), body).0 else {
            panic!("it passes")
        };
        assert_eq!(local.status, 403);
    }
}

#[test]
fn metadata_that_are_too_large_are_left_out_and_malformed_ones_are_a_failure() {
    let answer = |value: &[u8]| {
        let mut out = Writer::default();
        out.message(4, |out| out.message(1, |out| out.bytes(2, value)));
        [allowing(|_| {}), out.into_bytes()].concat()
    };
    let text = |bytes: usize| {
        let mut out = Writer::default();
        out.bytes(3, &vec![b'x'; bytes]);
        out.into_bytes()
    };
    for (value, status) in [(text(9), 200), (text(70_000), 200), (vec![0x1a], 403)] {
        let (flow, _) = judged(&alone(), &mut request("GET", "/", &[]), answer(&value));
        let told = match flow {
            Flow::Continue => 200,
            Flow::Respond(answer) => answer.status,
            other => panic!("{other:?}"),
        };
        assert_eq!(told, status);
    }
}

#[test]
fn bad_settings_are_issues_with_their_place() {
    for (more, expected) in [
        (json!({ "failure_status": 200 }), "failure_status: 200 is not an error (use 400 to 599)"),
        (
            json!({ "timeout": "2m" }),
            "timeout: a request may wait for at most 60s (use a few hundred milliseconds; each request waits for the service)",
        ),
        (json!({ "host": "a/b" }), "host: `a/b` is not a host (write one such as `auth.internal`)"),
        (
            json!({ "body_max": "17MiB" }),
            "body_max: 17825792 bytes are not between 1 byte and 16MiB (write a size such as 64KiB, or leave `body_max` out)",
        ),
        (json!({ "body_as_bytes": true }), "body_as_bytes: no body is sent (add `body_max`, or leave it out)"),
        (json!({ "trusted_headers": ["a", "A"] }), "trusted_headers/1: `A` is listed twice (leave one of them out)"),
        (
            json!({ "request_headers": ["x-*"] }),
            "request_headers/0: `x-*` is a pattern, and `request_headers` takes complete names (list each field)",
        ),
        (json!({ "extensions": { "a": "{nothing}" } }), "extensions/a: there is no variable `{nothing}`"),
    ] {
        let mut settings = json!({ "cluster": "auth" });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert!(issue("ext_authz", settings).starts_with(expected), "{expected}");
    }
}

proptest! {
    #[test]
    fn any_answer_is_read_within_its_bounds_and_only_an_ok_lets_requests_pass(body: Vec<u8>) {
        let mut head = request("GET", "/", &[("a", "b")]);
        let before = listed(&head.fields);
        let (flow, beside) = judged(&alone(), &mut head, body.clone());
        let _: &Notes = &beside.notes;
        match flow {
            Flow::Continue => prop_assert!(matches!(Verdict::read(&body), Ok(Verdict::Allowed(_)))),
            Flow::Respond(_) => prop_assert_eq!(listed(&head.fields), before),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn no_value_of_an_answer_breaks_out_of_its_field(name: String, value: Vec<u8>) {
        let body = allowing(|ok| ok.message(2, |option| option.message(1, |header| {
            header.bytes(1, name.as_bytes());
            header.bytes(3, &value);
        })));
        let mut head = request("GET", "/", &[]);
        if judged(&alone(), &mut head, body).0 == Flow::Continue {
            for field in head.fields.iter() {
                prop_assert!(field.value.iter().all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f));
                prop_assert!(model::fields::is_token(field.name));
            }
        }
    }
}
