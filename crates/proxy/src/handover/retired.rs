//! Sockets of datagrams that outlive their listener. Those of QUIC read on as long as they have connections, which end in good order.
//! Should HTTP/3 be back at the same address before that, the kernel would spread datagrams over old and new sockets alike. So the new
//! sockets read the very same ones, and give each of those before what its connections are sent, by the numbers in their ids.
//!
//! ```text
//! the listener goes      its socket ends, and is remembered here
//! the listener is back   publish: asks for duplicates of such sockets
//!                        commit:  the new ones read; those before get what is theirs, until they are over
//! ```
//!
//! Between one address and all of them (`192.0.2.1:443`, `0.0.0.0:443`) the kernel prefers the socket of the one, whichever was there
//! first. So both read on: the new sockets know those before as above, and these pass new clients on ([`Retired::make_way`]).

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use model::{Address, Name};

use super::inherited::Place;
use crate::accept::Accepting;
use crate::bound::Bound;
use crate::datagram;
use crate::http3;
use crate::listen::{self, Transport};

/// Longest wait for flows to end.
pub(super) const FREED: Duration = Duration::from_secs(1);
/// Time between two looks whether they have.
const STEP: Duration = Duration::from_millis(1);

/// The sockets of a worker whose listeners are gone.
#[derive(Default)]
pub(crate) struct Retired {
    quic: RefCell<Vec<RetiredQuic>>,
    /// Sockets of flows, as long as they have any, and their addresses.
    flows: RefCell<Vec<(Address, Weak<datagram::Socket>)>>,
}

/// A socket of QUIC that is to end.
struct RetiredQuic {
    /// As it is offered to another process: there may be a listener of the same name elsewhere by now.
    place: Place,
    bound: Bound,
    socket: Weak<http3::Socket>,
    /// It has been offered to another process, which may be about to read it.
    is_offered: Cell<bool>,
}

impl RetiredQuic {
    /// Returns the socket, unless it is over.
    fn socket(&self) -> Option<Rc<http3::Socket>> {
        self.socket.upgrade().filter(|socket| !socket.is_over())
    }
}

/// A duplicate of a retired socket, for those that follow it at its address.
pub(crate) struct Duplicate {
    pub worker: usize,
    /// Its number among those of its listener.
    pub number: usize,
    pub socket: OwnedFd,
}

impl Retired {
    /// Remembers the socket of a listener that is to end, if its connections or flows outlive it.
    pub(crate) fn remember(&self, accepting: &Accepting) {
        if let Some(socket) = accepting.quic() {
            self.remember_quic((&accepting.name, &accepting.bound), &socket);
        }
        if let Some(socket) = accepting.datagrams() {
            self.remember_flows(&accepting.bound.address, &socket);
        }
    }

    fn remember_quic(&self, (name, bound): (&Name, &Bound), socket: &Rc<http3::Socket>) {
        let mut all = self.quic.borrow_mut();
        all.retain(|retired| retired.socket().is_some());
        let place = (Name::from(format!("{name}, as it was at {}", bound.address)), Transport::Quic);
        let bound = Bound { bind: bound.address.clone(), ..bound.clone() };
        all.push(RetiredQuic { place, bound, socket: Rc::downgrade(socket), is_offered: Cell::new(false) });
    }

    /// Remembers a socket of UDP whose listener has gone. It is read no more, but its flows wait for the last of their answers, and
    /// hold its address meanwhile.
    fn remember_flows(&self, address: &Address, socket: &Rc<datagram::Socket>) {
        let mut flows = self.flows.borrow_mut();
        flows.retain(|(_, socket)| socket.strong_count() > 0);
        flows.push((address.clone(), Rc::downgrade(socket)));
    }

    /// Ends the flows of retired sockets at a wanted address. `freed` is dropped when their sockets are closed.
    pub(crate) fn free(&self, wanted: impl Fn(&Address) -> bool, freed: Option<&Sender<()>>) {
        for (_, left) in self.flows.borrow().iter().filter(|(address, _)| wanted(address)) {
            let Some(socket) = left.upgrade() else { continue };
            socket.free();
            let (left, freed) = (left.clone(), freed.cloned());
            tokio::task::spawn_local(async move {
                // Another task may hold it for long.
                let until = Instant::now() + FREED;
                while left.strong_count() > 0 && Instant::now() < until {
                    tokio::time::sleep(STEP).await;
                }
                drop(freed);
            });
        }
    }

    /// Ends flows at all addresses where a listener takes datagrams now: the kernel would give them to sockets that nothing reads.
    pub(crate) fn free_where_others_are(&self, listening: &[Accepting]) {
        let datagrams = || listening.iter().filter(|accepting| accepting.bound.transport.is_udp());
        self.free(|address| datagrams().any(|other| listen::overlap(&other.bound.address, address)), None);
    }

    /// Offers to another process those that read their sockets, at addresses where no listener of this one does: it may have HTTP/3
    /// there.
    pub(super) fn offer(&self, listening: &[Accepting], mut offer: impl FnMut(Place, &Bound, &http3::Socket)) {
        for retired in self.quic.borrow().iter() {
            let is_there = |accepting: &Accepting| {
                accepting.bound.transport == Transport::Quic && accepting.bound.address == retired.bound.address
            };
            let socket = retired.socket().filter(|socket| !socket.is_paused() && !listening.iter().any(is_there));
            retired.is_offered.set(socket.is_some());
            if let Some(socket) = socket {
                offer(retired.place.clone(), &retired.bound, &socket);
            }
        }
    }

    /// Pauses those that were offered to another process, which is about to read their sockets, or lets them read again.
    pub(super) fn pause(&self, is_paused: impl Fn(&Place) -> bool) {
        for retired in self.quic.borrow().iter().filter(|retired| retired.is_offered.get()) {
            if let Some(socket) = retired.socket() {
                socket.pause(is_paused(&retired.place));
            }
        }
    }

    /// Returns those at an address that read their sockets themselves.
    fn reading(&self, address: &Address) -> Vec<Rc<http3::Socket>> {
        let all = self.quic.borrow();
        let there = all.iter().filter(|retired| retired.bound.address == *address);
        there.filter_map(RetiredQuic::socket).filter(|socket| !socket.is_paused()).collect()
    }

    /// Sends duplicates of those at an address. They go on as they are.
    pub(crate) fn duplicate(&self, worker: usize, address: &Address, duplicates: &Sender<io::Result<Duplicate>>) {
        for socket in self.reading(address) {
            let number = socket.place();
            let duplicate = socket.duplicate().map(|socket| Duplicate { worker, number, socket });
            // Whatever asked may have given up.
            let _ = duplicates.send(duplicate);
        }
    }

    /// Leaves the sockets at an address to another of the same worker, which reads them from now on.
    pub(crate) fn give_way(&self, address: &Address) {
        self.reading(address).iter().for_each(|socket| socket.give_way());
    }

    /// Tells those that read on which socket admits new clients at their addresses now, if any does.
    pub(crate) fn make_way(&self, listening: &[Accepting]) {
        for retired in self.quic.borrow().iter() {
            let Some(socket) = retired.socket().filter(|socket| !socket.is_paused()) else { continue };
            let covers = |bound: &Bound| listen::overlap(&bound.address, &retired.bound.address);
            let next = listening.iter().filter(|accepting| covers(&accepting.bound)).find_map(Accepting::quic);
            socket.make_way(next.as_ref().map_or_else(Weak::new, Rc::downgrade));
        }
    }
}
