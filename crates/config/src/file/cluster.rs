//! Clusters.

use std::collections::BTreeMap;

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults::{is_taken, taken};
use super::{
    AdaptiveConcurrency, AgentCheck, Aperture, Balance, Certificate, CircuitBreaker, ClusterSocket, EndpointState,
    HealthCheck, Hedge, HttpVersion, PassiveHealth, Persistence, Queue, Resolve, Retry, SendProxy,
};
use crate::units::{Margin, Percent, Time};

/// Endpoints that serve the same thing.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The endpoints: a list, of an address each or a map with its settings; or the provider that gives them, such as
    /// `{ from: consul }`. The list may be empty: requests are answered with 503 until endpoints are added.
    pub endpoints: Endpoints,
    /// When host names of endpoints are looked up: `ttl`, again and again, by the time to live of the answers; or `once`, when the
    /// configuration is read. See `names` at the top of the file.
    #[serde(default)]
    pub resolve: Resolve,
    /// HTTP versions that the endpoints speak. With TLS, each endpoint chooses among them as its connections begin. Without TLS
    /// there is no such choice: `[h2]` speaks HTTP/2 from the first byte on. `[h3]` stands alone, and needs `tls`.
    #[serde(default = "http_versions")]
    #[schemars(length(min = 1))]
    pub http_versions: Vec<HttpVersion>,
    /// Pass calls of gRPC-Web, as browsers make them, to the endpoints as gRPC, in its binary form and in that of text. Only by HTTP/2
    /// or HTTP/3.
    #[serde(default)]
    pub grpc_web: bool,
    /// Connections at work at once at all endpoints together, over all workers, as with `connections_max` of an endpoint. No
    /// bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub connections_max: Option<u32>,
    /// Requests at once at all endpoints together, over all workers. The smaller of this and `connections_max` counts. No
    /// bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_max: Option<u32>,
    /// How an endpoint is chosen.
    #[serde(default)]
    pub balance: Balance,
    /// How much more than its share an endpoint is taken to bear. Endpoints of the next priority get work once those of the
    /// first, so multiplied, cannot bear the whole: with `140%`, when less than 71% of them are up.
    #[serde(default = "overprovisioning")]
    pub overprovisioning: Margin,
    /// Endpoints in the zone of this instance (`zone` at the top of the file) come before others of the same priority.
    #[serde(default)]
    pub prefer_own_zone: bool,
    /// Use only some of many endpoints, so that several instances of the program together use all of them evenly. By default
    /// all are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aperture: Option<Aperture>,
    /// Ask the endpoints regularly whether they work. By default they are not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Leave out endpoints that fail requests, for a while. By default none is left out for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive_health: Option<PassiveHealth>,
    /// Ask an agent beside each endpoint how much work it wants. By default none is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_check: Option<AgentCheck>,
    /// Share of endpoints that are fit for work below which all get work, fit or not: with too few left, work that may fail
    /// is better than work that crushes them. `0%` never does that.
    #[serde(default = "never")]
    pub panic_threshold: Percent,
    /// Time over which an endpoint that comes up gets its full share: from a tenth of its weight to the whole. By default
    /// it gets its full share at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<Time>,
    /// Let requests wait while all endpoints are full. By default they are refused at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Speak TLS to the endpoints: `true`, or settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
    /// How connections to the endpoints are set up.
    #[serde(default)]
    pub socket: ClusterSocket,
    /// Tell the endpoints who the client is, by the PROXY protocol in front of each connection: `v1`, `v2`, or settings. Such
    /// a connection is used again only for the client's connection that it was made for. By default they are not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<SendProxy>,
    /// Connections kept for reuse.
    #[serde(default)]
    pub pool: Pool,
    /// How long endpoints may take.
    #[serde(default)]
    pub timeouts: ClusterTimeouts,
    /// When another endpoint is tried. By default only while no endpoint has seen the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Refuse at once what would be too much for the cluster. By default nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<CircuitBreaker>,
    /// Let no more be at the endpoints at once than they bear, as found out from how long they take to answer. By default
    /// only fixed bounds hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive_concurrency: Option<AdaptiveConcurrency>,
    /// Send requests that take long to another endpoint too. By default they are at one endpoint at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    /// Keep the requests of one session at one endpoint. By default each goes where the balancer sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<Persistence>,
    /// Take what `defaults` says for clusters. `false`: this one has none of it.
    #[serde(default = "taken", skip_serializing_if = "is_taken")]
    pub defaults: bool,
}

/// The endpoints of a cluster: themselves, or who gives them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Endpoints {
    /// Themselves.
    List(Vec<Endpoint>),
    /// Who gives them.
    From(EndpointsFrom),
}

impl Endpoints {
    /// Those that are written in the configuration.
    pub(crate) fn written(&self) -> &[Endpoint] {
        match self {
            Self::List(list) => list,
            Self::From(_) => &[],
        }
    }

    /// Whether a provider gives them.
    pub(crate) fn are_given(&self) -> bool {
        matches!(self, Self::From(_))
    }
}

/// Endpoints that a provider gives. Until it has given some, the cluster has none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointsFrom {
    /// The provider, one of `providers`.
    pub from: String,
    /// What the provider knows them by. By default the name of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub key: Option<String>,
}

/// An endpoint: its address, or its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Endpoint {
    /// Its address.
    Address(String),
    /// Its settings.
    Settings(EndpointSettings),
}

/// Settings of one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Endpoint")]
pub struct EndpointSettings {
    /// `ip:port`, `[ipv6]:port`, `name:port`, or a Unix socket such as `unix:/run/app.sock`. A name is
    /// looked up when the configuration is read, and again by its time to live, see `resolve` of the cluster. The least of its addresses
    /// is used, and kept as long as the name has it.
    pub address: String,
    /// Its share of the work compared with the others; 0 gets no new work.
    #[serde(default = "weight")]
    #[schemars(range(min = 0, max = limits::WEIGHT_MAX))]
    pub weight: u32,
    /// Connections at work at once, over all workers: requests, since an HTTP/1.1 connection carries one at a time, or TCP
    /// connections. Idle ones that are kept for reuse are not counted, and requests that share an HTTP/2 connection are counted
    /// each. No bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub connections_max: Option<u32>,
    /// Requests at once, over all workers. That is the same as `connections_max`, and the smaller of the two counts. No bound
    /// by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_max: Option<u32>,
    /// Requests that wait in the `queue` for this endpoint alone, because their session belongs to it, over all workers. Further
    /// ones go to another endpoint, where their session stays from then on; with `otherwise: refuse` they get the answer of a full
    /// queue. No bound by default but that of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub queue_max: Option<u32>,
    /// Port of its agent, for `agent_check` of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub agent_port: Option<u16>,
    /// What is wanted of it, whatever its checks say.
    #[serde(default)]
    pub state: EndpointState,
    /// Endpoints of a lower number come first. Others get what those cannot bear, see `overprovisioning`, and what they cannot
    /// take: all are full, or have failed in this exchange. Requests wait in the `queue` once all priorities are full.
    #[serde(default)]
    #[schemars(range(min = 0, max = limits::PRIORITY_MAX))]
    pub priority: u32,
    /// Give it only requests that no other endpoint can take: all that are no backups are unfit, full, or have failed in this
    /// exchange. With a `queue`, requests wait while those are full, unless it says `use_backups`.
    #[serde(default)]
    pub backup: bool,
    /// The zone that it is in, see `prefer_own_zone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub zone: Option<String>,
    /// What else is known of it, by name, such as `{ version: v2 }`. Routes may go by it, see `subset`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl EndpointSettings {
    /// An endpoint at an address, with defaults for all else.
    pub fn at(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            weight: weight(),
            connections_max: None,
            requests_max: None,
            queue_max: None,
            agent_port: None,
            state: EndpointState::default(),
            priority: 0,
            backup: false,
            zone: None,
            labels: BTreeMap::new(),
        }
    }
}

impl From<Endpoint> for EndpointSettings {
    fn from(endpoint: Endpoint) -> Self {
        match endpoint {
            Endpoint::Address(address) => Self::at(address),
            Endpoint::Settings(settings) => settings,
        }
    }
}

/// TLS towards endpoints, as written: a switch or settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ClusterTls {
    /// On with defaults, or off.
    Switch(bool),
    /// On with these.
    Settings(ClusterTlsSettings),
}

/// TLS towards endpoints.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClusterTls")]
pub struct ClusterTlsSettings {
    /// Name that is asked for and that the certificate must carry. By default the host in the endpoint's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Verify the certificate. Switching this off lets anyone pose as the endpoint; it is for tests.
    pub verify: bool,
    /// File with the certificates of those who vouch for the endpoints, in PEM. By default those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub authorities: Option<String>,
    /// Certificate that is shown to endpoints that ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

impl Default for ClusterTlsSettings {
    fn default() -> Self {
        Self { server_name: None, verify: true, authorities: None, certificate: None }
    }
}

/// Connections to endpoints that are kept for reuse.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Use a connection for further requests. With `false`, each request opens a connection of its own, and over HTTP/1.1 the endpoint
    /// gets `Connection: close`; over HTTP/2 and HTTP/3 a connection carries one request. All other settings of the pool but
    /// `ping_interval` and `ping_timeout` have no meaning then.
    pub reuse: bool,
    /// Idle connections that each worker keeps to each endpoint. With 0 none is kept; over HTTP/2 and HTTP/3 requests at the same
    /// time still share one.
    pub idle_max: u32,
    /// Time an idle connection is kept. Keep it below what the endpoints allow.
    pub idle_timeout: Time,
    /// Requests after which a connection is closed. No bound by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_per_connection_max: Option<u64>,
    /// HTTP/2 and HTTP/3: requests at once on a connection, if the endpoint allows as many. Another is made for those beyond.
    #[schemars(range(min = 1, max = limits::UPSTREAM_STREAMS_HARD_MAX))]
    pub streams_per_connection_max: u32,
    /// HTTP/2 and HTTP/3: time without a byte from the endpoint, while requests are under way, after which it is asked whether it
    /// is still there.
    pub ping_interval: Time,
    /// HTTP/2 and HTTP/3: time for the endpoint to answer that. Otherwise the connection is given up.
    pub ping_timeout: Time,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            reuse: true,
            idle_max: limits::IDLE_UPSTREAM_CONNECTIONS_MAX,
            idle_timeout: Time(limits::UPSTREAM_IDLE),
            requests_per_connection_max: None,
            streams_per_connection_max: limits::UPSTREAM_STREAMS_MAX,
            ping_interval: Time(limits::UPSTREAM_PING_INTERVAL),
            ping_timeout: Time(limits::UPSTREAM_PING_TIMEOUT),
        }
    }
}

/// How long endpoints may take.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterTimeouts {
    /// To establish a connection, TLS included.
    pub connect: Time,
    /// From the request being sent whole to the head of the response.
    pub response_head: Time,
    /// Without a byte while a body moves.
    pub idle: Time,
    /// Without a byte in either direction of a WebSocket or of what else has become a tunnel by an upgrade. By default the shorter
    /// of `idle` and of `timeouts.stream` of the listener; given, it takes the place of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Time>,
}

impl Default for ClusterTimeouts {
    fn default() -> Self {
        Self {
            connect: Time(limits::CONNECT),
            response_head: Time(limits::RESPONSE_HEAD),
            idle: Time(limits::STREAM_IDLE),
            tunnel: None,
        }
    }
}

fn http_versions() -> Vec<HttpVersion> {
    vec![HttpVersion::H1]
}

fn never() -> Percent {
    Percent(0)
}

fn overprovisioning() -> Margin {
    Margin(limits::OVERPROVISIONING)
}

fn weight() -> u32 {
    1
}
