//! A whole configuration, validated: what the file said, with defaults filled in and references checked.
//!
//! Two snapshots are compared object by object; what is equal stays untouched when a change is applied.

mod access_log;
mod admin;
mod balance;
mod cluster;
mod listener;
mod route;

use std::sync::Arc;
use std::time::Duration;

use crate::map::Map;
use crate::peers::Peers;
use crate::provider::NameLookup;
use crate::provider::Provider;

pub use crate::cache::Cache;
pub use crate::check::{HealthCheck, HealthCheckKind};
pub use crate::hash_key::HashKey;
pub use crate::queue::Queue;
pub use crate::table::{Table, TableKey};
pub use crate::tls::{Certificate, ClientAuth, ClientTrust, Pem, TlsTermination, TlsVersion, UpstreamTls};
pub use access_log::{AccessLog, LogFormat, LogTarget, Syslog, SyslogAddress, SyslogStyle};
pub use admin::{Admin, AdminIdentity, AdminRole, AdminToken, CertificateName};
pub use balance::{Balance, Hash, HashAlgorithm, NamedBalance};
pub use cluster::{
    Cluster, ClusterSettings, Endpoint, EndpointsFrom, Pool, SharedPool, SharedVersion, UpstreamTimeouts,
};
pub use listener::{
    ALPN_H1, ALPN_H2, ALPN_H3, AlpnRule, Bandwidth, ClientAddress, ConnectionsPerAddress, EscapedSlashes, Forwarding,
    HostMismatch, Http3, HttpListener, HttpVersions, Listener, Paths, Protocol, TcpListener, TcpTarget, UdpListener,
};
pub use route::{Action, ClusterChoice, Redirect, Route};

/// Everything that is configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// In the order of the file; names are unique.
    pub listeners: Vec<Arc<Listener>>,
    /// In the order of the file, which breaks ties of precedence.
    pub routes: Vec<Arc<Route>>,
    /// In the order of the file; names are unique.
    pub clusters: Vec<Arc<Cluster>>,
    /// Tables of counters, in the order of the file; names are unique.
    pub tables: Vec<Arc<Table>>,
    /// Caches, in the order of the file; names are unique.
    pub caches: Vec<Arc<Cache>>,
    /// The administrator's address, if there is one.
    pub admin: Option<Admin>,
    /// Other instances, to which tables are replicated.
    pub peers: Option<Peers>,
    /// Tables that expressions look up, in the order of the file; names are unique.
    pub maps: Vec<Arc<Map>>,
    /// Where records are written.
    pub access_logs: Vec<AccessLog>,
    /// Bound on draining at shutdown.
    pub drain_timeout: Duration,
    /// Who gives parts of the configuration while the program runs, in the order of the file; names are unique.
    pub providers: Vec<Arc<Provider>>,
    /// How host names of endpoints are looked up.
    pub names: NameLookup,
    /// The files of the configuration are read again when they change.
    pub is_watched: bool,
    /// Bound on the time that a new program takes to be ready to take over.
    pub upgrade_timeout: Duration,
}

impl Snapshot {
    /// Returns what clusters ask of providers.
    pub fn asked(&self) -> Vec<EndpointsFrom> {
        self.clusters.iter().filter_map(|cluster| cluster.endpoints_from.as_deref().cloned()).collect()
    }
}
