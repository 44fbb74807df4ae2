//! Encrypted tokens before the filter.

use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request};
use super::super::{Chain, Flow, Found, Need};
use crate::jose::testing::Signer;

/// Made by jwcrypto 1.6.1, see the tests of `jose::decryption`.
fn vectors() -> Value {
    serde_json::from_str(include_str!("../../jose/decryption/vectors.json")).unwrap()
}

fn file(name: &str, text: &Value) -> Value {
    json!({ "name": name, "text": text.to_string() })
}

fn with(vectors: &Value, decrypt: Value, more: Value) -> Chain {
    let mut settings = json!({
        "keys_file": file("jwks.json", &vectors["signer"]), "issuer": "us", "audience": "shop",
        "decrypt": { "keys_file": file("private.json", &vectors["keys"]) }, "claim_headers": { "x-user": "sub" },
    });
    settings["decrypt"].as_object_mut().unwrap().extend(decrypt.as_object().unwrap().clone());
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    chain(json!([{ "jwt": settings }]))
}

/// What comes of a request with a token, and whether other threads had to work for it.
fn ask(chain: &Chain, token: &str) -> (Result<String, (u16, String)>, bool) {
    let (world, mut beside, mut place) = (World::new(), Beside::new(), 0);
    let facts = world.facts();
    let mut head = request("GET", "/", &[("Authorization", &format!("Bearer {token}"))]);
    let mut flow = chain.on_request_from(&mut place, &mut head, &mut beside.turn(&facts));
    let mut has_worked = false;
    if let Flow::Need(Need::Work(job)) = &flow {
        has_worked = true;
        let found = Found::Work(job.0.run(&mut || 7));
        flow = chain.resume(&mut place, found, &mut head, &mut beside.turn(&facts));
    }
    let outcome = match flow {
        Flow::Continue => Ok(listed(&head.fields)),
        Flow::Respond(answer) => {
            let challenge = answer.fields.iter().find(|(name, _)| name == "www-authenticate");
            Err((answer.status, challenge.map(|(_, value)| value.clone()).unwrap_or_default()))
        }
        other => panic!("{other:?}"),
    };
    (outcome, has_worked)
}

fn is_refused(outcome: &Result<String, (u16, String)>, why: &str) -> bool {
    matches!(outcome, Err((401, challenge)) if challenge.contains(why))
}

fn tokens(vectors: &Value, kind: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    vectors[kind].as_array().unwrap().iter().map(|one| (text(&one["alg"]), text(&one["token"]))).collect()
}

#[test]
fn the_signed_token_inside_is_verified_and_private_keys_are_work_for_other_threads_once() {
    let vectors = vectors();
    let chain = with(&vectors, json!({}), json!({}));
    for (place, (management, token)) in tokens(&vectors, "nested").into_iter().enumerate() {
        let is_slow = management.starts_with("RSA") || management.starts_with("ECDH");
        assert_eq!(ask(&chain, &token), (Ok("x-user: ann".to_owned()), is_slow), "{management}");
        // All have the same token inside, of which four encryptions are cached.
        let is_slow = is_slow && place >= 4;
        assert_eq!(ask(&chain, &token), (Ok("x-user: ann".to_owned()), is_slow), "{management} again");
    }
    let inner = vectors["inner"].as_str().unwrap();
    assert_eq!(ask(&chain, inner).0, Ok("x-user: ann".to_owned()), "a token that is only signed");
    let strict = with(&vectors, json!({ "required": true }), json!({}));
    assert!(is_refused(&ask(&strict, inner).0, "the token is not encrypted"));
}

#[test]
fn what_is_inside_must_be_signed_by_a_known_key() {
    let vectors = vectors();
    let other = json!({ "keys_file": file("jwks.json", &Signer::es256("signer").jwk()) });
    let chain = with(&vectors, json!({}), other);
    for (management, token) in tokens(&vectors, "nested") {
        assert!(is_refused(&ask(&chain, &token).0, "the signature of the token is wrong"), "{management}");
    }
    let chain = with(&vectors, json!({}), json!({ "issuer": "them" }));
    assert!(is_refused(&ask(&chain, &tokens(&vectors, "nested")[0].1).0, "another issuer"));
}

#[test]
fn claims_without_a_signature_need_a_shared_secret_and_the_word_of_the_operator() {
    let vectors = vectors();
    let none = with(&vectors, json!({}), json!({}));
    let some = with(&vectors, json!({ "allow_unsigned": true }), json!({ "keys_file": null }));
    for (management, token) in tokens(&vectors, "bare") {
        assert!(is_refused(&ask(&none, &token).0, "the token is not signed"), "{management}");
        let outcome = ask(&some, &token).0;
        if management.starts_with("RSA") || management.starts_with("ECDH") {
            assert!(is_refused(&outcome, "the token is not signed"), "{management}");
        } else {
            assert_eq!(outcome, Ok("x-user: ann".to_owned()), "{management}");
        }
    }
    // Without keys for signatures no signature is good.
    assert!(is_refused(&ask(&some, vectors["inner"].as_str().unwrap()).0, "the key of the token is unknown"));
}

#[test]
fn forged_tokens_are_refused_with_one_reason_and_without_decryption_keys_all_are() {
    let vectors = vectors();
    let chain = with(&vectors, json!({}), json!({}));
    for (management, token) in tokens(&vectors, "nested") {
        let (start, tag) = token.rsplit_once('.').unwrap();
        let forged = format!("{start}.{}", tag.chars().rev().collect::<String>());
        let outcome = ask(&chain, &forged).0;
        assert!(
            is_refused(&outcome, "cannot be decrypted") || is_refused(&outcome, "malformed"),
            "{management} {outcome:?}"
        );
    }
    let without = with(&vectors, json!({}), json!({ "decrypt": null }));
    assert!(is_refused(&ask(&without, &tokens(&vectors, "nested")[0].1).0, "malformed"));
}

#[test]
fn nothing_is_kept_of_a_decryption_whose_exchange_is_gone() {
    let vectors = vectors();
    let chain = with(&vectors, json!({}), json!({}));
    let token = tokens(&vectors, "nested").into_iter().find(|(management, _)| management == "RSA-OAEP").unwrap().1;
    let (world, mut beside) = (World::new(), Beside::new());
    let facts = world.facts();
    let mut head = request("GET", "/", &[("Authorization", &format!("Bearer {token}"))]);
    let Flow::Need(Need::Work(job)) = chain.on_request(&mut head, &mut beside.turn(&facts)) else { panic!("no work") };
    let held = std::sync::Arc::strong_count(&job.0);
    beside.notes.clear();
    assert_eq!(std::sync::Arc::strong_count(&job.0), held - 1);
    // The step that goes on without a result refuses.
    let (world, mut beside, mut place) = (World::new(), Beside::new(), 0);
    let facts = world.facts();
    let flow = chain.on_request_from(&mut place, &mut head, &mut beside.turn(&facts));
    assert!(matches!(flow, Flow::Need(Need::Work(_))));
    let flow = chain.resume(&mut place, Found::Work(false), &mut head, &mut beside.turn(&facts));
    assert!(matches!(flow, Flow::Respond(answer) if answer.status == 503));
}

#[test]
fn tokens_that_no_key_can_decrypt_are_refused_without_work() {
    let vectors = vectors();
    let chain = with(&vectors, json!({}), json!({}));
    let (management, token) = tokens(&vectors, "nested").into_iter().find(|(alg, _)| alg == "RSA-OAEP").unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    for place in [1, 2, 4] {
        let mut parts = parts.clone();
        // A multiple of four characters: base64url stays what it is.
        parts[place] = &parts[place][..parts[place].len() / 8 * 4];
        let (outcome, has_worked) = ask(&chain, &parts.join("."));
        assert!(is_refused(&outcome, "cannot be decrypted") && !has_worked, "{management} {place} {outcome:?}");
    }
    let header = json!({ "alg": management, "enc": "A256GCM", "kid": "nobody" }).to_string();
    let unknown = [&[&*model::base64::encode_url(header.as_bytes())], &parts[1..]].concat().join(".");
    let (outcome, has_worked) = ask(&chain, &unknown);
    assert!(outcome.is_err() && !has_worked, "{outcome:?}");
}

#[test]
fn no_more_than_sixteen_tokens_of_a_filter_are_decrypted_at_once_with_those_whose_clients_are_gone() {
    let vectors = vectors();
    let chain = with(&vectors, json!({}), json!({}));
    let token = tokens(&vectors, "nested").into_iter().find(|(management, _)| management == "RSA-OAEP").unwrap().1;
    let world = World::new();
    let facts = world.facts();
    let begin = || {
        let mut head = request("GET", "/", &[("Authorization", &format!("Bearer {token}"))]);
        // The notes are dropped: its client has gone.
        chain.on_request(&mut head, &mut Beside::new().turn(&facts))
    };
    let waiting: Vec<Flow> = (0..16).map(|_| begin()).collect();
    assert!(waiting.iter().all(|flow| matches!(flow, Flow::Need(Need::Work(_)))));
    assert!(matches!(begin(), Flow::Respond(answer) if answer.status == 503));
    drop(waiting);
    assert_eq!(ask(&chain, &token).0, Ok("x-user: ann".to_owned()));
}

#[test]
fn settings_that_cannot_work_are_issues() {
    let vectors = vectors();
    let of = |kid: &str| {
        let keys = vectors["keys"]["keys"].as_array().unwrap();
        file("private.json", keys.iter().find(|key| key["kid"] == kid).unwrap())
    };
    for (decrypt, told) in [
        (json!({ "keys_file": of("rsa"), "allow_unsigned": true }), "decrypt/allow_unsigned: no key"),
        (json!({ "keys_file": file("private.json", &vectors["signer"]) }), "decrypt/keys_file: `private.json`: key 1"),
        (json!({ "keys_file": { "name": "a.pem", "text": "x" } }), "decrypt/keys_file: `a.pem`: it is neither"),
        (json!({ "keys_file": of("oct256") }), ": there are no keys"),
    ] {
        let told_by = issue("jwt", json!({ "decrypt": decrypt }));
        assert!(told_by.starts_with(told), "{told_by}");
    }
}
