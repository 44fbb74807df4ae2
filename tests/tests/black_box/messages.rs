//! What HTTP/1 asks of whoever stands in between (RFC 9110, RFC 9112): order, persistence, interim responses, bodies
//! that are not there, fields of one connection, and bytes that must arrive as they were sent.

use std::sync::mpsc;
use std::time::Duration;

use super::harness::origin::{ok, ok_for};
use super::harness::{Message, Origin, Peer, Setup, eventually};

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::answering(|request| ok_for(request, &format!("{} {}", request.target(), request.text())));
    let product = Setup::to(&origin).start();
    let mut bytes = String::new();
    for number in 0..50 {
        match number % 3 {
            0 => bytes += &format!("GET /{number} HTTP/1.1\r\nHost: test\r\n\r\n"),
            1 => bytes += &format!("POST /{number} HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc"),
            _ => {
                bytes += &format!("PUT /{number} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
                bytes += "3\r\nabc\r\n0\r\n\r\n";
            }
        }
    }
    let mut peer = Peer::sending(product.web(), bytes);
    for number in 0..50 {
        let body = if number % 3 == 0 { "" } else { "abc" };
        assert_eq!(peer.response().text(), format!("/{number} {body}"));
    }
    peer.assert_open();
}

#[test]
fn a_pipelined_request_behind_a_bad_one_is_not_served() {
    let origin = Origin::saying("good");
    let product = Setup::to(&origin).start();
    let good = "GET /good HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut peer = Peer::sending(product.web(), format!("{good}GET /bad HTTP/1.1\r\nHost : test\r\n\r\n{good}"));
    assert_eq!(peer.response().text(), "good");
    assert_eq!(peer.response().status(), 400);
    peer.assert_closed();
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_connection_is_kept_for_http_1_1_and_closed_when_either_side_says_so() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    for _ in 0..3 {
        let answer = peer.get("/");
        assert_eq!((answer.text().as_str(), answer.field("connection")), ("fine", None));
    }
    let last = peer.ask("GET / HTTP/1.1\r\nHost: test\r\nConnection: Close\r\n\r\n");
    assert_eq!(last.field("connection"), Some("close"));
    peer.assert_closed();
    // The connection of the client is no business of the endpoint.
    assert!(origin.requests().iter().all(|request| request.field("connection").is_none()));
}

#[test]
fn an_http_1_0_client_gets_a_plain_body_and_a_close() {
    let origin =
        Origin::answering(|_| b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec());
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.0\r\nHost: test\r\n\r\n");
    let answer = peer.response();
    assert_eq!((answer.text().as_str(), answer.field("transfer-encoding")), ("abc", None));
    peer.assert_closed();
    assert_eq!(origin.only_request().line, "GET / HTTP/1.1", "endpoints are spoken to in our own version");
}

#[test]
fn an_http_1_0_client_may_ask_to_be_kept() {
    let origin = Origin::saying("kept");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    for _ in 0..2 {
        let answer = peer.ask("GET / HTTP/1.0\r\nHost: test\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(answer.text(), "kept");
        assert!(answer.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("keep-alive")));
    }
    let bare = peer.ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(bare.text(), "kept", "HTTP/1.0 needs no Host");
    peer.assert_closed();
    assert!(origin.requests()[2].field("host").is_some(), "HTTP/1.1 does");
}

#[test]
fn trailers_travel_in_both_directions() {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nreply\r\n0\r\nX-Sum: 42\r\nx-Two: b\r\n\r\n"
            .to_vec()
    });
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    let answer = peer.ask(
        "POST / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: TE\r\nTransfer-Encoding: chunked\r\n\
         Trailer: X-Check\r\n\r\n4\r\nbody\r\n0\r\nX-Check: abc\r\n\r\n",
    );
    assert_eq!(answer.text(), "reply");
    assert_eq!(answer.trailers, [("X-Sum".into(), "42".into()), ("x-Two".into(), "b".into())]);
    let request = origin.only_request();
    assert_eq!(request.text(), "body");
    assert_eq!(request.trailers, [("X-Check".into(), "abc".into())]);
    assert_eq!(peer.get("/").text(), "reply", "the connection lives on");
}

#[test]
fn framing_fields_in_trailers_never_pass() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.send(
        "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\
         Content-Length: 1\r\nHost: evil\r\nTransfer-Encoding: x\r\n\r\n",
    );
    let _ = peer.response();
    for request in origin.requests() {
        assert!(request.trailers.is_empty(), "{request:?}");
    }
}

#[test]
fn a_client_that_expects_100_waits_for_the_endpoint_to_say_so() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        let Ok(Some(mut request)) = visit.peer.try_head() else { return };
        wait.lock().expect("channel").recv().expect("the test says go");
        visit.peer.send("HTTP/1.1 100 Continue\r\n\r\n");
        visit.peer.try_body(&mut request, false).expect("a body");
        visit.book.note(&request);
        visit.peer.send(ok("done"));
        visit.answer_all(|_| Some(ok("next")));
    });
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.send("POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    eventually("the head arrives", || origin.received(0).ends_with(b"\r\n\r\n"));
    peer.assert_silent(Duration::from_millis(50));
    go.send(()).expect("the origin waits");
    let interim = peer.head();
    assert_eq!(interim.status(), 100);
    peer.send("body");
    assert_eq!(peer.response().text(), "done");
    assert_eq!(origin.only_request().text(), "body");
    assert_eq!(peer.get("/").text(), "next");
}

#[test]
fn a_final_response_instead_of_100_comes_through_and_no_body_is_taken_for_a_request() {
    let origin = Origin::start(|mut visit| {
        let Ok(Some(_)) = visit.peer.try_head() else { return };
        visit.peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.send("POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n");
    let answer = peer.response();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "big"));
    // Whether the body still comes is not known to either side: only a close leaves no doubt (RFC 9110 section 10.1.1).
    peer.assert_closed();
}

#[test]
fn an_expectation_that_is_not_known_is_answered_417() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\nExpect: a-miracle\r\n\r\n");
    assert_eq!(peer.response().status(), 417);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn interim_responses_are_passed_on_to_those_who_understand_them() {
    let origin = Origin::answering(|_| {
        let mut bytes = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n".to_vec();
        bytes.extend(b"HTTP/1.1 103 Early Hints\r\nLink: </b.css>; rel=preload\r\n\r\n");
        bytes.extend(ok("final"));
        bytes
    });
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    for file in ["a", "b"] {
        let hint = peer.head();
        assert_eq!(hint.status(), 103);
        assert_eq!(hint.field("link"), Some(format!("</{file}.css>; rel=preload").as_str()));
    }
    assert_eq!(peer.response().text(), "final");
    let mut old = Peer::sending(product.web(), "GET / HTTP/1.0\r\nHost: test\r\n\r\n");
    assert_eq!(old.response().status(), 200, "HTTP/1.0 knows no interim responses");
}

#[test]
fn endless_interim_responses_are_cut_off() {
    let origin = Origin::start(|mut visit| {
        let Some(_) = visit.request() else { return };
        for _ in 0..10_000 {
            if visit.peer.try_send("HTTP/1.1 102 Processing\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut interim = 0;
    let last = loop {
        let head = peer.head();
        if head.status() != 102 {
            break head;
        }
        interim += 1;
    };
    assert_eq!(last.status(), 502);
    assert!(interim <= 16, "{interim}");
}

#[test]
fn a_response_without_a_body_leaves_the_connection_in_step() {
    let origin = Origin::answering(|request| match request.target() {
        "/204" => b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n".to_vec(),
        "/304" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\nETag: \"a\"\r\n\r\n".to_vec(),
        "/empty" => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ if request.method() == "HEAD" => b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec(),
        _ => ok("body"),
    });
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    for round in 0..2 {
        peer.send("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
        let head = peer.head();
        assert_eq!((head.status(), head.field("content-length")), (200, Some("1000")), "round {round}");
        assert_eq!(peer.get("/204").status(), 204);
        let not_modified = peer.get("/304");
        assert_eq!((not_modified.status(), not_modified.field("etag")), (304, Some("\"a\"")));
        assert_eq!(peer.get("/empty").text(), "");
        assert_eq!(peer.get("/").text(), "body");
    }
    assert_eq!(origin.connections(), 1, "nothing of this costs the endpoint a connection");
}

#[test]
fn a_head_response_with_chunked_coding_has_no_body() {
    let origin = Origin::answering(|request| match request.method() {
        "HEAD" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        _ => ok("body"),
    });
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 200);
    assert_eq!(peer.get("/").text(), "body");
}

/// Answers an upgrade, then sends every byte back in upper case, and `bye` at the end.
fn shouting() -> Origin {
    Origin::start(|mut visit| {
        let Some(request) = visit.request() else { return };
        if request.field("upgrade").is_none() {
            return visit.peer.send(ok("no upgrade"));
        }
        visit.peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\n");
        loop {
            let bytes = visit.peer.drain();
            visit.peer.send(bytes.to_ascii_uppercase());
            if visit.peer.fill().is_ok_and(|count| count == 0) {
                break;
            }
        }
        visit.peer.send("BYE");
    })
}

#[test]
fn an_upgraded_connection_is_a_tunnel_in_both_directions_until_both_have_ended() {
    let origin = shouting();
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    // What follows the request at once already belongs to the new protocol.
    peer.send("GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: shout\r\nX-Key: k\r\n\r\nearly");
    let switch = peer.head();
    assert_eq!(switch.status(), 101);
    assert_eq!(switch.field("upgrade"), Some("shout"));
    assert!(switch.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")));
    let request = origin.only_request();
    assert_eq!((request.field("upgrade"), request.field("x-key")), (Some("shout"), Some("k")));
    assert_eq!(peer.take(5), b"EARLY");
    for _ in 0..20 {
        peer.send("GET / HTTP/1.1\r\n\r\n");
        assert_eq!(peer.take(18), b"GET / HTTP/1.1\r\n\r\n");
    }
    peer.half_close();
    assert_eq!(peer.rest(), b"BYE", "the endpoint's direction outlives the client's");
    let record = product.record("the tunnel", |record| record["status"] == 101);
    assert_eq!(record["flag"], serde_json::Value::Null, "{record}");
}

#[test]
fn an_upgrade_that_the_endpoint_ignores_is_an_ordinary_exchange() {
    let origin = Origin::saying("plain");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    let answer = peer.ask("GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n");
    assert_eq!(answer.text(), "plain");
    assert_eq!(peer.get("/").text(), "plain");
}

#[test]
fn a_switch_of_protocols_that_nobody_asked_for_is_refused() {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\nhidden".to_vec()
    });
    let product = Setup::to(&origin).start();
    let answer = product.get("/");
    assert_eq!(answer.status(), 502);
}

#[test]
fn an_upgrade_field_without_the_connection_option_is_not_passed_on() {
    let origin = Origin::saying("plain");
    let product = Setup::to(&origin).start();
    product.connect().ask("GET / HTTP/1.1\r\nHost: test\r\nUpgrade: shout\r\n\r\n");
    product.connect().ask("GET / HTTP/1.0\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(origin.requests().iter().all(|request| request.field("upgrade").is_none()));
}

#[test]
fn fields_of_one_connection_are_not_passed_on_in_either_direction() {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 200 OK\r\nConnection: X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: a\r\n\
          X-Kept: yes\r\nContent-Length: 0\r\n\r\n"
            .to_vec()
    });
    let product = Setup::to(&origin).start();
    let answer = product.connect().ask(
        "GET / HTTP/1.1\r\nHost: test\r\nConnection: keep-alive, X-One\r\nConnection: x-two\r\nX-One: 1\r\nX-TWO: 2\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nX-Kept: yes\r\n\r\n",
    );
    let request = origin.only_request();
    for gone in ["connection", "x-one", "x-two", "keep-alive", "proxy-connection", "te"] {
        assert!(request.all(gone).is_empty(), "{gone} in {request:?}");
    }
    for gone in ["connection", "x-secret", "keep-alive", "proxy-connection"] {
        assert!(answer.all(gone).is_empty(), "{gone} in {answer:?}");
    }
    assert_eq!((request.field("x-kept"), answer.field("x-kept")), (Some("yes"), Some("yes")));
}

#[test]
fn a_client_cannot_make_essential_fields_vanish_by_naming_them_in_connection() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(
        product.web(),
        "POST / HTTP/1.1\r\nHost: test\r\nConnection: close, Host, Content-Length, X-Forwarded-For, Authorization\r\n\
         Authorization: secret\r\nContent-Length: 3\r\n\r\nabc",
    );
    if peer.response().status() != 400 {
        let request = origin.only_request();
        assert_eq!((request.field("host"), request.text().as_str()), (Some("test"), "abc"));
        assert_eq!(request.field("authorization"), Some("secret"));
        assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    }
}

/// The fields that a test sent itself, as they arrived.
fn own(message: &Message) -> Vec<(String, String)> {
    let is_own = |name: &str| name.to_ascii_lowercase().starts_with("x-own");
    message.fields.iter().filter(|(name, _)| is_own(name)).cloned().collect()
}

#[test]
fn fields_keep_their_order_their_case_and_their_bytes() {
    const FIELDS: &str = "X-OWN-b: 2\r\nx-own-A: 1\r\nX-Own-B: 3\r\nX-oWn-C:   spaced  out \t\r\nX-Own-D:\r\n\
                          X-Own-E: \"q\\\"uo,ted\"; a=b\r\nX-Own-F: caf\u{e9}\r\n";
    let response = format!("HTTP/1.1 299 Odd  Reason\r\n{FIELDS}Content-Length: 2\r\n\r\nok");
    let origin = Origin::answering(move |_| response.clone().into_bytes());
    let product = Setup::to(&origin).listener("paths: { normalize: false }").start();
    let answer = product.connect().ask(format!("GET /a%2Fb//..//c?x=%20&&y HTTP/1.1\r\nHost: Test\r\n{FIELDS}\r\n"));
    let sent = [
        ("X-OWN-b", "2"),
        ("x-own-A", "1"),
        ("X-Own-B", "3"),
        ("X-oWn-C", "spaced  out"),
        ("X-Own-D", ""),
        ("X-Own-E", "\"q\\\"uo,ted\"; a=b"),
        ("X-Own-F", "caf\u{e9}"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let request = origin.only_request();
    assert_eq!(request.line, "GET /a%2Fb//..//c?x=%20&&y HTTP/1.1");
    assert_eq!(request.fields[0], ("Host".into(), "Test".into()));
    assert_eq!(own(&request), sent);
    assert_eq!(answer.line, "HTTP/1.1 299 Odd  Reason");
    assert_eq!(own(&answer), sent);
}

#[test]
fn a_response_without_framing_ends_with_its_connection() {
    let origin = Origin::start(|mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end");
    });
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    let answer = peer.get("/");
    assert_eq!(answer.text(), "until the end");
    assert_eq!(answer.field("content-type"), Some("text/plain"));
    if answer.field("transfer-encoding").is_some() {
        assert_eq!(peer.get("/").text(), "until the end", "chunks keep the client's connection");
    }
}

#[test]
fn any_method_is_passed_on_with_or_without_a_body() {
    let origin = Origin::answering(|request| ok(&format!("{} {}", request.method(), request.text())));
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    for method in ["DELETE", "PATCH", "OPTIONS", "PURGE", "get", "M-SEARCH", "TRACE", "A!#$%&'*+-.^_`|~1"] {
        assert_eq!(peer.ask(format!("{method} / HTTP/1.1\r\nHost: t\r\n\r\n")).text(), format!("{method} "));
        let with_body = format!("{method} / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(peer.ask(with_body).text(), format!("{method} hi"));
    }
}

#[test]
fn a_client_that_has_closed_its_direction_still_gets_its_response() {
    let origin = Origin::saying("late");
    let product = Setup::to(&origin).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    peer.half_close();
    assert_eq!(peer.response().text(), "late");
    peer.assert_closed();
}

#[test]
fn a_head_that_never_ends_is_answered_408_and_an_idle_connection_is_closed_silently() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).listener("timeouts: { head: 1s, idle: 2s }").start();
    let mut slow = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: te");
    let mut idle = product.connect();
    let answer = slow.response();
    assert_eq!(answer.status(), 408);
    assert_eq!(answer.field("connection"), Some("close"));
    slow.assert_closed();
    idle.assert_closed();
    assert_eq!(product.flagged("CT")["status"], 408);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_head_that_trickles_cannot_outlast_its_time() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).listener("timeouts: { head: 300ms }").start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\n");
    // Each byte comes long before the time is over; all of them together do not.
    peer.set_read_timeout(Duration::from_millis(50));
    let mut bytes = 0;
    while peer.fill().is_err_and(|error| super::harness::peer::is_timeout(&error)) {
        bytes += 1;
        assert!(bytes < 100, "the head may trickle forever");
        let _ = peer.try_send("x");
    }
    peer.set_read_timeout(super::harness::poll::PATIENCE);
    assert_eq!(peer.response().status(), 408);
}

#[test]
fn a_connection_is_closed_in_good_order_after_its_last_request() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).listener("requests_per_connection_max: 3").start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").field("connection"), None);
    assert_eq!(peer.get("/").field("connection"), None);
    assert_eq!(peer.get("/").field("connection"), Some("close"));
    peer.assert_closed();
}

#[test]
fn a_listener_holds_no_more_connections_than_it_may() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).listener("connections_max: 2").start();
    let (mut first, mut second) = (product.connect(), product.connect());
    assert_eq!(first.get("/").text(), "fine");
    assert_eq!(second.get("/").text(), "fine");
    let mut third = product.connect();
    third.wait_closed();
    drop(first);
    eventually("there is room again", || {
        let mut peer = product.connect();
        peer.try_send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").is_ok() && matches!(peer.try_head(), Ok(Some(_)))
    });
    assert_eq!(second.get("/").text(), "fine");
    product.expect_metric_at_least("equipoise_connections_refused_total", &["listener=\"web\""], 1.0);
}

#[test]
fn the_last_bytes_arrive_whatever_a_client_has_sent_behind_its_last_request() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::answering(move |request| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok(&"last".repeat(if request.target() == "/large" { 25_000 } else { 1 }))
    });
    let product = Setup::to(&origin).start();
    for stray in ["\r\n", "GET /more HTTP/1.1\r\nHost: test\r\n\r\n", "\0rubbish\0"] {
        for (path, length) in [("/small", 4), ("/large", 100_000)] {
            for _ in 0..20 {
                let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
                let mut peer = Peer::sending(product.web(), request);
                eventually("the endpoint thinks", || origin.busy() == 1);
                peer.send(stray);
                go.send(()).expect("the origin waits");
                let answer = peer.response();
                assert_eq!((answer.status(), answer.body.len()), (200, length), "{stray:?}");
                peer.assert_closed();
                eventually("the endpoint rests", || origin.busy() == 0);
            }
        }
    }
    assert!(origin.requests().iter().all(|request| request.target() != "/more"));
}

#[test]
fn an_interim_and_a_final_response_that_come_as_one_piece_are_passed_on_in_order_and_unchanged() {
    const HINT: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let body: Vec<u8> = (0..=255).collect();
    let answer = [HINT, b"HTTP/1.1 200 OK\r\nX-Own: 1\r\nContent-Length: 256\r\n\r\n", &body].concat();
    let origin = Origin::answering(move |_| answer.clone());
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    for _ in 0..20 {
        peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        assert_eq!(peer.head().head_text(), String::from_utf8_lossy(HINT));
        let last = peer.response();
        assert_eq!((last.status(), last.field("x-own")), (200, Some("1")));
        assert!(last.all("link").is_empty() && last.body == body, "{last:?}");
    }
    peer.assert_open();
}
