use model::ResponseHead;
use model::fields::Span;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request, response, returned};

/// The value of a `Set-Cookie` field after a change.
fn after(settings: &Value, value: &str) -> String {
    let sent = request("GET", "/", &[("host", "shop.example:81"), ("x-bad", "a;b"), ("x-long", &"l".repeat(1025))]);
    let filters = chain(json!([{ "rewrite_cookie": settings }]));
    let head = returned(&filters, &sent, response(200, &[("set-cookie", value)]));
    listed(&head.fields).strip_prefix("set-cookie: ").unwrap().to_owned()
}

#[test]
fn attributes_are_set_changed_and_removed_and_the_rest_stays() {
    for (settings, value, expected) in [
        (json!({ "secure": true }), "a=b", "a=b; Secure"),
        (json!({ "secure": true }), "a=b; SECURE;path=/", "a=b; SECURE;path=/"),
        (json!({ "secure": true }), "a=b;secure; x; Secure", "a=b;secure; x"),
        (json!({ "secure": false }), "a=b; Secure ; Path=/", "a=b; Path=/"),
        (json!({ "http_only": true, "secure": true }), "a=b", "a=b; Secure; HttpOnly"),
        (json!({ "http_only": false }), "a=b; httponly", "a=b"),
        (json!({ "same_site": "lax" }), "a=b", "a=b; SameSite=Lax"),
        (json!({ "same_site": "strict" }), "a=b; samesite=none; Secure", "a=b; samesite=Strict; Secure"),
        (json!({ "same_site": "none" }), "a=b; Secure", "a=b; Secure; SameSite=None"),
        (json!({ "same_site": "remove" }), "a=b;SameSite=Lax;Path=/", "a=b;Path=/"),
        (json!({ "domain": "d.example" }), "a=b", "a=b; Domain=d.example"),
        (json!({ "domain": "d.example" }), "a=b; domain = x; Path=/", "a=b; domain =d.example; Path=/"),
        (json!({ "domain": "" }), "a=b; Domain=x; Path=/", "a=b; Path=/"),
        (json!({ "domain": "{host}" }), "a=b", "a=b; Domain=shop.example"),
        (
            json!({ "domain": { "from": "in.example", "to": "d.example" } }),
            "a=b; Domain=.IN.example",
            "a=b; Domain=d.example",
        ),
        (json!({ "domain": { "from": ".in.example", "to": "" } }), "a=b; Domain=in.example; x", "a=b; x"),
        (
            json!({ "domain": { "from": "in.example", "to": "d" } }),
            "a=b; Domain=x.in.example",
            "a=b; Domain=x.in.example",
        ),
        (json!({ "domain": { "from": "in.example", "to": "d" } }), "a=b", "a=b"),
        (json!({ "path": "/x" }), "a=b; Path=/", "a=b; Path=/x"),
        (json!({ "path": { "from": "/app", "to": "/" } }), "a=b; Path=/app", "a=b; Path=/"),
        (json!({ "path": { "from": "/app/", "to": "/" } }), "a=b; Path=/app/x; y", "a=b; Path=/x; y"),
        (json!({ "path": { "from": "/app", "to": "/shop/" } }), "a=b; path=/app/x", "a=b; path=/shop/x"),
        (json!({ "path": { "from": "/app", "to": "/" } }), "a=b; Path=/apple", "a=b; Path=/apple"),
        (json!({ "path": { "from": "/", "to": "/shop" } }), "a=b; Path=/", "a=b; Path=/shop/"),
    ] {
        assert_eq!(after(&settings, value), expected, "{settings}: {value}");
    }
}

#[test]
fn what_is_replaced_and_what_replaces_it_may_be_variables_and_expressions() {
    let pair = |from: Value, to: &str| json!({ "from": from, "to": to });
    let regex = |text: &str| json!({ "regex": text });
    for (attribute, settings, value, expected) in [
        ("domain", pair(json!("in.test"), "{received_host}"), "a; Domain=.in.test", "a; Domain=shop.example"),
        ("domain", pair(json!("{host}"), "d.example"), "a; Domain=.Shop.example", "a; Domain=d.example"),
        ("domain", pair(json!("{received_host}"), "d.example"), "a; Domain=shop.example", "a; Domain=d.example"),
        ("domain", pair(json!("{request_header:x-none}"), "d"), "a; Domain=", "a; Domain="),
        ("domain", pair(json!("in.test"), "{request_header:x-bad}"), "a; Domain=in.test", "a; Domain=in.test"),
        ("domain", pair(json!("in.test"), "{request_header:x-none}"), "a; Domain=in.test", "a; Domain=in.test"),
        ("domain", pair(regex(r"^(\w+)\.in$"), "$1.{host}"), "a; Domain=.x.in; y", "a; Domain=x.shop.example; y"),
        ("domain", pair(regex(r"^.*\.in$"), ""), "a; Domain=x.in; y", "a; y"),
        ("domain", pair(regex(r"\.in$"), ""), "a; Domain=x.in; y", "a; Domain=x; y"),
        ("domain", pair(regex(r"\.in$"), "{request_header:x-long}"), "a; Domain=x.in", "a; Domain=x.in"),
        ("domain", pair(regex("x"), "y"), "a; Domain=in", "a; Domain=in"),
        ("path", pair(json!("/app"), "/{host}/"), "a; Path=/app/x", "a; Path=/shop.example/x"),
        ("path", pair(json!("/app"), "{path}"), "a; Path=/app/x", "a; Path=/x"),
        ("path", pair(json!("/app"), "{host}"), "a; Path=/app/x", "a; Path=/app/x"),
        ("path", pair(json!("/{host}/"), "/"), "a; Path=/shop.example/x", "a; Path=/x"),
        ("path", pair(json!("{request_header:x-none}"), "/x"), "a; Path=/", "a; Path=/"),
        ("path", pair(regex("^/user/(.+)"), "/u/$1"), "a; Path=/user/ann", "a; Path=/u/ann"),
        ("path", pair(regex("^/app"), ""), "a; Path=/app/x", "a; Path=/x"),
        ("path", pair(regex("^/app"), ""), "a; Path=/app", "a; Path=/app"),
        ("path", pair(regex("/(.*)"), "$1"), "a; Path=/app", "a; Path=/app"),
    ] {
        assert_eq!(after(&json!({ attribute: settings }), value), expected, "{settings}: {value}");
    }
}

#[test]
fn cookies_are_chosen_by_their_names() {
    let settings = json!({ "name": "sess*", "secure": true });
    for (value, expected) in [
        (" session = 1; Path=/", "session = 1; Path=/; Secure"),
        ("sess=1", "sess=1; Secure"),
        ("Sess=1", "Sess=1"),
        ("x=sess", "x=sess"),
        ("x; sess=1", "x; sess=1"),
    ] {
        assert_eq!(after(&settings, value).trim_start(), expected, "{value}");
    }
}

#[test]
fn hostile_cookies_pass_unharmed() {
    let all = json!({ "secure": true, "domain": { "from": "a", "to": "b" }, "path": { "from": "/a", "to": "/" } });
    for (value, expected) in [
        ("", "; Secure"),
        (";", ";; Secure"),
        ("=;=;;;", "=;=;;;; Secure"),
        ("a=\"b;Secure\"; x", "a=\"b;Secure\"; x; Secure"),
        ("a=b; Secure=1", "a=b; Secure=1"),
        ("a=b; Path; Domain", "a=b; Path; Domain; Secure"),
    ] {
        assert_eq!(after(&all, value), expected, "{value}");
    }
    let many = format!("a=b{}", "; Secure; Path=/a".repeat(5000));
    let expected = format!("a=b; Secure{}", "; Path=/".repeat(5000));
    assert_eq!(after(&all, &many), expected);
    let mut head = ResponseHead::default();
    let at = head.fields.load(b"set-cookiea=\xff\t\xfe; \x80=1");
    head.fields.push_span(Span::new(at, at + 10), Span::new(at + 10, at + 20));
    let head = returned(&chain(json!([{ "rewrite_cookie": all }])), &request("GET", "/", &[]), head);
    assert_eq!(head.fields.value_at(0), b"a=\xff\t\xfe; \x80=1; Secure");
}

#[test]
fn a_text_that_cannot_stand_in_a_cookie_leaves_the_attribute() {
    for variable in ["{request_header:x-bad}", "{request_header:x-long}", "{request_header:x-none}"] {
        let settings = json!({ "domain": variable, "secure": true });
        assert_eq!(after(&settings, "a=b"), "a=b; Secure", "{variable}");
        assert_eq!(after(&settings, "a=b; Domain=x"), "a=b; Domain=x; Secure", "{variable}");
    }
}

#[test]
fn every_field_is_changed_and_answers_that_are_made_here_stay() {
    let filters = chain(json!([{ "rewrite_cookie": { "secure": true } }]));
    let sent = request("GET", "/", &[]);
    let fields = [("Set-Cookie", "a=1"), ("x", "y"), ("set-cookie", "b=2")];
    let head = returned(&filters, &sent, response(200, &fields));
    assert_eq!(listed(&head.fields), "Set-Cookie: a=1; Secure|x: y|set-cookie: b=2; Secure");
    let world = World::new();
    let facts = world.facts();
    let mut head = response(200, &fields);
    let view = super::ResponseView { cluster: None, endpoint: None, ..world.view(&sent) };
    filters.on_response(&mut head, &view, &mut Beside::new().turn(&facts));
    assert_eq!(listed(&head.fields), "Set-Cookie: a=1|x: y|set-cookie: b=2");
}

#[test]
fn mistakes_are_found_when_the_configuration_is_checked() {
    for (settings, told) in [
        (
            json!({ "name": "a" }),
            ": no attribute is changed (add `domain`, `path`, `secure`, `http_only` or `same_site`)",
        ),
        (
            json!({ "same_site": "none", "secure": false }),
            "same_site: browsers refuse cookies with `SameSite=None` and without `Secure` (say `secure: true`)",
        ),
        (json!({ "name": "a=b", "secure": true }), "name: `a=b` matches no cookie name"),
        (
            json!({ "name": "a*b", "secure": true }),
            "name: `a*b` has a `*` in the middle (write `*` at the beginning, at the end, or both)",
        ),
        (
            json!({ "domain": "a;b" }),
            "domain: \"a;b\" cannot stand in a cookie: it holds a `;`, a control character, or over 1 KiB",
        ),
        (
            json!({ "domain": { "from": "", "to": "b" } }),
            "domain/from: no domain is named (write `domain: TEXT` to set it always)",
        ),
        (json!({ "path": "x" }), "path: a path begins with `/` (write `/x`)"),
        (json!({ "path": { "from": "x", "to": "/" } }), "path/from: a path begins with `/` (write `/x`)"),
        (json!({ "path": { "from": "/x", "to": "" } }), "path/to: a path begins with `/` (write `/`)"),
        (
            json!({ "domain": { "from": "a", "to": "{hots}" } }),
            "domain/to: there is no variable `{hots}` (did you mean `host`?)",
        ),
        (
            json!({ "domain": { "from": { "regex": "(" }, "to": "a" } }),
            "domain/from/regex: `(` is not a regular expression: unclosed group",
        ),
        (json!({ "path": { "from": { "regex": "/a" }, "to": "/$1" } }), "path/to: the pattern has no group `1`"),
        (json!({ "path": "{hots}" }), "path: there is no variable `{hots}` (did you mean `host`?)"),
    ] {
        assert_eq!(issue("rewrite_cookie", settings), told);
    }
}
