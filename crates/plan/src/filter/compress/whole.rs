//! A short body whose length is known: it is collected, and coded at its end in one go.
//!
//! Such a body is not flushed on its way: its receiver waits for all of it. So the encoder's tables, up to 2 MiB, are taken at its end, and
//! all bodies of a worker use the same ones, one after the other: they stay in the processor's caches. While a body is collected, it takes
//! less memory than an encoder.
//!
//! gzip is coded by libdeflate then, which does not stream and takes a fifth to a third less time than zlib for bodies that are smaller.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor};

use super::super::{BadBody, Coded, Turning};
use super::engine::{Algorithm, Engine, ROOM_MIN};
use super::kept::{self, Kind};

/// The longest body that is coded in one go: other requests of the worker wait meanwhile, about a millisecond at the default level.
/// Encoders that stream work in blocks of up to this length, too.
const LENGTH_MAX: u64 = 128 << 10;
/// Level 1 of zlib-rs costs less than any of libdeflate's.
const LIBDEFLATE_MIN: u8 = 2;
const LEVELS: usize = 10;

/// What a worker keeps for all its bodies.
struct Tools {
    /// By the level of libdeflate. Nothing of one body is left in them for the next.
    compressors: [Option<Compressor>; LEVELS],
    /// Where bodies are coded to, before their length is known.
    scratch: Vec<u8>,
}

thread_local! {
    static TOOLS: RefCell<Tools> = const { RefCell::new(Tools { compressors: [const { None }; LEVELS], scratch: Vec::new() }) };
}

/// Codes one body of a known length.
pub(super) struct Whole {
    kind: Kind,
    length_max: usize,
    /// The body as far as it has come, then the coded body.
    bytes: Vec<u8>,
    /// How many of `bytes` have been passed on: to the receiver, or to the encoder that streams.
    passed: usize,
    is_coded: bool,
    /// For a body that is flushed, or longer than was said.
    streaming: Option<Box<Engine>>,
}

impl Whole {
    /// `None`: a body of this length is streamed.
    pub(super) fn new(kind: Kind, length: Option<u64>) -> Option<Self> {
        let length = length.filter(|length| *length <= LENGTH_MAX)?;
        let bytes = Vec::with_capacity(length as usize);
        Some(Self { kind, length_max: length as usize, bytes, passed: 0, is_coded: false, streaming: None })
    }

    /// As [`super::super::Coder::code`], with room for at least [`ROOM_MIN`] bytes. After an end it is not called again.
    pub(super) fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        if self.is_coded {
            return Ok(self.pour(room));
        }
        let fits = self.bytes.len() + input.len() <= self.length_max;
        if self.streaming.is_some() || !fits || turning == Turning::Flush {
            return self.stream(input, room, turning);
        }
        self.bytes.extend_from_slice(input);
        let mut coded = Coded::default();
        if turning == Turning::End {
            self.finish()?;
            coded = self.pour(room);
        }
        coded.read = input.len();
        Ok(coded)
    }

    fn finish(&mut self) -> Result<(), BadBody> {
        TOOLS.with_borrow_mut(|Tools { compressors, scratch }| {
            let count = match self.kind {
                Kind { algorithm: Algorithm::Gzip, level: LIBDEFLATE_MIN.. } => {
                    let compressor = compressor(compressors, self.kind.level)?;
                    grow(scratch, compressor.gzip_compress_bound(self.bytes.len()));
                    compressor.gzip_compress(&self.bytes, scratch).map_err(|_| BadBody::Malformed)?
                }
                kind => run(kind, &self.bytes, scratch)?,
            };
            self.bytes.clear();
            self.bytes.extend_from_slice(&scratch[..count]);
            self.is_coded = true;
            Ok(())
        })
    }

    fn pour(&mut self, room: &mut [u8]) -> Coded {
        let left = &self.bytes[self.passed..];
        let written = left.len().min(room.len());
        room[..written].copy_from_slice(&left[..written]);
        self.passed += written;
        Coded { read: 0, written, is_done: self.passed == self.bytes.len() }
    }

    /// What was collected goes before the input.
    fn stream(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let state = match &mut self.streaming {
            Some(state) => state,
            none => none.insert(Box::new(kept::take(self.kind, None).ok_or(BadBody::Malformed)?)),
        };
        let mut written = 0;
        if self.passed < self.bytes.len() {
            let early = state.code(&self.bytes[self.passed..], room, Turning::More)?;
            (self.passed, written) = (self.passed + early.read, early.written);
            if self.passed == self.bytes.len() {
                (self.bytes, self.passed) = (Vec::new(), 0);
            }
            let is_full = !self.bytes.is_empty() || room.len() - written < ROOM_MIN;
            if is_full {
                return Ok(Coded { read: 0, written, is_done: false });
            }
        }
        let coded = state.code(input, &mut room[written..], turning)?;
        Ok(Coded { written: written + coded.written, ..coded })
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some(state) = self.streaming.take() {
            kept::keep(self.kind, *state);
        }
    }
}

/// Codes a whole body by an encoder that could stream, and says how long it is then.
fn run(kind: Kind, body: &[u8], scratch: &mut Vec<u8>) -> Result<usize, BadBody> {
    let mut engine = kept::take(kind, Some(body.len() as u64)).ok_or(BadBody::Malformed)?;
    // More than any of them needs for bytes that it cannot make fewer, so that one call does.
    grow(scratch, body.len() + body.len() / 64 + (1 << 10));
    let (mut read, mut written) = (0, 0);
    loop {
        let coded = engine.code(&body[read..], &mut scratch[written..], Turning::End)?;
        (read, written) = (read + coded.read, written + coded.written);
        if coded.is_done {
            kept::keep(kind, engine);
            return Ok(written);
        }
        let more = scratch.len() * 2;
        grow(scratch, more);
    }
}

fn compressor(all: &mut [Option<Compressor>; LEVELS], level: u8) -> Result<&mut Compressor, BadBody> {
    let level = libdeflate_level(level);
    match &mut all[level] {
        Some(compressor) => Ok(compressor),
        none => {
            let level = CompressionLvl::new(level as i32).map_err(|_| BadBody::Malformed)?;
            Ok(none.insert(Compressor::new(level)))
        }
    }
}

fn grow(scratch: &mut Vec<u8>, length: usize) {
    if scratch.len() < length {
        scratch.resize(length, 0);
    }
}

/// The level at which libdeflate takes less time than zlib-rs, for JSON and HTML with smaller bodies.
fn libdeflate_level(level: u8) -> usize {
    match level {
        ..=3 => usize::from(level) - 1,
        4.. => usize::from(level).min(LEVELS - 1),
    }
}
