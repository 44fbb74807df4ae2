//! Providers that find endpoints and configuration in the registries of others.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BasicAuth, ClusterTls, Secret};
use crate::units::Time;

/// Endpoints from DNS. The key of a cluster is `HOST:PORT` for A and AAAA records, or a name of SRV records, without a port,
/// which contain ports, priorities and weights.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DnsProvider {
    /// DNS resolvers, in order: addresses, with a port unless it is 53. Names are then fully qualified. By default the system's
    /// `/etc/resolv.conf` and `/etc/hosts`, with the search list, read each time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub resolvers: Vec<String>,
    /// Address families to query.
    #[serde(default = "families")]
    #[schemars(length(min = 1))]
    pub families: Vec<Family>,
    /// Minimum time between lookups, even if records have a shorter time to live.
    #[serde(default = "ttl_min")]
    pub ttl_min: Time,
    /// Maximum time between lookups.
    #[serde(default = "ttl_max")]
    pub ttl_max: Time,
    /// Time-out of one query to one resolver.
    #[serde(default = "timeout")]
    pub timeout: Time,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// A records.
    Ipv4,
    /// AAAA records.
    Ipv6,
}

/// How host names of endpoints are resolved, see `resolve` of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    /// DNS resolvers, in order: addresses, with a port unless it is 53. They get fully qualified names, and no other source is
    /// used. By default the system resolves: `/etc/hosts`, the resolvers of `/etc/resolv.conf`, and other sources it has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub resolvers: Vec<String>,
    /// Minimum time between lookups, even if records have a shorter time to live.
    pub ttl_min: Time,
    /// Maximum time between lookups.
    pub ttl_max: Time,
    /// Time-out of one query to one resolver.
    pub timeout: Time,
    /// Time between lookups of a name that the system resolves by other means than DNS, such as mDNS, which have no time to
    /// live.
    pub interval: Time,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            resolvers: Vec::new(),
            ttl_min: ttl_min(),
            ttl_max: Time(limits::NAME_TTL_MAX),
            timeout: timeout(),
            interval: Time(limits::NAME_INTERVAL),
        }
    }
}

/// When host names of endpoints are resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resolve {
    /// When the configuration is read, and again whenever the records expire.
    #[default]
    Ttl,
    /// When the configuration is read.
    Once,
}

/// Endpoints and configuration from etcd 3.4 or newer, watched. Below the prefix, `endpoints/KEY/NAME` holds an endpoint of the
/// key KEY: `ip:port`, or its settings in JSON; and `config/NAME` a text in YAML or JSON with `listeners`, `routes`, `clusters`
/// and `endpoints`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdProvider {
    /// Members of the etcd cluster, such as `http://10.0.0.2:2379`. If one is unreachable, the next is used.
    #[schemars(length(min = 1, max = 16))]
    pub urls: Vec<String>,
    /// Prefix of the keys.
    #[serde(default = "prefix")]
    #[schemars(length(min = 1, max = 256))]
    pub prefix: String,
    /// User and password, if etcd requires them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
    /// Time-out for connecting and for a response. A watch has none.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// How its certificate is verified, for `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
}

/// Endpoints from the catalog of Consul, and configuration from its key-value store, by blocking queries. The key of a cluster
/// is a service name of the catalog, or `TAG.NAME`. Instances with a critical check are left out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsulProvider {
    /// Address of a Consul agent.
    #[serde(default = "consul_url")]
    pub url: String,
    /// Sent as `x-consul-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// Datacenter. By default that of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub datacenter: Option<String>,
    /// Namespace. By default that of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub namespace: Option<String>,
    /// Let any member respond from its own, possibly stale, data, and not only the leader: works without a leader, too.
    #[serde(default = "yes")]
    pub stale: bool,
    /// Also read the key-value store: keys below this prefix, in the layout that `etcd` has. By default it is not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub prefix: Option<String>,
    /// How long a blocking query waits for changes.
    #[serde(default = "wait")]
    pub wait: Time,
    /// Time-out for connecting and for a response, in addition to `wait`.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// How its certificate is verified, for `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
}

/// Endpoints and routes from container labels. The key of a cluster is the label `equipoise.cluster`, by default the Compose
/// name of the container, or its own name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DockerProvider {
    /// The Docker or Podman engine: its socket, or `http://HOST:PORT`. Access to it is root access to that machine; better use
    /// a proxy that allows only `GET /events` and `GET /containers/json`.
    #[serde(default = "docker_url")]
    pub url: String,
    /// Prefix of the labels.
    #[serde(default = "label_prefix")]
    #[schemars(length(min = 1, max = 64))]
    pub prefix: String,
    /// The network that containers are reached in. By default their only one, or the one in the label `equipoise.network`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub network: Option<String>,
    /// Use all containers, not only those with the label `equipoise.enable=true`.
    #[serde(default)]
    pub all: bool,
    /// Time-out for connecting and for a response. The stream of events has none.
    #[serde(default = "timeout")]
    pub timeout: Time,
}

fn yes() -> bool {
    true
}

fn prefix() -> String {
    "equipoise/".to_owned()
}

fn label_prefix() -> String {
    "equipoise".to_owned()
}

fn consul_url() -> String {
    "http://127.0.0.1:8500".to_owned()
}

fn docker_url() -> String {
    "unix:/var/run/docker.sock".to_owned()
}

fn wait() -> Time {
    Time(limits::CONSUL_WAIT)
}

fn families() -> Vec<Family> {
    vec![Family::Ipv4, Family::Ipv6]
}

fn ttl_min() -> Time {
    Time(limits::DNS_TTL_MIN)
}

fn ttl_max() -> Time {
    Time(limits::DNS_TTL_MAX)
}

fn timeout() -> Time {
    Time(limits::DISCOVERY_TIMEOUT)
}
