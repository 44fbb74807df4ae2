//! What is known of an exchange beside its heads.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::Name;
use crate::proxy_protocol::SenderTlvs;

/// How the client reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Cleartext.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// Returns `http` or `https`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// What TLS told us about a downstream connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The server name that the client asked for, lower case.
    pub server_name: Option<String>,
    /// Such as `TLSv1.3`.
    pub version: &'static str,
    /// Such as `TLS13_AES_128_GCM_SHA256`.
    pub cipher: &'static str,
    /// Subject of the verified client certificate as RFC 4514 writes it, all of it ASCII, if one was presented.
    pub client_subject: Option<String>,
    /// The common name in that subject.
    pub client_common_name: Option<String>,
    /// Further names in that certificate.
    pub client_names: Option<Box<ClientNames>>,
    /// Application protocol that was agreed on (RFC 7301): `http/1.1` or `h2`.
    pub alpn: Option<&'static str>,
}

/// Names in a verified client certificate beside its subject, as the certificate has them, and what tells it from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientNames {
    /// The issuer as RFC 4514 writes it.
    pub issuer: Option<String>,
    /// DNS names (RFC 5280 section 4.2.1.6).
    pub dns: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
    /// Mail addresses.
    pub emails: Vec<String>,
    /// The serial number in lower-case hexadecimal digits, without zeros in front.
    pub serial: Option<String>,
    /// SHA-256 of the whole certificate in lower-case hexadecimal digits.
    pub fingerprint: Option<String>,
}

/// The values of a trusted PROXY header, beside the addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderFacts {
    /// The proxy itself.
    pub address: SocketAddr,
    /// What it calls the connection; may hold any byte.
    pub unique_id: Option<Box<[u8]>>,
    /// Values that it sent by version 2, `unique_id` among them.
    pub tlvs: SenderTlvs,
}

/// Whom conditions ask about beside the request itself.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The client: the peer, or the address that a trusted proxy reports.
    pub client: IpAddr,
    /// The proxy that sent the PROXY header, if there was one.
    pub sender: Option<&'a SenderFacts>,
    /// All that is known of the exchange, where the expressions of routes ask for it.
    pub seen: Option<&'a Seen<'a>>,
}

/// What the expressions of routes are evaluated for.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What is known of the exchange.
    pub facts: Facts<'a>,
    /// When the route is looked for, for rates of tables.
    pub now: Instant,
    /// The body of the request.
    pub body: BodySeen<'a>,
}

/// What is known of a request's body when its route is looked for.
#[derive(Clone, Copy, Debug)]
pub enum BodySeen<'a> {
    /// It is not read. Who wants to see it says so by the bytes that it may have at most.
    Unread {
        /// Its length, if that is known.
        length: Option<u64>,
        /// Bytes of it that are wanted; 0: it is not wanted.
        wanted: &'a Cell<u32>,
    },
    /// All of it.
    Whole(&'a [u8]),
    /// It cannot be had.
    Unknown,
}

impl Seen<'_> {
    /// Returns the client that conditions are evaluated for, expressions included.
    pub fn caller(&self) -> Caller<'_> {
        Caller { seen: Some(self), ..self.facts.caller() }
    }
}

impl From<IpAddr> for Caller<'_> {
    /// Returns a client that no PROXY header describes.
    fn from(client: IpAddr) -> Self {
        Self { client, sender: None, seen: None }
    }
}

/// Facts of one exchange that filters, routes and records may use. Borrowed from the connection: building it allocates
/// nothing.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The peer of the TCP connection, or what a trusted proxy said of it by the PROXY protocol.
    pub peer: SocketAddr,
    /// The client: the peer, or the address that a trusted proxy reports.
    pub client: IpAddr,
    /// Our own address of the connection.
    pub local: SocketAddr,
    /// Cleartext or TLS: how the client has come, as a trusted proxy says it, or else by our own connection.
    pub scheme: Scheme,
    /// Present for TLS.
    pub tls: Option<&'a TlsFacts>,
    /// The proxy that sent the PROXY header, if there was one.
    pub sender: Option<&'a SenderFacts>,
    /// The listener.
    pub listener: &'a Name,
    /// The request id; empty when request ids are off.
    pub request_id: &'a str,
    /// The user that a filter has verified, once filters have run; may hold any byte.
    pub user: Option<&'a [u8]>,
}

impl<'a> Facts<'a> {
    /// Returns the client that conditions are evaluated for, but for expressions.
    pub fn caller(&self) -> Caller<'_> {
        Caller { client: self.client, sender: self.sender, seen: None }
    }
}
