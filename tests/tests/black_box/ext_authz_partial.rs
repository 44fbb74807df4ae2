//! `allow_partial` of the filter `ext_authz`: the service gets the beginning of a body, and the endpoint all of it.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::services::Authorization;
use super::harness::{Origin, Peer, Setup, http3};
use super::http3::{Site, site};

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const PARTIAL: &str = "timeout: 60s, body_max: 1KiB, allow_partial: true";

/// An endpoint that answers with the body that it was sent.
fn endpoint() -> Origin {
    Origin::answering(|request| ok(&request.text()))
}

fn both(endpoint: &Origin, service: &Authorization, more: &str) -> Site {
    let setup = Setup::to(endpoint)
        .route(format!("filters: [{{ ext_authz: {{ cluster: auth, {PARTIAL} }} }}{more}]"))
        .cluster_more(format!("auth: {{ endpoints: [\"{}\"], http_versions: [h2] }}", service.address));
    site(setup.listener_more(CLEAR), 1)
}

/// A body in which each place can be told from others.
fn text(length: usize) -> String {
    let mut text: String = (0..length / 6 + 1).map(|at| format!("{at:05} ")).collect();
    text.truncate(length);
    text
}

fn head(token: &str, fields: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: test\r\nToken: {token}\r\nX-Envoy-Auth-Partial-Body: forged\r\n{fields}\r\n")
}

fn by_length(token: &str, body: &str) -> String {
    head(token, &format!("Content-Length: {}\r\n", body.len())) + body
}

fn chunked(token: &str, body: &str, size: usize) -> String {
    let mut text = head(token, "Transfer-Encoding: chunked\r\n");
    for chunk in body.as_bytes().chunks(size) {
        text += &format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk));
    }
    text + "0\r\n\r\n"
}

/// What the request to the service says of the body: whether it is a part, its size, and its bytes.
fn told(answer: &str) -> (String, String, String) {
    let told =
        serde_json::from_str::<serde_json::Value>(answer).expect("JSON")["attributes"]["request"]["http"].clone();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    (text(&told["headers"]["x-envoy-auth-partial-body"]), text(&told["size"]), text(&told["body"]))
}

#[test]
fn the_service_gets_the_beginning_of_a_body_over_every_version() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let site = both(&endpoint, &service, "");
    let clear = site.product.address("clear");
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let fields = [("token", "echo")];
    for (length, is_part) in
        [(0, "false"), (1, "false"), (1_023, "false"), (1_024, "false"), (1_025, "true"), (100_000, "true")]
    {
        let body = text(length);
        let start = &body[..length.min(1_024)];
        let size = length.to_string();
        let of_length = (is_part.to_owned(), if length == 0 { String::new() } else { size }, start.to_owned());
        let answer = Peer::connect(clear).ask(by_length("echo", &body));
        assert_eq!(answer.status(), 409);
        let mut got = told(&answer.text());
        if length == 0 {
            got.1.clear();
        }
        assert_eq!(got, of_length, "{length}");
        for answer in [
            Peer::connect(clear).ask(chunked("echo", &body, 700)).text(),
            Peer::connect(clear).ask(chunked("echo", &body, 100_000)).text(),
            Peer::connect(clear).ask(chunked("echo", &text(length.min(2_000)), 1)).text(),
            second.ask(with_fields(request("POST", "/"), &fields), body.as_bytes()).text(),
            third.ask(with_fields(http3::request("POST", "/"), &fields), body.as_bytes()).text(),
        ] {
            let (shown, _, sent) = told(&answer);
            assert_eq!(sent, start, "{length}");
            // Whether more follows is not known when the bytes are just as many.
            assert!(shown == is_part || length == 1_024, "{length} {shown}");
        }
    }
}

#[test]
fn the_endpoint_gets_all_of_the_body_over_every_version() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let site = both(&endpoint, &service, "");
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    for length in [0, 5, 1_024, 1_025, 64_000, 65_536, 300_000, 2_000_000] {
        let body = text(length);
        assert!(first.ask(by_length("good", &body)).text() == body, "{length}");
        for size in [1, 999, 65_536].into_iter().filter(|size| length < 100_000 || *size > 1) {
            assert!(first.ask(chunked("good", &body, size)).text() == body, "{length} in chunks of {size}");
        }
        let fields = [("token", "good")];
        assert!(second.ask(with_fields(request("POST", "/"), &fields), body.as_bytes()).text() == body, "{length} h2");
        let answer = third.ask(with_fields(http3::request("POST", "/"), &fields), body.as_bytes());
        assert!(answer.text() == body, "{length} h3");
        let said = format!("{length}");
        let fields = [("token", "good"), ("content-length", &*said)];
        let mut stream = second.open(with_fields(request("POST", "/"), &fields), false);
        second.send(&mut stream, body.as_bytes(), false);
        second.flush();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        second.send_trailers(&mut stream, trailers);
        assert!(second.answer(stream).text() == body, "{length} h2 by its length");
    }
    // Two requests in one write: the first is read beyond its beginning, to its end.
    first.send(chunked("good", &text(3_000), 3_000) + &by_length("good", "next"));
    assert_eq!(first.response().text(), text(3_000));
    assert_eq!(first.response().text(), "next");
    site.product.record("all bytes are counted", |record| record["received_bytes"] == 2_000_000);
}

#[test]
fn a_client_that_stalls_behind_the_beginning_is_judged_and_may_go_on() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let site = both(&endpoint, &service, "");
    let clear = site.product.address("clear");
    let body = text(5_000);
    for (fields, start, end) in [
        ("Content-Length: 5000\r\n", body[..1_024].to_owned(), body[1_024..].to_owned()),
        (
            "Transfer-Encoding: chunked\r\n",
            format!("1388\r\n{}", &body[..1_024]),
            format!("{}\r\n0\r\n\r\n", &body[1_024..]),
        ),
        ("Expect: 100-continue\r\nContent-Length: 5000\r\n", body[..2_000].to_owned(), body[2_000..].to_owned()),
    ] {
        for token in ["bad", "good"] {
            let mut peer = Peer::connect(clear);
            peer.send(head(token, fields));
            if fields.contains("Expect") {
                assert_eq!(peer.head().status(), 100);
            }
            peer.send(&start);
            if token == "bad" {
                assert_eq!(peer.response().status(), 401, "{fields}");
                peer.wait_closed();
                continue;
            }
            // The endpoint has the rest to wait for, not the service.
            peer.assert_silent(Duration::from_millis(100));
            peer.send(&end);
            assert!(peer.response().text() == body, "{fields}");
            assert_eq!(peer.ask(by_length("good", "again")).text(), "again");
        }
    }
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let fields = [("token", "bad")];
    let mut stream = second.open(with_fields(request("POST", "/"), &fields), false);
    second.send(&mut stream, &body.as_bytes()[..1_024], false);
    assert_eq!(second.head(&mut stream).map(|(status, _)| status).ok(), Some(401));
    let mut stream = third.open(with_fields(http3::request("POST", "/"), &fields));
    third.send(&mut stream, &body.as_bytes()[..1_024]);
    assert_eq!(third.head(&mut stream).map(|(status, _)| status).ok(), Some(401));
}

#[test]
fn filters_behind_get_the_body_whole_or_refuse_it() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let long = text(20_000);
    let held = both(&endpoint, &service, ", { buffer: { request: 10KiB } }");
    let clear = held.product.address("clear");
    let body = text(9_000);
    for asked in [by_length("good", &body), chunked("good", &body, 500), chunked("good", &body, 9_000)] {
        assert!(Peer::connect(clear).ask(asked).text() == body);
    }
    assert_eq!(Peer::connect(clear).ask(chunked("good", &long, 20_000)).status(), 413);
    let limited = both(&endpoint, &service, ", { body_limit: { max: 10KiB } }");
    let clear = limited.product.address("clear");
    assert!(Peer::connect(clear).ask(chunked("good", &body, 9_000)).text() == body);
    for size in [500, 20_000] {
        let mut peer = Peer::sending(clear, chunked("good", &long, size));
        assert_eq!(peer.response().status(), 413, "in chunks of {size}");
    }
    // The verdict for this token leaves it to the second filter.
    let again = both(
        &endpoint,
        &service,
        &format!(", {{ ext_authz: {{ cluster: auth, {} }} }}", PARTIAL.replace("1KiB", "8KiB")),
    );
    let clear = again.product.address("clear");
    for asked in [by_length("bare", &long), chunked("bare", &long, 500), chunked("bare", &long, 20_000)] {
        assert!(Peer::connect(clear).ask(asked).text() == long);
    }
}

#[test]
fn requests_behind_a_body_that_was_read_and_not_sent_get_their_own_answers() {
    // The endpoint answers while the head is still on its way, slowly: nothing of the body has been sent then.
    let endpoint = Origin::start(|mut visit| {
        while let Some(begun) = visit.peer.try_read(10) {
            if begun == b"POST /slow" {
                visit.peer.send("HTTP/1.1 500 Early\r\nContent-Length: 0\r\n\r\n");
                let _rest = visit.peer.try_rest();
                return;
            }
            let rest = visit.peer.head();
            visit.peer.send(ok(rest.field("x-name").unwrap_or("no name")));
        }
    });
    let service = Authorization::start();
    let slowly = ", { bandwidth_limit: { upload: 500B/s }, when: { path: { exact: /slow } } }, \
                  { error_page: { status: 500, body: page, intercept: true } }";
    let site = both(&endpoint, &service, slowly);
    let pad = "x".repeat(3_000);
    for length in [1_024, 1_025, 2_048] {
        let posted = by_length("good", &text(length)).replace("POST / ", "POST /slow ");
        let posted = posted.replace("Host: test", &format!("Host: test\r\nX-Pad: {pad}"));
        let next = |name: &str| {
            format!("GET / HTTP/1.1\r\nHost: test\r\nToken: good\r\nX-Name: {name}\r\nX-Pad: {pad}\r\n\r\n")
        };
        let mut peer = Peer::sending(site.product.address("clear"), posted + &next("second") + &next("third"));
        let answer = peer.response();
        assert_eq!((answer.status(), &*answer.text()), (500, "page"), "{length}");
        assert_eq!(peer.response().text(), "second", "{length}");
        assert_eq!(peer.response().text(), "third", "{length}");
    }
}
