//! The canary: a configuration that is tried beside the one in force.
//!
//! ```text
//!  begin_canary ──▶ Trial ──▶ promote_canary ──▶ commit ──▶ promoted
//!                    │  └───▶ roll_back_canary | end_canary      the configuration in force stays
//!                    └──────▶ try_on                              another commit: the trial goes on beside it, or ends
//! ```

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use plan::Plan;

use super::Reconciler;
use super::trial::{self, Trial};
use crate::canary::{Terms, Verdict};
use crate::history::Cause;
use crate::load::Candidate;
use crate::probes;
use crate::refusal::Refusal;
use crate::view;

impl Reconciler {
    /// Starts a canary: a candidate that a share of the traffic uses, beside the active configuration.
    ///
    /// # Errors
    /// It cannot be tried; nothing has changed.
    pub fn begin_canary(&mut self, candidate: Candidate, cause: Cause, terms: Terms) -> Result<(), Refusal> {
        let Some(running) = self.running.as_ref() else { return Err(Refusal::Ending) };
        if self.trial.is_some() {
            return Err(Refusal::Busy);
        }
        trial::check((&running.loaded, &running.plan), &candidate)?;
        let workers = self.view.telemetry().workers();
        let counts = telemetry::trial::Trial::new(candidate.plan.generation, workers, Instant::now());
        self.view.telemetry().set_trial(Some(Arc::clone(&counts)));
        let trial = plan::Trial { plan: Arc::clone(&candidate.plan), share_percent: terms.share_percent };
        if let Err(reason) = self.publisher.try_out(Some(trial)) {
            self.view.telemetry().set_trial(None);
            return Err(Refusal::Unpublished(reason));
        }
        self.probes.follow(probes::both(&running.plan, &candidate.plan));
        let author = cause.author.clone();
        let differences = Arc::new(self.differences(&candidate));
        let (by, share) = (author.clone().unwrap_or_default(), format!("{}%", terms.share_percent));
        let pairs: telemetry::log::Pairs<'_> = &[("share", &share), ("for_s", &terms.time.as_secs_f64()), ("by", &by)];
        telemetry::log::info("canary started", pairs);
        let shown =
            view::Canary { at: SystemTime::now(), author, terms, differences, counts: Arc::clone(&counts), end: None };
        self.view.begin_canary(shown);
        self.trial = Some(Trial { candidate, cause, terms, since: Instant::now(), counts });
        self.follow_token_keys();
        Ok(())
    }

    /// Returns whether a canary is running.
    pub fn has_canary(&self) -> bool {
        self.trial.is_some()
    }

    /// Judges the canary by what was counted so far. To be called about once a second.
    pub fn judge_canary(&self) -> Verdict {
        self.trial.as_ref().map_or(Verdict::GoOn, Trial::verdict)
    }

    /// Returns the canary's configuration, to be promoted for this reason. It stays on trial until that is done, or until
    /// [`Self::promoted`] reports a failure.
    pub fn promote_canary(&mut self, reason: &str) -> Option<(Candidate, Cause)> {
        let trial = self.trial.take()?;
        telemetry::log::info("canary promoted", &[("why", &reason)]);
        Some((trial.candidate, Cause { tried: Some(reason.into()), ..trial.cause }))
    }

    /// Ends the canary by the result of promoting it, for this reason.
    pub fn promoted(&mut self, done: Result<(), &Refusal>, reason: &str) {
        match done {
            Ok(()) => self.view.end_canary("promoted", reason),
            Err(refusal) => {
                self.leave_trial();
                self.remind_of_providers();
                self.view.end_canary("ended", &refusal.to_string());
            }
        }
    }

    /// Rolls the canary back: it was worse than its terms allow.
    pub fn roll_back_canary(&mut self, reason: &str) {
        self.stop_canary("went_back", reason);
    }

    /// Ends the canary whatever was counted; the active configuration stays. Does nothing without a canary.
    pub fn end_canary(&mut self, reason: &str) {
        self.stop_canary("ended", reason);
    }

    fn stop_canary(&mut self, result: &'static str, reason: &str) {
        if self.trial.take().is_some() {
            self.leave_trial();
            self.tell_end(result, reason);
        }
    }

    fn tell_end(&self, result: &'static str, reason: &str) {
        // What could not be tried with it.
        self.remind_of_providers();
        self.view.end_canary(result, reason);
        telemetry::log::warn("canary rolled back", &[("why", &reason)]);
    }

    /// Takes the plan on trial from the workers.
    fn leave_trial(&mut self) {
        if let Err(error) = self.publisher.try_out(None) {
            telemetry::log::error("a canary cannot be ended", &[("error", &error)]);
        }
        self.view.telemetry().set_trial(None);
        if let Some(running) = &self.running {
            self.view.telemetry().retain(&running.plan.snapshot);
            self.probes.follow(Arc::clone(&running.plan));
        }
        self.follow_token_keys();
    }

    /// Goes on with the canary beside a new plan, or ends it: the data plane has left it with the plan before. Returns the plan whose
    /// endpoints are probed from now on.
    pub(super) fn try_on(&mut self, beside: Option<Result<Box<Candidate>, String>>, plan: &Arc<Plan>) -> Arc<Plan> {
        if let Some(mut trial) = self.trial.take() {
            let beside = beside.unwrap_or_else(|| Err("another change was applied".to_owned()));
            let begun = beside.and_then(|candidate| {
                let share_percent = trial.terms.share_percent;
                let beside = plan::Trial { plan: Arc::clone(&candidate.plan), share_percent };
                self.publisher.try_out(Some(beside)).map(|()| candidate)
            });
            match begun {
                Ok(candidate) => {
                    let both = probes::both(plan, &candidate.plan);
                    trial.candidate = *candidate;
                    self.trial = Some(trial);
                    return both;
                }
                Err(reason) => self.tell_end("ended", &reason),
            }
        }
        self.view.telemetry().set_trial(None);
        Arc::clone(plan)
    }
}
