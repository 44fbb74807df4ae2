//! Asks one question over HTTP/1.1 and compares the answer with what is expected.
//!
//! The answer is read by the very code that reads it for clients: an endpoint whose answers could not be passed on is not
//! well. It is not trusted: heads and bodies are bounded, interim answers are counted, and whoever calls bounds the time.

use std::io;
use std::sync::Arc;

use model::check::HttpCheck;
use model::fields::{FieldName, is_token};
use model::limits::INTERIM_RESPONSES_MAX;
use model::{Fault, Method, ResponseHead};
use plan::health::expectation::{Body, Expectation};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::http1::{ChunkDecoder, Framing, HeadLimits, HeadScan, ResponseParsed, parse_response};

use super::progress::Progress;

/// Bound of one head.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
const READ_BYTES: usize = 4 * 1024;

/// Bounds of the heads of answers.
pub(super) const LIMITS: HeadLimits =
    HeadLimits { head_bytes_max: HEAD_BYTES_MAX, fields_max: model::limits::FIELDS_MAX };
/// Who asks.
pub(super) const USER_AGENT: &str = concat!("equipoise-probe/", env!("CARGO_PKG_VERSION"));
/// What is sent unless something else is given. A body that is looked at must not be compressed.
const OWN_FIELDS: [(&str, &str); 3] = [("user-agent", USER_AGENT), ("accept", "*/*"), ("accept-encoding", "identity")];

/// A question, and what is expected of the answer.
pub(crate) struct Question {
    head: Vec<u8>,
    body: Arc<[u8]>,
    method: Method,
    expectation: Arc<Expectation>,
    keeps_connection: bool,
}

/// Why an endpoint is not well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CheckFailure {
    pub(crate) why: String,
    /// Nothing came: a kept connection may just have been closed meanwhile.
    pub(crate) is_silent: bool,
}

impl From<String> for CheckFailure {
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
    pub(crate) fn new(
        check: &HttpCheck,
        endpoint: &str,
        expectation: Arc<Expectation>,
        keeps_connection: bool,
    ) -> Result<Self, String> {
        let Asked { method, path, host, fields, length } = asked(check, endpoint)?;
        let connection = if keeps_connection { "keep-alive" } else { "close" };
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
        for (name, value) in fields {
            text += &format!("{name}: {value}\r\n");
        }
        if let Some(length) = length {
            text += &format!("content-length: {length}\r\n");
        }
        text += &format!("connection: {connection}\r\n\r\n");
        let method = Method::of(method.as_bytes());
        Ok(Self { head: text.into_bytes(), body: Arc::clone(&check.body), method, expectation, keeps_connection })
    }

    /// Asks. `Ok` tells whether the connection may be used again.
    ///
    /// # Errors
    /// Anything that is not a whole, bounded answer as expected, said in a few words.
    pub(crate) async fn ask<S>(&self, stream: &mut S, progress: &Progress) -> Result<bool, CheckFailure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut reader = Reader { stream, bytes: Vec::new(), has_read: false };
        match self.body.is_empty() {
            true => reader.send(&self.head).await?,
            // In one piece, so that the body does not wait for an acknowledgement of the head.
            false => reader.send(&[&self.head[..], &self.body].concat()).await?,
        }
        let (head, parsed) = reader.head(self.method).await?;
        self.expectation.check_head(&head)?;
        if !self.expectation.needs_body() && !self.keeps_connection {
            return Ok(false);
        }
        let mut body = Body::new(&self.expectation);
        let is_whole = reader.body(parsed.framing, &mut body, progress).await?;
        body.verdict(is_whole)?;
        let nothing_follows = reader.bytes.is_empty() && parsed.framing != Framing::UntilClose;
        Ok(self.keeps_connection && parsed.keep_alive && is_whole && nothing_follows)
    }
}

/// What is asked, whatever the version of HTTP.
pub(super) struct Asked<'c> {
    pub(super) method: &'c str,
    pub(super) path: &'c str,
    pub(super) host: &'c str,
    pub(super) fields: Vec<(&'c str, &'c str)>,
    /// Of the body, if its length is known.
    pub(super) length: Option<usize>,
}

/// What a check asks. `endpoint` is the name of the endpoint, for the host.
///
/// # Errors
/// Says what cannot be sent.
pub(super) fn asked<'c>(check: &'c HttpCheck, endpoint: &'c str) -> Result<Asked<'c>, String> {
    let (method, path) = (check.method.as_str(), check.path.as_str());
    if !is_token(method.as_bytes()) || Method::of(method.as_bytes()) == Method::Connect {
        return Err(format!("the method {method:?} cannot be sent"));
    }
    if !path.starts_with('/') || !is_sendable(path) {
        return Err(format!("the path {path:?} cannot be asked for"));
    }
    // RFC 9110 section 8.6: a method for which a body means something tells its length also when that is 0.
    let tells_length = !check.body.is_empty() || ["POST", "PUT", "PATCH"].contains(&method);
    Ok(Asked {
        method,
        path,
        host: host(check.host.as_ref(), endpoint)?,
        fields: fields(&check.fields, &OWN_FIELDS)?,
        length: tells_length.then_some(check.body.len()),
    })
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
    async fn send(&mut self, question: &[u8]) -> Result<(), CheckFailure> {
        let failed =
            |error: io::Error| CheckFailure { why: format!("cannot send the request: {error}"), is_silent: true };
        self.stream.write_all(question).await.map_err(failed)?;
        self.stream.flush().await.map_err(failed)
    }

    /// Reads once; 0 at the end.
    async fn fill(&mut self) -> Result<usize, CheckFailure> {
        let mut buffer = [0; READ_BYTES];
        let read = self.stream.read(&mut buffer).await;
        let read = read.map_err(|error| CheckFailure {
            why: format!("cannot read the response: {error}"),
            is_silent: !self.has_read,
        })?;
        self.has_read |= read > 0;
        self.bytes.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    /// The final head; interim ones are passed over, but not without end.
    async fn head(&mut self, method: Method) -> Result<(ResponseHead, ResponseParsed), CheckFailure> {
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
                        let why = format!("interim responses (status {}) instead of a final one", head.status);
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
                    return Err(format!("the response head is longer than {HEAD_BYTES_MAX} bytes").into());
                }
                Err(_) => return Err("the response is not valid HTTP/1".to_owned().into()),
            }
        }
    }

    fn cut_short(&self) -> CheckFailure {
        match self.has_read {
            true => "closed within the response head".to_owned().into(),
            false => CheckFailure { why: "closed without a response".into(), is_silent: true },
        }
    }

    /// Reads the body as far as it matters. Tells whether that is all of it.
    async fn body(&mut self, framing: Framing, body: &mut Body<'_>, progress: &Progress) -> Result<bool, CheckFailure> {
        let mut received = Received { framing, chunks: ChunkDecoder::new(&LIMITS), bytes: 0 };
        loop {
            let taken = received.take(&mut self.bytes, body)?;
            progress.note_body(received.bytes);
            if taken.is_whole || taken.is_enough {
                return Ok(taken.is_whole);
            }
            if self.fill().await? == 0 {
                return match framing {
                    Framing::UntilClose => Ok(true),
                    _ => Err("closed within the response body".to_owned().into()),
                };
            }
        }
    }
}

/// How far a body has come.
struct Received {
    framing: Framing,
    chunks: ChunkDecoder,
    bytes: u64,
}

struct Taken {
    is_whole: bool,
    is_enough: bool,
}

impl Received {
    /// Moves what came of the body.
    fn take(&mut self, bytes: &mut Vec<u8>, body: &mut Body<'_>) -> Result<Taken, String> {
        let (data_len, consumed, is_whole) = match self.framing {
            Framing::None => (0, 0, true),
            Framing::UntilClose => (bytes.len(), bytes.len(), false),
            Framing::Length(length) => {
                let left = usize::try_from(length - self.bytes).unwrap_or(usize::MAX);
                let data = left.min(bytes.len());
                (data, data, data == left)
            }
            Framing::Chunked => {
                let broken = |_| "the response has invalid chunks".to_owned();
                let decoded = self.chunks.decode_in_place(bytes).map_err(broken)?;
                (decoded.data_len, decoded.consumed, decoded.done)
            }
        };
        let is_enough = body.take(&bytes[..data_len]);
        bytes.drain(..consumed);
        self.bytes += data_len as u64;
        Ok(Taken { is_whole, is_enough })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use model::check::{BodyTest, JsonMatch, JsonTest, ResponseTests};
    use model::limits::CHECK_BODY_BYTES_MAX;
    use model::matching::{ValueMatch, ValueTest};

    use super::*;

    pub(in crate::probes) fn check() -> HttpCheck {
        HttpCheck::get("/")
    }

    pub(in crate::probes) fn expectation(check: &HttpCheck) -> Arc<Expectation> {
        Arc::new(Expectation::compile(check).unwrap())
    }

    pub(in crate::probes) fn wanting_text(text: &str) -> HttpCheck {
        let wanted = ResponseTests { body: vec![BodyTest::Contains(text.into())], ..check().wanted };
        HttpCheck { wanted, ..check() }
    }

    pub(in crate::probes) fn wanting_field(name: &str, value: &str) -> HttpCheck {
        let field = ValueMatch { name: name.into(), test: ValueTest::Exact(value.into()) };
        HttpCheck { wanted: ResponseTests { fields: vec![field], ..check().wanted }, ..check() }
    }

    fn question(check: &HttpCheck, keeps: bool) -> Result<Question, String> {
        Question::new(check, "site:80", expectation(check), keeps)
    }

    /// What comes of an endpoint that answers with these bytes and closes.
    async fn answered(check: &HttpCheck, keeps: bool, bytes: &[u8]) -> Result<bool, String> {
        let (question, progress) = (question(check, keeps).unwrap(), Progress::default());
        let (mut near, mut far) = tokio::io::duplex(1 << 21);
        far.write_all(bytes).await.unwrap();
        let asked = tokio::join!(question.ask(&mut near, &progress), async {
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
        assert_eq!(of("").await, Err("closed without a response".into()));
        assert_eq!(of("HTTP/1.1 200 OK\r\n").await, Err("closed within the response head".into()));
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
        let answer = b"HTTP/1.1 200 OK\r\nX-Ready: yes\r\nx-ready: very\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answered(&wanting_field("x-ready", "yes"), false, answer).await, Ok(false));
        assert_eq!(answered(&wanting_field("X-READY", "very"), false, answer).await, Ok(false));
        let other = answered(&wanting_field("x-ready", "no"), false, answer).await.unwrap_err();
        assert_eq!(other, "the header `x-ready` is \"yes\", expected \"no\"");
        let none = answered(&wanting_field("x-role", "primary"), false, answer).await.unwrap_err();
        assert_eq!(none, "the header `x-role` is missing, expected \"primary\"");
    }

    #[tokio::test]
    async fn the_body_is_found_however_it_is_framed() {
        let wants = wanting_text("all is well");
        for good in [
            "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n  all is well  ",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nall i\r\n6\r\ns well\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nall is well",
        ] {
            assert_eq!(answered(&wants, false, good.as_bytes()).await, Ok(false), "{good}");
        }
        for (bad, why) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbadall is well", "the body does not contain \"all is well\""),
            ("HTTP/1.1 204 OK\r\n\r\nall is well", "the body does not contain \"all is well\""),
            ("HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\nall", "closed within the response body"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", "the response has invalid chunks"),
        ] {
            assert_eq!(answered(&wants, false, bad.as_bytes()).await, Err(why.into()), "{bad}");
        }
        let long = format!("HTTP/1.1 200 OK\r\n\r\n{}all is well", "x".repeat(CHECK_BODY_BYTES_MAX + READ_BYTES));
        let why = answered(&wants, false, long.as_bytes()).await.unwrap_err();
        assert_eq!(why, "within its first 65536 bytes the body does not contain \"all is well\"");
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
            question(&check, false).map(|question| String::from_utf8(question.head).unwrap())
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
            question(&HttpCheck { fields: vec![(name.into(), value.into())], ..check() }, true)
        };
        let text = String::from_utf8(fields("User-Agent", "me").unwrap().head).unwrap();
        assert!(
            text.contains("host: site:80\r\naccept: */*\r\naccept-encoding: identity\r\nUser-Agent: me\r\nconnection: keep-alive\r\n"),
            "{text}"
        );
        let coded = String::from_utf8(fields("Accept-Encoding", "gzip").unwrap().head).unwrap();
        assert!(coded.contains("Accept-Encoding: gzip\r\n") && !coded.contains("identity"), "{coded}");
        assert!(fields("a b", "c").is_err() && fields("a", "b\r\nc: d").is_err());
    }

    #[tokio::test]
    async fn any_method_is_sent_with_its_body_and_the_length_of_that() {
        let sent = async |method: &str, body: &str| {
            let check = HttpCheck { method: method.into(), body: body.as_bytes().into(), ..check() };
            let (question, progress) = (question(&check, false).unwrap(), Progress::default());
            let (mut near, mut far) = tokio::io::duplex(1 << 16);
            far.write_all(b"HTTP/1.1 204 Done\r\n\r\n").await.unwrap();
            question.ask(&mut near, &progress).await.unwrap();
            drop(near);
            let mut text = String::new();
            far.read_to_string(&mut text).await.unwrap();
            text
        };
        let post = sent("POST", "{\"a\":1}").await;
        assert!(
            post.starts_with("POST / HTTP/1.1\r\n")
                && post.ends_with("content-length: 7\r\nconnection: close\r\n\r\n{\"a\":1}"),
            "{post}"
        );
        assert!(sent("PUT", "").await.contains("\r\ncontent-length: 0\r\n"));
        let get = sent("GET", "").await;
        assert!(!get.contains("content-length"), "{get}");
        assert!(sent("GET", "why").await.contains("\r\ncontent-length: 3\r\n"));
        assert!(sent("M-SEARCH", "").await.starts_with("M-SEARCH / HTTP/1.1\r\n"));
        for method in ["CONNECT", "a b", "A\r\n", ""] {
            let check = HttpCheck { method: method.into(), ..check() };
            assert!(question(&check, false).is_err(), "{method:?}");
        }
    }

    #[tokio::test]
    async fn json_is_read_whole_however_it_is_framed() {
        let json = vec![JsonMatch { path: ".status".into(), test: JsonTest::Equals("ok".into()) }];
        let check = HttpCheck { wanted: ResponseTests { json, ..check().wanted }, ..check() };
        for good in [
            "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"status\":\"ok\"}",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"sta\r\na\r\ntus\":\"ok\"}\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\"}",
        ] {
            assert_eq!(answered(&check, false, good.as_bytes()).await, Ok(false), "{good}");
        }
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"status\":\"ok\"}";
        assert_eq!(answered(&check, false, cut.as_bytes()).await, Err("closed within the response body".into()));
        let long = format!("HTTP/1.1 200 OK\r\n\r\n{{\"status\":\"ok\"{}}}", " ".repeat(CHECK_BODY_BYTES_MAX));
        let why = "the body is longer than 65536 bytes (`response_bytes_max`), too long to read as JSON";
        assert_eq!(answered(&check, false, long.as_bytes()).await, Err(why.into()));
        let larger = HttpCheck { response_bytes_max: 1 << 20, ..check };
        assert_eq!(answered(&larger, false, long.as_bytes()).await, Ok(false));
    }
}
