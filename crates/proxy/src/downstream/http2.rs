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

mod near;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{PingPong, Reason, RecvStream};
use model::Fault;
use model::limits::{
    HTTP2_CONNECTION_WINDOW_BYTES, HTTP2_DATA_FRAME_BUDGET_BYTES, HTTP2_IDLE_FRAMES_MAX,
    HTTP2_IDLE_FRAMES_PER_EXCHANGE, HTTP2_IDLE_FRAMES_PER_SECOND, HTTP2_PING, HTTP2_SEND_BUFFER_BYTES,
    HTTP2_STREAM_ERRORS_MAX, HTTP2_STREAM_WINDOW_BYTES, HTTP2_STREAMS_LEFT_KEPT, HTTP2_STREAMS_LEFT_MAX,
    HTTP2_STREAMS_MAX, LINGER,
};
use model::snapshot::HttpListener;
use wire::http1::HeadLimits;
use wire::http2::{Allowance, PREFACE};

use self::near::{Bell, Carried, Near};
use crate::accept::{LAST_CALL, log_failure};
use crate::connection::{Connection, ConnectionFacts};
use crate::downstream::http1::Arrival;
use crate::exchange::{self, Arrived};
use crate::http2::{self, Signs, Transport, heads, websocket};
use crate::io::Io;
use crate::message::MessageStream;
use crate::registry::{Registration, Seat, Tether};
use crate::watch::Watch;
use crate::worker::Worker;
use crate::worker_plan::WorkerPlan;

/// What a connection and the tasks of its streams share.
struct Shared {
    facts: Rc<ConnectionFacts>,
    signs: Rc<Signs>,
    /// Exchanges under way, by their streams.
    streams: RefCell<Vec<u32>>,
    /// When the last one ended.
    rested_at: Cell<Instant>,
    /// The connection, while it waits for an exchange to end.
    waker: RefCell<Option<Waker>>,
    /// The watch of the last stream that was near, for the next: its timer need not be set up again.
    spare: RefCell<Option<Watch>>,
}

impl Shared {
    fn is_at_rest(&self) -> bool {
        self.streams.borrow().is_empty()
    }
}

/// A connection while it lives.
struct Session<'w> {
    worker: &'w Rc<Worker>,
    h2: h2::server::Connection<Transport, Bytes>,
    transport: Transport,
    shared: Rc<Shared>,
    tether: Rc<Tether>,
    watch: Watch,
    /// Rings when the library is to be driven, which it is not while only the stream that is near has something to do.
    wire: Arc<Bell>,
    wire_waker: Waker,
    near: &'w mut Near,
    /// Streams that the library gave.
    offered: u64,
    /// Streams begun.
    accepted: u64,
    leave: Leave,
    /// When GOAWAY was sent.
    told_at: Option<Instant>,
    /// GOAWAY is sent, and nothing is under way any more.
    is_last_call: bool,
    /// There once it was needed: with it the library is asked at every turn whether there is a PING to send.
    ping: Option<PingPong>,
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
    /// The last GOAWAY is sent; the peer's end is waited for.
    Now,
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
    log_failure(worker, facts, fault);
}

async fn run(worker: &Rc<Worker>, connection: Connection) -> Result<(), Fault> {
    let plan = worker.plan_of(&connection.tether.seat);
    let Some((_, http)) = plan.http_listener(&connection.tether) else { return Ok(()) };
    let Connection { io, facts, mut watch, received, tether, .. } = connection;
    let now = Instant::now();
    let signs = Rc::new(Signs {
        allowance: Allowance::new(HTTP2_IDLE_FRAMES_MAX, HTTP2_IDLE_FRAMES_PER_SECOND, now).into(),
        is_flooded: Cell::new(false),
        blocked_since: Cell::new(None),
        stirs: Cell::new(0),
        refused: RefCell::default(),
        is_shut: Cell::new(false),
        is_given_up: Cell::new(false),
    });
    let transport = Transport::new(io, received, PREFACE.len() as u32, signs.clone());
    watch.set_bound(None);
    watch.set(now, http.head_timeout);
    let h2 = shake_hands(http, &transport, &mut watch).await?;
    watch.set(Instant::now(), rest(http));
    drop(plan);
    let shared = Rc::new(Shared {
        facts,
        signs,
        streams: RefCell::default(),
        rested_at: Cell::new(now),
        waker: RefCell::new(None),
        spare: RefCell::new(None),
    });
    let (wire, mut near) =
        poll_fn(|cx| Poll::Ready((Bell::new(cx.waker()), Near::new(cx.waker(), tether.clone())))).await;
    let mut session = Session {
        worker,
        h2,
        transport,
        shared: shared.clone(),
        tether,
        watch,
        wire_waker: wire.clone().into(),
        wire,
        near: &mut near,
        offered: 0,
        accepted: 0,
        leave: Leave::No,
        told_at: None,
        is_last_call: false,
        ping: None,
        seen_stirs: 0,
        is_pinged: false,
    };
    let outcome = poll_fn(|cx| session.poll(cx)).await;
    // Streams that are left see that their connection is gone.
    drop(session);
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

/// Sends our settings and reads the preface.
async fn shake_hands(
    http: &HttpListener,
    transport: &Transport,
    watch: &mut Watch,
) -> Result<h2::server::Connection<Transport, Bytes>, Fault> {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(http.head_bytes_max as u32)
        .initial_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(HTTP2_SEND_BUFFER_BYTES)
        .max_local_error_reset_streams(Some(HTTP2_STREAM_ERRORS_MAX))
        .max_concurrent_reset_streams(HTTP2_STREAMS_LEFT_MAX)
        .reset_stream_duration(HTTP2_STREAMS_LEFT_KEPT)
        .data_frame_budget(HTTP2_DATA_FRAME_BUDGET_BYTES)
        .enable_connect_protocol();
    let mut shaking = pin!(builder.handshake(transport.clone()));
    poll_fn(|cx| {
        if let Poll::Ready(shaken) = shaking.as_mut().poll(cx) {
            return Poll::Ready(shaken.map_err(|_| Fault::Http2Error));
        }
        if let Poll::Ready(Err(_)) = transport.poll_send(cx) {
            return Poll::Ready(Err(Fault::Http2Error));
        }
        watch.poll(cx).map(|()| Err(watch.fault(Fault::HeadTimeout)))
    })
    .await
}

/// How long nothing may happen before the connection is looked after.
fn rest(http: &HttpListener) -> Duration {
    http.idle_timeout.min(http.stream_timeout)
}

impl Session<'_> {
    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        // The library, when it was not for it that the task was woken.
        let mut is_spared = self.poll_near();
        loop {
            if !std::mem::take(&mut is_spared) {
                match self.poll_stream() {
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        self.offered += 1;
                        let is_needed = self.begin(request, respond);
                        // It has done all else before it gives a stream. Asking whether there is another makes it look at
                        // all of that again, so it is asked only where there may be one.
                        if is_needed || self.transport.heads() > self.offered {
                            continue;
                        }
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(self.broken(&error)),
                    Poll::Ready(None) => return Poll::Ready(self.end()),
                    Poll::Pending => {}
                }
            }
            if let Poll::Ready(Err(_)) = self.transport.poll_send(&mut TaskContext::from_waker(&self.wire_waker)) {
                // The client itself has closed.
                return Poll::Ready(self.end());
            }
            self.tell_of_refused();
            if self.shared.signs.is_flooded.get() && self.leave != Leave::Now {
                self.close(Reason::ENHANCE_YOUR_CALM);
                continue;
            }
            if self.leave == Leave::No && !self.may_go_on() {
                self.say_goodbye();
                continue;
            }
            if self.leave != Leave::No || self.tether.is_cut() {
                *self.shared.waker.borrow_mut() = Some(self.wire_waker.clone());
            }
            if self.tether.is_cut() {
                // Its exchanges are cut as well, and tell their clients as far as that is possible.
                return if self.shared.is_at_rest() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if self.leave != Leave::Now && self.shared.signs.is_shut.get() {
                self.leave = Leave::Now;
                self.watch.set(Instant::now(), LINGER);
            }
            if self.leave == Leave::Told && self.shared.is_at_rest() && !self.is_last_call {
                // The client may still begin a stream, or answer our PING.
                self.is_last_call = true;
                let patience = self.tether.seat.last_call();
                self.watch.set(Instant::now(), patience);
            }
            ready!(self.watch.poll(cx));
            if self.is_over(Instant::now()) {
                // The library still has to say why it ended.
                if self.shared.signs.is_shut.get() && !self.shared.signs.is_given_up.replace(true) {
                    continue;
                }
                return Poll::Ready(self.end());
            }
        }
    }

    /// Drives the connection. While as many exchanges are under way as there may be streams, and as many again that their
    /// client has reset, none is begun: what is reset meanwhile is counted by the library.
    fn poll_stream(&mut self) -> Poll<Option<Accepted>> {
        // What rings from now on asks for another turn.
        self.wire.take();
        let cx = &mut TaskContext::from_waker(&self.wire_waker);
        if self.shared.streams.borrow().len() < 2 * HTTP2_STREAMS_MAX as usize {
            return self.h2.poll_accept(cx);
        }
        *self.shared.waker.borrow_mut() = Some(self.wire_waker.clone());
        self.h2.poll_closed(cx).map(|closed| closed.err().map(Err))
    }

    /// Lets the stream that is near go on, if it is called. True: the library is not to be driven now, for all that has
    /// happened was to the stream, and it has nothing to send by it, or others may soon have.
    fn poll_near(&mut self) -> bool {
        if !self.near.is_called() {
            return false;
        }
        let is_alone = self.shared.streams.borrow().len() < 2;
        if is_alone {
            self.wire.attend();
            self.near.poll();
            return !self.wire.take();
        }
        let is_rung = self.wire.is_rung();
        // What it has to say wakes this task once more, behind the others that are woken already: what all of them have to say
        // leaves in one call.
        self.near.poll();
        !is_rung
    }

    /// Begins to carry a stream, by the plan that is in force now. True: the library has something to do by it.
    fn begin(&mut self, request: http::Request<RecvStream>, mut respond: SendResponse<Bytes>) -> bool {
        let plan = self.worker.plan_to_carry(&self.tether.seat);
        // A client that has not heard of our GOAWAY by now does not mean to; one that is cut off has no say any more.
        let is_unheard = self.told_at.is_some_and(|told_at| told_at.elapsed() > HTTP2_PING);
        let is_too_late = is_unheard || self.tether.is_cut();
        let Some((_, http)) = plan.http_listener(&self.tether).filter(|_| !is_too_late) else {
            respond.send_reset(Reason::REFUSED_STREAM);
            return true;
        };
        self.accepted += 1;
        self.is_last_call = false;
        let now = Instant::now();
        let active = Active::new(&self.shared, respond.stream_id().as_u32());
        let (arrived, body) = receive(self.worker, http, request, now);
        let stream = http2::Stream::accepted(respond, body, self.shared.signs.clone());
        let io = Io::Stream(Box::new(MessageStream::Http2(stream)));
        let is_near = self.near.is_free();
        let (connection, registration) = self.connection_of(io, (now, http.stream_timeout), is_near);
        let index = self.tether.seat.index.get();
        let carried = carry(self.worker.clone(), (plan, index), connection, arrived, (registration, active));
        if !is_near {
            tokio::task::spawn_local(carried);
            return false;
        }
        self.wire.attend();
        self.near.begin(carried);
        self.wire.take()
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
        let connection =
            Connection { io, facts, watch, received: None, tether, requests: 1, leaves_by_end: false, is_early: false };
        (connection, registration)
    }

    /// What the library refuses becomes no exchange, so it is told of here. An exchange tells of itself.
    fn tell_of_refused(&self) {
        let shared = &self.shared;
        if shared.signs.refused.borrow().is_empty() {
            return;
        }
        for stream in shared.signs.refused.take() {
            if !shared.streams.borrow().contains(&stream) {
                tell(self.worker, &self.tether.seat, &shared.facts, Fault::Http2Error);
            }
        }
    }

    fn may_go_on(&self) -> bool {
        super::may_go_on(self.worker, &self.tether, self.accepted)
    }

    /// No new streams; a client that has not heard of it yet may still begin some.
    fn say_goodbye(&mut self) {
        self.leave = Leave::Told;
        self.told_at = Some(Instant::now());
        self.h2.graceful_shutdown();
        // One that answers our PING waits for nothing.
        let patience = self.tether.seat.last_call();
        self.watch.set(Instant::now(), patience);
    }

    fn close(&mut self, reason: Reason) {
        self.leave = Leave::Now;
        self.h2.abrupt_shutdown(reason);
        self.watch.set(Instant::now(), LINGER);
    }

    /// The watch rang: whether to drop everything. If not, the watch is set again.
    fn is_over(&mut self, now: Instant) -> bool {
        let plan = self.worker.plan_of(&self.tether.seat);
        let http = plan.http_listener(&self.tether).map(|(_, http)| http);
        let (rest, idle, stream) =
            http.map_or((LAST_CALL, LAST_CALL, LINGER), |http| (rest(http), http.idle_timeout, http.stream_timeout));
        let is_stuck = self.shared.signs.blocked_since.get().is_some_and(|since| now - since >= stream);
        if self.leave == Leave::Now || is_stuck {
            return true;
        }
        if !self.shared.is_at_rest() {
            return self.is_dead(now, rest);
        }
        if self.leave == Leave::Told {
            self.close(Reason::NO_ERROR);
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
        let stirs = self.shared.signs.stirs.get();
        let is_silent = std::mem::replace(&mut self.seen_stirs, stirs) == stirs;
        if is_silent && self.is_pinged {
            return true;
        }
        self.is_pinged = is_silent && self.send_ping();
        self.watch.set(now, if self.is_pinged { HTTP2_PING } else { rest });
        false
    }

    fn send_ping(&mut self) -> bool {
        if self.ping.is_none() {
            self.ping = self.h2.ping_pong();
        }
        let Some(ping) = &mut self.ping else { return false };
        // The answer to the last one is taken, or no other could be sent.
        let _ = ping.poll_pong(&mut TaskContext::from_waker(Waker::noop()));
        ping.send_ping(h2::Ping::opaque()).is_ok()
    }

    fn broken(&self, error: &h2::Error) -> Result<(), Fault> {
        match error.reason() {
            _ if self.shared.signs.is_flooded.get() => Err(Fault::Http2Flood),
            // The client itself has closed, or said why.
            _ if error.is_io() || error.is_remote() => Ok(()),
            Some(Reason::ENHANCE_YOUR_CALM) => Err(Fault::Http2Flood),
            Some(Reason::NO_ERROR) => Ok(()),
            _ => Err(Fault::Http2Error),
        }
    }

    fn end(&self) -> Result<(), Fault> {
        if self.shared.signs.is_flooded.get() { Err(Fault::Http2Flood) } else { Ok(()) }
    }
}

type Accepted = Result<(http::Request<RecvStream>, SendResponse<Bytes>), h2::Error>;

/// Counts an exchange as under way until it is dropped.
struct Active {
    shared: Rc<Shared>,
    stream: u32,
}

impl Active {
    fn new(shared: &Rc<Shared>, stream: u32) -> Self {
        shared.streams.borrow_mut().push(stream);
        Self { shared: shared.clone(), stream }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut streams = shared.streams.borrow_mut();
        if let Some(at) = streams.iter().position(|stream| *stream == self.stream) {
            streams.swap_remove(at);
        }
        drop(streams);
        shared.rested_at.set(Instant::now());
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }
}

/// Takes the head of a request; what is left is its body.
fn receive(
    worker: &Worker,
    http: &HttpListener,
    request: http::Request<RecvStream>,
    now: Instant,
) -> (Arrived, RecvStream) {
    let (parts, body) = request.into_parts();
    let mut incoming = worker.take_request();
    let limits = HeadLimits { head_bytes_max: http.head_bytes_max, fields_max: http.fields_max };
    let parsed = heads::read_request(&parts, (&limits, body.is_end_stream()), &mut incoming.head);
    if parsed.as_ref().is_ok_and(|parsed| parsed.upgrade) {
        websocket::give_key(&mut incoming.head, || worker.random.next());
    }
    (Arrived { incoming, arrival: Arrival { begun: Some(now), whole: None }, parsed }, body)
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
        let Connection { mut io, watch, received, .. } = connection;
        if io.message().is_some_and(|stream| stream.finish()) {
            active.shared.signs.allowance.borrow_mut().earn(HTTP2_IDLE_FRAMES_PER_EXCHANGE);
        }
        if let Some(buffer) = received {
            worker.buffers.give(buffer);
        }
        if registration.is_none() {
            *active.shared.spare.borrow_mut() = Some(watch);
        }
    })
}
