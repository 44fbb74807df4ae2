//! When the same request goes to another endpoint too, because the first takes long: after a fixed time, or after one that
//! most recent answers did not take; and how many such requests there may be.
//!
//! Pure: times are given. Each worker has its own [`Hedging`] for each cluster.

use std::time::{Duration, Instant};

use model::limits::HEDGE_SAMPLES_MIN;
use model::resilience::{Hedge, HedgeAfter};
use model::retry::Budget;

use crate::resilience::retry::Savings;

/// What one worker knows of one cluster for that.
#[derive(Clone, Debug)]
pub struct Hedging {
    savings: Savings,
    recent: Recent,
}

impl Hedging {
    /// Returns the hedging of a worker that begins at `now`.
    pub fn new(now: Instant) -> Self {
        Self { savings: Savings::new(1, now), recent: Recent::default() }
    }

    /// Counts a request that may be sent to another endpoint too.
    pub fn earn(&mut self, rules: &Hedge) {
        self.savings.earn(Budget { percent: rules.budget_percent, per_second: 0 });
    }

    /// Returns the delay of a hedge, or `None` if too few response times are known yet.
    pub fn after(&self, rules: &Hedge) -> Option<Duration> {
        match rules.after {
            HedgeAfter::Time(time) => Some(time),
            HedgeAfter::Percentile(percent) => self.recent.percentile(percent),
        }
    }

    /// Returns whether the budget has one hedge.
    pub fn affords(&mut self, rules: &Hedge, now: Instant) -> bool {
        self.savings.holds_one(Budget { percent: rules.budget_percent, per_second: 0 }, now)
    }

    /// Takes one hedge from the budget, if there is one.
    pub fn spend(&mut self, rules: &Hedge, now: Instant) -> bool {
        self.savings.spend(Budget { percent: rules.budget_percent, per_second: 0 }, now)
    }

    /// Takes in how long an answer took, from the request first being sent.
    pub fn observe(&mut self, rules: &Hedge, took: Duration) {
        if let HedgeAfter::Percentile(percent) = rules.after {
            self.recent.add(took, percent);
        }
    }
}

/// Buckets for each doubling of the time: a percentile is at most an eighth too high.
const PER_OCTAVE: u64 = 8;
/// Up to 2^27 µs, more than two minutes.
const BUCKETS: usize = 27 * PER_OCTAVE as usize;
/// When there are so many, all count half: what is known is of the last thousand or so.
const SAMPLES_MAX: u32 = 1_000;
/// The percentile is looked for again after so many more.
const LOOK_EVERY: u32 = 32;

/// How long recent answers took.
#[derive(Clone, Debug, Default)]
struct Recent {
    /// Made at first use, since most clusters never need it.
    counts: Option<Box<[u16; BUCKETS]>>,
    all: u32,
    unseen: u32,
    /// The percentile that was last looked for, and what was found.
    known: Option<(u8, Duration)>,
}

impl Recent {
    fn add(&mut self, took: Duration, percent: u8) {
        let counts = self.counts.get_or_insert_with(|| Box::new([0; BUCKETS]));
        if self.all >= SAMPLES_MAX {
            for count in counts.iter_mut() {
                *count /= 2;
            }
            self.all = counts.iter().map(|count| u32::from(*count)).sum();
        }
        counts[bucket(took)] += 1;
        self.all += 1;
        self.unseen += 1;
        if self.unseen >= LOOK_EVERY && self.all >= HEDGE_SAMPLES_MIN {
            self.known = Some((percent, self.find(percent)));
            self.unseen = 0;
        }
    }

    fn percentile(&self, percent: u8) -> Option<Duration> {
        let (of, found) = self.known?;
        Some(if of == percent { found } else { self.find(percent) })
    }

    /// Returns the time that so many percent did not exceed.
    fn find(&self, percent: u8) -> Duration {
        let wanted = (u64::from(self.all) * u64::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        let reaches = |count: &u16| {
            seen += u64::from(*count);
            seen >= wanted
        };
        let place = self.counts.iter().flat_map(|counts| counts.iter()).position(reaches).unwrap_or(BUCKETS - 1);
        upper_bound(place)
    }
}

/// Returns the bucket of a time: exact below 16 µs, then eight for each doubling.
fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if micros < PER_OCTAVE {
        return micros as usize;
    }
    let octave = u64::from(micros.ilog2()) - 3;
    let within = (micros >> octave) - PER_OCTAVE;
    ((octave + 1) * PER_OCTAVE + within).min(BUCKETS as u64 - 1) as usize
}

/// Returns the longest time of the bucket.
fn upper_bound(bucket: usize) -> Duration {
    let (octave, within) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    let micros = if octave == 0 { within + 1 } else { (PER_OCTAVE + within + 1) << (octave - 1) };
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests;
