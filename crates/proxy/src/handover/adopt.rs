//! The successor's side: inherited sockets go to the workers, which hold them until the predecessor lets go.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard, PoisonError};

use model::Address;
use model::snapshot::Listener;
use socket2::SockRef;

use super::inherited::{Inheritance, Inherited, QuicHandover, Spare};
use crate::bound::{Bound, Opened};
use crate::http3::{Generation, Keys, RESET_KEY_BYTES, hubs};
use crate::listen::{self, Transport};
use crate::predecessor::{Predecessor, PredecessorLink};
use crate::reconcile::Shared;
use crate::socket_file::SocketFile;
use crate::worker::command::Command;

impl Shared {
    pub(crate) fn inheritance(&self) -> MutexGuard<'_, Inheritance> {
        self.inheritance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes inherited sockets that are right for a listener. `beside`: only at this address.
    pub(crate) fn claim(
        &self,
        listener: &Listener,
        transport: Transport,
        beside: Option<&Address>,
    ) -> Option<Inherited> {
        let mut inheritance = self.inheritance();
        let is_right =
            |one: &Inherited| one.suits(listener, transport) && beside.is_none_or(|beside| one.address == *beside);
        let place = inheritance.sockets.iter().position(is_right)?;
        let mut inherited = inheritance.sockets.swap_remove(place);
        // Datagrams may be QUIC's.
        inherited.transport = transport;
        let name = inherited.name.clone().unwrap_or_else(|| listener.name.clone());
        inheritance.taken.push((name, transport));
        Some(inherited)
    }

    /// Gives inherited sockets to the workers, in turn. Workers that get none will have one beside them, or share
    /// those that cannot have others beside them.
    pub(crate) fn adopt(
        &self,
        listener: &Listener,
        inherited: Inherited,
        by_worker: &mut [Vec<Opened>],
    ) -> io::Result<Bound> {
        let Inherited { name: known, transport, address, mut sockets, made, ways, quic, is_activated, .. } = inherited;
        let (name, workers) = (&listener.name, by_worker.len());
        let predecessor = (!ways.is_empty()).then(|| Arc::new(Predecessor::new(ways)));
        if let Some(predecessor) = &predecessor {
            let place = (known.unwrap_or_else(|| name.clone()), transport);
            self.inheritance().predecessors.push((place, predecessor.clone()));
        }
        let is_shared = sockets.first().is_some_and(listen::is_shared) && address.ip().is_some();
        if transport == Transport::Stream && !is_shared {
            for worker in sockets.len()..workers {
                let another = sockets[worker % sockets.len()].try_clone()?;
                sockets.push(another);
            }
        }
        let count = if is_shared { workers.max(sockets.len()) } else { sockets.len() };
        let hubs =
            if transport == Transport::Quic { hubs(count, keys_of(quic), predecessor.as_ref()) } else { Vec::new() };
        let quic = Generation::of(&hubs);
        let link =
            |number| predecessor.clone().map(|predecessor| PredecessorLink { predecessor, number, sockets: count });
        let (mut hubs, first_spare) = (hubs.into_iter(), sockets.len());
        for (number, socket) in sockets.into_iter().enumerate() {
            nonblocking(&socket)?;
            if transport == Transport::Quic {
                listen::widen(&SockRef::from(&socket));
            }
            let (name, hub, predecessor) = (name.clone(), hubs.next(), link(number));
            let opened = Opened { name, transport, socket, hub, predecessor, is_adopted: true };
            by_worker[number % workers].push(opened);
        }
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in first_spare..count {
            let (name, address) = (name.clone(), address.clone());
            spares.push(Spare { name, address, transport, worker, hub: hubs.next(), predecessor: link(worker) });
        }
        let file = match &address {
            // What another has made, that one removes.
            Address::Unix(path) if !is_activated => SocketFile::adopt(path, made).map(Arc::new),
            Address::Unix(_) => None,
            Address::Ip(_) => None,
        };
        Ok(Bound { bind: listener.bind.clone(), address, transport, file, quic })
    }

    /// Takes what arrives at inherited sockets, and at spare ones beside them. Closes what has no use.
    pub(super) fn begin(&self) {
        let spares = std::mem::take(&mut *self.spares.lock().unwrap_or_else(PoisonError::into_inner));
        let mut by_worker: Vec<Vec<Opened>> = self.commands.iter().map(|_| Vec::new()).collect();
        for spare in spares {
            let worker = spare.worker;
            match self.bind_spare(spare) {
                Ok(opened) => by_worker[worker].extend(opened),
                // Others take what it would have taken.
                Err(error) => {
                    let pairs: telemetry::log::Pairs<'_> = &[("worker", &worker), ("error", &error)];
                    telemetry::log::warn("a worker has no socket beside the inherited ones", pairs);
                }
            }
        }
        for (worker, sockets) in self.commands.iter().zip(by_worker) {
            // A worker that is gone takes nothing.
            let _ = worker.send(Command::Begin(sockets));
        }
        for left in std::mem::take(&mut self.inheritance().sockets).iter().filter(|left| left.is_activated) {
            let name = left.name.as_deref().unwrap_or("-");
            let pairs: telemetry::log::Pairs<'_> = &[("address", &left.address), ("name", &name)];
            telemetry::log::warn("an inherited socket has no listener", pairs);
        }
    }

    fn bind_spare(&self, spare: Spare) -> io::Result<Option<Opened>> {
        let Spare { name, address, transport, hub, predecessor, .. } = spare;
        let plan = self.published().plan.clone();
        let listener = plan.as_ref().and_then(|plan| plan.listener(&name)).map(|plan| &plan.listener);
        let (Some(listener), Some(address)) = (listener, address.ip()) else { return Ok(None) };
        let socket = listen::bind_beside(address, transport, &listener.socket)?;
        if transport == Transport::Stream {
            listen::listen(&socket, &listener.socket)?;
        }
        Ok(Some(Opened { name, transport, socket, hub, predecessor, is_adopted: false }))
    }
}

/// Returns the predecessor's keys, and the number that follows its own.
fn keys_of(quic: Option<QuicHandover>) -> (Keys, u8) {
    let known =
        quic.and_then(|quic| Some((quic.ids, <[u8; RESET_KEY_BYTES]>::try_from(quic.resets).ok()?, quic.process)));
    match known {
        Some((ids, resets, process)) => (Keys::of(ids, resets), process.wrapping_add(1)),
        None => (Keys::new(), 0),
    }
}

/// Lets calls return at once. The other process may have waited in its own.
fn nonblocking(socket: &OwnedFd) -> io::Result<()> {
    SockRef::from(socket).set_nonblocking(true)
}
