//! What filters do at the end of an exchange, however it ends.

use std::sync::Arc;
use std::time::Instant;

use model::Fault;
use model::fault::Source;

/// How an exchange has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// Status of the final response; 0: none was sent.
    pub status: u16,
    /// What went wrong, if anything did.
    pub fault: Option<Fault>,
    /// Bytes of the request body that were received.
    pub received_bytes: u64,
    /// Bytes of the response body that were sent.
    pub sent_bytes: u64,
    /// When; `None`: the exchange was dropped, as at the end of the program.
    pub now: Option<Instant>,
}

impl Ended {
    /// Returns whether it failed for another reason than its client.
    pub fn is_our_failure(&self) -> bool {
        self.fault.is_some_and(|fault| fault.consequence().source != Source::Downstream)
    }
}

/// Something to be done at the end of an exchange, shared by all workers. See [`super::Notes::at_end`].
pub trait AtEnd: Send + Sync {
    /// Does it. `token` is what was given with it. It must not wait.
    fn at_end(&self, token: u64, ended: &Ended);
}

/// What is to be done at the end of one exchange. What is dropped has ended.
#[derive(Default)]
pub(super) struct Pending(Vec<(Arc<dyn AtEnd>, u64)>);

impl Pending {
    pub(super) fn push(&mut self, what: Arc<dyn AtEnd>, token: u64) {
        self.0.push((what, token));
    }

    #[inline]
    pub(super) fn is_some(&self) -> bool {
        !self.0.is_empty()
    }

    #[inline]
    pub(super) fn end(&mut self, ended: &Ended) {
        if !self.0.is_empty() {
            self.run(ended);
        }
    }

    #[cold]
    fn run(&mut self, ended: &Ended) {
        for (what, token) in self.0.drain(..) {
            what.at_end(token, ended);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.end(&Ended::default());
    }
}
