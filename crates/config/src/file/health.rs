//! What decides whether endpoints are fit for work, beside active checks.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Percent, Time};

/// What is wanted of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointState {
    /// It gets work while it is fit for it.
    #[default]
    Auto,
    /// It gets work, whatever checks and requests say of it.
    Up,
    /// It gets no work, as if its checks failed.
    Down,
    /// It gets nothing new. What is under way ends in its own time.
    Drain,
    /// It gets nothing new, and is not checked.
    Maintenance,
}

/// Endpoints that fail requests are ejected: they get no work for a while. The last one that could work is never
/// ejected.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PassiveHealth {
    /// Failures in a row that eject an endpoint; 0 switches this off. A failure is whatever counts against the health of
    /// the endpoint in the table of faults: no connection, no answer in time, a broken answer.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub consecutive_failures: u32,
    /// Answers with a status from 500 to 599, and failures, in a row that eject an endpoint. Not counted by default: mind
    /// that a client may be able to provoke such answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub consecutive_5xx: Option<u32>,
    /// Eject an endpoint of which too many requests fail. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_rate: Option<FailureRate>,
    /// Eject an endpoint of which more requests fail than of the others. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<SuccessRate>,
    /// Eject an endpoint that answers later than the others. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyOutliers>,
    /// Time over which `failure_rate`, `success_rate` and `latency` are counted.
    pub interval: Time,
    /// How long an endpoint stays ejected the first time. Each ejection that follows lasts as much longer; each interval
    /// that goes well takes one back.
    pub ejection_time: Time,
    /// How long an ejection lasts at most.
    pub ejection_time_max: Time,
    /// Share of the cluster's endpoints that may be ejected at once, rounded down to whole endpoints.
    pub ejected_max: Percent,
}

impl Default for PassiveHealth {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            consecutive_5xx: None,
            failure_rate: None,
            success_rate: None,
            latency: None,
            interval: Time(Duration::from_secs(10)),
            ejection_time: Time(Duration::from_secs(30)),
            ejection_time_max: Time(Duration::from_secs(300)),
            ejected_max: Percent(50),
        }
    }
}

/// Too many requests of an endpoint fail. Failures and statuses from 500 to 599 count.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FailureRate {
    /// Share of an endpoint's requests that may fail within an interval; more ejects it.
    pub max: Percent,
    /// Requests of an endpoint in an interval below which nothing is concluded.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
}

impl Default for FailureRate {
    fn default() -> Self {
        Self { max: Percent(50), requests_min: 50 }
    }
}

/// An endpoint succeeds less often than the others. Failures and statuses from 500 to 599 are no success.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuccessRate {
    /// Standard deviations below the mean rate of all endpoints; what lies lower is ejected.
    #[schemars(range(min = 0.5, max = 10.0))]
    pub deviations: f64,
    /// Rate of success that is good enough, whatever the others do.
    pub enough: Percent,
    /// Requests of an endpoint in an interval below which it is left aside.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
    /// Endpoints with so many requests below which nothing is concluded. With fewer than five, none can lie 1.9 deviations
    /// below the mean.
    #[schemars(range(min = 2, max = 10_000))]
    pub endpoints_min: u32,
}

impl Default for SuccessRate {
    fn default() -> Self {
        Self { deviations: 1.9, enough: Percent(95), requests_min: 100, endpoints_min: 5 }
    }
}

/// An endpoint answers later than the others. What counts is the mean time from a request being sent to the head of its
/// response, or for TCP the time to connect.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LatencyOutliers {
    /// How many times the median of the others.
    #[schemars(range(min = 1.1, max = 1000.0))]
    pub factor: f64,
    /// Latency that is good enough, whatever the others do.
    pub enough: Time,
    /// Good answers of an endpoint in an interval below which it is left aside.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
    /// Endpoints with so many answers below which nothing is concluded.
    #[schemars(range(min = 2, max = 10_000))]
    pub endpoints_min: u32,
}

impl Default for LatencyOutliers {
    fn default() -> Self {
        Self { factor: 3.0, enough: Time(Duration::from_millis(100)), requests_min: 100, endpoints_min: 3 }
    }
}
