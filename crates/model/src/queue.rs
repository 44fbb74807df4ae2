//! Waiting for a place at the endpoints of a cluster.

use std::time::Duration;

use crate::LocalResponse;
use crate::hash_key::HashKey;
use crate::limits::QUEUE_RETRY_AFTER;

/// How requests wait while all endpoints are full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Exchanges that wait at once, over all workers.
    pub requests_max: u32,
    /// Longest wait.
    pub timeout: Duration,
    /// The key by which those who wait take turns, the first that a request has; empty: they do not.
    pub fair_by: Vec<HashKey>,
    /// Refusing some while waiting is hopeless.
    pub shed: Option<Shed>,
    /// Whether a request goes to a free backup when the regular endpoints are full, before it waits.
    pub use_backups: bool,
    /// After which those may come again who are refused, wait too long or are shed.
    pub retry_after_seconds: u64,
    /// The custom response; without one, that of the fault.
    pub page: Option<LocalResponse>,
}

impl Queue {
    /// Returns a queue with these limits, in order of arrival.
    pub fn new(requests_max: u32, timeout: Duration) -> Self {
        let retry_after_seconds = QUEUE_RETRY_AFTER.as_secs();
        Self {
            requests_max,
            timeout,
            fair_by: Vec::new(),
            shed: None,
            use_backups: false,
            retry_after_seconds,
            page: None,
        }
    }
}

/// When waiting is hopeless: even the shortest wait has been longer than `target` for `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// A wait that does no harm.
    pub target: Duration,
    /// How long waits may exceed the target before a request is rejected. Greater than zero.
    pub interval: Duration,
    /// Who is refused.
    pub from: ShedFrom,
}

/// Who is refused while waiting is hopeless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedFrom {
    /// Who has waited longest and has most likely given up.
    Oldest,
    /// Who has come last and has lost least.
    Newest,
}

/// The turn of an exchange among those that wait: by class, then by arrival and offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Precedence {
    /// Lower ones come first; within [`crate::limits::QUEUE_CLASS_MAX`] of 0.
    pub class: i8,
    /// As if it had come so many milliseconds later, or earlier when negative; within
    /// [`crate::limits::QUEUE_OFFSET_MAX`].
    pub offset_ms: i32,
}
