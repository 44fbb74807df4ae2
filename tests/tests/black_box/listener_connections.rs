//! `connections_per_address` of a listener: how many connections a client address may have, and how fast it may open them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

use super::harness::http3::Client;
use super::harness::peer::{Stream, is_end};
use super::harness::{Origin, Peer, Product, Setup, eventually, http3, until};
use super::http3::site;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const FRIEND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

const FULL: &[&str] = &["fault=\"address_full\""];

/// A TCP listener `line` with these limits before an endpoint that says everything again.
fn tcp_text(origin: &Origin, limits: &str) -> String {
    format!(
        "version: 1\n\
         listeners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    cluster: database\n    \
         connections_per_address: {limits}\n\
         clusters:\n  database:\n    endpoints: [\"{}\"]\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
        origin.address()
    )
}

/// A connection from this address through which a byte has come back; an error if it was reset.
fn open(from: Ipv4Addr, to: SocketAddr) -> io::Result<Peer> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("our address");
    // The reset may come before we know that we are connected.
    socket.connect(&to.into())?;
    let mut peer = Peer::new(Stream::Plain(socket.into()));
    peer.try_send("x")?;
    match peer.fill()? {
        0 => panic!("an end in good order where a reset was due"),
        _ => Ok(peer),
    }
}

fn is_let_in(from: Ipv4Addr, to: SocketAddr) -> bool {
    match open(from, to) {
        Ok(_) => true,
        Err(error) => {
            assert!(is_end(&error), "{error}");
            false
        }
    }
}

#[test]
fn an_address_has_so_many_connections_over_all_workers_and_each_that_ends_makes_room() {
    let origin = Origin::echo();
    let product = Product::start(&tcp_text(&origin, "{ max: 6, except: [127.0.0.8/30] }"));
    let line = product.address("line");
    let mut held: Vec<Peer> = (0..6).map(|_| open(HERE, line).expect("there is a place")).collect();
    for _ in 0..10 {
        assert!(!is_let_in(HERE, line));
    }
    assert!(is_let_in(OTHER, line), "another address has places of its own");
    let friends: Vec<Peer> = (0..20).map(|_| open(FRIEND, line).expect("it has no limit")).collect();
    product.expect_metric("equipoise_faults_total", FULL, 10.0);
    let record = product.flagged("CM");
    assert_eq!((&record["fault"], &record["client_ip"]), (&"address_full".into(), &"127.0.0.1".into()));
    drop(friends);
    for _ in 0..2 {
        held.pop();
    }
    eventually("there is a place again", || is_let_in(HERE, line));
    for mut peer in held {
        peer.send("y");
        assert_eq!(peer.take(2), b"xy", "those that are open stay");
    }
}

#[test]
fn a_change_of_the_limit_counts_those_that_are_open() {
    let origin = Origin::echo();
    let product = Product::start(&tcp_text(&origin, "{ rate: 1000/s, burst: 1000 }"));
    let line = product.address("line");
    let held: Vec<Peer> = (0..3).map(|_| open(HERE, line).expect("there is a place")).collect();
    let text = tcp_text(&origin, "{ max: 3 }").replace("DIR", &product.folder().display().to_string());
    assert!(product.reload(&text).contains("configuration is live"));
    assert!(!is_let_in(HERE, product.address("line")));
    drop(held);
    eventually("there is a place", || is_let_in(HERE, product.address("line")));
}

#[test]
fn an_address_opens_connections_no_faster_than_it_may() {
    let origin = Origin::echo();
    let product = Product::start(&tcp_text(&origin, "{ rate: 1/h, burst: 5 }"));
    let line = product.address("line");
    let opened = (0..20).filter(|_| is_let_in(HERE, line)).count();
    assert_eq!(opened, 5);
    assert!(is_let_in(OTHER, line));
    product.expect_metric("equipoise_faults_total", FULL, 15.0);
}

#[test]
fn the_client_that_a_trusted_proxy_tells_of_is_the_one_that_counts() {
    let origin = Origin::echo();
    let limits = "{ max: 1 }\n    proxy_protocol: { from: [127.0.0.1] }";
    let product = Product::start(&tcp_text(&origin, limits));
    let line = product.address("line");
    let told = |client: &str| format!("PROXY TCP4 {client} 198.51.100.1 40000 8443\r\nhello");
    let mut first = Peer::sending(line, told("192.0.2.7"));
    assert_eq!(first.take(5), b"hello");
    Peer::sending(line, told("192.0.2.7")).assert_closed();
    let mut second = Peer::sending(line, told("192.0.2.8"));
    assert_eq!(second.take(5), b"hello");
    let record = product.flagged("CM");
    assert_eq!(record["client_ip"], "192.0.2.7", "{record}");
    drop(first);
    eventually("there is a place", || {
        let mut peer = Peer::sending(line, told("192.0.2.7"));
        peer.try_take(5).is_ok_and(|back| back == b"hello")
    });
}

/// A connection of HTTP/3 whose request was answered.
fn ask(web: SocketAddr, tls: &std::sync::Arc<rustls::ClientConfig>) -> Option<Client> {
    let mut client = Client::try_connect(web, "shop.example", tls).ok()?;
    let stream = client.try_open(http3::request("GET", "/")).ok();
    let answer = stream.and_then(|mut stream| {
        client.end(&mut stream, http::HeaderMap::new());
        client.try_answer(&mut stream).ok()
    });
    answer.map(|answer| {
        assert_eq!(answer.text(), "in");
        client
    })
}

#[test]
fn all_versions_of_http_share_the_limit_and_nobody_beyond_it_is_served() {
    let origin = Origin::saying("in");
    let site = site(Setup::to(&origin).listener("connections_per_address: { max: 2 }"), 2);
    let (web, tls) = (site.product.web(), site.tls());
    let first = Peer::connect(web);
    site.product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 1.0);
    let second = until("the second is let in", || ask(web, &tls));
    assert!(ask(web, &tls).is_none(), "a third over QUIC");
    let handshakes = || site.product.metric("equipoise_tls_handshakes_total", &["listener=\"web\""]);
    let before = handshakes();
    assert!(!is_let_in(HERE, web), "a third over TCP");
    assert_eq!(handshakes(), before);
    site.product.expect_metric_at_least("equipoise_faults_total", FULL, 2.0);
    drop(second);
    let third = until("there is a place", || ask(web, &tls));
    drop(first);
    until("there is another", || ask(web, &tls));
    drop(third);
    assert_eq!(origin.requests().len(), 3);
}
