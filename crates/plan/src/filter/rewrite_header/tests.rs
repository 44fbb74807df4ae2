use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{chain, issue, listed, passed, request, response, returned};

fn of_request(rules: Value, fields: &[(&str, &str)]) -> String {
    let chain = chain(json!([{ "rewrite_header": { "request": rules } }]));
    listed(&passed(&chain, request("GET", "/a", fields)).fields)
}

fn of_response(rules: Value, fields: &[(&str, &str)]) -> String {
    let chain = chain(json!([{ "rewrite_header": { "response": rules } }]));
    let asked = request("GET", "/a", &[("host", "www.example")]);
    listed(&returned(&chain, &asked, response(200, fields)).fields)
}

#[test]
fn every_match_in_every_field_of_the_name_is_replaced() {
    let rules = json!([{ "name": "X-A", "pattern": "([a-z])([0-9])", "to": "$2$1" }]);
    let sent = [("x-a", "a1 b2"), ("x-b", "c3"), ("X-A", "none"), ("X-a", "d4")];
    assert_eq!(of_request(rules.clone(), &sent), "x-a: 1a 2b|x-b: c3|X-A: none|X-a: 4d");
    assert_eq!(of_request(rules, &[("x-b", "c3")]), "x-b: c3");
}

#[test]
fn rules_follow_one_another_and_may_quote_the_exchange() {
    let rules = json!([
        { "name": "x-a", "pattern": "^one$", "to": "two {method}{{}}" },
        { "name": "x-a", "pattern": "two", "to": "$$three" },
    ]);
    assert_eq!(of_request(rules, &[("x-a", "one")]), "x-a: $three GET{}");
    let host = json!([{ "name": "x-a", "pattern": "internal", "to": "{host}:{status}" }]);
    assert_eq!(of_response(host, &[("x-a", "//internal/")]), "x-a: //www.example:200/");
    let empty = json!([{ "name": "server", "pattern": ".*", "to": "" }]);
    assert_eq!(of_response(empty, &[("server", "x/1.0"), ("a", "b")]), "server: |a: b");
}

#[test]
fn what_would_become_too_long_stays() {
    let rules = json!([{ "name": "x-a", "pattern": "a", "to": "b".repeat(1_000) }]);
    let short = of_request(rules.clone(), &[("x-a", "aa")]);
    assert_eq!(short.len(), 2_005);
    let long = "a".repeat(100);
    assert_eq!(of_request(rules, &[("x-a", &long)]), format!("x-a: {long}"));
}

proptest! {
    #[test]
    fn no_value_makes_a_field_that_splits_a_head(value in "\\PC{0,40}", to in "[a-z\r\n]{0,5}") {
        let quoted = json!([{ "name": "x-a", "pattern": "a|$", "to": format!("{{request_header:x-b}}{to}") }]);
        let got = of_request(quoted, &[("x-a", &value), ("x-b", &value)]);
        prop_assert!(!got.contains(['\r', '\n', '\0']));
    }
}

#[test]
fn wrong_settings_are_issues_with_their_place() {
    for (settings, said) in [
        (json!({}), "neither `request` nor `response` has a rule"),
        (json!({ "request": [] }), "request: 0 rules are not from 1 to 64"),
        (
            json!({ "request": [{ "name": "host", "pattern": "a", "to": "b" }] }),
            "request/0/name: `host` cannot be changed",
        ),
        (
            json!({ "response": [{ "name": "a", "pattern": "(", "to": "b" }] }),
            "response/0/pattern: `(` is not a regular",
        ),
        (
            json!({ "response": [{ "name": "a", "pattern": "a", "to": "$1" }] }),
            "response/0/to: the pattern has no group",
        ),
        (json!({ "request": [{ "name": "a", "pattern": "a", "to": "{status}" }] }), "request/0/to: "),
    ] {
        let told = issue("rewrite_header", settings.clone());
        assert!(told.contains(said), "{settings}: {told}");
    }
}
