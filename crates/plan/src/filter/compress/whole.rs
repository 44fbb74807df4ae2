//! gzip of a short body at its end, in one go.
//!
//! A body whose length is known is not flushed on its way: its receiver waits for all of it. So it can be collected and coded by
//! libdeflate, which does not stream and takes a fifth to a third less time for bodies that are smaller. While a body is collected,
//! it takes less memory than the tables of an encoder that streams.

use std::cell::RefCell;

use flate2::Compress;
use libdeflater::{CompressionLvl, Compressor};

use super::super::{BadBody, Coded, Turning};
use super::gzip::{self, ROOM_MIN};

/// The longest body that is coded in one go: other requests of the worker wait meanwhile, about a millisecond at the default level.
const LENGTH_MAX: u64 = 128 << 10;
/// Level 1 of zlib-rs costs less than any of libdeflate's.
const LEVEL_MIN: u8 = 2;
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
pub(super) struct WholeGzip {
    level: u8,
    length_max: usize,
    /// The body as far as it has come, then the coded body.
    bytes: Vec<u8>,
    /// How many of `bytes` have been passed on: to the receiver, or to the encoder that streams.
    passed: usize,
    is_coded: bool,
    /// For a body that is flushed, or longer than was said.
    streaming: Option<Compress>,
}

impl WholeGzip {
    /// `None`: a body of this length is streamed, or coded so at this level.
    pub(super) fn new(level: u8, length: Option<u64>) -> Option<Self> {
        let length = length.filter(|length| *length <= LENGTH_MAX && level >= LEVEL_MIN)?;
        let bytes = Vec::with_capacity(length as usize);
        Some(Self { level, length_max: length as usize, bytes, passed: 0, is_coded: false, streaming: None })
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
            let level = libdeflate_level(self.level);
            let new = || CompressionLvl::new(level as i32).map(Compressor::new);
            let compressor = match &mut compressors[level] {
                Some(compressor) => compressor,
                none => none.insert(new().map_err(|_| BadBody::Malformed)?),
            };
            let bound = compressor.gzip_compress_bound(self.bytes.len());
            if scratch.len() < bound {
                scratch.resize(bound, 0);
            }
            let count = compressor.gzip_compress(&self.bytes, scratch).map_err(|_| BadBody::Malformed)?;
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
        let state = self.streaming.get_or_insert_with(|| gzip::encoder(self.level));
        let mut written = 0;
        if self.passed < self.bytes.len() {
            let early = gzip::code(state, &self.bytes[self.passed..], room, Turning::More)?;
            (self.passed, written) = (self.passed + early.read, early.written);
            if self.passed == self.bytes.len() {
                (self.bytes, self.passed) = (Vec::new(), 0);
            }
            let is_full = !self.bytes.is_empty() || room.len() - written < ROOM_MIN;
            if is_full {
                return Ok(Coded { read: 0, written, is_done: false });
            }
        }
        let coded = gzip::code(state, input, &mut room[written..], turning)?;
        Ok(Coded { written: written + coded.written, ..coded })
    }
}

/// The level at which libdeflate takes less time than zlib-rs, for JSON and HTML with smaller bodies.
fn libdeflate_level(level: u8) -> usize {
    match level {
        ..=3 => usize::from(level) - 1,
        4.. => usize::from(level).min(LEVELS - 1),
    }
}
