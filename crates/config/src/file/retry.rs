//! When another endpoint is tried.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Percent, Size, Time};

/// When a request is sent to another endpoint after one has failed. Without it, a request that no endpoint has seen,
/// because connecting failed, is sent to up to two others at once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// After what: `connect_failure` (refused, timed out, or TLS failed; with HTTP/2 also a stream that is refused), `reset` (the connection ended before a
    /// response), `timeout` (no response in time), `bad_response` (an answer that is no HTTP), statuses such as `503`,
    /// classes such as `5xx`, ranges such as `502-504`, and for calls of gRPC that end with a status alone `grpc_cancelled`,
    /// `grpc_deadline_exceeded`, `grpc_internal`, `grpc_resource_exhausted`, `grpc_unavailable`.
    #[schemars(length(min = 1))]
    pub on: Vec<RetryOn>,
    /// Attempts, the first included; 1 switches retries off. When all have failed, one more goes to a backup that is idle.
    #[schemars(range(min = 1, max = limits::ATTEMPTS_MAX))]
    pub attempts_max: u32,
    /// Which requests may be sent again after an endpoint may have acted on them.
    pub methods: RetryMethods,
    /// Bound on one attempt, from the request being sent whole to the response head. By default only the cluster's
    /// `timeouts.response_head`. The route's `timeout` bounds all attempts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// No attempt begins later than this after the first one began. A pause that would end later is not made, and a wait in the
    /// `queue` ends at that time. An attempt that has begun goes on under its own time-outs. No bound by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_max: Option<Time>,
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// Ask an endpoint again that has failed in this exchange, when no other is left, backups included. By default the client gets
    /// the failure then. For an endpoint that restarts, together with `backoff`. TCP listeners never do this.
    pub same_endpoint: bool,
    /// Bodies up to this size are received whole before the first attempt and kept, so that they can be sent again.
    /// Requests with larger ones, or of unknown length, are tried again only while nothing of them is sent; a body of unknown
    /// length up to this size also once it was sent whole to an endpoint that speaks HTTP/2. At most 48 KiB.
    pub body_max: Size,
    /// How much retries may add to the load. A retry after a failure to connect is not counted.
    pub budget: RetryBudget,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            on: ["connect_failure", "reset"].map(|name| RetryOn::Name(name.to_owned())).to_vec(),
            attempts_max: 3,
            methods: RetryMethods::Idempotent,
            timeout: None,
            time_max: None,
            backoff: Backoff::default(),
            same_endpoint: false,
            body_max: Size(16 * 1024),
            budget: RetryBudget::default(),
        }
    }
}

/// What a retry follows: a status, a range of them, or the name of a failure.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum RetryOn {
    /// This status.
    Status(#[schemars(range(min = 100, max = 599))] u16),
    /// A range, or a name.
    Name(String),
}

/// Which requests may be sent twice.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryMethods {
    /// GET, HEAD, PUT, DELETE, OPTIONS and TRACE: they do the same however often they are sent.
    #[default]
    Idempotent,
    /// All of them. Only for endpoints that bear the same request twice.
    Any,
}

/// Pauses between attempts: they double from `base` to `max`; each is drawn between half of that and the whole.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "RetryBackoff")]
pub struct Backoff {
    /// Before the second attempt.
    pub base: Time,
    /// The longest.
    pub max: Time,
}

impl Default for Backoff {
    fn default() -> Self {
        let millis = |count| Time(std::time::Duration::from_millis(count));
        Self { base: millis(10), max: millis(250) }
    }
}

/// How much retries may add to the load.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudget {
    /// How much retries may add to the requests that clients send.
    pub share: Percent,
    /// Retries a second that are allowed whatever the number of requests, over all workers. Those of ten seconds are
    /// there from the beginning.
    #[schemars(range(max = 1_000_000))]
    pub per_second: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { share: Percent(20), per_second: 10 }
    }
}
