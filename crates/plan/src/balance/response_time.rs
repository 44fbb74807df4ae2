//! How long an endpoint takes to answer, for the balancers that go by it.
//!
//! One word for each endpoint holds the mean and the moment of the last answer, so that workers can read and write it
//! without a lock. It stands on the cache line of the count in flight, which every pick of such a balancer reads anyway.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::health::passive::Seen;

/// What a failure counts as, at least: who fails fast must not look fast. So do statuses from 500 to 599.
const FAILURE: Duration = Duration::from_secs(1);
/// A tick of the clock: 16 us. 32 bits of them last for 19 hours; who was idle for longer looks as if it was not.
const TICK_SHIFT: u32 = 4;

/// How times are averaged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    /// Ticks after which an answer counts half.
    half_life: f32,
    /// A longer time than the mean becomes the mean at once.
    keeps_peaks: bool,
}

/// A moment, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(u32);

/// The mean time of one endpoint and when it last changed: microseconds as a float below, ticks above. Zero: nothing is
/// known.
#[derive(Debug, Default)]
pub(crate) struct ResponseTime(AtomicU64);

impl Timing {
    pub(crate) fn new(half_life: Duration, keeps_peaks: bool) -> Self {
        let ticks = (half_life.as_micros() >> TICK_SHIFT).max(1) as f32;
        Self { half_life: ticks, keeps_peaks }
    }

    /// What is left after some time of what counted 1.
    #[inline]
    fn fade(self, from: Tick, to: Tick) -> f32 {
        let passed = to.0.wrapping_sub(from.0);
        // Workers look at the clock at moments of their own: a later one may be written already.
        if passed > u32::MAX / 2 { 1.0 } else { halved(passed as f32 / self.half_life) }
    }
}

impl Tick {
    #[inline]
    pub(crate) fn of(now: Instant) -> Self {
        // Only differences count; an hour of room for times that were taken before the first one that came here.
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        let begun = BEGUN.get_or_init(|| now.checked_sub(Duration::from_secs(3_600)).unwrap_or(now));
        Self((now.saturating_duration_since(*begun).as_micros() >> TICK_SHIFT) as u32)
    }
}

impl ResponseTime {
    /// The mean in microseconds, fading while nothing is heard of the endpoint, so that one that was slow is tried again.
    /// 0 when nothing is known.
    #[inline]
    pub(crate) fn read(&self, now: Tick, timing: Timing) -> f32 {
        let (mean, last) = unpack(self.0.load(Ordering::Relaxed));
        if mean == 0.0 { 0.0 } else { mean * timing.fade(last, now) }
    }

    /// Becomes what another is.
    pub(crate) fn copy_from(&self, other: &Self) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Takes in how an exchange went, if it is known how long it took.
    pub(crate) fn observe(&self, seen: Seen, now: Instant, timing: Timing) {
        let took = match seen {
            Seen::Answered { latency, .. } if seen.is_good() && latency.is_zero() => return,
            Seen::Answered { latency, .. } if seen.is_good() => latency,
            Seen::Answered { latency, .. } => latency.max(FAILURE),
            Seen::Failed => FAILURE,
        };
        let (took, now) = ((took.as_secs_f32() * 1e6).max(1.0), Tick::of(now));
        let change = |bits: u64| {
            let (mean, last) = unpack(bits);
            let left = timing.fade(last, now);
            let is_first = mean == 0.0;
            let is_peak = timing.keeps_peaks && took > mean;
            Some(pack(if is_first || is_peak { took } else { mean * left + took * (1.0 - left) }, now))
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}

fn unpack(bits: u64) -> (f32, Tick) {
    (f32::from_bits(bits as u32), Tick((bits >> 32) as u32))
}

fn pack(mean: f32, last: Tick) -> u64 {
    u64::from(last.0) << 32 | u64::from(mean.to_bits())
}

/// 2 to the power of minus `times`, to within 0.4 %: whole halvings in the exponent, the rest by a parabola through the
/// ends that has the right middle.
#[inline]
fn halved(times: f32) -> f32 {
    if times >= 126.0 {
        return 0.0;
    }
    let whole = times as u32;
    let rest = times - whole as f32;
    f32::from_bits((127 - whole) << 23) * (1.0 - rest * (0.671_57 - 0.171_57 * rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::tests::begin;

    const SECOND: Duration = Duration::from_secs(1);

    fn answer(millis: u64) -> Seen {
        Seen::Answered { status: 200, latency: Duration::from_millis(millis) }
    }

    fn millis(time: &ResponseTime, now: Instant, timing: Timing) -> f32 {
        time.read(Tick::of(now), timing) / 1e3
    }

    #[test]
    fn halving_is_exact_enough() {
        for step in 0..2_000 {
            let times = step as f32 / 100.0;
            let exact = (-times).exp2();
            assert!((halved(times) - exact).abs() <= 0.004 * exact, "{times}");
        }
        assert_eq!((halved(0.0), halved(1.0), halved(200.0)), (1.0, 0.5, 0.0));
    }

    #[test]
    fn an_answer_counts_half_after_the_half_life() {
        let timing = Timing::new(10 * SECOND, false);
        let (time, now) = (ResponseTime::default(), begin());
        assert_eq!(millis(&time, now, timing), 0.0);
        time.observe(answer(100), now, timing);
        time.observe(answer(20), now + 10 * SECOND, timing);
        assert!((millis(&time, now + 10 * SECOND, timing) - 60.0).abs() < 0.5);
        assert!((millis(&time, now + 20 * SECOND, timing) - 30.0).abs() < 0.5, "it fades while nothing is heard");
        time.observe(answer(20), now + 5 * SECOND, timing);
        assert!((millis(&time, now + 10 * SECOND, timing) - 60.0).abs() < 30.0, "a clock that lags does no harm");
    }

    #[test]
    fn an_answer_that_took_nobody_knows_how_long_tells_nothing() {
        let timing = Timing::new(10 * SECOND, false);
        let (time, now) = (ResponseTime::default(), begin());
        time.observe(answer(0), now, timing);
        assert_eq!(millis(&time, now, timing), 0.0, "nothing is known yet");
        time.observe(answer(100), now, timing);
        time.observe(answer(0), now + 10 * SECOND, timing);
        assert!((millis(&time, now, timing) - 100.0).abs() < 0.5);
        time.observe(Seen::Answered { status: 500, latency: Duration::ZERO }, now + 90 * SECOND, timing);
        assert!(millis(&time, now + 90 * SECOND, timing) > 900.0, "an error counts as ever");
    }

    #[test]
    fn a_mean_follows_a_steady_time_whatever_the_rate() {
        for per_second in [10, 1_000, 50_000] {
            let timing = Timing::new(SECOND, false);
            let (time, now) = (ResponseTime::default(), begin());
            time.observe(answer(500), now, timing);
            for count in 0..20 * per_second {
                time.observe(answer(10), now + SECOND * count / per_second, timing);
            }
            let left = millis(&time, now + 20 * SECOND, timing);
            assert!((left - 10.0).abs() < 1.5, "{per_second} in a second: {left}");
        }
    }

    #[test]
    fn a_peak_is_seen_at_once_and_forgotten_slowly() {
        let timing = Timing::new(10 * SECOND, true);
        let (time, now) = (ResponseTime::default(), begin());
        time.observe(answer(10), now, timing);
        time.observe(answer(400), now + SECOND / 100, timing);
        assert!((millis(&time, now + SECOND / 100, timing) - 400.0).abs() < 1.0);
        time.observe(answer(10), now + SECOND / 50, timing);
        assert!(millis(&time, now + SECOND / 50, timing) > 390.0);
    }

    #[test]
    fn who_fails_fast_does_not_look_fast() {
        for seen in [Seen::Failed, Seen::Answered { status: 503, latency: SECOND / 1_000 }] {
            let timing = Timing::new(SECOND, true);
            let time = ResponseTime::default();
            time.observe(seen, begin(), timing);
            assert_eq!(millis(&time, begin(), timing), 1_000.0);
        }
    }
}
