//! Ports of QUIC that their listener has given up. They read on as long as they have connections, which end in good order. Should
//! HTTP/3 be back at the same address before that, the kernel would spread datagrams over old and new sockets alike. So the new
//! ports read the very same sockets, and pass on what is for connections of those before, as one process does for
//! another ([`crate::past`]).
//!
//! ```text
//! the listener goes      its port is told to end, and remembered here
//! the listener is back   publish: asks for the sockets of such ports, for ways to them and for their keys
//!                        commit:  the new ports read; those before get what is theirs by their ways, until they are over
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use model::Address;
use model::snapshot::Listener;

use crate::http3::{Keys, Port, mesh};
use crate::listen::{self, Transport};
use crate::past::{self, Past};
use crate::reconcile::{Bound, Command, Opened, Shared};
use crate::worker::Worker;

/// Longest wait for a worker to tell. A worker is never busy with one thing for long.
const ANSWER: Duration = Duration::from_secs(10);

/// A port that is to end.
pub(crate) struct Retired {
    address: Address,
    port: Weak<Port>,
}

impl Retired {
    /// The port, unless it is over.
    fn port(&self) -> Option<Rc<Port>> {
        self.port.upgrade().filter(|port| !port.is_over())
    }
}

/// What is left of such a port for those that follow.
pub(crate) struct Left {
    worker: usize,
    /// Its number among those of its listener, and how many these were.
    place: (usize, usize),
    /// What its ids are made with, and the number that they tell.
    keys: (Keys, u8),
    socket: OwnedFd,
    way: OwnedFd,
}

/// Remembers a port that is to end.
pub(crate) fn remember(worker: &Worker, address: &Address, port: &Rc<Port>) {
    let mut retired = worker.retired.borrow_mut();
    retired.retain(|retired| retired.port().is_some());
    retired.push(Retired { address: address.clone(), port: Rc::downgrade(port) });
}

/// Those at an address that read their sockets themselves.
fn reading(worker: &Worker, address: &Address) -> Vec<Rc<Port>> {
    let retired = worker.retired.borrow();
    let there = retired.iter().filter(|retired| retired.address == *address);
    there.filter_map(Retired::port).filter(|port| !port.is_paused()).collect()
}

/// Tells what is left of them. They go on as they are.
pub(crate) fn tell(worker: &Worker, address: &Address, told: &Sender<io::Result<Left>>) {
    for port in reading(worker, address) {
        // Who asked may have given up.
        let _ = told.send(left(worker.index, &port));
    }
}

fn left(worker: usize, port: &Port) -> io::Result<Left> {
    let (socket, way) = (port.duplicate()?, port.open_way()?);
    Ok(Left { worker, place: port.place(), keys: port.keys(), socket, way })
}

/// Another port of the same worker reads their sockets from now on.
pub(crate) fn give_way(worker: &Worker, address: &Address) {
    reading(worker, address).iter().for_each(|port| port.pause(true));
}

impl Shared {
    /// Makes ready the sockets of a listener that speaks HTTP/3 again at an address where ports of before still read. `None`: they
    /// have ended meanwhile.
    ///
    /// # Errors
    /// A descriptor or a socket cannot be had, or a worker does not tell.
    pub(crate) fn take_back(
        &self,
        listener: &Listener,
        address: &Address,
        by_worker: &mut [Vec<Opened>],
    ) -> io::Result<Option<Bound>> {
        let all = self.ask_left(address)?;
        let (Some(first), Some(at)) = (all.first(), address.ip()) else { return Ok(None) };
        let ((keys, process), (_, count)) = (first.keys.clone(), first.place);
        let is_shared = listen::is_shared(&first.socket);
        let mut ways: Vec<Option<OwnedFd>> = (0..count).map(|_| None).collect();
        let mut sockets: Vec<(usize, OwnedFd)> = Vec::with_capacity(by_worker.len());
        for Left { worker, place: (number, _), socket, way, .. } in all {
            sockets.push((worker, socket));
            if let Some(place) = ways.get_mut(number) {
                *place = Some(way);
            }
        }
        for worker in 0..by_worker.len() {
            // Its port had no connections, and is over.
            if is_shared && !sockets.iter().any(|(known, _)| *known == worker) {
                sockets.push((worker, listen::bind_beside(at, Transport::Quic, &listener.socket)?));
            }
        }
        let ways = ways.into_iter().map(|way| way.map_or_else(past::nowhere, Ok)).collect::<io::Result<Vec<_>>>()?;
        let past = Arc::new(Past::new(ways));
        let meshes = mesh(sockets.len(), (keys, process.wrapping_add(1)), Some(&past));
        let others = meshes.first().map(|mesh| Arc::downgrade(&mesh.others));
        for ((worker, socket), mesh) in sockets.into_iter().zip(meshes) {
            let (name, transport, mesh) = (listener.name.clone(), Transport::Quic, Some(mesh));
            by_worker[worker].push(Opened { name, transport, socket, mesh, beside: None, is_adopted: false });
        }
        let (bind, address) = (listener.bind.clone(), address.clone());
        Ok(Some(Bound { bind, address, transport: Transport::Quic, file: None, others }))
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
