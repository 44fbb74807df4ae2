//! When another endpoint is tried.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Percent, Size, Time};

/// When a failed request is sent to another endpoint. Without it, a request that no endpoint has seen, because connecting
/// failed, is sent to up to two others at once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Failures to retry: `connect_failure` (refused, timed out, or TLS failed; with HTTP/2 also a refused stream), `reset`
    /// (the connection closed before a response), `timeout` (no response in time), `bad_response` (a response that is not valid
    /// HTTP), statuses such as `503`, classes such as `5xx`, ranges such as `502-504`, and for gRPC calls that end with a
    /// status alone `grpc_cancelled`, `grpc_deadline_exceeded`, `grpc_internal`, `grpc_resource_exhausted`, `grpc_unavailable`.
    #[schemars(length(min = 1))]
    pub on: Vec<RetryOn>,
    /// Attempts, the first included; 1 switches retries off. When all have failed, one more goes to an idle backup.
    #[schemars(range(min = 1, max = limits::ATTEMPTS_MAX))]
    pub attempts_max: u32,
    /// Which requests may be repeated after an endpoint may have processed them.
    pub methods: RetryMethods,
    /// Time-out of one attempt, from the complete request to the response head. By default only the cluster's
    /// `timeouts.response_head`. The route's `timeout` limits all attempts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// Latest start of an attempt, measured from the start of the first. A pause that would end later is skipped, and a wait in
    /// the `queue` ends at that time. A started attempt continues under its own time-outs. Unlimited by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_max: Option<Time>,
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// Retry the same endpoint if no other is left, backups included. By default the client then gets the failure. For an
    /// endpoint that restarts, together with `backoff`. Not for TCP listeners.
    pub same_endpoint: bool,
    /// Bodies up to this size are buffered before the first attempt, so that they can be sent again. Requests with larger
    /// bodies, or of unknown length, are retried only before any byte of them is sent; a body of unknown length up to this size
    /// also after it was sent completely to an HTTP/2 endpoint. At most 48 KiB.
    pub body_max: Size,
    /// Limit on the load that retries add. Retries after a failure to connect do not count.
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

/// A reason to retry: a status, a range of statuses, or the name of a failure.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum RetryOn {
    /// This status.
    Status(#[schemars(range(min = 100, max = 599))] u16),
    /// A range, or a name.
    Name(String),
}

/// Which requests may be repeated.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryMethods {
    /// GET, HEAD, PUT, DELETE, OPTIONS and TRACE, which are idempotent.
    #[default]
    Idempotent,
    /// All of them. Only if the endpoints tolerate the same request twice.
    Any,
}

/// Pauses between attempts: they double from `base` to `max`; each is random between half of that and all of it.
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

/// Limit on the load that retries add.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryBudget {
    /// Retries, as a share of the requests of clients.
    pub share: Percent,
    /// Retries per second that are always allowed, over all workers. An allowance of ten seconds is available from the start.
    #[schemars(range(max = 1_000_000))]
    pub per_second: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { share: Percent(20), per_second: 10 }
    }
}
