use super::*;
use crate::http1::{HeadLimits, HeadScan, RequestParsed, parse_request, parse_response};

fn request(text: &str) -> (RequestParsed, RequestHead) {
    let mut head = RequestHead::default();
    let parsed = parse_request(text.as_bytes(), &HeadLimits::default(), &mut HeadScan::default(), &mut head);
    (parsed.unwrap().expect("a whole head"), head)
}

fn sent_with(text: &str, change: impl FnOnce(&mut SendRequest<'_>)) -> String {
    let (parsed, head) = request(text);
    let mut how =
        SendRequest { framing: parsed.framing, host_fallback: "fallback:1", upgrade: parsed.upgrade, keep_alive: true };
    change(&mut how);
    let mut out = Vec::new();
    write_request(&head, &how, &mut out);
    String::from_utf8(out).unwrap()
}

fn sent(text: &str) -> String {
    sent_with(text, |_| {})
}

fn response(text: &str, method: Method) -> (Framing, ResponseHead) {
    let mut head = ResponseHead::default();
    let parsed = parse_response(text.as_bytes(), &HeadLimits::default(), &mut HeadScan::default(), method, &mut head);
    (parsed.unwrap().expect("a whole head").framing, head)
}

const HOW: SendResponse =
    SendResponse { framing: Framing::None, to: Version::Http11, keep_alive: true, upgrade: false };

fn answered_with(text: &str, method: Method, change: impl FnOnce(&mut SendResponse)) -> String {
    let (framing, head) = response(text, method);
    let mut how = SendResponse { framing, ..HOW };
    change(&mut how);
    let mut out = Vec::new();
    write_response(&head, &how, &mut out);
    String::from_utf8(out).unwrap()
}

fn answered(text: &str) -> String {
    answered_with(text, Method::Get, |_| {})
}

#[test]
fn a_request_is_passed_on_with_order_and_case_of_its_fields() {
    assert_eq!(
        sent("POST /a?b HTTP/1.1\r\naCCept:  x \r\nHOST: h\r\nCONTENT-length: 5\r\nX-B:\r\naccept: y\r\n\r\n"),
        "POST /a?b HTTP/1.1\r\naCCept: x\r\nHOST: h\r\nCONTENT-length: 5\r\nX-B: \r\naccept: y\r\n\r\n"
    );
}

#[test]
fn hop_by_hop_fields_do_not_pass() {
    assert_eq!(
        sent(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, x-a\r\nX-A: 1\r\nKeep-Alive: 5\r\nTE: gzip\r\nUpgrade: y\r\n\
             Proxy-Connection: z\r\nTrailer: t\r\n\r\n"
        ),
        "GET / HTTP/1.1\r\nHost: h\r\nTrailer: t\r\n\r\n"
    );
    assert_eq!(
        answered(
            "HTTP/1.1 200 OK\r\nConnection: x-a\r\nKeep-Alive: 5\r\nX-A: 1\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n"
        ),
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn an_http_1_0_request_is_sent_as_1_1_with_a_host_and_without_expectation() {
    assert_eq!(
        sent(
            "POST /x HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\nTE: trailers\r\nConnection: keep-alive\r\n\r\n"
        ),
        "POST /x HTTP/1.1\r\nContent-Length: 1\r\nHost: fallback:1\r\n\r\n"
    );
    assert!(
        sent("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
            .contains("Expect: 100-continue")
    );
}

#[test]
fn an_absolute_target_is_sent_in_origin_form() {
    assert_eq!(sent("GET http://o:1/p?q HTTP/1.1\r\nHost: h\r\n\r\n"), "GET /p?q HTTP/1.1\r\nHost: o:1\r\n\r\n");
    assert_eq!(sent("OPTIONS http://o HTTP/1.1\r\nHost: h\r\n\r\n"), "OPTIONS * HTTP/1.1\r\nHost: o\r\n\r\n");
}

#[test]
fn the_framing_that_is_sent_is_ours() {
    let chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: CHUNKED\r\n\r\n";
    assert_eq!(sent(chunked), "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let known = sent_with(chunked, |how| how.framing = Framing::Length(7));
    assert_eq!(known, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\n");
    let length = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 007\r\n\r\n";
    assert_eq!(sent(length), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\n");
    let changed = sent_with(length, |how| how.framing = Framing::Chunked);
    assert_eq!(changed, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
}

#[test]
fn a_request_without_a_body_says_so_where_one_is_expected() {
    assert_eq!(sent("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(
        sent("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
    );
    for zero in ["00", "0000000000000000000000000000000000000000"] {
        assert_eq!(
            sent(&format!("PUT / HTTP/1.1\r\nHost: h\r\nCONTENT-LENGTH: {zero}\r\n\r\n")),
            "PUT / HTTP/1.1\r\nHost: h\r\nCONTENT-LENGTH: 0\r\n\r\n"
        );
    }
    assert_eq!(sent("PUT / HTTP/1.1\r\nHost: h\r\n\r\n"), "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn connection_tells_the_endpoint_what_was_asked_for() {
    let upgrade = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(sent(upgrade), "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    assert_eq!(sent_with(upgrade, |how| how.upgrade = false), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let te = "GET / HTTP/1.1\r\nHost: h\r\nTE: gzip, trailers\r\n\r\n";
    assert_eq!(sent(te), "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    assert_eq!(
        sent_with(te, |how| how.keep_alive = false),
        "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n"
    );
}

#[test]
fn a_response_is_passed_on_with_order_and_case_of_its_fields() {
    assert_eq!(
        answered("HTTP/1.0 404 Not  Here\r\nSet-Cookie: a\r\ncontent-LENGTH: 03\r\nSET-cookie: b\r\n\r\n"),
        "HTTP/1.1 404 Not  Here\r\nSet-Cookie: a\r\ncontent-LENGTH: 3\r\nSET-cookie: b\r\n\r\n"
    );
    assert_eq!(
        answered("HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(answered("HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n"), "HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn a_response_of_unknown_length_is_framed_as_the_client_understands() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(answered(chunked), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let to_old = answered_with(chunked, Method::Get, |how| how.to = Version::Http10);
    assert_eq!(to_old, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    let close = "HTTP/1.1 200 OK\r\n\r\n";
    assert_eq!(answered(close), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    let rechunked = answered_with(close, Method::Get, |how| how.framing = Framing::Chunked);
    assert_eq!(rechunked, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
}

#[test]
fn persistence_is_told_in_the_words_of_the_clients_version() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let told = |to, keep_alive| {
        answered_with(text, Method::Get, |how| (how.to, how.keep_alive) = (to, keep_alive))
            .replace("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", "")
    };
    assert_eq!(told(Version::Http11, true), "\r\n");
    assert_eq!(told(Version::Http11, false), "Connection: close\r\n\r\n");
    assert_eq!(told(Version::Http10, true), "Connection: keep-alive\r\n\r\n");
    assert_eq!(told(Version::Http10, false), "Connection: close\r\n\r\n");
}

#[test]
fn a_length_without_a_body_is_kept_for_head_and_304_and_dropped_elsewhere() {
    let head = answered_with("HTTP/1.1 200 OK\r\nContent-Length: 0042\r\n\r\n", Method::Head, |_| {});
    assert_eq!(head, "HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n");
    assert_eq!(
        answered("HTTP/1.1 304 Not Modified\r\nContent-Length: 0000\r\n\r\n"),
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(
        answered("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"
    );
    assert_eq!(answered("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"), "HTTP/1.1 204 No Content\r\n\r\n");
    let (_, mut interim) = response("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", Method::Get);
    interim.fields.append(&model::FieldName::new("Content-Length").unwrap(), b"5");
    let mut out = Vec::new();
    write_response(&interim, &SendResponse { keep_alive: false, ..HOW }, &mut out);
    assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
}

#[test]
fn a_switch_of_protocols_names_the_protocol() {
    let text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: y\r\n\r\n";
    assert_eq!(
        answered_with(text, Method::Get, |how| how.upgrade = true),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nX: y\r\nConnection: Upgrade\r\n\r\n"
    );
}

#[test]
fn a_426_names_the_protocols_it_asks_for_and_still_says_close() {
    let text = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.3\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(answered(text), text.replace("\r\n\r\n", "\r\nConnection: Upgrade\r\n\r\n"));
    let closing = answered_with(text, Method::Get, |how| how.keep_alive = false);
    assert_eq!(closing, text.replace("\r\n\r\n", "\r\nConnection: close, Upgrade\r\n\r\n"));
    let old = answered_with(text, Method::Get, |how| how.to = Version::Http10);
    assert!(!old.contains("Upgrade:") && old.contains("Connection: keep-alive\r\n"), "{old}");
    assert_eq!(answered("HTTP/1.0 426\r\n\r\n"), "HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\n\r\n");
}

#[test]
fn a_local_response_is_whole() {
    let local = |status| LocalResponse { status, fields: vec![("x-a".into(), "1".into())], body: b"no\n".to_vec() };
    let written = |status, how: &SendLocal<'_>| {
        let mut out = Vec::new();
        write_local_response(&local(status), how, &mut out);
        String::from_utf8(out).unwrap()
    };
    let how = SendLocal { to: Version::Http11, keep_alive: true, is_head: false, date: "D" };
    let head = "HTTP/1.1 403 Forbidden\r\nx-a: 1\r\nContent-Length: 3\r\nDate: D\r\n";
    assert_eq!(written(403, &how), format!("{head}\r\nno\n"));
    assert_eq!(written(403, &SendLocal { is_head: true, ..how }), format!("{head}\r\n"));
    assert_eq!(written(403, &SendLocal { keep_alive: false, ..how }), format!("{head}Connection: close\r\n\r\nno\n"));
    assert_eq!(
        written(403, &SendLocal { to: Version::Http10, ..how }),
        format!("{head}Connection: keep-alive\r\n\r\nno\n")
    );
    assert_eq!(written(204, &SendLocal { date: "", ..how }), "HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n");
    assert_eq!(written(304, &how), "HTTP/1.1 304 Not Modified\r\nx-a: 1\r\nDate: D\r\n\r\n");
}
