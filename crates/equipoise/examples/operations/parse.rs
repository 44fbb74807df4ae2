//! The same head from bytes of HTTP/1.1, a HEADERS frame of HTTP/2 and a field section of HTTP/3.

use std::hint::black_box;

use model::{RequestHead, ResponseHead};
use wire::http1::{Framing, HeadLimits, HeadScan, parse_request};
use wire::http2::PREFACE;
use wire::http2::connection::{Connection, Event, Limits};
use wire::http2::frame::{push_section, push_settings};
use wire::http2::hpack::{Encoder, Strings};
use wire::http3::message::{Memory, read_request};
use wire::http3::qpack;

use crate::{Cell, count};

const PATH: &str = "/api/v1/items/4711?page=2&sort=name";
const HOST: &str = "shop.example.com";

/// As a browser sends them, beside the host. The first two are those of a small head.
static FIELDS: [(&str, &str); 19] = [
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://shop.example.com/cart"),
    ("origin", "https://shop.example.com"),
    ("cookie", "session=0123456789abcdef0123456789abcdef; theme=dark; consent=1"),
    ("cache-control", "no-cache"),
    ("pragma", "no-cache"),
    ("dnt", "1"),
    ("upgrade-insecure-requests", "1"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-user", "?1"),
    ("priority", "u=0, i"),
    ("if-none-match", "\"0123456789abcdef\""),
    ("x-requested-with", "XMLHttpRequest"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
];

pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for beside_host in [2, FIELDS.len()] {
        let fields = &FIELDS[..beside_host];
        let all = beside_host + 1;
        cells.push(Cell::new(format!("parse/h1/fields={all}"), move || http1(fields)));
        cells.push(Cell::new(format!("parse/h2/fields={all}"), move || http2(fields, literal)));
        cells.push(Cell::new(format!("parse/h2/indexed={all}"), move || http2(fields, indexed)));
        cells.push(Cell::new(format!("parse/h3/fields={all}"), move || http3(fields)));
    }
    cells
}

fn http1(fields: &[(&str, &str)]) {
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let bytes = format!("GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n");
    let (limits, mut scan, mut head) = (HeadLimits::default(), HeadScan::default(), RequestHead::default());
    count(&mut || {
        let parsed = parse_request(black_box(bytes.as_bytes()), &limits, &mut scan, &mut head);
        assert!(matches!(parsed, Ok(Some(parsed)) if parsed.head_len == bytes.len()));
    });
    assert_eq!((head.fields.len(), head.host()), (fields.len() + 1, HOST.as_bytes()));
}

/// All fields of a request of HTTP/2 or HTTP/3.
fn section<'f>(fields: &'f [(&'f str, &'f str)]) -> impl Iterator<Item = (&'f str, &'f str)> {
    let pseudo = [(":method", "GET"), (":scheme", "https"), (":authority", HOST), (":path", PATH)];
    pseudo.into_iter().chain(fields.iter().copied())
}

/// How a client writes the block of its first request, then that of all others.
type Blocks = fn(&[(&str, &str)]) -> [Vec<u8>; 2];

/// No field is remembered: names of the static table, values in the Huffman code.
fn literal(fields: &[(&str, &str)]) -> [Vec<u8>; 2] {
    let (mut block, mut encoder) = (Vec::new(), Encoder::new(Strings::Shorter));
    encoder.begin(&mut block);
    let begun = block.len();
    section(fields).for_each(|(name, value)| encoder.push_field(&mut block, name.as_bytes(), value.as_bytes()));
    let next = block[begun..].to_vec();
    [block, next]
}

/// Every field is remembered (RFC 7541 section 6.2.1), and from then on a number (section 6.1): a request that is sent again.
fn indexed(fields: &[(&str, &str)]) -> [Vec<u8>; 2] {
    /// Where the dynamic table begins.
    const FIRST: usize = 62;
    let (mut first, mut next) = (Vec::new(), Vec::new());
    let all = section(fields).count();
    for (place, (name, value)) in section(fields).enumerate() {
        first.push(0x40);
        for text in [name, value] {
            // The length of a string without the Huffman code is an integer with a prefix of 7 bits (sections 5.1 and 5.2).
            assert!(text.len() < 127, "{text} would take a second byte");
            first.push(text.len() as u8);
            first.extend_from_slice(text.as_bytes());
        }
        next.push(0x80 | (FIRST + all - 1 - place) as u8);
    }
    [first, next]
}

/// A HEADERS frame to a request head, and what ends its stream: a response without fields or a body.
fn http2(fields: &[(&str, &str)], blocks: Blocks) {
    let limits = HeadLimits::default();
    let (mut head, answer, mut sent) = (RequestHead::default(), ResponseHead::default(), Vec::new());
    let mut connection = Connection::new(Limits::new(limits), Strings::Shorter, &mut sent);
    let mut begin = PREFACE.to_vec();
    push_settings(&mut begin, &[]);
    assert!(connection.receive(&begin, &mut head, &mut sent).is_ok());
    let [mut first, mut next] = blocks(fields).map(|block| {
        let mut frame = Vec::new();
        push_section(&mut frame, 1, true, |out| out.extend_from_slice(&block));
        frame
    });
    let mut stream = 1_u32;
    let mut receive = |frame: &mut [u8]| {
        frame[5..9].copy_from_slice(&stream.to_be_bytes());
        let received = connection.receive(black_box(&*frame), &mut head, &mut sent);
        assert!(matches!(received, Ok((_, Event::Head { parsed: Ok(_), ends: true, .. }))));
        assert!(connection.send_head(stream, (&answer, 204), (Framing::None, true), &mut sent).is_ok());
        black_box(&sent);
        sent.clear();
        stream += 2;
    };
    receive(&mut first);
    count(&mut || receive(&mut next));
    assert_eq!((head.fields.len(), head.host()), (fields.len() + 1, HOST.as_bytes()));
}

fn http3(fields: &[(&str, &str)]) {
    let (limits, mut memory, mut head) = (HeadLimits::default(), Memory::default(), RequestHead::default());
    let mut bytes = Vec::new();
    qpack::begin_section(&mut bytes);
    section(fields).for_each(|(name, value)| qpack::push_field(&mut bytes, name.as_bytes(), value.as_bytes()));
    count(&mut || {
        assert!(read_request(black_box(&bytes), (&limits, true), &mut memory, &mut head).is_ok());
    });
    assert_eq!((head.fields.len(), head.host()), (fields.len() + 1, HOST.as_bytes()));
}
