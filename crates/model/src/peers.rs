//! Other instances of the program, to which tables are replicated.

use std::net::SocketAddr;

use crate::tls::{Certificate, Pem};

/// How an instance talks to its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// Where it listens for them.
    pub listen: SocketAddr,
    /// Where they listen; it may be among them itself.
    pub members: Vec<Member>,
    /// Both sides show a certificate. `None`: in clear.
    pub tls: Option<PeersTls>,
}

/// A peer, or all that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// A name or an address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// TLS between peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersTls {
    /// What this instance shows, on connections of both directions.
    pub certificate: Certificate,
    /// The authorities that certificates of peers are verified with.
    pub authorities: Pem,
    /// The name that the certificate of a peer has to bear; the host of the member when not given.
    pub server_name: Option<String>,
}
