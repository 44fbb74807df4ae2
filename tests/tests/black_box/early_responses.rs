//! A response that is complete before its request, over HTTP/2 and HTTP/3: the client may go on to send its body.

use std::time::{Duration, Instant};

use super::harness::frames::{
    DATA, END_HEADERS, END_STREAM, Frame, HEADERS, RST_STREAM, begin, block, frame, get_frame, read, read_until,
};
use super::harness::http3::Client;
use super::harness::{Origin, Peer, Product, Setup};
use super::http3::{Site, site};

const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;
const H3_NO_ERROR: u64 = 0x100;
/// How long the product waits for the end of a request, and how much of it it takes in.
const PATIENCE: Duration = Duration::from_secs(1);
const BODY_BYTES_MAX: usize = 128 * 1024;
/// Streams that a client may have open at once.
const STREAMS_MAX: u32 = 128;

/// A path for every way in which a response can come before the end of its request.
const PATHS: [(&str, u64); 5] =
    [("/respond", 200), ("/redirect", 302), ("/refuse", 401), ("/fault", 503), ("/early", 403)];

/// An origin that answers heads, and what is needed for [`PATHS`].
fn setup() -> (Origin, Setup) {
    let origin = Origin::start(|mut visit| {
        while let Ok(Some(_)) = visit.peer.try_head() {
            if visit.peer.try_send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").is_err() {
                return;
            }
        }
    });
    let users = "bob: \"$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\"";
    let refuse = format!("filters: [{{ basic_auth: {{ users: {{ {users} }} }} }}]");
    let setup = Setup::to(&origin)
        .route_before("{ match: { path: { exact: /respond } }, respond: { status: 200, body: all of it } }")
        .route_before("{ match: { path: { exact: /redirect } }, redirect: { host: other, status: 302 } }")
        .route_before(format!("{{ match: {{ path: {{ exact: /refuse }} }}, {refuse}, cluster: site }}"))
        .route_before("{ match: { path: { exact: /fault } }, cluster: nowhere }")
        .cluster_more("nowhere: { endpoints: [{ address: \"127.0.0.1:9\", state: maintenance }] }");
    (origin, setup)
}

fn start() -> (Origin, Product) {
    let (origin, setup) = setup();
    (origin, setup.workers(1).start())
}

/// The head of a request whose body is still to come.
fn post(stream: u32, path: &str) -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 4] =
        [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"test"), (b":path", path.as_bytes())];
    frame(HEADERS, END_HEADERS, stream, &block(&fields))
}

fn code(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.payload[..4].try_into().expect("four bytes"))
}

/// Reads until the response on this stream is complete: everything that came.
fn read_response(peer: &mut Peer, stream: u32) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        let frame = read(peer).expect("the connection stays open");
        let is_end = frame.stream == stream && matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0;
        frames.push(frame);
        if is_end {
            return frames;
        }
    }
}

fn has_reset(frames: &[Frame], stream: u32) -> bool {
    frames.iter().any(|frame| frame.kind == RST_STREAM && frame.stream == stream)
}

fn connect(product: &Product) -> Peer {
    let mut peer = product.connect();
    begin(&mut peer);
    peer
}

#[test]
fn a_body_that_follows_its_http2_response_is_taken_in_without_a_reset() {
    let (_origin, product) = start();
    for (path, status) in PATHS {
        let mut peer = connect(&product);
        peer.send(post(1, path));
        let mut came = read_response(&mut peer, 1);
        peer.send(frame(DATA, 0, 1, b"x="));
        peer.send(frame(DATA, END_STREAM, 1, b"x"));
        // What was to be said of the first stream comes before the response on another.
        peer.send(get_frame(3));
        came.extend(read_response(&mut peer, 3));
        assert!(!has_reset(&came, 1), "{path}: {came:?}");
        product.record(path, |record| record["path"] == path && record["status"] == status);
    }
}

#[test]
fn an_http2_request_that_never_ends_is_reset_with_no_error_after_the_bound() {
    let (_origin, product) = start();
    for (path, _) in PATHS {
        let mut peer = connect(&product);
        let begun = Instant::now();
        peer.send(post(1, path));
        let came = read_response(&mut peer, 1);
        assert!(!has_reset(&came, 1), "{path}: {came:?}");
        assert_eq!(code(&read_until(&mut peer, RST_STREAM, 1)), NO_ERROR, "{path}");
        assert!(begun.elapsed() >= PATIENCE, "{path}: {:?}", begun.elapsed());
        peer.send(get_frame(3));
        read_response(&mut peer, 3);
    }
}

#[test]
fn an_http2_request_that_goes_on_too_long_is_reset_with_no_error_at_the_bound() {
    let (_origin, product) = start();
    let piece = [0; 16 * 1024];
    // On a busy machine it may be time that ends it.
    let is_early = (0..5).any(|_| {
        let mut peer = connect(&product);
        let begun = Instant::now();
        peer.send(post(1, "/respond"));
        let mut came = read_response(&mut peer, 1);
        for _ in 0..BODY_BYTES_MAX / piece.len() {
            peer.send(frame(DATA, 0, 1, &piece));
        }
        peer.send(get_frame(3));
        came.extend(read_response(&mut peer, 3));
        let is_within = !has_reset(&came, 1);
        peer.send(frame(DATA, 0, 1, b"x"));
        if is_within {
            assert_eq!(code(&read_until(&mut peer, RST_STREAM, 1)), NO_ERROR);
        }
        // What is still on its way then is no breach of the rules.
        peer.send(frame(DATA, END_STREAM, 1, b"x"));
        let is_early = is_within && begun.elapsed() < PATIENCE;
        peer.send(get_frame(5));
        read_response(&mut peer, 5);
        is_early
    });
    assert!(is_early, "it is never the length that ends it");
}

#[test]
fn http2_streams_whose_end_is_waited_for_count_among_those_that_may_be_open() {
    let (_origin, product) = start();
    let is_refused = (0..5).any(|_| {
        let mut peer = connect(&product);
        let streams = (0..STREAMS_MAX).map(|index| 2 * index + 1);
        peer.send(streams.clone().flat_map(|stream| post(stream, "/respond")).collect::<Vec<u8>>());
        let mut ended = 0;
        let mut resets = 0;
        while ended < STREAMS_MAX {
            let frame = read(&mut peer).expect("the connection stays open");
            ended += u32::from(frame.kind == DATA && frame.flags & END_STREAM != 0);
            resets += u32::from(frame.kind == RST_STREAM);
        }
        let next = 2 * STREAMS_MAX + 1;
        peer.send(post(next, "/respond"));
        loop {
            let frame = read(&mut peer).expect("the connection stays open");
            match frame.kind {
                RST_STREAM if frame.stream == next => {
                    assert_eq!((code(&frame), resets), (REFUSED_STREAM, 0));
                    break true;
                }
                // On a busy machine the first may be over by now.
                RST_STREAM => resets += 1,
                HEADERS => {
                    assert!(resets > 0, "more streams are open than may be");
                    break false;
                }
                _ => {}
            }
        }
    });
    assert!(is_refused);
}

#[test]
fn a_connection_that_takes_one_request_waits_for_the_body_too() {
    let (_origin, setup) = setup();
    let product = setup.listener("requests_per_connection_max: 1").workers(1).start();
    let mut peer = connect(&product);
    peer.send(post(1, "/respond"));
    let mut came = read_response(&mut peer, 1);
    peer.send(frame(DATA, END_STREAM, 1, b"x=x"));
    while let Some(frame) = read(&mut peer) {
        came.push(frame);
    }
    assert!(!has_reset(&came, 1), "{came:?}");
}

/// A POST for a path over HTTP/3, whose body is still to come.
fn post3(path: &str) -> Vec<u8> {
    // `:method: POST`, `:scheme: https`, `:authority: a`, `:path`.
    let mut section = vec![0, 0, 0xd4, 0xd7, 0x50, 1, b'a', 0x51, path.len() as u8];
    section.extend_from_slice(path.as_bytes());
    [&[1, section.len() as u8][..], &section].concat()
}

/// Sends a POST, reads its response to the end, sends `body`, and the end if it `ends`: the code with which the product stops it,
/// if it does.
fn stopped(client: &Client, path: &str, body: &[u8], ends: bool) -> Option<u64> {
    client.with_quic("the end of a stream", async |quic| {
        let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
        send.write_all(&post3(path)).await.expect("it is taken");
        let response = receive.read_to_end(10_000).await.expect("a whole response");
        assert!(!response.is_empty(), "{path}");
        if !body.is_empty() {
            let length = (body.len() as u32 | 0x8000_0000).to_be_bytes();
            // It may be stopped within.
            let _ = send.write_all(&[&[0][..], &length, body].concat()).await;
        }
        if ends {
            let _ = send.finish();
        }
        send.stopped().await.expect("the connection stays open").map(quinn::VarInt::into_inner)
    })
}

#[test]
fn what_follows_an_answer_to_half_a_head_over_http3_ends_no_connection() {
    let (_origin, setup) = setup();
    let site = site(setup.listener("timeouts: { head: 200ms }"), 1);
    let mut client = site.connect();
    client.with_quic("an answer", async |quic| {
        let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
        send.write_all(&[1, 100, 0]).await.expect("it is taken");
        let answer = receive.read_to_end(10_000).await.expect("a whole response");
        assert!(!answer.is_empty());
        // Within a frame, which is a breach of the rules in a request that is looked at.
        send.finish().expect("it is open");
        let _ = send.stopped().await;
    });
    assert_eq!(client.get("/respond").text(), "all of it");
}

fn start3() -> (Origin, Site) {
    let (origin, setup) = setup();
    (origin, site(setup, 1))
}

#[test]
fn a_body_that_follows_its_http3_response_is_taken_in_without_being_stopped() {
    let (_origin, site) = start3();
    let client = site.connect();
    for (path, status) in PATHS {
        assert_eq!(stopped(&client, path, b"x=x", true), None, "{path}");
        site.product.record(path, |record| record["path"] == path && record["status"] == status);
    }
}

#[test]
fn an_http3_request_that_never_ends_is_stopped_with_no_error_after_the_bound() {
    let (_origin, site) = start3();
    let client = site.connect();
    for (path, _) in PATHS {
        let begun = Instant::now();
        assert_eq!(stopped(&client, path, b"x=", false), Some(H3_NO_ERROR), "{path}");
        assert!(begun.elapsed() >= PATIENCE, "{path}: {:?}", begun.elapsed());
    }
}

#[test]
fn an_http3_request_that_goes_on_too_long_is_stopped_with_no_error_at_the_bound() {
    let (_origin, site) = start3();
    let client = site.connect();
    let is_early = (0..5).any(|_| {
        let begun = Instant::now();
        let body = vec![0; BODY_BYTES_MAX + 1];
        assert_eq!(stopped(&client, "/respond", &body, false), Some(H3_NO_ERROR));
        begun.elapsed() < PATIENCE
    });
    assert!(is_early, "it is never the length that ends it");
    // With the head of its frame.
    assert_eq!(stopped(&client, "/respond", &vec![0; BODY_BYTES_MAX - 5], true), None);
}
