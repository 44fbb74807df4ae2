//! A connection of HTTP/2 to an endpoint while it lives.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use model::limits::{
    UPSTREAM_FRAME_OVERHEAD_BYTES_MAX, UPSTREAM_HEAD_READ_BYTES_MAX, UPSTREAM_STREAM_SEND_BYTES_MAX,
    UPSTREAM_STREAM_WINDOW_BYTES, UPSTREAM_STREAM_WINDOW_BYTES_MAX, UPSTREAM_STREAMS_LEFT_KEPT,
    UPSTREAM_STREAMS_LEFT_MAX,
};
use plan::trunk::{Step, Window};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::trunk::{Trunk, Trunks};
use crate::http2::Taken;
use crate::io::Io;

/// Largest window (RFC 9113 section 6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// An answer to a PING: a frame's head and 8 bytes (RFC 9113 section 6.7).
const PONG_BYTES: u64 = 17;
/// PINGs while an endpoint says nothing else. Those that speak gRPC close a connection on which more come than that, as if
/// they were an attack.
const PINGS_IN_SILENCE_MAX: u32 = 2;
/// How long an endpoint may take to say anything after something has begun on a connection that was at rest, before others go elsewhere.
const WORD_PATIENCE: Duration = Duration::from_secs(1);

/// Sends the preface and waits for the endpoint's settings: only they say how many streams it allows, and that it speaks
/// HTTP/2 at all. `None`: it does not, or has closed.
pub(super) async fn shake_hands(trunks: &Trunks, io: Io) -> Option<(SendRequest<Bytes>, Box<Driver>)> {
    let heard = Rc::new(Cell::new(0));
    let handshake = Builder::new()
        .enable_push(false)
        .initial_window_size(UPSTREAM_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(connection_window(trunks, UPSTREAM_STREAM_WINDOW_BYTES))
        .data_frame_budget(UPSTREAM_FRAME_OVERHEAD_BYTES_MAX)
        .max_header_list_size(UPSTREAM_HEAD_READ_BYTES_MAX)
        .max_send_buffer_size(UPSTREAM_STREAM_SEND_BYTES_MAX)
        // Guards against clients, and the peer is an endpoint: what still comes for streams that clients have left must
        // not end the connection of all others.
        .max_local_error_reset_streams(None)
        .max_concurrent_reset_streams(UPSTREAM_STREAMS_LEFT_MAX)
        .reset_stream_duration(UPSTREAM_STREAMS_LEFT_KEPT)
        // Until the settings have come.
        .initial_max_send_streams(0)
        .handshake::<_, Bytes>(Transport { io, heard: heard.clone() });
    let (sender, mut connection) = handshake.await.ok()?;
    let pings = connection.ping_pong();
    let is_ready = poll_fn(|cx| {
        if Pin::new(&mut connection).poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        if connection.max_concurrent_send_streams() == 0 { Poll::Pending } else { Poll::Ready(true) }
    });
    let windows = Windows {
        plan: Window::new(UPSTREAM_STREAM_WINDOW_BYTES, UPSTREAM_STREAM_WINDOW_BYTES_MAX),
        taken: Rc::new(Taken::new(UPSTREAM_STREAM_WINDOW_BYTES)),
        asked_at: None,
    };
    is_ready.await.then(|| (sender, Box::new(Driver { connection, pings, heard, windows })))
}

/// What all streams together may be ahead of their readers, each by so much.
fn connection_window(trunks: &Trunks, stream: u32) -> u32 {
    let window = u64::from(stream) * u64::from(trunks.shared.streams_max);
    window.min(u64::from(WINDOW_MAX)) as u32
}

/// How windows grow, see [`Window`]. The time of the way there and back is that of a PING: a kernel knows only the next that
/// ends TCP. It is sent once a reader has taken a window, never for small answers, and not any more once an endpoint is known to be near.
struct Windows {
    plan: Window,
    taken: Rc<Taken>,
    /// A PING is under way that measures.
    asked_at: Option<Instant>,
}

impl Windows {
    /// Whether a PING is under way for them, which tells as well whether the endpoint is there.
    fn measures(&self) -> bool {
        self.asked_at.is_some()
    }

    /// The endpoint has answered a PING.
    fn note_pong(&mut self) {
        if let Some(asked_at) = self.asked_at.take() {
            self.plan.note_round_trip(asked_at.elapsed());
        }
    }

    /// Moves the connection until it has nothing to do, which may be to open windows further. Ready: it has ended.
    fn poll(
        &mut self,
        cx: &mut TaskContext<'_>,
        trunks: &Trunks,
        (connection, pings): (&mut Connection<Transport, Bytes>, &mut Option<PingPong>),
    ) -> Poll<()> {
        loop {
            if Pin::new(&mut *connection).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if !self.look(trunks, connection, pings.as_mut()) {
                return Poll::Pending;
            }
        }
    }

    /// Looks whether readers have taken as much as they may have ahead of them. True: the connection has something to say.
    fn look(
        &mut self,
        trunks: &Trunks,
        connection: &mut Connection<Transport, Bytes>,
        pings: Option<&mut PingPong>,
    ) -> bool {
        if !self.taken.take_turn() {
            return false;
        }
        let now = Instant::now();
        let mut plan = self.plan;
        let step = plan.note_filled(now);
        if let Step::Grow(bytes) = step {
            if connection.set_initial_window_size(bytes).is_err() {
                // The endpoint has not acknowledged those before.
                return false;
            }
            connection.set_target_window_size(connection_window(trunks, bytes));
            self.taken.set_window(bytes);
        }
        self.plan = plan;
        if step != Step::Rest
            && self.asked_at.is_none()
            && let Some(pings) = pings
            && pings.send_ping(Ping::opaque()).is_ok()
        {
            self.asked_at = Some(now);
        }
        step != Step::Rest
    }
}

/// A connection that is open.
pub(super) struct Driver {
    connection: Connection<Transport, Bytes>,
    pings: Option<PingPong>,
    heard: Rc<Cell<u64>>,
    windows: Windows,
}

impl Driver {
    /// What the readers of its responses have taken.
    pub(super) fn taken(&self) -> &Rc<Taken> {
        &self.windows.taken
    }

    /// Until the connection has ended, or the endpoint does not answer any more.
    pub(super) async fn drive(&mut self, trunks: &Trunks, trunk: &Trunk) {
        let Self { connection, pings, heard, windows } = self;
        let (interval, timeout) = (trunks.shared.ping_interval, trunks.shared.ping_timeout);
        let mut timer: Pin<Box<Sleep>> = Box::pin(tokio::time::sleep(interval));
        let (mut is_asked, mut asked_in_vain) = (false, 0);
        // What is left of the time to answer when others have begun to go elsewhere.
        let mut grace = Duration::ZERO;
        let mut is_ending = false;
        poll_fn(|cx| {
            if windows.poll(cx, trunks, (connection, pings)).is_ready() {
                return Poll::Ready(());
            }
            if !is_ending && trunk.is_over(cx) {
                // Only last words are left, and an endpoint that does not read would never let them go.
                is_ending = true;
                timer.as_mut().reset(tokio::time::Instant::now() + timeout);
            }
            if let Some(pings) = pings.as_mut().filter(|_| is_asked || windows.measures())
                && pings.poll_pong(cx).is_ready()
            {
                is_asked = false;
                windows.note_pong();
            }
            trunk.doubt(trunk.is_doubtful() && heard.get() == 0);
            if trunk.take_rest()
                && !(is_asked || is_ending)
                && asked_in_vain < PINGS_IN_SILENCE_MAX
                && let Some(pings) = pings.as_mut()
            {
                // What came before says nothing of now.
                heard.set(0);
                asked_in_vain += 1;
                is_asked = windows.measures() || ask(pings, cx);
                grace = timeout.saturating_sub(WORD_PATIENCE);
                timer.as_mut().reset(tokio::time::Instant::now() + (timeout - grace));
            }
            while timer.as_mut().poll(cx).is_ready() {
                if is_ending {
                    return Poll::Ready(());
                }
                let heard_bytes = heard.take();
                let has_spoken = heard_bytes > 0;
                let left = std::mem::take(&mut grace);
                if is_asked && !has_spoken {
                    if left.is_zero() {
                        trunk.note_silence();
                        return Poll::Ready(());
                    }
                    trunk.doubt(true);
                    timer.as_mut().reset(tokio::time::Instant::now() + left);
                    continue;
                }
                if heard_bytes > PONG_BYTES {
                    asked_in_vain = 0;
                }
                if !trunk.is_busy() && !trunks.keeps_idle() {
                    trunk.close();
                }
                let asks = !has_spoken && trunk.is_busy() && asked_in_vain < PINGS_IN_SILENCE_MAX;
                if asks && let Some(pings) = pings.as_mut() {
                    asked_in_vain += 1;
                    is_asked = windows.measures() || ask(pings, cx);
                }
                let after = if is_asked { timeout } else { interval };
                timer.as_mut().reset(tokio::time::Instant::now() + after);
            }
            Poll::Pending
        })
        .await;
    }
}

/// Sends a PING. Whether it waits for its answer.
fn ask(pings: &mut PingPong, cx: &mut TaskContext<'_>) -> bool {
    pings.send_ping(Ping::opaque()).is_ok() && pings.poll_pong(cx).is_pending()
}

/// Bytes for an HTTP/2 connection, which notes when the endpoint has said something.
struct Transport {
    io: Io,
    heard: Rc<Cell<u64>>,
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        ready!(this.io.poll_read_buf(cx, into))?;
        // The end is heard of too.
        let count = into.filled().len() - before;
        this.heard.set(this.heard.get() + count.max(1) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().io.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().io.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io.poll_shutdown(cx)
    }
}
