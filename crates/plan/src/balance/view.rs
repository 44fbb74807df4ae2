//! The endpoints that may get work, as the present health of all gives it.

use std::collections::BTreeMap;

use model::PickReason;
use model::placement::Placement;
use model::snapshot::Cluster;

use super::aperture::narrow;
use super::priority::{Fitness, shares};
use super::tier::{Configured, Member, Tier, TierKey};
use super::{Ask, Chance, LastResort};
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
    /// Whether backups get what regular endpoints have no room for, as nothing waits for those.
    lends: bool,
}

/// The endpoints of the cluster, or of a subset, that get work.
#[derive(Default)]
pub(crate) struct Scope {
    /// The first in order to begin with. Some may have no share: they take over only what others have no room for. These are
    /// backups while no regular endpoint may get work.
    regular: Box<[Tier]>,
    /// Backups that get what no regular endpoint can take.
    reserve: Box<[Tier]>,
}

impl Scope {
    /// All tiers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Tier> {
        self.regular.iter().chain(&self.reserve)
    }

    /// Those from which requests that wait may get a place; backups are among them if `lends`.
    pub(crate) fn awaited(&self, lends: bool) -> impl Iterator<Item = &Tier> {
        self.regular.iter().chain(self.reserve.iter().filter(move |_| lends))
    }
}

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
        let lends = cluster.queue.as_ref().is_none_or(|queue| queue.use_backups);
        let pins = Pins::new((cluster, lends), endpoints, roll, &scopes);
        Self { scopes: scopes.into(), pins, lends }
    }

    /// The tiers of a subset, or of that which takes over for it, but for the backups in reserve; none when nobody may get work.
    #[inline]
    pub(crate) fn tiers(&self, subset: Subset) -> &[Tier] {
        let tiers = |number: u32| self.scopes.get(number as usize).map_or(&[][..], |scope| &scope.regular);
        let wanted = tiers(subset.wanted);
        if wanted.is_empty() { tiers(subset.otherwise) } else { wanted }
    }

    /// The backups beside [`Self::tiers`]. None are there while backups do the work anyway.
    pub(crate) fn reserve(&self, subset: Subset) -> &[Tier] {
        let number = if self.is_empty(subset.wanted) { subset.otherwise } else { subset.wanted };
        self.scopes.get(number as usize).map_or(&[][..], |scope| &scope.reserve)
    }

    /// Takes a place where no regular endpoint that was not tried has room: at a backup, or once more at one that has failed.
    #[cold]
    pub(crate) fn take_last(&self, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        let (tiers, reserve) = (self.tiers(ask.subset), self.reserve(ask.subset));
        let opens = match ask.last_resort {
            LastResort::Nothing => return None,
            LastResort::BackupsAtOnce | LastResort::OnlyBackups => true,
            LastResort::Backups | LastResort::Repeat => self.opens_reserve(tiers, ask.tried),
        };
        let reserve = if opens { reserve } else { &[] };
        let backup = super::take(reserve, chance, ask);
        if backup.is_some() || ask.last_resort != LastResort::Repeat || ask.tried.is_empty() {
            return backup;
        }
        let again = Ask { tried: &[], ..*ask };
        super::take(tiers, chance, &again).or_else(|| super::take(reserve, chance, &again))
    }

    /// Whether a backup may get what these tiers cannot take, after those that were `tried` have failed.
    fn opens_reserve(&self, tiers: &[Tier], tried: &[u32]) -> bool {
        self.lends || !tried.is_empty() && tiers.iter().flat_map(Tier::slots).all(|slot| tried.contains(&slot))
    }

    /// The slots of endpoints that could take a request of this subset, be there room or not, after those that were `tried`
    /// have failed.
    pub(crate) fn slots_left(&self, subset: Subset, tried: &[u32]) -> impl Iterator<Item = u32> {
        let tiers = self.tiers(subset);
        let reserve = if self.opens_reserve(tiers, tried) { self.reserve(subset) } else { &[] };
        tiers.iter().chain(reserve).flat_map(Tier::slots).filter(|slot| !tried.contains(slot))
    }

    /// Takes a place at one endpoint, if it gets work, was not tried, and has room.
    #[cold]
    pub(crate) fn take_at(&self, place: u32, ask: &Ask<'_>) -> Option<Lease> {
        let tiers = [self.tiers(ask.subset), self.reserve(ask.subset)];
        tiers.into_iter().find_map(|tiers| super::take_at(tiers, place, ask.tried))
    }

    /// Whether nobody in the subset of this number may get work.
    pub(crate) fn is_empty(&self, number: u32) -> bool {
        self.scopes.get(number as usize).is_none_or(|scope| scope.regular.is_empty())
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
    /// `known`: only of endpoints with these slots, whatever the balancer would choose. None of those that were `tried`.
    pub(crate) fn take_free(
        &self,
        (subset, tried): (Subset, &[u32]),
        known: Option<&FastMap<u32, u32>>,
        affinity: Option<u64>,
    ) -> Option<Lease> {
        let tiers = self.tiers(subset);
        let chosen = if known.is_none() { super::take_for_waiting(tiers, affinity, tried) } else { None };
        let any = |tiers: &[Tier]| tiers.iter().find_map(|tier| tier.take_free(known, tried));
        let regular = chosen.or_else(|| any(tiers));
        regular.or_else(|| if self.opens_reserve(tiers, tried) { any(self.reserve(subset)) } else { None })
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
        let any_at_work = groups.iter().any(|(key, group)| !key.is_backup && !group.members.is_empty());
        let (backups, groups) = groups.into_iter().partition(|(key, _)| key.is_backup && any_at_work);
        let mut scope = Scope { regular: self.tiers(groups, first), reserve: self.tiers(backups, first) };
        if let ([tier], []) = (&mut scope.regular[..], &scope.reserve[..])
            && tier.members().len() == 1
            && tier.reason == PickReason::Balance
        {
            tier.reason = PickReason::Only;
        }
        scope
    }

    fn tiers(&self, groups: BTreeMap<TierKey, Group>, first: Option<(bool, u32)>) -> Box<[Tier]> {
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
