//! Providers that find endpoints and configuration in the registries of others.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BasicAuth, ClusterTls, Secret};
use crate::units::Time;

/// Endpoints from the domain name system. The key of a cluster is `HOST:PORT` for the addresses of a host, or the name of SRV
/// records, without a port, which say ports, priorities and weights themselves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DnsProvider {
    /// Whom to ask, in order: addresses, with a port unless it is 53. Names are whole then. By default what the system's
    /// `/etc/resolv.conf` and `/etc/hosts` say, at each moment, with their search list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub resolvers: Vec<String>,
    /// Which addresses are asked for.
    #[serde(default = "families")]
    #[schemars(length(min = 1))]
    pub families: Vec<Family>,
    /// Names are asked for again when their records have lived as long as they say, but no sooner than this.
    #[serde(default = "ttl_min")]
    pub ttl_min: Time,
    /// And no later than this.
    #[serde(default = "ttl_max")]
    pub ttl_max: Time,
    /// Time for one answer of one resolver.
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

/// How the host names of endpoints are looked up, see `resolve` of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    /// Resolvers to ask, in order: addresses, with a port unless it is 53. They are asked for whole names, and nothing else is
    /// asked. By default the system is asked: `/etc/hosts`, those of `/etc/resolv.conf`, and what else it has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub resolvers: Vec<String>,
    /// A name is looked up again when its records have lived as long as they say, but no sooner than this.
    pub ttl_min: Time,
    /// And no later than this.
    pub ttl_max: Time,
    /// Time for one answer of one resolver.
    pub timeout: Time,
    /// Time between lookups of a name that the system knows by other means than DNS, such as mDNS: nothing says how long such an
    /// answer holds.
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

/// When the host names of endpoints are looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resolve {
    /// When the configuration is read, and again whenever the records have lived as long as they say.
    #[default]
    Ttl,
    /// When the configuration is read.
    Once,
}

/// Endpoints and configuration from etcd 3.4 or newer, watched. Behind the prefix, `endpoints/KEY/NAME` holds an endpoint of the key
/// KEY: `ip:port`, or its settings in JSON; and `config/NAME` a text in YAML or JSON with `listeners`, `routes`, `clusters` and
/// `endpoints`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdProvider {
    /// Members of its cluster, such as `http://10.0.0.2:2379`. The next is asked when one is away.
    #[schemars(length(min = 1, max = 16))]
    pub urls: Vec<String>,
    /// What our keys begin with.
    #[serde(default = "prefix")]
    #[schemars(length(min = 1, max = 256))]
    pub prefix: String,
    /// User and password, if it wants them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
    /// Time to connect and for an answer. A watch lasts.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// How its certificate is verified, for `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
}

/// Endpoints from the catalog of Consul, and configuration from its store, by blocking queries. The key of a cluster is a name of
/// the catalog, or `TAG.NAME`. Instances with a critical check are left out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsulProvider {
    /// An agent.
    #[serde(default = "consul_url")]
    pub url: String,
    /// Sent as `x-consul-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// By default that of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub datacenter: Option<String>,
    /// By default that of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub namespace: Option<String>,
    /// Let any member answer, with what it knows, and not only the leader: answers come also without a leader.
    #[serde(default = "yes")]
    pub stale: bool,
    /// Read the store, too: keys behind this prefix, of the shapes that `etcd` has. By default it is not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub prefix: Option<String>,
    /// How long a query waits for something new.
    #[serde(default = "wait")]
    pub wait: Time,
    /// Time to connect and for an answer, beyond `wait`.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// How its certificate is verified, for `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
}

/// Endpoints and routes from the labels of containers. The key of a cluster is what the label `equipoise.cluster` says, by default what
/// Compose calls the container, or its name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DockerProvider {
    /// The engine: its socket, or `http://HOST:PORT`. Who may use it is root on that machine: better reach it by a proxy that lets
    /// only `GET /events` and `GET /containers/json` through.
    #[serde(default = "docker_url")]
    pub url: String,
    /// What labels begin with.
    #[serde(default = "label_prefix")]
    #[schemars(length(min = 1, max = 64))]
    pub prefix: String,
    /// The network in which containers are reached. By default their only one, or what the label `equipoise.network` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub network: Option<String>,
    /// Take all containers, without the label `equipoise.enable=true`.
    #[serde(default)]
    pub all: bool,
    /// Time to connect and for an answer. The stream of events lasts.
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
