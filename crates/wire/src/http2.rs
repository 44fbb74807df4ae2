//! HTTP/2 (RFC 9113) as bytes.
//!
//! ```text
//! bytes of a client    → connection::Connection<Downstream> → requests, data, ends; what is to be said to it → bytes
//! bytes of an endpoint → connection::Connection<Upstream> → responses, data, ends; what is to be said to it → bytes
//! ```
//!
//! [`connection`] is the whole of it, over [`frame`] and [`hpack`]. Here stands how a connection begins, and how much
//! of what a peer sends may be of no use. What a message may hold is said in [`crate::crossing`].

pub mod connection;
pub mod frame;
pub mod hpack;

use std::time::{Duration, Instant};

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
    /// It must be requested over HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: u32 = 0xd;

    /// How the RFC names a code.
    pub fn name(code: u32) -> &'static str {
        match code {
            NO_ERROR => "NO_ERROR",
            PROTOCOL_ERROR => "PROTOCOL_ERROR",
            INTERNAL_ERROR => "INTERNAL_ERROR",
            FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
            STREAM_CLOSED => "STREAM_CLOSED",
            FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            REFUSED_STREAM => "REFUSED_STREAM",
            CANCEL => "CANCEL",
            COMPRESSION_ERROR => "COMPRESSION_ERROR",
            CONNECT_ERROR => "CONNECT_ERROR",
            ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
            HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
            _ => "an unknown code",
        }
    }
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

/// Windows that are opened by less than this, again and again, cost us a frame for every few bytes.
const WINDOW_STEP_MIN: u32 = 256;

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
        self.fill(now);
        let is_left = count <= self.left;
        self.left = self.left.saturating_sub(count);
        is_left
    }

    /// Adds `count`, up to the bound.
    pub fn earn(&mut self, count: u32) {
        self.left = self.left.saturating_add(count).min(self.max);
    }

    fn fill(&mut self, now: Instant) {
        if self.left == self.max {
            // Time without a use pays for nothing later: that would be as much again.
            self.filled_at = self.filled_at.max(now);
            return;
        }
        let passed = now.saturating_duration_since(self.filled_at);
        let more = passed.as_millis().saturating_mul(u128::from(self.per_second)) / 1000;
        if more > 0 {
            self.earn(u32::try_from(more).unwrap_or(u32::MAX));
            // What was too short for another stays.
            let used =
                Duration::from_millis((more * 1000 / u128::from(self.per_second)).min(u128::from(u64::MAX)) as u64);
            let filled_at = self.filled_at.checked_add(used).unwrap_or(now);
            self.filled_at = if self.left == self.max { now } else { filled_at };
        }
    }
}

#[cfg(test)]
mod tests;
