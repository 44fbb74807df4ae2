//! TLS towards endpoints: whom we trust, what we ask for, what we show.

use super::harness::origin::ok;
use super::harness::product::folder;
use super::harness::tls::{self, Authority};
use super::harness::{Origin, Product, Setup};

/// An endpoint with a certificate for these names, told apart by `clients`, whom it asks for certificates.
fn endpoint(authority: &Authority, names: &[&str], clients: Option<&Authority>) -> Origin {
    let config = tls::origin(&authority.issue(names), clients);
    Origin::start_tls(config, |mut visit| visit.answer_all(|_| Some(ok("sealed"))))
}

fn start(origin: &Origin, authority: &Authority, settings: &str) -> Product {
    let folder = folder();
    authority.write(folder.path(), "authority.pem");
    authority.issue_client("proxy").write(folder.path(), "client");
    let setup = Setup::to(origin).cluster(format!("tls: {settings}"));
    Product::start_in(folder, &setup.text(), 2)
}

#[test]
fn an_endpoint_with_a_good_certificate_is_spoken_to() {
    let authority = Authority::new("inside");
    let origin = endpoint(&authority, &["127.0.0.1"], None);
    let product = start(&origin, &authority, "{ authorities: authority.pem }");
    for _ in 0..3 {
        assert_eq!(product.get("/").text(), "sealed");
    }
    assert!(origin.connections() <= 2, "connections with TLS are kept too");
}

#[test]
fn an_endpoint_whose_certificate_is_not_to_be_trusted_gets_nothing() {
    let authority = Authority::new("inside");
    for (origin, settings) in [
        (endpoint(&Authority::new("another"), &["127.0.0.1"], None), "{ authorities: authority.pem }"),
        (endpoint(&authority, &["other.example"], None), "{ authorities: authority.pem }"),
        (endpoint(&authority, &["127.0.0.1"], None), "true"),
        (endpoint(&authority, &["127.0.0.1"], None), "{ authorities: authority.pem, server_name: shop.example }"),
    ] {
        let product = start(&origin, &authority, settings);
        assert_eq!(product.get("/").status(), 502, "{settings}");
        assert_eq!(product.flagged("UH")["fault"], "upstream_handshake_failed");
        assert!(origin.requests().is_empty());
    }
}

#[test]
fn verification_can_be_off_for_tests() {
    let authority = Authority::new("inside");
    let origin = endpoint(&Authority::new("another"), &["other.example"], None);
    let product = start(&origin, &authority, "{ verify: false }");
    assert_eq!(product.get("/").text(), "sealed");
}

#[test]
fn the_name_that_is_configured_is_asked_for_and_verified() {
    let authority = Authority::new("inside");
    let origin = endpoint(&authority, &["shop.internal"], None);
    let product = start(&origin, &authority, "{ authorities: authority.pem, server_name: shop.internal }");
    assert_eq!(product.get("/").text(), "sealed");
}

#[test]
fn a_certificate_is_shown_to_an_endpoint_that_asks_for_one() {
    let authority = Authority::new("inside");
    let with = "{ authorities: authority.pem, certificate: { chain: client.pem, key: client.key } }";
    let origin = endpoint(&authority, &["127.0.0.1"], Some(&authority));
    assert_eq!(start(&origin, &authority, with).get("/").text(), "sealed");
    let strict = endpoint(&authority, &["127.0.0.1"], Some(&authority));
    let product = start(&strict, &authority, "{ authorities: authority.pem }");
    assert_eq!(product.get("/").status(), 502);
    assert!(strict.requests().is_empty());
}

#[test]
fn an_endpoint_that_speaks_no_tls_is_answered_502() {
    let origin = Origin::start(|mut visit| {
        let _ = visit.peer.fill();
        visit.peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let product = start(&origin, &Authority::new("inside"), "{ authorities: authority.pem }");
    assert_eq!(product.get("/").status(), 502);
    product.flagged("UH");
    assert!(origin.requests().is_empty());
}

#[test]
fn a_response_cut_off_without_a_goodbye_is_not_whole() {
    let authority = Authority::new("inside");
    let config = tls::origin(&authority.issue(&["127.0.0.1"]), None);
    let origin = Origin::start_tls(config, |mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nlooks whole");
        // No close_notify: whoever cuts the connection could make a part look like the whole (RFC 8446 section 6.1).
        let _ = visit.peer.tcp().shutdown(std::net::Shutdown::Both);
    });
    let product = start(&origin, &authority, "{ authorities: authority.pem }");
    let mut peer = super::harness::Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut answer = peer.head();
    assert_eq!(answer.status(), 200);
    assert!(peer.try_body(&mut answer, true).is_err(), "{answer:?}");
    product.flagged("UD");
}
