//! The filter `fault`: delays, aborts and slow bodies, over every version.

use std::time::{Duration, Instant};

use super::harness::http2::{Client, request, with_fields};
use super::harness::product::command;
use super::harness::{Origin, Peer, Setup, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

#[test]
fn a_delayed_request_reaches_its_endpoint_later_and_an_aborted_one_never() {
    let origin = Origin::saying("in");
    let filters =
        "filters: [{ fault: { delay: { time: 300ms, header: x-slow }, abort: { status: 502, header: x-fail } } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    let mut ask = |fields: &[(&'static str, &str)]| -> Vec<(u16, bool)> {
        let text: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let timed = |ask: &mut dyn FnMut() -> u16| {
            let begun = Instant::now();
            let status = ask();
            (status, begun.elapsed() >= Duration::from_millis(300))
        };
        vec![
            timed(&mut || first.ask(format!("GET / HTTP/1.1\r\nHost: test\r\n{text}\r\n")).status()),
            timed(&mut || second.ask(with_fields(request("GET", "/"), fields), b"").status),
            timed(&mut || third.ask(with_fields(http3::request("GET", "/"), fields), b"").status),
        ]
    };
    assert_eq!(ask(&[("x-slow", "1h")]), [(200, true); 3]);
    assert_eq!(origin.requests().len(), 3);
    assert!(ask(&[("x-fail", "")]).iter().all(|(status, _)| *status == 502));
    assert!(ask(&[("x-fail", "418")]).iter().all(|(status, _)| *status == 418));
    assert_eq!(ask(&[("x-fail", "429"), ("x-slow", "")]), [(429, true); 3]);
    assert!(ask(&[]).iter().all(|(status, _)| *status == 200));
    assert_eq!(origin.requests().len(), 6, "no endpoint has seen what was aborted");
    for (event, count) in [("delayed", 6.0), ("aborted", 9.0)] {
        let labels = ["route=\"main\"", "filter=\"fault\"", &format!("event=\"{event}\"")];
        site.product.expect_metric("equipoise_filter_events_total", &labels, count);
    }
    let admin = site.product.address("admin").to_string();
    let ask = ["explain", "--admin", &admin, "--listener", "clear", "-H", "x-fail: 500", "http://test/"];
    let explained = command(&ask);
    assert!(explained.stdout.contains("answers 500"), "{} {}", explained.stdout, explained.stderr);
}

#[test]
fn a_slow_body_arrives_whole_and_no_faster_than_its_rate() {
    let body = "x".repeat(30_000);
    let origin = Origin::saying(body.clone().leak());
    let filters = "filters: [{ fault: { bandwidth: { rate: 100kB/s, header: x-slow } } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    // 30 kB at 100 kB/s, but for the first sixteenth of a second and what a late timer may catch up.
    for (asked, least) in [("no rate", 170), ("60kB/s", 350), ("1MB/s", 170)] {
        let fields = [("x-slow", asked)];
        let timed = |version: &str, ask: &mut dyn FnMut() -> Vec<u8>| {
            let begun = Instant::now();
            assert_eq!(ask().len(), body.len(), "{version} {asked}");
            assert!(begun.elapsed() >= Duration::from_millis(least), "{version} {asked}: {:?}", begun.elapsed());
        };
        timed("h1", &mut || first.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Slow: {asked}\r\n\r\n")).body);
        timed("h2", &mut || second.ask(with_fields(request("GET", "/"), &fields), b"").body);
        timed("h3", &mut || third.ask(with_fields(http3::request("GET", "/"), &fields), b"").body);
    }
    let labels = ["route=\"main\"", "filter=\"fault\"", "event=\"slowed\""];
    site.product.expect_metric("equipoise_filter_events_total", &labels, 9.0);
    assert_eq!(first.get("/").body.len(), body.len());
    site.product.expect_metric("equipoise_filter_events_total", &labels, 9.0);
}

#[test]
fn a_share_of_the_requests_is_aborted() {
    let origin = Origin::saying("in");
    let product = Setup::to(&origin).route("filters: [{ fault: { abort: { share: 50% } } }]").start();
    let mut peer = product.connect();
    let aborted = (0..200).filter(|_| peer.get("/").status() == 503).count();
    // Out of this range once in 10^12 runs.
    assert!((50..150).contains(&aborted), "{aborted}");
    assert_eq!(origin.requests().len(), 200 - aborted);
}

#[test]
fn a_client_that_goes_ends_its_delay_and_the_route_bounds_it() {
    let origin = Origin::saying("in");
    let route = "filters: [{ fault: { delay: { time: 1h } } }]\n    timeout: 300ms";
    let product = Setup::to(&origin).route(route).start();
    assert_eq!(product.get("/").status(), 504);
    let lasting = Setup::to(&origin).route("filters: [{ fault: { delay: { time: 1h } } }]").start();
    let mut peer = lasting.connect();
    peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    lasting.expect_metric("equipoise_filter_events_total", &["event=\"delayed\""], 1.0);
    peer.reset();
    lasting.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
    assert!(origin.requests().is_empty());
}

#[test]
fn an_abort_may_close_without_a_response() {
    let origin = Origin::saying("in");
    let product = Setup::to(&origin).route("filters: [{ fault: { abort: { close: true } } }]").start();
    let mut peer = product.connect();
    peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    peer.assert_closed();
    let mut second = Client::connect(product.web());
    let stream = second.open(request("GET", "/"), true);
    assert!(second.try_answer(stream).is_err(), "the stream is reset");
    assert!(origin.requests().is_empty());
}
