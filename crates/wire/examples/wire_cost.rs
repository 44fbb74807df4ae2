//! What the hot path of this crate costs, in nanoseconds: `cargo run --release -p equipoise-wire --example wire_cost`.
//!
//! Figures move with the machine; compare two builds in one sitting.

use std::hint::black_box;
use std::time::Instant;

use model::snapshot::Forwarding;
use model::{Facts, Method, Name, RequestHead, ResponseHead, Scheme, Version};
use wire::forwarding::{apply_forwarding, client_address};
use wire::http1::{
    ChunkDecoder, Framing, HeadLimits, HeadScan, SendRequest, SendResponse, parse_request, parse_response,
    write_request, write_response,
};
use wire::http2::PREFACE;
use wire::http2::connection::{Connection, Event, Limits};
use wire::http2::frame::{push_section, push_settings, push_window_update};
use wire::http2::hpack::{Encoder, Strings};

const REQUEST: &[u8] = b"GET /api/v1/items?page=2&sort=name HTTP/1.1\r\nHost: shop.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: text/html,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nConnection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\nReferer: https://shop.example.com/api/v1/items\r\n\
    Cache-Control: no-cache\r\nX-Trace: 0af7651916cd43dd8448eb211c80319c\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: origin\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: application/json\r\nContent-Length: 1234\r\nConnection: keep-alive\r\nCache-Control: max-age=60\r\n\
    ETag: \"0123456789abcdef\"\r\nVary: Accept-Encoding\r\n\r\n";

/// Runs `what` often enough to be timed, five times, and prints the best.
fn time(name: &str, mut what: impl FnMut()) {
    const RUNS: u32 = 200_000;
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..RUNS).for_each(|_| what());
            start.elapsed().as_nanos() as f64 / f64::from(RUNS)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:<40} {best:>8.1} ns");
}

fn main() {
    let limits = HeadLimits::default();
    let (mut scan, mut head, mut out) = (HeadScan::default(), RequestHead::default(), Vec::new());
    time("parse_request, 10 fields", || {
        let parsed = parse_request(black_box(REQUEST), &limits, &mut scan, &mut head);
        assert!(black_box(parsed).is_ok_and(|parsed| parsed.is_some()));
    });
    let parsed = parse_request(REQUEST, &limits, &mut scan, &mut head).ok().flatten().expect("a whole request");
    let how = SendRequest { framing: parsed.framing, host_fallback: "h", upgrade: false, keep_alive: true };
    time("write_request, 10 fields", || {
        out.clear();
        write_request(black_box(&head), &how, &mut out);
    });

    let mut answer = ResponseHead::default();
    time("parse_response, 8 fields", || {
        let parsed = parse_response(black_box(RESPONSE), &limits, &mut scan, Method::Get, &mut answer);
        assert!(black_box(parsed).is_ok_and(|parsed| parsed.is_some()));
    });
    let parsed = parse_response(RESPONSE, &limits, &mut scan, Method::Get, &mut answer).ok().flatten();
    let framing = parsed.expect("a whole response").framing;
    let how = SendResponse { framing, to: Version::Http11, keep_alive: true, upgrade: false };
    time("write_response, 8 fields", || {
        out.clear();
        write_response(black_box(&answer), &how, &mut out);
    });
    for (name, strings) in [("HTTP/2 exchange", Strings::Shorter), ("HTTP/2 exchange, no Huffman", Strings::Plain)] {
        http2(name, strings, &answer);
    }
    forwarding();
    chunks();
}

/// A request of six fields comes, its response of as many as `answer` has goes, each with the frames that it takes.
fn http2(name: &str, strings: Strings, answer: &ResponseHead) {
    let (mut head, mut sent, mut begin) = (RequestHead::default(), Vec::new(), PREFACE.to_vec());
    let mut connection = Connection::new(Limits::new(HeadLimits::default()), strings, &mut sent);
    push_settings(&mut begin, &[]);
    push_window_update(&mut begin, 0, 1 << 30);
    assert!(connection.receive(&begin, &mut head, &mut sent).is_ok());
    let (mut request, mut encoder) = (Vec::new(), Encoder::new(Strings::Shorter));
    push_section(&mut request, 1, true, |out| {
        encoder.begin(out);
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "shop.example.com"),
            (":path", "/api/v1/items?page=2&sort=name"),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
            ("accept", "text/html,*/*;q=0.8"),
        ] {
            encoder.push_field(out, name.as_bytes(), value.as_bytes());
        }
    });
    let mut stream = 1_u32;
    time(name, || {
        request[5..9].copy_from_slice(&stream.to_be_bytes());
        let received = connection.receive(black_box(&request), &mut head, &mut sent);
        assert!(matches!(received, Ok((_, Event::Head { parsed: Ok(_), ends: true, .. }))));
        assert!(connection.send_head(stream, (answer, 200), (Framing::Length(4), false), &mut sent).is_ok());
        assert!(connection.send_data(stream, b"body", true, &mut sent).is_ok());
        black_box(&sent);
        sent.clear();
        stream += 2;
    });
}

fn forwarding() {
    let (mut scan, mut head, mut scratch) = (HeadScan::default(), RequestHead::default(), Vec::new());
    let listener = Name::from("web");
    let peer: std::net::SocketAddr = "192.0.2.17:54321".parse().expect("an address");
    let mut forwarding =
        Forwarding { trusted: Vec::new(), client_address: Vec::new(), x_forwarded: true, forwarded: false };
    let mut parse_and_apply = |forwarding: &Forwarding| {
        let parsed = parse_request(REQUEST, &HeadLimits::default(), &mut scan, &mut head);
        assert!(parsed.is_ok());
        let client = client_address(&head.fields, black_box(peer).ip(), &forwarding.trusted);
        let (scheme, tls) = (Scheme::Http, None);
        let facts = Facts {
            peer,
            client,
            local: peer,
            scheme,
            tls,
            sender: None,
            listener: &listener,
            request_id: "",
            user: None,
        };
        apply_forwarding(&mut head, (&facts, facts.scheme), forwarding, &mut scratch);
    };
    time("parse_request + X-Forwarded-*", || parse_and_apply(&forwarding));
    forwarding.forwarded = true;
    time("parse_request + X-Forwarded-* + Forwarded", || parse_and_apply(&forwarding));
    forwarding.trusted = vec!["192.0.2.0/24".parse().expect("a network")];
    time("the same from a trusted peer", || parse_and_apply(&forwarding));
}

fn chunks() {
    let whole = [&b"4000\r\n"[..], &[b'x'; 0x4000], b"\r\n"].concat().repeat(4);
    let mut decoder = ChunkDecoder::new(&HeadLimits::default());
    let mut bytes = whole.clone();
    time("decode_in_place, 4 chunks of 16 KiB", || {
        bytes.copy_from_slice(&whole);
        assert!(decoder.decode_in_place(black_box(&mut bytes)).is_ok());
    });
    time("step, 4 chunks of 16 KiB", || {
        bytes.copy_from_slice(&whole);
        let mut at = 0;
        while at < bytes.len() {
            at += decoder.step(black_box(&bytes[at..])).map_or(usize::MAX, |piece| piece.consumed);
        }
    });
}
