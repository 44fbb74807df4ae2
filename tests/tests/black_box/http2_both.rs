//! HTTP/2 towards clients and other versions, or the same, behind: what crosses whole, and WebSockets as streams (RFC 8441).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use bytes::Bytes;
use h2::Reason;
use h2::ext::Protocol;
use http::{HeaderMap, Request, Response};

use super::harness::http2::{Client, request, with_fields};
use super::harness::http2_origin::{Http2Origin, Rules};
use super::harness::{Origin, Setup, eventually, poll};

fn to(origin: &Http2Origin) -> Setup {
    Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]")
}

/// Sends bodies and trailers back.
fn mirror() -> Http2Origin {
    Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let Ok(mut send) = asked.respond.send_response(Response::new(()), false) else { return };
            while let Some(Ok(piece)) = asked.body.data().await {
                let _ = asked.body.flow_control().release_capacity(piece.len());
                let _ = send.send_data(piece, false);
            }
            match asked.body.trailers().await {
                Ok(Some(trailers)) => drop(send.send_trailers(trailers)),
                _ => drop(send.send_data(Bytes::new(), true)),
            }
        })
    })
}

#[test]
fn bodies_and_trailers_cross_where_both_sides_speak_http2() {
    let origin = mirror();
    let product = to(&origin).start();
    let mut client = Client::connect(product.web());
    let body = "0123456789".repeat(30_000);
    assert_eq!(client.ask(request("POST", "/"), body.as_bytes()).text(), body);
    assert_eq!(client.ask(request("POST", "/"), b"").text(), "");
    let mut stream = client.open(request("POST", "/"), false);
    client.send(&mut stream, b"body", false);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().expect("a value"));
    client.send_trailers(&mut stream, trailers);
    let answer = client.answer(stream);
    assert_eq!(answer.text(), "body");
    assert_eq!(answer.trailers.get("grpc-status").map(|value| value.as_bytes()), Some(&b"0"[..]));
    assert!(origin.heads().iter().all(|head| head.uri().authority().is_some_and(|authority| authority == "test")));
}

#[test]
fn many_streams_cross_at_once_where_both_sides_speak_http2() {
    let origin = mirror();
    let product = to(&origin).start();
    let mut client = Client::connect(product.web());
    let mut streams: Vec<_> = (0..100).map(|_| client.open(request("POST", "/"), false)).collect();
    for (index, stream) in streams.iter_mut().enumerate() {
        client.send(stream, format!("body {index}").as_bytes(), true);
    }
    for (index, stream) in streams.into_iter().enumerate() {
        assert_eq!(client.answer(stream).text(), format!("body {index}"));
    }
}

#[test]
fn a_reset_crosses_from_either_side() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            if asked.head.uri().path() == "/broken" {
                let Ok(mut send) = asked.respond.send_response(Response::new(()), false) else { return };
                let _ = send.send_data("half".into(), false);
                tokio::task::yield_now().await;
                send.send_reset(Reason::INTERNAL_ERROR);
            } else {
                // Until it is reset.
                while let Some(Ok(_)) = asked.body.data().await {}
            }
        })
    });
    let product = to(&origin).start();
    let mut client = Client::connect(product.web());
    let broken = client.open(request("GET", "/broken"), true);
    // What comes of it depends on whether the head was seen before the reset.
    match client.try_answer(broken) {
        Ok(answer) => assert_eq!(answer.status, 502),
        Err(error) => assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR)),
    }
    let mut hanging = client.open(request("POST", "/hang"), false);
    client.send(&mut hanging, b"half", false);
    eventually("it is at the endpoint", || origin.busy() == 1);
    client.reset(hanging, Reason::CANCEL);
    eventually("the endpoint is told", || origin.busy() == 0);
}

pub(super) fn websocket(path: &str) -> Request<()> {
    let mut asked = with_fields(request("CONNECT", path), &[("sec-websocket-version", "13")]);
    asked.extensions_mut().insert(Protocol::from_static("websocket"));
    asked
}

/// Sends words and reads them back, then ends.
fn echo(client: &mut Client, path: &str) {
    let mut stream = client.open(websocket(path), false);
    let (status, fields) = client.head(&mut stream).expect("a response");
    assert_eq!(status, 200);
    for name in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
        assert!(!fields.contains_key(name), "{fields:?}");
    }
    for word in ["one", "another"] {
        client.send(&mut stream, word.as_bytes(), false);
        let mut seen = Vec::new();
        while seen.len() < word.len() {
            seen.extend(client.chunk(&mut stream).expect("more").expect("bytes"));
        }
        assert_eq!(seen, word.as_bytes());
    }
    client.send(&mut stream, b"", true);
    // The end comes back too.
    while let Some(chunk) = client.chunk(&mut stream) {
        assert_eq!(chunk.expect("an orderly end"), "");
    }
}

/// An origin of HTTP/1.1 that becomes an echo; `proves` whether it has read the key.
pub(super) fn upgrading(proves: bool) -> Origin {
    Origin::start(move |mut visit| {
        let Some(request) = visit.request() else { return };
        if request.target() == "/no" {
            return visit.peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 7\r\n\r\nnot you");
        }
        let key = request.field("sec-websocket-key").unwrap_or_default();
        let accept = if proves { proof(key) } else { "wrong".to_owned() };
        let protocol = if request.target() == "/other" { "h2c" } else { "websocket" };
        visit.peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {protocol}\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        ));
        while visit.peer.fill().is_ok_and(|count| count > 0) {
            let bytes = visit.peer.drain();
            if visit.peer.try_send(bytes).is_err() {
                return;
            }
        }
        visit.peer.half_close();
    })
}

/// RFC 6455 section 4.2.2, 5.4, in the letters of RFC 4648 section 4.
pub(super) fn proof(key: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let bits: Vec<u8> = sum.as_ref().iter().flat_map(|byte| (0..8).rev().map(move |place| byte >> place & 1)).collect();
    let letter = |six: &[u8]| {
        let padded = (0..6).fold(0, |number, place| number << 1 | six.get(place).copied().unwrap_or_default());
        char::from(ALPHABET[usize::from(padded)])
    };
    // 160 bits are 26 letters and four bits, filled up with one `=`.
    bits.chunks(6).map(letter).chain(['=']).collect()
}

#[test]
fn a_websocket_on_a_stream_becomes_an_upgrade_for_an_endpoint_of_http1() {
    let origin = upgrading(true);
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    assert_eq!(client.ask(request("GET", "/no"), b"").status, 403);
    echo(&mut client, "/chat?x=1");
    let asked = origin.requests().pop().expect("a request");
    assert_eq!(asked.line, "GET /chat?x=1 HTTP/1.1");
    assert_eq!((asked.field("upgrade"), asked.field("connection")), (Some("websocket"), Some("Upgrade")));
    assert_eq!(asked.field("sec-websocket-key").map(str::len), Some(24));
    let record = product.record("the websocket", |record| record["path"] == "/chat");
    assert_eq!((&record["status"], &record["version"]), (&101.into(), &"HTTP/2".into()));
    // Refused by the endpoint, and one whose key was not read.
    let stream = client.open(websocket("/no"), false);
    let refused = client.answer(stream);
    assert_eq!((refused.status, refused.text().as_str()), (403, "not you"));
    let stream = client.open(websocket("/other"), false);
    assert_eq!(client.answer(stream).status, 502, "a protocol that was not asked for");
    let liar = upgrading(false);
    let product = Setup::to(&liar).start();
    let mut client = Client::connect(product.web());
    assert_eq!(client.get("/no").status, 403);
    let stream = client.open(websocket("/chat"), false);
    assert_eq!(client.answer(stream).status, 502);
}

/// The half that has ended says nothing of it, and nothing comes of the other.
#[test]
fn a_websocket_whose_client_has_ended_its_half_is_over_with_its_reset() {
    let ended = Arc::new(AtomicUsize::new(0));
    let seen = ended.clone();
    let one = Origin::start(move |mut visit| {
        let Some(request) = visit.request() else { return };
        let accept = proof(request.field("sec-websocket-key").unwrap_or_default());
        visit.peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        ));
        while visit.peer.fill().is_ok_and(|count| count > 0) {}
        seen.fetch_add(1, Ordering::SeqCst);
        poll::until("a reset of the connection", || visit.peer.tcp().take_error().expect("a socket"));
    });
    let seen = ended.clone();
    let two = Http2Origin::start(Rules { upgrades: true, ..Rules::default() }, move |mut asked| {
        let seen = seen.clone();
        Box::pin(async move {
            let Ok(mut send) = asked.respond.send_response(Response::new(()), false) else { return };
            while let Some(Ok(_)) = asked.body.data().await {}
            seen.fetch_add(1, Ordering::SeqCst);
            let _ = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
        })
    });
    for (index, product) in [Setup::to(&one).start(), to(&two).start()].into_iter().enumerate() {
        let mut client = Client::connect(product.web());
        if index == 1 {
            // What the endpoint offers is known from then on.
            client.ask(request("HEAD", "/"), b"");
            eventually("the first is over", || ended.swap(1, Ordering::SeqCst) == 2);
        }
        let mut stream = client.open(websocket("/chat"), false);
        assert_eq!(client.head(&mut stream).expect("a response").0, 200);
        client.send(&mut stream, b"", true);
        eventually("the endpoint has the end", || ended.load(Ordering::SeqCst) == index + 1);
        client.reset(stream, Reason::CANCEL);
        eventually("the endpoint is told", || one.open() == 0 && two.busy() == 0);
        assert_eq!(product.flagged("CD")["path"], "/chat");
    }
}

#[test]
fn a_page_in_answer_to_a_websocket_does_not_look_like_one() {
    let origin = Origin::saying("a page");
    let product = Setup::to(&origin).start();
    let mut client = Client::connect(product.web());
    let stream = client.open(websocket("/"), false);
    assert_eq!(client.answer(stream).status, 502, "200 would say that it is open");
    assert_eq!(client.get("/").text(), "a page");
}

#[test]
fn a_websocket_crosses_as_a_stream_on_both_sides() {
    let origin = Http2Origin::start(Rules { upgrades: true, ..Rules::default() }, |mut asked| {
        Box::pin(async move {
            let Ok(mut send) = asked.respond.send_response(Response::new(()), false) else { return };
            while let Some(Ok(piece)) = asked.body.data().await {
                let _ = asked.body.flow_control().release_capacity(piece.len());
                let _ = send.send_data(piece, false);
            }
            let _ = send.send_data(Bytes::new(), true);
        })
    });
    let product = to(&origin).start();
    let mut client = Client::connect(product.web());
    assert_eq!(client.ask(request("HEAD", "/"), b"").status, 200);
    echo(&mut client, "/chat");
    let head = origin.heads().pop().expect("a request");
    assert_eq!(head.extensions().get::<Protocol>().map(Protocol::as_str), Some("websocket"));
    assert!(!head.headers().contains_key("sec-websocket-key"));
}
