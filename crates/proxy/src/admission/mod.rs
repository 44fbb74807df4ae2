//! Admission of an attempt to a cluster: how exchanges, streams and flows get an endpoint.
//!
//! ```text
//!  guard ──► pick ─── endpoint ──────────────────► guard ──► counted: Admitted
//!    │         │ no room                             │
//!    │         └──► queue ──► endpoint ──► guard ────┤
//!    │                │                              │
//!    └────────────────┴──────── fault ───────────────┘
//! ```
//! What comes before (the session, the key) and after (the session, the next attempt) differs, and stays with each of the three.

mod guard;
mod queue;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Fault;
use model::queue::Precedence;
use plan::{Ask, ClusterPlan, EndpointPlan, LastResort, Lease, Pass, Pick};

use crate::connection::Connection;
use crate::worker::Worker;
use crate::worker_plan::{ClusterLocal, EndpointLocal, WorkerPlan};

pub(crate) use guard::Gate;

/// An endpoint of a cluster, each with what this worker has for it.
#[derive(Clone, Copy)]
pub(crate) struct Aim<'p> {
    pub local: &'p Rc<ClusterLocal>,
    pub endpoint: &'p EndpointPlan,
    pub endpoint_local: &'p Rc<EndpointLocal>,
}

impl<'p> Aim<'p> {
    /// Returns the cluster of the endpoint.
    #[inline]
    pub(crate) fn cluster(&self) -> &'p Arc<ClusterPlan> {
        &self.local.plan
    }
}

/// The cluster that an attempt is for, and the worker that makes it.
#[derive(Clone, Copy)]
pub(crate) struct Admission<'p> {
    pub worker: &'p Worker,
    pub plan: &'p WorkerPlan,
    pub local: &'p Rc<ClusterLocal>,
}

/// An attempt that may wait for its endpoint.
pub(crate) struct Entrant<'a> {
    /// The client, which may leave during the wait.
    pub connection: &'a mut Connection,
    /// What the attempt holds of the bounds of the cluster.
    pub pass: &'a mut Option<Pass>,
    /// The time; updated after a wait.
    pub now: &'a mut Instant,
    /// The wait is added here, however it ends.
    pub queued: &'a mut Duration,
}

/// Where an attempt stands among others if it has to wait, and what it accepts.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub precedence: Precedence,
    /// The key by which those who wait take turns.
    pub key: Option<u64>,
    /// How long it waits at most, if that is shorter than the queue allows.
    pub patience_ms: u32,
    /// What it takes when no other endpoint has room.
    pub last_resort: LastResort,
}

impl Default for Place {
    fn default() -> Self {
        let (precedence, last_resort) = (Precedence::default(), LastResort::Backups);
        Self { precedence, key: None, patience_ms: u32::MAX, last_resort }
    }
}

/// An attempt that has its place at an endpoint.
pub(crate) struct Admitted<'p> {
    pub lease: Lease,
    pub aim: Aim<'p>,
}

impl<'p> Admission<'p> {
    /// Admits an attempt, which waits in the queue of the cluster, if it has one, until an endpoint has room.
    ///
    /// # Errors
    /// [`Fault::NoEndpoint`], [`Fault::EmptyCluster`], [`Fault::QueueFull`], [`Fault::CircuitFull`], [`Fault::ConcurrencyLimit`],
    /// [`Fault::Shed`], [`Fault::QueueTimeout`], [`Fault::ClosedInQueue`], what the guard of the cluster refuses by, or the fault
    /// of an earlier deadline of the watch.
    pub(crate) async fn admit(self, entrant: Entrant<'_>, ask: &Ask<'_>, place: &Place) -> Result<Admitted<'p>, Fault> {
        self.gate().let_in(entrant.pass, ask.now)?;
        match self.pick(ask)? {
            Some(lease) => self.settle(lease, ask, entrant.pass),
            // Waiters get regular endpoints only.
            None if ask.last_resort == LastResort::OnlyBackups => Err(self.gate().full()),
            // Boxed: waiting is rare, and its state would make every exchange larger.
            None => Box::pin(self.admit_from_queue(entrant, ask, place)).await,
        }
    }

    /// Admits an attempt that cannot wait.
    ///
    /// # Errors
    /// As [`Admission::admit`], without those of a queue.
    pub(crate) fn admit_at_once(self, pass: &mut Option<Pass>, ask: &Ask<'_>) -> Result<Admitted<'p>, Fault> {
        self.gate().let_in(pass, ask.now)?;
        let lease = self.pick(ask)?.ok_or_else(|| self.gate().full())?;
        self.settle(lease, ask, pass)
    }

    async fn admit_from_queue(
        self,
        mut entrant: Entrant<'_>,
        ask: &Ask<'_>,
        place: &Place,
    ) -> Result<Admitted<'p>, Fault> {
        let before = *entrant.queued;
        let lease = self.wait(&mut entrant, ask, place).await?;
        self.check_repeat(&lease, ask)?;
        if *entrant.queued > before {
            *entrant.now = Instant::now();
            self.gate().let_in_still(entrant.pass, *entrant.now)?;
        }
        self.settle(lease, ask, entrant.pass)
    }

    /// Returns a place at an endpoint, or `None` if all are full.
    #[inline]
    fn pick(&self, ask: &Ask<'_>) -> Result<Option<Lease>, Fault> {
        let cluster = &*self.local.plan;
        match cluster.pick(&mut self.local.cache.borrow_mut(), &mut || self.worker.random.next(), ask) {
            Pick::Endpoint(lease) => Ok(Some(lease)),
            Pick::Full => Ok(None),
            Pick::None => Err(none(cluster)),
        }
    }

    /// Checks that another attempt does not go to an endpoint that has failed, unless the rules allow that. The queue grants such a
    /// place only if the configuration has changed during the wait.
    #[inline]
    fn check_repeat(&self, lease: &Lease, ask: &Ask<'_>) -> Result<(), Fault> {
        let would_repeat = ask.last_resort != LastResort::Repeat && ask.tried.contains(&lease.state().slot);
        if would_repeat { Err(Fault::NoEndpoint) } else { Ok(()) }
    }

    /// Takes the place within the bounds of the cluster, and counts the pick.
    #[inline]
    fn settle(&self, lease: Lease, ask: &Ask<'_>, pass: &mut Option<Pass>) -> Result<Admitted<'p>, Fault> {
        self.check_repeat(&lease, ask)?;
        self.gate().occupy(pass)?;
        let local = self.local;
        let endpoint = &local.plan.endpoints[lease.endpoint_index()];
        let endpoint_local = self.plan.endpoint(&endpoint.state).ok_or(Fault::NoEndpoint)?;
        local.series.of(self.worker.index).picked(lease.reason());
        Ok(Admitted { lease, aim: Aim { local, endpoint, endpoint_local } })
    }

    #[inline]
    fn gate(&self) -> Gate<'p> {
        Gate { worker: self.worker, local: self.local }
    }
}

/// Returns the fault of a cluster in which no endpoint is available. Requests do not wait for endpoints of an empty cluster, because none
/// may ever be added.
#[cold]
fn none(cluster: &ClusterPlan) -> Fault {
    if cluster.cluster.endpoints.is_empty() { Fault::EmptyCluster } else { Fault::NoEndpoint }
}
