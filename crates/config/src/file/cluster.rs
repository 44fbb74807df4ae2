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
    /// The endpoints: a list, each an address or a map with settings; or the provider that supplies them, such as `{ from:
    /// consul }`. The list may be empty: requests get 503 until endpoints are added.
    pub endpoints: Endpoints,
    /// When host names of endpoints are resolved: `ttl`, repeatedly, by the time to live of the answers; or `once`, when the
    /// configuration is read. See `names` at the top of the file.
    #[serde(default)]
    pub resolve: Resolve,
    /// HTTP versions that the endpoints speak. With TLS, each endpoint selects one by ALPN. Without TLS there is no
    /// negotiation: `[h2]` speaks HTTP/2 from the first byte. `[h3]` excludes other versions, and needs `tls`.
    #[serde(default = "http_versions")]
    #[schemars(length(min = 1))]
    pub http_versions: Vec<HttpVersion>,
    /// Convert gRPC-Web calls of browsers to gRPC, both the binary and the text form. Endpoints need HTTP/2 or HTTP/3.
    #[serde(default)]
    pub grpc_web: bool,
    /// Limit on busy connections to all endpoints together, over all workers; counted like `connections_max` of an endpoint.
    /// Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub connections_max: Option<u32>,
    /// Limit on requests in flight to all endpoints together, over all workers. The smaller of this and `connections_max`
    /// applies. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_max: Option<u32>,
    /// How an endpoint is chosen.
    #[serde(default)]
    pub balance: Balance,
    /// Overprovisioning factor: how much more than its share an endpoint is assumed to handle. The next priority gets traffic
    /// when the first, multiplied by this, has too little capacity: with `140%`, when less than 71% of its endpoints are up.
    #[serde(default = "overprovisioning")]
    pub overprovisioning: Margin,
    /// Endpoints in the zone of this instance (`zone` at the top of the file) come before others of the same priority.
    #[serde(default)]
    pub prefer_own_zone: bool,
    /// Use only some of many endpoints, so that several instances of the program together use all of them evenly. By default
    /// all are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aperture: Option<Aperture>,
    /// Check the endpoints regularly (active health checks). By default they are not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Eject endpoints that fail requests, for a while (outlier detection). By default none is ejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive_health: Option<PassiveHealth>,
    /// Query an agent of each endpoint for its load and state. By default no agent is queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_check: Option<AgentCheck>,
    /// Panic threshold: when a smaller share of the endpoints is healthy, all of them get traffic, healthy or not, so that the
    /// few healthy ones are not overloaded. `0%` switches this off.
    #[serde(default = "never")]
    pub panic_threshold: Percent,
    /// Ramp-up time of an endpoint that comes up: from a tenth of its weight to all of it. By default it gets its full share at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<Time>,
    /// Queue requests while all endpoints are full. By default they are rejected at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Use TLS to the endpoints: `true`, or settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
    /// How connections to the endpoints are set up.
    #[serde(default)]
    pub socket: ClusterSocket,
    /// Send a PROXY protocol header to the endpoints at the start of each connection: `v1`, `v2`, or settings. Such a
    /// connection is reused only for the client connection that it was opened for. By default no header is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<SendProxy>,
    /// Connections kept for reuse.
    #[serde(default)]
    pub pool: Pool,
    /// Time-outs of endpoints.
    #[serde(default)]
    pub timeouts: ClusterTimeouts,
    /// When a request is retried on another endpoint. By default only while no endpoint has seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Reject requests at once beyond these limits (circuit breaker). Off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<CircuitBreaker>,
    /// Limit requests in flight to a number that follows from measured response times. By default only fixed limits apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive_concurrency: Option<AdaptiveConcurrency>,
    /// Send slow requests to a second endpoint, too (hedging). Off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    /// Keep the requests of one session at one endpoint (sticky sessions). By default the balancer decides each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<Persistence>,
    /// Apply `defaults` for clusters. `false`: none of them apply here.
    #[serde(default = "taken", skip_serializing_if = "is_taken")]
    pub defaults: bool,
}

/// The endpoints of a cluster, or the provider that supplies them.
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
    /// Returns those that are written in the configuration.
    pub(crate) fn written(&self) -> &[Endpoint] {
        match self {
            Self::List(list) => list,
            Self::From(_) => &[],
        }
    }

    /// Returns whether a provider gives them.
    pub(crate) fn are_given(&self) -> bool {
        matches!(self, Self::From(_))
    }
}

/// Endpoints of a provider. Until it has delivered some, the cluster has none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointsFrom {
    /// The provider, one of `providers`.
    pub from: String,
    /// The key under which the provider has them. By default the name of the cluster.
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
    /// `ip:port`, `[ipv6]:port`, `name:port`, or a Unix socket such as `unix:/run/app.sock`. A name is resolved when the
    /// configuration is read, and again by its time to live, see `resolve` of the cluster. The lowest of its addresses is used,
    /// as long as the name has it.
    pub address: String,
    /// Its share of the requests compared with the others; 0 gets no new requests.
    #[serde(default = "weight")]
    #[schemars(range(min = 0, max = limits::WEIGHT_MAX))]
    pub weight: u32,
    /// Limit on busy connections, over all workers: requests, since an HTTP/1.1 connection carries one at a time, or TCP
    /// connections. Idle pooled connections do not count; requests that share an HTTP/2 connection count one each. Unlimited by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub connections_max: Option<u32>,
    /// Limit on requests in flight, over all workers. The same as `connections_max`; the smaller of the two applies. Unlimited
    /// by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_max: Option<u32>,
    /// Limit on requests in the `queue` that wait for this endpoint alone, because of their session, over all workers. Beyond
    /// it, requests and their sessions move to another endpoint; with `otherwise: refuse` they are rejected as by a full queue.
    /// By default only the limit of the queue applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub queue_max: Option<u32>,
    /// Port of its agent, for `agent_check` of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub agent_port: Option<u16>,
    /// Administrative state, which overrides its checks.
    #[serde(default)]
    pub state: EndpointState,
    /// Priority: endpoints with a lower number come first. The next number gets the requests that exceed their capacity, see
    /// `overprovisioning`, and those that they cannot take because all are full or have failed this request. Requests wait in
    /// the `queue` only when all priorities are full.
    #[serde(default)]
    #[schemars(range(min = 0, max = limits::PRIORITY_MAX))]
    pub priority: u32,
    /// Use it only for requests that no regular endpoint can take: all of them are down, full, or have failed this request.
    /// With a `queue`, requests wait while those are full, unless it says `use_backups`.
    #[serde(default)]
    pub backup: bool,
    /// The zone of the endpoint, see `prefer_own_zone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub zone: Option<String>,
    /// Labels by name, such as `{ version: v2 }`. Routes may select by them, see `subset`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl EndpointSettings {
    /// Returns an endpoint at an address, with defaults for all else.
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

/// TLS towards endpoints: a switch or settings.
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
    /// Server name (SNI) that is sent and that the certificate must contain. By default the host in the endpoint's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Verify the certificate. Without it, anyone can impersonate the endpoint; use `false` only in tests.
    pub verify: bool,
    /// CA certificates that endpoints are verified with, a PEM file. By default the CAs of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub authorities: Option<String>,
    /// Client certificate, for endpoints that request one.
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
    /// Reuse connections. With `false`, each request opens its own connection, and over HTTP/1.1 the endpoint gets `Connection:
    /// close`. The other settings of the pool, except `ping_interval` and `ping_timeout`, then have no effect.
    pub reuse: bool,
    /// Idle connections that each worker keeps to each endpoint. With 0 none is kept; concurrent HTTP/2 and HTTP/3 requests
    /// still share one.
    pub idle_max: u32,
    /// Time that an idle connection is kept. Set it below the keep-alive time-out of the endpoints.
    pub idle_timeout: Time,
    /// Requests after which a connection is closed. Unlimited by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_per_connection_max: Option<u64>,
    /// HTTP/2 and HTTP/3: concurrent requests on a connection, if the endpoint allows as many. More requests open another
    /// connection.
    #[schemars(range(min = 1, max = limits::UPSTREAM_STREAMS_HARD_MAX))]
    pub streams_per_connection_max: u32,
    /// HTTP/2 and HTTP/3: time without a byte from the endpoint, with requests in flight, after which a PING is sent.
    pub ping_interval: Time,
    /// HTTP/2 and HTTP/3: time for the endpoint to answer the PING. After that the connection is closed.
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

/// Time-outs of endpoints.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterTimeouts {
    /// To establish a connection, TLS included.
    pub connect: Time,
    /// From the complete request to the head of the response.
    pub response_head: Time,
    /// Without a byte while a body is transferred.
    pub idle: Time,
    /// Without a byte in either direction of a WebSocket or another tunnel. By default the shorter of `idle` and
    /// `timeouts.stream` of the listener; if set, it replaces both.
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
