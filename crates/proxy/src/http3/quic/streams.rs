//! The streams of one connection.

use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use quinn_proto::{Dir, ReadError, StreamId, VarInt, WriteError};

use super::{Quic, ReadFault, number};

impl Quic {
    /// Streams of which the peer has not got all that we say.
    pub(crate) fn unfinished(&self) -> usize {
        self.inner.borrow_mut().connection.streams().send_streams()
    }

    /// Returns the next stream that the peer has begun.
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

    /// Returns whether the peer has said so of a stream.
    pub(crate) fn is_refused(&self, id: StreamId) -> bool {
        u64::from(VarInt::from(id)) >= self.inner.borrow().refused_from
    }

    /// Returns whether the peer wants no more of our half.
    pub(crate) fn is_stopped(&self, id: StreamId) -> bool {
        matches!(self.inner.borrow_mut().connection.send_stream(id).stopped(), Ok(Some(_)))
    }

    /// Returns whether the peer has broken its half off.
    pub(crate) fn is_reset(&self, id: StreamId) -> bool {
        matches!(self.inner.borrow_mut().connection.recv_stream(id).received_reset(), Ok(Some(_)))
    }

    /// Returns the next bytes of a stream; `None` is its end. What is read opens the peer's window.
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
