use model::fields::Span;
use model::{FieldName, RequestHead, ResponseHead, Version};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::frame::NUMBER_MAX;
use super::super::hpack::Decoded;
use super::*;
use crate::http1::Framing;

const LIMITS: Limits = Limits {
    head: HeadLimits { head_bytes_max: 1_000, fields_max: 16 },
    list_bytes_max: 1_000,
    streams_max: 4,
    stream_window_bytes: 65_535,
    connection_window_bytes: 100_000,
    stream_errors_max: 3,
    streams_left_max: 4,
};

const END: u8 = flag::END_STREAM;
const WHOLE: u8 = flag::END_HEADERS;

/// `GET / http://a`.
const GET: &[u8] = b"\x82\x86\x84\x41\x01a";

/// What was seen, with pieces of a body put together.
#[derive(Debug, PartialEq)]
enum Seen {
    Request(u32, Result<String, Fault>, bool),
    Data(u32, Vec<u8>, bool),
    Trailers(u32, usize),
    Reset(u32, u32),
    Broken(u32, u32),
    Opened(u32),
    Pong,
    Goaway(u32),
    End(u32),
}

struct Peer {
    connection: Connection,
    head: RequestHead,
    out: Vec<u8>,
}

type Frame = (u8, u8, u32, Vec<u8>);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FrameHead { length: payload.len() as u32, kind, flags, stream }.push(&mut out);
    out.extend_from_slice(payload);
    out
}

fn get(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, WHOLE | END, stream, GET)
}

fn post(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, WHOLE, stream, &[&b"\x83"[..], &GET[1..]].concat())
}

fn data(stream: u32, bytes: &[u8], flags: u8) -> Vec<u8> {
    frame(kind::DATA, flags, stream, bytes)
}

fn step(stream: u32, step: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &step.to_be_bytes())
}

fn window(size: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&[0_u8, 4][..], &size.to_be_bytes()].concat())
}

fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

impl Peer {
    fn new() -> Self {
        let mut out = Vec::new();
        let connection = Connection::new(LIMITS, Strings::Shorter, &mut out);
        Self { connection, head: RequestHead::default(), out }
    }

    /// Preface and settings are over.
    fn begun() -> Self {
        let mut peer = Self::new();
        assert_eq!(peer.take(&[&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[])].concat()), []);
        peer.connection.take_counts();
        peer.out.clear();
        peer
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Seen> {
        let mut seen = Vec::new();
        self.take_to(bytes, &mut seen);
        seen
    }

    fn take_to(&mut self, bytes: &[u8], seen: &mut Vec<Seen>) {
        let mut rest = bytes;
        loop {
            let (used, event) = match self.connection.receive(rest, &mut self.head, &mut self.out) {
                Ok(received) => received,
                Err(code) => {
                    seen.push(Seen::End(code));
                    return;
                }
            };
            let one = match event {
                Event::More => {
                    assert_eq!(used, rest.len());
                    return;
                }
                Event::Head { stream, parsed, ends } => {
                    let path = String::from_utf8_lossy(self.head.path()).into_owned();
                    Seen::Request(stream, parsed.map(|_| path), ends)
                }
                Event::Data { stream, range, ends } => {
                    let bytes = rest[range].to_vec();
                    if let Some(Seen::Data(before, all, false)) = seen.last_mut()
                        && *before == stream
                    {
                        all.extend(bytes);
                        let all = std::mem::take(all);
                        seen.pop();
                        Seen::Data(stream, all, ends)
                    } else {
                        Seen::Data(stream, bytes, ends)
                    }
                }
                Event::Trailers { stream, fields } => Seen::Trailers(stream, fields.map_or(0, |fields| fields.len())),
                Event::Reset { stream, code } => Seen::Reset(stream, code),
                Event::Broken { stream, code } => Seen::Broken(stream, code),
                Event::Opened { stream } => Seen::Opened(stream),
                Event::Pong(_) => Seen::Pong,
                Event::Goaway { code, .. } => Seen::Goaway(code),
            };
            seen.push(one);
            rest = &rest[used..];
        }
    }

    /// The frames that were sent since this was last asked.
    fn sent(&mut self) -> Vec<Frame> {
        let out = std::mem::take(&mut self.out);
        let (mut rest, mut frames) = (&out[..], Vec::new());
        while let Some((bytes, behind)) = rest.split_first_chunk() {
            let head = FrameHead::parse(bytes);
            let (payload, behind) = behind.split_at(head.length as usize);
            frames.push((head.kind, head.flags, head.stream, payload.to_vec()));
            rest = behind;
        }
        assert!(rest.is_empty());
        frames
    }

    fn respond(&mut self, stream: u32, ends: bool) {
        let head = ResponseHead::default();
        let framing = if ends { Framing::None } else { Framing::Chunked };
        self.connection.send_head(stream, (&head, 200), (framing, ends), &mut self.out).unwrap();
    }
}

fn asked(stream: u32, ends: bool) -> Seen {
    Seen::Request(stream, Ok("/".to_owned()), ends)
}

#[test]
fn a_connection_begins_with_settings_and_a_larger_window() {
    let mut peer = Peer::new();
    let sent = peer.sent();
    assert_eq!((sent[0].0, sent[0].3.len()), (kind::SETTINGS, 24));
    assert_eq!(sent[1], (kind::WINDOW_UPDATE, 0, 0, (100_000_u32 - 65_535).to_be_bytes().to_vec()));
    assert!(!peer.connection.has_settings());
    peer.take(&[&PREFACE[..], &window(9)].concat());
    assert!(peer.connection.has_settings() && peer.connection.is_at_rest());
    assert_eq!(peer.sent(), [(kind::SETTINGS, flag::ACK, 0, Vec::new())]);
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSN"] {
        assert_eq!(Peer::new().take(bytes), [Seen::End(code::PROTOCOL_ERROR)]);
    }
    for first in [get(1), frame(kind::SETTINGS, flag::ACK, 0, &[]), frame(0x77, 0, 0, &[])] {
        assert_eq!(Peer::new().take(&[&PREFACE[..], &first].concat()), [Seen::End(code::PROTOCOL_ERROR)]);
    }
}

#[test]
fn a_request_with_body_and_trailers_is_answered_in_kind() {
    let mut peer = Peer::begun();
    let trailers = frame(kind::HEADERS, WHOLE | END, 1, b"\x00\x03x-a\x01b\x00\x07trailer\x01c");
    let bytes = [post(1), data(1, b"\x02body\0\0", flag::PADDED), data(1, b"more", 0), trailers].concat();
    let wanted = [asked(1, false), Seen::Data(1, b"bodymore".to_vec(), false), Seen::Trailers(1, 1)];
    assert_eq!(peer.take(&bytes), wanted);
    let mut head = ResponseHead::default();
    head.set_line(200, Span::default(), Version::Http11);
    let (connection, out) = (&mut peer.connection, &mut peer.out);
    assert_eq!(connection.send_head(1, (&head, 103), (Framing::None, false), out), Ok(()));
    assert_eq!(connection.send_data(1, b"early", false, out), Err(Gone));
    assert_eq!(connection.send_head(1, (&head, 200), (Framing::Length(4), false), out), Ok(()));
    assert_eq!(connection.send_head(1, (&head, 200), (Framing::Length(4), false), out), Err(Gone));
    assert_eq!(connection.send_data(1, b"body", false, out), Ok(4));
    let mut fields = Fields::default();
    fields.append(&FieldName::new("X-End").unwrap(), b"1");
    assert_eq!(connection.send_trailers(1, &fields, out), Ok(()));
    assert_eq!(connection.send_data(1, b"late", false, out), Err(Gone));
    assert!(connection.is_at_rest());
    let (sent, mut decoder) = (peer.sent(), Decoder::new(TABLE_BYTES));
    let kinds: Vec<_> = sent.iter().map(|(kind, flags, stream, _)| (*kind, *flags, *stream)).collect();
    let head = (kind::HEADERS, WHOLE, 1);
    assert_eq!(kinds, [head, head, (kind::DATA, 0, 1), (kind::HEADERS, WHOLE | END, 1)]);
    let mut lines = String::new();
    for (_, _, _, block) in sent.iter().filter(|(kind, ..)| *kind == kind::HEADERS) {
        let read = decoder.decode(block, 1_000, |name, value| {
            lines += &format!("{}={};", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        });
        assert_eq!(read, Ok(Decoded::Whole));
    }
    assert_eq!(lines, ":status=103;:status=200;content-length=4;x-end=1;");
}

#[test]
fn what_may_be_answered_is_told_of_and_what_is_malformed_ends_its_stream() {
    let mut peer = Peer::begun();
    let large = [GET, b"\x00\x01x\x7f\xe9\x06", &[b'v'; 1_000]].concat();
    let large = frame(kind::HEADERS, WHOLE | END, 1, &large);
    assert_eq!(peer.take(&large), [Seen::Request(1, Err(Fault::HeadTooLarge), true)]);
    let connect = frame(kind::HEADERS, WHOLE, 3, b"\x02\x07CONNECT\x01\x01a");
    assert_eq!(peer.take(&connect), [Seen::Request(3, Err(Fault::NotImplemented), false)]);
    let socket = b"\x02\x07CONNECT\x86\x84\x41\x01a\x00\x09:protocol\x09websocket";
    assert_eq!(peer.take(&frame(kind::HEADERS, WHOLE, 5, socket)), [asked(5, false)]);
    peer.sent();
    let malformed: [&[u8]; 3] =
        [b"\x86\x84\x41\x01a", b"\x82\x82\x86\x84\x41\x01a", b"\x82\x86\x84\x41\x01a\x00\x01X\x01v"];
    for (at, block) in malformed.into_iter().enumerate() {
        let stream = 7 + 2 * at as u32;
        let seen = peer.take(&frame(kind::HEADERS, WHOLE, stream, block));
        assert_eq!(seen, [Seen::Broken(stream, code::PROTOCOL_ERROR)]);
        assert_eq!(peer.sent(), [(kind::RST_STREAM, 0, stream, vec![0, 0, 0, 1])]);
        // What was on its way is passed over.
        assert_eq!(peer.take(&data(stream, b"body", END)), []);
    }
    // One too many.
    assert_eq!(peer.take(&frame(kind::HEADERS, WHOLE, 13, b"\x82")), [Seen::End(code::ENHANCE_YOUR_CALM)]);
    let goodbye = [&13_u32.to_be_bytes()[..], &[0, 0, 0, 11]].concat();
    assert_eq!(peer.sent(), [(kind::GOAWAY, 0, 0, goodbye)]);
    assert!(peer.connection.is_over() && peer.take(&get(15)).is_empty());
}

#[test]
fn every_rule_that_ends_the_connection_has_its_code() {
    let pairs = |id: u16, value: u32| {
        let pair = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        frame(kind::SETTINGS, 0, 0, &pair)
    };
    let ended = [get(1), reset(1)].concat();
    for (name, bytes, wanted) in [
        ("an even stream", get(2), code::PROTOCOL_ERROR),
        ("a stream that was skipped", [get(5), get(3)].concat(), code::PROTOCOL_ERROR),
        ("a head behind the end", [ended, get(1)].concat(), code::STREAM_CLOSED),
        ("data before a head", data(1, b"x", 0), code::PROTOCOL_ERROR),
        ("a reset before a head", reset(1), code::PROTOCOL_ERROR),
        ("a step before a head", step(1, 1), code::PROTOCOL_ERROR),
        ("no step", step(0, 0), code::PROTOCOL_ERROR),
        ("too large a step", step(0, NUMBER_MAX), code::FLOW_CONTROL_ERROR),
        ("push of a client", frame(kind::PUSH_PROMISE, WHOLE, 1, &[0; 4]), code::PROTOCOL_ERROR),
        ("as much padding as payload", [post(1), data(1, b"\x04abc", flag::PADDED)].concat(), code::PROTOCOL_ERROR),
        ("a short frame", [post(1), data(1, b"", flag::PADDED)].concat(), code::FRAME_SIZE_ERROR),
        ("too long a frame", frame(kind::PING, 0, 0, &[0; 16_385]), code::FRAME_SIZE_ERROR),
        ("a short PRIORITY of no stream", frame(kind::PRIORITY, 0, 1, &[0; 4]), code::FRAME_SIZE_ERROR),
        ("a stream that depends on itself", frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), code::PROTOCOL_ERROR),
        ("no such index", frame(kind::HEADERS, WHOLE, 1, b"\xbe"), code::COMPRESSION_ERROR),
        ("CONTINUATION alone", frame(kind::CONTINUATION, WHOLE, 1, b""), code::PROTOCOL_ERROR),
        ("push that is no yes or no", pairs(2, 2), code::PROTOCOL_ERROR),
        ("too large a window", pairs(4, 1 << 31), code::FLOW_CONTROL_ERROR),
        ("too small a frame", pairs(5, 16_383), code::PROTOCOL_ERROR),
        ("too large a frame", pairs(5, 1 << 24), code::PROTOCOL_ERROR),
        (
            "windows that grow too large",
            [get(1), step(1, NUMBER_MAX - 65_535), window(65_536)].concat(),
            code::FLOW_CONTROL_ERROR,
        ),
    ] {
        let mut peer = Peer::begun();
        assert_eq!(peer.take(&bytes).last(), Some(&Seen::End(wanted)), "{name}");
        let (kind, .., payload) = peer.sent().pop().unwrap();
        assert_eq!((kind, frame::number(&payload[4..])), (kind::GOAWAY, wanted), "{name}");
    }
}

#[test]
fn every_rule_that_ends_a_stream_has_its_code() {
    let length = |length: u8| {
        let block = [&b"\x83"[..], &GET[1..], &[0x0f, 13, 1, length]].concat();
        frame(kind::HEADERS, WHOLE, 1, &block)
    };
    for (name, bytes, wanted) in [
        ("no step", [post(1), step(1, 0)].concat(), code::PROTOCOL_ERROR),
        ("too large a step", [post(1), step(1, NUMBER_MAX)].concat(), code::FLOW_CONTROL_ERROR),
        ("data behind the end", [get(1), data(1, b"x", 0)].concat(), code::STREAM_CLOSED),
        ("a head behind the end", [get(1), get(1)].concat(), code::STREAM_CLOSED),
        ("data of a stream that was reset", [post(1), reset(1), data(1, b"x", 0)].concat(), code::STREAM_CLOSED),
        ("more than its length", [length(b'2'), data(1, b"abc", 0)].concat(), code::PROTOCOL_ERROR),
        ("less than its length", [length(b'2'), data(1, b"a", END)].concat(), code::PROTOCOL_ERROR),
        (
            "trailers before its length",
            [length(b'2'), frame(kind::HEADERS, WHOLE | END, 1, b"")].concat(),
            code::PROTOCOL_ERROR,
        ),
        ("content where none is", [length(b'0'), data(1, b"a", 0)].concat(), code::PROTOCOL_ERROR),
        ("a second head", [post(1), post(1)].concat(), code::PROTOCOL_ERROR),
        (
            "a pseudo-header field at the end",
            [post(1), frame(kind::HEADERS, WHOLE | END, 1, b"\x82")].concat(),
            code::PROTOCOL_ERROR,
        ),
        ("a short PRIORITY", [post(1), frame(kind::PRIORITY, 0, 1, &[0; 4])].concat(), code::FRAME_SIZE_ERROR),
    ] {
        let mut peer = Peer::begun();
        assert_eq!(peer.take(&bytes).last(), Some(&Seen::Broken(1, wanted)), "{name}");
        let (kind, _, stream, payload) = peer.sent().pop().unwrap();
        assert_eq!((kind, stream, payload), (kind::RST_STREAM, 1, wanted.to_be_bytes().to_vec()), "{name}");
        // The others go on.
        assert_eq!(peer.take(&get(3)), [asked(3, true)], "{name}");
    }
}

#[test]
fn a_client_sends_no_more_than_windows_allow_and_they_open_as_bytes_are_handed_on() {
    let mut peer = Peer::begun();
    peer.take(&[post(1), post(3)].concat());
    let full = |stream, count: usize| {
        let whole = (0..count / 16_384).map(|_| data(stream, &[0; 16_384], 0)).collect::<Vec<_>>().concat();
        [whole, data(stream, &vec![0; count % 16_384], 0)].concat()
    };
    assert_eq!(peer.take(&full(1, 65_535)), [Seen::Data(1, vec![0; 65_535], false)]);
    assert_eq!(peer.sent(), []);
    peer.connection.consumed(1, 32_766, &mut peer.out);
    assert_eq!(peer.sent(), []);
    peer.connection.consumed(1, 1, &mut peer.out);
    assert_eq!(peer.sent(), [(kind::WINDOW_UPDATE, 0, 1, 32_767_u32.to_be_bytes().to_vec())]);
    peer.connection.consumed(1, 32_768, &mut peer.out);
    let opened = |stream: u32, step: u32| (kind::WINDOW_UPDATE, 0, stream, step.to_be_bytes().to_vec());
    assert_eq!(peer.sent(), [opened(0, 65_535), opened(1, 32_768)]);
    // More than the window of a stream.
    assert_eq!(peer.take(&full(3, 65_535)).len(), 1);
    assert_eq!(peer.take(&data(3, b"x", 0)), [Seen::Broken(3, code::FLOW_CONTROL_ERROR)]);
    // More than that of the connection, of which 65,535 are taken and not handed on.
    let seen = peer.take(&full(1, 34_466));
    assert_eq!(seen, [Seen::Data(1, vec![0; 32_768], false), Seen::End(code::FLOW_CONTROL_ERROR)]);
}

#[test]
fn no_more_is_sent_than_windows_allow_and_it_is_told_when_they_open() {
    let mut peer = Peer::begun();
    assert_eq!(peer.take(&[window(10), get(1), get(3)].concat()), [asked(1, true), asked(3, true)]);
    peer.respond(1, false);
    peer.respond(3, false);
    peer.sent();
    let (connection, out) = (&mut peer.connection, &mut peer.out);
    assert_eq!(connection.send_data(1, &[7; 30], true, out), Ok(10));
    assert_eq!((connection.send_data(1, &[7; 20], true, out), connection.room(1)), (Ok(0), 0));
    assert_eq!(connection.room(3), 10);
    assert_eq!(peer.sent(), [(kind::DATA, 0, 1, vec![7; 10])]);
    // It becomes negative.
    assert_eq!(peer.take(&[window(2), step(1, 8)].concat()), []);
    assert_eq!(peer.take(&step(1, 1)), [Seen::Opened(1)]);
    assert_eq!(peer.take(&window(6)), []);
    assert_eq!(peer.connection.room(1), 5);
    peer.sent();
    assert_eq!(peer.connection.push_data_head(1, 5, true, &mut peer.out), Ok(5));
    peer.out.extend_from_slice(&[8; 5]);
    assert_eq!(peer.sent(), [(kind::DATA, END, 1, vec![8; 5])]);
    assert_eq!(peer.connection.send_data(1, b"", true, &mut peer.out), Err(Gone));
    assert_eq!(peer.connection.send_data(3, b"", true, &mut peer.out), Ok(0));
    assert_eq!(peer.sent(), [(kind::DATA, END, 3, Vec::new())]);
    assert!(peer.connection.is_at_rest());
    // The window of the connection, in frames that everybody takes.
    assert_eq!(peer.take(&[window(NUMBER_MAX), get(5)].concat()), [asked(5, true)]);
    peer.respond(5, false);
    peer.sent();
    let rest = 65_535 - 15;
    assert_eq!(peer.connection.send_data(5, &[0; 100_000], false, &mut peer.out), Ok(rest));
    assert!(peer.sent().iter().all(|(.., payload)| payload.len() <= 16_384));
    assert_eq!(peer.take(&step(5, 65_521)), [Seen::Broken(5, code::FLOW_CONTROL_ERROR)]);
    assert_eq!(peer.take(&step(0, 1)), [Seen::Opened(0)]);
}

#[test]
fn a_block_in_parts_is_put_together_and_has_a_bound() {
    let mut peer = Peer::begun();
    let parts = [
        frame(kind::HEADERS, END, 1, &GET[..2]),
        frame(kind::CONTINUATION, 0, 1, &GET[2..5]),
        frame(kind::CONTINUATION, WHOLE, 1, &GET[5..]),
    ];
    assert_eq!(peer.take(&parts.concat()), [asked(1, true)]);
    let begin = frame(kind::HEADERS, END, 3, GET);
    let other = frame(kind::CONTINUATION, 0, 1, b"");
    for between in [get(5), frame(kind::PING, 0, 0, &[0; 8]), frame(0x99, 0, 3, b""), other] {
        let seen = Peer::begun().take(&[begin.clone(), between].concat());
        assert_eq!(seen, [Seen::End(code::PROTOCOL_ERROR)]);
    }
    let flood = |payload: &[u8]| [begin.clone(), frame(kind::CONTINUATION, 0, 3, payload).repeat(70)].concat();
    assert_eq!(Peer::begun().take(&flood(b"")), [Seen::End(code::ENHANCE_YOUR_CALM)]);
    let mut peer = Peer::begun();
    assert_eq!(peer.take(&flood(&[0; 16_384])), [Seen::End(code::ENHANCE_YOUR_CALM)]);
    assert!(peer.connection.pending.is_none() && peer.connection.held.is_empty());
}

#[test]
fn streams_beyond_the_bound_are_refused_and_may_come_again() {
    let mut peer = Peer::begun();
    let five = [get(1), post(3), get(5), get(7), post(9), data(9, b"body", END)].concat();
    assert_eq!(peer.take(&five), [asked(1, true), asked(3, false), asked(5, true), asked(7, true)]);
    assert_eq!(peer.sent(), [(kind::RST_STREAM, 0, 9, vec![0, 0, 0, 7])]);
    peer.respond(1, true);
    assert_eq!(peer.take(&get(11)), [asked(11, true)]);
    assert_eq!(peer.connection.take_counts().idle, 1);
}

#[test]
fn what_still_comes_for_a_stream_that_was_left_is_passed_over() {
    let mut peer = Peer::begun();
    peer.take(&post(1));
    peer.respond(1, true);
    assert!(peer.connection.reset(1, code::NO_ERROR, &mut peer.out));
    assert!(!peer.connection.reset(1, code::NO_ERROR, &mut peer.out));
    peer.sent();
    let late = [data(1, &[0; 16_000], 0), step(1, 9), frame(kind::HEADERS, WHOLE | END, 1, b"\x40\x01a\x01b")].concat();
    assert_eq!(peer.take(&late), []);
    // Its trailers were decoded, for the next block may refer to them.
    let block = [GET, b"\xbf"].concat();
    assert_eq!(peer.take(&frame(kind::HEADERS, WHOLE | END, 3, &block)), [asked(3, true)]);
    // A stream that is left while a frame of its is coming.
    peer.take(&[post(5), data(5, &[1; 100], END)[..50].to_vec()].concat());
    peer.connection.reset(5, code::CANCEL, &mut peer.out);
    assert_eq!(peer.take(&data(5, &[1; 100], END)[50..]), []);
    assert_eq!(peer.take(&get(7)), [asked(7, true)]);
}

#[test]
fn a_goodbye_says_the_last_stream_when_none_can_be_on_its_way() {
    let mut peer = Peer::begun();
    peer.take(&get(1));
    peer.connection.announce_shutdown(&mut peer.out);
    peer.connection.announce_shutdown(&mut peer.out);
    let sent = peer.sent();
    assert_eq!(sent[0], (kind::GOAWAY, 0, 0, [&NUMBER_MAX.to_be_bytes()[..], &[0; 4]].concat()));
    assert_eq!((sent.len(), sent[1].0), (2, kind::PING));
    // Another was on its way.
    assert_eq!(peer.take(&get(3)), [asked(3, true)]);
    assert_eq!(peer.take(&frame(kind::PING, flag::ACK, 0, b"whatever")), [Seen::Pong]);
    assert!(!peer.connection.has_sent_final_goaway());
    assert_eq!(peer.take(&frame(kind::PING, flag::ACK, 0, &sent[1].3)), [Seen::Pong]);
    assert_eq!(peer.sent(), [(kind::GOAWAY, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    // What begins later is refused, what was begun goes on.
    assert_eq!(peer.take(&[post(5), data(5, b"x", END)].concat()), []);
    assert_eq!(peer.sent(), [(kind::RST_STREAM, 0, 5, vec![0, 0, 0, 7])]);
    peer.respond(3, true);
    peer.respond(1, true);
    assert!(peer.connection.is_at_rest() && peer.connection.has_sent_final_goaway());
    peer.sent();
    peer.connection.abort(code::ENHANCE_YOUR_CALM, &mut peer.out);
    assert_eq!(peer.sent(), [(kind::GOAWAY, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 11])]);
}

#[test]
fn frames_of_no_use_are_answered_where_they_must_be_and_counted() {
    let mut peer = Peer::begun();
    peer.take(&get(1));
    for (bytes, idle) in [
        (frame(kind::PING, 0, 0, b"12345678"), 1),
        (frame(kind::SETTINGS, 0, 0, &[]), 1),
        (frame(kind::SETTINGS, flag::ACK, 0, &[]), 1),
        (frame(kind::PRIORITY, 0, 9, &[0; 5]), 1),
        (frame(0x10, 0, 0, b"whatever"), 1),
        (step(0, 255), 1),
        (step(1, 256), 0),
        ([post(3), data(3, b"", 0)].concat(), 1),
        (data(3, b"", END), 0),
        (reset(3), 0),
        (reset(3), 1),
        (frame(kind::GOAWAY, 0, 0, &[0; 8]), 1),
    ] {
        peer.take(&bytes);
        assert_eq!(peer.connection.take_counts().idle, idle, "{bytes:?}");
    }
    let ping = (kind::PING, flag::ACK, 0, b"12345678".to_vec());
    assert_eq!(peer.sent(), [ping, (kind::SETTINGS, flag::ACK, 0, Vec::new())]);
    assert_eq!(peer.take(&frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 9])), [Seen::Goaway(9)]);
}

#[test]
fn a_stream_that_ends_before_its_answer_counts_whoever_ends_it() {
    let mut peer = Peer::begun();
    let mut counts = |bytes: &[u8], is_answered: bool| {
        let (head, rest) = bytes.split_at(HEAD_BYTES + GET.len());
        peer.take(head);
        if is_answered {
            let stream = frame::number(&bytes[5..]);
            peer.respond(stream, false);
        }
        peer.take(rest);
        let Counts { idle, discarded, answered } = peer.connection.take_counts();
        (idle, discarded, answered)
    };
    for (at, is_answered) in [false, true].into_iter().enumerate() {
        let wanted = (0, u32::from(!is_answered), u32::from(is_answered));
        let stream = 20 * at as u32 + 1;
        // By the client; and by us, for what it has sent.
        assert_eq!(counts(&[get(stream), reset(stream)].concat(), is_answered), wanted);
        let stream = stream + 2;
        assert_eq!(counts(&[get(stream), step(stream, NUMBER_MAX)].concat(), is_answered), wanted);
        let stream = stream + 2;
        assert_eq!(counts(&[get(stream), data(stream, b"late", 0)].concat(), is_answered).1, wanted.1);
    }
    let mut peer = Peer::begun();
    // Malformed, and refused.
    peer.take(&frame(kind::HEADERS, WHOLE | END, 1, b"\x82"));
    assert_eq!(peer.connection.take_counts(), Counts { discarded: 1, ..Counts::default() });
    peer.take(&get(3));
    peer.connection.refuse(3, &mut peer.out);
    assert_eq!(peer.connection.take_counts(), Counts { idle: 1, ..Counts::default() });
    // An interim response is no answer.
    peer.take(&get(5));
    let head = ResponseHead::default();
    peer.connection.send_head(5, (&head, 103), (Framing::None, false), &mut peer.out).unwrap();
    peer.take(&reset(5));
    assert_eq!(peer.connection.take_counts(), Counts { discarded: 1, ..Counts::default() });
}

#[test]
fn a_stream_that_was_waited_for_is_not_thrown_away_in_haste() {
    let mut peer = Peer::begun();
    peer.connection.set_tick(7);
    peer.take(&[get(1), get(3)].concat());
    peer.connection.set_tick(9);
    peer.take(&reset(1));
    assert_eq!(peer.connection.take_counts().discarded, 1);
    peer.connection.set_tick(10);
    peer.take(&reset(3));
    assert_eq!(peer.connection.take_counts(), Counts::default());
}

#[test]
fn little_is_kept_of_a_large_head_and_of_streams_that_were_left() {
    let mut peer = Peer::begun();
    let path = [&b"\x82\x86\x41\x01a\x04\x7f\xa1\x05/"[..], &[b'p'; 799]].concat();
    let seen = peer.take(&frame(kind::HEADERS, WHOLE | END, 1, &path));
    assert!(matches!(&seen[..], [Seen::Request(1, Ok(path), true)] if path.len() == 800), "{seen:?}");
    assert!(peer.connection.memory.capacity() <= MEMORY_KEPT_BYTES, "{}", peer.connection.memory.capacity());
    let streams = [3, 5, 7];
    for stream in streams {
        peer.take(&post(stream));
        peer.connection.reset(stream, code::CANCEL, &mut peer.out);
    }
    peer.take(&streams.map(|stream| data(stream, b"late", END)).concat());
    assert!(streams.iter().all(|stream| peer.connection.streams.state_of(*stream) == StreamState::Ended));
    assert!(peer.connection.streams.room() <= 8, "{}", peer.connection.streams.room());
}

#[test]
fn a_list_that_is_far_too_large_ends_the_connection() {
    // Two bytes each for a name of thousands that is to be remembered anew.
    let name = [&b"\x40\x7f\x91\x1e"[..], &[b'n'; 3984], b"\x00"].concat();
    let block = |times: usize| [GET, &name, &b"\x7e\x00".repeat(times)].concat();
    let take = |block: &[u8]| Peer::begun().take(&frame(kind::HEADERS, WHOLE | END, 1, block));
    assert_eq!(take(&block(10)), [Seen::Request(1, Err(Fault::HeadTooLarge), true)]);
    assert_eq!(take(&block(5_000)), [Seen::End(code::ENHANCE_YOUR_CALM)]);
}

#[test]
fn a_head_is_that_of_http_2() {
    let mut peer = Peer::begun();
    peer.take(&get(1));
    assert_eq!((peer.head.version, peer.head.authority()), (Version::Http2, &b"a"[..]));
}

/// Frames that mostly keep to the rules, and their parts.
fn script() -> impl Strategy<Value = Vec<u8>> {
    let stream = (0_u32..6).prop_map(|number| 2 * number + 1);
    let one = (0_u8..16, stream, vec(any::<u8>(), 0..40), any::<bool>()).prop_map(|(what, stream, bytes, ends)| {
        let end = if ends { END } else { 0 };
        match what {
            0 | 1 => get(stream),
            2 | 3 => post(stream),
            4 | 5 => data(stream, &bytes, end),
            6 => data(stream, &[&[2_u8][..], &bytes, &[0, 0]].concat(), end | flag::PADDED),
            7 => frame(kind::HEADERS, WHOLE | END, stream, b"\x40\x01t\x01v"),
            8 => {
                let rest = frame(kind::CONTINUATION, WHOLE, stream, &GET[3..]);
                [frame(kind::HEADERS, end, stream, &GET[..3]), rest].concat()
            }
            9 => step(if ends { stream } else { 0 }, 1 + bytes.len() as u32),
            10 => window(bytes.len() as u32),
            11 => reset(stream),
            12 => frame(kind::PING, end, 0, b"01234567"),
            13 => frame(0x20, 0, stream, &bytes),
            14 => frame(kind::PRIORITY, 0, stream, &[0; 5]),
            _ => frame(bytes.len() as u8 % 11, end | WHOLE, stream, &bytes),
        }
    });
    vec(one, 0..30).prop_map(|frames| frames.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_the_bytes_are_split_the_same_is_seen_and_sent(
        script in script(),
        cuts in vec(any::<proptest::sample::Index>(), 0..12),
        by_bytes in any::<bool>(),
    ) {
        let bytes = [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[]), &script].concat();
        let mut whole = Peer::new();
        let wanted = whole.take(&bytes);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        if by_bytes {
            ends = (0..bytes.len()).collect();
        }
        ends.push(bytes.len());
        ends.sort_unstable();
        let (mut parts, mut seen, mut start) = (Peer::new(), Vec::new(), 0);
        for end in ends {
            if !matches!(seen.last(), Some(Seen::End(_))) {
                parts.take_to(&bytes[start..end], &mut seen);
            }
            start = end;
        }
        prop_assert_eq!(seen, wanted);
        prop_assert_eq!(parts.connection.take_counts(), whole.connection.take_counts());
        prop_assert_eq!(parts.sent(), whole.sent());
    }

    #[test]
    fn no_bytes_make_it_panic_or_write_much(bytes in vec(any::<u8>(), 0..300), script in script()) {
        let mut peer = Peer::begun();
        peer.take(&[&script[..], &bytes].concat());
        prop_assert!(peer.out.len() <= 2 * (script.len() + bytes.len()) + 64);
    }
}
