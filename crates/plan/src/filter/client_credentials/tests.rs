use std::time::Instant;

use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request, response};
use super::super::{Chain, Need};
use super::*;

struct Route {
    chain: Chain,
    begun: Instant,
}

fn settings(more: Value) -> Value {
    let mut all = json!({
        "cluster": "login", "path": "/token", "client": { "id": "gate", "secret": "s:e" }, "scopes": ["a", "b"],
        "parameters": { "audience": "orders api" },
    });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

fn route(more: Value) -> Route {
    Route { chain: chain(json!([{ "client_credentials": settings(more) }])), begun: Instant::now() }
}

fn token(text: &str, expires: Value) -> Result<Box<Reply>, Fault> {
    let body = json!({ "access_token": text, "token_type": "Bearer", "expires_in": expires }).to_string();
    Ok(Box::new(Reply { head: response(200, &[]), body: body.into_bytes() }))
}

fn failing(status: u16) -> Result<Box<Reply>, Fault> {
    Ok(Box::new(Reply { head: response(status, &[]), body: b"{\"error\":\"invalid_client\"}".to_vec() }))
}

fn fetch(flow: Flow) -> Box<Apart> {
    match flow {
        Flow::Need(Need::Apart(apart)) => apart,
        other => panic!("{other:?}"),
    }
}

impl Route {
    fn beside(&self, after: u64) -> Beside {
        let mut beside = Beside::new();
        beside.now = self.begun + Duration::from_secs(after);
        beside
    }

    /// What comes of a request so many seconds after the begin, with its fields. A call is answered by this.
    fn ask(&self, after: u64, reply: Option<Result<Box<Reply>, Fault>>) -> (Flow, String) {
        let (world, mut beside) = (World::new(), self.beside(after));
        let facts = world.facts();
        let mut head = request("GET", "/", &[("Authorization", "Bearer theirs"), ("a", "b")]);
        let mut flow = self.chain.on_request(&mut head, &mut beside.turn(&facts));
        match reply {
            Some(reply) => {
                fetch(flow).taker.take(reply, beside.now);
                flow = self.chain.resume(&mut 0, Found::Now, &mut head, &mut beside.turn(&facts));
            }
            None => assert!(!matches!(flow, Flow::Need(_)), "{flow:?}"),
        }
        (flow, listed(&head.fields))
    }
}

const NONE: &str = "there is no token for the endpoint";

fn with(token: &str) -> (Flow, String) {
    (Flow::Continue, format!("a: b|authorization: Bearer {token}"))
}

#[test]
fn a_token_is_fetched_once_and_again_before_it_ends() {
    let route = route(json!({}));
    assert_eq!(route.ask(0, Some(token("one", json!(600)))), with("one"));
    assert_eq!((route.ask(1, None), route.ask(539, None)), (with("one"), with("one")));
    assert_eq!(route.ask(540, Some(token("two", json!("600")))), with("two"));
    assert_eq!(route.ask(1_079, None), with("two"));
}

#[test]
fn the_request_for_a_token_has_client_scopes_and_parameters() {
    let world = World::new();
    let facts = world.facts();
    for (more, body) in [
        (json!({}), "grant_type=client_credentials&scope=a%20b&audience=orders%20api"),
        (
            json!({ "client": { "id": "gate", "secret": "s", "authentication": "post" }, "scopes": [] }),
            "client_id=gate&client_secret=s&grant_type=client_credentials&audience=orders%20api",
        ),
    ] {
        let mut head = request("GET", "/", &[]);
        let flow = route(more).chain.on_request(&mut head, &mut Beside::new().turn(&facts));
        let call = fetch(flow).call;
        assert_eq!((std::str::from_utf8(&call.body).unwrap(), call.head.path()), (body, &b"/token"[..]));
        assert_eq!(listed(&call.head.fields).contains("authorization: Basic "), body.starts_with("grant"));
    }
}

#[test]
fn while_one_request_fetches_others_wait_or_go_on_with_the_old_token() {
    let route = route(json!({ "header": "x-token" }));
    let world = World::new();
    let facts = world.facts();
    let (mut first, mut second) = (route.beside(0), route.beside(0));
    let (mut head, mut other) = (request("GET", "/", &[]), request("GET", "/", &[("x_token", "theirs")]));
    let begun = fetch(route.chain.on_request(&mut head, &mut first.turn(&facts)));
    assert!(begun.is_awaited);
    assert!(matches!(route.chain.on_request(&mut other, &mut second.turn(&facts)), Flow::Need(Need::Until(_))));
    begun.taker.take(token("one", json!(100)), first.now);
    let flow = route.chain.resume(&mut 0, Found::Now, &mut head, &mut first.turn(&facts));
    assert_eq!((flow, listed(&head.fields).as_str()), (Flow::Continue, "x-token: Bearer one"));
    let flow = route.chain.resume(&mut 0, Found::Now, &mut other, &mut second.turn(&facts));
    assert_eq!((flow, listed(&other.fields).as_str()), (Flow::Continue, "x-token: Bearer one"));
    let (mut third, mut fourth) = (route.beside(80), route.beside(80));
    let begun = fetch(route.chain.on_request(&mut head, &mut third.turn(&facts)));
    assert!(!begun.is_awaited);
    let flow = route.chain.resume(&mut 0, Found::Now, &mut head, &mut third.turn(&facts));
    assert_eq!((flow, listed(&head.fields).as_str()), (Flow::Continue, "x-token: Bearer one"));
    assert_eq!(route.chain.on_request(&mut other, &mut fourth.turn(&facts)), Flow::Continue, "the old one");
    assert_eq!(listed(&other.fields), "x-token: Bearer one");
}

#[test]
fn a_fetch_goes_on_when_its_exchange_ends_and_pauses_when_it_is_dropped() {
    let route = route(json!({}));
    let world = World::new();
    let facts = world.facts();
    let mut first = route.beside(0);
    let begun = fetch(route.chain.on_request(&mut request("GET", "/", &[]), &mut first.turn(&facts)));
    drop(first);
    // The next request neither calls nor is refused.
    let mut second = route.beside(0);
    let flow = route.chain.on_request(&mut request("GET", "/", &[]), &mut second.turn(&facts));
    assert!(matches!(flow, Flow::Need(Need::Until(_))), "{flow:?}");
    begun.taker.take(token("one", json!(100)), route.begun + Duration::from_secs(3));
    begun.taker.take(failing(500), route.begun + Duration::from_secs(3));
    assert_eq!(route.ask(3, None), with("one"));
    // Its time has begun with the call.
    let mut last = route.beside(101);
    let begun = fetch(route.chain.on_request(&mut request("GET", "/", &[]), &mut last.turn(&facts)));
    assert!(begun.is_awaited);
    drop(begun);
    assert_eq!(route.ask(101, None).0, Flow::refuse(503, NONE), "the server is not asked again at once");
    assert_eq!(route.ask(102, Some(token("two", json!(100)))), with("two"));
}

#[test]
fn requests_that_show_the_token_to_the_client_are_refused() {
    let route = route(json!({}));
    let world = World::new();
    for method in ["TRACE", "trace"] {
        let mut head = request(method, "/", &[("Authorization", "Bearer theirs")]);
        let flow = route.chain.on_request(&mut head, &mut route.beside(0).turn(&world.facts()));
        assert!(matches!(flow, Flow::Respond(answer) if answer.status == 405), "{method}");
    }
}

#[test]
fn without_an_answer_a_token_is_used_until_its_end_and_then_no_request_passes() {
    let route = route(json!({}));
    assert_eq!(route.ask(0, Some(failing(401))).0, Flow::refuse(503, NONE));
    assert_eq!(route.ask(0, None).0, Flow::refuse(503, NONE), "the server is not asked again at once");
    assert_eq!(route.ask(1, Some(token("one", json!(100)))), with("one"));
    assert_eq!(route.ask(80, Some(Err(Fault::ConnectFailed))), with("one"));
    assert_eq!(route.ask(80, None), with("one"));
    for (after, bad) in [
        (101, Err(Fault::BadResponseBody)),
        (102, failing(500)),
        (103, token("", json!(1))),
        (104, token("a\r\nx: y", json!(1))),
        (105, token(&"x".repeat(9_000), json!(1))),
        (
            106,
            Ok(Box::new(Reply {
                head: response(200, &[]),
                body: b"{\"access_token\":\"a\",\"access_token\":\"b\"}".to_vec(),
            })),
        ),
        (
            107,
            Ok(Box::new(Reply {
                head: response(200, &[]),
                body: b"{\"access_token\":\"a\",\"token_type\":\"mac\"}".to_vec(),
            })),
        ),
    ] {
        let (flow, fields) = route.ask(after, Some(bad));
        assert_eq!((flow, fields.as_str()), (Flow::refuse(503, NONE), "a: b"), "{after}");
    }
    assert_eq!(route.ask(108, Some(token("two", json!(null)))), with("two"));
    assert_eq!(route.ask(340, None), with("two"), "five minutes without `expires_in`");
}

#[test]
fn a_token_that_the_endpoint_refuses_is_replaced_once_and_not_at_once() {
    let route = route(json!({}));
    let world = World::new();
    let facts = world.facts();
    // A request that gets the token that there is, and whose endpoint answers this later.
    let answered = |begun: u64, after: u64, status: u16| {
        let (mut request, mut head) = (request("GET", "/", &[]), response(status, &[]));
        let mut beside = route.beside(begun);
        assert_eq!(route.chain.on_request(&mut request, &mut beside.turn(&facts)), Flow::Continue);
        beside.now = route.begun + Duration::from_secs(after);
        let (route, world, facts) = (&route, &world, &facts);
        move || route.chain.on_response(&mut head, &world.view(&request), &mut beside.turn(facts))
    };
    assert_eq!(route.ask(0, Some(token("one", json!(600)))), with("one"));
    answered(1, 9, 401)();
    answered(1, 10, 403)();
    assert_eq!(route.ask(10, None), with("one"), "too new, and another status");
    let (mut first, mut second) = (answered(1, 10, 401), answered(1, 60, 401));
    first();
    assert_eq!(route.ask(10, Some(failing(500))), with("one"), "it stays in use");
    assert_eq!(route.ask(11, Some(token("two", json!(600)))), with("two"));
    second();
    assert_eq!(route.ask(60, None), with("two"), "the endpoint has refused the one before");
}

#[test]
fn tokens_that_are_refused_in_a_row_are_replaced_more_and_more_rarely() {
    let route = route(json!({}));
    let world = World::new();
    let facts = world.facts();
    let refused = |after: u64| {
        let mut request = request("GET", "/", &[]);
        let mut beside = route.beside(after);
        let flow = route.chain.on_request(&mut request, &mut beside.turn(&facts));
        let is_fetched = matches!(&flow, Flow::Need(Need::Apart(_)));
        if let Flow::Need(Need::Apart(begun)) = flow {
            begun.taker.take(token("next", json!(86_400)), beside.now);
            assert_eq!(route.chain.resume(&mut 0, Found::Now, &mut request, &mut beside.turn(&facts)), Flow::Continue);
        }
        let mut head = response(401, &[]);
        route.chain.on_response(&mut head, &world.view(&request), &mut beside.turn(&facts));
        is_fetched
    };
    let fetches: Vec<u64> = (0..4_000).filter(|second| refused(*second)).collect();
    assert_eq!(fetches, [0, 11, 32, 73, 154, 315, 636, 1_277, 1_918, 2_559, 3_200, 3_841]);
}

#[test]
fn requests_that_have_waited_long_enough_are_refused_and_do_not_call() {
    let route = route(json!({}));
    let world = World::new();
    let facts = world.facts();
    let (mut first, mut second) = (route.beside(0), route.beside(0));
    let (mut head, mut other) = (request("GET", "/", &[]), request("GET", "/", &[]));
    let _begun = fetch(route.chain.on_request(&mut head, &mut first.turn(&facts)));
    let mut flow = route.chain.on_request(&mut other, &mut second.turn(&facts));
    let mut waits = 0;
    while let Flow::Need(Need::Until(until)) = flow {
        waits += 1;
        second.now = until;
        flow = route.chain.resume(&mut 0, Found::Now, &mut other, &mut second.turn(&facts));
    }
    assert_eq!((flow, waits), (Flow::refuse(503, NONE), 6));
    assert_eq!(second.now - route.begun, Duration::from_millis(3_150));
}

#[test]
fn settings_that_cannot_work_are_issues_without_secrets() {
    for (more, told) in [
        (json!({ "client": { "id": "gate" } }), "client: only a client with a secret"),
        (json!({ "client": { "id": "", "secret": "s" } }), "client/id"),
        (json!({ "client": { "id": "a", "secret": "se\ncret" } }), "client/secret"),
        (json!({ "path": "token" }), "path: `token` is not a path"),
        (json!({ "header": "host" }), "header: `host` cannot be changed"),
        (json!({ "parameters": { "scope": "x" } }), "parameters/scope: the filter sets `scope` itself"),
        (json!({ "parameters": { "a&b": "x" } }), "parameters: `a&b` is not the name of a parameter"),
        (json!({ "scopes": ["a b"] }), "scopes/0: `a b` is not a scope"),
    ] {
        let told_by = issue("client_credentials", settings(more));
        assert!(told_by.starts_with(told) && !told_by.contains("se\ncret"), "{told_by}");
    }
}
