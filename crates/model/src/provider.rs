//! Providers: who gives parts of the configuration while the program runs.

use std::path::PathBuf;
use std::time::Duration;

use crate::Name;
pub use crate::discovery::{ConsulProvider, DnsProvider, DockerProvider, EtcdProvider, NameLookup};
pub use crate::origin::{Origin, Place, split_url};

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
    /// Returns the name in the configuration.
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
