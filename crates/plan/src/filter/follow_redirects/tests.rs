use serde_json::{Value, json};

use super::super::testing::{Beside, World, compiled, issue, request, response};
use super::*;

/// Where a request goes after this status and location.
fn next(settings: &Value, (method, target): (&str, &str), (status, location): (u16, &str)) -> Option<Redirected> {
    let steps = compiled(&ENTRY, settings);
    let step = steps.response.unwrap();
    let (world, mut beside) = (World::new(), Beside::new());
    let (facts, asked) = (world.facts(), request(method, target, &[("host", "shop.example:8080")]));
    let head = response(status, &[("location", location)]);
    match step.answer(&head, &world.view(&asked), &mut beside.turn(&facts)) {
        Flow::Continue => None,
        Flow::Need(Need::Redirect(to)) => Some(*to),
        other => panic!("{other:?}"),
    }
}

/// Authority and target.
fn leads(location: &str) -> Option<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let to = next(&json!({ "hosts": ["Files.example"] }), ("GET", "/a/b?c"), (302, location))?;
    Some((to.authority.as_deref().map_or(String::new(), text), text(&to.target)))
}

#[test]
fn locations_are_read_with_and_without_a_host() {
    for (location, authority, target) in [
        ("/x?y=1", "", "/x?y=1"),
        ("/x#top", "", "/x"),
        ("x", "", "/a/x"),
        ("x:y/z", "none", ""),
        ("./x", "none", ""),
        ("?d", "", "/a/b?d"),
        ("http://shop.example:8080/x", "", "/x"),
        ("HTTPS://SHOP.EXAMPLE:8080", "", "/"),
        ("https://shop.example?q", "shop.example", "/?q"),
        ("//files.example/x", "files.example", "/x"),
        ("https://FILES.example:99/x", "FILES.example:99", "/x"),
        ("", "none", ""),
        ("#top", "none", ""),
        ("//", "none", ""),
        ("http:///x", "none", ""),
        ("https://evil.example/x", "none", ""),
        ("https://shop.example:8080@evil.example/", "none", ""),
        ("https://evil.example\\@shop.example:8080/", "none", ""),
        ("https://files.example.evil.example/", "none", ""),
        ("ftp://files.example/x", "none", ""),
        ("javascript:alert(1)", "none", ""),
        ("/a/../b", "none", ""),
        ("/a/%2E%2e/b", "none", ""),
        ("/a/.%2e?x", "none", ""),
        ("/a/..b?../", "", "/a/..b?../"),
        ("/a b", "none", ""),
        ("/ä", "none", ""),
        ("http://[::1]/x", "none", ""),
    ] {
        let wanted = (authority != "none").then(|| (authority.to_owned(), target.to_owned()));
        assert_eq!(leads(location), wanted, "{location}");
    }
    assert_eq!(leads(&format!("/{}", "x".repeat(TARGET_BYTES_MAX))), None);
}

#[test]
fn two_locations_are_none_and_other_statuses_and_answers_of_the_proxy_stay() {
    let settings = json!({ "statuses": [302] });
    assert!(next(&settings, ("GET", "/"), (302, "/x")).is_some());
    for status in [200, 301, 304, 404] {
        assert!(next(&settings, ("GET", "/"), (status, "/x")).is_none());
    }
    let step = compiled(&ENTRY, &settings).response.unwrap();
    let (world, mut beside) = (World::new(), Beside::new());
    let (facts, asked) = (world.facts(), request("GET", "/", &[("host", "h")]));
    let two = response(302, &[("location", "/x"), ("location", "/y")]);
    assert_eq!(step.answer(&two, &world.view(&asked), &mut beside.turn(&facts)), Flow::Continue);
    let view = ResponseView { source: ResponseSource::Local(None), ..world.view(&asked) };
    let one = response(302, &[("location", "/x")]);
    assert_eq!(step.answer(&one, &view, &mut beside.turn(&facts)), Flow::Continue);
}

#[test]
fn a_method_becomes_get_where_the_status_says_so() {
    let by_get =
        |method, status| next(&json!({ "max": 1 }), (method, "/"), (status, "/x")).map(|to| (to.by_get, to.max));
    for (method, status, is_changed) in [
        ("POST", 301, true),
        ("POST", 302, true),
        ("POST", 303, true),
        ("PUT", 303, true),
        ("PUT", 302, false),
        ("POST", 307, false),
        ("POST", 308, false),
        ("HEAD", 303, false),
    ] {
        assert_eq!(by_get(method, status), Some((is_changed, 1)), "{method} {status}");
    }
}

#[test]
fn a_field_of_a_response_sends_a_request_on_and_never_reaches_the_client() {
    let step = compiled(&ENTRY, &json!({ "field": "X-Accel-Redirect" })).response.unwrap();
    let (world, mut beside) = (World::new(), Beside::new());
    let facts = world.facts();
    let mut sent = |method: &str, status: u16, values: &[&str]| {
        let asked = request(method, "/", &[("host", "h")]);
        let fields: Vec<_> = values.iter().map(|value| ("x-accel-redirect", *value)).collect();
        match step.answer(&response(status, &fields), &world.view(&asked), &mut beside.turn(&facts)) {
            Flow::Continue => None,
            Flow::Need(Need::Redirect(to)) => Some(*to),
            other => panic!("{other:?}"),
        }
    };
    let to = sent("GET", 200, &["/files/a?b"]).unwrap();
    assert_eq!((&*to.target, to.authority, to.by_get, to.is_internal), (&b"/files/a?b"[..], None, false, true));
    assert!(sent("POST", 500, &["/x"]).unwrap().by_get);
    assert_eq!(&*sent("GET", 200, &["//evil.example/x"]).unwrap().target, b"//evil.example/x", "a path");
    for bad in ["", "x", "http://h/x", "/a/../b", "/a b", "/\u{e4}", "/a#b"] {
        assert_eq!(sent("GET", 200, &[bad]), None, "{bad}");
    }
    assert_eq!(sent("GET", 200, &["/x", "/y"]), None);
    let asked = request("GET", "/", &[("host", "h")]);
    let moved = response(302, &[("location", "/x")]);
    assert_eq!(
        step.answer(&moved, &world.view(&asked), &mut beside.turn(&facts)),
        Flow::Continue,
        "no status is named"
    );
    let mut head = response(200, &[("x-accel-redirect", "/x"), ("x-accel-redirect", "/y"), ("a", "b")]);
    step.apply(&mut head, &world.view(&asked), &mut beside.turn(&facts));
    assert_eq!(head.fields.iter().count(), 1);
}

#[test]
fn settings_that_cannot_be_meant_are_issues() {
    for (settings, told) in [
        (json!({ "max": 0 }), "max: 0 is not from 1 to 8"),
        (json!({ "max": 9 }), "max: 9 is not from 1 to 8"),
        (json!({ "statuses": [302, 304] }), "statuses/1: 304 is not a redirect"),
        (json!({ "hosts": ["https://a.example"] }), "hosts/0: `https://a.example` is not a host"),
        (json!({ "hosts": ["a.example", "a.example:80"] }), "hosts/1: `a.example:80` is not a host"),
        (json!({ "field": "a b" }), "field: "),
        (json!({ "hosts": [""] }), "hosts/0: `` is not a host"),
    ] {
        let issue = issue("follow_redirects", settings);
        assert!(issue.contains(told), "{issue}");
    }
}
