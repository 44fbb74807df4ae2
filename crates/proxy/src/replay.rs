//! What an exchange keeps so that its request can be sent again.

use std::sync::Arc;
use std::time::Duration;

use model::fields::Fields;
use plan::filter::Hold;

use crate::relay::Ahead;
use crate::spool::SpoolFile;

/// What the retries of one exchange need to know beside its request.
#[derive(Default)]
pub(crate) struct Replay {
    /// The request body, kept whole.
    pub body: Option<Box<KeptBody>>,
    /// The beginning of a body that is not kept: the first attempt takes it, and streams the rest.
    pub ahead: Option<Box<Ahead>>,
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

/// A request body in memory, or in a file.
pub(crate) struct KeptBody {
    /// Empty if it is in a file.
    pub bytes: Arc<[u8]>,
    pub file: Option<KeptFile>,
    pub trailers: Option<Box<Fields>>,
    /// It is kept as an endpoint gets it, not as the client sends it.
    pub is_coded: bool,
    /// It was read whole before any of it was sent, whatever its size.
    pub is_held: bool,
}

/// A request body in a file.
#[derive(Clone)]
pub(crate) struct KeptFile {
    pub hold: Arc<Hold>,
    pub file: Arc<SpoolFile>,
    /// Its first bytes, so many, are the body.
    pub length: u64,
}

impl KeptBody {
    /// Bytes of the body.
    pub(crate) fn len(&self) -> u64 {
        self.file.as_ref().map_or(self.bytes.len() as u64, |kept| kept.length)
    }

    /// Whether it is in memory, and has at most so many bytes.
    pub(crate) fn is_within(&self, max: usize) -> bool {
        self.file.is_none() && self.bytes.len() <= max
    }
}

impl Replay {
    /// Keeps a body that was read whole before any of it was sent, into memory or, if it has a `file`, there.
    pub(crate) fn hold(&mut self, bytes: Arc<[u8]>, file: Option<KeptFile>, trailers: Option<Box<Fields>>) {
        self.body = Some(Box::new(KeptBody { bytes, file, trailers, is_coded: false, is_held: true }));
        self.is_taken = true;
    }

    /// Keeps what was sent to an endpoint; `is_coded`: stages have changed it on the way.
    pub(crate) fn keep_sent(&mut self, bytes: Box<[u8]>, is_coded: bool) {
        self.body =
            Some(Box::new(KeptBody { bytes: bytes.into(), file: None, trailers: None, is_coded, is_held: false }));
    }

    /// Begins with the first attempt at another cluster. A body that is kept stays.
    pub(crate) fn begin_again(&mut self) {
        (self.after_status, self.began_ms) = (None, 0);
        self.tried.clear();
    }

    /// Returns the body for an attempt after one that has taken it from the client's buffer.
    pub(crate) fn again(&self) -> Option<&KeptBody> {
        if self.is_taken { self.body.as_deref() } else { None }
    }
}
