//! What the program itself asks over HTTP, such as the registry of a provider.

use std::time::Duration;

use crate::Address;
use crate::tls::UpstreamTls;

/// What is asked over HTTP/1.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Where.
    pub place: Place,
    /// The field `host`, and what its certificate must bear if nothing else is said.
    pub host: String,
    /// TLS, if it is spoken.
    pub tls: Option<UpstreamTls>,
    /// To connect, and from the request to the head of the answer.
    pub timeout: Duration,
    /// Fields of each request, credentials among them.
    pub fields: Vec<(String, String)>,
}

/// Where an origin is. Names are looked up at each connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A host name or an address, and a port.
    Host(String, u16),
    /// A fixed place.
    Address(Address),
}
