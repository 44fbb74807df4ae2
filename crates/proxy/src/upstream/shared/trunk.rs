//! The HTTP/2 or HTTP/3 connections of one worker to one endpoint, and who waits for one.
//!
//! ```text
//!            ┌────────── Dial (others wait for the same) ─────────┐
//!  a request ┤                                                    ├─► Berth on a Trunk ─► its stream ─► given back
//!            └────────── a Trunk with room (plan::trunk) ─────────┘
//! ```
//!
//! Whoever waits has a turn: a stream that ends on a full trunk makes room for the one who waits longest, and a new trunk has room
//! for those who waited for it, before anybody comes who has not waited.
//!
//! A trunk takes no new streams once its carrier is gone: the endpoint has said goodbye, it is worn, idle for too long, or of a
//! plan that is no longer in force. Streams under way finish, and then the connection closes by itself.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use model::Fault;
use model::limits::UPSTREAM_STREAMS_LEFT_EVER_MAX;
use model::snapshot::{self, SharedVersion};
use plan::trunk::{Bearing, Choice, Room, choose};
use quinn_proto::StreamId;

use super::http3::Session;
use crate::http2::upstream::SharedState;
use crate::upstream::Line;
use crate::upstream::pool::UpstreamConnection;

/// A connection of HTTP/2 on which nothing was under way for so long may lead to nobody any more, and its kernel would not know: its
/// endpoint is asked whether it is there as soon as something begins.
const REST: Duration = Duration::from_secs(1);

/// What the streams of a trunk are begun with.
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

    fn offers_upgrades(&self) -> bool {
        match self {
            Self::Http2(state) => state.borrow().offers_upgrades(),
            Self::Http3(session) => session.offers_connect(),
        }
    }

    fn start(&self) -> Option<Start> {
        match self {
            Self::Http2(state) => Some(Start::Http2(state.clone())),
            Self::Http3(session) => Some(Start::Http3(session.clone(), session.take_stream()?)),
        }
    }
}

impl Start {
    fn offers_upgrades(&self) -> bool {
        match self {
            Self::Http2(state) => state.borrow().offers_upgrades(),
            Self::Http3(session, _) => session.offers_connect(),
        }
    }
}

/// One HTTP/2 or HTTP/3 connection to an endpoint, as requests see it. Its task is in `dial`.
pub(super) struct Trunk {
    /// `None`: it takes no new streams.
    carrier: RefCell<Option<Carrier>>,
    open: Cell<u32>,
    /// Streams at once that it may carry.
    bearing: Cell<Bearing>,
    /// Requests ever.
    carried: Cell<u64>,
    /// Streams ever that were given up before the endpoint had ended them.
    left: Cell<u32>,
    idle_since: Cell<Option<Instant>>,
    /// A stream has begun after a rest, which its task has not heard of yet.
    has_rested: Cell<bool>,
    /// The endpoint has said nothing since it was asked whether it is there: until it does, others go elsewhere.
    is_doubtful: Cell<bool>,
    /// It was given up because the endpoint did not answer to being asked whether it is there.
    is_silent: Cell<bool>,
    /// Its task, which waits until all is over.
    task: RefCell<Option<Waker>>,
}

impl Trunk {
    /// Whether any stream is under way.
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
            // The endpoint is told.
            session.wake();
        }
        self.tell();
    }

    /// Whether it is closed, and nothing is under way any more. If not, the task is woken when that is so.
    pub(super) fn is_over(&self, cx: &TaskContext<'_>) -> bool {
        let is_over = self.is_closed() && !self.is_busy();
        let mut task = self.task.borrow_mut();
        if !is_over && !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        is_over
    }

    /// Wakes the task if all is over.
    fn tell(&self) {
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
    fn is_idle(&self) -> bool {
        self.carried.get() > 0 && !self.is_busy()
    }

    /// What fits. The endpoint may have changed its mind, or have said goodbye.
    fn room(&self) -> Room {
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

/// The right to one stream on a trunk, and then that stream's place.
pub(crate) struct Berth {
    trunk: Rc<Trunk>,
    of: Rc<Trunks>,
    /// Until the stream begins.
    start: RefCell<Option<Start>>,
    /// Streams that were under way when it was given.
    others: u32,
    /// The endpoint has ended the stream, so that nothing of it comes any more.
    is_over: Cell<bool>,
    /// The connection has carried a request before.
    pub is_reused: bool,
    /// It has, and carries none now, so that the endpoint may be about to close it.
    pub was_idle: bool,
}

impl Berth {
    fn new(of: &Rc<Trunks>, trunk: &Rc<Trunk>) -> Self {
        let (is_reused, was_idle) = (trunk.carried.get() > 0, trunk.is_idle());
        let start = RefCell::new(trunk.carrier.borrow().as_ref().and_then(Carrier::start));
        let others = trunk.open.get();
        trunk.open.set(others + 1);
        trunk.carried.set(trunk.carried.get() + 1);
        let idle_since = trunk.idle_since.take();
        if was_idle && idle_since.is_some_and(|since| since.elapsed() >= REST) {
            // The stream wakes its task.
            trunk.has_rested.set(true);
        }
        if of.settings.requests_per_connection_max.is_some_and(|max| trunk.carried.get() >= max) {
            trunk.close();
        }
        let (trunk, of, is_over) = (trunk.clone(), of.clone(), Cell::new(false));
        Self { trunk, of, start, others, is_over, is_reused, was_idle }
    }

    /// Whether the endpoint takes requests for other protocols (RFC 8441 section 3, RFC 9220 section 3).
    pub(super) fn offers_upgrades(&self) -> bool {
        self.start.borrow().as_ref().is_some_and(Start::offers_upgrades)
    }

    /// Whether it is one of HTTP/3.
    pub(super) fn is_http3(&self) -> bool {
        matches!(&*self.start.borrow(), Some(Start::Http3(..)))
    }

    /// What its stream begins with, once.
    ///
    /// # Errors
    /// [`Fault::StreamRefused`]: the connection takes no more streams.
    pub(super) fn begin(&self) -> Result<Start, Fault> {
        self.start.take().ok_or(Fault::StreamRefused)
    }

    /// The endpoint has refused the stream (RFC 9113 section 8.7).
    pub(crate) fn note_refusal(&self) {
        self.note_end();
        let mut bearing = self.trunk.bearing.get();
        bearing.refuse(self.others);
        self.trunk.bearing.set(bearing);
        if bearing.max() == 0 {
            self.trunk.close();
        }
    }

    /// The endpoint has answered.
    pub(crate) fn note_answer(&self) {
        let before = self.trunk.bearing.get();
        let mut bearing = before;
        bearing.answer();
        self.trunk.bearing.set(bearing);
        if bearing.max() > before.max() {
            self.of.hand_out(&self.trunk, None);
        }
    }

    /// Whether the connection has ended because nothing came from the endpoint any more. What ends one of HTTP/3 without a word is
    /// nearly always that, since no kernel tells of a process that is gone.
    pub(crate) fn is_forsaken(&self) -> bool {
        self.trunk.is_silent.get() || self.of.shared.version == SharedVersion::Http3
    }

    /// The endpoint has ended the stream.
    pub(crate) fn note_end(&self) {
        self.is_over.set(true);
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        let (trunk, of) = (&self.trunk, &self.of);
        trunk.open.set(trunk.open.get() - 1);
        let unused = self.start.get_mut().take();
        if let Some(Start::Http3(session, id)) = &unused {
            // Others may have begun since, and with them this one (RFC 9000 section 3.2).
            session.give_up(*id);
        }
        if unused.is_some() {
            // It was given for nothing.
            trunk.carried.set(trunk.carried.get() - 1);
        } else if !self.is_over.get() && of.shared.version == SharedVersion::Http2 {
            trunk.left.set(trunk.left.get() + 1);
            if trunk.left.get() >= UPSTREAM_STREAMS_LEFT_EVER_MAX {
                trunk.close();
            }
        }
        of.hand_out(trunk, None);
        if !trunk.is_busy() {
            trunk.idle_since.set(Some(Instant::now()));
            if !of.keeps_idle() {
                trunk.close();
            }
        }
        trunk.tell();
    }
}

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

/// One who waits, as the trunks see it.
struct Waiter {
    dial: Rc<Dial>,
    berth: RefCell<Option<Box<Berth>>>,
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
    of: Rc<Trunks>,
}

/// A connection that was waited for could not be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missed {
    pub fault: Fault,
    /// Somebody else who waited for the same has been told before.
    pub is_known: bool,
}

impl Waiting {
    fn new(of: &Rc<Trunks>, dial: &Rc<Dial>) -> Self {
        dial.waiting.set(dial.waiting.get() + 1);
        let (berth, waker) = (RefCell::new(None), RefCell::new(None));
        let waiter = Rc::new(Waiter { dial: dial.clone(), berth, waker });
        of.waiters.borrow_mut().push_back(waiter.clone());
        Self { waiter, of: of.clone() }
    }

    /// Ready with a line; with none when the connection that was waited for is there, and others have it; or when it cannot be
    /// made.
    pub(crate) fn poll(&self, cx: &mut TaskContext<'_>) -> Poll<Result<Option<Line>, Missed>> {
        if let Some(berth) = self.waiter.berth.take() {
            return Poll::Ready(Ok(Some(Line::Shared(berth))));
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
    pub(super) shared: snapshot::SharedPool,
    /// Oldest first.
    trunks: RefCell<Vec<Rc<Trunk>>>,
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

impl Trunks {
    pub(crate) fn new(settings: &snapshot::Pool) -> Option<Rc<Self>> {
        let shared = settings.shared.clone()?;
        let expected = Cell::new(shared.streams_max);
        Some(Rc::new(Self {
            settings: settings.clone(),
            shared,
            trunks: RefCell::default(),
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
        let mut trunks = self.trunks.borrow_mut();
        trunks.retain(|trunk| !trunk.is_closed());
        let mut dials = self.dials.borrow_mut();
        let waiting = dials.iter().map(|dial| dial.waiting.get());
        let rooms = trunks.iter().map(|trunk| match may_be_idle || !trunk.is_idle() {
            true => trunk.room(),
            false => Room { open: 0, max: 0 },
        });
        match choose(rooms, waiting, self.expected.get()) {
            Choice::Take(place) => Found::Berth(Box::new(Berth::new(self, &trunks[place]))),
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
        let trunks = self.trunks.borrow();
        trunks.iter().find_map(|trunk| trunk.carrier.borrow().as_ref().map(Carrier::offers_upgrades))
    }

    /// Whether anything is under way at the endpoint, so that room will come of itself.
    pub(super) fn is_busy(&self) -> bool {
        self.trunks.borrow().iter().any(|trunk| trunk.is_busy() && !trunk.is_closed() && !trunk.is_doubtful())
    }

    /// Gives what room there is on a trunk to those who wait: first to those who wait for this `dial`.
    pub(super) fn hand_out(self: &Rc<Self>, trunk: &Rc<Trunk>, dial: Option<&Rc<Dial>>) {
        loop {
            let mut waiters = self.waiters.borrow_mut();
            if waiters.is_empty() {
                return;
            }
            let room = trunk.room();
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
            waiter.berth.replace(Some(Box::new(Berth::new(self, trunk))));
            waiter.wake();
        }
    }

    /// How long a connection is kept when nothing is under way on it.
    pub(super) fn idle_timeout(&self) -> Duration {
        self.settings.idle_timeout
    }

    /// Whether a connection is kept when nothing is under way on it.
    pub(super) fn keeps_idle(&self) -> bool {
        self.settings.idle_max > 0 && !self.is_retired.get()
    }

    /// A connection is made: those who waited get streams on it.
    pub(super) fn add(self: &Rc<Self>, dial: &Rc<Dial>, carrier: Carrier) -> Rc<Trunk> {
        let trunk = Rc::new(Trunk {
            carrier: RefCell::new(Some(carrier)),
            open: Cell::new(0),
            bearing: Cell::new(Bearing::new(self.shared.streams_max)),
            carried: Cell::new(0),
            left: Cell::new(0),
            idle_since: Cell::new(None),
            has_rested: Cell::new(false),
            is_doubtful: Cell::new(false),
            is_silent: Cell::new(false),
            task: RefCell::new(None),
        });
        if self.shared.version == SharedVersion::Http2 {
            self.expected.set(trunk.room().max.max(1));
        }
        self.speaks_http1.set(false);
        self.made_at.set(Some(Instant::now()));
        self.trunks.borrow_mut().push(trunk.clone());
        self.hand_out(&trunk, Some(dial));
        self.end_dial(dial, Ok(()));
        if !trunk.is_busy() && !self.keeps_idle() {
            trunk.close();
        }
        trunk
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
