//! Bytes both ways.

use std::future::poll_fn;
use std::io;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::{Duration, Instant};

use model::Fault;

use super::{Pump, PumpFault};
use crate::buffer::BufferPool;
use crate::io::Io;
use crate::watch::Watch;

/// How a tunnel ended.
pub(crate) enum TunnelEnd {
    /// Both sides ended in good order.
    Closed,
    /// No byte moved for too long, or the program is ending.
    Timeout(Fault),
    /// A side broke.
    Broken(Side),
}

/// Which side a tunnel's fault came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Downstream,
    Upstream,
}

/// Both directions of a tunnel.
pub(crate) struct Tunnel {
    /// Downstream to upstream.
    pub up: Pump,
    /// Upstream to downstream.
    pub down: Pump,
    up_shut: bool,
    down_shut: bool,
}

impl Tunnel {
    pub(crate) fn new(up: Pump, down: Pump) -> Self {
        Self { up, down, up_shut: false, down_shut: false }
    }

    /// Whether the client has ended its half, and the endpoint was told.
    pub(crate) fn is_up_shut(&self) -> bool {
        self.up_shut
    }

    /// Moves bytes both ways until both sides have ended, passing each side's end on as a half-close.
    pub(crate) async fn run(
        &mut self,
        downstream: &mut Io,
        upstream: &mut Io,
        pool: &BufferPool,
        timing: (&mut Watch, Duration),
    ) -> TunnelEnd {
        let (watch, idle) = timing;
        watch.set(Instant::now(), idle);
        let end = poll_fn(|cx| {
            let up = poll_half(cx, &mut self.up, (downstream, upstream), &mut self.up_shut, pool);
            if let Poll::Ready(Err(fault)) = up {
                if self.down_shut {
                    // The endpoint has said all it had to. How the client leaves is nobody's fault, nor that the endpoint listens no more (RFC
                    // 9113 section 8.1, RFC 9114 section 4.1).
                    return Poll::Ready(TunnelEnd::Closed);
                }
                let side = if matches!(fault, PumpFault::Write) { Side::Upstream } else { Side::Downstream };
                return Poll::Ready(TunnelEnd::Broken(side));
            }
            let down = poll_half(cx, &mut self.down, (upstream, downstream), &mut self.down_shut, pool);
            if let Poll::Ready(Err(fault)) = down {
                let side = if matches!(fault, PumpFault::Write) { Side::Downstream } else { Side::Upstream };
                return Poll::Ready(TunnelEnd::Broken(side));
            }
            if self.up_shut && self.down_shut {
                return Poll::Ready(TunnelEnd::Closed);
            }
            // Nobody reads a half that has ended, or of which what came is not passed on yet.
            if is_reset(cx, downstream) {
                let is_told = self.down_shut;
                return Poll::Ready(if is_told { TunnelEnd::Closed } else { TunnelEnd::Broken(Side::Downstream) });
            }
            if self.down_shut && is_reset(cx, upstream) {
                return Poll::Ready(TunnelEnd::Closed);
            }
            // Both must be asked, or one direction's progress would be forgotten.
            if self.up.take_progress() | self.down.take_progress() {
                watch.set(Instant::now(), idle);
            }
            watch.poll(cx).map(|()| TunnelEnd::Timeout(watch.fault(Fault::StreamIdle)))
        })
        .await;
        self.up.stop(pool);
        self.down.stop(pool);
        end
    }
}

/// Whether a peer has reset the stream that is the tunnel's own.
fn is_reset(cx: &mut TaskContext<'_>, io: &mut Io) -> bool {
    io.message().is_some_and(|stream| stream.poll_reset(cx).is_ready())
}

/// One direction with its half-close.
fn poll_half(
    cx: &mut TaskContext<'_>,
    pump: &mut Pump,
    (from, to): (&mut Io, &mut Io),
    shut: &mut bool,
    pool: &BufferPool,
) -> Poll<Result<(), PumpFault>> {
    if *shut {
        return Poll::Ready(Ok(()));
    }
    ready!(pump.poll(cx, from, to, pool))?;
    match ready!(to.poll_shutdown(cx)) {
        // The other side may have gone already: its own direction says how.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
        Err(_) => return Poll::Ready(Err(PumpFault::Write)),
    }
    *shut = true;
    Poll::Ready(Ok(()))
}
