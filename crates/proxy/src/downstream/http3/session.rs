//! The task of a connection: looks after it, and begins streams.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::{Duration, Instant};

use model::Fault;
use model::limits::{
    HTTP3_DISCARDED_MAX, HTTP3_DISCARDED_PER_SECOND, HTTP3_IDLE_FRAMES_MAX, HTTP3_IDLE_FRAMES_PER_SECOND, HTTP3_PING,
    HTTP3_STREAMS_MAX, LINGER,
};
use model::snapshot::HttpListener;
use quinn_proto::{Dir, VarInt};
use wire::http2::Allowance;
use wire::http3::{VARINT_MAX, code};

use super::handshakes::Handshake;
use super::shared::Shared;
use super::stream_task::{Active, carry};
use crate::boxed::boxed;
use crate::connection::ConnectionFacts;
use crate::downstream::exchanges::Exchanges;
use crate::downstream::served::Served;
use crate::downstream::shutdown::{self, Phase};
use crate::http3::{CloseReason, Control, Quic, local_of};
use crate::per_address;
use crate::registry::{LAST_CALL, ListenerHandle, Registration};
use crate::tls;
use crate::watch::Watch;
use crate::worker::{Open, Worker};

/// Where the ids of goodbyes begin that leave room for what is on its way: the last that a client could begin.
const LAST_STREAM_ID: u64 = VARINT_MAX - 3;

/// A connection while it lives.
struct Session {
    worker: Rc<Worker>,
    quic: Rc<Quic>,
    shared: Rc<Shared>,
    registration: Rc<Registration>,
    watch: Watch,
    handshake: Option<Handshake>,
    control: Control,
    /// Streams begun.
    accepted: u64,
    /// The id that follows that of the last one.
    next_id: u64,
    phase: Phase,
    /// Why we have closed it.
    closed_for: Option<Fault>,
    /// The listener closes during the handshake, which gets little more time.
    is_hurried: bool,
}

/// Carries a connection to its end.
pub(super) async fn serve(
    worker: Rc<Worker>,
    quic: Rc<Quic>,
    handle: Rc<ListenerHandle>,
    (facts, handshake): (ConnectionFacts, Handshake),
    _open: Open,
) {
    let now = Instant::now();
    let registered = worker.registry.register_client(handle, facts.peer, now);
    poll_fn(|cx| {
        registered.registration.set_waker(cx.waker());
        Poll::Ready(())
    })
    .await;
    let registration = registered.registration.clone();
    let plan = worker.plan_of(&registration.handle);
    let Some((listener, _)) = plan.http_listener(&registration) else { return quic.close(code::NO_ERROR) };
    let handshake_timeout = listener.tls.as_ref().map_or(LAST_CALL, |tls| tls.handshake_timeout);
    drop(plan);
    let shared = Rc::new(Shared {
        facts: RefCell::new(Rc::new(facts)),
        counts: Rc::default(),
        allowance: Allowance::new(HTTP3_IDLE_FRAMES_MAX, HTTP3_IDLE_FRAMES_PER_SECOND, now).into(),
        discards: Allowance::new(HTTP3_DISCARDED_MAX, HTTP3_DISCARDED_PER_SECOND, now).into(),
        exchanges: Exchanges::new(now),
    });
    let mut session = Session {
        worker: worker.clone(),
        quic: quic.clone(),
        shared: shared.clone(),
        watch: Watch::new(now, handshake_timeout, registration.clone()),
        registration,
        handshake: Some(handshake),
        control: Control::towards_client(quic.clone()),
        accepted: 0,
        next_id: 0,
        phase: Phase::Open,
        closed_for: None,
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
        shared.exchanges.wake_at_end(cx.waker());
        if shared.exchanges.is_at_rest() { Poll::Ready(()) } else { Poll::Pending }
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
            if self.registration.is_cut() {
                // Its exchanges are cut as well, and tell their client as far as that is possible.
                self.shared.exchanges.wake_at_end(cx.waker());
                return if self.shared.exchanges.is_at_rest() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if self.handshake.is_some() && self.quic.is_connected() {
                self.begin();
            }
            if self.handshake.is_some()
                && self.registration.is_closing()
                && !std::mem::replace(&mut self.is_hurried, true)
            {
                let patience = self.registration.handle.last_call();
                self.watch.set(Instant::now(), patience);
            }
            self.speak(cx);
            if let Err(code) = self.control.listen(cx) {
                self.quic.close(code);
                continue;
            }
            self.take_streams();
            if !self.shared.is_bearable(std::mem::take(&mut self.control.peer.idle)) {
                self.closed_for = Some(Fault::Http3Flood);
                self.quic.close(code::EXCESSIVE_LOAD);
                continue;
            }
            if self.handshake.is_none() && self.phase == Phase::Open && !self.may_go_on() {
                self.announce_shutdown();
                continue;
            }
            if self.phase == Phase::Last && self.shared.exchanges.is_at_rest() {
                self.phase = Phase::Closing;
                self.watch.set(Instant::now(), LINGER);
            }
            if self.phase == Phase::Closing && self.control.is_said() && self.is_all_received() {
                return Poll::Ready(Ok(()));
            }
            if self.phase != Phase::Open || self.is_full() {
                self.shared.exchanges.wake_at_end(cx.waker());
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
            handshake.prove();
        }
        let plan = self.worker.plan_of(&self.registration.handle);
        let Some((listener, http)) = plan.http_listener(&self.registration) else { return };
        let shard = listener.series.of(self.worker.index);
        let address = self.shared.facts.borrow().peer.ip();
        match per_address::open(&self.worker, listener, address, Instant::now()) {
            Ok(places) => self.registration.hold(places),
            Err(_) => {
                shard.connections_refused.add(1);
                self.closed_for = Some(Fault::AddressFull);
                self.quic.close(code::EXCESSIVE_LOAD);
            }
        }
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
        let server_name = self.quic.handshake_data().and_then(|data| data.server_name.clone());
        let facts = tls::facts_of_quic(self.quic.certificates().first(), server_name, self.quic.noted());
        let facts = ConnectionFacts {
            peer: before.peer,
            local: before.local,
            tls: Some(Box::new(facts)),
            sender: None,
            listener: before.listener.clone(),
            authenticated_at: before.authenticated_at.clone(),
        };
        *self.shared.facts.borrow_mut() = Rc::new(facts);
    }

    /// Says on our control stream what is to be said.
    fn speak(&mut self, cx: &TaskContext<'_>) {
        let (worker, registration) = (&self.worker, &self.registration);
        self.control.speak(cx, || {
            let plan = worker.plan_of(&registration.handle);
            (plan.http_listener(registration).map_or(0, |(_, http)| http.head_bytes_max as u64), true)
        });
    }

    /// Starts a task for each new stream. No more start while as many exchanges are in flight as streams are allowed, and as many again
    /// that the client has reset.
    fn take_streams(&mut self) {
        while !self.is_full() {
            let Some(id) = self.quic.accept(Dir::Bi) else { return };
            let plan = self.worker.plan_to_carry(&self.registration.handle);
            let may_begin = self.phase.takes_streams();
            let found = plan.http_listener(&self.registration).filter(|_| may_begin);
            let Some((_, http)) = found.filter(|(_, http)| !shutdown::is_enough(http, self.accepted)) else {
                self.shared.counts.idle.set(self.shared.counts.idle.get().saturating_add(1));
                // RFC 9114 section 4.1.1: the client may send it again elsewhere.
                self.quic.reset(id, code::REQUEST_REJECTED);
                self.quic.stop(id, code::REQUEST_REJECTED);
                continue;
            };
            self.accepted += 1;
            self.next_id = u64::from(VarInt::from(id)) + 4;
            if shutdown::is_enough(http, self.accepted) {
                // Those that follow are refused.
                self.send_final_goaway();
            }
            self.follow_client();
            let active = Active::new(&self.shared);
            let index = self.registration.handle.index.get();
            let served = Served { worker: self.worker.clone(), plan, index };
            // Boxed, for a task copies what it carries more than once.
            let carried = boxed(|| carry(served, self.registration.clone(), (self.quic.clone(), id), active));
            tokio::task::spawn_local(carried);
        }
    }

    fn is_full(&self) -> bool {
        self.shared.exchanges.active() >= 2 * HTTP3_STREAMS_MAX as usize
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
                local: local_of(self.quic.socket(), self.quic.local_ip(), facts.local),
                tls: facts.tls.clone(),
                sender: None,
                listener: facts.listener.clone(),
                authenticated_at: facts.authenticated_at.clone(),
            };
            *self.shared.facts.borrow_mut() = Rc::new(moved);
        }
    }

    fn may_go_on(&self) -> bool {
        shutdown::may_go_on(&self.worker, &self.registration, self.accepted)
    }

    /// No new streams; a client that has not heard of it yet may still begin some (RFC 9114 section 5.2).
    fn announce_shutdown(&mut self) {
        self.phase = Phase::Announced;
        self.control.push_goaway(LAST_STREAM_ID);
        self.watch.set(Instant::now(), LAST_CALL.min(self.quic.rtt() * 3 / 2));
    }

    fn send_final_goaway(&mut self) {
        self.phase = Phase::Last;
        self.control.push_goaway(self.next_id);
        if self.handshake.is_none() {
            let plan = self.worker.plan_of(&self.registration.handle);
            let patience = plan.http_listener(&self.registration).map_or(LINGER, |(_, http)| rest(http));
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
        match self.phase {
            Phase::Announced => {
                self.send_final_goaway();
                return None;
            }
            Phase::Closing => return Some(Ok(())),
            Phase::Open | Phase::Last => {}
        }
        let plan = self.worker.plan_of(&self.registration.handle);
        let http = plan.http_listener(&self.registration).map(|(_, http)| http);
        let (rest, idle) = http.map_or((LAST_CALL, LAST_CALL), |http| (rest(http), http.idle_timeout));
        if !self.shared.exchanges.is_at_rest() {
            self.ask_whether_there(now);
            self.watch.set(now, rest);
            return None;
        }
        let rested = now.saturating_duration_since(self.shared.exchanges.rested_at());
        if rested >= idle {
            self.announce_shutdown();
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

    fn why(&self, lost: CloseReason) -> Result<(), Fault> {
        if let Some(fault) = self.closed_for {
            return Err(fault);
        }
        match lost {
            _ if self.handshake.is_some() => Err(Fault::HandshakeFailed),
            // The client itself has closed, has said why, or has gone.
            CloseReason::Closed(_) | CloseReason::Silent | CloseReason::Ours(code::NO_ERROR) => Ok(()),
            CloseReason::Ours(_) | CloseReason::Broken => Err(Fault::Http3Error),
        }
    }

    fn report(&self, outcome: Result<(), Fault>) {
        let Err(fault) = outcome else { return };
        let plan = self.worker.plan_of(&self.registration.handle);
        if let Some(listener) = plan.listeners.get(self.registration.handle.index.get()) {
            let shard = listener.series.of(self.worker.index);
            if self.handshake.is_some() {
                shard.handshakes_failed.add(1);
            }
            shard.fault(fault);
        }
        self.worker.log_failure(&self.shared.facts.borrow(), fault);
    }
}
