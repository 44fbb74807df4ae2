//! Just enough HTTP/1.1 for the lab's own programs: heads by httparse, bodies by `Content-Length`. A request that comes in
//! chunks is told; only the origin reads it.

/// A request or response head that has arrived in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the head, with the empty line.
    pub head_bytes: usize,
    /// Bytes of the body that follows.
    pub body_bytes: usize,
    /// The connection ends after this message.
    pub close: bool,
    /// The message carries a `Connection` header or is HTTP/1.0, so it cannot be relayed as it is.
    pub hop_by_hop: bool,
    /// The body is sent in chunks, and its length is not known. Only of requests.
    pub chunked: bool,
    /// A response's status; 0 for a request.
    pub status: u16,
}

/// The bytes are not HTTP/1, or use what the lab's own programs do not speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

const HEADERS_MAX: usize = 48;

/// Reads a request head; `None` means that more bytes are needed. Also gives the target. One with a body in chunks is
/// refused.
pub(crate) fn request(bytes: &[u8]) -> Result<Option<(Head, &str)>, Malformed> {
    match any_request(bytes)? {
        Some((head, _)) if head.chunked => Err(Malformed),
        other => Ok(other),
    }
}

/// The same, with a body in chunks or without.
pub(crate) fn any_request(bytes: &[u8]) -> Result<Option<(Head, &str)>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => {
            let head = finish(head_bytes, request.version, 0, request.headers)?;
            Ok(Some((head, request.path.unwrap_or("/"))))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(Malformed),
    }
}

/// Reads a response head; `None` means that more bytes are needed.
pub(crate) fn response(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => {
            let status = response.code.unwrap_or(0);
            finish(head_bytes, response.version, status, response.headers).map(Some)
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(Malformed),
    }
}

fn finish(
    head_bytes: usize,
    version: Option<u8>,
    status: u16,
    headers: &[httparse::Header<'_>],
) -> Result<Head, Malformed> {
    let old = version == Some(0);
    let mut head = Head { head_bytes, body_bytes: 0, close: old, hop_by_hop: old, chunked: false, status };
    for header in headers {
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                let text = std::str::from_utf8(header.value).map_err(|_| Malformed)?;
                head.body_bytes = text.trim().parse().map_err(|_| Malformed)?;
            }
            10 if header.name.eq_ignore_ascii_case("connection") => {
                head.hop_by_hop = true;
                head.close = if old {
                    !header.value.eq_ignore_ascii_case(b"keep-alive")
                } else {
                    header.value.eq_ignore_ascii_case(b"close")
                };
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                let is_known = status == 0 && !old && header.value.eq_ignore_ascii_case(b"chunked");
                head.chunked = if is_known { true } else { return Err(Malformed) };
            }
            _ => {}
        }
    }
    Ok(head)
}

/// Writes a request head again as HTTP/1.1 without its `Connection` header.
pub(crate) fn without_hop_by_hop(head: &[u8], out: &mut Vec<u8>) {
    for (number, line) in head.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if number == 0 {
            let end = line.windows(8).rposition(|w| w == b"HTTP/1.0").unwrap_or(line.len());
            out.extend_from_slice(&line[..end]);
            if end < line.len() {
                out.extend_from_slice(b"HTTP/1.1\r\n");
            }
        } else if line.len() < 11 || !line[..11].eq_ignore_ascii_case(b"connection:") {
            out.extend_from_slice(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_with_its_body_length_and_target() {
        let bytes = b"POST /10k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
        let (head, target) = request(bytes).unwrap().unwrap();
        assert_eq!((head.head_bytes, head.body_bytes, head.close, target), (bytes.len() - 5, 5, false, "/10k"));
    }

    #[test]
    fn half_a_head_asks_for_more() {
        assert_eq!(request(b"GET / HTTP/1.1\r\nHost:"), Ok(None));
        assert_eq!(response(b"HTTP/1.1 200 OK\r\n"), Ok(None));
    }

    #[test]
    fn connection_close_and_http_1_0_close() {
        assert!(request(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap().unwrap().0.close);
        assert!(request(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().0.close);
        assert!(!request(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").unwrap().unwrap().0.close);
    }

    #[test]
    fn a_chunked_message_is_refused_unless_it_is_a_request_to_one_that_reads_chunks() {
        assert_eq!(response(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Malformed));
        let chunked = b"GET /12 HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(request(chunked), Err(Malformed));
        let (head, target) = any_request(chunked).unwrap().unwrap();
        assert_eq!((head.chunked, head.head_bytes, target), (true, chunked.len() - 5, "/12"));
        assert_eq!(any_request(b"GET /12 HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), Err(Malformed));
        assert_eq!(any_request(b"GET /12 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Malformed));
    }

    #[test]
    fn the_connection_header_is_left_out() {
        let mut out = Vec::new();
        without_hop_by_hop(b"GET /12 HTTP/1.0\r\nHost: x\r\nconnection: close\r\nAccept: */*\r\n\r\n", &mut out);
        assert_eq!(out, b"GET /12 HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
    }
}
