//! Which endpoints of a cluster get work, everything that is known of them taken together.
//!
//! ```text
//!                 the operator or its agent says so            → drain, maintenance, forced down
//!                 its checks or its agent say down             → down
//!                 new, and to wait for its first check         → held out
//!   endpoint ─────weight 0                                     → out
//!                 ejected, and no more of them than may be     → ejected
//!                 otherwise                                    → fit
//!
//!   who gets work: the fit ones
//!                  without any, those that are ejected but well
//!                  fewer of them fit than the threshold of panic: all but those that the operator took out
//! ```
//!
//! [`Roll::call`] is the only place that decides it: the views of balancers, the bound on ejections, metrics and the status
//! all ask there.

use model::fitness::AdminState;
use model::snapshot::{Balance, Cluster};

use crate::cluster::EndpointPlan;
use crate::health::HealthState;
use crate::health::agent::{Report, Wish};
use crate::health::ramp;

/// Where one endpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It gets work.
    Fit,
    /// It is left out for what exchanges reported about it.
    Ejected,
    /// Its checks say that it is not well.
    Unwell,
    /// It is new, and no check of it has succeeded yet.
    HeldOut,
    /// It has weight 0.
    Out,
    /// The operator takes it out as if its checks failed.
    ForcedDown,
    /// The operator wants it to get nothing new.
    Drain,
    /// The operator works on it.
    Maintenance,
}

impl Standing {
    /// Returns whether it is a matter of health alone that it works.
    fn could_work(self) -> bool {
        matches!(self, Self::Fit | Self::Ejected | Self::Unwell)
    }

    /// Returns whether it would get work if it had a weight.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Fit | Self::Out)
    }

    /// Returns the name in the admin API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::Ejected => "ejected",
            Self::Unwell => "down",
            Self::HeldOut => "held_out",
            Self::Out => "out",
            Self::ForcedDown => "forced_down",
            Self::Drain => "drain",
            Self::Maintenance => "maintenance",
        }
    }
}

/// Where all endpoints of a cluster stand at a moment.
#[derive(Clone, Debug, Default)]
pub struct Roll {
    /// In the order of the endpoints.
    standings: Box<[Standing]>,
    /// Those ejected beyond the bound, which count as fit: the oldest ejections.
    surplus: Vec<usize>,
    /// Endpoints that are ejected.
    pub ejected: usize,
    /// Endpoints that may be ejected at once.
    pub ejected_max: usize,
    /// Endpoints that are fit for work.
    pub fit: usize,
    /// Endpoints that could be: all but those of weight 0, those that the operator took out, and those that wait for
    /// their first check.
    pub eligible: usize,
    /// So few are fit that all that could be get work.
    pub panics: bool,
    /// What each endpoint gets of the work in proportion to the others; 0 is none.
    weights: Box<[u32]>,
    /// How many parts of these are one of what is configured.
    scale: u32,
}

impl Roll {
    /// Looks at every endpoint.
    pub(crate) fn call(cluster: &Cluster, endpoints: &[EndpointPlan]) -> Self {
        let mut standings: Box<[Standing]> = endpoints.iter().map(|endpoint| alone(cluster, endpoint)).collect();
        let mut roll = Self { ..Self::default() };
        let could = |(plan, standing): &(&EndpointPlan, &Standing)| is_eligible(plan) && standing.could_work();
        roll.eligible = endpoints.iter().zip(&standings).filter(could).count();
        if let Some(rules) = &cluster.fitness.passive {
            roll.ejected_max = roll.eligible * usize::from(rules.ejected_percent_max.min(100)) / 100;
            roll.eject(&mut standings, endpoints);
        }
        roll.fit = standings.iter().filter(|standing| **standing == Standing::Fit).count();
        roll.standings = standings;
        roll.panics = roll.fit * 100 < roll.eligible * usize::from(cluster.fitness.panic_percent);
        (roll.weights, roll.scale) = roll.weights(cluster, endpoints);
        roll
    }

    /// Marks those that are ejected, the latest first, as many as may be.
    fn eject(&mut self, standings: &mut [Standing], endpoints: &[EndpointPlan]) {
        let number =
            |(index, endpoint): (usize, &EndpointPlan)| Some((endpoint.state.passive_if_any()?.ejected(), index));
        let mut ejected: Vec<(u64, usize)> =
            endpoints.iter().enumerate().filter_map(number).filter(|(number, _)| *number > 0).collect();
        ejected.sort_unstable_by(|a, b| b.cmp(a));
        // One that is out or unwell is not left out for its ejection, but it was ejected: it counts.
        ejected.retain(|&(_, index)| {
            is_eligible(&endpoints[index]) && endpoints[index].endpoint.state == AdminState::Auto
        });
        self.surplus =
            ejected.split_off(ejected.len().min(self.ejected_max)).into_iter().map(|(_, index)| index).collect();
        self.ejected = ejected.len();
        for (_, index) in ejected {
            if standings[index] == Standing::Fit {
                standings[index] = Standing::Ejected;
            }
        }
    }

    /// Returns whether one more may be ejected: this one, which is not yet, and it is not the last that could work.
    pub(crate) fn may_eject(&self, index: usize) -> bool {
        let is_fit = self.standing(index) == Standing::Fit && !self.is_surplus(index);
        is_fit && self.ejected < self.ejected_max && self.fit > 1
    }

    /// Returns whether its ejection goes beyond the bound and is to end.
    pub(crate) fn is_surplus(&self, index: usize) -> bool {
        self.surplus.contains(&index)
    }

    /// Returns where an endpoint stands by itself, whatever the others do.
    pub fn standing(&self, index: usize) -> Standing {
        self.standings.get(index).copied().unwrap_or(Standing::Out)
    }

    /// Returns whether it is to get work. Without anyone fit, those that are only ejected do: to leave out the last one that could work is
    /// never better.
    fn gets_work(&self, index: usize, endpoint: &EndpointPlan) -> bool {
        match self.standing(index) {
            Standing::Fit => true,
            Standing::Ejected => self.fit == 0 || self.panics,
            Standing::Unwell => self.panics && is_eligible(endpoint),
            _ => false,
        }
    }

    /// Returns whether it goes on with the sessions that it has: also when it gets nothing new because the operator or its agent says so,
    /// as long as it is well.
    pub(crate) fn keeps_sessions(&self, index: usize, cluster: &Cluster, endpoint: &EndpointPlan) -> bool {
        match self.standing(index) {
            Standing::Drain | Standing::Out => is_well(cluster, endpoint),
            _ => self.gets_work(index, endpoint),
        }
    }

    /// Returns whether endpoints get work that are not fit: in a panic, or when all that could work are ejected.
    pub(crate) fn ignores_fitness(&self) -> bool {
        self.panics || self.fit == 0
    }

    /// Returns what an endpoint gets of the work in proportion to the others; 0 is none.
    #[inline]
    pub fn weight(&self, index: usize) -> u32 {
        self.weights.get(index).copied().unwrap_or(0)
    }

    /// Returns how many parts of [`Self::weight`] are one of the weight that is configured: ramps and agents tell shares of it.
    pub(crate) fn scale(&self) -> u32 {
        self.scale
    }

    fn weights(&self, cluster: &Cluster, endpoints: &[EndpointPlan]) -> (Box<[u32]>, u32) {
        let at_work = |index: usize, endpoint: &EndpointPlan| self.gets_work(index, endpoint);
        // A hash is to send equal keys to the same endpoint: weights that climb would move them again and again.
        let slow = cluster.fitness.slow_start.is_some()
            && !matches!(cluster.balance, Balance::Hash(_))
            && endpoints
                .iter()
                .enumerate()
                .any(|(index, plan)| at_work(index, plan) && plan.state.ramp.share() < ramp::WHOLE);
        let by_agent = endpoints
            .iter()
            .enumerate()
            .any(|(index, plan)| at_work(index, plan) && agent(cluster, plan).percent != 100);
        let weight = |(index, plan): (usize, &EndpointPlan)| {
            let share = if slow { plan.state.ramp.share() } else { 1 };
            let percent = if by_agent { u32::from(agent(cluster, plan).percent) } else { 1 };
            if at_work(index, plan) { plan.endpoint.weight * share * percent } else { 0 }
        };
        let (shares, percents) = (if slow { ramp::WHOLE } else { 1 }, if by_agent { 100 } else { 1 });
        (endpoints.iter().enumerate().map(weight).collect(), shares * percents)
    }
}

/// Returns what the agent says, if one is asked and the operator leaves it a say.
fn agent(cluster: &Cluster, endpoint: &EndpointPlan) -> Report {
    let asked = cluster.fitness.agent.as_ref().filter(|_| endpoint.endpoint.state == AdminState::Auto);
    let has_agent = asked.is_some_and(|agent| agent.port.or(endpoint.endpoint.agent_port).is_some());
    if has_agent { endpoint.state.agent() } else { Report::default() }
}

/// Returns whether it could get work, as far as the operator goes.
fn is_eligible(endpoint: &EndpointPlan) -> bool {
    endpoint.endpoint.weight > 0 && !endpoint.endpoint.state.is_out()
}

/// Returns whether its checks, and its agent, have nothing against it.
fn is_well(cluster: &Cluster, endpoint: &EndpointPlan) -> bool {
    let serves = |held_out| endpoint.state.health_state().serves(held_out);
    !agent(cluster, endpoint).is_down && cluster.health_check.as_ref().is_none_or(|check| serves(check.held_out))
}

#[cfg(test)]
mod tests;

/// Returns where an endpoint stands but for ejection.
fn alone(cluster: &Cluster, endpoint: &EndpointPlan) -> Standing {
    let is_forced = match endpoint.endpoint.state {
        AdminState::Down => return Standing::ForcedDown,
        AdminState::Drain => return Standing::Drain,
        AdminState::Maintenance => return Standing::Maintenance,
        AdminState::Up => true,
        AdminState::Auto => false,
    };
    let agent = agent(cluster, endpoint);
    match agent.wish {
        _ if is_forced => (),
        Wish::Drain => return Standing::Drain,
        Wish::Maintenance => return Standing::Maintenance,
        Wish::Ready => (),
    }
    let state = endpoint.state.health_state();
    let serves = cluster.health_check.as_ref().is_none_or(|check| state.serves(check.held_out));
    if !is_forced && agent.is_down {
        Standing::Unwell
    } else if !is_forced && !serves {
        if state == HealthState::Unknown { Standing::HeldOut } else { Standing::Unwell }
    } else if endpoint.endpoint.weight == 0 || (!is_forced && agent.percent == 0) {
        Standing::Out
    } else {
        Standing::Fit
    }
}
