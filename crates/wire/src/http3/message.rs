//! Heads and trailers from field sections, and field sections from them. What may stand in a message is judged by
//! [`crate::crossing`].

use std::ops::Range;

use model::fields::Fields;
use model::{Fault, Method, RequestHead, ResponseHead, Version};

use super::qpack::{self, BadSection, Lines, Scratch};
use crate::crossing::{self, BadRequest, Gather, Malformed, StatusLine};
use crate::http1::{Framing, HeadLimits, RequestParsed, ResponseParsed};

/// Why a section is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// It cannot be decoded: the connection is to be ended (RFC 9204 section 2.2).
    Undecodable,
    /// The message is malformed: the stream is to be ended (RFC 9114 section 4.1.2). What it would be called if it were
    /// answered.
    Malformed(Fault),
    /// It may be answered.
    Fault(Fault),
}

/// Memory that reading takes, kept for the next message.
#[derive(Debug, Default)]
pub struct Memory {
    scratch: Scratch,
    pseudo: Vec<u8>,
}

const MALFORMED: BadHead = BadHead::Malformed(Fault::BadRequest);

/// Fills `head` with a request; `ends` says that its body is empty.
///
/// # Errors
/// See [`BadHead`].
pub fn read_request(
    section: &[u8],
    (limits, ends): (&HeadLimits, bool),
    memory: &mut Memory,
    head: &mut RequestHead,
) -> Result<RequestParsed, BadHead> {
    let bad = |bad| match bad {
        BadSection::Undecodable => BadHead::Undecodable,
        BadSection::TooLarge => BadHead::Fault(Fault::HeadTooLarge),
    };
    let Memory { scratch, pseudo } = memory;
    let mut gather = Gather::new(head, pseudo, Version::Http3);
    let mut lines = Lines::new(section, scratch, limits.head_bytes_max).map_err(bad)?;
    while let Some((name, value)) = lines.next().map_err(bad)? {
        gather.field(name, value);
    }
    gather.end(limits, ends).map_err(|bad| match bad {
        BadRequest::Malformed => MALFORMED,
        BadRequest::Fault(fault) => BadHead::Fault(fault),
    })
}

/// Fills `head` with a response, interim or final; `ends` says that its body is empty.
///
/// # Errors
/// See [`BadHead`].
pub fn read_response(
    section: &[u8],
    (method, limits, ends): (Method, &HeadLimits, bool),
    memory: &mut Memory,
    head: &mut ResponseHead,
) -> Result<ResponseParsed, BadHead> {
    const MALFORMED: BadHead = BadHead::Malformed(Fault::BadResponse);
    let bad = |bad| match bad {
        BadSection::Undecodable => BadHead::Undecodable,
        BadSection::TooLarge => BadHead::Malformed(Fault::ResponseHeadTooLarge),
    };
    // The fields lie in `pseudo`, one behind the other, with where each begins.
    let Memory { scratch, pseudo } = memory;
    pseudo.clear();
    let mut lines = Lines::new(section, scratch, limits.head_bytes_max).map_err(bad)?;
    let mut status = None;
    let mut places: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    while let Some((name, value)) = lines.next().map_err(bad)? {
        if let [b':', ..] = name {
            if name != b":status" || status.is_some() || !places.is_empty() {
                return Err(MALFORMED);
            }
            status = Some(three_digits(value).ok_or(MALFORMED)?);
            continue;
        }
        let start = pseudo.len();
        pseudo.extend_from_slice(name);
        let middle = pseudo.len();
        pseudo.extend_from_slice(value);
        places.push((start..middle, middle..pseudo.len()));
    }
    let status = status.ok_or(MALFORMED)?;
    let fields = places.into_iter().map(|(name, value)| (&pseudo[name], &pseudo[value]));
    let line = StatusLine { status, version: Version::Http3 };
    crossing::arriving_response(head, line, fields, (method, limits, ends)).map_err(BadHead::Malformed)
}

fn three_digits(value: &[u8]) -> Option<u16> {
    let digits: &[u8; 3] = value.try_into().ok()?;
    digits
        .iter()
        .all(u8::is_ascii_digit)
        .then(|| digits.iter().fold(0, |all, digit| all * 10 + u16::from(digit - b'0')))
}

/// The trailers in a section, as far as they are passed on. A section that is none is refused as heads are.
///
/// # Errors
/// It cannot be decoded, is too large, or holds a field that may not stand in a trailer section, such as a pseudo-header
/// field (RFC 9114 sections 4.2 and 4.3).
pub fn read_trailers(section: &[u8], bytes_max: usize, memory: &mut Memory) -> Result<Option<Box<Fields>>, BadHead> {
    let bad = |bad| match bad {
        BadSection::Undecodable => BadHead::Undecodable,
        BadSection::TooLarge => BadHead::Malformed(Fault::HeadTooLarge),
    };
    let mut fields = Fields::default();
    let mut lines = Lines::new(section, &mut memory.scratch, bytes_max).map_err(bad)?;
    while let Some((name, value)) = lines.next().map_err(bad)? {
        crossing::arriving_trailer(&mut fields, name, value).map_err(|Malformed| MALFORMED)?;
    }
    Ok((!fields.is_empty()).then(|| Box::new(fields)))
}

/// Writes the section of a request. `host_fallback` stands for the authority of a request without one (HTTP/1.0). A WebSocket
/// that began as an HTTP/1.1 `Upgrade` becomes what it is in HTTP/3 (RFC 9220); its key is of no use there.
pub fn write_request(
    head: &RequestHead,
    (framing, is_websocket): (Framing, bool),
    host_fallback: &[u8],
    out: &mut Vec<u8>,
) {
    let authority = if head.authority().is_empty() { host_fallback } else { head.authority() };
    let mut target = Vec::with_capacity(head.path().len() + 1 + head.query().map_or(0, <[u8]>::len));
    crossing::push_target(head, &mut target);
    qpack::begin_section(out);
    if is_websocket {
        qpack::push_field(out, b":method", b"CONNECT");
        qpack::push_field(out, b":protocol", b"websocket");
    } else {
        qpack::push_field(out, b":method", head.method_bytes());
    }
    qpack::push_field(out, b":scheme", b"https");
    qpack::push_field(out, b":authority", authority);
    qpack::push_field(out, b":path", &target);
    crossing::request_fields(head, framing, |name, value| {
        if !is_websocket || !name.eq_ignore_ascii_case(b"sec-websocket-key") {
            qpack::push_field(out, name, value);
        }
    });
}

/// Writes the section of a response; `status` stands for that of the head.
pub fn write_response(head: &ResponseHead, status: u16, framing: Framing, out: &mut Vec<u8>) {
    qpack::begin_section(out);
    qpack::push_status(out, status);
    crossing::response_fields(head, framing, |name, value| qpack::push_field(out, name, value));
}

/// Writes a section of trailers.
pub fn write_trailers(fields: &Fields, out: &mut Vec<u8>) {
    qpack::begin_section(out);
    crossing::trailer_fields(fields, |name, value| qpack::push_field(out, name, value));
}

#[cfg(test)]
mod tests;
