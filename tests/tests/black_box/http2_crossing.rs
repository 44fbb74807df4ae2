//! What is no HTTP/2 message never reaches an endpoint, and no message becomes two on its way to HTTP/1.1.

use super::harness::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, begin, block, frame, get, read, reset,
};
use super::harness::http2::{Client, request, with_fields};
use super::harness::{Origin, Product, Setup};

const PROTOCOL_ERROR: u32 = 1;
const COMPRESSION_ERROR: u32 = 9;

/// What comes of a request whose head is this block.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// An answer.
    Answered,
    /// The stream, or the connection, is ended with this code.
    Ended(u32),
}

fn outcome(product: &Product, block: &[u8]) -> Outcome {
    let mut peer = product.connect();
    begin(&mut peer);
    peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block));
    let code = |payload: &[u8]| u32::from_be_bytes(payload.try_into().expect("four bytes"));
    loop {
        let frame = read(&mut peer).expect("it is told why");
        match frame.kind {
            RST_STREAM => return Outcome::Ended(code(&frame.payload[..4])),
            GOAWAY => return Outcome::Ended(code(&frame.payload[4..8])),
            HEADERS => return Outcome::Answered,
            _ => {}
        }
    }
}

#[test]
fn malformed_requests_are_refused_and_reach_no_endpoint() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).workers(1).start();
    let of = |method: &'static [u8], authority: &'static [u8], path: &'static [u8]| {
        block(&[(b":method", method), (b":scheme", b"http"), (b":authority", authority), (b":path", path)])
    };
    let blocks: Vec<Vec<u8>> = vec![
        get(&[(b"a", b"x\r\nX-Evil: 1")]),
        get(&[(b"a", b"x\ny")]),
        get(&[(b"a", b"x\0y")]),
        get(&[(b"a\r\nX-Evil", b"1")]),
        get(&[(b"a b", b"1")]),
        get(&[(b"a:", b"1")]),
        get(&[(b"X-Upper", b"1")]),
        get(&[(b"transfer-encoding", b"chunked")]),
        get(&[(b"connection", b"close")]),
        get(&[(b"keep-alive", b"5")]),
        get(&[(b"proxy-connection", b"x")]),
        get(&[(b"upgrade", b"websocket")]),
        get(&[(b"te", b"gzip")]),
        get(&[(b":path", b"/other")]),
        get(&[(b":status", b"200")]),
        get(&[(b":unknown", b"x")]),
        get(&[(b"content-length", b"5")]),
        get(&[(b"content-length", b"+0")]),
        get(&[(b"content-length", b"0"), (b"content-length", b"1")]),
        of(b"GET", b"test", b"/a b"),
        of(b"GET", b"test", b"/a\r\nX-Evil: 1"),
        of(b"GET", b"test", b"/ HTTP/1.1\r\nHost: evil\r\n\r\nGET /"),
        of(b"GET / HTTP/1.1\r\nA: b", b"test", b"/"),
        of(b"GET", b"test\r\nX-Evil: 1", b"/"),
        of(b"GET", b"test", b""),
        block(&[(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"test")]),
        block(&[(b":method", b"GET"), (b":path", b"/"), (b":authority", b"test")]),
        block(&[(b":scheme", b"http"), (b":path", b"/"), (b":authority", b"test")]),
        block(&[(b"a", b"1"), (b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]),
    ];
    for block in &blocks {
        let told = outcome(&product, block);
        let is_refused = matches!(told, Outcome::Ended(PROTOCOL_ERROR | COMPRESSION_ERROR));
        assert!(is_refused, "{told:?}: {}", String::from_utf8_lossy(block));
    }
    // Nobody else could tell.
    product.expect_metric("equipoise_faults_total", &["fault=\"http2_error\""], blocks.len() as f64);
    product.flagged("CX");
    // These are refused with an answer.
    let answered: Vec<Vec<u8>> = vec![
        get(&[(b"host", b"other")]),
        get(&[(b"host", b"test"), (b"host", b"test")]),
        get(&[(b"a", b" padded")]),
        get(&[(b"a", b"padded\t")]),
        get(&[(b"content-length", b"0"), (b"content-length", b"0")]),
        of(b"GET", b"user@test", b"/"),
        of(b"GET", b"test", b"*"),
        of(b"GET", b"test", b"a"),
        of(b"GET", b"test", b"http://other/"),
        block(&[(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]),
        block(&[(b":method", b"CONNECT"), (b":authority", b"test:443")]),
    ];
    for block in &answered {
        let told = outcome(&product, block);
        let is_refused = matches!(told, Outcome::Answered | Outcome::Ended(PROTOCOL_ERROR));
        assert!(is_refused, "{told:?}: {}", String::from_utf8_lossy(block));
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
    assert_eq!(outcome(&product, &get(&[(b"a", b"fine")])), Outcome::Answered);
    assert_eq!(origin.requests().len(), 1);
    product.flagged("CB");
}

#[test]
fn a_body_that_is_not_as_long_as_it_says_never_counts_as_whole() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    for (bytes, ends) in [(&b"four"[..], true), (b"more than five", true), (b"more than five", false)] {
        let mut peer = product.connect();
        begin(&mut peer);
        let head = block(&[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"test"),
            (b":path", b"/"),
            (b"content-length", b"5"),
        ]);
        peer.send(frame(HEADERS, END_HEADERS, 1, &head));
        peer.send(frame(DATA, if ends { END_STREAM } else { 0 }, 1, bytes));
        assert_eq!(reset(&mut peer, 1), PROTOCOL_ERROR, "{bytes:?}");
    }
    product.record("no answer", |record| record["method"] == "POST" && record["status"].is_null());
    assert!(origin.requests().is_empty(), "no endpoint has seen a whole request: {:?}", origin.requests());
}

#[test]
fn crumbs_of_a_cookie_and_names_reach_the_endpoint_as_http1_has_them() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    let fields = [("cookie", "a=1"), ("x-y", "1"), ("cookie", "b=2"), ("te", "trailers"), ("host", "TEST")];
    assert_eq!(client.ask(with_fields(request("GET", "/"), &fields), b"").status, 200);
    let received = origin.only_request();
    assert_eq!(received.field("cookie"), Some("a=1; b=2"));
    assert_eq!(received.all("host"), ["test"]);
    assert_eq!(received.field("te"), Some("trailers"));
    assert_eq!(received.field("x-forwarded-proto"), Some("http"));
}

#[test]
fn too_many_fields_and_too_long_heads_are_answered_with_431() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).listener("fields_max: 20").listener("head_bytes_max: 4KiB").start();
    let mut client = Client::connect(product.web());
    let many = with_fields(request("GET", "/"), &[("a", "1"); 40]);
    assert_eq!(client.ask(many, b"").status, 431);
    let long = "x".repeat(6000);
    assert_eq!(client.ask(with_fields(request("GET", "/"), &[("a", long.as_str())]), b"").status, 431);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn fields_of_an_origin_that_speak_of_its_connection_stay_there() {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 200 OK\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: y\r\nProxy-Connection: z\r\n\
          X-Name: Value\r\nContent-Length: 4\r\n\r\nfine"
            .to_vec()
    });
    let product = Setup::to(&origin).start();
    let answer = Client::connect(product.web()).get("/");
    let mut names: Vec<_> = answer.fields.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "date", "x-name"]);
}
