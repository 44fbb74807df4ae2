//! The bounds of a cluster: asks its guard, counts refusals, and maps each to its fault.

use std::time::Instant;

use model::Fault;
use model::resilience::Refusal;
use plan::Pass;

use crate::worker::Worker;
use crate::worker_plan::ClusterLocal;

/// The guard of a cluster as a worker asks it.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'p> {
    pub worker: &'p Worker,
    pub local: &'p ClusterLocal,
}

impl Gate<'_> {
    /// Lets an attempt in before it looks for an endpoint.
    #[inline]
    pub(super) fn let_in(self, pass: &mut Option<Pass>, at: Instant) -> Result<(), Fault> {
        let cluster = &self.local.plan;
        if cluster.is_guarded() { self.counted(cluster.let_in(pass, at)) } else { Ok(()) }
    }

    /// The same after a wait, during which the circuit may have opened.
    pub(super) fn let_in_still(self, pass: &mut Option<Pass>, at: Instant) -> Result<(), Fault> {
        let cluster = &self.local.plan;
        if cluster.is_guarded() { self.counted(cluster.let_in_still(pass, at)) } else { Ok(()) }
    }

    /// Lets it have a connection to the endpoint that it got.
    #[inline]
    pub(super) fn occupy(self, pass: &mut Option<Pass>) -> Result<(), Fault> {
        let cluster = &self.local.plan;
        if cluster.is_guarded() { self.counted(cluster.occupy(pass)) } else { Ok(()) }
    }

    /// Returns whether there may be an attempt after the first.
    pub(crate) fn may_retry(self, pass: &mut Option<Pass>) -> bool {
        let cluster = &self.local.plan;
        !cluster.is_guarded() || self.counted(cluster.let_retry(pass)).is_ok()
    }

    fn counted(self, outcome: Result<(), Refusal>) -> Result<(), Fault> {
        outcome.map_err(|refusal| self.refuse(refusal))
    }

    /// Counts a refusal and returns its fault.
    fn refuse(self, refusal: Refusal) -> Fault {
        self.local.series.of(self.worker.index).refused(refusal);
        refusal.fault()
    }

    /// Returns the fault of a full queue. The bound of the circuit breaker comes first.
    pub(super) fn queue_full(self) -> Fault {
        let cluster = &self.local.plan.cluster;
        let breaker = cluster.resilience.breaker.as_ref();
        let is_breaker = |max| cluster.queue.as_ref().is_some_and(|queue| max <= queue.requests_max);
        if breaker.and_then(|breaker| breaker.pending_max).is_some_and(is_breaker) {
            return self.refuse(Refusal::Pending);
        }
        Fault::QueueFull
    }

    /// Returns the fault of an attempt that finds no room and no queue.
    pub(super) fn full(self) -> Fault {
        // That of an endpoint alone can be full as well; which of the two it was is not known any more.
        if self.local.plan.adaptive_limit().is_some() {
            return self.refuse(Refusal::Concurrency);
        }
        Fault::QueueFull
    }
}
