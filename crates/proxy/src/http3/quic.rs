//! One QUIC connection, as its streams and the task that looks after it see it.
//!
//! What is done here changes the state of the connection only; the [`Port`] sends what follows from it, once the tasks that
//! are awake have had their turn, so that what several have written leaves together.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use model::limits::{HTTP3_CONNECTION_WINDOW_BYTES, HTTP3_SEND_WINDOW_BYTES_MAX, HTTP3_SEND_WINDOW_BYTES_MIN};
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{
    Connection, ConnectionError, ConnectionEvent, ConnectionHandle, Dir, Endpoint, Event, ReadError, StreamEvent,
    StreamId, Transmit, VarInt, WriteError,
};
use rustls_pki_types::CertificateDer;

use super::Port;
use crate::tls::Noted;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
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

/// Ids of streams are small numbers that are all different.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        // Fibonacci hashing (Knuth, volume 3, section 6.4).
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// See the module.
pub(crate) struct Quic {
    port: Rc<Port>,
    handle: ConnectionHandle,
    is_dirty: Cell<bool>,
    /// What it has to send was put off, for tasks that were woken to add theirs.
    is_put_off: Cell<bool>,
    inner: RefCell<Inner>,
}

/// What came of telling news.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Nobody was woken.
    Nobody,
    /// Tasks were, which may have something to say.
    Tasks,
    /// Nothing will happen any more.
    Drained,
}

struct Inner {
    connection: Connection,
    /// The tasks that wait for a stream.
    waiting: HashMap<u64, Waker, BuildHasherDefault<IdHasher>>,
    /// The task that looks after the connection.
    waker: Option<Waker>,
    is_connected: bool,
    lost: Option<Lost>,
    /// A task was woken since this was last asked.
    has_woken: bool,
    /// When the port looks at it: each entry is earlier than the one before it, so that the last rings first.
    timers: Vec<Instant>,
    /// When the last datagram came.
    heard_at: Instant,
    /// Streams whose writes were blocked, and when each was last given something: a count of writes.
    blocked: HashMap<u64, u64, BuildHasherDefault<IdHasher>>,
    writes: u64,
    /// Streams that may write again, while news are told.
    writable: Vec<StreamId>,
    /// There is something to read on streams that go one way.
    has_news: bool,
    /// The peer does not look at streams of ours from this one on.
    refused_from: u64,
    /// The network says that nobody is there.
    is_doubtful: bool,
    /// The peer takes other connections and says nothing on this one.
    is_forsaken: bool,
    /// What the handshake has told so far.
    noted: Noted,
}

impl Inner {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            self.has_woken = true;
            waker.wake();
        }
    }

    fn wake_stream(&mut self, id: StreamId) {
        if let Some(waker) = self.waiting.remove(&u64::from(VarInt::from(id))) {
            self.has_woken = true;
            waker.wake();
        }
    }

    fn wake_all(&mut self) {
        self.wake();
        for (_, waker) in self.waiting.drain() {
            waker.wake();
        }
    }

    /// Wakes those that may write again. Room is made little by little, and the first who is woken takes all of it: so that is
    /// whoever has been without for longest.
    fn wake_writable(&mut self) {
        let mut writable = std::mem::take(&mut self.writable);
        writable.sort_by_key(|id| self.blocked.get(&u64::from(VarInt::from(*id))).copied().unwrap_or(0));
        for id in writable.drain(..) {
            self.wake_stream(id);
        }
        self.writable = writable;
    }

    fn wait_for(&mut self, id: StreamId, cx: &TaskContext<'_>) {
        let id = u64::from(VarInt::from(id));
        if !self.waiting.get(&id).is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waiting.insert(id, cx.waker().clone());
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Connected => {
                self.is_connected = true;
                if !self.connection.side().is_client() {
                    // Of one that could send early it was smaller.
                    self.connection.set_receive_window(HTTP3_CONNECTION_WINDOW_BYTES.into());
                }
                // Those that wait for the end of the handshake, too.
                self.wake_all();
            }
            Event::ConnectionLost { reason } => {
                self.lost.get_or_insert(match reason {
                    ConnectionError::ApplicationClosed(close) => Lost::Closed(close.error_code.into_inner()),
                    ConnectionError::TimedOut | ConnectionError::Reset => Lost::Silent,
                    ConnectionError::ConnectionClosed(_) => Lost::Closed(0),
                    _ => Lost::Broken,
                });
                self.wake_all();
            }
            Event::Stream(StreamEvent::Writable { id }) if id.dir() == Dir::Bi => self.writable.push(id),
            Event::Stream(
                StreamEvent::Readable { id }
                | StreamEvent::Writable { id }
                | StreamEvent::Stopped { id, .. }
                | StreamEvent::Finished { id },
            ) => {
                self.wake_stream(id);
                // Those that go one way are read by the task of the connection.
                if id.dir() == Dir::Uni {
                    self.has_news = true;
                    self.wake();
                }
            }
            Event::Stream(StreamEvent::Opened { dir }) => {
                self.has_news |= dir == Dir::Uni;
                self.wake();
            }
            Event::Stream(_) | Event::HandshakeDataReady => self.wake(),
            Event::DatagramReceived | Event::DatagramsUnblocked => {}
        }
    }
}

impl Quic {
    pub(super) fn new(port: Rc<Port>, handle: ConnectionHandle, connection: Connection) -> Rc<Self> {
        let inner = Inner {
            connection,
            waiting: HashMap::default(),
            waker: None,
            is_connected: false,
            lost: None,
            has_woken: false,
            timers: Vec::new(),
            heard_at: Instant::now(),
            blocked: HashMap::default(),
            writes: 0,
            writable: Vec::new(),
            has_news: false,
            refused_from: u64::MAX,
            is_doubtful: false,
            is_forsaken: false,
            noted: Noted::take(),
        };
        Rc::new(Self { port, handle, is_dirty: Cell::new(false), is_put_off: Cell::new(false), inner: inner.into() })
    }

    pub(super) fn handle(&self) -> ConnectionHandle {
        self.handle
    }

    /// Has the port look at it.
    pub(super) fn touch(self: &Rc<Self>) {
        if !self.is_dirty.replace(true) {
            self.port.note(self.clone());
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
            inner.lost = Some(Lost::Broken);
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
            self.port.set_timer(due, self.handle);
        }
        false
    }

    /// When the port was to look at it.
    pub(super) fn take_timers(&self) -> Vec<Instant> {
        std::mem::take(&mut self.inner.borrow_mut().timers)
    }

    /// Whether the peer itself has given up what never became a connection: nothing is to be said any more, and nobody would
    /// ever look at it again but by its idle time.
    pub(super) fn is_stillborn(&self) -> bool {
        let inner = self.inner.borrow();
        !inner.is_connected && matches!(inner.lost, Some(Lost::Closed(_)))
    }

    /// Tells whom it concerns what happened.
    pub(super) fn tell(&self, endpoint: &RefCell<Endpoint>) -> Told {
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
            inner.lost.get_or_insert(Lost::Silent);
            inner.wake_all();
            return Told::Drained;
        }
        if inner.has_woken { Told::Tasks } else { Told::Nobody }
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

    /// Whether there is something to read on streams that go one way since this was last asked.
    pub(crate) fn take_news(&self) -> bool {
        std::mem::take(&mut self.inner.borrow_mut().has_news)
    }

    /// Whether the handshake is over, so that the peer is who it says and nothing was sent before by another.
    pub(crate) fn is_connected(&self) -> bool {
        self.inner.borrow().is_connected
    }

    /// Ready when the handshake is over or will never be; `id` is the stream of whoever waits.
    pub(crate) fn poll_connected(&self, id: StreamId, cx: &TaskContext<'_>) -> Poll<Result<(), Lost>> {
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

    pub(crate) fn lost(&self) -> Option<Lost> {
        self.inner.borrow().lost
    }

    pub(crate) fn port(&self) -> &Rc<Port> {
        &self.port
    }

    /// Where the peer is now: it may move.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.inner.borrow().connection.remote_address()
    }

    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.inner.borrow().connection.local_ip()
    }

    pub(crate) fn rtt(&self) -> Duration {
        self.inner.borrow().connection.rtt()
    }

    /// The name that the client asked for, and the protocol that was agreed on.
    pub(crate) fn handshake_data(&self) -> Option<Box<HandshakeData>> {
        let data: Box<dyn Any> = self.inner.borrow().connection.crypto_session().handshake_data()?;
        data.downcast().ok()
    }

    /// What of a client's handshake the library does not tell.
    pub(crate) fn noted(&self) -> Noted {
        self.inner.borrow().noted
    }

    /// The peer's certificates, once the handshake is over.
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
            inner.lost = Some(Lost::Silent);
            inner.connection.close(Instant::now(), VarInt::from_u32(0), Bytes::new());
            inner.wake_all();
            self.touch();
        }
    }

    /// Whether the network has said that nobody is there since this was last asked.
    pub(crate) fn take_doubt(&self) -> bool {
        std::mem::take(&mut self.inner.borrow_mut().is_doubtful)
    }

    /// Says whether the peer takes other connections and says nothing on this one. Those who can ask it anew are told.
    pub(crate) fn set_forsaken(&self, is_forsaken: bool) {
        let inner = &mut *self.inner.borrow_mut();
        if std::mem::replace(&mut inner.is_forsaken, is_forsaken) != is_forsaken && is_forsaken {
            inner.wake_all();
        }
    }

    /// Whether the peer takes other connections and says nothing on this one.
    pub(crate) fn is_forsaken(&self) -> bool {
        self.inner.borrow().is_forsaken
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
            inner.lost = Some(Lost::Ours(code));
            inner.connection.close(Instant::now(), number(code), Bytes::new());
            inner.wake_all();
        }
        self.touch();
    }

    /// Streams of which the peer has not got all that we say.
    pub(crate) fn unfinished(&self) -> usize {
        self.inner.borrow_mut().connection.streams().send_streams()
    }

    /// The next stream that the peer has begun.
    pub(crate) fn accept(&self, dir: Dir) -> Option<StreamId> {
        self.inner.borrow_mut().connection.streams().accept(dir)
    }

    /// Begins a stream, if the peer allows another.
    pub(crate) fn open(&self, dir: Dir) -> Option<StreamId> {
        self.inner.borrow_mut().connection.streams().open(dir)
    }

    /// Says that the peer does not look at streams of ours from this one on (RFC 9114 section 5.2).
    pub(crate) fn refuse_from(&self, id: u64) {
        let inner = &mut *self.inner.borrow_mut();
        if id < inner.refused_from {
            inner.refused_from = id;
            inner.waiting.retain(|waiting, waker| {
                let is_refused = *waiting >= id && waiting % 4 == 0;
                if is_refused {
                    waker.wake_by_ref();
                }
                !is_refused
            });
        }
    }

    /// Whether the peer has said so of a stream.
    pub(crate) fn is_refused(&self, id: StreamId) -> bool {
        u64::from(VarInt::from(id)) >= self.inner.borrow().refused_from
    }

    /// Whether the peer wants no more of our half.
    pub(crate) fn is_stopped(&self, id: StreamId) -> bool {
        matches!(self.inner.borrow_mut().connection.send_stream(id).stopped(), Ok(Some(_)))
    }

    /// Whether the peer has broken its half off.
    pub(crate) fn is_reset(&self, id: StreamId) -> bool {
        matches!(self.inner.borrow_mut().connection.recv_stream(id).received_reset(), Ok(Some(_)))
    }

    /// The next bytes of a stream; `None` is its end. What is read opens the peer's window.
    pub(crate) fn poll_read(
        self: &Rc<Self>,
        id: StreamId,
        cx: &TaskContext<'_>,
    ) -> Poll<Result<Option<Bytes>, ReadFault>> {
        let inner = &mut *self.inner.borrow_mut();
        let mut stream = inner.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Poll::Ready(Err(ReadFault::Gone)) };
        let next = chunks.next(usize::MAX);
        if chunks.finalize().should_transmit() {
            self.touch();
        }
        match next {
            Ok(chunk) => Poll::Ready(Ok(chunk.map(|chunk| chunk.bytes))),
            Err(ReadError::Reset(code)) => Poll::Ready(Err(ReadFault::Reset(code.into_inner()))),
            // What came before the end of the connection is read all the same.
            Err(ReadError::Blocked) if inner.lost.is_some() => Poll::Ready(Err(ReadFault::Gone)),
            Err(ReadError::Blocked) => {
                inner.wait_for(id, cx);
                Poll::Pending
            }
        }
    }

    /// Writes as much as the windows allow: how many bytes.
    ///
    /// # Errors
    /// The peer wants no more of it, or the connection is gone.
    pub(crate) fn poll_write(
        self: &Rc<Self>,
        id: StreamId,
        cx: &TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, ()>> {
        let inner = &mut *self.inner.borrow_mut();
        if inner.lost.is_some() {
            return Poll::Ready(Err(()));
        }
        match inner.connection.send_stream(id).write(bytes) {
            Ok(count) => {
                if !inner.blocked.is_empty()
                    && let Some(last) = inner.blocked.get_mut(&u64::from(VarInt::from(id)))
                {
                    inner.writes += 1;
                    *last = inner.writes;
                }
                self.touch();
                Poll::Ready(Ok(count))
            }
            Err(WriteError::Blocked) => {
                inner.wait_for(id, cx);
                let (id, writes) = (u64::from(VarInt::from(id)), inner.writes);
                inner.blocked.entry(id).or_insert(writes);
                // It is told that we would like to say more (RFC 9000 section 4.1).
                self.touch();
                Poll::Pending
            }
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => Poll::Ready(Err(())),
        }
    }

    /// Ends our half of a stream in good order. False: the peer has stopped it, or it is gone.
    pub(crate) fn finish(self: &Rc<Self>, id: StreamId) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        self.touch();
        inner.lost.is_none() && inner.connection.send_stream(id).finish().is_ok()
    }

    /// Breaks our half of a stream off, unless it has ended.
    pub(crate) fn reset(self: &Rc<Self>, id: StreamId, code: u64) {
        let inner = &mut *self.inner.borrow_mut();
        let _ = inner.connection.send_stream(id).reset(number(code));
        self.touch();
    }

    /// Tells the peer that nothing more is read of its half, unless that has ended.
    pub(crate) fn stop(self: &Rc<Self>, id: StreamId, code: u64) {
        let inner = &mut *self.inner.borrow_mut();
        let _ = inner.connection.recv_stream(id).stop(number(code));
        self.touch();
    }

    /// Ready when the peer wants no more of our half, or the connection is gone.
    pub(crate) fn poll_stopped(&self, id: StreamId, cx: &TaskContext<'_>) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        let is_stopped = matches!(inner.connection.send_stream(id).stopped(), Ok(Some(_)));
        if is_stopped || inner.lost.is_some() {
            return Poll::Ready(());
        }
        inner.wait_for(id, cx);
        Poll::Pending
    }

    /// Nobody waits for a stream any more.
    pub(crate) fn forget(&self, id: StreamId) {
        let (inner, id) = (&mut *self.inner.borrow_mut(), u64::from(VarInt::from(id)));
        inner.waiting.remove(&id);
        if !inner.blocked.is_empty() {
            inner.blocked.remove(&id);
        }
    }
}

/// Codes of HTTP/3 are small; what is larger is no code of ours.
fn number(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
