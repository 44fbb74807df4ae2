//! Asks one question over HTTP/1.1 and compares the answer with what is expected.
//!
//! The answer is read by the very code that reads it for clients: an endpoint whose answers could not be passed on is not
//! well. It is not trusted: heads and bodies are bounded, interim answers are counted, and whoever calls bounds the time.

use std::io;

use model::check::HttpCheck;
use model::fields::FieldName;
use model::limits::INTERIM_RESPONSES_MAX;
use model::{Fault, Method, ResponseHead};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::http1::{ChunkDecoder, Framing, HeadLimits, HeadScan, ResponseParsed, parse_response};

/// Bound of one head.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bound of what is read of a body.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;
const READ_BYTES: usize = 4 * 1024;

/// Bounds of the heads of answers.
pub(super) const LIMITS: HeadLimits =
    HeadLimits { head_bytes_max: HEAD_BYTES_MAX, fields_max: model::limits::FIELDS_MAX };
/// Who asks.
pub(super) const USER_AGENT: &str = concat!("equipoise-probe/", env!("CARGO_PKG_VERSION"));
/// What is sent unless something else is given.
pub(super) const OWN_FIELDS: [(&str, &str); 2] = [("user-agent", USER_AGENT), ("accept", "*/*")];

/// What is expected of an answer.
pub(super) struct Expected {
    pub(super) method: Method,
    statuses: Vec<(u16, u16)>,
    fields: Vec<(FieldName, String)>,
    pub(super) body: Option<String>,
}

/// A question, and what is expected of the answer.
pub(crate) struct Question {
    bytes: Vec<u8>,
    expected: Expected,
    keeps_connection: bool,
}

/// Why an endpoint is not well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) why: String,
    /// Nothing came: a kept connection may just have been closed meanwhile.
    pub(crate) is_silent: bool,
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self { why, is_silent: false }
    }
}

impl Question {
    /// Prepares a check. What it holds comes from the validated configuration; anything that could end a line is refused
    /// all the same. `endpoint` is the name of the endpoint, for the host.
    ///
    /// # Errors
    /// Says what cannot be sent.
    pub(crate) fn new(check: &HttpCheck, endpoint: &str, keeps_connection: bool) -> Result<Self, String> {
        let (path, host) = asked(check, endpoint)?;
        let method = if check.is_head { "HEAD" } else { "GET" };
        let connection = if keeps_connection { "keep-alive" } else { "close" };
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
        for (name, value) in fields(&check.fields, &OWN_FIELDS)? {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("connection: {connection}\r\n\r\n");
        Ok(Self { bytes: text.into_bytes(), expected: Expected::of(check)?, keeps_connection })
    }

    /// Asks. `Ok` tells whether the connection may be used again.
    ///
    /// # Errors
    /// Anything that is not a whole, bounded answer as expected, said in a few words.
    pub(crate) async fn ask<S>(&self, stream: &mut S) -> Result<bool, Trouble>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut reader = Reader { stream, bytes: Vec::new(), has_read: false };
        reader.send(&self.bytes).await?;
        let (head, parsed) = reader.head(self.expected.method).await?;
        self.expected.check_head(&head)?;
        if self.expected.body.is_none() && !self.keeps_connection {
            return Ok(false);
        }
        let (body, is_whole) = reader.body(parsed.framing, self.expected.body.as_deref()).await?;
        self.expected.check_body(&body, is_whole)?;
        let nothing_follows = reader.bytes.is_empty() && parsed.framing != Framing::UntilClose;
        Ok(self.keeps_connection && parsed.keep_alive && is_whole && nothing_follows)
    }
}

/// The path and the host to ask for. `endpoint` is the name of the endpoint, for the host.
///
/// # Errors
/// Says what cannot be sent.
pub(super) fn asked<'c>(check: &'c HttpCheck, endpoint: &'c str) -> Result<(&'c str, &'c str), String> {
    let path = &check.path;
    if !path.starts_with('/') || !is_sendable(path) {
        return Err(format!("the path {path:?} cannot be asked for"));
    }
    Ok((path, host(check.host.as_ref(), endpoint)?))
}

/// The host to ask for: the one of the check, or the name of the endpoint.
///
/// # Errors
/// Says that it cannot be sent.
pub(super) fn host<'c>(given: Option<&'c String>, endpoint: &'c str) -> Result<&'c str, String> {
    let host = given.map_or(endpoint, String::as_str);
    if is_sendable(host) { Ok(host) } else { Err(format!("the host {host:?} cannot be asked for")) }
}

fn is_sendable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The fields to send beside the host: those of our own first, unless they are given otherwise.
///
/// # Errors
/// Says what cannot be sent.
pub(super) fn fields<'c>(
    given: &'c [(String, String)],
    own: &[(&'c str, &'c str)],
) -> Result<Vec<(&'c str, &'c str)>, String> {
    let is_given = |name: &str| given.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let mut all: Vec<(&str, &str)> = own.iter().filter(|(name, _)| !is_given(name)).copied().collect();
    for (name, value) in given {
        if FieldName::new(name).is_err() || value.contains(['\r', '\n', '\0']) {
            return Err(format!("the field {name:?} cannot be sent"));
        }
        all.push((name, value));
    }
    Ok(all)
}

impl Expected {
    /// # Errors
    /// Says what no answer has.
    pub(super) fn of(check: &HttpCheck) -> Result<Self, String> {
        let field = |(name, value): &(String, String)| match FieldName::new(name) {
            Ok(name) => Ok((name, value.clone())),
            Err(_) => Err(format!("the field {name:?} cannot be expected")),
        };
        Ok(Self {
            method: if check.is_head { Method::Head } else { Method::Get },
            statuses: check.statuses.clone(),
            fields: check.expected_fields.iter().map(field).collect::<Result<_, _>>()?,
            body: check.expected_body.clone(),
        })
    }

    /// # Errors
    /// Says what is another than expected.
    pub(super) fn check_head(&self, head: &ResponseHead) -> Result<(), String> {
        let status = head.status;
        if !self.statuses.iter().any(|(low, high)| (*low..=*high).contains(&status)) {
            return Err(format!("answered {status}"));
        }
        for (name, wanted) in &self.fields {
            let mut values = head.fields.all(name).peekable();
            if values.peek().is_none() {
                return Err(format!("answered {status} without the field {:?}", name.as_str()));
            }
            if values.all(|value| value != wanted.as_bytes()) {
                return Err(format!("answered {status} with another value of {:?} than {wanted:?}", name.as_str()));
            }
        }
        Ok(())
    }

    /// Looks at what was read of a body, and whether that is all of it.
    ///
    /// # Errors
    /// It does not hold what is expected.
    pub(super) fn check_body(&self, body: &[u8], is_whole: bool) -> Result<(), String> {
        let Some(wanted) = self.body.as_ref().filter(|wanted| !holds(body, wanted.as_bytes())) else { return Ok(()) };
        let what = if is_whole { "the body does not hold" } else { "the first 64 KiB of the body do not hold" };
        Err(format!("{what} {wanted:?}"))
    }
}

/// Whether `bytes` hold `wanted`.
pub(crate) fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// What is left of the bytes that came.
struct Reader<'s, S> {
    stream: &'s mut S,
    bytes: Vec<u8>,
    has_read: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Reader<'_, S> {
    async fn send(&mut self, question: &[u8]) -> Result<(), Trouble> {
        let failed = |error: io::Error| Trouble { why: format!("cannot send the request: {error}"), is_silent: true };
        self.stream.write_all(question).await.map_err(failed)?;
        self.stream.flush().await.map_err(failed)
    }

    /// Reads once; 0 at the end.
    async fn fill(&mut self) -> Result<usize, Trouble> {
        let mut buffer = [0; READ_BYTES];
        let read = self.stream.read(&mut buffer).await;
        let read = read
            .map_err(|error| Trouble { why: format!("cannot read the answer: {error}"), is_silent: !self.has_read })?;
        self.has_read |= read > 0;
        self.bytes.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    /// The final head; interim ones are passed over, but not without end.
    async fn head(&mut self, method: Method) -> Result<(ResponseHead, ResponseParsed), Trouble> {
        let mut head = ResponseHead::default();
        let mut scan = HeadScan::default();
        let mut interim = 0;
        loop {
            match parse_response(&self.bytes, &LIMITS, &mut scan, method, &mut head) {
                Ok(Some(parsed)) => {
                    self.bytes.drain(..parsed.head_len);
                    if head.status >= 200 {
                        return Ok((head, parsed));
                    }
                    interim += 1;
                    // 101 was not asked for (RFC 9110 section 15.2.2).
                    if parsed.switching || interim > INTERIM_RESPONSES_MAX {
                        let why = format!("interim answers (status {}) instead of a final one", head.status);
                        return Err(why.into());
                    }
                    head = ResponseHead::default();
                }
                Ok(None) => {
                    if self.fill().await? == 0 {
                        return Err(self.cut_short());
                    }
                }
                Err(Fault::ResponseHeadTooLarge) => {
                    return Err(format!("the head of the answer is longer than {HEAD_BYTES_MAX} bytes").into());
                }
                Err(_) => return Err("the answer is not HTTP/1, or breaks its rules".to_owned().into()),
            }
        }
    }

    fn cut_short(&self) -> Trouble {
        match self.has_read {
            true => "closed within the head of its answer".to_owned().into(),
            false => Trouble { why: "closed without an answer".into(), is_silent: true },
        }
    }

    /// The body as far as it goes within its bound, or until it holds `wanted`; and whether that is all of it.
    async fn body(&mut self, framing: Framing, wanted: Option<&str>) -> Result<(Vec<u8>, bool), Trouble> {
        let mut body = Vec::new();
        let mut chunks = ChunkDecoder::new(&LIMITS);
        loop {
            let is_whole = self.take_body(framing, &mut chunks, &mut body)?;
            let has_found = wanted.is_some_and(|wanted| holds(&body, wanted.as_bytes()));
            if is_whole || has_found || body.len() >= BODY_BYTES_MAX {
                return Ok((body, is_whole));
            }
            if self.fill().await? == 0 {
                return match framing {
                    Framing::UntilClose => Ok((body, true)),
                    _ => Err("closed within the body of its answer".to_owned().into()),
                };
            }
        }
    }

    /// Moves what came of the body; says whether that was the last of it.
    fn take_body(&mut self, framing: Framing, chunks: &mut ChunkDecoder, body: &mut Vec<u8>) -> Result<bool, String> {
        match framing {
            Framing::None => Ok(true),
            Framing::UntilClose => {
                body.append(&mut self.bytes);
                Ok(false)
            }
            Framing::Length(length) => {
                let left = usize::try_from(length).unwrap_or(usize::MAX) - body.len();
                body.extend(self.bytes.drain(..left.min(self.bytes.len())));
                Ok(body.len() as u64 == length)
            }
            Framing::Chunked => {
                let broken = |_| "the chunks of the answer break their rules".to_owned();
                let decoded = chunks.decode_in_place(&mut self.bytes).map_err(broken)?;
                body.extend_from_slice(&self.bytes[..decoded.data_len]);
                self.bytes.drain(..decoded.consumed);
                Ok(decoded.done)
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Asks for `/` and wants 2xx.
    pub(in crate::probes) fn check() -> HttpCheck {
        HttpCheck {
            is_head: false,
            path: "/".into(),
            host: None,
            fields: Vec::new(),
            statuses: vec![(200, 299)],
            expected_fields: Vec::new(),
            expected_body: None,
        }
    }

    /// What comes of an endpoint that answers with these bytes and closes.
    async fn answered(check: &HttpCheck, keeps: bool, bytes: &[u8]) -> Result<bool, String> {
        let question = Question::new(check, "site:80", keeps).unwrap();
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(bytes).await.unwrap();
        let asked = tokio::join!(question.ask(&mut near), async {
            // Closed for writing only once everything is written.
            far.shutdown().await.unwrap();
        });
        asked.0.map_err(|trouble| trouble.why)
    }

    #[tokio::test]
    async fn the_status_of_a_whole_head_is_read() {
        let of = async |bytes: &str| answered(&check(), false, bytes.as_bytes()).await;
        assert_eq!(of("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await, Ok(false));
        assert_eq!(of("HTTP/1.0 503\r\n\r\nbody").await, Err("answered 503".into()));
        assert_eq!(of("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n").await, Ok(false));
        assert!(of(&"HTTP/1.1 100 Continue\r\n\r\n".repeat(17)).await.unwrap_err().contains("interim"));
        assert!(
            of("HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")
                .await
                .unwrap_err()
                .contains("interim")
        );
        assert_eq!(of("").await, Err("closed without an answer".into()));
        assert_eq!(of("HTTP/1.1 200 OK\r\n").await, Err("closed within the head of its answer".into()));
        let endless = format!("HTTP/1.1 200 OK\r\n{}", "x-filler: 0123456789\r\n".repeat(100_000 / 22));
        assert!(of(&endless).await.unwrap_err().contains("longer than"));
        for bad in [
            "SSH-2.0-OpenSSH_9\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 2000\r\n\r\n",
            "HTTP/1.1 999 x\r\n\r\n",
            "\0\0\0",
        ] {
            assert!(of(bad).await.is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn fields_are_expected_with_their_values() {
        let expects =
            |name: &str, value: &str| HttpCheck { expected_fields: vec![(name.into(), value.into())], ..check() };
        let answer = b"HTTP/1.1 200 OK\r\nX-Ready: yes\r\nx-ready: very\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answered(&expects("x-ready", "yes"), false, answer).await, Ok(false));
        assert_eq!(answered(&expects("X-READY", "very"), false, answer).await, Ok(false));
        let other = answered(&expects("x-ready", "no"), false, answer).await.unwrap_err();
        assert_eq!(other, "answered 200 with another value of \"x-ready\" than \"no\"");
        let none = answered(&expects("x-role", "primary"), false, answer).await.unwrap_err();
        assert_eq!(none, "answered 200 without the field \"x-role\"");
    }

    #[tokio::test]
    async fn the_body_is_found_however_it_is_framed() {
        let wants = HttpCheck { expected_body: Some("all is well".into()), ..check() };
        for good in [
            "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n  all is well  ",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nall i\r\n6\r\ns well\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nall is well",
        ] {
            assert_eq!(answered(&wants, false, good.as_bytes()).await, Ok(false), "{good}");
        }
        for (bad, why) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbadall is well", "the body does not hold \"all is well\""),
            ("HTTP/1.1 204 OK\r\n\r\nall is well", "the body does not hold \"all is well\""),
            ("HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\nall", "closed within the body of its answer"),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
                "the chunks of the answer break their rules",
            ),
        ] {
            assert_eq!(answered(&wants, false, bad.as_bytes()).await, Err(why.into()), "{bad}");
        }
        let long = format!("HTTP/1.1 200 OK\r\n\r\n{}all is well", "x".repeat(BODY_BYTES_MAX + READ_BYTES));
        let why = answered(&wants, false, long.as_bytes()).await.unwrap_err();
        assert_eq!(why, "the first 64 KiB of the body do not hold \"all is well\"");
    }

    #[tokio::test]
    async fn a_connection_is_kept_only_when_the_answer_is_read_to_its_end() {
        for (answer, kept) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", false),
            ("HTTP/1.1 200 OK\r\n\r\nok", false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", false),
        ] {
            assert_eq!(answered(&check(), true, answer.as_bytes()).await, Ok(kept), "{answer}");
        }
    }

    #[test]
    fn a_question_cannot_be_made_to_hold_another() {
        let new = |path: &str, host: &str| {
            let check = HttpCheck { path: path.into(), host: Some(host.into()), ..check() };
            Question::new(&check, "x", false).map(|question| String::from_utf8(question.bytes).unwrap())
        };
        let text = new("/healthz?a=1", "site:80").unwrap();
        assert!(
            text.starts_with("GET /healthz?a=1 HTTP/1.1\r\nhost: site:80\r\nuser-agent: equipoise-probe/"),
            "{text}"
        );
        assert!(text.ends_with("connection: close\r\n\r\n"));
        for (path, host) in [("/a\r\nx: y", "a"), ("/a b", "a"), ("a", "a"), ("/", "a\r\n"), ("/", ""), ("", "a")] {
            assert!(new(path, host).is_err(), "{path:?} {host:?}");
        }
        let fields = |name: &str, value: &str| {
            Question::new(&HttpCheck { fields: vec![(name.into(), value.into())], ..check() }, "site:80", true)
        };
        let text = String::from_utf8(fields("User-Agent", "me").unwrap().bytes).unwrap();
        assert!(
            text.contains("host: site:80\r\naccept: */*\r\nUser-Agent: me\r\nconnection: keep-alive\r\n"),
            "{text}"
        );
        assert!(fields("a b", "c").is_err() && fields("a", "b\r\nc: d").is_err());
    }
}
