//! The HTTP/2 or HTTP/3 connections of one worker to one endpoint, and who waits for one.
//!
//! ```text
//!            ┌─────────────── Dial (others wait for the same) ───────────────┐
//!  a request ┤                                                               ├─► StreamPermit ─► its stream ─► given back
//!            └─ a SharedConnection with room (plan::shared_connection) ──────┘
//! ```
//!
//! Requests that wait have a turn: a stream that ends on a full connection makes room for the one that waits longest, and a new
//! connection has room for those that waited for it, before any that has not waited.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use model::Fault;
use model::snapshot::{self, SharedVersion};
use plan::shared_connection::{Choice, Room, choose};

use super::connection::{Carrier, SharedConnection};
use super::permit::StreamPermit;
use crate::upstream::{Line, UpstreamConnection};

/// A connection that is being made, as those see it who wait for it.
pub(crate) struct Dial {
    outcome: Cell<Option<Result<(), Fault>>>,
    /// Somebody has been told that it could not be made.
    is_told: Cell<bool>,
    /// The connection, when the endpoint has chosen HTTP/1.1: for the first who takes it.
    http1: RefCell<Option<UpstreamConnection>>,
    waiting: Cell<u32>,
}

impl Dial {
    fn new() -> Rc<Self> {
        let (outcome, is_told, waiting) = (Cell::new(None), Cell::new(false), Cell::new(0));
        Rc::new(Self { outcome, is_told, http1: RefCell::new(None), waiting })
    }

    /// Whether anybody waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.get() > 0
    }
}

/// One who waits, as the connections see it.
struct Waiter {
    dial: Rc<Dial>,
    permit: RefCell<Option<Box<StreamPermit>>>,
    waker: RefCell<Option<Waker>>,
}

impl Waiter {
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// One who waits for a stream.
pub(crate) struct Waiting {
    waiter: Rc<Waiter>,
    of: Rc<SharedConnections>,
}

/// A connection that was waited for could not be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missed {
    pub fault: Fault,
    /// Somebody else who waited for the same has been told before.
    pub is_known: bool,
}

impl Waiting {
    fn new(of: &Rc<SharedConnections>, dial: &Rc<Dial>) -> Self {
        dial.waiting.set(dial.waiting.get() + 1);
        let (permit, waker) = (RefCell::new(None), RefCell::new(None));
        let waiter = Rc::new(Waiter { dial: dial.clone(), permit, waker });
        of.waiters.borrow_mut().push_back(waiter.clone());
        Self { waiter, of: of.clone() }
    }

    /// Ready with a line; with none when the connection that was waited for is there, and others have it; or when it cannot be
    /// made.
    pub(crate) fn poll(&self, cx: &mut TaskContext<'_>) -> Poll<Result<Option<Line>, Missed>> {
        if let Some(permit) = self.waiter.permit.take() {
            return Poll::Ready(Ok(Some(Line::Shared(permit))));
        }
        let dial = &self.waiter.dial;
        match dial.outcome.get() {
            Some(Ok(())) => Poll::Ready(Ok(dial.http1.take().map(Line::Http1))),
            Some(Err(fault)) => Poll::Ready(Err(Missed { fault, is_known: dial.is_told.replace(true) })),
            None => {
                *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let dial = &self.waiter.dial;
        dial.waiting.set(dial.waiting.get() - 1);
        self.of.waiters.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.waiter));
    }
}

/// What [`SharedConnections::find`] found.
pub(crate) enum Found {
    /// Room for a stream.
    Permit(Box<StreamPermit>),
    /// A connection that is being made already.
    Waiting(Waiting),
    /// A connection that the caller is to make, see `dial`.
    Dial(Waiting, Rc<Dial>),
    /// The endpoint has chosen HTTP/1.1 when it was asked last.
    Http1,
}

/// See the module.
pub(crate) struct SharedConnections {
    pub(super) settings: snapshot::Pool,
    pub(super) shared: snapshot::SharedPool,
    /// Oldest first.
    connections: RefCell<Vec<Rc<SharedConnection>>>,
    dials: RefCell<Vec<Rc<Dial>>>,
    /// Whoever came first first.
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    /// How many streams the newest connection allowed when it began.
    expected: Cell<u32>,
    speaks_http1: Cell<bool>,
    is_retired: Cell<bool>,
    /// When the newest connection was made.
    made_at: Cell<Option<Instant>>,
}

impl SharedConnections {
    pub(crate) fn new(settings: &snapshot::Pool) -> Option<Rc<Self>> {
        let shared = settings.shared.clone()?;
        let expected = Cell::new(shared.streams_max);
        Some(Rc::new(Self {
            settings: settings.clone(),
            shared,
            connections: RefCell::default(),
            dials: RefCell::default(),
            waiters: RefCell::default(),
            expected,
            speaks_http1: Cell::new(false),
            is_retired: Cell::new(false),
            made_at: Cell::new(None),
        }))
    }

    /// Finds out how a request gets its stream; on a connection that was idle only if it `may_be_idle`.
    pub(crate) fn find(self: &Rc<Self>, may_be_idle: bool) -> Found {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| !connection.is_closed());
        let mut dials = self.dials.borrow_mut();
        let waiting = dials.iter().map(|dial| dial.waiting.get());
        let rooms = connections.iter().map(|connection| match may_be_idle || !connection.is_idle() {
            true => connection.room(),
            false => Room { open: 0, max: 0 },
        });
        match choose(rooms, waiting, self.expected.get()) {
            Choice::Take(place) => Found::Permit(Box::new(StreamPermit::new(self, &connections[place]))),
            _ if self.speaks_http1.get() => Found::Http1,
            Choice::Wait(place) => Found::Waiting(Waiting::new(self, &dials[place])),
            Choice::Dial => {
                let dial = Dial::new();
                dials.push(dial.clone());
                Found::Dial(Waiting::new(self, &dial), dial)
            }
        }
    }

    /// Whether the endpoint takes requests for other protocols, if it has a connection with streams now.
    pub(crate) fn offers_upgrades(&self) -> Option<bool> {
        let connections = self.connections.borrow();
        connections.iter().find_map(|connection| connection.carrier.borrow().as_ref().map(Carrier::offers_upgrades))
    }

    /// Whether anything is in progress at the endpoint, so that room will come of itself.
    pub(super) fn is_busy(&self) -> bool {
        self.connections
            .borrow()
            .iter()
            .any(|connection| connection.is_busy() && !connection.is_closed() && !connection.is_doubtful())
    }

    /// Gives what room there is on a connection to those who wait: first to those who wait for this `dial`.
    pub(super) fn hand_out(self: &Rc<Self>, connection: &Rc<SharedConnection>, dial: Option<&Rc<Dial>>) {
        loop {
            let mut waiters = self.waiters.borrow_mut();
            if waiters.is_empty() {
                return;
            }
            let room = connection.room();
            if !room.is_there() {
                // How many HTTP/3 allows, only the end of its credit tells.
                if self.shared.version == SharedVersion::Http3 && room.max > 0 {
                    self.expected.set(room.max);
                }
                return;
            }
            let own = dial.and_then(|dial| waiters.iter().position(|waiter| Rc::ptr_eq(&waiter.dial, dial)));
            let Some(waiter) = waiters.remove(own.unwrap_or(0)) else { return };
            drop(waiters);
            waiter.permit.replace(Some(Box::new(StreamPermit::new(self, connection))));
            waiter.wake();
        }
    }

    /// How long a connection is kept while it is idle.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.settings.idle_timeout
    }

    /// Whether a connection is kept while it is idle.
    pub(super) fn keeps_idle(&self) -> bool {
        self.settings.idle_max > 0 && !self.is_retired.get()
    }

    /// A connection is made: those who waited get streams on it.
    pub(super) fn add(self: &Rc<Self>, dial: &Rc<Dial>, carrier: Carrier) -> Rc<SharedConnection> {
        let connection = Rc::new(SharedConnection::new(carrier, self.shared.streams_max));
        if self.shared.version == SharedVersion::Http2 {
            self.expected.set(connection.room().max.max(1));
        }
        self.speaks_http1.set(false);
        self.made_at.set(Some(Instant::now()));
        self.connections.borrow_mut().push(connection.clone());
        self.hand_out(&connection, Some(dial));
        self.end_dial(dial, Ok(()));
        if !connection.is_busy() && !self.keeps_idle() {
            connection.close();
        }
        connection
    }

    /// Whether any connection was made since.
    pub(super) fn has_made_any_since(&self, at: Instant) -> bool {
        self.made_at.get().is_some_and(|made_at| made_at > at)
    }

    /// A connection that is to be made though nobody waits for it. `None`: one is being made already, or none would be kept.
    pub(super) fn begin_dial(&self) -> Option<Rc<Dial>> {
        if !self.keeps_idle() || !self.dials.borrow().is_empty() {
            return None;
        }
        let dial = Dial::new();
        self.dials.borrow_mut().push(dial.clone());
        Some(dial)
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

    /// Nobody has waited for it any more: those who come dial anew.
    pub(super) fn abandon(&self, dial: &Rc<Dial>) {
        self.end_dial(dial, Ok(()));
    }

    fn end_dial(&self, dial: &Rc<Dial>, outcome: Result<(), Fault>) {
        self.dials.borrow_mut().retain(|other| !Rc::ptr_eq(other, dial));
        dial.outcome.set(Some(outcome));
        let waits = |waiter: &&Rc<Waiter>| Rc::ptr_eq(&waiter.dial, dial);
        let waiting: Vec<_> = self.waiters.borrow().iter().filter(waits).cloned().collect();
        waiting.iter().for_each(|waiter| waiter.wake());
    }

    /// A connection has ended.
    pub(super) fn forget(&self, connection: &Rc<SharedConnection>) {
        connection.close();
        self.connections.borrow_mut().retain(|other| !Rc::ptr_eq(other, connection));
    }

    /// Closes what is idle and keeps nothing any more, though exchanges may still follow the plan that it is of. What is under
    /// way finishes.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
        self.connections.borrow_mut().drain(..).for_each(|connection| connection.close());
    }

    /// Closes connections that have been idle for too long, and those that are more than may be idle.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut idle = 0;
        self.connections.borrow_mut().retain(|connection| {
            if connection.is_closed() || connection.is_busy() {
                return !connection.is_closed();
            }
            let since = connection.idle_since.get().unwrap_or(now);
            connection.idle_since.set(Some(since));
            idle += 1;
            let keep =
                idle <= self.settings.idle_max && now.saturating_duration_since(since) < self.settings.idle_timeout;
            if !keep {
                connection.close();
            }
            keep
        });
    }
}
