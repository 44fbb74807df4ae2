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
    /// There are tables that no teacher has given yet.
    pub(super) lacks_tables: bool,
    /// Senders that cannot teach all tables, and since when there is one.
    pub(super) partial: HashSet<u128>,
    pub(super) partial_since: Option<Instant>,
    /// The sender that does not have what this instance lacks, since when, and how long that may be so.
    pub(super) lacking_since: Option<(u128, Instant)>,
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
            lacks_tables: false,
            partial: HashSet::new(),
            partial_since: None,
            lacking_since: None,
            patience: PATIENCE,
            epoch: 0,
        }
    }
}

impl Learning {
    /// Returns whether a sender is to teach, before what it counts is taken in.
    pub(super) fn wants_teaching_by(&self, sender: u128) -> bool {
        !self.is_settled || self.needs_teaching || self.lacks_tables && !self.partial.contains(&sender)
    }

    /// Returns whether another may teach more than a sender that cannot teach all: those are waited for, for a while.
    pub(super) fn has_better(&self, sender: u128, now: Instant) -> bool {
        self.is_patient(now)
            && self.partial.contains(&sender)
            && self.senders.iter().any(|one| !self.partial.contains(one))
    }

    fn is_patient(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.partial_since.unwrap_or(now)) < PATIENCE
    }

    /// A teacher does not have all tables. Returns whether what it has is taken over: at once only if it is ahead in all that is here.
    pub(super) fn may_take_part(&mut self, teacher: u128, is_ahead: bool, now: Instant) -> bool {
        self.note_partial(teacher, now);
        let is_needed = !self.is_settled || self.needs_teaching;
        is_needed && !self.has_better(teacher, now) && (is_ahead || !self.is_patient(now))
    }

    /// A sender cannot teach all tables.
    pub(super) fn note_partial(&mut self, sender: u128, now: Instant) {
        self.partial.insert(sender);
        self.partial_since.get_or_insert(now);
    }

    /// A sender is not connected any more.
    pub(super) fn leave(&mut self, sender: u128) {
        self.senders.remove(&sender);
        self.partial.remove(&sender);
        if self.partial.is_empty() {
            self.partial_since = None;
        }
        self.forget_lack(sender);
    }

    /// A sender has what follows after all.
    pub(super) fn forget_lack(&mut self, sender: u128) {
        self.lacking_since = self.lacking_since.filter(|(lacking, _)| *lacking != sender);
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
