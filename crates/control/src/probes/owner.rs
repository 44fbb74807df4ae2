//! The owner of all probes: starts, keeps and stops them as plans come.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use model::fitness::AdminState;
use model::proxy_protocol::SendProxy;
use model::snapshot::{HealthCheck, SharedVersion, UpstreamTls};
use model::{Address, Name};
use plan::{ClusterPlan, EndpointPlan, EndpointState, HealthState, Outcome, Plan};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::agent::Agents;
use super::progress::Kept;
use super::reasons::Reasons;
use super::schedule;
use super::step::{Shared, only_version};
use super::steps::Sequence;
use super::ticks::Ticks;

/// Cluster and endpoint.
type Key = (Name, Name);

/// Probes in flight at once; others wait for their turn.
const PROBES_AT_ONCE_MAX: usize = 256;

/// Follows the plans until their sender is gone.
pub(super) async fn run(mut plans: watch::Receiver<Arc<Plan>>, reasons: Arc<Reasons>) {
    let mut agents = Agents::new(Arc::clone(&reasons));
    let mut owner = Owner { reasons, turns: Rc::new(Semaphore::new(PROBES_AT_ONCE_MAX)), probes: HashMap::new() };
    let mut ticks = Ticks::default();
    loop {
        let changed = match ticks.next() {
            Some(next) => tokio::time::timeout_at(next, plans.changed()).await,
            None => Ok(plans.changed().await),
        };
        match changed {
            Ok(Ok(())) => {
                let plan = Arc::clone(&plans.borrow_and_update());
                owner.reconcile(&plan);
                agents.follow(&plan);
                ticks.follow(&plan);
            }
            Ok(Err(_)) => return,
            Err(_) => ticks.tick(),
        }
    }
}

struct Owner {
    reasons: Arc<Reasons>,
    turns: Rc<Semaphore>,
    probes: HashMap<Key, Probe>,
}

/// The probe of one endpoint.
struct Probe {
    what: What,
    state: Arc<EndpointState>,
    seat: Rc<RefCell<Seat>>,
    task: JoinHandle<()>,
}

/// A probe goes on as it is as long as this is the same.
#[derive(PartialEq)]
struct What {
    address: Address,
    check: Arc<HealthCheck>,
    tls: Option<UpstreamTls>,
    header: Option<SendProxy>,
    /// The version of HTTP that the endpoint speaks alone.
    only: Option<SharedVersion>,
}

/// Where the outcome of a probe goes; changes from plan to plan while the probe runs on.
struct Seat {
    cluster: Arc<ClusterPlan>,
    index: usize,
    /// No plan that is followed has the endpoint: the probe ends with the last exchange there.
    is_gone: bool,
}

impl Seat {
    fn state(&self) -> &EndpointState {
        &self.cluster.endpoints[self.index].state
    }
}

impl Owner {
    fn reconcile(&mut self, plan: &Plan) {
        let mut before = std::mem::take(&mut self.probes);
        for cluster in &plan.clusters {
            let Some(check) = &cluster.cluster.health_check else { continue };
            let check = Arc::new(check.clone());
            let only = only_version(&cluster.cluster);
            let mut shared = None;
            for (index, endpoint) in cluster.endpoints.iter().enumerate() {
                if endpoint.endpoint.state == AdminState::Maintenance {
                    continue;
                }
                let key = (cluster.cluster.name.clone(), endpoint.endpoint.name.clone());
                // Of a cluster that is there twice, while another plan is tried, the first says how it is asked.
                if self.probes.contains_key(&key) {
                    continue;
                }
                let what = What {
                    address: endpoint.endpoint.address.clone(),
                    check: Arc::clone(&check),
                    tls: cluster.cluster.tls.clone(),
                    header: cluster.cluster.proxy_protocol.clone(),
                    only,
                };
                let seat = Seat { cluster: Arc::clone(cluster), index, is_gone: false };
                let probe = match before.remove(&key) {
                    Some(kept) if kept.what == what && Arc::ptr_eq(&kept.state, &endpoint.state) => {
                        kept.seat.replace(seat);
                        kept
                    }
                    old => {
                        stop(old);
                        let tls = what.tls.as_ref();
                        let shared = shared.get_or_insert_with(|| Shared::of(&check, tls, only));
                        self.start(&key, what, seat, (endpoint, shared))
                    }
                };
                self.probes.insert(key, probe);
            }
        }
        for (key, probe) in before {
            self.reasons.probe.set(&key, None);
            if probe.state.in_flight() == 0 {
                stop(Some(probe));
            } else {
                // Exchanges and streams of earlier plans still are there: it is asked until they have ended.
                probe.seat.borrow_mut().is_gone = true;
            }
        }
    }

    fn start(&self, key: &Key, what: What, seat: Seat, (endpoint, shared): (&EndpointPlan, &[Shared])) -> Probe {
        let seat = Rc::new(RefCell::new(seat));
        let rounds = Rounds {
            sequence: Sequence::new(&what.check, shared, (&key.1, &what.address), what.header.as_ref()),
            key: key.clone(),
            check: Arc::clone(&what.check),
            seat: Rc::clone(&seat),
            turns: Rc::clone(&self.turns),
            reasons: Arc::clone(&self.reasons),
        };
        let task = tokio::task::spawn_local(rounds.run());
        Probe { what, state: Arc::clone(&endpoint.state), seat, task }
    }
}

fn stop(probe: Option<Probe>) {
    if let Some(probe) = probe {
        probe.task.abort();
    }
}

/// Asks one endpoint again and again.
struct Rounds {
    key: Key,
    sequence: Sequence,
    check: Arc<HealthCheck>,
    seat: Rc<RefCell<Seat>>,
    turns: Rc<Semaphore>,
    reasons: Arc<Reasons>,
}

impl Rounds {
    async fn run(self) {
        let (cluster, endpoint) = (&self.key.0, &self.key.1);
        tokio::time::sleep(schedule::first_delay(cluster, endpoint, self.check.interval)).await;
        let mut kept = None;
        for round in 0_u64.. {
            let begun = Instant::now();
            let found = self.ask(&mut kept).await;
            if self.is_over() {
                return;
            }
            self.take_in(found);
            let interval = self.interval();
            let delay = match round {
                0 => schedule::second_delay(cluster, endpoint, interval),
                _ => schedule::jittered(interval, self.check.jitter_percent, (cluster, endpoint), round),
            };
            // From start to start; a probe that took longer than the interval is followed by the next at once.
            tokio::time::sleep_until(begun + delay).await;
        }
    }

    /// Returns whether the endpoint is removed and no request is in flight there.
    fn is_over(&self) -> bool {
        let seat = self.seat.borrow();
        seat.is_gone && seat.state().in_flight() == 0
    }

    /// Time to the next round, as the endpoint stands.
    fn interval(&self) -> Duration {
        let health = self.seat.borrow().state().health();
        match health.state() {
            _ if health.against() > 0 => self.check.interval_changing,
            HealthState::Down => self.check.interval_down,
            HealthState::Up | HealthState::Unknown => self.check.interval,
        }
    }

    async fn ask(&self, kept: &mut Kept) -> Result<(), String> {
        // The time spent waiting for a turn is not held against the endpoint. The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        self.sequence.attempt(kept).await
    }

    fn take_in(&self, found: Result<(), String>) {
        let outcome = if found.is_ok() { Outcome::Success } else { Outcome::Failure };
        let reason = found.err();
        let seat = self.seat.borrow();
        if !seat.is_gone {
            self.reasons.probe.set(&self.key, reason.as_deref());
        }
        if let Some(change) = seat.cluster.observe(seat.index, outcome) {
            self.tell(change.to, reason.as_deref());
        }
    }

    fn tell(&self, now: HealthState, reason: Option<&str>) {
        let (cluster, endpoint) = (&self.key.0, &self.key.1);
        match reason {
            None => telemetry::log::info("endpoint is up", &[("cluster", cluster), ("endpoint", endpoint)]),
            Some(reason) => {
                debug_assert_eq!(now, HealthState::Down, "a failure only ever leads there");
                let pairs: telemetry::log::Pairs<'_> =
                    &[("cluster", cluster), ("endpoint", endpoint), ("reason", &reason)];
                telemetry::log::warn("endpoint is down", pairs);
            }
        }
    }
}
