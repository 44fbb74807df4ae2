//! The filters `buffer` and `response_limit`: bodies of requests are read whole before an endpoint sees them, and those of responses bounded.

use super::harness::http2::{Client, request};
use super::harness::origin::ok;
use super::harness::{Origin, Peer, Setup, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

#[test]
fn an_endpoint_sees_a_request_once_its_body_is_whole() {
    let origin = Origin::answering(|request| ok(&request.body.len().to_string()));
    let site = site(Setup::to(&origin).listener_more(CLEAR).route("filters: [{ buffer: { request: 256KiB } }]"), 1);
    let clear = site.product.address("clear");
    let mut slow = Peer::connect(clear);
    slow.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 8\r\n\r\nhalf");
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let mut streamed = second.open(request("PUT", "/"), false);
    second.send(&mut streamed, b"half", false);
    second.flush();
    let mut third_slow = third.open(http3::request("PUT", "/"));
    third.send(&mut third_slow, b"half");
    third.flush();
    // Others are served meanwhile, over the very connections.
    let body = vec![b'x'; 200_000];
    assert_eq!(second.ask(request("PUT", "/"), &body).text(), "200000");
    assert_eq!(third.ask(http3::request("PUT", "/"), &body).text(), "200000");
    let mut first = Peer::connect(clear);
    let chunks = "PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!((first.ask(chunks).text(), first.get("/").text()), ("3".to_owned(), "0".to_owned()));
    first.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(first.head().status(), 100);
    first.send("ok");
    assert_eq!(first.response().text(), "2");
    let before = origin.requests().len();
    assert_eq!(before, 5, "the slow ones have not reached it");
    slow.send("half");
    assert_eq!(slow.response().text(), "8");
    second.send(&mut streamed, b"half", true);
    assert_eq!(second.answer(streamed).text(), "8");
    third.send(&mut third_slow, b"half");
    third.end(&mut third_slow, http::HeaderMap::new());
    assert_eq!(third.answer(third_slow).text(), "8");
}

#[test]
fn a_body_that_is_longer_than_the_bound_is_refused_whatever_its_framing() {
    let origin = Origin::saying("in");
    let site = site(Setup::to(&origin).listener_more(CLEAR).route("filters: [{ buffer: { request: 1KiB } }]"), 1);
    let clear = site.product.address("clear");
    let long = vec![b'x'; 1_025];
    let mut first = Peer::connect(clear);
    first.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 1025\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(first.response().status(), 413, "before it is asked for");
    let mut first = Peer::connect(clear);
    first.send("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n401\r\n");
    first.send(&long);
    first.send("\r\n0\r\n\r\n");
    assert_eq!(first.response().status(), 413);
    assert_eq!(Client::connect(clear).ask(request("PUT", "/"), &long).status, 413);
    assert_eq!(site.connect().ask(http3::request("PUT", "/"), &long).status, 413);
    assert_eq!(Client::connect(clear).ask(request("PUT", "/"), &long[1..]).status, 200);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_response_that_is_too_long_is_replaced_or_cut_short() {
    let origin = Origin::answering(|request| match request.target() {
        "/known" => ok(&"x".repeat(100_001)),
        "/chunks" => {
            let chunk = "x".repeat(60_000);
            let body = format!("ea60\r\n{chunk}\r\nea60\r\n{chunk}\r\n0\r\n\r\n");
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
        }
        _ => ok(&"x".repeat(100_000)),
    });
    let site =
        site(Setup::to(&origin).listener_more(CLEAR).route("filters: [{ response_limit: { max: 100000B } }]"), 1);
    let clear = site.product.address("clear");
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let mut first = Peer::connect(clear);
    assert_eq!((first.get("/").body.len(), first.get("/known").status()), (100_000, 502));
    assert_eq!((second.get("/").body.len(), second.get("/known").status), (100_000, 502));
    assert_eq!((third.get("/").body.len(), third.get("/known").status), (100_000, 502));
    first.send("GET /chunks HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(!first.rest().ends_with(b"0\r\n\r\n"), "it has no end");
    let stream = second.open(request("GET", "/chunks"), true);
    assert!(second.try_answer(stream).is_err());
    assert_eq!(second.get("/").status, 200, "the connection lives on");
    let labels = ["filter=\"response_limit\"", "event=\"rejected\""];
    site.product.expect_metric("equipoise_filter_events_total", &labels, 3.0);
}
