//! What time brings to clusters without anyone asking: ejections that end, intervals that are over.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use plan::breaker::Phase;
use plan::{ClusterPlan, Event, Plan};
use tokio::time::Instant;

/// So late at most does anything happen.
const EVERY: Duration = Duration::from_millis(100);

/// The clusters of the active plan whose state changes with time.
#[derive(Default)]
pub(super) struct Ticks {
    clusters: Vec<Arc<ClusterPlan>>,
    next: Option<Instant>,
}

impl Ticks {
    /// When the next tick is due; `None` while time changes nothing.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Follows this plan from now on.
    pub(super) fn follow(&mut self, plan: &Plan) {
        // While another plan is tried a cluster may be there twice, with one state.
        let mut seen = HashSet::new();
        let first = |cluster: &&Arc<ClusterPlan>| seen.insert(Arc::as_ptr(&cluster.state));
        self.clusters = plan.clusters.iter().filter(|cluster| cluster.needs_ticks()).filter(first).cloned().collect();
        self.next = (!self.clusters.is_empty()).then(|| self.next.unwrap_or_else(Instant::now));
    }

    /// One tick.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        for cluster in &self.clusters {
            for event in cluster.tick(now.into_std()) {
                tell(cluster, &event);
            }
        }
        self.next = Some(now + EVERY);
    }
}

fn tell(plan: &ClusterPlan, event: &Event) {
    let cluster = &plan.cluster.name;
    match event {
        Event::Released { endpoint } => {
            telemetry::log::info("endpoint is no longer ejected", &[("cluster", cluster), ("endpoint", endpoint)]);
        }
        Event::Circuit(phase) => {
            let pairs: telemetry::log::Pairs<'_> = &[("cluster", cluster)];
            match phase {
                Phase::Open => telemetry::log::warn("circuit opened: too many requests of the cluster fail", pairs),
                Phase::HalfOpen => {
                    telemetry::log::info("circuit half-open: a few trial requests are let through", pairs)
                }
                Phase::Closed => telemetry::log::info("circuit closed", pairs),
            }
        }
        Event::Panic { begins, fit } => {
            let fit = format!("{} of {}", fit.0, fit.1);
            let pairs: telemetry::log::Pairs<'_> = &[("cluster", cluster), ("fit", &fit)];
            match begins {
                true => telemetry::log::warn(
                    "panic threshold reached: too few endpoints are healthy, all get requests",
                    pairs,
                ),
                false => telemetry::log::info("panic mode ended: enough endpoints are healthy", pairs),
            }
        }
        Event::Ejected { endpoint, evidence, lasts, ejected } => {
            let (lasts, ejected) = (format!("{lasts:?}"), format!("{} of at most {}", ejected.0, ejected.1));
            let pairs: telemetry::log::Pairs<'_> = &[
                ("cluster", cluster),
                ("endpoint", endpoint),
                ("cause", &evidence.cause().as_str()),
                ("reason", evidence),
                ("for", &lasts),
                ("ejected", &ejected),
            ];
            telemetry::log::warn("endpoint is ejected", pairs);
        }
    }
}
