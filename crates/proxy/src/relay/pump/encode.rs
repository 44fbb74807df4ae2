//! Passes the body through its stages and puts the receiver's framing on.

use model::fields::Fields;
use wire::http1;

use super::Pump;
use crate::buffer::{Buffer, BufferPool};
use crate::relay::body::BodyWriter;
use crate::relay::fault::PumpFault;
use crate::relay::stage::Pulled;

impl Pump {
    /// Passes what was taken out of the sender's framing on to the receiver's, through the stages if there are any.
    pub(super) fn hand_on(
        &mut self,
        buffer: &mut Buffer,
        trailers: Option<&Fields>,
        pool: &BufferPool,
    ) -> Result<(), PumpFault> {
        let is_last = self.reader.is_done();
        let given = if is_last { self.trailers.take() } else { None };
        let trailers = trailers.or(given.as_deref());
        let Some(stages) = &mut self.stages else { return self.encode(buffer, trailers, is_last, pool) };
        if is_last {
            stages.trailers(trailers.cloned());
        }
        if self.hold(buffer, is_last, pool) {
            return Ok(());
        }
        let Some(stages) = &mut self.stages else { return Ok(()) };
        stages.feed(std::mem::replace(buffer, Buffer::nothing()), is_last, pool);
        let pulled = stages.pull(pool)?;
        *buffer = pulled.buffer;
        self.encode_pulled(buffer, pulled.is_done, pool)
    }

    /// Encodes more of what is in the stages.
    pub(super) fn pull(&mut self, pool: &BufferPool) -> Result<(), PumpFault> {
        let Some(stages) = &mut self.stages else { return Ok(()) };
        let Pulled { mut buffer, is_done } = stages.pull(pool)?;
        self.encode_pulled(&mut buffer, is_done, pool)?;
        self.send(buffer, pool);
        Ok(())
    }

    /// Encodes what the stages hold back, as the sender is silent. False: they hold back nothing.
    pub(super) fn flush_stages(&mut self, pool: &BufferPool) -> Result<bool, PumpFault> {
        let Some(stages) = self.stages.as_mut().filter(|stages| !stages.is_holding()) else { return Ok(false) };
        let Some(mut buffer) = stages.flush(pool)? else { return Ok(false) };
        let has_bytes = !buffer.is_empty();
        self.encode(&mut buffer, None, false, pool)?;
        self.send(buffer, pool);
        Ok(has_bytes)
    }

    fn encode_pulled(&mut self, buffer: &mut Buffer, is_last: bool, pool: &BufferPool) -> Result<(), PumpFault> {
        let trailers = self.stages.as_mut().filter(|_| is_last).and_then(|stages| stages.take_trailers());
        self.encode(buffer, trailers.as_deref(), is_last, pool)
    }

    fn send(&mut self, buffer: Buffer, pool: &BufferPool) {
        if buffer.is_empty() {
            pool.give(buffer);
        } else {
            self.outgoing = Some(buffer);
        }
    }

    /// Puts the receiver's framing on.
    fn encode(
        &mut self,
        buffer: &mut Buffer,
        trailers: Option<&Fields>,
        is_last: bool,
        pool: &BufferPool,
    ) -> Result<(), PumpFault> {
        let mut fits = true;
        if self.writer == BodyWriter::Chunked && !buffer.is_empty() {
            let mut head = [0; http1::CHUNK_HEAD_BYTES_MAX];
            let start = http1::write_chunk_head(buffer.len(), &mut head);
            fits &= buffer.prepend(&head[start..]) && buffer.append(http1::CHUNK_TAIL);
        }
        if is_last {
            self.ended = true;
            self.flushed = false;
            if self.writer == BodyWriter::Chunked {
                let mut last = Vec::new();
                http1::write_last_chunk(trailers.unwrap_or(&Fields::default()), &mut last);
                if !buffer.append(&last) {
                    // Stages may leave no room behind what they made.
                    let mut alone = pool.take();
                    fits &= alone.append(&last);
                    self.queued.push(alone);
                }
            } else if self.writer == BodyWriter::Stream {
                self.trailers = trailers.filter(|trailers| !trailers.is_empty()).map(|own| Box::new(own.clone()));
            }
        }
        // Head room and tail room hold a chunk's head and tail, and trailers are bounded below a buffer.
        if fits { Ok(()) } else { Err(PumpFault::Framing) }
    }
}
