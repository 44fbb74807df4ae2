//! One QUIC connection, as its streams and the task that looks after it see it.
//!
//! What is done here changes the state of the connection only; the [`Socket`] sends what follows from it, once the tasks that
//! are awake have had their turn, so that what several have written leaves together.

mod inner;
mod streams;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use model::limits::{HTTP3_SEND_WINDOW_BYTES_MAX, HTTP3_SEND_WINDOW_BYTES_MIN};
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{Connection, ConnectionEvent, ConnectionHandle, Endpoint, StreamId, Transmit, VarInt};
use rustls_pki_types::CertificateDer;

use self::inner::Inner;
use super::Socket;
use crate::tls::Noted;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The peer said so, with this code of its application.
    Closed(u64),
    /// We said so.
    Ours(u64),
    /// Nothing came for too long.
    Silent,
    /// The rules of QUIC or TLS were broken, by whomever.
    Broken,
}

/// Why nothing more is read from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFault {
    /// The peer has reset it.
    Reset(u64),
    /// The connection is gone, or the stream.
    Gone,
}

/// See the module.
pub(crate) struct Quic {
    socket: Rc<Socket>,
    handle: ConnectionHandle,
    is_dirty: Cell<bool>,
    /// What it has to send was put off, for tasks that were woken to add theirs.
    is_put_off: Cell<bool>,
    inner: RefCell<Inner>,
}

/// What came of telling news.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Notified {
    /// Nobody was woken.
    Nobody,
    /// Tasks were, which may have something to say.
    Tasks,
    /// Nothing will happen any more.
    Drained,
}

impl Quic {
    pub(super) fn new(socket: Rc<Socket>, handle: ConnectionHandle, connection: Connection) -> Rc<Self> {
        let inner = Inner::new(connection);
        Rc::new(Self { socket, handle, is_dirty: Cell::new(false), is_put_off: Cell::new(false), inner: inner.into() })
    }

    pub(super) fn handle(&self) -> ConnectionHandle {
        self.handle
    }

    /// Has the socket look at it.
    pub(super) fn touch(self: &Rc<Self>) {
        if !self.is_dirty.replace(true) {
            self.socket.note(self.clone());
        }
    }

    pub(super) fn take_in(self: &Rc<Self>, event: ConnectionEvent, now: Instant) {
        let inner = &mut *self.inner.borrow_mut();
        let before = inner.connection.is_handshaking().then(|| inner.connection.remote_address().ip());
        inner.heard_at = now;
        if before.is_some() {
            let _of_others = Noted::take();
        }
        inner.connection.handle_event(event);
        if before.is_some() {
            inner.noted.add(Noted::take());
        }
        let is_elsewhere = before.is_some_and(|before| inner.connection.remote_address().ip() != before);
        // Only the handshake proves where the peer is, and nobody moves before it is over (RFC 9000 section 9).
        if is_elsewhere && inner.lost.is_none() {
            inner.lost = Some(CloseReason::Broken);
            inner.connection.close(now, VarInt::from_u32(0), Bytes::new());
            inner.wake_all();
        }
        self.touch();
    }

    /// The timer rang that was set for `at`.
    pub(super) fn expire(self: &Rc<Self>, at: Instant, now: Instant) {
        let inner = &mut *self.inner.borrow_mut();
        // It is that of another, which had the same number.
        if inner.timers.pop_if(|set| *set == at).is_none() {
            return;
        }
        if inner.connection.poll_timeout().is_some_and(|due| due <= now) {
            inner.connection.handle_timeout(now);
        }
        self.touch();
    }

    /// Sets the timer, if it is to ring earlier than it is set. Most are put off again and again before they ring. False, for
    /// there is nothing more to do.
    pub(super) fn set_timer(&self) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        if let Some(due) = inner.connection.poll_timeout()
            && inner.timers.last().is_none_or(|set| due < *set)
        {
            inner.timers.push(due);
            self.socket.set_timer(due, self.handle);
        }
        false
    }

    /// When the socket was to look at it.
    pub(super) fn take_timers(&self) -> Vec<Instant> {
        std::mem::take(&mut self.inner.borrow_mut().timers)
    }

    /// Returns whether the peer itself has given up what never became a connection: nothing is to be said any more, and nobody would ever
    /// look at it again but by its idle time.
    pub(super) fn is_abandoned(&self) -> bool {
        let inner = self.inner.borrow();
        !inner.is_connected && matches!(inner.lost, Some(CloseReason::Closed(_)))
    }

    /// Tells whom it concerns what happened.
    pub(super) fn tell(&self, endpoint: &RefCell<Endpoint>) -> Notified {
        self.is_dirty.set(false);
        let inner = &mut *self.inner.borrow_mut();
        inner.has_woken = false;
        // What is kept of answers follows what the peer takes: one that acknowledges nothing holds little.
        let window = inner.connection.congestion_state().window().saturating_mul(2);
        inner.connection.set_send_window(window.clamp(HTTP3_SEND_WINDOW_BYTES_MIN, HTTP3_SEND_WINDOW_BYTES_MAX));
        let mut is_drained = false;
        while let Some(event) = inner.connection.poll_endpoint_events() {
            is_drained |= event.is_drained();
            if let Some(answer) = endpoint.borrow_mut().handle_event(self.handle, event) {
                inner.connection.handle_event(answer);
            }
        }
        while let Some(event) = inner.connection.poll() {
            inner.note(event);
        }
        if !inner.writable.is_empty() {
            inner.wake_writable();
        }
        if is_drained {
            inner.lost.get_or_insert(CloseReason::Silent);
            inner.wake_all();
            return Notified::Drained;
        }
        if inner.has_woken { Notified::Tasks } else { Notified::Nobody }
    }

    /// Puts off what is to be sent after tasks were woken, so that what these say leaves with it, an acknowledgement for example. False:
    /// that was done already, or it has ended.
    pub(super) fn put_off(self: &Rc<Self>) -> bool {
        if self.inner.borrow().lost.is_some() || self.is_put_off.replace(true) {
            return false;
        }
        self.touch();
        true
    }

    /// It is sent now.
    pub(super) fn send_now(&self) {
        self.is_put_off.set(false);
    }

    pub(super) fn poll_transmit(&self, now: Instant, segments: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        self.inner.borrow_mut().connection.poll_transmit(now, segments, out)
    }

    /// Says which task looks after the connection: it is woken when a stream is begun, one that goes one way has news, the
    /// handshake is over, or the connection is lost.
    pub(crate) fn wait(&self, cx: &TaskContext<'_>) {
        let waker = &mut self.inner.borrow_mut().waker;
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Returns whether there is something to read on streams that go one way since this was last asked.
    pub(crate) fn take_news(&self) -> bool {
        std::mem::take(&mut self.inner.borrow_mut().has_news)
    }

    /// Returns whether the handshake is over, so that the peer is who it says and nothing was sent before by another.
    pub(crate) fn is_connected(&self) -> bool {
        self.inner.borrow().is_connected
    }

    /// Ready when the handshake is over or will never be; `id` is the stream of whoever waits.
    pub(crate) fn poll_connected(&self, id: StreamId, cx: &TaskContext<'_>) -> Poll<Result<(), CloseReason>> {
        let inner = &mut *self.inner.borrow_mut();
        match inner.lost {
            Some(lost) => Poll::Ready(Err(lost)),
            None if inner.is_connected => Poll::Ready(Ok(())),
            None => {
                inner.wait_for(id, cx);
                Poll::Pending
            }
        }
    }

    pub(crate) fn lost(&self) -> Option<CloseReason> {
        self.inner.borrow().lost
    }

    pub(crate) fn socket(&self) -> &Rc<Socket> {
        &self.socket
    }

    /// Returns the peer's current address, which may change.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.inner.borrow().connection.remote_address()
    }

    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.inner.borrow().connection.local_ip()
    }

    pub(crate) fn rtt(&self) -> Duration {
        self.inner.borrow().connection.rtt()
    }

    /// Returns the name that the client asked for, and the protocol that was agreed on.
    pub(crate) fn handshake_data(&self) -> Option<Box<HandshakeData>> {
        let data: Box<dyn Any> = self.inner.borrow().connection.crypto_session().handshake_data()?;
        data.downcast().ok()
    }

    /// Returns what of a client's handshake the library does not tell.
    pub(crate) fn noted(&self) -> Noted {
        self.inner.borrow().noted
    }

    /// Returns the peer's certificates, once the handshake is over.
    pub(crate) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let identity = self.inner.borrow().connection.crypto_session().peer_identity();
        identity.and_then(|identity| identity.downcast().ok()).map(|chain| *chain).unwrap_or_default()
    }

    /// When something came last.
    pub(crate) fn heard_at(&self) -> Instant {
        self.inner.borrow().heard_at
    }

    /// For how long nothing has come.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.inner.borrow().heard_at)
    }

    /// Wakes the task that looks after the connection.
    pub(crate) fn wake(&self) {
        self.inner.borrow_mut().wake();
    }

    /// The network says that nobody is there. Anybody can say so, and a connection that is made takes it for a reason to ask.
    pub(super) fn doubt(self: &Rc<Self>) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.is_connected {
            inner.is_doubtful = true;
            inner.wake();
        } else if inner.lost.is_none() {
            inner.lost = Some(CloseReason::Silent);
            inner.connection.close(Instant::now(), VarInt::from_u32(0), Bytes::new());
            inner.wake_all();
            self.touch();
        }
    }

    /// Returns whether the network has reported the peer as unreachable since the last call.
    pub(crate) fn take_doubt(&self) -> bool {
        std::mem::take(&mut self.inner.borrow_mut().is_doubtful)
    }

    /// Says whether the peer takes other connections and says nothing on this one. Those who can ask it anew are told.
    pub(crate) fn set_unresponsive(&self, is_unresponsive: bool) {
        let inner = &mut *self.inner.borrow_mut();
        if std::mem::replace(&mut inner.is_unresponsive, is_unresponsive) != is_unresponsive && is_unresponsive {
            inner.wake_all();
        }
    }

    /// Returns whether the peer takes other connections and says nothing on this one.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.inner.borrow().is_unresponsive
    }

    /// Asks the peer whether it is there.
    pub(crate) fn ping(self: &Rc<Self>) {
        self.inner.borrow_mut().connection.ping();
        self.touch();
    }

    /// Ends the connection with a code of HTTP/3. What is on its way is thrown away.
    pub(crate) fn close(self: &Rc<Self>, code: u64) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.lost.is_none() {
            inner.lost = Some(CloseReason::Ours(code));
            inner.connection.close(Instant::now(), number(code), Bytes::new());
            inner.wake_all();
        }
        self.touch();
    }
}

/// Codes of HTTP/3 are small; what is larger is no code of ours.
fn number(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
