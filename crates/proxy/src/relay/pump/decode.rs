//! Reads from the sender and takes its framing off.

use std::task::{Context as TaskContext, Poll};

use model::fields::Fields;

use super::Pump;
use crate::buffer::{Buffer, BufferPool};
use crate::io::Io;
use crate::relay::body::{BodyReader, BodyWriter};
use crate::relay::fault::PumpFault;

impl Pump {
    /// Reads once and encodes what came into `outgoing`.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut TaskContext<'_>,
        from: &mut Io,
        pool: &BufferPool,
    ) -> Result<Poll<()>, PumpFault> {
        if matches!(self.reader, BodyReader::Ahead(_)) {
            return self.fill_ahead(pool).map(Poll::Ready);
        }
        match from.poll_read_ready(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Err(_)) => return Err(PumpFault::Read),
            Poll::Ready(Ok(())) => {}
        }
        let mut buffer = pool.take();
        let count = match from.poll_read(cx, buffer.room()) {
            Poll::Pending => {
                pool.give(buffer);
                return Ok(Poll::Pending);
            }
            Poll::Ready(Err(_)) => {
                pool.give(buffer);
                return Err(PumpFault::Read);
            }
            Poll::Ready(Ok(count)) => count,
        };
        buffer.filled(count);
        // A coder may take much before it writes anything: what has come is progress.
        self.written |= count > 0 && self.stages.is_some() && self.outgoing.is_none();
        let recoded = if count == 0 {
            self.end_of_stream(&mut buffer, from, pool)
        } else {
            let is_over = from.message().is_some_and(|stream| stream.is_over());
            self.recode(&mut buffer, is_over, pool)
        };
        if matches!(recoded, Err(PumpFault::Framing | PumpFault::Truncated))
            && let Some(stream) = from.message()
        {
            // It is longer or shorter than it said.
            stream.refuse_malformed();
        }
        if buffer.is_empty() || recoded.is_err() {
            // Also when it was held: then what the receiver has not taken yet stays where it is.
            pool.give(buffer);
        } else {
            self.outgoing = Some(buffer);
        }
        recoded.map(Poll::Ready)
    }

    fn end_of_stream(&mut self, buffer: &mut Buffer, from: &mut Io, pool: &BufferPool) -> Result<(), PumpFault> {
        match self.reader {
            BodyReader::UntilClose => {
                self.reader = BodyReader::Done;
                // Only what is fed from memory has any.
                let trailers = from.take_trailers();
                self.hand_on(buffer, trailers.as_deref(), pool)
            }
            BodyReader::Stream(None | Some(0)) | BodyReader::BoundedStream(_) | BodyReader::Held(_) => {
                if let BodyReader::Held(last) = std::mem::replace(&mut self.reader, BodyReader::Done) {
                    // The buffer is empty.
                    let _fits = buffer.append(&[last]);
                    self.moved_bytes += 1;
                }
                let mut trailers = from.take_trailers();
                self.thin_out(trailers.as_deref_mut());
                self.hand_on(buffer, trailers.as_deref(), pool)
            }
            _ => Err(PumpFault::Truncated),
        }
    }

    /// Takes the sender's framing off what is in the buffer and puts the receiver's on. `is_over` says of a stream that
    /// nothing comes after it.
    pub(super) fn recode(&mut self, buffer: &mut Buffer, is_over: bool, pool: &BufferPool) -> Result<(), PumpFault> {
        let mut finished = None;
        match std::mem::replace(&mut self.reader, BodyReader::Done) {
            BodyReader::Done => self.keep_leftover(buffer, 0, pool),
            BodyReader::UntilClose => self.reader = BodyReader::UntilClose,
            BodyReader::Stream(left) => {
                let left = match left.map(|left| left.checked_sub(buffer.len() as u64)) {
                    Some(None) => return Err(PumpFault::Framing),
                    left => left.flatten(),
                };
                match (left, buffer.data().last()) {
                    (Some(1..), _) if is_over => return Err(PumpFault::Truncated),
                    _ if is_over => {}
                    (Some(0), Some(&last)) if self.writer == BodyWriter::Held => {
                        self.reader = BodyReader::Held(last);
                        buffer.truncate(buffer.len() - 1);
                    }
                    _ => self.reader = BodyReader::Stream(left),
                }
            }
            // Nothing but the end was due, or what was read before.
            BodyReader::Held(_) | BodyReader::Ahead(_) => return Err(PumpFault::Framing),
            BodyReader::BoundedStream(left) => {
                let left = left.checked_sub(buffer.len() as u64).ok_or(PumpFault::TooLong)?;
                if !is_over {
                    self.reader = BodyReader::BoundedStream(left);
                }
            }
            BodyReader::Length(left) => {
                let taken = left.min(buffer.len() as u64);
                if left > taken {
                    self.reader = BodyReader::Length(left - taken);
                }
                self.keep_leftover(buffer, taken as usize, pool);
            }
            BodyReader::Chunked(mut chunks) => {
                let decoded = chunks.decoder.decode_in_place(buffer.data_mut()).map_err(|_| PumpFault::Framing)?;
                chunks.left = chunks.left.checked_sub(decoded.data_len as u64).ok_or(PumpFault::TooLong)?;
                if decoded.done {
                    self.keep_leftover(buffer, decoded.consumed, pool);
                    finished = Some(chunks);
                } else {
                    self.reader = BodyReader::Chunked(chunks);
                }
                buffer.truncate(decoded.data_len);
            }
        }
        self.moved_bytes += buffer.len() as u64;
        self.thin_out(finished.as_mut().map(|chunks| chunks.decoder.trailers_mut()));
        self.hand_on(buffer, finished.as_ref().map(|chunks| chunks.decoder.trailers()), pool)
    }

    fn thin_out(&self, trailers: Option<&mut Fields>) {
        if let (Some(withheld), Some(trailers)) = (&self.withheld, trailers) {
            withheld.take_out(trailers);
        }
    }

    /// Cuts what lies behind the body off the buffer.
    fn keep_leftover(&mut self, buffer: &mut Buffer, body_len: usize, pool: &BufferPool) {
        if buffer.len() > body_len {
            let mut leftover = pool.take();
            // Both are of one size and the headroom is the same, so it fits.
            let fits = leftover.append(&buffer.data()[body_len..]);
            debug_assert!(fits);
            self.leftover = Some(leftover);
            buffer.truncate(body_len);
        }
    }
}
