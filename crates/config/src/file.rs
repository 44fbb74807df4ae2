//! The file format: what may be written, with its defaults. The comments here are the reference page and what
//! editors show; [`crate::schema`] is generated from them.
//!
//! These types hold what was written. What it means is found out in `resolve`.

mod access_log;
mod balance;
mod bandwidth;
mod cache;
mod check;
mod cluster;
mod defaults;
mod discovery;
mod health;
mod listener;
mod listener_tls;
mod map;
mod matching;
mod peers;
mod per_address;
mod persistence;
mod provider;
mod proxy_protocol;
mod queue;
mod resilience;
mod retry;
mod route;
mod socket;
mod table;
mod when;

use std::collections::BTreeMap;

use model::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::units::Time;

pub use access_log::*;
pub use balance::*;
pub use bandwidth::*;
pub use cache::*;
pub use check::*;
pub use cluster::*;
pub use defaults::*;
pub use discovery::*;
pub use health::*;
pub use listener::*;
pub use listener_tls::*;
pub use map::*;
pub use matching::*;
pub use peers::*;
pub use per_address::*;
pub use persistence::*;
pub use provider::*;
pub use proxy_protocol::*;
pub use queue::*;
pub use resilience::*;
pub use retry::*;
pub use route::*;
pub use socket::*;
pub use table::*;
pub use when::*;

/// The line of an access log when none is given.
pub const DEFAULT_LINE: &str =
    "{time} {client_ip} \"{method} {uri} {version}\" {status} {sent_bytes} {total_ms} {cluster}/{endpoint} {flag}";
/// How the schema names the names of objects.
pub(crate) const NAME_FORMAT: &str = "equipoise-name";
/// How the schema names paths of files, which are relative to the file that names them.
pub(crate) const PATH_FORMAT: &str = model::filter::FILE_FORMAT;
/// Name of the definition that filters are added to.
pub(crate) const FILTER_DEFINITION: &str = "Filter";

/// One configuration. Every object has a name, unknown keys are errors, and keys that are left out have the default that is
/// documented here.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct File {
    /// Version of this format: 1.
    #[schemars(extend("const" = 1))]
    pub version: u32,
    /// More files: a file, a folder (all `*.yaml`, `*.yml` and `*.json` directly in it, by name) or a pattern such as
    /// `sites/*.yaml`, relative to this file. Their contents are added after this file's: `listeners` and `clusters` by name,
    /// `routes` and `access_logs` in order.
    #[schemars(default, with = "OneOrMany")]
    pub include: OneOrMany,
    /// Listeners by name: the addresses that accept connections.
    #[schemars(default, schema_with = "named::<Listener>")]
    pub listeners: BTreeMap<String, Listener>,
    /// Which requests go where. The most specific match wins: host, then path (exact, longest prefix, regular expression), then
    /// method, headers and query; `priority` overrides. Among equals the first wins.
    #[schemars(default)]
    pub routes: Vec<Route>,
    /// Clusters by name: endpoints that serve the same thing.
    #[schemars(default, schema_with = "named::<Cluster>")]
    pub clusters: BTreeMap<String, Cluster>,
    /// Tables by name: counters and rates by client address or header field, which routes count into and conditions read.
    #[schemars(default, schema_with = "named::<Table>")]
    pub tables: BTreeMap<String, Table>,
    /// Caches by name: memory for responses, which the filter `cache` of routes fills and answers from.
    #[schemars(default, schema_with = "named::<Cache>")]
    pub caches: BTreeMap<String, Cache>,
    /// Settings that listeners, routes and clusters have unless they set them themselves.
    #[schemars(with = "Option<Defaults>")]
    pub defaults: Option<()>,
    /// Tables of keys and values by name, which expressions look up.
    #[schemars(default, schema_with = "named::<Map>")]
    pub maps: BTreeMap<String, Map>,
    /// The zone that this instance is in, for clusters that prefer it. By default the environment variable
    /// `EQUIPOISE_ZONE`, if there is one.
    #[schemars(length(min = 1, max = 64))]
    pub zone: Option<String>,
    /// How host names of endpoints are resolved.
    #[schemars(default)]
    pub names: Names,
    /// The admin listener: page, API and metrics. Without it there is none.
    pub admin: Option<Admin>,
    /// Other instances, to which tables with `replicate: true` are replicated.
    pub peers: Option<Peers>,
    /// Where access logs are written.
    #[schemars(default)]
    pub access_logs: Vec<AccessLog>,
    /// Formats of access logs, by name: lines with variables in braces, see [access logs](access-log.md).
    #[schemars(default, schema_with = "named::<String>")]
    pub log_formats: BTreeMap<String, String>,
    /// How the program shuts down.
    #[schemars(default)]
    pub shutdown: Shutdown,
    /// Sources of configuration while the program runs, by name: each provides `listeners`, `routes`, `clusters`, or the
    /// endpoints of clusters. Where order matters, earlier providers come first.
    #[schemars(default, schema_with = "named::<Provider>")]
    pub providers: BTreeMap<String, Provider>,
    /// Reload this file and its includes when they change, as SIGHUP does. By default only certificates, keys and CA files are
    /// watched.
    #[schemars(default)]
    pub watch: bool,
}

/// Returns a map whose keys are names of objects.
fn named<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let value = generator.subschema_for::<T>();
    json_schema!({
        "type": "object",
        "additionalProperties": value,
        "propertyNames": { "format": NAME_FORMAT, "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$", "maxLength": 64 },
    })
}

/// One, or a list of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OneOrMany<T = String> {
    /// One.
    One(T),
    /// Several.
    Many(Vec<T>),
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    /// Returns all of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    /// Returns the path of one of them, of the whole at `at`.
    pub(crate) fn path(&self, at: &str, index: usize) -> String {
        match self {
            Self::One(_) => at.to_owned(),
            Self::Many(_) => format!("{at}/{index}"),
        }
    }

    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

/// Returns the schema's way to say that exactly one of these keys is needed.
fn one_of(keys: &[&str]) -> Value {
    Value::Array(keys.iter().map(|key| json!({ "required": [key] })).collect())
}

/// The admin listener: page, API and metrics.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Address and port, or a Unix socket such as `unix:/run/equipoise/admin.sock`. Without `tokens` and `identities` the API
    /// requires no credentials, so only a loopback address or a Unix socket is accepted. A name in the abstract namespace
    /// (`unix:@name`) has no file permissions, so without credentials it is read-only. A port alone means `0.0.0.0` and that
    /// port.
    pub bind: Bind,
    /// Permissions of the Unix socket, in octal. The default `"0600"` admits only the user that the program runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Accept an address that others can reach although there are neither `tokens` nor `identities`. Everyone who reaches it
    /// can read the configuration; it accepts no changes.
    #[serde(default)]
    pub allow_remote: bool,
    /// Use TLS on a network address. With `client`, client certificates are requested, and `identities` grants them access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Bearer tokens that grant access to the API. If any is set, every request except those to `/healthz` and `/readyz` needs
    /// `authorization: Bearer TOKEN`, or a certificate of `identities`. Tokens are sent unencrypted: over a network, use `tls`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tokens: Vec<AdminToken>,
    /// Accept tokens that are sent unencrypted to an address that others can reach, because something else encrypts the
    /// connection. Without this, `check` and the start warn.
    #[serde(default)]
    pub tokens_in_clear: bool,
    /// Client certificates that grant access to the API, if `client` in `tls` requests them. The first match counts. A client
    /// that also sends a token is identified by the token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub identities: Vec<AdminIdentity>,
    /// An existing folder that stores API changes, endpoint states and the history of generations, so that they survive a
    /// restart. Without it they last as long as the process. Relative to the file that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = PATH_FORMAT))]
    pub state: Option<String>,
}

/// A token that grants access to the API.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminToken {
    /// Name of its owner, shown in the history of changes.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// What it permits.
    pub role: AdminRole,
    /// The token: at least 16 characters, better `${NAME}` or `{ file: PATH }` with the output of `openssl rand -hex 32`.
    pub token: Secret,
}

/// A client certificate that grants access to the API, by `common_name` or `alternative_name`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["common_name", "alternative_name"])))]
pub struct AdminIdentity {
    /// Name of its owner, shown in the history of changes.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// What it permits.
    pub role: AdminRole,
    /// The common name (CN) in the subject of the certificate, compared exactly; of several the most specific, which is the
    /// last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub common_name: Option<String>,
    /// A subject alternative name of the certificate, compared exactly: a URI such as `spiffe://example.com/deploy` if it has a
    /// colon, an email address if it has `@`, otherwise a DNS name. Names of other kinds do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub alternative_name: Option<String>,
}

/// What a token or a certificate permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminRole {
    /// To read everything.
    Read,
    /// To change everything, too.
    Admin,
}

/// How the program shuts down.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// Time for requests in flight to finish.
    pub drain_timeout: Time,
    /// Time for the new program to become ready during an upgrade; after that this process continues alone.
    pub upgrade_timeout: Time,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { drain_timeout: Time(limits::DRAIN), upgrade_timeout: Time(limits::UPGRADE) }
    }
}
