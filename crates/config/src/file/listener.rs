//! Listeners.

use std::collections::BTreeMap;

use model::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::defaults::{is_taken, taken};
use super::{AcceptProxy, ListenerSocket};
use crate::units::{Size, Time};

/// Where to listen: an address with a port, or a Unix socket. A port alone is kept as `0.0.0.0:PORT`.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Bind(pub String);

impl<'de> Deserialize<'de> for Bind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::Number(number) => number.to_string(),
            Value::String(text) => text,
            other => return Err(de::Error::custom(format!("{other} is not an address with a port"))),
        };
        let port = text.strip_prefix(':').unwrap_or(&text);
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
        Ok(Self(if is_port { format!("0.0.0.0:{port}") } else { text }))
    }
}

impl JsonSchema for Bind {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bind".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 0, "maximum": 65535 }] })
    }
}

/// A place where connections arrive.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Address and port, such as `127.0.0.1:8080`, `0.0.0.0:80` or `[::]:443`. Port 0 takes a free one. Or a Unix socket,
    /// such as `unix:/run/equipoise.sock`, or `unix:@name` in Linux's abstract namespace: its clients count as 127.0.0.1.
    /// A port alone, `8080` or `:8080`, means `0.0.0.0:8080`: all IPv4 addresses. For IPv6, `[::]:8080` needs a listener of its own.
    pub bind: Bind,
    /// What is spoken here.
    #[serde(default)]
    pub protocol: Protocol,
    /// HTTP: versions spoken. With TLS the client chooses in the handshake, and HTTP/2 is preferred; without, a
    /// connection that begins with the preface of HTTP/2 speaks it. `h3` needs TLS, and listens at the same port of UDP.
    #[serde(default = "http_versions")]
    #[schemars(length(min = 1))]
    pub http_versions: Vec<HttpVersion>,
    /// Connections open at once, over all workers. Further ones are closed at once. UDP: flows, which are the datagrams from
    /// one port of one client; those of further ones are dropped.
    #[serde(default = "connections_max")]
    #[schemars(range(min = 1))]
    pub connections_max: u32,
    /// Take from these peers who the client of a connection is, by the PROXY protocol. By default the peer is the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<AcceptProxy>,
    /// Let only some addresses in, or keep some out, before anything is read. By default everybody is let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_list: Option<AddressList>,
    /// How the sockets are set up.
    #[serde(default)]
    pub socket: ListenerSocket,
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
    /// HTTP: the one form into which the path of a request is brought, before routes and filters look at it; endpoints are
    /// sent it in that form.
    #[serde(default)]
    pub paths: Paths,
    /// HTTP/1.1: what becomes of a request whose absolute target (`GET http://a/ HTTP/1.1`) names another authority than
    /// its `Host`, compared without case: `test:80` differs from `test`. HTTP/2 and HTTP/3 requests whose `:authority` and `host` differ are always answered with 400.
    #[serde(default)]
    pub host_mismatch: HostMismatch,
    /// HTTP: how long clients may take.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
    /// HTTP: requests on one connection; after the last it is closed in good order. No bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_per_connection_max: Option<u64>,
    /// HTTP/1: close the connection after the response to a request in whose `User-Agent` one of these regular expressions is found. Of
    /// connections of HTTP/2 and HTTP/3 nothing depends on it. By default connections of all clients are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::NO_KEEP_ALIVE_FOR_MAX))]
    pub no_keep_alive_for: Vec<String>,
    /// HTTP: what endpoints are told about the client.
    #[serde(default)]
    pub forwarding: Forwarding,
    /// HTTP: request field that carries an id of each request, made here unless a trusted proxy sent one. `false`
    /// switches ids off.
    #[serde(default)]
    pub request_id: RequestId,
    /// HTTP/3: how it is spoken, where `http_versions` has `h3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http3: Option<Http3>,
    /// TCP and UDP: the cluster that everything goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// TCP: choose the cluster by the name that the client asks for in its TLS hello. TLS is passed on untouched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<Sni>,
    /// TCP: time without a byte in either direction after which a connection is closed; 5m by default. UDP: time without a
    /// datagram after which a flow is over; 1m by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Time>,
    /// UDP: answers that are expected to each datagram of a client: 1 for DNS. Once all have come, the flow is over, and need
    /// not wait for `idle_timeout`. By default nothing is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub responses_max: Option<u32>,
    /// Take what `defaults` says for listeners. `false`: this one has none of it.
    #[serde(default = "taken", skip_serializing_if = "is_taken")]
    pub defaults: bool,
}

/// Who is let in by address: that of the peer, or the one that a trusted peer tells by the PROXY protocol. The most specific network
/// that holds it decides, wherever it is written; one that is both allowed and denied is denied. Connections of all others are reset,
/// and the datagrams of UDP are dropped. A change counts for new connections and flows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AddressList {
    /// Addresses and networks that are let in, such as `10.0.0.0/8`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Addresses and networks that stay out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Files of those that are let in: one on each line; what follows `#` or `;` is a remark. They are read again when they change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "files")]
    pub allow_files: Vec<String>,
    /// Files of those that stay out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "files")]
    pub deny_files: Vec<String>,
    /// What becomes of those in no list. By default `deny` where something is allowed, else `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Others>,
}

/// Paths of files, each relative to the file that names it.
fn files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "string", "format": super::PATH_FORMAT } })
}

/// What becomes of addresses in no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// They are let in.
    Allow,
    /// They stay out.
    Deny,
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
    /// Datagrams; those of each client go to one endpoint of a cluster, and its answers go back.
    Udp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Http, Self::Tcp, Self::Udp];

    /// Returns its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Returns whether datagrams are forwarded. Their ports are not those of connections.
    pub fn is_udp(self) -> bool {
        self == Self::Udp
    }

    /// Returns whether a listener with this `protocol` has routes. A word that is no protocol has its own diagnostic, so it counts as
    /// the default.
    pub(crate) fn has_routes(written: Option<&str>) -> bool {
        Self::ALL.into_iter().find(|one| written == Some(one.name())).unwrap_or_default() == Self::Http
    }

    /// Returns whether its listeners can terminate TLS over TCP.
    pub fn carries_tls(self) -> bool {
        self != Self::Udp
    }
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HttpVersion {
    /// HTTP/1.1 and HTTP/1.0.
    H1,
    /// HTTP/2.
    H2,
    /// HTTP/3.
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
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub chain: String,
    /// File with the private key, in PEM, without a passphrase.
    #[schemars(extend("format" = super::PATH_FORMAT))]
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

/// HTTP/3 towards clients.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http3 {
    /// Tell clients that come by another version, in the field `alt-svc` of each answer, that HTTP/3 is spoken here too. A
    /// field of that name that an endpoint or a filter has set stays as it is.
    pub advertise: bool,
    /// How long they are to remember it.
    pub max_age: Time,
    /// The port that they are told, where it is another to them than to us. By default that of the listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Handshakes at once, of one worker, from which on clients must first prove that they are where they say, which costs
    /// each a round trip. 0: always.
    pub unproven_max: u32,
}

impl Default for Http3 {
    fn default() -> Self {
        Self {
            advertise: true,
            max_age: Time(limits::HTTP3_MAX_AGE),
            port: None,
            unproven_max: limits::HTTP3_UNPROVEN_MAX,
        }
    }
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
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub authorities: Option<String>,
    /// Request field that tells endpoints the subject of the verified certificate, as RFC 4514 writes it, such as
    /// `CN=ann,O=Acme`. What a client sends under this name is removed.
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

/// The one form of the many in which the same path can be written.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Paths {
    /// Undo escapes of characters that need none (`%61`), write the digits of others in upper case, and resolve `.` and `..`
    /// (RFC 3986). A path with an escaped NUL, half an escape, or dots with parameters (`..;`) is answered with 400. `false`:
    /// paths stay as they came, and a route for `/admin` does not see `/%61dmin`.
    pub normalize: bool,
    /// Make one slash of several in a row; `true` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_slashes: Option<bool>,
    /// What becomes of `%2F`, `%5C` and `\`, which some endpoints read as a slash and others do not; `refuse` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escaped_slashes: Option<EscapedSlashes>,
}

impl Default for Paths {
    fn default() -> Self {
        Self { normalize: true, merge_slashes: None, escaped_slashes: None }
    }
}

/// What becomes of `%2F`, `%5C` and `\` in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EscapedSlashes {
    /// The request is answered with 400.
    Refuse,
    /// They stay as they are, and are no slashes to routes and filters. Some applications need `%2F`: GitLab, registries of
    /// npm, RabbitMQ.
    Keep,
    /// They become slashes, before dots are resolved.
    Decode,
}

/// What becomes of a request that names two authorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostMismatch {
    /// The authority of the target replaces `Host` (RFC 9112 section 3.2.2): for routes, filters, logs and endpoints.
    #[default]
    Replace,
    /// The request is answered with 400, and the connection is closed.
    Refuse,
}

/// What endpoints are told about the client, and whose word about it is believed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Forwarding {
    /// Networks of proxies before this one, such as `10.0.0.0/8`. What they say of the client is believed and
    /// extended; what anybody else says is replaced.
    pub trusted: Vec<String>,
    /// Header fields of other names in which proxies before this one say who the client is, such as `cf-connecting-ip`. The first
    /// that comes from a network of its own and holds one address decides, before `trusted`. From everybody else these fields
    /// are removed.
    pub client_address: Vec<ClientAddress>,
    /// Send `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    pub x_forwarded: bool,
    /// Send `Forwarded` (RFC 7239).
    pub forwarded: bool,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { trusted: Vec::new(), client_address: Vec::new(), x_forwarded: true, forwarded: false }
    }
}

/// A header field that says who the client is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientAddress {
    /// Name of the field. It holds one address, with or without a port.
    pub header: String,
    /// Networks of the proxies that are believed, such as `10.0.0.0/8`.
    #[schemars(length(min = 1))]
    pub from: Vec<String>,
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

fn http_versions() -> Vec<HttpVersion> {
    vec![HttpVersion::H1, HttpVersion::H2]
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

fn handshake() -> Time {
    Time(limits::HANDSHAKE)
}

/// Keys of a listener that mean nothing unless it speaks HTTP.
pub(crate) const HTTP_KEYS: [&str; 11] = [
    "http3",
    "http_versions",
    "head_bytes_max",
    "fields_max",
    "paths",
    "host_mismatch",
    "timeouts",
    "requests_per_connection_max",
    "no_keep_alive_for",
    "forwarding",
    "request_id",
];
