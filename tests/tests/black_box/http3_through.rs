//! What passes between clients that speak HTTP/3 and origins that speak something else.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use http::{HeaderMap, HeaderValue, Request, Response};

use super::harness::http2_origin::{Http2Origin, Rules};
use super::harness::http3::{Client, request};
use super::harness::origin::{ok, ok_for};
use super::harness::{Origin, Setup, eventually, poll};
use super::http3::{pattern, site};

const INTERNAL_ERROR: u64 = 0x102;
const MESSAGE_ERROR: u64 = 0x10e;

fn none() -> HeaderMap {
    HeaderMap::new()
}

/// The code that a stream was reset with.
fn reset_code(error: &h3::error::StreamError) -> Option<u64> {
    match error {
        h3::error::StreamError::RemoteTerminate { code, .. } => Some(code.value()),
        _ => None,
    }
}

#[test]
fn what_has_no_body_has_none() {
    let origin = Origin::answering(|request| match request.target() {
        "/204" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        "/304" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: \"x\"\r\n\r\n".to_vec(),
        _ => ok_for(request, "fine"),
    });
    let site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    let head = client.ask(request("HEAD", "/"), b"");
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("4"), 0));
    let empty = client.get("/204");
    assert_eq!((empty.status, empty.field("content-length"), empty.body.len()), (204, None, 0));
    let same = client.get("/304");
    assert_eq!((same.status, same.field("content-length"), same.body.len()), (304, Some("7"), 0));
}

#[test]
fn a_request_whose_end_comes_a_moment_after_its_head_has_no_body() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    // On a busy machine the moment may be too long for some.
    eventually("one comes without chunks", || {
        assert_eq!(client.get("/").text(), "fine");
        origin.requests().iter().any(|request| request.field("transfer-encoding").is_none())
    });
    // One that has a body all the same keeps it.
    let mut stream = client.open(request("GET", "/body"));
    client.send(&mut stream, b"odd");
    client.end(&mut stream, none());
    assert_eq!(client.answer(stream).status, 200);
    assert_eq!(origin.requests().pop().expect("a request").body, b"odd");
}

#[test]
fn answers_of_our_own_come_by_streams_too() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin)
        .route_before("{ match: { path: { exact: /fixed } }, respond: { status: 200, body: \"ours\" } }")
        .route_before("{ match: { path: { exact: /away } }, redirect: { path: /there } }")
        .route("match: { path: { prefix: /a } }");
    let site = site(setup, 1);
    let mut client = site.connect();
    assert_eq!(client.get("/fixed").text(), "ours");
    let away = client.get("/away");
    assert_eq!((away.status, away.field("location")), (302, Some("https://shop.example/there")));
    assert_eq!(client.get("/nowhere").status, 404);
    // A body that nobody asked for is not read.
    let mut stream = client.open(request("POST", "/fixed"));
    let _ = client.try_send(&mut stream, b"half");
    assert_eq!(client.head(&mut stream).expect("a response").0, 200);
    assert_eq!(client.get("/fixed").text(), "ours");
}

#[test]
fn large_bodies_cross_whole_and_in_bounded_memory() {
    const LENGTH: usize = 12 << 20;
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
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    client.ask(request("POST", "/warm"), b"x");
    let before = site.product.resident_bytes();
    let down = client.get("/");
    assert!(down.body == pattern(LENGTH), "what came is what was sent");
    let up = client.ask(request("POST", "/"), &pattern(LENGTH));
    let sum: u64 = pattern(LENGTH).iter().map(|&byte| u64::from(byte)).sum();
    assert_eq!(up.field("x-sum"), Some(sum.to_string().as_str()));
    let grown = site.product.resident_bytes().saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes more for bodies of {LENGTH}");
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
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    let mut unread: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = client.open(request("GET", "/large"));
            client.end(&mut stream, none());
            stream
        })
        .collect();
    for stream in &mut unread {
        assert_eq!(client.head(stream).expect("a head").0, 200);
    }
    let mut unsent = client.open(request("POST", "/slow"));
    client.send(&mut unsent, b"half");
    let mut slow = client.open(request("GET", "/slow"));
    client.end(&mut slow, none());
    for _ in 0..20 {
        assert_eq!(client.get("/quick").text(), "quick");
    }
    go.send(()).expect("the origin waits");
    assert_eq!(client.answer(slow).text(), "slow");
    for mut stream in unread {
        let mut length = 0;
        while let Some(chunk) = client.chunk(&mut stream).expect("body bytes") {
            length += chunk.len();
        }
        assert_eq!(length, 4 << 20);
    }
}

#[test]
fn an_upload_that_nobody_reads_is_held_back_and_costs_no_memory() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        let Ok(Some(mut asked)) = visit.peer.try_head() else { return };
        if asked.target() == "/upload" {
            wait.lock().expect("channel").recv().expect("the test lets it go");
        }
        visit.peer.try_body(&mut asked, false).expect("a body");
        visit.peer.send(ok(&asked.body.len().to_string()));
    });
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    let before = site.product.resident_bytes();
    let mut uploads: Vec<_> = (0..4).map(|_| client.open(request("POST", "/upload"))).collect();
    let piece = vec![7; 64 * 1024];
    // What the kernel holds between us and the origin is taken first; in the end nothing more is.
    for upload in &mut uploads {
        for _ in 0..200 {
            if !client.send_for_now(upload, &piece) {
                break;
            }
        }
    }
    let grown = site.product.resident_bytes().saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes for what nobody reads");
    assert_eq!(client.get("/other").text(), "0", "other streams go on");
    for _ in &uploads {
        go.send(()).expect("the origin waits");
    }
}

#[test]
fn clients_that_take_nothing_of_their_answers_cost_little_memory() {
    const CLIENTS: usize = 24;
    let origin = Origin::answering(|request| match request.target() {
        "/large" => ok(&"x".repeat(8 << 20)),
        _ => ok("fine"),
    });
    let site = site(Setup::to(&origin), 1);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| site.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let before = site.product.resident_bytes();
    let mut streams = Vec::new();
    for client in &mut clients {
        let mut stream = client.open(request("GET", "/large"));
        client.end(&mut stream, none());
        // The head comes; what follows is acknowledged no more, for the client stands still from here on.
        assert_eq!(client.head(&mut stream).expect("a head").0, 200);
        streams.push(stream);
    }
    eventually("all are under way", || origin.requests().len() == 2 * CLIENTS);
    eventually("nothing moves any more", || {
        let then = site.product.resident_bytes();
        std::thread::sleep(std::time::Duration::from_millis(100));
        site.product.resident_bytes().abs_diff(then) < 64 * 1024
    });
    let grown = site.product.resident_bytes().saturating_sub(before);
    assert!(grown < ((CLIENTS as u64) << 20) / 2 + (16 << 20), "{grown} bytes for {CLIENTS} clients");
    // Who takes it gets it.
    let (mut client, mut stream) = (clients.pop().expect("one"), streams.pop().expect("one"));
    let mut length = 0;
    while let Some(chunk) = client.chunk(&mut stream).expect("body bytes") {
        length += chunk.len();
    }
    assert_eq!(length, 8 << 20);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn kept_bodies_are_sent_again_to_another_endpoint() {
    let good = Origin::answering(|request| ok(&request.text()));
    let bad = Origin::start(|mut visit| {
        let _ = visit.request();
        visit.peer.reset();
    });
    let setup = Setup::to_addresses(&[bad.address(), good.address()]).cluster("retry: { on: [reset], methods: any }");
    let site = site(setup, 2);
    let mut client = site.connect();
    for _ in 0..4 {
        let mut asked = request("POST", "/");
        asked.headers_mut().insert("content-length", HeaderValue::from_static("4"));
        assert_eq!(client.ask(asked, b"said").text(), "said");
    }
    assert!(bad.connections() > 0);
}

#[test]
fn a_hundred_streams_are_carried_at_once_and_their_answers_are_not_mixed_up() {
    let origin = Origin::answering(|request| ok(request.target()));
    let site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    for round in 0..3 {
        let mut streams: Vec<_> =
            (0..100).map(|index| client.open(request("GET", &format!("/{round}/{index}")))).collect();
        for stream in &mut streams {
            client.end(stream, none());
        }
        for (index, stream) in streams.into_iter().enumerate() {
            assert_eq!(client.answer(stream).text(), format!("/{round}/{index}"));
        }
    }
    site.product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 300.0);
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
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    let mut asked = request("POST", "/");
    asked.headers_mut().insert("expect", HeaderValue::from_static("100-continue"));
    let mut stream = client.open(asked);
    assert_eq!(client.head(&mut stream).expect("leave to go on").0, 100);
    client.send(&mut stream, b"body");
    client.end(&mut stream, none());
    let (status, hints) = client.head(&mut stream).expect("hints");
    assert_eq!((status, hints.get("link").map(HeaderValue::as_bytes)), (103, Some(&b"</a.css>"[..])));
    assert_eq!(hints.len(), 1, "what `Connection` names stays here: {hints:?}");
    assert_eq!(client.answer(stream).text(), "body");
}

#[test]
fn a_client_that_gives_up_frees_its_endpoint() {
    let origin = Origin::start(|mut visit| {
        let Some(request) = visit.request() else { return };
        if request.target() == "/hang" {
            visit.peer.wait_closed();
            return;
        }
        visit.peer.send(ok("fine"));
    });
    let setup = Setup::to_endpoints([format!("{{ address: \"{}\", connections_max: 1 }}", origin.address())])
        .cluster("queue: { requests_max: 10, timeout: 20s }");
    let site = site(setup, 2);
    let mut client = site.connect();
    let mut hanging = client.open(request("GET", "/hang"));
    client.end(&mut hanging, none());
    eventually("it is at the endpoint", || {
        client.flush();
        origin.requests().len() == 1
    });
    let mut waiting = client.open(request("GET", "/next"));
    client.end(&mut waiting, none());
    client.cancel(hanging);
    assert_eq!(client.answer(waiting).text(), "fine");
    assert_eq!(site.product.flagged("CW")["path"], "/hang");
}

#[test]
fn a_client_that_leaves_ends_what_was_under_way_for_it() {
    let origin = Origin::start(|mut visit| {
        if visit.request().is_some() {
            visit.peer.wait_closed();
        }
    });
    let site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    let mut hanging = client.open(request("GET", "/hang"));
    client.end(&mut hanging, none());
    eventually("it is at the endpoint", || {
        client.flush();
        origin.requests().len() == 1
    });
    drop(client);
    assert_eq!(site.product.flagged("CW")["path"], "/hang");
    eventually("the endpoint is free", || origin.open() == 0);
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
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    assert_eq!(client.get("/before").status, 502);
    for path in ["/length", "/chunked"] {
        let mut stream = client.open(request("GET", path));
        client.end(&mut stream, none());
        let error = client.try_answer(&mut stream).expect_err("a response that is cut short does not look whole");
        assert_eq!(reset_code(&error), Some(INTERNAL_ERROR), "{path}: {error}");
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
    let setup = Setup::to(&origin)
        .route_before("{ match: { path: { exact: /hang } }, cluster: site, timeout: 300ms }")
        .listener("timeouts: { stream: 4s, head: 3s }");
    let site = site(setup, 1);
    let mut client = site.connect();
    let mut hanging = client.open(request("GET", "/hang"));
    client.end(&mut hanging, none());
    let mut uploading = client.open(request("POST", "/upload"));
    client.send(&mut uploading, b"half");
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(client.answer(hanging).status, 504);
    assert_eq!(client.head(&mut uploading).expect("an answer").0, 408);
    assert_eq!(site.product.flagged("CBT")["path"], "/upload");
    // Of a head only the first byte comes.
    client.with_quic("an answer", async |quic| {
        let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
        send.write_all(&[1]).await.expect("it is taken");
        assert!(receive.read_chunk(4096, true).await.expect("an answer").is_some());
    });
    assert_eq!(site.product.flagged("CT")["status"], 408);
    assert_eq!(client.get("/").text(), "fine");
}

#[test]
fn a_body_that_is_not_as_long_as_it_says_never_counts_as_whole() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    for (length, body) in [("10", &b"half"[..]), ("2", b"more")] {
        let mut asked = request("POST", "/");
        asked.headers_mut().insert("content-length", HeaderValue::from_static(length));
        let mut stream = client.open(asked);
        let _ = client.try_send(&mut stream, body);
        client.end(&mut stream, none());
        let outcome = client.try_answer(&mut stream);
        let error = outcome.err().unwrap_or_else(|| panic!("{length}: it has an answer"));
        assert_eq!(reset_code(&error), Some(MESSAGE_ERROR), "{length}: {error:?}");
    }
    assert_eq!(client.get("/").status, 200);
    assert!(origin.requests().iter().all(|request| request.method() == "GET"), "no such body came through whole");
}

#[test]
fn calls_of_grpc_pass_to_endpoints_that_speak_http2() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let Ok((body, _)) = asked.read().await else { return };
            let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
            let mut speech = asked.begin(head);
            speech.say(body).await;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            speech.end_with(trailers);
        })
    });
    let site = site(Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]"), 1);
    let mut client = site.connect();
    let call = |path: &str| {
        let head = Request::builder().method("POST").uri(format!("https://shop.example{path}"));
        head.header("content-type", "application/grpc").header("te", "trailers").body(()).expect("a head")
    };
    let message = [&[0, 0, 0, 0, 5][..], b"pears"].concat();
    let answer = client.ask(call("/shop.Cart/Add"), &message);
    assert_eq!((answer.status, answer.body), (200, message));
    assert_eq!(answer.trailers.get("grpc-status").map(HeaderValue::as_bytes), Some(&b"0"[..]));
}

#[test]
fn an_answer_of_our_own_to_a_call_is_a_status_of_grpc() {
    let site = site(Setup::to_addresses(&[super::harness::net::refusing()]).cluster("http_versions: [h2]"), 1);
    let head = Request::builder().method("POST").uri("https://shop.example/shop.Cart/Add");
    let call = head.header("content-type", "application/grpc").header("te", "trailers").body(()).expect("a head");
    let answer = site.connect().ask(call, b"");
    assert_eq!((answer.status, answer.field("grpc-status")), (200, Some("14")));
}

/// A section of a request for a WebSocket, with what else it has.
fn websocket() -> Vec<u8> {
    let mut section = vec![0, 0];
    // `:method: CONNECT`, `:scheme: https`, `:path: /` are those of the static table.
    section.extend([0xcf, 0xd7, 0xc1, 0x50, 12]);
    section.extend(b"shop.example");
    section.extend([0x27, 2]);
    section.extend(b":protocol");
    section.push(9);
    section.extend(b"websocket");
    section.extend([0x27, 14]);
    section.extend(b"sec-websocket-version");
    section.extend([2, b'1', b'3']);
    section
}

#[test]
fn a_websocket_becomes_an_upgrade_for_an_endpoint_of_http1() {
    let origin = super::http2_both::upgrading(true);
    let site = site(Setup::to(&origin), 2);
    let client: Client = site.connect();
    client.with_quic("an echo", async |quic| {
        let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
        let section = websocket();
        let mut bytes = vec![1, 0x40, section.len() as u8];
        bytes.extend(section);
        send.write_all(&bytes).await.expect("it is taken");
        let mut head = [0; 2];
        receive.read_exact(&mut head).await.expect("a frame");
        assert_eq!(head[0], 1, "HEADERS");
        // RFC 9000 section 16.
        let mut more = vec![0; (1 << (head[1] >> 6)) - 1];
        receive.read_exact(&mut more).await.expect("its length");
        let length = more.iter().fold(usize::from(head[1] & 0x3f), |length, byte| length << 8 | usize::from(*byte));
        let mut fields = vec![0; length];
        receive.read_exact(&mut fields).await.expect("a section");
        // `:status: 200` is number 25 of the static table.
        assert_eq!(fields[..3], [0, 0, 0xd9], "{fields:?}");
        assert!(!fields.windows(6).any(|six| six == b"accept"), "{fields:?}");
        for word in ["one", "another"] {
            let mut frame = vec![0, word.len() as u8];
            frame.extend(word.as_bytes());
            send.write_all(&frame).await.expect("it is taken");
            let mut back = vec![0; frame.len()];
            receive.read_exact(&mut back).await.expect("an echo");
            assert_eq!(back, frame);
        }
        send.finish().expect("an end");
        assert!(receive.read_to_end(100).await.expect("an orderly end").is_empty());
    });
    let received = origin.only_request();
    assert_eq!(received.line, "GET / HTTP/1.1");
    assert_eq!(received.field("upgrade"), Some("websocket"));
    let record = site.product.record("the tunnel", |record| record["status"] == 101);
    assert_eq!(record["version"], "HTTP/3");
}

/// The half that has ended says nothing of it, and nothing comes of the other.
#[test]
fn a_websocket_whose_client_has_ended_its_half_is_over_when_it_wants_no_more() {
    let origin = Origin::start(|mut visit| {
        let Some(request) = visit.request() else { return };
        let accept = super::http2_both::proof(request.field("sec-websocket-key").unwrap_or_default());
        visit.peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\nhello"
        ));
        while visit.peer.fill().is_ok_and(|count| count > 0) {}
        let _busy = visit.book.busy();
        poll::until("a reset of the connection", || visit.peer.tcp().take_error().expect("a socket"));
    });
    let site = site(Setup::to(&origin), 1);
    let client: Client = site.connect();
    client.with_quic("a tunnel that is over", async |quic| {
        let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
        let section = websocket();
        let bytes = [&[1, 0x40, section.len() as u8][..], &section].concat();
        send.write_all(&bytes).await.expect("it is taken");
        receive.read_chunk(4096, true).await.expect("an answer").expect("a head");
        send.finish().expect("an end");
        while origin.busy() == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        receive.stop(0x10c_u32.into()).expect("it goes on");
        while origin.open() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    assert_eq!(site.product.flagged("CD")["status"], 101);
}
