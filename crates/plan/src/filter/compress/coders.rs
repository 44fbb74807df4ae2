//! Coders of bodies over the engines.

use std::ops::Range;
use std::sync::Arc;

use model::{FieldName, Fields};

use super::super::{BadBody, Coded, Coder, Turning};
use super::engine::{Engine, ROOM_MIN};
use super::kept::{self, Kind};
use super::whole::Whole;

#[cfg(test)]
mod tests;

/// What the engine has been brought to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// It holds bytes that are not out.
    No,
    /// All that it has read is out, or lies in the spill.
    Flushed,
    /// The body is over.
    Ended,
}

/// How a body is coded.
enum Way {
    Streamed(Engine),
    Whole(Whole),
}

/// Codes one body.
pub(super) struct BodyCoder {
    kind: Kind,
    /// Always there before it is dropped.
    way: Option<Way>,
    settled: Settled,
    /// What was written while the room was smaller than an engine needs.
    spill: [u8; ROOM_MIN],
    spilled: Range<usize>,
    digests: Arc<[FieldName]>,
}

impl BodyCoder {
    /// Begins with a body of this length, if it is known. Fields of `digests` do not pass as trailers. `None` if there is no memory.
    pub(super) fn new(kind: Kind, length: Option<u64>, digests: &Arc<[FieldName]>) -> Option<Self> {
        let way = match Whole::new(kind, length) {
            Some(whole) => Way::Whole(whole),
            None => Way::Streamed(kept::take(kind, length)?),
        };
        let (settled, spill) = (Settled::Flushed, [0; ROOM_MIN]);
        Some(Self { kind, way: Some(way), settled, spill, spilled: 0..0, digests: digests.clone() })
    }

    fn is_done(&self, input: &[u8], turning: Turning) -> bool {
        match turning {
            _ if !self.spilled.is_empty() || !input.is_empty() => false,
            Turning::More => false,
            Turning::Flush => self.settled != Settled::No,
            Turning::End => self.settled == Settled::Ended,
        }
    }

    /// Empties the spill into the room and says how many bytes that were.
    fn pour(&mut self, room: &mut [u8]) -> usize {
        let count = self.spilled.len().min(room.len());
        let from = self.spilled.start;
        room[..count].copy_from_slice(&self.spill[from..from + count]);
        self.spilled.start += count;
        count
    }

    fn run(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let way = self.way.as_mut().ok_or(BadBody::Malformed)?;
        if room.len() >= ROOM_MIN {
            return way.code(input, room, turning);
        }
        let mut coded = way.code(input, &mut self.spill, turning)?;
        self.spilled = 0..coded.written;
        coded.written = self.pour(room);
        Ok(coded)
    }
}

impl Way {
    /// As [`Coder::code`], with room for at least [`ROOM_MIN`] bytes.
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        match self {
            Self::Streamed(engine) => engine.code(input, room, turning),
            Self::Whole(whole) => whole.code(input, room, turning),
        }
    }
}

impl Coder for BodyCoder {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        if !self.spilled.is_empty() {
            let written = self.pour(room);
            return Ok(Coded { read: 0, written, is_done: self.is_done(input, turning) });
        }
        // So a sender that is silent for long costs nothing: without new input a flush writes no block.
        if self.is_done(input, turning) || self.settled == Settled::Ended {
            return Ok(Coded {
                is_done: self.settled == Settled::Ended || turning != Turning::More,
                ..Coded::default()
            });
        }
        let mut coded = self.run(input, room, turning)?;
        if coded.read > 0 {
            self.settled = Settled::No;
        }
        if coded.is_done {
            self.settled = if turning == Turning::End { Settled::Ended } else { Settled::Flushed };
        }
        coded.is_done = self.is_done(&input[coded.read..], turning);
        Ok(coded)
    }

    /// A digest in a trailer is one of the body before it was coded (RFC 9530 sections 2 and 3).
    fn trailers(&mut self, trailers: &mut Fields) {
        for name in &*self.digests {
            trailers.remove(name);
        }
    }
}

impl Drop for BodyCoder {
    fn drop(&mut self) {
        if let Some(Way::Streamed(engine)) = self.way.take() {
            kept::keep(self.kind, engine);
        }
    }
}
