//! Finds the end of a head as its bytes arrive, looking at each byte once.

use memchr::memchr_iter;
use model::limits::LEADING_EMPTY_LINES_MAX;

/// Hard bound of a head whatever the configuration says, so that spans fit in 32 bits.
const HEAD_BYTES_HARD_MAX: usize = 1 << 24;

/// How far a head has been looked at. One per connection and direction; a finished or refused head resets it.
#[derive(Clone, Debug, Default)]
pub struct HeadScan {
    /// First byte of the first line.
    start: usize,
    /// First byte of the line that is being looked at.
    line_start: usize,
    /// Bytes looked at.
    scanned: usize,
    empty_lines: usize,
    begun: bool,
}

/// Which head it is, and so how it may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Request,
    Response,
}

/// Why no end will be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanFault {
    /// A bare LF, or an impossible first byte.
    Broken,
    /// The bound was reached inside the first line.
    FirstLineTooLong,
    /// The bound was reached later.
    TooLarge,
}

impl HeadScan {
    /// Forgets everything: the next bytes are a new head.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether a byte of a head was seen; empty lines before a request line are none. A connection that closes before
    /// that closed in good order.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Looks at the bytes that are new since the last call; `bytes` begins where it began then. Gives start and end of
    /// the head, the empty line included. What it says depends on the bytes only, not on how they were split: each
    /// fault is found at a fixed byte, and the first one wins.
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        bytes_max: usize,
        opening: Opening,
    ) -> Result<Option<std::ops::Range<usize>>, ScanFault> {
        let bytes_max = bytes_max.min(HEAD_BYTES_HARD_MAX);
        let window = &bytes[..bytes.len().min(bytes_max)];
        if self.scanned.max(self.start) > window.len() {
            self.reset();
        }
        if (self.begun || self.open(window, opening)?)
            && let Some(end) = self.find_empty_line(window)?
        {
            return Ok(Some(self.start..end));
        }
        if bytes.len() < bytes_max {
            Ok(None)
        } else if self.line_start == self.start {
            Err(ScanFault::FirstLineTooLong)
        } else {
            Err(ScanFault::TooLarge)
        }
    }

    fn find_empty_line(&mut self, window: &[u8]) -> Result<Option<usize>, ScanFault> {
        let from = self.scanned;
        for at in memchr_iter(b'\n', &window[from..]) {
            let at = from + at;
            // RFC 9112 section 2.2 lets a recipient take a bare LF for a line end. Programs differ in it: refused.
            if at == 0 || window[at - 1] != b'\r' {
                return Err(ScanFault::Broken);
            }
            if window[self.line_start] == b'\r' {
                // An empty line, or a bare CR at the start of a line: waiting for the end would be in vain.
                return if at == self.line_start + 1 { Ok(Some(at + 1)) } else { Err(ScanFault::Broken) };
            }
            self.line_start = at + 1;
        }
        self.scanned = window.len();
        Ok(None)
    }

    /// Checks how the head begins; false: too few bytes to know.
    fn open(&mut self, window: &[u8], opening: Opening) -> Result<bool, ScanFault> {
        match opening {
            Opening::Request => self.open_request(window),
            Opening::Response => {
                // RFC 9112 section 4: nothing may stand before the status line.
                const PREFIX: &[u8] = b"HTTP/1.";
                let seen = window.len().min(PREFIX.len());
                if window[..seen] != PREFIX[..seen] {
                    return Err(ScanFault::Broken);
                }
                self.begun = seen == PREFIX.len();
                Ok(self.begun)
            }
        }
    }

    /// RFC 9112 section 2.2: a few empty lines before the request line are ignored. The first byte of the method is
    /// checked at once, so that other protocols (a TLS record begins with 0x16) are answered without delay.
    fn open_request(&mut self, window: &[u8]) -> Result<bool, ScanFault> {
        loop {
            match window[self.start..] {
                [b'\r', ..] if self.empty_lines == LEADING_EMPTY_LINES_MAX => return Err(ScanFault::Broken),
                [b'\r', b'\n', ..] => {
                    self.empty_lines += 1;
                    self.start += 2;
                    self.line_start = self.start;
                    self.scanned = self.start;
                }
                [] | [b'\r'] => return Ok(false),
                [first, ..] if model::fields::is_token(&[first]) => {
                    self.begun = true;
                    return Ok(true);
                }
                _ => return Err(ScanFault::Broken),
            }
        }
    }
}
