//! Which socket a datagram is for, and the ways to those that are not this one.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::Socket;
use crate::http3::ids::{Generation, Hub, Keys, Passed, is_after, owner};
use crate::predecessor::{self, End, Message, PassOutcome, Says};
use crate::sys::Envelope;

/// How often this looks whether the sockets before are over, once there is nothing else to do.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What a socket knows of those beside it.
pub(super) struct Routing {
    pub hub: RefCell<Hub>,
    /// Another process, or a socket that followed this one, reads the address, and passes on what is for connections of this one.
    pub is_paused: Cell<bool>,
    /// Where the successor passes datagrams on.
    pub handed: RefCell<Option<End>>,
    /// The socket of the same worker that admits new clients at its address, once its own listener is gone.
    next: RefCell<Weak<Socket>>,
    /// When to look whether the sockets before are over.
    look_at: Cell<Instant>,
    scratch: RefCell<Vec<u8>>,
}

impl Routing {
    pub(super) fn new(hub: Hub) -> Self {
        Self {
            hub: hub.into(),
            is_paused: Cell::new(false),
            handed: RefCell::default(),
            next: RefCell::default(),
            look_at: Cell::new(Instant::now()),
            scratch: RefCell::default(),
        }
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// To this socket: it is for one of its connections, begins one, or is for one that is over, whose client gets a reset.
    Here,
    /// To the socket of this number of the same listener.
    Socket(usize),
    /// To a socket that had the address before in this process: the place of its generation in the hub, and its number there.
    Before(usize, usize),
    /// To the socket that has followed this one at its address.
    Next,
    /// To the predecessor, by the way of the socket of this number.
    Predecessor(usize),
    /// It is dropped.
    Nobody,
}

/// Where a datagram from `remote` goes, by the connection id that it carries. `has_next`: a socket has followed this one at its address.
///
/// Only what is certain is sent elsewhere. What comes back, because that socket is over, is for this one: the reset of a connection that is
/// gone is signed with keys that all of them share (RFC 9000 section 10.3).
fn destination((remote, bytes): (SocketAddr, &[u8]), hub: &Hub, has_next: bool) -> Destination {
    if !is_answerable(remote) {
        return Destination::Nobody;
    }
    let Some(owner) = owner(bytes, &hub.keys) else {
        return if has_next { Destination::Next } else { Destination::Here };
    };
    let number = usize::from(owner.socket);
    if owner.process == hub.process {
        let is_there = number != hub.socket && number < hub.others.len();
        return if is_there { Destination::Socket(number) } else { Destination::Here };
    }
    if let Some((place, sockets)) = Generation::find(&hub.before, owner.process) {
        // A socket that is over has taken all its connections with it.
        return if number < sockets { Destination::Before(place, number) } else { Destination::Here };
    }
    if has_next {
        // It knows of all that are there.
        return Destination::Next;
    }
    if is_after(owner.process, hub.process) {
        // It is not known who follows. What the client sends again comes to the right one, where a reset would end the connection.
        return Destination::Nobody;
    }
    if hub.predecessor.is_some() { Destination::Predecessor(number) } else { Destination::Here }
}

impl Socket {
    /// Takes a datagram, or passes it on.
    pub(super) fn arrive(self: &Rc<Self>, datagram: Passed, now: Instant) {
        let next = self.next();
        let hub = self.routing.hub.borrow();
        let back = match destination((datagram.remote, &datagram.bytes), &hub, next.is_some()) {
            Destination::Here => Some(datagram),
            Destination::Socket(number) => match hub.others.get(number) {
                Some(way) => self.pass_by(way, datagram),
                None => Some(datagram),
            },
            Destination::Before(place, number) => match hub.before.get(place).and_then(|one| one.way(number)) {
                Some(way) => self.pass_by(&way, datagram),
                None => Some(datagram),
            },
            Destination::Next => match next {
                Some(next) => {
                    next.arrive(datagram, now);
                    next.wake();
                    None
                }
                None => Some(datagram),
            },
            Destination::Predecessor(number) => self.pass_back(&hub, number, datagram),
            Destination::Nobody => {
                self.note_dropped();
                None
            }
        };
        drop(hub);
        if let Some(datagram) = back {
            self.handle(datagram, now);
        }
    }

    fn next(&self) -> Option<Rc<Self>> {
        self.routing.next.borrow().upgrade().filter(|next| !next.is_over())
    }

    /// Passes a datagram on to the predecessor. Returns it if that is gone: this process resets its connections then.
    fn pass_back(&self, hub: &Hub, number: usize, datagram: Passed) -> Option<Passed> {
        let Some(predecessor) = &hub.predecessor else { return Some(datagram) };
        let Passed { remote, local_ip, ecn, bytes } = &datagram;
        let envelope = Envelope { from: *remote, to: *local_ip };
        let ecn = ecn.map_or(0, |ecn| ecn as u8);
        let message = Message { says: Says::Passed, envelope, ecn, bytes };
        match predecessor.pass_by_any(number, &message, &mut self.routing.scratch.borrow_mut()) {
            PassOutcome::Passed => None,
            PassOutcome::Dropped => {
                self.note_dropped();
                None
            }
            PassOutcome::NotTaken => Some(datagram),
        }
    }

    /// Passes a datagram on to another socket of this process. Returns it if that is over.
    fn pass_by(&self, way: &Sender<Passed>, datagram: Passed) -> Option<Passed> {
        match way.try_send(datagram) {
            Ok(()) => None,
            Err(TrySendError::Full(_)) => {
                self.note_dropped();
                None
            }
            Err(TrySendError::Closed(back)) => Some(back),
        }
    }

    /// Whether there are sockets before this one, of this process or another. They end without a word, so this looks for them
    /// once in a while.
    pub(super) fn is_way(&self) -> bool {
        let mut hub = self.routing.hub.borrow_mut();
        if hub.predecessor.is_none() && hub.before.is_empty() {
            return false;
        }
        let now = Instant::now();
        if now < self.routing.look_at.get() {
            return true;
        }
        if !hub.before.iter().any(Generation::is_there)
            && hub.predecessor.as_ref().is_none_or(|predecessor| predecessor.is_gone())
        {
            (hub.predecessor, hub.before) = (None, Arc::default());
            return false;
        }
        self.routing.look_at.set(now + LOOK_PAUSE);
        self.set_alarm(now + LOOK_PAUSE);
        true
    }

    /// Its listener is gone: from now on `next` lets in who comes to its address.
    pub(crate) fn make_way(&self, next: Weak<Self>) {
        *self.routing.next.borrow_mut() = next;
    }

    /// Another socket reads this address from now on, and has the ways to those before itself: this one is left with its own
    /// connections.
    pub(crate) fn give_way(&self) {
        let mut hub = self.routing.hub.borrow_mut();
        (hub.predecessor, hub.before) = (None, Arc::default());
        drop(hub);
        self.pause(true);
    }

    /// A way by which another process can pass on what is for connections of this one.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn open_way(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = predecessor::way()?;
        *self.routing.handed.borrow_mut() = Some(ours);
        Ok(theirs)
    }

    /// What its ids are made with, and the number of this process.
    pub(crate) fn keys(&self) -> (Keys, u8) {
        let hub = self.routing.hub.borrow();
        (hub.keys.clone(), hub.process)
    }

    /// Whether another process reads the socket.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.routing.is_paused.set(is_paused);
        if !is_paused {
            *self.routing.handed.borrow_mut() = None;
        }
        self.wake();
    }
}

/// Whether anything can be sent to whom a datagram says that it is from. The kernel refuses port 0 with an error that the
/// library takes for that of a feature which is missing.
fn is_answerable(remote: SocketAddr) -> bool {
    let is_someone = match remote.ip().to_canonical() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    };
    remote.port() != 0 && is_someone
}

#[cfg(test)]
mod tests {
    use quinn_proto::ConnectionIdGenerator;

    use super::*;
    use crate::http3::ids::{Ids, Owner, hubs};
    use crate::predecessor::Predecessor;

    fn remote() -> SocketAddr {
        ([192, 0, 2, 1], 9).into()
    }

    /// A datagram for a connection of the socket of this number, of this process.
    fn datagram_for(keys: &Keys, process: u8, socket: u16) -> Vec<u8> {
        let id = Ids { owner: Owner { process, socket }, keys: keys.clone() }.generate_cid();
        [&[0x41][..], &id, b"payload"].concat()
    }

    fn first(hubs: Vec<Hub>) -> Hub {
        hubs.into_iter().next().unwrap()
    }

    #[test]
    fn a_datagram_goes_to_the_socket_that_its_id_names() {
        let keys = Keys::new();
        let hubs = hubs(3, (keys.clone(), 7), None);
        for (own, hub) in hubs.iter().enumerate() {
            for socket in 0..3 {
                let there = destination((remote(), &datagram_for(&keys, 7, socket)), hub, false);
                let wanted =
                    if usize::from(socket) == own { Destination::Here } else { Destination::Socket(socket.into()) };
                assert_eq!(there, wanted, "{own} {socket}");
            }
            // Of a number that no socket has, and without an id of ours.
            for bytes in [datagram_for(&keys, 7, 3), datagram_for(&Keys::new(), 7, 1), b"hello".to_vec()] {
                assert_eq!(destination((remote(), &bytes), hub, false), Destination::Here);
            }
        }
    }

    #[test]
    fn what_cannot_be_answered_is_for_nobody() {
        let hub = first(hubs(1, (Keys::new(), 0), None));
        let bytes = datagram_for(&hub.keys, 0, 0);
        assert_eq!(destination((([192, 0, 2, 1], 0).into(), &bytes), &hub, true), Destination::Nobody);
    }

    #[test]
    fn connections_of_sockets_before_are_theirs_as_long_as_any_of_them_is_there() {
        let keys = Keys::new();
        let old = hubs(2, (keys.clone(), 7), None);
        let hub = first(Generation::succeed(&[Generation::of(&old).unwrap()], 2));
        let to = |socket| destination((remote(), &datagram_for(&keys, 7, socket)), &hub, true);
        assert_eq!((to(0), to(1)), (Destination::Before(0, 0), Destination::Before(0, 1)));
        assert_eq!(to(2), Destination::Here, "that socket is over");
        drop(old);
        assert_eq!(to(0), Destination::Next, "who follows may know");
        assert_eq!(destination((remote(), &datagram_for(&keys, 7, 0)), &hub, false), Destination::Here);
    }

    #[test]
    fn new_clients_are_for_the_socket_that_follows_and_known_ones_stay() {
        let keys = Keys::new();
        let hub = first(hubs(2, (keys.clone(), 7), None));
        assert_eq!(destination((remote(), b"hello"), &hub, true), Destination::Next);
        assert_eq!(destination((remote(), &datagram_for(&keys, 7, 0)), &hub, true), Destination::Here);
        assert_eq!(destination((remote(), &datagram_for(&keys, 7, 1)), &hub, true), Destination::Socket(1));
    }

    #[test]
    fn other_processes_get_theirs_or_nobody_does_but_none_is_reset_by_mistake() {
        let keys = Keys::new();
        let predecessor = Arc::new(Predecessor::new(Vec::new()));
        let to =
            |hub: &Hub, process, has_next| destination((remote(), &datagram_for(&keys, process, 5)), hub, has_next);
        let hub = first(hubs(1, (keys.clone(), 7), Some(&predecessor)));
        assert_eq!(to(&hub, 6, false), Destination::Predecessor(5));
        assert_eq!(to(&hub, 8, false), Destination::Nobody, "a process that follows, which is not known");
        assert_eq!((to(&hub, 6, true), to(&hub, 8, true)), (Destination::Next, Destination::Next));
        let alone = first(hubs(1, (keys.clone(), 7), None));
        assert_eq!(to(&alone, 6, false), Destination::Here, "it is gone, and its clients are told");
    }

    #[test]
    fn nobody_is_answered_who_cannot_be_sent_to() {
        for good in ["192.0.2.1:1", "[2001:db8::1]:65535", "[::ffff:192.0.2.1]:9", "127.0.0.1:443"] {
            assert!(is_answerable(good.parse().unwrap()), "{good}");
        }
        for bad in [
            "192.0.2.1:0",
            "[2001:db8::1]:0",
            "0.0.0.0:1",
            "[::]:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "[ff02::1]:1",
            "[::ffff:0.0.0.0]:1",
        ] {
            assert!(!is_answerable(bad.parse().unwrap()), "{bad}");
        }
    }
}
