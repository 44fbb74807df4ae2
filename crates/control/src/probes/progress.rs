//! What the attempts of all kinds of probes have in common: their connection, and how far they have come.

use std::cell::Cell;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection, with or without TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

/// A connection that one attempt leaves to the next.
pub(crate) type Kept = Option<Box<dyn Io>>;

/// How far an attempt has come, for the reason of one that takes too long.
#[derive(Debug, Default)]
pub(crate) struct Progress(Cell<Option<u64>>);

impl Progress {
    /// So many bytes of the answer's body have come.
    pub(crate) fn note_body(&self, bytes: u64) {
        self.0.set(Some(bytes));
    }

    /// Why an attempt that has run out of time is a failure.
    pub(super) fn late(&self, limit: &Limit) -> String {
        let when = match limit {
            Limit::Own(time) => format!("within {time:?}"),
            Limit::Whole(time) => format!("within the {time:?} of the whole check"),
        };
        match self.0.get() {
            None => format!("no response {when}"),
            Some(bytes) => format!("the response body did not end {when} ({bytes} bytes came)"),
        }
    }
}

/// Which time has run out.
pub(super) enum Limit {
    /// That of the only step, or of the step.
    Own(Duration),
    /// That of all steps together.
    Whole(Duration),
}
