//! Asks one question over HTTP/2 and compares the answer with what is expected: for endpoints that speak HTTP/2 alone.
//!
//! Frames are bounded by the library, the body by what is expected of it, and the caller bounds the time.

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::{HeaderName, HeaderValue, Request, response};
use model::check::HttpCheck;
use model::{FieldName, ResponseHead};
use plan::health::expectation::{Body, Expectation};

use super::attempt::{Io, Progress};
use super::http::{Asked, HEAD_BYTES_MAX, asked};

/// A question, and what is expected of the answer.
pub(crate) struct Question {
    head: Request<()>,
    body: Arc<[u8]>,
    expectation: Arc<Expectation>,
}

impl Question {
    /// Prepares a check. What it holds comes from the validated configuration; what cannot be sent is refused all the
    /// same. `endpoint` is the name of the endpoint, for the authority.
    ///
    /// # Errors
    /// Says what cannot be sent.
    pub(crate) fn new(
        check: &HttpCheck,
        endpoint: &str,
        expectation: Arc<Expectation>,
        is_tls: bool,
    ) -> Result<Self, String> {
        let Asked { method, path, host, fields, length } = asked(check, endpoint)?;
        let scheme = if is_tls { "https" } else { "http" };
        let mut builder = Request::builder().method(method).uri(format!("{scheme}://{host}{path}"));
        if let Some(length) = length {
            builder = builder.header("content-length", length);
        }
        let built = builder.body(());
        let mut head = built.map_err(|_| format!("the path {path:?} of the host {host:?} cannot be asked for"))?;
        for (name, value) in fields {
            let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
            let (Ok(field), Ok(value)) = pair else { return Err(format!("the field {name:?} cannot be sent")) };
            head.headers_mut().append(field, value);
        }
        Ok(Self { head, body: Arc::clone(&check.body), expectation })
    }

    /// Asks over a new connection.
    ///
    /// # Errors
    /// Anything that is not a whole, bounded answer as expected, said in a few words.
    pub(crate) async fn ask(&self, stream: Box<dyn Io>, progress: &Progress) -> Result<(), String> {
        over(stream, |requests| self.converse(requests, progress)).await
    }

    async fn converse(&self, requests: SendRequest<Bytes>, progress: &Progress) -> Result<(), String> {
        let mut requests = requests.ready().await.map_err(broken)?;
        let has_body = !self.body.is_empty();
        let (response, mut question) = requests.send_request(self.head.clone(), !has_body).map_err(broken)?;
        if has_body {
            question.send_data(Bytes::copy_from_slice(&self.body), true).map_err(broken)?;
        }
        let (head, body) = response.await.map_err(broken)?.into_parts();
        self.expectation.check_head(&head_of(&head))?;
        match self.expectation.needs_body() {
            true => self.read(body, progress).await,
            false => Ok(()),
        }
    }

    async fn read(&self, mut stream: RecvStream, progress: &Progress) -> Result<(), String> {
        let mut body = Body::new(&self.expectation);
        let mut received = 0;
        progress.note_body(received);
        while let Some(data) = stream.data().await {
            let data = data.map_err(broken)?;
            received += data.len() as u64;
            progress.note_body(received);
            if body.take(&data) {
                return body.verdict(false);
            }
            stream.flow_control().release_capacity(data.len()).map_err(broken)?;
        }
        body.verdict(true)
    }
}

/// Speaks HTTP/2 over a new connection for as long as `talk` lasts.
///
/// # Errors
/// Those of `talk`, or that the endpoint does not speak HTTP/2.
pub(super) async fn over<T>(stream: Box<dyn Io>, talk: impl FnOnce(SendRequest<Bytes>) -> T) -> Result<(), String>
where
    T: Future<Output = Result<(), String>>,
{
    let mut builder = Builder::new();
    builder.enable_push(false).max_concurrent_streams(0).max_header_list_size(HEAD_BYTES_MAX as u32);
    let (requests, connection) = builder.handshake(stream).await.map_err(broken)?;
    let mut talk = pin!(talk(requests));
    tokio::select! {
        biased;
        answer = &mut talk => return answer,
        // Whatever ended it: the answer may be there, and if not, the talk knows why.
        _ = connection => {}
    }
    talk.await
}

pub(super) fn broken(error: h2::Error) -> String {
    match error.get_io() {
        Some(error) => format!("the connection broke: {error}"),
        None => format!("this is not HTTP/2, or breaks its rules: {error}"),
    }
}

fn head_of(parts: &response::Parts) -> ResponseHead {
    let mut head = ResponseHead::default();
    head.status = parts.status.as_u16();
    for (name, value) in &parts.headers {
        if let Ok(name) = FieldName::new(name.as_str()) {
            head.fields.append(&name, value.as_bytes());
        }
    }
    head
}
