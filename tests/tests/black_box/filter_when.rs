//! `when` of filters: conditions on requests, clients and statuses.

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::{Origin, Setup, product};

/// Whether a filter with this condition applies to these requests: line, further fields, and whether it does.
fn applies(when: &str, cases: &[(&str, &str, bool)]) {
    let origin = Origin::answering(|request| ok(request.field("x-when").unwrap_or("no")));
    let filter = format!("filters: [{{ set_request_header: {{ x-when: \"yes\" }}, when: {when} }}]");
    let product = Setup::to(&origin).listener("forwarding: { trusted: [127.0.0.1] }").route(filter).start();
    let mut peer = product.connect();
    for (line, fields, wanted) in cases {
        let answer = peer.ask(format!("{line} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n")).text();
        assert_eq!(answer == "yes", *wanted, "{when}: {line} {fields}");
    }
}

#[test]
fn everything_that_routes_ask_can_be_asked() {
    applies("{ method: [GET, PUT] }", &[("GET /", "", true), ("POST /", "", false), ("PUT /", "", true)]);
    applies("{ path: { exact: /a } }", &[("GET /a", "", true), ("GET /a?x", "", true), ("GET /a/", "", false)]);
    let paths = [("GET /a", "", true), ("GET /a/b", "", true), ("GET /ab", "", false), ("GET /", "", false)];
    applies("{ path: { prefix: /a } }", &paths);
    applies("{ path: { prefix: /a/ } }", &paths);
    applies("{ path: { prefix: / } }", &[("GET /a", "", true), ("OPTIONS *", "", false)]);
    applies("{ path: { regex: \"/[0-9]+\" } }", &[("GET /12", "", true), ("GET /12a", "", false)]);
    applies("{ host: \"*.example\" }", &[("GET /", "", true)]);
    applies("{ host: [a.example, b.example] }", &[("GET /", "", false)]);
    applies(
        "{ headers: { x-a: \"1\" } }",
        &[("GET /", "X-A: 1\r\n", true), ("GET /", "X-A: 2\r\n", false), ("GET /", "", false)],
    );
    applies("{ query: { q: { present: true } } }", &[("GET /?q", "", true), ("GET /?p", "", false)]);
    applies(
        "{ cookies: { c: { regex: \"a+\" } } }",
        &[("GET /", "Cookie: b=1; c=aa\r\n", true), ("GET /", "Cookie: c=ab\r\n", false)],
    );
    let sources = [
        ("GET /", "X-Forwarded-For: 10.1.1.1\r\n", true),
        ("GET /", "X-Forwarded-For: 11.1.1.1\r\n", false),
        ("GET /", "", false),
    ];
    applies("{ source: 10.0.0.0/8 }", &sources);
}

#[test]
fn conditions_are_joined_and_turned_around() {
    applies("{ not: { method: GET } }", &[("GET /", "", false), ("POST /", "", true)]);
    let any = "{ any: [{ method: PUT }, { path: { prefix: /a }, headers: { x-a: { present: true } } }] }";
    applies(
        any,
        &[("PUT /", "", true), ("GET /a", "X-A: 1\r\n", true), ("GET /a", "", false), ("GET /", "X-A: 1\r\n", false)],
    );
    let all = "{ path: { prefix: /a }, all: [{ not: { method: PUT } }, { any: [{ query: { x: \"1\" } }, { query: { y: \"1\" } }] }] }";
    applies(
        all,
        &[
            ("GET /a?x=1", "", true),
            ("GET /a?y=1", "", true),
            ("PUT /a?x=1", "", false),
            ("GET /a", "", false),
            ("GET /?x=1", "", false),
        ],
    );
    applies("{}", &[("GET /", "", true)]);
}

#[test]
fn statuses_of_responses_are_asked_for_also_by_http2() {
    let origin = Origin::answering(|request| {
        let status = request.target().trim_start_matches('/').to_owned();
        format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let filters = "filters: [{ set_response_header: { cache-control: no-store }, when: { status: [404, 5xx] } }, \
                   { set_response_header: { x-ok: \"1\" }, when: { not: { status: 400-599 }, headers: { x-a: { present: true } } } }]";
    let product = Setup::to(&origin).route(filters).start();
    for (path, cache) in [("/200", None), ("/403", None), ("/404", Some("no-store")), ("/503", Some("no-store"))] {
        assert_eq!(product.get(path).field("cache-control"), cache, "{path}");
    }
    let mut client = Client::connect(product.web());
    assert_eq!(client.get("/404").field("cache-control"), Some("no-store"));
    assert_eq!(client.get("/200").field("x-ok"), None);
    let asked = client.ask(with_fields(request("GET", "/200"), &[("x-a", "")]), b"");
    assert_eq!((asked.field("cache-control"), asked.field("x-ok")), (None, Some("1")));
}

#[test]
fn a_filter_sees_what_those_before_it_did() {
    let origin = Origin::answering(|request| ok(request.field("x-second").unwrap_or("no")));
    let filters = "filters: [{ rewrite: { path: { prefix: { from: /a, to: /b } } } }, \
                   { set_request_header: { x-first: \"1\" }, when: { path: { prefix: /b } } }, \
                   { set_request_header: { x-second: \"yes\" }, when: { headers: { x-first: \"1\" } } }]";
    let product = Setup::to(&origin).route(filters).start();
    assert_eq!((product.get("/a/x").text().as_str(), product.get("/c").text().as_str()), ("yes", "no"));
}

#[test]
fn a_filter_of_responses_sees_the_request_as_those_before_it_have_left_it() {
    let origin = Origin::answering(|request| match request.target() {
        "/missing" => b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("in"),
    });
    let filters = "filters: [\
        { set_response_header: { cache-control: no-store }, when: { path: { prefix: /account }, not: { status: 404 } } }, \
        { set_response_header: { x-role: \"1\" }, when: { headers: { x-role: { present: true } } } }, \
        { cors: { allow_origins: [\"*\"] }, when: { path: { prefix: /account } } }, \
        { rewrite: { path: { prefix: { from: /account, to: / } } } }, { remove_request_header: [x-role] }, \
        { set_response_header: { x-late: \"1\" }, when: { path: { prefix: /account } } }]";
    let product = Setup::to(&origin).route(filters).start();
    let mut peer = product.connect();
    let mut ask = |path: &str, fields: &str| {
        let answer =
            peer.ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\nOrigin: https://a.example\r\n{fields}\r\n"));
        let names = ["cache-control", "x-role", "access-control-allow-origin", "x-late"];
        names.map(|name| answer.field(name).is_some())
    };
    assert_eq!(ask("/account/me", "X-Role: a\r\n"), [true, true, true, false]);
    assert_eq!(ask("/account/missing", ""), [false, false, true, false]);
    assert_eq!(ask("/other", "X-Role: a\r\n"), [false, true, false, false]);
    assert_eq!(ask("/other", ""), [false; 4]);
}

#[test]
fn mistakes_are_told_with_their_line() {
    let origin = Origin::saying("in");
    let check = |filter: &str| {
        let folder = product::folder();
        let text = Setup::to(&origin).route(format!("filters: [{filter}]")).text().replace("DIR", "/tmp");
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        product::command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr
    };
    for (filter, told) in [
        ("{ when: { method: GET } }", "an item of `filters` names no filter"),
        (
            "{ cors: { allow_origins: [\"*\"] }, when: { status: 404 } }",
            "there is no status yet when this filter acts on the request",
        ),
        ("{ set_request_header: { a: b }, when: { any: [{ not: { status: 404 } }] } }", "there is no status yet"),
        ("{ set_response_header: { a: b }, when: { status: 40 } }", "`40` is not a status such as 404, 5xx or 500-599"),
        ("{ set_response_header: { a: b }, when: { status: [5xx, 503-500] } }", "`503-500` ends before it begins"),
        ("{ set_request_header: { a: b }, when: { method: get } }", "`get` is not a method that clients send"),
        (
            "{ set_request_header: { a: b }, when: { not: { path: { prefix: a } } } }",
            "the path `a` does not begin with `/`",
        ),
        ("{ set_request_header: { a: b }, when: { methd: GET } }", "unknown key `methd`"),
        ("{ set_request_header: { a: b }, when: { path: { regex: \"(\" } } }", "regex"),
        (
            "{ set_request_header: { a: b }, when: { source: home } }",
            "`home` is not an address or a network such as 10.0.0.0/8",
        ),
        ("{ set_request_header: { a: b }, when: { any: [] } }", "any"),
        (
            "{ set_request_header: { a: b }, cors: { allow_origins: [\"*\"] }, when: {} }",
            "an item of `filters` holds 2 keys where one is allowed",
        ),
    ] {
        let stderr = check(filter);
        assert!(stderr.contains(told) && stderr.contains("check.yaml:"), "{filter}: {told}\n{stderr}");
    }
}
