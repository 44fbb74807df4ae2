use model::ResponseHead;
use model::limits::TARGET_BYTES_MAX;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request, response, returned};

/// The value that a field has after these rules.
fn after(rules: &Value, name: &str, value: &str) -> String {
    let head = returned(
        &chain(json!([{ "rewrite_location": rules }])),
        &request("GET", "/a", &[("host", "Shop.example:81")]),
        response(302, &[("x-before", "1"), (name, value)]),
    );
    listed(&head.fields).strip_prefix(&format!("x-before: 1|{name}: ")).unwrap().to_owned()
}

#[test]
fn what_an_address_begins_with_is_replaced() {
    for (from, to, address, expected) in [
        ("http://in:8080/app/", "/", "http://in:8080/app/x?y#z", "/x?y#z"),
        ("http://in:8080/app/", "/", "HTTP://IN:8080/app/x", "/x"),
        ("http://in:8080/app/", "/", "http://in:8080/App/x", "http://in:8080/App/x"),
        ("http://in:8080/app/", "/", "http://in:8080/app", "http://in:8080/app"),
        ("http://in:8080/app/", "/", "", ""),
        ("http://in", "https://out", "http://in/x", "https://out/x"),
        ("http://in", "https://out", "http://in?x", "https://out?x"),
        ("http://in", "https://out", "http://in", "https://out"),
        ("http://in", "https://out", "http://in.evil.example/x", "http://in.evil.example/x"),
        ("http://in", "https://out", "http://in:8080/x", "http://in:8080/x"),
        ("http://in", "", "http://in", "/"),
        ("http://", "https://", "http://any/x", "https://any/x"),
        ("/app", "/shop", "/app/x", "/shop/x"),
        ("/", "{scheme}://{received_host}/b/", "/x", "http://Shop.example:81/b/x"),
        ("http://in/", "//cdn/", "http://in/x", "//cdn/x"),
        ("//in/", "//cdn/", "//in/x", "//cdn/x"),
        ("http://in/", "/$1", "http://in/x", "/$1x"),
        ("http://{host}/", "/", "http://shop.example/x", "/x"),
        ("http://{host}", "", "http://Shop.example.evil/x", "http://Shop.example.evil/x"),
        ("{request_header:x-none}", "/a", "/x", "/x"),
    ] {
        let rules = json!([{ "from": from, "to": to }]);
        assert_eq!(after(&rules, "location", address), expected, "{from} to {to}: {address}");
    }
}

#[test]
fn matches_of_an_expression_are_replaced_and_groups_quoted() {
    let rules = json!([
        { "pattern": "^http://([a-z]+)\\.(?<zone>in|lab)/", "to": "https://{received_host}/$1/${zone}/$$" },
        { "from": "http://", "to": "https://" },
    ]);
    assert_eq!(after(&rules, "location", "http://shop.lab/x"), "https://Shop.example:81/shop/lab/$x");
    assert_eq!(after(&rules, "location", "http://shop.example/x"), "https://shop.example/x", "the next rule");
    assert_eq!(after(&rules, "location", "/x"), "/x");
    assert_eq!(after(&json!([{ "pattern": "old", "to": "new" }]), "location", "//cdn/old/old"), "//cdn/new/new");
}

#[test]
fn no_address_turns_into_that_of_another_host() {
    for address in ["http://in/app//evil.example", "http://in/app/\\evil.example", "http://in/app/\\/\\evil.example"] {
        for rule in [
            json!({ "from": "http://in/app/", "to": "/" }),
            json!({ "from": "http://in/app", "to": "" }),
            json!({ "pattern": "^http://in/app/(.*)$", "to": "/$1" }),
            json!({ "pattern": "^http://in/app", "to": "" }),
        ] {
            assert_eq!(after(&json!([rule]), "location", address), "/evil.example", "{rule}");
        }
    }
}

#[test]
fn the_address_of_a_refresh_is_changed_and_all_else_of_it_stays() {
    let rules = json!([{ "from": "http://in/", "to": "/" }]);
    for (value, expected) in [
        ("5; url=http://in/x", "5; url=/x"),
        ("5;URL = 'http://in/x' more", "5;URL = '/x' more"),
        ("0, url=\"http://in/x\"", "0, url=\"/x\""),
        ("5; http://in/x ;", "5; /x ;"),
        ("5; url='http://in/x", "5; url='/x"),
        ("5", "5"),
        ("5;", "5;"),
        ("5; url", "5; url"),
        ("5; url=", "5; url="),
        ("http://in/x", "http://in/x"),
        ("5; url=/http://in/x", "5; url=/http://in/x"),
    ] {
        assert_eq!(after(&rules, "refresh", value), expected, "{value}");
    }
}

#[test]
fn hostile_values_do_no_harm() {
    let rules = json!([{ "pattern": "a", "to": "{request_header:x}" }]);
    let long = "a".repeat(TARGET_BYTES_MAX);
    let filters = chain(json!([{ "rewrite_location": rules }]));
    let sent = request("GET", "/", &[("x", &"b".repeat(3000))]);
    let head = returned(&filters, &sent, response(302, &[("location", &long), ("location", "/a"), ("Location", "/b")]));
    let values: Vec<usize> = head.fields.iter().map(|field| field.value.len()).collect();
    assert_eq!(values, [long.len(), 3001, 2], "what would be too long stays");
    assert!(head.fields.capacity_bytes() < 8 * TARGET_BYTES_MAX, "the growth is bounded");
    let mut head = ResponseHead::default();
    let at = head.fields.load(b"location/a\xff\xfe'\"");
    head.fields.push_span(model::fields::Span::new(at, at + 8), model::fields::Span::new(at + 8, at + 14));
    let rules = json!([{ "from": "/", "to": "/b/" }]);
    let head = returned(&chain(json!([{ "rewrite_location": rules }])), &sent, head);
    assert_eq!(head.fields.value_at(0), b"/b/a\xff\xfe'\"");
}

#[test]
fn answers_that_are_made_here_stay() {
    let filters = chain(json!([{ "rewrite_location": [{ "from": "/", "to": "/b/" }] }]));
    let (world, sent) = (World::new(), request("GET", "/", &[]));
    let facts = world.facts();
    let mut head = response(302, &[("location", "/x")]);
    let view = super::ResponseView { cluster: None, endpoint: None, ..world.view(&sent) };
    filters.on_response(&mut head, &view, &mut Beside::new().turn(&facts));
    assert_eq!(listed(&head.fields), "location: /x");
}

#[test]
fn mistakes_are_found_when_the_configuration_is_checked() {
    for (settings, told) in [
        (json!([]), ": the list is empty (write a rule, or leave the filter out)"),
        (json!([{ "to": "/" }]), "0: exactly one of `from` and `pattern` is needed"),
        (json!([{ "from": "/", "pattern": "/", "to": "/" }]), "0: exactly one of `from` and `pattern` is needed"),
        (json!([{ "from": "", "to": "/" }]), "0/from: every address begins with an empty text (use a `pattern`)"),
        (
            json!([{ "from": "/a", "to": "/a b" }]),
            "0/to: an address holds only visible ASCII characters (percent-encode the others, such as %20)",
        ),
        (json!([{ "from": "/a", "to": "/b" }, { "pattern": "a", "to": "$1" }]), "1/to: the pattern has no group `1`"),
        (json!([{ "pattern": "a", "to": "$" }]), "0/to: `$` names no group (write `$$` for a dollar sign)"),
        (json!([{ "from": "/a", "to": "{hots}" }]), "0/to: there is no variable `{hots}` (did you mean `host`?)"),
    ] {
        assert_eq!(issue("rewrite_location", settings), told);
    }
    assert!(
        issue("rewrite_location", json!([{ "pattern": "(", "to": "/" }])).starts_with("0/pattern: `(` is not a reg")
    );
}
