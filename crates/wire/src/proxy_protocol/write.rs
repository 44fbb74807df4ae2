//! Headers that we send.

use std::io::Write;
use std::net::IpAddr;

use model::limits::PROXY_HEADER_SENT_BYTES_MAX;

use super::crc32c::crc32c;
use super::{Peers, tlv, v2};

/// What a header of version 2 is to tell.
#[derive(Clone, Debug, Default)]
pub struct Outgoing<'a> {
    /// The client's connection; `None`: we speak for ourselves, as checks do.
    pub peers: Option<Peers>,
    /// Application protocol of the client's connection.
    pub alpn: Option<&'a [u8]>,
    /// Host name that the client asked for.
    pub authority: Option<&'a str>,
    /// At most 128 bytes of it are sent.
    pub unique_id: Option<&'a [u8]>,
    /// The client's TLS.
    pub ssl: Option<OutgoingSsl<'a>>,
    /// Of [`super::CUSTOM_TYPES`].
    pub custom: &'a [(u8, Vec<u8>)],
    /// Add a checksum.
    pub checksum: bool,
}

/// TLVs about the client's TLS.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingSsl<'a> {
    /// Such as `TLSv1.3`.
    pub version: &'a str,
    /// Such as `TLS13_AES_128_GCM_SHA256`.
    pub cipher: &'a str,
    /// Common name of the certificate that the client showed and that was verified.
    pub common_name: Option<&'a str>,
    /// Whether there was one.
    pub has_certificate: bool,
}

/// Appends a header of version 1. `None`: we speak for ourselves, or the addresses are not those of TCP.
pub fn write_v1(peers: Option<Peers>, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = match peers.map(|peers| (peers, same_family(&peers))) {
        None => write!(out, "PROXY UNKNOWN\r\n"),
        Some((peers, (source, destination))) => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (peers.source.port(), peers.destination.port());
            write!(out, "PROXY {family} {source} {destination} {from} {to}\r\n")
        }
    };
}

/// Appends a header of version 2. Each value that would make it longer than [`PROXY_HEADER_SENT_BYTES_MAX`] is left out;
/// values of the operator's own come first, then protocol, id, TLS, host name.
pub fn write_v2(outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(v2::SIGNATURE);
    match &outgoing.peers {
        None => out.extend_from_slice(&[v2::VERSION | v2::COMMAND_LOCAL, 0, 0, 0]),
        Some(peers) => {
            push_peers(peers, out);
            push_tlvs(outgoing, start, out);
        }
    }
    let len = u16::try_from(out.len() - start - v2::FIXED_BYTES).unwrap_or(u16::MAX);
    out[start + 14..start + 16].copy_from_slice(&len.to_be_bytes());
    if outgoing.checksum && outgoing.peers.is_some() {
        // Its place is at the end, and holds zeros.
        let sum = crc32c([&out[start..]]).to_be_bytes();
        let end = out.len();
        out[end - 4..].copy_from_slice(&sum);
    }
}

fn push_peers(peers: &Peers, out: &mut Vec<u8>) {
    let (source, destination) = same_family(peers);
    let family = if source.is_ipv4() { v2::INET } else { v2::INET6 };
    out.extend_from_slice(&[v2::VERSION | v2::COMMAND_PROXY, family | v2::STREAM, 0, 0]);
    for address in [source, destination] {
        match address {
            IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
        }
    }
    out.extend_from_slice(&peers.source.port().to_be_bytes());
    out.extend_from_slice(&peers.destination.port().to_be_bytes());
}

/// Both as IPv4 if both are; else both as IPv6.
fn same_family(peers: &Peers) -> (IpAddr, IpAddr) {
    let both = (peers.source.ip().to_canonical(), peers.destination.ip().to_canonical());
    let mapped = |ip| match ip {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        v6 @ IpAddr::V6(_) => v6,
    };
    if both.0.is_ipv4() == both.1.is_ipv4() { both } else { (mapped(both.0), mapped(both.1)) }
}

fn push_tlvs(outgoing: &Outgoing<'_>, start: usize, out: &mut Vec<u8>) {
    let reserved = if outgoing.checksum { 7 } else { 0 };
    let mut push = |kind: u8, value: &[u8]| {
        if out.len() - start + 3 + value.len() + reserved <= PROXY_HEADER_SENT_BYTES_MAX {
            push_tlv(kind, value, out);
        }
    };
    // What the operator wrote first, and last what clients choose the length of: theirs must not push ours out.
    for (kind, value) in outgoing.custom {
        push(*kind, value);
    }
    if let Some(alpn) = outgoing.alpn {
        push(tlv::ALPN, alpn);
    }
    if let Some(id) = outgoing.unique_id.filter(|id| !id.is_empty()) {
        push(tlv::UNIQUE_ID, &id[..id.len().min(tlv::UNIQUE_ID_BYTES_MAX)]);
    }
    if let Some(ssl) = &outgoing.ssl {
        push(tlv::SSL, &ssl_value(ssl));
    }
    if let Some(authority) = outgoing.authority {
        push(tlv::AUTHORITY, authority.as_bytes());
    }
    if outgoing.checksum {
        push_tlv(tlv::CRC32C, &[0; 4], out);
    }
}

fn push_tlv(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    out.push(kind);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&value[..usize::from(len)]);
}

/// The name in IANA's registry: our TLS library puts the version into those of TLS 1.3.
fn registered(cipher: &str) -> std::borrow::Cow<'_, str> {
    match cipher.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}").into(),
        None => cipher.into(),
    }
}

fn ssl_value(ssl: &OutgoingSsl<'_>) -> Vec<u8> {
    let mut client = tlv::CLIENT_SSL;
    if ssl.has_certificate {
        client |= tlv::CLIENT_CERT_CONN | tlv::CLIENT_CERT_SESS;
    }
    // 0 says that one was shown and verified; what cannot be verified ends the handshake.
    let verify = u32::from(!ssl.has_certificate);
    let mut value = vec![client];
    value.extend_from_slice(&verify.to_be_bytes());
    push_tlv(tlv::SSL_VERSION, ssl.version.as_bytes(), &mut value);
    if let Some(name) = ssl.common_name {
        push_tlv(tlv::SSL_CN, name.as_bytes(), &mut value);
    }
    push_tlv(tlv::SSL_CIPHER, registered(ssl.cipher).as_bytes(), &mut value);
    value
}
