//! Providers of parts of the configuration.

use std::collections::BTreeMap;

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterTls, ConsulProvider, DnsProvider, DockerProvider, EtcdProvider, Secret, one_of};
use crate::units::{Size, Time};

/// A source of configuration while the program runs: exactly one of `file`, `http`, `dns`, `etcd`, `consul` and `docker`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["file", "http", "dns", "etcd", "consul", "docker"])))]
pub struct Provider {
    /// A watched file or folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileProvider>,
    /// A document that is fetched over HTTP at an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProvider>,
    /// Endpoints from DNS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsProvider>,
    /// Endpoints and configuration from etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdProvider>,
    /// Endpoints from the catalog of Consul, and configuration from its key-value store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consul: Option<ConsulProvider>,
    /// Endpoints and routes from container labels (Docker, Podman).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker: Option<DockerProvider>,
    /// How long the start of the program waits for its first state. After that it starts with the saved state, or without one.
    #[serde(default = "start_timeout")]
    pub start_timeout: Time,
}

/// A watched file or folder.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileProvider {
    /// A file, or a folder: all `*.yaml`, `*.yml` and `*.json` directly in it. Relative to the file that names it.
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub path: String,
    /// Polling interval. A change applies once two polls see the same content; a single file at once if the system reports that
    /// it is complete: closed by its writer, or moved there.
    #[serde(default = "look_interval")]
    pub interval: Time,
}

/// A document that is fetched over HTTP at an interval.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpProvider {
    /// URL: `http://HOST/PATH` or `https://HOST/PATH`.
    pub url: String,
    /// Polling interval. While the document is unavailable, it grows to 30 s, or to this value if that is longer.
    #[serde(default = "poll_interval")]
    pub interval: Time,
    /// Time-out for the whole response.
    #[serde(default = "poll_timeout")]
    pub timeout: Time,
    /// Largest accepted document.
    #[serde(default = "size_max")]
    pub size_max: Size,
    /// Extra header fields of each request, such as `{ x-tenant: shop }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Bearer token, sent as `authorization: Bearer TOKEN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// User and password, sent as `authorization: Basic …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
    /// How its certificate is verified, for `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
}

/// User and password.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// The user.
    #[schemars(length(min = 1, max = 256))]
    pub user: String,
    /// The password: itself, better `${NAME}` or `{ file: PATH }`.
    pub password: Secret,
}

fn start_timeout() -> Time {
    Time(limits::PROVIDER_START)
}

fn look_interval() -> Time {
    Time(limits::PROVIDER_LOOK)
}

fn poll_interval() -> Time {
    Time(limits::PROVIDER_POLL)
}

fn poll_timeout() -> Time {
    Time(limits::PROVIDER_TIMEOUT)
}

fn size_max() -> Size {
    Size(limits::PROVIDER_BYTES_MAX)
}
