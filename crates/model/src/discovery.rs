//! Providers that find endpoints and configuration in the registries of others.

use std::net::SocketAddr;
use std::time::Duration;

use crate::limits;
use crate::origin::Origin;

/// The domain name system.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsProvider {
    /// Whom to ask, in order; empty: those of the system.
    pub resolvers: Vec<SocketAddr>,
    /// Ask for IPv4 addresses.
    pub ipv4: bool,
    /// Ask for IPv6 addresses.
    pub ipv6: bool,
    /// Records live as long as this at least.
    pub ttl_min: Duration,
    /// And no longer than this.
    pub ttl_max: Duration,
    /// For one answer of one resolver.
    pub timeout: Duration,
}

/// How the host names of endpoints are looked up.
#[derive(Clone, Debug, PartialEq)]
pub struct NameLookup {
    /// Resolvers, and how long their answers hold. Without resolvers the system is asked, by all means that it has.
    pub dns: DnsProvider,
    /// Time between lookups of a name that the system knows by other means than DNS: nothing says how long such an answer holds.
    pub interval: Duration,
}

impl Default for NameLookup {
    fn default() -> Self {
        let dns = DnsProvider {
            resolvers: Vec::new(),
            ipv4: true,
            ipv6: true,
            ttl_min: limits::DNS_TTL_MIN,
            ttl_max: limits::NAME_TTL_MAX,
            timeout: limits::DISCOVERY_TIMEOUT,
        };
        Self { dns, interval: limits::NAME_INTERVAL }
    }
}

/// A prefix of the keys of etcd.
#[derive(Clone, Debug, PartialEq)]
pub struct EtcdProvider {
    /// Members of the cluster, at least one; the next is asked when one is away.
    pub origins: Vec<Origin>,
    /// What keys begin with.
    pub prefix: String,
    /// User and password.
    pub user: Option<(String, String)>,
}

/// The catalog and the store of Consul.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsulProvider {
    /// An agent. Its timeout is that beyond `wait`.
    pub origin: Origin,
    /// Another than that of the agent.
    pub datacenter: Option<String>,
    /// Another than that of the token.
    pub namespace: Option<String>,
    /// Any member may answer, not only the leader.
    pub stale: bool,
    /// What keys of the store begin with; `None`: the store is not read.
    pub prefix: Option<String>,
    /// How long a query waits for something new.
    pub wait: Duration,
}

/// The labels of containers.
#[derive(Clone, Debug, PartialEq)]
pub struct DockerProvider {
    /// The engine.
    pub origin: Origin,
    /// What labels begin with, without the dot behind it.
    pub prefix: String,
    /// The network in which containers are reached, unless their labels say another.
    pub network: Option<String>,
    /// Take containers that do not say that they want it, too.
    pub all: bool,
}
