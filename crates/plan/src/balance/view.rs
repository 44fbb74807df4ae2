//! The endpoints that may get work, as the present health of all gives it.

use std::collections::BTreeMap;

use model::placement::Placement;
use model::snapshot::Cluster;

use super::priority::{Fitness, shares};
use super::tier::{Configured, Member, Tier, TierKey};
use crate::cluster::{EndpointPlan, Lease};
use crate::standing::Roll;
use crate::state::ClusterState;

/// See the module.
pub(crate) struct View {
    /// Those of endpoints that get work, the first in order to begin with. Some may have no share: they take over only what
    /// others have no room for.
    tiers: Box<[Tier]>,
}

/// What becomes a tier.
#[derive(Default)]
struct Group {
    members: Vec<(Member, u64)>,
    configured: Configured,
    fitness: Fitness,
}

impl View {
    pub(crate) fn new(cluster: &Cluster, endpoints: &[EndpointPlan], state: &ClusterState) -> Self {
        let roll = Roll::call(cluster, endpoints);
        let own_zone = cluster.spread.own_zone.as_deref();
        let mut groups: BTreeMap<TierKey, Group> = BTreeMap::new();
        for (index, plan) in endpoints.iter().enumerate().filter(|(_, plan)| plan.endpoint.weight > 0) {
            let group = groups.entry(TierKey::of(&plan.endpoint.placement, own_zone)).or_default();
            group.add(index, plan, roll.weight(index));
        }
        // Backups are there for the case that nobody else is.
        let any_at_work = groups.iter().any(|(key, group)| !key.is_backup && !group.members.is_empty());
        groups.retain(|key, _| !key.is_backup || !any_at_work);
        let fitness: Vec<Fitness> = groups.values().map(|group| group.fitness).collect();
        let mut end = 0;
        let mut tiers = Vec::with_capacity(1);
        for ((key, group), share) in groups.into_iter().zip(shares(&fitness, cluster.spread.overprovisioning)) {
            end += share;
            if !group.members.is_empty() {
                let mut tier = Tier::new(&cluster.balance, group.members, group.configured, state.tier(key));
                tier.share_end = end;
                tiers.push(tier);
            }
        }
        Self { tiers: tiers.into() }
    }

    #[inline]
    pub(super) fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// Whether nobody may get work.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// How many may get work.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tiers.iter().map(|tier| tier.members().len()).sum()
    }

    /// Takes any free place, whatever the balancer would choose.
    pub(crate) fn take_free(&self) -> Option<Lease> {
        self.tiers.iter().find_map(Tier::take_free)
    }
}

impl Group {
    /// Adds an endpoint, which gets no work if `weight` is 0.
    fn add(&mut self, index: usize, plan: &EndpointPlan, weight: u32) {
        let whole = u64::from(plan.endpoint.weight);
        self.configured.count += 1;
        self.configured.weight += whole;
        self.fitness.all += whole;
        if weight > 0 {
            self.fitness.up += whole;
            let (state, max) = (plan.state.clone(), plan.endpoint.connections_max);
            self.members.push((Member { state, index: index as u32, weight, max }, plan.id));
        }
    }
}

impl TierKey {
    fn of(placement: &Placement, own_zone: Option<&str>) -> Self {
        let is_far = own_zone.is_some_and(|own| placement.zone.as_deref() != Some(own));
        Self { is_backup: placement.is_backup, priority: placement.priority, is_far }
    }
}
