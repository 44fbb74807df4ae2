//! The life of a client's HTTP/2 connection (RFC 9113).
//!
//! ```text
//! preface ──► serve ──┬── a stream ──► an exchange of its own, as on any connection: here (near.rs), or by a task while
//!                     │      another is carried here
//!                     ├── nothing to do for too long, the listener gone, requests enough:
//!                     │      GOAWAY, what is begun is finished, GOAWAY with the last stream (section 6.8), end
//!                     └── rules broken, frames of no use: GOAWAY with the reason, end
//! ```
//!
//! This task drives the connection and begins streams; it knows nothing of what they carry. A stream has its own
//! [`Connection`], so that an exchange sees no difference: its own watch, its own place in the registry unless it is carried
//! here, its window as the only thing that holds it back.

mod line;
mod link;
mod near;
mod stream;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::{Duration, Instant};

use model::Fault;
use model::limits::{HTTP2_IDLE_FRAMES_PER_EXCHANGE, HTTP2_PING, HTTP2_STREAMS_MAX, LINGER};
use model::snapshot::HttpListener;
use wire::http1::{HeadLimits, RequestParsed};
use wire::http2::code;

use self::link::{Happening, Link, SharedLink};
use self::near::{Bell, Carried, Near};
use crate::buffer::Buffer;
use crate::connection::{Connection, ConnectionFacts};
use crate::exchange::{self, Arrived};
use crate::http2::websocket;
use crate::io::Io;
use crate::message::MessageStream;
use crate::registry::{LAST_CALL, Registration, Seat, Tether};
use crate::request_head::Arrival;
use crate::watch::Watch;
use crate::worker::{Incoming, Worker};
use crate::worker_plan::WorkerPlan;

pub(crate) use self::stream::Stream;

/// Reads of a connection before others get a turn.
const READS_PER_TURN_MAX: usize = 16;

/// What a connection and the tasks of its streams share.
struct Shared {
    facts: Rc<ConnectionFacts>,
    link: SharedLink,
    /// Exchanges under way.
    exchanges: Cell<usize>,
    /// When the last one ended.
    rested_at: Cell<Instant>,
    /// The connection, while it waits for an exchange to end.
    waker: RefCell<Option<Waker>>,
    /// The watch of the last stream that was near, for the next: its timer need not be set up again.
    spare: RefCell<Option<Watch>>,
}

impl Shared {
    fn is_at_rest(&self) -> bool {
        self.exchanges.get() == 0
    }
}

/// A connection while it lives.
struct Session<'w> {
    worker: &'w Rc<Worker>,
    shared: Rc<Shared>,
    tether: Rc<Tether>,
    watch: Watch,
    /// Rings when the socket has something to say, which it has not while only the stream that is near has something to do.
    wire: Arc<Bell>,
    wire_waker: Waker,
    near: &'w mut Near,
    /// What was read and not looked at: before it was known that this is HTTP/2, or while much waited for the client.
    early: Option<Buffer>,
    /// There may be something to read.
    wants_read: bool,
    /// What the stream that is near has written was left to the next turn.
    has_deferred: bool,
    /// The settings of the client are here.
    is_greeted: bool,
    /// Streams begun.
    accepted: u64,
    leave: Leave,
    /// When GOAWAY was sent.
    told_at: Option<Instant>,
    /// GOAWAY is sent, and nothing is under way any more.
    is_last_call: bool,
    /// The client begins no more streams.
    is_forsaken: bool,
    /// Why the connection ends, if that is a fault.
    fault: Option<Fault>,
    /// Signs of life that were seen when the watch rang last.
    seen_stirs: u64,
    /// A PING was sent then.
    is_pinged: bool,
}

/// How far the end is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// It is not.
    No,
    /// GOAWAY is sent; what is begun is finished.
    Told,
    /// The last GOAWAY is sent; when all is, the peer's end is waited for.
    Now,
}

/// Why nothing more is read.
enum Ended {
    /// The client itself has closed.
    Closed,
    /// It is told this code.
    Broken(u32),
}

/// Carries a connection, whose preface may have been read already, to its end.
pub(crate) async fn serve(worker: &Rc<Worker>, connection: Connection) {
    let facts = connection.facts.clone();
    let seat = connection.tether.seat.clone();
    if let Err(fault) = run(worker, connection).await {
        tell(worker, &seat, &facts, fault);
    }
}

/// Tells of a fault that no exchange tells of.
fn tell(worker: &Worker, seat: &Seat, facts: &ConnectionFacts, fault: Fault) {
    let plan = worker.plan_of(seat);
    if let Some(listener) = plan.listeners.get(seat.index.get()) {
        listener.series.of(worker.index).fault(fault);
    }
    worker.log_failure(facts, fault);
}

async fn run(worker: &Rc<Worker>, connection: Connection) -> Result<(), Fault> {
    let plan = worker.plan_of(&connection.tether.seat);
    let Some((_, http)) = plan.http_listener(&connection.tether) else { return Ok(()) };
    let Connection { io, facts, mut watch, received, tether, .. } = connection;
    let now = Instant::now();
    watch.set_bound(None);
    watch.set(now, http.head_timeout);
    let limits = limits_of(http);
    let (task, wire, mut near) = poll_fn(|cx| {
        let near = Near::new(cx.waker(), tether.clone());
        Poll::Ready((cx.waker().clone(), Bell::new(cx.waker()), near))
    })
    .await;
    let wire_waker = Waker::from(wire.clone());
    let link = Rc::new(RefCell::new(Link::new(io, limits, (&task, &wire_waker), now)));
    drop(plan);
    let shared = Rc::new(Shared {
        facts,
        link,
        exchanges: Cell::new(0),
        rested_at: Cell::new(now),
        waker: RefCell::new(None),
        spare: RefCell::new(None),
    });
    let mut session = Session {
        worker,
        shared: shared.clone(),
        tether,
        watch,
        wire_waker,
        wire,
        near: &mut near,
        early: received,
        wants_read: true,
        has_deferred: false,
        is_greeted: false,
        accepted: 0,
        leave: Leave::No,
        told_at: None,
        is_last_call: false,
        is_forsaken: false,
        fault: None,
        seen_stirs: 0,
        is_pinged: false,
    };
    let outcome = poll_fn(|cx| session.poll(cx)).await;
    drop(session);
    // Streams that are left see that their connection is gone.
    shared.link.borrow_mut().let_go();
    poll_fn(|cx| {
        *shared.waker.borrow_mut() = Some(cx.waker().clone());
        if near.is_called() {
            near.poll();
        }
        if shared.is_at_rest() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcome
}

fn limits_of(http: &HttpListener) -> HeadLimits {
    HeadLimits { head_bytes_max: http.head_bytes_max, fields_max: http.fields_max }
}

/// How long nothing may happen before the connection is looked after.
fn rest(http: &HttpListener) -> Duration {
    http.idle_timeout.min(http.stream_timeout)
}

impl Session<'_> {
    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        // What rings from now on asks for another turn.
        self.wants_read |= self.wire.take();
        if self.near.is_called() && self.poll_near() {
            return Poll::Pending;
        }
        self.shared.link.borrow_mut().is_attended = true;
        let outcome = self.advance(cx);
        self.shared.link.borrow_mut().is_attended = false;
        outcome
    }

    /// Lets the stream that is near go on. True: what it has to say wakes this task once more, behind the others that are woken
    /// already, so that what all of them have to say leaves in one call.
    fn poll_near(&mut self) -> bool {
        let is_alone = self.shared.exchanges.get() < 2;
        let mut link = self.shared.link.borrow_mut();
        // Where something waits already, it is for that that this task was woken.
        let is_awaited = link.is_rung || self.wants_read || self.has_deferred || self.tether.is_cut();
        let may_defer = !is_alone && !is_awaited;
        link.is_attended = !may_defer;
        drop(link);
        self.near.poll();
        let link = self.shared.link.borrow();
        // A socket that takes nothing wakes nobody for what is written.
        self.has_deferred = may_defer && link.is_rung && !link.line.is_blocked();
        self.has_deferred
    }

    /// Reads, sends, and looks after the connection until there is nothing more to do.
    fn advance(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        loop {
            if self.leave == Leave::Now {
                return self.poll_close(cx);
            }
            if self.wants_read {
                match self.receive() {
                    Ok(()) => {}
                    Err(Ended::Closed) => return Poll::Ready(self.end()),
                    Err(Ended::Broken(code)) => {
                        self.fault = fault_of(code);
                        self.close(code);
                        continue;
                    }
                }
            }
            if let Poll::Ready(Err(_)) = self.poll_send() {
                // The client itself has closed.
                return Poll::Ready(self.end());
            }
            if self.wants_read && self.shared.link.borrow().line.has_room() {
                continue;
            }
            if self.leave == Leave::No && !self.may_go_on() {
                self.say_goodbye();
                continue;
            }
            if self.leave != Leave::No || self.is_forsaken || self.tether.is_cut() {
                *self.shared.waker.borrow_mut() = Some(self.wire_waker.clone());
            }
            let is_at_rest = self.shared.is_at_rest();
            if self.tether.is_cut() {
                // Its exchanges are cut as well, and tell their clients as far as that is possible.
                return if is_at_rest { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if is_at_rest && self.leave == Leave::Told && self.shared.link.borrow().has_said_last() {
                self.begin_to_close();
                continue;
            }
            if is_at_rest && self.is_forsaken {
                self.close(code::NO_ERROR);
                continue;
            }
            if self.leave == Leave::Told && is_at_rest && !self.is_last_call {
                // The client may still begin a stream, or answer our PING.
                self.is_last_call = true;
                let patience = self.tether.seat.last_call();
                self.watch.set(Instant::now(), patience);
            }
            ready!(self.watch.poll(cx));
            if self.is_over(Instant::now()) {
                return Poll::Ready(self.end());
            }
        }
    }

    fn poll_send(&self) -> Poll<std::io::Result<()>> {
        self.shared.link.borrow_mut().poll_send(&mut TaskContext::from_waker(&self.wire_waker))
    }

    /// Sends what is left and waits for the client's end, for a while.
    fn poll_close(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        let closed = {
            let cx = &mut TaskContext::from_waker(&self.wire_waker);
            let link = &mut *self.shared.link.borrow_mut();
            link.is_rung = false;
            link.line.poll_close(cx)
        };
        if closed.is_pending() {
            ready!(self.watch.poll(cx));
        }
        Poll::Ready(self.end())
    }

    /// Reads what is here, as long as what waits for the client is not too much, and begins the streams that it brings.
    fn receive(&mut self) -> Result<(), Ended> {
        for _ in 0..READS_PER_TURN_MAX {
            if !self.shared.link.borrow().line.has_room() {
                return Ok(());
            }
            if let Some(early) = self.early.take() {
                self.take_in(early)?;
                continue;
            }
            let read = {
                let line = &mut self.shared.link.borrow_mut().line;
                line.poll_read(&mut TaskContext::from_waker(&self.wire_waker), &self.worker.buffers)
            };
            match read {
                Poll::Ready(Some(buffer)) => self.take_in(buffer)?,
                Poll::Ready(None) => return Err(Ended::Closed),
                Poll::Pending => {
                    self.wants_read = false;
                    return Ok(());
                }
            }
        }
        self.wants_read = false;
        self.wire_waker.wake_by_ref();
        Ok(())
    }

    fn take_in(&mut self, mut buffer: Buffer) -> Result<(), Ended> {
        let now = Instant::now();
        if let Some((_, http)) = self.worker.plan_of(&self.tether.seat).http_listener(&self.tether) {
            self.shared.link.borrow_mut().limit_heads(limits_of(http));
        }
        self.shared.link.borrow_mut().set_time(now);
        let taken = self.take_frames(buffer.data(), now);
        buffer.advance(*taken.as_ref().unwrap_or(&0));
        if taken.is_ok() && !buffer.is_empty() {
            self.early = Some(buffer);
        } else {
            self.worker.buffers.give(buffer);
        }
        taken?;
        let mut link = self.shared.link.borrow_mut();
        if !link.is_within_bounds(now) {
            return Err(Ended::Broken(code::ENHANCE_YOUR_CALM));
        }
        if !self.is_greeted && link.is_greeted() {
            self.is_greeted = true;
            if self.leave == Leave::No {
                drop(link);
                let rest = self.timeouts().0;
                self.watch.set(now, rest);
            }
        }
        Ok(())
    }

    /// How many bytes were looked at. Not all of them when their answers are more than is to wait: a request takes a few bytes, and
    /// a redirection, which waits for nothing, may take thousands.
    fn take_frames(&mut self, bytes: &[u8], now: Instant) -> Result<usize, Ended> {
        let mut incoming = self.worker.take_request();
        let mut at = 0;
        // What needs no more bytes is told in any case.
        while at == bytes.len() || self.shared.link.borrow().line.has_room() {
            let received = self.shared.link.borrow_mut().receive(&bytes[at..], &mut incoming.head);
            let (used, happening) = received.map_err(Ended::Broken)?;
            at += used;
            match happening {
                None => break,
                Some(Happening::Request { stream, parsed, ends }) => {
                    let next = self.worker.take_request();
                    let request = std::mem::replace(&mut incoming, next);
                    self.begin((stream, ends), (request, parsed), now);
                }
                // What is refused becomes no exchange, so it is told of here. An exchange tells of itself.
                Some(Happening::Broken { code: code::PROTOCOL_ERROR, is_known: false }) => {
                    tell(self.worker, &self.tether.seat, &self.shared.facts, Fault::Http2Error);
                }
                Some(Happening::Broken { .. }) => {}
                Some(Happening::Goodbye) => self.is_forsaken = true,
            }
        }
        self.worker.give_request(incoming);
        Ok(at)
    }

    /// Begins to carry a stream, by the plan that is in force now. While as many exchanges are under way as there may be streams,
    /// and as many again that their client has reset, none is begun.
    fn begin(
        &mut self,
        (id, ends): (u32, bool),
        (mut incoming, parsed): (Box<Incoming>, Result<RequestParsed, Fault>),
        now: Instant,
    ) {
        let plan = self.worker.plan_to_carry(&self.tether.seat);
        // A client that has not heard of our GOAWAY by now does not mean to; one that is cut off has no say any more.
        let is_unheard = self.told_at.is_some_and(|told_at| told_at.elapsed() > HTTP2_PING);
        let is_too_many = self.shared.exchanges.get() >= 2 * HTTP2_STREAMS_MAX as usize;
        let may_begin = !is_unheard && !is_too_many && !self.tether.is_cut();
        let found = plan.http_listener(&self.tether).filter(|_| may_begin);
        let Some((_, http)) = found.filter(|(_, http)| !super::is_enough(http, self.accepted)) else {
            self.shared.link.borrow_mut().refuse(id);
            return self.worker.give_request(incoming);
        };
        self.accepted += 1;
        if super::is_enough(http, self.accepted) {
            self.say_last(now);
        }
        self.is_last_call = false;
        let timeout = http.stream_timeout;
        let active = Active::new(&self.shared);
        if parsed.as_ref().is_ok_and(|parsed| parsed.upgrade) {
            websocket::give_key(&mut incoming.head, || self.worker.random.next());
        }
        let arrived = Arrived { incoming, arrival: Arrival { begun: Some(now), whole: None }, parsed };
        let io = Io::Stream(Box::new(MessageStream::Client(Link::open(&self.shared.link, id, ends))));
        let is_near = self.near.is_free();
        let (connection, registration) = self.connection_of(io, (now, timeout), is_near);
        let index = self.tether.seat.index.get();
        let carried = carry(self.worker.clone(), (plan, index), connection, arrived, (registration, active));
        if is_near {
            self.near.begin(carried);
        } else {
            tokio::task::spawn_local(carried);
        }
    }

    /// A stream as the connection that an exchange sees. The one that is near is told to end as the real connection is; any other
    /// has a place in the registry of its own.
    fn connection_of(
        &self,
        io: Io,
        (now, timeout): (Instant, Duration),
        is_near: bool,
    ) -> (Connection, Option<Registration>) {
        let registration = (!is_near).then(|| self.worker.registry.register_carried(&self.tether));
        let tether = registration.as_ref().map_or(&self.tether, |registration| &registration.tether).clone();
        let spare = if is_near { self.shared.spare.take() } else { None };
        let watch = match spare {
            Some(mut watch) => {
                watch.set_bound(None);
                watch.set(now, timeout);
                watch
            }
            None => Watch::new(now, timeout, tether.clone()),
        };
        let facts = self.shared.facts.clone();
        let connection = Connection {
            io,
            facts,
            watch,
            received: None,
            tether,
            requests: 1,
            leaves_by_end: false,
            is_early: false,
            is_cut_short: false,
        };
        (connection, registration)
    }

    fn may_go_on(&self) -> bool {
        super::may_go_on(self.worker, &self.tether, self.accepted)
    }

    /// The request that has just come is the last. Those that follow are refused, and may be sent again elsewhere.
    fn say_last(&mut self, now: Instant) {
        self.leave = Leave::Told;
        self.told_at.get_or_insert(now);
        self.shared.link.borrow_mut().say_last();
    }

    /// No new streams; a client that has not heard of it yet may still begin some.
    fn say_goodbye(&mut self) {
        self.leave = Leave::Told;
        self.told_at = Some(Instant::now());
        self.shared.link.borrow_mut().say_goodbye();
        // One that answers our PING waits for nothing.
        let patience = self.tether.seat.last_call();
        self.watch.set(Instant::now(), patience);
    }

    /// Ends all streams, and says why.
    fn close(&mut self, code: u32) {
        self.shared.link.borrow_mut().abort(code);
        self.begin_to_close();
    }

    fn begin_to_close(&mut self) {
        self.leave = Leave::Now;
        self.watch.set(Instant::now(), LINGER);
    }

    /// How long nothing may happen, how long nothing may be under way, and how long nothing may be taken.
    fn timeouts(&self) -> (Duration, Duration, Duration) {
        let plan = self.worker.plan_of(&self.tether.seat);
        let http = plan.http_listener(&self.tether).map(|(_, http)| http);
        http.map_or((LAST_CALL, LAST_CALL, LINGER), |http| (rest(http), http.idle_timeout, http.stream_timeout))
    }

    /// The watch rang: whether to drop everything. If not, the watch is set again.
    fn is_over(&mut self, now: Instant) -> bool {
        let (rest, idle, stream) = self.timeouts();
        let blocked_since = self.shared.link.borrow().line.blocked_since();
        if blocked_since.is_some_and(|since| now - since >= stream) {
            return true;
        }
        if !self.is_greeted && self.leave == Leave::No {
            self.fault = Some(self.watch.fault(Fault::HeadTimeout));
            return true;
        }
        if !self.shared.is_at_rest() {
            return self.is_dead(now, rest);
        }
        if self.leave == Leave::Told {
            self.close(code::NO_ERROR);
            return false;
        }
        let rested = now.saturating_duration_since(self.shared.rested_at.get());
        if rested >= idle {
            self.say_goodbye();
        } else {
            self.watch.set(now, rest.min(idle - rested));
        }
        false
    }

    /// Whether a client with exchanges under way is silent even when asked. One that takes what waits for it is not: our PING
    /// may have to wait longest of all.
    fn is_dead(&mut self, now: Instant, rest: Duration) -> bool {
        let mut link = self.shared.link.borrow_mut();
        let stirs = link.line.stirs();
        let is_silent = std::mem::replace(&mut self.seen_stirs, stirs) == stirs;
        if is_silent && self.is_pinged {
            return true;
        }
        self.is_pinged = is_silent;
        if is_silent {
            link.ping();
        }
        self.watch.set(now, if is_silent { HTTP2_PING } else { rest });
        false
    }

    fn end(&self) -> Result<(), Fault> {
        self.fault.map_or(Ok(()), Err)
    }
}

/// What a connection that ends with this code comes to.
fn fault_of(code: u32) -> Option<Fault> {
    match code {
        code::ENHANCE_YOUR_CALM => Some(Fault::Http2Flood),
        code::NO_ERROR => None,
        _ => Some(Fault::Http2Error),
    }
}

/// Counts an exchange as under way until it is dropped.
struct Active {
    shared: Rc<Shared>,
}

impl Active {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.exchanges.set(shared.exchanges.get() + 1);
        Self { shared: shared.clone() }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.exchanges.set(shared.exchanges.get() - 1);
        if shared.is_at_rest() {
            shared.rested_at.set(Instant::now());
        }
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }
}

/// Carries one stream: the same story as on any connection. One without a registration is near.
///
/// The room of an exchange is large, so it is made where it stays, and apart from where it is begun, for it would be made there in
/// one place and copied to another. A block uses what it is given in place, where an `async fn` would hold it twice.
#[inline(never)]
fn carry(
    worker: Rc<Worker>,
    (plan, index): (Rc<WorkerPlan>, usize),
    mut connection: Connection,
    arrived: Arrived,
    (registration, active): (Option<Registration>, Active),
) -> Carried {
    Box::pin(async move {
        if let Some(registration) = &registration {
            poll_fn(|cx| {
                registration.tether.set_waker(cx.waker());
                Poll::Ready(())
            })
            .await;
        }
        // By the index of that plan: another may have been taken over since.
        let found = plan.listeners.get(index).and_then(|listener| Some((listener, listener.http()?)));
        let Some((listener, http)) = found else { return };
        exchange::carry(&worker, (&plan, listener, http), &mut connection, arrived).await;
        let Connection { mut io, mut watch, received, .. } = connection;
        if let Some(buffer) = received {
            worker.buffers.give(buffer);
        }
        if let Some(stream) = io.message() {
            if stream.awaits_end() {
                super::linger(stream, &mut watch).await;
            }
            if stream.finish() {
                active.shared.link.borrow_mut().earn(HTTP2_IDLE_FRAMES_PER_EXCHANGE);
            }
        }
        if registration.is_none() {
            *active.shared.spare.borrow_mut() = Some(watch);
        }
    })
}
