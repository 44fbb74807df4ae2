//! A client's connection as its task and its streams share it: what [`crate::http2::State`] is towards clients.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use model::ResponseHead;
use model::limits::{
    HTTP2_DISCARDED_MAX, HTTP2_DISCARDED_PER_SECOND, HTTP2_IDLE_FRAMES_MAX, HTTP2_IDLE_FRAMES_PER_SECOND,
};
use wire::http1::{Framing, HeadLimits};
use wire::http2::Allowance;
use wire::http2::connection::{Connection, Downstream, Gone, Limits, TICK};
use wire::http2::hpack::Strings;

use crate::byte_stream::ByteStream;
use crate::http2::output::Output;
use crate::http2::state::Peer;
use crate::http2::streams::gone;

/// As it is shared.
pub(crate) type SharedState = Rc<RefCell<State>>;

/// See the module.
pub(crate) type State = crate::http2::State<Client>;

/// What only the connection of a client has.
pub(crate) struct Client {
    /// When it was made.
    began: Instant,
    /// Streams that the peer may still throw away.
    discards: Allowance,
}

impl Peer for Client {
    type Role = Downstream;
    type Extra = ();
}

impl State {
    /// A new connection, whose settings wait to be sent; its task, and how that is woken for the socket.
    pub(crate) fn new(io: ByteStream, head: HeadLimits, (task, wire): (&Waker, &Waker), now: Instant) -> Self {
        let mut output = Output::new(io, wire.clone());
        let core = Connection::new(Limits::new(head), Strings::default(), output.out());
        let discards = Allowance::new(HTTP2_DISCARDED_MAX, HTTP2_DISCARDED_PER_SECOND, now);
        let allowance = Allowance::new(HTTP2_IDLE_FRAMES_MAX, HTTP2_IDLE_FRAMES_PER_SECOND, now);
        Self::of(core, output, (Client { began: now, discards }, allowance), task)
    }

    /// Changes the bounds of the heads that are still to come.
    pub(crate) fn limit_heads(&mut self, head: HeadLimits) {
        self.core.limit_heads(head);
    }

    /// What is received from now on is received at this time.
    pub(crate) fn set_time(&mut self, now: Instant) {
        let ticks = now.saturating_duration_since(self.peer.began).as_millis() / TICK.as_millis();
        self.core.set_tick(ticks as u32);
    }

    /// Whether the client has sent no more frames of no use than it may, and thrown no more streams away.
    pub(crate) fn is_within_bounds(&mut self, now: Instant) -> bool {
        let counts = self.core.take_counts();
        let discards = &mut self.peer.discards;
        discards.earn(counts.answered);
        (counts.discarded == 0 || discards.spend(counts.discarded, now)) && self.spend(counts.idle, now)
    }

    /// Refuses an unprocessed stream.
    pub(crate) fn refuse(&mut self, stream: u32) {
        self.core.refuse(stream, self.output.out());
    }

    /// Whether the settings of the client are here.
    pub(crate) fn is_greeted(&self) -> bool {
        self.core.has_settings()
    }

    /// Whether the client has been told which stream is the last.
    pub(crate) fn has_sent_final_goaway(&self) -> bool {
        self.core.has_sent_final_goaway()
    }

    pub(crate) fn announce_shutdown(&mut self) {
        self.core.announce_shutdown(self.output.out());
    }

    /// Says that what was begun last is the last.
    pub(crate) fn send_final_goaway(&mut self) {
        self.core.send_final_goaway(self.output.out());
    }

    /// Whether the client's half is open.
    pub(super) fn awaits_end(&self, stream: u32) -> bool {
        !self.is_gone
            && self.place(stream).is_some_and(|place| {
                let inbox = &self.inboxes[place];
                !inbox.is_over && inbox.reset.is_none()
            })
    }

    /// Throws away what has come; see [`Stream::poll_discard`](super::Stream::poll_discard).
    pub(super) fn poll_discard(&mut self, stream: u32, cx: &TaskContext<'_>, left: &mut usize) -> Poll<()> {
        let is_gone = self.is_gone;
        let Some(inbox) = self.inbox(stream) else { return Poll::Ready(()) };
        let count = std::mem::take(&mut inbox.data).len();
        let is_done = is_gone || inbox.is_over || inbox.reset.is_some() || count > *left;
        if !is_done {
            inbox.listen(cx);
        }
        *left = left.saturating_sub(count);
        if count > 0 && !is_gone {
            let before = self.output.waiting_bytes();
            // Of the connection only: other streams go on, and this one sends no more than it was allowed to.
            self.core.consumed(0, count, self.output.out());
            if self.output.waiting_bytes() > before {
                self.wake_task();
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sends the head of a response.
    pub(super) fn send_head(
        &mut self,
        stream: u32,
        head: (&ResponseHead, u16),
        how: (Framing, bool),
    ) -> io::Result<()> {
        if self.is_gone {
            return Err(gone());
        }
        self.output.expect(0);
        self.core.send_head(stream, head, how, self.output.out()).map_err(|Gone| gone())?;
        self.wake_task();
        Ok(())
    }
}
