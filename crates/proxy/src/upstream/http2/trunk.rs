//! The HTTP/2 connections of one worker to one endpoint, and who waits for one.
//!
//! ```text
//!            ┌────────── Dial (others wait for the same) ─────────┐
//!  a request ┤                                                    ├─► Berth on a Trunk ─► its stream ─► given back
//!            └────────── a Trunk with room (plan::trunk) ─────────┘
//! ```
//!
//! A trunk takes no new streams once its sender is gone: the endpoint has said goodbye, it is worn, idle for too long, or of a
//! plan that is no longer in force. Streams under way finish, and then the connection closes by itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use model::Fault;
use model::snapshot;
use plan::trunk::{Choice, Room, after_refusal, choose};

use crate::upstream::pool::UpstreamConnection;

/// One HTTP/2 connection to an endpoint, as requests see it. Its task is in `dial`.
pub(super) struct Trunk {
    /// `None`: it takes no new streams.
    sender: RefCell<Option<SendRequest<Bytes>>>,
    open: Cell<u32>,
    /// Streams at once that it may carry: ours, less what the endpoint has refused.
    streams_max: Cell<u32>,
    /// Requests ever.
    carried: Cell<u64>,
    idle_since: Cell<Option<Instant>>,
}

impl Trunk {
    /// Whether any stream is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.open.get() > 0
    }

    /// Takes no new streams from now on.
    pub(super) fn close(&self) {
        drop(self.sender.borrow_mut().take());
    }

    fn is_closed(&self) -> bool {
        self.sender.borrow().is_none()
    }

    /// What fits. The endpoint may have changed its mind, or have said goodbye.
    fn room(&self) -> Room {
        let mut sender = self.sender.borrow_mut();
        let open = self.open.get();
        let Some(alive) = &mut *sender else { return Room { open, max: 0 } };
        // Never used to send, so it never has to wait: this only tells whether the connection is still good.
        if !matches!(alive.poll_ready(&mut TaskContext::from_waker(Waker::noop())), Poll::Ready(Ok(()))) {
            *sender = None;
            return Room { open, max: 0 };
        }
        let allowed = u32::try_from(alive.current_max_send_streams()).unwrap_or(u32::MAX);
        Room { open, max: self.streams_max.get().min(allowed) }
    }
}

/// The right to one stream on a trunk, and then that stream's place.
pub(crate) struct Berth {
    trunk: Rc<Trunk>,
    of: Rc<Trunks>,
    /// Until the stream begins. A clone has no memory of streams before, for whose turn it would wait.
    sender: RefCell<Option<SendRequest<Bytes>>>,
    /// The connection has carried a request before.
    pub is_reused: bool,
    /// It has, and carries none now, so that the endpoint may be about to close it.
    pub was_idle: bool,
}

impl Berth {
    fn new(of: &Rc<Trunks>, trunk: &Rc<Trunk>) -> Self {
        let is_reused = trunk.carried.get() > 0;
        let was_idle = is_reused && !trunk.is_busy();
        let sender = RefCell::new(trunk.sender.borrow().clone());
        trunk.open.set(trunk.open.get() + 1);
        trunk.carried.set(trunk.carried.get() + 1);
        trunk.idle_since.set(None);
        if of.settings.requests_per_connection_max.is_some_and(|max| trunk.carried.get() >= max) {
            trunk.close();
        }
        Self { trunk: trunk.clone(), of: of.clone(), sender, is_reused, was_idle }
    }

    /// Whether the endpoint takes requests for other protocols (RFC 8441 section 3).
    pub(super) fn offers_upgrades(&self) -> bool {
        self.sender.borrow().as_ref().is_some_and(SendRequest::is_extended_connect_protocol_enabled)
    }

    /// Sends the head of a request; `is_whole` says that it has no body.
    ///
    /// # Errors
    /// [`Fault::StreamRefused`]: the connection takes no more streams, and nothing was sent.
    pub(super) fn send(
        &self,
        request: http::Request<()>,
        is_whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Fault> {
        let sender = self.sender.take();
        let sent = sender.ok_or(Fault::StreamRefused)?.send_request(request, is_whole);
        sent.map_err(|error| if error.is_go_away() || error.is_io() { Fault::StreamRefused } else { Fault::SendFailed })
    }

    /// The endpoint has refused the stream (RFC 9113 section 8.7).
    pub(crate) fn note_refusal(&self) {
        let open = self.trunk.open.get().saturating_sub(1);
        let max = after_refusal(Room { open, max: self.trunk.streams_max.get() });
        self.trunk.streams_max.set(max);
        if max == 0 {
            self.trunk.close();
        }
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        self.trunk.open.set(self.trunk.open.get() - 1);
        if !self.trunk.is_busy() && !self.of.keeps_idle() {
            self.trunk.close();
        }
    }
}

/// A connection that is being made, as those see it who wait for it.
pub(crate) struct Dial {
    outcome: Cell<Option<Result<(), Fault>>>,
    /// The connection, when the endpoint has chosen HTTP/1.1: for the first who takes it.
    http1: RefCell<Option<UpstreamConnection>>,
    wakers: RefCell<Vec<Waker>>,
    waiting: Cell<u32>,
}

impl Dial {
    fn new() -> Rc<Self> {
        let (http1, wakers) = (RefCell::new(None), RefCell::default());
        Rc::new(Self { outcome: Cell::new(None), http1, wakers, waiting: Cell::new(0) })
    }

    fn end(&self, outcome: Result<(), Fault>) {
        self.outcome.set(Some(outcome));
        self.wakers.take().into_iter().for_each(Waker::wake);
    }
}

/// One who waits for a dial.
pub(crate) struct Waiting(Rc<Dial>);

impl Waiting {
    fn new(dial: &Rc<Dial>) -> Self {
        dial.waiting.set(dial.waiting.get() + 1);
        Self(dial.clone())
    }

    /// Ready when the connection is there, or cannot be made. There may be no room on it all the same.
    pub(crate) fn poll(&self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        if let Some(outcome) = self.0.outcome.get() {
            return Poll::Ready(outcome);
        }
        let mut wakers = self.0.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The connection that was made, if the endpoint has chosen HTTP/1.1 and nobody else has it.
    pub(crate) fn take_http1(&self) -> Option<UpstreamConnection> {
        self.0.http1.borrow_mut().take()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// What [`Trunks::find`] found.
pub(crate) enum Found {
    /// Room for a stream.
    Berth(Box<Berth>),
    /// A connection that is being made already.
    Waiting(Waiting),
    /// A connection that the caller is to make, see `dial`.
    Dial(Waiting, Rc<Dial>),
    /// The endpoint has chosen HTTP/1.1 when it was asked last.
    Http1,
}

/// See the module.
pub(crate) struct Trunks {
    settings: snapshot::Pool,
    pub(super) http2: snapshot::Http2Pool,
    /// Oldest first.
    trunks: RefCell<Vec<Rc<Trunk>>>,
    dials: RefCell<Vec<Rc<Dial>>>,
    /// How many streams the newest connection allowed when it began.
    expected: Cell<u32>,
    speaks_http1: Cell<bool>,
    is_retired: Cell<bool>,
}

impl Trunks {
    pub(crate) fn new(settings: &snapshot::Pool) -> Option<Rc<Self>> {
        let http2 = settings.http2.clone()?;
        let expected = Cell::new(http2.streams_max);
        Some(Rc::new(Self {
            settings: settings.clone(),
            http2,
            trunks: RefCell::default(),
            dials: RefCell::default(),
            expected,
            speaks_http1: Cell::new(false),
            is_retired: Cell::new(false),
        }))
    }

    /// Finds out how a request gets its stream.
    pub(crate) fn find(self: &Rc<Self>) -> Found {
        let mut trunks = self.trunks.borrow_mut();
        trunks.retain(|trunk| !trunk.is_closed());
        let mut dials = self.dials.borrow_mut();
        let waiting = dials.iter().map(|dial| dial.waiting.get());
        match choose(trunks.iter().map(|trunk| trunk.room()), waiting, self.expected.get()) {
            Choice::Take(place) => Found::Berth(Box::new(Berth::new(self, &trunks[place]))),
            _ if self.speaks_http1.get() => Found::Http1,
            Choice::Wait(place) => Found::Waiting(Waiting::new(&dials[place])),
            Choice::Dial => {
                let dial = Dial::new();
                dials.push(dial.clone());
                Found::Dial(Waiting::new(&dial), dial)
            }
        }
    }

    /// Whether a connection is kept when nothing is under way on it.
    pub(super) fn keeps_idle(&self) -> bool {
        self.settings.idle_max > 0 && !self.is_retired.get()
    }

    /// A connection is made: those who waited get streams on it.
    pub(super) fn add(&self, dial: &Rc<Dial>, sender: SendRequest<Bytes>) -> Rc<Trunk> {
        let trunk = Rc::new(Trunk {
            sender: RefCell::new(Some(sender)),
            open: Cell::new(0),
            streams_max: Cell::new(self.http2.streams_max),
            carried: Cell::new(0),
            idle_since: Cell::new(None),
        });
        self.expected.set(trunk.room().max.max(1));
        self.speaks_http1.set(false);
        self.trunks.borrow_mut().push(trunk.clone());
        self.end_dial(dial, Ok(()));
        trunk
    }

    /// A connection is made, and the endpoint has chosen HTTP/1.1 for it.
    pub(super) fn add_http1(&self, dial: &Rc<Dial>, connection: UpstreamConnection) {
        self.speaks_http1.set(true);
        dial.http1.replace(Some(connection));
        self.end_dial(dial, Ok(()));
    }

    /// The endpoint has chosen HTTP/2 where it was thought to choose HTTP/1.1.
    pub(crate) fn forget_http1(&self) {
        self.speaks_http1.set(false);
    }

    /// A connection could not be made.
    pub(super) fn fail(&self, dial: &Rc<Dial>, fault: Fault) {
        self.end_dial(dial, Err(fault));
    }

    fn end_dial(&self, dial: &Rc<Dial>, outcome: Result<(), Fault>) {
        self.dials.borrow_mut().retain(|other| !Rc::ptr_eq(other, dial));
        dial.end(outcome);
    }

    /// A connection has ended.
    pub(super) fn forget(&self, trunk: &Rc<Trunk>) {
        trunk.close();
        self.trunks.borrow_mut().retain(|other| !Rc::ptr_eq(other, trunk));
    }

    /// Closes what is idle and keeps nothing any more, though exchanges may still follow the plan that it is of. What is under
    /// way finishes.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
        self.trunks.borrow_mut().drain(..).for_each(|trunk| trunk.close());
    }

    /// Closes connections that have been idle for too long, and those that are more than may be idle.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut idle = 0;
        self.trunks.borrow_mut().retain(|trunk| {
            if trunk.is_closed() || trunk.is_busy() {
                return !trunk.is_closed();
            }
            let since = trunk.idle_since.get().unwrap_or(now);
            trunk.idle_since.set(Some(since));
            idle += 1;
            let keep =
                idle <= self.settings.idle_max && now.saturating_duration_since(since) < self.settings.idle_timeout;
            if !keep {
                trunk.close();
            }
            keep
        });
    }
}
