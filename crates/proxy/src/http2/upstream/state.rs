//! A connection to an endpoint as its task and its streams share it: what [`crate::http2::State`] is towards endpoints.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use model::limits::{
    HTTP2_IDLE_FRAMES_PER_EXCHANGE, INTERIM_RESPONSES_MAX, UPSTREAM_HEAD_READ_BYTES_MAX, UPSTREAM_IDLE_FRAMES_MAX,
    UPSTREAM_IDLE_FRAMES_PER_SECOND, UPSTREAM_STREAMS_HARD_MAX, UPSTREAM_STREAMS_LEFT_MAX,
};
use model::{Fault, RequestHead, ResponseHead};
use wire::http1::{HeadLimits, ResponseParsed};
use wire::http2::connection::{Connection, Limits, NotSent, RequestSent, Upstream};
use wire::http2::hpack::Strings;
use wire::http2::{Allowance, code};

use super::window::Taken;
use crate::byte_stream::ByteStream;
use crate::http2::inbox::Reset;
use crate::http2::output::Output;
use crate::http2::state::{Peer, PeerEvent};

/// Heads without a response that are kept for those that follow.
const SPARES_MAX: usize = 4;

/// As it is shared.
pub(crate) type SharedState = Rc<RefCell<State>>;

/// See the module.
pub(crate) type State = crate::http2::State<Endpoint>;

/// What only the connection to an endpoint has.
pub(crate) struct Endpoint {
    /// Heads for the responses that come next.
    #[expect(clippy::vec_box, reason = "the boxes are swapped with those of exchanges")]
    spares: Vec<Box<ResponseHead>>,
    /// What the readers of its responses have taken.
    pub(crate) taken: Taken,
    /// A PING of ours was answered.
    has_pong: bool,
}

/// The head of a response, interim or final.
pub(crate) struct Arrived {
    pub head: Box<ResponseHead>,
    pub parsed: Result<ResponseParsed, Fault>,
    /// The message ends with it.
    pub ends: bool,
}

/// What a head says, and whether the message ends with it.
pub(crate) type HeadRead = (Result<ResponseParsed, Fault>, bool);

impl Peer for Endpoint {
    type Role = Upstream;
    type Extra = VecDeque<Arrived>;
}

impl State {
    /// A new connection, whose preface and settings wait to be sent; its task, and what its windows are.
    pub(crate) fn new(io: ByteStream, task: &Waker, (stream, connection): (u32, u32), now: Instant) -> Self {
        let mut output = Output::new(io, task.clone());
        let limits = Limits {
            head: HeadLimits::default(),
            list_bytes_max: UPSTREAM_HEAD_READ_BYTES_MAX as usize,
            streams_max: UPSTREAM_STREAMS_HARD_MAX,
            stream_window_bytes: stream,
            connection_window_bytes: connection,
            // A bound against clients: what one response breaks must not end the connection of all others.
            stream_errors_max: u32::MAX,
            streams_left_max: UPSTREAM_STREAMS_LEFT_MAX,
        };
        let core = Connection::upstream(limits, Strings::default(), output.out());
        let endpoint = Endpoint { spares: Vec::new(), taken: Taken::new(stream), has_pong: false };
        let allowance = Allowance::new(UPSTREAM_IDLE_FRAMES_MAX, UPSTREAM_IDLE_FRAMES_PER_SECOND, now);
        let mut state = Self::of(core, output, (endpoint, allowance), task);
        state.is_attended = false;
        state
    }

    /// Streams at once that the endpoint allows. `None`: it takes no more ever.
    pub(crate) fn streams_allowed(&self) -> Option<u32> {
        if self.is_gone { None } else { self.core.streams_allowed() }
    }

    /// Whether the endpoint takes requests for other protocols (RFC 8441 section 3).
    pub(crate) fn offers_upgrades(&self) -> bool {
        self.core.offers_connect()
    }

    /// Takes all of what was read.
    ///
    /// # Errors
    /// The code that the connection ends with; what says so waits to be sent.
    pub(crate) fn take_in(&mut self, bytes: &[u8]) -> Result<(), u32> {
        let mut head = self.peer.spares.pop().unwrap_or_default();
        let mut at = 0;
        loop {
            let (used, happening) = self.receive(&bytes[at..], &mut head)?;
            at += used;
            match happening {
                None => break,
                Some(PeerEvent::Head { stream, parsed, ends }) => {
                    let next = self.peer.spares.pop().unwrap_or_default();
                    let head = std::mem::replace(&mut head, next);
                    self.deliver_head(stream, Arrived { head, parsed, ends });
                }
                Some(PeerEvent::Pong) => self.peer.has_pong = true,
                // Who waits for it may send it again.
                Some(PeerEvent::Goaway { last }) => self.end_after(last, Reset::ByPeer(code::REFUSED_STREAM)),
                Some(PeerEvent::Broken { .. }) => {}
            }
        }
        self.keep_spare(head);
        let idle = self.core.take_counts().idle;
        if idle > 0 && !self.spend(idle, Instant::now()) {
            self.abort(code::ENHANCE_YOUR_CALM);
            return Err(code::ENHANCE_YOUR_CALM);
        }
        Ok(())
    }

    fn deliver_head(&mut self, stream: u32, arrived: Arrived) {
        let Some(inbox) = self.inbox(stream) else { return self.keep_spare(arrived.head) };
        if inbox.extra.len() > INTERIM_RESPONSES_MAX as usize {
            // More than the exchange would take, and it has not looked at any.
            inbox.reset = Some(Reset::Broken);
            inbox.wake();
            self.core.reset(stream, code::ENHANCE_YOUR_CALM, self.output.out());
            return;
        }
        inbox.is_over |= arrived.ends;
        inbox.extra.push_back(arrived);
        inbox.wake();
    }

    fn keep_spare(&mut self, head: Box<ResponseHead>) {
        if self.peer.spares.len() < SPARES_MAX {
            self.peer.spares.push(head);
        }
    }

    /// Whether a PING of ours was answered since this was asked last.
    pub(crate) fn take_pong(&mut self) -> bool {
        std::mem::take(&mut self.peer.has_pong)
    }

    /// Lets the endpoint send further ahead of readers.
    pub(crate) fn grow_windows(&mut self, stream: u32, connection: u32) {
        self.core.grow_windows(stream, connection, self.output.out());
        self.peer.taken.set_window(stream);
    }

    /// Begins a stream with the head of a request: which stream.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(super) fn request(&mut self, head: &RequestHead, how: &RequestSent<'_>) -> Result<u32, NotSent> {
        if self.is_gone {
            return Err(NotSent::NoRoom);
        }
        self.output.expect(0);
        let stream = self.core.send_request(head, how, self.output.out())?;
        self.add(stream, false);
        self.earn(HTTP2_IDLE_FRAMES_PER_EXCHANGE);
        self.wake_task();
        Ok(stream)
    }

    /// Ready with the next head, which is swapped with `head`: what it says, and whether the message ends with it.
    ///
    /// # Errors
    /// There will be none, and how the stream ended; `None`: the connection is gone.
    pub(super) fn poll_head(
        &mut self,
        stream: u32,
        cx: &TaskContext<'_>,
        head: &mut Box<ResponseHead>,
    ) -> Poll<Result<HeadRead, Option<Reset>>> {
        let is_gone = self.is_gone;
        let Some(inbox) = self.inbox(stream) else { return Poll::Ready(Err(None)) };
        if let Some(mut arrived) = inbox.extra.pop_front() {
            std::mem::swap(head, &mut arrived.head);
            self.keep_spare(arrived.head);
            return Poll::Ready(Ok((arrived.parsed, arrived.ends)));
        }
        if is_gone || inbox.reset.is_some() {
            return Poll::Ready(Err(inbox.reset));
        }
        inbox.listen(cx);
        Poll::Pending
    }
}
