//! The file format: what may be written, with its defaults. The comments here are the reference page and what
//! editors show; [`crate::schema`] is generated from them.
//!
//! These types hold what was written. What it means is found out in `resolve`.

use std::collections::BTreeMap;

use model::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::units::{Size, Time};

/// The line of an access log when none is given.
pub const DEFAULT_LINE: &str =
    "{time} {client_ip} \"{method} {uri} {version}\" {status} {sent_bytes} {total_ms} {cluster}/{endpoint} {flag}";
/// How the schema names the names of objects.
pub(crate) const NAME_FORMAT: &str = "equipoise-name";
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
    /// The administrator's page and API. Without it there is none.
    pub admin: Option<Admin>,
    /// Where records of exchanges are written.
    #[schemars(default)]
    pub access_logs: Vec<AccessLog>,
    /// How the program ends.
    #[schemars(default)]
    pub shutdown: Shutdown,
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

/// One text, or a list of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

/// A place where connections arrive.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Address and port, such as `127.0.0.1:8080`, `0.0.0.0:80` or `[::]:443`. Port 0 takes a free one.
    pub bind: String,
    /// What is spoken here.
    #[serde(default)]
    pub protocol: Protocol,
    /// HTTP: versions spoken. `h2` and `h3` are not available in this version.
    #[serde(default = "http_versions")]
    #[schemars(length(min = 1))]
    pub http_versions: Vec<HttpVersion>,
    /// Connections open at once, over all workers. Further ones are closed at once.
    #[serde(default = "connections_max")]
    #[schemars(range(min = 1))]
    pub connections_max: u32,
    /// Speak TLS to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// HTTP: largest request head, from 1KiB to 32KiB. A larger one is answered with 431.
    #[serde(default = "head_bytes_max")]
    pub head_bytes_max: Size,
    /// HTTP: most fields in a request head. More are answered with 431.
    #[serde(default = "fields_max")]
    #[schemars(range(min = 1, max = limits::FIELDS_HARD_MAX))]
    pub fields_max: usize,
    /// HTTP: how long clients may take.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
    /// HTTP: requests on one connection; after the last it is closed in good order. No bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_per_connection_max: Option<u64>,
    /// HTTP: what endpoints are told about the client.
    #[serde(default)]
    pub forwarding: Forwarding,
    /// HTTP: request field that carries an id of each request, made here unless a trusted proxy sent one. `false`
    /// switches ids off.
    #[serde(default)]
    pub request_id: RequestId,
    /// TCP: the cluster that all connections go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// TCP: choose the cluster by the name that the client asks for in its TLS hello. TLS is passed on untouched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<Sni>,
    /// TCP: time without a byte in either direction after which a connection is closed.
    #[serde(default = "stream_idle")]
    pub idle_timeout: Time,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP; each request finds its route.
    #[default]
    Http,
    /// Bytes; each connection goes to a cluster.
    Tcp,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HttpVersion {
    /// HTTP/1.1 and HTTP/1.0.
    H1,
    /// HTTP/2. Not available in this version.
    H2,
    /// HTTP/3. Not available in this version.
    H3,
}

/// TLS towards clients.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificates. The one whose names fit what the client asks for is shown; the first one to all other clients.
    #[schemars(length(min = 1))]
    pub certificates: Vec<Certificate>,
    /// Oldest version of TLS that is accepted.
    #[serde(default)]
    pub version_min: TlsVersion,
    /// Time for a handshake.
    #[serde(default = "handshake")]
    pub handshake_timeout: Time,
    /// Certificates of clients.
    #[serde(default)]
    pub client: ClientAuth,
}

/// A certificate with its key. Paths are relative to the file that names them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// File with the certificate and those that vouch for it, in PEM, the certificate itself first.
    pub chain: String,
    /// File with the private key, in PEM, without a passphrase.
    pub key: String,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Certificates of clients.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientAuth {
    /// Whether clients are asked for a certificate.
    #[serde(default)]
    pub mode: ClientAuthMode,
    /// File with the certificates of those who vouch for clients, in PEM. Needed unless `mode` is `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Request field that tells endpoints the subject of the verified certificate. What a client sends under this
    /// name is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_header: Option<String>,
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuthMode {
    /// They are not asked.
    #[default]
    Off,
    /// They may show one; it is verified.
    Optional,
    /// They must show one.
    Required,
}

/// How long clients of an HTTP listener may take.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerTimeouts {
    /// For a whole request head to arrive once its first byte has.
    pub head: Time,
    /// Between requests of one connection.
    pub idle: Time,
    /// Without a byte of a body or tunnel, towards or from the client.
    pub stream: Time,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self { head: Time(limits::REQUEST_HEAD), idle: Time(limits::KEEP_ALIVE), stream: Time(limits::STREAM_IDLE) }
    }
}

/// What endpoints are told about the client, and whose word about it is believed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Forwarding {
    /// Networks of proxies before this one, such as `10.0.0.0/8`. What they say of the client is believed and
    /// extended; what anybody else says is replaced.
    pub trusted: Vec<String>,
    /// Send `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    pub x_forwarded: bool,
    /// Send `Forwarded` (RFC 7239).
    pub forwarded: bool,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { trusted: Vec::new(), x_forwarded: true, forwarded: false }
    }
}

/// The name of a request field, or `false`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// `false`.
    Off(bool),
    /// The field.
    Field(String),
}

impl Default for RequestId {
    fn default() -> Self {
        Self::Field("x-request-id".to_owned())
    }
}

impl JsonSchema for RequestId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RequestId".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "const": false }] })
    }
}

/// Clusters by the name that a client asks for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sni {
    /// Host name, or `*.` and a host name, to cluster. Exact names win over `*.`, longer ones over shorter.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
    /// The cluster for any other name, for none, and for what is not TLS. Without it such connections are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
    /// Time for the TLS hello to arrive.
    #[serde(default = "handshake")]
    pub hello_timeout: Time,
}

/// Which requests go where: conditions, filters, and one of `cluster`, `clusters`, `redirect` and `respond`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["cluster", "clusters", "redirect", "respond"])))]
pub struct Route {
    /// Name in logs and metrics. By default `route-` and its place, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = NAME_FORMAT), length(max = 64))]
    pub name: Option<String>,
    /// Only requests of these listeners. By default those of all HTTP listeners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<String>,
    /// Conditions, which must all hold. Without any, every request matches.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// A route of higher priority wins before any other rule.
    #[serde(default)]
    pub priority: i32,
    /// What is done to requests and responses, in this order.
    #[serde(default)]
    pub filters: Vec<FilterUse>,
    /// Bound on the whole exchange, from the request head to the last byte of the response. No bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// Forward to this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Forward to one of these clusters, at random by weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub clusters: Option<Vec<WeightedCluster>>,
    /// Send the client elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Redirect>,
    /// Answer here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub respond: Option<Respond>,
}

/// The schema's way to say that exactly one of these keys is needed.
fn one_of(keys: &[&str]) -> Value {
    Value::Array(keys.iter().map(|key| json!({ "required": [key] })).collect())
}

/// What a route asks of a request. All conditions must hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// Any of these hosts: a name, or `*.` and a name, which stands for one or more labels.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub host: OneOrMany,
    /// The path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// Any of these methods.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub method: OneOrMany,
    /// All of these header fields, by name (upper or lower case).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, ValueTest>,
    /// All of these query parameters, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, ValueTest>,
    /// All of these cookies, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cookies: BTreeMap<String, ValueTest>,
    /// Any of these networks holds the client, such as `10.0.0.0/8` or `192.0.2.7`.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub source: OneOrMany,
}

/// How a path is compared: as received, without the query.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["exact", "prefix", "regex"])))]
pub struct PathMatch {
    /// The whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// Whole segments from the start: `/api` matches `/api` and `/api/x`, not `/apix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// A regular expression for the whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// A condition on a value: text stands for `{ exact: … }`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ValueTest {
    /// Exactly this.
    Exact(String),
    /// A test.
    Test(ValueTestMap),
}

/// What a value must be.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ValueTest", extend("oneOf" = one_of(&["exact", "regex", "present", "absent"])))]
pub struct ValueTestMap {
    /// Exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// A regular expression for the whole value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// There at all, whatever its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub present: Option<bool>,
    /// Not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub absent: Option<bool>,
}

/// One filter: its name, then its settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FilterUse(pub Map<String, Value>);

impl JsonSchema for FilterUse {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        FILTER_DEFINITION.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // The properties are added by `crate::schema`, which knows the filters.
        json_schema!({
            "description": "One filter: its name, then its settings.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": false,
        })
    }
}

/// A cluster and its share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedCluster {
    /// The cluster.
    pub cluster: String,
    /// Its share among the weights of all.
    #[serde(default = "weight")]
    #[schemars(range(min = 0, max = limits::WEIGHT_MAX))]
    pub weight: u32,
}

/// Where a client is sent. What is not given is kept from the request; at least one of `scheme`, `host`, `port` and
/// `path` is needed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// The status.
    #[serde(default = "redirect_status")]
    #[schemars(extend("enum" = [301, 302, 303, 307, 308]))]
    pub status: u16,
    /// `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["http", "https"]))]
    pub scheme: Option<String>,
    /// Host, without a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Path, which may hold variables such as `{path}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// An answer that is given here.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    /// The status.
    #[serde(default = "respond_status")]
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// Header fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body.
    #[serde(default)]
    pub body: String,
}

/// Endpoints that serve the same thing.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The endpoints: an address each, or a map with its settings.
    #[schemars(length(min = 1))]
    pub endpoints: Vec<Endpoint>,
    /// How an endpoint is chosen.
    #[serde(default)]
    pub balance: Balance,
    /// Ask the endpoints regularly whether they work. By default they are not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Let requests wait while all endpoints are full. By default they are refused at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Speak TLS to the endpoints: `true`, or settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,
    /// Connections kept for reuse.
    #[serde(default)]
    pub pool: Pool,
    /// How long endpoints may take.
    #[serde(default)]
    pub timeouts: ClusterTimeouts,
}

/// An endpoint: its address, or its settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Endpoint {
    /// Its address.
    Address(String),
    /// Its settings.
    Settings(EndpointSettings),
}

/// Settings of one endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Endpoint")]
pub struct EndpointSettings {
    /// `ip:port`, `[ipv6]:port` or `name:port`. A name is looked up when the configuration is read, and its first
    /// address is used.
    pub address: String,
    /// Its share of the work compared with the others; 0 gets no new work.
    #[serde(default = "weight")]
    #[schemars(range(min = 0, max = limits::WEIGHT_MAX))]
    pub weight: u32,
    /// Requests (or TCP connections) at once, over all workers. No bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub connections_max: Option<u32>,
}

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// One after the other, by weight.
    #[default]
    RoundRobin,
    /// At random, by weight.
    Random,
    /// The one with the fewest requests in flight, by weight.
    LeastRequest,
}

/// A regular check of each endpoint, either `tcp` or `http`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["tcp", "http"])))]
pub struct HealthCheck {
    /// The port accepts a connection, and completes a TLS handshake when the cluster speaks TLS. Has no settings: `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpCheck>,
    /// A request is answered with a good status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// Time between two checks of one endpoint.
    #[serde(default = "check_interval")]
    pub interval: Time,
    /// Time for one check.
    #[serde(default = "check_timeout")]
    pub timeout: Time,
    /// Successes in a row that make a down endpoint up.
    #[serde(default = "rise")]
    #[schemars(range(min = 1, max = 1000))]
    pub rise: u32,
    /// Failures in a row that make an up endpoint down.
    #[serde(default = "fall")]
    #[schemars(range(min = 1, max = 1000))]
    pub fall: u32,
}

/// A check by TCP has no settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpCheck {}

/// A check by HTTP.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    /// Path, with a query if need be.
    #[serde(default = "check_path")]
    pub path: String,
    /// Host that is asked for. By default the endpoint's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Good statuses: numbers such as `200`, or ranges such as `200-299`.
    #[serde(default = "check_statuses")]
    #[schemars(length(min = 1))]
    pub statuses: Vec<Statuses>,
}

/// A status, or a range of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Statuses {
    /// This one.
    One(#[schemars(range(min = 100, max = 599))] u16),
    /// A range.
    Range(String),
}

/// Waiting for a free endpoint, in order of arrival.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Requests that wait at once, over all workers. Further ones are answered with 503.
    #[schemars(range(min = 1))]
    pub requests_max: u32,
    /// Longest wait; then the answer is 503.
    #[serde(default = "queue_timeout")]
    pub timeout: Time,
}

/// TLS towards endpoints, as written: a switch or settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ClusterTls {
    /// On with defaults, or off.
    Switch(bool),
    /// On with these.
    Settings(ClusterTlsSettings),
}

/// TLS towards endpoints.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClusterTls")]
pub struct ClusterTlsSettings {
    /// Name that is asked for and that the certificate must carry. By default the host in the endpoint's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Verify the certificate. Switching this off lets anyone pose as the endpoint; it is for tests.
    pub verify: bool,
    /// File with the certificates of those who vouch for the endpoints, in PEM. By default those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Certificate that is shown to endpoints that ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

impl Default for ClusterTlsSettings {
    fn default() -> Self {
        Self { server_name: None, verify: true, authorities: None, certificate: None }
    }
}

/// Connections to endpoints that are kept for reuse.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Idle connections that each worker keeps to each endpoint; 0 switches reuse off.
    pub idle_max: u32,
    /// Time an idle connection is kept. Keep it below what the endpoints allow.
    pub idle_timeout: Time,
    /// Requests after which a connection is closed. No bound by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_per_connection_max: Option<u64>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            idle_max: limits::IDLE_UPSTREAM_CONNECTIONS_MAX,
            idle_timeout: Time(limits::UPSTREAM_IDLE),
            requests_per_connection_max: None,
        }
    }
}

/// How long endpoints may take.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterTimeouts {
    /// To establish a connection, TLS included.
    pub connect: Time,
    /// From the request being sent whole to the head of the response.
    pub response_head: Time,
    /// Without a byte while a body moves.
    pub idle: Time,
}

impl Default for ClusterTimeouts {
    fn default() -> Self {
        Self {
            connect: Time(limits::CONNECT),
            response_head: Time(limits::RESPONSE_HEAD),
            idle: Time(limits::STREAM_IDLE),
        }
    }
}

/// The administrator's page and API.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Address and port. The API asks for no credentials, so only a loopback address is accepted.
    pub bind: String,
    /// Accept an address that others can reach. Whoever reaches it can read and change the configuration.
    #[serde(default)]
    pub allow_remote: bool,
}

/// Where records of exchanges are written: `path`, or `stdout: true`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["path", "stdout"])))]
pub struct AccessLog {
    /// A file, which is appended to and reopened on SIGUSR1. Relative to the file that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub stdout: Option<bool>,
    /// How a record looks.
    #[serde(default)]
    pub format: LogFormat,
    /// The line, with variables in braces, when `format` is `line`.
    #[serde(default = "log_line")]
    pub line: String,
}

/// How a record looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line of text with variables.
    #[default]
    Line,
    /// One JSON object on a line.
    Json,
}

/// How the program ends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// Time that requests in flight get to end.
    pub drain_timeout: Time,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { drain_timeout: Time(limits::DRAIN) }
    }
}

fn http_versions() -> Vec<HttpVersion> {
    vec![HttpVersion::H1]
}

fn connections_max() -> u32 {
    limits::CONNECTIONS_MAX
}

fn head_bytes_max() -> Size {
    Size(limits::HEAD_BYTES_MAX as u64)
}

fn fields_max() -> usize {
    limits::FIELDS_MAX
}

fn stream_idle() -> Time {
    Time(limits::STREAM_IDLE)
}

fn handshake() -> Time {
    Time(limits::HANDSHAKE)
}

fn weight() -> u32 {
    1
}

fn redirect_status() -> u16 {
    302
}

fn respond_status() -> u16 {
    200
}

fn check_interval() -> Time {
    Time(std::time::Duration::from_secs(2))
}

fn check_timeout() -> Time {
    Time(std::time::Duration::from_secs(1))
}

fn rise() -> u32 {
    2
}

fn fall() -> u32 {
    3
}

fn check_path() -> String {
    "/".to_owned()
}

fn check_statuses() -> Vec<Statuses> {
    vec![Statuses::Range("200-299".to_owned())]
}

fn queue_timeout() -> Time {
    Time(std::time::Duration::from_secs(5))
}

fn log_line() -> String {
    DEFAULT_LINE.to_owned()
}
