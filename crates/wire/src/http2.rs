//! HTTP/2 (RFC 9113) as bytes.
//!
//! ```text
//! bytes of a client → connection::Connection → requests, data, ends; what is to be said to it → bytes
//! ```
//!
//! [`connection`] is the whole of it towards clients, over [`frame`] and [`hpack`]. Here stands what is looked at where a library
//! drives the frames: how a connection begins, and how much of what a peer sends is of no use. What a message may hold is said
//! in [`crate::crossing`].

pub mod connection;
pub mod frame;
pub mod hpack;

use std::time::{Duration, Instant};

use frame::flag::END_STREAM;
use frame::{HEAD_BYTES, kind};

/// What a stream or a connection is ended with (section 7).
pub mod code {
    /// Nothing is wrong.
    pub const NO_ERROR: u32 = 0x0;
    /// Against the rules, in a way that has no other code.
    pub const PROTOCOL_ERROR: u32 = 0x1;
    /// We have failed.
    pub const INTERNAL_ERROR: u32 = 0x2;
    /// More was sent than a window allows.
    pub const FLOW_CONTROL_ERROR: u32 = 0x3;
    /// SETTINGS were not answered.
    pub const SETTINGS_TIMEOUT: u32 = 0x4;
    /// A frame for a stream whose half has ended.
    pub const STREAM_CLOSED: u32 = 0x5;
    /// A frame of a wrong length.
    pub const FRAME_SIZE_ERROR: u32 = 0x6;
    /// Not looked at; it may be sent again.
    pub const REFUSED_STREAM: u32 = 0x7;
    /// Not wanted any more.
    pub const CANCEL: u32 = 0x8;
    /// A block of fields that cannot be read.
    pub const COMPRESSION_ERROR: u32 = 0x9;
    /// The connection behind a CONNECT has failed.
    pub const CONNECT_ERROR: u32 = 0xa;
    /// More work than the peer may make.
    pub const ENHANCE_YOUR_CALM: u32 = 0xb;
    /// TLS is not good enough.
    pub const INADEQUATE_SECURITY: u32 = 0xc;
    /// It is to be asked for by HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: u32 = 0xd;
}

/// How a client begins an HTTP/2 connection (section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether a connection begins with the preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preface {
    /// It does.
    Whole,
    /// So far; more bytes will tell.
    Partial,
    /// It does not.
    No,
}

/// Looks at the first bytes of a connection.
#[inline]
pub fn preface(bytes: &[u8]) -> Preface {
    // Hardly any request begins with a P that goes on with an R.
    match bytes {
        [] | [b'P'] => Preface::Partial,
        [b'P', b'R', ..] => {
            let seen = bytes.len().min(PREFACE.len());
            match bytes[..seen] == PREFACE[..seen] {
                true if seen == PREFACE.len() => Preface::Whole,
                true => Preface::Partial,
                false => Preface::No,
            }
        }
        _ => Preface::No,
    }
}

/// Of the payload of a frame that carries a number.
const NUMBER_BYTES: usize = 4;
/// Windows that are opened by less than this, again and again, cost us a frame for every few bytes.
const WINDOW_STEP_MIN: u32 = 256;

/// How a frame begins (section 4.1).
struct Head {
    length: u32,
    kind: u8,
    flags: u8,
    stream: u32,
}

/// A frame as it goes by.
enum Passing {
    /// Its payload is passed over.
    Frame(Head),
    /// One that carries a number and nothing else: the step of a window, or the reason of a reset.
    Number(Head, u32),
}

/// Walks over frames as their bytes come by, however they are split. Payloads are not looked at but for numbers.
#[derive(Clone, Debug)]
struct Walk {
    /// Of a frame's head, and of a number behind it.
    collected: [u8; HEAD_BYTES + NUMBER_BYTES],
    count: usize,
    wanted: usize,
    /// Payload that is passed over.
    skip: u32,
}

impl Walk {
    fn after(skip: u32) -> Self {
        Self { collected: [0; HEAD_BYTES + NUMBER_BYTES], count: 0, wanted: HEAD_BYTES, skip }
    }

    /// The next frame that is known well enough; `bytes` then begin behind that.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<Passing> {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let passed = bytes.len().min(self.skip as usize);
                self.skip -= passed as u32;
                *bytes = &bytes[passed..];
                continue;
            }
            let taken = bytes.len().min(self.wanted - self.count);
            self.collected[self.count..self.count + taken].copy_from_slice(&bytes[..taken]);
            self.count += taken;
            *bytes = &bytes[taken..];
            if self.count == self.wanted
                && let Some(passing) = self.end()
            {
                return Some(passing);
            }
        }
        None
    }

    /// What is collected is as long as wanted.
    fn end(&mut self) -> Option<Passing> {
        let [a, b, c, kind, flags, d, e, f, g, number @ ..] = self.collected;
        let length = u32::from_be_bytes([0, a, b, c]);
        let stream = u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff;
        let head = Head { length, kind, flags, stream };
        let is_number = matches!(kind, kind::WINDOW_UPDATE | kind::RST_STREAM) && length == NUMBER_BYTES as u32;
        if is_number && self.wanted == HEAD_BYTES {
            self.wanted += NUMBER_BYTES;
            return None;
        }
        (self.count, self.wanted) = (0, HEAD_BYTES);
        if is_number {
            return Some(Passing::Number(head, u32::from_be_bytes(number)));
        }
        self.skip = length;
        Some(Passing::Frame(head))
    }
}

/// Counts frames that make work and carry nothing, as their bytes come by: PING, SETTINGS, PRIORITY, RST_STREAM, unknown ones,
/// empty DATA and CONTINUATION, tiny steps of a window. Counts beside them those that may begin a stream.
#[derive(Clone, Debug)]
pub struct FrameMeter {
    walk: Walk,
    heads: u64,
}

impl FrameMeter {
    /// For what follows after `skip` bytes.
    pub fn after(skip: u32) -> Self {
        Self { walk: Walk::after(skip), heads: 0 }
    }

    /// HEADERS frames that have gone by, or begun to: each begins a stream, but for trailers and what breaks the rules.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Takes the next bytes of a connection; gives how many idle frames went by in them.
    pub fn take(&mut self, mut bytes: &[u8]) -> u32 {
        let mut idle = 0;
        while let Some(passing) = self.walk.next(&mut bytes) {
            idle += match passing {
                Passing::Frame(Head { kind: kind::HEADERS, .. }) => {
                    self.heads += 1;
                    0
                }
                Passing::Frame(Head { kind: kind::DATA, length, flags, .. }) => {
                    u32::from(length == 0 && flags & END_STREAM == 0)
                }
                Passing::Frame(Head { kind: kind::CONTINUATION, length, .. }) => u32::from(length == 0),
                Passing::Number(Head { kind: kind::WINDOW_UPDATE, .. }, step) => {
                    u32::from(step & 0x7fff_ffff < WINDOW_STEP_MIN)
                }
                // Twice: it throws away work, too.
                Passing::Number(..) | Passing::Frame(Head { kind: kind::RST_STREAM, .. }) => 2,
                Passing::Frame(_) => 1,
            };
        }
        idle
    }
}

/// Sees the streams that are ended because the peer broke the rules, as the frames that say so go by.
#[derive(Clone, Debug)]
pub struct RefusalMeter(Walk);

impl Default for RefusalMeter {
    fn default() -> Self {
        Self(Walk::after(0))
    }
}

impl RefusalMeter {
    /// Takes the next bytes of a connection, and tells `seen` of each such stream.
    pub fn take(&mut self, mut bytes: &[u8], mut seen: impl FnMut(u32)) {
        while let Some(passing) = self.0.next(&mut bytes) {
            if let Passing::Number(Head { kind: kind::RST_STREAM, stream, .. }, code::PROTOCOL_ERROR) = passing {
                seen(stream);
            }
        }
    }
}

/// How many idle frames a peer may still send: so many at once, so many more with time, and some for every message that
/// was of use.
#[derive(Clone, Debug)]
pub struct Allowance {
    left: u32,
    max: u32,
    per_second: u32,
    filled_at: Instant,
}

impl Allowance {
    /// A full one.
    pub fn new(max: u32, per_second: u32, now: Instant) -> Self {
        Self { left: max, max, per_second, filled_at: now }
    }

    /// Takes `count`. False: there were not so many left.
    #[must_use]
    pub fn spend(&mut self, count: u32, now: Instant) -> bool {
        if count > self.left {
            self.fill(now);
        }
        let is_left = count <= self.left;
        self.left = self.left.saturating_sub(count);
        is_left
    }

    /// Adds `count`, up to the bound.
    pub fn earn(&mut self, count: u32) {
        self.left = self.left.saturating_add(count).min(self.max);
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at);
        let more = passed.as_millis().saturating_mul(u128::from(self.per_second)) / 1000;
        if more > 0 {
            self.earn(u32::try_from(more).unwrap_or(u32::MAX));
            // What was too short for another stays.
            let used =
                Duration::from_millis((more * 1000 / u128::from(self.per_second)).min(u128::from(u64::MAX)) as u64);
            self.filled_at = self.filled_at.checked_add(used).unwrap_or(now);
        }
    }
}

#[cfg(test)]
mod tests;
