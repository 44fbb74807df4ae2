//! The state of one connection, with the tasks that wait for something of it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::task::{Context as TaskContext, Waker};
use std::time::Instant;

use model::limits::HTTP3_CONNECTION_WINDOW_BYTES;
use quinn_proto::{Connection, ConnectionError, Dir, Event, StreamEvent, StreamId, VarInt};

use super::CloseReason;
use crate::tls::Noted;

/// Ids of streams are small numbers that are all different.
#[derive(Default)]
pub(super) struct IdHasher(u64);

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

/// The state of a connection, with who waits for what of it.
pub(super) struct Inner {
    pub connection: Connection,
    /// The tasks that wait for a stream.
    pub waiting: HashMap<u64, Waker, BuildHasherDefault<IdHasher>>,
    /// The task that looks after the connection.
    pub waker: Option<Waker>,
    pub is_connected: bool,
    pub lost: Option<CloseReason>,
    /// A task was woken since this was last asked.
    pub has_woken: bool,
    /// When the socket looks at it: each entry is earlier than the one before it, so that the last rings first.
    pub timers: Vec<Instant>,
    /// When the last datagram came.
    pub heard_at: Instant,
    /// Streams whose writes were blocked, and when each was last given something: a count of writes.
    pub blocked: HashMap<u64, u64, BuildHasherDefault<IdHasher>>,
    pub writes: u64,
    /// Streams that may write again, while news are told.
    pub writable: Vec<StreamId>,
    /// There is something to read on streams that go one way.
    pub has_news: bool,
    /// The peer does not look at streams of ours from this one on.
    pub refused_from: u64,
    /// The network says that nobody is there.
    pub is_doubtful: bool,
    /// The peer takes other connections and says nothing on this one.
    pub is_unresponsive: bool,
    /// What the handshake has told so far.
    pub noted: Noted,
}

impl Inner {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
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
            is_unresponsive: false,
            noted: Noted::take(),
        }
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            self.has_woken = true;
            waker.wake();
        }
    }

    pub(super) fn wake_stream(&mut self, id: StreamId) {
        if let Some(waker) = self.waiting.remove(&u64::from(VarInt::from(id))) {
            self.has_woken = true;
            waker.wake();
        }
    }

    pub(super) fn wake_all(&mut self) {
        self.wake();
        for (_, waker) in self.waiting.drain() {
            waker.wake();
        }
    }

    /// Wakes those that may write again. Room is made little by little, and the first who is woken takes all of it: so that is
    /// whoever has been without for longest.
    pub(super) fn wake_writable(&mut self) {
        let mut writable = std::mem::take(&mut self.writable);
        writable.sort_by_key(|id| self.blocked.get(&u64::from(VarInt::from(*id))).copied().unwrap_or(0));
        for id in writable.drain(..) {
            self.wake_stream(id);
        }
        self.writable = writable;
    }

    pub(super) fn wait_for(&mut self, id: StreamId, cx: &TaskContext<'_>) {
        let id = u64::from(VarInt::from(id));
        if !self.waiting.get(&id).is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waiting.insert(id, cx.waker().clone());
        }
    }

    pub(super) fn note(&mut self, event: Event) {
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
                    ConnectionError::ApplicationClosed(close) => CloseReason::Closed(close.error_code.into_inner()),
                    ConnectionError::TimedOut | ConnectionError::Reset => CloseReason::Silent,
                    ConnectionError::ConnectionClosed(_) => CloseReason::Closed(0),
                    _ => CloseReason::Broken,
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
