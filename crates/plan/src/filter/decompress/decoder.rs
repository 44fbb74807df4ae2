//! Decodes one body, whatever its coding.
//!
//! A decoder fills the room that it is given and keeps the rest of its input, so that a body that grows a thousandfold takes one buffer.
//! What it holds itself is the window that the sender chose, which is bounded for each coding.

use std::sync::Arc;

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use model::{FieldName, Fields};
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::super::coding::is_same;
use super::super::{BadBody, Coded, Coder, Turning};

/// The largest window of zstd that is accepted: 8 MiB (RFC 9659 section 3).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;
/// Window bits of gzip and zlib.
const DEFLATE_WINDOW_BITS: u8 = 15;
/// The largest window of brotli that is accepted: 4 MiB. The decoder fills all of its window before anything comes out, which a few
/// bytes can have it do, so that no ratio is seen before.
const BROTLI_WINDOW_BITS_MAX: u32 = 22;
/// Members of gzip beyond one for each of so many bytes: to begin one takes a microsecond, and nothing need come out of it.
const GZIP_MEMBERS_FREE: u64 = 64;
const GZIP_MEMBER_BYTES: u64 = 256;
/// Below this many bytes the ratio says nothing.
const RATIO_FREE_BYTES: u64 = 64 << 10;

/// A content coding that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// RFC 1952.
    Gzip,
    /// `deflate`, which is zlib (RFC 1950).
    Zlib,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// The one that `content-encoding` calls so.
    pub(super) fn named(token: &[u8]) -> Option<Self> {
        let all: [(&[u8], Self); 4] =
            [(b"gzip", Self::Gzip), (b"deflate", Self::Zlib), (b"br", Self::Brotli), (b"zstd", Self::Zstd)];
        all.into_iter().find(|(name, _)| is_same(token, name)).map(|(_, coding)| coding)
    }
}

/// How far bodies may grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes out for each byte in, beyond the first few.
    pub(super) ratio_max: u64,
    /// Bytes out.
    pub(super) size_max: u64,
}

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

enum Engine {
    Gzip(Decompress),
    Zlib(Decompress),
    Brotli(Box<Brotli>),
    Zstd(DCtx<'static>),
}

/// What one step of an engine did.
struct Step {
    read: usize,
    written: usize,
    /// The body may end here: a member or frame is complete, and all of it is out.
    is_complete: bool,
}

/// Decodes one body.
pub(super) struct Decoder {
    coding: Coding,
    bounds: Bounds,
    digests: Arc<[FieldName]>,
    /// Made with the first bytes: many requests with a coding never send any.
    engine: Option<Engine>,
    is_complete: bool,
    /// Members of gzip so far.
    members: u64,
    read: u64,
    written: u64,
}

impl Decoder {
    /// Fields of `digests` do not pass as trailers.
    pub(super) fn new(coding: Coding, bounds: Bounds, digests: &Arc<[FieldName]>) -> Self {
        Self {
            coding,
            bounds,
            digests: digests.clone(),
            engine: None,
            is_complete: true,
            members: 0,
            read: 0,
            written: 0,
        }
    }

    /// One step of the engine, which begins with the next member where one is complete.
    fn step(&mut self, input: &[u8], room: &mut [u8]) -> Result<Step, BadBody> {
        if self.is_complete && self.engine.is_some() && self.coding == Coding::Gzip {
            // RFC 1952 section 2.2: members follow one another.
            self.engine = None;
        }
        if self.engine.is_none() {
            self.members += 1;
            if self.members > GZIP_MEMBERS_FREE + self.read / GZIP_MEMBER_BYTES {
                return Err(BadBody::TooLong);
            }
            if self.coding == Coding::Brotli
                && input.first().is_some_and(|first| brotli_window_bits(*first) > BROTLI_WINDOW_BITS_MAX)
            {
                return Err(BadBody::TooLong);
            }
            self.engine = Some(Engine::new(self.coding)?);
        }
        match &mut self.engine {
            Some(engine) => engine.step(input, room, self.is_complete && self.read > 0),
            None => Err(BadBody::Malformed),
        }
    }

    fn check(&self) -> Result<(), BadBody> {
        let by_ratio = self.read.saturating_mul(self.bounds.ratio_max).max(RATIO_FREE_BYTES);
        if self.written > by_ratio.min(self.bounds.size_max) { Err(BadBody::TooLong) } else { Ok(()) }
    }
}

impl Coder for Decoder {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let mut coded = Coded::default();
        loop {
            let (rest, free) = (&input[coded.read..], &mut room[coded.written..]);
            let may_hold_more = self.engine.is_some() && !self.is_complete;
            if free.is_empty() || rest.is_empty() && !may_hold_more {
                break;
            }
            let step = self.step(rest, free)?;
            self.read += step.read as u64;
            self.written += step.written as u64;
            self.check()?;
            self.is_complete = step.is_complete;
            coded.read += step.read;
            coded.written += step.written;
            if step.read == 0 && step.written == 0 {
                break;
            }
        }
        let all_out = coded.read == input.len() && (self.is_complete || coded.written < room.len());
        coded.is_done = match turning {
            Turning::More => false,
            Turning::Flush => all_out,
            Turning::End if all_out && !self.is_complete => return Err(BadBody::Malformed),
            Turning::End => all_out,
        };
        Ok(coded)
    }

    /// A digest in a trailer is one of the coded body (RFC 9530 sections 2 and 3).
    fn trailers(&mut self, trailers: &mut Fields) {
        for name in &*self.digests {
            trailers.remove(name);
        }
    }
}

impl Engine {
    fn new(coding: Coding) -> Result<Self, BadBody> {
        Ok(match coding {
            Coding::Gzip => Self::Gzip(Decompress::new_gzip(DEFLATE_WINDOW_BITS)),
            Coding::Zlib => Self::Zlib(Decompress::new_with_window_bits(true, DEFLATE_WINDOW_BITS)),
            Coding::Brotli => {
                let alloc = StandardAlloc::default;
                // Strict: windows of RFC 7932 only, which end at 16 MiB.
                Self::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            Coding::Zstd => {
                let mut state = DCtx::try_create().ok_or(BadBody::Malformed)?;
                let bounded = state.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_BITS_MAX));
                bounded.map_err(|_| BadBody::Malformed)?;
                Self::Zstd(state)
            }
        })
    }

    /// `is_over`: the body could have ended before this input.
    fn step(&mut self, input: &[u8], room: &mut [u8], is_over: bool) -> Result<Step, BadBody> {
        match self {
            Self::Gzip(state) => inflate(state, input, room),
            // These have one stream, and nothing behind it.
            Self::Zlib(_) | Self::Brotli(_) if is_over => Err(BadBody::Malformed),
            Self::Zlib(state) => inflate(state, input, room),
            Self::Brotli(state) => decode_brotli(state, input, room),
            Self::Zstd(state) => decode_zstd(state, input, room),
        }
    }
}

/// The window that the first byte of a stream asks for (RFC 7932 section 9.1). Those below 17 bits need more of the byte, and are small.
fn brotli_window_bits(first: u8) -> u32 {
    match (first & 1, u32::from(first >> 1 & 7)) {
        (1, more @ 1..) => 17 + more,
        _ => 17,
    }
}

fn inflate(state: &mut Decompress, input: &[u8], room: &mut [u8]) -> Result<Step, BadBody> {
    let before = (state.total_in(), state.total_out());
    let status = state.decompress(input, room, FlushDecompress::None).map_err(|_| BadBody::Malformed)?;
    let (read, written) = ((state.total_in() - before.0) as usize, (state.total_out() - before.1) as usize);
    Ok(Step { read, written, is_complete: status == Status::StreamEnd })
}

fn decode_brotli(state: &mut Brotli, input: &[u8], room: &mut [u8]) -> Result<Step, BadBody> {
    let (mut input_left, mut read) = (input.len(), 0);
    let (mut room_left, mut written, mut total) = (room.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut input_left,
        &mut read,
        input,
        &mut room_left,
        &mut written,
        room,
        &mut total,
        state,
    );
    match result {
        BrotliResult::ResultFailure => Err(BadBody::Malformed),
        BrotliResult::ResultSuccess => Ok(Step { read, written, is_complete: true }),
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok(Step { read, written, is_complete: false }),
    }
}

fn decode_zstd(state: &mut DCtx<'_>, input: &[u8], room: &mut [u8]) -> Result<Step, BadBody> {
    let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(room));
    let hint = state.decompress_stream(&mut to, &mut from).map_err(|_| BadBody::Malformed)?;
    Ok(Step { read: from.pos(), written: to.pos(), is_complete: hint == 0 })
}
