//! HTTP/2 clients that mean harm: each is bounded, told why, counted, and disturbs nobody else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, begin, block, frame, get, get_frame, goaway, read, read_until,
};
use super::harness::http2::Client;
use super::harness::http2_origin::Http2Origin;
use super::harness::origin::ok;
use super::harness::sys::resident_bytes_max;
use super::harness::{Origin, Peer, Product, Setup, eventually};

const PROTOCOL_ERROR: u32 = 1;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Sends until the other side takes no more, or it is all sent.
fn pour(peer: &mut Peer, bytes: &[u8], times: usize) {
    for _ in 0..times {
        if peer.try_send(bytes).is_err() {
            return;
        }
    }
}

/// RST_STREAM with CANCEL.
fn cancel(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

/// Reads until a frame like this; false if the connection ends before.
fn reaches(peer: &mut Peer, fits: impl Fn(&Frame) -> bool) -> bool {
    std::iter::from_fn(|| read(peer))
        .find(|frame| frame.kind == GOAWAY || fits(frame))
        .is_some_and(|frame| fits(&frame))
}

/// Waits until all that was sent before has been seen; false if the connection ends before.
fn settles(peer: &mut Peer) -> bool {
    peer.try_send(frame(PING, 0, 0, b"all seen")).is_ok() && reaches(peer, |frame| frame.kind == PING)
}

fn end_of(peer: &mut Peer) -> Option<u32> {
    let code = goaway(peer);
    peer.wait_closed();
    code
}

/// The product, with one client that is at work beside whatever the test does.
fn with_neighbour() -> (Origin, Product, Client) {
    let origin = Origin::answering(|request| match request.target() {
        "/large" => ok(&"x".repeat(1 << 20)),
        _ => ok("fine"),
    });
    let product = Setup::to(&origin).workers(1).start();
    let mut neighbour = Client::connect(product.web());
    assert_eq!(neighbour.get("/").status, 200);
    (origin, product, neighbour)
}

#[test]
fn floods_of_frames_of_no_use_end_their_connection_and_disturb_nobody() {
    let (_origin, product, mut neighbour) = with_neighbour();
    let opened = frame(HEADERS, END_HEADERS, 1, &get(&[]));
    let floods: Vec<(&str, Vec<u8>, Vec<u8>)> = vec![
        ("PING", Vec::new(), frame(PING, 0, 0, &[7; 8])),
        ("SETTINGS", Vec::new(), frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("empty SETTINGS", Vec::new(), frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", Vec::new(), frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 7])),
        ("unknown frames", Vec::new(), frame(99, 0, 0, b"what")),
        ("empty DATA", opened.clone(), frame(DATA, 0, 1, &[])),
        ("GOAWAY", opened.clone(), frame(GOAWAY, 0, 0, &[0; 8])),
        ("tiny windows", opened.clone(), frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("windows of what is over", [opened.clone(), cancel(1)].concat(), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 4, 0])),
        ("resets of what is over", opened, cancel(1)),
    ];
    let count = floods.len() as f64;
    for (name, before, one) in floods {
        let mut peer = product.connect();
        begin(&mut peer);
        peer.send(before);
        pour(&mut peer, &one.repeat(500), 200);
        assert_eq!(end_of(&mut peer), Some(ENHANCE_YOUR_CALM), "{name}");
        assert_eq!(neighbour.get("/").text(), "fine");
    }
    product.expect_metric("equipoise_faults_total", &["fault=\"http2_flood\""], count);
    product.flagged("CG");
}

/// A request of 13 bytes, whose answer waits for nothing and has a path of 4,000 in it.
#[test]
fn answers_that_cost_a_client_nothing_wait_within_bounds_for_one_that_reads_none() {
    const REQUESTS: u32 = 5_000;
    let origin = Origin::saying("fine");
    let product =
        Setup::to(&origin).route_before("{ match: { host: test }, redirect: { scheme: https } }").workers(1).start();
    let before = product.resident_bytes();
    let mut peer = product.connect();
    begin(&mut peer);
    let path = format!("/{}", "p".repeat(3_900));
    // Two fields for the table (RFC 7541 section 6.2.1), then what stands there.
    let length = [127, ((path.len() - 127) % 128) as u8 | 128, ((path.len() - 127) / 128) as u8];
    let first = [b"\x82\x86\x44", &length[..], path.as_bytes(), b"\x41\x04test"].concat();
    let mut burst = frame(HEADERS, END_HEADERS | END_STREAM, 1, &first);
    for index in 1..REQUESTS {
        burst.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * index + 1, b"\x82\x86\xbe\xbf"));
    }
    peer.send(&burst);
    let mut answers = 0;
    while answers < REQUESTS {
        let frame = read(&mut peer).expect("the connection goes on");
        assert!(![GOAWAY, RST_STREAM].contains(&frame.kind), "{frame:?}");
        answers += u32::from(frame.flags & END_STREAM != 0 && frame.kind != SETTINGS);
    }
    let grown = resident_bytes_max(product.pid()).saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes");
}

#[test]
fn a_window_that_is_opened_byte_by_byte_ends_its_connection() {
    let (_origin, product, mut neighbour) = with_neighbour();
    let mut peer = product.connect();
    // SETTINGS_INITIAL_WINDOW_SIZE of 1.
    peer.send([PREFACE, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])].concat());
    let large: &[(&[u8], &[u8])] =
        &[(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"test"), (b":path", b"/large")];
    peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(large)));
    let step = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    let told = (0..4000).find_map(|_| {
        // Each step is answered before the next, so that each costs a frame.
        loop {
            match read(&mut peer) {
                None => return Some(None),
                Some(Frame { kind: GOAWAY, payload, .. }) => return Some(payload.get(4..8).map(<[u8]>::to_vec)),
                Some(Frame { kind: DATA, .. }) => break,
                Some(_) => {}
            }
        }
        peer.try_send(&step).is_err().then_some(None)
    });
    assert_eq!(told, Some(Some(ENHANCE_YOUR_CALM.to_be_bytes().to_vec())));
    assert_eq!(neighbour.get("/").text(), "fine");
}

/// Clients of gRPC answer each message with a step of a window and a PING.
#[test]
fn frames_of_no_use_that_answer_what_was_sent_are_no_flood() {
    let origin = Origin::start(|mut visit| {
        let Ok(Some(_)) = visit.peer.try_head() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while visit.peer.try_take_through(b"hello\r\n").is_ok() {
            visit.peer.send("5\r\nhello\r\n");
        }
    });
    let product = Setup::to(&origin).workers(1).start();
    let mut peer = product.connect();
    begin(&mut peer);
    let post: &[(&[u8], &[u8])] =
        &[(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"test"), (b":path", b"/")];
    peer.send(frame(HEADERS, END_HEADERS, 1, &block(post)));
    let answer = [frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 5]), frame(PING, 0, 0, &[7; 8])].concat();
    for _ in 0..1500 {
        peer.send(frame(DATA, 0, 1, b"hello"));
        assert_eq!(read_until(&mut peer, DATA, 1).payload, b"hello");
        peer.send(&answer);
    }
}

#[test]
fn uploads_that_were_answered_before_they_had_ended_do_not_end_the_connection() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin)
        .route_before("{ match: { path: { exact: /no } }, respond: { status: 403 } }")
        .workers(1)
        .start();
    let mut peer = product.connect();
    begin(&mut peer);
    let post: &[(&[u8], &[u8])] =
        &[(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"test"), (b":path", b"/no")];
    let streams: Vec<u32> = (0..600).map(|index| 2 * index + 1).collect();
    // Each is reset when its end has not come for a second.
    for batch in streams.chunks(100) {
        for stream in batch {
            peer.send(frame(HEADERS, END_HEADERS, *stream, &block(post)));
        }
        let mut open: BTreeSet<u32> = batch.iter().copied().collect();
        while !open.is_empty() {
            let frame = read(&mut peer).expect("the connection goes on");
            if frame.kind == RST_STREAM {
                open.remove(&frame.stream);
            }
        }
    }
    // What was on its way already.
    for stream in &streams {
        peer.send(frame(DATA, END_STREAM, *stream, b"late"));
    }
    peer.send(get_frame(1201));
    assert_eq!(read_until(&mut peer, DATA, 1201).payload, b"fine");
}

#[test]
fn a_client_that_begins_streams_only_to_reset_them_is_stopped() {
    let (origin, product, mut neighbour) = with_neighbour();
    let mut peer = product.connect();
    begin(&mut peer);
    for round in 0..2000_u32 {
        let stream = 2 * round + 1;
        let both = [get_frame(stream), cancel(stream)].concat();
        if peer.try_send(both).is_err() {
            break;
        }
    }
    assert_eq!(end_of(&mut peer), Some(ENHANCE_YOUR_CALM));
    assert_eq!(neighbour.get("/").text(), "fine");
    product.expect_metric("equipoise_faults_total", &["fault=\"http2_flood\""], 1.0);
    assert!(origin.requests().len() < 1100, "{} requests got through", origin.requests().len());
}

/// What it lets be answered does not pay for it.
#[test]
fn a_client_that_resets_most_of_what_it_asks_for_is_stopped() {
    let (origin, product, mut neighbour) = with_neighbour();
    let mut peer = product.connect();
    begin(&mut peer);
    let goes_on = (0..1500_u32).all(|round| {
        let first = 8 * round + 1;
        let reset = |stream| [get_frame(stream), cancel(stream)].concat();
        let all = [reset(first), reset(first + 2), reset(first + 4), get_frame(first + 6)].concat();
        peer.try_send(all).is_ok()
            && reaches(&mut peer, |frame| frame.stream == first + 6 && frame.flags & END_STREAM != 0)
    });
    assert!(!goes_on, "{} requests got through", origin.requests().len());
    peer.wait_closed();
    assert_eq!(neighbour.get("/").text(), "fine");
    product.expect_metric("equipoise_faults_total", &["fault=\"http2_flood\""], 1.0);
}

/// They are begun together, when all that came with them was read.
#[test]
fn requests_that_are_reset_as_they_come_do_not_reach_an_endpoint() {
    const MANY: u32 = 100;
    let origin = Http2Origin::saying("fine");
    let product = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]").workers(1).start();
    let mut peer = product.connect();
    begin(&mut peer);
    let ask = |peer: &mut Peer, stream| {
        peer.send(get_frame(stream));
        assert_eq!(read_until(peer, DATA, stream).payload, b"fine");
    };
    ask(&mut peer, 1);
    let resets = (1..=MANY).flat_map(|index| [get_frame(2 * index + 1), cancel(2 * index + 1)].concat());
    peer.send(resets.collect::<Vec<u8>>());
    ask(&mut peer, 2 * MANY + 3);
    // All but those that are carried by the task of the connection itself, one for each read.
    assert!(origin.streams() < 20, "{} of {MANY} came through", origin.streams());
}

/// Who makes us send a reset throws away as much as who sends it.
#[test]
fn resets_that_we_are_made_to_send_count_as_the_clients_own() {
    let (_origin, product, mut neighbour) = with_neighbour();
    let mut peer = product.connect();
    begin(&mut peer);
    // Less than would be stopped by itself, of either.
    let goes_on = (0..65_u32).all(|round| {
        let ten = (0..10).flat_map(|index| {
            let stream = 2 * (10 * round + index) + 1;
            let is_ours = index < 3;
            let end = if is_ours { frame(DATA, 0, stream, b"behind the end") } else { cancel(stream) };
            [get_frame(stream), end].concat()
        });
        peer.try_send(ten.collect::<Vec<u8>>()).is_ok() && settles(&mut peer)
    });
    assert!(!goes_on);
    peer.wait_closed();
    assert_eq!(neighbour.get("/").text(), "fine");
    product.expect_metric("equipoise_faults_total", &["fault=\"http2_flood\""], 1.0);
}

/// As browsers leave pages and players seek.
#[test]
fn downloads_that_are_left_in_the_middle_are_no_flood() {
    let (_origin, product, _) = with_neighbour();
    let mut peer = product.connect();
    begin(&mut peer);
    let large: &[(&[u8], &[u8])] =
        &[(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"test"), (b":path", b"/large")];
    for index in 0..900 {
        let stream = 2 * index + 1;
        peer.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(large)));
        assert!(reaches(&mut peer, |frame| (frame.kind, frame.stream) == (HEADERS, stream)), "{index} downloads");
        peer.send(cancel(stream));
    }
    peer.send([frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]), get_frame(1801)].concat());
    assert_eq!(read_until(&mut peer, DATA, 1801).payload, b"fine");
}

#[test]
fn a_client_that_cancels_half_of_what_it_asks_for_is_not_stopped() {
    let (_origin, product, _) = with_neighbour();
    let mut client = Client::connect(product.web());
    for _ in 0..400 {
        let cancelled = client.open(super::harness::http2::request("GET", "/"), true);
        client.reset(cancelled, h2::Reason::CANCEL);
        assert_eq!(client.get("/").status, 200);
    }
    product.expect_metric("equipoise_faults_total", &["fault=\"http2_flood\""], 0.0);
}

#[test]
fn a_head_without_end_is_cut_off() {
    let (_origin, product, mut neighbour) = with_neighbour();
    let long = block(&[(b"x-more", &[b'a'; 1000])]);
    for (name, piece, code) in [("long", long, ENHANCE_YOUR_CALM), ("empty", Vec::new(), ENHANCE_YOUR_CALM)] {
        let mut peer = product.connect();
        begin(&mut peer);
        peer.send(frame(HEADERS, 0, 1, &get(&[])));
        pour(&mut peer, &frame(CONTINUATION, 0, 1, &piece), 5000);
        let told = end_of(&mut peer);
        assert!(told == Some(code) || told == Some(PROTOCOL_ERROR), "{name}: {told:?}");
        assert_eq!(neighbour.get("/").text(), "fine");
    }
}

#[test]
fn a_small_block_that_unpacks_to_a_large_head_is_refused() {
    let (origin, product, mut neighbour) = with_neighbour();
    let mut peer = product.connect();
    begin(&mut peer);
    let before = product.resident_bytes();
    // A literal with incremental indexing, then thousands of references to it, of one byte each.
    let mut bomb = get(&[]);
    bomb.extend([0x40, 1, b'a', 127]);
    let value = [b'x'; 3900];
    let rest = value.len() - 127;
    bomb.extend([(rest % 128) as u8 | 128, (rest / 128) as u8]);
    bomb.extend(value);
    bomb.extend([0x80 | 62; 8000]);
    peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb[..16_000.min(bomb.len())]));
    let refused = loop {
        match read(&mut peer) {
            None => break true,
            Some(Frame { kind: HEADERS | RST_STREAM | GOAWAY, .. }) => break true,
            Some(_) => {}
        }
    };
    assert!(refused);
    assert!(product.resident_bytes().saturating_sub(before) < 16 << 20);
    assert_eq!(neighbour.get("/").text(), "fine");
    assert!(origin.requests().iter().all(|request| request.field("a").is_none()));
}

#[test]
fn more_streams_than_are_allowed_are_refused_and_the_others_go_on() {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    let origin = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            eventually("the gate is opened", || opened.load(Ordering::SeqCst));
            if visit.peer.try_send(ok("fine")).is_err() {
                return;
            }
        }
    });
    let product = Setup::to(&origin).workers(1).start();
    let mut peer = product.connect();
    begin(&mut peer);
    let all: Vec<u8> = (0..200).flat_map(|index| get_frame(2 * index + 1)).collect();
    peer.send(all);
    let (mut refused, mut answered) = (0, 0);
    while refused + answered < 200 {
        match read(&mut peer).expect("the connection goes on") {
            Frame { kind: RST_STREAM, payload, .. } => {
                assert_eq!(payload, [0, 0, 0, 7], "REFUSED_STREAM");
                refused += 1;
                // Until all who are too many were refused, nobody is served.
                gate.store(refused >= 72, Ordering::SeqCst);
            }
            Frame { kind: DATA, flags, .. } if flags & END_STREAM != 0 => answered += 1,
            _ => {}
        }
    }
    assert_eq!((refused, answered), (72, 128));
}

#[test]
fn broken_frames_end_their_connection_with_the_reason() {
    let (_origin, product, mut neighbour) = with_neighbour();
    let cases: Vec<(&str, Vec<u8>, u32)> = vec![
        ("DATA on stream 0", frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
        ("an even stream", get_frame(2), PROTOCOL_ERROR),
        ("a frame larger than allowed", frame(DATA, 0, 1, &[0; 20_000]), FRAME_SIZE_ERROR),
        ("an index that does not exist", frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x80 | 120]), COMPRESSION_ERROR),
        ("CONTINUATION alone", frame(CONTINUATION, END_HEADERS, 1, &[]), PROTOCOL_ERROR),
    ];
    let count = cases.len() as f64;
    for (name, bytes, code) in cases {
        let mut peer = product.connect();
        begin(&mut peer);
        peer.send(bytes);
        let told = end_of(&mut peer);
        // The general reason is always allowed (RFC 9113 section 5.4).
        assert!(told == Some(code) || told == Some(PROTOCOL_ERROR), "{name}: {told:?}");
    }
    product.expect_metric("equipoise_faults_total", &["fault=\"http2_error\""], count);
    product.flagged("CX");
    assert_eq!(neighbour.get("/").text(), "fine");
}

#[test]
fn a_client_that_reads_nothing_is_given_up_with_bounded_memory() {
    let origin = Origin::answering(|_| ok(&"x".repeat(8 << 20)));
    let product = Setup::to(&origin).workers(1).listener("timeouts: { stream: 1s }").start();
    let before = product.resident_bytes();
    let mut peer = product.connect();
    // A window so large that only the socket holds the answers back.
    peer.send([PREFACE, &frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])].concat());
    peer.send(frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]));
    peer.send((0..100).flat_map(|index| get_frame(2 * index + 1)).collect::<Vec<u8>>());
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 1.0);
    product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

#[test]
fn a_head_that_does_not_come_whole_in_time_ends_its_connection() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).listener("timeouts: { head: 2s, idle: 3s }").start();
    let mut peer = product.connect();
    peer.send(&PREFACE[..20]);
    let record = product.flagged("CT");
    assert_eq!(record["status"], 408);
    peer.wait_closed();
    let mut peer = product.connect();
    begin(&mut peer);
    peer.send(frame(HEADERS, 0, 1, &get(&[])));
    peer.wait_closed();
    assert!(origin.requests().is_empty());
}

#[test]
fn an_answer_follows_a_request_that_came_with_the_preface() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.send([PREFACE, &frame(SETTINGS, 0, 0, &[]), &get_frame(1)].concat());
    let data = read_until(&mut peer, DATA, 1);
    assert_eq!(data.payload, b"fine");
}
