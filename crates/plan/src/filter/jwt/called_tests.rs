//! Keys that are fetched through a cluster.

use std::time::{Duration, Instant};

use model::{Fault, RequestHead};
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, request, response};
use super::super::{Apart, Chain, Flow, Found, Need, Reply};
use crate::jose::testing::Signer;

struct Route {
    chain: Chain,
    begun: Instant,
}

type Answer = Result<Box<Reply>, Fault>;

fn answer(status: u16, body: &str) -> Answer {
    Ok(Box::new(Reply { head: response(status, &[]), body: body.into() }))
}

fn token(signer: &Signer) -> RequestHead {
    let token = signer.sign(&json!({ "sub": "ann", "exp": 4_000_000_000_u64 }));
    request("GET", "/", &[("Authorization", &format!("Bearer {token}"))])
}

fn fetch(flow: Flow) -> Box<Apart> {
    match flow {
        Flow::Need(Need::Apart(apart)) => apart,
        other => panic!("{other:?}"),
    }
}

impl Route {
    fn new() -> Self {
        let settings = json!({ "keys": { "cluster": "idp", "path": "/jwks" }, "keys_fetch": { "interval": "1m" } });
        Self { chain: chain(json!([{ "jwt": settings }])), begun: Instant::now() }
    }

    fn beside(&self, after: u64) -> Beside {
        let mut beside = Beside::new();
        beside.now = self.begun + Duration::from_secs(after);
        beside
    }

    /// The status of a request so many seconds after the begin; 200 if it passes. A call is answered by this.
    fn ask(&self, signer: &Signer, after: u64, reply: Option<Answer>) -> u16 {
        let (world, mut beside) = (World::new(), self.beside(after));
        let facts = world.facts();
        let mut head = token(signer);
        let mut flow = self.chain.on_request(&mut head, &mut beside.turn(&facts));
        if let Some(reply) = reply {
            let fetch = fetch(flow);
            assert_eq!((fetch.call.head.path(), fetch.call.body.len()), (&b"/jwks"[..], 0));
            fetch.taker.take(reply, beside.now);
            flow = self.chain.resume(&mut 0, Found::Now, &mut head, &mut beside.turn(&facts));
        }
        match flow {
            Flow::Continue => 200,
            Flow::Respond(answer) => answer.status,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn keys_are_fetched_once_then_after_the_interval_and_for_unknown_keys_with_a_rest() {
    let (route, one, two) = (Route::new(), Signer::es256("one"), Signer::es256("two"));
    let both = json!({ "keys": [one.jwk(), two.jwk()] }).to_string();
    assert_eq!(route.ask(&one, 0, Some(answer(200, &one.jwks()))), 200);
    assert_eq!(route.ask(&one, 1, None), 200);
    assert_eq!(route.ask(&two, 4, None), 401, "a rest after the fetch");
    assert_eq!(route.ask(&two, 5, Some(answer(200, &one.jwks()))), 401);
    assert_eq!(route.ask(&two, 9, None), 401, "one call in five seconds");
    assert_eq!(route.ask(&two, 10, Some(answer(200, &both))), 200);
    assert_eq!((route.ask(&one, 69, None), route.ask(&two, 69, None)), (200, 200));
    assert_eq!(route.ask(&one, 70, Some(answer(200, &two.jwks()))), 401, "it has left the set");
}

#[test]
fn answers_without_keys_let_nothing_pass_and_leave_the_last_keys_in_use() {
    let (route, signer) = (Route::new(), Signer::es256("one"));
    let secret = Signer::hs256("s").jwks();
    let bad = || {
        let texts = ["", "{}", "{\"keys\":[]}", "<html>", &secret, "\u{feff}"];
        texts.map(|text| answer(200, text)).into_iter().chain([
            answer(404, &signer.jwks()),
            answer(302, &signer.jwks()),
            Err(Fault::ConnectFailed),
        ])
    };
    let mut after = 0;
    for bad in bad() {
        assert_eq!(route.ask(&signer, after, Some(bad)), 503);
        assert_eq!(route.ask(&signer, after, None), 503, "not at once again");
        after += 1;
    }
    assert_eq!(route.ask(&signer, after, Some(answer(200, &signer.jwks()))), 200);
    after += 60;
    for bad in bad() {
        assert_eq!(route.ask(&signer, after, Some(bad)), 200);
        assert_eq!(route.ask(&signer, after + 4, None), 200);
        after += 5;
    }
}

#[test]
fn one_request_fetches_and_others_wait_or_go_on_with_the_old_keys() {
    let (route, signer) = (Route::new(), Signer::es256("one"));
    let world = World::new();
    let facts = world.facts();
    let (mut head, mut other) = (token(&signer), token(&signer));
    let (mut first, mut second) = (route.beside(0), route.beside(0));
    let begun = fetch(route.chain.on_request(&mut head, &mut first.turn(&facts)));
    assert!(matches!(route.chain.on_request(&mut other, &mut second.turn(&facts)), Flow::Need(Need::Until(_))));
    // The exchange that fetches ends, and its fetch goes on.
    drop(first);
    begun.taker.take(answer(200, &signer.jwks()), route.begun);
    assert_eq!(route.chain.resume(&mut 0, Found::Now, &mut other, &mut second.turn(&facts)), Flow::Continue);
    // The fetch of the next ones is dropped, and no other begins before the rest is over.
    let mut third = route.beside(60);
    let dropped = fetch(route.chain.on_request(&mut token(&signer), &mut third.turn(&facts)));
    assert_eq!(route.ask(&signer, 60, None), 200);
    drop(dropped);
    assert_eq!(route.ask(&signer, 64, None), 200);
    assert_eq!(route.ask(&signer, 65, Some(answer(200, &signer.jwks()))), 200);
    // A rehearsal fetches nothing.
    let mut rehearsal = Route::new().beside(0);
    rehearsal.is_rehearsal = true;
    let flow = Route::new().chain.on_request(&mut token(&signer), &mut rehearsal.turn(&facts));
    assert!(matches!(flow, Flow::Respond(answer) if answer.status == 503));
}

#[test]
fn a_key_that_may_be_among_those_on_their_way_is_not_unknown() {
    let (route, one, two) = (Route::new(), Signer::es256("one"), Signer::es256("two"));
    assert_eq!(route.ask(&one, 0, Some(answer(200, &one.jwks()))), 200);
    let world = World::new();
    let facts = world.facts();
    let mut first = route.beside(5);
    let slow = fetch(route.chain.on_request(&mut token(&two), &mut first.turn(&facts)));
    let (mut head, mut second) = (token(&two), route.beside(5));
    let mut flow = route.chain.on_request(&mut head, &mut second.turn(&facts));
    while let Flow::Need(Need::Until(until)) = flow {
        second.now = until;
        flow = route.chain.resume(&mut 0, Found::Now, &mut head, &mut second.turn(&facts));
    }
    assert!(matches!(&flow, Flow::Respond(answer) if answer.status == 503), "{flow:?}");
    slow.taker.take(answer(200, &one.jwks()), second.now);
    let flow = route.chain.on_request(&mut head, &mut second.turn(&facts));
    assert!(matches!(&flow, Flow::Respond(answer) if answer.status == 401), "{flow:?}");
}

#[test]
fn settings_that_cannot_work_are_issues() {
    let keys = json!({ "cluster": "idp", "path": "/jwks" });
    let ca: Value = json!({ "name": "ca.pem", "text": "x" });
    for (settings, told) in [
        (json!({ "keys": keys, "keys_url": "https://a/b" }), "keys: there is already"),
        (json!({ "keys": { "cluster": "idp", "path": "jwks" } }), "keys/path: `jwks` is not a path"),
        (json!({ "keys": keys, "keys_fetch": { "interval": "10ms" } }), "keys_fetch/interval"),
        (json!({ "keys": keys, "keys_fetch": { "ca_file": ca } }), "keys_fetch/ca_file"),
    ] {
        let told_by = issue("jwt", settings);
        assert!(told_by.starts_with(told), "{told_by}");
    }
}
