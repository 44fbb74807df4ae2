//! HTTP/2 frames, written and read byte by byte (RFC 9113 section 4.1): what no well-behaved library would send.

use super::Peer;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame that was read.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A block of fields, each a literal without indexing (RFC 7541 section 6.2.2), whatever bytes it holds.
pub(crate) fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            push_length(&mut out, text.len());
            out.extend_from_slice(text);
        }
    }
    out
}

/// RFC 7541 section 5.1, with a prefix of 7 bits.
fn push_length(out: &mut Vec<u8>, length: usize) {
    if length < 127 {
        return out.push(length as u8);
    }
    out.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// The pseudo-header fields of a GET for `/`, and more fields.
pub(crate) fn get(more: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut fields: Vec<(&[u8], &[u8])> =
        vec![(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"test"), (b":path", b"/")];
    fields.extend_from_slice(more);
    block(&fields)
}

/// A GET for `/` that ends with its head.
pub(crate) fn get_frame(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &get(&[]))
}

/// Sends preface and settings.
pub(crate) fn begin(peer: &mut Peer) {
    peer.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
}

/// Reads a frame. `None`: the connection ended.
pub(crate) fn read(peer: &mut Peer) -> Option<Frame> {
    let head = peer.try_read(9)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let payload = peer.try_read(length)?;
    Some(Frame { kind: head[3], flags: head[4], stream, payload })
}

/// How many whole frames of this kind there are in what a connection has received, preface and all.
pub(crate) fn count(received: &[u8], kind: u8) -> usize {
    let (mut rest, mut count) = (received.get(PREFACE.len()..).unwrap_or_default(), 0);
    while let Some(head) = rest.get(..9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some(after) = rest.get(9 + length..) else { break };
        count += usize::from(head[3] == kind);
        rest = after;
    }
    count
}

/// Reads until a frame of this kind on this stream.
pub(crate) fn read_until(peer: &mut Peer, kind: u8, stream: u32) -> Frame {
    loop {
        let frame = read(peer).unwrap_or_else(|| panic!("the connection ended before a frame {kind} on {stream}"));
        if frame.kind == kind && frame.stream == stream {
            return frame;
        }
    }
}

/// Reads until GOAWAY, and gives its error code. `None`: the connection ended without one.
pub(crate) fn goaway(peer: &mut Peer) -> Option<u32> {
    loop {
        let frame = read(peer)?;
        if frame.kind == GOAWAY {
            return Some(u32::from_be_bytes(frame.payload[4..8].try_into().expect("four bytes")));
        }
    }
}

/// Reads until RST_STREAM on this stream, and gives its error code.
pub(crate) fn reset(peer: &mut Peer, stream: u32) -> u32 {
    let frame = read_until(peer, RST_STREAM, stream);
    u32::from_be_bytes(frame.payload[..4].try_into().expect("four bytes"))
}
