//! Which refused flows are logged.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use model::Fault;

/// Time between two records of flows that never began, for the same fault: a flood is to fill counters, not disks.
pub(crate) const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// When a flow that never began was last logged, by fault.
#[derive(Default)]
pub(super) struct Refusals(RefCell<Vec<(Fault, Instant)>>);

impl Refusals {
    /// Returns whether a flow that did not begin because of `fault` is to be logged, and notes that it was.
    pub(super) fn is_due(&self, fault: Fault, now: Instant) -> bool {
        let mut refusals = self.0.borrow_mut();
        let Some((_, logged)) = refusals.iter_mut().find(|(known, _)| *known == fault) else {
            refusals.push((fault, now));
            return true;
        };
        let is_due = now.saturating_duration_since(*logged) >= REFUSAL_PAUSE;
        if is_due {
            *logged = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_logged_once_a_second_for_each_fault() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        let is_due = |fault, ms| refusals.is_due(fault, begin + Duration::from_millis(ms));
        assert!(is_due(Fault::KeptOut, 0) && is_due(Fault::NoEndpoint, 1), "each fault has its own pause");
        assert!(!is_due(Fault::KeptOut, 999) && is_due(Fault::KeptOut, 1_000) && !is_due(Fault::KeptOut, 1_500));
    }
}
