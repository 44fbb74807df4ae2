//! Where a worker leaves lines for the writing thread.
//!
//! A ring is a pair of buffers, each behind a lock that is only ever tried by the worker. The thread takes a buffer by
//! swapping an empty one in, so it holds a lock for nanoseconds, and never both at once: if it is put to sleep just then,
//! the worker finds the other one free. The worker prefers `first` and the thread empties `second` before it, so lines
//! leave in the order in which they came: a line is in `second` only if everything older has left `first`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::counter::Counter;

/// How often a worker tries both buffers. More than one round is only needed if the thread let go of one and took the
/// other between two tries.
const ROUNDS: usize = 4;

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is in the ring.
    Kept,
    /// It is in the ring, which it made half full.
    HalfFull,
    /// It did not fit and was dropped.
    Dropped,
}

/// On cache lines of its own, since each worker writes to its ring at every record.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Ring {
    first: Mutex<Vec<u8>>,
    second: Mutex<Vec<u8>>,
    bytes_max: usize,
    dropped: Counter,
    /// Records in lines that a target refused. Written by the thread.
    failed: AtomicU64,
}

fn attempt(buffer: &Mutex<Vec<u8>>) -> Option<MutexGuard<'_, Vec<u8>>> {
    match buffer.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Ring {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            first: Mutex::default(),
            second: Mutex::default(),
            bytes_max,
            dropped: Counter::default(),
            failed: AtomicU64::new(0),
        }
    }

    /// Adds a line, whole or not at all. Only the worker calls it.
    #[inline]
    pub(crate) fn push(&self, line: &[u8]) -> Pushed {
        for _ in 0..ROUNDS {
            if let Some(mut first) = attempt(&self.first) {
                return self.add(&mut first, line);
            }
            if let Some(mut second) = attempt(&self.second) {
                // Once more, now that the thread cannot pass `second` by: it may have let go of `first` and begun again
                // while the worker was asleep, and what came into `first` behind this line would leave before it.
                return match attempt(&self.first) {
                    Some(mut first) => self.add(&mut first, line),
                    None => self.add(&mut second, line),
                };
            }
        }
        self.dropped.add(1);
        Pushed::Dropped
    }

    fn add(&self, buffer: &mut Vec<u8>, line: &[u8]) -> Pushed {
        let before = buffer.len();
        let after = before + line.len();
        if after > self.bytes_max {
            self.dropped.add(1);
            return Pushed::Dropped;
        }
        buffer.extend_from_slice(line);
        let half = self.bytes_max / 2;
        if before < half && after >= half { Pushed::HalfFull } else { Pushed::Kept }
    }

    /// Empties the ring through `write`, which is given whole lines and must leave the buffer empty. Only the thread calls
    /// it. `spare` is an empty buffer that stays in the ring for the one that was taken.
    pub(crate) fn take(&self, spare: &mut Vec<u8>, mut write: impl FnMut(&mut Vec<u8>)) {
        for buffer in [&self.second, &self.first] {
            {
                let mut held = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                if held.is_empty() {
                    continue;
                }
                std::mem::swap(&mut *held, spare);
            }
            write(spare);
            spare.clear();
        }
    }

    /// Returns whether the ring is empty. Only the reading thread calls it.
    pub(crate) fn is_empty(&self) -> bool {
        [&self.first, &self.second]
            .iter()
            .all(|buffer| buffer.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Counts records that a target refused.
    pub(crate) fn fail(&self, records: u64) {
        self.failed.fetch_add(records, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_full_ring_drops_whole_lines_and_counts_them() {
        let ring = Ring::new(10);
        assert_eq!(ring.push(b"1234"), Pushed::Kept);
        assert_eq!(ring.push(b"5678"), Pushed::HalfFull);
        assert_eq!(ring.push(b"901"), Pushed::Dropped);
        assert_eq!(ring.push(b"90"), Pushed::Kept);
        assert_eq!(ring.push(b"longer than the ring"), Pushed::Dropped);
        let mut out = Vec::new();
        ring.take(&mut Vec::new(), |lines| out.append(lines));
        assert_eq!((out.as_slice(), ring.dropped()), (&b"1234567890"[..], 2));
        assert_eq!(ring.push(b"x"), Pushed::Kept);
    }

    #[test]
    fn a_held_buffer_does_not_stop_the_worker_and_order_is_kept() {
        let ring = Ring::new(100);
        {
            let _held = ring.first.lock().unwrap();
            assert_eq!(ring.push(b"a"), Pushed::Kept);
        }
        ring.push(b"b");
        let mut out = Vec::new();
        ring.take(&mut Vec::new(), |lines| out.append(lines));
        assert_eq!(out, b"ab");
        let (_first, _second) = (ring.first.lock().unwrap(), ring.second.lock().unwrap());
        assert_eq!(ring.push(b"c"), Pushed::Dropped);
    }

    #[test]
    fn every_line_leaves_once_and_in_order_while_both_sides_run() {
        const LINES: u64 = 50_000;
        let ring = Ring::new(usize::MAX);
        let done = AtomicBool::new(false);
        let mut out: Vec<u8> = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for line in 0..LINES {
                    ring.push(&line.to_be_bytes());
                }
                done.store(true, std::sync::atomic::Ordering::Release);
            });
            let mut spare = Vec::new();
            loop {
                let last = done.load(std::sync::atomic::Ordering::Acquire);
                ring.take(&mut spare, |lines| out.append(lines));
                if last {
                    break;
                }
            }
        });
        let lines: Vec<u64> = out.chunks(8).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())).collect();
        assert!(lines.is_sorted_by(|a, b| a < b), "out of order");
        assert_eq!(lines.len() as u64 + ring.dropped(), LINES);
    }
}
