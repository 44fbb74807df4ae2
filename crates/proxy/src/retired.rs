//! Ports of QUIC that their listener has given up. They read on as long as they have connections, which end in good order. Should
//! HTTP/3 be back at the same address before that, the kernel would spread datagrams over old and new sockets alike. So the new
//! ports read the very same sockets, and give each of those before what its connections are sent, by the numbers in their ids.
//!
//! ```text
//! the listener goes      its port is told to end, and remembered here
//! the listener is back   publish: asks for the sockets of such ports
//!                        commit:  the new ports read; those before get what is theirs, until they are over
//! ```
//!
//! Between one address and all of them (`192.0.2.1:443`, `0.0.0.0:443`) the kernel prefers the socket of the one, whoever was there
//! first. So both read on: the new ports know those before as above, and these pass on who comes anew ([`make_way`]).

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use model::snapshot::Listener;
use model::{Address, Name};

use crate::accept::Accepting;
use crate::bound::{Bound, Opened};
use crate::datagram;
use crate::handover::{self, Place};
use crate::http3::{Generation, Socket};
use crate::listen::{self, Transport};
use crate::reconcile::Shared;
use crate::worker::run::{Command, Running};

/// Longest wait for a worker to tell. A worker is never busy with one thing for long.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest wait for flows that are told to end, and between two looks whether they have.
const FREED: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

/// A port that is to end.
pub(crate) struct Retired {
    /// As another process is told of it: of one name there may be a listener elsewhere by now.
    place: Place,
    bound: Bound,
    port: Weak<Socket>,
    /// Another process has been told of it, and may be about to read its socket.
    is_offered: Cell<bool>,
}

impl Retired {
    /// The port, unless it is over.
    fn port(&self) -> Option<Rc<Socket>> {
        self.port.upgrade().filter(|port| !port.is_over())
    }
}

/// What is left of such a port for those that follow.
pub(crate) struct Left {
    worker: usize,
    /// Its number among those of its listener.
    place: usize,
    socket: OwnedFd,
}

/// Remembers the socket of a listener that is to end, if its connections or flows outlive it.
pub(crate) fn remember(running: &Running, accepting: &Accepting) {
    if let Some(port) = accepting.quic() {
        remember_quic(running, (&accepting.name, &accepting.bound), &port);
    }
    if let Some(port) = accepting.datagrams() {
        remember_flows(running, &accepting.bound.address, &port);
    }
}

fn remember_quic(running: &Running, (name, bound): (&Name, &Bound), port: &Rc<Socket>) {
    let mut retired = running.retired.borrow_mut();
    retired.retain(|retired| retired.port().is_some());
    let place = (Name::from(format!("{name}, as it was at {}", bound.address)), Transport::Quic);
    let bound = Bound { bind: bound.address.clone(), ..bound.clone() };
    retired.push(Retired { place, bound, port: Rc::downgrade(port), is_offered: Cell::new(false) });
}

/// Remembers a port of UDP whose listener has gone. It is read no more, but its flows wait for the last of their answers, and hold its
/// address meanwhile.
fn remember_flows(running: &Running, address: &Address, port: &Rc<datagram::Socket>) {
    let mut left = running.left_flows.borrow_mut();
    left.retain(|(_, port)| port.strong_count() > 0);
    left.push((address.clone(), Rc::downgrade(port)));
}

/// Ends the flows of such ports at an address that is wanted. What is given is dropped when their sockets are closed.
pub(crate) fn free(running: &Running, wanted: impl Fn(&Address) -> bool, freed: Option<&Sender<()>>) {
    for (_, left) in running.left_flows.borrow().iter().filter(|(address, _)| wanted(address)) {
        let Some(port) = left.upgrade() else { continue };
        port.free();
        let (left, freed) = (left.clone(), freed.cloned());
        tokio::task::spawn_local(async move {
            // Whoever else holds it may do so for long.
            let until = Instant::now() + FREED;
            while left.strong_count() > 0 && Instant::now() < until {
                tokio::time::sleep(STEP).await;
            }
            drop(freed);
        });
    }
}

/// The same at all addresses where something else takes datagrams now: the kernel would give them to sockets that nobody reads.
pub(crate) fn free_where_others_are(running: &Running) {
    let listening = running.listening.borrow();
    let datagrams = || listening.iter().filter(|accepting| accepting.bound.transport.is_udp());
    free(running, |address| datagrams().any(|other| listen::overlap(&other.bound.address, address)), None);
}

/// Tells another process of those that read their sockets, at addresses where nobody else of this one does: it may have HTTP/3 there.
pub(crate) fn offer(running: &Running, mut tell: impl FnMut(Place, &Bound, &Socket)) {
    let listening = running.listening.borrow();
    for retired in running.retired.borrow().iter() {
        let is_there = |accepting: &Accepting| {
            accepting.bound.transport == Transport::Quic && accepting.bound.address == retired.bound.address
        };
        let port = retired.port().filter(|port| !port.is_paused() && !listening.iter().any(is_there));
        retired.is_offered.set(port.is_some());
        if let Some(port) = port {
            tell(retired.place.clone(), &retired.bound, &port);
        }
    }
}

/// Those that another process was told of: it is about to read their sockets, or not after all.
pub(crate) fn pause(running: &Running, is_paused: impl Fn(&Place) -> bool) {
    for retired in running.retired.borrow().iter().filter(|retired| retired.is_offered.get()) {
        if let Some(port) = retired.port() {
            port.pause(is_paused(&retired.place));
        }
    }
}

/// Those at an address that read their sockets themselves.
fn reading(running: &Running, address: &Address) -> Vec<Rc<Socket>> {
    let retired = running.retired.borrow();
    let there = retired.iter().filter(|retired| retired.bound.address == *address);
    there.filter_map(Retired::port).filter(|port| !port.is_paused()).collect()
}

/// Tells what is left of them. They go on as they are.
pub(crate) fn tell(running: &Running, address: &Address, told: &Sender<io::Result<Left>>) {
    for port in reading(running, address) {
        // Who asked may have given up.
        let _ = told.send(left(running.worker.index, &port));
    }
}

fn left(worker: usize, port: &Socket) -> io::Result<Left> {
    Ok(Left { worker, place: port.place(), socket: port.duplicate()? })
}

/// Another port of the same worker reads their sockets from now on.
pub(crate) fn give_way(running: &Running, address: &Address) {
    reading(running, address).iter().for_each(|port| port.give_way());
}

/// Tells those that read on who lets in who comes to their addresses now, if anybody does.
pub(crate) fn make_way(running: &Running) {
    let listening = running.listening.borrow();
    for retired in running.retired.borrow().iter() {
        let Some(port) = retired.port().filter(|port| !port.is_paused()) else { continue };
        let covers = |bound: &Bound| listen::overlap(&bound.address, &retired.bound.address);
        let next = listening.iter().filter(|accepting| covers(&accepting.bound)).find_map(Accepting::quic);
        port.make_way(next.as_ref().map_or_else(Weak::new, Rc::downgrade));
    }
}

impl Shared {
    /// Waits until no port of UDP without a listener holds an address any more. One that another process still uses may, and it is said
    /// what that means.
    pub(crate) fn make_room(&self, listener: &Listener, (transport, address): (Transport, &Address)) {
        if !transport.is_udp() {
            return;
        }
        handover::warn_of_other(&self.heritage(), listener, (transport, address));
        let (freed, all_freed) = channel();
        self.tell_all(|| Command::Free(address.clone(), freed.clone()));
        drop(freed);
        // Ends when the last socket is closed.
        let _ = all_freed.recv_timeout(FREED);
    }

    /// Makes ready the sockets of a listener that speaks HTTP/3 again at an address where ports of before still read. `None`: they
    /// have ended meanwhile.
    ///
    /// # Errors
    /// A descriptor or a socket cannot be had, or a worker does not tell.
    pub(crate) fn take_back(
        &self,
        listener: &Listener,
        address: &Address,
        before: &[Generation],
        by_worker: &mut [Vec<Opened>],
    ) -> io::Result<Option<Bound>> {
        let all = self.ask_left(address)?;
        let (Some(first), Some(at)) = (all.first(), address.ip()) else { return Ok(None) };
        let is_shared = listen::is_shared(&first.socket);
        let mut sockets: Vec<(usize, OwnedFd)> = all.into_iter().map(|left| (left.worker, left.socket)).collect();
        for worker in 0..by_worker.len() {
            // Its port had no connections, and is over.
            if is_shared && !sockets.iter().any(|(known, _)| *known == worker) {
                sockets.push((worker, listen::bind_beside(at, Transport::Quic, &listener.socket)?));
            }
        }
        let hubs = Generation::succeed(before, sockets.len());
        let quic = Generation::of(&hubs);
        for ((worker, socket), hub) in sockets.into_iter().zip(hubs) {
            let (name, transport, hub) = (listener.name.clone(), Transport::Quic, Some(hub));
            by_worker[worker].push(Opened { name, transport, socket, hub, beside: None, is_adopted: false });
        }
        let (bind, address) = (listener.bind.clone(), address.clone());
        Ok(Some(Bound { bind, address, transport: Transport::Quic, file: None, quic }))
    }

    /// In the order of workers and ports.
    fn ask_left(&self, address: &Address) -> io::Result<Vec<Left>> {
        let (told, all_told) = channel();
        self.tell_all(|| Command::Left(address.clone(), told.clone()));
        drop(told);
        let mut all = Vec::new();
        loop {
            match all_told.recv_timeout(ANSWER) {
                Ok(left) => all.push(left?),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(error @ RecvTimeoutError::Timeout) => return Err(io::Error::new(io::ErrorKind::TimedOut, error)),
            }
        }
        all.sort_by_key(|left: &Left| (left.worker, left.place));
        Ok(all)
    }
}
