//! A body of which the beginning was read into memory, and the rest was not.

use super::Pump;
use crate::buffer::BufferPool;
use crate::relay::PumpFault;
use crate::relay::body::{Ahead, BodyReader, BodyWriter};

impl Pump {
    /// Ends the collection of a body before its end: `bytes` are what was collected. Another pump goes on from there.
    pub(crate) fn into_ahead(self, bytes: Vec<u8>) -> Box<Ahead> {
        Box::new(Ahead { bytes, at: 0, then: self.reader, trailers: self.trailers })
    }

    /// A pump for a body of which the beginning was read.
    pub(crate) fn resumed(mut ahead: Box<Ahead>, writer: BodyWriter) -> Self {
        let trailers = ahead.trailers.take();
        Self { trailers, ..Self::of(BodyReader::Ahead(ahead), writer) }
    }

    /// Whether what comes next is in memory: all that was read of the sender is in it.
    pub(crate) fn is_resumed(&self) -> bool {
        matches!(self.reader, BodyReader::Ahead(_))
    }

    /// A pump that collects more of such a body, behind the bytes that are returned.
    pub(crate) fn collected(ahead: Ahead) -> (Self, Vec<u8>) {
        let Ahead { bytes, at: _, then, trailers } = ahead;
        (Self { trailers, ..Self::of(then, BodyWriter::Stream) }, bytes)
    }

    /// Encodes more of what was read ahead.
    pub(super) fn fill_ahead(&mut self, pool: &BufferPool) -> Result<(), PumpFault> {
        let BodyReader::Ahead(mut ahead) = std::mem::replace(&mut self.reader, BodyReader::Done) else { return Ok(()) };
        let mut buffer = pool.take();
        let rest = &ahead.bytes[ahead.at..];
        let count = rest.len().min(buffer.room().len());
        buffer.room()[..count].copy_from_slice(&rest[..count]);
        buffer.filled(count);
        ahead.at += count;
        self.reader = match ahead.then {
            _ if ahead.at < ahead.bytes.len() => BodyReader::Ahead(ahead),
            BodyReader::Stream(Some(0)) if self.writer == BodyWriter::Held && count > 0 => {
                let last = buffer.data()[count - 1];
                buffer.truncate(count - 1);
                BodyReader::Held(last)
            }
            then => then,
        };
        // It may take a stage long to write anything of it.
        self.written = true;
        self.moved_bytes += buffer.len() as u64;
        let handed = self.hand_on(&mut buffer, None, pool);
        if buffer.is_empty() || handed.is_err() {
            pool.give(buffer);
        } else {
            self.outgoing = Some(buffer);
        }
        handed
    }
}
