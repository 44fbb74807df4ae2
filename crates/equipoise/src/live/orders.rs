//! Orders of the API, and the end of a canary.

use std::sync::Arc;

use control::canary::Verdict;
use control::history::Origin;
use control::{Candidate, Cause, Change, Done, Order, Refusal};

use super::{Live, tell_refusal};
use crate::signals::Signals;

impl Live {
    /// Carries out an order of the API. Returns `None` if a signal asked for the end meanwhile.
    pub(super) async fn carry_out(
        &mut self,
        order: &Arc<Order>,
        signals: &mut Signals,
    ) -> Option<Result<Done, Refusal>> {
        if let Err(refusal) = self.may_begin(order) {
            return Some(Err(refusal));
        }
        if let Change::EndCanary { promotes } = order.change {
            return Some(self.end_canary(promotes, &order.author));
        }
        let asked = Arc::clone(order);
        let prepared = self.aside(signals, move |preparation| preparation.prepare_change(&asked)).await?;
        let prepared = prepared.unwrap_or(Err(Refusal::Failed));
        let has_news = prepared.as_ref().is_ok_and(|(candidate, _)| self.reconciler.has_news(candidate));
        let mut done = self.finish(order, prepared);
        if has_news && matches!(done, Err(Refusal::Unpublished(_))) {
            // As in `put_read`.
            let asked = Arc::clone(order);
            let alone =
                self.aside(signals, move |preparation| preparation.without_news().prepare_change(&asked)).await?;
            if let Some(Ok(prepared)) = alone {
                done = self.finish(order, Ok(prepared));
            }
        }
        if order.change == Change::Reload {
            self.reconciler.remind_of_providers();
        }
        Some(done)
    }

    /// Checks that an order still holds: its author's rights, its conditions, and that no canary is in its way.
    ///
    /// # Errors
    /// Why it cannot begin.
    pub(super) fn may_begin(&self, order: &Order) -> Result<(), Refusal> {
        let plan = self.view().plan();
        if plan.is_some_and(|plan| !order.is_still_allowed(&plan.snapshot)) {
            return Err(Refusal::Outdated);
        }
        // A wish is for now; everything else would not be what was tried.
        let is_wish = matches!(order.change, Change::Wish { .. } | Change::EndCanary { .. });
        if self.reconciler.has_canary() && !is_wish && !order.is_dry {
            return Err(Refusal::Busy);
        }
        let revision = self.reconciler.revision();
        match &order.expected {
            Some(expected) if !expected.contains(&revision) => Err(Refusal::Stale(revision)),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, order: &Order, prepared: Result<(Candidate, Origin), Refusal>) -> Result<Done, Refusal> {
        let (candidate, origin) = prepared.inspect_err(|refusal| {
            if !order.is_dry && matches!(refusal, Refusal::Bad(_)) {
                self.reconciler.count_refused();
            }
        })?;
        let effects = self.reconciler.effects(&candidate);
        let warnings = candidate.warnings().to_vec();
        let is_changed = !self.reconciler.is_there(&order.change, &candidate);
        let cause = || Cause { author: Some(Arc::clone(&order.author)), ..origin.into() };
        let differences = match order.canary {
            _ if order.is_dry => self.reconciler.differences(&candidate).into(),
            _ if !is_changed => <_>::default(),
            Some(terms) => {
                self.reconciler.begin_canary(candidate, cause(), terms)?;
                self.view().canaries().first().map(|canary| Arc::clone(&canary.differences)).unwrap_or_default()
            }
            None => {
                self.put_into_force(candidate, cause())?;
                self.view().last_differences()
            }
        };
        let (generation, revision) = (self.view().generation(), self.reconciler.revision());
        let not_kept = self.reconciler.not_kept();
        let is_tried = !order.is_dry && is_changed && order.canary.is_some();
        let successor = None;
        Ok(Done { generation, revision, is_changed, differences, effects, warnings, is_tried, not_kept, successor })
    }

    /// Ends a canary at an operator's request.
    fn end_canary(&mut self, promotes: bool, author: &str) -> Result<Done, Refusal> {
        if !self.reconciler.has_canary() {
            let message = "no canary is running".to_owned();
            return Err(Refusal::Missing { message, suggestion: None });
        }
        if promotes {
            self.promote_canary(&format!("{author} requested it"))?;
        } else {
            self.reconciler.end_canary(&format!("{author} requested it"));
        }
        let (generation, revision) = (self.view().generation(), self.reconciler.revision());
        let differences =
            self.view().canaries().first().map(|canary| Arc::clone(&canary.differences)).unwrap_or_default();
        let (effects, warnings) = (<_>::default(), Vec::new());
        let not_kept = self.reconciler.not_kept();
        let (is_changed, is_tried, successor) = (promotes, false, None);
        Ok(Done { generation, revision, is_changed, differences, effects, warnings, is_tried, not_kept, successor })
    }

    /// Applies the canary's configuration.
    fn promote_canary(&mut self, reason: &str) -> Result<(), Refusal> {
        let Some((candidate, cause)) = self.reconciler.promote_canary(reason) else { return Ok(()) };
        let done = self.put_into_force(candidate, cause);
        if let Err(refusal) = &done {
            tell_refusal("the canary cannot be promoted; the previous configuration stays active", refusal);
        }
        self.reconciler.promoted(done.as_ref().copied(), reason);
        done
    }

    /// Continues, promotes or rolls back the canary, by what was counted.
    pub(super) fn judge_canary(&mut self) {
        match self.reconciler.judge_canary() {
            Verdict::GoOn => {}
            // What stands against it is in the log.
            Verdict::Promote(reason) => drop(self.promote_canary(&reason)),
            Verdict::GoBack(reason) => self.reconciler.roll_back_canary(&reason),
        }
    }
}
