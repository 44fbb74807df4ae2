//! Goes on with the stages of a body, and with what is held before them, before more is read.

use std::task::{Context as TaskContext, Poll, ready};

use super::Pump;
use crate::buffer::{Buffer, BufferPool};
use crate::relay::fault::PumpFault;

impl Pump {
    /// Does what comes before the next read. Ready with whether something was done, so that it is to be asked again; if not, it is time to
    /// read. `is_written`: the receiver has taken all.
    pub(super) fn poll_stages(
        &mut self,
        cx: &mut TaskContext<'_>,
        is_written: bool,
        pool: &BufferPool,
    ) -> Poll<Result<bool, PumpFault>> {
        let mut waits = !is_written;
        if is_written {
            if self.stages.as_ref().is_some_and(|stages| stages.has_more()) {
                self.pull(pool)?;
                return Poll::Ready(Ok(true));
            }
            match self.poll_held(cx, pool)? {
                Poll::Ready(true) => return Poll::Ready(Ok(true)),
                Poll::Ready(false) => {}
                Poll::Pending => waits = true,
            }
        }
        let Some(stages) = &mut self.stages else { return Poll::Ready(Ok(false)) };
        stages.set_holding(waits);
        match stages.held() {
            // What comes meanwhile is held, as long as there is room.
            Some(held) if waits => ready!(held.poll_room(cx))?,
            None if waits => return Poll::Pending,
            Some(held) => held.give_room(),
            None => {}
        }
        Poll::Ready(Ok(false))
    }

    /// Moves a buffer of what is held, or of the parts of the body, into the stages, and what comes of it out of them. Ready with whether there was any.
    pub(super) fn poll_held(&mut self, cx: &mut TaskContext<'_>, pool: &BufferPool) -> Poll<Result<bool, PumpFault>> {
        let Some(stages) = self.stages.as_mut().filter(|stages| !stages.has_more()) else {
            return Poll::Ready(Ok(false));
        };
        if !stages.has_source() {
            return Poll::Ready(Ok(false));
        }
        let mut buffer = pool.take();
        let taken = match stages.poll_source(cx, buffer.room()) {
            Poll::Ready(Ok(taken)) => taken,
            Poll::Ready(Err(fault)) => {
                pool.give(buffer);
                return Poll::Ready(Err(fault));
            }
            Poll::Pending => {
                pool.give(buffer);
                return Poll::Pending;
            }
        };
        let (count, is_last) = taken;
        buffer.filled(count);
        stages.feed(buffer, is_last, pool);
        self.pull(pool)?;
        Poll::Ready(Ok(true))
    }

    /// Holds what was read. `false`: it is not to be held.
    pub(super) fn hold(&mut self, buffer: &mut Buffer, is_last: bool, pool: &BufferPool) -> bool {
        if self.stages.as_ref().is_some_and(|stages| stages.has_parts()) {
            // There is no sender, so nothing was read: the end is that of the last part.
            debug_assert!(buffer.is_empty() && is_last, "parts have no sender");
            return true;
        }
        let Some(stages) = self.stages.as_mut().filter(|stages| stages.is_holding()) else { return false };
        let Some(held) = stages.held() else { return false };
        held.push(buffer.data(), is_last);
        pool.give(std::mem::replace(buffer, Buffer::nothing()));
        true
    }
}
