//! The filter `deny`: requests that are refused as they are.

use super::harness::http2::{Client, request};
use super::harness::{Origin, Peer, Setup, http3, product};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

#[test]
fn what_fits_is_refused_in_every_version_and_the_rest_is_not() {
    let origin = Origin::saying("in");
    let filters = "filters: [{ deny: { status: 451, body: \"not here\\n\", content_type: text/x-plain, headers: { X-Why: law } }, \
                   when: { path: { prefix: /closed } } }, { set_response_header: { x-late: \"1\" } }, \
                   { deny: {}, when: { method: DELETE } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let mut first = Peer::connect(clear);
    let refused = first.get("/closed/x");
    assert_eq!((refused.status(), refused.text().as_str()), (451, "not here\n"));
    let fields = ["content-type", "x-why", "x-late"];
    assert_eq!(fields.map(|name| refused.field(name)), [Some("text/x-plain"), Some("law"), Some("1")]);
    assert_eq!(first.get("/open").text(), "in", "the connection lives on");
    let by_default = first.ask("DELETE / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!((by_default.status(), by_default.text().as_str()), (403, "this is not allowed\n"));
    assert_eq!(by_default.field("content-type"), Some("text/plain; charset=utf-8"));
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    for _ in 0..2 {
        let answers = [second.get("/closed"), third.get("/closed")];
        for refused in answers {
            assert_eq!((refused.status, refused.text().as_str()), (451, "not here\n"));
            assert_eq!(fields.map(|name| refused.field(name)), [Some("text/x-plain"), Some("law"), Some("1")]);
        }
        assert_eq!((second.get("/").text(), third.get("/").text()), ("in".to_owned(), "in".to_owned()));
    }
    assert_eq!(second.ask(request("DELETE", "/"), b"").status, 403);
    assert_eq!(third.ask(http3::request("DELETE", "/"), b"").status, 403);
    // A body that nobody reads, and HEAD, which has none.
    let refused = first.ask("POST /closed HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(refused.status(), 451);
    let mut head = Peer::connect(clear);
    head.send("HEAD /closed HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let refused = String::from_utf8(head.rest()).expect("text");
    assert!(refused.starts_with("HTTP/1.1 451") && refused.ends_with("\r\n\r\n"), "{refused}");
    assert_eq!(origin.requests().len(), 5, "no endpoint has seen what was refused");
}

#[test]
fn who_is_not_worth_an_answer_gets_none_in_every_version() {
    let origin = Origin::saying("in");
    let filters = "filters: [{ deny: { close: true }, when: { path: { exact: /x } } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let mut first = Peer::connect(clear);
    first.send("GET /x HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(first.rest().is_empty());
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let refused = second.open(request("GET", "/x"), true);
    assert!(second.try_answer(refused).is_err());
    let mut refused = third.open(http3::request("GET", "/x"));
    third.end(&mut refused, http::HeaderMap::new());
    assert!(third.try_answer(&mut refused).is_err());
    assert_eq!((second.get("/").text(), third.get("/").text()), ("in".to_owned(), "in".to_owned()));
    site.product.expect_metric("equipoise_faults_total", &["fault=\"closed_by_filter\""], 3.0);
}

#[test]
fn mistakes_are_told_with_their_line() {
    let origin = Origin::saying("in");
    for (filter, told) in [
        ("{ deny: { status: 200 } }", "`status` must be a whole number from 400 to 599, not 200"),
        ("{ deny: { close: true, status: 403 } }", "`status` has no effect with `close`: no response is sent"),
        ("{ deny: { headers: { Date: x } } }", "`Date` is set by the proxy"),
        ("{ deny: { content_type: \"a\\nb\" } }", "it is not a valid header field value"),
        ("{ deny: { staus: 403 } }", "did you mean `status`?"),
    ] {
        let folder = product::folder();
        let text = Setup::to(&origin).route(format!("filters: [{filter}]")).text().replace("DIR", "/tmp");
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        let ended = product::command_in(folder.path(), &["check", "check.yaml"]);
        assert_eq!(ended.status.code(), Some(1), "{filter}");
        assert!(ended.stderr.contains(told) && ended.stderr.contains("check.yaml:8:"), "{told}\n{}", ended.stderr);
    }
}
