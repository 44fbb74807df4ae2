//! A body that has no receiver: it is thrown away, or read into memory.

use std::task::{Context as TaskContext, Poll, ready};

use super::Pump;
use crate::buffer::BufferPool;
use crate::io::Io;
use crate::relay::PumpFault;

impl Pump {
    /// Reads the body to its end and throws it away, unless it turns out to be longer than `max`. Ready with whether all of it is read,
    /// and nothing came behind it.
    pub(crate) fn poll_discard(
        &mut self,
        cx: &mut TaskContext<'_>,
        from: &mut Io,
        max: u64,
        pool: &BufferPool,
    ) -> Poll<bool> {
        loop {
            if let Some(buffer) = self.outgoing.take() {
                pool.give(buffer);
            }
            if self.ended || self.moved_bytes > max {
                return Poll::Ready(self.ended && self.leftover.is_none());
            }
            match self.poll_fill(cx, from, pool) {
                Ok(Poll::Ready(())) => {}
                Ok(Poll::Pending) => return Poll::Pending,
                Err(_) => return Poll::Ready(false),
            }
        }
    }

    /// Reads the body to its end, or until `into` has at least `enough` bytes, into memory: the writer is [`BodyWriter::Stream`], so that no
    /// framing is put on. Ready with whether it is at its end.
    pub(crate) fn poll_collect(
        &mut self,
        cx: &mut TaskContext<'_>,
        from: &mut Io,
        (into, enough): (&mut Vec<u8>, usize),
        pool: &BufferPool,
    ) -> Poll<Result<bool, PumpFault>> {
        loop {
            while let Some(buffer) = self.outgoing.take() {
                into.extend_from_slice(buffer.data());
                self.written |= !buffer.is_empty();
                pool.give(buffer);
                self.outgoing = self.take_queued();
            }
            if self.ended || into.len() >= enough {
                return Poll::Ready(Ok(self.ended));
            }
            ready!(self.poll_fill(cx, from, pool)?);
        }
    }
}
