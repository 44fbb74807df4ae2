//! What bounds the bodies that `buffer` holds: memory and disk, of one body and of all together. The data plane holds them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::EventCounter;

/// Bounds on bodies that are held: those of responses while their clients are slower than their endpoints, and those of requests until they
/// are whole.
pub struct Hold {
    /// Bytes of one body in memory.
    pub memory: u64,
    /// Bytes of all bodies of responses of the filter in memory.
    pub memory_max: u64,
    /// Bound on the time in which a body of a request must have come whole.
    pub within: Duration,
    /// Where bytes go that memory has no room for; `None`: nowhere.
    pub spool: Option<Spool>,
    /// What all bodies of the filter take.
    pub usage: Arc<Usage>,
    /// What is counted.
    pub counts: HoldCounts,
}

/// Files for what memory has no room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// The directory of the files.
    pub directory: Arc<str>,
    /// Bytes of one file.
    pub body_max: u64,
    /// Bytes of all files of the filter.
    pub total_max: u64,
    /// Whether an exchange ends when its file cannot be written. Else its body is streamed.
    pub ends_on_failure: bool,
}

/// What all bodies of one filter take, over all workers and plans.
#[derive(Debug, Default)]
pub struct Usage {
    memory: AtomicU64,
    disk: AtomicU64,
}

/// What a filter counts of the bodies that it holds.
#[derive(Clone, Debug, Default)]
pub struct HoldCounts {
    /// Bodies of which a part went to a file.
    pub spooled: EventCounter,
    /// Files that could not be written or read.
    pub failed: EventCounter,
}

impl Hold {
    /// Takes room in memory for `bytes` more of a body of which `held` bytes are there. `false`: a bound does not allow it.
    pub fn take_memory(&self, held: u64, bytes: u64) -> bool {
        held.saturating_add(bytes) <= self.memory && take(&self.usage.memory, bytes, self.memory_max)
    }

    /// Takes room in memory that no bound can deny: the bytes are there.
    pub fn force_memory(&self, bytes: u64) {
        self.usage.memory.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives room in memory back.
    pub fn give_memory(&self, bytes: u64) {
        self.usage.memory.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes room on disk for a file that has `length` bytes, and gets `bytes` more. `false`: a bound does not allow it, or there is no spool.
    pub fn take_disk(&self, length: u64, bytes: u64) -> bool {
        let Some(spool) = &self.spool else { return false };
        length.saturating_add(bytes) <= spool.body_max && take(&self.usage.disk, bytes, spool.total_max)
    }

    /// Gives room on disk back.
    pub fn give_disk(&self, bytes: u64) {
        self.usage.disk.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A body has its first bytes in a file.
    pub fn note_spooled(&self) {
        self.counts.spooled.add_one();
    }

    /// A file could not be written or read.
    pub fn note_failed(&self) {
        self.counts.failed.add_one();
    }

    /// The longest body of a request that may be held, in bytes.
    pub fn request_max(&self) -> u64 {
        self.spool.as_ref().map_or(self.memory, |spool| spool.body_max.max(self.memory))
    }
}

/// Adds to a count unless it would exceed its bound then.
fn take(all: &AtomicU64, bytes: u64, max: u64) -> bool {
    if all.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > max {
        all.fetch_sub(bytes, Ordering::Relaxed);
        return false;
    }
    true
}

/// Two are equal if they are the same.
impl PartialEq for Hold {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Hold {}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, spool, usage, .. } = self;
        f.debug_struct("Hold")
            .field("memory", memory)
            .field("spool", spool)
            .field("usage", usage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold() -> Hold {
        Hold {
            memory: 100,
            memory_max: 150,
            within: Duration::from_secs(1),
            spool: Some(Spool { directory: "/".into(), body_max: 1_000, total_max: 1_500, ends_on_failure: false }),
            usage: Arc::default(),
            counts: HoldCounts::default(),
        }
    }

    #[test]
    fn memory_is_bounded_for_one_body_and_for_all() {
        let hold = hold();
        assert!(hold.take_memory(0, 100));
        assert!(!hold.take_memory(50, 51), "of one body");
        assert!(!hold.take_memory(0, 51), "of all");
        assert!(hold.take_memory(50, 50));
        hold.give_memory(150);
        hold.force_memory(151);
        assert!(!hold.take_memory(0, 0), "more is there than may be");
        assert!(!hold.take_memory(u64::MAX, 1));
    }

    #[test]
    fn disk_is_bounded_for_one_file_and_for_all_and_is_not_there_without_a_spool() {
        let hold = hold();
        assert!(hold.take_disk(0, 1_000));
        assert!(!hold.take_disk(500, 501), "of one file");
        assert!(!hold.take_disk(0, 501), "of all");
        hold.give_disk(1_000);
        assert!(hold.take_disk(0, 501));
        assert_eq!((hold.request_max(), Hold { spool: None, ..hold }.request_max()), (1_000, 100));
    }

    #[test]
    fn without_a_spool_there_is_no_room_on_disk() {
        assert!(!Hold { spool: None, ..hold() }.take_disk(0, 1));
    }
}
