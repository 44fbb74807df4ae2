//! What is not a request never reaches an endpoint (RFC 9112, and what request smuggling lives on).

use super::harness::{Origin, Peer, Product, Setup};

/// Sends `bytes` and asserts that they are answered with `status`, that the connection is then closed, and that no
/// endpoint heard of it.
fn refused(product: &Product, origin: &Origin, bytes: &[u8], status: u16) {
    let before = origin.connections();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    let mut peer = Peer::sending(product.web(), bytes);
    let response = peer.try_head().unwrap_or_else(|error| panic!("no answer to {shown:?}: {error}"));
    let mut response = response.unwrap_or_else(|| panic!("no answer to {shown:?}"));
    assert_eq!(response.status(), status, "{shown:?}");
    assert_eq!(response.field("connection"), Some("close"), "{shown:?}");
    peer.try_body(&mut response, true).expect("a whole answer");
    peer.assert_closed();
    assert_eq!(origin.connections(), before, "an endpoint heard of {shown:?}");
}

/// Every one of `cases` is refused with `status`.
fn all_refused(status: u16, cases: &[&str]) {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).start();
    for case in cases {
        refused(&product, &origin, case.as_bytes(), status);
    }
    assert_eq!(product.get("/").text(), "never", "a good request is still answered");
}

#[test]
fn a_request_with_both_content_length_and_transfer_encoding_is_refused() {
    all_refused(
        400,
        &[
            "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: test\r\ntransfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn a_transfer_encoding_that_does_not_end_in_one_chunked_is_refused() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).start();
    let request = |field: &str| format!("POST / HTTP/1.1\r\nHost: test\r\n{field}\r\n\r\n0\r\n\r\n");
    for field in [
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunkedx",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;a=b",
        "Transfer-Encoding: chunked\x0b",
        "Transfer-Encoding: ",
        "Transfer-Encoding: ,",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
    ] {
        let mut peer = Peer::sending(product.web(), request(field));
        let answer = peer.response();
        assert!(matches!(answer.status(), 400 | 501), "{field:?}: {answer:?}");
        peer.assert_closed();
        assert_eq!(origin.connections(), 0, "an endpoint heard of {field:?}");
    }
}

#[test]
fn a_transfer_encoding_in_an_http_1_0_request_is_refused() {
    all_refused(
        400,
        &[
            "POST / HTTP/1.0\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn a_chunked_coding_is_recognised_in_any_case() {
    let origin = Origin::saying("taken");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    let answer = peer.ask("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(answer.text(), "taken");
    assert_eq!(origin.only_request().text(), "abc");
}

#[test]
fn a_content_length_that_is_no_single_number_is_refused() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).start();
    for lines in [
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 3, 4",
        "Content-Length: +3",
        "Content-Length: -3",
        "Content-Length: 0x3",
        "Content-Length: 3.0",
        "Content-Length: 3 3",
        "Content-Length: ",
        "Content-Length: ,",
        "Content-Length: 3,",
        "Content-Length: \u{0663}",
        "Content-Length: 99999999999999999999999",
        "Content-Length: 18446744073709551616",
        "Content-Length: 1e1",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: test\r\n{lines}\r\n\r\nabc");
        refused(&product, &origin, request.as_bytes(), 400);
    }
}

#[test]
fn a_content_length_that_is_repeated_never_reaches_the_endpoint_twice() {
    let origin = Origin::saying("once");
    let product = Setup::to(&origin).start();
    for lines in ["Content-Length: 3\r\nContent-Length: 3", "Content-Length: 3, 3"] {
        let mut peer = Peer::sending(product.web(), format!("POST / HTTP/1.1\r\nHost: t\r\n{lines}\r\n\r\nabc"));
        // RFC 9110 section 8.6: refuse it, or pass on one.
        if peer.response().status() != 400 {
            let request = origin.requests().pop().expect("it was passed on");
            assert_eq!(request.all("content-length"), ["3"]);
        }
    }
}

#[test]
fn a_field_line_that_breaks_the_grammar_is_refused() {
    all_refused(
        400,
        &[
            // Whitespace before the colon (RFC 9112 section 5.1).
            "GET / HTTP/1.1\r\nHost : test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nX-A\t: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: test\r\nContent-Length : 3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            // Line folding (section 5.2).
            "GET / HTTP/1.1\r\nHost: test\r\nX-A: 1\r\n 2\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nX-A: 1\r\n\t2\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
            // Whitespace before the first field line (section 2.2).
            "GET / HTTP/1.1\r\n Host: test\r\n\r\n",
            "GET / HTTP/1.1\r\n X-A: 1\r\nHost: test\r\n\r\n",
            // No colon, no name, or a name that is no token.
            "GET / HTTP/1.1\r\nHost: test\r\nX-A\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\n: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nX A: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nX(A): 1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nX\u{e9}: 1\r\n\r\n",
            // Controls in a value (RFC 9110 section 5.5).
            "GET / HTTP/1.1\r\nHost: test\r\nX-A: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nX-A: a\x01b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nX-A: a\x7fb\r\n\r\n",
            // A bare CR (RFC 9112 section 2.2).
            "GET / HTTP/1.1\r\nHost: test\r\nX-A: a\rX-B: b\r\n\r\n",
            "GET / HTTP/1.1\rHost: test\r\n\r\n",
        ],
    );
}

#[test]
fn a_line_that_ends_in_a_bare_line_feed_is_refused() {
    all_refused(
        400,
        &[
            "GET / HTTP/1.1\nHost: test\n\n",
            "GET / HTTP/1.1\r\nHost: test\nX-A: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nX-A: 1\n\r\n",
            "POST / HTTP/1.1\r\nHost: test\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn a_request_line_that_breaks_the_grammar_is_refused() {
    all_refused(
        400,
        &[
            "GET  / HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET /  HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET / HTTP/1.1 \r\nHost: test\r\n\r\n",
            "GET\t/\tHTTP/1.1\r\nHost: test\r\n\r\n",
            " GET / HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET /a\0b HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET /a\x7fb HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET nothing HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET ../x HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET /#fragment HTTP/1.1\r\nHost: test\r\n\r\n",
            "G@T / HTTP/1.1\r\nHost: test\r\n\r\n",
            "G(T / HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET /\r\nHost: test\r\n\r\n",
            "GET\r\nHost: test\r\n\r\n",
            "/ HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET / http/1.1\r\nHost: test\r\n\r\n",
            "GET / HTTP/1.1x\r\nHost: test\r\n\r\n",
            "GET / HTTP/11\r\nHost: test\r\n\r\n",
            "GET / HTPP/1.1\r\nHost: test\r\n\r\n",
            "\0\0\0\0\r\n\r\n",
            "\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03\r\n\r\n",
        ],
    );
}

#[test]
fn a_version_that_is_not_spoken_is_answered_505() {
    all_refused(
        505,
        &[
            "GET / HTTP/2.0\r\nHost: test\r\n\r\n",
            "GET / HTTP/3.0\r\nHost: test\r\n\r\n",
            "GET / HTTP/0.9\r\nHost: test\r\n\r\n",
            "GET / HTTP/9.9\r\nHost: test\r\n\r\n",
        ],
    );
}

#[test]
fn a_host_field_that_is_missing_doubled_or_malformed_is_refused() {
    all_refused(
        400,
        &[
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nX-A: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a:port\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a?b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a#b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\\b\r\n\r\n",
            // `http` and `https` have no empty authority (RFC 9110 section 4.2.1).
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: \t \r\n\r\n",
            "GET / HTTP/1.0\r\nHost:\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n",
            "GET http://test/ HTTP/1.1\r\nHost:\r\n\r\n",
        ],
    );
}

#[test]
fn good_hosts_of_every_form_are_accepted() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    for host in ["a", "a.example.com:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "a_b.example", "xn--a"]
    {
        let answer = product.connect().ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answer.status(), 200, "{host}");
        assert_eq!(origin.requests().pop().expect("passed on").field("host"), Some(host));
    }
}

#[test]
fn a_target_in_absolute_form_is_routed_by_its_own_authority() {
    let (shop, other) = (Origin::saying("shop"), Origin::saying("other"));
    let product = Setup::to(&other)
        .route_before("{ match: { host: shop.example.com }, cluster: shop }")
        .cluster_more(format!("shop: {{ endpoints: [\"{}\"] }}", shop.address()))
        .start();
    // RFC 9112 section 3.2.2: the received Host is ignored, and replaced where the request is passed on.
    let request = "GET http://Shop.example.com:81/a?b=c HTTP/1.1\r\nHost: other.example.com\r\nX-A: 1\r\n\r\n";
    assert_eq!(product.connect().ask(request).text(), "shop");
    let received = shop.only_request();
    assert_eq!(received.target(), "/a?b=c");
    assert!(received.field("host").is_some_and(|host| host.eq_ignore_ascii_case("shop.example.com:81")));
    let bare = product.connect().ask("GET http://shop.example.com HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
    assert_eq!(bare.text(), "shop");
    assert_eq!(shop.requests()[1].target(), "/");
    let query = product.connect().ask("GET http://shop.example.com?x=1 HTTP/1.1\r\nHost: shop.example.com\r\n\r\n");
    assert_eq!(query.text(), "shop");
    assert_eq!(shop.requests()[2].target(), "/?x=1");
}

#[test]
fn the_authority_of_an_absolute_target_replaces_host_everywhere() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin)
        .listener("forwarding: { forwarded: true }")
        .route("filters: [{ set_request_header: { x-seen: \"{host} {uri} {path}\" } }]")
        .start();
    for (target, version, host, shown) in [
        ("http://evil.example/a?b=c", "1.1", "Host: test\r\n", "evil.example"),
        ("https://evil.example:81/a?b=c", "1.1", "Host: test\r\n", "evil.example:81"),
        ("http://evil.example/a?b=c", "1.0", "Host: test\r\n", "evil.example"),
        ("http://evil.example/a?b=c", "1.0", "", "evil.example"),
    ] {
        let request = format!("GET {target} HTTP/{version}\r\n{host}X-Forwarded-Host: test\r\n\r\n");
        assert_eq!(product.connect().ask(request).status(), 200, "{target} {version}");
        let received = origin.requests().pop().expect("it was passed on");
        assert_eq!(received.line, "GET /a?b=c HTTP/1.1");
        assert_eq!((received.all("host"), received.all("x-forwarded-host")), (vec![shown], vec![shown]), "{target}");
        assert_eq!(received.field("x-seen"), Some("evil.example /a?b=c /a"));
        assert!(received.field("forwarded").is_some_and(|told| told.contains(&format!("host=\"{shown}\""))));
        assert!(!received.head_text().contains("Host: test"), "{}", received.head_text());
    }
    product.record("the host", |record| record["host"] == "evil.example");
}

#[test]
fn a_host_that_is_not_the_authority_of_the_target_is_refused_where_a_listener_says_so() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).listener("host_mismatch: refuse").start();
    for (version, target) in
        [("1.1", "http://evil.example/"), ("1.0", "http://evil.example/"), ("1.1", "http://test:80/")]
    {
        let request = format!("GET {target} HTTP/{version}\r\nHost: test\r\n\r\n");
        refused(&product, &origin, request.as_bytes(), 400);
    }
    let record = product.flagged("CB");
    assert_eq!((&record["method"], &record["path"]), (&"GET".into(), &"/".into()));
    for request in [
        "GET http://test/ HTTP/1.1\r\nHost: test\r\n\r\n",
        "GET http://TEST/ HTTP/1.1\r\nHost: test\r\n\r\n",
        "GET http://test/ HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: test\r\n\r\n",
    ] {
        assert_eq!(product.connect().ask(request).text(), "fine", "{request:?}");
    }
}

#[test]
fn a_bad_target_in_absolute_form_is_refused() {
    all_refused(
        400,
        &[
            "GET http:///a HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET http:// HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET http://user:secret@test/ HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET http://a b/ HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET http://test/ HTTP/1.1\r\n\r\n",
            "GET http://[::1/ HTTP/1.1\r\nHost: test\r\n\r\n",
        ],
    );
}

#[test]
fn options_may_ask_about_the_whole_program() {
    let origin = Origin::saying("all");
    let product = Setup::to(&origin).start();
    let answer = product.connect().ask("OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(answer.text(), "all");
    assert_eq!(origin.only_request().line, "OPTIONS * HTTP/1.1");
}

#[test]
fn connect_is_not_implemented_and_opens_no_tunnel() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "CONNECT test:443 HTTP/1.1\r\nHost: test:443\r\n\r\n");
    let answer = peer.response();
    assert!(matches!(answer.status(), 400 | 405 | 501), "{answer:?}");
    peer.assert_closed();
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_head_beyond_its_bounds_is_answered_431_or_414() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).listener("head_bytes_max: 4KiB").listener("fields_max: 20").start();
    let long = "x".repeat(5000);
    refused(&product, &origin, format!("GET / HTTP/1.1\r\nHost: test\r\nX-A: {long}\r\n\r\n").as_bytes(), 431);
    refused(&product, &origin, format!("GET / HTTP/1.1\r\nHost: test\r\n{long}: a\r\n\r\n").as_bytes(), 431);
    refused(&product, &origin, format!("GET /{long} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes(), 414);
    let many = "X-A: 1\r\n".repeat(20);
    refused(&product, &origin, format!("GET / HTTP/1.1\r\nHost: test\r\n{many}\r\n").as_bytes(), 431);
    let enough = "X-A: 1\r\n".repeat(19);
    let answer = product.connect().ask(format!("GET / HTTP/1.1\r\nHost: test\r\n{enough}\r\n"));
    assert_eq!(answer.text(), "never");
}

#[test]
fn a_head_without_end_is_cut_off_at_its_bound() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).start();
    let before = product.resident_bytes();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n");
    let line = format!("X-{}: {}\r\n", "n".repeat(50), "v".repeat(1000));
    // It stops reading long before the client would stop sending.
    let taken = (0..20_000).take_while(|_| peer.try_send(&line).is_ok()).count();
    assert!(taken < 20_000, "20 MB of head were taken");
    // A page of 2 MB that the system gives for the first byte in it counts whole.
    assert!(product.resident_bytes() < before + 5_000_000);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_long_target_within_the_bounds_is_passed_on_whole() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    // RFC 9112 section 3 recommends to support at least 8000 octets.
    let path = format!("/{}?{}", "p".repeat(4000), "q".repeat(4200));
    assert_eq!(product.get(&path).text(), "fine");
    assert_eq!(origin.only_request().target(), path);
}

#[test]
fn a_head_that_arrives_byte_by_byte_is_understood() {
    let origin = Origin::saying("patient");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    for byte in b"POST /slow HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nT: 1\r\n\r\n" {
        peer.send([*byte]);
    }
    assert_eq!(peer.response().text(), "patient");
    assert_eq!(origin.only_request().text(), "ab");
}

#[test]
fn empty_lines_before_a_request_are_ignored_up_to_a_bound() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).listener("timeouts: { head: 10m }").start();
    let mut peer = product.connect();
    assert_eq!(peer.ask("\r\n\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n").text(), "fine");
    assert_eq!(peer.ask("\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n").text(), "fine");
    let mut hostile = Peer::sending(product.web(), "\r\n".repeat(2000));
    // At the bound: the time of a head is much longer than this waits.
    hostile.wait_closed();
}

#[test]
fn a_chunk_that_breaks_the_grammar_is_refused_and_the_exchange_is_cut_off() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).start();
    for chunks in [
        "x\r\nabc\r\n0\r\n\r\n",
        "-1\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        "10000000000000000\r\nabc\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "3;\na=b\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nContent-Length : 3\r\n\r\n",
        "3\r\nabc\r\n0\r\nX\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: a\n\r\n",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        let mut peer = Peer::sending(product.web(), request);
        let answer = peer.response();
        assert_eq!(answer.status(), 400, "{chunks:?}");
        peer.assert_closed();
        assert!(origin.requests().is_empty(), "a whole request was made of {chunks:?}");
    }
    assert_eq!(product.get("/").text(), "never", "a good request is still answered");
}

#[test]
fn a_chunk_extension_outside_the_grammar_is_refused() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).start();
    for extension in [
        &b";"[..],
        b"; ",
        b";;a",
        b";a;",
        b";=b",
        b";a=",
        b";a b",
        b";a ",
        b";a=b ",
        b";a=b=c",
        b";bad[=x",
        b";a=[",
        b";\"a\"",
        b";a=\"",
        b";a=\"b",
        b";a=\"b\\\"",
        b";a=\"b\"c",
        b";\xff",
        b";a=\xff",
        b";a=\"\x01\"",
    ] {
        // In the line of a chunk, and in that of the last one.
        for (first, last) in [(extension, &b""[..]), (b"", extension)] {
            let head = b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
            let request = [&head[..], b"5", first, b"\r\nhello\r\n0", last, b"\r\n\r\n"].concat();
            let shown = String::from_utf8_lossy(extension);
            let mut peer = Peer::sending(product.web(), request);
            assert_eq!(peer.response().status(), 400, "{shown:?}");
            peer.assert_closed();
            assert!(origin.requests().is_empty(), "a whole request was made of {shown:?}");
        }
    }
    product.flagged("CF");
    for extension in [";a", ";a=b", ";a=\"b;\\\"\u{ff}\"", " ; a = b\t;\tc=\"\""] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5{extension}\r\nhello\r\n0{extension}\r\n\r\n"
        );
        assert_eq!(product.connect().ask(request).status(), 200, "{extension:?}");
        assert_eq!(origin.requests().pop().expect("it was passed on").text(), "hello");
    }
}

#[test]
fn chunk_extensions_are_dropped_and_bounded() {
    let origin = Origin::saying("taken");
    let product = Setup::to(&origin).start();
    let head = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = product.connect().ask(format!("{head}3;a=b;c=\"d e\"\r\nabc\r\n0;last\r\n\r\n"));
    assert_eq!(answer.text(), "taken");
    assert_eq!(origin.only_request().text(), "abc");
    let received = String::from_utf8(origin.received(0)).expect("text");
    assert!(!received.contains("a=b") && !received.contains("last"), "{received}");
    let mut hostile = Peer::sending(product.web(), format!("{head}3;{}\r\nabc\r\n0\r\n\r\n", "e".repeat(20_000)));
    assert_eq!(hostile.response().status(), 400);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_smuggled_request_is_never_seen_as_a_second_one() {
    let origin = Origin::saying("one");
    let product = Setup::to(&origin).start();
    let hidden = "GET /hidden HTTP/1.1\r\nHost: test\r\n\r\n";
    for opening in [
        format!("Content-Length: {}\r\nTransfer-Encoding: chunked", hidden.len() + 5),
        "Content-Length: 0\r\nContent-Length: 40".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity".to_owned(),
        "Transfer-Encoding:\x0bchunked".to_owned(),
        "Transfer-Encoding: chunked\r\nContent-Length: 0".to_owned(),
    ] {
        let bytes = format!("POST /open HTTP/1.1\r\nHost: test\r\n{opening}\r\n\r\n0\r\n\r\n{hidden}");
        let mut peer = Peer::sending(product.web(), bytes);
        assert!(peer.response().status() >= 400);
        peer.assert_closed();
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn every_kind_of_refusal_leaves_a_record_of_its_own() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).listener("head_bytes_max: 4KiB").start();
    let long = "x".repeat(5000);
    for (request, status, flag) in [
        ("GET / HTTP/1.1\r\nHost : test\r\n\r\n".to_owned(), 400, "CB"),
        (format!("GET / HTTP/1.1\r\nHost: test\r\nX-A: {long}\r\n\r\n"), 431, "CL"),
        (format!("GET /{long} HTTP/1.1\r\nHost: test\r\n\r\n"), 414, "CU"),
        ("GET / HTTP/2.0\r\nHost: test\r\n\r\n".to_owned(), 505, "CV"),
        ("CONNECT test:1 HTTP/1.1\r\nHost: test:1\r\n\r\n".to_owned(), 501, "CN"),
        ("GET / HTTP/1.1\r\nHost: test\r\nExpect: more\r\n\r\n".to_owned(), 417, "CE"),
        ("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n".to_owned(), 400, "CF"),
    ] {
        assert_eq!(Peer::sending(product.web(), request).response().status(), status, "{flag}");
        let record = product.flagged(flag);
        assert_eq!((record["status"].as_u64(), record["client_ip"].as_str()), (Some(status.into()), Some("127.0.0.1")));
    }
    drop(Peer::sending(product.web(), "GET / HTTP/1.1\r\nHos"));
    assert_eq!(product.flagged("CC")["status"], serde_json::Value::Null);
}

#[test]
fn a_body_beside_a_wish_to_upgrade_keeps_its_framing() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).workers(1).start();
    let inner = "0\r\n\r\nGET /inner HTTP/1.1\r\nHost: inner\r\n\r\n";
    let mut peer = product.connect();
    for upgrade in ["websocket", "other"] {
        peer.send(format!(
            "POST / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\n{inner}\r\n0\r\n\r\n",
            inner.len()
        ));
        assert_eq!(peer.response().text(), "fine");
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), 2, "what stands in a body is no request");
    for request in requests {
        assert_eq!((request.target(), request.text()), ("/", inner.to_owned()));
    }
}
