//! What keeps a cluster from being given too much.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Page, RetryMethods};
use crate::units::{Percent, Time};

/// Limits beyond which the cluster rejects requests at once, with 503, instead of queueing them. Each is exact over all
/// workers; none is set by default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Requests and TCP streams of the cluster in progress: queued, at endpoints, or with a response still being sent to the
    /// client.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_max: Option<u32>,
    /// Requests in the `queue` of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pending_max: Option<u32>,
    /// Busy connections to endpoints. Idle ones are limited by `pool.idle_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub connections_max: Option<u32>,
    /// Concurrent retries. Beyond it requests are not retried; 0 switches retries off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries_max: Option<u32>,
    /// Open the circuit, which rejects all requests for a while, when too large a share fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_ratio: Option<ErrorRatio>,
    /// Response to rejected requests. By default a line of plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
}

/// When too large a share of attempts fails, the circuit opens: all requests are rejected for a while. Then it is half-open: a
/// few trial requests pass, and if they succeed it closes. An attempt fails without a response from the endpoint, or with a
/// status of 500 or more; the time of its body does not matter.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorRatio {
    /// Share of failures that opens the circuit.
    pub share: Percent,
    /// Time window, at least 100 ms.
    pub window: Time,
    /// Minimum number of attempts in the window.
    #[schemars(range(min = 1))]
    pub requests_min: u32,
    /// How long the circuit stays open.
    pub open_for: Time,
    /// Concurrent trial requests when half-open. If as many succeed, the circuit closes; if one fails, it opens again.
    #[schemars(range(min = 1))]
    pub trial_requests: u32,
}

impl Default for ErrorRatio {
    fn default() -> Self {
        let seconds = |count| Time(std::time::Duration::from_secs(count));
        Self { share: Percent(50), window: seconds(10), requests_min: 20, open_for: seconds(5), trial_requests: 3 }
    }
}

/// Sends a slow request to another endpoint, too. The first response wins; the other attempts are cancelled. Applies to
/// requests without a body, or with a body kept by `retry.body_max`; while the first attempt is still connecting, to all.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hedge {
    /// Delay before the next attempt, first for connecting, then for the start of the response: a time such as `50ms`, or a
    /// percentile of the cluster's recent response times, from `p50` to `p99`.
    pub after: String,
    /// Attempts at once, the first included.
    #[schemars(range(min = 2, max = limits::ATTEMPTS_MAX))]
    pub attempts_max: u32,
    /// Which requests may be sent to several endpoints.
    pub methods: RetryMethods,
    /// Limit on hedged attempts, as a share of the requests.
    pub budget: Percent,
}

impl Default for Hedge {
    fn default() -> Self {
        Self { after: "p95".to_owned(), attempts_max: 2, methods: RetryMethods::Idempotent, budget: Percent(10) }
    }
}

/// Finds out from response times how many requests the endpoints can process at once, and limits them to that. Further requests
/// wait in the `queue` of the cluster, or are rejected with 503 if there is none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveConcurrency {
    /// Lower bound of the limit.
    #[schemars(range(min = 1))]
    pub min: u32,
    /// Upper bound of the limit.
    #[schemars(range(min = 1))]
    pub max: u32,
    /// Tolerated response time relative to the one without load. Higher values let more requests through, which then wait at
    /// the endpoints.
    pub tolerance: Percent,
    /// Minimum time between adjustments; each also needs 50 responses.
    pub interval: Time,
    /// How often the response time without load is measured: for about twenty responses, the limit is halved.
    pub measure_every: Time,
}

impl Default for AdaptiveConcurrency {
    fn default() -> Self {
        let millis = |count| Time(std::time::Duration::from_millis(count));
        Self { min: 3, max: 1_000, tolerance: Percent(20), interval: millis(100), measure_every: millis(30_000) }
    }
}
