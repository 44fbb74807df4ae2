//! Asks an endpoint by gRPC's health protocol whether it serves (`grpc.health.v1.Health/Check`), over HTTP/2; and says what its
//! answer means, whatever has brought it.
//!
//! An endpoint is well when it says `SERVING` and nothing else. What it answers is not trusted: head and message are
//! bounded here, frames by HTTP/2 itself, and whoever calls bounds the time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use model::check::GrpcCheck;
use model::fields::Fields;
use wire::grpc::{HEALTH_PATH, Serving, health_answer, health_question, status_name};

use super::http::{USER_AGENT, fields, host};
use super::http2::client::{Asked, Part, Request, Talk};
use super::progress::Io;

/// Bound of the answer's body. The message that is waited for has seven bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1_024;
/// Characters of an endpoint's own words that are shown.
const WORDS_MAX: usize = 100;
/// The longest time that `grpc-timeout` can say in milliseconds: it has eight digits.
const TIMEOUT_MS_MAX: u128 = 99_999_999;

/// Where an answer says how the call went, and in which words.
const STATUS: &str = "grpc-status";
/// See [`STATUS`].
const WORDS: &str = "grpc-message";

/// The values of both, as far as they are there.
pub(super) type StatusFields<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// A question, prepared once.
pub(crate) struct Question {
    request: Request,
    name: String,
}

impl Question {
    /// Prepares a check. What it holds comes from the validated configuration; what cannot be sent is refused all the
    /// same. `endpoint` is the name of the endpoint, for the authority.
    ///
    /// # Errors
    /// Says what cannot be sent.
    pub(crate) fn new(check: &GrpcCheck, endpoint: &str, is_https: bool, timeout: Duration) -> Result<Self, String> {
        let (host, timeout) = (host(check.host.as_ref(), endpoint)?, time(timeout));
        let fields = fields(&check.fields, &own_fields(&timeout))?;
        let asked = Asked { method: "POST", host, path: HEALTH_PATH, fields, length: None, is_https };
        let request = Request::new(&asked, health_question(&check.name).into())?;
        Ok(Self { request, name: check.name.clone() })
    }

    /// Asks over a new connection.
    ///
    /// # Errors
    /// Anything but `SERVING`, said in a few words.
    pub(crate) async fn ask(&self, stream: Box<dyn Io>) -> Result<(), String> {
        let mut talk = self.request.send(stream);
        let mut has_status = false;
        if let Part::Head(head) = talk.next().await? {
            check_head(head.status, value(&head.fields, "content-type"))?;
            // An answer of trailers only has its status here.
            let status = status_fields(&head.fields);
            has_status = status.0.is_some();
            if has_status {
                check_status(&self.name, status)?;
            }
        }
        let (message, trailers) = read(&mut talk).await?;
        match trailers {
            Some(trailers) => check_status(&self.name, status_fields(&trailers))?,
            None if has_status => {}
            None => return Err(without_status()),
        }
        check_message(&self.name, &message)
    }
}

/// What a call says beside what a check adds, which may take the place of any of it.
pub(super) fn own_fields(timeout: &str) -> [(&str, &str); 4] {
    [("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", USER_AGENT), ("grpc-timeout", timeout)]
}

/// How long an answer is waited for, as `grpc-timeout` says it.
pub(super) fn time(timeout: Duration) -> String {
    format!("{}m", timeout.as_millis().clamp(1, TIMEOUT_MS_MAX))
}

/// The value of a field of an answer.
pub(super) fn value<'f>(fields: &'f Fields, name: &str) -> Option<&'f [u8]> {
    fields.iter().find(|field| field.name.eq_ignore_ascii_case(name.as_bytes())).map(|field| field.value)
}

/// What a head or trailers say of how the call went.
pub(super) fn status_fields(fields: &Fields) -> StatusFields<'_> {
    (value(fields, STATUS), value(fields, WORDS))
}

/// Looks at what came of a call that was asked after `name`.
///
/// # Errors
/// It went wrong, or does not say how it went.
pub(super) fn check_status(name: &str, (status, words): StatusFields<'_>) -> Result<(), String> {
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
async fn read(talk: &mut Talk) -> Result<(Vec<u8>, Option<Box<Fields>>), String> {
    let mut message = Vec::new();
    loop {
        match talk.next().await? {
            Part::Data(data) if message.len() + data.len() > MESSAGE_BYTES_MAX => return Err(too_long()),
            Part::Data(data) => message.extend_from_slice(&data),
            Part::End(trailers) => return Ok((message, trailers)),
            Part::Head(_) => {}
        }
    }
}

pub(super) fn without_status() -> String {
    "answered without a status of gRPC".to_owned()
}

pub(super) fn too_long() -> String {
    format!("the answer is longer than {MESSAGE_BYTES_MAX} bytes")
}
