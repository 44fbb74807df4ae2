//! A connection of HTTP/2 to an endpoint while it lives.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use model::limits::{HTTP2_GATHERED_BYTES_MAX, UPSTREAM_STREAM_WINDOW_BYTES, UPSTREAM_STREAM_WINDOW_BYTES_MAX};
use plan::shared_connection::{Step, Window};
use tokio::time::Sleep;
use wire::http2::code;

use super::connection::SharedConnection;
use super::connections::SharedConnections;
use crate::buffer::BufferPool;
use crate::byte_stream::ByteStream;
use crate::http2::upstream::{SharedState, State};

/// Largest window (RFC 9113 section 6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// An answer to a PING: a frame's head and 8 bytes (RFC 9113 section 6.7).
const PONG_BYTES: u64 = 17;
/// PINGs while an endpoint says nothing else. Those that speak gRPC close a connection on which more come than that, as if
/// they were an attack.
const PINGS_IN_SILENCE_MAX: u32 = 2;
/// How long an endpoint may take to say anything after something has begun on a connection that was at rest, before others go elsewhere.
const WORD_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes that wait to be sent before nothing more is read. Bodies leave room below it for the answers that frames of an endpoint ask
/// for: one that writes before it reads again would otherwise wait for us, and we for it.
const WAITING_BYTES_MAX: usize = 4 * HTTP2_GATHERED_BYTES_MAX;
/// Reads of a connection before others get a turn.
const READS_PER_TURN_MAX: usize = 16;

/// Sends the preface and waits for the endpoint's settings: only they say how many streams it allows, and that it speaks
/// HTTP/2 at all. `None`: it does not, or has closed.
pub(super) async fn shake_hands(
    connections: &SharedConnections,
    io: ByteStream,
    buffers: Rc<BufferPool>,
) -> Option<Box<Driver>> {
    let stream = UPSTREAM_STREAM_WINDOW_BYTES;
    let windows = (stream, connection_window(connections, stream));
    let state = poll_once(|cx| Rc::new(RefCell::new(State::new(io, cx.waker(), windows, Instant::now())))).await;
    let plan = Window::new(stream, UPSTREAM_STREAM_WINDOW_BYTES_MAX);
    let windows = Windows { plan, asked_at: None };
    let mut driver = Box::new(Driver { state, buffers, heard_bytes: 0, is_held: false, is_pinged: false, windows });
    let is_ready = poll_fn(|cx| {
        if driver.poll_io(cx).is_ready() {
            return Poll::Ready(false);
        }
        let state = driver.state.borrow();
        let is_ready = state.core.has_settings() && state.streams_allowed() != Some(0);
        if is_ready { Poll::Ready(true) } else { Poll::Pending }
    });
    is_ready.await.then_some(driver)
}

async fn poll_once<T>(make: impl FnOnce(&TaskContext<'_>) -> T) -> T {
    let mut make = Some(make);
    poll_fn(|cx| make.take().map_or(Poll::Pending, |make| Poll::Ready(make(cx)))).await
}

/// What all streams together may be ahead of their readers, each by so much.
fn connection_window(connections: &SharedConnections, stream: u32) -> u32 {
    let window = u64::from(stream) * u64::from(connections.shared.streams_max);
    window.min(u64::from(WINDOW_MAX)) as u32
}

/// How windows grow, see [`Window`]. The time of the way there and back is that of a PING: a kernel knows only the next that
/// ends TCP. It is sent once a reader has taken a window, never for small answers, and not any more once an endpoint is known to be near.
struct Windows {
    plan: Window,
    /// A PING that measures awaits its answer.
    asked_at: Option<Instant>,
}

impl Windows {
    /// Whether a PING for them awaits its answer, which also shows that the endpoint is there.
    fn measures(&self) -> bool {
        self.asked_at.is_some()
    }

    /// The endpoint has answered a PING.
    fn note_pong(&mut self) {
        if let Some(asked_at) = self.asked_at.take() {
            self.plan.note_round_trip(asked_at.elapsed());
        }
    }
}

/// A connection that is open.
pub(super) struct Driver {
    state: SharedState,
    buffers: Rc<BufferPool>,
    /// Bytes that came since this was asked last.
    heard_bytes: u64,
    /// Nothing more was read, for too much waits to be sent.
    is_held: bool,
    /// A PING awaits its answer.
    is_pinged: bool,
    windows: Windows,
}

impl Driver {
    /// What its streams share.
    pub(super) fn state(&self) -> &SharedState {
        &self.state
    }

    /// Until the connection has ended, or the endpoint does not answer any more.
    pub(super) async fn drive(&mut self, connections: &SharedConnections, connection: &SharedConnection) {
        let interval = connections.shared.ping_interval;
        let timer = Box::pin(tokio::time::sleep(interval));
        let mut watch = Watch { timer, is_asked: false, asked_in_vain: 0, grace: Duration::ZERO, is_ending: false };
        poll_fn(|cx| self.poll(cx, (connections, connection), &mut watch)).await;
    }

    fn poll(
        &mut self,
        cx: &mut TaskContext<'_>,
        (connections, connection): (&SharedConnections, &SharedConnection),
        watch: &mut Watch,
    ) -> Poll<()> {
        loop {
            if self.poll_io(cx).is_ready() {
                return Poll::Ready(());
            }
            if !self.look_at_windows(connections) {
                break;
            }
        }
        if self.state.borrow().streams_allowed().is_none() {
            connection.close();
        }
        let timeout = connections.shared.ping_timeout;
        if !watch.is_ending && connection.is_over(cx) {
            // Only last words are left, and an endpoint that does not read would never let them go.
            watch.is_ending = true;
            self.state.borrow_mut().abort(code::NO_ERROR);
            watch.timer.as_mut().reset(tokio::time::Instant::now() + timeout);
        }
        if watch.is_ending && self.state.borrow_mut().output.poll_end(cx).is_ready() {
            return Poll::Ready(());
        }
        if self.state.borrow_mut().take_pong() {
            self.is_pinged = false;
            watch.is_asked = false;
            self.windows.note_pong();
        }
        connection.doubt(connection.is_doubtful() && self.heard_bytes == 0);
        if connection.take_rest() && !(watch.is_asked || watch.is_ending) && watch.asked_in_vain < PINGS_IN_SILENCE_MAX
        {
            // What came before says nothing of now.
            self.heard_bytes = 0;
            watch.asked_in_vain += 1;
            watch.is_asked = self.ask();
            watch.grace = timeout.saturating_sub(WORD_PATIENCE);
            watch.timer.as_mut().reset(tokio::time::Instant::now() + (timeout - watch.grace));
        }
        while watch.timer.as_mut().poll(cx).is_ready() {
            if watch.is_ending || self.note_time(connections, connection, watch) {
                return Poll::Ready(());
            }
        }
        self.poll_send(cx)
    }

    /// The timer rang, and is set again. True: the endpoint does not answer any more.
    fn note_time(&mut self, connections: &SharedConnections, connection: &SharedConnection, watch: &mut Watch) -> bool {
        let heard_bytes = std::mem::take(&mut self.heard_bytes);
        let has_spoken = heard_bytes > 0;
        let left = std::mem::take(&mut watch.grace);
        if watch.is_asked && !has_spoken {
            if left.is_zero() {
                connection.note_silence();
                return true;
            }
            connection.doubt(true);
            watch.timer.as_mut().reset(tokio::time::Instant::now() + left);
            return false;
        }
        if heard_bytes > PONG_BYTES {
            watch.asked_in_vain = 0;
        }
        if !connection.is_busy() && !connections.keeps_idle() {
            connection.close();
        }
        if !has_spoken && connection.is_busy() && watch.asked_in_vain < PINGS_IN_SILENCE_MAX {
            watch.asked_in_vain += 1;
            watch.is_asked = self.ask();
        }
        let (interval, timeout) = (connections.shared.ping_interval, connections.shared.ping_timeout);
        let after = if watch.is_asked { timeout } else { interval };
        watch.timer.as_mut().reset(tokio::time::Instant::now() + after);
        false
    }

    /// Asks whether the endpoint is there, unless a PING that measures awaits its answer. Returns whether an answer is awaited.
    fn ask(&mut self) -> bool {
        self.windows.measures() || self.ping()
    }

    /// Sends a PING, unless one awaits its answer.
    fn ping(&mut self) -> bool {
        if std::mem::replace(&mut self.is_pinged, true) {
            return false;
        }
        self.state.borrow_mut().ping();
        true
    }

    /// Looks whether readers have taken as much as they may have ahead of them. True: there is something to say.
    fn look_at_windows(&mut self, connections: &SharedConnections) -> bool {
        if !self.state.borrow_mut().peer.taken.take_turn() {
            return false;
        }
        let now = Instant::now();
        let step = self.windows.plan.note_filled(now);
        if let Step::Grow(bytes) = step {
            self.state.borrow_mut().grow_windows(bytes, connection_window(connections, bytes));
        }
        if step != Step::Rest && !self.windows.measures() && self.ping() {
            self.windows.asked_at = Some(now);
        }
        step != Step::Rest
    }

    /// Sends what waits, and reads what is here as long as not too much waits. Ready: the connection has ended.
    fn poll_io(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.poll_send(cx).is_ready() {
            return Poll::Ready(());
        }
        let received = self.receive(cx);
        // Why a connection ends is said if that can be done at once.
        if self.poll_send(cx).is_ready() || received.is_ready() {
            return Poll::Ready(());
        }
        if std::mem::take(&mut self.is_held) && self.state.borrow().output.waiting_bytes() < WAITING_BYTES_MAX {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn poll_send(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        match self.state.borrow_mut().poll_send(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    fn receive(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        for _ in 0..READS_PER_TURN_MAX {
            let mut state = self.state.borrow_mut();
            if state.output.waiting_bytes() >= WAITING_BYTES_MAX {
                self.is_held = true;
                return Poll::Pending;
            }
            let Poll::Ready(read) = state.output.poll_read(cx, &self.buffers) else { return Poll::Pending };
            // The end is heard of too.
            self.heard_bytes += read.as_ref().map_or(1, |buffer| buffer.len() as u64);
            let Some(buffer) = read else { return Poll::Ready(()) };
            let taken = state.take_in(buffer.data());
            self.buffers.give(buffer);
            if taken.is_err() {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Streams that are left see that their connection is gone.
        self.state.borrow_mut().let_go();
    }
}

/// When the endpoint is asked whether it is there, and how long its answer may take.
struct Watch {
    timer: Pin<Box<Sleep>>,
    is_asked: bool,
    asked_in_vain: u32,
    /// What is left of the time to answer when others have begun to go elsewhere.
    grace: Duration,
    is_ending: bool,
}
