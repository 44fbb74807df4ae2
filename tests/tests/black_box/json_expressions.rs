//! Expressions of filters that read the body of a request: it is read first, and the endpoint gets it byte by byte.

use std::time::Duration;

use super::harness::http2::{Client, request};
use super::harness::origin::ok;
use super::harness::{Origin, Setup, http3, product};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const FILTERS: &str = "filters: [\
    { deny: { status: 403 }, when: { expression: 'request.body.json.model == \"secret\"' } },\
    { set_request_header: { x-model: { expression: 'request.body.json.model' }, \
      x-role: { expression: 'request.body.json.messages[0].role' } } },\
    { set_response_header: { x-streams: 'yes' }, when: { expression: '\"true\" == request.body.json[\"/stream\"] && response.code == 200' } }]";

/// Says what it was asked.
fn endpoint() -> Origin {
    Origin::answering(|request| {
        let told = ["x-model", "x-role"].map(|name| request.field(name).unwrap_or("-").to_owned());
        ok(&format!("{} {} {}", told.join(" "), request.text().len(), request.text()))
    })
}

fn post(body: &[u8], fields: &str) -> Vec<u8> {
    let head = format!("POST /v1 HTTP/1.1\r\nHost: test\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The body in chunks of so many bytes.
fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = b"POST /v1 HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

#[test]
fn filters_decide_by_the_json_of_a_body_over_every_version() {
    let endpoint = endpoint();
    let site = site(Setup::to(&endpoint).route(FILTERS).listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) =
        (super::harness::Peer::connect(clear), Client::connect(clear), site.connect());
    let deep = format!("{{\"model\":\"m\",\"x\":{}{}}}", "[".repeat(100), "]".repeat(100));
    for (body, status, wanted) in [
        (&br#"{"model": "gpt-4", "messages": [{"role": "user"}]}"#[..], 200, "gpt-4 user"),
        (br#"{"model": "gpt\u002d4", "model": 7}"#, 200, "7 -"),
        (br#"{"model": "secret"}"#, 403, ""),
        (br#"{"model": "x", "model": "secret"}"#, 403, ""),
        (br#"{"model": "secret""#, 200, "- -"),
        (b"model=secret", 200, "- -"),
        (deep.as_bytes(), 200, "- -"),
        (b"", 200, "- -"),
    ] {
        let text = String::from_utf8_lossy(body);
        let wanted = if status == 200 { format!("{wanted} {} {text}", body.len()) } else { String::new() };
        let check = |how: &str, got: (u16, String)| {
            assert_eq!(got.0, status, "{how} {text}");
            assert!(got.1.starts_with(&wanted), "{how} {text}: {}", got.1);
        };
        let answer = first.ask(post(body, ""));
        check("by length", (answer.status(), answer.text()));
        let answer = first.ask(chunked(body, 3));
        check("in chunks", (answer.status(), answer.text()));
        let answer = second.ask(request("POST", "/v1"), body);
        check("h2", (answer.status, answer.text()));
        let answer = third.ask(http3::request("POST", "/v1"), body);
        check("h3", (answer.status, answer.text()));
    }
    let streams = first.ask(post(br#"{"stream": true}"#, ""));
    assert_eq!(streams.field("x-streams"), Some("yes"), "the response is decided by the request's body");
    assert_eq!(first.ask(post(br#"{"stream": "false"}"#, "")).field("x-streams"), None);
}

#[test]
fn a_body_that_comes_slowly_is_waited_for_and_one_that_is_longer_is_streamed_whole() {
    let endpoint = endpoint();
    let site = site(Setup::to(&endpoint).route(FILTERS).listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) =
        (super::harness::Peer::connect(clear), Client::connect(clear), site.connect());
    first.send("POST /v1 HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 18\r\n\r\n");
    assert_eq!(first.head().status(), 100);
    for byte in br#"{"model": "big-1"}"# {
        first.send([*byte]);
    }
    assert!(first.response().text().starts_with("big-1 - 18 "));
    // The last that is read, and the first that is not.
    for (length, wanted) in [(65_536, "m"), (65_537, "-"), (300_000, "-")] {
        let mut body = br#"{"model": "m", "pad": ""#.to_vec();
        body.resize(length - 2, b'x');
        body.extend_from_slice(b"\"}");
        let whole = format!("{wanted} - {length} {}", String::from_utf8_lossy(&body));
        assert_eq!(first.ask(post(&body, "")).text(), whole);
        for size in [1_000, 70_000] {
            assert!(first.ask(chunked(&body, size)).text() == whole, "{length} in chunks of {size}");
        }
        assert!(second.ask(request("POST", "/v1"), &body).text() == whole, "{length} h2");
        assert!(third.ask(http3::request("POST", "/v1"), &body).text() == whole, "{length} h3");
    }
    assert!(first.ask(post(br#"{"model": "m"}"#, "Content-Encoding: gzip\r\n")).text().starts_with("- - 14"));
    // What follows a body on the connection is the next request, also when both came at once.
    let long = chunked(&[b'x'; 65_600], 65_600);
    first.send([long, post(br#"{"model": "next"}"#, "")].concat());
    assert!(first.response().text().starts_with("- - 65600 x"));
    assert!(first.response().text().starts_with("next - 17 "));
}

#[test]
fn a_body_is_read_only_where_the_condition_depends_on_it_and_buffer_raises_the_limit() {
    let endpoint = Origin::start(|mut visit| {
        let head = visit.peer.head();
        visit.peer.send(ok(head.target()));
        let _rest = visit.peer.try_rest();
    });
    let when = "filters: [{ deny: { status: 403 }, when: { expression: 'request.path == \"/json\" && request.body.json.a == \"1\"' } }]";
    let product = Setup::to(&endpoint).route(when).start();
    let mut peer = product.connect();
    peer.send("POST /other HTTP/1.1\r\nHost: test\r\nContent-Length: 7\r\n\r\n{");
    assert_eq!(peer.head().text(), "", "the endpoint has the head while the body is on its way");
    let mut peer = product.connect();
    peer.send("POST /json HTTP/1.1\r\nHost: test\r\nContent-Length: 7\r\n\r\n{");
    peer.assert_silent(Duration::from_millis(200));
    peer.send("\"a\":1}");
    assert_eq!(peer.response().status(), 403);

    let endpoint = self::endpoint();
    let buffered = FILTERS.replace("filters: [", "filters: [{ buffer: { request: 1MiB } },");
    let product = Setup::to(&endpoint).route(buffered).start();
    let body = format!("{{\"pad\": \"{}\", \"model\": \"far\"}}", "x".repeat(200_000));
    assert!(product.connect().ask(post(body.as_bytes(), "")).text().starts_with("far - "));
}

#[test]
fn a_filter_behind_buffer_reads_what_one_before_could_not() {
    let endpoint = self::endpoint();
    let filters = "filters: [\
        { set_request_header: { x-role: { expression: 'request.body.json.model' } } },\
        { buffer: { request: 2MiB } },\
        { set_request_header: { x-model: { expression: 'request.body.json.model' } } }]";
    let product = Setup::to(&endpoint).route(filters).start();
    let mut peer = product.connect();
    for (length, wanted) in [
        (1_000, "far far 1000 "),
        (200_000, "far - 200000 "),
        (1_048_576, "far - 1048576 "),
        // Held and sent on, but too long to be parsed.
        (1_048_577, "- - 1048577 "),
    ] {
        let mut body = br#"{"model": "far"}"#.to_vec();
        body.resize(length, b' ');
        for asked in [post(&body, ""), chunked(&body, 10_000)] {
            let answer = peer.ask(asked).text();
            assert!(answer.starts_with(wanted), "{length}: {}", &answer[..20]);
        }
    }
}

#[test]
fn a_condition_on_the_status_and_the_body_is_decided_by_both() {
    let endpoint = self::endpoint();
    let filters = "filters: [\
        { set_response_header: { x-both: 'yes' }, when: { status: 200, expression: 'request.body.json.a == \"1\"' } },\
        { set_response_header: { x-other: 'yes' }, when: { status: 200, not: { expression: 'request.body.json.a == \"1\"' } } }]";
    let product = Setup::to(&endpoint).route(filters).start();
    let mut peer = product.connect();
    for (body, both, other) in [(&br#"{"a": 1}"#[..], Some("yes"), None), (br#"{"a": 2}"#, None, Some("yes"))] {
        let answer = peer.ask(post(body, ""));
        assert_eq!((answer.field("x-both"), answer.field("x-other")), (both, other));
    }
}

#[test]
fn the_guide_s_deny_refuses_bodies_without_a_value() {
    let endpoint = self::endpoint();
    let filters = "filters: [{ deny: { status: 403 }, when: { expression: \
        'request.headers[\"x-plan\"].orValue(\"\") != \"gold\" && !(request.body.json.model.orValue(\"\") in [\"small\", \"medium\"])' } }]";
    let product = Setup::to(&endpoint).route(filters).start();
    let long = format!("{{\"model\": \"small\"}}{}", " ".repeat(65_536));
    for (body, fields, status) in [
        (r#"{"model": "small"}"#, "", 200),
        (r#"{"model": "small"}"#, "Content-Encoding: \r\n", 200),
        (r#"{"model": "small"}"#, "Content-Encoding: gzip\r\n", 403),
        (r#"{"model": "large"}"#, "", 403),
        (r#"{"model": "large"}"#, "X-Plan: gold\r\n", 200),
        (r#"{"model": "small""#, "", 403),
        (&long, "", 403),
        ("", "", 403),
    ] {
        let status_of = product.connect().ask(post(body.as_bytes(), fields)).status();
        assert_eq!(status_of, status, "{} {fields}", &body[..body.len().min(20)]);
    }
}

#[test]
fn a_place_without_a_body_is_an_error_that_says_what_to_write() {
    let endpoint = endpoint();
    for (text, message, mend) in [
        (
            Setup::to(&endpoint).route("match: { expression: 'request.body.json.a == \"1\"' }"),
            "`request.body.json` cannot be read when the route is chosen",
            "use `body` of `match`",
        ),
        (
            Setup::to(&endpoint).route(
                "filters: [{ deny: { status: 403 }, when: { expression: 'request.body.json(\"a\") == \"1\"' } }]",
            ),
            "`request.body.json` is a map, not a function",
            "write `request.body.json[\"a\"]`",
        ),
    ] {
        let folder = product::folder();
        let text = text.text().replace("DIR", &folder.path().display().to_string());
        std::fs::write(folder.path().join("e.yaml"), text).expect("ours");
        let ended = product::command_in(folder.path(), &["check", "e.yaml"]);
        assert!(!ended.status.success());
        assert!(ended.stderr.contains(message) && ended.stderr.contains(mend), "{}", ended.stderr);
    }
}
