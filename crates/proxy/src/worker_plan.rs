//! A plan as one worker holds it: beside each object of the plan, what is the worker's own (idle connections, counters,
//! the balancer's cache, TLS).
//!
//! What stays the same from one plan to the next stays the same here, by `Rc`: pools and caches live through a change.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fields::FieldName;
use model::snapshot::{HttpListener, Protocol};
use plan::hedge::Hedging;
use plan::retry::Savings;
use plan::{ClusterPlan, EndpointState, ListenerPlan, ListenerState, PickCache, Plan};
use telemetry::{ClusterSeries, EndpointSeries, ListenerSeries, RouteSeries, Telemetry};

use crate::registry::Tether;
use crate::tls::{ListenerTls, TlsMaterial, UpstreamTlsNow};
use crate::upstream::pool::Pool;

/// See the module.
pub(crate) struct WorkerPlan {
    pub plan: Arc<Plan>,
    /// In the plan's order.
    pub listeners: Vec<ListenerNow>,
    /// By [`plan::RoutePlan::index`].
    pub routes: Vec<Arc<RouteSeries>>,
    /// The fields that carry verified identities, of all listeners: none of them is taken from a client by any.
    pub identities: Vec<String>,
    /// By the slot of the cluster's state.
    clusters: Vec<Option<Rc<ClusterNow>>>,
    /// By the slot of the endpoint's state.
    endpoints: Vec<Option<Rc<EndpointNow>>>,
}

/// A listener.
pub(crate) struct ListenerNow {
    pub plan: Arc<ListenerPlan>,
    pub series: Arc<ListenerSeries>,
    pub counts: Rc<ListenerCounts>,
    pub tls: Option<Arc<ListenerTls>>,
    pub request_id: Option<FieldName>,
    /// Carries the verified client's subject to endpoints.
    pub identity: Option<FieldName>,
    /// Tells clients that speak another version of HTTP/3.
    pub alternative: Option<Alternative>,
}

/// What a connection that ends tells of its listener. It holds nothing else of a plan that may be long over, and of this it
/// shares with no other worker how many hold it.
pub(crate) struct ListenerCounts {
    pub state: Arc<ListenerState>,
    pub series: Arc<ListenerSeries>,
}

/// What clients are told of HTTP/3 (RFC 7838 section 3).
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
pub(crate) struct ClusterNow {
    pub plan: Arc<ClusterPlan>,
    pub series: Arc<ClusterSeries>,
    pub cache: RefCell<PickCache>,
    /// For retries.
    pub savings: RefCell<Savings>,
    /// For requests that may be at two endpoints.
    pub hedging: RefCell<Hedging>,
    pub tls: Option<Arc<UpstreamTlsNow>>,
}

/// An endpoint.
pub(crate) struct EndpointNow {
    pub state: Arc<EndpointState>,
    pub series: Arc<EndpointSeries>,
    pub pool: Pool,
    tls: Option<Arc<UpstreamTlsNow>>,
}

impl ListenerNow {
    /// Its settings, if it speaks HTTP.
    pub(crate) fn http(&self) -> Option<&HttpListener> {
        match &self.plan.listener.protocol {
            Protocol::Http(http) => Some(http),
            Protocol::Tcp(_) | Protocol::Udp(_) => None,
        }
    }
}

impl WorkerPlan {
    pub(crate) fn empty() -> Self {
        Self {
            plan: Arc::new(Plan::default()),
            listeners: Vec::new(),
            routes: Vec::new(),
            identities: Vec::new(),
            clusters: Vec::new(),
            endpoints: Vec::new(),
        }
    }

    /// The worker's side of `plan`, taking over from `previous` what is unchanged.
    pub(crate) fn build(plan: Arc<Plan>, tls: &TlsMaterial, telemetry: &Telemetry, previous: &Self) -> Self {
        let listeners: Vec<_> = plan.listeners.iter().map(|listener| listener_now(listener, tls, telemetry)).collect();
        let identities = listeners.iter().filter_map(|listener| Some(listener.identity.as_ref()?.as_str().to_owned()));
        let identities = identities.collect();
        let routes = plan.routes.iter().map(|route| telemetry.route(&route.route.name)).collect();
        let (clusters, endpoints) = (Vec::new(), Vec::new());
        let mut built = Self { listeners, routes, identities, clusters, endpoints, plan: plan.clone() };
        for cluster in &plan.clusters {
            built.add_cluster(cluster, tls, telemetry, previous);
        }
        built
    }

    fn add_cluster(&mut self, cluster: &Arc<ClusterPlan>, tls: &TlsMaterial, telemetry: &Telemetry, previous: &Self) {
        let slot = cluster.state.slot as usize;
        let tls = tls.cluster(&cluster.cluster.name);
        let before = previous.clusters.get(slot).cloned().flatten();
        let savings = before.as_ref().map(|old| old.savings.clone());
        let hedging = before.as_ref().map(|old| old.hedging.clone());
        let kept = before.filter(|old| Arc::ptr_eq(&old.plan, cluster) && same(old.tls.as_ref(), tls.as_ref()));
        let now = kept.unwrap_or_else(|| {
            Rc::new(ClusterNow {
                plan: cluster.clone(),
                series: telemetry.cluster(&cluster.cluster.name),
                cache: RefCell::default(),
                hedging: hedging.unwrap_or_else(|| Hedging::new(Instant::now()).into()),
                savings: savings.unwrap_or_else(|| Savings::new(telemetry.workers() as u32, Instant::now()).into()),
                tls: tls.clone(),
            })
        });
        put(&mut self.clusters, slot, now);
        for endpoint in &cluster.endpoints {
            let slot = endpoint.state.slot as usize;
            let kept = previous.endpoints.get(slot).cloned().flatten();
            let kept = kept.filter(|old| {
                Arc::ptr_eq(&old.state, &endpoint.state)
                    && same(old.tls.as_ref(), tls.as_ref())
                    && old.pool.suits(&cluster.cluster)
            });
            let now = kept.unwrap_or_else(|| {
                Rc::new(EndpointNow {
                    state: endpoint.state.clone(),
                    series: telemetry.endpoint(&cluster.cluster.name, &endpoint.endpoint.name),
                    pool: Pool::new(&cluster.cluster),
                    tls: tls.clone(),
                })
            });
            put(&mut self.endpoints, slot, now);
        }
    }

    /// The HTTP listener that a connection came by, if it is still there and still speaks HTTP.
    pub(crate) fn http_listener(&self, tether: &Tether) -> Option<(&ListenerNow, &HttpListener)> {
        let listener = self.listeners.get(tether.seat.index.get())?;
        Some((listener, listener.http()?))
    }

    /// Whether a field of this name would be read as one that carries an identity.
    pub(crate) fn is_identity(&self, name: &[u8]) -> bool {
        self.identities.iter().any(|identity| wire::forwarding::reads_as(name, identity))
    }

    /// The worker's side of a cluster of this plan.
    pub(crate) fn cluster(&self, plan: &ClusterPlan) -> Option<&Rc<ClusterNow>> {
        self.clusters.get(plan.state.slot as usize)?.as_ref()
    }

    /// The worker's side of an endpoint of this plan.
    pub(crate) fn endpoint(&self, state: &EndpointState) -> Option<&Rc<EndpointNow>> {
        self.endpoints.get(state.slot as usize)?.as_ref()
    }

    /// Retires the pools that `next`, the plan that takes over, has not kept.
    pub(crate) fn retire_pools(&self, next: &Self) {
        for (slot, endpoint) in self.endpoints.iter().enumerate() {
            let Some(endpoint) = endpoint else { continue };
            let kept = next.endpoints.get(slot).and_then(Option::as_ref);
            if !kept.is_some_and(|kept| Rc::ptr_eq(kept, endpoint)) {
                endpoint.pool.retire();
            }
        }
    }

    /// Closes idle upstream connections that are too old or that the endpoint has closed.
    pub(crate) fn sweep(&self, now: Instant) {
        for endpoint in self.endpoints.iter().flatten() {
            endpoint.pool.sweep(now);
        }
    }
}

fn listener_now(listener: &Arc<ListenerPlan>, tls: &TlsMaterial, telemetry: &Telemetry) -> ListenerNow {
    let header = |name: &Option<String>| name.as_deref().and_then(|name| FieldName::new(name).ok());
    let tls = tls.listener(&listener.listener.name);
    let http = match &listener.listener.protocol {
        Protocol::Http(http) => Some(http),
        Protocol::Tcp(_) | Protocol::Udp(_) => None,
    };
    let series = telemetry.listener(&listener.listener.name);
    ListenerNow {
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

fn put<T>(list: &mut Vec<Option<T>>, place: usize, value: T) {
    if list.len() <= place {
        list.resize_with(place + 1, || None);
    }
    list[place] = Some(value);
}
