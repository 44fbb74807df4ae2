//! How much a cluster bears at once, found out from how long answers take.
//!
//! What endpoints are given beyond what they can work on at once waits at them: answers take longer, and no more of them
//! come. So the limit follows the ratio of two times: how long answers take with little in flight (the *base*) and how
//! long they take now (the *present*). While the present stays within the tolerance, the limit grows; beyond it, it
//! shrinks in proportion. The base changes as endpoints do; every so often the limit is halved for a moment to measure it
//! afresh, so that slowness which stays is not taken for load, nor load for slowness.
//!
//! [`Controller`] is pure. [`Adaptive`] is what workers share: atomic counts, and a mutex that is touched by the one who
//! ends a window.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use model::resilience::AdaptiveConcurrency;

use crate::cluster::ClusterPlan;
use crate::padded::Padded;
use crate::queue;

/// What happened in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// Answers.
    pub answers: u32,
    /// Their times added up.
    pub total: Duration,
    /// The most that was in flight at once.
    pub in_flight: u32,
}

/// Answers that make a window: with fewer, chance would move the limit.
const ANSWERS_MIN: u32 = 50;
/// Answers that make a measurement of the base.
const MEASURED_MIN: u32 = 20;
/// The limit changes by no more than this factor in one window.
const SHRINK_MOST: f64 = 0.5;
/// A base that moved by more than this share is measured again soon: it was far from right.
const BASE_MOVED: f64 = 0.2;
/// When that is done.
const MEASURE_SOON: Duration = Duration::from_secs(1);
/// After which a measurement of the base goes by the answers that it has, in intervals or in what answers took before.
const MEASURE_LONGEST: u32 = 10;
/// A limit that has shrunk to this share since the last measurement may have done so for a base that is not true any more.
const SHRUNK: f64 = 0.5;

/// Decides on the limit, window by window.
///
/// ```text
///             the base is unknown or old
///   Following ───────────────────────────► Measuring: the limit is halved
///      ▲                                       │
///      └── a window of answers to what was ────┘
///          sent since then
/// ```
#[derive(Clone, Debug)]
pub struct Controller {
    rules: AdaptiveConcurrency,
    limit: f64,
    /// In seconds; `None`: not measured yet.
    base: Option<f64>,
    measure_at: Instant,
    measuring: Option<Measuring>,
    /// The limit after the last measurement, or the highest since.
    highest: f64,
    /// It grew in every window so far: no one knows yet how far it can go.
    ramps: bool,
}

#[derive(Clone, Copy, Debug)]
struct Measuring {
    /// The limit before.
    limit: f64,
    ends: Instant,
}

impl Controller {
    /// Returns one that begins at `now` with the least limit.
    pub fn new(rules: AdaptiveConcurrency, now: Instant) -> Self {
        let (limit, measure_at) = (f64::from(rules.min), now + MEASURE_SOON);
        Self { rules, limit, base: None, measure_at, measuring: None, highest: limit, ramps: true }
    }

    fn rules(&self) -> &AdaptiveConcurrency {
        &self.rules
    }

    /// Returns what may be in flight at once.
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Returns whether only answers count to what was sent since the last window ended.
    pub fn is_measuring(&self) -> bool {
        self.measuring.is_some()
    }

    /// Returns whether a window that has lasted for an interval may end at `now`.
    pub fn is_enough(&self, window: &Window, now: Instant) -> bool {
        match self.measuring {
            Some(measuring) => window.answers >= MEASURED_MIN || now >= measuring.ends,
            None => window.answers >= ANSWERS_MIN,
        }
    }

    /// Takes in a window that ends at `now`; returns the limit from now on.
    pub fn end_window(&mut self, window: &Window, now: Instant) -> u32 {
        match self.measuring {
            Some(measuring) => self.measure(measuring, window, now),
            None => self.follow(window, now),
        }
        self.limit()
    }

    fn measure(&mut self, measuring: Measuring, window: &Window, now: Instant) {
        let mut again = self.rules.measure_every;
        match mean(window) {
            Some(present) => {
                let before = self.base.replace(present).unwrap_or(present);
                if (present / before - 1.0).abs() > BASE_MOVED {
                    again = again.min(MEASURE_SOON);
                }
            }
            None => again = again.min(MEASURE_SOON),
        }
        self.limit = measuring.limit;
        self.highest = self.limit;
        self.measuring = None;
        self.measure_at = now + again;
    }

    fn follow(&mut self, window: &Window, now: Instant) {
        let Some(present) = mean(window) else { return };
        let Some(base) = self.base else {
            // With little in flight from the beginning, the first answers tell.
            self.base = Some(present);
            return;
        };
        // Noise pulls it down only little by little.
        let base = if present < base { base + (present - base) * 0.1 } else { base };
        self.base = Some(base);
        let tolerated = base * (1.0 + f64::from(self.rules.tolerance_percent) / 100.0);
        let gradient = (tolerated / present).clamp(SHRINK_MOST, 1.0);
        self.ramps &= gradient >= 1.0;
        let headroom = match self.is_used(window) {
            true if self.ramps => self.limit,
            true => self.limit.sqrt() / 2.0,
            false => 0.0,
        };
        self.set(self.limit * gradient + headroom);
        self.highest = self.highest.max(self.limit);
        if now >= self.measure_at || self.limit < self.highest * SHRUNK {
            self.begin_measuring(present, window, now);
        }
    }

    fn begin_measuring(&mut self, present: f64, window: &Window, now: Instant) {
        if !self.is_used(window) {
            // Nothing waits at the endpoints: this is what it takes.
            self.base = Some(present);
            self.highest = self.limit;
            self.measure_at = now + self.rules.measure_every;
            return;
        }
        let patience = self.rules.interval.max(Duration::from_secs_f64(present.min(10.0))) * MEASURE_LONGEST;
        self.measuring = Some(Measuring { limit: self.limit, ends: now + patience });
        // Of what is really worked on, without what waits at the endpoints, the half.
        let base = self.base.unwrap_or(present);
        self.set((self.limit * (base / present).min(1.0) / 2.0).floor());
    }

    /// Returns whether the limit is nearly reached: one that is far from being reached teaches nothing.
    fn is_used(&self, window: &Window) -> bool {
        f64::from(window.in_flight) * 2.0 > self.limit
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(f64::from(self.rules.min), f64::from(self.rules.max));
    }
}

/// Returns the mean in seconds.
fn mean(window: &Window) -> Option<f64> {
    (window.answers > 0).then(|| (window.total.as_secs_f64() / f64::from(window.answers)).max(1e-6))
}

/// The limit of a cluster as workers share it. Outlives plans.
#[derive(Debug, Default)]
pub struct Adaptive {
    /// 0: not known yet.
    limit: AtomicU32,
    window: Padded<Counts>,
    decision: Mutex<Option<Controller>>,
}

#[derive(Debug, Default)]
struct Counts {
    begun: OnceLock<Instant>,
    answers: AtomicU32,
    total_micros: AtomicU64,
    in_flight: AtomicU32,
    /// When the window began, in microseconds since the first.
    since_micros: AtomicU64,
    is_measuring: AtomicBool,
}

impl Adaptive {
    /// Returns what may be in flight at once.
    #[inline]
    pub fn limit(&self, rules: &AdaptiveConcurrency) -> u32 {
        match self.limit.load(Ordering::Relaxed) {
            0 => rules.min,
            limit => limit.clamp(rules.min, rules.max),
        }
    }

    /// Takes in an answer that took so long, and how much was in flight with it. Says whether the limit has risen.
    #[inline]
    pub fn observe(&self, rules: &AdaptiveConcurrency, (took, in_flight): (Duration, u32), now: Instant) -> bool {
        let counts = &*self.window;
        let begun = *counts.begun.get_or_init(|| now);
        let at = micros(now.saturating_duration_since(begun));
        let since = counts.since_micros.load(Ordering::Relaxed);
        let took = micros(took);
        let is_old = at.saturating_sub(took) < since;
        if !(is_old && counts.is_measuring.load(Ordering::Relaxed)) {
            counts.answers.fetch_add(1, Ordering::Relaxed);
            counts.total_micros.fetch_add(took, Ordering::Relaxed);
        }
        if in_flight > counts.in_flight.load(Ordering::Relaxed) {
            counts.in_flight.fetch_max(in_flight, Ordering::Relaxed);
        }
        at.saturating_sub(since) >= micros(rules.interval) && self.end_window(rules, at, now)
    }

    #[cold]
    fn end_window(&self, rules: &AdaptiveConcurrency, at: u64, now: Instant) -> bool {
        let counts = &*self.window;
        // Anyone who comes while another decides leaves it to that one.
        let Ok(mut decision) = self.decision.try_lock() else { return false };
        let controller = decision.get_or_insert_with(|| Controller::new(*rules, now));
        if *controller.rules() != *rules {
            *controller = Controller::new(*rules, now);
        }
        let window = Window {
            answers: counts.answers.load(Ordering::Relaxed),
            total: Duration::from_micros(counts.total_micros.load(Ordering::Relaxed)),
            in_flight: counts.in_flight.load(Ordering::Relaxed),
        };
        if at.saturating_sub(counts.since_micros.load(Ordering::Relaxed)) < micros(rules.interval)
            || !controller.is_enough(&window, now)
        {
            return false;
        }
        counts.answers.store(0, Ordering::Relaxed);
        counts.total_micros.store(0, Ordering::Relaxed);
        counts.in_flight.store(0, Ordering::Relaxed);
        counts.since_micros.store(at, Ordering::Relaxed);
        let limit = controller.end_window(&window, now);
        counts.is_measuring.store(controller.is_measuring(), Ordering::Relaxed);
        self.limit.swap(limit, Ordering::Relaxed) < limit
    }
}

impl ClusterPlan {
    /// Returns what may be at all endpoints together: the bound that is configured, or the one that was found, if it is lower.
    #[inline]
    pub(crate) fn bound(&self) -> Option<u32> {
        let fixed = self.cluster.connections_max;
        match &self.adaptive {
            None => fixed,
            Some(_) => self.adaptive_limit().map(|limit| limit.min(fixed.unwrap_or(u32::MAX))),
        }
    }

    /// Returns the bound that was found, if one is looked for.
    pub fn adaptive_limit(&self) -> Option<u32> {
        let rules = self.cluster.resilience.concurrency.as_ref()?;
        self.adaptive.as_ref().map(|adaptive| adaptive.limit(rules))
    }

    /// Takes in how long the head of a good response took that is here at `now`, if a bound is looked for. When that
    /// raises it, those who wait get the places. Errors are not told: many come at once, and say nothing of load. Nor does what
    /// took no one knows how long, which is 0.
    #[inline]
    pub fn tell_limit(&self, took: Duration, now: Instant) {
        if let Some(adaptive) = &self.adaptive
            && !took.is_zero()
        {
            self.tell_adaptive(adaptive, took, now);
        }
    }

    fn tell_adaptive(&self, adaptive: &Adaptive, took: Duration, now: Instant) {
        let Some(rules) = &self.cluster.resilience.concurrency else { return };
        let has_risen = adaptive.observe(rules, (took, self.state.bounded()), now);
        if has_risen && self.state.waiting() > 0 {
            queue::dispatch(&self.state);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
