//! The filter `body_limit`: how long a request body may be.

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::{Origin, Product, Setup, http3};
use super::http3::site;

const LIMIT: &str = "filters: [{ body_limit: { max: 10 } }]";

/// An origin that says how much came, and a product before it that carries ten bytes.
fn start() -> (Origin, Product) {
    let origin = Origin::answering(|request| ok(&format!("{} bytes", request.body.len())));
    let product = Setup::to(&origin).route(LIMIT).start();
    (origin, product)
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_anything_is_sent_on() {
    let (origin, product) = start();
    let mut kept = product.connect();
    let fits = kept.ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n0123456789");
    assert_eq!(fits.text(), "10 bytes");
    assert_eq!(kept.get("/").text(), "0 bytes");
    let answer = kept.ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 11\r\n\r\n0123456789a");
    assert_eq!((answer.status(), answer.field("connection")), (413, Some("close")));
    kept.assert_closed();
    assert_eq!(origin.requests().len(), 2);
    let record = product.flagged("CO");
    assert_eq!((record["fault"].as_str(), record["status"].as_u64()), (Some("body_too_large"), Some(413)));
    product.expect_metric("equipoise_faults_total", &["fault=\"body_too_large\""], 1.0);
}

#[test]
fn a_client_that_asks_first_sends_nothing_of_a_body_that_is_too_long() {
    let (origin, product) = start();
    let asks = |length: u64| {
        let head = format!("POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n");
        let mut client = product.connect();
        client.send(head);
        client.head().status()
    };
    assert_eq!(asks(u64::MAX / 2), 413);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn chunks_are_counted_while_they_pass_and_one_byte_too_many_ends_it() {
    let (origin, product) = start();
    let mut kept = product.connect();
    let post = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let fits = kept.ask(format!("{post}5\r\n01234\r\n5\r\n56789\r\n0\r\nX-Trailer: not counted\r\n\r\n"));
    assert_eq!(fits.text(), "10 bytes");
    let answer = kept.ask(format!("{post}5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n"));
    assert_eq!(answer.status(), 413);
    kept.assert_closed();
    // In pieces, of which the first is sent on before the last comes.
    let mut slow = product.connect();
    slow.send(format!("{post}8\r\n01234567\r\n"));
    slow.send("3\r\n89a\r\n0\r\n\r\n");
    assert_eq!(slow.response().status(), 413);
    slow.assert_closed();
    assert_eq!(origin.requests().len(), 1, "what is cut short never looks whole");
    product.expect_metric("equipoise_faults_total", &["fault=\"body_too_large\""], 2.0);
}

#[test]
fn an_answer_that_is_on_its_way_is_cut_when_the_body_turns_out_too_long() {
    let origin = Origin::start(|mut visit| {
        drop(visit.peer.head());
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun");
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).route(LIMIT).start();
    let mut client = product.connect();
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n");
    assert_eq!(client.head().status(), 200);
    client.send("8\r\n01234567\r\n0\r\n\r\n");
    client.wait_closed();
    assert_eq!(product.flagged("CO")["status"], 200);
}

#[test]
fn streams_of_http2_are_bound_by_their_length_and_without_one() {
    let (origin, product) = start();
    let mut client = Client::connect(product.web());
    let with_length = |length: &str| with_fields(request("POST", "/"), &[("content-length", length)]);
    assert_eq!(client.ask(with_length("10"), b"0123456789").text(), "10 bytes");
    assert_eq!(client.ask(with_length("11"), b"0123456789a").status, 413);
    assert_eq!(client.ask(request("POST", "/"), b"0123456789").text(), "10 bytes");
    assert_eq!(client.ask(request("POST", "/"), b"0123456789a").status, 413);
    let mut pieces = client.open(request("POST", "/"), false);
    client.send(&mut pieces, b"01234567", false);
    client.send(&mut pieces, b"89a", true);
    assert_eq!(client.answer(pieces).status, 413);
    assert_eq!(client.get("/").text(), "0 bytes", "the connection lives on");
    assert_eq!(origin.requests().len(), 3);
    let call = with_fields(request("POST", "/"), &[("content-type", "application/grpc"), ("content-length", "11")]);
    let refused = client.ask(call, b"0123456789a");
    assert_eq!((refused.status, refused.field("grpc-status")), (200, Some("8")));
}

#[test]
fn streams_of_http3_are_bound_without_a_length_too() {
    let origin = Origin::answering(|request| ok(&format!("{} bytes", request.body.len())));
    let site = site(Setup::to(&origin).route(LIMIT), 2);
    let mut client = site.connect();
    assert_eq!(client.ask(http3::request("POST", "/"), b"0123456789").text(), "10 bytes");
    assert_eq!(client.ask(http3::request("POST", "/"), b"0123456789a").status, 413);
    assert_eq!(client.get("/").text(), "0 bytes", "the connection lives on");
}

#[test]
fn a_wish_for_another_protocol_is_no_way_around() {
    let (origin, product) = start();
    let mut client = product.connect();
    client.send("POST / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n");
    client.send("Transfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n");
    assert_eq!(client.response().status(), 413);
    assert!(origin.requests().is_empty());
}
