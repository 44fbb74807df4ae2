//! A cluster as workers use it: pick an endpoint, hold a place there, give it back.

mod endpoints;
mod lease;
pub mod own_tlvs;
pub(crate) mod slot;
pub mod state;
pub mod subset;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::fitness::Fitness;
use model::snapshot::{Balance, Cluster};
use model::{PickReason, RequestHead};

use crate::balance::response_time::Timing;
use crate::balance::{self, Ask, LastResort, PickCache, View};
use crate::cluster::own_tlvs::OwnTlvs;
use crate::cluster::state::{ClusterState, EndpointState};
use crate::cluster::subset::{Names, Subset, Subsets};
use crate::hash::FastMap;
use crate::health::agent::{Report, Wish};
use crate::health::passive::Seen;
use crate::health::standing::Roll;
use crate::health::{Change, Outcome};
use crate::key::{FairKeys, Key};
use crate::queue::{self, Wanted};
use crate::resilience::concurrency::Adaptive;
use crate::resilience::guard::GuardState;
use crate::sticky::Persistence;

pub use endpoints::{Configured, EndpointPlan, Endpoints};
pub use lease::Lease;

/// Largest cluster whose first pick builds its view.
const VIEW_ENDPOINTS_MAX: usize = 100;

/// A cluster, compiled.
pub struct ClusterPlan {
    /// What was configured.
    pub cluster: Arc<Cluster>,
    /// In the order of the file; [`Lease::endpoint_index`] is a place in this list.
    pub endpoints: Endpoints,
    /// Shared with plans before and after this one.
    pub state: Arc<ClusterState>,
    /// Unique in the process, so that a cache built from one plan is never used with another.
    version: u64,
    pub(crate) subsets: Arc<Subsets>,
    /// What of a request is hashed, if the balancer goes by that.
    keys: Box<[Key]>,
    /// By which those who wait take turns, if the queue is fair.
    pub(crate) fair_keys: FairKeys,
    /// How response times are averaged, if the balancer goes by them.
    timing: Option<Timing>,
    /// There while the cluster has a circuit breaker.
    pub(crate) guard: Option<Arc<GuardState>>,
    /// How sessions stay with their endpoints, if they do.
    pub persistence: Option<Box<Persistence>>,
    /// There while the cluster has adaptive concurrency.
    pub(crate) adaptive: Option<Arc<Adaptive>>,
    /// What the operator adds to PROXY headers, if anything.
    pub own_tlvs: Option<Box<OwnTlvs>>,
    /// The view of the latest epoch, built once for all workers: with the plan, unless the cluster is small and none was built
    /// before. Then the first pick builds it, which costs it microseconds; most of very many clusters may never see one.
    latest: Mutex<Option<Stamped>>,
}

/// A view, and the epoch whose availability it shows.
#[derive(Clone)]
pub(crate) struct Stamped {
    pub(crate) epoch: u64,
    pub(crate) view: Arc<View>,
}

/// What came of a pick.
#[derive(Debug)]
pub enum Pick {
    /// A place at an endpoint.
    Endpoint(Lease),
    /// Endpoints are up, but all are full, or others wait already: [`ClusterPlan::enqueue`].
    Full,
    /// No endpoint may get work: all are down or have weight 0.
    None,
}

impl ClusterPlan {
    /// As [`Self::compile_for`] for routes without subsets.
    #[cfg(test)]
    pub(crate) fn compile(cluster: Arc<Cluster>, previous: Option<&Self>) -> Self {
        Self::compile_for(cluster, BTreeSet::new(), previous)
    }

    /// Compiles `cluster`, taking over the state that `previous`, a plan of the cluster of the same name, holds. There will
    /// be subsets by these labels.
    pub(crate) fn compile_for(cluster: Arc<Cluster>, names: BTreeSet<Names>, previous: Option<&Self>) -> Self {
        static VERSIONS: AtomicU64 = AtomicU64::new(1);
        let state = previous.map_or_else(|| Arc::new(ClusterState::new()), |plan| plan.state.clone());
        let epoch = state.epoch();
        let is_small = cluster.endpoints.len() <= VIEW_ENDPOINTS_MAX && !matches!(cluster.balance, Balance::Hash(_));
        let endpoints = Endpoints::new(&cluster, &state);
        let is_used = previous.is_some_and(|plan| plan.endpoints.are_made());
        if is_used || !is_small || is_watched(&cluster) {
            endpoints.make_after(previous.map(|plan| &plan.endpoints));
        }
        let subsets = Subsets::new(names, &endpoints);
        let waits = is_small && previous.is_none_or(|plan| plan.lock().is_none());
        let view = (!waits).then(|| Arc::new(View::new(&cluster, &endpoints, (&state, &subsets))));
        let version = VERSIONS.fetch_add(1, Ordering::Relaxed);
        let keys = match &cluster.balance {
            Balance::Hash(hash) => hash.on.iter().filter_map(Key::new).collect(),
            _ => Box::default(),
        };
        let timing = match cluster.balance {
            Balance::LeastTime { half_life } => Some(Timing::new(half_life, false)),
            Balance::PeakEwma { half_life } => Some(Timing::new(half_life, true)),
            _ => None,
        };
        let fair_by = cluster.queue.as_ref().map_or(&[][..], |queue| &queue.fair_by);
        let fair_keys = FairKeys::new(fair_by);
        let latest = Mutex::new(view.map(|view| Stamped { epoch, view }));
        let adaptive = cluster.resilience.concurrency.map(|_| state.adaptive().clone());
        let guard = cluster.resilience.breaker.is_some().then(|| state.guard().clone());
        let known = previous.and_then(|plan| plan.persistence.as_deref());
        let sessions = || Persistence::compile(&cluster, &endpoints, known).map(Box::new);
        let persistence = cluster.persistence.as_ref().and_then(|_| sessions());
        // What is wrong with them has been reported, and the plan is refused.
        let own_tlvs = OwnTlvs::compile(&cluster).unwrap_or_default();
        Self {
            cluster,
            endpoints,
            state,
            version,
            subsets,
            keys,
            fair_keys,
            timing,
            guard,
            adaptive,
            persistence,
            own_tlvs,
            latest,
        }
    }

    /// Unique in the process among all plans of all clusters.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The hash of the key that a request goes by, if the balancer wants one and the request has it. For
    /// [`Ask::key`].
    #[inline]
    pub fn key(&self, head: &RequestHead, client: IpAddr) -> Option<u64> {
        self.keys.iter().find_map(|key| key.of_request(head, client))
    }

    /// The same for a connection, of which only the client is known.
    pub fn key_of_client(&self, client: IpAddr) -> Option<u64> {
        self.keys.iter().find_map(|key| key.of_client(client))
    }

    /// Chooses an endpoint and takes a place there. A backup comes next when no regular endpoint can take the request: all are
    /// full, and nothing waits for them, or all have failed in this exchange. Allocates nothing unless availability has changed since the last pick with this cache.
    ///
    /// While anyone waits in the queue who takes any endpoint, this answers [`Pick::Full`], so that nobody is overtaken;
    /// endpoints that are waited for alone are as good as full. A plan without a queue does not ask: those who still wait
    /// then do so by an earlier plan, and must not turn away what has room now.
    #[inline]
    pub fn pick(&self, cache: &mut PickCache, random: &mut dyn FnMut() -> u64, ask: &Ask<'_>) -> Pick {
        let view = cache.view(self);
        if let Some(pinned) = ask.pinned
            && let Some(pick) = self.pick_pinned(view, pinned, ask)
        {
            return pick;
        }
        let tiers = view.tiers(ask.subset);
        if tiers.is_empty() {
            return Pick::None;
        }
        if ask.last_resort == LastResort::OnlyBackups {
            return self.pick_backup(view, random, ask);
        }
        if self.state.waiting() > 0 && self.cluster.queue.is_some() && self.is_behind(view) {
            return self.pick_behind(view, random, ask);
        }
        let liked = ask.pinned.filter(|_| self.persistence.is_none());
        let mut take = || {
            let liked = liked.and_then(|place| view.take_at(place, ask));
            let liked = liked.map(|lease| lease.because(PickReason::Session));
            let taken = liked.or_else(|| balance::take(tiers, random, ask));
            taken.or_else(|| view.take_last(random, ask))
        };
        let taken = match self.bound() {
            None => take(),
            Some(max) => self.take_bounded(max, take),
        };
        taken.map_or(Pick::Full, |lease| Pick::Endpoint(view.explained(lease, ask)))
    }

    /// A pick while others wait for regular endpoints. What cannot wait itself gets a backup.
    #[cold]
    fn pick_behind(&self, view: &View, random: &mut dyn FnMut() -> u64, ask: &Ask<'_>) -> Pick {
        if ask.last_resort != LastResort::BackupsAtOnce {
            return Pick::Full;
        }
        self.pick_backup(view, random, ask)
    }

    /// Takes a place at a backup, whether or not a regular endpoint has room.
    #[cold]
    fn pick_backup(&self, view: &View, random: &mut dyn FnMut() -> u64, ask: &Ask<'_>) -> Pick {
        let mut take = || view.take_last(random, ask);
        let taken = match self.bound() {
            None => take(),
            Some(max) => self.take_bounded(max, take),
        };
        taken.map_or(Pick::Full, |lease| Pick::Endpoint(view.explained(lease, ask)))
    }

    /// Whether an endpoint gets work in this subset, be there room or not, whose slot is none of those that were `tried`: a
    /// backup too. `pinned` as in [`Ask`]: a session that does not move has its own endpoint alone.
    pub fn has_untried(
        &self,
        cache: &mut PickCache,
        subset: Subset,
        pinned: Option<u32>,
        tried: impl Fn(u32) -> bool,
    ) -> bool {
        if let Some(pinned) = pinned.filter(|_| self.refuses_others()) {
            return self.endpoints.get(pinned as usize).is_some_and(|plan| !tried(plan.state.slot));
        }
        let view = cache.view(self);
        let tiers = view.tiers(subset).iter().chain(view.reserve(subset));
        tiers.flat_map(|tier| tier.slots()).any(|slot| !tried(slot))
    }

    /// Whether a backup gets work, stands in reserve, and was not tried. One that belongs to no session may not take a request that
    /// only the endpoint of its session may get.
    #[cold]
    pub fn has_untried_backup(
        &self,
        cache: &mut PickCache,
        subset: Subset,
        pinned: Option<u32>,
        tried: impl Fn(u32) -> bool,
    ) -> bool {
        if pinned.is_some() && self.refuses_others() {
            return false;
        }
        cache.view(self).reserve(subset).iter().flat_map(|tier| tier.slots()).any(|slot| !tried(slot))
    }

    /// Whether others wait who could use what a newcomer would take, but for the places of endpoints that some wait for
    /// alone: of these the balancer keeps away by itself.
    #[cold]
    pub(crate) fn is_behind(&self, view: &View) -> bool {
        self.state.waiting_anywhere().load(Ordering::SeqCst) > 0 || self.is_bound_awaited(view)
    }

    /// Whether somebody waits for the bound of the cluster: at an endpoint that has room.
    pub(crate) fn is_bound_awaited(&self, view: &View) -> bool {
        let anywhere = self.state.waiting_anywhere().load(Ordering::SeqCst) > 0;
        let could_go = |(index, plan): (u32, &EndpointPlan)| {
            let awaited = plan.state.awaiting().load(Ordering::SeqCst) > 0 || (anywhere && view.pins.is_shared(index));
            awaited && !plan.state.is_full(plan.endpoint.connections_max)
        };
        self.bound().is_some() && (0..).zip(&self.endpoints).any(could_go)
    }

    /// Takes a place within the bound of the cluster, then one at an endpoint.
    pub(crate) fn take_bounded(&self, max: u32, take: impl FnOnce() -> Option<Lease>) -> Option<Lease> {
        let lease = self.take_within(max, take);
        // The place within the bound may have been missed by one who began to wait meanwhile.
        if lease.is_none() && self.state.waiting() > 0 {
            queue::dispatch(&self.state);
        }
        lease
    }

    fn take_within(&self, max: u32, take: impl FnOnce() -> Option<Lease>) -> Option<Lease> {
        if !self.state.enter(max) {
            return None;
        }
        let lease = take();
        if lease.is_none() {
            self.state.leave();
        }
        lease.map(|mut lease| {
            lease.is_bounded = true;
            lease
        })
    }

    /// Tells the balancer how an exchange went, if it wants to know.
    #[inline]
    pub(crate) fn tell_time(&self, endpoint: &EndpointState, seen: Seen, now: Instant) {
        if let Some(timing) = self.timing {
            endpoint.response_time().observe(seen, now, timing);
        }
    }

    /// Takes any free place that one who waits could use, of the endpoints with these slots if it does not know all, and
    /// where its key falls if there is a choice. Called under the lock of the queue.
    pub(crate) fn take_free(
        &self,
        view: &View,
        wanted: &Wanted,
        (known, affinity): (Option<&FastMap<u32, u32>>, Option<u64>),
    ) -> Option<Lease> {
        let take = || match wanted.pinned {
            Some(pinned) => self.take_free_pinned(view, (pinned, wanted), (known, affinity)),
            None => view.take_free(wanted.among(), known, affinity),
        };
        match self.bound() {
            None => take(),
            Some(max) => self.take_within(max, take),
        }
    }

    /// A free place at an endpoint with one of these slots that goes on with what it has, though it may get nothing new: for
    /// those who know no other. Looks at all endpoints.
    pub(crate) fn take_left(&self, slots: &FastMap<u32, u32>, tried: &[u32]) -> Option<Lease> {
        let roll = self.roll();
        let is_meant = |slot: u32| slots.contains_key(&slot) && !tried.contains(&slot);
        let mut left = (0..).zip(&self.endpoints).filter(|(index, plan)| {
            is_meant(plan.state.slot) && roll.keeps_sessions(*index as usize, &self.cluster, plan)
        });
        let mut take = || {
            let free = left.find(|(_, plan)| plan.state.try_take(plan.endpoint.connections_max));
            free.map(|(index, plan)| Lease::new(&plan.state, index, None, PickReason::Queue))
        };
        match self.bound() {
            None => take(),
            Some(max) => self.take_within(max, take),
        }
    }

    /// Whether [`Self::take_free`] is worth an attempt, as far as that is found out without looking at all endpoints.
    pub(crate) fn may_have_room(&self, view: &View, wanted: &Wanted) -> bool {
        if self.bound().is_some_and(|max| self.state.is_at(max)) {
            return false;
        }
        let pinned = wanted.pinned.filter(|pinned| self.keeps(view, *pinned, wanted.subset));
        let pinned = pinned.and_then(|pinned| self.endpoints.get(pinned as usize));
        pinned.is_none_or(|plan| !plan.state.is_full(plan.endpoint.connections_max))
    }

    /// The endpoint that alone will do for one who waits, as things stand: no other is taken while it keeps its sessions,
    /// or ever, should they not move.
    pub(crate) fn only(&self, view: &View, wanted: &Wanted) -> Option<&Arc<EndpointState>> {
        let pinned =
            wanted.pinned.filter(|&pinned| self.refuses_others() || self.keeps(view, pinned, wanted.subset))?;
        self.endpoints.get(pinned as usize).map(|plan| &plan.state)
    }

    /// Where every endpoint stands now. Looks at all of them.
    pub fn roll(&self) -> Roll {
        Roll::call(&self.cluster, &self.endpoints.peek())
    }

    /// Whether an endpoint may get work as far as checks go: always when no check is configured.
    pub fn is_up(&self, endpoint: usize) -> bool {
        let serves = |plan: &EndpointPlan| match &self.cluster.health_check {
            Some(check) => plan.state.health_state().serves(check.held_out),
            None => true,
        };
        self.endpoints.get(endpoint).is_some_and(serves)
    }

    /// Takes in the outcome of a check of one endpoint. If that changes whether it gets work, all workers see it at their
    /// next pick, and those who wait get its places. One owner per endpoint calls this.
    pub fn observe(&self, endpoint: usize, outcome: Outcome) -> Option<Change> {
        let check = self.cluster.health_check.as_ref()?;
        let change = self.endpoints.get(endpoint)?.state.observe(outcome, check)?;
        if change.alters_availability(check) {
            if change.to.serves(check.held_out) {
                self.begin_ramp(endpoint);
            }
            self.announce();
            queue::dispatch(&self.state);
        }
        Some(change)
    }

    /// Takes in what the agent of an endpoint says. `Some`: that is news, and all workers see it at their next pick. One
    /// owner per endpoint calls this.
    pub fn report(&self, endpoint: usize, line: &str) -> Option<Report> {
        let plan = self.endpoints.get(endpoint)?;
        let before = plan.state.agent();
        let report = before.after(line).filter(|report| *report != before)?;
        plan.state.set_agent(report);
        let works = |report: &Report| report.wish == Wish::Ready && !report.is_down && report.percent > 0;
        if works(&report) && !works(&before) {
            self.begin_ramp(endpoint);
        }
        self.announce();
        queue::dispatch(&self.state);
        Some(report)
    }

    /// An endpoint comes up: with a slow start it gets a small share at first. To be called before [`Self::announce`].
    pub(crate) fn begin_ramp(&self, endpoint: usize) {
        if self.cluster.fitness.slow_start.is_some()
            && let Some(plan) = self.endpoints.get(endpoint)
        {
            plan.state.ramp.begin();
        }
    }

    /// Builds the view here, on the thread of the probe, before workers learn that they need one.
    pub(crate) fn announce(&self) {
        let mut latest = self.lock();
        // Should the epoch move meanwhile (another plan of this cluster shares it), the stamp below is too old, and
        // the view is built again by whoever needs it: never is a view trusted that missed a change.
        let epoch = self.state.epoch();
        // Where none was ever asked for the first pick still builds it.
        let view = latest.is_some().then(|| self.view());
        self.state.bump_epoch();
        *latest = view.map(|view| Stamped { epoch: epoch + 1, view });
    }

    /// The view of the present epoch.
    pub(crate) fn latest_view(&self) -> Stamped {
        let mut latest = self.lock();
        let epoch = self.state.epoch();
        let known = latest.take().filter(|known| known.epoch == epoch);
        latest.insert(known.unwrap_or_else(|| Stamped { epoch, view: self.view() })).clone()
    }

    fn view(&self) -> Arc<View> {
        Arc::new(View::new(&self.cluster, &self.endpoints, (&self.state, &self.subsets)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Stamped>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether something looks at the endpoints of a cluster all the time.
fn is_watched(cluster: &Cluster) -> bool {
    cluster.health_check.is_some() || cluster.persistence.is_some() || cluster.fitness != Fitness::default()
}

impl fmt::Debug for ClusterPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterPlan({})", self.cluster.name)
    }
}

#[cfg(test)]
mod tests;
