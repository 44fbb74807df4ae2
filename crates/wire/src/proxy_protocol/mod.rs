//! The PROXY protocol of haproxy.org, versions 1 and 2: a header in front of a connection, by which a proxy tells who the
//! client is. Section numbers are those of its specification, `proxy-protocol.txt`.
//!
//! [`read`] takes the bytes that came so far. Whether a sender may be believed is for the caller to know.

mod crc32c;
mod tlv;
mod v1;
mod v2;
mod write;

use std::net::SocketAddr;

pub use tlv::{CUSTOM_TYPES, Ssl, TlvFacts};
pub use write::{Outgoing, OutgoingSsl, write_v1, write_v2};

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it lives for a moment, once in a connection")]
pub enum Proxied<'a> {
    /// Possibly the beginning of a header, and if so all of these bytes belong to it. Never so from
    /// [`model::limits::PROXY_HEADER_BYTES_MAX`] bytes on.
    NeedMore,
    /// No header: something else begins here.
    Absent,
    /// It begins like a header and is none, or is longer than accepted, or its checksum is wrong.
    Malformed,
    /// A whole header.
    Whole(Header<'a>),
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its length in bytes; what comes after belongs to the client.
    pub len: usize,
    /// Who is connected with whom. `None`: the sender speaks for itself (`LOCAL`), does not know (`UNKNOWN`, `UNSPEC`), or
    /// the addresses are not those of TCP, so the addresses of the connection hold.
    pub peers: Option<Peers>,
    /// What else it tells.
    pub told: TlvFacts<'a>,
}

/// The two ends of a client's connection to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The client.
    pub source: SocketAddr,
    /// Where the client connected to.
    pub destination: SocketAddr,
}

/// Reads the first bytes of a connection. What it says of some bytes it says of any longer input, unless it was
/// [`Proxied::NeedMore`].
pub fn read(bytes: &[u8]) -> Proxied<'_> {
    let shared = |signature: &[u8]| bytes.iter().zip(signature).all(|(byte, wanted)| byte == wanted);
    if shared(v1::SIGNATURE) {
        return if bytes.len() < v1::SIGNATURE.len() { Proxied::NeedMore } else { v1::read(bytes) };
    }
    if shared(v2::SIGNATURE) {
        return if bytes.len() < v2::SIGNATURE.len() { Proxied::NeedMore } else { v2::read(bytes) };
    }
    Proxied::Absent
}

/// Whether a connection that begins so can hold nothing but a header, be it whole or not.
pub fn has_signature(bytes: &[u8]) -> bool {
    bytes.starts_with(v1::SIGNATURE) || bytes.starts_with(v2::SIGNATURE)
}

#[cfg(test)]
mod tests;
