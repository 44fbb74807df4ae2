//! Connections of the admin listener: so many at once, and none that only takes up a place.
//!
//! The time of a connection runs out unless answers are being made or make progress: a client that sends its request byte by
//! byte, says nothing, or does not take its answer is closed. When all places are taken, the oldest connection gives its place to
//! the new one, so that no one can lock the administrator out by holding connections. Where TLS is spoken, those whose handshake is
//! not over go first: who has proven nothing takes no place from who has.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use control::View;
use control::admin_tls::Secured;
use model::Address;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::place::{Door, Visitor};

/// What a connection may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Connections at once; the oldest is closed for one more.
    pub(crate) connections_max: usize,
    /// Time without progress of an answer.
    pub(crate) idle: Duration,
    /// Time of a connection as a whole.
    pub(crate) life: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections_max: 64, idle: Duration::from_secs(20), life: Duration::from_secs(600) }
    }
}

/// A listener whose connections keep the bounds.
pub(crate) struct BoundedListener {
    listener: Door,
    address: Address,
    bounds: Bounds,
    /// Says how connections are encrypted that come now.
    view: View,
    /// Oldest first. Those that are in when the listener goes stay.
    held: VecDeque<Held>,
}

/// A connection that is in.
struct Held {
    /// Tells it to end.
    end: oneshot::Sender<()>,
    secured: Option<Secured>,
}

impl Held {
    /// Returns whether its TLS handshake is still in progress.
    fn has_proven_nothing(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| !secured.is_open())
    }
}

impl BoundedListener {
    pub(crate) fn new(listener: Door, address: Address, bounds: Bounds, view: View) -> Self {
        Self { listener, address, bounds, view, held: VecDeque::new() }
    }

    /// Takes a place for one more connection: a free one, or that of the oldest connection in its handshake, or else of the oldest one.
    fn place(&mut self, secured: Option<Secured>) -> oneshot::Receiver<()> {
        self.held.retain(|held| !held.end.is_closed());
        while self.held.len() >= self.bounds.connections_max {
            let first = self.held.iter().position(Held::has_proven_nothing).unwrap_or(0);
            // It may have ended by itself.
            let _ = self.held.remove(first).map(|held| held.end.send(()));
        }
        let (end, told) = oneshot::channel();
        self.held.push_back(Held { end, secured });
        told
    }
}

impl axum::serve::Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = Address;

    async fn accept(&mut self) -> (BoundedStream, Address) {
        loop {
            match self.listener.accept().await {
                Ok(visitor) => {
                    let visitor = visitor.secure(self.view.admin_tls());
                    let place = self.place(visitor.secured().cloned());
                    return (BoundedStream::new(visitor, self.bounds, place), self.address.clone());
                }
                // Out of file descriptors, mostly: others have to give theirs back first.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Address> {
        Ok(self.address.clone())
    }
}

/// Whether an answer of a connection is being made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<AtomicUsize>);

/// One answer that is being made, until this is dropped.
pub(crate) struct Answering(Arc<AtomicUsize>);

impl Busy {
    pub(crate) fn begin(&self) -> Answering {
        self.0.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(&self.0))
    }

    fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection as its requests know it.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) busy: Busy,
    /// How it is encrypted, if it is.
    pub(crate) secured: Option<Secured>,
}

impl Connected<IncomingStream<'_, BoundedListener>> for Visit {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        stream.io().visit.clone()
    }
}

/// A connection that ends when its time is over.
pub(crate) struct BoundedStream {
    stream: Visitor,
    visit: Visit,
    /// Its handshake is not known to be over.
    is_shaking: bool,
    idle: Duration,
    ends: Instant,
    deadline: Pin<Box<Sleep>>,
    /// Tells when the place is needed for another; as long as there is a listener.
    place: Option<oneshot::Receiver<()>>,
    is_cut: bool,
}

impl BoundedStream {
    fn new(stream: Visitor, bounds: Bounds, place: oneshot::Receiver<()>) -> Self {
        let now = Instant::now();
        let visit = Visit { busy: Busy::default(), secured: stream.secured().cloned() };
        let first = visit.secured.as_ref().map_or(bounds.idle, Secured::handshake_timeout).min(bounds.idle);
        let deadline = Box::pin(tokio::time::sleep_until(now + first.min(bounds.life)));
        Self {
            stream,
            is_shaking: visit.secured.is_some(),
            visit,
            idle: bounds.idle,
            ends: now + bounds.life,
            deadline,
            place: Some(place),
            is_cut: false,
        }
    }

    /// Becomes ready when the connection must end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if let Some(place) = &mut self.place
            && let Poll::Ready(told) = Pin::new(place).poll(cx)
        {
            // It must not be asked again.
            self.place = None;
            self.is_cut = told.is_ok();
        }
        if self.is_cut {
            return Poll::Ready(io::ErrorKind::ConnectionAborted.into());
        }
        loop {
            ready!(self.deadline.as_mut().poll(cx));
            // Who waits for a change is not idle.
            if !self.visit.busy.is_so() || Instant::now() >= self.ends {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.progress();
        }
    }

    /// Ends the time limit of the handshake and starts that of requests.
    fn note_handshake(&mut self) {
        if self.is_shaking && self.visit.secured.as_ref().is_some_and(Secured::is_open) {
            self.is_shaking = false;
            self.progress();
        }
    }

    /// Notes that bytes of a response were sent.
    fn progress(&mut self) {
        let deadline = (Instant::now() + self.idle).min(self.ends);
        self.deadline.as_mut().reset(deadline);
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.note_handshake();
        read
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.progress();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts));
        self.progress();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
