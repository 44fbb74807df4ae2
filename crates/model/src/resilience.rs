//! What keeps a cluster from being given more than it can bear.

use std::time::Duration;

use crate::fault::Fault;

/// Everything off by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resilience {
    /// Refuses at once what would be too much.
    pub breaker: Option<CircuitBreaker>,
}

/// Bounds on what is under way at once, over all workers, and on how much may fail. Whatever is above them is refused at
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
}

impl Refusal {
    /// Each of them, by its number.
    pub const ALL: [Self; 5] = [Self::Requests, Self::Pending, Self::Connections, Self::Retries, Self::ErrorRatio];

    /// As metrics label it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Pending => "pending",
            Self::Connections => "connections",
            Self::Retries => "retries",
            Self::ErrorRatio => "error_ratio",
        }
    }

    /// What the client is told of. A retry that is refused leaves the fault of the attempt before.
    pub fn fault(self) -> Fault {
        match self {
            Self::ErrorRatio => Fault::CircuitOpen,
            Self::Requests | Self::Pending | Self::Connections | Self::Retries => Fault::CircuitFull,
        }
    }
}
