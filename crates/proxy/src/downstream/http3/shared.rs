//! What a connection and the tasks of its streams share.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use model::limits::{HTTP3_IDLE_FRAMES_PER_EXCHANGE, HTTP3_IDLE_FRAMES_PER_PIECE};
use wire::http2::Allowance;

use crate::connection::ConnectionFacts;
use crate::downstream::exchanges::Exchanges;
use crate::http3::{Counts, Stream};

/// See the module.
pub(super) struct Shared {
    pub facts: RefCell<Rc<ConnectionFacts>>,
    pub counts: Rc<Counts>,
    /// Frames of no use that the client may still send.
    pub allowance: RefCell<Allowance>,
    /// Streams that it may still throw away.
    pub discards: RefCell<Allowance>,
    pub exchanges: Exchanges,
}

impl Shared {
    /// Takes what was counted of no use, and what was thrown away. False: it is more than a client may send.
    pub(super) fn is_bearable(&self, more: u32) -> bool {
        let (idle, discarded) = (self.counts.idle.take().saturating_add(more), self.counts.discarded.take());
        (idle == 0 || self.allowance.borrow_mut().spend(idle, Instant::now()))
            && (discarded == 0 || self.discards.borrow_mut().spend(discarded, Instant::now()))
    }

    /// An exchange is over that was begun then.
    pub(super) fn note_end(&self, stream: &mut Stream, begun: Instant) {
        let is_whole = stream.finish();
        if stream.has_answered() {
            self.discards.borrow_mut().earn(1);
        } else if stream.is_broken() && begun.elapsed() <= HASTY {
            self.note_discarded();
        }
        if is_whole {
            let pieces = self.counts.pieces.take();
            let earned = HTTP3_IDLE_FRAMES_PER_EXCHANGE + pieces.saturating_mul(HTTP3_IDLE_FRAMES_PER_PIECE);
            self.allowance.borrow_mut().earn(earned);
        }
    }

    /// The client has given a stream up, or broken its rules, before its answer began.
    pub(super) fn note_discarded(&self) {
        self.counts.discarded.set(self.counts.discarded.get().saturating_add(1));
    }
}

/// A stream that is given up within this is given up in haste. Of those that have waited for longer, the bound of streams bounds how many
/// there are.
const HASTY: Duration = Duration::from_secs(1);
