//! A whole configuration, validated: what the file said, with defaults filled in and references checked.
//!
//! Two snapshots are compared object by object; what is equal stays untouched when a change is applied.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, AddressList, Cidr, HostPattern};
pub use crate::check::{HealthCheck, HealthCheckKind};
use crate::fields::FieldName;
use crate::filter::FilterUse;
use crate::fitness::{AdminState, Fitness};
use crate::matching::Match;
use crate::persistence::{Persistence, Secret};
use crate::placement::{Placed, Spread, SubsetRule};
use crate::provider::{NameLookup, Provider};
use crate::proxy_protocol::{AcceptProxy, SendProxy};
use crate::queue::Precedence;
pub use crate::queue::Queue;
use crate::resilience::{Hedge, Resilience};
use crate::retry::Retry;
use crate::socket::{ClusterSocket, ListenerSocket};
use crate::{LocalResponse, Name};

/// Everything that is configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// In the order of the file; names are unique.
    pub listeners: Vec<Arc<Listener>>,
    /// In the order of the file, which breaks ties of precedence.
    pub routes: Vec<Arc<Route>>,
    /// In the order of the file; names are unique.
    pub clusters: Vec<Arc<Cluster>>,
    /// The administrator's address, if there is one.
    pub admin: Option<Admin>,
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

/// A place where connections arrive.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Unique; the stable id.
    pub name: Name,
    /// The address; port 0 takes a free one.
    pub bind: Address,
    /// How its socket is set up.
    pub socket: ListenerSocket,
    /// Termination of TLS.
    pub tls: Option<TlsTermination>,
    /// Who may tell whom a connection is from.
    pub proxy_protocol: Option<AcceptProxy>,
    /// Who is let in by address, before anything is read; `None`: everybody.
    pub address_list: Option<AddressList>,
    /// Connections open at once, over all workers.
    pub connections_max: u32,
    /// What is spoken.
    pub protocol: Protocol,
}

impl Listener {
    /// Whether datagrams arrive there, whose ports are not those of connections.
    pub fn is_udp(&self) -> bool {
        matches!(self.protocol, Protocol::Udp(_))
    }

    /// Whether HTTP/3 is spoken, at the same address and port of UDP.
    pub fn speaks_http3(&self) -> bool {
        matches!(&self.protocol, Protocol::Http(http) if http.versions.h3)
    }

    /// Whether that is all: nothing arrives by connections of TCP.
    pub fn speaks_http3_only(&self) -> bool {
        matches!(&self.protocol, Protocol::Http(http) if http.versions.h3 && !http.versions.h1 && !http.versions.h2)
    }
}

/// What a listener speaks.
#[derive(Clone, Debug, PartialEq)]
pub enum Protocol {
    /// HTTP, routed by request.
    Http(HttpListener),
    /// Bytes, routed by connection.
    Tcp(TcpListener),
    /// Datagrams, routed by client.
    Udp(UdpListener),
}

/// Settings of an HTTP listener.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpListener {
    /// Versions spoken.
    pub versions: HttpVersions,
    /// Bound of a request head in bytes, at most half of a relay buffer.
    pub head_bytes_max: usize,
    /// Bound on the fields of a request head.
    pub fields_max: usize,
    /// The one form into which paths are brought; `None`: they stay as they came.
    pub paths: Option<Paths>,
    /// What becomes of a request whose target and `Host` name different authorities.
    pub host_mismatch: HostMismatch,
    /// Time for a whole head to arrive once its first byte has.
    pub head_timeout: Duration,
    /// Time a connection may idle between requests.
    pub idle_timeout: Duration,
    /// Time without a byte of a body or tunnel, towards or from the client.
    pub stream_timeout: Duration,
    /// Requests on one connection; afterwards it is closed in good order.
    pub requests_per_connection_max: Option<u64>,
    /// Expressions: connections of HTTP/1 end after the response to a request in whose `User-Agent` one of them is found.
    pub no_keep_alive_for: Vec<String>,
    /// Forwarding fields.
    pub forwarding: Forwarding,
    /// Field that carries the request id; `None` switches ids off. Lower case.
    pub request_id: Option<String>,
    /// HTTP/3, if that is spoken.
    pub http3: Http3,
}

/// What becomes of the path of a request before anything is compared with it: its normal form, as far as that is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Several slashes in a row become one.
    pub merge_slashes: bool,
    /// What becomes of `%2F`, `%5C` and `\`.
    pub escaped_slashes: EscapedSlashes,
}

/// What becomes of that which some endpoints read as a slash, and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapedSlashes {
    /// The request is refused.
    Refuse,
    /// They stay, and are no slashes here.
    Keep,
    /// They become slashes.
    Decode,
}

/// What becomes of an HTTP/1.1 request whose absolute target names another authority than its `Host`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostMismatch {
    /// The target's authority replaces `Host` (RFC 9112 section 3.2.2).
    #[default]
    Replace,
    /// The request is refused.
    Refuse,
}

/// Versions of HTTP; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpVersions {
    /// HTTP/1.1 and HTTP/1.0.
    pub h1: bool,
    /// HTTP/2.
    pub h2: bool,
    /// HTTP/3, at the same address and port of UDP.
    pub h3: bool,
}

/// Settings of HTTP/3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http3 {
    /// How long clients that speak another version are told to remember that this one is spoken; `None`: they are not told.
    pub advertised_for: Option<Duration>,
    /// The port that they are told; by default that of the listener.
    pub advertised_port: Option<u16>,
    /// Handshakes at once, of one worker, beyond which clients must prove where they are before theirs begins.
    pub unproven_max: u32,
}

/// What is told to endpoints about the client, and whose word about it is believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Forwarding {
    /// Proxies whose `X-Forwarded-*`, `Forwarded` and request id are believed and extended; from all others these fields
    /// are replaced.
    pub trusted: Vec<Cidr>,
    /// Fields of other names that say who the client is. The first that decides does so before `trusted`.
    pub client_address: Vec<ClientAddress>,
    /// Send `X-Forwarded-For`, `-Proto` and `-Host`.
    pub x_forwarded: bool,
    /// Send `Forwarded` (RFC 7239).
    pub forwarded: bool,
}

/// A field that says who the client is, and who is believed about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientAddress {
    /// The field, which holds one address.
    pub header: FieldName,
    /// Peers that are believed.
    pub from: Vec<Cidr>,
}

/// Settings of a TCP listener.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpListener {
    /// Where connections go.
    pub target: TcpTarget,
    /// Time without a byte in either direction.
    pub idle_timeout: Duration,
}

/// Settings of a UDP listener.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpListener {
    /// Where flows go.
    pub cluster: Name,
    /// Time without a datagram in either direction after which a flow is over.
    pub idle_timeout: Duration,
    /// Answers to each datagram of a client; once all have come, the flow is over.
    pub responses_max: Option<u32>,
}

/// Where the connections of a TCP listener go.
#[derive(Clone, Debug, PartialEq)]
pub enum TcpTarget {
    /// All to one cluster.
    Cluster(Name),
    /// By the server name of the TLS ClientHello, which is passed on untouched.
    Sni {
        /// Exact names win over wildcards, longer wildcards over shorter.
        names: Vec<(HostPattern, Name)>,
        /// For any other name, or none. Without it such connections are closed.
        otherwise: Option<Name>,
        /// Time for the ClientHello to arrive.
        hello_timeout: Duration,
    },
}

/// TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsTermination {
    /// At least one; chosen by the names in the leaf certificate; the first serves clients that name none of them.
    pub certificates: Vec<Certificate>,
    /// Oldest version accepted.
    pub version_min: TlsVersion,
    /// Client certificates.
    pub client: ClientAuth,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Whether clients show a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// Not asked for.
    Off,
    /// Asked for; verified if shown.
    Optional(ClientTrust),
    /// A verified one is needed.
    Required(ClientTrust),
}

/// Who vouches for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTrust {
    /// Certificates of the authorities.
    pub authorities: Pem,
    /// Request field that carries the verified subject to endpoints; whatever the client sent under this name is
    /// removed. Lower case.
    pub identity_header: Option<String>,
}

/// A file in PEM, read when the configuration was.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// Where it was read.
    pub path: PathBuf,
    /// What it held.
    pub bytes: Arc<[u8]>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys must never reach a log.
        write!(f, "Pem({}, {} bytes)", self.path.display(), self.bytes.len())
    }
}

/// A certificate chain with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Leaf first.
    pub chain: Pem,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key: Pem,
}

/// Which requests go where.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Given, or `route-N` by its place in the file from 1. Unique; the stable id.
    pub name: Name,
    /// Only these listeners; empty: all HTTP listeners.
    pub listeners: Vec<Name>,
    /// The conditions.
    pub matches: Match,
    /// Higher wins before any other rule of precedence; 0 by default.
    pub priority: i32,
    /// In order.
    pub filters: Vec<FilterUse>,
    /// What happens.
    pub action: Action,
    /// Bound on the whole exchange, from the request head to the last byte of the response.
    pub timeout: Option<Duration>,
    /// When another endpoint is tried, in place of what the cluster says.
    pub retry: Option<Retry>,
    /// When the same request goes to another endpoint too, instead of the cluster's rules.
    pub hedge: Option<Hedge>,
    /// Only some endpoints of the cluster.
    pub subset: Option<SubsetRule>,
    /// Its turn where it has to wait.
    pub precedence: Precedence,
    /// Requests may be carried that came before their handshake was over (RFC 8470).
    pub early_data: bool,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Forward to one cluster.
    Cluster(Name),
    /// Forward to one of several, at random by weight. Weights may be 0, not all.
    Weighted(Vec<(Name, u32)>),
    /// Forward to the one that the request names.
    Choice(ClusterChoice),
    /// Send the client elsewhere.
    Redirect(Redirect),
    /// Answer here.
    Respond(LocalResponse),
}

impl Action {
    /// The clusters that it may forward to, in the order of the file.
    pub fn clusters(&self) -> Vec<&Name> {
        match self {
            Self::Cluster(name) => vec![name],
            Self::Weighted(shares) => shares.iter().map(|(name, _)| name).collect(),
            Self::Choice(choice) => choice.allowed.iter().chain(&choice.otherwise).collect(),
            Self::Redirect(_) | Self::Respond(_) => Vec::new(),
        }
    }
}

/// Clusters of which a request names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterChoice {
    /// What gives the name: text with variables as in [`crate::template`].
    pub from: String,
    /// Those that may be named; at least one, each once.
    pub allowed: Vec<Name>,
    /// For all other values. `None`: the request is refused.
    pub otherwise: Option<Name>,
}

/// Where a client is sent. What is not given is kept from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// Host without port.
    pub host: Option<String>,
    /// Port; left out of the location when it is the scheme's own.
    pub port: Option<u16>,
    /// The path; may hold variables as in [`crate::template`].
    pub path: Option<String>,
}

/// Endpoints that serve the same thing.
///
/// There may be very many, most of them set up alike: what they share is one copy.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Unique; the stable id.
    pub name: Name,
    /// Addresses are unique when they are read. There may be none, until a provider or a change adds some.
    pub endpoints: Vec<Endpoint>,
    /// Who gives the endpoints, if the configuration does not.
    pub endpoints_from: Option<Box<EndpointsFrom>>,
    /// How all of them are used. They are read, and changed, as if they stood here.
    pub settings: Arc<ClusterSettings>,
}

impl Deref for Cluster {
    type Target = ClusterSettings;

    #[inline]
    fn deref(&self) -> &ClusterSettings {
        &self.settings
    }
}

/// Other clusters keep what they share with this one.
impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut ClusterSettings {
        Arc::make_mut(&mut self.settings)
    }
}

impl PartialEq for Cluster {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.endpoints == other.endpoints
            && self.endpoints_from == other.endpoints_from
            && (Arc::ptr_eq(&self.settings, &other.settings) || self.settings == other.settings)
    }
}

impl Cluster {
    /// The same with other settings.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut ClusterSettings)) -> Self {
        change(&mut self);
        self
    }
}

/// How the endpoints of a cluster are used.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSettings {
    /// Exchanges (HTTP) or connections (TCP) at once at all endpoints together, over all workers.
    pub connections_max: Option<u32>,
    /// How one is chosen.
    pub balance: Balance,
    /// Who of the endpoints comes first.
    pub spread: Spread,
    /// Active checks.
    pub health_check: Option<HealthCheck>,
    /// What else decides whether endpoints are fit for work.
    pub fitness: Fitness,
    /// Waiting when all endpoints are full; `None`: refuse at once.
    pub queue: Option<Queue>,
    /// TLS towards the endpoints.
    pub tls: Option<UpstreamTls>,
    /// How connections to the endpoints are set up.
    pub socket: ClusterSocket,
    /// What endpoints are told in front of each connection.
    pub proxy_protocol: Option<SendProxy>,
    /// Calls of gRPC-Web go to the endpoints as gRPC.
    pub grpc_web: bool,
    /// Some endpoints have host names, which are looked up again while the configuration is in force.
    pub follows_names: bool,
    /// Connections kept for reuse.
    pub pool: Pool,
    /// Time-outs towards the endpoints.
    pub timeouts: UpstreamTimeouts,
    /// When another endpoint is tried.
    pub retry: Retry,
    /// What keeps it from being given too much.
    pub resilience: Resilience,
    /// Sessions that stay with the endpoint where they began.
    pub persistence: Option<Persistence>,
}

/// Who gives the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointsFrom {
    /// The provider.
    pub provider: Name,
    /// What it knows them by.
    pub key: Arc<str>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// As written: `host:port`, `ip:port` or `unix:PATH`; the stable id within the cluster.
    pub name: Name,
    /// Where it is.
    pub address: Address,
    /// 1 to [`crate::limits::WEIGHT_MAX`]; 0 gets no new work.
    pub weight: u32,
    /// Exchanges (HTTP) or connections (TCP) at once, over all workers.
    pub connections_max: Option<u32>,
    /// Those that wait for this endpoint alone, because of their sessions.
    pub queue_max: Option<NonZeroU32>,
    /// What the operator wants of it.
    pub state: AdminState,
    /// Where it stands among the others.
    pub placement: Placed,
    /// Port of its agent.
    pub agent_port: Option<u16>,
}

/// How an endpoint is chosen. New balancers are added here and as a file in `plan::balance`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Smooth weighted round robin.
    RoundRobin,
    /// At random by weight.
    Random,
    /// Fewest exchanges in flight per weight.
    LeastRequest,
    /// The better of two that chance draws: fewer exchanges in flight per weight.
    PowerOfTwo,
    /// Shortest mean time to answer, with what is in flight, per weight.
    LeastTime {
        /// After which an answer counts half.
        half_life: Duration,
    },
    /// The better of two that chance draws, by a mean time to answer that follows peaks at once.
    PeakEwma {
        /// After which an answer counts half.
        half_life: Duration,
    },
    /// The first that has room.
    First,
    /// By a key of the request: equal keys go to the same endpoint.
    Hash(Hash),
}

impl Balance {
    /// As the configuration calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::LeastRequest => "least_request",
            Self::PowerOfTwo => "power_of_two",
            Self::LeastTime { .. } => "least_time",
            Self::PeakEwma { .. } => "peak_ewma",
            Self::First => "first",
            Self::Hash(hash) if *hash == Hash::of_source() => "source_hash",
            Self::Hash(_) => "hash",
        }
    }
}

/// Equal keys go to the same endpoint, and nearly all still do when endpoints come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hash {
    /// The first of these that a request has; chance stands in when it has none.
    pub on: Vec<HashKey>,
    /// How keys are mapped to endpoints.
    pub algorithm: HashAlgorithm,
    /// Bound on what an endpoint has in flight, in percent of its share of all that is in flight; 100 or more.
    pub load_max: Option<u32>,
}

impl Hash {
    /// By the client's address, with defaults.
    pub fn of_source() -> Self {
        Self { on: vec![HashKey::Source], algorithm: HashAlgorithm::Rendezvous, load_max: None }
    }
}

/// What of a request is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Source,
    /// The values of a header field, by its name in lower case.
    Header(String),
    /// The value of a cookie.
    Cookie(String),
    /// The value of a query parameter.
    Query(String),
    /// The path, without the query.
    Path,
    /// Path and query.
    Uri,
}

/// How keys are mapped to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// Points on a ring.
    Ketama,
    /// A table that endpoints fill in turns.
    Maglev,
    /// The highest score of key and endpoint.
    Rendezvous,
}

/// TLS towards endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamTls {
    /// Name sent as SNI and verified; the host part of the endpoint's name when not given.
    pub server_name: Option<String>,
    /// Verify the certificate; switching this off is for tests.
    pub verify: bool,
    /// Authorities; those of the system when not given.
    pub authorities: Option<Pem>,
    /// Certificate shown when asked for one.
    pub certificate: Option<Certificate>,
}

/// Connections kept for reuse, per worker and endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Idle connections kept; 0 switches reuse off.
    pub idle_max: u32,
    /// Time an idle one is kept.
    pub idle_timeout: Duration,
    /// Requests after which a connection is not reused.
    pub requests_per_connection_max: Option<u64>,
    /// HTTP/2 or HTTP/3, if the endpoints speak it: connections that many requests share.
    pub shared: Option<SharedPool>,
}

impl Pool {
    /// The versions that are offered to an endpoint.
    pub fn versions(&self) -> HttpVersions {
        let speaks = |version| self.shared.as_ref().is_some_and(|shared| shared.version == version);
        let h1 = self.shared.as_ref().is_none_or(|shared| !shared.is_only);
        HttpVersions { h1, h2: speaks(SharedVersion::Http2), h3: speaks(SharedVersion::Http3) }
    }
}

/// Which version it is whose connections many requests share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedVersion {
    /// HTTP/2.
    Http2,
    /// HTTP/3, which is always encrypted and never chosen beside another.
    Http3,
}

/// HTTP/2 or HTTP/3 towards endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPool {
    /// Which of them.
    pub version: SharedVersion,
    /// The endpoints speak nothing else. Otherwise each chooses as a connection begins, by ALPN.
    pub is_only: bool,
    /// Requests at once on a connection.
    pub streams_max: u32,
    /// Time without a byte from the endpoint after which it is asked whether it is there.
    pub ping_interval: Duration,
    /// Time for it to answer.
    pub ping_timeout: Duration,
}

/// Time-outs towards endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// To establish a connection, TLS included.
    pub connect: Duration,
    /// From the request being sent whole to the head of the final response.
    pub response_head: Duration,
    /// Without a byte while a body moves.
    pub idle: Duration,
    /// Without a byte in either direction of a tunnel. `None`: what bounds the silence of bodies bounds that of tunnels too.
    pub tunnel: Option<Duration>,
}

/// The administrator's listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Loopback or a Unix socket unless the operator says otherwise.
    pub bind: Address,
    /// Permissions of the Unix socket.
    pub mode: u32,
    /// Termination of TLS, at an address of the network. It has one certificate.
    pub tls: Option<TlsTermination>,
    /// Who may use it by a token. Without any, and without identities, everybody may who reaches it.
    pub tokens: Vec<AdminToken>,
    /// Who may use it by a certificate; the first that fits counts.
    pub identities: Vec<AdminIdentity>,
    /// Where changes are kept over a start.
    pub state: Option<PathBuf>,
    /// Whether anything may be changed there. Not where everybody can reach it and nobody is asked who he is.
    pub changes_allowed: bool,
}

impl Admin {
    /// Whether who comes has to show who he is, by a token or by a certificate.
    pub fn asks_for_credentials(&self) -> bool {
        !self.tokens.is_empty() || !self.identities.is_empty()
    }

    /// Whether it is a Unix socket that not everybody on the machine may open: that takes the right to write.
    pub fn is_for_some_only(&self) -> bool {
        matches!(&self.bind, Address::Unix(path) if !path.starts_with('@')) && self.mode & 0o002 == 0
    }
}

/// A token that opens the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// Whose it is.
    pub name: Name,
    /// What it may be used for.
    pub role: AdminRole,
    /// The token itself.
    pub secret: Secret,
}

/// A certificate of a client that opens the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminIdentity {
    /// Whose it is.
    pub name: Name,
    /// What it may be used for.
    pub role: AdminRole,
    /// What has to stand in it.
    pub certificate: CertificateName,
}

/// A name that a certificate has to bear, letter by letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The most specific common name in its subject (CN).
    Subject(String),
    /// One of its alternative names: a URI if it holds a colon, a name of mail if it holds `@`, else one of DNS.
    Alternative(String),
}

/// What somebody may do by the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminRole {
    /// Look at everything.
    Read,
    /// Change everything too.
    Admin,
}

/// Where records of exchanges are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// File, or standard output.
    pub target: LogTarget,
    /// How a record looks.
    pub format: LogFormat,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Appended; reopened on SIGUSR1.
    File(PathBuf),
    /// A message for each record.
    Syslog(Syslog),
}

/// A receiver of syslog messages, and what they say beside the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syslog {
    /// Where it is.
    pub to: SyslogAddress,
    /// Facility times eight, and severity (RFC 5424 section 6.2.1).
    pub priority: u8,
    /// Name of the program, of letters, digits and `_-./`.
    pub tag: String,
    /// How messages are written.
    pub style: SyslogStyle,
}

/// Where a receiver of syslog messages is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogAddress {
    /// A datagram for each message (RFC 5426).
    Udp(SocketAddr),
    /// A connection (RFC 6587).
    Tcp(SocketAddr),
    /// A Unix socket of datagrams: a path, or with `@` first a name in the abstract namespace.
    Unix(String),
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// How syslog messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyslogStyle {
    /// RFC 3164, section 4.
    Rfc3164,
    /// RFC 5424, section 6.
    Rfc5424,
}

/// How a record looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// A template, see [`crate::template`].
    Line(String),
    /// The Common Log Format.
    Clf,
    /// The Combined Log Format of Apache and nginx.
    Combined,
}
