//! Replaces matches in one body that comes in pieces.

use std::sync::Arc;

use model::{FieldName, Fields};

use super::super::replacement::Replacement;
use super::super::{BadBody, Coded, Coder, Turning};
use super::engine::{Engine, Found, LOOK_BEHIND, Memory};

/// Bytes that are searched at once, beside those that may begin a match.
const BLOCK: usize = 16 << 10;

/// What stands in place of the matches of each pair.
pub(super) type With = Arc<[Replacement<Box<[u8]>>]>;

/// Holds the end of what has come as long as it may be the beginning of a match: at most a window and two blocks.
///
/// ```text
///           at         clear_to    limit                len
///     left ──┼── leaves ──┼─ found ──┼── not yet sure ───┤
/// ```
pub(super) struct Replacer {
    engine: Arc<Engine>,
    with: With,
    digests: Arc<[FieldName]>,
    memory: Memory,
    text: Vec<u8>,
    /// What is before has left; some of it is kept for expressions that look at it.
    at: usize,
    /// What is before leaves as it is.
    clear_to: usize,
    /// Begins at `clear_to`.
    found: Option<Found>,
    /// Matches that begin before are sure.
    limit: usize,
    /// All of the text was looked at for a flush.
    is_flushed: bool,
    /// What stands in place of a match, and how much of it has left.
    pending: (Vec<u8>, usize),
    /// Pairs that are done, where each replaces one match; empty if each replaces all.
    spent: Box<[bool]>,
}

impl Replacer {
    /// `once`: each pair replaces its first match. Fields of `digests` do not pass as trailers.
    pub(super) fn new(engine: &Arc<Engine>, with: With, once: bool, digests: &Arc<[FieldName]>) -> Self {
        let spent = if once { vec![false; with.len()].into() } else { Box::default() };
        Self {
            engine: engine.clone(),
            with,
            digests: digests.clone(),
            memory: Memory::default(),
            text: Vec::new(),
            at: 0,
            clear_to: 0,
            found: None,
            limit: 0,
            is_flushed: true,
            pending: (Vec::new(), 0),
            spent,
        }
    }

    /// Memory that it has taken, in bytes.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.text.capacity() + self.pending.0.capacity()
    }

    /// Takes as much input as there is room for.
    fn take(&mut self, input: &[u8]) -> usize {
        let whole = self.engine.window() + 2 * BLOCK;
        if self.at > BLOCK {
            let gone = self.at - LOOK_BEHIND;
            self.text.drain(..gone);
            self.at -= gone;
            self.clear_to = self.clear_to.saturating_sub(gone);
            self.limit = self.limit.saturating_sub(gone);
        }
        let count = input.len().min(whole.saturating_sub(self.text.len()));
        if count > 0 {
            self.text.extend_from_slice(&input[..count]);
            self.is_flushed = false;
        }
        count
    }

    /// Looks for the next match. Says whether something can leave.
    fn settle(&mut self, turning: Turning) -> bool {
        let length = self.text.len();
        match turning {
            Turning::More => {
                let sure = length.saturating_sub(self.engine.window());
                // Not for every byte that comes, because what is not sure is searched again.
                if sure >= self.limit + BLOCK {
                    self.limit = sure;
                }
            }
            Turning::Flush if !self.is_flushed => {
                self.limit = self.limit.max(self.engine.open_from(&self.text, self.at, &mut self.memory));
                self.is_flushed = true;
            }
            Turning::Flush => {}
            Turning::End => self.limit = length,
        }
        if self.at >= self.limit {
            return false;
        }
        self.search();
        true
    }

    fn search(&mut self) {
        let is_over = !self.spent.is_empty() && self.spent.iter().all(|spent| *spent);
        let mut from = self.at;
        while from < self.limit && !is_over {
            match self.engine.find(&self.text, from).filter(|found| found.start < self.limit) {
                None => break,
                // Expressions that match nothing are refused, but some do so only between certain bytes.
                Some(found) if found.start == found.end => from = found.start + 1,
                Some(found) if self.spent.get(found.pair) == Some(&true) => from = found.end,
                Some(found) => {
                    (self.clear_to, self.found) = (found.start, Some(found));
                    return;
                }
            }
        }
        self.clear_to = from.max(self.limit);
    }

    /// Puts what stands in place of the match that is found.
    fn replace(&mut self, found: Found) {
        let (out, text) = (&mut self.pending.0, &self.text);
        out.clear();
        self.pending.1 = 0;
        if let Some(with) = self.with.get(found.pair) {
            #[allow(clippy::borrowed_box, reason = "a replacement passes parts of the type that it holds")]
            let write = |text: &Box<[u8]>, out: &mut Vec<u8>| out.extend_from_slice(text);
            if with.groups() == 0 {
                with.write(out, write, |_| b"");
            } else {
                self.engine.with_groups(text, found, &mut self.memory, |captures| {
                    with.write(out, write, |group| captures.get_group(group).map_or(b"", |span| &text[span.range()]));
                });
            }
        }
        if let Some(spent) = self.spent.get_mut(found.pair) {
            *spent = true;
        }
        (self.at, self.clear_to) = (found.end, found.end);
    }

    /// Writes what is sure, until the room is full or nothing more is.
    fn write(&mut self, room: &mut [u8]) -> usize {
        let mut written = 0;
        loop {
            let rest = &self.pending.0[self.pending.1..];
            let count = rest.len().min(room.len() - written);
            room[written..written + count].copy_from_slice(&rest[..count]);
            (self.pending.1, written) = (self.pending.1 + count, written + count);
            let count = self.clear_to.saturating_sub(self.at).min(room.len() - written);
            if self.pending.1 == self.pending.0.len() && count > 0 {
                room[written..written + count].copy_from_slice(&self.text[self.at..self.at + count]);
                (self.at, written) = (self.at + count, written + count);
            }
            if written == room.len() {
                return written;
            }
            match self.found.take() {
                Some(found) => self.replace(found),
                None => return written,
            }
        }
    }
}

impl Coder for Replacer {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let mut coded = Coded::default();
        loop {
            coded.written += self.write(&mut room[coded.written..]);
            if coded.written == room.len() {
                return Ok(coded);
            }
            coded.read += self.take(&input[coded.read..]);
            let is_read = coded.read == input.len();
            if !self.settle(if is_read { turning } else { Turning::More }) && is_read {
                coded.is_done = turning != Turning::More;
                return Ok(coded);
            }
        }
    }

    /// A digest in a trailer is one of the body before it was changed (RFC 9530 sections 2 and 3).
    fn trailers(&mut self, trailers: &mut Fields) {
        for name in &*self.digests {
            trailers.remove(name);
        }
    }
}
