//! The filter `mirror`: copies of requests go to another cluster, and the original never notices.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::balancing::{endpoint, hold, holding, queue_length};
use super::compress::long;
use super::harness::http2::{Client, request};
use super::harness::http2_origin::{Http2Origin, Rules as Http2Rules};
use super::harness::origin::ok;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3, net};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

fn setup(origin: &Origin, shadow: std::net::SocketAddr, more: &str) -> Setup {
    Setup::to(origin)
        .route(format!("filters: [{{ mirror: {{ cluster: shadow, {more} }} }}]"))
        .cluster_more(format!("shadow: {{ endpoints: [\"{shadow}\"] }}"))
}

fn events<const N: usize>(product: &Product, counts: [(&str, f64); N]) {
    for (event, count) in counts {
        let labels = ["route=\"main\"", "filter=\"mirror\"", &format!("event=\"{event}\"")];
        product.expect_metric("equipoise_filter_events_total", &labels, count);
    }
}

#[test]
fn a_request_goes_to_both_with_its_body_over_every_version() {
    let (origin, shadow) = (Origin::saying("original"), Origin::answering(|_| ok("a copy's answer is dropped")));
    let more = "host: shadow.internal, set_headers: { x-shadow: \"1\" }";
    let site = site(setup(&origin, shadow.address(), more).listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    let large: String = "0123456789".repeat(30_000);
    let mut sent = 0;
    for body in ["", "small", &large] {
        let put = format!("PUT /a?b HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(first.ask(put).text(), "original");
        let chunk = if body.is_empty() { String::new() } else { format!("{:x}\r\n{body}\r\n", body.len()) };
        let put = format!("PUT /a?b HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
        assert_eq!(first.ask(put).text(), "original");
        assert_eq!(second.ask(request("PUT", "/a?b"), body.as_bytes()).text(), "original");
        assert_eq!(third.ask(http3::request("PUT", "/a?b"), body.as_bytes()).text(), "original");
        sent += 4;
        eventually("the copies are there", || shadow.requests().len() == sent);
        for copy in &shadow.requests()[sent - 4..] {
            assert_eq!((copy.method(), copy.target(), copy.text() == body), ("PUT", "/a?b", true));
            assert_eq!((copy.field("host"), copy.field("x-shadow")), (Some("shadow.internal"), Some("1")));
            assert!(copy.field("x-request-id").is_some() && copy.field("x-forwarded-for").is_some());
        }
    }
    assert!(origin.requests().iter().all(|request| request.field("x-shadow").is_none()));
    events(&site.product, [("sent", 12.0), ("skipped", 0.0), ("dropped", 0.0), ("failed", 0.0)]);
    site.product.expect_metric("equipoise_cluster_requests_total", &["cluster=\"shadow\""], 12.0);
    eventually("each request is in the access log", || site.product.records().len() >= 12);
    assert_eq!(site.product.records().len(), 12, "copies are not in it");
    assert!(shadow.connections() <= 4, "connections are kept: {}", shadow.connections());
    assert_eq!(first.ask("GET / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n\r\n").status(), 200);
}

#[test]
fn copies_go_to_endpoints_of_http2_too_and_not_of_tunnels() {
    let origin = Origin::saying("original");
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let shadow = Http2Origin::start(Http2Rules::default(), move |mut asked| {
        let tell = tell.lock().expect("no test panicked").clone();
        Box::pin(async move {
            let (body, _) = asked.read().await.expect("it is whole");
            tell.send(body).expect("the test waits");
            asked.end(http::Response::new(()));
        })
    });
    let cluster = format!("shadow: {{ endpoints: [\"{}\"], http_versions: [h2] }}", shadow.address());
    let setup = Setup::to(&origin).route("filters: [{ mirror: { cluster: shadow } }]").cluster_more(cluster);
    let product = setup.start();
    let mut peer = product.connect();
    for body in ["", "some", &"x".repeat(200_000)] {
        peer.ask(format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        assert!(told.recv_timeout(Duration::from_secs(20)).expect("a copy") == body.as_bytes());
    }
    peer.ask("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
    assert_eq!(told.recv_timeout(Duration::from_secs(20)).expect("a copy"), b"abcdefg");
    peer.ask("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    events(&product, [("sent", 4.0), ("skipped", 0.0), ("dropped", 0.0), ("failed", 0.0)]);
}

#[test]
fn trailers_are_copied_over_every_version() {
    let (origin, shadow) = (Origin::saying("original"), Origin::saying("dropped"));
    let site = site(setup(&origin, shadow.address(), "").listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let trailers =
        || http::HeaderMap::from_iter([(http::HeaderName::from_static("x-end"), "3".parse().expect("a value"))]);
    let chunks = "PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-End: 3\r\n\r\n";
    assert_eq!(Peer::connect(clear).ask(chunks).text(), "original");
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let mut asked = second.open(request("PUT", "/"), false);
    second.send(&mut asked, b"abc", false);
    second.send_trailers(&mut asked, trailers());
    assert_eq!(second.answer(asked).text(), "original");
    let mut asked = third.open(http3::request("PUT", "/"));
    third.send(&mut asked, b"abc");
    third.end(&mut asked, trailers());
    assert_eq!(third.answer(asked).text(), "original");
    eventually("the copies are there", || shadow.requests().len() == 3);
    for copy in shadow.requests().iter().chain(&origin.requests()) {
        assert_eq!((copy.text().as_str(), copy.trailers.len()), ("abc", 1));
        assert_eq!(copy.trailers[0].1, "3");
    }
    events(&site.product, [("sent", 3.0), ("dropped", 0.0), ("failed", 0.0)]);
}

#[test]
fn a_copy_begins_when_its_original_is_admitted() {
    let ((origin, go), shadow) = (holding(), Origin::saying("dropped"));
    let product = Setup::to_endpoints([endpoint(&origin, "connections_max: 1")])
        .cluster("queue: { requests_max: 1, timeout: 30s }")
        .route("filters: [{ mirror: { cluster: shadow } }]")
        .cluster_more(format!("shadow: {{ endpoints: [\"{}\"] }}", shadow.address()))
        .start();
    let mut first = hold(&product, "1");
    eventually("the first is at work", || origin.busy() == 1);
    let mut second = hold(&product, "2");
    eventually("the second waits", || queue_length(&product) == 1);
    assert_eq!(product.get("/third").status(), 503, "the queue is full");
    events(&product, [("sent", 1.0)]);
    go.send(()).expect("the first waits");
    assert_eq!(first.response().text(), "/hold1");
    eventually("the second is copied", || shadow.requests().len() == 2);
    go.send(()).expect("the second waits");
    assert_eq!(second.response().text(), "/hold2");
    assert!(shadow.requests().iter().all(|copy| copy.target().starts_with("/hold")));
    events(&product, [("sent", 2.0), ("failed", 0.0)]);
}

#[test]
fn a_shadow_that_is_gone_or_takes_nothing_never_holds_up_the_original() {
    let origin = Origin::answering(|request| ok(&request.body.len().to_string()));
    // No program listens there.
    let product = setup(&origin, net::free(), "").start();
    let mut peer = product.connect();
    for _ in 0..3 {
        assert_eq!(peer.get("/").text(), "0");
    }
    events(&product, [("sent", 3.0), ("skipped", 0.0), ("dropped", 0.0), ("failed", 3.0)]);
    // It accepts and reads nothing.
    let deaf = Origin::start(|visit| {
        std::thread::sleep(Duration::from_secs(600));
        drop(visit);
    });
    let product = setup(&origin, deaf.address(), "lag_max: 64KiB, memory_max: 128KiB").start();
    let large = vec![b'x'; 30 << 20];
    let mut peer = product.connect();
    peer.send(format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", large.len()));
    peer.send(&large);
    assert_eq!(peer.response().text(), large.len().to_string());
    events(&product, [("sent", 1.0), ("skipped", 0.0), ("dropped", 1.0), ("failed", 0.0)]);
}

#[test]
fn copies_in_progress_are_bounded_and_end_with_their_time() {
    let origin = Origin::saying("original");
    let silent = Origin::start(|mut visit| while visit.request().is_some() {});
    let product = setup(&origin, silent.address(), "requests_max: 2, timeout: 1s, body_max: 10").start();
    let mut peer = product.connect();
    for _ in 0..5 {
        assert_eq!(peer.get("/").text(), "original");
    }
    events(&product, [("sent", 2.0), ("skipped", 3.0), ("dropped", 0.0), ("failed", 2.0)]);
    let put = format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 11\r\n\r\n{}", "x".repeat(11));
    assert_eq!(peer.ask(put).text(), "original");
    assert_eq!(peer.get("/").text(), "original");
    events(&product, [("sent", 3.0), ("skipped", 4.0), ("dropped", 0.0), ("failed", 3.0)]);
}

#[test]
fn a_body_that_breaks_off_is_broken_off_in_the_copy_too() {
    let origin = Origin::saying("original");
    let shadow = Origin::saying("copy");
    let product = setup(&origin, shadow.address(), "").start();
    let mut peer = product.connect();
    peer.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf");
    eventually("both have the head", || shadow.connections() == 1 && origin.connections() == 1);
    peer.reset();
    events(&product, [("sent", 1.0), ("skipped", 0.0), ("dropped", 1.0), ("failed", 0.0)]);
    eventually("it is closed", || shadow.open() == 0);
    assert!(shadow.requests().is_empty() && origin.requests().is_empty());
}

#[test]
fn attempts_of_the_original_make_one_copy_with_the_whole_body() {
    // The first connection of each endpoint takes a part of the body, and breaks off.
    let failing = || {
        Origin::start(|mut visit| {
            if visit.index == 0 {
                visit.peer.take(100);
                return visit.peer.reset();
            }
            visit.answer_all(|request| Some(ok(&request.body.len().to_string())));
        })
    };
    let (origins, shadow) = ([failing(), failing()], Origin::saying("copy"));
    let route =
        "filters: [{ mirror: { cluster: shadow } }]\n    retry: { attempts_max: 4, on: [reset], body_max: 48KiB }";
    let setup = Setup::to_all(&origins).route(route);
    let product = setup.cluster_more(format!("shadow: {{ endpoints: [\"{}\"] }}", shadow.address())).start();
    let mut peer = product.connect();
    let body = "0123456789".repeat(4_000);
    for _ in 0..4 {
        peer.ask(format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }
    events(&product, [("sent", 4.0), ("skipped", 0.0), ("dropped", 0.0), ("failed", 0.0)]);
    eventually("the copies are there", || shadow.requests().len() == 4);
    assert!(shadow.requests().iter().all(|copy| copy.text() == body));
}

#[test]
fn a_body_that_was_read_whole_or_changed_is_copied_as_the_endpoint_gets_it() {
    let (origin, shadow) = (Origin::answering(|request| ok(&request.text())), Origin::saying("copy"));
    let filters = "filters: [{ mirror: { cluster: shadow } }, { buffer: { request: 1MiB } }, \
                   { replace_body: { replace: [{ text: a, with: bcd }], types: [\"text/*\"], requests: true, responses: false } }]";
    let cluster = format!("shadow: {{ endpoints: [\"{}\"] }}", shadow.address());
    let product = Setup::to(&origin).route(filters).cluster_more(cluster).start();
    let mut peer = product.connect();
    for (sent, length) in [("xa", 2), ("a", 300_000), ("a", 40_000)] {
        let body = if length == 2 { sent.to_owned() } else { sent.repeat(length) };
        let head =
            format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n");
        let wanted = body.replace('a', "bcd");
        assert!(peer.ask(head + &body).text() == wanted);
        eventually("the copy is there", || shadow.requests().last().is_some_and(|copy| copy.text() == wanted));
    }
    events(&product, [("sent", 3.0), ("skipped", 0.0), ("dropped", 0.0), ("failed", 0.0)]);
}

#[test]
fn what_is_answered_here_is_not_copied_and_explain_names_the_cluster() {
    let (origin, shadow) = (Origin::saying("original"), Origin::saying("copy"));
    let setup = setup(&origin, shadow.address(), "").route_before(
        "{ match: { path: { prefix: /own } }, respond: { status: 200 }, filters: [{ mirror: { cluster: shadow } }] }",
    );
    let product = setup.start();
    assert_eq!(product.get("/own").status(), 200);
    let explained = product.admin("/api/explain?request=GET%20http://test/").text();
    assert!(explained.contains("\"mirrors\":\"shadow\""), "{explained}");
    assert_eq!(product.get("/").status(), 200);
    eventually("there is one copy", || shadow.requests().len() == 1);
    // A reload keeps what was counted.
    product.reload_unchanged();
    assert_eq!(product.get("/").status(), 200);
    events(&product, [("sent", 2.0), ("skipped", 0.0), ("dropped", 0.0), ("failed", 0.0)]);
}

#[test]
fn a_body_of_unknown_length_is_not_copied_beyond_its_bound() {
    let (origin, shadow) = (Origin::saying("in"), Origin::saying("copy"));
    let product = setup(&origin, shadow.address(), "body_max: 10").start();
    let mut peer = product.connect();
    let chunked = "PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(peer.ask(format!("{chunked}a\r\n0123456789\r\n0\r\n\r\n")).text(), "in");
    events(&product, [("sent", 1.0), ("dropped", 0.0)]);
    assert_eq!(peer.ask(format!("{chunked}b\r\n0123456789a\r\n0\r\n\r\n")).text(), "in");
    events(&product, [("dropped", 1.0)]);
}

#[test]
fn a_long_body_is_copied_without_more_memory_than_the_copy_may_be_behind() {
    let length = long();
    let counting = || {
        let count = Arc::new(Mutex::new(0_u64));
        let counted = count.clone();
        let origin = Origin::start(move |mut visit| {
            while visit.peer.try_head().is_ok_and(|head| head.is_some()) {
                for _ in 0..length >> 16 {
                    if visit.peer.try_take(1 << 16).is_err() {
                        return;
                    }
                    *counted.lock().expect("no test panicked") += 1 << 16;
                }
                visit.peer.send(ok("all of it"));
            }
        });
        (origin, count)
    };
    let ((origin, _), (shadow, copied)) = (counting(), counting());
    let setup = setup(&origin, shadow.address(), "timeout: 1h, lag_max: 8MiB").cluster("timeouts: { idle: 600s }");
    let product = setup.start();
    let before = product.resident_bytes();
    let mut peer = product.connect();
    peer.send(format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n"));
    let block = vec![b'x'; 1 << 16];
    for _ in 0..length >> 16 {
        peer.send(&block);
    }
    assert_eq!(peer.response().text(), "all of it");
    // The copy is whole, or was given up because its endpoint was slower.
    let is_over = || {
        let dropped = product.metric("equipoise_filter_events_total", &["filter=\"mirror\"", "event=\"dropped\""]);
        *copied.lock().expect("no test panicked") == length || dropped > 0.0
    };
    eventually("the copy is over", is_over);
    let more = product.resident_bytes().saturating_sub(before);
    assert!(more < 32 << 20, "{more} bytes more");
}
