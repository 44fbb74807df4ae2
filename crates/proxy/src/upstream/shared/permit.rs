//! The permit of one exchange for a stream of a shared connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use model::Fault;
use model::limits::UPSTREAM_STREAMS_LEFT_EVER_MAX;
use model::snapshot::SharedVersion;

use super::connection::{Carrier, SharedConnection, Start};
use super::connections::SharedConnections;

/// A connection of HTTP/2 that was idle for this long may be dead without the kernel's knowledge. A PING checks it as soon as a stream
/// begins.
const REST: Duration = Duration::from_secs(1);

/// The permit for one stream of a shared connection, held as long as the stream lasts.
pub(crate) struct StreamPermit {
    connection: Rc<SharedConnection>,
    of: Rc<SharedConnections>,
    /// Until the stream begins.
    start: RefCell<Option<Start>>,
    /// Streams that were in progress when it was given.
    others: u32,
    /// The endpoint has ended the stream, so that nothing of it comes any more.
    is_over: Cell<bool>,
    /// The connection has carried a request before.
    pub is_reused: bool,
    /// It has, and carries none now, so that the endpoint may be about to close it.
    pub was_idle: bool,
}

impl StreamPermit {
    pub(super) fn new(of: &Rc<SharedConnections>, connection: &Rc<SharedConnection>) -> Self {
        let (is_reused, was_idle) = (connection.carried.get() > 0, connection.is_idle());
        let start = RefCell::new(connection.carrier.borrow().as_ref().and_then(Carrier::start));
        let others = connection.open.get();
        connection.open.set(others + 1);
        connection.carried.set(connection.carried.get() + 1);
        let idle_since = connection.idle_since.take();
        if was_idle && idle_since.is_some_and(|since| since.elapsed() >= REST) {
            // The stream wakes its task.
            connection.has_rested.set(true);
        }
        if of.settings.requests_per_connection_max.is_some_and(|max| connection.carried.get() >= max) {
            connection.close();
        }
        let (connection, of, is_over) = (connection.clone(), of.clone(), Cell::new(false));
        Self { connection, of, start, others, is_over, is_reused, was_idle }
    }

    /// Whether the endpoint takes requests for other protocols (RFC 8441 section 3, RFC 9220 section 3).
    pub(super) fn offers_upgrades(&self) -> bool {
        self.start.borrow().as_ref().is_some_and(Start::offers_upgrades)
    }

    /// Whether it is one of HTTP/3.
    pub(super) fn is_http3(&self) -> bool {
        matches!(&*self.start.borrow(), Some(Start::Http3(..)))
    }

    /// What its stream begins with, once.
    ///
    /// # Errors
    /// [`Fault::StreamRefused`]: the connection takes no more streams.
    pub(super) fn begin(&self) -> Result<Start, Fault> {
        self.start.take().ok_or(Fault::StreamRefused)
    }

    /// The endpoint has refused the stream (RFC 9113 section 8.7).
    pub(crate) fn note_refusal(&self) {
        self.note_end();
        let mut bearing = self.connection.bearing.get();
        bearing.refuse(self.others);
        self.connection.bearing.set(bearing);
        if bearing.max() == 0 {
            self.connection.close();
        }
    }

    /// The endpoint has answered.
    pub(crate) fn note_answer(&self) {
        let before = self.connection.bearing.get();
        let mut bearing = before;
        bearing.answer();
        self.connection.bearing.set(bearing);
        if bearing.max() > before.max() {
            self.of.hand_out(&self.connection, None);
        }
    }

    /// Whether the connection has ended because nothing came from the endpoint any more. What ends one of HTTP/3 without a word is
    /// nearly always that, since no kernel tells of a process that is gone.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.connection.is_silent.get() || self.of.shared.version == SharedVersion::Http3
    }

    /// The endpoint has ended the stream.
    pub(crate) fn note_end(&self) {
        self.is_over.set(true);
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let (connection, of) = (&self.connection, &self.of);
        connection.open.set(connection.open.get() - 1);
        let unused = self.start.get_mut().take();
        if let Some(Start::Http3(session, id)) = &unused {
            // Others may have begun since, and with them this one (RFC 9000 section 3.2).
            session.give_up(*id);
        }
        if unused.is_some() {
            // It was given for nothing.
            connection.carried.set(connection.carried.get() - 1);
        } else if !self.is_over.get() && of.shared.version == SharedVersion::Http2 {
            connection.left.set(connection.left.get() + 1);
            if connection.left.get() >= UPSTREAM_STREAMS_LEFT_EVER_MAX {
                connection.close();
            }
        }
        of.hand_out(connection, None);
        if !connection.is_busy() {
            connection.idle_since.set(Some(Instant::now()));
            if !of.keeps_idle() {
                connection.close();
            }
        }
        connection.tell();
    }
}
