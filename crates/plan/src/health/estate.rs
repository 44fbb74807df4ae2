//! What one process has come to know of the endpoints of a cluster, for the one that follows it: so that nothing is found out
//! again, and no endpoint that is down is tried.

use std::time::{Duration, Instant};

use crate::cluster::ClusterPlan;
use crate::health::agent::Report;
use crate::health::passive::PassiveEstate;
use crate::health::{Health, HealthState};

/// What is known of one endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointEstate {
    /// What its checks told, and how often in a row they said otherwise since.
    pub health: (HealthState, u32),
    /// What its agent says.
    pub agent: Report,
    /// While it climbs after it came up: its share in steps, and how long it does.
    pub climb: Option<(u32, Duration)>,
    /// What exchanges reported about it, if they are listened to.
    pub passive: Option<PassiveEstate>,
}

impl ClusterPlan {
    /// Returns what is known of its endpoints, in their order; nothing of those that were never used.
    pub fn bequeath(&self, now: Instant) -> Vec<EndpointEstate> {
        let of = |plan: &crate::cluster::EndpointPlan| {
            let (state, health) = (&plan.state, plan.state.health());
            EndpointEstate {
                health: (health.state(), health.against()),
                agent: state.agent(),
                climb: state.ramp.climb(now),
                passive: state.passive_if_any().map(|passive| passive.bequeath(now)),
            }
        };
        if self.endpoints.are_made() { self.endpoints.iter().map(of).collect() } else { Vec::new() }
    }

    /// Takes in what another process knows of some of its endpoints, by their places; all workers see it at their next pick.
    pub fn inherit(&self, estates: &[(usize, EndpointEstate)], now: Instant) {
        for (place, estate) in estates {
            let Some(plan) = self.endpoints.get(*place) else { continue };
            let (health, against) = estate.health;
            plan.state.set_health(Health::of(health, against));
            plan.state.set_agent(estate.agent);
            if let Some(climb) = estate.climb.filter(|_| self.cluster.fitness.slow_start.is_some()) {
                plan.state.ramp.climb_on(climb, now);
            }
            if let (Some(passive), Some(rules)) = (&estate.passive, &self.cluster.fitness.passive) {
                plan.state.passive().inherit(passive, (rules, &mut self.state.judge()), now);
            }
        }
        self.announce();
    }
}

#[cfg(test)]
mod tests;
