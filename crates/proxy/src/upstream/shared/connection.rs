//! One HTTP/2 or HTTP/3 connection to an endpoint, as requests see it.
//!
//! It takes no new streams once its carrier is gone: the endpoint has said goodbye, it is worn, idle for too long, or of a
//! plan that is no longer active. Streams in flight finish, and then the connection closes by itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context as TaskContext, Waker};
use std::time::Instant;

use plan::shared_connection::{Bearing, Room};
use quinn_proto::StreamId;

use super::http3_session::Session;
use crate::http2::upstream::SharedState;

/// What the streams of a shared connection are begun with.
pub(super) enum Carrier {
    Http2(SharedState),
    Http3(Rc<Session>),
}

/// One stream that may begin.
pub(super) enum Start {
    Http2(SharedState),
    Http3(Rc<Session>, StreamId),
}

impl Carrier {
    /// Streams at once that the endpoint allows, while so many are open. `None`: it takes no more ever.
    fn allowed(&self, open: u32) -> Option<u32> {
        match self {
            Self::Http2(state) => state.borrow().streams_allowed(),
            // It says how many more, and not how many at once.
            Self::Http3(session) => session.has_credit().map(|has_credit| open + u32::from(has_credit)),
        }
    }

    /// Whether the endpoint seems not to be there.
    fn is_doubtful(&self) -> bool {
        match self {
            // The kernel tells of that.
            Self::Http2(..) => false,
            Self::Http3(session) => session.is_doubtful(),
        }
    }

    pub(super) fn offers_upgrades(&self) -> bool {
        match self {
            Self::Http2(state) => state.borrow().offers_upgrades(),
            Self::Http3(session) => session.offers_connect(),
        }
    }

    pub(super) fn start(&self) -> Option<Start> {
        match self {
            Self::Http2(state) => Some(Start::Http2(state.clone())),
            Self::Http3(session) => Some(Start::Http3(session.clone(), session.take_stream()?)),
        }
    }
}

impl Start {
    pub(super) fn offers_upgrades(&self) -> bool {
        match self {
            Self::Http2(state) => state.borrow().offers_upgrades(),
            Self::Http3(session, _) => session.offers_connect(),
        }
    }
}

/// One HTTP/2 or HTTP/3 connection to an endpoint, as requests see it. Its task is in `dial`.
pub(super) struct SharedConnection {
    /// `None`: it takes no new streams.
    pub(super) carrier: RefCell<Option<Carrier>>,
    pub(super) open: Cell<u32>,
    /// Streams at once that it may carry.
    pub(super) bearing: Cell<Bearing>,
    /// Requests ever.
    pub(super) carried: Cell<u64>,
    /// Streams ever that were given up before the endpoint had ended them.
    pub(super) left: Cell<u32>,
    pub(super) idle_since: Cell<Option<Instant>>,
    /// A stream has begun after a rest, which its task has not heard of yet.
    pub(super) has_rested: Cell<bool>,
    /// The endpoint has said nothing since it was asked whether it is there: until it does, others go elsewhere.
    pub(super) is_doubtful: Cell<bool>,
    /// It was given up because the endpoint did not answer to being asked whether it is there.
    pub(super) is_silent: Cell<bool>,
    /// Its task, which waits until all is over.
    pub(super) task: RefCell<Option<Waker>>,
}

impl SharedConnection {
    /// One that was made just now, of which an endpoint may carry so many streams at once.
    pub(super) fn new(carrier: Carrier, streams_max: u32) -> Self {
        Self {
            carrier: RefCell::new(Some(carrier)),
            open: Cell::new(0),
            bearing: Cell::new(Bearing::new(streams_max)),
            carried: Cell::new(0),
            left: Cell::new(0),
            idle_since: Cell::new(None),
            has_rested: Cell::new(false),
            is_doubtful: Cell::new(false),
            is_silent: Cell::new(false),
            task: RefCell::new(None),
        }
    }

    /// Whether any stream is in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.open.get() > 0
    }

    /// Whether a stream has begun after a rest since this was asked last.
    pub(super) fn take_rest(&self) -> bool {
        self.has_rested.replace(false)
    }

    /// Whether the endpoint seems not to be there.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful.get()
    }

    /// Says whether the endpoint seems not to be there, so that no other stream is to begin here.
    pub(super) fn doubt(&self, is_doubtful: bool) {
        self.is_doubtful.set(is_doubtful);
    }

    /// The endpoint does not answer to being asked whether it is there.
    pub(super) fn note_silence(&self) {
        self.is_silent.set(true);
    }

    /// Takes no new streams from now on.
    pub(super) fn close(&self) {
        let carrier = self.carrier.borrow_mut().take();
        if let Some(Carrier::Http3(session)) = carrier {
            // The session tells the endpoint.
            session.wake();
        }
        self.tell();
    }

    /// Whether it is closed, and nothing is in progress any more. If not, the task is woken when that is so.
    pub(super) fn is_over(&self, cx: &TaskContext<'_>) -> bool {
        let is_over = self.is_closed() && !self.is_busy();
        let mut task = self.task.borrow_mut();
        if !is_over && !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        is_over
    }

    /// Wakes the task if all is over.
    pub(super) fn tell(&self) {
        if self.is_closed()
            && !self.is_busy()
            && let Some(task) = self.task.take()
        {
            task.wake();
        }
    }

    /// Whether it takes no new streams.
    pub(super) fn is_closed(&self) -> bool {
        self.carrier.borrow().is_none()
    }

    /// Whether the endpoint may be about to close it: it has carried something, and carries nothing now.
    pub(super) fn is_idle(&self) -> bool {
        self.carried.get() > 0 && !self.is_busy()
    }

    /// What fits. The endpoint may have changed its mind, or have said goodbye.
    pub(super) fn room(&self) -> Room {
        if self.is_doubtful.get() {
            return Room { open: self.open.get(), max: 0 };
        }
        let mut carrier = self.carrier.borrow_mut();
        let open = self.open.get();
        let Some(alive) = carrier.as_ref().filter(|alive| !alive.is_doubtful()) else { return Room { open, max: 0 } };
        let Some(allowed) = alive.allowed(open) else {
            *carrier = None;
            return Room { open, max: 0 };
        };
        Room { open, max: self.bearing.get().max().min(allowed) }
    }
}
