//! The client's side of one HTTP/1.1 exchange, without I/O: a request becomes bytes, and bytes become its response.
//!
//! It is for requests of the program itself. A driver moves bytes between it and a socket: `control::providers::client` on a
//! runtime, and `ctl` on a thread that blocks. Responses are read by the code that reads those of endpoints.

use std::fmt;
use std::fmt::Write as _;

use model::fields::FieldName;
use model::limits::INTERIM_RESPONSES_MAX;
use model::{Fault, Method, ResponseHead};

use super::{ChunkDecoder, Framing, HeadLimits, HeadScan, parse_response};

/// A request, but for its body. No connection is used twice, which `connection: close` says.
#[derive(Clone, Copy, Debug)]
pub struct ClientRequest<'a> {
    /// Any but `HEAD` and `CONNECT`, whose responses are framed differently.
    pub method: &'a str,
    /// From `/` on, with the query.
    pub path: &'a str,
    /// Value of the field `host`.
    pub host: &'a str,
    /// Other fields, in this order.
    pub fields: &'a [(&'a str, &'a str)],
    /// Length of the body in bytes; `None` if the request has no body.
    pub body_bytes: Option<usize>,
}

impl ClientRequest<'_> {
    /// Returns the head as bytes.
    ///
    /// # Errors
    /// Something in it would not arrive as it is.
    pub fn head(&self) -> Result<Vec<u8>, String> {
        let Self { method, path, host, .. } = *self;
        let is_sendable = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !path.starts_with('/') || !is_sendable(path) || !is_sendable(method) {
            return Err(format!("the path {path:?} cannot be asked for"));
        }
        if !is_sendable(host) {
            return Err(format!("the host {host:?} cannot be asked for"));
        }
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
        if let Some(length) = self.body_bytes {
            // Writing to a text cannot fail.
            let _ = write!(text, "content-length: {length}\r\n");
        }
        for (name, value) in self.fields {
            if FieldName::new(name).is_err() || value.contains(['\r', '\n', '\0']) {
                return Err(format!("the field {name:?} cannot be sent"));
            }
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text += "\r\n";
        Ok(text.into_bytes())
    }
}

/// Why there is no whole response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAnswer {
    /// The head is longer than so many bytes.
    HeadTooLarge(usize),
    /// Interim responses came, the last with this status, and no final one; or protocols were switched unasked.
    Interim(u16),
    /// The head is not one of HTTP/1, or breaks its rules.
    NotHttp,
    /// The connection ended before the head did.
    NoHead,
    /// The chunks of the body break their rules.
    BadChunks,
    /// The connection ended before the body did.
    CutShort,
}

impl fmt::Display for BadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeadTooLarge(bytes) => write!(f, "the response head is longer than {bytes} bytes"),
            Self::Interim(status) => write!(f, "interim responses (status {status}) instead of a final one"),
            Self::NotHttp => f.write_str("the response is not valid HTTP/1"),
            Self::NoHead => f.write_str("closed without a complete response"),
            Self::BadChunks => f.write_str("the response has invalid chunks"),
            Self::CutShort => f.write_str("closed within the response body"),
        }
    }
}

/// Reads one response.
///
/// ```text
/// Head ── read_head ─► Body ── read_body, close ─► Over
/// ```
#[derive(Debug)]
pub struct ClientResponse {
    limits: HeadLimits,
    scan: HeadScan,
    head: ResponseHead,
    interim: u32,
    state: State,
    chunks: ChunkDecoder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// What is left, where it has a length, is in the framing.
    Body(Framing),
    Over,
}

impl ClientResponse {
    /// Waits for a response whose head keeps within `limits`. The body is the caller's to bound.
    pub fn new(limits: HeadLimits) -> Self {
        let (scan, head, chunks) = (HeadScan::default(), ResponseHead::default(), ChunkDecoder::new(&limits));
        Self { limits, scan, head, interim: 0, state: State::Head, chunks }
    }

    /// Returns the head, which is empty until [`Self::read_head`] has found it.
    pub fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// Returns whether the whole response was read.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Takes the head, and interim responses before it, from the start of `bytes`. Returns `false` if more bytes are needed.
    ///
    /// # Errors
    /// There is no such head; the connection must be closed.
    pub fn read_head(&mut self, bytes: &mut Vec<u8>) -> Result<bool, BadAnswer> {
        while self.state == State::Head {
            let parsed = match parse_response(bytes, &self.limits, &mut self.scan, Method::Get, &mut self.head) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => return Ok(false),
                Err(Fault::ResponseHeadTooLarge) => return Err(BadAnswer::HeadTooLarge(self.limits.head_bytes_max)),
                Err(_) => return Err(BadAnswer::NotHttp),
            };
            bytes.drain(..parsed.head_len);
            if self.head.status >= 200 {
                self.state = State::Body(parsed.framing);
                break;
            }
            self.interim += 1;
            // 101 was not asked for (RFC 9110 section 15.2.2).
            if parsed.switching || self.interim > INTERIM_RESPONSES_MAX {
                return Err(BadAnswer::Interim(self.head.status));
            }
            (self.head, self.scan) = (ResponseHead::default(), HeadScan::default());
        }
        Ok(true)
    }

    /// Takes what `bytes` has of the body, without its framing.
    ///
    /// # Errors
    /// The chunks break their rules; the connection must be closed.
    pub fn read_body(&mut self, bytes: &mut Vec<u8>) -> Result<Vec<u8>, BadAnswer> {
        match self.state {
            State::Head | State::Over => Ok(Vec::new()),
            State::Body(Framing::None) => {
                self.state = State::Over;
                Ok(Vec::new())
            }
            State::Body(Framing::UntilClose) => Ok(std::mem::take(bytes)),
            State::Body(Framing::Length(length)) => {
                let count = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
                let left = length - count as u64;
                self.state = if left == 0 { State::Over } else { State::Body(Framing::Length(left)) };
                Ok(bytes.drain(..count).collect())
            }
            State::Body(Framing::Chunked) => {
                let decoded = self.chunks.decode_in_place(bytes).map_err(|_| BadAnswer::BadChunks)?;
                let piece = bytes[..decoded.data_len].to_vec();
                bytes.drain(..decoded.consumed);
                if decoded.done {
                    self.state = State::Over;
                }
                Ok(piece)
            }
        }
    }

    /// Ends the response where the connection has ended.
    ///
    /// # Errors
    /// The response is not whole.
    pub fn close(&mut self) -> Result<(), BadAnswer> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Over | State::Body(Framing::UntilClose | Framing::None) => Ok(()),
            State::Head => Err(BadAnswer::NoHead),
            State::Body(_) => Err(BadAnswer::CutShort),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 256, fields_max: 8 };

    /// What a reader makes of bytes that come in pieces of this size, and then end.
    fn read(text: &str, size: usize) -> Result<(u16, String), BadAnswer> {
        let (mut response, mut bytes, mut body) = (ClientResponse::new(LIMITS), Vec::new(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            bytes.extend_from_slice(piece);
            if response.read_head(&mut bytes)? {
                body.extend(response.read_body(&mut bytes)?);
            }
            if response.is_over() {
                break;
            }
        }
        response.close()?;
        Ok((response.head().status, String::from_utf8(body).expect("text")))
    }

    fn reads(text: &str, wanted: Result<(u16, &str), BadAnswer>) {
        for size in 1..=text.len().max(1) {
            let found = read(text, size);
            let found = found.as_ref().map(|(status, body)| (*status, body.as_str())).map_err(|why| *why);
            assert_eq!(found, wanted, "{text:?} by {size}");
        }
    }

    #[test]
    fn a_response_of_any_framing_is_the_same_however_it_arrives() {
        reads("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", Ok((200, "hello")));
        reads("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and more", Ok((200, "hello")));
        reads("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Ok((200, "")));
        reads("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, "")));
        reads("HTTP/1.1 404 Not Found\r\n\r\nuntil the end", Ok((404, "until the end")));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        reads(&format!("{chunked}3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"), Ok((200, "hello")));
        reads("HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Ok((200, "ok")));
    }

    #[test]
    fn a_response_that_is_not_whole_is_refused_with_a_reason() {
        reads("", Err(BadAnswer::NoHead));
        reads("HTTP/1.1 200 OK\r\n", Err(BadAnswer::NoHead));
        reads("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", Err(BadAnswer::CutShort));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        reads(&format!("{chunked}3\r\nhel\r\n"), Err(BadAnswer::CutShort));
        reads(&format!("{chunked}x\r\n"), Err(BadAnswer::BadChunks));
        reads("HTTP/1.1 200 OK\r\nx y: z\r\n\r\n", Err(BadAnswer::NotHttp));
        let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(INTERIM_RESPONSES_MAX as usize + 1);
        reads(&endless, Err(BadAnswer::Interim(100)));
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(300));
        reads(&long, Err(BadAnswer::HeadTooLarge(256)));
    }

    #[test]
    fn nothing_is_sent_that_would_read_as_something_else() {
        let good = ClientRequest { method: "GET", path: "/a?b", host: "h", fields: &[("x", "y z")], body_bytes: None };
        let written = good.head().map(|head| String::from_utf8(head).expect("text"));
        assert_eq!(written.as_deref(), Ok("GET /a?b HTTP/1.1\r\nhost: h\r\nconnection: close\r\nx: y z\r\n\r\n"));
        let with_body = ClientRequest { body_bytes: Some(2), ..good }.head().expect("good");
        assert!(String::from_utf8_lossy(&with_body).contains("\r\ncontent-length: 2\r\n"));
        for bad in ["", "a", "/a b", "/a\r\n", "/é"] {
            assert!(ClientRequest { path: bad, ..good }.head().unwrap_err().starts_with("the path"), "{bad:?}");
        }
        assert!(ClientRequest { method: "G T", ..good }.head().is_err());
        assert!(ClientRequest { host: "a b", ..good }.head().unwrap_err().starts_with("the host"));
        for bad in [("a b", "c"), ("a", "b\r\nc: d"), ("", "b"), ("a", "\0")] {
            assert!(ClientRequest { fields: &[bad], ..good }.head().unwrap_err().starts_with("the field"), "{bad:?}");
        }
    }
}
