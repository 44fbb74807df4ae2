//! Version 2: binary (section 2.2).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use model::limits::PROXY_HEADER_BYTES_MAX;

use super::{Header, Peers, Proxied, TlvFacts, tlv};

/// What it begins with: no other protocol does.
pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and transport, length of the rest.
pub(super) const FIXED_BYTES: usize = 16;
/// High half of the byte after the signature.
pub(super) const VERSION: u8 = 0x20;
pub(super) const COMMAND_LOCAL: u8 = 0;
pub(super) const COMMAND_PROXY: u8 = 1;
pub(super) const INET: u8 = 0x10;
pub(super) const INET6: u8 = 0x20;
const UNIX: u8 = 0x30;
pub(super) const STREAM: u8 = 1;
const DATAGRAM: u8 = 2;
/// Two paths of 108 bytes.
const UNIX_BYTES: usize = 216;

/// Reads what begins with the signature.
pub(super) fn read(bytes: &[u8]) -> Proxied<'_> {
    // Each byte is judged as soon as it is there, so that the answer does not depend on what follows.
    let command = bytes.get(12).map(|byte| (byte & 0xf0, byte & 0x0f));
    if command.is_some_and(|(version, command)| version != VERSION || command > COMMAND_PROXY) {
        return Proxied::Malformed;
    }
    let is_local = command.is_some_and(|(_, command)| command == COMMAND_LOCAL);
    let family = bytes.get(13).map(|byte| (byte & 0xf0, byte & 0x0f));
    // Of one who speaks for itself the family is ignored.
    if !is_local && family.is_some_and(|(family, transport)| family > UNIX || transport > DATAGRAM) {
        return Proxied::Malformed;
    }
    let Some((family, transport)) = family else { return Proxied::NeedMore };
    let (Some(&high), Some(&low)) = (bytes.get(14), bytes.get(15)) else { return Proxied::NeedMore };
    let len = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if len > PROXY_HEADER_BYTES_MAX {
        return Proxied::Malformed;
    }
    let Some(header) = bytes.get(..len) else { return Proxied::NeedMore };
    if is_local {
        // The rest is to be skipped, whatever it is.
        return Proxied::Whole(Header { len, peers: None, told: TlvFacts::default() });
    }
    match rest(header, family, transport) {
        Some((peers, told)) => Proxied::Whole(Header { len, peers, told }),
        None => Proxied::Malformed,
    }
}

fn rest(header: &[u8], family: u8, transport: u8) -> Option<(Option<Peers>, TlvFacts<'_>)> {
    let (peers, tlvs) = match family {
        INET => v4(&header[FIXED_BYTES..])?,
        INET6 => v6(&header[FIXED_BYTES..])?,
        UNIX => return Some((None, tlv::read(header, FIXED_BYTES + UNIX_BYTES)?)),
        // Nothing is known of the rest's shape.
        _ => return Some((None, TlvFacts::default())),
    };
    let told = tlv::read(header, header.len() - tlvs)?;
    Some(((transport == STREAM).then_some(peers), told))
}

/// The addresses, and how many bytes follow them.
fn v4(block: &[u8]) -> Option<(Peers, usize)> {
    let (addresses, tlvs) = block.split_first_chunk::<12>()?;
    let [a, b, c, d, e, f, g, h, ports @ ..] = *addresses;
    let (source_port, destination_port) = split_ports(ports);
    let source = SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), source_port);
    let destination = SocketAddr::new(Ipv4Addr::new(e, f, g, h).into(), destination_port);
    Some((Peers { source, destination }, tlvs.len()))
}

fn v6(block: &[u8]) -> Option<(Peers, usize)> {
    let (source, block) = block.split_first_chunk::<16>()?;
    let (destination, block) = block.split_first_chunk::<16>()?;
    let (ports, tlvs) = block.split_first_chunk::<4>()?;
    let (source_port, destination_port) = split_ports(*ports);
    let source = SocketAddr::new(Ipv6Addr::from(*source).into(), source_port);
    let destination = SocketAddr::new(Ipv6Addr::from(*destination).into(), destination_port);
    Some((Peers { source, destination }, tlvs.len()))
}

fn split_ports([a, b, c, d]: [u8; 4]) -> (u16, u16) {
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}
