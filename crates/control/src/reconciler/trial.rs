//! A trial: what is known of a canary while it runs.

use std::sync::Arc;
use std::time::Instant;

use config::Loaded;
use plan::Plan;

use crate::canary::{self, Terms, Verdict};
use crate::history::Cause;
use crate::load::Candidate;
use crate::refusal::Refusal;

/// A configuration on trial.
pub(super) struct Trial {
    pub(super) candidate: Candidate,
    pub(super) cause: Cause,
    pub(super) terms: Terms,
    pub(super) since: Instant,
    pub(super) counts: Arc<telemetry::trial::Trial>,
}

impl Trial {
    /// Judges it by what was counted so far.
    pub(super) fn verdict(&self) -> Verdict {
        let (old, new) = self.counts.outcomes();
        canary::judge(&self.terms, self.since.elapsed(), &old, &new)
    }
}

/// Checks that a candidate can be tried on a share of the traffic.
///
/// # Errors
/// It changes what all traffic shares.
pub(super) fn check((loaded, plan): (&Loaded, &Plan), candidate: &Candidate) -> Result<(), Refusal> {
    let (now, then) = (&plan.snapshot, candidate.snapshot());
    if now.listeners != then.listeners || now.access_logs != then.access_logs || now.admin != then.admin {
        let (before, after) = loaded.sealed_beside(&candidate.loaded);
        let is_said = ["listeners", "access_logs", "admin"].iter().any(|key| before.get(key) != after.get(key));
        let what = match is_said {
            true => {
                "listeners, access logs and `admin` cannot change in a canary: they apply to all requests or to none"
            }
            // With no word changed, a certificate or a list of addresses was.
            false => {
                "certificates or lists of listeners have just changed and are not applied yet: try again in a moment"
            }
        };
        return Err(Refusal::Unpublished(what.to_owned()));
    }
    Ok(())
}
