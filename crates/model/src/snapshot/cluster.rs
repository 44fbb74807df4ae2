//! Endpoints that do the same work, and how they are reached.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

use super::{Balance, HttpVersions, UpstreamTls};
use crate::Name;
use crate::address::Address;
use crate::check::HealthCheck;
use crate::fitness::{AdminState, Fitness};
use crate::persistence::Persistence;
use crate::placement::{Placed, Spread};
use crate::proxy_protocol::SendProxy;
use crate::queue::Queue;
use crate::resilience::Resilience;
use crate::retry::Retry;
use crate::socket::ClusterSocket;

/// Endpoints that serve the same thing.
///
/// There may be very many, most of them set up alike: what they share is one copy.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Unique; the stable id.
    pub name: Name,
    /// Addresses are unique when they are read. There may be none, until a provider or a change adds some.
    pub endpoints: Vec<Endpoint>,
    /// Who gives the endpoints, if the configuration does not.
    pub endpoints_from: Option<Box<EndpointsFrom>>,
    /// How all of them are used. They are read, and changed, as if they stood here.
    pub settings: Arc<ClusterSettings>,
}

impl Deref for Cluster {
    type Target = ClusterSettings;

    #[inline]
    fn deref(&self) -> &ClusterSettings {
        &self.settings
    }
}

/// Other clusters keep what they share with this one.
impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut ClusterSettings {
        Arc::make_mut(&mut self.settings)
    }
}

impl PartialEq for Cluster {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.endpoints == other.endpoints
            && self.endpoints_from == other.endpoints_from
            && (Arc::ptr_eq(&self.settings, &other.settings) || self.settings == other.settings)
    }
}

impl Cluster {
    /// Returns the same with other settings.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut ClusterSettings)) -> Self {
        change(&mut self);
        self
    }
}

/// How the endpoints of a cluster are used.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSettings {
    /// Exchanges (HTTP) or connections (TCP) at once at all endpoints together, over all workers.
    pub connections_max: Option<u32>,
    /// How one is chosen.
    pub balance: Balance,
    /// Who of the endpoints comes first.
    pub spread: Spread,
    /// Active checks.
    pub health_check: Option<HealthCheck>,
    /// What else decides whether endpoints are fit for work.
    pub fitness: Fitness,
    /// Waiting when all endpoints are full; `None`: refuse at once.
    pub queue: Option<Queue>,
    /// TLS towards the endpoints.
    pub tls: Option<UpstreamTls>,
    /// How connections to the endpoints are set up.
    pub socket: ClusterSocket,
    /// The PROXY header that endpoints get.
    pub proxy_protocol: Option<SendProxy>,
    /// Calls of gRPC-Web go to the endpoints as gRPC.
    pub grpc_web: bool,
    /// Some endpoints have host names, which are resolved again while the configuration is active.
    pub follows_names: bool,
    /// Connections kept for reuse.
    pub pool: Pool,
    /// Time-outs towards the endpoints.
    pub timeouts: UpstreamTimeouts,
    /// When another endpoint is tried.
    pub retry: Retry,
    /// What keeps it from being given too much.
    pub resilience: Resilience,
    /// Sessions that stay with the endpoint where they began.
    pub persistence: Option<Persistence>,
}

/// Who gives the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointsFrom {
    /// The provider.
    pub provider: Name,
    /// What it knows them by.
    pub key: Arc<str>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// As written: `host:port`, `ip:port` or `unix:PATH`; the stable id within the cluster.
    pub name: Name,
    /// Where it is.
    pub address: Address,
    /// 1 to [`crate::limits::WEIGHT_MAX`]; 0 gets no new work.
    pub weight: u32,
    /// Exchanges (HTTP) or connections (TCP) at once, over all workers.
    pub connections_max: Option<u32>,
    /// Those that wait for this endpoint alone, because of their sessions.
    pub queue_max: Option<NonZeroU32>,
    /// What the operator wants of it.
    pub state: AdminState,
    /// Where it stands among the others.
    pub placement: Placed,
    /// Port of its agent.
    pub agent_port: Option<u16>,
}

/// Connections kept for reuse, per worker and endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Idle connections kept; 0 switches reuse off.
    pub idle_max: u32,
    /// Time an idle one is kept.
    pub idle_timeout: Duration,
    /// Requests after which a connection is not reused.
    pub requests_per_connection_max: Option<u64>,
    /// HTTP/2 or HTTP/3, if the endpoints speak it: connections that many requests share.
    pub shared: Option<SharedPool>,
}

impl Pool {
    /// Returns the versions that are offered to an endpoint.
    pub fn versions(&self) -> HttpVersions {
        let speaks = |version| self.shared.as_ref().is_some_and(|shared| shared.version == version);
        let h1 = self.shared.as_ref().is_none_or(|shared| !shared.is_only);
        HttpVersions { h1, h2: speaks(SharedVersion::Http2), h3: speaks(SharedVersion::Http3) }
    }
}

/// Which version it is whose connections many requests share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedVersion {
    /// HTTP/2.
    Http2,
    /// HTTP/3, which is always encrypted and never chosen beside another.
    Http3,
}

/// HTTP/2 or HTTP/3 towards endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPool {
    /// Which of them.
    pub version: SharedVersion,
    /// The endpoints speak nothing else. Otherwise each chooses as a connection begins, by ALPN.
    pub is_only: bool,
    /// Requests at once on a connection.
    pub streams_max: u32,
    /// Time without a byte from the endpoint after which it is asked whether it is there.
    pub ping_interval: Duration,
    /// Time for it to answer.
    pub ping_timeout: Duration,
}

/// Time-outs towards endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// To establish a connection, TLS included.
    pub connect: Duration,
    /// From the request being sent whole to the head of the final response.
    pub response_head: Duration,
    /// Without a byte while a body moves.
    pub idle: Duration,
    /// Without a byte in either direction of a tunnel. `None`: what bounds the silence of bodies bounds that of tunnels too.
    pub tunnel: Option<Duration>,
}
