//! Before a cluster gets work: asks its guard, counts what is refused, and says which fault that is.

use std::time::Instant;

use model::Fault;
use model::resilience::Refusal;
use plan::{ClusterPlan, Pass};

use crate::worker::Worker;
use crate::worker_plan::ClusterNow;

/// The cluster that an attempt is for, and the worker that makes it.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'p> {
    pub worker: &'p Worker,
    pub cluster: &'p ClusterPlan,
    pub now: &'p ClusterNow,
}

impl Gate<'_> {
    /// Lets an attempt in before it looks for an endpoint.
    #[inline]
    pub(crate) fn let_in(self, pass: &mut Option<Pass>, at: Instant) -> Result<(), Fault> {
        if self.cluster.is_guarded() { self.told(self.cluster.let_in(pass, at)) } else { Ok(()) }
    }

    /// Lets it have a connection to the endpoint that it got, perhaps after a wait.
    #[inline]
    pub(crate) fn occupy(self, pass: &mut Option<Pass>, waited_until: Option<Instant>) -> Result<(), Fault> {
        if !self.cluster.is_guarded() {
            return Ok(());
        }
        if let Some(at) = waited_until {
            self.told(self.cluster.let_in_still(pass, at))?;
        }
        self.told(self.cluster.occupy(pass))
    }

    /// Whether there may be an attempt after the first.
    pub(crate) fn may_retry(self, pass: &mut Option<Pass>) -> bool {
        !self.cluster.is_guarded() || self.told(self.cluster.let_retry(pass)).is_ok()
    }

    fn told(self, outcome: Result<(), Refusal>) -> Result<(), Fault> {
        outcome.map_err(|refusal| {
            self.now.series.of(self.worker.index).refused(refusal);
            refusal.fault()
        })
    }
}

/// What a full queue means: the bound of the circuit breaker comes first.
pub(crate) fn queue_full(worker: &Worker, now: &ClusterNow) -> Fault {
    let cluster = &now.plan.cluster;
    let breaker = cluster.resilience.breaker.as_ref();
    let is_breaker = |max| cluster.queue.as_ref().is_some_and(|queue| max <= queue.requests_max);
    if breaker.and_then(|breaker| breaker.pending_max).is_some_and(is_breaker) {
        now.series.of(worker.index).refused(Refusal::Pending);
        return Refusal::Pending.fault();
    }
    Fault::QueueFull
}

/// What it means that there is no room, and no queue to wait in.
pub(crate) fn full(worker: &Worker, now: &ClusterNow) -> Fault {
    // That of an endpoint alone can be full as well; which of the two it was cannot be told any more.
    if now.plan.adaptive_limit().is_some() {
        now.series.of(worker.index).refused(Refusal::Concurrency);
        return Refusal::Concurrency.fault();
    }
    Fault::QueueFull
}
