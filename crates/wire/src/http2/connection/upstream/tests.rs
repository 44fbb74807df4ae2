use model::FieldName;
use model::fields::Span;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::super::frame::{FrameHead, flag, kind};
use super::super::super::hpack::Encoder;
use super::super::{Connection, Downstream, Event};
use super::*;
use crate::http1::HeadLimits;

const LIMITS: Limits = Limits {
    head: HeadLimits { head_bytes_max: 1_000, fields_max: 16 },
    list_bytes_max: 4_000,
    streams_max: 100,
    stream_window_bytes: 65_535,
    connection_window_bytes: 100_000,
    stream_errors_max: u32::MAX,
    streams_left_max: 4,
};

const WHOLE: u8 = flag::END_HEADERS;
const LAST: u8 = flag::END_HEADERS | flag::END_STREAM;

/// What was seen, with pieces of a body put together.
#[derive(Debug, PartialEq)]
enum Seen {
    Head(u32, Result<u16, Fault>, bool),
    Data(u32, Vec<u8>, bool),
    Trailers(u32, usize),
    Other(String),
    End(u32),
}

struct Peer {
    connection: Connection<Upstream>,
    head: ResponseHead,
    out: Vec<u8>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHead { length: payload.len() as u32, kind, flags, stream }.push(&mut out);
    out.extend_from_slice(payload);
    out
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::push_settings(&mut out, pairs);
    out
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let encoder = Encoder::default();
    let mut out = Vec::new();
    fields.iter().for_each(|(name, value)| encoder.push_field(&mut out, name.as_bytes(), value.as_bytes()));
    out
}

fn answer(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, flags, stream, &block(fields))
}

fn goodbye(last: u32) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), 0_u32.to_be_bytes()].concat())
}

fn request(method: &[u8]) -> RequestHead {
    let mut head = RequestHead::default();
    let mut load = |bytes: &[u8]| {
        let start = head.fields.load(bytes);
        Span::new(start, start + bytes.len())
    };
    let (method, path) = (load(method), load(b"/a?b"));
    head.set_line(method, path, Version::Http11);
    head.fields.append(&FieldName::new("host").unwrap(), b"example.org");
    head.fields.append(&FieldName::new("X-Name").unwrap(), b"value");
    head
}

fn how(ends: bool) -> RequestSent<'static> {
    let framing = if ends { Framing::None } else { Framing::Chunked };
    RequestSent { framing, is_https: false, is_websocket: false, host_fallback: b"fallback", ends }
}

impl Peer {
    /// The endpoint's settings are here.
    fn begun(pairs: &[(u16, u32)]) -> Self {
        let mut out = Vec::new();
        let connection = Connection::upstream(LIMITS, Strings::Shorter, &mut out);
        let mut peer = Self { connection, head: ResponseHead::default(), out };
        assert!(!peer.connection.has_settings());
        assert_eq!(peer.take(&settings(pairs)), []);
        assert!(peer.connection.has_settings());
        peer.out.clear();
        peer
    }

    /// One that has begun streams with requests of this method, up to this number.
    fn upstream(method: &[u8], count: u32) -> Self {
        let mut peer = Self::begun(&[]);
        for place in 0..count {
            assert_eq!(peer.ask(method, true), Ok(2 * place + 1));
        }
        peer.out.clear();
        peer
    }

    fn ask(&mut self, method: &[u8], ends: bool) -> Result<u32, NotSent> {
        self.connection.send_request(&request(method), &how(ends), &mut self.out)
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut rest = bytes;
        loop {
            let (used, event) = match self.connection.receive(rest, &mut self.head, &mut self.out) {
                Ok(received) => received,
                Err(code) => {
                    seen.push(Seen::End(code));
                    return seen;
                }
            };
            match event {
                Event::More => return seen,
                Event::Head { stream, parsed, ends } => {
                    seen.push(Seen::Head(stream, parsed.map(|_| self.head.status), ends));
                }
                Event::Data { stream, range, ends } => {
                    self.connection.consumed(stream, range.len(), &mut self.out);
                    let bytes = &rest[range];
                    match seen.last_mut() {
                        Some(Seen::Data(before, all, end @ false)) if *before == stream => {
                            all.extend_from_slice(bytes);
                            *end = ends;
                        }
                        _ => seen.push(Seen::Data(stream, bytes.to_vec(), ends)),
                    }
                }
                Event::Trailers { stream, fields } => {
                    seen.push(Seen::Trailers(stream, fields.map_or(0, |fields| fields.len())));
                }
                other => seen.push(Seen::Other(format!("{other:?}"))),
            }
            rest = &rest[used..];
        }
    }

    /// The reset of a stream that was sent, if it is all that was.
    fn reset(&mut self) -> Option<(u32, u32)> {
        let out = std::mem::take(&mut self.out);
        let (head, payload) = out.split_first_chunk()?;
        let head = FrameHead::parse(head);
        (head.kind == kind::RST_STREAM && payload.len() == 4).then(|| (head.stream, frame::number(payload)))
    }
}

fn broken(stream: u32, code: u32) -> Vec<Seen> {
    vec![Seen::Other(format!("Broken {{ stream: {stream}, code: {code} }}"))]
}

const OK: &[(&str, &str)] = &[(":status", "200")];

#[test]
fn what_it_sends_is_what_an_endpoint_reads() {
    let mut client = Peer::begun(&[]);
    let mut out = Vec::new();
    let connection = Connection::upstream(LIMITS, Strings::Shorter, &mut out);
    client.connection = connection;
    assert_eq!(client.take(&settings(&[])), []);
    client.connection.send_request(&request(b"PUT"), &how(false), &mut out).unwrap();
    client.connection.send_data(1, b"body", true, &mut out).unwrap();
    let mut endpoint: Connection<Downstream> = Connection::new(LIMITS, Strings::Shorter, &mut Vec::new());
    let (mut head, mut said, mut at, mut body) = (RequestHead::default(), Vec::new(), 0, Vec::new());
    loop {
        let (used, event) = endpoint.receive(&out[at..], &mut head, &mut said).unwrap();
        match event {
            Event::More => break,
            Event::Head { stream, parsed, ends } => {
                assert_eq!((stream, parsed.unwrap().framing, ends), (1, Framing::Chunked, false));
                assert_eq!(
                    (head.method_bytes(), head.path(), head.query()),
                    (&b"PUT"[..], &b"/a"[..], Some(&b"b"[..]))
                );
                assert_eq!(head.authority(), b"example.org");
                assert_eq!(head.fields.get(&FieldName::new("x-name").unwrap()), Some(&b"value"[..]));
            }
            Event::Data { range, ends, .. } => {
                body.extend_from_slice(&out[at..][range]);
                assert!(ends);
            }
            other => panic!("{other:?}"),
        }
        at += used;
    }
    assert_eq!(body, b"body");
}

#[test]
fn interim_heads_come_before_the_final_one_and_trailers_after_the_body() {
    let mut peer = Peer::upstream(b"GET", 1);
    let bytes = [
        answer(1, WHOLE, &[(":status", "103"), ("link", "</a>")]),
        answer(1, WHOLE, OK),
        frame(kind::DATA, 0, 1, b"body"),
        answer(1, LAST, &[("grpc-status", "0")]),
    ];
    let seen = peer.take(&bytes.concat());
    let data = Seen::Data(1, b"body".to_vec(), false);
    assert_eq!(seen, [Seen::Head(1, Ok(103), false), Seen::Head(1, Ok(200), false), data, Seen::Trailers(1, 1)]);
    assert!(peer.connection.is_at_rest());
}

#[test]
fn a_message_that_breaks_the_rules_costs_its_stream() {
    let cases: [&[(&str, &str)]; 8] = [
        &[("a", "b")],
        &[(":status", "20")],
        &[(":status", "200"), (":status", "200")],
        &[("a", "b"), (":status", "200")],
        &[(":status", "200"), (":path", "/")],
        &[(":status", "101")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "200"), ("content-length", "1"), ("content-length", "2")],
    ];
    for fields in cases {
        let mut peer = Peer::upstream(b"GET", 2);
        assert_eq!(peer.take(&answer(1, WHOLE, fields)), broken(1, code::PROTOCOL_ERROR), "{fields:?}");
        assert_eq!(peer.reset(), Some((1, code::PROTOCOL_ERROR)));
        // The other one is served.
        assert_eq!(peer.take(&answer(3, LAST, OK)), [Seen::Head(3, Ok(200), true)]);
    }
    // DATA before a head, more of it than was said, less of it, and any of it after the end or for HEAD.
    let length = |value| answer(1, WHOLE, &[(":status", "200"), ("content-length", value)]);
    for (method, before, bytes) in [
        (&b"GET"[..], Vec::new(), frame(kind::DATA, 0, 1, b"a")),
        (b"GET", length("1"), frame(kind::DATA, 0, 1, b"ab")),
        (b"GET", length("3"), frame(kind::DATA, flag::END_STREAM, 1, b"ab")),
        (b"HEAD", length("3"), frame(kind::DATA, flag::END_STREAM, 1, b"abc")),
    ] {
        let mut peer = Peer::upstream(method, 1);
        peer.take(&before);
        assert_eq!(peer.take(&bytes).pop(), broken(1, code::PROTOCOL_ERROR).pop(), "{bytes:?}");
    }
}

#[test]
fn a_head_that_is_too_large_is_told_of_and_one_far_too_large_ends_the_connection() {
    let value = "v".repeat(1_500);
    let mut peer = Peer::upstream(b"GET", 2);
    let seen = peer.take(&answer(1, WHOLE, &[(":status", "200"), ("a", &value)]));
    assert_eq!(seen, [Seen::Head(1, Err(Fault::ResponseHeadTooLarge), false)]);
    assert_eq!(peer.take(&answer(3, LAST, OK)), [Seen::Head(3, Ok(200), true)]);
    // Whatever list a block decodes to, no block may be so long.
    let mut peer = Peer::upstream(b"GET", 1);
    let piece = vec![0; 16_384];
    let mut bytes = frame(kind::HEADERS, 0, 1, &piece);
    (0..4).for_each(|_| bytes.extend(frame(kind::CONTINUATION, 0, 1, &piece)));
    assert_eq!(peer.take(&bytes), [Seen::End(code::ENHANCE_YOUR_CALM)]);
}

#[test]
fn what_is_not_allowed_to_an_endpoint_ends_the_connection() {
    let mut list = block(OK);
    list.splice(0..0, 3_u32.to_be_bytes());
    for (bytes, code) in [
        (frame(kind::PUSH_PROMISE, WHOLE, 1, &list), code::PROTOCOL_ERROR),
        (answer(2, WHOLE, OK), code::PROTOCOL_ERROR),
        (answer(5, WHOLE, OK), code::PROTOCOL_ERROR),
        (frame(kind::DATA, 0, 5, b"a"), code::PROTOCOL_ERROR),
        (frame(kind::HEADERS, WHOLE, 1, b"\xff\xff\xff\xff\xff\xff"), code::COMPRESSION_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 0, &0_u32.to_be_bytes()), code::PROTOCOL_ERROR),
        (frame(kind::WINDOW_UPDATE, 0, 0, &NUMBER_MAX.to_be_bytes()), code::FLOW_CONTROL_ERROR),
    ] {
        let mut peer = Peer::upstream(b"GET", 2);
        assert_eq!(peer.take(&bytes), [Seen::End(code)], "{bytes:?}");
        assert!(peer.connection.is_over() && peer.connection.streams_allowed().is_none());
        let head = FrameHead::parse(peer.out.first_chunk().unwrap());
        // It has begun no stream that we could have looked at.
        assert_eq!((head.kind, frame::number(&peer.out[9..])), (kind::GOAWAY, 0));
    }
    // Settings come first.
    let mut peer = Peer::begun(&[]);
    peer.connection = Connection::upstream(LIMITS, Strings::Shorter, &mut Vec::new());
    assert_eq!(peer.take(b"HTTP/1.1 400 Bad Request\r\n\r\n"), [Seen::End(code::PROTOCOL_ERROR)]);
}

#[test]
fn no_more_streams_are_begun_than_are_allowed() {
    let mut peer = Peer::begun(&[(setting::MAX_CONCURRENT_STREAMS, 1), (setting::ENABLE_CONNECT_PROTOCOL, 1)]);
    assert_eq!((peer.connection.streams_allowed(), peer.connection.offers_connect()), (Some(1), true));
    assert_eq!(peer.ask(b"GET", true), Ok(1));
    assert_eq!(peer.ask(b"GET", true), Err(NotSent::NoRoom));
    assert_eq!(peer.take(&settings(&[(setting::MAX_CONCURRENT_STREAMS, 1_000)])), []);
    assert_eq!((peer.connection.streams_allowed(), peer.ask(b"GET", true)), (Some(100), Ok(3)));
}

#[test]
fn after_a_goodbye_streams_beyond_the_last_are_gone_and_no_others_begin() {
    let mut peer = Peer::upstream(b"POST", 3);
    assert_eq!(peer.take(&goodbye(3)), [Seen::Other("Goaway { code: 0, last: 3 }".to_owned())]);
    assert_eq!(peer.connection.streams_allowed(), None);
    assert_eq!(peer.ask(b"GET", true), Err(NotSent::NoRoom));
    assert!(peer.connection.send_data(5, b"a", true, &mut peer.out).is_err());
    assert_eq!(peer.take(&[answer(1, LAST, OK), answer(3, LAST, OK)].concat()).len(), 2);
    assert!(peer.connection.is_at_rest());
}

#[test]
fn what_still_comes_for_streams_that_were_left_is_passed_over_and_counted() {
    let mut peer = Peer::upstream(b"GET", 1);
    let room = |peer: &mut Peer| {
        peer.out.clear();
        peer.connection.consumed(0, 0, &mut peer.out);
        peer.out.is_empty()
    };
    assert!(room(&mut peer));
    assert!(peer.connection.reset(1, code::CANCEL, &mut peer.out));
    let bytes = [answer(1, WHOLE, OK), frame(kind::DATA, 0, 1, b"late"), answer(1, LAST, &[("a", "b")])];
    assert_eq!(peer.take(&bytes.concat()), []);
    // One that is forgotten costs a reset, and the table of fields stays in step.
    assert_eq!(peer.ask(b"GET", true), Ok(3));
    assert_eq!(peer.take(&answer(1, WHOLE, OK)), broken(1, code::STREAM_CLOSED));
    assert_eq!(peer.take(&answer(3, LAST, OK)), [Seen::Head(3, Ok(200), true)]);
}

#[test]
fn a_response_may_end_before_the_request_and_a_reset_after_it_is_told() {
    let mut peer = Peer::begun(&[]);
    assert_eq!(peer.ask(b"POST", false), Ok(1));
    assert_eq!(peer.take(&answer(1, LAST, OK)), [Seen::Head(1, Ok(200), true)]);
    assert_eq!(peer.connection.send_data(1, b"abc", false, &mut peer.out), Ok(3));
    let reset = frame(kind::RST_STREAM, 0, 1, &code::NO_ERROR.to_be_bytes());
    assert_eq!(peer.take(&reset), [Seen::Other("Reset { stream: 1, code: 0 }".to_owned())]);
    assert!(peer.connection.send_data(1, b"abc", true, &mut peer.out).is_err());
}

#[test]
fn windows_that_have_grown_take_as_much_as_was_said() {
    let mut peer = Peer::upstream(b"GET", 1);
    peer.connection.grow_windows(80_000, 200_000, &mut peer.out);
    peer.connection.grow_windows(70_000, 100_000, &mut peer.out);
    let said = [settings(&[(setting::INITIAL_WINDOW_SIZE, 80_000)]), {
        let mut out = Vec::new();
        frame::push_window_update(&mut out, 0, 100_000);
        out
    }];
    assert_eq!(peer.out, said.concat());
    assert_eq!(peer.take(&answer(1, WHOLE, OK)).len(), 1);
    // Nothing is read, so nothing is given back.
    let mut sent = 0;
    while sent < 80_000 {
        let piece = frame(kind::DATA, 0, 1, &vec![0; 16_000]);
        let (used, _) = peer.connection.receive(&piece, &mut peer.head, &mut peer.out).unwrap();
        assert_eq!(used, piece.len());
        sent += 16_000;
    }
    assert_eq!(peer.take(&frame(kind::DATA, 0, 1, b"a")), broken(1, code::FLOW_CONTROL_ERROR));
}

#[test]
fn a_request_without_an_authority_is_not_sent() {
    let mut peer = Peer::begun(&[]);
    let mut head = request(b"GET");
    head.fields.remove(&FieldName::new("host").unwrap());
    let bad = RequestSent { host_fallback: b"/run/socket", ..how(true) };
    assert_eq!(peer.connection.send_request(&head, &bad, &mut peer.out), Err(NotSent::BadAuthority));
    assert!(peer.out.is_empty() && peer.connection.is_at_rest());
    assert_eq!(peer.connection.send_request(&head, &how(true), &mut peer.out), Ok(1));
}

#[test]
fn frames_of_no_use_are_counted_and_answered_with_no_more_than_they_take() {
    let priority = frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 7]);
    let reset = frame(kind::RST_STREAM, 0, 1, &code::CANCEL.to_be_bytes());
    let step = |stream, step: u32| frame(kind::WINDOW_UPDATE, 0, stream, &step.to_be_bytes());
    for (name, one) in [
        ("PING", frame(kind::PING, 0, 0, &[7; 8])),
        ("answers to no PING", frame(kind::PING, 1, 0, &[7; 8])),
        ("SETTINGS", settings(&[(setting::INITIAL_WINDOW_SIZE, 70_000)])),
        ("empty SETTINGS", settings(&[])),
        ("acknowledgements", frame(kind::SETTINGS, flag::ACK, 0, &[])),
        ("PRIORITY", priority),
        ("unknown frames", frame(99, 0, 0, b"what")),
        ("empty DATA", frame(kind::DATA, 0, 3, &[])),
        ("DATA that is padding", frame(kind::DATA, flag::PADDED, 3, &[2, 0, 0])),
        ("GOAWAY", goodbye(3)),
        ("tiny windows", step(0, 1)),
        ("windows of what is over", step(1, 1_000)),
        ("resets of what is over", reset),
        ("heads of what is over", answer(1, WHOLE, OK)),
        ("DATA of what is over", frame(kind::DATA, 0, 1, b"data")),
    ] {
        let mut peer = Peer::upstream(b"GET", 2);
        peer.take(&[answer(1, LAST, OK), answer(3, WHOLE, OK)].concat());
        peer.connection.take_counts();
        peer.out.clear();
        let bytes = one.repeat(100);
        let seen = peer.take(&bytes);
        assert!(!matches!(seen.last(), Some(Seen::End(_))), "{name}: {seen:?}");
        assert!(peer.connection.take_counts().idle >= 100, "{name}");
        assert!(peer.out.len() <= 2 * bytes.len(), "{name}: {} bytes", peer.out.len());
    }
}

#[test]
fn windows_that_overflow_cost_the_stream_or_the_connection() {
    let most = NUMBER_MAX.to_be_bytes();
    let mut peer = Peer::upstream(b"GET", 2);
    let seen = peer.take(&frame(kind::WINDOW_UPDATE, 0, 1, &most));
    assert_eq!(seen, broken(1, code::FLOW_CONTROL_ERROR));
    assert_eq!(peer.take(&answer(3, LAST, OK)), [Seen::Head(3, Ok(200), true)]);
    for bytes in [
        frame(kind::WINDOW_UPDATE, 0, 0, &most),
        settings(&[(setting::INITIAL_WINDOW_SIZE, NUMBER_MAX + 1)]),
        // The window of a stream that was opened, and then by what all begin with.
        [
            frame(kind::WINDOW_UPDATE, 0, 1, &1_000_u32.to_be_bytes()),
            settings(&[(setting::INITIAL_WINDOW_SIZE, NUMBER_MAX)]),
        ]
        .concat(),
    ] {
        let mut peer = Peer::upstream(b"GET", 1);
        assert_eq!(peer.take(&bytes), [Seen::End(code::FLOW_CONTROL_ERROR)]);
    }
    // What all streams together were allowed, while nothing is read.
    let mut peer = Peer::upstream(b"GET", 3);
    peer.take(&[1, 3, 5].map(|stream| answer(stream, WHOLE, OK)).concat());
    let mut left = LIMITS.connection_window_bytes as usize;
    for stream in [1, 3].into_iter().cycle() {
        let count = left.min(10_000);
        let piece = frame(kind::DATA, 0, stream, &vec![0; count]);
        assert!(peer.connection.receive(&piece, &mut peer.head, &mut peer.out).is_ok());
        left -= count;
        if left == 0 {
            break;
        }
    }
    assert_eq!(peer.take(&frame(kind::DATA, 0, 5, b"a")), [Seen::End(code::FLOW_CONTROL_ERROR)]);
}

#[test]
fn blocks_that_unfold_and_blocks_without_end_end_the_connection() {
    // A field of 3,000 bytes for the table, and then the same thirty times.
    let length = [127, ((3_000 - 127) % 128) as u8 | 128, ((3_000 - 127) / 128) as u8];
    let entry = [&b"\x88\x40\x01a"[..], &length, &[b'v'; 3_000]].concat();
    let mut peer = Peer::upstream(b"GET", 1);
    let bytes = frame(kind::HEADERS, LAST, 1, &[&entry[..], &[0xbe; 30]].concat());
    assert_eq!(peer.take(&bytes), [Seen::End(code::ENHANCE_YOUR_CALM)]);
    let mut peer = Peer::upstream(b"GET", 1);
    let bytes = [frame(kind::HEADERS, 0, 1, b"\x88"), frame(kind::CONTINUATION, 0, 1, &[]).repeat(100)].concat();
    assert_eq!(peer.take(&bytes), [Seen::End(code::ENHANCE_YOUR_CALM)]);
}

#[test]
fn a_second_goodbye_brings_back_nothing_that_the_first_has_ended() {
    let mut peer = Peer::upstream(b"GET", 3);
    peer.take(&[goodbye(1), goodbye(5)].concat());
    assert_eq!(peer.take(&answer(3, LAST, OK)), broken(3, code::STREAM_CLOSED));
    assert_eq!(peer.take(&answer(1, LAST, OK)), [Seen::Head(1, Ok(200), true)]);
    assert_eq!((peer.connection.streams_allowed(), peer.connection.is_at_rest()), (None, true));
}

proptest! {
    #[test]
    fn the_same_is_seen_however_the_bytes_are_split(cuts in vec(0..400_usize, 0..12), noise in vec(any::<u8>(), 0..60)) {
        let bytes = [
            answer(1, WHOLE, &[(":status", "100")]),
            answer(1, WHOLE, &[(":status", "200"), ("content-length", "5")]),
            frame(kind::DATA, flag::PADDED, 1, b"\x02he\0\0"),
            answer(3, WHOLE, OK),
            frame(kind::DATA, flag::END_STREAM, 1, b"llo"),
            answer(3, LAST, &[("a", "b")]),
            noise,
        ]
        .concat();
        let mut whole = Peer::upstream(b"GET", 3);
        let seen = whole.take(&bytes);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let (mut parts, mut start, mut seen_in_parts) = (Peer::upstream(b"GET", 3), 0, Vec::new());
        for cut in cuts {
            for one in parts.take(&bytes[start..cut]) {
                match (seen_in_parts.last_mut(), one) {
                    (Some(Seen::Data(before, all, end @ false)), Seen::Data(stream, more, ends)) if *before == stream => {
                        all.extend(more);
                        *end = ends;
                    }
                    (_, one) => seen_in_parts.push(one),
                }
            }
            start = cut;
            if matches!(seen_in_parts.last(), Some(Seen::End(_))) {
                break;
            }
        }
        prop_assert_eq!(seen_in_parts, seen);
        prop_assert_eq!(parts.out, whole.out);
    }
}
