//! What keeps a cluster from being given more than it can bear.

use std::time::Duration;

use crate::LocalResponse;
use crate::fault::Fault;
use crate::retry::Methods;

/// Everything off by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resilience {
    /// Refuses at once what would be too much.
    pub breaker: Option<CircuitBreaker>,
    /// Finds out how much may be at the endpoints at once.
    pub concurrency: Option<AdaptiveConcurrency>,
    /// Sends requests that take long to another endpoint too; a route's own comes first.
    pub hedge: Option<Hedge>,
}

/// Limits on requests in flight, over all workers, and on how much may fail. Whatever is above them is refused at
/// once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// Exchanges and streams for which the cluster was chosen: those that wait, too.
    pub requests_max: Option<u32>,
    /// Those that wait in the queue.
    pub pending_max: Option<u32>,
    /// Connections to endpoints that an exchange or stream uses; idle ones are not counted.
    pub connections_max: Option<u32>,
    /// Exchanges that are at an attempt after their first, or pause before it.
    pub retries_max: Option<u32>,
    /// Refuses everything for a while when too much fails.
    pub error_ratio: Option<ErrorRatio>,
    /// The custom response to rejected requests, without `Retry-After`; without one, that of the fault.
    pub page: Option<LocalResponse>,
}

/// When a circuit opens, and how it closes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRatio {
    /// Attempts that fail, in percent of all, from which on the circuit opens; 1 to 100.
    pub percent: u8,
    /// Over so much time.
    pub window: Duration,
    /// Not with fewer attempts than this in the window.
    pub requests_min: u32,
    /// Nothing is let through for so long.
    pub open_for: Duration,
    /// Then so many are tried at once, and as many must go well; at least 1.
    pub trial_requests: u32,
}

/// A bound on what is at the endpoints at once that follows how long answers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveConcurrency {
    /// Never fewer; at least 1.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// How much longer than without load answers may take before the bound shrinks, in percent.
    pub tolerance_percent: u32,
    /// Time between two decisions, at least.
    pub interval: Duration,
    /// How often it is measured how long answers take without load.
    pub measure_every: Duration,
}

/// When the same request goes to another endpoint too, because the first takes long. The first answer wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hedge {
    /// So long without a response head, and again as long before each further attempt.
    pub after: HedgeAfter,
    /// Attempts at once, the first included; 2 to [`crate::limits::ATTEMPTS_MAX`].
    pub attempts_max: u32,
    /// Which requests may be at several endpoints.
    pub methods: Methods,
    /// Hedges for a hundred requests that could be hedged.
    pub budget_percent: u32,
}

/// How long an endpoint may take alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAfter {
    /// This time.
    Time(Duration),
    /// As long as so many percent of recent answers took at most.
    Percentile(u8),
}

/// Why a cluster refused something that it was to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `requests_max` of its circuit breaker.
    Requests,
    /// `pending_max`.
    Pending,
    /// `connections_max`.
    Connections,
    /// `retries_max`: there was no further attempt.
    Retries,
    /// `error_ratio`.
    ErrorRatio,
    /// `adaptive_concurrency` of the cluster, which has no queue.
    Concurrency,
}

impl Refusal {
    /// Each of them, by its number.
    pub const ALL: [Self; 6] =
        [Self::Requests, Self::Pending, Self::Connections, Self::Retries, Self::ErrorRatio, Self::Concurrency];

    /// Returns the label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Pending => "pending",
            Self::Connections => "connections",
            Self::Retries => "retries",
            Self::ErrorRatio => "error_ratio",
            Self::Concurrency => "concurrency",
        }
    }

    /// Returns the fault that the client gets. A rejected retry keeps the fault of the previous attempt.
    pub fn fault(self) -> Fault {
        match self {
            Self::ErrorRatio => Fault::CircuitOpen,
            Self::Concurrency => Fault::ConcurrencyLimit,
            Self::Requests | Self::Pending | Self::Connections | Self::Retries => Fault::CircuitFull,
        }
    }
}
