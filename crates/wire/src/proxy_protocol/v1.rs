//! Version 1: one line of text (section 2.1).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Header, Peers, Proxied, TlvFacts};

/// What it begins with. Without the space it may be a longer word of another protocol.
pub(super) const SIGNATURE: &[u8] = b"PROXY ";
/// Longest line, its end included.
pub(super) const LINE_BYTES_MAX: usize = 107;

/// Reads what begins with the signature.
pub(super) fn read(bytes: &[u8]) -> Proxied<'_> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return if bytes.len() < LINE_BYTES_MAX { Proxied::NeedMore } else { Proxied::Malformed };
    };
    match &window[end..] {
        [b'\r', b'\n', ..] => match peers(&window[SIGNATURE.len()..end]) {
            Some(peers) => Proxied::Whole(Header { len: end + 2, peers, told: TlvFacts::default() }),
            None => Proxied::Malformed,
        },
        [b'\r'] if bytes.len() < LINE_BYTES_MAX => Proxied::NeedMore,
        _ => Proxied::Malformed,
    }
}

/// The addresses of a line without its signature and end. The outer `None`: it is malformed.
fn peers(line: &[u8]) -> Option<Option<Peers>> {
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        // What follows is to be ignored.
        return Some(None);
    }
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split(' ');
    let peers = match words.next()? {
        "TCP4" => addresses::<Ipv4Addr>(&mut words)?,
        "TCP6" => addresses::<Ipv6Addr>(&mut words)?,
        _ => return None,
    };
    words.next().is_none().then_some(Some(peers))
}

fn addresses<'a, A: FromStr + Into<std::net::IpAddr>>(words: &mut impl Iterator<Item = &'a str>) -> Option<Peers> {
    let source: A = words.next()?.parse().ok()?;
    let destination: A = words.next()?.parse().ok()?;
    let (source_port, destination_port) = (port(words.next()?)?, port(words.next()?)?);
    Some(Peers {
        source: SocketAddr::new(source.into(), source_port),
        destination: SocketAddr::new(destination.into(), destination_port),
    })
}

/// Decimal, from 0 to 65535, without leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}
