//! The process before, as far as datagrams go: those of its QUIC connections and of its flows come by sockets that are read by the
//! latest process alone, which passes them on.
//!
//! ```text
//!            ┌ the latest process ┐   Passed    ┌ the one before ┐
//!  client ──►│ whose is it?       │ ──────────► │ its port       │──► its connection, or its flow
//!            │   ours: as always  │ ◄────────── │                │
//!            └────────────────────┘  Over, Back └────────────────┘
//! ```
//! The one before answers by the very same sockets. It says when a flow is over, and gives back what came for one that had
//! ended meanwhile. Between two ports is a Unix socket that keeps the bounds of messages and waits for nobody: what finds it
//! full is dropped, as any network may do.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, ready};

use model::limits::DATAGRAM_BYTES_MAX;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::kernel::Envelope;

/// Room for messages on their way, as far as the machine allows.
const BUFFER_BYTES: usize = 4 << 20;
/// Longest head of a message.
const HEAD_BYTES_MAX: usize = 64;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// A datagram for the process before.
    Passed = 1,
    /// A flow is over.
    Over = 2,
    /// A flow is over, and this datagram has come for it since.
    Back = 3,
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub says: Says,
    pub envelope: Envelope,
    /// Of the network's congestion (RFC 3168); for QUIC alone.
    pub ecn: u8,
    pub bytes: &'a [u8],
}

impl Message<'_> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend([self.says as u8, self.ecn]);
        write_envelope(&self.envelope, out);
        out.extend(self.bytes);
    }

    /// The reverse of [`Self::write`]. `None`: it is no message.
    pub(crate) fn read(message: &[u8]) -> Option<Message<'_>> {
        let (&[says, ecn], rest) = message.split_first_chunk()?;
        let says = [Says::Passed, Says::Over, Says::Back].into_iter().find(|known| *known as u8 == says)?;
        let (envelope, bytes) = read_envelope(rest)?;
        Some(Message { says, envelope, ecn, bytes })
    }
}

/// Writes who sent something, and to which address of ours.
pub(crate) fn write_envelope(envelope: &Envelope, out: &mut Vec<u8>) {
    write_ip(Some(envelope.from.ip()), out);
    out.extend(envelope.from.port().to_be_bytes());
    if let SocketAddr::V6(v6) = envelope.from {
        out.extend(v6.flowinfo().to_be_bytes());
        out.extend(v6.scope_id().to_be_bytes());
    }
    write_ip(envelope.to, out);
}

/// The reverse of [`write_envelope`], and what follows it.
pub(crate) fn read_envelope(bytes: &[u8]) -> Option<(Envelope, &[u8])> {
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

/// Both ends of the way between a port and the one that follows it.
///
/// # Errors
/// No descriptors are left.
pub(crate) fn way() -> io::Result<(End, OwnedFd)> {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
    for end in [&ours, &theirs] {
        end.set_nonblocking(true)?;
        let _ = end.set_send_buffer_size(BUFFER_BYTES);
    }
    Ok((End::new(ours.into())?, theirs.into()))
}

/// An end that a worker waits at.
pub(crate) struct End {
    /// By the type of a stream: waiting is the same for both.
    socket: UnixStream,
    room: Vec<u8>,
}

impl End {
    /// # Errors
    /// It cannot be waited for.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixStream::from_std(std::os::unix::net::UnixStream::from(socket))?;
        Ok(Self { socket, room: Vec::new() })
    }

    /// The same end, to speak at.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// The next message. `None`: the other side is gone, or says what is no message.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Message<'_>>> {
        let Self { socket, room } = self;
        room.resize(HEAD_BYTES_MAX + DATAGRAM_BYTES_MAX, 0);
        let count = loop {
            if ready!(socket.poll_read_ready(cx)).is_err() {
                return Poll::Ready(None);
            }
            let receive = || io::Read::read(&mut &*SockRef::from(&*socket), room);
            match socket.try_io(Interest::READABLE, receive) {
                Ok(count) => break count,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(_) => return Poll::Ready(None),
            }
        };
        Poll::Ready(Message::read(&room[..count]))
    }
}

/// The process before, for all ports of one listener.
#[derive(Debug)]
pub(crate) struct Past {
    /// One for each port that it has.
    ways: Box<[OwnedFd]>,
    /// Its flows, and which of its ports has them.
    flows: Mutex<HashMap<Envelope, u32>>,
    count: AtomicUsize,
    is_gone: AtomicBool,
}

/// What became of a datagram that was to be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is on its way.
    Passed,
    /// There was no room.
    Dropped,
    /// There is nobody who would take it.
    Ours,
}

impl Past {
    pub(crate) fn new(ways: Vec<OwnedFd>) -> Self {
        let (ways, flows) = (ways.into_boxed_slice(), Mutex::default());
        Self { ways, flows, count: AtomicUsize::new(0), is_gone: AtomicBool::new(false) }
    }

    fn flows(&self) -> MutexGuard<'_, HashMap<Envelope, u32>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ends of ways at which one of so many ports is to wait, with the numbers of the ports at their other ends.
    pub(crate) fn ends(&self, port: usize, ports: usize) -> impl Iterator<Item = (u32, io::Result<End>)> + '_ {
        let own = self.ways.iter().enumerate().filter(move |(number, _)| number % ports.max(1) == port);
        own.map(|(number, way)| (number as u32, way.try_clone().and_then(End::new)))
    }

    /// Remembers that a flow is the other process's.
    pub(crate) fn know(&self, envelope: Envelope, port: u32) {
        let mut flows = self.flows();
        flows.insert(envelope, port);
        self.count.store(flows.len(), Ordering::Relaxed);
    }

    /// The port there that has the flow. Costs a look at a number once there are no more of them.
    pub(crate) fn port_of(&self, envelope: &Envelope) -> Option<u32> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.flows().get(envelope).copied()
    }

    /// The flows that one of so many ports hears of.
    pub(crate) fn flows_of(&self, port: usize, ports: usize) -> Vec<Envelope> {
        let is_own = |other: &u32| *other as usize % ports.max(1) == port;
        self.flows().iter().filter(|(_, other)| is_own(other)).map(|(envelope, _)| *envelope).collect()
    }

    /// A flow is over.
    pub(crate) fn forget(&self, envelope: &Envelope) {
        let mut flows = self.flows();
        flows.remove(envelope);
        self.count.store(flows.len(), Ordering::Relaxed);
    }

    /// The other end of a way is gone, and all flows there with it.
    pub(crate) fn forget_all(&self, port: u32) {
        let mut flows = self.flows();
        flows.retain(|_, other| *other != port);
        self.count.store(flows.len(), Ordering::Relaxed);
    }

    /// Passes a datagram on.
    pub(crate) fn pass(&self, port: usize, message: &Message<'_>, scratch: &mut Vec<u8>) -> Fate {
        if self.ways.is_empty() || self.is_gone.load(Ordering::Relaxed) {
            return Fate::Ours;
        }
        message.write(scratch);
        match SockRef::from(&self.ways[port % self.ways.len()]).send(scratch) {
            Ok(_) => Fate::Passed,
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                self.is_gone.store(true, Ordering::Relaxed);
                Fate::Ours
            }
            Err(_) => Fate::Dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelopes() -> Vec<Envelope> {
        let v6 = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 8, 9);
        vec![
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
                assert!(out.len() - 7 <= HEAD_BYTES_MAX);
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

    #[tokio::test]
    async fn datagrams_are_passed_on_and_who_is_gone_gets_none() {
        let (mut end, theirs) = way().unwrap();
        let past = Past::new(vec![theirs]);
        let envelope = envelopes()[2];
        let message = Message { says: Says::Passed, envelope, ecn: 1, bytes: &[7; 1_400] };
        let mut scratch = Vec::new();
        assert_eq!(past.pass(5, &message, &mut scratch), Fate::Passed);
        let came = std::future::poll_fn(|cx| match end.poll(cx) {
            Poll::Ready(Some(came)) => Poll::Ready(came.envelope == envelope && came.bytes == [7; 1_400]),
            Poll::Ready(None) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        });
        assert!(came.await);
        let mut fates = (0..100_000).map(|_| past.pass(0, &message, &mut scratch));
        assert!(fates.any(|fate| fate == Fate::Dropped), "it has a bound");
        drop(end);
        assert_eq!(past.pass(0, &message, &mut scratch), Fate::Ours);
        assert_eq!(Past::new(Vec::new()).pass(0, &message, &mut scratch), Fate::Ours);
        past.know(envelope, 3);
        past.know(envelopes()[0], 4);
        assert_eq!((past.port_of(&envelope), past.port_of(&envelopes()[1])), (Some(3), None));
        past.forget_all(3);
        assert_eq!((past.port_of(&envelope), past.port_of(&envelopes()[0])), (None, Some(4)));
        past.forget(&envelopes()[0]);
        assert_eq!(past.count.load(Ordering::Relaxed), 0);
    }
}
