//! Asks an endpoint by gRPC's health protocol whether it serves (`grpc.health.v1.Health/Check`), over HTTP/2.
//!
//! An endpoint is well when it says `SERVING` and nothing else. What it answers is not trusted: head and message are
//! bounded here, frames by HTTP/2 itself, and whoever calls bounds the time.

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use model::check::GrpcCheck;
use wire::grpc::{HEALTH_PATH, Serving, health_answer, health_question, status_name};

use super::attempt::Io;
use super::http::HEAD_BYTES_MAX;

/// Bound of the answer's body. The message that is waited for has seven bytes.
const MESSAGE_BYTES_MAX: usize = 1_024;
/// Characters of an endpoint's own words that are shown.
const WORDS_MAX: usize = 100;
/// The longest time that `grpc-timeout` can say in milliseconds: it has eight digits.
const TIMEOUT_MS_MAX: u128 = 99_999_999;

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
            .header("user-agent", concat!("equipoise-probe/", env!("CARGO_PKG_VERSION")))
            .header("grpc-timeout", format!("{}m", timeout.as_millis().clamp(1, TIMEOUT_MS_MAX)))
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
        let mut builder = Builder::new();
        builder.enable_push(false).max_concurrent_streams(0).max_header_list_size(HEAD_BYTES_MAX as u32);
        let (requests, connection) = builder.handshake(stream).await.map_err(broken)?;
        let mut conversation = pin!(self.converse(requests));
        tokio::select! {
            biased;
            answer = &mut conversation => return answer,
            // Whatever ended it: the answer may be there, and if not, the conversation knows why.
            _ = connection => {}
        }
        conversation.await
    }

    async fn converse(&self, requests: SendRequest<Bytes>) -> Result<(), String> {
        let mut requests = requests.ready().await.map_err(broken)?;
        let (response, mut question) = requests.send_request(self.head.clone(), false).map_err(broken)?;
        question.send_data(self.message.clone(), true).map_err(broken)?;
        let (head, body) = response.await.map_err(broken)?.into_parts();
        check_head(&head)?;
        // An answer of trailers only has its status here.
        let is_status_told = head.headers.contains_key("grpc-status");
        if is_status_told {
            self.check_status(&head.headers)?;
        }
        let (message, trailers) = read(body).await?;
        match trailers {
            Some(trailers) => self.check_status(&trailers)?,
            None if is_status_told => {}
            None => return Err("answered without a status of gRPC".to_owned()),
        }
        match health_answer(&message) {
            Ok(Serving::Yes) => Ok(()),
            Ok(Serving::NoSuchName) => Err(format!("says SERVICE_UNKNOWN, it does not know {:?}", self.name)),
            Ok(other) => Err(format!("says {other}")),
            Err(why) => Err(format!("the answer cannot be read: {why}")),
        }
    }

    fn check_status(&self, fields: &HeaderMap) -> Result<(), String> {
        let Some(status) = fields.get("grpc-status") else {
            return Err("answered without a status of gRPC".to_owned());
        };
        let code = status.to_str().ok().and_then(|text| text.parse::<u32>().ok());
        let why = match code {
            Some(0) => return Ok(()),
            Some(5) => format!("it does not know {:?}", self.name),
            Some(12) => "it has no health checks".to_owned(),
            Some(_) => {
                let words = fields.get("grpc-message").and_then(|words| words.to_str().ok());
                words.unwrap_or_default().chars().take(WORDS_MAX).collect()
            }
            None => return Err(format!("answered with {status:?} as the status of gRPC")),
        };
        let code = code.unwrap_or_default();
        let colon = if why.is_empty() { "" } else { ": " };
        Err(format!("status {code} of gRPC, {}{colon}{why}", status_name(code)))
    }
}

fn check_head(head: &Parts) -> Result<(), String> {
    if head.status != StatusCode::OK {
        return Err(format!("answered {}", head.status.as_u16()));
    }
    let kind = head.headers.get("content-type").map(HeaderValue::as_bytes).unwrap_or_default();
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
            return Err(format!("the answer is longer than {MESSAGE_BYTES_MAX} bytes"));
        }
        message.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).map_err(broken)?;
    }
    let trailers = body.trailers().await.map_err(broken)?;
    Ok((message, trailers))
}

fn broken(error: h2::Error) -> String {
    match error.get_io() {
        Some(error) => format!("the connection broke: {error}"),
        None => format!("this is not HTTP/2, or breaks its rules: {error}"),
    }
}
