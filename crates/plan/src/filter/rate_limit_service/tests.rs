//! What the service gets, and what comes of its answers.

use model::ResponseHead;
use model::protobuf::Reader;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, compiled, issue, listed, request, response};
use super::super::{Call, Need, Reply};
use super::*;

fn settings(more: Value) -> Value {
    let mut all =
        json!({ "cluster": "limits", "domain": "shop", "descriptors": [{ "remote_address": "{client_ip}" }] });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

fn asked(settings: &Value, mut head: RequestHead) -> Option<Call> {
    let step = compiled(&ENTRY, settings).request.unwrap();
    match step.apply(&mut head, &mut Beside::new().turn(&World::new().facts())) {
        Flow::Need(Need::Grpc(call)) => Some(*call),
        Flow::Continue => None,
        other => panic!("{other:?}"),
    }
}

/// The fields of a message of texts, numbers and such messages, as text.
fn shown(message: &[u8], depth: usize) -> String {
    let one = |field: Result<(u32, model::protobuf::Value<'_>), _>| {
        let (field, value) = field.expect("a message");
        match (value.number(), value.bytes()) {
            (Some(number), _) => format!("{field}:{number}"),
            (None, Some(bytes)) if depth > 0 && (field == 2 && depth == 2 || field == 1 && depth == 1) => {
                format!("{field}({})", shown(bytes, depth - 1))
            }
            (None, bytes) => format!("{field}={}", String::from_utf8_lossy(bytes.unwrap_or_default())),
        }
    };
    Reader::new(message).map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_question_has_the_descriptors_in_order_and_leaves_those_out_that_lack_a_value() {
    let descriptors = json!([
        { "remote_address": "{client_ip}", "path": "{path}" },
        { "generic_key": "checkout", "key": "{request_header:x-api-key}" },
        { "generic_key": "all" },
    ]);
    let settings = settings(json!({ "descriptors": descriptors, "hits": 3 }));
    let call = asked(&settings, request("GET", "/a", &[])).unwrap();
    assert_eq!((call.head.path(), call.timeout), (SHOULD_RATE_LIMIT.as_bytes(), Duration::from_millis(20)));
    let first = "2(1(1=remote_address 2=192.0.2.7) 1(1=path 2=/a))";
    assert_eq!(shown(&call.body[5..], 2), format!("1=shop {first} 2(1(1=generic_key 2=all)) 3:3"));
    let call = asked(&settings, request("GET", "/a", &[("x-api-key", "k")])).unwrap();
    let second = "2(1(1=generic_key 2=checkout) 1(1=key 2=k))";
    assert_eq!(shown(&call.body[5..], 2), format!("1=shop {first} {second} 2(1(1=generic_key 2=all)) 3:3"));
}

#[test]
fn without_a_descriptor_there_is_no_call_and_long_values_are_cut() {
    let settings = settings(json!({ "descriptors": [{ "key": "{request_header:x-api-key}" }] }));
    assert!(asked(&settings, request("GET", "/", &[])).is_none());
    let call = asked(&settings, request("GET", "/", &[("x-api-key", &"k".repeat(5_000))])).unwrap();
    assert!(call.body.len() < VALUE_BYTES_MAX + 50);
}

fn decided(settings: &Value, head: &mut RequestHead, found: Found<'_>) -> (Flow, ResponseHead, Beside) {
    let steps = compiled(&ENTRY, settings);
    let (world, mut beside) = (World::new(), Beside::new());
    let facts = world.facts();
    let flow = steps.request.unwrap().resume(head, found, &mut beside.turn(&facts));
    let mut answer = response(200, &[]);
    steps.response.unwrap().apply(&mut answer, &world.view(head), &mut beside.turn(&facts));
    (flow, answer, beside)
}

fn reply(body: Vec<u8>) -> Found<'static> {
    Found::Call(Ok(Box::new(Reply { head: ResponseHead::default(), body })))
}

/// An answer about two limits, of which the second has less left.
fn answer(code: u64) -> Vec<u8> {
    let mut message = Writer::default();
    message.number(1, code);
    for (requests, unit, name, remaining, seconds) in [(100, 3, "", 90, 1800), (5, 2, "per \"key\"", 0, 7)] {
        message.message(2, |status| {
            status.number(1, code);
            status.message(2, |limit| {
                limit.number(1, requests);
                limit.number(2, unit);
                limit.text(3, name.as_bytes());
            });
            status.number(3, remaining);
            status.message(4, |duration| {
                duration.number(1, seconds);
                duration.number(2, 1);
            });
        });
    }
    message.entry(3, b"x-limits", b"a");
    message.entry(4, b"x-plan", b"gold");
    message.into_bytes()
}

#[test]
fn a_request_within_the_limit_passes_with_the_fields_of_the_answer() {
    let mut head = request("GET", "/", &[("x-plan", "forged")]);
    let (flow, response, beside) = decided(&settings(json!({})), &mut head, reply(answer(1)));
    assert_eq!((flow, listed(&head.fields).as_str()), (Flow::Continue, "x-plan: gold"));
    assert_eq!((listed(&response.fields).as_str(), beside.notes.limit_status()), ("x-limits: a", LimitStatus::Passed));
}

#[test]
fn a_request_beyond_it_is_answered_marked_or_held_as_over_says() {
    let mut head = request("GET", "/", &[]);
    let with =
        |over: Value, head: &mut RequestHead| decided(&settings(json!({ "over": over })), head, reply(answer(2)));
    let (flow, response, _) = with(json!("refuse"), &mut head);
    assert_eq!(flow, Flow::Respond(Box::new(too_many(429, Some(1801)))), "the longest wait");
    assert_eq!(listed(&response.fields), "x-limits: a");
    assert_eq!(with(json!("close"), &mut head).0, Flow::Close);
    let (flow, _, beside) = with(json!("mark"), &mut head);
    assert_eq!((flow, beside.notes.limit_status()), (Flow::Continue, LimitStatus::Marked));
    let tarpit = settings(json!({ "over": { "tarpit": "1s" } }));
    let (flow, _, mut beside) = decided(&tarpit, &mut head, reply(answer(2)));
    assert!(matches!(flow, Flow::Need(Need::Until(_))), "{flow:?}");
    let step = compiled(&ENTRY, &tarpit).request.unwrap();
    let flow = step.resume(&mut head, Found::Now, &mut beside.turn(&World::new().facts()));
    assert_eq!(flow, Flow::Respond(Box::new(too_many(429, Some(1801)))));
}

#[test]
fn responses_show_the_limit_of_which_the_least_is_left() {
    let shows = settings(json!({ "headers": true, "x_ratelimit_headers": true }));
    let (_, response, _) = decided(&shows, &mut request("GET", "/", &[]), reply(answer(1)));
    let expected = "x-limits: a|ratelimit-policy: \"per key\";q=5;w=60|ratelimit: \"per key\";r=0;t=8|\
                    x-ratelimit-limit: 5, 100;w=3600, 5;w=60;name=\"per key\"|x-ratelimit-remaining: 0|x-ratelimit-reset: 8";
    assert_eq!(listed(&response.fields), expected);
    let (_, response, _) = decided(&shows, &mut request("GET", "/", &[]), reply(vec![8, 1]));
    assert_eq!(listed(&response.fields), "", "no limit applies");
}

#[test]
fn the_body_of_the_answer_takes_the_place_of_ours() {
    let (flow, ..) = decided(&settings(json!({})), &mut request("GET", "/", &[]), reply(vec![8, 2, 0x2a, 1, b'x']));
    assert_eq!(flow, Flow::Respond(Box::new(LocalResponse { body: b"x".to_vec(), ..too_many(429, None) })));
}

#[test]
fn a_request_beyond_its_limit_does_not_pass_because_the_rest_of_the_answer_is_malformed() {
    let over = |more: &[u8]| reply([&[8, 2], more].concat());
    for more in [&[0xff][..], b"\x12\x01\xff", b"\x1a\x04\x0a\x02\x0d\x0a", b"\x22\x08\x0a\x04host\x12\x00"] {
        let (flow, ..) = decided(&settings(json!({})), &mut request("GET", "/", &[]), over(more));
        assert_eq!(flow, Flow::Respond(Box::new(too_many(429, None))), "{more:?}");
    }
}

#[test]
fn without_an_answer_requests_pass_unless_the_settings_close() {
    let bad = |name: &[u8], value: &[u8], field| {
        let mut message = Writer::default();
        message.number(1, 1);
        message.entry(field, name, value);
        message.into_bytes()
    };
    let closed = Flow::refuse(503, "the rate limit is not available");
    for (when_away, expected) in [("open", Flow::Continue), ("closed", closed)] {
        let settings = settings(json!({ "when_away": when_away }));
        let mut head = request("GET", "/", &[]);
        for found in [
            Found::Call(Err(model::Fault::ConnectFailed)),
            reply(vec![0xff]),
            reply(bad(b"x-a", b"1\r\nx-b: 2", 3)),
            reply(bad(b"transfer-encoding", b"chunked", 3)),
            reply(bad(b"host", b"evil.example", 4)),
        ] {
            assert_eq!(decided(&settings, &mut head, found).0, expected);
        }
        assert_eq!(listed(&head.fields), "");
    }
}

#[test]
fn bad_settings_are_issues_with_their_place() {
    for (more, expected) in [
        (
            json!({ "descriptors": [] }),
            "descriptors: there are 0 descriptors, and 1 to 16 are possible (list up to 16)",
        ),
        (
            json!({ "descriptors": [{ "a": "" }] }),
            "descriptors/0/a: the value is empty, so the descriptor would never be sent (write a text, with variables such as `{client_ip}`)",
        ),
        (json!({ "descriptors": [{ "a": "{b}" }] }), "descriptors/0/a: there is no variable `{b}`"),
        (
            json!({ "domain": "" }),
            "domain: a domain has 1 to 128 bytes, not 0 (write the domain of the service's configuration)",
        ),
        (json!({ "hits": 0 }), "hits: 0 is not between 1 and 1000000 (leave it out for 1)"),
        (
            json!({ "over": { "delay": "1s" } }),
            "over: the service does not say when it is a request's turn, so none can be delayed (use refuse, close, mark or { tarpit: 10s })",
        ),
        (json!({ "status": 200 }), "status: 200 is not an error (use 400 to 599)"),
    ] {
        let told = issue("rate_limit_service", settings(more));
        assert!(told.starts_with(expected), "{told}");
    }
}

proptest! {
    #[test]
    fn any_answer_is_read_within_its_bounds(body: Vec<u8>) {
        let shows = settings(json!({ "headers": true, "x_ratelimit_headers": true }));
        let (flow, response, _) = decided(&shows, &mut request("GET", "/", &[]), reply(body));
        prop_assert!(matches!(flow, Flow::Continue | Flow::Respond(_)));
        for field in response.fields.iter() {
            prop_assert!(model::fields::is_field_value(field.value));
        }
    }
}
