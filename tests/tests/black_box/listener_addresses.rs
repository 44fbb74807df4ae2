//! The `address_list` of a listener: who is let in by address, before anything is read.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

use super::harness::http3::Client;
use super::harness::peer::{Stream, is_end};
use super::harness::poll::PATIENCE;
use super::harness::{Origin, Peer, Product, Setup, eventually, product};
use super::http3::site;
use super::udp::{self, Echo};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FRIEND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

const FAULTS: &str = "equipoise_faults_total";
const KEPT_OUT: &[&str] = &["fault=\"kept_out\""];

/// Whether somebody at this address who connects and says something gets it back. If not, the connection has been reset.
fn is_let_in(from: Ipv4Addr, to: SocketAddr) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("our address");
    if let Err(error) = socket.connect(&to.into()) {
        // The reset may come before we know that we are connected.
        assert!(is_end(&error), "{error}");
        return false;
    }
    let mut peer = Peer::new(Stream::Plain(socket.into()));
    match peer.try_send("x").and_then(|()| peer.fill()) {
        Ok(0) => panic!("an end in good order where a reset was due"),
        Ok(_) => true,
        Err(error) => {
            assert!(is_end(&error), "{error}");
            false
        }
    }
}

/// A TCP listener `line` with these lines before an endpoint that says everything again.
fn tcp_text(origin: &Origin, listener: &str) -> String {
    format!(
        "version: 1\n\
         listeners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    cluster: database\n    {listener}\n\
         clusters:\n  database:\n    endpoints: [\"{}\"]\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
        origin.address()
    )
}

fn tcp(origin: &Origin, listener: &str) -> Product {
    Product::start(&tcp_text(origin, listener))
}

fn datagrams_from(from: Ipv4Addr, product: &Product) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).expect("our address");
    socket.connect(product.address("dns")).expect("an address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    socket
}

fn ask(socket: &UdpSocket, text: &str) -> String {
    socket.send(text.as_bytes()).expect("it is taken");
    let mut room = [0; 100];
    let count = socket.recv(&mut room).expect("an answer was due");
    String::from_utf8_lossy(&room[..count]).into_owned()
}

#[test]
fn connections_from_outside_are_reset_by_the_most_specific_network_and_reach_nobody() {
    let origin = Origin::echo();
    let product = tcp(&origin, "address_list: { deny: [127.0.0.3], allow: [127.0.0.0/29] }");
    let line = product.address("line");
    assert!(is_let_in(FRIEND, line) && is_let_in(HERE, line));
    assert!(!is_let_in(STRANGER, line));
    assert!(!is_let_in(Ipv4Addr::new(127, 0, 0, 9), line), "in no list, while others are allowed");
    assert_eq!(origin.connections(), 2);
    product.expect_metric(FAULTS, KEPT_OUT, 2.0);
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"line\""], 2.0);
    let record = product.record("who stayed out", |record| record["client_ip"] == "127.0.0.3");
    for (key, value) in [("kind", "stream"), ("flag", "PK"), ("fault", "kept_out")] {
        assert_eq!(record[key], value, "{record}");
    }
}

#[test]
fn who_stays_out_takes_no_place() {
    let origin = Origin::echo();
    let product = tcp(&origin, "connections_max: 1\n    address_list: { deny: [127.0.0.3] }");
    let line = product.address("line");
    let mut held = Peer::sending(line, "x");
    assert_eq!(held.take(1), b"x");
    for _ in 0..20 {
        assert!(!is_let_in(STRANGER, line));
    }
    held.send("y");
    assert_eq!(held.take(1), b"y");
    drop(held);
    eventually("the place is free again", || is_let_in_or_full(FRIEND, line));
    product.expect_metric(FAULTS, KEPT_OUT, 20.0);
}

/// The same as [`is_let_in`] where a full listener may close in good order.
fn is_let_in_or_full(from: Ipv4Addr, to: SocketAddr) -> bool {
    let mut peer = Peer::connect_from(from.into(), to);
    peer.try_send("x").is_ok() && peer.fill().is_ok_and(|count| count == 1)
}

#[test]
fn the_client_that_a_trusted_proxy_tells_of_is_the_one_that_counts() {
    let origin = Origin::echo();
    let listener = "proxy_protocol: { from: [127.0.0.1] }\n    address_list: { allow: [192.0.2.0/24, 127.0.0.2] }";
    let product = tcp(&origin, listener);
    let line = product.address("line");
    let told = |client: &str| format!("PROXY TCP4 {client} 198.51.100.1 40000 8443\r\nhello");
    let mut friend = Peer::sending(line, told("192.0.2.7"));
    assert_eq!(friend.take(5), b"hello");
    Peer::sending(line, told("203.0.113.9")).assert_closed();
    let record = product.record("who stayed out", |record| record["client_ip"] == "203.0.113.9");
    assert_eq!((record["flag"].as_str(), record["sender_ip"].as_str()), (Some("PK"), Some("127.0.0.1")));
    // A proxy that speaks for itself counts by its own address, which nobody has allowed.
    Peer::sending(line, "PROXY UNKNOWN\r\nhello").assert_closed();
    // Whose word is not believed counts by the address of the connection, whatever they say.
    assert!(!is_let_in(STRANGER, line));
    let mut believed = Peer::connect_from(FRIEND.into(), line);
    believed.send(told("203.0.113.9"));
    assert_eq!(believed.take(6), b"PROXY ", "its bytes are those of a stream");
    product.expect_metric(FAULTS, KEPT_OUT, 3.0);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn clients_of_http_are_reset_before_they_have_said_anything() {
    let origin = Origin::saying("in");
    let setup = Setup::to(&origin).listener("address_list: { deny: [127.0.0.2/31] }");
    let product = setup.start();
    assert!(!is_let_in(STRANGER, product.web()));
    assert_eq!(product.get("/").text(), "in");
    // What fields of a request say of the client comes too late, whoever is trusted.
    let trusting = setup.listener("forwarding: { trusted: [127.0.0.0/8] }").start();
    let request = "GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 127.0.0.3\r\n\r\n";
    assert_eq!(trusting.connect().ask(request).status(), 200);
    assert_eq!(origin.requests().len(), 2);
    product.expect_metric(FAULTS, KEPT_OUT, 1.0);
}

#[test]
fn nobody_from_outside_has_a_handshake_by_tls_or_quic() {
    let origin = Origin::saying("in");
    let site = site(Setup::to(&origin).listener("address_list: { allow: [127.0.0.2] }"), 2);
    let product = &site.product;
    assert!(Client::try_connect(product.web(), "shop.example", &site.tls()).is_err());
    product.expect_metric_at_least(FAULTS, KEPT_OUT, 1.0);
    assert_eq!(product.flagged("PK")["client_ip"], "127.0.0.1");
    assert!(!is_let_in(HERE, product.web()));
    product.expect_metric_at_least(FAULTS, KEPT_OUT, 2.0);
    assert_eq!(product.metric("equipoise_tls_handshakes_total", &["listener=\"web\""]), 0.0);
    assert_eq!(product.metric("equipoise_connections_opened_total", &["listener=\"web\""]), 0.0);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn datagrams_from_outside_are_dropped_and_a_flood_of_them_fills_no_log() {
    let echo = Echo::start("a");
    let product = udp::start("address_list: { deny: [127.0.0.3] }", &[&echo], "");
    let (friend, stranger) = (datagrams_from(FRIEND, &product), datagrams_from(STRANGER, &product));
    stranger.send(b"x").expect("it is sent");
    product.expect_metric("equipoise_datagrams_dropped_total", &["listener=\"dns\""], 1.0);
    product.expect_metric(FAULTS, KEPT_OUT, 1.0);
    let record = product.flagged("PK");
    assert_eq!((record["kind"].as_str(), record["client_ip"].as_str()), (Some("flow"), Some("127.0.0.3")));
    for _ in 0..200 {
        stranger.send(b"x").expect("it is sent");
    }
    assert_eq!(ask(&friend, "1"), "a1");
    product.expect_metric_at_least("equipoise_datagrams_dropped_total", &["listener=\"dns\""], 100.0);
    let told = product.records().into_iter().filter(|record| record["flag"] == "PK").count();
    assert!(told < 60, "{told} records of one who floods");
    assert_eq!(echo.sources().len(), 1);
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"dns\""], 1.0);
}

#[test]
fn a_change_counts_for_new_connections_and_flows_and_leaves_the_others() {
    let origin = Origin::echo();
    let echo = Echo::start("a");
    let more = format!(
        "  dns: {{ bind: \"127.0.0.1:0\", protocol: udp, cluster: names, LIST }}\n\
         clusters:\n  names: {{ endpoints: [\"{}\"] }}\n",
        echo.address()
    );
    let text = |list: &str| {
        let text = tcp_text(&origin, list).replace("clusters:\n", &more);
        text.replace("LIST", if list.is_empty() { "responses_max: 1000" } else { list })
    };
    let product = Product::start(&text(""));
    let line = product.address("line");
    let mut stream = Peer::sending(line, "x");
    assert_eq!(stream.take(1), b"x");
    let flow = datagrams_from(HERE, &product);
    assert_eq!(ask(&flow, "1"), "a1");
    product.reload(&text("address_list: { allow: [127.0.0.2] }"));
    assert!(!is_let_in(HERE, line) && is_let_in(FRIEND, line));
    let late = datagrams_from(HERE, &product);
    late.send(b"x").expect("it is sent");
    product.expect_metric("equipoise_datagrams_dropped_total", &["listener=\"dns\""], 1.0);
    assert_eq!(ask(&datagrams_from(FRIEND, &product), "2"), "a2");
    stream.send("y");
    assert_eq!(stream.take(1), b"y", "what was let in before goes on");
    assert_eq!(ask(&flow, "3"), "a3");
    product.reload(&text(""));
    assert!(is_let_in(HERE, line));
    assert_eq!(ask(&late, "4"), "a4");
}

#[test]
fn files_of_a_listener_are_read_again_when_they_change_and_a_bad_one_changes_nothing() {
    let origin = Origin::echo();
    let folder = product::folder();
    let list = folder.path().join("blocked.txt");
    std::fs::write(&list, "# who misbehaves\n127.0.0.3 ; since May\n").expect("our folder");
    let text = tcp_text(&origin, "address_list: { deny_files: [blocked.txt] }");
    let product = Product::start_in(folder, &text, 2);
    let line = product.address("line");
    let mut kept = Peer::connect_from(FRIEND.into(), line);
    kept.send("x");
    assert_eq!(kept.take(1), b"x");
    assert!(!is_let_in(STRANGER, line));
    let swap = |text: &str| {
        std::fs::write(list.with_extension("next"), text).expect("our folder");
        std::fs::rename(list.with_extension("next"), &list).expect("our folder");
    };
    swap("127.0.0.2\n");
    eventually("the new list holds", || !is_let_in(FRIEND, line));
    assert!(is_let_in(STRANGER, line));
    kept.send("y");
    assert_eq!(kept.take(1), b"y");
    swap("127.0.0.3\nnobody\n");
    product.expect_said(&["`blocked.txt`, line 2 is not an address or a network such as 10.0.0.0/8"]);
    assert!(!is_let_in(FRIEND, line) && is_let_in(STRANGER, line));
    swap("127.0.0.3\n");
    eventually("a good one is taken again", || is_let_in(FRIEND, line));
}
