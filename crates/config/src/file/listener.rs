//! Listeners.

use std::collections::BTreeMap;

use model::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::defaults::{is_taken, taken};
use super::listener_tls::handshake;
use super::{AcceptProxy, Bandwidth, ConnectionsPerAddress, FilterUse, ListenerSocket, OneOrMany, Tls};
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

/// An address that accepts connections.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Address and port, such as `127.0.0.1:8080`, `0.0.0.0:80` or `[::]:443`. Port 0 takes a free one. Or a Unix socket, such
    /// as `unix:/run/equipoise.sock`, or `unix:@name` in Linux's abstract namespace: its clients count as 127.0.0.1. A port
    /// alone, `8080` or `:8080`, means `0.0.0.0:8080`: all IPv4 addresses. For IPv6, `[::]:8080` needs a listener of its own.
    pub bind: Bind,
    /// Protocol of the listener.
    #[serde(default)]
    pub protocol: Protocol,
    /// HTTP: versions. With TLS, ALPN selects one, and HTTP/2 is preferred; without TLS, a connection that begins with the
    /// HTTP/2 preface uses it. `h3` needs TLS, and listens on the same UDP port.
    #[serde(default = "http_versions")]
    #[schemars(length(min = 1))]
    pub http_versions: Vec<HttpVersion>,
    /// Limit on open connections, over all workers. Further ones are closed at once. UDP: limit on flows; a flow is the
    /// datagrams from one port of one client. Datagrams of further ones are dropped.
    #[serde(default = "connections_max")]
    #[schemars(range(min = 1))]
    pub connections_max: u32,
    /// TCP and HTTP: limits on the connections of each client address. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_per_address: Option<ConnectionsPerAddress>,
    /// TCP and HTTP: tables that count the connections of this listener, by the address of the peer, or the one in its PROXY header: one name
    /// or a list. Their `key` is `client`, and they count `connections`, `open_connections`, or the rate of `connections`.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub track: OneOrMany<String>,
    /// Accept a PROXY protocol header from these peers, which reports the client of the connection. By default the peer is the
    /// client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<AcceptProxy>,
    /// Allow or reject clients by address, before anything is read. By default all are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_list: Option<AddressList>,
    /// Socket options.
    #[serde(default)]
    pub socket: ListenerSocket,
    /// TLS towards clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// HTTP: largest request head, from 1KiB to 32KiB. A larger one is answered with 431.
    #[serde(default = "head_bytes_max")]
    pub head_bytes_max: Size,
    /// HTTP: most fields in a request head. More are answered with 431.
    #[serde(default = "fields_max")]
    #[schemars(range(min = 1, max = limits::FIELDS_HARD_MAX))]
    pub fields_max: usize,
    /// HTTP: filters for all routes of this listener, applied before their own. Responses that no route makes, such as 404, do not
    /// pass them. Limits count for each route apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterUse>,
    /// HTTP: normalization of request paths. Routes and filters compare the normalized path, and endpoints get it.
    #[serde(default)]
    pub paths: Paths,
    /// HTTP/1.1: handling of a request whose absolute target (`GET http://a/ HTTP/1.1`) has another authority than its `Host`,
    /// compared without case: `test:80` differs from `test`. HTTP/2 and HTTP/3 requests whose `:authority` and `host` differ
    /// are always answered with 400.
    #[serde(default)]
    pub host_mismatch: HostMismatch,
    /// HTTP: time-outs of clients.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
    /// HTTP: requests on one connection; after the last it is closed gracefully. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_per_connection_max: Option<u64>,
    /// HTTP/1: close the connection after the response if one of these regular expressions matches in the `User-Agent` of the
    /// request. No effect on HTTP/2 and HTTP/3. By default connections of all clients are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::NO_KEEP_ALIVE_FOR_MAX))]
    pub no_keep_alive_for: Vec<String>,
    /// HTTP: what endpoints learn about the client.
    #[serde(default)]
    pub forwarding: Forwarding,
    /// HTTP: request field with a unique id of each request, generated here unless a trusted proxy sent one. `false` switches
    /// ids off.
    #[serde(default)]
    pub request_id: RequestId,
    /// HTTP/3 settings, if `http_versions` has `h3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http3: Option<Http3>,
    /// TCP and UDP: the cluster for all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// TCP: select the cluster by the server name (SNI) in the TLS hello. TLS is passed through unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<Sni>,
    /// TCP: time without a byte in either direction after which a connection is closed; 5m by default. UDP: time without a
    /// datagram after which a flow ends; 1m by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Time>,
    /// TCP: how fast the bytes of each connection move. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// UDP: number of responses expected to each datagram of a client, such as 1 for DNS. After the last one the flow ends,
    /// without waiting for `idle_timeout`. By default none is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub responses_max: Option<u32>,
    /// Apply `defaults` for listeners. `false`: none of them apply here.
    #[serde(default = "taken", skip_serializing_if = "is_taken")]
    pub defaults: bool,
}

/// Allows or rejects clients by address: that of the peer, or the one in the PROXY header of a trusted peer. The most specific
/// network that contains the address decides, wherever it is written; one that is both allowed and denied is denied. Rejected
/// connections are reset, and rejected UDP datagrams dropped. A change applies to new connections and flows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AddressList {
    /// Allowed addresses and networks, such as `10.0.0.0/8`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Rejected addresses and networks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Files of allowed networks: one per line; `#` or `;` starts a comment. They are read again when they change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "files")]
    pub allow_files: Vec<String>,
    /// Files of rejected networks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "files")]
    pub deny_files: Vec<String>,
    /// Action for addresses in no list. By default `deny` if anything is allowed, else `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Others>,
}

/// Paths of files, each relative to the file that names it.
fn files(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "string", "format": super::PATH_FORMAT } })
}

/// Action for addresses in no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// They are accepted.
    Allow,
    /// They are rejected.
    Deny,
}

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP; each request is routed.
    #[default]
    Http,
    /// TCP; each connection goes to a cluster.
    Tcp,
    /// UDP; the datagrams of each client go to one endpoint of a cluster, and its responses go back.
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

/// HTTP/3 towards clients.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http3 {
    /// Announce HTTP/3 to clients of other versions with the field `alt-svc` in each response. A field of that name that an
    /// endpoint or a filter has set is kept.
    pub advertise: bool,
    /// How long clients may remember the announcement (`ma`).
    pub max_age: Time,
    /// The announced port, if clients reach another one than that of the listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Unvalidated handshakes of one worker beyond which clients must first prove their address (QUIC Retry), which costs each
    /// a round trip. 0: always.
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

/// Time-outs of the clients of an HTTP listener.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerTimeouts {
    /// For a complete request head, from its first byte.
    pub head: Time,
    /// Between requests of one connection (keep-alive).
    pub idle: Time,
    /// Without a byte of a body or tunnel, in either direction.
    pub stream: Time,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self { head: Time(limits::REQUEST_HEAD), idle: Time(limits::KEEP_ALIVE), stream: Time(limits::STREAM_IDLE) }
    }
}

/// Normalization of paths: the same path can be written in many forms.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Paths {
    /// Decode escapes of unreserved characters (`%61`), write other escapes in upper case, and resolve `.` and `..` (RFC 3986).
    /// A path with an escaped NUL, an incomplete escape, or dots with parameters (`..;`) is answered with 400. `false`: paths
    /// stay as received, and a route for `/admin` does not match `/%61dmin`.
    pub normalize: bool,
    /// Merge consecutive slashes; `true` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_slashes: Option<bool>,
    /// Handling of `%2F`, `%5C` and `\`, which some endpoints read as a slash and others do not; `refuse` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escaped_slashes: Option<EscapedSlashes>,
}

impl Default for Paths {
    fn default() -> Self {
        Self { normalize: true, merge_slashes: None, escaped_slashes: None }
    }
}

/// Handling of `%2F`, `%5C` and `\` in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EscapedSlashes {
    /// The request is answered with 400.
    Refuse,
    /// They stay as they are, and are not slashes for routes and filters. Some applications need `%2F`: GitLab, npm registries,
    /// RabbitMQ.
    Keep,
    /// They become slashes, before dots are resolved.
    Decode,
}

/// Handling of a request with two different authorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostMismatch {
    /// The authority of the target replaces `Host` (RFC 9112 section 3.2.2): for routes, filters, logs and endpoints.
    #[default]
    Replace,
    /// The request is answered with 400, and the connection is closed.
    Refuse,
}

/// What endpoints learn about the client, and which proxies are trusted to report it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Forwarding {
    /// Networks of trusted proxies in front of this one, such as `10.0.0.0/8`. Their forwarding fields are trusted and
    /// extended; those of all other clients are replaced.
    pub trusted: Vec<String>,
    /// Fields with other names in which trusted proxies report the client's address, such as `cf-connecting-ip`. The first one
    /// that comes from its own networks and holds one address decides, before `trusted`. From all other clients these fields
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

/// A header field that reports the client's address.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientAddress {
    /// Name of the field. It holds one address, with or without a port.
    pub header: String,
    /// Networks of the proxies that are trusted to send it, such as `10.0.0.0/8`.
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

/// Clusters by the TLS hello: by application protocol (ALPN), then by server name (SNI).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sni {
    /// Clusters by application protocol (ALPN). The first entry that fits takes precedence over `names`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alpn: Vec<SniAlpn>,
    /// Host name, or `*.` and a host name, to cluster. Exact names win over `*.`, longer ones over shorter.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
    /// The cluster for other names, no name, and connections that are not TLS. Without it such connections are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
    /// Time-out for the TLS hello.
    #[serde(default = "handshake")]
    pub hello_timeout: Time,
}

/// TLS connections whose client offers an application protocol.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SniAlpn {
    /// Application protocols such as `h2`, `http/1.1` or `acme-tls/1`: the client offers one of them.
    pub protocols: OneOrMany<String>,
    /// Only for these server names: a host name, or `*.` and a host name. By default for every name, and without one.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub names: OneOrMany<String>,
    /// Where they go.
    pub cluster: String,
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

/// Keys of a listener that mean nothing unless it speaks HTTP.
pub(crate) const HTTP_KEYS: [&str; 12] = [
    "filters",
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
