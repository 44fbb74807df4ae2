//! What keeps a cluster from being given too much.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Page, RetryMethods};
use crate::units::{Percent, Time};

/// Bounds above which a cluster refuses at once, with 503, instead of letting anything wait. Each is exact over all workers;
/// none is set by default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Requests and TCP streams for which the cluster was chosen and that are not over: those that wait, those at endpoints,
    /// and those whose response is still on its way to the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_max: Option<u32>,
    /// Requests that wait in the `queue` of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pending_max: Option<u32>,
    /// Connections to endpoints in use. Idle ones that are kept beside have their own bound, `pool.idle_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub connections_max: Option<u32>,
    /// Requests at an attempt after their first. Above it there is no further attempt; 0 switches them off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries_max: Option<u32>,
    /// Refuse everything for a while when too large a share fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_ratio: Option<ErrorRatio>,
    /// What those get to see who are refused. By default a line of plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
}

/// When too large a share of attempts fails, nothing is let through for a while; then a few are, and when they go well,
/// all are. Failed is what gets no answer from the endpoint, or one with a status of 500 or more; how long its body takes does
/// not matter.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorRatio {
    /// So much must fail.
    pub share: Percent,
    /// Over so much time, at least 100 ms.
    pub window: Time,
    /// Of at least so many attempts.
    #[schemars(range(min = 1))]
    pub requests_min: u32,
    /// Nothing is let through for so long.
    pub open_for: Time,
    /// Then so many are let through at once; when as many have gone well, all are, and when one fails, none is.
    #[schemars(range(min = 1))]
    pub trial_requests: u32,
}

impl Default for ErrorRatio {
    fn default() -> Self {
        let seconds = |count| Time(std::time::Duration::from_secs(count));
        Self { share: Percent(50), window: seconds(10), requests_min: 20, open_for: seconds(5), trial_requests: 3 }
    }
}

/// Sends the same request to another endpoint too when the first takes long. The first answer wins; the others are dropped
/// with their connections. Only requests without a body, or whose body is kept by `retry.body_max`; while the first is being
/// connected to, all.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hedge {
    /// So long an endpoint may take alone to be connected, and then to begin its answer: a time such as `50ms`, or a percentile
    /// of recent answers of the cluster such as `p95`, from `p50` to `p99`.
    pub after: String,
    /// Endpoints asked at once, the first included.
    #[schemars(range(min = 2, max = limits::ATTEMPTS_MAX))]
    pub attempts_max: u32,
    /// Which requests may be at several endpoints.
    pub methods: RetryMethods,
    /// How much hedges may add to the requests that clients send.
    pub budget: Percent,
}

impl Default for Hedge {
    fn default() -> Self {
        Self { after: "p95".to_owned(), attempts_max: 2, methods: RetryMethods::Idempotent, budget: Percent(10) }
    }
}

/// Finds out how much the endpoints bear at once from how long they take to answer, and lets no more be at them. The rest
/// waits in the `queue` of the cluster, or is refused with 503 if there is none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveConcurrency {
    /// Never fewer at once.
    #[schemars(range(min = 1))]
    pub min: u32,
    /// Never more.
    #[schemars(range(min = 1))]
    pub max: u32,
    /// How much longer than without load answers may take. Higher values let more through, and let it wait at the endpoints.
    pub tolerance: Percent,
    /// Time between two decisions, at least; there must be 50 answers, too.
    pub interval: Time,
    /// How often it is measured how long answers take without load. For some twenty answers, half as much as before is let
    /// through.
    pub measure_every: Time,
}

impl Default for AdaptiveConcurrency {
    fn default() -> Self {
        let millis = |count| Time(std::time::Duration::from_millis(count));
        Self { min: 3, max: 1_000, tolerance: Percent(20), interval: millis(100), measure_every: millis(30_000) }
    }
}
