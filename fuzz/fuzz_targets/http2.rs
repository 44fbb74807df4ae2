//! A client's HTTP/2 connection in any bytes, and an endpoint's: no panic; the same is seen and sent in pieces of any size; a request
//! that is accepted is one of HTTP/1.1 too; what is sent keeps to the rules and to the windows; what is written of fields is read again.
#![no_main]

use equipoise_fuzz::{choice_and_message, cuts};
use libfuzzer_sys::fuzz_target;
use model::{RequestHead, ResponseHead};
use wire::http1::{Framing, HeadLimits, HeadScan, SendRequest, parse_request, write_request};
use wire::http2::PREFACE;
use wire::http2::connection::{Connection, Event, Limits, RequestSent, Upstream};
use wire::http2::frame::{FrameHead, HEAD_BYTES, kind, number};
use wire::http2::hpack::{Decoded, Decoder, Encoder, Strings, TABLE_BYTES};

const LIMITS: Limits = Limits {
    head: HeadLimits { head_bytes_max: 1 << 12, fields_max: 16 },
    list_bytes_max: 1 << 12,
    streams_max: 4,
    stream_window_bytes: 65_535,
    connection_window_bytes: 65_535,
    stream_errors_max: 8,
    streams_left_max: 4,
};

/// What was seen, data by its streams and ends.
#[derive(Debug, PartialEq)]
struct Seen {
    events: Vec<String>,
    body: Vec<u8>,
    sent: Vec<u8>,
    idle: u32,
}

/// One that answers whatever it is asked at once; `choice` says how.
struct Peer {
    connection: Connection,
    choice: u8,
    head: RequestHead,
    seen: Seen,
}

impl Peer {
    fn new(choice: u8) -> Self {
        let strings = if choice & 1 == 0 { Strings::Shorter } else { Strings::Plain };
        let mut sent = Vec::new();
        let connection = Connection::new(LIMITS, strings, &mut sent);
        let seen = Seen { events: Vec::new(), body: Vec::new(), sent, idle: 0 };
        Self { connection, choice, head: RequestHead::default(), seen }
    }

    /// False: the connection has ended.
    fn take(&mut self, mut input: &[u8]) -> bool {
        loop {
            let (used, event) = match self.connection.receive(input, &mut self.head, &mut self.seen.sent) {
                Ok(received) => received,
                Err(code) => {
                    self.seen.events.push(format!("end {code}"));
                    return false;
                }
            };
            match event {
                Event::More => {
                    assert_eq!(used, input.len());
                    self.seen.idle += self.connection.take_counts().idle;
                    return true;
                }
                Event::Data { stream, range, ends } => {
                    self.seen.body.extend_from_slice(&input[range.clone()]);
                    if ends {
                        self.seen.events.push(format!("whole {stream}"));
                    }
                    self.connection.consumed(stream, range.len(), &mut self.seen.sent);
                }
                Event::Head { stream, parsed, ends } => {
                    self.seen.events.push(format!("request {stream} {parsed:?} {ends}"));
                    if let Ok(parsed) = parsed {
                        check_request(&self.head, parsed.framing, parsed.upgrade);
                    }
                    self.answer(stream);
                }
                other => self.seen.events.push(format!("{other:?}")),
            }
            input = &input[used..];
        }
    }

    fn answer(&mut self, stream: u32) {
        let (connection, sent) = (&mut self.connection, &mut self.seen.sent);
        let ends = self.choice & 2 == 0;
        let framing = if ends { Framing::None } else { Framing::Chunked };
        let head = ResponseHead::default();
        connection.send_head(stream, (&head, 200), (framing, ends), sent).expect("a stream that is new");
        if !ends {
            let room = connection.room(stream);
            let body = [7; 300];
            let count = connection.send_data(stream, &body, true, sent).expect("its head was sent");
            assert_eq!(count, room.min(body.len()));
        }
        if self.choice & 4 != 0 {
            connection.reset(stream, 0, sent);
        }
    }
}

/// One that has asked an endpoint four times, and looks at what that answers.
struct Caller {
    connection: Connection<Upstream>,
    head: ResponseHead,
    seen: Seen,
}

impl Caller {
    fn new(choice: u8) -> Self {
        let strings = if choice & 1 == 0 { Strings::Shorter } else { Strings::Plain };
        let mut sent = Vec::new();
        let mut connection = Connection::upstream(LIMITS, strings, &mut sent);
        sent.drain(..PREFACE.len());
        for place in 0..4 {
            let ends = choice >> place & 1 == 0;
            let framing = if ends { Framing::None } else { Framing::Chunked };
            let is_websocket = place == 3;
            let how = RequestSent { framing, is_https: false, is_websocket, host_fallback: b"a", ends };
            let stream = connection.send_request(&RequestHead::default(), &how, &mut sent).expect("there is room");
            assert_eq!(stream, 2 * place + 1);
        }
        let seen = Seen { events: Vec::new(), body: Vec::new(), sent, idle: 0 };
        Self { connection, head: ResponseHead::default(), seen }
    }

    /// False: the connection has ended.
    fn take(&mut self, mut input: &[u8]) -> bool {
        loop {
            let (used, event) = match self.connection.receive(input, &mut self.head, &mut self.seen.sent) {
                Ok(received) => received,
                Err(code) => {
                    self.seen.events.push(format!("end {code}"));
                    assert_eq!(self.connection.streams_allowed(), None);
                    return false;
                }
            };
            match event {
                Event::More => return true,
                Event::Data { stream, range, ends } => {
                    self.seen.body.extend_from_slice(&input[range.clone()]);
                    if ends {
                        self.seen.events.push(format!("whole {stream}"));
                    }
                    self.connection.consumed(stream, range.len(), &mut self.seen.sent);
                }
                Event::Head { stream, parsed, ends } => {
                    assert!(parsed.is_err() || (100..1_000).contains(&self.head.status));
                    self.seen.events.push(format!("response {stream} {parsed:?} {} {ends}", self.head.status));
                }
                other => self.seen.events.push(format!("{other:?}")),
            }
            input = &input[used..];
        }
    }
}

/// The same is seen of an endpoint's bytes, however they come.
fn check_asking(choice: u8, message: &[u8]) {
    let begin = if choice & 8 == 0 { &b"\0\0\0\x04\0\0\0\0\0"[..] } else { &[] };
    let bytes = [begin, message].concat();
    let mut whole = Caller::new(choice);
    whole.take(&bytes);
    check_sent(&whole.seen.sent);
    let (mut parts, mut start) = (Caller::new(choice), 0);
    for end in cuts(choice >> 4, bytes.len()) {
        if !parts.take(&bytes[start..end]) {
            break;
        }
        start = end;
    }
    assert_eq!(parts.seen, whole.seen);
}

/// What is accepted is a request of HTTP/1.1.
fn check_request(head: &RequestHead, framing: Framing, upgrade: bool) {
    let mut bytes = Vec::new();
    let how = SendRequest { framing, host_fallback: "none", upgrade, keep_alive: true };
    write_request(head, &how, &mut bytes);
    let mut again = RequestHead::default();
    let limits = HeadLimits { head_bytes_max: 1 << 16, fields_max: LIMITS.head.fields_max + 8 };
    let found = parse_request(&bytes, &limits, &mut HeadScan::default(), &mut again);
    let found = found.expect("what is accepted is a request of HTTP/1.1").expect("a whole one");
    assert_eq!((found.head_len, found.framing), (bytes.len(), framing), "one request and nothing more");
    assert_eq!((again.path(), again.query(), again.authority()), (head.path(), head.query(), head.authority()));
}

/// What was sent is frames, none of them too long, and blocks of fields that can be read.
fn check_sent(sent: &[u8]) {
    let (mut rest, mut decoder) = (sent, Decoder::new(TABLE_BYTES));
    while let Some((bytes, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let head = FrameHead::parse(bytes);
        assert_eq!(head.check(), Ok(()));
        let (payload, behind) = behind.split_at(head.length as usize);
        match head.kind {
            kind::HEADERS => assert_eq!(decoder.decode(payload, 1 << 16, |_, _| {}), Ok(Decoded::Whole)),
            kind::WINDOW_UPDATE => assert_ne!(number(payload), 0),
            _ => {}
        }
        rest = behind;
    }
    assert!(rest.is_empty());
}

/// Whatever a block holds, what is written of it is read again.
fn check_fields(block: &[u8]) {
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut bytes = 0;
    let read = Decoder::new(TABLE_BYTES).decode(block, 1 << 16, |name, value| {
        bytes += name.len() + value.len() + 32;
        fields.push((name.to_ascii_lowercase(), value.to_vec()));
    });
    assert!(bytes <= 1 << 16);
    if read != Ok(Decoded::Whole) {
        return;
    }
    for strings in [Strings::Shorter, Strings::Plain] {
        let (mut encoder, mut out, mut at) = (Encoder::new(strings), Vec::new(), 0);
        encoder.begin(&mut out);
        fields.iter().for_each(|(name, value)| encoder.push_field(&mut out, name, value));
        let again = Decoder::new(TABLE_BYTES).decode(&out, 1 << 16, |name, value| {
            assert_eq!((name, value), (&fields[at].0[..], &fields[at].1[..]));
            at += 1;
        });
        assert_eq!((again, at), (Ok(Decoded::Whole), fields.len()));
    }
}

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    check_fields(message);
    check_asking(choice, message);
    // Nearly nothing that is made at random begins as it must.
    let begin = if choice & 8 == 0 { [&PREFACE[..], b"\0\0\0\x04\0\0\0\0\0"].concat() } else { Vec::new() };
    let bytes = [&begin[..], message].concat();
    let mut whole = Peer::new(choice);
    whole.take(&bytes);
    check_sent(&whole.seen.sent);
    // What is asked is answered between the same bytes, however they come. No input is so long that a window has to be opened for
    // its data, which may happen at other places.
    let (mut parts, mut start) = (Peer::new(choice), 0);
    for end in cuts(choice >> 4, bytes.len()) {
        if !parts.take(&bytes[start..end]) {
            break;
        }
        start = end;
    }
    whole.seen.idle += whole.connection.take_counts().idle;
    parts.seen.idle += parts.connection.take_counts().idle;
    assert_eq!(parts.seen, whole.seen);
});
