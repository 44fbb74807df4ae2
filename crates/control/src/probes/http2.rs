//! Asks one question over HTTP/2 and compares the answer with what is expected: for endpoints that speak HTTP/2 alone.

pub(super) mod client;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use model::check::HttpCheck;
use plan::health::expectation::{Body, Expectation};

use self::client::{Part, Request};
use super::http::{Asked, asked};
use super::progress::{Io, Progress};

/// A question, and what is expected of the answer.
pub(crate) struct Question {
    request: Request,
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
        is_https: bool,
    ) -> Result<Self, String> {
        let Asked { method, path, host, fields, length } = asked(check, endpoint)?;
        let asked = client::Asked { method, host, path, fields, length, is_https };
        Ok(Self { request: Request::new(&asked, Arc::clone(&check.body))?, expectation })
    }

    /// Asks over a new connection.
    ///
    /// # Errors
    /// Anything that is not a whole, bounded answer as expected, said in a few words.
    pub(crate) async fn ask(&self, stream: Box<dyn Io>, progress: &Progress) -> Result<(), String> {
        let mut talk = self.request.send(stream);
        let mut body = Body::new(&self.expectation);
        let mut received = 0;
        loop {
            match talk.next().await? {
                Part::Head(head) => {
                    self.expectation.check_head(&head)?;
                    if !self.expectation.needs_body() {
                        return Ok(());
                    }
                }
                Part::Data(data) => {
                    received += data.len() as u64;
                    if body.take(&data) {
                        return body.verdict(false);
                    }
                }
                Part::End(_) => return body.verdict(true),
            }
            progress.note_body(received);
        }
    }
}
