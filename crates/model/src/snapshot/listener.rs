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
