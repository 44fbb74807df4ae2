//! The predecessor as datagrams see it: those of its QUIC connections and of its flows come by sockets that are read by the latest
//! process alone, which passes them on.
//!
//! ```text
//!            ┌ the latest process ┐   Passed    ┌ the predecessor ┐
//!  client ──►│ whose is it?       │ ──────────► │ its socket      │──► its connection, or its flow
//!            │   ours: as always  │ ◄────────── │                 │
//!            └────────────────────┘  Over, Back └─────────────────┘
//! ```
//! The predecessor answers by the very same sockets. It reports when a flow is over, and gives back what came for one that had ended
//! meanwhile. Between two sockets is a way: a Unix socket that keeps the bounds of messages and never waits. What finds it full is
//! dropped, as any network may do.

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

/// Returns both ends of a way between a socket and the one that follows it.
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

/// An end of a way, at which a worker waits.
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

    /// Duplicates the end, for sending.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Reads the next message. Returns `None` if the other side is gone, or sent something that is no message.
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

/// The predecessor, for all sockets of one listener.
#[derive(Debug)]
pub(crate) struct Predecessor {
    /// One for each socket that it has.
    ways: Box<[Way]>,
    /// Its flows, and which of its sockets has them.
    flows: Mutex<HashMap<Envelope, u32>>,
    count: AtomicUsize,
}

/// The way to one of its sockets.
#[derive(Debug)]
struct Way {
    socket: OwnedFd,
    /// Nothing is at the other end any more. That says nothing of other sockets: each ends with the last of its connections.
    is_gone: AtomicBool,
}

impl Way {
    /// Returns whether it is known that nothing is at its other end any more.
    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Looks whether anything is at its other end: where nothing is passed on, no error says that it is over.
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

    fn send(&self, bytes: &[u8]) -> PassOutcome {
        if self.is_gone() {
            return PassOutcome::NotTaken;
        }
        match SockRef::from(&self.socket).send(bytes) {
            Ok(_) => PassOutcome::Passed,
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                self.is_gone.store(true, Ordering::Relaxed);
                PassOutcome::NotTaken
            }
            Err(_) => PassOutcome::Dropped,
        }
    }
}

/// The predecessor as one of several sockets of a listener sees it.
pub(crate) struct PredecessorLink {
    pub predecessor: Arc<Predecessor>,
    /// The number of the socket among those of its listener in this process.
    pub number: usize,
    /// How many of these there are.
    pub sockets: usize,
}

/// The outcome of passing a datagram on to the predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassOutcome {
    /// It is on its way.
    Passed,
    /// There was no room.
    Dropped,
    /// No process takes it: it is for this one.
    NotTaken,
}

impl Predecessor {
    /// `ways` are those to all its sockets, in their order.
    pub(crate) fn new(ways: Vec<OwnedFd>) -> Self {
        let way = |socket| Way { socket, is_gone: AtomicBool::new(false) };
        Self { ways: ways.into_iter().map(way).collect(), flows: Mutex::default(), count: AtomicUsize::new(0) }
    }

    /// Returns whether all its sockets are over. Looks at each of which that is not known.
    pub(crate) fn is_gone(&self) -> bool {
        self.ways.iter().all(Way::has_gone)
    }

    fn flows(&self) -> MutexGuard<'_, HashMap<Envelope, u32>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ends of ways at which one of so many sockets is to wait, with the numbers of the sockets at their other ends.
    pub(crate) fn ends(&self, socket: usize, sockets: usize) -> impl Iterator<Item = (u32, io::Result<End>)> + '_ {
        let own = self.ways.iter().enumerate().filter(move |(number, _)| number % sockets.max(1) == socket);
        own.map(|(number, way)| (number as u32, way.socket.try_clone().and_then(End::new)))
    }

    /// Notes that a socket of the predecessor has a flow.
    pub(crate) fn know(&self, envelope: Envelope, socket: u32) {
        let mut flows = self.flows();
        flows.insert(envelope, socket);
        self.count.store(flows.len(), Ordering::Relaxed);
    }

    /// Returns the number of the predecessor's socket that has a flow. Costs a look at a number once it has none.
    pub(crate) fn socket_of(&self, envelope: &Envelope) -> Option<u32> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.flows().get(envelope).copied()
    }

    /// Returns the flows of which one of so many sockets hears.
    pub(crate) fn flows_of(&self, socket: usize, sockets: usize) -> Vec<Envelope> {
        let is_own = |other: &u32| *other as usize % sockets.max(1) == socket;
        self.flows().iter().filter(|(_, other)| is_own(other)).map(|(envelope, _)| *envelope).collect()
    }

    /// Forgets a flow that is over.
    pub(crate) fn forget(&self, envelope: &Envelope) {
        let mut flows = self.flows();
        flows.remove(envelope);
        self.count.store(flows.len(), Ordering::Relaxed);
    }

    /// Forgets all flows of a socket whose way is gone.
    pub(crate) fn forget_all(&self, socket: u32) {
        let mut flows = self.flows();
        flows.retain(|_, other| *other != socket);
        self.count.store(flows.len(), Ordering::Relaxed);
    }

    /// Passes on a datagram of a flow, which one socket has, and no other.
    pub(crate) fn pass(&self, socket: usize, message: &Message<'_>, scratch: &mut Vec<u8>) -> PassOutcome {
        if self.ways.is_empty() {
            return PassOutcome::NotTaken;
        }
        message.write(scratch);
        self.ways[socket % self.ways.len()].send(scratch)
    }

    /// Passes on a datagram of QUIC, by the socket that it is for, or by any other that is there: they give each other what is theirs,
    /// and a socket may be over while its neighbours go on.
    pub(crate) fn pass_by_any(&self, socket: usize, message: &Message<'_>, scratch: &mut Vec<u8>) -> PassOutcome {
        if self.ways.iter().all(Way::is_gone) {
            return PassOutcome::NotTaken;
        }
        message.write(scratch);
        let (before, after) = self.ways.split_at(socket % self.ways.len());
        for way in after.iter().chain(before) {
            let fate = way.send(scratch);
            if fate != PassOutcome::NotTaken {
                return fate;
            }
        }
        PassOutcome::NotTaken
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
        let predecessor = Predecessor::new(vec![theirs]);
        let envelope = envelopes()[1];
        let message = Message { says: Says::Passed, envelope, ecn: 1, bytes: &[7; 1_400] };
        let mut scratch = Vec::new();
        assert_eq!(predecessor.pass(5, &message, &mut scratch), PassOutcome::Passed);
        let came = std::future::poll_fn(|cx| match end.poll(cx) {
            Poll::Ready(Some(came)) => Poll::Ready(came.envelope == envelope && came.bytes == [7; 1_400]),
            Poll::Ready(None) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        });
        assert!(came.await);
        let mut fates = (0..100_000).map(|_| predecessor.pass(0, &message, &mut scratch));
        assert!(fates.any(|fate| fate == PassOutcome::Dropped), "it has a bound");
        drop(end);
        assert_eq!(predecessor.pass(0, &message, &mut scratch), PassOutcome::NotTaken);
        assert_eq!(Predecessor::new(Vec::new()).pass(0, &message, &mut scratch), PassOutcome::NotTaken);
        predecessor.know(envelope, 3);
        predecessor.know(envelopes()[0], 4);
        assert_eq!((predecessor.socket_of(&envelope), predecessor.socket_of(&envelopes()[0])), (Some(3), Some(4)));
        predecessor.forget_all(3);
        assert_eq!((predecessor.socket_of(&envelope), predecessor.socket_of(&envelopes()[0])), (None, Some(4)));
        predecessor.forget(&envelopes()[0]);
        assert_eq!(predecessor.count.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn what_is_for_a_socket_that_is_over_goes_by_its_neighbour_and_flows_do_not() {
        let ((one, to_one), (mut other, to_other)) = (way().unwrap(), way().unwrap());
        let predecessor = Predecessor::new(vec![to_one, to_other]);
        let envelope = envelopes()[0];
        let message = Message { says: Says::Passed, envelope, ecn: 0, bytes: b"x" };
        let mut scratch = Vec::new();
        drop(one);
        // Of those for the first, for the second, and for a socket that has no way of its own.
        for socket in [0, 1, 0, 2] {
            assert_eq!(predecessor.pass_by_any(socket, &message, &mut scratch), PassOutcome::Passed);
            let came = std::future::poll_fn(|cx| {
                other.poll(cx).map(|came| came.is_some_and(|came| came.envelope == envelope))
            });
            assert!(came.await);
        }
        assert_eq!(predecessor.pass(0, &message, &mut scratch), PassOutcome::NotTaken);
        assert_eq!(predecessor.pass(1, &message, &mut scratch), PassOutcome::Passed);
        drop(other);
        for _ in 0..2 {
            assert_eq!(predecessor.pass_by_any(1, &message, &mut scratch), PassOutcome::NotTaken);
        }
        assert_eq!(Predecessor::new(Vec::new()).pass_by_any(0, &message, &mut scratch), PassOutcome::NotTaken);
    }

    #[tokio::test]
    async fn a_socket_that_is_over_takes_no_other_with_it() {
        let ((first, to_first), (second, to_second)) = (way().unwrap(), way().unwrap());
        let predecessor = Predecessor::new(vec![to_first, to_second]);
        let message = Message { says: Says::Passed, envelope: envelopes()[0], ecn: 0, bytes: b"x" };
        let mut scratch = Vec::new();
        let mut pass = |socket| predecessor.pass(socket, &message, &mut scratch);
        assert_eq!((pass(0), pass(1)), (PassOutcome::Passed, PassOutcome::Passed));
        drop(first);
        assert_eq!((pass(0), pass(1)), (PassOutcome::NotTaken, PassOutcome::Passed));
        assert!(!predecessor.is_gone());
        drop(second);
        // Found out by looking, though nothing was passed on since.
        assert!(predecessor.is_gone());
        assert_eq!(pass(1), PassOutcome::NotTaken);
        assert!(Predecessor::new(Vec::new()).is_gone());
    }
}
