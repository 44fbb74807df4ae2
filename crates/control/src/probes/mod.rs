//! Active health checks: one owner asks each endpoint that has a check, whatever the number of workers.
//!
//! All probes live on one thread. A new plan is compared with what runs: an endpoint whose address, check and TLS stayed
//! the same keeps its schedule and what is known of it; what is gone stops, what is new starts soon.

mod agent;
mod attempt;
mod grpc;
mod http;
mod http2;
mod http3;
mod owner;
pub(crate) mod progress;
mod schedule;
mod script;
mod step;
mod steps;
#[cfg(test)]
mod tests;
mod ticks;
pub(crate) mod tls;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use model::Name;
use plan::Plan;
use tokio::sync::watch;

/// Probes on their way at once; others wait for their turn.
const PROBES_AT_ONCE_MAX: usize = 256;
/// Characters of a reason that are kept.
const REASON_CHARS_MAX: usize = 200;

/// The thread that probes. Dropping it ends all probes.
#[derive(Debug)]
pub struct Probes {
    /// Only the latest plan matters.
    plans: Option<watch::Sender<Arc<Plan>>>,
    thread: Option<JoinHandle<()>>,
}

impl Probes {
    /// Starts the thread, which has nothing to do until [`Self::follow`].
    ///
    /// # Errors
    /// The system has no thread or no poll instance left.
    pub fn start(reasons: Arc<Reasons>) -> io::Result<Self> {
        let (plans, latest) = watch::channel(Arc::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("probes".into()).spawn(move || {
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, owner::run(latest, reasons));
        })?;
        Ok(Self { plans: Some(plans), thread: Some(thread) })
    }

    /// Probes what this plan says from now on.
    pub fn follow(&self, plan: Arc<Plan>) {
        if let Some(plans) = &self.plans {
            plans.send_replace(plan);
        }
    }
}

/// A plan for [`Probes::follow`] alone: with the endpoints of both, those of the first as it has them.
pub(crate) fn both(first: &Plan, second: &Plan) -> Arc<Plan> {
    let known: HashSet<_> = first.clusters.iter().map(Arc::as_ptr).collect();
    let more = second.clusters.iter().filter(|cluster| !known.contains(&Arc::as_ptr(cluster)));
    Arc::new(Plan { clusters: first.clusters.iter().chain(more).cloned().collect(), ..Plan::default() })
}

impl Drop for Probes {
    fn drop(&mut self) {
        // Without a sender the owner returns, and its tasks end where they wait.
        self.plans = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

/// Why endpoints are not well, as their last probe that failed and their agents said.
#[derive(Debug, Default)]
pub struct Reasons {
    pub(crate) probe: ReasonsByEndpoint,
    pub(crate) agent: ReasonsByEndpoint,
}

impl Reasons {
    /// Why the endpoint of that cluster is not well, if its last probe failed or its agent says so.
    pub fn get(&self, cluster: &Name, endpoint: &Name) -> Option<String> {
        let key = (cluster.clone(), endpoint.clone());
        self.probe.get(&key).or_else(|| self.agent.get(&key))
    }
}

/// Nothing for those that are well. As many as there are endpoints.
#[derive(Debug, Default)]
pub(crate) struct ReasonsByEndpoint(Mutex<BTreeMap<(Name, Name), String>>);

impl ReasonsByEndpoint {
    fn get(&self, key: &(Name, Name)) -> Option<String> {
        self.lock().get(key).cloned()
    }

    fn set(&self, key: &(Name, Name), reason: Option<&str>) {
        let mut reasons = self.lock();
        match reason {
            Some(reason) => _ = reasons.insert(key.clone(), reason.chars().take(REASON_CHARS_MAX).collect()),
            None => _ = reasons.remove(key),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Name, Name), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
