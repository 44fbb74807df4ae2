//! What an administrator may know of the running program, as plain numbers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use model::fitness::AdminState;
use model::snapshot::{Cluster, Listener};
use model::{Address, Name};
use plan::health::HealthState;
use plan::health::passive::Ejection;
use plan::{ClusterPlan, EndpointPlan, Plan, Roll, Standing};
use telemetry::summary::{Summary, Totals};

use crate::admin_state::{Wish, Wishes};
use crate::history::Entry;
use crate::probes::Reasons;

/// The program at a moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether it takes work.
    pub state: State,
    /// Since the program started.
    pub uptime: Duration,
    /// Threads that carry traffic.
    pub workers: usize,
    /// The active generation; 0 before the first.
    pub generation: u64,
    /// The generation that brought the configuration as it is.
    pub revision: u64,
    /// Configurations that were refused since the start.
    pub refused: u64,
    /// The last generations, newest first.
    pub generations: Vec<Entry>,
    /// Counts over everything.
    pub total: Totals,
    /// Latency of late.
    pub latency: Latency,
    /// In the order of the configuration.
    pub listeners: Vec<ListenerStatus>,
    /// In the order of the configuration.
    pub clusters: Vec<ClusterStatus>,
}

/// Whether the program takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No plan is live yet.
    Starting,
    /// A plan is live.
    Ready,
    /// It is ending: nothing new is accepted.
    Draining,
}

impl State {
    /// As the API says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// Times of whole requests over a period. `None`: there was no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The period.
    pub window: Duration,
    /// Median, 90th and 99th percentile.
    pub quantiles: Option<[Duration; 3]>,
}

impl Latency {
    pub(crate) fn of(totals: &Totals, window: Duration) -> Self {
        let taken = &totals.latency;
        let quantiles = (taken.count() > 0).then(|| [0.5, 0.9, 0.99].map(|share| taken.quantile(share)));
        Self { window, quantiles }
    }
}

/// A listener.
#[derive(Clone, Debug)]
pub struct ListenerStatus {
    /// Its name.
    pub name: Name,
    /// Where it really listens: the port is never 0 once it does.
    pub address: Address,
    /// `http`, `tcp` or `udp`.
    pub protocol: &'static str,
    /// Whether it terminates TLS.
    pub tls: bool,
    /// Counts since the start.
    pub totals: Totals,
}

impl ListenerStatus {
    fn of(listener: &Listener, addresses: &[(Name, Address)], totals: Totals) -> Self {
        let bound = addresses.iter().find(|(name, _)| *name == listener.name);
        Self {
            name: listener.name.clone(),
            address: bound.map_or(&listener.bind, |(_, address)| address).clone(),
            protocol: listener.protocol.name(),
            tls: listener.tls.is_some(),
            totals,
        }
    }
}

/// A cluster.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// Its name.
    pub name: Name,
    /// How an endpoint is chosen, as the configuration calls it.
    pub balance: &'static str,
    /// Requests and streams that wait for room.
    pub waiting: u32,
    /// So few endpoints are fit that all get work.
    pub panics: bool,
    /// Latency since the start.
    pub latency: Latency,
    /// Counts since the start.
    pub totals: Totals,
    /// In the order of the configuration.
    pub endpoints: Vec<EndpointStatus>,
}

impl ClusterStatus {
    fn of((plan, roll): (&ClusterPlan, &Roll), totals: Totals, endpoints: Vec<EndpointStatus>) -> Self {
        let cluster: &Cluster = &plan.cluster;
        Self {
            name: cluster.name.clone(),
            balance: cluster.balance.name(),
            waiting: plan.state.waiting(),
            panics: roll.panics,
            latency: Latency::of(&totals, Duration::ZERO),
            totals,
            endpoints,
        }
    }
}

/// An endpoint.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Its name.
    pub name: Name,
    /// Where it is.
    pub address: Address,
    /// Its configured weight.
    pub weight: u32,
    /// Its share of the work in proportion to the others now; 0 is none. While one of them starts slowly, the weights of all
    /// are larger.
    pub weight_now: u32,
    /// Whether it gets work.
    pub up: bool,
    /// Why it gets work or not, [`Standing::as_str`].
    pub standing: &'static str,
    /// How long it is still ejected, while it is.
    pub ejected_for: Option<Duration>,
    /// `up` or `down` as its checks tell, `unknown` before the first; `unchecked` without any.
    pub health: &'static str,
    /// While it is ejected, what for; otherwise what the last probe that failed said, until one succeeds.
    pub reason: Option<String>,
    /// Requests and streams there now.
    pub in_flight: u32,
    /// What an operator wishes of it, beside the configuration.
    pub wish: Option<Wish>,
    /// Counts since the start.
    pub totals: Totals,
}

/// What others than the plan know of an endpoint.
struct Known {
    /// What the last probe that failed said.
    reason: Option<String>,
    wish: Option<Wish>,
    totals: Totals,
}

impl EndpointStatus {
    fn of((cluster, roll): (&ClusterPlan, &Roll), (index, plan): (usize, &EndpointPlan), known: Known) -> Self {
        let Known { reason, wish, totals } = known;
        let standing = roll.standing(index);
        let ejection = plan.state.ejection().filter(|_| standing == Standing::Ejected);
        let (evidence, ejected_for) = ejection.as_ref().and_then(ejected).unzip();
        let checked = cluster.cluster.health_check.is_some();
        Self {
            name: plan.endpoint.name.clone(),
            address: plan.endpoint.address.clone(),
            weight: plan.endpoint.weight,
            weight_now: roll.weight(index),
            up: standing.is_up(),
            standing: standing.as_str(),
            ejected_for,
            health: match plan.endpoint.state {
                _ if !checked => "unchecked",
                // It is not probed, and earlier results will not count afterwards.
                AdminState::Maintenance => HealthState::Unknown.as_str(),
                _ => plan.state.health_state().as_str(),
            },
            reason: evidence.or(reason),
            in_flight: plan.state.in_flight(),
            wish,
            totals,
        }
    }
}

/// Why, and for how long still.
fn ejected(ejection: &Ejection) -> Option<(String, Duration)> {
    let left = ejection.until()?.saturating_duration_since(Instant::now());
    Some((ejection.evidence()?.to_string(), left))
}

/// The listeners of a plan with what was counted for them.
pub(crate) fn listeners(plan: &Plan, addresses: &[(Name, Address)], counted: &[(Name, Totals)]) -> Vec<ListenerStatus> {
    let counted: HashMap<_, _> = counted.iter().map(|(name, totals)| (name, totals)).collect();
    plan.listeners
        .iter()
        .map(|plan| {
            let totals = counted.get(&plan.listener.name).map(|totals| (*totals).clone()).unwrap_or_default();
            ListenerStatus::of(&plan.listener, addresses, totals)
        })
        .collect()
}

/// The clusters of a plan with what was counted for them.
pub(crate) fn clusters(plan: &Plan, reasons: &Reasons, wishes: &Wishes, summary: &Summary) -> Vec<ClusterStatus> {
    let clusters: HashMap<_, _> = summary.clusters.iter().map(|(name, totals)| (name, totals)).collect();
    let endpoints: HashMap<_, _> =
        summary.endpoints.iter().map(|((cluster, endpoint), totals)| ((cluster, endpoint), totals)).collect();
    plan.clusters
        .iter()
        .map(|plan| {
            let name = &plan.cluster.name;
            let totals = clusters.get(name).map(|totals| (*totals).clone()).unwrap_or_default();
            let roll = plan.roll();
            let all = plan.endpoints.peek();
            let list = all.iter().enumerate().map(|(index, endpoint)| {
                let id = &endpoint.endpoint.name;
                let totals = endpoints.get(&(name, id)).map(|totals| (*totals).clone()).unwrap_or_default();
                let known = Known { reason: reasons.get(name, id), wish: wishes.get(name, id).cloned(), totals };
                EndpointStatus::of((plan, &roll), (index, endpoint), known)
            });
            ClusterStatus::of((plan, &roll), totals, list.collect())
        })
        .collect()
}
