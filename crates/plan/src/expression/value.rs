//! Texts while an expression is evaluated: where they lie, and the memory for those that are made.

use crate::route::query;

/// An expression has no value: a fact that is missing, a number out of range, a text that is no number, an index that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

/// Bytes that the texts of one term may take while it is evaluated. Texts that grow beyond have no value.
pub(super) const WRITTEN_BYTES_MAX: usize = 256 * 1024;

/// A text: a part of what the expression is asked about or consists of, or of what was written for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    /// From one offset up to another.
    Written(usize, usize),
}

/// The worker's scratch, behind what was there before.
pub(super) struct Scratch<'s> {
    buffer: &'s mut Vec<u8>,
    start: usize,
}

impl<'s> Scratch<'s> {
    pub(super) fn new(buffer: &'s mut Vec<u8>) -> Self {
        let start = buffer.len();
        Self { buffer, start }
    }

    /// Returns the bytes of a text.
    pub(super) fn get<'b>(&'b self, bytes: Bytes<'b>) -> &'b [u8] {
        match bytes {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Written(start, end) => &self.buffer[start..end],
        }
    }

    /// Writes a text.
    pub(super) fn write<'a>(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<Bytes<'a>, Failed> {
        let start = self.buffer.len();
        write(self.buffer);
        self.written(start)
    }

    /// Returns what was written from `start` on.
    pub(super) fn written<'a>(&self, start: usize) -> Result<Bytes<'a>, Failed> {
        let end = self.buffer.len();
        if end - self.start > WRITTEN_BYTES_MAX { Err(Failed) } else { Ok(Bytes::Written(start, end)) }
    }

    /// Returns where the next byte will be written.
    pub(super) fn end(&self) -> usize {
        self.buffer.len()
    }

    /// Forgets what was written from `end` on.
    pub(super) fn release(&mut self, end: usize) {
        self.buffer.truncate(end);
    }

    /// Appends a text to what is being written.
    pub(super) fn push(&mut self, bytes: Bytes<'_>) -> Result<(), Failed> {
        match bytes {
            Bytes::Borrowed(bytes) => self.buffer.extend_from_slice(bytes),
            Bytes::Written(start, end) => self.buffer.extend_from_within(start..end),
        }
        if self.buffer.len() - self.start > WRITTEN_BYTES_MAX { Err(Failed) } else { Ok(()) }
    }

    /// Returns what was written from `start` on, to be changed in place.
    pub(super) fn tail(&mut self, start: usize) -> &mut [u8] {
        &mut self.buffer[start..]
    }

    /// Percent-decodes what was written from `start` on. It grows no longer by that.
    pub(super) fn decode(&mut self, start: usize) {
        let end = self.buffer.len();
        self.buffer.extend_from_within(start..end);
        let (into, from) = self.buffer.split_at_mut(end);
        let mut length = 0;
        for (to, byte) in into[start..].iter_mut().zip(query::decoded(from)) {
            *to = byte;
            length += 1;
        }
        self.buffer.truncate(start + length);
    }

    /// Forgets what was written before `end`, and keeps `kept`, if it was written: it then begins at `end`.
    pub(super) fn forget<'a>(&mut self, end: usize, kept: Bytes<'a>) -> Bytes<'a> {
        match kept {
            Bytes::Written(start, last) if start >= end => {
                self.buffer.copy_within(start..last, end);
                self.buffer.truncate(end + (last - start));
                Bytes::Written(end, end + (last - start))
            }
            kept => {
                self.buffer.truncate(end);
                kept
            }
        }
    }
}

impl Scratch<'_> {
    /// Moves a text to where the evaluation began, where it stays.
    pub(super) fn keep(&mut self, kept: Bytes<'_>) {
        let start = self.start;
        let end = match self.forget(start, kept) {
            Bytes::Written(_, end) => end,
            Bytes::Borrowed(bytes) => {
                self.buffer.extend_from_slice(bytes);
                self.buffer.len()
            }
        };
        self.start = end;
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.buffer.truncate(self.start);
    }
}

/// The part of a text from one byte up to another.
pub(super) fn part(of: Bytes<'_>, from: usize, to: usize) -> Bytes<'_> {
    match of {
        Bytes::Borrowed(bytes) => Bytes::Borrowed(&bytes[from..to]),
        Bytes::Written(start, _) => Bytes::Written(start + from, start + to),
    }
}
