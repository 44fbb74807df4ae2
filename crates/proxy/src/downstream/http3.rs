//! The life of a client's HTTP/3 connection (RFC 9114).
//!
//! ```text
//! a first datagram ─► Door ─┬─ too many handshakes: prove where you are (RFC 9000 section 8.1), or refused
//!                           └─ serve ──┬── a stream ──► a task with an exchange of its own, as on any connection
//!                                      ├── nothing to do for too long, the listener gone, requests enough:
//!                                      │      GOAWAY, what is begun is finished, GOAWAY with the last stream (section 5.2), end
//!                                      └── rules broken, too much of no use: closed with the reason, end
//! ```
//!
//! As with HTTP/2, this task looks after the connection and begins streams, and knows nothing of what they carry. The socket
//! and the state of QUIC are driven elsewhere (`crate::http3`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::{Duration, Instant};

use model::limits::{
    HTTP3_DISCARDED_MAX, HTTP3_DISCARDED_PER_SECOND, HTTP3_END_PATIENCE, HTTP3_FAILED_HANDSHAKE, HTTP3_HANDSHAKES_MAX,
    HTTP3_IDLE_FRAMES_MAX, HTTP3_IDLE_FRAMES_PER_EXCHANGE, HTTP3_IDLE_FRAMES_PER_PIECE, HTTP3_IDLE_FRAMES_PER_SECOND,
    HTTP3_PING, HTTP3_STREAMS_MAX, LINGER,
};
use model::snapshot::HttpListener;
use model::{Fault, Method};
use quinn_proto::{Dir, Incoming, StreamId, VarInt};
use wire::http1::{Framing, HeadLimits, RequestParsed};
use wire::http2::Allowance;
use wire::http3::message::{self, BadHead};
use wire::http3::{VARINT_MAX, code};

use crate::connection::{Connection, ConnectionFacts};
use crate::datagram::REFUSAL_PAUSE;
use crate::exchange::{self, Arrived};
use crate::http2::websocket;
use crate::http3::{Control, Counts, Lost, Mesh, NoHead, Port, Quic, Stream, local_of};
use crate::io::Io;
use crate::message::MessageStream;
use crate::registry::{LAST_CALL, Seat, Tether};
use crate::request_head::Arrival;
use crate::tls;
use crate::watch::Watch;
use crate::worker::Open;
use crate::worker::Worker;
use crate::worker_plan::{ListenerNow, WorkerPlan};

/// Where the ids of goodbyes begin that leave room for what is on its way: the last that a client could begin.
const LAST_STREAM_ID: u64 = VARINT_MAX - 3;

/// Lets clients in at the UDP side of a listener until it ends; what was let in is carried to its end. `waker` is where to
/// say which task is to be told of that, and `ended` is called when no more are let in.
///
/// # Errors
/// The kernel does not take a setting.
pub(crate) fn open(
    worker: &Rc<Worker>,
    (socket, mesh): (std::net::UdpSocket, Mesh),
    seat: Rc<Seat>,
    waker: Rc<RefCell<Option<Waker>>>,
    ended: impl FnOnce() + 'static,
) -> io::Result<Rc<Port>> {
    let (handshakes, told_at) = (Rc::default(), Cell::default());
    let door = Door { worker: worker.clone(), seat: seat.clone(), handshakes, told_at };
    let plan = worker.plan_of(&seat);
    let config = plan.listeners.get(seat.index.get()).and_then(|listener| listener.tls.as_ref()?.quic.clone());
    let port = Port::new(socket, mesh, config, Box::new(move |port, incoming| door.knock(port, incoming)))?;
    let (worker, opened) = (worker.clone(), port.clone());
    let mut ended = Some(ended);
    let mut generation = plan.plan.generation;
    tokio::task::spawn_local(async move {
        poll_fn(|cx| {
            *waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        let driven = port.clone();
        port.drive(|| {
            let plan = worker.plan_of(&seat);
            let Some(listener) = plan.listeners.get(seat.index.get()) else { return !driven.is_needed() };
            let dropped = driven.take_dropped();
            if dropped > 0 {
                listener.series.of(worker.index).datagrams_dropped.add(dropped);
            }
            if seat.closing.get() {
                if let Some(ended) = ended.take() {
                    ended();
                }
                return !driven.is_needed();
            }
            if std::mem::replace(&mut generation, plan.plan.generation) != plan.plan.generation {
                driven.configure(listener.tls.as_ref().and_then(|tls| tls.quic.clone()));
            }
            false
        })
        .await;
    });
    Ok(opened)
}

/// Decides who is let in.
struct Door {
    worker: Rc<Worker>,
    seat: Rc<Seat>,
    handshakes: Rc<Handshakes>,
    /// When somebody was last told of who is not let in.
    told_at: Cell<Option<Instant>>,
}

/// Handshakes of clients that have or have not proven where they are.
#[derive(Default)]
struct Handshakes {
    /// Those that failed a moment ago included: they have cost as much as others.
    under_way: Cell<usize>,
    /// When those count no more.
    failed: RefCell<VecDeque<Instant>>,
}

impl Handshakes {
    fn under_way(&self) -> usize {
        let mut failed = self.failed.borrow_mut();
        if !failed.is_empty() {
            let now = Instant::now();
            while failed.pop_front_if(|until| *until <= now).is_some() {
                self.under_way.set(self.under_way.get() - 1);
            }
        }
        self.under_way.get()
    }
}

/// Counts a handshake as under way until it is dropped, and for a moment more if it has come to nothing.
struct Handshake {
    all: Rc<Handshakes>,
    begun: Instant,
    /// The client is where it says.
    is_proven: Cell<bool>,
}

impl Handshake {
    fn begin(all: &Rc<Handshakes>, is_proven: bool) -> Self {
        all.under_way.set(all.under_way.get() + 1);
        Self { all: all.clone(), begun: Instant::now(), is_proven: Cell::new(is_proven) }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let until = self.begun + HTTP3_FAILED_HANDSHAKE;
        if self.is_proven.get() || until <= Instant::now() {
            self.all.under_way.set(self.all.under_way.get() - 1);
        } else {
            self.all.failed.borrow_mut().push_back(until);
        }
    }
}

impl Door {
    fn knock(&self, port: &Rc<Port>, incoming: Incoming) {
        let (worker, seat) = (&self.worker, &self.seat);
        let plan = worker.plan_of(seat);
        let found = plan.listeners.get(seat.index.get());
        let Some((listener, (http, tls))) = found.and_then(|now| Some((now, (now.http()?, now.tls.as_ref()?)))) else {
            return port.refuse(incoming);
        };
        let shard = listener.series.of(worker.index);
        let (under_way, is_proven) = (self.handshakes.under_way(), incoming.remote_address_validated());
        if seat.closing.get() {
            return port.refuse(incoming);
        }
        if !listener.plan.admits(incoming.remote_address().ip()) {
            self.tell_kept_out(port, listener, &incoming);
            return port.refuse(incoming);
        }
        if under_way >= (http.http3.unproven_max as usize).min(HTTP3_HANDSHAKES_MAX) && !is_proven {
            if under_way < HTTP3_HANDSHAKES_MAX {
                shard.http3_retries.add(1);
                return port.ask_again(incoming);
            }
            shard.connections_refused.add(1);
            return port.refuse(incoming);
        }
        if !listener.plan.state.try_open(listener.plan.listener.connections_max) {
            shard.connections_refused.add(1);
            shard.fault(Fault::ListenerFull);
            return port.refuse(incoming);
        }
        shard.connections_opened.add(1);
        let open = Open::new(worker, listener);
        let facts = introduce(port, listener, &incoming);
        let handshake = Handshake::begin(&self.handshakes, is_proven);
        let Some(quic) = port.accept(incoming, tls.quic.clone()) else {
            shard.handshakes_failed.add(1);
            shard.fault(Fault::HandshakeFailed);
            worker.log_failure(&facts, Fault::HandshakeFailed);
            return;
        };
        tokio::task::spawn_local(serve(worker.clone(), quic, seat.clone(), (facts, handshake), open));
    }

    /// Counts somebody who is not let in, and logs it, at most one in a while: addresses of datagrams can be forged, and a flood is
    /// to fill counters, not disks.
    fn tell_kept_out(&self, port: &Port, listener: &ListenerNow, incoming: &Incoming) {
        listener.series.of(self.worker.index).fault(Fault::KeptOut);
        let now = Instant::now();
        if self.told_at.get().is_none_or(|told| now.saturating_duration_since(told) >= REFUSAL_PAUSE) {
            self.told_at.set(Some(now));
            self.worker.log_failure(&introduce(port, listener, incoming), Fault::KeptOut);
        }
    }
}

/// What is known of a connection as it begins.
fn introduce(port: &Port, listener: &ListenerNow, incoming: &Incoming) -> ConnectionFacts {
    let (peer, configured) = (incoming.remote_address(), &listener.plan.listener);
    let local = local_of(port, incoming.local_ip(), configured.bind.or_local());
    let (listener, authenticated_at) = (configured.name.clone(), Cell::default());
    ConnectionFacts { peer, local, tls: None, sender: None, listener, authenticated_at }
}

/// What a connection and the tasks of its streams share.
struct Shared {
    facts: RefCell<Rc<ConnectionFacts>>,
    counts: Rc<Counts>,
    /// Frames of no use that the client may still send.
    allowance: RefCell<Allowance>,
    /// Streams that it may still throw away.
    discards: RefCell<Allowance>,
    /// Exchanges under way.
    active: Cell<u32>,
    /// When the last one ended.
    rested_at: Cell<Instant>,
    /// The connection, while it waits for an exchange to end.
    waker: RefCell<Option<Waker>>,
}

impl Shared {
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Takes what was counted of no use, and what was thrown away. False: it is more than a client may send.
    fn is_bearable(&self, more: u32) -> bool {
        let (idle, discarded) = (self.counts.idle.take().saturating_add(more), self.counts.discarded.take());
        (idle == 0 || self.allowance.borrow_mut().spend(idle, Instant::now()))
            && (discarded == 0 || self.discards.borrow_mut().spend(discarded, Instant::now()))
    }

    /// An exchange is over that was begun then.
    fn note_end(&self, stream: &mut Stream, begun: Instant) {
        let is_whole = stream.finish();
        if stream.has_answered() {
            self.discards.borrow_mut().earn(1);
        } else if stream.is_spoilt() && begun.elapsed() <= HASTY {
            self.note_discarded();
        }
        if is_whole {
            let pieces = self.counts.pieces.take();
            let earned = HTTP3_IDLE_FRAMES_PER_EXCHANGE + pieces.saturating_mul(HTTP3_IDLE_FRAMES_PER_PIECE);
            self.allowance.borrow_mut().earn(earned);
        }
    }

    /// The client has given a stream up, or broken its rules, before its answer began.
    fn note_discarded(&self) {
        self.counts.discarded.set(self.counts.discarded.get().saturating_add(1));
    }
}

/// A stream that is given up within this is given up in haste. Of those that have waited for longer, the bound of streams bounds how many
/// there are.
const HASTY: Duration = Duration::from_secs(1);

/// How far the end is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// It is not.
    No,
    /// GOAWAY is sent; what is on its way is still taken.
    Told,
    /// The last GOAWAY is sent; what is begun is finished.
    Last,
    /// All is over but for what the client has not got yet.
    Over,
}

/// A connection while it lives.
struct Session {
    worker: Rc<Worker>,
    quic: Rc<Quic>,
    shared: Rc<Shared>,
    tether: Rc<Tether>,
    watch: Watch,
    handshake: Option<Handshake>,
    control: Control,
    /// Streams begun.
    accepted: u64,
    /// The id that follows that of the last one.
    next_id: u64,
    leave: Leave,
    is_flooded: bool,
    /// The listener closes while the handshake is under way, which is given little time.
    is_hurried: bool,
}

/// Carries a connection to its end.
async fn serve(
    worker: Rc<Worker>,
    quic: Rc<Quic>,
    seat: Rc<Seat>,
    (facts, handshake): (ConnectionFacts, Handshake),
    _open: Open,
) {
    let now = Instant::now();
    let registration = worker.registry.register_client(seat, facts.peer, now);
    poll_fn(|cx| {
        registration.tether.set_waker(cx.waker());
        Poll::Ready(())
    })
    .await;
    let tether = registration.tether.clone();
    let plan = worker.plan_of(&tether.seat);
    let Some((listener, _)) = plan.http_listener(&tether) else { return quic.close(code::NO_ERROR) };
    let handshake_timeout = listener.tls.as_ref().map_or(LAST_CALL, |tls| tls.handshake_timeout);
    drop(plan);
    let shared = Rc::new(Shared {
        facts: RefCell::new(Rc::new(facts)),
        counts: Rc::default(),
        allowance: Allowance::new(HTTP3_IDLE_FRAMES_MAX, HTTP3_IDLE_FRAMES_PER_SECOND, now).into(),
        discards: Allowance::new(HTTP3_DISCARDED_MAX, HTTP3_DISCARDED_PER_SECOND, now).into(),
        active: Cell::new(0),
        rested_at: Cell::new(now),
        waker: RefCell::default(),
    });
    let mut session = Session {
        worker: worker.clone(),
        quic: quic.clone(),
        shared: shared.clone(),
        watch: Watch::new(now, handshake_timeout, tether.clone()),
        tether,
        handshake: Some(handshake),
        control: Control::towards_client(quic.clone()),
        accepted: 0,
        next_id: 0,
        leave: Leave::No,
        is_flooded: false,
        is_hurried: false,
    };
    let outcome = poll_fn(|cx| session.poll(cx)).await;
    session.report(outcome);
    drop(session);
    quic.close(code::NO_ERROR);
    // That is sent before the connection counts as closed.
    tokio::task::yield_now().await;
    // Streams that are left see that their connection is gone.
    poll_fn(|cx| {
        *shared.waker.borrow_mut() = Some(cx.waker().clone());
        if shared.active.get() == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// How long nothing may happen before the connection is looked after.
fn rest(http: &HttpListener) -> Duration {
    http.idle_timeout.min(HTTP3_PING)
}

impl Session {
    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        self.quic.wait(cx);
        loop {
            if let Some(lost) = self.quic.lost() {
                return Poll::Ready(self.why(lost));
            }
            if self.tether.is_cut() {
                // Its exchanges are cut as well, and tell their client as far as that is possible.
                *self.shared.waker.borrow_mut() = Some(cx.waker().clone());
                return if self.shared.active.get() == 0 { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if self.handshake.is_some() && self.quic.is_connected() {
                self.begin();
            }
            if self.handshake.is_some() && self.tether.is_closing() && !std::mem::replace(&mut self.is_hurried, true) {
                let patience = self.tether.seat.last_call();
                self.watch.set(Instant::now(), patience);
            }
            self.speak(cx);
            if let Err(code) = self.control.listen(cx) {
                self.quic.close(code);
                continue;
            }
            self.take_streams();
            if !self.shared.is_bearable(std::mem::take(&mut self.control.told.idle)) {
                self.is_flooded = true;
                self.quic.close(code::EXCESSIVE_LOAD);
                continue;
            }
            if self.handshake.is_none() && self.leave == Leave::No && !self.may_go_on() {
                self.say_goodbye();
                continue;
            }
            if self.leave == Leave::Last && self.shared.active.get() == 0 {
                self.leave = Leave::Over;
                self.watch.set(Instant::now(), LINGER);
            }
            if self.leave == Leave::Over && self.control.is_said() && self.is_all_received() {
                return Poll::Ready(Ok(()));
            }
            if self.leave != Leave::No || self.is_full() {
                *self.shared.waker.borrow_mut() = Some(cx.waker().clone());
            }
            ready!(self.watch.poll(cx));
            if let Some(end) = self.look_after(Instant::now()) {
                return Poll::Ready(end);
            }
        }
    }

    /// The handshake is over: from here on the client is known.
    fn begin(&mut self) {
        if let Some(handshake) = self.handshake.take() {
            handshake.is_proven.set(true);
        }
        let plan = self.worker.plan_of(&self.tether.seat);
        let Some((listener, http)) = plan.http_listener(&self.tether) else { return };
        let shard = listener.series.of(self.worker.index);
        match self.quic.noted().is_resumed {
            true => shard.handshakes_resumed.add(1),
            false => shard.handshakes_full.add(1),
        }
        self.know_client();
        self.watch.set(Instant::now(), rest(http));
    }

    /// Takes what the handshake has told so far.
    fn know_client(&self) {
        let before = self.shared.facts.borrow().clone();
        let facts = ConnectionFacts {
            peer: before.peer,
            local: before.local,
            tls: Some(Box::new(tls::facts_of_quic(&self.quic))),
            sender: None,
            listener: before.listener.clone(),
            authenticated_at: before.authenticated_at.clone(),
        };
        *self.shared.facts.borrow_mut() = Rc::new(facts);
    }

    /// Says on our control stream what is to be said.
    fn speak(&mut self, cx: &TaskContext<'_>) {
        let (worker, tether) = (&self.worker, &self.tether);
        self.control.speak(cx, || {
            let plan = worker.plan_of(&tether.seat);
            (plan.http_listener(tether).map_or(0, |(_, http)| http.head_bytes_max as u64), true)
        });
    }

    /// Gives each new stream a task of its own. While as many exchanges are under way as there may be streams, and as many
    /// again that their client has reset, none is begun.
    fn take_streams(&mut self) {
        while !self.is_full() {
            let Some(id) = self.quic.accept(Dir::Bi) else { return };
            let plan = self.worker.plan_to_carry(&self.tether.seat);
            let index = self.tether.seat.index.get();
            let may_begin = !matches!(self.leave, Leave::Last | Leave::Over);
            let found = plan.http_listener(&self.tether).filter(|_| may_begin);
            let Some((_, http)) = found.filter(|(_, http)| !super::is_enough(http, self.accepted)) else {
                self.shared.counts.idle.set(self.shared.counts.idle.get().saturating_add(1));
                // RFC 9114 section 4.1.1: the client may send it again elsewhere.
                self.quic.reset(id, code::REQUEST_REJECTED);
                self.quic.stop(id, code::REQUEST_REJECTED);
                continue;
            };
            self.accepted += 1;
            self.next_id = u64::from(VarInt::from(id)) + 4;
            if super::is_enough(http, self.accepted) {
                // Those that follow are refused.
                self.say_last_goodbye();
            }
            self.follow_client();
            let active = Active::new(&self.shared);
            // Boxed, for a task copies what it carries more than once.
            tokio::task::spawn_local(Box::pin(carry(
                (self.worker.clone(), plan, index),
                self.tether.clone(),
                (self.quic.clone(), id),
                active,
            )));
        }
    }

    fn is_full(&self) -> bool {
        self.shared.active.get() >= 2 * HTTP3_STREAMS_MAX
    }

    /// The client may be somewhere else by now (RFC 9000 section 9). Its IP address stays that by which it has shaken hands: of
    /// any other, a single datagram can say that it comes from there, before that is proven.
    fn follow_client(&self) {
        if self.handshake.is_some() {
            self.know_client();
        }
        let peer = self.quic.remote();
        let facts = self.shared.facts.borrow().clone();
        if facts.peer != peer && facts.peer.ip() == peer.ip() {
            let moved = ConnectionFacts {
                peer,
                local: local_of(self.quic.port(), self.quic.local_ip(), facts.local),
                tls: facts.tls.clone(),
                sender: None,
                listener: facts.listener.clone(),
                authenticated_at: facts.authenticated_at.clone(),
            };
            *self.shared.facts.borrow_mut() = Rc::new(moved);
        }
    }

    fn may_go_on(&self) -> bool {
        super::may_go_on(&self.worker, &self.tether, self.accepted)
    }

    /// No new streams; a client that has not heard of it yet may still begin some (RFC 9114 section 5.2).
    fn say_goodbye(&mut self) {
        self.leave = Leave::Told;
        self.control.push_goaway(LAST_STREAM_ID);
        self.watch.set(Instant::now(), LAST_CALL.min(self.quic.rtt() * 3 / 2));
    }

    fn say_last_goodbye(&mut self) {
        self.leave = Leave::Last;
        self.control.push_goaway(self.next_id);
        if self.handshake.is_none() {
            let plan = self.worker.plan_of(&self.tether.seat);
            let patience = plan.http_listener(&self.tether).map_or(LINGER, |(_, http)| rest(http));
            self.watch.set(Instant::now(), patience);
        }
    }

    /// Whether the client has all that we have sent, but for our control stream, which never ends.
    fn is_all_received(&self) -> bool {
        self.quic.unfinished() <= usize::from(self.control.has_begun())
    }

    /// The watch rang: how it ends, if it does. If not, the watch is set again.
    fn look_after(&mut self, now: Instant) -> Option<Result<(), Fault>> {
        if self.handshake.is_some() {
            return Some(Err(self.watch.fault(Fault::HandshakeTimeout)));
        }
        match self.leave {
            Leave::Told => {
                self.say_last_goodbye();
                return None;
            }
            Leave::Over => return Some(Ok(())),
            Leave::No | Leave::Last => {}
        }
        let plan = self.worker.plan_of(&self.tether.seat);
        let http = plan.http_listener(&self.tether).map(|(_, http)| http);
        let (rest, idle) = http.map_or((LAST_CALL, LAST_CALL), |http| (rest(http), http.idle_timeout));
        if self.shared.active.get() > 0 {
            self.ask_whether_there(now);
            self.watch.set(now, rest);
            return None;
        }
        let rested = now.saturating_duration_since(self.shared.rested_at.get());
        if rested >= idle {
            self.say_goodbye();
        } else {
            self.watch.set(now, idle - rested);
        }
        None
    }

    /// Asks a client that is silent while its exchanges go on; without an answer the connection is given up by its idle
    /// time (RFC 9000 section 10.1).
    fn ask_whether_there(&self, now: Instant) {
        if self.quic.silence(now) >= HTTP3_PING / 2 {
            self.quic.ping();
        }
    }

    fn why(&self, lost: Lost) -> Result<(), Fault> {
        if self.is_flooded {
            return Err(Fault::Http3Flood);
        }
        match lost {
            _ if self.handshake.is_some() => Err(Fault::HandshakeFailed),
            // The client itself has closed, has said why, or has gone.
            Lost::Closed(_) | Lost::Silent | Lost::Ours(code::NO_ERROR) => Ok(()),
            Lost::Ours(_) | Lost::Broken => Err(Fault::Http3Error),
        }
    }

    fn report(&self, outcome: Result<(), Fault>) {
        let Err(fault) = outcome else { return };
        let plan = self.worker.plan_of(&self.tether.seat);
        if let Some(listener) = plan.listeners.get(self.tether.seat.index.get()) {
            let shard = listener.series.of(self.worker.index);
            if self.handshake.is_some() {
                shard.handshakes_failed.add(1);
            }
            shard.fault(fault);
        }
        self.worker.log_failure(&self.shared.facts.borrow(), fault);
    }
}

/// Counts an exchange as under way until it is dropped.
struct Active(Rc<Shared>);

impl Active {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.active.set(shared.active.get() + 1);
        Self(shared.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let shared = &self.0;
        shared.active.set(shared.active.get() - 1);
        shared.rested_at.set(Instant::now());
        shared.wake();
    }
}

/// Carries one stream: the same story as on any connection.
async fn carry(
    (worker, plan, index): (Rc<Worker>, Rc<WorkerPlan>, usize),
    tether: Rc<Tether>,
    (quic, id): (Rc<Quic>, StreamId),
    active: Active,
) {
    // By the index of that plan: another may have been taken over since.
    let found = plan.listeners.get(index).and_then(|listener| Some((listener, listener.http()?)));
    let Some((listener, http)) = found else {
        quic.reset(id, code::REQUEST_REJECTED);
        return quic.stop(id, code::REQUEST_REJECTED);
    };
    let registration = worker.registry.register_carried(&tether);
    poll_fn(|cx| {
        registration.tether.set_waker(cx.waker());
        Poll::Ready(())
    })
    .await;
    let now = Instant::now();
    let is_early = !quic.is_connected();
    let mut stream = Stream::new(quic.clone(), id, http.head_bytes_max, active.0.counts.clone());
    let mut watch = Watch::new(now, http.head_timeout, registration.tether.clone());
    let mut incoming = worker.take_request();
    let limits = HeadLimits { head_bytes_max: http.head_bytes_max, fields_max: http.fields_max };
    let read = receive(&worker, (&mut stream, &mut watch), (&limits, &mut incoming.head)).await;
    let whole = Instant::now();
    watch.set(whole, http.stream_timeout);
    let parsed = match read {
        Ok(parsed) => Ok(parsed),
        Err(NoRequest::Fault(fault)) => Err(fault),
        Err(NoRequest::Other) => {
            worker.give_request(incoming);
            if stream.is_spoilt() {
                active.0.note_discarded();
            }
            return;
        }
    };
    if parsed.as_ref().is_ok_and(|parsed| parsed.upgrade) {
        websocket::give_key(&mut incoming.head, || worker.random.next());
    }
    let mut connection = Connection {
        io: Io::Stream(Box::new(MessageStream::Http3(stream))),
        facts: active.0.facts.borrow().clone(),
        watch,
        received: None,
        tether: registration.tether.clone(),
        requests: 1,
        leaves_by_end: false,
        is_early,
        is_cut_short: false,
    };
    let arrived = Arrived { incoming, arrival: Arrival { begun: Some(now), whole: Some(whole) }, parsed };
    exchange::carry(&worker, (&plan, listener, http), &mut connection, arrived).await;
    if let Some(buffer) = connection.received.take() {
        worker.buffers.give(buffer);
    }
    let Connection { io, watch, .. } = &mut connection;
    if let Some(stream) = io.message()
        && stream.awaits_end()
    {
        super::linger(stream, watch).await;
    }
    if let Some(MessageStream::Http3(stream)) = connection.io.message() {
        active.0.note_end(stream, now);
    }
}

/// How receiving a head ended when there is none.
enum NoRequest {
    /// There is nobody, or nothing, to answer.
    Other,
    /// What came is no acceptable request.
    Fault(Fault),
}

/// Reads the head of a request.
async fn receive(
    worker: &Worker,
    (stream, watch): (&mut Stream, &mut Watch),
    (limits, head): (&HeadLimits, &mut model::RequestHead),
) -> Result<RequestParsed, NoRequest> {
    let come = poll_fn(|cx| match stream.poll_head(cx) {
        Poll::Ready(come) => Poll::Ready(Ok(come)),
        Poll::Pending => watch.poll(cx).map(|()| Err(watch.fault(Fault::HeadTimeout))),
    });
    let ends = match come.await {
        Ok(Ok(ends)) => ends,
        Ok(Err(NoHead::TooLarge)) => return Err(NoRequest::Fault(Fault::HeadTooLarge)),
        Ok(Err(NoHead::Incomplete)) => {
            stream.refuse(code::REQUEST_INCOMPLETE);
            return Err(NoRequest::Other);
        }
        Ok(Err(NoHead::Gone | NoHead::Reset(_) | NoHead::Refused)) => return Err(NoRequest::Other),
        Err(fault) => return Err(NoRequest::Fault(fault)),
    };
    let read = message::read_request(stream.section(), (limits, ends), &mut worker.sections.borrow_mut(), head);
    stream.begin_body();
    let mut parsed = read.map_err(|bad| match bad {
        BadHead::Fault(fault) => NoRequest::Fault(fault),
        BadHead::Malformed(fault) => {
            // RFC 9114 section 4.1.2. The record tells of it, and the client by this code.
            stream.refuse(code::MESSAGE_ERROR);
            NoRequest::Fault(fault)
        }
        BadHead::Undecodable => {
            stream.end_connection(code::DECOMPRESSION_FAILED);
            NoRequest::Other
        }
    })?;
    let has_no_body = matches!(head.method, Method::Get | Method::Head | Method::Options | Method::Trace);
    if has_no_body && parsed.framing == Framing::Chunked && ends_soon(stream, watch).await {
        parsed.framing = Framing::None;
    }
    Ok(parsed)
}

/// Whether a message that should have no body ends without one. Some clients say so a moment after its head, and an endpoint
/// that knows it need not be told of chunks, nor is the request any less one that can be sent again.
async fn ends_soon(stream: &mut Stream, watch: &mut Watch) -> bool {
    watch.set(Instant::now(), HTTP3_END_PATIENCE);
    poll_fn(|cx| match stream.poll_read_ready(cx) {
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending => watch.poll(cx),
    })
    .await;
    stream.is_over()
}
