use std::time::Duration;

use model::fields::Fields;
use model::{Fault, FieldName, RequestHead};
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request, response};
use super::super::{Apart, Call, Chain, Flow, Found, Need, Reply};

const NOW: u64 = 2_000_000_000;

fn with(more: Value) -> Chain {
    let mut settings = json!({
        "cluster": "login", "path": "/introspect", "credentials_file": { "name": "c", "text": "gate way:s:e%cret\n" },
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chain(json!([{ "introspection": settings }, { "set_request_header": { "x-me": "{user} {claim:scope}" } }]))
}

fn bearing(token: &str) -> RequestHead {
    request("GET", "/", &[("Authorization", &format!("Bearer {token}")), ("a", "b")])
}

/// What comes of a request at a moment, the call that was made for it, and the fields of the request after it.
fn ask(
    chain: &Chain,
    token: &str,
    now: u64,
    reply: impl Fn() -> Result<Box<Reply>, Fault>,
) -> (Flow, Option<Call>, String) {
    let world = World::new();
    let facts = world.facts();
    let (mut head, mut place, mut beside) = (bearing(token), 0, Beside::new());
    beside.wall_clock = Box::new(move || Duration::from_secs(now));
    let mut flow = chain.on_request_from(&mut place, &mut head, &mut beside.turn(&facts));
    let made;
    let found = match flow {
        Flow::Need(Need::Call(call)) => {
            made = Some(*call);
            Found::Call(reply())
        }
        Flow::Need(Need::Apart(apart)) => {
            assert!(apart.is_awaited);
            apart.taker.take(reply(), beside.now);
            made = Some(apart.call.clone());
            Found::Now
        }
        end => return (end, None, listed(&head.fields)),
    };
    flow = chain.resume(&mut place, found, &mut head, &mut beside.turn(&facts));
    (flow, made, listed(&head.fields))
}

fn answer(status: u16, body: &str) -> Result<Box<Reply>, Fault> {
    Ok(Box::new(Reply { head: response(status, &[]), body: body.as_bytes().to_vec() }))
}

fn active(more: Value) -> Result<Box<Reply>, Fault> {
    let mut body = json!({ "active": true, "sub": "ann", "scope": "read write", "exp": NOW + 30 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    answer(200, &body.to_string())
}

fn status(flow: &Flow) -> u16 {
    match flow {
        Flow::Respond(local) => local.status,
        Flow::Continue => 200,
        other => panic!("{other:?}"),
    }
}

fn field(fields: &Fields, name: &str) -> String {
    String::from_utf8(fields.get(&FieldName::new(name).unwrap()).unwrap().to_vec()).unwrap()
}

#[test]
fn an_active_token_passes_and_is_asked_about_once() {
    let chain = with(json!({ "claim_headers": { "x-sub": "sub" }, "host": "login.internal" }));
    let (flow, made, fields) = ask(&chain, "a+b/c==", NOW, || active(json!({})));
    assert_eq!((flow, fields.as_str()), (Flow::Continue, "a: b|x-sub: ann|x-me: ann read write"));
    let call = made.unwrap();
    assert_eq!((call.head.method_bytes(), call.head.path()), (&b"POST"[..], &b"/introspect"[..]));
    assert_eq!(&*call.body, b"token=a%2Bb%2Fc%3D%3D&token_type_hint=access_token");
    assert_eq!(field(&call.head.fields, "content-type"), "application/x-www-form-urlencoded");
    assert_eq!(field(&call.head.fields, "host"), "login.internal");
    let basic = field(&call.head.fields, "authorization");
    let pair = model::base64::decode(basic.strip_prefix("Basic ").unwrap().as_bytes()).unwrap();
    assert_eq!(pair, b"gate%20way:s%3Ae%25cret");
    let (flow, made, _) = ask(&chain, "a+b/c==", NOW + 59, || panic!("it is known"));
    assert_eq!((flow, made.is_none()), (Flow::Continue, true));
    let (flow, made, _) = ask(&chain, "a+b/c==", NOW + 60, || answer(200, r#"{"active":false}"#));
    assert_eq!((status(&flow), made.is_some()), (401, true), "it is asked about again");
    let (flow, made, _) = ask(&chain, "other", NOW, || active(json!({})));
    assert_eq!((flow, made.is_some()), (Flow::Continue, true));
}

fn apart(flow: Flow) -> Box<Apart> {
    match flow {
        Flow::Need(Need::Apart(apart)) => apart,
        other => panic!("{other:?} is no call"),
    }
}

#[test]
fn requests_with_one_token_wait_for_the_call_of_the_first() {
    let chain = with(json!({}));
    let world = World::new();
    let facts = world.facts();
    let (mut first, mut second) = (Beside::new(), Beside::new());
    let (mut head, mut other) = (bearing("t"), bearing("t"));
    let call = apart(chain.on_request(&mut head, &mut first.turn(&facts)));
    let flow = chain.on_request(&mut other, &mut second.turn(&facts));
    assert_eq!(flow, Flow::Need(Need::Until(second.now + Duration::from_millis(10))));
    apart(chain.on_request(&mut bearing("u"), &mut Beside::new().turn(&facts)));
    call.taker.take(active(json!({})), first.now);
    let flow = chain.resume(&mut 0, Found::Now, &mut head, &mut first.turn(&facts));
    assert_eq!(flow, Flow::Continue);
    let flow = chain.resume(&mut 0, Found::Now, &mut other, &mut second.turn(&facts));
    assert_eq!((flow, listed(&other.fields).contains("ann")), (Flow::Continue, true), "the answer of the first");
}

#[test]
fn a_call_goes_on_when_its_client_is_gone_and_one_that_fails_holds_nobody_up() {
    let chain = with(json!({}));
    let world = World::new();
    let facts = world.facts();
    let mut gone = Beside::new();
    let call = apart(chain.on_request(&mut bearing("t"), &mut gone.turn(&facts)));
    gone.notes.clear();
    let mut patient = Beside::new();
    let mut head = bearing("t");
    let mut flow = chain.on_request(&mut head, &mut patient.turn(&facts));
    for _ in 0..6 {
        assert!(matches!(flow, Flow::Need(Need::Until(_))), "{flow:?}");
        flow = chain.resume(&mut 0, Found::Now, &mut head, &mut patient.turn(&facts));
    }
    assert!(matches!(flow, Flow::Need(Need::Call(_))), "a call that ends with its exchange, and not {flow:?}");
    let failed = Found::Call(Err(Fault::BadResponseBody));
    let flow = chain.resume(&mut 0, failed, &mut head, &mut patient.turn(&facts));
    assert_eq!(status(&flow), 503, "it has waited long enough, and its own call has failed");
    call.taker.take(active(json!({})), gone.now);
    let flow = chain.on_request(&mut bearing("t"), &mut Beside::new().turn(&facts));
    assert_eq!(flow, Flow::Continue, "the answer to a client that is gone");
    let (mut failing, mut head) = (Beside::new(), bearing("u"));
    let call = apart(chain.on_request(&mut head, &mut failing.turn(&facts)));
    call.taker.take(Err(Fault::BadResponseBody), failing.now);
    let flow = chain.resume(&mut 0, Found::Now, &mut head, &mut failing.turn(&facts));
    assert_eq!(status(&flow), 503);
    apart(chain.on_request(&mut bearing("u"), &mut Beside::new().turn(&facts)));
    let uncached = with(json!({ "cache_time": "1ms" }));
    for _ in 0..2 {
        let flow = uncached.on_request(&mut bearing("t"), &mut Beside::new().turn(&facts));
        assert!(matches!(flow, Flow::Need(Need::Call(_))), "without a cache");
    }
}

#[test]
fn a_revoked_token_passes_no_longer_than_the_cache_time() {
    let chain = with(json!({ "cache_time": "10s" }));
    let long = || active(json!({ "exp": NOW + 10_000 }));
    assert_eq!(ask(&chain, "t", NOW, long).0, Flow::Continue);
    assert_eq!(ask(&chain, "t", NOW + 9, || answer(200, r#"{"active":false}"#)).0, Flow::Continue);
    assert_eq!(status(&ask(&chain, "t", NOW + 10, || answer(200, r#"{"active":false}"#)).0), 401);
}

#[test]
fn the_provider_decides_by_its_own_clock_and_the_expiry_bounds_the_cache() {
    let chain = with(json!({ "cache_time": "1h" }));
    for times in [json!({ "iat": NOW + 5 }), json!({ "nbf": NOW + 5 }), json!({ "exp": NOW - 1_000 })] {
        let token = times.to_string().replace(' ', "");
        assert_eq!(ask(&chain, &token, NOW, || active(times.clone())).0, Flow::Continue, "{times}");
    }
    let inactive = || answer(200, r#"{"active":false}"#);
    let until = |token: &str, expiry: u64| {
        assert_eq!(ask(&chain, token, NOW, || active(json!({ "exp": expiry }))).0, Flow::Continue);
        (0..200).find(|after| status(&ask(&chain, token, NOW + after, inactive).0) == 401)
    };
    assert_eq!((until("a", NOW + 10), until("b", NOW - 10), until("c", NOW - 60)), (Some(70), Some(50), Some(0)));
}

#[test]
fn whatever_is_not_active_is_refused_and_what_is_no_answer_is_a_failure() {
    let chain = with(json!({ "claims": { "scope": "admin" } }));
    for (reply, wanted) in [
        (answer(200, r#"{"active":false}"#), 401),
        (answer(200, r#"{"active":"true"}"#), 401),
        (answer(200, r#"{"active":1}"#), 401),
        (answer(200, "{}"), 401),
        (active(json!({ "exp": "x" })), 401),
        (active(json!({})), 403),
        (active(json!({ "scope": "read admin" })), 200),
        (answer(200, r#"{"active":false,"active":true}"#), 503),
        (answer(200, "[true]"), 503),
        (answer(200, "active"), 503),
        (answer(200, ""), 503),
        (answer(201, r#"{"active":true}"#), 503),
        (answer(302, r#"{"active":true}"#), 503),
        (answer(401, r#"{"active":true}"#), 503),
        (answer(500, ""), 503),
        (Err(Fault::BadResponseBody), 503),
    ] {
        let told = format!("{reply:?}");
        let reply = std::cell::RefCell::new(Some(reply));
        let (flow, ..) = ask(&chain, &told.replace(' ', "_"), NOW, || reply.borrow_mut().take().unwrap());
        assert_eq!(status(&flow), wanted, "{told}");
    }
}

#[test]
fn requests_without_a_token_are_not_asked_about() {
    let world = World::new();
    let facts = world.facts();
    for (settings, wanted) in
        [(json!({}), 401), (json!({ "allow_missing": true, "claim_headers": { "x-sub": "sub" } }), 200)]
    {
        let chain = with(settings);
        let mut head = request("GET", "/", &[("X_Sub", "eve")]);
        let flow = chain.on_request(&mut head, &mut Beside::new().turn(&facts));
        assert_eq!((status(&flow), wanted == 200 && listed(&head.fields).contains("eve")), (wanted, false));
    }
    let empty = ask(&with(json!({})), "", NOW, || panic!("no call")).0;
    assert_eq!(status(&empty), 401);
}

#[test]
fn mistakes_are_reported_without_the_secret() {
    let file = |text: &str| json!({ "name": "c.txt", "text": text });
    for (changes, told) in [
        (json!({ "credentials_file": file("secret") }), "credentials_file: `c.txt` is not one line `client:secret`"),
        (json!({ "credentials_file": file("a:b\nc:d") }), "credentials_file: `c.txt` is not one line `client:secret`"),
        (json!({ "credentials_file": file(":b") }), "credentials_file: `c.txt` is not one line `client:secret`"),
        (json!({ "path": "x" }), "path: `x` is not a path (write one such as `/oauth2/introspect`)"),
        (json!({ "host": "a/b" }), "host: `a/b` is not a host (write one such as `login.internal`)"),
        (
            json!({ "from": { "header": "host" } }),
            "from/header: `host` cannot be changed by a filter: requests always carry exactly one (use the filter rewrite: { host: … })",
        ),
    ] {
        let mut settings = json!({ "cluster": "login", "path": "/", "credentials_file": file("a:b") });
        settings.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        assert_eq!(issue("introspection", settings), told);
    }
}
