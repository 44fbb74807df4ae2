//! What those who wait for the same wait for.
//!
//! Who came by an earlier plan of the cluster gets a place as the newest plan bounds it, at an endpoint that both have:
//! a bound that is raised helps those who wait at once, and one that is lowered holds for them too. Where the newest plan
//! has none of the endpoints, the earlier one goes on for those who came by it. Where it has some, but none that gets work, they
//! get those that go on with what they have, such as one that is drained: there is no other for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::balance::View;
use crate::cluster::state::EndpointState;
use crate::cluster::subset::Subset;
use crate::cluster::{ClusterPlan, Lease};
use crate::hash::FastMap;
use crate::queue::{Tried, Wait};

/// Which endpoints one waits for, in terms of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) subset: Subset,
    /// Only this one, by its place in the plan, as long as it takes those that are bound to it.
    pub(crate) pinned: Option<u32>,
    /// None of these.
    pub(crate) tried: Tried,
}

impl Wanted {
    pub(super) fn of(wait: &Wait) -> Self {
        Self { subset: wait.subset, pinned: wait.pinned, tried: wait.tried }
    }

    /// Returns the subset, and the slots in it that are left out.
    pub(crate) fn among(&self) -> (Subset, &[u32]) {
        (self.subset, self.tried.slots())
    }
}

/// Tells lanes apart: the version of the plan that those in it came by, and what they want.
pub(super) type Kind = (u64, Wanted);

/// See the module.
pub(super) struct Lane {
    /// The plan that they came by, whose endpoints they know.
    origin: Arc<ClusterPlan>,
    wanted: Wanted,
    /// The newest plan, if that is another.
    target: Option<Target>,
    /// How many wait here; never 0.
    waiting: usize,
    /// The endpoint whose places alone will do for now, where they are counted; without, they are counted in the cluster.
    only: Option<Arc<EndpointState>>,
}

struct Target {
    plan: Arc<ClusterPlan>,
    wanted: Wanted,
    /// The endpoints that both plans have, by slot, with their places in the origin.
    places: FastMap<u32, u32>,
    /// Those of them that the subset of the origin holds.
    own: FastMap<u32, u32>,
}

impl Lane {
    pub(super) fn new(origin: Arc<ClusterPlan>, wanted: Wanted, newest: Option<&Arc<ClusterPlan>>) -> Self {
        let mut lane = Self { origin, wanted, target: None, waiting: 0, only: None };
        if let Some(newest) = newest {
            lane.follow(newest);
        }
        lane
    }

    pub(super) fn kind(&self) -> Kind {
        (self.origin.version(), self.wanted)
    }

    /// Makes `newest` the plan that decides which places are free.
    pub(super) fn follow(&mut self, newest: &Arc<ClusterPlan>) {
        self.target =
            if Arc::ptr_eq(newest, &self.origin) { None } else { Target::new(&self.origin, self.wanted, newest) };
    }

    fn asked(&self) -> (&Arc<ClusterPlan>, &Wanted) {
        match &self.target {
            None => (&self.origin, &self.wanted),
            Some(target) => (&target.plan, &target.wanted),
        }
    }

    /// Returns how many wait here; never 0.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Counts one more; says whether it is the first.
    pub(super) fn enter(&mut self) -> bool {
        self.waiting += 1;
        self.count().fetch_add(1, Ordering::SeqCst);
        self.waiting == 1
    }

    /// Counts one less; says whether it was the last.
    pub(super) fn leave(&mut self) -> bool {
        self.waiting -= 1;
        self.count().fetch_sub(1, Ordering::SeqCst);
        self.waiting == 0
    }

    fn count(&self) -> &AtomicU32 {
        match &self.only {
            Some(endpoint) => endpoint.awaiting(),
            None => self.origin.state.waiting_anywhere(),
        }
    }

    /// Finds out where those in it are to be counted. To be called before a place is looked for: who gives one back in
    /// between sees them in one of both counts.
    pub(super) fn settle(&mut self, views: &mut Views) {
        let (plan, wanted) = self.asked();
        let only = plan.only(&views.of(plan), wanted);
        if only.map(Arc::as_ptr) == self.only.as_ref().map(Arc::as_ptr) {
            return;
        }
        let only = only.cloned();
        let waiting = self.waiting as u32;
        let before = std::mem::replace(&mut self.only, only);
        self.count().fetch_add(waiting, Ordering::SeqCst);
        let before = before.as_ref().map_or(self.origin.state.waiting_anywhere(), |endpoint| endpoint.awaiting());
        before.fetch_sub(waiting, Ordering::SeqCst);
    }

    /// Returns whether it is worth an attempt.
    pub(super) fn may_have_room(&self, views: &mut Views) -> bool {
        let (plan, wanted) = self.asked();
        plan.may_have_room(&views.of(plan), wanted)
    }

    /// Takes a place for the first in this lane, where the key of its request falls if it may be there. The lease tells the endpoint's place in the plan that it came by.
    pub(super) fn take(&self, views: &mut Views, affinity: Option<u64>) -> Option<Lease> {
        let Some(target) = &self.target else {
            return self.origin.take_free(&views.of(&self.origin), &self.wanted, (None, affinity));
        };
        let view = views.of(&target.plan);
        let lease = match target.plan.take_free(&view, &target.wanted, (Some(&target.places), affinity)) {
            None if !target.is_stranded(&view) => None,
            None if target.own.is_empty() => {
                return self.origin.take_free(&views.of(&self.origin), &self.wanted, (None, affinity));
            }
            None => target.plan.take_left(&target.own, self.wanted.tried.slots()),
            lease => lease,
        }?;
        let place = target.places.get(&lease.state().slot).copied();
        Some(lease.at(place.unwrap_or_default()))
    }
}

/// The views of the plans that are asked in one go: nearly always of one plan, and looked up once.
#[derive(Default)]
pub(super) struct Views(Vec<(u64, Arc<View>)>);

impl Views {
    fn of(&mut self, plan: &ClusterPlan) -> Arc<View> {
        if let Some((_, view)) = self.0.iter().find(|(version, _)| *version == plan.version()) {
            return view.clone();
        }
        let view = plan.latest_view().view;
        self.0.push((plan.version(), view.clone()));
        view
    }
}

impl Target {
    /// Returns whether all endpoints that get work for this lane are unknown to the plan that those in it came by, so that they would wait
    /// in vain.
    fn is_stranded(&self, view: &View) -> bool {
        let waits = self
            .wanted
            .pinned
            .is_some_and(|pinned| self.plan.refuses_others() || self.plan.keeps(view, pinned, self.wanted.subset));
        let (subset, tried) = self.wanted.among();
        !waits && !view.slots_left(subset, tried).any(|slot| self.places.contains_key(&slot))
    }

    /// Creates a lane. Returns `None` if the plans have no endpoint in common that this lane could use.
    fn new(origin: &ClusterPlan, wanted: Wanted, plan: &Arc<ClusterPlan>) -> Option<Self> {
        let old: FastMap<u32, u32> =
            origin.endpoints.iter().zip(0..).map(|(plan, place)| (plan.state.slot, place)).collect();
        let slots = plan.endpoints.iter().map(|plan| plan.state.slot);
        let places: FastMap<u32, u32> = slots.filter_map(|slot| Some((slot, *old.get(&slot)?))).collect();
        let pinned = wanted.pinned.and_then(|place| {
            let state = &origin.endpoints.get(place as usize)?.state;
            plan.endpoints.iter().zip(0..).find(|(plan, _)| Arc::ptr_eq(&plan.state, state)).map(|(_, place)| place)
        });
        if wanted.pinned.is_some() && pinned.is_none() && origin.refuses_others() {
            return None;
        }
        let holds =
            |place| [wanted.subset.wanted, wanted.subset.otherwise].iter().any(|&n| origin.subsets.holds(n, place));
        let own = places.iter().filter(|(_, place)| holds(**place)).map(|(slot, place)| (*slot, *place)).collect();
        let subset = origin.subsets.translate(wanted.subset, &plan.subsets);
        let wanted = Wanted { subset, pinned, tried: wanted.tried };
        (!places.is_empty()).then(|| Self { plan: plan.clone(), wanted, places, own })
    }
}
