//! Heads to bytes. Every field is written again; framing and connection fields are ours, never the peer's.

use model::head::reason_phrase;
use model::{Known, LocalResponse, Method, RequestHead, ResponseHead, Version};

use super::Framing;
use super::framing::decimal;
use super::tally::has_trailers;
use crate::text::push_decimal;

/// How to send a request.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// How its body will be sent; not [`Framing::UntilClose`].
    pub framing: Framing,
    /// `Host` for a request that came without one (HTTP/1.0).
    pub host_fallback: &'a str,
    /// Pass `Upgrade` on (RFC 9110 section 7.8).
    pub upgrade: bool,
    /// Whether the connection is to live on; otherwise `Connection: close`.
    pub keep_alive: bool,
}

/// How to send a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendResponse {
    /// How its body will be sent. For an HTTP/1.0 client `Chunked` counts as `UntilClose`.
    pub framing: Framing,
    /// The version of the request.
    pub to: Version,
    /// Whether the connection is to live on. Never so with `UntilClose`.
    pub keep_alive: bool,
    /// Pass `Upgrade` on: the response is 101.
    pub upgrade: bool,
}

/// How to send a response that the proxy made itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLocal<'a> {
    /// The version of the request.
    pub to: Version,
    /// Whether the connection is to live on.
    pub keep_alive: bool,
    /// The request was HEAD: the body is left out, its length is sent.
    pub is_head: bool,
    /// `Date` (RFC 9110 section 5.6.7); left out when empty.
    pub date: &'a str,
}

/// Appends a request head: HTTP/1.1, target in origin form (RFC 9112 section 3.2.1) or `*`. Hop-by-hop fields are left
/// out, all others keep order and case. `Content-Length` keeps its place and says what `how.framing` says. `TE: trailers`
/// is passed on (RFC 9110 section 10.1.4), `Expect` only if the client spoke HTTP/1.1 (section 10.1.1: it could not
/// understand the 100 otherwise).
pub fn write_request(head: &RequestHead, how: &SendRequest<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(head.method_bytes());
    out.push(b' ');
    out.extend_from_slice(if head.path().is_empty() { b"/" } else { head.path() });
    if let Some(query) = head.query() {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let (mut host, mut trailers, mut length) = (false, false, LengthField::new(how.framing));
    for field in head.fields.iter() {
        match field.known {
            Known::Host if std::mem::replace(&mut host, true) => continue,
            Known::Te => trailers |= head.version != Version::Http10 && has_trailers(field.value),
            Known::Upgrade if how.upgrade => {}
            Known::Expect if head.version == Version::Http10 => continue,
            Known::ContentLength => {
                length.push(out, field.name, field.value);
                continue;
            }
            _ => {}
        }
        if !field.known.is_hop_by_hop() || field.known == Known::Upgrade && how.upgrade {
            push_field(out, field.name, field.value);
        }
    }
    if !host {
        push_field(out, b"Host", how.host_fallback.as_bytes());
    }
    // RFC 9110 section 8.6: a method that expects content says so when it has none.
    let expects_content = matches!(head.method, Method::Post | Method::Put | Method::Patch);
    length.finish(out, expects_content);
    if trailers {
        push_field(out, b"TE", b"trailers");
    }
    // A connection that is to become another protocol is not said to close: some endpoints would refuse to upgrade.
    push_connection(out, how.upgrade, trailers, !how.keep_alive && !how.upgrade);
    out.extend_from_slice(b"\r\n");
}

/// Appends a response head: HTTP/1.1 whatever the client speaks (RFC 9110 section 6.2 and 2.5), the reason as received
/// or else the standard one. Hop-by-hop fields are left out, all others keep order and case. `Content-Length` keeps its
/// place; with [`Framing::None`] its number is kept, for HEAD and 304, and left out of 1xx and 204 (RFC 9110
/// section 8.6).
pub fn write_response(head: &ResponseHead, how: &SendResponse, out: &mut Vec<u8>) {
    let framing = match how.framing {
        Framing::Chunked if how.to == Version::Http10 => Framing::UntilClose,
        framing => framing,
    };
    let interim = head.status < 200;
    // RFC 9110 section 15.5.22: 426 names the protocols it asks for. HTTP/1.0 has none (section 7.8).
    let upgrade =
        how.upgrade || (head.status == 426 && how.to != Version::Http10 && head.fields.has_known(Known::Upgrade));
    push_status_line(out, head.status, head.reason());
    let mut length = LengthField::new(framing);
    for field in head.fields.iter() {
        if field.known == Known::ContentLength {
            if !interim && head.status != 204 {
                length.push(out, field.name, field.value);
            }
        } else if !field.known.is_hop_by_hop() || (field.known == Known::Upgrade && upgrade) {
            push_field(out, field.name, field.value);
        }
    }
    length.finish(out, false);
    if !interim {
        push_persistence(out, how.to, how.keep_alive && framing != Framing::UntilClose, upgrade);
    } else if upgrade {
        push_connection(out, true, false, false);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a whole response of our own: head with `content-length`, `date` and `connection`, and the body unless the
/// request was HEAD or the status has none (1xx, 204, 304).
pub fn write_local_response(local: &LocalResponse, how: &SendLocal<'_>, out: &mut Vec<u8>) {
    push_status_line(out, local.status, b"");
    for (name, value) in &local.fields {
        push_field(out, name.as_bytes(), value.as_bytes());
    }
    let has_content = local.status >= 200 && !matches!(local.status, 204 | 304);
    if has_content {
        push_length(out, b"Content-Length", local.body.len() as u64);
    }
    if !how.date.is_empty() {
        push_field(out, b"Date", how.date.as_bytes());
    }
    push_persistence(out, how.to, how.keep_alive, false);
    out.extend_from_slice(b"\r\n");
    if has_content && !how.is_head {
        out.extend_from_slice(&local.body);
    }
}

/// Writes the fields of framing, once.
struct LengthField {
    framing: Framing,
    written: bool,
}

impl LengthField {
    fn new(framing: Framing) -> Self {
        Self { framing, written: false }
    }

    /// At the place where the head has `Content-Length`.
    fn push(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        if self.written {
            return;
        }
        // The number, never the digits that the peer chose: `00` is written as `0`.
        let length = match self.framing {
            Framing::Length(length) => Some(length),
            Framing::None => decimal(value),
            Framing::Chunked | Framing::UntilClose => None,
        };
        if let Some(length) = length {
            push_length(out, name, length);
            self.written = true;
        }
    }

    /// After the fields of the head.
    fn finish(self, out: &mut Vec<u8>, expects_content: bool) {
        match self.framing {
            Framing::Length(length) if !self.written => push_length(out, b"Content-Length", length),
            Framing::None if !self.written && expects_content => push_length(out, b"Content-Length", 0),
            Framing::Chunked => push_field(out, b"Transfer-Encoding", b"chunked"),
            _ => {}
        }
    }
}

/// RFC 9112 section 9.3: what `connection` must say to a client of HTTP/1.1, and to one of HTTP/1.0.
fn push_persistence(out: &mut Vec<u8>, to: Version, keep_alive: bool, upgrade: bool) {
    if keep_alive && to == Version::Http10 {
        push_field(out, b"Connection", b"keep-alive");
    } else {
        push_connection(out, upgrade, false, !keep_alive);
    }
}

/// Writes `Connection` with these options, if any (RFC 9110 section 7.6.1).
fn push_connection(out: &mut Vec<u8>, upgrade: bool, te: bool, close: bool) {
    let value: &[u8] = match (upgrade, te, close) {
        (true, true, true) => b"close, Upgrade, TE",
        (true, true, false) => b"Upgrade, TE",
        (true, false, true) => b"close, Upgrade",
        (true, false, false) => b"Upgrade",
        (false, true, true) => b"close, TE",
        (false, true, false) => b"TE",
        (false, false, true) => b"close",
        (false, false, false) => return,
    };
    push_field(out, b"Connection", value);
}

fn push_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(if reason.is_empty() { reason_phrase(status).as_bytes() } else { reason });
    out.extend_from_slice(b"\r\n");
}

fn push_length(out: &mut Vec<u8>, name: &[u8], length: u64) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    push_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
