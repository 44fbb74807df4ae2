//! Binding where retired sockets still are ([`super::retired`]).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, channel};

use model::Address;
use model::snapshot::Listener;

use super::ANSWER;
use super::inherited::warn_of_other;
use super::retired::{Duplicate, FREED};
use crate::bound::{Bound, Opened};
use crate::http3::Generation;
use crate::listen::{self, Transport};
use crate::reconcile::Shared;
use crate::worker::command::Command;

impl Shared {
    /// Waits until no retired socket of flows holds an address any more. Warns if one that another process still uses may.
    pub(crate) fn make_room(&self, listener: &Listener, (transport, address): (Transport, &Address)) {
        if !transport.is_udp() {
            return;
        }
        warn_of_other(&self.inheritance(), listener, (transport, address));
        let (freed, all_freed) = channel();
        self.tell_all(|| Command::FreeRetired(address.clone(), freed.clone()));
        drop(freed);
        // Ends when the last socket is closed.
        let _ = all_freed.recv_timeout(FREED);
    }

    /// Makes ready the sockets of a listener that speaks HTTP/3 again at an address where retired sockets still read. Returns `None`
    /// if they have ended meanwhile.
    ///
    /// # Errors
    /// A descriptor or a socket cannot be had, or a worker does not answer.
    pub(crate) fn take_back(
        &self,
        listener: &Listener,
        address: &Address,
        before: &[Generation],
        by_worker: &mut [Vec<Opened>],
    ) -> io::Result<Option<Bound>> {
        let all = self.duplicate_retired(address)?;
        let (Some(first), Some(at)) = (all.first(), address.ip()) else { return Ok(None) };
        let is_shared = listen::is_shared(&first.socket);
        let mut sockets: Vec<(usize, OwnedFd)> = all.into_iter().map(|one| (one.worker, one.socket)).collect();
        for worker in 0..by_worker.len() {
            // Its socket had no connections, and is over.
            if is_shared && !sockets.iter().any(|(known, _)| *known == worker) {
                sockets.push((worker, listen::bind_beside(at, Transport::Quic, &listener.socket)?));
            }
        }
        let hubs = Generation::succeed(before, sockets.len());
        let quic = Generation::of(&hubs);
        for ((worker, socket), hub) in sockets.into_iter().zip(hubs) {
            let (name, transport, hub) = (listener.name.clone(), Transport::Quic, Some(hub));
            by_worker[worker].push(Opened { name, transport, socket, hub, predecessor: None, is_adopted: false });
        }
        let (bind, address) = (listener.bind.clone(), address.clone());
        Ok(Some(Bound { bind, address, transport: Transport::Quic, file: None, quic }))
    }

    /// Returns duplicates of the retired sockets at an address, in the order of workers and sockets.
    fn duplicate_retired(&self, address: &Address) -> io::Result<Vec<Duplicate>> {
        let (duplicates, all_duplicates) = channel();
        self.tell_all(|| Command::DuplicateRetired(address.clone(), duplicates.clone()));
        drop(duplicates);
        let mut all = Vec::new();
        loop {
            match all_duplicates.recv_timeout(ANSWER) {
                Ok(duplicate) => all.push(duplicate?),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(error @ RecvTimeoutError::Timeout) => return Err(io::Error::new(io::ErrorKind::TimedOut, error)),
            }
        }
        all.sort_by_key(|one: &Duplicate| (one.worker, one.number));
        Ok(all)
    }
}
