//! Small makers of configuration and requests for the tests of this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use model::fields::Span;
use model::fitness::{AdminState, Fitness};
use model::matching::Match;
use model::persistence::{Persistence, SessionBy, SessionTable, WhenAway, WhenFull};
use model::placement::{Placed, Spread};
use model::snapshot::{
    Action, Balance, Cluster, ClusterSettings, Endpoint, Forwarding, HealthCheck, HealthCheckKind, HttpListener,
    HttpVersions, Listener, Pool, Protocol, Queue, Route, Snapshot, UpstreamTimeouts,
};
use model::{FieldName, RequestHead, Version};

use crate::balance::tests::begin;
use crate::{Ask, ClusterPlan, Lease, Pick, PickCache, Plan, Random, Ticket, Wait};

/// An endpoint whose name is its address; `place` makes it unlike others.
pub(crate) fn endpoint(place: u16, weight: u32, connections_max: Option<u32>) -> Endpoint {
    let name = format!("127.0.0.1:{}", 9000 + place);
    Endpoint {
        address: name.parse().unwrap(),
        name: name.into(),
        weight,
        connections_max,
        queue_max: None,
        state: AdminState::Auto,
        placement: Placed::default(),
        agent_port: None,
    }
}

/// Endpoints of these weights without bounds.
pub(crate) fn weighted(weights: &[u32]) -> Vec<Endpoint> {
    (0..).zip(weights).map(|(place, &weight)| endpoint(place, weight, None)).collect()
}

/// Endpoints of weight 1 with these bounds.
pub(crate) fn bounded(bounds: &[u32]) -> Vec<Endpoint> {
    (0..).zip(bounds).map(|(place, &max)| endpoint(place, 1, Some(max))).collect()
}

pub(crate) fn cluster(name: &str, balance: Balance, endpoints: Vec<Endpoint>) -> Cluster {
    let second = Duration::from_secs(1);
    Cluster {
        name: name.into(),
        endpoints,
        endpoints_from: None,
        settings: Arc::new(ClusterSettings {
            connections_max: None,
            balance,
            spread: Spread::default(),
            health_check: None,
            fitness: Fitness::default(),
            queue: None,
            tls: None,
            socket: model::socket::ClusterSocket::default(),
            proxy_protocol: None,
            grpc_web: false,
            follows_names: false,
            pool: Pool { idle_max: 1, idle_timeout: second, requests_per_connection_max: None, shared: None },
            timeouts: UpstreamTimeouts { connect: second, response_head: second, idle: second, tunnel: None },
            retry: model::retry::Retry::default(),
            resilience: model::resilience::Resilience::default(),
            persistence: None,
        }),
    }
}

/// Sessions that wait for their endpoint while it is full, and move when it is away.
pub(crate) fn sessions() -> Option<Persistence> {
    let table = SessionTable { entries_max: 10, expires: Duration::from_secs(5), is_replicated: false };
    let by = SessionBy::Header("x-user".to_owned(), table);
    Some(Persistence { by, otherwise: WhenAway::Another, when_full: WhenFull::Wait })
}

pub(crate) fn queue(requests_max: u32) -> Option<Queue> {
    Some(Queue::new(requests_max, Duration::from_secs(1)))
}

pub(crate) fn health_check(rise: u32, fall: u32) -> Option<HealthCheck> {
    let second = Duration::from_secs(1);
    Some(HealthCheck { rise, fall, ..HealthCheck::new(HealthCheckKind::Tcp, second, second) })
}

pub(crate) fn plan_of(cluster: Cluster) -> Arc<ClusterPlan> {
    Arc::new(ClusterPlan::compile(Arc::new(cluster), None))
}

pub(crate) fn http_listener(name: &str) -> Listener {
    let second = Duration::from_secs(1);
    let http = HttpListener {
        versions: HttpVersions { h1: true, h2: true, h3: false },
        head_bytes_max: 8192,
        fields_max: 100,
        paths: None,
        host_mismatch: model::snapshot::HostMismatch::Replace,
        head_timeout: second,
        idle_timeout: second,
        stream_timeout: second,
        requests_per_connection_max: None,
        no_keep_alive_for: Vec::new(),
        forwarding: Forwarding {
            trusted: Vec::new(),
            client_address: Vec::new(),
            x_forwarded: false,
            forwarded: false,
        },
        request_id: None,
        http3: model::snapshot::Http3 { advertised_for: None, advertised_port: None, unproven_max: 1 },
    };
    let bind = "127.0.0.1:0".parse().unwrap();
    Listener {
        name: name.into(),
        bind,
        socket: model::socket::ListenerSocket::default(),
        tls: None,
        proxy_protocol: None,
        address_list: None,
        per_address: None,
        track: Vec::new(),
        connections_max: 10,
        protocol: Protocol::Http(http),
    }
}

pub(crate) fn route(name: &str, matches: Match, cluster: &str) -> Route {
    let action = Action::Cluster(cluster.into());
    Route {
        name: name.into(),
        above: vec![],
        listeners: vec![],
        matches,
        priority: 0,
        filters: vec![],
        action,
        timeout: None,
        retry: None,
        hedge: None,
        subset: None,
        precedence: model::queue::Precedence::default(),
        early_data: false,
        is_internal: false,
    }
}

pub(crate) fn snapshot(listeners: Vec<Listener>, routes: Vec<Route>, clusters: Vec<Cluster>) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        listeners: listeners.into_iter().map(Arc::new).collect(),
        routes: routes.into_iter().map(Arc::new).collect(),
        clusters: clusters.into_iter().map(Arc::new).collect(),
        ..Snapshot::default()
    })
}

/// The plan of a snapshot, after `previous`.
pub(crate) fn compiled(snapshot: Arc<Snapshot>, previous: Option<&Plan>) -> Plan {
    let generation = previous.map_or(1, |plan| plan.generation + 1);
    crate::compile(snapshot, previous, generation).unwrap()
}

pub(crate) fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::default();
    let at = head.fields.load(method.as_bytes());
    let start = head.fields.load(target.as_bytes());
    head.set_line(Span::new(at, start), Span::new(start, start + target.len()), Version::Http11);
    for (name, value) in fields {
        head.fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
    }
    head
}

/// One worker: its cache and its chance.
pub(crate) struct Worker {
    cache: PickCache,
    random: Random,
}

impl Worker {
    pub(crate) fn new(seed: u64) -> Self {
        Self { cache: PickCache::default(), random: Random::new(seed) }
    }

    pub(crate) fn pick(&mut self, plan: &ClusterPlan) -> Pick {
        self.pick_but(plan, &[])
    }

    pub(crate) fn pick_but(&mut self, plan: &ClusterPlan, tried: &[u32]) -> Pick {
        self.pick_for(plan, &Ask { tried, ..Ask::new(begin()) })
    }

    pub(crate) fn pick_for(&mut self, plan: &ClusterPlan, ask: &Ask<'_>) -> Pick {
        plan.pick(&mut self.cache, &mut || self.random.next_u64(), ask)
    }

    pub(crate) fn pick_pinned(&mut self, plan: &ClusterPlan, endpoint: u32) -> Pick {
        let ask = Ask { pinned: Some(endpoint), ..Ask::new(begin()) };
        self.pick_for(plan, &ask)
    }

    /// A place that must be there.
    pub(crate) fn lease(&mut self, plan: &ClusterPlan) -> Lease {
        match self.pick(plan) {
            Pick::Endpoint(lease) => lease,
            other => panic!("no endpoint but {other:?}"),
        }
    }
}

/// A wait for any endpoint.
pub(crate) fn anywhere() -> Wait {
    Wait::new(begin())
}

/// The place that a ticket has been given, if it has.
pub(crate) fn fetched(ticket: &Ticket) -> Option<Lease> {
    ticket.poll(Waker::noop(), begin()).map(|answer| answer.unwrap())
}

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct Bell(AtomicUsize);

impl Bell {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let bell = Arc::new(Self::default());
        (bell.clone(), bell.into())
    }

    pub(crate) fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
