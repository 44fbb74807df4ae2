//! Sockets that go from one process to the next, so that no attempt to connect is lost between them.
//!
//! ```text
//! the old process                         the new one
//!   offer: the very same sockets    ──►   Options::heritage; publish adopts what its plan has a listener for,
//!                                         and holds it: nothing is taken yet
//!   give: accept there no more      ──►   begin: take what arrives
//!   drain
//! ```
//! What waits in a socket is taken by whoever takes next: while one process has it open, the kernel has no reason to reset
//! anything. `docs/adr/0016-binary-upgrade.md` tells the whole story.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::snapshot::Listener;
use model::{Address, Name};
use socket2::{SockRef, Type};
use tokio::sync::mpsc::UnboundedSender;

use crate::bound::{Bound, Opened, is_same_place};
use crate::http3::{Generation, Hub, Keys, RESET_KEY_BYTES, hubs};
use crate::listen::{self, Transport};
use crate::past::{self, Beside, Past};
use crate::reconcile::{Shared, Workers};
use crate::retired;
use crate::socket_file::SocketFile;
use crate::sys::Envelope;
pub use crate::tls::{TicketEstate, TicketKey};
use crate::worker::run::{Command, Running};
pub use wire::handover::{FrameHead, HEAD_BYTES, Kind};

/// Longest wait for what workers offer. A worker is never busy with one thing for long.
const ANSWER: Duration = Duration::from_secs(10);

/// The sockets of one listener for one transport, as they come from another process: the one before, or the one that
/// started this one (socket activation).
#[derive(Debug)]
pub struct Inherited {
    /// Of the listener, as the other process knows it. `None`: it goes by its address alone.
    pub name: Option<Name>,
    /// What arrives there.
    pub transport: Transport,
    /// Where the other process was asked to listen.
    pub bind: Address,
    /// Where they really are.
    pub address: Address,
    /// In the order of the workers that had them; at least one.
    pub sockets: Vec<OwnedFd>,
    /// Permissions, owner and group with which the file of a Unix socket was made.
    pub made: Option<[u32; 3]>,
    /// For datagrams: the ways to the ports of the other process that have the sockets, one for each of them.
    pub ways: Vec<OwnedFd>,
    /// What ids of QUIC are made with.
    pub quic: Option<QuicEstate>,
    /// Made ready by who started this process: whatever name it has, an address is enough.
    pub is_activated: bool,
}

/// What ids of QUIC are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicEstate {
    /// Masks what an id names.
    pub ids: [u64; 2],
    /// Signs stateless resets; 64 bytes.
    pub resets: Vec<u8>,
    /// Number of the process.
    pub process: u8,
}

/// A flow of the other process: at which place, at which of the ports there, and its envelope, which only these processes read.
pub type Flow = (Place, u32, Vec<u8>);

/// What names the sockets of a listener for one transport.
pub type Place = (Name, Transport);

/// What a process starts with.
#[derive(Debug, Default)]
pub struct Heritage {
    /// Sockets that a plan may have listeners for.
    pub sockets: Vec<Inherited>,
    /// Take nothing at sockets before [`Workers::begin`].
    pub is_held: bool,
    /// The keys of session tickets.
    pub tickets: Vec<TicketEstate>,
    /// The secret behind tokens of QUIC (RFC 9000 section 8.1); empty, or 64 bytes.
    pub tokens: Vec<u8>,
    /// By what names the other process knows the sockets that are taken over.
    taken: Vec<Place>,
    /// Where flows of the other process are known, by the same names.
    pasts: Vec<(Place, Arc<Past>)>,
}

impl Heritage {
    /// That of a process which another made ready for this.
    pub fn new(sockets: Vec<Inherited>, is_held: bool) -> Self {
        Self { sockets, is_held, ..Self::default() }
    }

    /// Whether something is left of it at an address.
    pub(crate) fn is_at(&self, transport: Transport, address: &Address) -> bool {
        let is_there = |other: &Inherited| {
            other.transport.is_udp() == transport.is_udp() && listen::overlap(&other.address, address)
        };
        self.sockets.iter().any(is_there)
    }
}

/// Says that a new place for datagrams covers one of the process before, or is covered by it: both read there, and neither knows
/// what is the other's.
pub(crate) fn warn_of_other(heritage: &Heritage, listener: &Listener, (transport, at): (Transport, &Address)) {
    let overlaps = |other: &&Inherited| {
        !other.is_activated && other.transport.is_udp() && listen::overlap(&other.address, at) && other.address != *at
    };
    let Some(other) = heritage.sockets.iter().filter(|_| transport.is_udp()).find(overlaps) else { return };
    let help = "change the address with a reload, before or after the upgrade: no datagram is lost then";
    let pairs: telemetry::log::Pairs<'_> =
        &[("listener", &listener.name), ("address", at), ("before", &other.address), ("help", &help)];
    telemetry::log::warn(
        "datagrams to an address that changed with the upgrade may be lost until the previous process ends",
        pairs,
    );
}

impl Inherited {
    /// As far as it decides whether a listener is served by it.
    fn place(&self) -> Bound {
        let (bind, address) = (self.bind.clone(), self.address.clone());
        Bound { bind, address, transport: self.transport, file: None, quic: None }
    }

    /// A socket that was made ready for this process, under a name if it was given one.
    ///
    /// # Errors
    /// It is no socket at an address that a listener can have.
    pub fn activated(socket: OwnedFd, name: Option<&str>) -> io::Result<Self> {
        let wrong = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
        let reference = SockRef::from(&socket);
        let found = reference.local_addr()?;
        let address = match (found.as_socket(), found.as_pathname(), found.as_abstract_namespace()) {
            (Some(address), _, _) => Address::Ip(address),
            (_, Some(path), _) => Address::Unix(path.to_string_lossy().into()),
            (_, _, Some(name)) => Address::Unix(format!("@{}", String::from_utf8_lossy(name)).into()),
            _ => return Err(wrong("it is bound to no address of TCP, UDP or a Unix socket")),
        };
        let transport = match reference.r#type()? {
            Type::STREAM => Transport::Stream,
            Type::DGRAM if address.ip().is_some() => Transport::Datagram,
            _ => return Err(wrong("it is neither for connections nor for datagrams")),
        };
        Ok(Self {
            name: name.map(Name::from),
            transport,
            bind: address.clone(),
            address,
            sockets: vec![socket],
            made: None,
            ways: Vec::new(),
            quic: None,
            is_activated: true,
        })
    }

    fn suits(&self, listener: &Listener, transport: Transport) -> bool {
        if self.is_activated {
            let is_named = self.name.as_ref().is_some_and(|name| *name == listener.name);
            return transport.is_udp() == self.transport.is_udp() && (is_named || self.address == listener.bind);
        }
        match &self.name {
            Some(name) => is_same_place(name, &self.place(), listener, transport),
            None => self.transport == transport && self.address == listener.bind,
        }
    }
}

/// A socket that a worker is to have beside those that came from another process, once that has stopped.
pub(crate) struct Spare {
    name: Name,
    address: Address,
    transport: Transport,
    worker: usize,
    hub: Option<Hub>,
    beside: Option<Beside>,
}

/// The flows at one place of a worker.
pub(crate) struct Paused {
    worker: usize,
    place: Place,
    flows: Vec<Envelope>,
}

/// What one worker has at one place.
pub(crate) struct Offered {
    worker: usize,
    place: Place,
    bound: Bound,
    socket: io::Result<OwnedFd>,
    way: io::Result<Option<OwnedFd>>,
    keys: Option<(Keys, u8)>,
}

impl Workers {
    /// All sockets where something arrives, for another process. This one goes on with them.
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
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
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
                        QuicEstate { ids, resets: resets.to_vec(), process }
                    });
                    let (name, ways) = (Some(name), way?.into_iter().collect());
                    let is_activated = false;
                    all.push(Inherited { name, transport, bind, address, sockets, made, ways, quic, is_activated });
                }
            }
        }
        Ok(all)
    }

    /// The keys of session tickets, and the secret behind tokens of QUIC, for another process.
    pub fn secrets(&self) -> (Vec<TicketEstate>, Vec<u8>) {
        (self.shared.published().tls.tickets(), crate::tls::token_secret().to_vec())
    }

    /// Reads no datagrams any more, since another process is about to; those that come are passed on by it. Tells of the flows
    /// that there are.
    pub fn pause(&self) -> Vec<Flow> {
        let mut paused = self.set_paused(true);
        paused.sort_by_key(|paused| paused.worker);
        let mut ports: HashMap<Place, u32> = HashMap::new();
        let mut all = Vec::new();
        for Paused { place, flows, .. } in paused {
            let port = ports.entry(place.clone()).or_default();
            for envelope in flows {
                let mut bytes = Vec::new();
                past::write_envelope(&envelope, &mut bytes);
                all.push((place.clone(), *port, bytes));
            }
            *port += 1;
        }
        all
    }

    /// Goes on after all.
    pub fn go_on(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, is_paused: bool) -> Vec<Paused> {
        let (told, all_told) = channel();
        self.shared.tell_all(|| Command::Pause(is_paused, told.clone()));
        drop(told);
        let mut all = Vec::new();
        while let Ok(paused) = all_told.recv_timeout(ANSWER) {
            all.push(paused);
        }
        all
    }

    /// Asks all workers whether they are alive.
    pub fn pulse(&self) -> Pulse {
        let (sender, answers) = channel();
        let ask = |worker: &UnboundedSender<Command>| worker.send(Command::Pulse { _answer: sender.clone() }).is_ok();
        // All are asked, whoever is gone.
        let asked = self.shared.commands.iter().filter(|worker| ask(worker)).count();
        Pulse { answers, is_lost: asked < self.shared.commands.len() }
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

    /// The files of Unix sockets that came from another process are this one's, now that it goes on in the place of that: they get
    /// the permissions that are configured, and go with their listeners.
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

    /// The socket for connections at this address that was made ready for this process, for who is no listener.
    pub fn take_activated(&self, bind: &Address) -> Option<OwnedFd> {
        let mut heritage = self.shared.heritage();
        let fits = |one: &Inherited| one.is_activated && !one.transport.is_udp() && one.address == *bind;
        let at = heritage.sockets.iter().position(fits)?;
        heritage.sockets.remove(at).sockets.pop()
    }

    /// Where this process stands between having a heritage and using it.
    pub fn threshold(&self) -> Threshold {
        Threshold(self.shared.clone())
    }
}

/// What workers were asked by [`Workers::pulse`].
#[derive(Debug)]
pub struct Pulse {
    /// Ends when all that were asked have answered.
    answers: Receiver<()>,
    is_lost: bool,
}

impl Pulse {
    /// Whether all workers have answered.
    pub fn is_felt(&self) -> bool {
        !self.is_lost && self.answers.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Whether a worker has ended, so that they never will.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

/// From the first plan, which says what of the heritage has a use, to the moment when that is used.
pub struct Threshold(Arc<Shared>);

impl Threshold {
    /// What of the heritage is in use, by the names that the other process knows.
    pub fn taken(&self) -> Vec<Place> {
        self.0.heritage().taken.clone()
    }

    /// Says which flows are the other process's.
    pub fn know(&self, flows: &[Flow]) {
        let heritage = self.0.heritage();
        for (place, port, envelope) in flows {
            if let Some((_, past)) = heritage.pasts.iter().find(|(known, _)| known == place)
                && let Some((envelope, _)) = past::read_envelope(envelope)
            {
                past.know(envelope, *port);
            }
        }
    }

    /// Takes what arrives at sockets that were held. What of the heritage has no use is closed.
    pub fn begin(&self) {
        self.0.begin();
    }
}

fn made(bound: &Bound) -> Option<[u32; 3]> {
    bound.file.as_ref().map(|file| file.made())
}

impl Shared {
    pub(crate) fn heritage(&self) -> MutexGuard<'_, Heritage> {
        self.heritage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sockets from another process that are right for a listener. `beside`: only at this address.
    pub(crate) fn claim(
        &self,
        listener: &Listener,
        transport: Transport,
        beside: Option<&Address>,
    ) -> Option<Inherited> {
        let mut heritage = self.heritage();
        let is_right =
            |one: &Inherited| one.suits(listener, transport) && beside.is_none_or(|beside| one.address == *beside);
        let place = heritage.sockets.iter().position(is_right)?;
        let mut inherited = heritage.sockets.swap_remove(place);
        // Datagrams may be QUIC's.
        inherited.transport = transport;
        let name = inherited.name.clone().unwrap_or_else(|| listener.name.clone());
        heritage.taken.push((name, transport));
        Some(inherited)
    }

    /// Gives sockets from another process to the workers, in turn. Workers that get none will have one beside them, or share
    /// those that cannot have others beside them.
    pub(crate) fn adopt(
        &self,
        listener: &Listener,
        inherited: Inherited,
        by_worker: &mut [Vec<Opened>],
    ) -> io::Result<Bound> {
        let Inherited { name: known, transport, address, mut sockets, made, ways, quic, is_activated, .. } = inherited;
        let (name, workers) = (&listener.name, by_worker.len());
        let past = (!ways.is_empty()).then(|| Arc::new(Past::new(ways)));
        if let Some(past) = &past {
            let place = (known.unwrap_or_else(|| name.clone()), transport);
            self.heritage().pasts.push((place, past.clone()));
        }
        let is_shared = sockets.first().is_some_and(listen::is_shared) && address.ip().is_some();
        if transport == Transport::Stream && !is_shared {
            for worker in sockets.len()..workers {
                let another = sockets[worker % sockets.len()].try_clone()?;
                sockets.push(another);
            }
        }
        let count = if is_shared { workers.max(sockets.len()) } else { sockets.len() };
        let hubs = if transport == Transport::Quic { hubs(count, keys_of(quic), past.as_ref()) } else { Vec::new() };
        let quic = Generation::of(&hubs);
        let beside = |port| past.clone().map(|past| Beside { past, port, ports: count });
        let (mut hubs, first_spare) = (hubs.into_iter(), sockets.len());
        for (number, socket) in sockets.into_iter().enumerate() {
            nonblocking(&socket)?;
            if transport == Transport::Quic {
                listen::widen(&SockRef::from(&socket));
            }
            let (name, hub, beside) = (name.clone(), hubs.next(), beside(number));
            let opened = Opened { name, transport, socket, hub, beside, is_adopted: true };
            by_worker[number % workers].push(opened);
        }
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in first_spare..count {
            let (name, address) = (name.clone(), address.clone());
            spares.push(Spare { name, address, transport, worker, hub: hubs.next(), beside: beside(worker) });
        }
        let file = match &address {
            // What another has made, that one removes.
            Address::Unix(path) if !is_activated => SocketFile::adopt(path, made).map(Arc::new),
            Address::Unix(_) => None,
            Address::Ip(_) => None,
        };
        Ok(Bound { bind: listener.bind.clone(), address, transport, file, quic })
    }

    fn begin(&self) {
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
        for left in std::mem::take(&mut self.heritage().sockets).iter().filter(|left| left.is_activated) {
            let name = left.name.as_deref().unwrap_or("-");
            let pairs: telemetry::log::Pairs<'_> = &[("address", &left.address), ("name", &name)];
            telemetry::log::warn("an inherited socket has no listener", pairs);
        }
    }

    fn bind_spare(&self, spare: Spare) -> io::Result<Option<Opened>> {
        let Spare { name, address, transport, hub, beside, .. } = spare;
        let plan = self.published().plan.clone();
        let listener = plan.as_ref().and_then(|plan| plan.listener(&name)).map(|plan| &plan.listener);
        let (Some(listener), Some(address)) = (listener, address.ip()) else { return Ok(None) };
        let socket = listen::bind_beside(address, transport, &listener.socket)?;
        if transport == Transport::Stream {
            listen::listen(&socket, &listener.socket)?;
        }
        Ok(Some(Opened { name, transport, socket, hub, beside, is_adopted: false }))
    }
}

/// Those of the process before, whose number this one follows.
fn keys_of(quic: Option<QuicEstate>) -> (Keys, u8) {
    let known =
        quic.and_then(|quic| Some((quic.ids, <[u8; RESET_KEY_BYTES]>::try_from(quic.resets).ok()?, quic.process)));
    match known {
        Some((ids, resets, process)) => (Keys::of(ids, resets), process.wrapping_add(1)),
        None => (Keys::new(), 0),
    }
}

/// The other process may have waited in its calls.
fn nonblocking(socket: &OwnedFd) -> io::Result<()> {
    SockRef::from(socket).set_nonblocking(true)
}

/// Tells of every socket of a worker.
pub(crate) fn offer(running: &Running, offers: &Sender<Offered>) {
    for accepting in running.listening.borrow().iter() {
        let Some(socket) = accepting.duplicate() else { continue };
        let place = (accepting.name.clone(), accepting.bound.transport);
        // Who asked may have given up.
        let (way, keys, bound) = (accepting.open_way(), accepting.keys(), accepting.bound.clone());
        let _ = offers.send(Offered { worker: running.worker.index, place, bound, socket, way, keys });
    }
    retired::offer(running, |place, bound, port| {
        let (bound, keys) = (bound.clone(), Some(port.keys()));
        let (socket, way) = (port.duplicate(), port.open_way().map(Some));
        let _ = offers.send(Offered { worker: running.worker.index, place, bound, socket, way, keys });
    });
}

/// Another process has the sockets of these places. Datagrams of others, which it does not want, are read here again.
pub(crate) fn give(running: &Running, places: &[Place]) {
    for accepting in running.listening.borrow().iter() {
        if places.contains(&(accepting.name.clone(), accepting.bound.transport)) {
            accepting.handle.is_given.set(true);
        } else {
            accepting.pause(false);
        }
    }
    retired::pause(running, |place| places.contains(place));
}

/// Another process is about to read the sockets of datagrams, or not after all.
pub(crate) fn pause(running: &Running, is_paused: bool, told: &Sender<Paused>) {
    for accepting in running.listening.borrow().iter() {
        let place = (accepting.name.clone(), accepting.bound.transport);
        let flows = accepting.pause(is_paused);
        if !is_paused
            && let Some(listener) =
                running.worker.plan_of(&accepting.handle).listeners.get(accepting.handle.index.get())
        {
            // The other process may have set it up as it was asked for.
            accepting.tune(&listener.plan.listener.socket);
        }
        // Who asked may have given up.
        let _ = told.send(Paused { worker: running.worker.index, place, flows });
    }
    retired::pause(running, |_| is_paused);
}

#[cfg(test)]
mod tests {
    use telemetry::Telemetry;

    use super::*;
    use crate::reconcile::Options;

    #[test]
    fn the_pulse_of_workers_of_which_one_has_ended_is_not_felt() {
        let options = Options { workers: 2, telemetry: Telemetry::new(2), heritage: Heritage::default() };
        let workers = Workers::start(options).unwrap();
        let wait = |holds: &dyn Fn() -> bool| {
            let until = Instant::now() + 3 * ANSWER;
            while !holds() {
                assert!(Instant::now() < until);
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let pulse = workers.pulse();
        wait(&|| pulse.is_felt());
        assert!(!pulse.is_lost());
        let ended = &workers.shared.commands[1];
        assert!(ended.send(Command::Stop).is_ok());
        wait(&|| ended.is_closed());
        let pulse = workers.pulse();
        wait(&|| pulse.answers.try_recv() == Err(TryRecvError::Disconnected));
        assert!(pulse.is_lost() && !pulse.is_felt(), "the others have answered");
    }
}
