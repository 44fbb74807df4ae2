//! For how long an endpoint gets no work, and why.

use std::fmt;
use std::time::{Duration, Instant};

use model::fitness::PassiveHealth;

/// What an ejection is for, as metrics label it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// Failures in a row.
    ConsecutiveFailures,
    /// Statuses from 500, and failures, in a row.
    Consecutive5xx,
    /// Too many failures within an interval.
    FailureRate,
    /// More failures than the others.
    SuccessRate,
    /// Slower than the others.
    Latency,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 5] =
        [Self::ConsecutiveFailures, Self::Consecutive5xx, Self::FailureRate, Self::SuccessRate, Self::Latency];

    /// Returns the name of the setting that causes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::Consecutive5xx => "consecutive_5xx",
            Self::FailureRate => "failure_rate",
            Self::SuccessRate => "success_rate",
            Self::Latency => "latency",
        }
    }
}

/// The figures behind an ejection. Rates are shares from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Evidence {
    /// So many failures in a row.
    Failures(u32),
    /// So many failures and statuses from 500 in a row.
    Errors(u32),
    /// Bad ones among all of the interval.
    FailureRate {
        /// Failures and statuses from 500.
        bad: u64,
        /// All.
        requests: u64,
    },
    /// The rate of success of the interval.
    SuccessRate {
        /// Of this endpoint.
        rate: f64,
        /// Of all endpoints.
        mean: f64,
        /// What it should have been.
        needed: f64,
    },
    /// The mean latency of the interval.
    Latency {
        /// Of this endpoint.
        mean: Duration,
        /// Median of the others.
        others: Duration,
    },
}

impl Evidence {
    /// Returns what the ejection is for.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Failures(_) => Cause::ConsecutiveFailures,
            Self::Errors(_) => Cause::Consecutive5xx,
            Self::FailureRate { .. } => Cause::FailureRate,
            Self::SuccessRate { .. } => Cause::SuccessRate,
            Self::Latency { .. } => Cause::Latency,
        }
    }
}

impl Evidence {
    /// Returns the ejection as numbers, for another process.
    pub fn figures(&self) -> [f64; 3] {
        match *self {
            Self::Failures(count) | Self::Errors(count) => [f64::from(count), 0.0, 0.0],
            Self::FailureRate { bad, requests } => [bad as f64, requests as f64, 0.0],
            Self::SuccessRate { rate, mean, needed } => [rate, mean, needed],
            Self::Latency { mean, others } => [mean.as_secs_f64(), others.as_secs_f64(), 0.0],
        }
    }

    /// Returns the reverse of [`Self::figures`].
    pub fn of(cause: Cause, figures: [f64; 3]) -> Self {
        let [one, two, three] = figures.map(|figure| if figure.is_finite() { figure.max(0.0) } else { 0.0 });
        let seconds = |figure: f64| Duration::try_from_secs_f64(figure).unwrap_or(Duration::MAX);
        match cause {
            Cause::ConsecutiveFailures => Self::Failures(one as u32),
            Cause::Consecutive5xx => Self::Errors(one as u32),
            Cause::FailureRate => Self::FailureRate { bad: one as u64, requests: two as u64 },
            Cause::SuccessRate => Self::SuccessRate { rate: one, mean: two, needed: three },
            Cause::Latency => Self::Latency { mean: seconds(one), others: seconds(two) },
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failures(count) => write!(f, "{count} failures in a row"),
            Self::Errors(count) => write!(f, "{count} failures or 5xx in a row"),
            Self::FailureRate { bad, requests } => write!(f, "{bad} of {requests} requests failed"),
            Self::SuccessRate { rate, mean, needed } => {
                let [rate, mean, needed] = [rate, mean, needed].map(|share| share * 100.0);
                write!(f, "{rate:.1}% succeeded, {mean:.1}% on average, {needed:.1}% needed")
            }
            Self::Latency { mean, others } => write!(f, "responses take {mean:.1?}, {others:.1?} at the others"),
        }
    }
}

/// What is known of one endpoint's ejections.
///
/// ```text
///             begin: lasts (level + 1) × ejection_time, at most ejection_time_max; level + 1
///   at work ◀──────────────────────────────────────────────────────────▶ ejected
///     │  ▲      end: that time is over, or more are ejected than may be
///     └──┘
///      calm_down, each interval: level - 1
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ejection {
    pub(super) until: Option<Instant>,
    pub(super) evidence: Option<Evidence>,
    pub(super) level: u32,
    pub(super) counts: [u64; Cause::ALL.len()],
}

impl Ejection {
    /// Returns when the current ejection ends, if there is one.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns what the one that lasts is for.
    pub fn evidence(&self) -> Option<Evidence> {
        self.evidence
    }

    /// Returns how often the endpoint was ejected for that since it is known.
    pub fn count(&self, cause: Cause) -> u64 {
        self.counts[cause as usize]
    }

    /// Begins one, and says how long it lasts.
    pub(super) fn begin(&mut self, evidence: Evidence, rules: &PassiveHealth, now: Instant) -> Duration {
        self.level = self.level.saturating_add(1);
        let lasts = rules.ejection_time.saturating_mul(self.level).min(rules.ejection_time_max);
        self.until = Some(now + lasts);
        self.evidence = Some(evidence);
        let count = &mut self.counts[evidence.cause() as usize];
        *count = count.wrapping_add(1);
        lasts
    }

    /// Returns whether it is time to end the one that lasts.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    pub(super) fn end(&mut self) {
        self.until = None;
        self.evidence = None;
    }

    /// Notes that an interval has passed: without an ejection in it, the next one will be shorter.
    pub(super) fn calm_down(&mut self) {
        if self.until.is_none() {
            self.level = self.level.saturating_sub(1);
        }
    }

    /// Forgets all but the counts, which metrics tell and which must not fall.
    pub(super) fn forget(&mut self) {
        *self = Self { counts: self.counts, ..Self::default() };
    }
}
