//! Coders of bodies over the engines, and a few engines that each worker keeps.
//!
//! A worker keeps engines of bodies that are over: allocating and filling the tables of one costs more than coding 10 kB. Brotli's are
//! not kept, because they cannot be reset; the allocator keeps their memory.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use model::{FieldName, Fields};

use super::super::{BadBody, Coded, Coder, Turning};
use super::engine::{Algorithm, Engine, ROOM_MIN};
use super::whole::WholeGzip;

#[cfg(test)]
mod tests;

/// Engines of one algorithm and level that a worker keeps.
const KEPT_OF_A_KIND_MAX: usize = 4;
/// Engines that a worker keeps, for routes with different levels.
const KEPT_MAX: usize = 12;

thread_local! {
    static KEPT: RefCell<Vec<(Kind, Engine)>> = const { RefCell::new(Vec::new()) };
}

/// Engines of one kind stand in for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) algorithm: Algorithm,
    pub(super) level: u8,
}

fn take(kind: Kind) -> Option<Engine> {
    let take = |kept: &RefCell<Vec<(Kind, Engine)>>| {
        let mut kept = kept.try_borrow_mut().ok()?;
        let place = kept.iter().position(|(other, _)| *other == kind)?;
        Some(kept.remove(place).1)
    };
    KEPT.try_with(take).ok().flatten()
}

fn keep(kind: Kind, engine: Engine) {
    // A thread that ends keeps nothing.
    let _ = KEPT.try_with(|kept| {
        let Ok(mut kept) = kept.try_borrow_mut() else { return };
        let alike = kept.iter().filter(|(other, _)| *other == kind).count();
        if alike < KEPT_OF_A_KIND_MAX {
            // The oldest goes: its level may be one that no route has any more.
            if kept.len() == KEPT_MAX {
                kept.remove(0);
            }
            kept.push((kind, engine));
        }
    });
}

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

/// Codes one body.
pub(super) struct BodyCoder {
    kind: Kind,
    /// Always there before it is dropped.
    engine: Option<Engine>,
    settled: Settled,
    /// What was written while the room was smaller than an engine needs.
    spill: [u8; ROOM_MIN],
    spilled: Range<usize>,
    digests: Arc<[FieldName]>,
}

impl BodyCoder {
    /// Begins with a body of this length, if it is known. Fields of `digests` do not pass as trailers. `None` if there is no memory.
    pub(super) fn new(kind: Kind, length: Option<u64>, digests: &Arc<[FieldName]>) -> Option<Self> {
        let is_gzip = kind.algorithm == Algorithm::Gzip;
        let whole = is_gzip.then(|| WholeGzip::new(kind.level, length)).flatten().map(Engine::WholeGzip);
        let mut engine = whole.or_else(|| take(kind)).or_else(|| Engine::new(kind.algorithm, kind.level))?;
        if !engine.begin(length) {
            return None;
        }
        let (settled, spill) = (Settled::Flushed, [0; ROOM_MIN]);
        Some(Self { kind, engine: Some(engine), settled, spill, spilled: 0..0, digests: digests.clone() })
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
        let engine = self.engine.as_mut().ok_or(BadBody::Malformed)?;
        if room.len() >= ROOM_MIN {
            return engine.code(input, room, turning);
        }
        let mut coded = engine.code(input, &mut self.spill, turning)?;
        self.spilled = 0..coded.written;
        coded.written = self.pour(room);
        Ok(coded)
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
        if let Some(engine) = self.engine.take().filter(Engine::is_reusable) {
            keep(self.kind, engine);
        }
    }
}
