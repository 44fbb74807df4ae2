//! What a pick makes of the endpoint that a session belongs to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::PickReason;
use model::snapshot::Cluster;

use crate::balance::{Ask, LastResort, PickCache, Scope, Tier, TierState, View};
use crate::cluster::subset::Subset;
use crate::cluster::{ClusterPlan, EndpointPlan, Lease, Pick};
use crate::hash::FastMap;
use crate::health::standing::Roll;
use crate::queue::Wanted;

/// Which endpoints go on with the sessions they have, by place. Part of a view.
#[derive(Default)]
pub(crate) struct Pins(Box<[Pin]>);

#[derive(Clone, Default)]
struct Pin {
    keeps: bool,
    /// Others get work there, too.
    is_shared: bool,
    /// Where its places are counted beside the endpoint itself.
    counted: Option<Arc<TierState>>,
}

/// What came of asking one endpoint.
enum Asked {
    Lease(Lease),
    Full,
    Away,
}

impl Pins {
    /// `scopes`: the whole cluster, then each subset. `lends`: requests that wait may get backups.
    pub(crate) fn new(
        (cluster, lends): (&Cluster, bool),
        endpoints: &[EndpointPlan],
        roll: &Roll,
        scopes: &[Scope],
    ) -> Self {
        if cluster.persistence.is_none() {
            return Self::default();
        }
        let keeps = |(index, plan)| Pin { keeps: roll.keeps_sessions(index, cluster, plan), ..Pin::default() };
        let mut pins: Box<[Pin]> = endpoints.iter().enumerate().map(keeps).collect();
        for (members, state) in scopes.first().into_iter().flat_map(Scope::all).filter_map(Tier::counted) {
            members.for_each(|index| pins[index as usize].counted = Some(state.clone()));
        }
        for tier in scopes.iter().flat_map(|scope| scope.awaited(lends)) {
            tier.indices().for_each(|index| pins[index as usize].is_shared = true);
        }
        Self(pins)
    }

    /// Returns whether requests without a session go to this endpoint, too.
    pub(crate) fn is_shared(&self, index: u32) -> bool {
        self.0.get(index as usize).is_none_or(|pin| pin.is_shared)
    }
}

impl ClusterPlan {
    /// Returns the pick for a request whose session belongs to an endpoint; `None`: as for any other.
    pub(crate) fn pick_pinned(&self, view: &View, pinned: u32, ask: &Ask<'_>) -> Option<Pick> {
        let persistence = self.persistence.as_ref()?;
        if self.has_failed(pinned, ask) {
            match (persistence.refuses(), ask.last_resort) {
                (false, _) => return None,
                // Its session leaves it no other choice.
                (true, LastResort::Repeat) => {}
                (true, _) => return Some(Pick::None),
            }
        }
        if self.cluster.queue.is_some()
            && self.state.waiting() > 0
            && self.keeps(view, pinned, ask.subset)
            && self.is_behind_at(view, pinned)
        {
            return Some(Pick::Full);
        }
        match self.ask_within(view, pinned, ask.subset) {
            Asked::Lease(lease) if ask.tried.is_empty() => Some(Pick::Endpoint(lease)),
            Asked::Lease(lease) => Some(Pick::Endpoint(lease.because(PickReason::Retry))),
            Asked::Full if persistence.waits() && self.cluster.queue.is_some() => Some(Pick::Full),
            Asked::Full if persistence.refuses() && self.cluster.queue.is_none() => Some(Pick::Full),
            Asked::Full | Asked::Away => persistence.refuses().then_some(Pick::None),
        }
    }

    /// Returns whether others wait who could use the place at the endpoint of a session. One that gets nothing but sessions is waited for
    /// by these alone.
    #[cold]
    fn is_behind_at(&self, view: &View, pinned: u32) -> bool {
        let alone = self.endpoints.get(pinned as usize).map_or(0, |plan| plan.state.awaiting().load(Ordering::SeqCst));
        let anywhere = self.state.waiting_anywhere().load(Ordering::SeqCst) > 0 && view.pins.is_shared(pinned);
        alone > 0 || anywhere || self.is_bound_awaited(view)
    }

    /// Returns the endpoint for whose places a request is to wait after its pick found everything full. For [`crate::Wait`].
    pub fn pinned_in_queue(&self, ask: &Ask<'_>) -> Option<u32> {
        let pinned = ask.pinned?;
        let persistence = self.persistence.as_ref()?;
        let waits = persistence.waits() || persistence.refuses();
        (waits && (persistence.refuses() || !self.has_failed(pinned, ask))).then_some(pinned)
    }

    /// Returns whether a request of a session that belongs to `pinned` goes elsewhere only because its subset leaves that one out: the
    /// session does not move then, or it would go to and fro between routes with different subsets.
    pub fn lends(&self, cache: &mut PickCache, pinned: Option<u32>, subset: Subset) -> bool {
        let Some(pinned) = pinned else { return false };
        let view = cache.view(self);
        view.pins.0.get(pinned as usize).is_some_and(|pin| pin.keeps) && !self.keeps(view, pinned, subset)
    }

    /// Returns a free place for one who waits at the endpoint of its session, or, when that is away by now, at any; `known` as in
    /// [`View::take_free`].
    pub(crate) fn take_free_pinned(
        &self,
        view: &View,
        (pinned, wanted): (u32, &Wanted),
        (known, affinity): (Option<&FastMap<u32, u32>>, Option<u64>),
    ) -> Option<Lease> {
        match self.ask(view, pinned, wanted.subset) {
            Asked::Lease(lease) => Some(lease),
            Asked::Full => None,
            Asked::Away if self.refuses_others() => None,
            Asked::Away => view.take_free(wanted.among(), known, affinity),
        }
    }

    /// Returns whether an attempt there has failed.
    fn has_failed(&self, pinned: u32, ask: &Ask<'_>) -> bool {
        self.endpoints.get(pinned as usize).is_some_and(|plan| ask.tried.contains(&plan.state.slot))
    }

    /// Returns whether a session gets its endpoint or none.
    pub(crate) fn refuses_others(&self) -> bool {
        self.persistence.as_ref().is_some_and(|persistence| persistence.refuses())
    }

    /// Returns whether an endpoint goes on with its sessions that may go to this subset.
    pub(crate) fn keeps(&self, view: &View, pinned: u32, subset: Subset) -> bool {
        let is_meant = |number: u32| self.subsets.holds(number, pinned);
        let has_wanted = !view.is_empty(subset.wanted);
        view.pins.0.get(pinned as usize).is_some_and(|pin| pin.keeps)
            && (is_meant(subset.wanted) || (!has_wanted && is_meant(subset.otherwise)))
    }

    /// Picks like [`Self::ask`], within the limit of the cluster if it has one.
    fn ask_within(&self, view: &View, pinned: u32, subset: Subset) -> Asked {
        let Some(max) = self.bound() else { return self.ask(view, pinned, subset) };
        if !self.keeps(view, pinned, subset) {
            return Asked::Away;
        }
        let taken = self.take_bounded(max, || match self.ask(view, pinned, subset) {
            Asked::Lease(lease) => Some(lease),
            Asked::Full | Asked::Away => None,
        });
        taken.map_or(Asked::Full, Asked::Lease)
    }

    fn ask(&self, view: &View, pinned: u32, subset: Subset) -> Asked {
        let (Some(pin), Some(plan)) = (view.pins.0.get(pinned as usize), self.endpoints.get(pinned as usize)) else {
            return Asked::Away;
        };
        if !self.keeps(view, pinned, subset) {
            return Asked::Away;
        }
        if !plan.state.try_take(plan.endpoint.connections_max) {
            return Asked::Full;
        }
        let counted = pin.counted.clone().inspect(|state| state.enter());
        Asked::Lease(Lease::new(&plan.state, pinned, counted, PickReason::Session))
    }
}
