//! The predecessor's side: offers its sockets to another process, and leaves them to it.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use model::Address;

use super::ANSWER;
use super::inherited::{Flow, Inherited, Place, QuicHandover};
use super::on_worker::{Offered, Paused};
use crate::bound::Bound;
use crate::listen::Transport;
use crate::predecessor::{read_envelope, write_envelope};
use crate::reconcile::{Shared, Workers};
use crate::tls::TicketHandover;
use crate::worker::command::Command;

impl Workers {
    /// Returns all sockets where something arrives, for another process. This one goes on with them.
    ///
    /// # Errors
    /// A descriptor cannot be had, or a worker does not answer.
    pub fn offer(&self) -> io::Result<Vec<Inherited>> {
        let (sender, receiver) = channel();
        self.shared.tell_all(|| Command::Offer(sender.clone()));
        drop(sender);
        let mut offers = Vec::new();
        let until = Instant::now() + ANSWER;
        loop {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(offered) => offers.push(offered),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(error) => return Err(io::Error::new(io::ErrorKind::TimedOut, error)),
            }
        }
        offers.sort_by_key(|offered: &Offered| offered.worker);
        let mut all: Vec<Inherited> = Vec::new();
        for Offered { place: (name, transport), bound, socket, way, keys, .. } in offers {
            let is_it = |known: &&mut Inherited| known.name.as_ref() == Some(&name) && known.transport == transport;
            match all.iter_mut().find(is_it) {
                Some(known) => {
                    known.sockets.push(socket?);
                    known.ways.extend(way?);
                }
                None => {
                    let made = self.shared.published().bound.get(&(name.clone(), transport)).and_then(made);
                    let (bind, address, sockets) = (bound.bind, bound.address, vec![socket?]);
                    let quic = keys.map(|(keys, process)| {
                        let (ids, resets) = keys.parts();
                        QuicHandover { ids, resets: resets.to_vec(), process }
                    });
                    let (name, ways) = (Some(name), way?.into_iter().collect());
                    let is_activated = false;
                    all.push(Inherited { name, transport, bind, address, sockets, made, ways, quic, is_activated });
                }
            }
        }
        Ok(all)
    }

    /// Returns the keys of session tickets, and the secret behind tokens of QUIC, for another process.
    pub fn secrets(&self) -> (Vec<TicketHandover>, Vec<u8>) {
        (self.shared.published().tls.tickets(), crate::tls::token_secret().to_vec())
    }

    /// Stops reading datagrams, since another process is about to read them, which passes on those for this one. Returns the
    /// flows that there are.
    pub fn pause(&self) -> Vec<Flow> {
        let mut paused = self.set_paused(true);
        paused.sort_by_key(|paused| paused.worker);
        let mut sockets: HashMap<Place, u32> = HashMap::new();
        let mut all = Vec::new();
        for Paused { place, flows, .. } in paused {
            let socket = sockets.entry(place.clone()).or_default();
            for envelope in flows {
                let mut bytes = Vec::new();
                write_envelope(&envelope, &mut bytes);
                all.push((place.clone(), *socket, bytes));
            }
            *socket += 1;
        }
        all
    }

    /// Reads datagrams again, since the other process does not take over.
    pub fn go_on(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, is_paused: bool) -> Vec<Paused> {
        let (answers, all_answers) = channel();
        self.shared.tell_all(|| Command::Pause(is_paused, answers.clone()));
        drop(answers);
        let mut all = Vec::new();
        while let Ok(paused) = all_answers.recv_timeout(ANSWER) {
            all.push(paused);
        }
        all
    }

    /// Leaves the sockets of these places to another process, which has them already: a drain does not empty them.
    pub fn give(&self, places: Vec<Place>) {
        for place in &places {
            if let Some(file) = self.shared.published().bound.get(place).and_then(|bound| bound.file.as_ref()) {
                file.give();
            }
        }
        let places: Arc<[Place]> = places.into();
        let (done, all_done) = channel();
        self.shared.tell_all(|| Command::Give(places.clone(), done.clone()));
        drop(done);
        // Ends when the last worker has dropped its sender.
        while all_done.recv_timeout(ANSWER).is_ok() {}
    }

    /// Makes inherited files of Unix sockets this process's own, now that it has replaced the other: they get the permissions that
    /// are configured, and go with their listeners.
    pub fn take_files(&self) {
        let published = self.shared.published();
        let Some(plan) = &published.plan else { return };
        for listener in &plan.snapshot.listeners {
            let place = published.bound.get(&(listener.name.clone(), Transport::Stream));
            let file = place.and_then(|place| place.file.as_deref());
            let Some(file) = file.filter(|file| !file.is_ours()) else { continue };
            file.take();
            match file.permit(&listener.socket.file) {
                Ok(permitted) => permitted.keep(),
                Err(error) => {
                    let pairs: telemetry::log::Pairs<'_> = &[("listener", &listener.name), ("error", &error)];
                    telemetry::log::error("the permissions of a Unix socket could not be changed", pairs);
                }
            }
        }
    }

    /// Takes the socket for connections at this address that was made ready for this process, for a use that is no listener.
    pub fn take_activated(&self, bind: &Address) -> Option<OwnedFd> {
        let mut inheritance = self.shared.inheritance();
        let fits = |one: &Inherited| one.is_activated && !one.transport.is_udp() && one.address == *bind;
        let at = inheritance.sockets.iter().position(fits)?;
        inheritance.sockets.remove(at).sockets.pop()
    }

    /// Returns the threshold between having an inheritance and using it.
    pub fn threshold(&self) -> Threshold {
        Threshold(self.shared.clone())
    }
}

/// Lies between the first plan, which decides what of the inheritance has a use, and the moment when that is used.
pub struct Threshold(Arc<Shared>);

impl Threshold {
    /// Returns what of the inheritance is in use, by the names that the predecessor knows.
    pub fn taken(&self) -> Vec<Place> {
        self.0.inheritance().taken.clone()
    }

    /// Notes which flows are the predecessor's.
    pub fn know(&self, flows: &[Flow]) {
        let inheritance = self.0.inheritance();
        for (place, socket, envelope) in flows {
            if let Some((_, predecessor)) = inheritance.predecessors.iter().find(|(known, _)| known == place)
                && let Some((envelope, _)) = read_envelope(envelope)
            {
                predecessor.know(envelope, *socket);
            }
        }
    }

    /// Takes what arrives at sockets that were held. What of the inheritance has no use is closed.
    pub fn begin(&self) {
        self.0.begin();
    }
}

fn made(bound: &Bound) -> Option<[u32; 3]> {
    bound.file.as_ref().map(|file| file.made())
}
