//! How an instance stands with others.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// An instance that lacks something waits so long for those who have what the only teacher does not.
const PATIENCE: Duration = Duration::from_secs(30);

/// How it stands with what others know.
pub(super) struct Learning {
    /// Tables were named before.
    pub(super) follows: bool,
    pub(super) is_settled: bool,
    pub(super) needs_teaching: bool,
    pub(super) teacher: Option<u128>,
    /// Instances that are connected, whose journals can be asked for again.
    pub(super) senders: HashSet<u128>,
    /// Times that what an instance has sent was given up, to be asked for again.
    pub(super) given_up: u32,
    /// Since when a sender does not have what this instance lacks, and how long that may be so.
    pub(super) lacking_since: Option<Instant>,
    pub(super) patience: Duration,
    /// Changes when the vector has gone back.
    pub(super) epoch: u64,
}

impl Default for Learning {
    fn default() -> Self {
        Self {
            follows: false,
            is_settled: false,
            needs_teaching: false,
            teacher: None,
            senders: HashSet::new(),
            given_up: 0,
            lacking_since: None,
            patience: PATIENCE,
            epoch: 0,
        }
    }
}

/// How it stands with the process that follows.
#[derive(Default)]
pub(super) struct Succession {
    pub(super) is_paused: bool,
    /// Another process has taken over: this one only sends what it still counts.
    pub(super) is_retired: bool,
    /// Its last number then.
    pub(super) retired_at: u64,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Records that were sent.
    pub(crate) sent: u64,
    /// Records that were taken in.
    pub(crate) received: u64,
    /// Records of tables that this instance does not have, or that count something else there.
    pub(crate) skipped: u64,
    /// States of a peer that were taken over.
    pub(crate) resyncs: u64,
}
