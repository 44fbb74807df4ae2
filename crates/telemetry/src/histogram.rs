//! Latencies in buckets of bounded relative width.
//!
//! Each power of two of microseconds is cut into 16 buckets, so a bucket is never wider than a sixteenth of the values
//! in it: a quantile read from it is off by at most 6.25 %, or by 1 us below 16 us. Values of 2^26 us (67 s) and more
//! share the last bucket.

use std::sync::OnceLock;
use std::time::Duration;

use crate::counter::Counter;

/// Buckets of one power of two.
const STEPS: usize = 16;
const STEPS_LOG2: u32 = STEPS.ilog2();
/// The power of two of microseconds from which values share the last bucket.
const LIMIT_LOG2: u32 = 26;
const OVERFLOW: usize = STEPS + (LIMIT_LOG2 - STEPS_LOG2) as usize * STEPS;
/// Number of buckets.
pub const BUCKETS: usize = OVERFLOW + 1;

/// Upper bounds of the buckets on the Prometheus page, in microseconds.
pub const EXPOSED_BOUNDS_MICROS: [u64; 15] = [
    100, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000,
    30_000_000,
];

#[inline]
fn index(micros: u64) -> usize {
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let log2 = micros.ilog2();
    if log2 >= LIMIT_LOG2 {
        return OVERFLOW;
    }
    let power = log2 - STEPS_LOG2;
    // The top bits without the leading one say which step of its power of two the value is in.
    (power as usize + 1) * STEPS + (micros >> power) as usize - STEPS
}

/// Returns the first value of a bucket and how many values it spans, in microseconds. The last bucket spans none, because it has no upper
/// bound.
fn span(index: usize) -> (u64, u64) {
    if index < STEPS {
        return (index as u64, 1);
    }
    if index >= OVERFLOW {
        return (1 << LIMIT_LOG2, 0);
    }
    let power = index / STEPS - 1;
    (((STEPS + index % STEPS) as u64) << power, 1 << power)
}

#[derive(Debug)]
#[repr(align(64))]
struct Buckets {
    counts: [Counter; BUCKETS],
    nanos: Counter,
}

/// A histogram with one writer. About 3 kB, taken at the first value; 16 bytes until then.
#[derive(Debug, Default)]
pub struct Histogram(OnceLock<Box<Buckets>>);

impl Histogram {
    /// Counts one value. Only the owning worker may call it.
    #[inline]
    pub fn record(&self, value: Duration) {
        let micros = value.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(value.subsec_micros()));
        let buckets = self.made();
        buckets.counts[index(micros)].add(1);
        buckets.nanos.add(nanos(value));
    }

    fn made(&self) -> &Buckets {
        self.0.get_or_init(|| {
            Box::new(Buckets { counts: std::array::from_fn(|_| Counter::default()), nanos: Counter::default() })
        })
    }

    /// Calls `see` with the first microsecond of each bucket that is not empty and its count, and with the sum in nanoseconds.
    pub(crate) fn each(&self, see: &mut dyn FnMut(Bin, u64)) {
        let Some(buckets) = self.0.get() else { return };
        see(Bin::Nanos, buckets.nanos.get());
        for (place, count) in buckets.counts.iter().enumerate().filter(|(_, count)| count.get() > 0) {
            see(Bin::From(span(place).0), count.get());
        }
    }

    /// Replaces what was counted by this sum in nanoseconds, and by buckets that are not empty: the first microsecond of each, and
    /// its count. One that there is none of here is passed over. Only the owner may call it.
    pub(crate) fn set(&self, nanos: u64, filled: impl Iterator<Item = (u64, u64)>) {
        if nanos == 0 && self.0.get().is_none() {
            return;
        }
        let mut counts = [0; BUCKETS];
        for (micros, count) in filled {
            let place = index(micros);
            if span(place).0 == micros {
                counts[place] = count;
            }
        }
        let buckets = self.made();
        buckets.nanos.set(nanos);
        for (counter, count) in buckets.counts.iter().zip(counts) {
            counter.set(count);
        }
    }

    /// Adds everything counted so far to `total`.
    pub fn add_to(&self, total: &mut HistogramSnapshot) {
        if let Some(buckets) = self.0.get() {
            total.counts.resize(BUCKETS, 0);
            for (sum, counter) in total.counts.iter_mut().zip(&buckets.counts) {
                *sum += counter.get();
            }
            total.nanos = total.nanos.wrapping_add(buckets.nanos.get());
        }
    }
}

/// A part of a histogram, by a name that another version of this program understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bin {
    /// The sum.
    Nanos,
    /// The bucket that begins with this microsecond.
    From(u64),
}

/// Returns a duration in nanoseconds, at most 584 years.
pub(crate) fn nanos(value: Duration) -> u64 {
    value.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(value.subsec_nanos()))
}

/// What one or several histograms held at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Empty while nothing was counted.
    counts: Vec<u64>,
    nanos: u64,
}

impl HistogramSnapshot {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns their sum in nanoseconds.
    pub fn sum_nanos(&self) -> u64 {
        self.nanos
    }

    /// Returns their mean, or zero if there are none.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanos.checked_div(self.count()).unwrap_or(0))
    }

    /// Adds another.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        self.counts.resize(BUCKETS, 0);
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.nanos = self.nanos.wrapping_add(other.nanos);
    }

    /// Returns the values counted after `earlier` was taken.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        let counts = self.counts.iter().zip(before).map(|(now, then)| now.saturating_sub(then)).collect();
        Self { counts, nanos: self.nanos.saturating_sub(earlier.nanos) }
    }

    /// Returns the value below or at which the share `q` (0 to 1) of all values lies, by nearest rank and interpolation inside the bucket;
    /// zero when there are none. Off by at most a sixteenth, or 1 us.
    pub fn quantile(&self, q: f64) -> Duration {
        let count = self.count();
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (index, &here) in self.counts.iter().enumerate() {
            if below + here >= rank {
                let (low, width) = span(index);
                let share = (rank - below) as f64 / here as f64;
                return Duration::from_nanos(((low as f64 + width as f64 * share) * 1_000.0) as u64);
            }
            below += here;
        }
        Duration::ZERO
    }

    /// Returns how many values are at most `bound` microseconds. The bucket that the bound cuts counts by the share that lies below it,
    /// rounded down: so the result never falls as more is counted, nor as the bound grows.
    pub fn at_most(&self, bound: u64) -> u64 {
        let mut total = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            let (low, width) = span(index);
            if width == 0 || low >= bound {
                break;
            }
            let below = width.min(bound - low);
            total += (u128::from(count) * u128::from(below) / u128::from(width)) as u64;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_meet_without_gap_or_overlap() {
        let mut next = 0;
        for at in 0..OVERFLOW {
            let (low, width) = span(at);
            assert_eq!(low, next);
            assert_eq!((index(low), index(low + width - 1)), (at, at));
            assert!(width == 1 || width * STEPS as u64 <= low);
            next = low + width;
        }
        assert_eq!((next, index(next), index(u64::MAX)), (1 << LIMIT_LOG2, OVERFLOW, OVERFLOW));
    }

    #[test]
    fn an_unused_histogram_is_small_and_answers_zero() {
        assert!(size_of::<Histogram>() <= 16);
        let empty = HistogramSnapshot::default();
        assert_eq!((empty.quantile(0.5), empty.mean(), empty.at_most(1_000)), (Duration::ZERO, Duration::ZERO, 0));
    }

    #[test]
    fn a_value_beyond_the_last_bound_is_counted() {
        let histogram = Histogram::default();
        histogram.record(Duration::MAX);
        histogram.record(Duration::from_secs(100));
        let mut taken = HistogramSnapshot::default();
        histogram.add_to(&mut taken);
        assert_eq!((taken.count(), taken.at_most(30_000_000)), (2, 0));
        assert_eq!(taken.quantile(1.0), Duration::from_micros(1 << LIMIT_LOG2));
    }

    fn taken(values: &[u64]) -> HistogramSnapshot {
        let histogram = Histogram::default();
        for &micros in values {
            histogram.record(Duration::from_micros(micros));
        }
        let mut taken = HistogramSnapshot::default();
        histogram.add_to(&mut taken);
        taken
    }

    proptest! {
        #[test]
        fn a_quantile_is_off_by_a_sixteenth_at_most(
            mut values in prop::collection::vec((0u32..26).prop_flat_map(|p| 0..(1u64 << p) + 1), 1..300),
            q in 0.0..=1.0f64,
        ) {
            let taken = taken(&values);
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let truth = values[rank - 1] as f64;
            let told = taken.quantile(q).as_nanos() as f64 / 1_000.0;
            prop_assert!((told - truth).abs() <= (truth / 16.0).max(1.0) + 1e-3, "{told} for {truth}");
        }

        #[test]
        fn counts_below_the_exposed_bounds_rise_and_are_off_by_one_bucket_at_most(
            values in prop::collection::vec(0u64..40_000_000, 0..200),
        ) {
            let taken = taken(&values);
            let mut last = 0;
            for bound in EXPOSED_BOUNDS_MICROS {
                let told = taken.at_most(bound);
                let slack = bound / 16;
                let fewest = values.iter().filter(|&&v| v + slack < bound).count() as u64;
                let most = values.iter().filter(|&&v| v <= bound + slack).count() as u64;
                prop_assert!(told >= last && (fewest..=most).contains(&told));
                last = told;
            }
            prop_assert!(last <= taken.count() && taken.count() == values.len() as u64);
        }

        #[test]
        fn a_difference_of_snapshots_is_what_came_between(
            first in prop::collection::vec(0u64..1_000_000, 0..50),
            second in prop::collection::vec(0u64..1_000_000, 0..50),
        ) {
            let both: Vec<u64> = first.iter().chain(&second).copied().collect();
            let mut merged = taken(&first);
            merged.merge(&taken(&second));
            prop_assert_eq!(&merged, &taken(&both));
            let between = merged.since(&taken(&first));
            prop_assert_eq!(between.count(), second.len() as u64);
            prop_assert_eq!(between.sum_nanos(), second.iter().sum::<u64>() * 1_000);
        }
    }
}
