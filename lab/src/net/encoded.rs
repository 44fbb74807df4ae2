//! Asks as a client that accepts a coding, and keeps the body as it was sent: how large it is, and whether it decodes to the document.

use super::ask::TIMEOUT;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    /// Its `content-encoding`; empty: it has none.
    pub encoding: String,
    /// The body without its chunks, not decoded.
    pub body: Vec<u8>,
}

/// The longest answer that is read.
const ANSWER_MAX: usize = 64 << 20;

/// Asks for a path in plain HTTP/1.1; `accept` is the request's `accept-encoding`.
pub(crate) fn ask(to: SocketAddr, path: &str, accept: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nAccept-Encoding: {accept}\r\n\r\n").as_bytes())?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let count = stream.read(&mut buffer)?;
        bytes.extend_from_slice(&buffer[..count]);
        match parse(&bytes)? {
            Some(answer) => return Ok(answer),
            None if count == 0 => return Err(broken("closed before the answer was complete")),
            None if bytes.len() > ANSWER_MAX => return Err(broken("the answer is too long")),
            None => {}
        }
    }
}

fn broken(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// The answer, when it has come in full.
fn parse(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(io::Error::other)? else { return Ok(None) };
    let field = |name: &str| {
        let found = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| String::from_utf8_lossy(field.value).trim().to_ascii_lowercase())
    };
    let sent = &bytes[head_bytes..];
    let body = match (field("transfer-encoding"), field("content-length")) {
        (Some(coding), _) if coding == "chunked" => unchunked(sent)?,
        (None, Some(length)) => {
            let length: usize = length.parse().map_err(|_| broken("its length is no number"))?;
            sent.get(..length).map(<[u8]>::to_vec)
        }
        _ => return Err(broken("the answer does not say where it ends")),
    };
    let status = head.code.unwrap_or(0);
    Ok(body.map(|body| Answer { status, encoding: field("content-encoding").unwrap_or_default(), body }))
}

/// A body out of its chunks, when all of them have come.
fn unchunked(mut sent: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let size = httparse::parse_chunk_size(sent).map_err(|_| broken("the answer is no chunks"))?;
        let httparse::Status::Complete((used, size)) = size else { return Ok(None) };
        if size == 0 {
            // Trailers are not read: nobody sends them here.
            return Ok(sent[used..].starts_with(b"\r\n").then_some(body));
        }
        let end = used + usize::try_from(size).unwrap_or(usize::MAX).min(ANSWER_MAX);
        let (Some(chunk), Some(rest)) = (sent.get(used..end), sent.get(end + 2..)) else { return Ok(None) };
        body.extend_from_slice(chunk);
        sent = rest;
    }
}

/// Decodes a body, all of which has to be of that coding.
pub(crate) fn decode(encoding: &str, mut body: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match encoding {
        "gzip" => flate2::bufread::GzDecoder::new(&mut body).read_to_end(&mut out)?,
        "br" => brotli::Decompressor::new(&mut body, 4096).read_to_end(&mut out)?,
        "zstd" => zstd::Decoder::with_buffer(&mut body)?.single_frame().read_to_end(&mut out)?,
        other => return Err(broken(&format!("the coding {other:?} is not known"))),
    };
    if body.is_empty() { Ok(out) } else { Err(broken(&format!("{} bytes follow the end", body.len()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: GZIP\r\n\r\n\
        5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n";
    const WITH_LENGTH: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone";

    #[test]
    fn an_answer_is_read_when_all_of_it_has_come() {
        for (bytes, status, encoding, body) in [(CHUNKED, 200, "gzip", "hello world"), (WITH_LENGTH, 404, "", "gone")] {
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]).unwrap(), None, "{end}");
            }
            let answer = Answer { status, encoding: encoding.to_owned(), body: body.as_bytes().to_vec() };
            assert_eq!(parse(bytes).unwrap(), Some(answer));
        }
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\nwho knows").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n").is_err());
    }

    #[test]
    fn each_coding_is_decoded_and_half_of_a_body_is_an_error() {
        let text = super::super::documents::Content::Json.body(10_000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        gzip.write_all(&text).unwrap();
        let mut br = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 18);
        br.write_all(&text).unwrap();
        let zstd = zstd::encode_all(&text[..], 3).unwrap();
        for (encoding, body) in [("gzip", gzip.finish().unwrap()), ("br", br.into_inner()), ("zstd", zstd)] {
            assert_eq!(decode(encoding, &body).unwrap(), text, "{encoding}");
            assert!(decode(encoding, &body[..body.len() / 2]).is_err(), "{encoding}");
            assert!(decode(encoding, &text).is_err(), "{encoding}");
        }
        assert!(decode("", &text).is_err());
    }

    #[test]
    fn bytes_behind_the_end_are_an_error() {
        let body = [zstd::encode_all(&b"text"[..], 3).unwrap(), b"more".to_vec()].concat();
        assert!(decode("zstd", &body).is_err());
    }
}
