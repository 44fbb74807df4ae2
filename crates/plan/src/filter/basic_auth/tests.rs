use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, flow_of, issue, listed, request};
use super::super::{Chain, Flow, Found, Need};

const ANN: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";

fn protected(more: Value) -> Chain {
    let mut settings = json!({ "users": { "ann": ANN, "bob": "$apr1$ozAnnRQ8$nRw8p2UQymJFqVKCCtq5l1" } });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    chain(json!([{ "basic_auth": settings }, { "set_request_header": { "x-user": "{user}" } }]))
}

/// What comes of a request with this field, whether it had to be verified, and its fields after it.
fn ask(chain: &Chain, authorization: Option<&str>) -> (Flow, bool, String) {
    let world = World::new();
    let facts = world.facts();
    let fields: Vec<_> = authorization.iter().map(|value| ("authorization", *value)).collect();
    let (mut head, mut place, mut beside) = (request("GET", "/", &fields), 0, Beside::new());
    let mut turn = beside.turn(&facts);
    let mut flow = chain.on_request_from(&mut place, &mut head, &mut turn);
    let mut has_waited = false;
    if let Flow::Need(Need::Work(job)) = &flow {
        has_waited = true;
        let found = Found::Work(job.0.run(&mut || 7));
        flow = chain.resume(&mut place, found, &mut head, &mut turn);
    }
    (flow, has_waited, listed(&head.fields))
}

fn is_refused(flow: &Flow) -> bool {
    matches!(flow, Flow::Respond(local) if local.status == 401)
}

/// `ann:secret` and others as clients send them.
const ANN_SECRET: &str = "Basic YW5uOnNlY3JldA==";
const BOB_SECRET: &str = "basic  Ym9iOnNlY3JldA==";
const ANN_WRONG: &str = "Basic YW5uOndyb25n";
const EVE_SECRET: &str = "Basic ZXZlOnNlY3JldA==";

#[test]
fn who_is_right_is_verified_once_and_named_and_the_credentials_stay_here() {
    let chain = protected(json!({}));
    assert_eq!(ask(&chain, Some(ANN_SECRET)), (Flow::Continue, true, "x-user: ann".to_owned()));
    assert_eq!(ask(&chain, Some(ANN_SECRET)), (Flow::Continue, false, "x-user: ann".to_owned()));
    assert_eq!(ask(&chain, Some(BOB_SECRET)), (Flow::Continue, true, "x-user: bob".to_owned()));
    let (_, _, fields) = ask(&protected(json!({ "pass_on": true })), Some(ANN_SECRET));
    assert_eq!(fields, format!("authorization: {ANN_SECRET}|x-user: ann"));
}

#[test]
fn who_is_wrong_is_refused_and_so_is_a_name_that_nobody_has_by_the_same_work() {
    let chain = protected(json!({ "realm": "the \"office\"" }));
    for authorization in [ANN_WRONG, EVE_SECRET, ANN_WRONG] {
        let (flow, has_waited, _) = ask(&chain, Some(authorization));
        assert!(is_refused(&flow) && has_waited, "{authorization}");
    }
    let (Flow::Respond(local), false, _) = ask(&chain, None) else { panic!("it is refused at once") };
    assert_eq!(
        local.fields[1],
        ("www-authenticate".into(), "Basic realm=\"the \\\"office\\\"\", charset=\"UTF-8\"".into())
    );
}

#[test]
fn what_are_no_credentials_is_refused_without_work() {
    let chain = protected(json!({}));
    let long = format!("Basic {}", "YTph".repeat(300));
    for wrong in [
        "",
        "Basic",
        "Basic ",
        "Bearer YW5uOnNlY3JldA==",
        "Basic YW5u",
        "Basic ====",
        "BasicYW5uOnNlY3JldA==",
        "Basic AAAA",
        "Basic OgoK",
        &long,
    ] {
        let (flow, has_waited, _) = ask(&chain, Some(wrong));
        assert!(is_refused(&flow) && !has_waited, "{wrong}");
    }
    let world = World::new();
    let mut twice = request("GET", "/", &[("authorization", ANN_SECRET), ("authorization", ANN_SECRET)]);
    assert!(is_refused(&flow_of(&chain, &mut twice, &world.facts())));
}

#[test]
fn users_come_from_a_file_too_with_remarks_and_line_ends_of_all_kinds() {
    let text = format!("# users\r\nann:{ANN}\r\n\n bob:$apr1$ozAnnRQ8$nRw8p2UQymJFqVKCCtq5l1 \n");
    let chain = chain(json!([{ "basic_auth": { "file": { "name": "u", "text": text } } }]));
    for (authorization, is_in) in [(ANN_SECRET, true), (BOB_SECRET, true), (EVE_SECRET, false)] {
        assert_eq!(!is_refused(&ask(&chain, Some(authorization)).0), is_in, "{authorization}");
    }
}

#[test]
fn mistakes_are_told_with_their_place_and_without_the_hash() {
    let file = |text: &str| json!({ "file": { "name": "users.txt", "text": text } });
    for (settings, told) in [
        (json!({}), ": there are no users, so every request would be rejected (add `file` or `users`)"),
        (
            json!({ "users": { "a:b": ANN } }),
            "users/a:b: a name has at least one character, no colon and no control characters",
        ),
        (
            json!({ "users": { "ann": "secret" } }),
            "users/ann: this is not a bcrypt, SHA-crypt or `$apr1$` hash; create one with `htpasswd -B`",
        ),
        (json!({ "users": { "ann": ANN }, "realm": "ü" }), "realm: a realm is 1 to 128 printable characters of ASCII"),
        (
            file("# none\nann\n"),
            "file: `users.txt`, line 2: there is no hash after the name; create one with `htpasswd -B`",
        ),
        (
            file("ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="),
            "file: `users.txt`, line 1: `{SHA}` is rejected: such hashes are guessed too fast; create one with `htpasswd -B`",
        ),
        (file(&format!("ann:{ANN}\nann:{ANN}")), "file: `users.txt`, line 2: the user `ann` is listed twice"),
    ] {
        assert_eq!(issue("basic_auth", settings), told);
    }
}
