//! What decides, beside active checks, whether the endpoints of a cluster are fit for work.

use std::time::Duration;

/// Everything off by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fitness {
    /// What exchanges tell.
    pub passive: Option<PassiveHealth>,
    /// Share of fit endpoints, in percent, below which all get work, fit or not; 0: never.
    pub panic_percent: u8,
    /// Time over which an endpoint that comes up gets its full weight.
    pub slow_start: Option<Duration>,
    /// Agents beside the endpoints are asked how much work these want.
    pub agent: Option<AgentCheck>,
}

/// A question to the agents of endpoints that have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCheck {
    /// Port of the agents; an endpoint's own `agent_port` comes first. Endpoints without either have no agent.
    pub port: Option<u16>,
    /// Time between questions to one agent.
    pub interval: Duration,
    /// Time for one.
    pub timeout: Duration,
    /// Sent to the agent before it is read; may be empty.
    pub send: String,
}

/// What the operator wants of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminState {
    /// It gets work while it is fit.
    #[default]
    Auto,
    /// It gets work, whatever checks and exchanges say.
    Up,
    /// It gets none, as if its checks failed.
    Down,
    /// It gets no new requests; those in flight finish.
    Drain,
    /// As [`Self::Drain`], and it is not even checked.
    Maintenance,
}

impl AdminState {
    /// Returns whether the endpoint gets no new requests, whatever its health.
    pub fn is_out(self) -> bool {
        matches!(self, Self::Down | Self::Drain | Self::Maintenance)
    }
}

/// Ejects endpoints by what exchanges with them tell.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveHealth {
    /// Failures in a row that eject; `None`: not looked at. At least 1.
    pub consecutive_failures: Option<u32>,
    /// Failures and statuses from 500 in a row that eject; `None`: not looked at. At least 1.
    pub consecutive_5xx: Option<u32>,
    /// A bound on the share of failures within an interval.
    pub failure_rate: Option<FailureRate>,
    /// Comparison of success with the other endpoints.
    pub success_rate: Option<SuccessRate>,
    /// Comparison of latency with the other endpoints.
    pub latency: Option<LatencyOutliers>,
    /// Time over which rates and latency are counted.
    pub interval: Duration,
    /// How long the first ejection lasts; each that follows lasts as much longer.
    pub ejection_time: Duration,
    /// How long any ejection lasts at most; not below `ejection_time`.
    pub ejection_time_max: Duration,
    /// Share of a cluster's endpoints, in percent and rounded down to whole endpoints, that are ejected at once at most.
    pub ejected_percent_max: u8,
}

impl PassiveHealth {
    /// Returns whether any limit counts over an interval.
    pub fn has_windows(&self) -> bool {
        self.failure_rate.is_some() || self.success_rate.is_some() || self.latency.is_some()
    }
}

/// Ejects an endpoint of which too many exchanges fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRate {
    /// Failures in percent of all exchanges; more ejects.
    pub percent_max: u8,
    /// Exchanges in an interval below which nothing is concluded.
    pub requests_min: u64,
}

/// Ejects an endpoint that succeeds less often than the others.
#[derive(Clone, Debug, PartialEq)]
pub struct SuccessRate {
    /// Standard deviations below the mean of all endpoints.
    pub deviations: f64,
    /// Success in percent that is good enough, whatever the others do.
    pub enough_percent: u8,
    /// Exchanges in an interval below which nothing is concluded from an endpoint.
    pub requests_min: u64,
    /// Endpoints with so many exchanges below which nothing is concluded at all.
    pub endpoints_min: u32,
}

/// Ejects an endpoint that answers later than the others.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyOutliers {
    /// How many times the median of the others.
    pub factor: f64,
    /// Latency that is good enough, whatever the others do.
    pub enough: Duration,
    /// Answers in an interval below which nothing is concluded from an endpoint.
    pub requests_min: u64,
    /// Endpoints with so many answers below which nothing is concluded at all.
    pub endpoints_min: u32,
}
