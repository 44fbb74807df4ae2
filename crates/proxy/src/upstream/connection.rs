//! A connection to an endpoint, and what a conversation is held on.

use std::future::poll_fn;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::Instant;

use model::limits::{STALE_WITHIN, UPSTREAM_STREAM_END};
use plan::cluster::own_tlvs::Tlvs;
use wire::authentication::Bond;

use super::shared::permit::StreamPermit;
use crate::io::Io;

/// What a conversation is held on.
pub(crate) enum Line {
    /// A connection of its own.
    Http1(UpstreamConnection),
    /// A stream, not begun yet, of a connection that others use too.
    Shared(Box<StreamPermit>),
}

/// A connection to an endpoint.
pub(crate) struct UpstreamConnection {
    pub io: Io,
    /// Exchanges carried before the present one.
    pub requests: u64,
    /// Whether the endpoint takes one client for the author of all that comes on it.
    pub bond: Bond,
    pub(super) idle_since: Instant,
    /// What its PROXY header said of the exchange for which it was made, where that may differ from one to the next.
    pub shown: Option<Box<Tlvs>>,
    /// The connection's own, if `io` is one stream of it.
    permit: Option<Box<StreamPermit>>,
}

impl UpstreamConnection {
    pub(crate) fn new(io: Io, now: Instant) -> Self {
        Self { io, requests: 0, bond: Bond::None, idle_since: now, shown: None, permit: None }
    }

    /// One stream of a connection.
    pub(super) fn of_stream(io: Io, permit: Box<StreamPermit>, now: Instant) -> Self {
        let requests = u64::from(permit.was_idle);
        Self { io, requests, bond: Bond::None, idle_since: now, shown: None, permit: Some(permit) }
    }

    /// What `io` is a stream of.
    pub(super) fn permit(&self) -> Option<&StreamPermit> {
        self.permit.as_deref()
    }

    /// A request begins on it: it is idle no more.
    pub(super) fn begin(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// Whether its end, without a byte of a response, may be the end of an idle connection: it has carried an exchange before, and
    /// the present one began only a moment ago, or the endpoint has said nothing at all since.
    pub(crate) fn may_be_stale(&self) -> bool {
        let is_silent = || self.permit().is_some_and(StreamPermit::is_unresponsive);
        self.requests > 0 && (self.idle_since.elapsed() < STALE_WITHIN || is_silent())
    }
}

/// Takes a stream back whose response is whole. Its end may still be on its way, which is waited for beside the client: left
/// before it, the stream looks cancelled to its endpoint, and endpoints end connections on which many are.
pub(super) fn let_end(mut connection: UpstreamConnection) {
    if poll_end(&mut TaskContext::from_waker(Waker::noop()), &mut connection).is_pending() {
        tokio::task::spawn_local(async move {
            let end = poll_fn(|cx| poll_end(cx, &mut connection));
            let _cancelled_when_late = tokio::time::timeout(UPSTREAM_STREAM_END, end).await;
        });
    }
}

fn poll_end(cx: &mut TaskContext<'_>, connection: &mut UpstreamConnection) -> Poll<()> {
    let Some(stream) = connection.io.message() else { return Poll::Ready(()) };
    if !stream.is_over() {
        let _error_or_more_is_no_good_end = ready!(stream.poll_read_ready(cx));
        stream.take_trailers();
    }
    let is_good = stream.is_over();
    if let Some(permit) = connection.permit().filter(|_| is_good) {
        permit.note_end();
    }
    Poll::Ready(())
}
