//! A plan as one worker holds it: beside each object of the plan, the worker's own part (idle connections, counters, the balancer's cache,
//! TLS).
//!
//! An object that stays equal from one plan to the next keeps its part, by `Rc`: pools and caches live through a change.
//!
//! With tens of thousands of clusters, most may never get a request from a worker. Its part of a cluster or an endpoint is created at
//! first use. Until then each costs a pointer, and a change of the plan another.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::ResponseHead;
use model::fields::{FieldName, Fields, Known, reads_as};
use model::snapshot::HttpListener;
use plan::filter::{Guarded, GuardedResponse, Noted, ResponseView};
use plan::hedge::Hedging;
use plan::retry::Savings;
use plan::{ClusterPlan, ClusterState, EndpointState, ListenerPlan, ListenerState, PickCache, Plan, RoutePlan};
use telemetry::{ClusterSeries, EndpointSeries, ListenerSeries, RouteSeries, Telemetry};

use crate::lazy_table::LazyTable;
use crate::registry::Registration;
use crate::tls::{ClusterTls, ListenerTls, TlsMaterial};
use crate::upstream::pool::Pool;

/// See the module.
pub(crate) struct WorkerPlan {
    pub plan: Arc<Plan>,
    /// In the plan's order.
    pub listeners: Vec<ListenerLocal>,
    /// By [`plan::RoutePlan::index`]; made at first use.
    routes: ByIndex<Arc<RouteSeries>>,
    /// The fields that carry verified identities, of all listeners: none of them is taken from a client by any.
    pub identities: Vec<String>,
    /// What requests must not bring as trailers on any route: identities, request ids, and what says who the client is.
    own_fields: Vec<FieldName>,
    /// The same and what the filters of a route decide, by [`RoutePlan::index`]; made at first use.
    withheld: ByIndex<Rc<Withheld>>,
    /// What the filters of a route decide of every response, by [`RoutePlan::index`]; made at first use.
    withheld_response: ByIndex<Rc<Withheld>>,
    /// By the slot of the cluster's state; made at first use.
    clusters: LazyTable<Rc<ClusterLocal>>,
    /// By the slot of the endpoint's state; made at first use.
    endpoints: LazyTable<Rc<EndpointLocal>>,
    tls: Arc<TlsMaterial>,
    telemetry: Arc<Telemetry>,
    /// The worker's active plan by now: another one, if this is over or on trial.
    in_force: Rc<RefCell<Weak<WorkerPlan>>>,
    /// Another has taken its place, though exchanges may still follow it.
    is_over: Cell<bool>,
}

type ByIndex<T> = Box<[OnceCell<T>]>;

fn by_index<T>(count: usize) -> ByIndex<T> {
    (0..count).map(|_| OnceCell::new()).collect()
}

/// Fields that something here decides, so that no trailer may bring them.
pub(crate) struct Withheld(Box<[Guarded]>);

impl Withheld {
    /// Takes them out of trailers.
    pub(crate) fn take_out(&self, trailers: &mut Fields) {
        trailers.retain(|field| !self.0.iter().any(|guarded| guarded.covers(field.name)));
    }
}

/// A listener.
pub(crate) struct ListenerLocal {
    pub plan: Arc<ListenerPlan>,
    pub series: Arc<ListenerSeries>,
    pub counts: Rc<ListenerCounts>,
    pub tls: Option<Arc<ListenerTls>>,
    pub request_id: Option<FieldName>,
    /// Carries the verified client's subject to endpoints.
    pub identity: Option<FieldName>,
    /// Announces HTTP/3 to clients of other versions.
    pub alternative: Option<Alternative>,
}

/// The counters of a listener that a connection updates at its end. It holds nothing else of a plan that may be long over; only
/// connections of this worker share it.
pub(crate) struct ListenerCounts {
    pub state: Arc<ListenerState>,
    pub series: Arc<ListenerSeries>,
}

/// The announcement of HTTP/3 to clients (RFC 7838 section 3).
pub(crate) struct Alternative {
    pub name: FieldName,
    max_age: Duration,
    port: Option<u16>,
    value: OnceCell<Vec<u8>>,
}

impl Alternative {
    fn of(http: &HttpListener) -> Option<Self> {
        let max_age = http.http3.advertised_for.filter(|_| http.versions.h3)?;
        let name = FieldName::new("alt-svc").ok()?;
        Some(Self { name, max_age, port: http.http3.advertised_port, value: OnceCell::new() })
    }

    /// The value of the field; `port` is that of the listener.
    pub(crate) fn value(&self, port: u16) -> &[u8] {
        let port = self.port.unwrap_or(port);
        self.value.get_or_init(|| format!("h3=\":{port}\"; ma={}", self.max_age.as_secs()).into_bytes())
    }
}

/// A cluster.
pub(crate) struct ClusterLocal {
    pub plan: Arc<ClusterPlan>,
    pub series: Arc<ClusterSeries>,
    pub cache: RefCell<PickCache>,
    /// For retries.
    pub savings: RefCell<Savings>,
    /// For requests that may be at two endpoints.
    pub hedging: RefCell<Hedging>,
    pub tls: Option<Arc<ClusterTls>>,
}

/// An endpoint.
pub(crate) struct EndpointLocal {
    pub state: Arc<EndpointState>,
    pub series: Arc<EndpointSeries>,
    pub pool: Pool,
    tls: Option<Arc<ClusterTls>>,
}

impl EndpointLocal {
    /// Whether connections would be made and kept in the same way by another plan of its cluster.
    fn suits(&self, cluster: &ClusterPlan, tls: Option<&Arc<ClusterTls>>) -> bool {
        same(self.tls.as_ref(), tls) && self.pool.suits(&cluster.cluster)
    }
}

impl ListenerLocal {
    /// Its settings, if it speaks HTTP.
    pub(crate) fn http(&self) -> Option<&HttpListener> {
        self.plan.listener.protocol.http()
    }
}

impl WorkerPlan {
    pub(crate) fn empty(telemetry: Arc<Telemetry>) -> Self {
        Self::new(<_>::default(), <_>::default(), telemetry, Rc::default())
    }

    /// The worker's side of `plan`, taking over from `previous` what is unchanged.
    pub(crate) fn build(plan: Arc<Plan>, tls: Arc<TlsMaterial>, previous: &Self) -> Self {
        let built = Self::new(plan, tls, previous.telemetry.clone(), previous.in_force.clone());
        for ((route, old), (new, before)) in
            built.plan.routes.iter().zip(&previous.plan.routes).zip(built.routes.iter().zip(&previous.routes))
        {
            if let Some(series) = before.get().filter(|_| route.route.name == old.route.name) {
                let _ = new.set(series.clone());
            }
        }
        built.adopt(previous);
        built
    }

    fn new(
        plan: Arc<Plan>,
        tls: Arc<TlsMaterial>,
        telemetry: Arc<Telemetry>,
        in_force: Rc<RefCell<Weak<WorkerPlan>>>,
    ) -> Self {
        let local = |listener| listener_local(listener, &tls, &telemetry);
        let listeners: Vec<_> = plan.listeners.iter().map(local).collect();
        let identities = listeners.iter().filter_map(|listener| Some(listener.identity.as_ref()?.as_str().to_owned()));
        let identities: Vec<String> = identities.collect();
        // The usual name of a request's id is nothing that any trailer may have.
        let ids = listeners.iter().filter_map(|listener| listener.request_id.as_ref());
        let ids = ids.filter(|name| name.known() == Known::Other);
        let named = listeners.iter().filter_map(|listener| listener.identity.as_ref());
        let sources = listeners.iter().filter_map(ListenerLocal::http);
        let sources = sources.flat_map(|http| &http.forwarding.client_address).map(|rule| &rule.header);
        let own_fields = named.chain(ids).chain(sources).cloned().collect();
        let (routes, count) = (by_index(plan.routes.len()), plan.routes.len());
        let (withheld, withheld_response) = (by_index(count), by_index(count));
        let (clusters, endpoints) = <_>::default();
        let is_over = Cell::new(false);
        Self {
            plan,
            listeners,
            routes,
            identities,
            own_fields,
            withheld,
            withheld_response,
            clusters,
            endpoints,
            tls,
            telemetry,
            in_force,
            is_over,
        }
    }

    /// Says that the worker goes by this plan from now on.
    pub(crate) fn come_into_force(self: &Rc<Self>) {
        *self.in_force.borrow_mut() = Rc::downgrade(self);
    }

    /// Returns the active plan, if it is another.
    fn other_in_force(&self) -> Option<Rc<Self>> {
        self.in_force.borrow().upgrade().filter(|plan| !std::ptr::eq(&**plan, self))
    }

    /// Takes over what `previous` has for objects that go on as they are, unless there is something already.
    pub(crate) fn adopt(&self, previous: &Self) {
        for now in previous.clusters.iter() {
            let Some(cluster) = self.plan.cluster_of(&now.plan.state) else { continue };
            self.clusters.get_or_init(cluster.state.slot, || self.cluster_after(cluster, Some(now)));
        }
        let mut changed = HashSet::new();
        for now in previous.endpoints.iter() {
            let Some(cluster) = self.plan.cluster_of(now.state.cluster()) else { continue };
            let before = previous.plan.cluster_of(now.state.cluster());
            if before.is_some_and(|before| Arc::ptr_eq(before, cluster)) {
                self.keep(cluster, now);
            } else {
                changed.insert(cluster.state.slot);
            }
        }
        for cluster in changed.iter().filter_map(|slot| self.plan.cluster_at(*slot)) {
            for endpoint in &cluster.endpoints {
                let now = previous.endpoints.get(endpoint.state.slot);
                if let Some(now) = now.filter(|now| Arc::ptr_eq(&now.state, &endpoint.state)) {
                    self.keep(cluster, now);
                }
            }
        }
    }

    /// Takes over an endpoint of a cluster of this plan, if connections to it would be made in the same way.
    fn keep(&self, cluster: &ClusterPlan, now: &Rc<EndpointLocal>) {
        let tls = self.tls.cluster(&cluster.cluster.name);
        if now.suits(cluster, tls.as_ref()) {
            // What is there already stays.
            self.endpoints.get_or_init(now.state.slot, || now.clone());
        }
    }

    /// What a worker has for a cluster that had `before` until now.
    fn cluster_after(&self, cluster: &Arc<ClusterPlan>, before: Option<&Rc<ClusterLocal>>) -> Rc<ClusterLocal> {
        let tls = self.tls.cluster(&cluster.cluster.name);
        if let Some(same) = before.filter(|old| Arc::ptr_eq(&old.plan, cluster) && same(old.tls.as_ref(), tls.as_ref()))
        {
            return same.clone();
        }
        let workers = self.telemetry.workers() as u32;
        let savings = || RefCell::new(Savings::new(workers, Instant::now()));
        Rc::new(ClusterLocal {
            plan: cluster.clone(),
            series: self.telemetry.cluster(&cluster.cluster.name),
            cache: RefCell::default(),
            hedging: before.map_or_else(|| Hedging::new(Instant::now()).into(), |old| old.hedging.clone()),
            savings: before.map_or_else(savings, |old| old.savings.clone()),
            tls,
        })
    }

    #[cold]
    fn make_cluster(&self, state: &ClusterState) -> Option<&Rc<ClusterLocal>> {
        let cluster = self.plan.cluster_of(state)?;
        let other = self.other_in_force();
        let there = other
            .as_ref()
            .filter(|other| other.plan.cluster_of(state).is_some_and(|known| Arc::ptr_eq(known, cluster)));
        let known = there.and_then(|other| other.cluster(cluster));
        Some(self.clusters.get_or_init(state.slot, || self.cluster_after(cluster, known)))
    }

    #[cold]
    fn make_endpoint(&self, state: &EndpointState) -> Option<&Rc<EndpointLocal>> {
        let cluster = self.plan.cluster_of(state.cluster())?;
        let endpoint = cluster.endpoints.iter().find(|endpoint| std::ptr::eq(&*endpoint.state, state))?;
        let tls = self.tls.cluster(&cluster.cluster.name);
        // Connections are kept where those who come later find them.
        let other = self.other_in_force();
        let known = other.as_ref().and_then(|other| other.endpoint(state));
        let made = match known.filter(|known| known.suits(cluster, tls.as_ref())) {
            Some(known) => known.clone(),
            None => {
                let pool = Pool::new(&cluster.cluster);
                if self.is_over.get() {
                    pool.retire();
                }
                let series = self.telemetry.endpoint(&cluster.cluster.name, &endpoint.endpoint.name);
                Rc::new(EndpointLocal { state: endpoint.state.clone(), series, pool, tls })
            }
        };
        Some(self.endpoints.get_or_init(state.slot, || made))
    }

    /// The counters of a route of this plan, by its place.
    pub(crate) fn route(&self, index: usize) -> Option<&RouteSeries> {
        let (cell, plan) = (self.routes.get(index)?, self.plan.routes.get(index)?);
        Some(cell.get_or_init(|| self.telemetry.route(&plan.route.name)))
    }

    /// The HTTP listener that a connection came by, if it is still there and still speaks HTTP.
    pub(crate) fn http_listener(&self, registration: &Registration) -> Option<(&ListenerLocal, &HttpListener)> {
        let listener = self.listeners.get(registration.handle.index.get())?;
        Some((listener, listener.http()?))
    }

    /// Whether a field of this name would be read as one that carries an identity.
    pub(crate) fn is_identity(&self, name: &[u8]) -> bool {
        self.identities.iter().any(|identity| reads_as(name, identity))
    }

    /// What a request that takes this route of the plan must not bring as trailers; `None`: all may come.
    pub(crate) fn withheld(&self, route: &RoutePlan) -> Option<&Rc<Withheld>> {
        let guarded = route.chain.guarded();
        if guarded.is_empty() && self.own_fields.is_empty() {
            return None;
        }
        let own = self.own_fields.iter().cloned().map(Guarded::Name);
        let all = || own.chain(guarded.iter().cloned()).collect();
        Some(self.withheld.get(route.index)?.get_or_init(|| Rc::new(Withheld(all()))))
    }

    /// What this response, with the notes of its filters, must not bring as trailers; `None`: all may come.
    pub(crate) fn withheld_response(
        &self,
        route: &RoutePlan,
        response: (&ResponseHead, &ResponseView<'_>),
        noted: Noted<'_>,
        scratch: &mut Vec<u8>,
    ) -> Option<Rc<Withheld>> {
        let guarded = route.chain.guarded_response();
        if guarded.is_empty() {
            return None;
        }
        let mut all = || {
            let fields = guarded.iter().flat_map(|one| one.fields(response, noted, scratch)).cloned();
            Rc::new(Withheld(fields.collect()))
        };
        if guarded.iter().any(GuardedResponse::is_conditional) {
            return Some(all());
        }
        Some(self.withheld_response.get(route.index)?.get_or_init(all).clone())
    }

    /// The worker's side of a cluster of this plan.
    pub(crate) fn cluster(&self, plan: &ClusterPlan) -> Option<&Rc<ClusterLocal>> {
        let known = self.clusters.get(plan.state.slot);
        known.or_else(|| self.make_cluster(&plan.state))
    }

    /// The worker's side of an endpoint of this plan.
    pub(crate) fn endpoint(&self, state: &EndpointState) -> Option<&Rc<EndpointLocal>> {
        let known = self.endpoints.get(state.slot);
        known.or_else(|| self.make_endpoint(state))
    }

    /// Retires the pools that `next`, the plan that takes over, has not kept.
    pub(crate) fn retire_pools(&self, next: &Self) {
        if std::ptr::eq(self, next) {
            return;
        }
        self.is_over.set(true);
        for endpoint in self.endpoints.iter() {
            let kept = next.endpoints.get(endpoint.state.slot);
            if !kept.is_some_and(|kept| Rc::ptr_eq(kept, endpoint)) {
                endpoint.pool.retire();
            }
        }
    }

    /// Closes idle upstream connections that are too old or that the endpoint has closed.
    pub(crate) fn sweep(&self, now: Instant) {
        for endpoint in self.endpoints.iter() {
            endpoint.pool.sweep(now);
        }
    }
}

fn listener_local(listener: &Arc<ListenerPlan>, tls: &TlsMaterial, telemetry: &Telemetry) -> ListenerLocal {
    let header = |name: &Option<String>| name.as_deref().and_then(|name| FieldName::new(name).ok());
    let tls = tls.listener(&listener.listener.name);
    let http = listener.listener.protocol.http();
    let series = telemetry.listener(&listener.listener.name);
    ListenerLocal {
        plan: listener.clone(),
        counts: Rc::new(ListenerCounts { state: listener.state.clone(), series: series.clone() }),
        series,
        request_id: http.and_then(|http| header(&http.request_id)),
        alternative: http.and_then(Alternative::of),
        identity: tls.as_ref().and_then(|tls| header(&tls.identity_header)),
        tls,
    }
}

fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
