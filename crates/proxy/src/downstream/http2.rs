//! The life of a client's HTTP/2 connection (RFC 9113).
//!
//! ```text
//! preface ──► serve ──┬── a stream ──► an exchange of its own, as on any connection: here (inline.rs), or by a task while
//!                     │      another is carried here
//!                     ├── nothing to do for too long, the listener gone, requests enough:
//!                     │      GOAWAY, what is begun is finished, GOAWAY with the last stream (section 6.8), end
//!                     └── rules broken, frames of no use: GOAWAY with the reason, end
//! ```
//!
//! This task drives the connection and begins streams; it knows nothing of what they carry. A stream has its own
//! [`Connection`], so that an exchange sees no difference: its own watch, its own place in the registry unless it is carried
//! here, its window as the only thing that holds it back.

mod end;
mod inline;
mod receive;
mod shared;
mod stream_task;
mod waker;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::Instant;

use model::Fault;
use wire::http2::code;

use self::inline::Inline;
use self::shared::{Ended, Shared, fault_of, limits_of};
use self::waker::FlagWaker;
use super::exchanges::Exchanges;
use super::shutdown::{self, Phase};
use crate::buffer::Buffer;
use crate::connection::{Connection, ConnectionFacts};
use crate::http2::downstream::State;
use crate::registry::{ListenerHandle, Registration};
use crate::watch::Watch;
use crate::worker::Worker;

/// A connection while it lives.
struct Session<'w> {
    worker: &'w Rc<Worker>,
    shared: Rc<Shared>,
    registration: Rc<Registration>,
    watch: Watch,
    /// Wakes for the socket, and not while only the inline stream has something to do.
    socket: Arc<FlagWaker>,
    socket_waker: Waker,
    inline: &'w mut Inline,
    /// What was read and not looked at: before it was known that this is HTTP/2, or while much waited for the client.
    early: Option<Buffer>,
    /// There may be something to read.
    wants_read: bool,
    /// What the inline stream has written was left to the next turn.
    has_deferred: bool,
    /// The settings of the client are here.
    is_greeted: bool,
    /// Streams begun.
    accepted: u64,
    phase: Phase,
    /// When GOAWAY was sent.
    told_at: Option<Instant>,
    /// GOAWAY is sent, and nothing is in progress any more.
    is_last_call: bool,
    /// The client begins no more streams.
    is_unresponsive: bool,
    /// Why the connection ends, if that is a fault.
    fault: Option<Fault>,
    /// Signs of life that were seen when the watch rang last.
    seen_stirs: u64,
    /// A PING was sent then.
    is_pinged: bool,
}

/// Carries a connection, whose preface may have been read already, to its end.
pub(crate) async fn serve(worker: &Rc<Worker>, connection: Connection) {
    let facts = connection.facts.clone();
    let handle = connection.registration.handle.clone();
    if let Err(fault) = run(worker, connection).await {
        tell(worker, &handle, &facts, fault);
    }
}

/// Records a fault that belongs to no exchange.
fn tell(worker: &Worker, handle: &ListenerHandle, facts: &ConnectionFacts, fault: Fault) {
    let plan = worker.plan_of(handle);
    if let Some(listener) = plan.listeners.get(handle.index.get()) {
        listener.series.of(worker.index).fault(fault);
    }
    worker.log_failure(facts, fault);
}

async fn run(worker: &Rc<Worker>, connection: Connection) -> Result<(), Fault> {
    let plan = worker.plan_of(&connection.registration.handle);
    let Some((_, http)) = plan.http_listener(&connection.registration) else { return Ok(()) };
    let Connection { io, facts, mut watch, received, registration, .. } = connection;
    let Some(io) = io.into_connection() else { return Ok(()) };
    let now = Instant::now();
    watch.set_bound(None);
    watch.set(now, http.head_timeout);
    let limits = limits_of(http);
    let (task, socket, mut inline) = poll_fn(|cx| {
        let inline = Inline::new(cx.waker(), registration.clone());
        Poll::Ready((cx.waker().clone(), FlagWaker::new(cx.waker()), inline))
    })
    .await;
    let socket_waker = Waker::from(socket.clone());
    let state = Rc::new(RefCell::new(State::new(io, limits, (&task, &socket_waker), now)));
    drop(plan);
    let shared = Rc::new(Shared { facts, state, exchanges: Exchanges::new(now), spare: RefCell::new(None) });
    let mut session = Session {
        worker,
        shared: shared.clone(),
        registration,
        watch,
        socket_waker,
        socket,
        inline: &mut inline,
        early: received,
        wants_read: true,
        has_deferred: false,
        is_greeted: false,
        accepted: 0,
        phase: Phase::Open,
        told_at: None,
        is_last_call: false,
        is_unresponsive: false,
        fault: None,
        seen_stirs: 0,
        is_pinged: false,
    };
    let outcome = poll_fn(|cx| session.poll(cx)).await;
    drop(session);
    // Streams that are left see that their connection is gone.
    shared.state.borrow_mut().let_go();
    poll_fn(|cx| {
        shared.exchanges.wake_at_end(cx.waker());
        if inline.is_called() {
            inline.poll();
        }
        if shared.exchanges.is_at_rest() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcome
}

impl Session<'_> {
    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        // What wakes from now on asks for another turn.
        self.wants_read |= self.socket.take();
        if self.inline.is_called() && self.poll_inline() {
            return Poll::Pending;
        }
        self.shared.state.borrow_mut().is_attended = true;
        let outcome = self.advance(cx);
        self.shared.state.borrow_mut().is_attended = false;
        outcome
    }

    /// Lets the inline stream go on. True: what it has to say wakes this task once more, behind the others that are woken
    /// already, so that what all of them have to say leaves in one call.
    fn poll_inline(&mut self) -> bool {
        let is_alone = self.shared.exchanges.active() < 2;
        let mut state = self.shared.state.borrow_mut();
        // Where something waits already, it is for that that this task was woken.
        let is_awaited = state.has_output || self.wants_read || self.has_deferred || self.registration.is_cut();
        let may_defer = !is_alone && !is_awaited;
        state.is_attended = !may_defer;
        drop(state);
        self.inline.poll();
        let state = self.shared.state.borrow();
        // A socket that is not writable wakes no task for new output.
        self.has_deferred = may_defer && state.has_output && !state.output.is_blocked();
        self.has_deferred
    }

    /// Reads, sends, and looks after the connection until there is nothing more to do.
    fn advance(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        loop {
            if self.phase == Phase::Closing {
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
            if self.wants_read && self.shared.state.borrow().output.has_room() {
                continue;
            }
            if self.phase == Phase::Open && !self.may_go_on() {
                self.announce_shutdown();
                continue;
            }
            if self.phase != Phase::Open || self.is_unresponsive || self.registration.is_cut() {
                self.shared.exchanges.wake_at_end(&self.socket_waker);
            }
            let is_at_rest = self.shared.exchanges.is_at_rest();
            if self.registration.is_cut() {
                // Its exchanges are cut as well, and tell their clients as far as that is possible.
                return if is_at_rest { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if self.phase == Phase::Announced && self.shared.state.borrow().has_sent_final_goaway() {
                self.phase = Phase::Last;
            }
            if is_at_rest && self.phase == Phase::Last {
                self.begin_to_close();
                continue;
            }
            if is_at_rest && self.is_unresponsive {
                self.close(code::NO_ERROR);
                continue;
            }
            if self.phase.is_leaving() && is_at_rest && !self.is_last_call {
                // The client may still begin a stream, or answer our PING.
                self.is_last_call = true;
                let patience = self.registration.handle.last_call();
                self.watch.set(Instant::now(), patience);
            }
            ready!(self.watch.poll(cx));
            if self.is_over(Instant::now()) {
                return Poll::Ready(self.end());
            }
        }
    }

    fn poll_send(&self) -> Poll<std::io::Result<()>> {
        self.shared.state.borrow_mut().poll_send(&mut TaskContext::from_waker(&self.socket_waker))
    }

    /// Sends what is left and waits for the client's end, for a while.
    fn poll_close(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        let closed = {
            let cx = &mut TaskContext::from_waker(&self.socket_waker);
            let state = &mut *self.shared.state.borrow_mut();
            state.has_output = false;
            state.output.poll_close(cx)
        };
        if closed.is_pending() {
            ready!(self.watch.poll(cx));
        }
        Poll::Ready(self.end())
    }
}
