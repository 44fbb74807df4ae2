//! A connection of HTTP/2 to an endpoint while it lives.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use model::limits::{
    UPSTREAM_FRAME_OVERHEAD_BYTES_MAX, UPSTREAM_HEAD_READ_BYTES_MAX, UPSTREAM_STREAM_SEND_BYTES_MAX,
    UPSTREAM_STREAM_WINDOW_BYTES, UPSTREAM_STREAMS_LEFT_KEPT, UPSTREAM_STREAMS_LEFT_MAX,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::trunk::{Trunk, Trunks};
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
    let window = u64::from(UPSTREAM_STREAM_WINDOW_BYTES) * u64::from(trunks.shared.streams_max);
    let window = window.min(u64::from(WINDOW_MAX)) as u32;
    let handshake = Builder::new()
        .enable_push(false)
        .initial_window_size(UPSTREAM_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(window)
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
    is_ready.await.then(|| (sender, Box::new(Driver { connection, pings, heard })))
}

/// A connection that is open.
pub(super) struct Driver {
    connection: Connection<Transport, Bytes>,
    pings: Option<PingPong>,
    heard: Rc<Cell<u64>>,
}

impl Driver {
    /// Until the connection has ended, or the endpoint does not answer any more.
    pub(super) async fn drive(&mut self, trunks: &Trunks, trunk: &Trunk) {
        let Self { connection, pings, heard } = self;
        let (interval, timeout) = (trunks.shared.ping_interval, trunks.shared.ping_timeout);
        let mut timer: Pin<Box<Sleep>> = Box::pin(tokio::time::sleep(interval));
        let mut is_asked = false;
        let mut asked_in_vain = 0;
        // What is left of the time to answer when others have begun to go elsewhere.
        let mut grace = Duration::ZERO;
        let mut is_ending = false;
        poll_fn(|cx| {
            if Pin::new(&mut *connection).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if !is_ending && trunk.is_over(cx) {
                // Only last words are left, and an endpoint that does not read would never let them go.
                is_ending = true;
                timer.as_mut().reset(tokio::time::Instant::now() + timeout);
            }
            if let Some(pings) = pings.as_mut().filter(|_| is_asked)
                && pings.poll_pong(cx).is_ready()
            {
                is_asked = false;
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
                is_asked = pings.send_ping(Ping::opaque()).is_ok() && pings.poll_pong(cx).is_pending();
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
                    is_asked = pings.send_ping(Ping::opaque()).is_ok() && pings.poll_pong(cx).is_pending();
                }
                let after = if is_asked { timeout } else { interval };
                timer.as_mut().reset(tokio::time::Instant::now() + after);
            }
            Poll::Pending
        })
        .await;
    }
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
