//! Providers: who gives parts of the configuration while the program runs.

use std::path::PathBuf;
use std::time::Duration;

pub use crate::discovery::{ConsulProvider, DnsProvider, DockerProvider, EtcdProvider, NameLookup};
use crate::snapshot::{EndpointsFrom, Snapshot, UpstreamTls};
use crate::{Address, Name};

/// One provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// Unique; the stable id.
    pub name: Name,
    /// How long the start of the program waits for what it says first.
    pub start_timeout: Duration,
    /// What it is.
    pub kind: ProviderKind,
}

/// What a provider is. New ones are added here and as a file in `control::providers`.
#[derive(Clone, Debug, PartialEq)]
pub enum ProviderKind {
    /// A file or a folder.
    File(FileProvider),
    /// A document that is asked for by HTTP again and again.
    Http(Box<HttpProvider>),
    /// The domain name system.
    Dns(DnsProvider),
    /// A prefix of the keys of etcd.
    Etcd(EtcdProvider),
    /// The catalog and the store of Consul.
    Consul(Box<ConsulProvider>),
    /// The labels of containers.
    Docker(Box<DockerProvider>),
}

impl ProviderKind {
    /// As the configuration calls it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Http(_) => "http",
            Self::Dns(_) => "dns",
            Self::Etcd(_) => "etcd",
            Self::Consul(_) => "consul",
            Self::Docker(_) => "docker",
        }
    }
}

/// A file, or all configuration files directly in a folder.
#[derive(Clone, Debug, PartialEq)]
pub struct FileProvider {
    /// The file or folder.
    pub path: PathBuf,
    /// From look to look.
    pub interval: Duration,
}

/// A document that is asked for by HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpProvider {
    /// Who is asked.
    pub origin: Origin,
    /// The target of the request, from `/` on.
    pub path: String,
    /// From question to question.
    pub interval: Duration,
    /// Bytes of a document.
    pub size_max: u64,
}

/// An HTTP/1.1 address that a provider polls.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Where.
    pub place: Place,
    /// The field `host`, and what its certificate must bear if nothing else is said.
    pub host: String,
    /// TLS, if it is spoken.
    pub tls: Option<UpstreamTls>,
    /// To connect, and from the request to the head of the answer.
    pub timeout: Duration,
    /// Fields of each request, credentials among them.
    pub fields: Vec<(String, String)>,
}

/// Where an origin is. Names are looked up at each connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A host name or an address, and a port.
    Host(String, u16),
    /// A fixed place.
    Address(Address),
}

impl Snapshot {
    /// What clusters ask of providers.
    pub fn asked(&self) -> Vec<EndpointsFrom> {
        self.clusters.iter().filter_map(|cluster| cluster.endpoints_from.as_deref().cloned()).collect()
    }
}
