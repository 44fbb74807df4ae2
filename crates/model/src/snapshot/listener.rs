//! Where connections arrive, and what is spoken there.

use std::time::Duration;

use super::TlsTermination;
use crate::Name;
use crate::address::{Address, AddressList, Cidr, HostPattern};
use crate::fields::FieldName;
use crate::proxy_protocol::AcceptProxy;
use crate::socket::ListenerSocket;

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
    /// Bounds on the connections of each address.
    pub per_address: Option<ConnectionsPerAddress>,
    /// Tables of addresses that count its connections.
    pub track: Vec<Name>,
    /// What is spoken.
    pub protocol: Protocol,
}

/// Bounds on the connections of each client address, before anything is read.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionsPerAddress {
    /// Connections open at once.
    pub max: Option<u32>,
    /// New connections, such as `10/s`.
    pub rate: Option<String>,
    /// New connections at once; by default what the rate gives in one second.
    pub burst: Option<u32>,
    /// Networks without bounds.
    pub except: Vec<Cidr>,
    /// Bits of an IPv4 address that identify a client, 1 to 32.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 address that identify a client, 1 to 128.
    pub ipv6_prefix: u8,
    /// Addresses whose rate is remembered.
    pub keys_max: u32,
}

impl Listener {
    /// Returns the scheme of a URL that reaches it: `http`, `https`, `tcp` or `udp`.
    pub fn scheme(&self) -> &'static str {
        match (&self.protocol, &self.tls) {
            (Protocol::Http(_), Some(_)) => "https",
            (protocol, _) => protocol.name(),
        }
    }
}

/// What a listener speaks. Code that asks only what its methods answer need not change for a new protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Protocol {
    /// HTTP, routed by request.
    Http(HttpListener),
    /// Bytes, routed by connection.
    Tcp(TcpListener),
    /// Datagrams, routed by client.
    Udp(UdpListener),
}

impl Protocol {
    /// Returns its name in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
        }
    }

    /// Returns the settings of HTTP; `None` for a protocol whose connections go to a cluster without routes.
    pub fn http(&self) -> Option<&HttpListener> {
        match self {
            Self::Http(http) => Some(http),
            Self::Tcp(_) | Self::Udp(_) => None,
        }
    }

    /// Returns whether requests find their cluster by routes. Otherwise [`Protocol::clusters`] names it.
    pub fn has_routes(&self) -> bool {
        self.http().is_some()
    }

    /// Returns the clusters that the listener itself names.
    pub fn clusters(&self) -> Vec<&Name> {
        match self {
            Self::Http(_) => Vec::new(),
            Self::Tcp(tcp) => match &tcp.target {
                TcpTarget::Cluster(name) => vec![name],
                TcpTarget::Sni { alpn, names, otherwise, .. } => {
                    let ruled = alpn.iter().map(|rule| &rule.cluster);
                    ruled.chain(names.iter().map(|(_, name)| name)).chain(otherwise).collect()
                }
            },
            Self::Udp(udp) => vec![&udp.cluster],
        }
    }

    /// Returns how long a connection or flow may be silent between exchanges.
    pub fn idle_timeout(&self) -> Duration {
        match self {
            Self::Http(http) => http.idle_timeout,
            Self::Tcp(tcp) => tcp.idle_timeout,
            Self::Udp(udp) => udp.idle_timeout,
        }
    }

    /// Returns whether datagrams are forwarded. Their ports are not those of connections.
    pub fn is_udp(&self) -> bool {
        matches!(self, Self::Udp(_))
    }

    /// Returns whether HTTP/3 is served, at the UDP port of the same number.
    pub fn speaks_http3(&self) -> bool {
        self.http().is_some_and(|http| http.versions.h3)
    }

    /// Returns whether HTTP/3 is all that is served: no TCP connection is accepted.
    pub fn speaks_http3_only(&self) -> bool {
        self.http().is_some_and(|http| http.versions.h3 && !http.versions.h1 && !http.versions.h2)
    }

    /// Returns the names that a TLS handshake over TCP offers by ALPN (RFC 7301), the preferred first. There are none for a protocol that
    /// forwards bytes: only the endpoint knows what it speaks, and an unknown offer must not fail.
    pub fn alpn(&self) -> Vec<&'static [u8]> {
        let Some(http) = self.http() else { return Vec::new() };
        let offered = [(http.versions.h2, ALPN_H2), (http.versions.h1, ALPN_H1)];
        offered.into_iter().filter_map(|(is_spoken, name)| is_spoken.then_some(name)).collect()
    }
}

/// ALPN name of HTTP/2 over TLS (RFC 9113 section 3.1).
pub const ALPN_H2: &[u8] = b"h2";
/// ALPN name of HTTP/1.1 (RFC 7301 section 6).
pub const ALPN_H1: &[u8] = b"http/1.1";
/// ALPN name of HTTP/3 (RFC 9114 section 3.1).
pub const ALPN_H3: &[u8] = b"h3";

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
    /// `ma` of the `alt-svc` announcement to clients of other versions. `None`: HTTP/3 is not announced.
    pub advertised_for: Option<Duration>,
    /// The announced port; by default that of the listener.
    pub advertised_port: Option<u16>,
    /// Handshakes at once, of one worker, beyond which clients must prove where they are before theirs begins.
    pub unproven_max: u32,
}

/// What endpoints learn about the client, and which proxies are trusted to report it.
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
    /// How fast the bytes of each connection move.
    pub bandwidth: Bandwidth,
}

/// Bytes per second of each connection, at least 1; `None`: as fast as they can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// To the client.
    pub download: Option<u64>,
    /// To the endpoint.
    pub upload: Option<u64>,
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
    /// By the TLS ClientHello, which is passed on untouched.
    Sni {
        /// By application protocol, before names alone: the first that fits.
        alpn: Vec<AlpnRule>,
        /// Exact names win over wildcards, longer wildcards over shorter.
        names: Vec<(HostPattern, Name)>,
        /// For any other name, or none. Without it such connections are closed.
        otherwise: Option<Name>,
        /// Time for the ClientHello to arrive.
        hello_timeout: Duration,
    },
}

/// TLS connections that go to a cluster for an application protocol that their client offers (ALPN, RFC 7301).
#[derive(Clone, Debug, PartialEq)]
pub struct AlpnRule {
    /// It offers one of these, each of 1 to 255 bytes.
    pub protocols: Vec<String>,
    /// It asks for one of these names; any, and none, without any here.
    pub names: Vec<HostPattern>,
    /// Where it goes.
    pub cluster: Name,
}
