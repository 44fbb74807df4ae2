//! Runtime state that outlives plans, found again by the id of its object: listeners and clusters by name, endpoints by
//! cluster, name and address.
//!
//! A `slot` is a small number that no other living state of its kind has, so that a worker can index a table of its own
//! by it (idle connections, caches). Numbers are used again once a state is gone: an entry of such a table must hold
//! the `Arc` of its state, or compare it, before it trusts the number.

mod endpoint;
mod listener;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use model::snapshot::Endpoint;
use model::{Address, Name};

use crate::balance::{TierKey, TierState};
use crate::cluster::slot::{Slot, SlotSpace};
use crate::health::passive::Judge;
use crate::key::FairSeed;
use crate::padded::Padded;
use crate::queue::Queue;
use crate::resilience::concurrency::Adaptive;
use crate::resilience::guard::GuardState;

pub use endpoint::EndpointState;
pub use listener::ListenerState;

static SLOTS: SlotSpace = SlotSpace::new();

/// What all workers share about one cluster.
///
/// What a pick reads stands here and is written seldom; all else is made when something first needs it: most of very many clusters
/// may never see a request.
pub struct ClusterState {
    /// Dense number, unique among living clusters of the process.
    pub slot: u32,
    _slot: Slot,
    /// Read by every pick, written seldom.
    seldom: Seldom,
    busy: OnceLock<Box<Busy>>,
}

/// What a cluster needs that is used.
#[derive(Default)]
struct Busy {
    /// Endpoints of plans that made theirs at first use, as long as any plan has them.
    made: Mutex<Vec<(Name, Address, Weak<EndpointState>)>>,
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
    /// Returns the state of a cluster that is new.
    pub(crate) fn new() -> Self {
        let slot = SLOTS.take();
        Self { slot: slot.number(), _slot: slot, seldom: Seldom::default(), busy: OnceLock::new() }
    }

    #[inline]
    fn busy(&self) -> &Busy {
        self.busy.get_or_init(Box::default)
    }

    /// Returns whether anything of it was ever used.
    pub(crate) fn is_used(&self) -> bool {
        self.busy.get().is_some()
    }

    /// Returns the states of the endpoints of a plan that is used for the first time: those that another plan of this cluster has made
    /// already, and new ones.
    pub(crate) fn make_endpoints(self: &Arc<Self>, endpoints: &[Endpoint]) -> Vec<Arc<EndpointState>> {
        let mut made = self.busy().made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(_, _, state)| state.strong_count() > 0);
        // What comes now is unlike: only those from before may be the same.
        let before = made.len();
        let state_of = |endpoint: &Endpoint| {
            let is_it =
                |(name, address, _): &&(Name, Address, _)| *name == endpoint.name && *address == endpoint.address;
            let known = made[..before].iter().find(is_it).and_then(|(_, _, state)| state.upgrade());
            known.unwrap_or_else(|| {
                let state = Arc::new(EndpointState::new(Arc::clone(self)));
                made.push((endpoint.name.clone(), endpoint.address.clone(), Arc::downgrade(&state)));
                state
            })
        };
        endpoints.iter().map(state_of).collect()
    }

    /// Returns the seed by which keys of the queue are hashed; `chance` provides it once.
    pub(crate) fn fair_seed(&self, chance: &mut dyn FnMut() -> u64) -> FairSeed {
        *self.busy().fair_seed.get_or_init(|| [chance(), chance()])
    }

    /// Counts the changes of availability of its endpoints.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.seldom.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn bump_epoch(&self) {
        self.seldom.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Exchanges that wait for an endpoint. The order with respect to the counts in flight matters, see [`crate::queue`].
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.seldom.waiting.load(Ordering::SeqCst)
    }

    pub(crate) fn set_waiting(&self, count: usize) {
        self.seldom.waiting.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::SeqCst);
    }

    /// Places taken of those for all endpoints together.
    pub fn bounded(&self) -> u32 {
        self.busy.get().map_or(0, |busy| busy.bounded.load(Ordering::Relaxed))
    }

    /// Returns those of [`Self::waiting`] who do not wait for one endpoint alone.
    #[inline]
    pub(crate) fn waiting_anywhere(&self) -> &AtomicU32 {
        &self.seldom.waiting_anywhere
    }

    /// Returns whether [`Self::enter`] would have failed a moment ago, in the same order.
    pub(crate) fn is_at(&self, max: u32) -> bool {
        self.busy().bounded.load(Ordering::SeqCst) >= max
    }

    /// Takes one of `max` places for all endpoints together. In the same order as the counts that the queue relies on.
    pub(crate) fn enter(&self, max: u32) -> bool {
        take_below(&self.busy().bounded, max, Ordering::SeqCst)
    }

    /// Gives it back; what follows from that is left to the caller.
    pub(crate) fn leave(&self) {
        let before = self.busy().bounded.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "left more often than entered");
    }

    /// Returns what workers share about the tier of this key.
    pub(crate) fn tier(&self, key: TierKey) -> Arc<TierState> {
        let mut tiers = self.busy().tiers.lock().unwrap_or_else(PoisonError::into_inner);
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
        let tiers = self.busy().tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let living = tiers.iter().filter_map(|(key, tier)| Some((*key, tier.upgrade()?)));
        let copy = |(key, tier): (TierKey, Arc<TierState>)| {
            let copied = other.tier(key);
            copied.copy_from(&tier);
            copied
        };
        living.map(copy).collect()
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.busy().queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn adaptive(&self) -> &Arc<Adaptive> {
        self.busy().adaptive.get_or_init(Arc::default)
    }

    pub(crate) fn guard(&self) -> &Arc<GuardState> {
        self.busy().guard.get_or_init(Arc::default)
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.busy().judge.lock().unwrap_or_else(PoisonError::into_inner)
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
