//! A body of HTTP/1.1, piece by piece (RFC 9112 section 6).

use std::io;

use super::super::harness::{Message, Peer};
use super::pattern::PIECE;

/// What is still to come of a body.
#[derive(Debug)]
pub(super) enum Rest {
    Nothing,
    Length(u64),
    Chunks,
    /// Until the connection ends.
    Open,
}

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Body {
    rest: Rest,
    /// Those that came behind it.
    pub(super) trailers: Vec<(String, String)>,
}

impl Body {
    /// Of a request with this head.
    pub(super) fn of_request(head: &Message) -> Self {
        Self::with(head, Rest::Nothing)
    }

    /// Of a response with this head to a request with `method`.
    pub(super) fn of_response(head: &Message, method: &str) -> Self {
        if method == "HEAD" || matches!(head.status(), 204 | 304) {
            return Self { rest: Rest::Nothing, trailers: Vec::new() };
        }
        Self::with(head, Rest::Open)
    }

    fn with(head: &Message, otherwise: Rest) -> Self {
        let length = || head.field("content-length").map(|length| length.parse().expect("a length"));
        let rest = match head.field("transfer-encoding") {
            Some(_) => Rest::Chunks,
            None => length().map_or(otherwise, Rest::Length),
        };
        Self { rest, trailers: Vec::new() }
    }

    /// The next bytes; `None`: it ended as it should.
    pub(super) fn next(&mut self, peer: &mut Peer) -> io::Result<Option<Vec<u8>>> {
        match &mut self.rest {
            Rest::Nothing | Rest::Length(0) => Ok(None),
            Rest::Length(rest) => {
                // What is there, or else what comes; a body of a GiB must not be waited for in one go.
                let count = PIECE.min(usize::try_from(*rest).unwrap_or(PIECE)).min(peer.wait_some()?);
                let bytes = peer.try_take(count)?;
                *rest -= bytes.len() as u64;
                Ok(Some(bytes))
            }
            Rest::Chunks => self.chunk(peer),
            Rest::Open => match peer.wait_some() {
                Ok(_) => Ok(Some(peer.drain())),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    fn chunk(&mut self, peer: &mut Peer) -> io::Result<Option<Vec<u8>>> {
        let line = peer.try_take_through(b"\r\n")?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let digits = line.trim_end().split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("`{line}` is no chunk size"));
        if size > 0 {
            let mut chunk = peer.try_take(size + 2)?;
            assert!(chunk.ends_with(b"\r\n"), "a chunk ends in CRLF");
            chunk.truncate(size);
            return Ok(Some(chunk));
        }
        self.rest = Rest::Nothing;
        loop {
            let line = peer.try_take_through(b"\r\n")?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(None) };
            self.trailers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

/// As a chunk.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// The end of a body of chunks.
pub(super) fn last_chunk(trailers: &[(String, String)]) -> String {
    let lines: String = trailers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("0\r\n{lines}\r\n")
}
