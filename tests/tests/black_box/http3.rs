//! HTTP/3 towards clients, before origins that speak HTTP/1.1.

use http::HeaderMap;

use super::harness::http3::{Client, request, trusting};
use super::harness::origin::ok_for;
use super::harness::tls::Authority;
use super::harness::{Origin, Product, Setup, product};

/// A product whose listener `web` speaks all versions.
pub(super) struct Site {
    pub(super) authority: Authority,
    pub(super) product: Product,
}

/// Runs it before this origin; `more` goes into the setup.
pub(super) fn site(setup: Setup, workers: usize) -> Site {
    speaking("[h1, h2, h3]", setup, workers)
}

/// The same with other versions.
pub(super) fn speaking(versions: &str, setup: Setup, workers: usize) -> Site {
    Site::of(Authority::new("the tests' own"), versions, "", setup, workers)
}

impl Site {
    /// With certificates of this authority; `more` goes into `tls`.
    pub(super) fn of(authority: Authority, versions: &str, more: &str, setup: Setup, workers: usize) -> Self {
        let folder = product::folder();
        authority.issue(&["shop.example"]).write(folder.path(), "site");
        authority.write(folder.path(), "authority.pem");
        let text = setup
            .listener(format!("http_versions: {versions}"))
            .listener(format!("tls: {{ certificates: [{{ chain: site.pem, key: site.key }}], {more} }}"))
            .text();
        Self { authority, product: Product::start_in(folder, &text, workers) }
    }

    /// How clients speak TLS here.
    pub(super) fn tls(&self) -> std::sync::Arc<rustls::ClientConfig> {
        trusting(&self.authority, None)
    }

    pub(super) fn connect(&self) -> Client {
        Client::connect(self.product.web(), "shop.example", &self.tls())
    }
}

/// Bytes of which no piece is like another.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_request_over_http3_goes_the_way_of_every_other() {
    let origin = Origin::answering(|request| ok_for(request, "fine"));
    let site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    let answer = client.get("/a?b=c");
    assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
    assert_eq!(answer.field("content-length"), Some("4"));
    assert!(answer.field("connection").is_none());
    let received = origin.only_request();
    assert_eq!(received.line, "GET /a?b=c HTTP/1.1");
    assert_eq!(received.fields[0], ("Host".to_owned(), "shop.example".to_owned()), "Host comes first");
    let record = site.product.record("the request", |record| record["path"] == "/a");
    assert_eq!((&record["version"], &record["status"]), (&"HTTP/3".into(), &200.into()));
    let cipher = record["tls_cipher"].as_str().expect("a cipher suite");
    assert!(cipher.starts_with("TLS13_"), "{cipher}");
    // The same connection goes on.
    assert_eq!(client.get("/again").status, 200);
    site.product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 1.0);
    drop(client);
    site.product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
}

#[test]
fn bodies_of_any_size_pass_both_ways() {
    let origin = Origin::answering(|request| {
        let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()).into_bytes();
        bytes.extend_from_slice(&request.body);
        bytes
    });
    let site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    for length in [1, 100, 16_384, 300_000, 3_000_000] {
        let body = pattern(length);
        let answer = client.ask(request("POST", "/echo"), &body);
        assert_eq!(answer.status, 200);
        assert!(answer.body == body, "{length} bytes come back as they were");
    }
}

#[test]
fn trailers_pass_both_ways() {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nx-sum: 7\r\n\r\n".to_vec()
    });
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    let mut stream = client.open(request("POST", "/"));
    client.send(&mut stream, b"request");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-own", "1".parse().unwrap());
    client.end(&mut stream, trailers);
    let answer = client.answer(stream);
    assert_eq!(answer.text(), "body");
    assert_eq!(answer.trailers["x-sum"], "7");
    let received = origin.only_request();
    assert_eq!(received.body, b"request");
}

#[test]
fn sessions_that_are_resumed_are_counted_as_such() {
    let origin = Origin::answering(|request| ok_for(request, "fine"));
    let site = site(Setup::to(&origin), 1);
    let tls = site.tls();
    for _ in 0..3 {
        let mut client = Client::connect(site.product.web(), "shop.example", &tls);
        assert_eq!(client.get("/").status, 200);
    }
    let handshakes = "equipoise_tls_handshakes_total";
    site.product.expect_metric(handshakes, &["result=\"full\""], 1.0);
    site.product.expect_metric(handshakes, &["result=\"resumed\""], 2.0);
}
