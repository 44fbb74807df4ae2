//! The filter `concurrency_limit`: requests in flight of each client, over all workers and versions, and how each gives its place back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::harness::http2::{Client, request};
use super::harness::origin::ok;
use super::harness::product::command;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

/// Answers `/` at once and does with others what their path says; `/never` is not answered before the connection ends.
fn fickle() -> Origin {
    Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            match request.target() {
                "/close" => return,
                "/reset" => return visit.peer.reset(),
                "/rubbish" => return visit.peer.send("rubbish\r\n\r\n"),
                "/half" => return visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
                "/never" => {
                    let _busy = visit.book.busy();
                    visit.peer.wait_closed();
                }
                "/switch" => {
                    let _busy = visit.book.busy();
                    visit.peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n");
                    visit.peer.wait_closed();
                }
                _ => visit.peer.send(ok("fine")),
            }
        }
    })
}

/// A connection whose next request finds a place: it is read when that of the request before it is free again.
fn connect(product: &Product) -> Peer {
    let mut peer = product.connect();
    eventually("there is a place", || peer.get("/").status() == 200);
    peer
}

fn send(product: &Product, path: &str, more: &str) -> Peer {
    let mut peer = connect(product);
    peer.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{more}\r\n"));
    peer
}

#[test]
fn however_an_exchange_ends_its_place_is_free_again() {
    let origin = fickle();
    let product = Setup::to(&origin)
        .route("filters: [{ concurrency_limit: { max: 1 } }]")
        .route("timeout: 60s")
        .cluster("timeouts: { response_head: 2s }")
        .start();
    for path in ["/", "/close", "/reset", "/rubbish", "/half", "/never", "/abort", "/switch", "/body", "/unread"] {
        match path {
            "/abort" => {
                let peer = send(&product, "/never", "");
                eventually("it arrived", || origin.busy() == 1);
                assert_eq!(product.get("/").status(), 429);
                peer.reset();
            }
            "/body" => {
                let mut peer = connect(&product);
                peer.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nhalf");
                peer.reset();
            }
            "/switch" => {
                let mut peer = send(&product, "/switch", "Connection: Upgrade\r\nUpgrade: x\r\n");
                assert_eq!(peer.head().status(), 101);
                assert_eq!(product.get("/").status(), 429, "a tunnel is in flight until it is closed");
                peer.reset();
            }
            "/unread" => send(&product, "/", "").reset(),
            _ => {
                let mut peer = send(&product, path, "");
                peer.wait_closed_or_answered();
            }
        }
        eventually(&format!("its place is free after {path}"), || product.get("/").status() == 200);
    }
}

#[test]
fn a_client_has_one_limit_over_all_versions_and_workers() {
    let origin = fickle();
    let filters = "filters: [{ concurrency_limit: { max: 3, status: 503 } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let first = Peer::sending(clear, "GET /never HTTP/1.1\r\nHost: test\r\n\r\n");
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let second_stream = second.open(request("GET", "/never"), true);
    second.flush();
    let mut third_stream = third.open(http3::request("GET", "/never"));
    third.end(&mut third_stream, http::HeaderMap::new());
    third.flush();
    eventually("all are at the endpoint", || origin.busy() == 3);
    let refused = Peer::connect(clear).get("/");
    assert_eq!((refused.status(), refused.text().as_str()), (503, "too many requests\n"));
    assert_eq!((second.get("/").status, third.get("/").status), (503, 503));
    let limited = ["route=\"main\"", "filter=\"concurrency_limit\"", "event=\"limited\""];
    site.product.expect_metric("equipoise_filter_events_total", &limited, 3.0);
    // What is only explained takes no place, and a new configuration counts on.
    let admin = site.product.address("admin").to_string();
    let explained = command(&["explain", "--admin", &admin, "--listener", "clear", "http://test/"]);
    assert!(explained.status.success(), "{}", explained.stderr);
    site.product.reload_unchanged();
    assert_eq!(Peer::connect(clear).get("/").status(), 503);
    // A stream that is reset gives its place back, and so does a connection that ends.
    second.reset(second_stream, h2::Reason::CANCEL);
    eventually("there is a place", || second.get("/").status == 200);
    third.cancel(third_stream);
    eventually("there are two places", || origin.busy() == 1);
    first.reset();
    eventually("there are three places", || origin.busy() == 0);
    assert_eq!((second.get("/").status, third.get("/").status), (200, 200));
}

#[test]
fn never_more_than_the_limit_are_at_the_endpoint_however_many_ask() {
    let origin = Origin::answering(|_| {
        std::thread::sleep(Duration::from_millis(2));
        ok("done")
    });
    let product = Setup::to(&origin).route("filters: [{ concurrency_limit: { max: 4 } }]").workers(2).start();
    let (good, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut peer = product.connect();
                for _ in 0..60 {
                    match peer.get("/").status() {
                        200 => good.fetch_add(1, Ordering::SeqCst),
                        429 => refused.fetch_add(1, Ordering::SeqCst),
                        other => panic!("{other}"),
                    };
                }
            });
        }
    });
    assert!(origin.busy_max() <= 4, "{}", origin.busy_max());
    assert!(good.into_inner() > 0 && refused.into_inner() > 0);
    eventually("all places are free", || {
        let peers: Vec<Peer> = (0..4).map(|_| send(&product, "/", "")).collect();
        peers.into_iter().all(|mut peer| peer.response().status() == 200)
    });
}

#[test]
fn requests_beyond_the_limit_are_closed_held_back_or_only_counted() {
    let origin = fickle();
    let rule = |path: &str, over: &str| {
        format!(
            "{{ match: {{ path: {{ exact: {path} }} }}, cluster: site, filters: [{{ concurrency_limit: {{ max: 0, over: {over} }} }}, {{ set_response_header: {{ x-limit: \"{{limit_status}}\" }} }}] }}"
        )
    };
    let product = Setup::to(&origin)
        .route_before(rule("/closed", "close"))
        .route_before(rule("/slow", "{ tarpit: 300ms }"))
        .route_before(rule("/marked", "mark"))
        .start();
    send(&product, "/closed", "").assert_closed();
    assert_eq!(product.flagged("PZ")["fault"], "closed_by_filter");
    let begun = std::time::Instant::now();
    assert_eq!(send(&product, "/slow", "").response().status(), 429);
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    let marked = send(&product, "/marked", "").response();
    assert_eq!((marked.status(), marked.field("x-limit")), (200, Some("marked")));
    product.expect_metric("equipoise_filter_events_total", &["event=\"marked\""], 1.0);
    product.expect_metric("equipoise_filter_events_total", &["event=\"limited\""], 2.0);
    // A client that leaves a tarpit is not waited for.
    send(&product, "/slow", "").reset();
    eventually("its request is over", || {
        product.metric("equipoise_filter_events_total", &["event=\"limited\""]) == 3.0
    });
}
