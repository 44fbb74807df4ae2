//! Who gets the next exchange, and who waits. What is promised is exact whatever the number of workers.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::harness::origin::ok;
use super::harness::{Origin, Peer, Product, Setup, eventually};

pub(super) fn endpoint(origin: &Origin, settings: &str) -> String {
    format!("{{ address: \"{}\", {settings} }}", origin.address())
}

fn counts(origins: &[Origin]) -> Vec<usize> {
    origins.iter().map(|origin| origin.requests().len()).collect()
}

#[test]
fn round_robin_follows_the_weights_exactly_over_all_workers() {
    for workers in [1, 2, 4] {
        let origins: Vec<Origin> = (0..4).map(|_| Origin::saying("fine")).collect();
        let weights = [1, 2, 3, 0];
        let listed = origins.iter().zip(weights).map(|(origin, weight)| endpoint(origin, &format!("weight: {weight}")));
        let product = Setup::to_endpoints(listed).workers(workers).start();
        // Each on its own connection, so that the workers share them out.
        for _ in 0..60 {
            assert_eq!(product.get("/").text(), "fine");
        }
        assert_eq!(counts(&origins), [10, 20, 30, 0], "{workers} workers");
    }
}

#[test]
fn round_robin_does_not_bunch_the_heavy_endpoint() {
    let origins: Vec<Origin> = (0..2).map(|_| Origin::saying("fine")).collect();
    let product = Setup::to_endpoints([endpoint(&origins[0], "weight: 2"), endpoint(&origins[1], "weight: 1")]).start();
    for round in 1..=10 {
        for _ in 0..3 {
            product.get("/");
        }
        assert_eq!(counts(&origins), [2 * round, round]);
    }
}

#[test]
fn random_reaches_every_endpoint_by_its_weight() {
    let origins: Vec<Origin> = (0..2).map(|_| Origin::saying("fine")).collect();
    let listed = [endpoint(&origins[0], "weight: 1"), endpoint(&origins[1], "weight: 3")];
    let product = Setup::to_endpoints(listed).cluster("balance: random").start();
    let mut peer = product.connect();
    for _ in 0..800 {
        peer.get("/");
    }
    let counts = counts(&origins);
    // 200 expected, a standard deviation is 12.
    assert!((80..320).contains(&counts[0]), "{counts:?}");
}

/// An origin that thinks about `/hold` until the test lets one go.
pub(super) fn holding() -> (Origin, Sender<()>) {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::answering(move |request| {
        if request.target().starts_with("/hold") {
            wait.lock().expect("channel").recv().expect("the test lets it go");
        }
        ok(request.target())
    });
    (origin, go)
}

/// A request that waits there.
pub(super) fn hold(product: &Product, name: &str) -> Peer {
    Peer::sending(product.web(), format!("GET /hold{name} HTTP/1.1\r\nHost: test\r\n\r\n"))
}

#[test]
fn least_request_avoids_the_busy_endpoint_whichever_worker_made_it_busy() {
    let ((busy, go), idle) = (holding(), Origin::saying("idle"));
    let product = Setup::to_addresses(&[busy.address(), idle.address()]).cluster("balance: least_request").start();
    let mut held = Vec::new();
    while busy.busy() == 0 {
        let seen = busy.requests().len() + idle.requests().len();
        held.push(hold(&product, ""));
        eventually("it arrived", || busy.requests().len() + idle.requests().len() > seen || busy.busy() > 0);
    }
    for _ in 0..30 {
        // A client sees the end of its response a moment before the endpoint counts as free.
        product.expect_metric("equipoise_endpoint_in_flight", &[], 1.0);
        assert_eq!(product.get("/").text(), "idle");
    }
    go.send(()).expect("the origin waits");
    for mut peer in held {
        assert_eq!(peer.response().status(), 200);
    }
    let before = busy.requests().len();
    eventually("both are used again", || {
        product.get("/");
        busy.requests().len() > before
    });
}

#[test]
fn a_limit_of_one_is_never_exceeded_however_many_workers_there_are() {
    for workers in [2, 4] {
        let origins: Vec<Origin> = (0..2)
            .map(|_| {
                Origin::answering(|_| {
                    // Long enough for any overlap to be seen.
                    std::thread::sleep(Duration::from_millis(1));
                    ok("one at a time")
                })
            })
            .collect();
        let listed = origins.iter().map(|origin| endpoint(origin, "connections_max: 1"));
        let product =
            Setup::to_endpoints(listed).cluster("queue: { requests_max: 100, timeout: 30s }").workers(workers).start();
        let web = product.web();
        let clients: Vec<_> = (0..12)
            .map(|client| {
                std::thread::spawn(move || {
                    let mut kept = Peer::connect(web);
                    for round in 0..25 {
                        let answer =
                            if (client + round) % 2 == 0 { kept.get("/") } else { Peer::connect(web).get("/") };
                        assert_eq!(answer.text(), "one at a time");
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("every request is answered");
        }
        let most: Vec<usize> = origins.iter().map(Origin::busy_max).collect();
        assert_eq!(most, [1, 1], "{workers} workers");
        assert_eq!(counts(&origins).iter().sum::<usize>(), 300);
        product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
    }
}

pub(super) fn queue_length(product: &Product) -> usize {
    product.metric("equipoise_cluster_queue_length", &["cluster=\"site\""]) as usize
}

/// One endpoint that takes one request at a time, and this queue.
pub(super) fn single(queue: &str) -> (Origin, Sender<()>, Product) {
    let (origin, go) = holding();
    let product = Setup::to_endpoints([endpoint(&origin, "connections_max: 1")]).cluster(queue).start();
    (origin, go, product)
}

#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    let (origin, go, product) = single("queue: { requests_max: 100, timeout: 30s }");
    let mut clients = vec![hold(&product, "0")];
    eventually("the first is at work", || origin.busy() == 1);
    for number in 1..12 {
        clients.push(hold(&product, &number.to_string()));
        eventually("it waits", || queue_length(&product) == number);
    }
    for _ in &clients {
        go.send(()).expect("the origin waits");
    }
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    let order: Vec<String> = origin.requests().iter().map(|request| request.target().to_owned()).collect();
    let wanted: Vec<String> = (0..12).map(|number| format!("/hold{number}")).collect();
    assert_eq!(order, wanted);
    product.expect_metric("equipoise_cluster_queue_waits_total", &["cluster=\"site\""], 11.0);
    let waited = product.record("one who waited", |record| record["path"] == "/hold5");
    assert!(waited["queue_ms"].as_f64().is_some_and(|time| time > 0.0), "{waited}");
}

#[test]
fn a_full_queue_refuses_at_once_and_says_when_to_come_back() {
    let (origin, go, product) = single("queue: { requests_max: 1, timeout: 30s }");
    let mut first = hold(&product, "1");
    eventually("the first is at work", || origin.busy() == 1);
    let mut second = hold(&product, "2");
    eventually("the second waits", || queue_length(&product) == 1);
    let refused = product.get("/");
    assert_eq!(refused.status(), 503);
    assert!(refused.field("retry-after").is_some());
    product.flagged("PQ");
    for peer in [&mut first, &mut second] {
        go.send(()).expect("the origin waits");
        assert_eq!(peer.response().status(), 200);
    }
    assert_eq!(product.get("/").status(), 200);
}

#[test]
fn without_a_queue_a_full_cluster_refuses_at_once() {
    let (origin, go, product) = single("balance: round_robin");
    let mut first = hold(&product, "");
    eventually("the first is at work", || origin.busy() == 1);
    assert_eq!(product.get("/").status(), 503);
    product.flagged("PQ");
    go.send(()).expect("the origin waits");
    assert_eq!(first.response().status(), 200);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
    assert_eq!(product.get("/").status(), 200);
}

#[test]
fn clients_that_come_one_after_the_other_never_find_the_place_taken() {
    let origin = Origin::saying("fine");
    let product = Setup::to_endpoints([endpoint(&origin, "connections_max: 1")]).start();
    // The endpoint is free once its response is there, not once the last client has been told.
    for _ in 0..300 {
        assert_eq!(product.get("/").status(), 200);
    }
}

#[test]
fn a_wait_that_takes_too_long_is_answered_503() {
    let (origin, go, product) = single("queue: { requests_max: 10, timeout: 250ms }");
    let mut first = hold(&product, "");
    eventually("the first is at work", || origin.busy() == 1);
    let start = Instant::now();
    let answer = product.get("/");
    assert_eq!(answer.status(), 503);
    assert!(answer.field("retry-after").is_some());
    assert!(start.elapsed() >= Duration::from_millis(250));
    product.flagged("PT");
    eventually("no request of this route waits", || queue_length(&product) == 0);
    go.send(()).expect("the origin waits");
    assert_eq!(first.response().status(), 200);
}

#[test]
fn a_client_that_goes_away_while_it_waits_gives_up_its_place() {
    let (origin, go, product) = single("queue: { requests_max: 10, timeout: 30s }");
    let mut first = hold(&product, "1");
    eventually("the first is at work", || origin.busy() == 1);
    let with_reset = hold(&product, "-gone");
    let with_end = hold(&product, "-gone");
    let mut behind_a_body = product.connect();
    behind_a_body.send("PUT /hold-gone HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n");
    eventually("they wait", || queue_length(&product) == 3);
    behind_a_body.send("a part of it");
    with_reset.reset();
    eventually("the first place is free", || queue_length(&product) == 2);
    drop(with_end);
    eventually("the second place is free", || queue_length(&product) == 1);
    drop(behind_a_body);
    eventually("the third place is free", || queue_length(&product) == 0);
    eventually("each is written down", || {
        product.records().iter().filter(|record| record["flag"] == "CQ").count() == 3
    });
    let mut last = hold(&product, "2");
    eventually("another waits", || queue_length(&product) == 1);
    for peer in [&mut first, &mut last] {
        go.send(()).expect("the origin waits");
        assert_eq!(peer.response().status(), 200);
    }
    assert!(origin.requests().iter().all(|request| request.target() != "/hold-gone"));
}

#[test]
fn however_an_exchange_ends_its_place_at_the_endpoint_is_free_again() {
    let origin = Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            match request.target() {
                "/close" => return,
                "/reset" => return visit.peer.reset(),
                "/rubbish" => return visit.peer.send("rubbish\r\n\r\n"),
                "/half" => return visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
                "/never" => drop(visit.peer.wait_closed()),
                "/switch" => {
                    visit.peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n");
                    visit.peer.wait_closed();
                }
                _ => visit.peer.send(ok("fine")),
            }
        }
    });
    let product = Setup::to_endpoints([endpoint(&origin, "connections_max: 1")])
        .cluster("timeouts: { response_head: 2s }")
        .cluster("queue: { requests_max: 10, timeout: 30s }")
        .start();
    for path in ["/close", "/reset", "/rubbish", "/half", "/never", "/abort", "/switch", "/body"] {
        let mut peer = product.connect();
        match path {
            "/abort" => {
                peer.send("GET /never HTTP/1.1\r\nHost: test\r\n\r\n");
                peer.reset();
            }
            "/body" => {
                peer.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nhalf");
                peer.reset();
            }
            "/switch" => {
                peer.send("GET /switch HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
                assert_eq!(peer.head().status(), 101);
                peer.reset();
            }
            _ => {
                peer.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
                peer.wait_closed_or_answered();
            }
        }
        assert_eq!(product.get("/").text(), "fine", "after {path}");
    }
    eventually("nothing is in flight", || product.metric("equipoise_endpoint_in_flight", &[]) == 0.0);
}

#[test]
fn other_endpoints_take_over_while_one_is_full() {
    let ((full, go), other) = (holding(), Origin::saying("other"));
    let listed = [endpoint(&full, "connections_max: 1"), endpoint(&other, "weight: 1")];
    let product = Setup::to_endpoints(listed).start();
    let held: Arc<Mutex<Vec<Peer>>> = Arc::default();
    while full.busy() == 0 {
        let before = full.requests().len() + other.requests().len();
        held.lock().expect("peers").push(hold(&product, ""));
        eventually("it arrived", || full.requests().len() + other.requests().len() > before || full.busy() > 0);
    }
    for _ in 0..10 {
        assert_eq!(product.get("/").text(), "other");
    }
    go.send(()).expect("the origin waits");
    eventually("the full one has room again", || product.get("/").text() == "/");
}

#[test]
fn those_who_wait_hold_no_buffer() {
    const WAITING: usize = 400;
    let (origin, go, product) = single("queue: { requests_max: 1000, timeout: 30s }");
    let mut first = hold(&product, "");
    eventually("the first is at work", || origin.busy() == 1);
    let before = product.resident_bytes();
    let waiting: Vec<Peer> = (0..WAITING).map(|_| hold(&product, "")).collect();
    eventually("all wait", || queue_length(&product) == WAITING);
    let each = product.resident_bytes().saturating_sub(before) / WAITING as u64;
    assert!(each < 24 * 1024, "{each} bytes for each that waits; a buffer has 64 KiB");
    drop(waiting);
    eventually("all have gone", || queue_length(&product) == 0);
    go.send(()).expect("the origin waits");
    assert_eq!(first.response().status(), 200);
}
