//! A number that one thread writes and any thread reads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use model::Fault;

use crate::record::{CLASSES, class};

/// A counter with one writer. Adding is a plain load and store: no read-modify-write instruction, so no bus lock.
/// Two threads that add to the same counter lose counts; anyone who holds a shard must be its only owner.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Only the owning worker may call it.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Replaces what was counted. Only the owner may call it.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Returns what was added so far.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts by class of status.
#[derive(Debug, Default)]
pub struct ClassCounters([Counter; CLASSES]);

impl ClassCounters {
    /// Counts one response with this status; 0 when there was none.
    #[inline]
    pub fn add(&self, status: u16) {
        self.0[class(status)].add(1);
    }

    /// Returns the counters, in the order of [`crate::record::CLASS_LABELS`].
    pub(crate) fn counters(&self) -> &[Counter] {
        &self.0
    }

    /// Returns all counts, in the order of [`crate::record::CLASS_LABELS`].
    pub fn get(&self) -> [u64; CLASSES] {
        std::array::from_fn(|index| self.0[index].get())
    }
}

/// Number of kinds of fault.
pub const FAULTS: usize = Fault::ALL.len();

/// On cache lines of its own: two workers never write to the same one.
#[derive(Debug)]
#[repr(align(64))]
struct FaultArray([Counter; FAULTS]);

/// Counts by fault. Memory is taken at the first fault, since most objects never see one.
#[derive(Debug, Default)]
pub struct FaultCounters(OnceLock<Box<FaultArray>>);

impl FaultCounters {
    /// Counts a fault.
    #[inline]
    pub fn add(&self, fault: Fault) {
        self.made()[fault as usize].add(1);
    }

    /// Returns the counters, in the order of [`Fault::ALL`]; made if there are none.
    pub(crate) fn made(&self) -> &[Counter; FAULTS] {
        &self.0.get_or_init(|| Box::new(FaultArray(std::array::from_fn(|_| Counter::default())))).0
    }

    /// Returns the same, if any fault was counted.
    pub(crate) fn counters(&self) -> Option<&[Counter; FAULTS]> {
        self.0.get().map(|array| &array.0)
    }

    /// Adds all counts to `totals`, in the order of [`Fault::ALL`].
    pub fn add_to(&self, totals: &mut [u64; FAULTS]) {
        if let Some(array) = self.0.get() {
            for (total, counter) in totals.iter_mut().zip(&array.0) {
                *total = total.wrapping_add(counter.get());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_counted_each_in_its_place() {
        let counters = FaultCounters::default();
        for (times, &fault) in Fault::ALL.iter().enumerate() {
            for _ in 0..times {
                counters.add(fault);
            }
        }
        let mut totals = [0; FAULTS];
        counters.add_to(&mut totals);
        for (times, &total) in totals.iter().enumerate() {
            assert_eq!(total, times as u64);
        }
    }

    #[test]
    fn a_status_outside_the_classes_counts_as_none() {
        let counters = ClassCounters::default();
        for status in [0, 99, 100, 204, 301, 404, 503, 600, 999, u16::MAX] {
            counters.add(status);
        }
        assert_eq!(counters.get(), [5, 1, 1, 1, 1, 1]);
    }
}
