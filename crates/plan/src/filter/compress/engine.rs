//! The three algorithms under one roof: bytes in, bytes out.
//!
//! Memory of each is bounded whatever the body: windows are 32 KiB (gzip), 256 KiB (br) and 512 KiB (zstd, far below the 8 MiB that RFC
//! 9659 section 3 allows), and the tables of zstd are capped, which would otherwise take up to 80 MiB at high levels.

use brotlic::encode::BrotliOperation;
use brotlic::{BrotliEncoder, BrotliEncoderOptions, Quality, WindowSize};
use flate2::Compress;
use schemars::JsonSchema;
use serde::Deserialize;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use super::super::{BadBody, Coded, Turning};
use super::gzip;
pub(super) use super::gzip::ROOM_MIN;

const BROTLI_WINDOW_BITS: u8 = 18;
/// Beyond this, brotli chooses tables of several MiB.
const BROTLI_HINT_MAX: u64 = 512 << 10;
const ZSTD_WINDOW_BITS: u32 = 19;
/// Of tables with four bytes each. Levels below 5 have smaller ones.
const ZSTD_TABLE_BITS: u32 = 18;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Algorithm {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Br,
    /// gzip (RFC 1952).
    Gzip,
}

impl Algorithm {
    pub(super) const ALL: [Self; 3] = [Self::Zstd, Self::Br, Self::Gzip];

    /// As `content-encoding` has it.
    pub(super) fn token(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Br => "br",
            Self::Gzip => "gzip",
        }
    }
}

/// What codes one body.
pub(super) enum Engine {
    Gzip(Compress),
    Zstd(CCtx<'static>),
    /// Made for each body, at this level.
    Br(u8, Option<BrotliEncoder>),
}

impl Engine {
    /// A new one; `None` if there is no memory for it.
    pub(super) fn new(algorithm: Algorithm, level: u8) -> Option<Self> {
        match algorithm {
            Algorithm::Gzip => Some(Self::Gzip(gzip::encoder(level))),
            Algorithm::Zstd => zstd(level).map(Self::Zstd),
            Algorithm::Br => Some(Self::Br(level, None)),
        }
    }

    /// Prepares for a body of this length, if it is known. False: it cannot be used.
    pub(super) fn begin(&mut self, length: Option<u64>) -> bool {
        match self {
            Self::Gzip(state) => state.reset(),
            Self::Zstd(state) => {
                // The length makes the tables fit a small body. A body that breaks its promise is an error of `code`.
                return state.reset(ResetDirective::SessionOnly).is_ok() && state.set_pledged_src_size(length).is_ok();
            }
            Self::Br(level, state) => {
                *state = brotli(*level, length);
                return state.is_some();
            }
        }
        true
    }

    /// Whether it can be used for one body after the other. Brotli's has no way back to its beginning.
    pub(super) fn is_reusable(&self) -> bool {
        matches!(self, Self::Gzip(_) | Self::Zstd(_))
    }

    /// As [`super::super::Coder::code`], with room for at least [`ROOM_MIN`] bytes. After an end it is not called again.
    pub(super) fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        match self {
            Self::Gzip(state) => gzip::code(state, input, room, turning),
            Self::Zstd(state) => zstd_code(state, input, room, turning),
            Self::Br(_, Some(state)) => brotli_code(state, input, room, turning),
            // It was not begun.
            Self::Br(_, None) => Err(BadBody::Malformed),
        }
    }
}

fn zstd(level: u8) -> Option<CCtx<'static>> {
    let mut state = CCtx::try_create()?;
    let mut parameters = vec![CParameter::CompressionLevel(level.into()), CParameter::WindowLog(ZSTD_WINDOW_BITS)];
    if level >= 5 {
        parameters.extend([CParameter::HashLog(ZSTD_TABLE_BITS), CParameter::ChainLog(ZSTD_TABLE_BITS)]);
    }
    parameters.into_iter().all(|parameter| state.set_parameter(parameter).is_ok()).then_some(state)
}

fn zstd_code(state: &mut CCtx<'_>, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
    let directive = match turning {
        Turning::More => ZSTD_EndDirective::ZSTD_e_continue,
        Turning::Flush => ZSTD_EndDirective::ZSTD_e_flush,
        Turning::End => ZSTD_EndDirective::ZSTD_e_end,
    };
    let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(room));
    let left = state.compress_stream2(&mut to, &mut from, directive).map_err(|_| BadBody::Malformed)?;
    let is_done = turning != Turning::More && left == 0;
    Ok(Coded { read: from.pos(), written: to.pos(), is_done })
}

fn brotli(level: u8, length: Option<u64>) -> Option<BrotliEncoder> {
    let hint = length.unwrap_or(BROTLI_HINT_MAX).clamp(1, BROTLI_HINT_MAX) as u32;
    let (quality, window) = (Quality::new(level).ok()?, WindowSize::new(BROTLI_WINDOW_BITS).ok()?);
    BrotliEncoderOptions::new().quality(quality).window_size(window).size_hint(hint).build().ok()
}

fn brotli_code(state: &mut BrotliEncoder, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
    let mut coded = Coded::default();
    // While anything of a flush is left inside, it takes no input.
    if state.has_output() {
        brotli_step(state, BrotliOperation::Process, &[], room, &mut coded)?;
    }
    if coded.written < room.len() {
        let operation = match turning {
            Turning::More => BrotliOperation::Process,
            Turning::Flush => BrotliOperation::Flush,
            Turning::End => BrotliOperation::Finish,
        };
        brotli_step(state, operation, input, room, &mut coded)?;
    }
    coded.is_done = match turning {
        Turning::More => false,
        Turning::Flush => coded.read == input.len() && coded.written < room.len() && !state.has_output(),
        Turning::End => state.is_finished(),
    };
    Ok(coded)
}

fn brotli_step(
    state: &mut BrotliEncoder,
    operation: BrotliOperation,
    input: &[u8],
    room: &mut [u8],
    coded: &mut Coded,
) -> Result<(), BadBody> {
    let done = state.compress(input, &mut room[coded.written..], operation).map_err(|_| BadBody::Malformed)?;
    coded.read += done.bytes_read;
    coded.written += done.bytes_written;
    Ok(())
}
