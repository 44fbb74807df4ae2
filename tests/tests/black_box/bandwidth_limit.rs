//! The filter `bandwidth_limit`: bodies move no faster than they may, over all versions, and nobody is timed out for it.

use std::io::Write;
use std::time::{Duration, Instant};

use super::harness::http2::{Client, request};
use super::harness::{Origin, Peer, Product, Setup, eventually, http3};
use super::http2_both::{upgrading, websocket};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

/// Answers with as many bytes as the path says.
fn sized() -> Origin {
    Origin::answering(|request| {
        let bytes = request.target().trim_start_matches('/').parse().unwrap_or(0);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
        [head.into_bytes(), vec![b'x'; bytes]].concat()
    })
}

fn limited(origin: &Origin, settings: &str) -> Setup {
    Setup::to(origin).route(format!("filters: [{{ bandwidth_limit: {settings} }}]"))
}

/// How long it took, at least so many milliseconds.
fn takes(least: u64, work: impl FnOnce()) {
    let begun = Instant::now();
    work();
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(least), "{took:?} instead of {least} ms");
}

#[test]
fn responses_of_all_versions_come_at_the_rate_and_whole() {
    let origin = sized();
    let site = site(limited(&origin, "{ download: 200kB/s }").listener_more(CLEAR), 2);
    let clear = site.product.address("clear");
    // A sixteenth of a second is given at once, and one more as the first turn.
    takes(800, || assert_eq!(Peer::connect(clear).get("/200000").body.len(), 200_000));
    takes(800, || assert_eq!(Client::connect(clear).get("/200000").body.len(), 200_000));
    takes(800, || assert_eq!(site.connect().get("/200000").body.len(), 200_000));
    // Small ones are not held up.
    assert_eq!(Peer::connect(clear).get("/10").body.len(), 10);
}

#[test]
fn what_is_free_comes_at_once_and_streams_of_a_key_share_its_rate() {
    let origin = sized();
    let product = limited(&origin, "{ download: 100kB/s, after: 10MB }").start();
    let begun = Instant::now();
    assert_eq!(product.get("/5000000").body.len(), 5_000_000);
    assert!(begun.elapsed() < Duration::from_secs(20), "it would take fifty seconds at the rate");
    let shared = limited(&origin, "{ download: 400kB/s, per: key }").start();
    takes(800, || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(shared.get("/100000").body.len(), 100_000));
            }
        });
    });
}

#[test]
fn requests_reach_the_endpoint_at_the_rate_and_whole() {
    let origin = Origin::saying("in");
    let site = site(limited(&origin, "{ upload: 200kB/s }").listener_more(CLEAR), 2);
    let clear = site.product.address("clear");
    let body = vec![b'x'; 200_000];
    takes(800, || {
        let mut peer = Peer::connect(clear);
        peer.send([b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 200000\r\n\r\n", &body[..]].concat());
        assert_eq!(peer.response().status(), 200);
    });
    takes(800, || assert_eq!(Client::connect(clear).ask(request("POST", "/"), &body).status, 200));
    takes(800, || assert_eq!(site.connect().ask(http3::request("POST", "/"), &body).status, 200));
    assert!(origin.requests().iter().all(|request| request.body == body));
}

/// Sends so many bytes into a tunnel that echoes, and takes them back.
fn echoes(peer: &mut Peer, bytes: usize) {
    let sent = vec![b'x'; bytes];
    let mut sender = peer.tcp().try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(|| sender.write_all(&sent).expect("the product reads"));
        assert_eq!(peer.take(bytes).len(), bytes);
    });
}

#[test]
fn tunnels_are_held_to_the_rate_both_ways_and_share_that_of_a_key() {
    let origin = super::reload::versatile();
    for settings in ["{ download: 200kB/s }", "{ upload: 200kB/s }", "{ upload: 200kB/s, per: key }"] {
        let product = limited(&origin, settings).start();
        let mut peer = super::reload::tunnel(&product);
        takes(800, || echoes(&mut peer, 200_000));
    }
    let free = limited(&origin, "{ download: 10kB/s, after: 10MB }").start();
    let mut peer = super::reload::tunnel(&free);
    let begun = Instant::now();
    echoes(&mut peer, 500_000);
    assert!(begun.elapsed() < Duration::from_secs(20), "it would take fifty seconds at the rate");
    let slowed = Setup::to(&origin).route("filters: [{ fault: { bandwidth: { rate: 200kB/s } } }]").start();
    let mut peer = super::reload::tunnel(&slowed);
    takes(800, || echoes(&mut peer, 200_000));
    slowed.expect_metric("equipoise_filter_events_total", &["event=\"slowed\""], 1.0);
}

#[test]
fn a_websocket_on_a_stream_of_http2_is_held_to_the_rate() {
    let origin = upgrading(true);
    let setup = Setup::to(&origin)
        .route("filters: [{ bandwidth_limit: { download: 30kB/s }, when: { path: { prefix: /chat } } }]");
    let product = setup.start();
    let mut client = Client::connect(product.web());
    let mut stream = client.open(websocket("/chat"), false);
    assert_eq!(client.head(&mut stream).expect("a response").0, 200);
    takes(800, || {
        client.send(&mut stream, &[b'x'; 30_000], false);
        let mut seen = 0;
        while seen < 30_000 {
            seen += client.chunk(&mut stream).expect("more").expect("bytes").len();
        }
    });
    client.send(&mut stream, b"", true);
    while let Some(chunk) = client.chunk(&mut stream) {
        assert_eq!(chunk.expect("an orderly end"), "");
    }
}

#[test]
fn a_tunnel_that_waits_for_its_turn_is_not_idle_and_one_that_is_idle_ends() {
    let origin = super::reload::versatile();
    let product = limited(&origin, "{ download: 10kB/s }").cluster("timeouts: { tunnel: 1s }").start();
    let mut peer = super::reload::tunnel(&product);
    // It takes two seconds, a sixteenth for each turn, and then nothing moves.
    takes(1_500, || echoes(&mut peer, 20_000));
    assert_eq!(peer.rest(), b"");
}

#[test]
fn connections_of_a_tcp_listener_are_held_to_their_rates() {
    let origin = Origin::echo();
    for rates in ["download: 200kB/s", "upload: 200kB/s"] {
        let product = Product::start(&format!(
            "version: 1\nlisteners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: a, bandwidth: {{ {rates} }} }}\n\
             clusters: {{ a: {{ endpoints: [\"{}\"] }} }}\nadmin: {{ bind: \"127.0.0.1:0\" }}\n",
            origin.address()
        ));
        let mut peer = Peer::connect(product.address("line"));
        takes(800, || echoes(&mut peer, 200_000));
        // What is held back reaches a client that has ended its half.
        peer.half_close();
        assert_eq!(peer.rest(), b"");
        product.expect_metric("equipoise_sent_bytes_total", &["listener=\"line\""], 200_000.0);
    }
}

#[test]
fn a_slow_rate_times_nobody_out_and_other_requests_of_the_worker_go_on() {
    let origin = sized();
    let product = limited(&origin, "{ download: 2kB/s, per: key }")
        .listener("timeouts: { stream: 1500ms }")
        .cluster("timeouts: { idle: 1500ms }")
        .route_before("{ match: { path: { exact: /7 } }, cluster: site }")
        .workers(1)
        .start();
    let slow: Vec<Peer> =
        (0..4).map(|_| Peer::sending(product.web(), "GET /2000 HTTP/1.1\r\nHost: test\r\n\r\n")).collect();
    for _ in 0..20 {
        assert_eq!(product.get("/7").body.len(), 7);
    }
    takes(2_500, || {
        for mut peer in slow {
            peer.set_read_timeout(Duration::from_secs(60));
            assert_eq!(peer.response().body.len(), 2_000, "nobody is timed out");
        }
    });
}

#[test]
fn a_client_that_leaves_while_its_bytes_wait_is_noticed_and_one_that_does_not_read_is_timed_out() {
    let origin = sized();
    let product = limited(&origin, "{ download: 50kB/s }").listener("timeouts: { stream: 1s }").start();
    let mut gone = Peer::sending(product.web(), "GET /90000000 HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(gone.head().status(), 200);
    gone.reset();
    eventually("the endpoint is free", || product.metric("equipoise_endpoint_in_flight", &[]) == 0.0);
    assert_eq!(product.flagged("CD")["fault"], "closed_in_response");
    let fast = limited(&origin, "{ download: 1GB/s }").listener("timeouts: { stream: 1s }").start();
    let mut idle = Peer::sending(fast.web(), "GET /90000000 HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(idle.head().status(), 200);
    assert_eq!(fast.flagged("CDT")["fault"], "client_write_timeout");
}

#[test]
fn the_memory_of_many_slow_downloads_is_bounded() {
    let origin = sized();
    let product: Product = limited(&origin, "{ download: 1kB/s }").start();
    let before = product.resident_bytes();
    let slow: Vec<Peer> = (0..100)
        .map(|_| {
            let mut peer = Peer::sending(product.web(), "GET /5000000 HTTP/1.1\r\nHost: test\r\n\r\n");
            assert_eq!(peer.head().status(), 200);
            peer
        })
        .collect();
    let more = product.resident_bytes().saturating_sub(before);
    assert!(more < 60 << 20, "{more} bytes for 100 downloads of 5 MB each");
    drop(slow);
}
