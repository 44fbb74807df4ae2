//! What of HTTP/2 is looked at as bytes (RFC 9113): how a connection begins, and how much of what a peer sends is of no
//! use. The frames themselves are the business of a library.

use std::time::{Duration, Instant};

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

/// Frames, by the numbers of RFC 9113 section 6.
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

const HEADER_BYTES: usize = 9;
const END_STREAM: u8 = 1;
/// Windows that are opened by less than this, again and again, cost us a frame for every few bytes.
const WINDOW_STEP_MIN: u32 = 256;

/// Counts frames that make work and carry nothing, as their bytes come by: PING, SETTINGS, PRIORITY, RST_STREAM, unknown ones,
/// empty DATA and CONTINUATION, tiny steps of a window. Payloads are not looked at but for the steps.
#[derive(Clone, Debug)]
pub struct FrameMeter {
    /// Of the frame header, or of a step.
    collected: [u8; HEADER_BYTES],
    count: usize,
    /// Payload that is passed over.
    skip: u32,
    is_step: bool,
}

impl FrameMeter {
    /// For what follows after `skip` bytes.
    pub fn after(skip: u32) -> Self {
        Self { collected: [0; HEADER_BYTES], count: 0, skip, is_step: false }
    }

    /// Takes the next bytes of a connection; gives how many idle frames began in them.
    pub fn take(&mut self, mut bytes: &[u8]) -> u32 {
        let mut idle = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let passed = bytes.len().min(self.skip as usize);
                self.skip -= passed as u32;
                bytes = &bytes[passed..];
                continue;
            }
            let wanted = if self.is_step { 4 } else { HEADER_BYTES };
            let taken = bytes.len().min(wanted - self.count);
            self.collected[self.count..self.count + taken].copy_from_slice(&bytes[..taken]);
            self.count += taken;
            bytes = &bytes[taken..];
            if self.count == wanted {
                self.count = 0;
                idle += if self.is_step { self.end_step() } else { self.begin_frame() };
            }
        }
        idle
    }

    fn end_step(&mut self) -> u32 {
        self.is_step = false;
        let [a, b, c, d, ..] = self.collected;
        u32::from(u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff < WINDOW_STEP_MIN)
    }

    fn begin_frame(&mut self) -> u32 {
        let [a, b, c, kind, flags, ..] = self.collected;
        self.skip = u32::from_be_bytes([0, a, b, c]);
        match kind {
            kind::HEADERS => 0,
            kind::DATA => u32::from(self.skip == 0 && flags & END_STREAM == 0),
            kind::CONTINUATION => u32::from(self.skip == 0),
            kind::WINDOW_UPDATE if self.skip == 4 => {
                self.skip = 0;
                self.is_step = true;
                0
            }
            // Twice: it throws away work, too.
            kind::RST_STREAM => 2,
            _ => 1,
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
