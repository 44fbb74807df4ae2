//! What two processes of the program say to each other while one takes over from the other: heads of frames, and datagrams that
//! are passed on. Both are ours, but the other may be of another version, or no such program at all.
//!
//! A frame:
//! ```text
//! kind, 1 byte │ length of the body, 4 bytes │ number of descriptors, 2 bytes │ body │ 1 byte for each batch of descriptors
//! ```
//! A message, of which the socket keeps the bounds:
//! ```text
//! what it says, 1 byte │ ECN, 1 byte │ who sent it: address, port │ to which address │ the datagram
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Longest body of a frame: the sessions of a large table.
pub const BODY_BYTES_MAX: u32 = 1 << 30;
/// Bytes of the head of a frame.
pub const HEAD_BYTES: usize = 7;
/// Longest head of a message.
pub const MESSAGE_HEAD_BYTES_MAX: usize = 64;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// From the old process: its sockets, and what the new one needs to make ready.
    Offer = 1,
    /// From the new process: it is ready, and lists the sockets that it wants; or it has taken over the first part of the state.
    Prepared = 2,
    /// From the old one: its runtime state, in two parts if the new one takes that.
    State = 3,
    /// From the new one: it takes what arrives.
    Ready = 4,
    /// From the new one: it cannot take over. From the old one: it is not to.
    Refused = 5,
    /// From the old one while it drains: what it has counted.
    Figures = 6,
    /// From either: signals that came meanwhile, or anything that a later version may say.
    Note = 7,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Offer, Self::Prepared, Self::State, Self::Ready, Self::Refused, Self::Figures, Self::Note];
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// What follows.
    pub kind: Kind,
    /// Length of the body; at most [`BODY_BYTES_MAX`].
    pub body_bytes: u32,
    /// Descriptors behind it.
    pub descriptors: u16,
}

impl FrameHead {
    /// As it is sent.
    pub fn write(self) -> [u8; HEAD_BYTES] {
        let ([a, b, c, d], [e, f]) = (self.body_bytes.to_le_bytes(), self.descriptors.to_le_bytes());
        [self.kind as u8, a, b, c, d, e, f]
    }

    /// The reverse of [`Self::write`].
    ///
    /// # Errors
    /// It is none, or one that is too long.
    pub fn read(bytes: [u8; HEAD_BYTES]) -> Result<Self, &'static str> {
        let [kind, a, b, c, d, e, f] = bytes;
        let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind).ok_or("what came is no frame")?;
        let body_bytes = u32::from_le_bytes([a, b, c, d]);
        if body_bytes > BODY_BYTES_MAX {
            return Err("a frame is too long");
        }
        Ok(Self { kind, body_bytes, descriptors: u16::from_le_bytes([e, f]) })
    }
}

/// Where a datagram came from, and to which of our addresses it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Who sent it.
    pub from: SocketAddr,
    /// Where it was sent to, as far as the socket tells that.
    pub to: Option<IpAddr>,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// A datagram for the process before.
    Passed = 1,
    /// A flow is over.
    Over = 2,
    /// A flow is over, and this datagram has come for it since.
    Back = 3,
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub says: Says,
    /// Whose it is.
    pub envelope: Envelope,
    /// Of the network's congestion (RFC 3168); for QUIC alone.
    pub ecn: u8,
    /// The datagram.
    pub bytes: &'a [u8],
}

impl Message<'_> {
    /// Writes it in place of what is there.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend([self.says as u8, self.ecn]);
        write_envelope(&self.envelope, out);
        out.extend(self.bytes);
    }

    /// The reverse of [`Self::write`]. `None`: it is no message.
    pub fn read(message: &[u8]) -> Option<Message<'_>> {
        let (&[says, ecn], rest) = message.split_first_chunk()?;
        let says = [Says::Passed, Says::Over, Says::Back].into_iter().find(|known| *known as u8 == says)?;
        let (envelope, bytes) = read_envelope(rest)?;
        Some(Message { says, envelope, ecn, bytes })
    }
}

/// Writes who sent something, and to which address of ours.
pub fn write_envelope(envelope: &Envelope, out: &mut Vec<u8>) {
    write_ip(Some(envelope.from.ip()), out);
    out.extend(envelope.from.port().to_be_bytes());
    if let SocketAddr::V6(v6) = envelope.from {
        out.extend(v6.flowinfo().to_be_bytes());
        out.extend(v6.scope_id().to_be_bytes());
    }
    write_ip(envelope.to, out);
}

/// The reverse of [`write_envelope`], and what follows it.
pub fn read_envelope(bytes: &[u8]) -> Option<(Envelope, &[u8])> {
    let (ip, rest) = read_ip(bytes)?;
    let (port, mut rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    let from = match ip? {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        IpAddr::V6(ip) => {
            let (flow, behind) = rest.split_first_chunk::<4>()?;
            let (scope, behind) = behind.split_first_chunk::<4>()?;
            rest = behind;
            SocketAddrV6::new(ip, port, u32::from_be_bytes(*flow), u32::from_be_bytes(*scope)).into()
        }
    };
    let (to, rest) = read_ip(rest)?;
    Some((Envelope { from, to }, rest))
}

fn write_ip(ip: Option<IpAddr>, out: &mut Vec<u8>) {
    match ip {
        None => out.push(0),
        Some(IpAddr::V4(ip)) => {
            out.push(4);
            out.extend(ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
}

fn read_ip(bytes: &[u8]) -> Option<(Option<IpAddr>, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    Some(match kind {
        0 => (None, rest),
        4 => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (Some(Ipv4Addr::from(*ip).into()), rest)
        }
        6 => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (Some(Ipv6Addr::from(*ip).into()), rest)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelopes() -> [Envelope; 3] {
        let v6 = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 8, 9);
        [
            Envelope { from: "192.0.2.1:53".parse().unwrap(), to: None },
            Envelope { from: "192.0.2.1:53".parse().unwrap(), to: Some("10.0.0.1".parse().unwrap()) },
            Envelope { from: v6.into(), to: Some("::1".parse().unwrap()) },
        ]
    }

    #[test]
    fn messages_are_read_back_and_nothing_else_is_one() {
        let mut out = Vec::new();
        for envelope in envelopes() {
            for says in [Says::Passed, Says::Over, Says::Back] {
                let message = Message { says, envelope, ecn: 2, bytes: b"payload" };
                message.write(&mut out);
                assert!(out.len() - 7 <= MESSAGE_HEAD_BYTES_MAX);
                assert_eq!(Message::read(&out), Some(message));
                for length in 0..out.len() - 7 {
                    assert_eq!(Message::read(&out[..length]), None, "{length}");
                }
            }
        }
        for strange in [&b"\0\0"[..], b"\x01\x00\x00", b"\x01\x00\x05\x01", b"\x09\x00\x04\x01\x01\x01\x01\x00\x01\x00"]
        {
            assert_eq!(Message::read(strange), None);
        }
    }

    #[test]
    fn heads_of_frames_are_read_back_and_what_is_none_or_too_long_is_refused() {
        for kind in Kind::ALL {
            for (body_bytes, descriptors) in [(0, 0), (1, u16::MAX), (BODY_BYTES_MAX, 7)] {
                let head = FrameHead { kind, body_bytes, descriptors };
                assert_eq!(FrameHead::read(head.write()), Ok(head));
            }
        }
        assert_eq!(FrameHead::read(*b"GET / H"), Err("what came is no frame"));
        assert_eq!(FrameHead::read([0; HEAD_BYTES]), Err("what came is no frame"));
        assert_eq!(FrameHead::read([8, 0, 0, 0, 0, 0, 0]), Err("what came is no frame"));
        assert_eq!(FrameHead::read([1, 1, 0, 0, 0x40, 0, 0]), Err("a frame is too long"));
    }
}
