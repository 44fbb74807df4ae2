//! Connections to endpoints: kept, bounded, given up, and never a source of mixed or repeated exchanges.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::harness::origin::{Visit, ok};
use super::harness::{Origin, Peer, Product, Setup, eventually, until};

/// An origin that answers each connection's requests as `script` says, by the request's place on its connection.
fn by_place(script: impl Fn(&mut Visit<'_>, usize) -> bool + Send + Sync + 'static) -> Origin {
    Origin::start(move |mut visit| {
        let mut place = 0;
        while visit.request().is_some() {
            if !script(&mut visit, place) {
                return;
            }
            place += 1;
        }
    })
}

#[test]
fn a_connection_to_an_endpoint_is_used_again_by_any_client() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).workers(1).start();
    for _ in 0..20 {
        assert_eq!(product.get("/").text(), "fine");
    }
    assert_eq!((origin.requests().len(), origin.connections()), (20, 1));
    product.expect_metric("equipoise_endpoint_connections_reused_total", &["cluster=\"site\""], 19.0);
    product.expect_metric("equipoise_endpoint_connects_total", &["result=\"opened\""], 1.0);
}

#[test]
fn an_idle_connection_that_the_endpoint_closed_is_noticed_before_it_is_used() {
    let origin = by_place(|visit, _| {
        visit.peer.send(ok("once"));
        false
    });
    let product = Setup::to(&origin).workers(1).start();
    for number in 1..=10 {
        assert_eq!(product.get("/").text(), "once");
        eventually("the endpoint has closed", || origin.open() == 0);
        assert_eq!(origin.connections(), number);
    }
    let post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(product.connect().ask(post).text(), "once");
    assert_eq!(origin.requests().len(), 11, "nothing was sent twice");
}

/// An origin whose connections answer one request and die of the next, once it is there.
fn dying_of_the_second() -> Origin {
    by_place(|visit, place| {
        if place == 0 {
            visit.peer.send(ok("first"));
        }
        place == 0
    })
}

#[test]
fn a_request_that_may_be_repeated_survives_a_kept_connection_that_dies_of_it() {
    let origin = dying_of_the_second();
    let product = Setup::to(&origin).workers(1).start();
    assert_eq!(product.get("/1").text(), "first");
    assert_eq!(product.get("/2").text(), "first");
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_request_that_must_not_be_repeated_is_never_sent_twice() {
    let origin = dying_of_the_second();
    let product = Setup::to(&origin).workers(1).start();
    assert_eq!(product.get("/1").text(), "first");
    let post = "POST /2 HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(product.connect().ask(post).status(), 502);
    assert_eq!(origin.requests().iter().filter(|request| request.target() == "/2").count(), 1);
    product.flagged("UK");
}

#[test]
fn a_request_that_kills_a_fresh_connection_is_not_tried_again() {
    let origin = by_place(|_, _| false);
    let product = Setup::to(&origin).start();
    assert_eq!(product.get("/").status(), 502);
    assert_eq!((origin.connections(), origin.requests().len()), (1, 1));
    product.flagged("UR");
}

#[test]
fn what_an_endpoint_sends_beyond_its_response_is_never_given_to_another_client() {
    let origin = by_place(|visit, _| {
        let mut bytes = ok("mine");
        bytes.extend(ok("stolen"));
        visit.peer.send(bytes);
        true
    });
    let product = Setup::to(&origin).workers(1).start();
    for _ in 0..5 {
        assert_eq!(product.get("/").text(), "mine");
    }
    let mut peer = product.connect();
    for _ in 0..5 {
        assert_eq!(peer.get("/").text(), "mine");
    }
    assert_eq!(origin.connections(), 10, "a connection that is out of step is not used again");
}

#[test]
fn what_an_endpoint_sends_unasked_on_an_idle_connection_ends_it() {
    let (say, said): (Sender<()>, Receiver<()>) = channel();
    let said = std::sync::Mutex::new(said);
    let done = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&done);
    let origin = by_place(move |visit, _| {
        visit.peer.send(ok("asked"));
        if visit.index == 0 {
            said.lock().expect("channel").recv().expect("the test says when");
            visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nunasked");
            counter.fetch_add(1, Ordering::SeqCst);
        }
        true
    });
    let product = Setup::to(&origin).workers(1).start();
    assert_eq!(product.get("/").text(), "asked");
    say.send(()).expect("the origin waits");
    eventually("it was sent", || done.load(Ordering::SeqCst) == 1);
    for _ in 0..3 {
        assert_eq!(product.get("/").text(), "asked");
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_connection_is_not_kept_when_the_endpoint_says_so() {
    for head in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        // The endpoint itself does not close: only what it says counts.
        let origin = by_place(move |visit, _| {
            visit.peer.send(head);
            true
        });
        let product = Setup::to(&origin).workers(1).start();
        for _ in 0..3 {
            assert_eq!(product.get("/").text(), "hi");
        }
        assert_eq!(origin.connections(), 3, "{head:?}");
        eventually("they are closed", || origin.open() == 0);
    }
}

/// Three requests at once, answered once all are there.
fn three_at_once(product: &Product, origin: &Origin) {
    let before = origin.requests().len();
    let mut clients: Vec<Peer> =
        (0..3).map(|_| Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n")).collect();
    for client in &mut clients {
        assert_eq!(client.response().text(), "together");
    }
    assert_eq!(origin.requests().len(), before + 3);
}

/// Answers when three requests are at work.
fn together() -> Origin {
    let waiting = Arc::new(std::sync::Barrier::new(3));
    Origin::answering(move |_| {
        waiting.wait();
        ok("together")
    })
}

#[test]
fn no_more_idle_connections_are_kept_than_allowed() {
    let origin = together();
    let product = Setup::to(&origin).workers(1).cluster("pool: { idle_max: 1 }").start();
    three_at_once(&product, &origin);
    eventually("one is left", || origin.open() == 1);
    three_at_once(&product, &origin);
    assert_eq!(origin.connections(), 5);
}

#[test]
fn reuse_can_be_off() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).workers(1).cluster("pool: { idle_max: 0 }").start();
    for _ in 0..3 {
        assert_eq!(product.get("/").text(), "fine");
    }
    assert_eq!(origin.connections(), 3);
    eventually("none is left", || origin.open() == 0);
}

#[test]
fn idle_connections_are_closed_when_their_time_is_over() {
    let origin = together();
    let product = Setup::to(&origin).workers(1).cluster("pool: { idle_timeout: 200ms }").start();
    three_at_once(&product, &origin);
    eventually("none is left", || origin.open() == 0);
    three_at_once(&product, &origin);
}

#[test]
fn a_connection_serves_no_more_requests_than_allowed() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).workers(1).cluster("pool: { requests_per_connection_max: 2 }").start();
    for _ in 0..6 {
        assert_eq!(product.get("/").text(), "fine");
    }
    assert_eq!(origin.connections(), 3);
}

#[test]
fn idle_clients_hold_no_memory_and_no_connection_to_an_endpoint() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).cluster("pool: { idle_max: 0 }").start();
    let mut warm: Vec<Peer> = (0..50).map(|_| product.connect()).collect();
    for peer in &mut warm {
        assert_eq!(peer.get("/").text(), "fine");
    }
    let before = product.resident_bytes();
    let mut clients: Vec<Peer> = (0..500).map(|_| product.connect()).collect();
    for peer in &mut clients {
        assert_eq!(peer.get("/").text(), "fine");
    }
    // A relay buffer alone is 64 KiB: 500 of them would be 32 MiB. Builds for tests need twice what others do.
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown / 500 < 32 * 1024, "an idle connection costs {} bytes", grown / 500);
    eventually("no endpoint connection is held", || origin.open() == 0);
    product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 550.0);
}

#[test]
fn a_connection_that_was_opened_and_closed_leaves_no_descriptor_behind() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).cluster("pool: { idle_max: 0 }").start();
    assert_eq!(product.get("/").text(), "fine");
    eventually("all is closed", || origin.open() == 0);
    let before = super::harness::sys::descriptors(product.pid());
    for _ in 0..100 {
        assert_eq!(product.get("/").text(), "fine");
        product.connect().reset();
        drop(Peer::sending(product.web(), "GET / HT"));
    }
    let after = until("the descriptors are back", || {
        let now = super::harness::sys::descriptors(product.pid());
        (now <= before + 2).then_some(now)
    });
    assert!(after <= before + 2, "{before} descriptors became {after}");
}

#[test]
fn an_endpoint_that_thinks_delays_only_its_own_client() {
    let (go, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::answering(move |request| {
        if request.target() == "/slow" {
            wait.lock().expect("channel").recv().expect("the test says go");
        }
        ok("done")
    });
    let product = Setup::to(&origin).workers(1).start();
    let mut slow = Peer::sending(product.web(), "GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("the endpoint thinks", || origin.busy() == 1);
    for _ in 0..20 {
        assert_eq!(product.get("/fast").text(), "done");
    }
    go.send(()).expect("the origin waits");
    assert_eq!(slow.response().text(), "done");
}

/// An origin whose connections answer one request and die of the first bytes of the next.
fn dying_of_first_bytes() -> Origin {
    Origin::start(|mut visit| {
        if visit.request().is_some() {
            visit.peer.send(ok("first"));
            let _ = visit.peer.fill();
        }
    })
}

/// How often the endpoint has received these bytes, on all its connections.
fn times_received(origin: &Origin, wanted: &str) -> usize {
    let texts = (0..origin.connections()).map(|number| String::from_utf8_lossy(&origin.received(number)).into_owned());
    texts.map(|text| text.matches(wanted).count()).sum()
}

#[test]
fn a_request_without_a_body_is_sent_again_when_its_kept_connection_dies_of_its_first_bytes() {
    let origin = dying_of_first_bytes();
    let product = Setup::to(&origin).workers(1).start();
    let mut peer = product.connect();
    for number in 1..=10 {
        let answer = peer.get(&format!("/{number}."));
        assert_eq!((answer.status(), answer.text().as_str()), (200, "first"));
    }
    assert_eq!(times_received(&origin, "GET /10."), 2);
}

#[test]
fn a_request_with_a_body_is_never_sent_again_and_nothing_behind_it_is_taken_for_its_body() {
    let behind = "GET /behind HTTP/1.1\r\nHost: test\r\n\r\n";
    for (framing, bodies) in [
        ("Content-Length: 5", ["hello", ""]),
        ("Transfer-Encoding: chunked", ["5\r\nhello\r\n0\r\n\r\n", ""]),
        ("Transfer-Encoding: chunked", ["0\r\n\r\n", "2\r\nhe"]),
    ] {
        for body in bodies {
            let origin = dying_of_first_bytes();
            let product = Setup::to(&origin).workers(1).start();
            assert_eq!(product.get("/1").text(), "first");
            let whole = body.ends_with("hello") || body.ends_with("\r\n\r\n");
            let more = if whole { behind } else { "" };
            let put = format!("PUT /2 HTTP/1.1\r\nHost: test\r\n{framing}\r\n\r\n{body}{more}");
            let mut peer = product.connect();
            assert_eq!(peer.ask(&put).status(), 502, "{put}");
            peer.wait_closed_or_answered();
            assert_eq!(product.get("/3").text(), "first");
            assert_eq!(times_received(&origin, "PUT /2"), 1, "{put}");
            assert!(origin.requests().iter().all(|request| request.body.is_empty()), "{:?}", origin.requests());
        }
    }
}
