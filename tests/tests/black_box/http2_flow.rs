//! What HTTP/2 clients are sent, and how fast they take it.

use std::time::{Duration, Instant};

use super::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    begin, block, frame, get_frame, read, read_until,
};
use super::harness::http2::{Client, request};
use super::harness::origin::ok;
use super::harness::tls::{Authority, Client as TlsClient};
use super::harness::{Origin, Peer, Product, Setup, eventually, product, tls};

/// As long as the path says.
fn body(target: &str) -> Vec<u8> {
    let length = target.trim_start_matches('/').parse().unwrap_or(0);
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// An origin whose bodies are as long as asked for.
fn measured() -> Origin {
    Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            let body = body(request.target());
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            if visit.peer.try_send([head.into_bytes(), body].concat()).is_err() {
                return;
            }
        }
    })
}

/// The product with TLS, and what its clients offer.
fn with_tls(origin: &Origin, lines: &[&str]) -> (Product, std::sync::Arc<rustls::ClientConfig>) {
    let authority = Authority::new("test authority");
    let folder = product::folder();
    authority.issue(&["test"]).write(folder.path(), "site");
    let setup = Setup::to(origin).listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }");
    let setup = lines.iter().fold(setup, |setup, line| setup.listener(*line));
    let product = Product::start_in(folder, &setup.text(), 1);
    (product, TlsClient { protocols: &["h2"], ..TlsClient::trusting(&authority) }.config())
}

/// Around what fits in a buffer, a frame, a record, and all that is gathered.
const LENGTHS: [usize; 18] = [
    0, 1, 255, 256, 1_000, 9_000, 16_300, 16_384, 16_400, 32_000, 32_768, 33_000, 64_000, 65_536, 66_000, 131_072,
    300_000, 2_000_000,
];

#[test]
fn bodies_of_every_length_arrive_whole_with_tls_and_without() {
    let origin = measured();
    let (secure, config) = with_tls(&origin, &[]);
    let plain = Setup::to(&origin).workers(1).start();
    // As much as all of them together, or one that is not read yet would hold back another.
    let wide = |builder: &mut h2::client::Builder| {
        builder.initial_connection_window_size(8 << 20);
    };
    for mut client in [Client::tls_with(secure.web(), "test", &config, wide), Client::with(plain.web(), wide)] {
        for length in LENGTHS {
            let target = format!("/{length}");
            assert!(client.get(&target).body == body(&target), "{length} bytes");
        }
        // All at once.
        let streams: Vec<_> = LENGTHS.map(|length| client.open(request("GET", &format!("/{length}")), true)).into();
        for (stream, length) in streams.into_iter().zip(LENGTHS) {
            assert!(client.answer(stream).body == body(&format!("/{length}")), "{length} bytes among others");
        }
    }
}

/// Asks for much, with windows so large that only the socket holds it back.
fn ask_for_much(peer: &mut Peer, streams: u32) {
    peer.send([PREFACE, &frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])].concat());
    peer.send(frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]));
    peer.send((0..streams).flat_map(|index| get_frame(2 * index + 1)).collect::<Vec<u8>>());
}

#[test]
fn a_client_that_reads_nothing_over_tls_is_given_up_with_bounded_memory() {
    let origin = Origin::answering(|_| ok(&"x".repeat(8 << 20)));
    let (product, config) = with_tls(&origin, &["timeouts: { stream: 1s }"]);
    let mut peer = tls::connect(product.web(), "test", &config);
    let before = product.resident_bytes();
    ask_for_much(&mut peer, 100);
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 1.0);
    product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

/// What waits for the socket has one bound for all of them.
#[test]
fn many_large_answers_that_wait_for_one_socket_have_their_turn_and_arrive_whole() {
    const LENGTH: usize = 300_000;
    const STREAMS: u32 = 60;
    let origin = Origin::answering(|_| ok(&"x".repeat(LENGTH)));
    let plain = Setup::to(&origin).workers(1).start();
    let (secure, config) = with_tls(&origin, &[]);
    for mut peer in [tls::connect(secure.web(), "test", &config), plain.connect()] {
        ask_for_much(&mut peer, STREAMS);
        // Until nothing more fits in the socket, most likely.
        std::thread::sleep(Duration::from_millis(300));
        let (mut lengths, mut ended) = ([0; STREAMS as usize], 0);
        while ended < STREAMS {
            let frame = read(&mut peer).expect("the connection goes on");
            assert_ne!(frame.kind, RST_STREAM);
            if frame.kind == DATA {
                lengths[frame.stream as usize / 2] += frame.payload.len();
                ended += u32::from(frame.flags & END_STREAM != 0);
            }
        }
        assert_eq!(lengths, [LENGTH; STREAMS as usize]);
    }
}

/// The one that wrote last is not given all that is opened again.
#[test]
fn streams_share_a_window_of_the_connection_that_is_opened_step_by_step() {
    const STEP: u32 = 32_767;
    let origin = Origin::answering(|_| ok(&"x".repeat(32 << 20)));
    let product = Setup::to(&origin).workers(1).start();
    let mut peer = product.connect();
    begin(&mut peer);
    peer.send([1, 3, 5].map(get_frame).concat());
    let (mut lengths, mut unopened) = ([0_u32; 3], 0);
    while lengths.iter().any(|length| *length < 8 * STEP) {
        let came = read(&mut peer).expect("the connection goes on");
        if came.kind != DATA {
            continue;
        }
        assert_eq!(came.flags & END_STREAM, 0, "one has ended while another waits: {lengths:?}");
        let count = came.payload.len() as u32;
        lengths[came.stream as usize / 2] += count;
        unopened += count;
        // The stream's own is opened for what came on it, the connection's in larger steps.
        peer.send(frame(WINDOW_UPDATE, 0, came.stream, &count.to_be_bytes()));
        if unopened >= STEP {
            peer.send(frame(WINDOW_UPDATE, 0, 0, &unopened.to_be_bytes()));
            unopened = 0;
        }
    }
}

/// Clients that measure what the network holds do so while a body is on its way, as those of gRPC in Go. A stream that is not woken goes on
/// when something else wakes it, seconds later.
#[test]
fn windows_that_settings_open_let_a_body_go_on_at_once() {
    const STEP: u32 = 6_000;
    let settings = |window: u32| frame(SETTINGS, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat());
    let origin = Origin::answering(|_| ok(&"x".repeat(10 * STEP as usize)));
    let product = Setup::to(&origin).workers(1).start();
    let mut peer = product.connect();
    peer.send([PREFACE, &settings(STEP), &get_frame(1)].concat());
    let (begun, mut length, mut has_ended) = (Instant::now(), 0, false);
    while !has_ended {
        let came = read(&mut peer).expect("the connection goes on");
        if came.kind != DATA {
            continue;
        }
        length += came.payload.len() as u32;
        has_ended = came.flags & END_STREAM != 0;
        if length.is_multiple_of(STEP) {
            peer.send(settings(length + STEP));
        }
    }
    assert_eq!(length, 10 * STEP);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Its PING waits behind all that is in the socket, and it says nothing itself.
#[test]
fn a_slow_download_is_not_given_up() {
    const LENGTH: usize = 64 << 20;
    let origin = Origin::answering(|_| ok(&"x".repeat(LENGTH)));
    let product = Setup::to(&origin).workers(1).listener("timeouts: { idle: 500ms, stream: 30s }").start();
    let mut peer = product.connect();
    ask_for_much(&mut peer, 1);
    let (begun, mut length) = (Instant::now(), 0);
    while length < LENGTH {
        let count = peer.fill().expect("the download goes on");
        assert!(count > 0, "ended after {length} bytes, {:?}", begun.elapsed());
        length += count;
        peer.drain();
        // Longer than it would have to answer a PING.
        if begun.elapsed() < Duration::from_secs(24) {
            std::thread::sleep(Duration::from_millis(40));
        }
    }
}

#[test]
fn a_client_that_never_acknowledges_that_it_is_told_to_go_is_refused_more() {
    let origin = Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            match request.target() {
                "/hang" => drop(visit.peer.wait_closed()),
                _ if visit.peer.try_send(ok("fine")).is_err() => return,
                _ => {}
            }
        }
    });
    let mut product = Setup::to(&origin).workers(1).top("shutdown: { drain_timeout: 120s }").start();
    let mut peer = product.connect();
    begin(&mut peer);
    // It is never at rest, and answers no PING.
    let hang: &[(&[u8], &[u8])] =
        &[(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"test"), (b":path", b"/hang")];
    peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(hang)));
    eventually("it is under way", || origin.requests().len() == 1);
    product.signal(libc::SIGTERM);
    read_until(&mut peer, GOAWAY, 0);
    let begun = Instant::now();
    let refused = (1..).find(|index| {
        assert!(begun.elapsed() < Duration::from_secs(60), "{index} requests, and more");
        let stream = 2 * index + 1;
        peer.send(get_frame(stream));
        let is_refused = loop {
            match read(&mut peer).expect("it is told why") {
                Frame { kind: RST_STREAM, stream: of, payload, .. } if of == stream => break payload == [0, 0, 0, 7],
                Frame { kind: DATA, stream: of, flags, .. } if of == stream && flags & END_STREAM != 0 => break false,
                _ => {}
            }
        };
        std::thread::sleep(Duration::from_millis(100));
        is_refused
    });
    assert!(refused > Some(1));
    peer.send(frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    peer.wait_closed();
    assert_eq!(product.wait_ended().code(), Some(0));
}

/// Also of those that come at once. Those that are too many may be sent again elsewhere.
#[test]
fn a_connection_brings_as_many_requests_as_it_may_and_not_one_more() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).workers(1).listener("requests_per_connection_max: 3").start();
    let mut peer = product.connect();
    begin(&mut peer);
    peer.send((0..10).flat_map(|index| get_frame(2 * index + 1)).collect::<Vec<u8>>());
    let (mut answered, mut refused, mut last) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(frame) = read(&mut peer) {
        match frame.kind {
            GOAWAY => last.push(frame.payload),
            RST_STREAM => {
                assert_eq!(frame.payload, [0, 0, 0, 7], "REFUSED_STREAM");
                refused.push(frame.stream);
            }
            DATA if frame.flags & END_STREAM != 0 => answered.push(frame.stream),
            _ => {}
        }
    }
    answered.sort_unstable();
    assert_eq!((&answered[..], &refused[..]), (&[1, 3, 5][..], &[7, 9, 11, 13, 15, 17, 19][..]));
    assert_eq!(last, [[0, 0, 0, 5, 0, 0, 0, 0]], "stream 5, NO_ERROR");
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn an_answer_to_head_has_no_body_however_wrong_the_request() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let head = |more: &[(&[u8], &[u8])], path: &[u8]| {
        let line: &[(&[u8], &[u8])] =
            &[(b":method", b"HEAD"), (b":scheme", b"http"), (b":authority", b"test"), (b":path", path)];
        block(&[line, more].concat())
    };
    let long = [b"/".to_vec(), vec![b'a'; 17_000]].concat();
    for block in [head(&[], b"*"), head(&[(b"host", b"other")], b"/"), head(&[], &long)] {
        let mut peer = product.connect();
        begin(&mut peer);
        let (first, rest) = block.split_at(block.len() / 2);
        peer.send(frame(HEADERS, END_STREAM, 1, first));
        peer.send(frame(CONTINUATION, END_HEADERS, 1, rest));
        let answer = loop {
            let frame = read(&mut peer).expect("an answer");
            if frame.stream == 1 {
                break frame;
            }
        };
        assert_eq!((answer.kind, answer.flags & END_STREAM), (HEADERS, END_STREAM));
    }
}
