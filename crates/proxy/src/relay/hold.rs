//! Holds what a receiver is too slow for: in memory, and beyond that in a file, within the bounds of a filter.
//!
//! ```text
//! push ─► file, if there is no room in memory ─► memory ─► take
//! ```
//!
//! Bytes leave in the order in which they came. While any are in the file, all that come go there too. A body has one write and one read
//! under way at most, each of a buffer; nothing is pushed during a write.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use model::limits::BUFFER_BYTES;
use plan::filter::Hold;
use telemetry::log;

use super::fault::PumpFault;
use crate::spool::{Reading, SpoolFile, Writing};

/// What one push may bring.
const PUSH: u64 = BUFFER_BYTES as u64;

/// The bytes of one body that wait for the receiver.
pub(crate) struct Held {
    hold: Arc<Hold>,
    /// What leaves next.
    memory: VecDeque<u8>,
    /// Room in memory that is taken for the next push.
    room: u64,
    /// The next push goes to the file.
    is_for_file: bool,
    file: Option<Box<Spooled>>,
    /// Nothing more is pushed.
    is_over: bool,
    /// The end was taken.
    is_done: bool,
}

/// The part of a body that is in a file.
struct Spooled {
    file: Arc<SpoolFile>,
    /// The bytes from here to `end` are still to be taken.
    start: u64,
    end: u64,
    writing: Option<Writing>,
    reading: Option<Reading>,
    /// What could not be written: it comes behind what was.
    behind: Vec<u8>,
    /// Nothing more is written.
    is_broken: bool,
}

impl Held {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        let memory = VecDeque::new();
        Self { hold, memory, room: 0, is_for_file: false, file: None, is_over: false, is_done: false }
    }

    /// A body that is whole, and in a file: its first `length` bytes.
    pub(crate) fn whole(hold: Arc<Hold>, file: Arc<SpoolFile>, length: u64) -> Self {
        let mut held = Self::new(hold);
        held.file = Some(Box::new(Spooled { end: length, ..Spooled::new(file) }));
        held.is_over = true;
        held
    }

    /// Its bounds.
    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Whether there is nothing to take, nor will be before more is pushed.
    pub(super) fn is_empty(&self) -> bool {
        let is_used = self.file.as_ref().is_some_and(|file| file.is_used());
        self.memory.is_empty() && !is_used && (!self.is_over || self.is_done)
    }

    /// Ready when a buffer can be pushed. It is asked again when something was taken.
    ///
    /// # Errors
    /// The file cannot be written, and the exchange ends with that.
    pub(super) fn poll_room(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), PumpFault>> {
        if let Some(file) = &mut self.file {
            ready!(file.poll_written(cx, &self.hold))?;
        }
        let is_used = self.file.as_ref().is_some_and(|file| file.is_used());
        if !is_used && (self.room > 0 || self.hold.take_memory(self.memory.len() as u64, PUSH)) {
            self.room = PUSH;
            return Poll::Ready(Ok(()));
        }
        if self.hold.spool.is_none() {
            return Poll::Pending;
        }
        let file = self.file.get_or_insert_with(|| Box::new(Spooled::new(SpoolFile::new(self.hold.clone()))));
        self.is_for_file = !file.is_broken && file.file.reserve(file.next_end() + PUSH);
        if self.is_for_file { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Gives the room back that was taken for a push: the receiver has caught up, and what comes next is not held.
    pub(super) fn give_room(&mut self) {
        if self.room > 0 {
            self.hold.give_memory(std::mem::take(&mut self.room));
        }
    }

    /// Takes the next bytes, for which there is room; `is_last`: nothing follows.
    pub(super) fn push(&mut self, bytes: &[u8], is_last: bool) {
        debug_assert!(!self.is_over || bytes.is_empty(), "nothing follows the end");
        self.is_over |= is_last;
        let is_for_file = std::mem::take(&mut self.is_for_file);
        let room = std::mem::take(&mut self.room);
        if is_for_file && let Some(file) = &mut self.file {
            self.hold.give_memory(room);
            return file.write(bytes, &self.hold);
        }
        self.memory.extend(bytes);
        // Without a promise of room the bytes are there all the same.
        self.hold.force_memory((bytes.len() as u64).saturating_sub(room));
        self.hold.give_memory(room.saturating_sub(bytes.len() as u64));
    }

    /// Ready with how many of the next bytes were copied to `room`, and whether those are the last.
    ///
    /// # Errors
    /// The file cannot be read, or could not be written and the exchange ends with that.
    pub(super) fn poll_take(
        &mut self,
        cx: &mut TaskContext<'_>,
        room: &mut [u8],
    ) -> Poll<Result<(usize, bool), PumpFault>> {
        let mut count = self.take_memory(room);
        if let Some(file) = self.file.as_mut().filter(|_| count == 0) {
            count = ready!(file.poll_take(cx, room, &self.hold))?;
        }
        let is_used = self.file.as_ref().is_some_and(|file| file.is_used());
        self.is_done = self.is_over && self.memory.is_empty() && !is_used;
        Poll::Ready(Ok((count, self.is_done)))
    }

    fn take_memory(&mut self, room: &mut [u8]) -> usize {
        let count = self.memory.read(room).unwrap_or(0);
        self.hold.give_memory(count as u64);
        if self.memory.is_empty() && count > 0 {
            // A client that has caught up may never be slow again.
            self.memory = VecDeque::new();
        }
        count
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hold.give_memory(self.memory.len() as u64 + self.room);
    }
}

impl Spooled {
    fn new(file: Arc<SpoolFile>) -> Self {
        Self { file, start: 0, end: 0, writing: None, reading: None, behind: Vec::new(), is_broken: false }
    }

    /// Whether bytes are in the file, on their way there, or behind those.
    fn is_used(&self) -> bool {
        self.start < self.end || self.writing.is_some() || !self.behind.is_empty()
    }

    /// Where the next bytes go: when all was taken, the room on disk is used once more.
    fn next_end(&self) -> u64 {
        if self.start == self.end { 0 } else { self.end }
    }

    fn write(&mut self, bytes: &[u8], hold: &Hold) {
        if bytes.is_empty() {
            return;
        }
        self.end = self.next_end();
        self.start = self.start.min(self.end);
        if self.file.is_fresh() {
            hold.note_spooled();
        }
        self.writing = Some(self.file.write(bytes.to_vec(), self.end));
    }

    /// Ready when nothing is being written.
    fn poll_written(&mut self, cx: &mut TaskContext<'_>, hold: &Hold) -> Poll<Result<(), PumpFault>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let written = ready!(writing.poll(cx));
        self.writing = None;
        match written {
            Ok(bytes) => self.end += bytes.len() as u64,
            Err((bytes, error)) => {
                tell(hold, "cannot write a body to the spool", &error);
                let ends = hold.spool.as_ref().is_some_and(|spool| spool.ends_on_failure);
                if ends || bytes.is_empty() {
                    return Poll::Ready(Err(PumpFault::Spool));
                }
                (self.is_broken, self.behind) = (true, bytes);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_take(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8], hold: &Hold) -> Poll<Result<usize, PumpFault>> {
        if self.start == self.end {
            ready!(self.poll_written(cx, hold))?;
        }
        if self.start == self.end {
            let count = self.behind.len().min(room.len());
            room[..count].copy_from_slice(&self.behind[..count]);
            self.behind.drain(..count);
            return Poll::Ready(Ok(count));
        }
        let left = usize::try_from(self.end - self.start).unwrap_or(usize::MAX);
        let wanted = left.min(room.len());
        let (file, start) = (&self.file, self.start);
        let reading = self.reading.get_or_insert_with(|| file.read(start, wanted));
        let read = ready!(reading.poll(cx));
        self.reading = None;
        match read {
            Ok(bytes) => {
                let count = bytes.len().min(room.len());
                room[..count].copy_from_slice(&bytes[..count]);
                self.start += count as u64;
                Poll::Ready(Ok(count))
            }
            Err(error) => {
                tell(hold, "cannot read a body from the spool", &error);
                Poll::Ready(Err(PumpFault::Spool))
            }
        }
    }
}

/// Counts a failure of the spool, and reports it in the log.
#[cold]
pub(crate) fn tell(hold: &Hold, what: &'static str, error: &std::io::Error) {
    hold.note_failed();
    let directory = hold.spool.as_ref().map_or("", |spool| &spool.directory);
    log::warn(what, &[("directory", &directory), ("error", &error.to_string())]);
}

#[cfg(test)]
mod tests;
