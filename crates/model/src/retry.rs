//! When a request is sent to another endpoint after the first has failed.

use std::time::Duration;

use crate::fault::Fault;
use crate::head::Method;

/// When, how often and how fast. The default is what every cluster does without being told: a request that no endpoint has
/// seen, because connecting failed, goes to another one at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// After what.
    pub on: Conditions,
    /// Attempts, the first included; 1 switches retries off, [`crate::limits::ATTEMPTS_MAX`] is the most. One more may go to a backup.
    pub attempts_max: u32,
    /// Which requests may be sent again after an endpoint may have acted on them.
    pub methods: Methods,
    /// Bound on one attempt, from the request being sent whole to the response head; the cluster's own bound stays.
    pub timeout: Option<Duration>,
    /// Pause before an attempt; `None`: none.
    pub backoff: Option<Backoff>,
    /// Whether an endpoint that has failed in this exchange is asked again when no other is left.
    pub same_endpoint: bool,
    /// No attempt begins later than this after the first one began; `None`: without a bound but `attempts_max`.
    pub time_max: Option<Duration>,
    /// Request bodies up to this many bytes are received whole and kept, so that they can be sent again.
    pub body_bytes_max: usize,
    /// How much is added to the load; `None`: without a bound but `attempts_max`.
    pub budget: Option<Budget>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            on: Conditions { connect_failure: true, ..Conditions::default() },
            attempts_max: 3,
            methods: Methods::Idempotent,
            timeout: None,
            backoff: None,
            same_endpoint: false,
            time_max: None,
            body_bytes_max: 0,
            budget: None,
        }
    }
}

/// What a retry may follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// No connection: refused, timed out, or TLS failed; or no stream on one. The endpoint has seen nothing of the request.
    pub connect_failure: bool,
    /// The connection ended before a response head.
    pub reset: bool,
    /// The endpoint took too long to take the request or to answer it.
    pub timeout: bool,
    /// What it answered is no HTTP.
    pub bad_response: bool,
    /// It answered with a status in one of these ranges, ends included.
    pub statuses: Vec<(u16, u16)>,
    /// It answered a call of gRPC with one of these statuses, by their numbers, and with nothing else.
    pub grpc_statuses: Vec<u8>,
}

impl Conditions {
    /// Returns whether a retry may follow this fault.
    pub fn holds_fault(&self, fault: Fault) -> bool {
        match fault {
            Fault::ConnectFailed | Fault::ConnectTimeout | Fault::UpstreamHandshakeFailed | Fault::StreamRefused => {
                self.connect_failure
            }
            Fault::StaleConnection | Fault::ClosedBeforeResponse | Fault::SendFailed => self.reset,
            Fault::ResponseHeadTimeout | Fault::SendTimeout => self.timeout,
            Fault::BadResponse | Fault::ResponseHeadTooLarge => self.bad_response,
            _ => false,
        }
    }

    /// Returns whether a retry may follow a response of this status.
    pub fn holds_status(&self, status: u16) -> bool {
        self.statuses.iter().any(|&(first, last)| (first..=last).contains(&status))
    }

    /// Returns whether a retry may follow any response.
    pub fn hold_after_answer(&self) -> bool {
        !self.statuses.is_empty() || !self.grpc_statuses.is_empty()
    }

    /// Returns whether a retry may follow a gRPC call that ended with this status alone.
    pub fn holds_grpc(&self, status: u8) -> bool {
        self.grpc_statuses.contains(&status)
    }

    /// Returns whether a retry may follow a request that an endpoint may have processed.
    pub fn hold_after_sending(&self) -> bool {
        self.reset || self.timeout || self.bad_response || self.hold_after_answer()
    }
}

/// Which requests may be sent twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Methods {
    /// Those that do the same however often they are sent (RFC 9110 section 9.2.2).
    #[default]
    Idempotent,
    /// All: the operator knows that the endpoints bear it.
    Any,
}

impl Methods {
    /// Returns whether a request of this method may be sent again.
    pub fn allow(self, method: Method) -> bool {
        self == Self::Any || method.is_idempotent()
    }
}

/// Pauses that double from `base` to `max`; each is drawn evenly between half of it and the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Before the second attempt.
    pub base: Duration,
    /// Never longer than this.
    pub max: Duration,
}

/// Bound on retries compared with requests. A retry after a failure to connect is not counted: no endpoint has seen
/// the request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Retries for a hundred requests.
    pub percent: u32,
    /// Retries a second that are always allowed, over all workers.
    pub per_second: u32,
}
