//! What a process hands its successor about the endpoints of a cluster, so that no endpoint that is down is tried again.

use std::time::{Duration, Instant};

use crate::cluster::ClusterPlan;
use crate::health::agent::Report;
use crate::health::passive::PassiveHandover;
use crate::health::{Health, HealthState};

/// What is known of one endpoint, for the successor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointHandover {
    /// The verdict of its checks, and how many results in a row have contradicted it since.
    pub health: (HealthState, u32),
    /// What its agent says.
    pub agent: Report,
    /// While it climbs after it came up: its share in steps, and how long it does.
    pub climb: Option<(u32, Duration)>,
    /// Passive health, if that is configured.
    pub passive: Option<PassiveHandover>,
}

impl ClusterPlan {
    /// Returns what is known of its endpoints, in their order, or nothing if none was ever used.
    pub fn hand_over(&self, now: Instant) -> Vec<EndpointHandover> {
        let of = |plan: &crate::cluster::EndpointPlan| {
            let (state, health) = (&plan.state, plan.state.health());
            EndpointHandover {
                health: (health.state(), health.against()),
                agent: state.agent(),
                climb: state.ramp.climb(now),
                passive: state.passive_if_any().map(|passive| passive.hand_over(now)),
            }
        };
        if self.endpoints.are_made() { self.endpoints.iter().map(of).collect() } else { Vec::new() }
    }

    /// Takes over what the predecessor knew of some of its endpoints, by their places. All workers see it at their next pick.
    pub fn inherit(&self, handed: &[(usize, EndpointHandover)], now: Instant) {
        for (place, handed) in handed {
            let Some(plan) = self.endpoints.get(*place) else { continue };
            let (health, against) = handed.health;
            plan.state.set_health(Health::of(health, against));
            plan.state.set_agent(handed.agent);
            if let Some(climb) = handed.climb.filter(|_| self.cluster.fitness.slow_start.is_some()) {
                plan.state.ramp.climb_on(climb, now);
            }
            if let (Some(passive), Some(rules)) = (&handed.passive, &self.cluster.fitness.passive) {
                plan.state.passive().inherit(passive, (rules, &mut self.state.judge()), now);
            }
        }
        self.announce();
    }
}

#[cfg(test)]
mod tests;
