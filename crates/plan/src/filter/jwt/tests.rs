use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::testing::{Beside, World, answered, chain, issue, listed, passed_with, request, uses};
use super::super::{Chain, Flow, Found, Need};
use crate::jose::Algorithm;
use crate::jose::testing::Signer;

/// What the clock of tests says.
const NOW: u64 = 2_000_000_000;

fn good() -> Value {
    json!({ "sub": "ann", "iss": "us", "aud": "shop", "exp": NOW + 300, "groups": ["staff", "x,y"], "realm": { "role": "clerk" } })
}

fn with(signer: &Signer, more: Value) -> Chain {
    let mut settings =
        json!({ "keys_file": { "name": "jwks.json", "text": signer.jwks() }, "issuer": "us", "audience": ["shop"] });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chain(json!([{ "jwt": settings }, { "set_request_header": { "x-role": "{claim:realm.role}", "x-me": "{user}" } }]))
}

fn bearing(token: &str) -> model::RequestHead {
    request("GET", "/", &[("Authorization", &format!("Bearer {token}")), ("a", "b")])
}

/// The status of the answer and its challenge.
fn refused(chain: &Chain, token: &str) -> (u16, String) {
    let answer = answered(chain, &mut bearing(token));
    let challenge = answer.fields.iter().find(|(name, _)| name == "www-authenticate");
    (answer.status, challenge.map(|(_, value)| value.clone()).unwrap_or_default())
}

#[test]
fn a_good_token_names_the_user_and_its_claims_and_stays_here() {
    let signer = Signer::rs256("k");
    let chain = with(&signer, json!({ "claim_headers": { "x-groups": "groups", "x-none": "none" } }));
    let token = signer.sign(&good());
    for _ in 0..2 {
        let mut head = bearing(&token);
        for forged in ["X_Groups", "x-none"] {
            head.fields.append(&model::FieldName::new(forged).unwrap(), b"forged");
        }
        let (head, beside) = passed_with(&chain, head);
        assert_eq!(listed(&head.fields), "a: b|x-groups: staff|x-role: clerk|x-me: ann");
        assert_eq!(beside.notes.user(), Some(&b"ann"[..]));
        assert_eq!(beside.notes.claims().unwrap().text("iss").as_deref(), Some("us"));
    }
    let (head, _) = passed_with(&with(&signer, json!({ "pass_on": true, "user_claim": "iss" })), bearing(&token));
    assert_eq!(listed(&head.fields), format!("Authorization: Bearer {token}|a: b|x-role: clerk|x-me: us"));
    let both = with(&signer, json!({ "pass_on": true, "from": { "header": "authorization", "cookie": "session" } }));
    let mut head = bearing(&token);
    head.fields.append(&model::FieldName::new("cookie").unwrap(), b"session=forged");
    let (head, _) = passed_with(&both, head);
    assert_eq!(listed(&head.fields), format!("Authorization: Bearer {token}|a: b|x-role: clerk|x-me: ann"));
    assert!(chain.guarded().iter().any(|guarded| guarded.covers(b"x_none")));
}

#[test]
fn each_refusal_has_its_status_and_says_why() {
    let signer = Signer::es256("k");
    let chain = with(&signer, json!({ "claims": { "groups": ["staff", "admin"], "realm.role": "clerk" } }));
    let changed = |changes: Value| {
        let mut claims = good();
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        signer.sign(&claims)
    };
    passed_with(&chain, bearing(&changed(json!({}))));
    let other = Signer::es256("other").sign(&good());
    let forged = Signer::es256("k").sign(&good());
    let unsigned = { "eyJhbGciOiJub25lIn0.e30." };
    for (token, status, why) in [
        (changed(json!({ "exp": NOW - 60 })), 401, "the token has expired"),
        (changed(json!({ "nbf": NOW + 61 })), 401, "the token is not valid yet"),
        (changed(json!({ "aud": "cellar" })), 401, "the token is for another audience"),
        (changed(json!({ "iss": "them" })), 401, "the token is from another issuer"),
        (changed(json!({ "exp": "soon" })), 401, "the token is malformed"),
        (other, 401, "the key of the token is unknown"),
        (forged, 401, "the signature of the token is wrong"),
        (unsigned.to_owned(), 401, "the algorithm of the token is not allowed"),
        ("abc".to_owned(), 401, "the token is malformed"),
        (changed(json!({ "groups": ["guests"] })), 403, "the token lacks a claim"),
        (changed(json!({ "realm": { "role": "Clerk" } })), 403, "the token lacks a claim"),
        (changed(json!({ "groups": null })), 403, "the token lacks a claim"),
    ] {
        let error = if status == 403 { "insufficient_scope" } else { "invalid_token" };
        let told = (status, format!("Bearer error=\"{error}\", error_description=\"{why}\""));
        assert_eq!((refused(&chain, &token), refused(&chain, &token)), (told.clone(), told), "{token}");
    }
    assert_eq!(refused(&chain, &"a".repeat(17_000)).0, 400);
    let answer = answered(&chain, &mut request("GET", "/", &[]));
    assert_eq!((answer.status, &*answer.fields[1].1), (401, "Bearer"));
    let basic = answered(&chain, &mut request("GET", "/", &[("authorization", "Basic YTpi")]));
    assert_eq!((basic.status, &*basic.fields[1].1), (401, "Bearer"));
    let token = changed(json!({}));
    let two = [("authorization", format!("Bearer {token}")), ("authorization", format!("Bearer {token}"))];
    let two: Vec<_> = two.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(answered(&chain, &mut request("GET", "/", &two)).status, 400);
}

#[test]
fn a_cached_token_is_refused_once_it_has_expired() {
    let signer = Signer::es256("k");
    let chain = with(&signer, json!({ "leeway": "1s" }));
    let token = signer.sign(&good());
    let world = World::new();
    let facts = world.facts();
    for (now, passes) in [(NOW, true), (NOW + 300, true), (NOW + 301, false), (NOW, true)] {
        let mut beside = Beside::new();
        beside.wall_clock = Box::new(move || Duration::from_secs(now));
        let flow = chain.on_request(&mut bearing(&token), &mut beside.turn(&facts));
        assert_eq!(flow == Flow::Continue, passes, "{now}");
    }
}

#[test]
fn requests_without_a_token_may_pass_but_bring_no_claims_of_their_own() {
    let signer = Signer::es256("k");
    let chain = with(&signer, json!({ "allow_missing": true, "claim_headers": { "x-user": "sub" } }));
    let (head, beside) = passed_with(&chain, request("GET", "/", &[("x-user", "eve"), ("X_USER", "eve")]));
    assert_eq!((listed(&head.fields).as_str(), beside.notes.user()), ("", None));
    assert_eq!(refused(&chain, "abc").0, 401);
}

#[test]
fn a_token_may_be_in_a_query_or_a_cookie() {
    let signer = Signer::es256("k");
    let chain = with(&signer, json!({ "from": { "query": "token", "cookie": "session" } }));
    let token = signer.sign(&good());
    let (head, _) = passed_with(&chain, request("GET", &format!("/?a=1&token={token}"), &[]));
    assert_eq!(head.query(), Some(&b"a=1"[..]));
    let (head, _) = passed_with(&chain, request("GET", "/", &[("cookie", &format!("session={token}; b=2"))]));
    assert_eq!(listed(&head.fields), "cookie: b=2|x-role: clerk|x-me: ann");
    assert_eq!(refused(&chain, &token).0, 401, "`authorization` is none of the places");
}

#[test]
fn the_type_and_the_algorithm_can_be_narrowed_down() {
    let signer = Signer::rs256("k");
    let chain = with(&signer, json!({ "token_type": "at+jwt", "algorithms": ["RS256", "ES256"] }));
    let of_type =
        |kind: &str| signer.sign_texts(&json!({ "alg": "RS256", "typ": kind }).to_string(), &good().to_string());
    for kind in ["at+jwt", "AT+JWT", "application/at+jwt"] {
        passed_with(&chain, bearing(&of_type(kind)));
    }
    for kind in ["JWT", "", "at+jwt2"] {
        assert!(refused(&chain, &of_type(kind)).1.contains("of another type"), "{kind}");
    }
    let signer = Signer::rs256("k").with(Algorithm::Rs512);
    assert!(refused(&with(&signer, json!({ "algorithms": ["RS256"] })), &signer.sign(&good())).1.contains("algorithm"));
}

#[test]
fn hostile_claims_begin_no_field() {
    let signer = Signer::es256("k");
    let chain = with(&signer, json!({ "claim_headers": { "x-user": "sub", "x-blank": "blank" } }));
    let mut claims = good();
    claims["sub"] = json!(" ann\r\nX-Admin: 1\u{0} ");
    claims["blank"] = json!(" \r\n ");
    let (head, _) = passed_with(&chain, bearing(&signer.sign(&claims)));
    assert!(listed(&head.fields).contains("x-user: ann  X-Admin: 1|x-role"), "{}", listed(&head.fields));
}

fn fetched() -> Value {
    json!([{ "jwt": { "keys_url": "https://login.example/keys?x=1", "issuer": "us" } }])
}

/// What comes of a token, and the milliseconds that the request has waited.
fn ask(chain: &Chain, token: &str, mut meanwhile: impl FnMut(u32)) -> (Flow, u128) {
    let world = World::new();
    let facts = world.facts();
    let (mut head, mut place, mut beside) = (bearing(token), 0, Beside::new());
    let begun = beside.now;
    let mut flow = chain.on_request_from(&mut place, &mut head, &mut beside.turn(&facts));
    let mut waits = 0;
    while let Flow::Need(Need::Until(moment)) = flow {
        waits += 1;
        meanwhile(waits);
        beside.now = moment;
        flow = chain.resume(&mut place, Found::Now, &mut head, &mut beside.turn(&facts));
    }
    (flow, (beside.now - begun).as_millis())
}

fn status(flow: &Flow) -> u16 {
    match flow {
        Flow::Respond(local) => local.status,
        Flow::Continue => 200,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_wait_for_the_first_keys_and_for_unknown_ones_but_not_for_ever() {
    let (first, second) = (Signer::es256("a"), Signer::es256("b"));
    let chain = chain(fetched());
    let source = chain.key_sources().next().unwrap();
    let (flow, waited) = ask(&chain, &first.sign(&good()), |_| ());
    assert_eq!((status(&flow), waited), (503, 1_500));
    let (flow, waited) = ask(&chain, &first.sign(&good()), |waits| {
        if waits == 2 {
            source.set(&first.jwks()).unwrap();
        }
    });
    assert_eq!((status(&flow), waited), (200, 300));
    let (flow, waited) = ask(&chain, &second.sign(&good()), |_| ());
    assert_eq!((status(&flow), waited), (401, 0), "keys have just been fetched");
    source.rest_is_over();
    let both = json!({ "keys": [first.jwk(), second.jwk()] }).to_string();
    let (flow, waited) = ask(&chain, &second.sign(&good()), |_| source.set(&both).unwrap());
    assert_eq!((status(&flow), waited), (200, 100));
    source.rest_is_over();
    let (flow, waited) = ask(&chain, &Signer::es256("c").sign(&good()), |_| source.fail());
    assert_eq!((status(&flow), waited), (401, 100));
}

#[test]
fn a_key_that_is_withdrawn_verifies_no_token_any_more_though_one_was_cached() {
    let (first, second) = (Signer::es256("a"), Signer::es256("b"));
    let chain = chain(fetched());
    let source = chain.key_sources().next().unwrap();
    source.set(&first.jwks()).unwrap();
    let token = first.sign(&good());
    assert_eq!(status(&ask(&chain, &token, |_| ()).0), 200);
    assert!(source.set("no keys").is_err());
    assert_eq!(status(&ask(&chain, &token, |_| ()).0), 200, "the last good keys stay");
    source.set(&second.jwks()).unwrap();
    assert_eq!(status(&ask(&chain, &token, |_| ()).0), 401);
}

#[test]
fn fetched_keys_survive_a_change_of_other_settings() {
    let before = chain(fetched());
    before.key_sources().next().unwrap().set(&Signer::es256("a").jwks()).unwrap();
    let mut changed = fetched();
    changed[0]["jwt"]["audience"] = json!("shop");
    let after = Chain::compile(&uses(&changed), Some(&before)).unwrap();
    assert!(Arc::ptr_eq(&before.key_sources().next().unwrap(), &after.key_sources().next().unwrap()));
    changed[0]["jwt"]["keys_url"] = json!("https://login.example/other");
    let other = Chain::compile(&uses(&changed), Some(&after)).unwrap();
    assert!(other.key_sources().next().unwrap().keys().is_none());
}

#[test]
fn mistakes_are_reported_with_their_place() {
    let file = json!({ "name": "jwks.json", "text": Signer::es256("k").jwks() });
    let secret = json!({ "name": "s.json", "text": "{\"keys\":[{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}]}" });
    for (settings, told) in [
        (json!({}), ": there are no keys, so every token would be refused (add `keys_file` or `keys_url`)"),
        (
            json!({ "keys_file": file, "keys_url": "https://a/" }),
            "keys_url: there is already a `keys_file` (leave one of them out)",
        ),
        (
            json!({ "keys_file": secret }),
            "keys_file: `s.json`: there is no key that can verify tokens: key 1: its algorithm does not fit its type or length",
        ),
        (
            json!({ "keys_url": "login.example" }),
            "keys_url: `login.example` is not a URL (write one such as `https://login.example.com/.well-known/jwks.json`)",
        ),
        (
            json!({ "keys_url": "http://a/", "keys_fetch": { "ca_file": file } }),
            "keys_fetch/ca_file: `ca_file` needs a URL with `https`",
        ),
        (
            json!({ "keys_url": "http://a/", "keys_fetch": { "interval": "10ms" } }),
            "keys_fetch/interval: the interval is below 1s",
        ),
        (json!({ "keys_file": file, "issuer": "" }), "issuer: it is empty (leave `issuer` out to accept any)"),
        (json!({ "keys_file": file, "audience": [] }), "audience: it is empty (leave `audience` out to accept any)"),
        (
            json!({ "keys_file": file, "algorithms": ["ES257"] }),
            "algorithms/0: there is no algorithm `ES257` (did you mean `ES256`?)",
        ),
        (
            json!({ "keys_file": file, "algorithms": ["RS256"] }),
            "algorithms: no key in `keys_file` verifies any of these algorithms (leave `algorithms` out to allow those of the keys)",
        ),
        (
            json!({ "keys_file": file, "claims": { "a": [] } }),
            "claims/a: a claim needs a text, a number, `true` or `false` (list several of them to allow each)",
        ),
        (
            json!({ "keys_file": file, "claim_headers": { "x-a": "a", "x_a": "b" } }),
            "claim_headers/x_a: `x_a` is listed twice (keep one of them: `-` and `_` are alike to many endpoints)",
        ),
        (json!({ "keys_file": file, "from": { "cookie": "a b" } }), "from/cookie: `a b` is not the name of a cookie"),
    ] {
        assert_eq!(issue("jwt", settings), told);
    }
}
