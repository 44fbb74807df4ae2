//! A connection of HTTP/3 to an endpoint, as streams see it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use quinn_proto::{Dir, StreamId};
use wire::http3::code;

use crate::http3::{Counts, Quic};

/// A connection, as streams see it.
pub(crate) struct Session {
    pub(super) quic: Rc<Quic>,
    pub(super) counts: Rc<Counts>,
    /// A stream that may begin, ahead of who takes it: to begin one is the only way to find out whether that may be.
    pub(super) spare: Cell<Option<StreamId>>,
    pub(super) offers_connect: Cell<bool>,
    /// The largest head that the endpoint takes (RFC 9114 section 4.2.2).
    pub(super) head_bytes_max: Cell<u64>,
    /// The endpoint has said goodbye.
    pub(super) is_left: Cell<bool>,
    /// When the first stream and the last began of those of which it is not known yet that the endpoint has heard of them.
    pub(super) begun: Cell<Option<(Instant, Instant)>>,
    /// Its task looks after these.
    pub(super) is_watched: Cell<bool>,
    /// Since when the endpoint does not seem to have heard of them: until it says something, others go elsewhere.
    pub(super) doubted_at: Cell<Option<Instant>>,
}

impl Session {
    /// Whether the endpoint seems not to be there, so that no other stream is to begin here.
    pub(super) fn is_doubtful(&self) -> bool {
        self.doubted_at.get().is_some_and(|at| self.quic.heard_at() <= at)
    }

    /// Whether streams have begun after which nobody looks yet. From now on that is done.
    pub(super) fn begins_to_be_watched(&self) -> bool {
        self.begun.get().is_some() && !self.is_watched.replace(true)
    }

    /// When a stream began since which nothing has come, not even that it has arrived.
    pub(super) fn unheard_at(&self) -> Option<Instant> {
        let (first, last) = self.begun.get()?;
        let heard_at = self.quic.heard_at();
        let unheard_at = match () {
            () if heard_at >= last => None,
            () if heard_at >= first => Some(last),
            () => Some(first),
        };
        self.begun.set(unheard_at.map(|at| (at, last)));
        unheard_at
    }

    /// Whether the endpoint allows another stream now. `None`: none ever.
    pub(super) fn has_credit(&self) -> Option<bool> {
        if self.is_left.get() || self.quic.lost().is_some() {
            return None;
        }
        if self.spare.get().is_none() {
            self.spare.set(self.quic.open(Dir::Bi));
        }
        Some(self.spare.get().is_some())
    }

    /// The stream that [`Self::has_credit`] has found.
    pub(super) fn take_stream(&self) -> Option<StreamId> {
        let stream = self.spare.take()?;
        let now = Instant::now();
        let first = self.begun.get().map_or(now, |(first, _)| first);
        self.begun.set(Some((first, now)));
        if !self.is_watched.get() {
            self.wake();
        }
        Some(stream)
    }

    /// Gives up a stream on which nothing was sent. The endpoint learns of it, because others may have begun since, and with them this one
    /// (RFC 9000 section 3.2).
    pub(super) fn give_up(&self, id: StreamId) {
        self.quic.reset(id, code::REQUEST_CANCELLED);
        self.quic.stop(id, code::REQUEST_CANCELLED);
    }

    /// Whether the endpoint takes requests for other protocols (RFC 9220 section 3).
    pub(super) fn offers_connect(&self) -> bool {
        self.offers_connect.get()
    }

    /// Wakes the task that looks after the connection.
    pub(super) fn wake(&self) {
        self.quic.wake();
    }
}
