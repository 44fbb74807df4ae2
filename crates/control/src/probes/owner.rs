//! The owner of all probes: starts, keeps and stops them as plans come.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use model::fitness::AdminState;
use model::proxy_protocol::SendProxy;
use model::snapshot::{Cluster, HealthCheck, HealthCheckKind, SharedVersion, UpstreamTls};
use model::{Address, Name};
use plan::{ClusterPlan, EndpointPlan, EndpointState, HealthState, Outcome, Plan};
use rustls::ClientConfig;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::agent::Agents;
use super::attempt::{Kept, Target};
use super::ticks::Ticks;
use super::{PROBES_AT_ONCE_MAX, Reasons, schedule, tls};

/// Cluster and endpoint.
type Key = (Name, Name);

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
    check: HealthCheck,
    tls: Option<UpstreamTls>,
    header: Option<SendProxy>,
    /// It goes over HTTP/3.
    is_http3: bool,
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
            let mut client = None;
            let is_http3 = goes_over_http3(&cluster.cluster, check);
            let protocols: &[&[u8]] = match check.kind {
                _ if is_http3 => &[tls::HTTP3],
                HealthCheckKind::Grpc(_) => &[tls::HTTP2],
                _ => &[],
            };
            for (index, endpoint) in cluster.endpoints.iter().enumerate() {
                if endpoint.endpoint.state == AdminState::Maintenance {
                    continue;
                }
                let key = (cluster.cluster.name.clone(), endpoint.endpoint.name.clone());
                // Of a cluster that is there twice, while another plan is tried, the first says how it is asked.
                if self.probes.contains_key(&key) {
                    continue;
                }
                let tls = match &check.kind {
                    HealthCheckKind::Tls(settings) => Some(settings.clone()),
                    _ => cluster.cluster.tls.clone(),
                };
                let address = endpoint.endpoint.address.clone();
                // At another port somebody else may listen, who knows nothing of it.
                let is_there = check.port.is_none_or(|port| Some(port) == address.port());
                let header = cluster.cluster.proxy_protocol.clone().filter(|_| is_there);
                let what = What { address, check: check.clone(), tls, header, is_http3 };
                let seat = Seat { cluster: Arc::clone(cluster), index, is_gone: false };
                let probe = match before.remove(&key) {
                    Some(kept) if kept.what == what && Arc::ptr_eq(&kept.state, &endpoint.state) => {
                        kept.seat.replace(seat);
                        kept
                    }
                    old => {
                        stop(old);
                        let client = client.get_or_insert_with(|| {
                            what.tls.as_ref().map(|settings| tls::client(settings, protocols)).transpose()
                        });
                        self.start(&key, what, seat, endpoint, client)
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

    fn start(
        &self,
        key: &Key,
        what: What,
        seat: Seat,
        endpoint: &EndpointPlan,
        client: &Result<Option<Arc<ClientConfig>>, String>,
    ) -> Probe {
        let seat = Rc::new(RefCell::new(seat));
        let rounds = Rounds {
            target: target(&what, &key.1, client),
            key: key.clone(),
            check: what.check.clone(),
            seat: Rc::clone(&seat),
            turns: Rc::clone(&self.turns),
            reasons: Arc::clone(&self.reasons),
        };
        let task = tokio::task::spawn_local(rounds.run());
        Probe { what, state: Arc::clone(&endpoint.state), seat, task }
    }
}

/// Whether endpoints are asked over HTTP/3: those that speak it alone, at their own port. Another port is one of TCP.
fn goes_over_http3(cluster: &Cluster, check: &HealthCheck) -> bool {
    let speaks_http3 = cluster.pool.shared.as_ref().is_some_and(|shared| shared.version == SharedVersion::Http3);
    speaks_http3 && check.port.is_none() && matches!(check.kind, HealthCheckKind::Http(_) | HealthCheckKind::Grpc(_))
}

fn stop(probe: Option<Probe>) {
    if let Some(probe) = probe {
        probe.task.abort();
    }
}

fn target(what: &What, endpoint: &str, client: &Result<Option<Arc<ClientConfig>>, String>) -> Result<Target, String> {
    let tls = match (client.clone()?, &what.tls) {
        (Some(client), Some(settings)) => Some((client, tls::name_of(settings, endpoint)?)),
        _ => None,
    };
    if let (true, Some(tls)) = (what.is_http3, &tls) {
        return Target::over_http3((endpoint, &what.address), &what.check, tls.clone());
    }
    let target = Target::new((endpoint, &what.address), &what.check, tls)?;
    Ok(match &what.header {
        Some(header) => target.behind(header),
        None => target,
    })
}

/// Asks one endpoint again and again.
struct Rounds {
    key: Key,
    /// What cannot be asked fails each time, and says why.
    target: Result<Target, String>,
    check: HealthCheck,
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

    /// Whether the endpoint is gone and nothing is under way there any more.
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
        match &self.target {
            Ok(target) => target.attempt(kept).await,
            Err(reason) => Err(reason.clone()),
        }
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
