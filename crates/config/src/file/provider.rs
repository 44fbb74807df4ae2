//! Providers of parts of the configuration.

use std::collections::BTreeMap;

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterTls, ConsulProvider, DnsProvider, DockerProvider, EtcdProvider, Secret, one_of};
use crate::units::{Size, Time};

/// Somebody who gives parts of the configuration while the program runs: exactly one of `file`, `http`, `dns`, `etcd`,
/// `consul` and `docker`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["file", "http", "dns", "etcd", "consul", "docker"])))]
pub struct Provider {
    /// A file or a folder that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileProvider>,
    /// A document that is asked for by HTTP again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProvider>,
    /// Endpoints from the domain name system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsProvider>,
    /// Endpoints and configuration from etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdProvider>,
    /// Endpoints from the catalog of Consul, and configuration from its store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consul: Option<ConsulProvider>,
    /// Endpoints and routes from the labels of containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker: Option<DockerProvider>,
    /// How long the start of the program waits for what it says first. Then it starts with what was kept of it, or without.
    #[serde(default = "start_timeout")]
    pub start_timeout: Time,
}

/// A file or a folder that is watched.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileProvider {
    /// A file, or a folder: all `*.yaml`, `*.yml` and `*.json` directly in it. Relative to the file that names it.
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub path: String,
    /// How often it is looked at. What has changed is taken once it is the same at two looks; a single file at once when the system tells
    /// that it is whole: that its writer has closed it, or that it was moved there.
    #[serde(default = "look_interval")]
    pub interval: Time,
}

/// A document that is asked for by HTTP again and again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpProvider {
    /// Where it is: `http://HOST/PATH` or `https://HOST/PATH`.
    pub url: String,
    /// How often it is asked for. While it cannot be had, it is asked for less and less often, down to every 30 s or this,
    /// whichever is longer.
    #[serde(default = "poll_interval")]
    pub interval: Time,
    /// Time for the whole of an answer.
    #[serde(default = "poll_timeout")]
    pub timeout: Time,
    /// Size of the document.
    #[serde(default = "size_max")]
    pub size_max: Size,
    /// Fields of each request, such as `{ x-tenant: shop }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// A token that is sent as `authorization: Bearer TOKEN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// User and password that are sent as `authorization: Basic …`.
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
