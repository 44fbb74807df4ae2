//! The streams of a connection that go one way: our control stream, and those of the peer (RFC 9114 section 6.2).

use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use quinn_proto::{Dir, StreamId};
use wire::http3::code;
use wire::http3::uni::{self, Next, PeerState, UniReader};

use super::{Quic, ReadFault};

/// See the module.
pub(crate) struct Control {
    quic: Rc<Quic>,
    /// The peer is a client.
    from_client: bool,
    /// Our control stream, and what is to be said on it.
    own: Option<StreamId>,
    out: Vec<u8>,
    readers: Vec<(StreamId, UniReader)>,
    /// What the peer has told.
    pub peer: PeerState,
}

impl Control {
    /// Of a connection to an endpoint.
    pub(crate) fn towards_endpoint(quic: Rc<Quic>) -> Self {
        Self::new(quic, false)
    }

    /// Of a client's connection.
    pub(crate) fn towards_client(quic: Rc<Quic>) -> Self {
        Self::new(quic, true)
    }

    fn new(quic: Rc<Quic>, from_client: bool) -> Self {
        Self { quic, from_client, own: None, out: Vec::new(), readers: Vec::new(), peer: PeerState::default() }
    }

    /// Returns whether our control stream has begun; it never ends.
    pub(crate) fn has_begun(&self) -> bool {
        self.own.is_some()
    }

    /// Returns whether all that was to be said is said.
    pub(crate) fn is_said(&self) -> bool {
        self.out.is_empty()
    }

    /// Says goodbye with this number (section 5.2), when it speaks next.
    pub(crate) fn push_goaway(&mut self, id: u64) {
        uni::push_goaway(&mut self.out, id);
    }

    /// Says what is to be said, first our settings (section 6.2.1): the largest section that we take, and whether CONNECT may name
    /// a protocol.
    pub(crate) fn speak(&mut self, cx: &TaskContext<'_>, settings: impl FnOnce() -> (u64, bool)) {
        if self.own.is_none() {
            let Some(id) = self.quic.open(Dir::Uni) else { return };
            let (section_bytes_max, offers_connect) = settings();
            // Nothing comes before them, not even a goodbye that is said already.
            let behind = std::mem::take(&mut self.out);
            uni::begin_control(&mut self.out, section_bytes_max, offers_connect);
            self.out.extend_from_slice(&behind);
            self.own = Some(id);
        }
        let Some(id) = self.own else { return };
        while !self.out.is_empty() {
            match self.quic.poll_write(id, cx, &self.out) {
                Poll::Ready(Ok(count)) => drop(self.out.drain(..count)),
                // RFC 9114 section 6.2.1: it must not be closed.
                Poll::Ready(Err(())) => {
                    self.out.clear();
                    return self.quic.close(code::CLOSED_CRITICAL_STREAM);
                }
                Poll::Pending => return,
            }
        }
    }

    /// Reads what the peer says.
    ///
    /// # Errors
    /// The code that the connection is to be ended with.
    pub(crate) fn listen(&mut self, cx: &TaskContext<'_>) -> Result<(), u64> {
        if !self.quic.take_news() {
            return Ok(());
        }
        if self.own.is_some_and(|own| self.quic.is_stopped(own)) {
            return Err(code::CLOSED_CRITICAL_STREAM);
        }
        while let Some(id) = self.quic.accept(Dir::Uni) {
            self.readers.push((id, UniReader::default()));
        }
        let mut place = 0;
        while let Some((id, reader)) = self.readers.get_mut(place) {
            let read = self.quic.poll_read(*id, cx);
            let is_kept = match read {
                Poll::Pending => {
                    place += 1;
                    continue;
                }
                Poll::Ready(Ok(Some(bytes))) => reader.take(&bytes, self.from_client, &mut self.peer)? == Next::GoOn,
                Poll::Ready(Err(ReadFault::Gone)) => false,
                Poll::Ready(Ok(None) | Err(ReadFault::Reset(_))) if reader.is_new() => {
                    self.peer.idle += 1;
                    false
                }
                Poll::Ready(Ok(None) | Err(ReadFault::Reset(_))) if reader.is_critical() => {
                    return Err(code::CLOSED_CRITICAL_STREAM);
                }
                Poll::Ready(Ok(None) | Err(ReadFault::Reset(_))) => false,
            };
            if !is_kept {
                self.quic.stop(*id, code::STREAM_CREATION_ERROR);
                self.quic.forget(*id);
                self.readers.swap_remove(place);
            }
        }
        Ok(())
    }
}
