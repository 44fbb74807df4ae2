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
mod reasons;
mod schedule;
mod script;
mod step;
mod steps;
#[cfg(test)]
mod tests;
mod ticks;
pub(crate) mod tls;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use plan::Plan;
use tokio::sync::watch;

pub use reasons::Reasons;

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
