//! A body in parts that is here, or is read from files while it is sent: a body has at most one pending read, of one buffer, and none
//! before the receiver has taken what was read.

use std::collections::VecDeque;
use std::task::{Context as TaskContext, Poll, ready};

use plan::filter::Part;

use super::fault::PumpFault;
use crate::spool::Reading;
use crate::stored::SliceReader;

/// The parts that are still to be taken, of one body.
pub(crate) struct Parts {
    left: VecDeque<Part>,
    /// Bytes of the first part that were taken, if it is in memory.
    taken: usize,
    reading: Option<Reading>,
    /// In place of all of these.
    slices: Option<Box<SliceReader>>,
}

impl Parts {
    /// Takes these, one after the other.
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        Self {
            left: parts.into_iter().filter(|part| !part.is_empty()).collect(),
            taken: 0,
            reading: None,
            slices: None,
        }
    }

    /// Takes slices that are looked for while they are sent.
    pub(crate) fn of_slices(slices: Box<SliceReader>) -> Self {
        Self { slices: Some(slices), ..Self::new(Vec::new()) }
    }

    /// Ready with how many of the next bytes were copied to `room`, and whether those are the last.
    ///
    /// # Errors
    /// [`PumpFault::Source`]: a part cannot be read, or is shorter than it was.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut TaskContext<'_>,
        room: &mut [u8],
    ) -> Poll<Result<(usize, bool), PumpFault>> {
        if let Some(slices) = &mut self.slices {
            return slices.poll_take(cx, room);
        }
        let mut count = 0;
        while count < room.len()
            && let Some(part) = self.left.front_mut()
        {
            match part {
                Part::Bytes(bytes) => {
                    let rest = &bytes[self.taken..];
                    let copied = rest.len().min(room.len() - count);
                    room[count..count + copied].copy_from_slice(&rest[..copied]);
                    count += copied;
                    self.taken += copied;
                    if self.taken < bytes.len() {
                        break;
                    }
                    self.taken = 0;
                }
                // What is here leaves with the head, or with the head of a part, without a wait for the disk.
                Part::Range { .. } if count > 0 => break,
                Part::Range { content, range } => {
                    let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(room.len());
                    if self.reading.is_none()
                        && let Some(read) = content.read_now(&mut room[..wanted], range.start)
                    {
                        count = read.ok().filter(|count| *count > 0).ok_or(PumpFault::Source)?;
                        range.start += count as u64;
                        if range.start < range.end {
                            break;
                        }
                        self.left.pop_front();
                        continue;
                    }
                    let reading =
                        self.reading.get_or_insert_with(|| Reading::of_content(content.clone(), range.start, wanted));
                    let read = ready!(reading.poll(cx));
                    self.reading = None;
                    let Ok(bytes) = read else { return Poll::Ready(Err(PumpFault::Source)) };
                    // The room is that of a buffer, each time.
                    count = bytes.len().min(room.len());
                    room[..count].copy_from_slice(&bytes[..count]);
                    range.start += count as u64;
                    if range.start < range.end {
                        break;
                    }
                }
            }
            self.left.pop_front();
        }
        Poll::Ready(Ok((count, self.left.is_empty())))
    }
}

#[cfg(test)]
mod tests;
