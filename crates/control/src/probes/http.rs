//! Asks one question over HTTP/1.1 and reads no more of the answer than its status (RFC 9112 section 4).
//!
//! The endpoint is not trusted: heads are bounded, interim answers are counted, and whoever calls bounds the time.

use std::io;

use model::limits::INTERIM_RESPONSES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bound of all heads of one answer together, interim ones included.
pub(crate) const HEADS_BYTES_MAX: usize = 16 * 1024;
const READ_BYTES: usize = 2 * 1024;

/// The bytes of a question. `path` and `host` come from the validated configuration; anything that could end a line is
/// refused all the same.
///
/// # Errors
/// Says which of them cannot be sent.
pub(crate) fn question(path: &str, host: &str) -> Result<Vec<u8>, String> {
    let sendable = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !path.starts_with('/') || !sendable(path) {
        return Err(format!("the path {path:?} cannot be asked for"));
    }
    if !sendable(host) {
        return Err(format!("the host {host:?} cannot be asked for"));
    }
    Ok(format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: equipoise-probe/{}\r\naccept: */*\r\nconnection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes())
}

/// Sends `question` and reads the status of the final answer.
///
/// # Errors
/// Anything that is not a whole, bounded head of HTTP/1.x, said in a few words.
pub(crate) async fn ask<S>(stream: &mut S, question: &[u8]) -> Result<u16, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    stream.write_all(question).await.map_err(|error| failed("cannot send the request", error))?;
    stream.flush().await.map_err(|error| failed("cannot send the request", error))?;
    let mut answer = Answer::default();
    let mut buffer = [0; READ_BYTES];
    loop {
        let read = stream.read(&mut buffer).await.map_err(|error| failed("cannot read the answer", error))?;
        if read == 0 {
            return Err(answer.cut_short());
        }
        if let Some(status) = answer.take(&buffer[..read])? {
            return Ok(status);
        }
    }
}

/// What has arrived of an answer.
#[derive(Default)]
struct Answer {
    head: Vec<u8>,
    bytes: usize,
    interim: u32,
}

impl Answer {
    /// Takes the next bytes; `Some` is the status of the final answer.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<u16>, String> {
        for &byte in bytes {
            self.bytes += 1;
            if self.bytes > HEADS_BYTES_MAX {
                return Err(format!("the head of the answer is longer than {HEADS_BYTES_MAX} bytes"));
            }
            self.head.push(byte);
            if !self.head_is_whole() {
                continue;
            }
            let status = status(&self.head)?;
            if status >= 200 {
                return Ok(Some(status));
            }
            self.interim += 1;
            // 101 was not asked for (RFC 9110 section 15.2.2).
            if status == 101 || self.interim > INTERIM_RESPONSES_MAX {
                return Err(format!("interim answers (status {status}) instead of a final one"));
            }
            self.head.clear();
        }
        Ok(None)
    }

    /// A bare LF ends a line too (RFC 9112 section 2.2).
    fn head_is_whole(&self) -> bool {
        self.head.ends_with(b"\n\r\n") || self.head.ends_with(b"\n\n")
    }

    fn cut_short(&self) -> String {
        if self.bytes == 0 { "closed without an answer".into() } else { "closed within the head of its answer".into() }
    }
}

/// The status of a head (RFC 9112 section 4).
fn status(head: &[u8]) -> Result<u16, String> {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let not_http = || "the answer is not HTTP/1".to_owned();
    let rest = line.strip_prefix(b"HTTP/1.").ok_or_else(not_http)?;
    let [minor, b' ', digits @ ..] = rest else { return Err(not_http()) };
    if !minor.is_ascii_digit() || digits.len() < 3 || !matches!(digits.get(3), None | Some(b' ' | b'\r')) {
        return Err(not_http());
    }
    let number = digits[..3]
        .iter()
        .try_fold(0_u16, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u16::from(digit - b'0')));
    number.filter(|status| (100..=599).contains(status)).ok_or_else(not_http)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Result<Option<u16>, String> {
        Answer::default().take(bytes)
    }

    #[test]
    fn the_status_of_a_whole_head_is_read() {
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), Ok(Some(200)));
        assert_eq!(whole(b"HTTP/1.0 503\r\n\r\nbody"), Ok(Some(503)));
        assert_eq!(whole(b"HTTP/1.1 204 \n\n"), Ok(Some(204)));
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\ncontent"), Ok(None));
    }

    #[test]
    fn a_head_may_arrive_byte_by_byte() {
        let mut answer = Answer::default();
        let head = b"HTTP/1.1 301 Moved\r\nlocation: /\r\n\r\n";
        for byte in &head[..head.len() - 1] {
            assert_eq!(answer.take(&[*byte]), Ok(None));
        }
        assert_eq!(answer.take(b"\n"), Ok(Some(301)));
    }

    #[test]
    fn interim_answers_are_passed_over_but_not_without_end() {
        assert_eq!(whole(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), Ok(Some(200)));
        assert!(whole(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(17)).unwrap_err().contains("interim"));
        assert!(whole(b"HTTP/1.1 101 Switching\r\n\r\n").unwrap_err().contains("interim"));
    }

    #[test]
    fn endless_headers_are_refused() {
        let mut endless = b"HTTP/1.1 200 OK\r\n".to_vec();
        endless.extend(b"x-filler: 0123456789\r\n".repeat(1_000));
        assert!(whole(&endless).unwrap_err().contains("longer than"));
        assert!(whole(&[b'A'; HEADS_BYTES_MAX + 1]).unwrap_err().contains("longer than"));
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for bad in [
            "SSH-2.0-OpenSSH_9\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
            "HTTP/1.1 2000\r\n\r\n",
            "HTTP/1.1 -20\r\n\r\n",
            "HTTP/1.1 099 x\r\n\r\n",
            "HTTP/1.1 999 x\r\n\r\n",
            "HTTP/1.x 200\r\n\r\n",
            "\r\n\r\n",
            "\n\n",
        ] {
            assert!(whole(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_question_cannot_be_made_to_hold_another() {
        let text = String::from_utf8(question("/healthz?a=1", "site:80").unwrap()).unwrap();
        assert!(text.starts_with("GET /healthz?a=1 HTTP/1.1\r\nhost: site:80\r\n"), "{text}");
        assert!(text.ends_with("connection: close\r\n\r\n"));
        for (path, host) in [("/a\r\nx: y", "a"), ("/a b", "a"), ("a", "a"), ("/", "a\r\n"), ("/", ""), ("", "a")] {
            assert!(question(path, host).is_err(), "{path:?} {host:?}");
        }
    }
}
