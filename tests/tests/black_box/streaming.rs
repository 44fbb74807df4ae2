//! Bodies on their way: bounded memory, no waiting for what is not needed, and both sides learning of each other's end.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::harness::origin::ok;
use super::harness::peer::Stream;
use super::harness::{Origin, Peer, Setup, eventually, sys};

const MIB: u64 = 1024 * 1024;
/// What one stalled exchange may hold on its way: the kernel's buffers on both sides and the product's own.
const IN_TRANSIT_MAX: u64 = 24 * MIB;
const STALLED: Duration = Duration::from_millis(400);

/// Sends zeroes until nothing more is taken for a while, or a GiB is through; returns how many were taken.
fn pour(peer: &mut Peer) -> u64 {
    peer.tcp().set_write_timeout(Some(STALLED)).expect("a time limit");
    let chunk = vec![0; 64 * 1024];
    let mut sent = 0;
    while sent < 1024 * MIB && peer.try_send(&chunk).is_ok() {
        sent += chunk.len() as u64;
    }
    sent
}

/// A client whose kernel takes in little.
fn narrow(product: &super::harness::Product) -> Peer {
    let tcp = TcpStream::connect(product.web()).expect("a connection");
    sys::set_receive_buffer(&tcp, 16 * 1024);
    Peer::new(Stream::Plain(tcp))
}

#[test]
fn clients_that_do_not_read_hold_the_endpoint_back_and_cost_no_memory() {
    let poured = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&poured);
    let origin = Origin::start(move |mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
        let sent = pour(&mut visit.peer);
        shared.lock().expect("sizes").push(sent);
    });
    let product = Setup::to(&origin).start();
    let mut warm = narrow(&product);
    warm.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(warm.head().status(), 200);
    let before = product.resident_bytes();
    let clients: Vec<Peer> = (0..12)
        .map(|_| {
            let mut peer = narrow(&product);
            peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            peer
        })
        .collect();
    eventually("all endpoints stall", || poured.lock().expect("sizes").len() == 13);
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 6 * MIB, "12 stalled responses cost {grown} bytes");
    for sent in poured.lock().expect("sizes").iter() {
        assert!(*sent < IN_TRANSIT_MAX, "{sent} bytes were taken for a client that does not read");
    }
    drop(clients);
}

#[test]
fn an_endpoint_that_does_not_read_holds_the_client_back_and_costs_no_memory() {
    let (done, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        sys::set_receive_buffer(visit.peer.tcp(), 16 * 1024);
        let _ = visit.peer.try_head();
        let _ = wait.lock().expect("channel").recv();
    });
    let product = Setup::to(&origin).start();
    let before = product.resident_bytes();
    let mut peer = product.connect();
    peer.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1073741824\r\n\r\n");
    let sent = pour(&mut peer);
    assert!(sent < IN_TRANSIT_MAX, "{sent} bytes were taken for an endpoint that does not read");
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 4 * MIB, "a stalled request costs {grown} bytes");
    done.send(()).expect("the origin waits");
}

#[test]
fn large_bodies_pass_whole_in_both_directions() {
    const SIZE: usize = 24 * 1024 * 1024 + 77;
    let pattern = |at: usize| (at % 251) as u8;
    let body: Vec<u8> = (0..SIZE).map(pattern).collect();
    let wanted = body.clone();
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.peer.try_request() {
            let same = request.body == wanted;
            let mut response =
                format!("HTTP/1.1 200 OK\r\nX-Same: {same}\r\nContent-Length: {SIZE}\r\n\r\n").into_bytes();
            response.extend_from_slice(&wanted);
            visit.peer.send(response);
        }
    });
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.send(format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {SIZE}\r\n\r\n"));
    peer.send(&body);
    let answer = peer.response();
    assert_eq!(answer.field("x-same"), Some("true"));
    assert!(answer.body == body, "the response came through changed");
    peer.send("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in body.chunks(1_000_003) {
        peer.send(format!("{:x}\r\n", chunk.len()));
        peer.send(chunk);
        peer.send("\r\n");
    }
    peer.send("0\r\n\r\n");
    assert_eq!(peer.response().field("x-same"), Some("true"));
    let record = product.record("the exchange", |record| record["status"] == 200);
    assert_eq!(
        (record["received_bytes"].as_u64(), record["sent_bytes"].as_u64()),
        (Some(SIZE as u64), Some(SIZE as u64))
    );
}

#[test]
fn each_part_of_a_response_is_passed_on_as_soon_as_it_is_there() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        for event in 0..5 {
            visit.peer.send(format!("2\r\n{event}\n\r\n"));
            wait.lock().expect("channel").recv().expect("the test reads on");
        }
        visit.peer.send("0\r\n\r\n");
    });
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 200);
    for event in 0..5 {
        let chunk = peer.try_take_through(b"\n\r\n").expect("an event at once");
        assert_eq!(chunk, format!("2\r\n{event}\n\r\n").into_bytes());
        go.send(()).expect("the origin waits");
    }
    assert_eq!(peer.take(5), b"0\r\n\r\n");
}

#[test]
fn each_part_of_a_request_is_passed_on_as_soon_as_it_is_there() {
    let origin = Origin::answering(|_| ok("done"));
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    for part in ["one", "two", "three"] {
        peer.send(format!("{:x}\r\n{part}\r\n", part.len()));
        let end = format!("{part}\r\n");
        eventually("the endpoint has the part", || origin.received(0).ends_with(end.as_bytes()));
    }
    peer.send("0\r\n\r\n");
    assert_eq!(peer.response().text(), "done");
    assert_eq!(origin.only_request().text(), "onetwothree");
}

#[test]
fn an_early_response_reaches_a_client_that_is_still_sending() {
    let origin = Origin::start(|mut visit| {
        let _ = visit.peer.try_head();
        visit.peer.send("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno");
        visit.peer.half_close();
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1073741824\r\n\r\n");
    let chunk = vec![0; 16 * 1024];
    for _ in 0..8 {
        if peer.try_send(&chunk).is_err() {
            break;
        }
    }
    let answer = peer.response();
    assert_eq!((answer.status(), answer.text().as_str()), (403, "no"));
    peer.wait_closed();
}

#[test]
fn a_client_that_goes_away_within_its_request_is_seen_as_gone_by_the_endpoint() {
    let origin = Origin::answering(|_| ok("never"));
    let product = Setup::to(&origin).start();
    for (framing, part) in [("Content-Length: 100", "part"), ("Transfer-Encoding: chunked", "4\r\npart\r\n")] {
        let before = origin.connections();
        let mut peer = product.connect();
        peer.send(format!("POST / HTTP/1.1\r\nHost: test\r\n{framing}\r\n\r\n{part}"));
        eventually("the endpoint has the part", || {
            origin.connections() > before && origin.received(before).windows(4).any(|window| window == b"part")
        });
        drop(peer);
        eventually("the endpoint sees the end", || origin.open() == 0);
        assert!(!origin.received(before).ends_with(b"0\r\n\r\n"), "half a body must not look whole");
    }
    assert!(origin.requests().is_empty());
    product.flagged("CCB");
}

#[test]
fn a_client_that_goes_away_within_its_response_frees_the_endpoint() {
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    let origin = Origin::start(move |mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
        while visit.peer.try_send([0; 4096]).is_ok() {
            counter.fetch_add(4096, Ordering::Relaxed);
        }
    });
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 200);
    peer.reset();
    eventually("the endpoint is free", || origin.open() == 0);
    assert!(sent.load(Ordering::Relaxed) < 512 * MIB);
    product.flagged("CD");
}

#[test]
fn a_client_that_goes_away_while_the_endpoint_thinks_frees_the_endpoint() {
    let origin = Origin::start(|mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).start();
    let peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("the endpoint has the request", || origin.requests().len() == 1);
    peer.reset();
    eventually("the endpoint is free", || origin.open() == 0);
    assert_eq!(product.flagged("CW")["status"], serde_json::Value::Null);
}

#[test]
fn half_a_response_never_looks_whole() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        let Some(request) = visit.request() else { return };
        visit.peer.send(match request.target() {
            "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
            "/chunk" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
            _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        });
        wait.lock().expect("channel").recv().expect("the client has the head");
        match request.target() {
            "/rubbish" => visit.peer.send("rubbish\r\n"),
            "/reset" => visit.peer.reset(),
            _ => {}
        }
    });
    let product = Setup::to(&origin).start();
    for (path, flag) in [("/length", "UD"), ("/chunk", "UD"), ("/chunks", "UD"), ("/reset", "UD"), ("/rubbish", "UF")] {
        let mut peer = Peer::sending(product.web(), format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let mut answer = peer.head();
        assert_eq!(answer.status(), 200, "{path}");
        go.send(()).expect("the origin waits");
        let error = peer.try_body(&mut answer, true).expect_err("half a body is no body");
        assert!(super::harness::peer::is_end(&error), "{path}: {error}");
        assert_eq!(product.record(path, |record| record["path"] == path)["flag"], flag, "{path}");
    }
}

#[test]
fn half_a_response_to_an_http_1_0_client_ends_in_a_reset() {
    let origin = Origin::start(|mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    });
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.0\r\nHost: test\r\n\r\n");
    // Where only the end of the connection marks the end of the body, an orderly one would make half of it look whole.
    match peer.try_rest() {
        Ok(bytes) => panic!("an orderly end after {:?}", String::from_utf8_lossy(&bytes)),
        Err(error) => assert!(super::harness::peer::is_end(&error), "{error}"),
    }
    product.flagged("UD");
}

#[test]
fn a_body_that_stalls_is_given_up_on_either_side() {
    let origin = Origin::start(|mut visit| {
        let Ok(Some(mut request)) = visit.peer.try_head() else { return };
        if request.target() == "/stall" {
            visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        }
        if visit.peer.try_body(&mut request, false).is_ok() {
            visit.peer.wait_closed();
        }
    });
    let product = Setup::to(&origin).listener("timeouts: { stream: 1s }").cluster("timeouts: { idle: 1s }").start();
    let mut response = Peer::sending(product.web(), "GET /stall HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(response.head().status(), 200);
    assert_eq!(response.take(4), b"half");
    response.assert_closed();
    product.flagged("UDT");
    let mut request = Peer::sending(product.web(), "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nhalf");
    assert_eq!(request.response().status(), 408);
    request.assert_closed();
    product.flagged("CBT");
    eventually("the endpoint is free", || origin.open() == 0);
}

#[test]
fn a_client_that_takes_nothing_for_too_long_is_given_up() {
    let origin = Origin::start(|mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
        while visit.peer.try_send([0; 65536]).is_ok() {}
    });
    let product = Setup::to(&origin).listener("timeouts: { stream: 400ms }").start();
    let mut peer = narrow(&product);
    peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    product.flagged("CDT");
    eventually("the endpoint is free", || origin.open() == 0);
    drop(peer);
}

#[test]
fn an_endpoint_that_takes_nothing_for_too_long_is_given_up() {
    let (done, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        sys::set_receive_buffer(visit.peer.tcp(), 16 * 1024);
        let _ = visit.peer.try_head();
        let _ = wait.lock().expect("channel").recv();
    });
    let product = Setup::to(&origin).cluster("timeouts: { idle: 400ms }").start();
    let mut peer = product.connect();
    peer.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1073741824\r\n\r\n");
    pour(&mut peer);
    assert_eq!(peer.response().status(), 504);
    product.flagged("UST");
    done.send(()).expect("the origin waits");
}

#[test]
fn a_tunnel_that_moves_no_byte_is_closed_in_time() {
    let origin = Origin::start(|mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello");
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).listener("timeouts: { stream: 300ms }").start();
    let mut peer =
        Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    assert_eq!(peer.head().status(), 101);
    assert_eq!(peer.take(5), b"hello");
    peer.wait_closed();
    assert_eq!(product.flagged("PI")["status"], 101);
    eventually("the endpoint is free", || origin.open() == 0);
}

#[test]
fn a_tunnel_may_be_silent_for_a_time_of_its_own_longer_or_shorter_than_bodies() {
    let origin = Origin::start(|mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello");
        visit.peer.wait_closed();
    });
    let upgrade = "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let bodies = "timeouts: { stream: 300ms }";
    let long = Setup::to(&origin).listener(bodies).cluster("timeouts: { idle: 300ms, tunnel: 1m }").start();
    let short = Setup::to(&origin).cluster("timeouts: { tunnel: 300ms }").start();
    let [mut kept, mut ended] = [&long, &short].map(|product| Peer::sending(product.web(), upgrade));
    for peer in [&mut kept, &mut ended] {
        assert_eq!(peer.head().status(), 101);
        assert_eq!(peer.take(5), b"hello");
    }
    ended.wait_closed();
    assert_eq!(short.flagged("PI")["status"], 101);
    kept.assert_silent(Duration::from_secs(1));
    kept.assert_open();
}
