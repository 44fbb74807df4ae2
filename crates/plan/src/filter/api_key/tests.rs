use serde_json::{Value, json};

use super::super::testing::{answered, chain, issue, listed, passed, passed_with, request};
use super::super::{Chain, Guarded};

const FILE: &str =
    "# keys\r\nann:secret-of-ann\n\n  bob : sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";

fn with(more: Value) -> Chain {
    let mut settings = json!({ "file": { "name": "keys.txt", "text": FILE } });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chain(json!([{ "api_key": settings }]))
}

#[test]
fn the_consumer_is_named_and_the_key_stays_here() {
    let chain = with(json!({ "consumer_header": "x-consumer" }));
    let forged = ("X_Consumer", "eve");
    let sent = request("GET", "/", &[forged, ("X-Api-Key", "secret-of-ann"), ("a", "b")]);
    let (head, beside) = passed_with(&chain, sent);
    assert_eq!(listed(&head.fields), "a: b|x-consumer: ann");
    assert_eq!(beside.notes.user(), Some(&b"ann"[..]));
    // The digest of `secret`.
    let head = passed(&chain, request("GET", "/", &[("x-api-key", "secret")]));
    assert_eq!(listed(&head.fields), "x-consumer: bob");
    let head = passed(&with(json!({ "pass_on": true })), request("GET", "/", &[("x-api-key", "secret")]));
    assert_eq!(listed(&head.fields), "x-api-key: secret");
    let both = with(json!({ "pass_on": true, "from": { "header": "x-api-key", "query": "key", "cookie": "key" } }));
    let fields = [("x-api-key", "secret"), ("x_api_key", "forged"), ("cookie", "key=forged")];
    let head = passed(&both, request("GET", "/?key=forged", &fields));
    assert_eq!((listed(&head.fields).as_str(), head.query()), ("x-api-key: secret", None), "only the verified key");
    assert!(chain.guarded().iter().any(|guarded: &Guarded| guarded.covers(b"x_consumer")));
}

#[test]
fn a_key_may_be_in_a_query_a_cookie_or_behind_bearer() {
    let chain = with(json!({ "from": { "header": "authorization", "query": "key", "cookie": "key" } }));
    for (target, fields) in [
        ("/", ("authorization", "Bearer secret-of-ann")),
        ("/?key=secret%2dof-ann", ("a", "b")),
        ("/", ("cookie", "key=secret-of-ann")),
    ] {
        let (head, beside) = passed_with(&chain, request("GET", target, &[fields]));
        assert_eq!((head.query(), beside.notes.user()), (None, Some(&b"ann"[..])), "{target} {fields:?}");
        assert!(!listed(&head.fields).contains("secret"));
    }
    assert_eq!(answered(&chain, &mut request("GET", "/", &[("x-api-key", "secret-of-ann")])).status, 401);
}

#[test]
fn what_is_no_key_is_refused_with_a_challenge() {
    let chain = with(json!({}));
    let long = "s".repeat(5_000);
    for fields in [
        &[][..],
        &[("x-api-key", "")],
        &[("x-api-key", "secret-of-eve")],
        &[("x-api-key", "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b")],
        &[("x-api-key", "secret-of-ann"), ("x-api-key", "secret-of-ann")],
        &[("x-api-key", "secret-of-ann, secret-of-ann")],
        &[("x_api_key", "secret-of-ann")],
        &[("x-api-key", &long)],
    ] {
        let answer = answered(&chain, &mut request("GET", "/?x-api-key=secret-of-ann", fields));
        assert_eq!(answer.status, 401, "{fields:?}");
        assert_eq!(answer.fields[1], ("www-authenticate".into(), "ApiKey realm=\"restricted\"".into()));
    }
}

#[test]
fn mistakes_are_reported_with_their_place_and_without_the_key() {
    let file = |text: &str| json!({ "file": { "name": "keys.txt", "text": text } });
    for (settings, told) in [
        (json!({}), ": there are no keys, so every request would be rejected (add `file` or `keys`)"),
        (
            json!({ "keys": { "ann": "short" } }),
            "keys/ann: a key has 8 to 1024 bytes; create one with `openssl rand -hex 32`",
        ),
        (
            json!({ "keys": { "a:b": "long enough" } }),
            "keys/a:b: the name of a consumer has 1 to 128 bytes, no colon and no control characters",
        ),
        (json!({ "keys": { "ann": "two words" } }), "keys/ann: a key contains no spaces and no control characters"),
        (
            file("\nsecret-of-ann"),
            "file: `keys.txt`, line 2: there is no colon between consumer and key; write `consumer:key`",
        ),
        (
            file("ann:sha256:12"),
            "file: `keys.txt`, line 1: behind `sha256:` there are not 64 hexadecimal digits; `printf %s KEY | sha256sum` prints them",
        ),
        (
            file("ann:secret-of-ann\nbob:secret-of-ann"),
            "file: `keys.txt`, line 2: the key of `bob` is listed already, as one of `ann`",
        ),
        (
            json!({ "keys": { "ann": "secret-of-ann" }, "from": { "query": "" } }),
            "from/query: the name of a parameter is empty",
        ),
        (
            json!({ "keys": { "ann": "secret-of-ann" }, "consumer_header": "content-length" }),
            "consumer_header: `content-length` cannot be changed by a filter: the proxy writes it from the body that it sends",
        ),
    ] {
        assert_eq!(issue("api_key", settings), told);
    }
}
