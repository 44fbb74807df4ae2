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
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, ready};

use model::limits::DATAGRAM_BYTES_MAX;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UnixStream;
use wire::handover::MESSAGE_HEAD_BYTES_MAX;
pub(crate) use wire::handover::{Envelope, Message, Says, read_envelope, write_envelope};

/// Room for messages on their way, as far as the machine allows.
const BUFFER_BYTES: usize = 4 << 20;
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

    /// Returns the same end, to speak at.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Returns the next message, or `None` if the other side is gone or sent something else.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Message<'_>>> {
        let Self { socket, room } = self;
        room.resize(MESSAGE_HEAD_BYTES_MAX + DATAGRAM_BYTES_MAX, 0);
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
    ways: Box<[Way]>,
    /// Its flows, and which of its ports has them.
    flows: Mutex<HashMap<Envelope, u32>>,
    count: AtomicUsize,
}

/// The way to one of its ports.
#[derive(Debug)]
struct Way {
    socket: OwnedFd,
    /// Nobody is at the other end any more. That says nothing of other ports: each ends with the last of its connections.
    is_gone: AtomicBool,
}

impl Way {
    /// Returns whether it is known that nobody is at its other end any more.
    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Returns the same, by a look at it: where nothing is passed on, nothing tells that it is over.
    fn has_gone(&self) -> bool {
        if self.is_gone() {
            return true;
        }
        let looked = SockRef::from(&self.socket).peek(&mut [MaybeUninit::uninit()]);
        let is_gone = match looked {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        self.is_gone.store(is_gone, Ordering::Relaxed);
        is_gone
    }

    fn send(&self, bytes: &[u8]) -> Fate {
        if self.is_gone() {
            return Fate::Ours;
        }
        match SockRef::from(&self.socket).send(bytes) {
            Ok(_) => Fate::Passed,
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                self.is_gone.store(true, Ordering::Relaxed);
                Fate::Ours
            }
            Err(_) => Fate::Dropped,
        }
    }
}

/// One of several ports beside each other, with the process before.
pub(crate) struct Beside {
    pub past: Arc<Past>,
    pub port: usize,
    pub ports: usize,
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
    /// With the ways to all its ports, in their order.
    pub(crate) fn new(ways: Vec<OwnedFd>) -> Self {
        let way = |socket| Way { socket, is_gone: AtomicBool::new(false) };
        Self { ways: ways.into_iter().map(way).collect(), flows: Mutex::default(), count: AtomicUsize::new(0) }
    }

    /// Returns whether all its ports are over. Looks for each, and does not when that is known.
    pub(crate) fn is_gone(&self) -> bool {
        self.ways.iter().all(Way::has_gone)
    }

    fn flows(&self) -> MutexGuard<'_, HashMap<Envelope, u32>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ends of ways at which one of so many ports is to wait, with the numbers of the ports at their other ends.
    pub(crate) fn ends(&self, port: usize, ports: usize) -> impl Iterator<Item = (u32, io::Result<End>)> + '_ {
        let own = self.ways.iter().enumerate().filter(move |(number, _)| number % ports.max(1) == port);
        own.map(|(number, way)| (number as u32, way.socket.try_clone().and_then(End::new)))
    }

    /// Remembers that a flow is the other process's.
    pub(crate) fn know(&self, envelope: Envelope, port: u32) {
        let mut flows = self.flows();
        flows.insert(envelope, port);
        self.count.store(flows.len(), Ordering::Relaxed);
    }

    /// Returns the port there that has the flow. Costs a look at a number once there are no more of them.
    pub(crate) fn port_of(&self, envelope: &Envelope) -> Option<u32> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.flows().get(envelope).copied()
    }

    /// Returns the flows that one of so many ports hears of.
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

    /// Passes on a datagram of a flow, which one port has, and no other.
    pub(crate) fn pass(&self, port: usize, message: &Message<'_>, scratch: &mut Vec<u8>) -> Fate {
        if self.ways.is_empty() {
            return Fate::Ours;
        }
        message.write(scratch);
        self.ways[port % self.ways.len()].send(scratch)
    }

    /// Passes on a datagram of QUIC, by the port that it is for, or by any other that is there: they give each other what is theirs,
    /// and a port may be over while its neighbours go on.
    pub(crate) fn pass_by_any(&self, port: usize, message: &Message<'_>, scratch: &mut Vec<u8>) -> Fate {
        if self.ways.iter().all(Way::is_gone) {
            return Fate::Ours;
        }
        message.write(scratch);
        let (before, after) = self.ways.split_at(port % self.ways.len());
        for way in after.iter().chain(before) {
            let fate = way.send(scratch);
            if fate != Fate::Ours {
                return fate;
            }
        }
        Fate::Ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelopes() -> [Envelope; 2] {
        [("192.0.2.1:53", None), ("[fe80::1]:7", Some("::1"))]
            .map(|(from, to)| Envelope { from: from.parse().unwrap(), to: to.map(|to| to.parse().unwrap()) })
    }

    #[tokio::test]
    async fn datagrams_are_passed_on_and_who_is_gone_gets_none() {
        let (mut end, theirs) = way().unwrap();
        let past = Past::new(vec![theirs]);
        let envelope = envelopes()[1];
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
        assert_eq!((past.port_of(&envelope), past.port_of(&envelopes()[0])), (Some(3), Some(4)));
        past.forget_all(3);
        assert_eq!((past.port_of(&envelope), past.port_of(&envelopes()[0])), (None, Some(4)));
        past.forget(&envelopes()[0]);
        assert_eq!(past.count.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn what_is_for_a_port_that_is_over_goes_by_its_neighbour_and_flows_do_not() {
        let ((one, to_one), (mut other, to_other)) = (way().unwrap(), way().unwrap());
        let past = Past::new(vec![to_one, to_other]);
        let envelope = envelopes()[0];
        let message = Message { says: Says::Passed, envelope, ecn: 0, bytes: b"x" };
        let mut scratch = Vec::new();
        drop(one);
        // Of those for the first, for the second, and for a port that has no way of its own.
        for port in [0, 1, 0, 2] {
            assert_eq!(past.pass_by_any(port, &message, &mut scratch), Fate::Passed);
            let came = std::future::poll_fn(|cx| {
                other.poll(cx).map(|came| came.is_some_and(|came| came.envelope == envelope))
            });
            assert!(came.await);
        }
        assert_eq!(past.pass(0, &message, &mut scratch), Fate::Ours);
        assert_eq!(past.pass(1, &message, &mut scratch), Fate::Passed);
        drop(other);
        for _ in 0..2 {
            assert_eq!(past.pass_by_any(1, &message, &mut scratch), Fate::Ours);
        }
        assert_eq!(Past::new(Vec::new()).pass_by_any(0, &message, &mut scratch), Fate::Ours);
    }

    #[tokio::test]
    async fn a_port_that_is_over_takes_no_other_with_it() {
        let ((first, to_first), (second, to_second)) = (way().unwrap(), way().unwrap());
        let past = Past::new(vec![to_first, to_second]);
        let message = Message { says: Says::Passed, envelope: envelopes()[0], ecn: 0, bytes: b"x" };
        let mut scratch = Vec::new();
        let mut pass = |port| past.pass(port, &message, &mut scratch);
        assert_eq!((pass(0), pass(1)), (Fate::Passed, Fate::Passed));
        drop(first);
        assert_eq!((pass(0), pass(1)), (Fate::Ours, Fate::Passed));
        assert!(!past.is_gone());
        drop(second);
        // Found out by looking, though nothing was passed on since.
        assert!(past.is_gone());
        assert_eq!(pass(1), Fate::Ours);
        assert!(Past::new(Vec::new()).is_gone());
    }
}
