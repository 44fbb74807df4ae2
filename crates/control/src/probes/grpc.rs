//! Asks an endpoint by gRPC's health protocol whether it serves (`grpc.health.v1.Health/Check`), over HTTP/2; and says what its
//! answer means, whatever has brought it.
//!
//! An endpoint is well when it says `SERVING` and nothing else. What it answers is not trusted: head and message are
//! bounded here, frames by HTTP/2 itself, and whoever calls bounds the time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use model::check::GrpcCheck;
use wire::grpc::{HEALTH_PATH, Serving, health_answer, health_question, status_name};

use super::attempt::Io;
use super::http::USER_AGENT;
use super::http2::{broken, over};

/// Bound of the answer's body. The message that is waited for has seven bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1_024;
/// Characters of an endpoint's own words that are shown.
const WORDS_MAX: usize = 100;
/// The longest time that `grpc-timeout` can say in milliseconds: it has eight digits.
const TIMEOUT_MS_MAX: u128 = 99_999_999;

/// Where an answer says how the call went, and in which words.
pub(super) const STATUS: &str = "grpc-status";
/// See [`STATUS`].
pub(super) const WORDS: &str = "grpc-message";

/// The values of both, as far as they are there.
pub(super) type Told<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// A question, prepared once.
pub(crate) struct Question {
    head: Request<()>,
    message: Bytes,
    name: String,
}

impl Question {
    /// Prepares a check. What it holds comes from the validated configuration; what cannot be sent is refused all the
    /// same. `endpoint` is the name of the endpoint, for the authority.
    ///
    /// # Errors
    /// Says what cannot be sent.
    pub(crate) fn new(check: &GrpcCheck, endpoint: &str, is_tls: bool, timeout: Duration) -> Result<Self, String> {
        let host = check.host.as_deref().unwrap_or(endpoint);
        let scheme = if is_tls { "https" } else { "http" };
        let built = Request::builder()
            .method(Method::POST)
            .uri(format!("{scheme}://{host}{HEALTH_PATH}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", USER_AGENT)
            .header("grpc-timeout", time(timeout))
            .body(());
        let mut head = built.map_err(|_| format!("the host {host:?} cannot be asked for"))?;
        for (name, value) in &check.fields {
            let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
            let (Ok(field), Ok(value)) = pair else { return Err(format!("the field {name:?} cannot be sent")) };
            head.headers_mut().insert(field, value);
        }
        Ok(Self { head, message: health_question(&check.name).into(), name: check.name.clone() })
    }

    /// Asks over a new connection.
    ///
    /// # Errors
    /// Anything but `SERVING`, said in a few words.
    pub(crate) async fn ask(&self, stream: Box<dyn Io>) -> Result<(), String> {
        over(stream, |requests| self.converse(requests)).await
    }

    async fn converse(&self, requests: SendRequest<Bytes>) -> Result<(), String> {
        let mut requests = requests.ready().await.map_err(broken)?;
        let (response, mut question) = requests.send_request(self.head.clone(), false).map_err(broken)?;
        question.send_data(self.message.clone(), true).map_err(broken)?;
        let (head, body) = response.await.map_err(broken)?.into_parts();
        check_head(head.status.as_u16(), value(&head.headers, "content-type"))?;
        // An answer of trailers only has its status here.
        let is_status_told = head.headers.contains_key(STATUS);
        if is_status_told {
            check_status(&self.name, told(&head.headers))?;
        }
        let (message, trailers) = read(body).await?;
        match trailers {
            Some(trailers) => check_status(&self.name, told(&trailers))?,
            None if is_status_told => {}
            None => return Err(without_status()),
        }
        check_message(&self.name, &message)
    }
}

/// How long an answer is waited for, as `grpc-timeout` says it.
pub(super) fn time(timeout: Duration) -> String {
    format!("{}m", timeout.as_millis().clamp(1, TIMEOUT_MS_MAX))
}

fn value<'h>(fields: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    fields.get(name).map(HeaderValue::as_bytes)
}

fn told(fields: &HeaderMap) -> Told<'_> {
    (value(fields, STATUS), value(fields, WORDS))
}

/// Looks at what came of a call that was asked after `name`.
///
/// # Errors
/// It went wrong, or does not say how it went.
pub(super) fn check_status(name: &str, (status, words): Told<'_>) -> Result<(), String> {
    let Some(status) = status else { return Err(without_status()) };
    let code = std::str::from_utf8(status).ok().and_then(|text| text.parse::<u32>().ok());
    let why = match code {
        Some(0) => return Ok(()),
        Some(5) => format!("it does not know {name:?}"),
        Some(12) => "it has no health checks".to_owned(),
        Some(_) => {
            let is_text = |words: &&[u8]| words.iter().all(|byte| *byte == b'\t' || (b' '..=b'~').contains(byte));
            let words = words.filter(is_text).unwrap_or_default();
            String::from_utf8_lossy(&words[..words.len().min(WORDS_MAX)]).into_owned()
        }
        None => {
            let status = &status[..status.len().min(WORDS_MAX)];
            return Err(format!("answered with \"{}\" as the status of gRPC", status.escape_ascii()));
        }
    };
    let code = code.unwrap_or_default();
    let colon = if why.is_empty() { "" } else { ": " };
    Err(format!("status {code} of gRPC, {}{colon}{why}", status_name(code)))
}

/// Looks at the message of an answer, after `name` was asked for.
///
/// # Errors
/// It says anything but `SERVING`.
pub(super) fn check_message(name: &str, message: &[u8]) -> Result<(), String> {
    match health_answer(message) {
        Ok(Serving::Yes) => Ok(()),
        Ok(Serving::NoSuchName) => Err(format!("says SERVICE_UNKNOWN, it does not know {name:?}")),
        Ok(other) => Err(format!("says {other}")),
        Err(why) => Err(format!("the answer cannot be read: {why}")),
    }
}

/// Looks at the head of an answer: its status of HTTP and its content type.
///
/// # Errors
/// It is none of gRPC.
pub(super) fn check_head(status: u16, kind: Option<&[u8]>) -> Result<(), String> {
    if status != 200 {
        return Err(format!("answered {status}"));
    }
    let kind = kind.unwrap_or_default();
    match kind.strip_prefix(b"application/grpc") {
        Some([] | [b'+' | b';', ..]) => Ok(()),
        _ => Err(format!(
            "the content type is \"{}\", not that of gRPC",
            kind[..kind.len().min(WORDS_MAX)].escape_ascii()
        )),
    }
}

/// The body and what follows it.
async fn read(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), String> {
    let mut message = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(broken)?;
        if message.len() + data.len() > MESSAGE_BYTES_MAX {
            return Err(too_long());
        }
        message.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).map_err(broken)?;
    }
    let trailers = body.trailers().await.map_err(broken)?;
    Ok((message, trailers))
}

pub(super) fn without_status() -> String {
    "answered without a status of gRPC".to_owned()
}

pub(super) fn too_long() -> String {
    format!("the answer is longer than {MESSAGE_BYTES_MAX} bytes")
}
