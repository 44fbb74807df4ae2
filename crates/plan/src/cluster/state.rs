//! Runtime state that outlives plans, found again by the id of its object: listeners and clusters by name, endpoints by
//! cluster, name and address.
//!
//! A `slot` is a small number that no other living state of its kind has, so that a worker can index a table of its own
//! by it (idle connections, caches). Numbers are used again once a state is gone: an entry of such a table must hold
//! the `Arc` of its state, or compare it, before it trusts the number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use model::snapshot::HealthCheck;

use crate::health::agent::Report;
use crate::balance::{TierKey, TierState};
use crate::resilience::concurrency::Adaptive;
use crate::resilience::guard::GuardState;
use crate::health::{Change, Health, HealthState, Outcome};
use crate::key::FairSeed;
use crate::padded::Padded;
use crate::health::passive::{Ejection, Judge, PassiveState};
use crate::queue::{self, Queue};
use crate::health::ramp::Ramp;
use crate::balance::response_time::ResponseTime;
use crate::cluster::slot::{Slot, SlotSpace};

static ENDPOINT_SLOTS: SlotSpace = SlotSpace::new();
static CLUSTER_SLOTS: SlotSpace = SlotSpace::new();

/// Connections of one listener, over all workers.
#[derive(Debug, Default)]
pub struct ListenerState {
    connections: Padded<AtomicU32>,
}

impl ListenerState {
    /// Counts a new connection if fewer than `max` are open; exact for any number of workers. Every `true` is paid back
    /// by one [`Self::close`].
    pub fn try_open(&self, max: u32) -> bool {
        take_below(&self.connections, max, Ordering::Relaxed)
    }

    /// Counts a connection as closed.
    pub fn close(&self) {
        let before = self.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "closed more often than opened");
    }

    /// Connections open now.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// What all workers share about one cluster.
pub struct ClusterState {
    /// Dense number, unique among living clusters of the process.
    pub slot: u32,
    _slot: Slot,
    /// Read by every pick, written seldom.
    seldom: Padded<Seldom>,
    /// What workers share about tiers, by their keys, as long as any view shows them.
    tiers: Mutex<HashMap<TierKey, Weak<TierState>>>,
    queue: Mutex<Queue>,
    /// Seed of the hashes by which those who wait take turns: other plans of the cluster have the same.
    fair_seed: OnceLock<FairSeed>,
    /// Places taken within the bound of the cluster, while it has one.
    bounded: Padded<AtomicU32>,
    /// Taken to eject and at ticks; never together with the queue.
    judge: Mutex<Judge>,
    /// Made at first use: without a circuit breaker it costs a pointer.
    guard: OnceLock<Arc<GuardState>>,
    /// The same without adaptive concurrency.
    adaptive: OnceLock<Arc<Adaptive>>,
}

#[derive(Default)]
struct Seldom {
    epoch: AtomicU64,
    waiting: AtomicU32,
    /// Those of them who take any endpoint.
    waiting_anywhere: AtomicU32,
}

impl ClusterState {
    /// The state of a cluster that is new.
    pub(crate) fn new() -> Self {
        let slot = CLUSTER_SLOTS.take();
        Self {
            slot: slot.number(),
            _slot: slot,
            seldom: Padded::default(),
            tiers: Mutex::default(),
            queue: Mutex::default(),
            fair_seed: OnceLock::new(),
            bounded: Padded::default(),
            judge: Mutex::default(),
            guard: OnceLock::new(),
            adaptive: OnceLock::new(),
        }
    }

    /// By which the keys of its queue are hashed. `chance` gives it once.
    pub(crate) fn fair_seed(&self, chance: &mut dyn FnMut() -> u64) -> FairSeed {
        *self.fair_seed.get_or_init(|| [chance(), chance()])
    }

    /// Counts the changes of availability of its endpoints.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.seldom.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn bump_epoch(&self) {
        self.seldom.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Exchanges that wait for an endpoint. The order with respect to the counts in flight matters, see [`queue`].
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.seldom.waiting.load(Ordering::SeqCst)
    }

    pub(crate) fn set_waiting(&self, count: usize) {
        self.seldom.waiting.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::SeqCst);
    }

    /// Places taken of those for all endpoints together.
    pub fn bounded(&self) -> u32 {
        self.bounded.load(Ordering::Relaxed)
    }

    /// Those of [`Self::waiting`] who do not wait for one endpoint alone.
    #[inline]
    pub(crate) fn waiting_anywhere(&self) -> &AtomicU32 {
        &self.seldom.waiting_anywhere
    }

    /// Whether [`Self::enter`] would have failed a moment ago, in the same order.
    pub(crate) fn is_at(&self, max: u32) -> bool {
        self.bounded.load(Ordering::SeqCst) >= max
    }

    /// Takes one of `max` places for all endpoints together. In the same order as the counts that the queue relies on.
    pub(crate) fn enter(&self, max: u32) -> bool {
        take_below(&self.bounded, max, Ordering::SeqCst)
    }

    /// Gives it back; what follows from that is left to the caller.
    pub(crate) fn leave(&self) {
        let before = self.bounded.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "left more often than entered");
    }

    /// What workers share about the tier of this key.
    pub(crate) fn tier(&self, key: TierKey) -> Arc<TierState> {
        let mut tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tiers.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        tiers.retain(|_, known| known.strong_count() > 0);
        let new = Arc::default();
        tiers.insert(key, Arc::downgrade(&new));
        new
    }

    /// Gives `other` tiers that stand as those of this one do; they are there as long as the answer is kept.
    pub(crate) fn copy_tiers(&self, other: &Self) -> Vec<Arc<TierState>> {
        let tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let living = tiers.iter().filter_map(|(key, tier)| Some((*key, tier.upgrade()?)));
        let copy = |(key, tier): (TierKey, Arc<TierState>)| {
            let copied = other.tier(key);
            copied.copy_from(&tier);
            copied
        };
        living.map(copy).collect()
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn adaptive(&self) -> &Arc<Adaptive> {
        self.adaptive.get_or_init(Arc::default)
    }

    pub(crate) fn guard(&self) -> &Arc<GuardState> {
        self.guard.get_or_init(Arc::default)
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all workers share about one endpoint.
pub struct EndpointState {
    /// Dense number, unique among living endpoints of the process.
    pub slot: u32,
    _slot: Slot,
    cluster: Arc<ClusterState>,
    /// A [`Health`] in one word; written by the one owner of the probe.
    health: AtomicU64,
    hot: Padded<Hot>,
    /// What its agent said, a [`Report`] in one word.
    agent: AtomicU32,
    /// Moves only while the cluster has a slow start.
    pub(crate) ramp: Ramp,
    /// Made at first use: without passive health it costs a pointer.
    passive: OnceLock<Box<PassiveState>>,
}

/// What picks of an endpoint read, on one cache line.
#[derive(Default)]
struct Hot {
    in_flight: AtomicU32,
    /// Those who wait for a place here and nowhere else.
    awaiting: AtomicU32,
    /// Known only while a balancer wants it.
    response_time: ResponseTime,
}

impl EndpointState {
    /// The state of an endpoint that is new.
    pub(crate) fn new(cluster: Arc<ClusterState>) -> Self {
        let slot = ENDPOINT_SLOTS.take();
        Self {
            slot: slot.number(),
            _slot: slot,
            cluster,
            health: AtomicU64::new(Health::default().to_bits()),
            hot: Padded::default(),
            agent: AtomicU32::new(0),
            ramp: Ramp::default(),
            passive: OnceLock::new(),
        }
    }

    /// A state with what balancers look at as it is in `original`: places taken, those who wait for them
    /// alone, and times. The places are nobody's.
    pub(crate) fn rehearsed(original: &Self, cluster: Arc<ClusterState>) -> Self {
        let state = Self::new(cluster);
        state.hot.in_flight.store(original.in_flight(), Ordering::Relaxed);
        state.hot.awaiting.store(original.awaiting().load(Ordering::Relaxed), Ordering::Relaxed);
        state.hot.response_time.copy_from(&original.hot.response_time);
        state
    }

    /// The cluster it belongs to.
    pub fn cluster(&self) -> &Arc<ClusterState> {
        &self.cluster
    }

    /// Exchanges or connections that hold a place now.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.hot.in_flight.load(Ordering::Relaxed)
    }

    /// How long it takes to answer.
    #[inline]
    pub(crate) fn response_time(&self) -> &ResponseTime {
        &self.hot.response_time
    }

    /// What the checks told so far. Means something only while the cluster has a check; see
    /// [`crate::ClusterPlan::is_up`].
    pub fn health(&self) -> Health {
        Health::from_bits(self.health.load(Ordering::Acquire))
    }

    /// `unknown`, `up` or `down`.
    pub fn health_state(&self) -> HealthState {
        self.health().state()
    }

    /// What is known of its ejections; `None` when there never was passive health.
    pub fn ejection(&self) -> Option<Ejection> {
        self.passive_if_any().map(PassiveState::ejection)
    }

    #[inline]
    pub(crate) fn passive(&self) -> &PassiveState {
        self.passive.get_or_init(Box::default)
    }

    pub(crate) fn passive_if_any(&self) -> Option<&PassiveState> {
        self.passive.get().map(|passive| &**passive)
    }

    /// Takes in the outcome of a check. For [`crate::ClusterPlan::observe`], which tells the balancers too.
    pub(crate) fn observe(&self, outcome: Outcome, check: &HealthCheck) -> Option<Change> {
        let mut health = self.health();
        let change = health.observe(outcome, check);
        self.health.store(health.to_bits(), Ordering::Release);
        change
    }

    /// What its agent has said so far. Means something only while the cluster has an agent check.
    pub fn agent(&self) -> Report {
        Report::from_bits(self.agent.load(Ordering::Acquire))
    }

    pub(crate) fn set_agent(&self, report: Report) {
        self.agent.store(report.to_bits(), Ordering::Release);
    }

    /// Replaces what checks told.
    pub(crate) fn set_health(&self, health: Health) {
        self.health.store(health.to_bits(), Ordering::Release);
    }

    /// Takes a place, if fewer than `max` are taken.
    ///
    /// With a bound the operations are sequentially consistent: the queue relies on one order of places and waiters.
    #[inline]
    pub(crate) fn try_take(&self, max: Option<u32>) -> bool {
        match max {
            None => {
                self.hot.in_flight.fetch_add(1, Ordering::Relaxed);
                true
            }
            Some(max) => take_below(&self.hot.in_flight, max, Ordering::SeqCst),
        }
    }

    /// Whether [`Self::try_take`] would have failed a moment ago. In the same order as the counts that the queue relies
    /// on: who has just enqueued must not read a count from before.
    #[inline]
    pub(crate) fn is_full(&self, max: Option<u32>) -> bool {
        max.is_some_and(|max| self.hot.in_flight.load(Ordering::SeqCst) >= max)
    }

    /// Those who wait for a place here and nowhere else. In the order of [`ClusterState::waiting`].
    #[inline]
    pub(crate) fn awaiting(&self) -> &AtomicU32 {
        &self.hot.awaiting
    }

    /// Whether newcomers get nothing here: all places are taken, or whoever waits for them comes first. On the cache line
    /// that is read for the places anyway.
    #[inline]
    pub(crate) fn is_closed(&self, max: Option<u32>) -> bool {
        max.is_some_and(|max| {
            self.hot.in_flight.load(Ordering::SeqCst) >= max || self.hot.awaiting.load(Ordering::SeqCst) > 0
        })
    }

    /// Takes a place for a newcomer, who does not overtake those who wait for one here. Without a bound on places nobody
    /// does, but for the bound of the cluster, see [`crate::ClusterPlan::pick`].
    #[inline]
    pub(crate) fn try_take_new(&self, max: Option<u32>) -> bool {
        (max.is_none() || self.hot.awaiting.load(Ordering::SeqCst) == 0) && self.try_take(max)
    }

    /// Gives a place back, also that within the bound of the cluster if it was counted there; if someone waits who could
    /// use it, the first gets it.
    #[inline]
    pub(crate) fn release(&self, is_bounded: bool) {
        let before = self.hot.in_flight.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "released more often than taken");
        if is_bounded {
            self.cluster.leave();
        }
        if self.cluster.waiting() > 0 && (is_bounded || self.is_wanted()) {
            queue::dispatch(&self.cluster);
        }
    }
}

impl EndpointState {
    /// Whether anyone waits who could use a place here. Whoever begins to is counted before looking for one.
    #[cold]
    fn is_wanted(&self) -> bool {
        self.awaiting().load(Ordering::SeqCst) > 0 || self.cluster.waiting_anywhere().load(Ordering::SeqCst) > 0
    }
}

/// Adds one to `count` unless it has reached `max`. Exact: no moment sees more than `max`.
#[inline]
fn take_below(count: &AtomicU32, max: u32, order: Ordering) -> bool {
    count.fetch_update(order, order_of_load(order), |now| (now < max).then_some(now + 1)).is_ok()
}

fn order_of_load(order: Ordering) -> Ordering {
    if order == Ordering::SeqCst { Ordering::SeqCst } else { Ordering::Relaxed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_never_holds_more_connections_than_its_bound_whatever_the_number_of_threads() {
        let state = ListenerState::default();
        let most = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if state.try_open(3) {
                            most.fetch_max(state.connections(), Ordering::Relaxed);
                            state.close();
                        }
                    }
                });
            }
        });
        assert_eq!(state.connections(), 0);
        assert!((1..=3).contains(&most.into_inner()));
        assert!(!state.try_open(0));
    }

    #[test]
    fn slots_differ_among_the_living() {
        let cluster = Arc::new(ClusterState::new());
        let states: Vec<_> = (0..10).map(|_| EndpointState::new(cluster.clone())).collect();
        let mut slots: Vec<u32> = states.iter().map(|state| state.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), 10);
    }
}
