//! Ending in good order.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::harness::origin::ok;
use super::harness::{Origin, Peer, Setup, eventually};

#[test]
fn an_idle_program_ends_at_once_and_closes_what_is_idle() {
    let origin = Origin::saying("fine");
    let mut product = Setup::to(&origin).start();
    let mut idle = product.connect();
    assert_eq!(idle.get("/").text(), "fine");
    let mut fresh = product.connect();
    let start = Instant::now();
    product.signal(libc::SIGTERM);
    assert_eq!(product.wait_ended().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(20), "the bound on draining is 30 s");
    idle.assert_closed();
    fresh.assert_closed();
    assert_eq!(product.records().len(), 1, "what was recorded is written before the end");
}

#[test]
fn what_is_under_way_is_finished_and_nothing_new_is_taken() {
    let (go, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        wait.lock().expect("channel").recv().expect("the test lets it go");
        visit.peer.send("half");
    });
    let mut product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut answer = peer.head();
    product.signal(libc::SIGTERM);
    eventually("nobody gets in", || std::net::TcpStream::connect(product.web()).is_err());
    assert!(product.is_running());
    go.send(()).expect("the origin waits");
    peer.try_body(&mut answer, true).expect("the whole body");
    assert_eq!(answer.text(), "halfhalf");
    peer.assert_closed();
    assert_eq!(product.wait_ended().code(), Some(0));
}

#[test]
fn a_client_is_told_that_its_connection_ends() {
    let (go, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::answering(move |_| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok("last")
    });
    let mut product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is under way", || origin.busy() == 1);
    product.signal(libc::SIGTERM);
    eventually("it drains", || product.stderr().contains("draining"));
    eventually("it is not ready for more", || {
        std::net::TcpStream::connect(product.address("admin")).is_err() || product.admin("/readyz").status() == 503
    });
    go.send(()).expect("the origin waits");
    let answer = peer.response();
    assert_eq!((answer.text().as_str(), answer.field("connection")), ("last", Some("close")));
    assert_eq!(product.wait_ended().code(), Some(0));
}

#[test]
fn what_takes_longer_than_allowed_is_cut_off() {
    let origin = Origin::start(|mut visit| {
        let _ = visit.request();
        visit.peer.wait_closed();
    });
    let mut product = Setup::to(&origin).top("shutdown: { drain_timeout: 300ms }").start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is under way", || origin.requests().len() == 1);
    let start = Instant::now();
    product.signal(libc::SIGTERM);
    assert_eq!(product.wait_ended().code(), Some(4));
    assert!(start.elapsed() >= Duration::from_millis(300));
    peer.wait_closed();
    product.flagged("PX");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let origin = Origin::start(|mut visit| {
        let _ = visit.request();
        visit.peer.wait_closed();
    });
    let mut product = Setup::to(&origin).start();
    let _held = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is under way", || origin.requests().len() == 1);
    product.signal(libc::SIGINT);
    eventually("it drains", || product.stderr().contains("draining"));
    let start = Instant::now();
    product.signal(libc::SIGTERM);
    assert_eq!(product.wait_ended().code(), Some(4));
    assert!(start.elapsed() < Duration::from_secs(20), "the bound on draining is 30 s");
}

#[test]
fn tunnels_and_streams_are_waited_for_like_any_exchange() {
    let origin = Origin::start(|mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n");
        while visit.peer.fill().is_ok_and(|count| count > 0) {
            let bytes = visit.peer.drain();
            visit.peer.send(bytes);
        }
    });
    let mut product = Setup::to(&origin).start();
    let mut peer =
        Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    assert_eq!(peer.head().status(), 101);
    product.signal(libc::SIGTERM);
    eventually("it drains", || product.stderr().contains("draining"));
    peer.send("still here");
    assert_eq!(peer.take(10), b"still here");
    drop(peer);
    assert_eq!(product.wait_ended().code(), Some(0));
}
