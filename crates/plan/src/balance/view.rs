//! The endpoints that may get work, as the present health of all gives it.

use std::collections::BTreeMap;

use model::PickReason;
use model::placement::Placement;
use model::snapshot::Cluster;

use super::Ask;
use super::aperture::narrow;
use super::priority::{Fitness, shares};
use super::tier::{Configured, Member, Tier, TierKey};
use crate::cluster::state::ClusterState;
use crate::cluster::subset::{Subset, Subsets};
use crate::cluster::{EndpointPlan, Lease};
use crate::hash::FastMap;
use crate::health::standing::Roll;
use crate::sticky::Pins;

/// See the module.
pub(crate) struct View {
    /// The whole cluster, then its subsets by their numbers.
    scopes: Box<[Scope]>,
    /// Where sessions may go on; empty in a cluster without.
    pub(crate) pins: Pins,
}

/// The tiers of endpoints that get work, the first in order to begin with. Some may have no share: they take over only
/// what others have no room for.
type Scope = Box<[Tier]>;

/// What becomes a tier.
#[derive(Default)]
struct Group {
    members: Vec<(Member, u64)>,
    configured: Configured,
    fitness: Fitness,
}

impl View {
    pub(crate) fn new(
        cluster: &Cluster,
        endpoints: &[EndpointPlan],
        (state, subsets): (&ClusterState, &Subsets),
    ) -> Self {
        Self::of(cluster, endpoints, (state, subsets), &Roll::call(cluster, endpoints))
    }

    /// The view where everything stands as in `roll`.
    pub(crate) fn of(
        cluster: &Cluster,
        endpoints: &[EndpointPlan],
        (state, subsets): (&ClusterState, &Subsets),
        roll: &Roll,
    ) -> Self {
        let maker = Maker { cluster, endpoints, state, roll };
        let mut scopes = Vec::with_capacity(1 + subsets.parts.len());
        scopes.push(maker.scope(0, 0..endpoints.len()));
        scopes.extend(subsets.parts.iter().map(|(called, places)| maker.scope(*called, places.iter().copied())));
        let pins = Pins::new(cluster, endpoints, roll, &scopes);
        Self { scopes: scopes.into(), pins }
    }

    /// The tiers of a subset, or of that which takes over for it; none when nobody may get work.
    #[inline]
    pub(crate) fn tiers(&self, subset: Subset) -> &[Tier] {
        let tiers = |number: u32| self.scopes.get(number as usize).map_or(&[][..], |scope| scope);
        let wanted = tiers(subset.wanted);
        if wanted.is_empty() { tiers(subset.otherwise) } else { wanted }
    }

    /// Whether nobody in the subset of this number may get work.
    pub(crate) fn is_empty(&self, number: u32) -> bool {
        self.scopes.get(number as usize).is_none_or(|scope| scope.is_empty())
    }

    /// Says of a pick what the tier it came from does not know.
    #[inline]
    pub(crate) fn explained(&self, lease: Lease, ask: &Ask<'_>) -> Lease {
        if !ask.tried.is_empty() {
            lease.because(PickReason::Retry)
        } else if ask.subset != Subset::ALL && self.is_empty(ask.subset.wanted) {
            lease.because(PickReason::Fallback)
        } else {
            lease
        }
    }

    /// How many may get work.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tiers(Subset::ALL).iter().map(|tier| tier.members().len()).sum()
    }

    /// Takes a free place if there is any, where the balancer would choose it.
    /// `known`: only of endpoints with these slots, whatever the balancer would choose.
    pub(crate) fn take_free(
        &self,
        subset: Subset,
        known: Option<&FastMap<u32, u32>>,
        affinity: Option<u64>,
    ) -> Option<Lease> {
        let tiers = self.tiers(subset);
        let chosen = if known.is_none() { super::take_for_waiting(tiers, affinity) } else { None };
        chosen.or_else(|| tiers.iter().find_map(|tier| tier.take_free(known)))
    }
}

/// What scopes are made of.
struct Maker<'a> {
    cluster: &'a Cluster,
    endpoints: &'a [EndpointPlan],
    state: &'a ClusterState,
    roll: &'a Roll,
}

impl Maker<'_> {
    fn scope(&self, called: u64, places: impl Iterator<Item = usize>) -> Scope {
        let own_zone = self.cluster.spread.own_zone.as_deref();
        let mut groups: BTreeMap<TierKey, Group> = BTreeMap::new();
        for index in places {
            let plan = &self.endpoints[index];
            if plan.endpoint.weight > 0 {
                let key = TierKey::of(called, &plan.endpoint.placement, own_zone);
                groups.entry(key).or_default().add(index, plan, self.roll.weight(index));
            }
        }
        let first = groups.keys().map(TierKey::rank).min();
        // Backups are there for the case that nobody else is.
        let any_at_work = groups.iter().any(|(key, group)| !key.is_backup && !group.members.is_empty());
        groups.retain(|key, _| !key.is_backup || !any_at_work);
        let fitness: Vec<Fitness> = groups.values().map(|group| group.fitness).collect();
        let mut end = 0;
        let mut tiers = Vec::with_capacity(1);
        for ((key, group), share) in groups.into_iter().zip(shares(&fitness, self.cluster.spread.overprovisioning)) {
            end += share;
            if !group.members.is_empty() {
                let state = self.state.tier(key);
                let (members, parts) = match &self.cluster.spread.aperture {
                    Some(aperture) => narrow(aperture, group.members),
                    None => (group.members, 1),
                };
                let configured = Configured { scale: self.roll.scale() * parts, ..group.configured };
                let mut tier = Tier::new(&self.cluster.balance, members, configured, state);
                tier.share_end = end;
                tier.reason = self.reason(key, first);
                tiers.push(tier);
            }
        }
        if let [tier] = &mut tiers[..]
            && tier.members().len() == 1
            && tier.reason == PickReason::Balance
        {
            tier.reason = PickReason::Only;
        }
        tiers.into()
    }

    /// Why endpoints of this tier get work. `first`: the rank of those that come before all others.
    fn reason(&self, key: TierKey, first: Option<(bool, u32)>) -> PickReason {
        if self.roll.ignores_fitness() {
            PickReason::Panic
        } else if Some(key.rank()) > first {
            PickReason::Spill
        } else if self.cluster.spread.own_zone.is_none() {
            PickReason::Balance
        } else if key.is_far {
            PickReason::OtherZone
        } else {
            PickReason::OwnZone
        }
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
    fn of(subset: u64, placement: &Placement, own_zone: Option<&str>) -> Self {
        let is_far = own_zone.is_some_and(|own| placement.zone.as_deref() != Some(own));
        Self { subset, is_backup: placement.is_backup, priority: placement.priority, is_far }
    }

    /// The smaller comes first, wherever its endpoints are.
    fn rank(&self) -> (bool, u32) {
        (self.is_backup, self.priority)
    }
}
