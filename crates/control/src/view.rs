//! The running program as others may look at it: shared, read from any thread, changed by the reconciler alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use config::Loaded;
use model::{Address, Name};
use plan::health::passive::{Cause, Ejection};
use plan::{Plan, RoutePlan};
use serde_json::Value;
use telemetry::summary::Totals;
use telemetry::trial::{Outcome, Trial};
use telemetry::{Gauge, Metric, Telemetry};

use crate::admin_tls::AdminTls;
use crate::canary::{CANARIES_MAX, Terms};
use crate::connections::Connections;
use crate::difference::Differences;
use crate::disk_status::disk_status;
use crate::history::{Entry, History};
use crate::names;
use crate::overrides::Desired;
use crate::peers;
use crate::probes::Reasons;
use crate::providers::{self, Inbox, Reach};
use crate::status::{self, Latency, ListenerStatus, State, Status};

/// Latency is reported over this time.
const WINDOW: Duration = Duration::from_secs(10);
/// Totals are remembered this often at most.
const SAMPLE_EVERY: Duration = Duration::from_millis(900);

/// A handle on the running program. Cheap to clone.
#[derive(Clone)]
pub struct View(Arc<Shared>);

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View(generation {})", self.generation())
    }
}

struct Shared {
    telemetry: Arc<Telemetry>,
    lost_records: LostRecords,
    workers: usize,
    started: Instant,
    draining: AtomicBool,
    refused: AtomicU64,
    reasons: Arc<Reasons>,
    running: Mutex<Running>,
    connections: OnceLock<Connections>,
    providers: OnceLock<Arc<Inbox>>,
    names: OnceLock<names::Inbox>,
    peers: OnceLock<peers::Shared>,
    samples: Mutex<VecDeque<(Instant, Totals)>>,
    canaries: Mutex<Canaries>,
}

/// The reports of canaries.
#[derive(Debug, Default)]
struct Canaries {
    /// Newest last.
    list: VecDeque<Canary>,
    /// How many ended so.
    ended: [(&'static str, u64); 3],
}

/// A configuration that is tried, or was.
#[derive(Clone, Debug)]
pub struct Canary {
    /// When it began.
    pub at: SystemTime,
    /// Who wanted it.
    pub author: Option<Arc<str>>,
    /// On what terms.
    pub terms: Terms,
    /// Its difference from the active configuration.
    pub differences: Arc<Differences>,
    /// What was counted.
    pub counts: Arc<Trial>,
    /// What became of it (`promoted`, `went_back`, `ended`), why, and what was counted until then. `None`: it is tried now.
    pub end: Option<(&'static str, Arc<str>, (Outcome, Outcome))>,
}

impl Canary {
    /// What was counted on both sides while it was tried.
    pub fn outcomes(&self) -> (Outcome, Outcome) {
        self.end.as_ref().map_or_else(|| self.counts.outcomes(), |(_, _, outcomes)| outcomes.clone())
    }
}

#[derive(Clone, Debug, Default)]
struct Running {
    plan: Option<Arc<Plan>>,
    shown: Shown,
    addresses: Vec<(Name, Address)>,
    history: History,
}

/// The active configuration, without secrets.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub(crate) loaded: Option<Arc<Loaded>>,
    /// The generation that brought it as it is.
    pub revision: u64,
    /// What is desired beside the files.
    pub desired: Arc<Desired>,
    /// How the administrator's listener shakes hands, if it does.
    pub(crate) admin_tls: Option<Arc<AdminTls>>,
}

impl Shown {
    /// With defaults filled in, without secrets; null before the first. Made at each call.
    pub fn effective(&self) -> Value {
        self.loaded.as_ref().map(|loaded| loaded.effective()).unwrap_or_default()
    }

    /// As it was written, without secrets. Made at each call.
    pub fn written(&self) -> Value {
        self.loaded.as_ref().map(|loaded| loaded.written(&plan::filter::specs())).unwrap_or_default()
    }
}

/// Tells how many records were lost because a ring was full, and because writing failed.
pub type LostRecords = Box<dyn Fn() -> (u64, u64) + Send + Sync>;

impl View {
    /// A view of a program that has just started. `lost_records` tells how many records no access log could take, for
    /// want of room and because writing failed.
    pub fn new(telemetry: Arc<Telemetry>, workers: usize, lost_records: LostRecords) -> Self {
        Self(Arc::new(Shared {
            telemetry,
            lost_records,
            workers,
            started: Instant::now(),
            draining: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            reasons: Arc::default(),
            running: Mutex::default(),
            connections: OnceLock::new(),
            providers: OnceLock::new(),
            names: OnceLock::new(),
            peers: OnceLock::new(),
            samples: Mutex::default(),
            canaries: Mutex::new(Canaries {
                list: VecDeque::new(),
                ended: [("promoted", 0), ("went_back", 0), ("ended", 0)],
            }),
        }))
    }

    /// Whether it takes work.
    pub fn state(&self) -> State {
        if self.0.draining.load(Ordering::Relaxed) {
            State::Draining
        } else if self.running().plan.is_some() {
            State::Ready
        } else {
            State::Starting
        }
    }

    /// The active generation; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.running().history.last().map_or(0, |entry| entry.generation)
    }

    /// The active configuration, with defaults filled in; null before the first.
    pub fn effective(&self) -> Value {
        self.shown().effective()
    }

    /// The active configuration, in each form that can be shown.
    pub fn shown(&self) -> Shown {
        self.running().shown.clone()
    }

    /// The last generations, newest first.
    pub fn generations(&self) -> Vec<Entry> {
        self.running().history.iter().cloned().collect()
    }

    /// What the last generation changed.
    pub fn last_differences(&self) -> Arc<Differences> {
        self.running().history.last().map(|entry| Arc::clone(&entry.differences)).unwrap_or_default()
    }

    /// The active plan.
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.running().plan.clone()
    }

    /// How the administrator's listener is to shake hands with who comes now; `None`: not at all.
    pub fn admin_tls(&self) -> Option<Arc<AdminTls>> {
        self.running().shown.admin_tls.clone()
    }

    /// All that may be known, at this moment.
    pub fn status(&self) -> Status {
        let summary = self.0.telemetry.summary();
        let running = self.running().clone();
        let latency = self.latency(summary.at, &summary.total);
        let plan = running.plan.unwrap_or_default();
        Status {
            state: self.state(),
            uptime: self.0.started.elapsed(),
            workers: self.0.workers,
            generation: running.history.last().map_or(0, |entry| entry.generation),
            revision: running.shown.revision,
            refused: self.0.refused.load(Ordering::Relaxed),
            generations: running.history.iter().cloned().collect(),
            listeners: status::listeners(&plan, &running.addresses, &summary.listeners),
            clusters: status::clusters(&plan, &self.0.reasons, &running.shown.desired.wishes, &summary),
            latency,
            total: summary.total,
        }
    }

    /// The listeners, without what was counted for them.
    pub fn listeners(&self) -> Vec<ListenerStatus> {
        let (plan, addresses) = {
            let running = self.running();
            (running.plan.clone().unwrap_or_default(), running.addresses.clone())
        };
        status::listeners(&plan, &addresses, &[])
    }

    /// Configurations that are tried or were, newest first.
    pub fn canaries(&self) -> Vec<Canary> {
        self.all_canaries().list.iter().rev().cloned().collect()
    }

    pub(crate) fn begin_canary(&self, canary: Canary) {
        let mut all = self.all_canaries();
        if all.list.len() == CANARIES_MAX {
            all.list.pop_front();
        }
        all.list.push_back(canary);
    }

    pub(crate) fn end_canary(&self, result: &'static str, reason: &str) {
        let mut all = self.all_canaries();
        if let Some(last) = all.list.back_mut().filter(|last| last.end.is_none()) {
            let outcomes = last.counts.outcomes();
            last.end = Some((result, reason.into(), outcomes));
        }
        all.ended.iter_mut().filter(|(name, _)| *name == result).for_each(|(_, count)| *count += 1);
    }

    fn all_canaries(&self) -> MutexGuard<'_, Canaries> {
        self.0.canaries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_canaries(&self, gauges: &mut Vec<Gauge<'_>>) {
        let all = self.all_canaries();
        let tried = all.list.back().filter(|last| last.end.is_none());
        let share = tried.map_or(0.0, |canary| f64::from(canary.terms.share_percent) / 100.0);
        gauges.push(Gauge::new(Metric::CanaryShare, &[], share));
        for (result, count) in all.ended {
            gauges.push(Gauge::new(Metric::Canaries, &[result], count as f64));
        }
    }

    /// Appends the page of metrics in the Prometheus text format.
    pub fn expose(&self, version: &str, out: &mut String) {
        let plan = self.plan().unwrap_or_default();
        let (full, failed) = (self.0.lost_records)();
        let mut gauges = vec![
            Gauge::new(Metric::AccessLogDropped, &["full"], full as f64),
            Gauge::new(Metric::AccessLogDropped, &["failed"], failed as f64),
            Gauge::new(Metric::BuildInfo, &[version], 1.0),
            Gauge::new(Metric::Generation, &[], self.generation() as f64),
            Gauge::new(Metric::GenerationsRefused, &[], self.0.refused.load(Ordering::Relaxed) as f64),
        ];
        self.push_canaries(&mut gauges);
        plan.routes.iter().for_each(|route| push_filter_events(&mut gauges, route));
        let peers = self.peers();
        peers.iter().for_each(|status| status.push_gauges(&mut gauges));
        for table in &plan.tables {
            let name = table.name().as_str();
            gauges.push(Gauge::new(Metric::TableEntries, &[name], table.entries() as f64));
            gauges.push(Gauge::new(Metric::TableEvictions, &[name], table.evictions() as f64));
        }
        plan.caches.iter().for_each(|cache| push_cache(&mut gauges, cache));
        for cluster in &plan.clusters {
            let name = cluster.cluster.name.as_str();
            let gauge = |metric, labels: &[_], value| Gauge::new(metric, labels, value);
            gauges.push(gauge(Metric::ClusterQueueLength, &[name], f64::from(cluster.state.waiting())));
            if let Some(limit) = cluster.adaptive_limit() {
                gauges.push(gauge(Metric::ClusterConcurrencyLimit, &[name], f64::from(limit)));
            }
            if let Some(guard) = cluster.guard_state().filter(|_| cluster.has_circuit()) {
                let phase = guard.circuit().phase(Instant::now());
                gauges.push(gauge(Metric::ClusterCircuit, &[name], f64::from(phase.number())));
                gauges.push(gauge(Metric::ClusterCircuitOpened, &[name], guard.circuit().opened() as f64));
            }
            if let Some((entries, evictions)) =
                cluster.persistence.as_ref().and_then(|persistence| persistence.table(Instant::now()))
            {
                gauges.push(gauge(Metric::ClusterSessionEntries, &[name], f64::from(entries)));
                gauges.push(gauge(Metric::ClusterSessionEvictions, &[name], evictions as f64));
            }
            let roll = cluster.roll();
            if cluster.cluster.fitness.panic_percent > 0 {
                gauges.push(gauge(Metric::ClusterPanic, &[name], if roll.panics { 1.0 } else { 0.0 }));
            }
            let written = &cluster.cluster.endpoints;
            for (index, endpoint) in cluster.endpoints.peek().iter().enumerate() {
                let labels = [name, written[index].name.as_str()];
                let up = if roll.standing(index).is_up() { 1.0 } else { 0.0 };
                gauges.push(gauge(Metric::EndpointUp, &labels, up));
                if cluster.cluster.fitness.passive.is_some() {
                    push_ejections(&mut gauges, labels, endpoint.state.ejection().unwrap_or_default());
                }
                if cluster.cluster.fitness.slow_start.is_some() {
                    gauges.push(gauge(Metric::EndpointWeightNow, &labels, f64::from(roll.weight(index))));
                }
                gauges.push(gauge(Metric::EndpointWeight, &labels, f64::from(endpoint.endpoint.weight)));
                gauges.push(gauge(Metric::EndpointInFlight, &labels, f64::from(endpoint.state.in_flight())));
            }
        }
        let providers = self.providers();
        providers.iter().for_each(|provider| push_provider(&mut gauges, provider));
        let (failing, failed) = self.0.names.get().map(names::Inbox::failures).unwrap_or_default();
        gauges.push(Gauge::new(Metric::NamesFailing, &[], failing as f64));
        gauges.push(Gauge::new(Metric::NameLookupsFailed, &[], failed as f64));
        self.0.telemetry.expose(&gauges, out);
    }

    /// Tells where listeners really are, once they are bound.
    pub fn set_addresses(&self, addresses: Vec<(Name, Address)>) {
        self.running().addresses = addresses;
    }

    /// Says how connections are asked for; once.
    pub fn set_connections(&self, connections: Connections) {
        // A second time would be the same data plane.
        let _ = self.0.connections.set(connections);
    }

    /// How connections are asked for, if there is a data plane.
    pub fn connections(&self) -> Option<&Connections> {
        self.0.connections.get()
    }

    pub(crate) fn set_inboxes(&self, providers: Arc<Inbox>, names: names::Inbox) {
        // A second time would be another owner of the configuration.
        let _ = self.0.providers.set(providers);
        let _ = self.0.names.set(names);
    }

    /// Notes what peers are looked at by.
    pub(crate) fn set_peers(&self, shared: peers::Shared) {
        // A second time would be another owner of the configuration.
        let _ = self.0.peers.set(shared);
    }

    /// Returns what peers are looked at by.
    pub(crate) fn shared_peers(&self) -> Option<&peers::Shared> {
        self.0.peers.get()
    }

    /// The providers and how they are, in the order in which they are configured.
    pub fn providers(&self) -> Vec<providers::Status> {
        self.0.providers.get().map(|inbox| inbox.statuses()).unwrap_or_default()
    }

    /// Tells that the program is ending.
    pub fn set_draining(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_running(&self, plan: Arc<Plan>, shown: Shown, entry: Entry) {
        let mut running = self.running();
        running.plan = Some(plan);
        running.shown = shown;
        running.history.push(entry);
    }

    /// Takes up generations from before this process, oldest first.
    pub(crate) fn remember(&self, entries: Vec<Entry>) {
        let mut running = self.running();
        entries.into_iter().for_each(|entry| running.history.push(entry));
    }

    /// Forgets generations after this one.
    pub(crate) fn forget_after(&self, generation: u64) {
        self.running().history.forget_after(generation);
    }

    pub(crate) fn count_refused(&self) {
        self.add_refused(1);
    }

    pub(crate) fn add_refused(&self, count: u64) {
        self.0.refused.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn reasons(&self) -> Arc<Reasons> {
        Arc::clone(&self.0.reasons)
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.0.telemetry
    }

    /// Latency since the oldest totals within the window. Totals are kept only while there is a reader; otherwise this costs nothing.
    fn latency(&self, now: Instant, total: &Totals) -> Latency {
        let mut samples = self.0.samples.lock().unwrap_or_else(PoisonError::into_inner);
        while samples.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW) {
            samples.pop_front();
        }
        let latency = match samples.front() {
            Some((at, earlier)) => Latency::of(&total.since(earlier), now.saturating_duration_since(*at)),
            None => Latency::of(total, now.saturating_duration_since(self.0.started)),
        };
        if samples.back().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= SAMPLE_EVERY) {
            samples.push_back((now, total.clone()));
        }
        latency
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // Every change of it is a whole assignment: a panic elsewhere cannot leave it half made.
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push_provider<'a>(gauges: &mut Vec<Gauge<'a>>, provider: &'a providers::Status) {
    let labels = [provider.name.as_str()];
    let up = if provider.reach == Reach::Up { 1.0 } else { 0.0 };
    gauges.push(Gauge::new(Metric::ProviderUp, &labels, up));
    gauges.push(Gauge::new(Metric::ProviderRefused, &labels, provider.refused as f64));
    gauges.push(Gauge::new(Metric::ProviderEndpoints, &labels, provider.endpoints as f64));
    for (metric, at) in
        [(Metric::ProviderLastSuccess, provider.last_success), (Metric::ProviderLastChange, provider.last_change)]
    {
        if let Some(since) = at.and_then(|at| at.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()) {
            gauges.push(Gauge::new(metric, &labels, since.as_secs_f64()));
        }
    }
}

/// The gauges of a cache.
fn push_cache<'a>(gauges: &mut Vec<Gauge<'a>>, cache: &'a plan::cache::CacheStore) {
    let name = cache.settings().name.as_str();
    let (hits, misses) = cache.answered();
    gauges.extend([
        Gauge::new(Metric::CacheBytes, &[name], cache.bytes() as f64),
        Gauge::new(Metric::CacheEntries, &[name], cache.entries() as f64),
        Gauge::new(Metric::CacheEvictions, &[name], cache.evictions() as f64),
        Gauge::new(Metric::CachePurges, &[name], cache.purged() as f64),
        Gauge::new(Metric::CacheRequests, &[name, "hit"], hits as f64),
        Gauge::new(Metric::CacheRequests, &[name, "miss"], misses as f64),
    ]);
    let Some(disk) = cache.disk().map(disk_status) else { return };
    gauges.extend([
        Gauge::new(Metric::CacheDiskBytes, &[name], disk.bytes as f64),
        Gauge::new(Metric::CacheDiskEntries, &[name], disk.entries as f64),
        Gauge::new(Metric::CacheDiskEvictions, &[name], disk.evictions as f64),
        Gauge::new(Metric::CacheHits, &[name, "memory"], hits.saturating_sub(disk.hits) as f64),
        Gauge::new(Metric::CacheHits, &[name, "disk"], disk.hits as f64),
    ]);
    for (reason, count) in disk.failures {
        gauges.push(Gauge::new(Metric::CacheDiskFailures, &[name, reason], count as f64));
    }
}

/// What the filters of a route have counted. Those of one filter that stands there several times are added up.
fn push_filter_events<'a>(gauges: &mut Vec<Gauge<'a>>, route: &'a RoutePlan) {
    let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for counted in route.chain.counted() {
        *sums.entry((counted.filter, counted.event)).or_default() += counted.count();
    }
    let name = route.name().as_str();
    let events = sums.into_iter();
    gauges.extend(
        events.map(|((filter, event), count)| Gauge::new(Metric::FilterEvents, &[name, filter, event], count as f64)),
    );
}

fn push_ejections<'a>(gauges: &mut Vec<Gauge<'a>>, [cluster, endpoint]: [&'a str; 2], ejection: Ejection) {
    let ejected = if ejection.until().is_some() { 1.0 } else { 0.0 };
    gauges.push(Gauge::new(Metric::EndpointEjected, &[cluster, endpoint], ejected));
    for cause in Cause::ALL.into_iter().filter(|cause| ejection.count(*cause) > 0) {
        let labels = [cluster, endpoint, cause.as_str()];
        gauges.push(Gauge::new(Metric::EndpointEjections, &labels, ejection.count(cause) as f64));
    }
}
