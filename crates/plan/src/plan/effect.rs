//! A plan comes into force in the place of another.
//!
//! Compiling only makes new things: a plan may still be refused, and then nothing that the plan in force uses has changed.
//! What a new plan means for what is known of clusters and endpoints, which outlives plans, happens here, once nothing can
//! refuse it any more and before workers use it.

use std::sync::Arc;

use model::fitness::AdminState;

use crate::health::Health;
use crate::{ByName, ClusterPlan, Plan};

impl Plan {
    /// Makes what outlives plans follow the rules of this one. To be called when it comes into force in the place of
    /// `previous`, and not before: a plan that is refused after all must leave no trace.
    pub fn take_effect(&self, previous: &Self) {
        let before = ByName::of(&previous.clusters, |plan| &plan.cluster.name);
        for cluster in &self.clusters {
            match before.find(&cluster.cluster.name) {
                Some(before) if !Arc::ptr_eq(before, cluster) => cluster.succeed(before),
                _ => {}
            }
        }
    }
}

impl ClusterPlan {
    /// Comes into force in the place of an earlier plan of the same cluster.
    pub(crate) fn succeed(&self, previous: &Self) {
        self.adapt_guard(previous);
        if self.adapt_endpoints(previous) {
            self.announce();
        }
    }

    /// What of the knowledge about endpoints must not live on under new rules, and who begins slowly. Says whether anything
    /// has changed.
    fn adapt_endpoints(&self, previous: &Self) -> bool {
        // Nothing was looked at, and no rule of either plan would have anything looked at.
        if !self.endpoints.are_made() {
            return false;
        }
        let known = previous.endpoints.by_identity();
        let is_new = |of: fn(&ClusterPlan) -> bool| of(self) && !of(previous);
        // Without a check nobody looks at health, so what an earlier check left behind is wiped before a new one begins.
        let begins_check = is_new(|plan| plan.cluster.health_check.is_some());
        let begins_passive = is_new(|plan| plan.cluster.fitness.passive.is_some());
        let holds_out = self.cluster.health_check.as_ref().is_some_and(|check| check.held_out);
        let mut has_changed = false;
        for plan in &self.endpoints {
            let (now, before) = (plan.endpoint.state, known.get(&plan.identity()));
            let was_at_work = before.is_some_and(|kept| !kept.endpoint.state.is_out());
            if self.cluster.fitness.slow_start.is_some() && !was_at_work && !now.is_out() {
                plan.state.ramp.begin();
                has_changed = true;
            }
            // Nothing was asked meanwhile: what was known before is old.
            let is_back = before
                .is_some_and(|kept| kept.endpoint.state == AdminState::Maintenance && now != AdminState::Maintenance);
            if begins_check || is_back {
                // Where new ones are held out, who was at work before there was a check still goes on until one fails.
                let goes_on = begins_check && holds_out && before.is_some();
                plan.state.set_health(if goes_on { Health::presumed_up() } else { Health::default() });
                has_changed = true;
            }
            if begins_passive && let Some(passive) = plan.state.passive_if_any() {
                passive.forget();
                has_changed = true;
            }
        }
        has_changed
    }
}

#[cfg(test)]
mod tests;
