//! What an exchange keeps so that its request can be sent again.

use std::sync::Arc;
use std::time::Duration;

use model::fields::Fields;

/// What the retries of one exchange need to know beside its request.
#[derive(Default)]
pub(crate) struct Replay {
    /// The request body, kept whole.
    pub body: Option<Box<KeptBody>>,
    /// The body has left the client's buffer: a further attempt takes the kept one.
    pub is_taken: bool,
    /// A response was thrown away for another attempt, after this pause.
    pub after_status: Option<Duration>,
    /// Slots of endpoints that were asked by attempts before, hedges included.
    pub tried: Vec<u32>,
    /// When the first attempt could begin, but for its wait for an endpoint: milliseconds after the exchange did. Known only where
    /// the rules for retries are written.
    pub began_ms: u32,
}

/// A request body in memory.
pub(crate) struct KeptBody {
    pub bytes: Arc<[u8]>,
    pub trailers: Option<Box<Fields>>,
    /// It is kept as an endpoint gets it, not as the client sends it.
    pub is_coded: bool,
    /// It was read whole before any of it was sent, whatever its size.
    pub is_held: bool,
}

impl Replay {
    /// Keeps a body that was read whole before any of it was sent.
    pub(crate) fn hold(&mut self, bytes: Arc<[u8]>, trailers: Option<Box<Fields>>) {
        self.body = Some(Box::new(KeptBody { bytes, trailers, is_coded: false, is_held: true }));
        self.is_taken = true;
    }

    /// Keeps what was sent to an endpoint; `is_coded`: stages have changed it on the way.
    pub(crate) fn keep_sent(&mut self, bytes: Box<[u8]>, is_coded: bool) {
        self.body = Some(Box::new(KeptBody { bytes: bytes.into(), trailers: None, is_coded, is_held: false }));
    }

    /// Returns the body for an attempt after one that has taken it from the client's buffer.
    pub(crate) fn again(&self) -> Option<&KeptBody> {
        if self.is_taken { self.body.as_deref() } else { None }
    }
}
