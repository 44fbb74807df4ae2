//! The PROXY protocol of haproxy.org: who may tell whom a connection speaks for, and what endpoints are told.

use std::net::IpAddr;
use std::time::Duration;

use crate::address::Cidr;

/// Whose headers a listener takes.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptProxy {
    /// Only what these send is believed; what others send is no header.
    pub from: Vec<Cidr>,
    /// They must send one.
    pub is_required: bool,
    /// Time for it to arrive.
    pub timeout: Duration,
}

impl AcceptProxy {
    /// Whether a header of this peer is believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.from.iter().any(|network| network.contains(peer))
    }
}

/// What is told to the endpoints of a cluster in front of each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendProxy {
    /// One line of text.
    V1,
    /// Binary.
    V2(Tlvs),
}

/// What version 2 tells beside addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tlvs {
    /// Application protocol of the client's connection.
    pub alpn: bool,
    /// Host name that the client asked for by TLS SNI.
    pub authority: bool,
    /// The id of the request for which the connection is made.
    pub unique_id: bool,
    /// The client's TLS, with the name in its certificate.
    pub ssl: bool,
    /// A checksum.
    pub checksum: bool,
    /// Types from 0xe0 to 0xef with their values, in order.
    pub custom: Vec<(u8, Vec<u8>)>,
}
