//! What all workers share about one endpoint: its places, and what is known of its health.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use model::snapshot::HealthCheck;

use super::{ClusterState, take_below};
use crate::balance::response_time::ResponseTime;
use crate::cluster::slot::{Slot, SlotSpace};
use crate::health::agent::Report;
use crate::health::passive::{Ejection, PassiveState};
use crate::health::ramp::Ramp;
use crate::health::{Change, Health, HealthState, Outcome};
use crate::queue;

static SLOTS: SlotSpace = SlotSpace::new();

/// What all workers share about one endpoint. With the counts of its `Arc`, which every exchange there writes as well, it fills two
/// cache lines and no more: there may be a hundred thousand. Allocators align what is of that size to it.
pub struct EndpointState {
    /// Dense number, unique among living endpoints of the process.
    pub slot: u32,
    _slot: Slot,
    cluster: Arc<ClusterState>,
    /// A [`Health`] in one word; written by the one owner of the probe.
    health: AtomicU64,
    hot: Hot,
    /// What its agent said, a [`Report`] in one word.
    agent: AtomicU32,
    /// Moves only while the cluster has a slow start.
    pub(crate) ramp: Ramp,
    /// Made at first use: without passive health it costs a pointer.
    passive: OnceLock<Box<PassiveState>>,
}

/// What picks of an endpoint read.
#[derive(Default)]
struct Hot {
    in_flight: AtomicU32,
    /// Those who wait for a place here and nowhere else.
    awaiting: AtomicU32,
    /// Known only while a balancer wants it.
    response_time: ResponseTime,
}

impl EndpointState {
    /// Returns the state of an endpoint that is new.
    pub(crate) fn new(cluster: Arc<ClusterState>) -> Self {
        let slot = SLOTS.take();
        Self {
            slot: slot.number(),
            _slot: slot,
            cluster,
            health: AtomicU64::new(Health::default().to_bits()),
            hot: Hot::default(),
            agent: AtomicU32::new(0),
            ramp: Ramp::default(),
            passive: OnceLock::new(),
        }
    }

    /// Returns a state with what balancers look at as it is in `original`: places taken, those who wait for them alone, and times. The
    /// places are no one's.
    pub(crate) fn rehearsed(original: &Self, cluster: Arc<ClusterState>) -> Self {
        let state = Self::new(cluster);
        state.hot.in_flight.store(original.in_flight(), Ordering::Relaxed);
        state.hot.awaiting.store(original.awaiting().load(Ordering::Relaxed), Ordering::Relaxed);
        state.hot.response_time.copy_from(&original.hot.response_time);
        state
    }

    /// Returns the cluster it belongs to.
    pub fn cluster(&self) -> &Arc<ClusterState> {
        &self.cluster
    }

    /// Exchanges or connections that hold a place now.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.hot.in_flight.load(Ordering::Relaxed)
    }

    /// Returns how long it takes to answer.
    #[inline]
    pub(crate) fn response_time(&self) -> &ResponseTime {
        &self.hot.response_time
    }

    /// Returns what the checks told so far. Means something only while the cluster has a check; see [`crate::ClusterPlan::is_up`].
    pub fn health(&self) -> Health {
        Health::from_bits(self.health.load(Ordering::Acquire))
    }

    /// Returns `unknown`, `up` or `down`.
    pub fn health_state(&self) -> HealthState {
        self.health().state()
    }

    /// Returns what is known of its ejections; `None` when there never was passive health.
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

    /// Returns what its agent has said so far. Means something only while the cluster has an agent check.
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

    /// Returns whether [`Self::try_take`] would have failed a moment ago. In the same order as the counts that the queue relies on: who has
    /// just enqueued must not read a count from before.
    #[inline]
    pub(crate) fn is_full(&self, max: Option<u32>) -> bool {
        max.is_some_and(|max| self.hot.in_flight.load(Ordering::SeqCst) >= max)
    }

    /// Returns those who wait for a place here and nowhere else. In the order of [`ClusterState::waiting`].
    #[inline]
    pub(crate) fn awaiting(&self) -> &AtomicU32 {
        &self.hot.awaiting
    }

    /// Returns whether newcomers get nothing here: all places are taken, or waiting requests come first. On the cache line that is
    /// read for the places anyway.
    #[inline]
    pub(crate) fn is_closed(&self, max: Option<u32>) -> bool {
        max.is_some_and(|max| {
            self.hot.in_flight.load(Ordering::SeqCst) >= max || self.hot.awaiting.load(Ordering::SeqCst) > 0
        })
    }

    /// Takes a place for a newcomer, who does not overtake those who wait for one here. Without a bound on places no one
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
    /// Returns whether anyone waits who could use a place here. A request that begins to wait is counted before it looks for one.
    #[cold]
    fn is_wanted(&self) -> bool {
        self.awaiting().load(Ordering::SeqCst) > 0 || self.cluster.waiting_anywhere().load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_and_its_counts_fill_two_cache_lines() {
        let counts = 2 * size_of::<usize>();
        assert!((65..=128).contains(&(size_of::<EndpointState>() + counts)), "{}", size_of::<EndpointState>());
    }
}
