//! HTTP/2 towards clients, before origins that speak HTTP/1.1.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use h2::Reason;
use http::HeaderMap;

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::{ok, ok_for};
use super::harness::tls::{Authority, Client as TlsClient};
use super::harness::{Origin, Peer, Product, Setup, eventually, product, tls};
use super::retries::Over;

fn chunked(body: &str, trailers: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{body}\r\n0\r\n{trailers}\r\n", body.len()).into_bytes()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_client_that_knows_http2_beforehand_is_understood_on_a_plain_listener() {
    let origin = Origin::answering(|request| ok_for(request, "fine"));
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    let answer = client.get("/a?b=c");
    assert_eq!((answer.status, answer.text().as_str()), (200, "fine"));
    assert_eq!(answer.field("content-length"), Some("4"));
    assert!(answer.field("connection").is_none());
    let received = origin.only_request();
    assert_eq!(received.line, "GET /a?b=c HTTP/1.1");
    assert_eq!(received.fields[0], ("Host".to_owned(), "test".to_owned()), "Host comes first");
    let record = product.record("the request", |record| record["path"] == "/a");
    assert_eq!((&record["version"], &record["status"]), (&"HTTP/2".into(), &200.into()));
    // The same connection goes on, and HTTP/1.1 beside it.
    assert_eq!(client.get("/again").status, 200);
    assert_eq!(product.get("/").status(), 200);
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 2.0);
}

#[test]
fn the_preface_may_come_in_pieces_and_a_post_is_not_taken_for_it() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    use super::harness::frames::{HEADERS, PREFACE, SETTINGS, frame, get_frame, read_until};
    for piece in PREFACE.chunks(5) {
        peer.send(piece);
        // So that the pieces are seen apart, as far as that can be had.
        std::thread::sleep(Duration::from_millis(5));
    }
    peer.send([frame(SETTINGS, 0, 0, &[]), get_frame(1)].concat());
    read_until(&mut peer, HEADERS, 1);
    let mut peer = product.connect();
    peer.send("P");
    std::thread::sleep(Duration::from_millis(5));
    peer.send("OST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(peer.response().status(), 200);
    let mut peer = product.connect();
    peer.send("PRI * HTTP/2.0\r\n\r\nXX");
    assert_eq!(peer.response().status(), 505);
}

#[test]
fn a_listener_speaks_what_it_is_told_to() {
    let origin = Origin::saying("fine");
    let only_1 = Setup::to(&origin).listener("http_versions: [h1]").start();
    let mut peer = only_1.connect();
    peer.send(super::harness::frames::PREFACE);
    assert_eq!(peer.response().status(), 505);
    assert_eq!(only_1.get("/").status(), 200);
    let only_2 = Setup::to(&origin).listener("http_versions: [h2]").start();
    assert_eq!(only_2.get("/").status(), 505);
    assert_eq!(Client::connect(only_2.web()).get("/").status, 200);
}

#[test]
fn with_tls_the_handshake_chooses_and_http2_is_preferred() {
    let authority = Authority::new("test authority");
    let folder = product::folder();
    authority.issue(&["test"]).write(folder.path(), "site");
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin).listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }").text();
    let product = Product::start_in(folder, &text, 2);
    let offering = |protocols| TlsClient { protocols, ..TlsClient::trusting(&authority) }.config();
    let mut client = Client::connect_tls(product.web(), "test", &offering(&["http/1.1", "h2"]));
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(product.record("it", |_| true)["scheme"], "https");
    let mut peer = tls::connect(product.web(), "test", &offering(&["http/1.1"]));
    assert_eq!(peer.get("/").text(), "fine");
    // A client that agrees on nothing speaks HTTP/1.1, and the preface is no request there.
    let mut peer = tls::connect(product.web(), "test", &offering(&[]));
    peer.send(super::harness::frames::PREFACE);
    assert_eq!(peer.response().status(), 505);
    let text = text.replace("    tls:", "    http_versions: [h1]\n    tls:");
    product.reload(&text);
    let peer = tls::connect(product.web(), "test", &offering(&["h2", "http/1.1"]));
    assert_eq!(peer.tls().alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(client.get("/still").text(), "fine", "a connection outlives the change");
}

#[test]
fn bodies_of_every_framing_cross_both_ways() {
    let origin = Origin::answering(|request| {
        let body = request.text();
        match request.target() {
            "/length" => ok(&body),
            "/chunked" => chunked(&body, ""),
            _ => format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}").into_bytes(),
        }
    });
    let closing = Origin::start(|mut visit| {
        if let Some(request) = visit.request() {
            visit.peer.send(format!("HTTP/1.1 200 OK\r\n\r\n{}", request.text()));
        }
    });
    let product = Setup::to(&origin)
        .route_before("{ match: { path: { prefix: /close } }, cluster: closing }")
        .cluster_more(format!("closing: {{ endpoints: [\"{}\"] }}", closing.address()))
        .start();
    let mut client = Client::connect(product.web());
    for path in ["/length", "/chunked", "/close"] {
        let answer = client.ask(request("POST", path), b"said");
        assert_eq!((answer.status, answer.text().as_str()), (200, "said"), "{path}");
    }
    let told = client.ask(with_fields(request("POST", "/length"), &[("content-length", "4")]), b"said");
    assert_eq!(told.text(), "said");
    let lengths: Vec<_> = origin.requests().iter().map(|request| request.field("content-length").is_some()).collect();
    assert_eq!(lengths, [false, false, true]);
    assert_eq!(client.ask(request("POST", "/length"), b"").text(), "");
}

#[test]
fn what_has_no_body_has_none() {
    let origin = Origin::answering(|request| match request.target() {
        "/204" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        "/304" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: \"x\"\r\n\r\n".to_vec(),
        _ => ok_for(request, "fine"),
    });
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    let head = client.ask(request("HEAD", "/"), b"");
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("4"), 0));
    let empty = client.get("/204");
    assert_eq!((empty.status, empty.field("content-length"), empty.body.len()), (204, None, 0));
    let same = client.get("/304");
    assert_eq!((same.status, same.field("content-length"), same.body.len()), (304, Some("7"), 0));
    assert_eq!(client.ask(request("OPTIONS", "/"), b"").status, 200);
}

#[test]
fn large_bodies_cross_whole_and_in_bounded_memory() {
    const LENGTH: usize = 24 << 20;
    let origin = Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            let body = if request.method() == "GET" { pattern(LENGTH) } else { Vec::new() };
            let sum: u64 = request.body.iter().map(|&byte| u64::from(byte)).sum();
            let head = format!("HTTP/1.1 200 OK\r\nX-Sum: {sum}\r\nContent-Length: {}\r\n\r\n", body.len());
            if visit.peer.try_send(head).and_then(|()| visit.peer.try_send(body)).is_err() {
                return;
            }
        }
    });
    let product = Setup::to(&origin).workers(1).start();
    let mut client = Client::with(product.web(), |builder| {
        builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
    });
    client.get("/warm");
    let before = product.resident_bytes();
    let down = client.get("/");
    assert!(down.body == pattern(LENGTH), "what came is what was sent");
    let up = client.ask(request("POST", "/"), &pattern(LENGTH));
    let sum: u64 = pattern(LENGTH).iter().map(|&byte| u64::from(byte)).sum();
    assert_eq!(up.field("x-sum"), Some(sum.to_string().as_str()));
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more for bodies of {LENGTH}");
}

#[test]
fn a_stream_that_nobody_reads_holds_no_other_back() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::answering(move |request| match request.target() {
        "/large" => ok(&"x".repeat(4 << 20)),
        "/slow" => {
            wait.lock().expect("channel").recv().expect("the test lets it go");
            ok("slow")
        }
        _ => ok("quick"),
    });
    let product = Setup::to(&origin).workers(1).start();
    let mut client = Client::with(product.web(), |builder| {
        builder.initial_connection_window_size(8 << 20);
    });
    let mut unread: Vec<_> = (0..8).map(|_| client.open(request("GET", "/large"), true)).collect();
    for stream in &mut unread {
        assert_eq!(client.head(stream).expect("a head").0, 200);
    }
    let mut unsent = client.open(request("POST", "/slow"), false);
    client.send(&mut unsent, b"half", false);
    let slow = client.open(request("GET", "/slow"), true);
    for _ in 0..20 {
        assert_eq!(client.get("/quick").text(), "quick");
    }
    go.send(()).expect("the origin waits");
    assert_eq!(client.answer(slow).text(), "slow");
    for mut stream in unread {
        let mut length = 0;
        while let Some(chunk) = client.chunk(&mut stream) {
            length += chunk.expect("body bytes").len();
        }
        assert_eq!(length, 4 << 20);
    }
}

#[test]
fn a_hundred_streams_are_carried_at_once_and_their_answers_are_not_mixed_up() {
    let origin = Origin::answering(|request| ok(request.target()));
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    for round in 0..5 {
        let streams: Vec<_> =
            (0..100).map(|index| client.open(request("GET", &format!("/{round}/{index}")), true)).collect();
        for (index, stream) in streams.into_iter().enumerate() {
            assert_eq!(client.answer(stream).text(), format!("/{round}/{index}"));
        }
    }
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 500.0);
}

#[test]
fn streams_come_and_go_beside_one_that_stays_and_alone() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::answering(move |request| {
        if request.target().starts_with("/stay") {
            wait.lock().expect("channel").recv().expect("the test lets it go");
        }
        ok(request.target())
    });
    let product = Setup::to(&origin).workers(1).start();
    let mut client = Client::connect(product.web());
    for round in 0..4 {
        let path = |what: &str| format!("/{what}/{round}");
        let first = client.open(request("GET", &path("stay")), true);
        for _ in 0..3 {
            assert_eq!(client.get(&path("beside")).text(), path("beside"));
        }
        let second = client.open(request("GET", &path("stay/beside")), true);
        assert_eq!(client.get(&path("beside")).text(), path("beside"));
        go.send(()).expect("the origin waits");
        go.send(()).expect("the origin waits");
        assert_eq!(client.answer(first).text(), path("stay"));
        for _ in 0..3 {
            assert_eq!(client.get(&path("alone")).text(), path("alone"));
        }
        assert_eq!(client.answer(second).text(), path("stay/beside"));
    }
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 36.0);
}

#[test]
fn a_client_that_goes_ends_all_of_its_streams() {
    let origin = Origin::start(|mut visit| {
        if visit.request().is_some() {
            visit.peer.wait_closed();
        }
    });
    let product = Setup::to(&origin).start();
    for round in 1..4 {
        let mut client = Client::connect(product.web());
        let hanging: Vec<_> = (0..3).map(|_| client.open(request("GET", "/hang"), true)).collect();
        eventually("all are at the endpoint", || origin.requests().len() == 3 * round);
        drop((hanging, client));
        product.expect_metric("equipoise_faults_total", &["fault=\"closed_in_wait\""], (3 * round) as f64);
    }
    product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
}

#[test]
fn trailers_cross_both_ways() {
    let origin = Origin::answering(|request| {
        let told = request.trailers.iter().map(|(name, value)| format!("{name}={value};")).collect::<String>();
        chunked(&told, "Grpc-Status: 0\r\nX-Sum: 7\r\nSet-Cookie: no\r\n")
    });
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    let mut stream = client.open(request("POST", "/"), false);
    client.send(&mut stream, b"body", false);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "abc".parse().expect("a value"));
    trailers.insert("cookie", "no".parse().expect("a value"));
    client.send_trailers(&mut stream, trailers);
    let answer = client.answer(stream);
    assert_eq!(answer.text(), "x-checksum=abc;");
    assert_eq!(answer.trailers.get("grpc-status").map(|value| value.as_bytes()), Some(&b"0"[..]));
    assert_eq!(answer.trailers.get("x-sum").map(|value| value.as_bytes()), Some(&b"7"[..]));
    assert_eq!(answer.trailers.len(), 2, "a cookie is no trailer");
    // Trailers without a body.
    let mut stream = client.open(request("POST", "/"), false);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-alone", "1".parse().expect("a value"));
    client.send_trailers(&mut stream, trailers);
    assert_eq!(client.answer(stream).text(), "x-alone=1;");
}

#[test]
fn interim_responses_are_passed_on_before_the_final_one() {
    let origin = Origin::start(|mut visit| {
        while let Ok(Some(mut request)) = visit.peer.try_head() {
            if request.field("expect").is_some() {
                visit.peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            }
            visit.peer.try_body(&mut request, false).expect("a body");
            visit.peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\nX: 1\r\n\r\n");
            visit.peer.send(ok(&request.text()));
        }
    });
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    let mut stream = client.open(with_fields(request("POST", "/"), &[("expect", "100-continue")]), false);
    client.send(&mut stream, b"body", true);
    let (status, _) = client.head(&mut stream).expect("a response");
    assert_eq!(status, 200);
    let statuses: Vec<_> = stream.interim.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [100, 103]);
    let hints = &stream.interim[1].1;
    assert_eq!(hints.get("link").map(|value| value.as_bytes()), Some(&b"</a.css>"[..]));
    assert_eq!(hints.len(), 1, "what `Connection` names stays here: {hints:?}");
}

#[test]
fn answers_of_our_own_come_by_streams_too() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin)
        .route_before("{ match: { path: { exact: /fixed } }, respond: { status: 200, body: \"ours\" } }")
        .route_before("{ match: { path: { exact: /away } }, redirect: { path: /there } }")
        .route("match: { path: { prefix: /a } }")
        .start();
    let mut client = Client::connect(product.web());
    assert_eq!(client.get("/fixed").text(), "ours");
    let head = client.ask(request("HEAD", "/fixed"), b"");
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("4"), 0));
    let away = client.get("/away");
    assert_eq!((away.status, away.field("location")), (302, Some("http://test/there")));
    let missing = client.get("/nowhere");
    assert_eq!((missing.status, missing.field("content-type")), (404, Some("text/plain; charset=utf-8")));
    // A body that nobody asked for is not read.
    let mut stream = client.open(request("POST", "/fixed"), false);
    // The answer may be here already, and with it the end of interest.
    let _ = client.try_send(&mut stream, b"half", false);
    let (status, _) = client.head(&mut stream).expect("a response");
    assert_eq!(status, 200);
    assert_eq!(client.get("/fixed").text(), "ours");
}

#[test]
fn a_client_that_resets_frees_its_endpoint() {
    let origin = Origin::start(|mut visit| {
        let Some(request) = visit.request() else { return };
        if request.target() == "/hang" {
            visit.peer.wait_closed();
            return;
        }
        visit.peer.send(ok("fine"));
    });
    let product = Setup::to_endpoints([format!("{{ address: \"{}\", connections_max: 1 }}", origin.address())])
        .cluster("queue: { requests_max: 10, timeout: 20s }")
        .start();
    let mut client = Client::connect(product.web());
    let hanging = client.open(request("GET", "/hang"), true);
    eventually("it is at the endpoint", || origin.requests().len() == 1);
    let waiting = client.open(request("GET", "/next"), true);
    client.reset(hanging, Reason::CANCEL);
    assert_eq!(client.answer(waiting).text(), "fine");
    assert_eq!(product.flagged("CW")["path"], "/hang");
}

#[test]
fn a_client_that_resets_in_the_queue_leaves_it_and_one_that_has_said_all_stays() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::answering(move |_| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok("fine")
    });
    let product = Setup::to_endpoints([format!("{{ address: \"{}\", connections_max: 1 }}", origin.address())])
        .cluster("queue: { requests_max: 10, timeout: 20s }")
        .start();
    let mut client = Client::connect(product.web());
    let first = client.open(request("GET", "/1"), true);
    eventually("it is at the endpoint", || origin.busy() == 1);
    let second = client.open(request("GET", "/2"), true);
    product.expect_metric("equipoise_cluster_queue_length", &[], 1.0);
    let third = client.open(request("GET", "/3"), true);
    product.expect_metric("equipoise_cluster_queue_length", &[], 2.0);
    client.reset(second, Reason::CANCEL);
    assert_eq!(product.flagged("CQ")["path"], "/2");
    go.send(()).expect("the origin waits");
    go.send(()).expect("the origin waits");
    assert_eq!(client.answer(first).status, 200);
    assert_eq!(client.answer(third).status, 200);
}

#[test]
fn an_origin_that_breaks_off_before_a_head_gives_502_and_after_it_a_reset() {
    let origin = Origin::start(|mut visit| {
        let Some(request) = visit.request() else { return };
        match request.target() {
            "/before" => visit.peer.reset(),
            "/length" => visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            _ => visit.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
        }
    });
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    assert_eq!(client.get("/before").status, 502);
    for path in ["/length", "/chunked"] {
        let stream = client.open(request("GET", path), true);
        let error = client.try_answer(stream).expect_err("a response that is cut short does not look whole");
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{path}");
    }
    assert_eq!(client.get("/before").status, 502, "the connection goes on");
}

#[test]
fn time_outs_hold_for_each_stream_alone() {
    let origin = Origin::start(|mut visit| {
        while let Ok(Some(request)) = visit.peer.try_head() {
            match request.target() {
                "/hang" => drop(visit.peer.wait_closed()),
                "/upload" => visit.peer.wait_closed_or_answered(),
                _ => visit.peer.send(ok("fine")),
            }
        }
    });
    let product = Setup::to(&origin)
        .route_before("{ match: { path: { exact: /hang } }, cluster: site, timeout: 300ms }")
        .listener("timeouts: { stream: 4s }")
        .start();
    let mut client = Client::connect(product.web());
    let hanging = client.open(request("GET", "/hang"), true);
    let mut uploading = client.open(request("POST", "/upload"), false);
    client.send(&mut uploading, b"half", false);
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(client.answer(hanging).status, 504);
    let (status, _) = client.head(&mut uploading).expect("an answer");
    assert_eq!(status, 408);
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(product.flagged("CBT")["path"], "/upload");
}

#[test]
fn a_client_that_does_not_open_its_window_is_given_up() {
    let origin = Origin::answering(|_| ok(&"x".repeat(1 << 20)));
    let product = Setup::to(&origin).listener("timeouts: { stream: 400ms }").start();
    let mut client = Client::connect(product.web());
    let mut stream = client.open(request("GET", "/"), true);
    assert_eq!(client.head(&mut stream).expect("a head").0, 200);
    product.flagged("CDT");
    let outcome = loop {
        match client.chunk(&mut stream) {
            Some(Ok(_)) => {}
            other => break other,
        }
    };
    assert_eq!(outcome.expect("an error").expect_err("not whole").reason(), Some(Reason::INTERNAL_ERROR));
}

#[test]
fn an_idle_connection_is_told_and_closed_and_one_at_work_is_not() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::answering(move |request| {
        if request.target() == "/slow" {
            wait.lock().expect("channel").recv().expect("the test lets it go");
        }
        ok("fine")
    });
    let product = Setup::to(&origin).listener("timeouts: { idle: 4s }").start();
    let mut idle = Client::connect(product.web());
    let mut busy = Client::connect(product.web());
    assert_eq!(idle.get("/").status, 200);
    let slow = busy.open(request("GET", "/slow"), true);
    idle.ended().expect("an orderly end");
    go.send(()).expect("the origin waits");
    assert_eq!(busy.answer(slow).text(), "fine");
    product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
}

#[test]
fn a_dead_client_is_found_though_its_exchange_goes_on() {
    let origin = Origin::start(|mut visit| {
        if visit.request().is_some() {
            visit.peer.wait_closed();
        }
    });
    let product = Setup::to(&origin).listener("timeouts: { idle: 3s }").start();
    let mut peer = product.connect();
    use super::harness::frames::{PING, begin, get_frame, read_until};
    begin(&mut peer);
    peer.send(get_frame(1));
    let ping = read_until(&mut peer, PING, 0);
    assert_eq!((ping.flags, ping.payload.len()), (0, 8));
    // It answers, and is asked again.
    peer.send(super::harness::frames::frame(PING, 1, 0, &ping.payload));
    read_until(&mut peer, PING, 0);
    eventually("its exchange goes on", || origin.open() == 1);
}

#[test]
fn a_connection_that_has_carried_enough_requests_is_ended_in_good_order() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).listener("requests_per_connection_max: 3").start();
    let mut client = Client::connect(product.web());
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "fine");
    }
    client.ended().expect("an orderly end");
}

#[test]
fn a_drain_finishes_what_is_begun_and_begins_nothing() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::answering(move |_| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok("last")
    });
    let mut product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    let mut idle = Client::connect(product.web());
    let slow = client.open(request("GET", "/"), true);
    eventually("it is under way", || origin.busy() == 1);
    product.signal(libc::SIGTERM);
    eventually("it drains", || product.stderr().contains("draining"));
    idle.ended().expect("an orderly end");
    let told = std::time::Instant::now();
    while client.try_open(request("GET", "/more"), true).is_ok() {
        assert!(told.elapsed() < Duration::from_secs(30), "GOAWAY is due");
        for _ in 0..2 {
            let _ = go.send(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..2 {
        let _ = go.send(());
    }
    assert_eq!(client.answer(slow).text(), "last");
    client.ended().expect("an orderly end");
    assert_eq!(product.wait_ended().code(), Some(0));
}

#[test]
fn a_drain_that_lasts_too_long_cuts_streams_off_and_still_records_them() {
    let origin = Origin::start(|mut visit| {
        if visit.request().is_some() {
            visit.peer.wait_closed();
        }
    });
    let mut product = Setup::to(&origin).top("shutdown: { drain_timeout: 200ms }").start();
    let mut client = Client::connect(product.web());
    let hanging = client.open(request("GET", "/hang"), true);
    let beside = client.open(request("GET", "/hang"), true);
    eventually("they are under way", || origin.requests().len() == 2);
    product.signal(libc::SIGTERM);
    assert!(client.try_answer(hanging).is_err());
    assert!(client.try_answer(beside).is_err());
    assert_eq!(product.wait_ended().code(), Some(4));
    assert_eq!(product.flagged("PX")["path"], "/hang");
}

#[test]
fn a_change_of_configuration_loses_no_request_of_any_stream() {
    let origins: Vec<_> = (0..3).map(|_| Origin::answering(|request| ok(request.target()))).collect();
    let one = Setup::to_all(&origins[..2]).text();
    let two = Setup::to_all(&origins[1..]).route("timeout: 20s").text();
    let product = Setup::to_all(&origins[..2]).start();
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&stop);
        for client in 0..3 {
            let (stop, rounds, web) = (&stop, &rounds, product.web());
            scope.spawn(move || {
                let mut connection = Client::connect(web);
                let mut round = 0;
                while round == 0 || !stop.load(Ordering::Relaxed) {
                    let path = |index| format!("/{client}/{round}/{index}");
                    let streams: Vec<_> =
                        (0..8).map(|index| connection.open(request("GET", &path(index)), true)).collect();
                    for (index, stream) in streams.into_iter().enumerate() {
                        assert_eq!(connection.answer(stream).text(), path(index));
                    }
                    round += 1;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..5 {
            for text in [&two, &one] {
                let before = rounds.load(Ordering::Relaxed);
                eventually("all go on", || rounds.load(Ordering::Relaxed) > before + 6);
                let said = product.reload(text);
                assert!(said.contains("configuration is live"), "{said}");
            }
        }
    });
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 3.0);
}

#[test]
fn a_listener_that_goes_ends_its_connections_in_good_order() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin);
    let extra = setup.text().replace("routes:\n", "  extra: { bind: \"127.0.0.1:0\" }\nroutes:\n");
    let product = Product::start_in(product::folder(), &extra, 2);
    let mut client = Client::connect(product.address("extra"));
    let mut other = Client::connect(product.web());
    assert_eq!((client.get("/").status, other.get("/").status), (200, 200));
    product.reload(&setup.text());
    client.ended().expect("an orderly end");
    assert_eq!(other.get("/").status, 200);
}

#[test]
fn kept_bodies_are_sent_again_to_another_endpoint() {
    let good = Origin::answering(|request| ok(&request.text()));
    let bad = Origin::start(|mut visit| {
        let _ = visit.request();
        visit.peer.reset();
    });
    let product =
        Setup::to_addresses(&[bad.address(), good.address()]).cluster("retry: { on: [reset], methods: any }").start();
    let mut client = Client::connect(product.web());
    for _ in 0..4 {
        let told = with_fields(request("POST", "/"), &[("content-length", "4")]);
        assert_eq!(client.ask(told, b"said").text(), "said");
    }
    assert!(bad.connections() > 0);
}

#[test]
fn idle_connections_hold_little_memory() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).workers(1).start();
    let mut warm: Vec<_> = (0..20).map(|_| Client::connect(product.web())).collect();
    warm.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    let before = product.resident_bytes();
    let mut idle: Vec<_> = (0..200).map(|_| Client::connect(product.web())).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    let each = product.resident_bytes().saturating_sub(before) / 200;
    assert!(each < 24 * 1024, "{each} bytes for an idle connection");
    let mut peer = Peer::connect(product.web());
    assert_eq!(peer.get("/").status(), 200);
}
