//! What went wrong in a row.

use model::fitness::PassiveHealth;

use super::{Evidence, Seen};

/// Exchanges with one endpoint that went wrong, one after the other, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Failures since the last answer of any kind.
    failures: u32,
    /// Failures and statuses from 500 since the last good answer.
    bad: u32,
}

impl Run {
    /// Returns one exchange later.
    pub(super) fn after(self, seen: Seen) -> Self {
        match seen {
            _ if seen.is_good() => Self::default(),
            Seen::Answered { .. } => Self { failures: 0, bad: self.bad.saturating_add(1) },
            Seen::Failed => Self { failures: self.failures.saturating_add(1), bad: self.bad.saturating_add(1) },
        }
    }

    /// Returns why the endpoint is to be ejected. If the limits on ejections prevent it, each further multiple of the threshold asks again:
    /// not every failure, since asking takes the mutex.
    pub(super) fn verdict(self, rules: &PassiveHealth) -> Option<Evidence> {
        let reaches =
            |count: u32, limit: Option<u32>| limit.is_some_and(|limit| count > 0 && count.is_multiple_of(limit.max(1)));
        if reaches(self.failures, rules.consecutive_failures) {
            return Some(Evidence::Failures(self.failures));
        }
        reaches(self.bad, rules.consecutive_5xx).then_some(Evidence::Errors(self.bad))
    }

    /// Builds a run from its parts.
    pub(super) fn of(failures: u32, bad: u32) -> Self {
        Self { failures, bad }
    }

    /// Failures, and all that went wrong.
    pub(super) fn parts(self) -> (u32, u32) {
        (self.failures, self.bad)
    }

    /// Packs both parts into one word.
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.bad) << 32 | u64::from(self.failures)
    }

    /// Returns the reverse of [`Self::to_bits`].
    pub(super) fn from_bits(bits: u64) -> Self {
        Self { failures: bits as u32, bad: (bits >> 32) as u32 }
    }
}
