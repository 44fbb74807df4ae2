//! The file format: what may be written, with its defaults. The comments here are the reference page and what
//! editors show; [`crate::schema`] is generated from them.
//!
//! These types hold what was written. What it means is found out in `resolve`.

mod access_log;
mod balance;
mod check;
mod cluster;
mod defaults;
mod discovery;
mod health;
mod listener;
mod persistence;
mod provider;
mod proxy_protocol;
mod queue;
mod resilience;
mod retry;
mod route;
mod socket;
mod when;

use std::collections::BTreeMap;

use model::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::units::Time;

pub use access_log::*;
pub use balance::*;
pub use check::*;
pub use cluster::*;
pub use defaults::*;
pub use discovery::*;
pub use health::*;
pub use listener::*;
pub use persistence::*;
pub use provider::*;
pub use proxy_protocol::*;
pub use queue::*;
pub use resilience::*;
pub use retry::*;
pub use route::*;
pub use socket::*;
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

/// One configuration. Every object has a name, unknown keys are errors, and what is left out has the default that is
/// told here.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct File {
    /// Version of this format: 1.
    #[schemars(extend("const" = 1))]
    pub version: u32,
    /// More files: a file, a folder (all `*.yaml`, `*.yml` and `*.json` directly in it, by name) or a pattern such as
    /// `sites/*.yaml`, relative to this file. What they hold is added behind what is written here: `listeners` and
    /// `clusters` by name, `routes` and `access_logs` in order.
    #[schemars(default, with = "OneOrMany")]
    pub include: OneOrMany,
    /// Where connections arrive, by name.
    #[schemars(default, schema_with = "named::<Listener>")]
    pub listeners: BTreeMap<String, Listener>,
    /// Which requests go where. The most specific match wins: host, then path (exact, longest prefix, regular
    /// expression), then method, headers and query; `priority` overrides. Among equals the first wins.
    #[schemars(default)]
    pub routes: Vec<Route>,
    /// Endpoints that serve the same thing, by name.
    #[schemars(default, schema_with = "named::<Cluster>")]
    pub clusters: BTreeMap<String, Cluster>,
    /// What listeners, routes and clusters have where they do not say it themselves.
    #[schemars(with = "Option<Defaults>")]
    pub defaults: Option<()>,
    /// The zone that this instance is in, for clusters that prefer it. By default the environment variable
    /// `EQUIPOISE_ZONE`, if there is one.
    #[schemars(length(min = 1, max = 64))]
    pub zone: Option<String>,
    /// How the host names of endpoints are looked up.
    #[schemars(default)]
    pub names: Names,
    /// The administrator's page and API. Without it there is none.
    pub admin: Option<Admin>,
    /// Where records of exchanges are written.
    #[schemars(default)]
    pub access_logs: Vec<AccessLog>,
    /// Formats of access logs, by name: lines with variables in braces, see [access logs](access-log.md).
    #[schemars(default, schema_with = "named::<String>")]
    pub log_formats: BTreeMap<String, String>,
    /// How the program ends.
    #[schemars(default)]
    pub shutdown: Shutdown,
    /// Who gives parts of the configuration while the program runs, by name: `listeners`, `routes`, `clusters`, or the endpoints
    /// of clusters. Those that stand first come first where the order counts.
    #[schemars(default, schema_with = "named::<Provider>")]
    pub providers: BTreeMap<String, Provider>,
    /// Read this file and those that it includes again when they change, as SIGHUP does. By default only certificates, keys and
    /// authorities are.
    #[schemars(default)]
    pub watch: bool,
}

/// A map whose keys are names of objects.
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
    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    /// The path of one of them, of the whole at `at`.
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

/// The schema's way to say that exactly one of these keys is needed.
fn one_of(keys: &[&str]) -> Value {
    Value::Array(keys.iter().map(|key| json!({ "required": [key] })).collect())
}

/// The administrator's page and API.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Address and port, or a Unix socket such as `unix:/run/equipoise/admin.sock`. Without `tokens` and `identities` the API asks
    /// for no credentials, so only a loopback address or a Unix socket is accepted; by a name in the abstract namespace
    /// (`unix:@name`), which has no permissions, nothing can be changed then. A port alone means `0.0.0.0` and that port.
    pub bind: Bind,
    /// Permissions of the Unix socket, in octal. By default `"0600"`: the user that the program runs as, and nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Accept an address that others can reach although there are neither `tokens` nor `identities`. Whoever reaches it can read
    /// the configuration, and nobody can change it there.
    #[serde(default)]
    pub allow_remote: bool,
    /// Speak TLS with who asks, at an address of the network. With `client`, certificates of clients are asked for, and
    /// `identities` says whose open the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Who may use the API. With one at least, every request but those for `/healthz` and `/readyz` needs the field
    /// `authorization: Bearer TOKEN`, or a certificate of `identities`. They travel as they are: over a network, use `tls`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tokens: Vec<AdminToken>,
    /// Accept that tokens travel as they are to an address that others can reach, because something else encrypts them on their way.
    /// Without this, a warning tells of it.
    #[serde(default)]
    pub tokens_in_clear: bool,
    /// Whose certificates open the API, where `client` in `tls` asks for them. The first that fits counts. Who sends a token too
    /// comes by the token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub identities: Vec<AdminIdentity>,
    /// A folder that is there, in which changes by the API, wishes for endpoints and the history of generations are kept, so that
    /// they are there again after a start. Without it they last as long as the program runs. Relative to the file that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = PATH_FORMAT))]
    pub state: Option<String>,
}

/// A token that opens the API.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminToken {
    /// Whose it is. The history of changes tells it.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// What it may be used for.
    pub role: AdminRole,
    /// The token: at least 16 characters, better `${NAME}` or `{ file: PATH }` with what `openssl rand -hex 32` gives.
    pub token: Secret,
}

/// A certificate of a client that opens the API: with a `common_name` or an `alternative_name`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["common_name", "alternative_name"])))]
pub struct AdminIdentity {
    /// Whose it is. The history of changes tells it.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// What it may be used for.
    pub role: AdminRole,
    /// The common name (CN) in the subject of the certificate, letter by letter; of several the most specific, which is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub common_name: Option<String>,
    /// One of the alternative names in the certificate, letter by letter: with a colon a URI such as `spiffe://example.com/deploy`,
    /// with `@` one of mail, else one of DNS. What stands there as a name of another kind does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub alternative_name: Option<String>,
}

/// What a token or a certificate may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminRole {
    /// To look at everything.
    Read,
    /// To change everything too.
    Admin,
}

/// How the program ends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// Time that requests in flight get to end.
    pub drain_timeout: Time,
    /// Time that a new program gets to be ready, when it is to take over from this one; then this one goes on alone.
    pub upgrade_timeout: Time,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { drain_timeout: Time(limits::DRAIN), upgrade_timeout: Time(limits::UPGRADE) }
    }
}
