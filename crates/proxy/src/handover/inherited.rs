//! What a process starts with: sockets of the process before, or of the one that started it, and what belongs to them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use model::snapshot::Listener;
use model::{Address, Name};
use socket2::{SockRef, Type};

use crate::bound::{Bound, is_same_place};
use crate::http3::Hub;
use crate::listen::{self, Transport};
use crate::predecessor::{Predecessor, PredecessorLink};
use crate::tls::TicketHandover;

/// A socket that a worker is to have beside those that came from another process, once that has stopped.
pub(crate) struct Spare {
    pub name: Name,
    pub address: Address,
    pub transport: Transport,
    pub worker: usize,
    pub hub: Option<Hub>,
    pub predecessor: Option<PredecessorLink>,
}

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
    /// For datagrams: the ways to the sockets of the other process, one for each of them.
    pub ways: Vec<OwnedFd>,
    /// What ids of QUIC are made with.
    pub quic: Option<QuicHandover>,
    /// Made ready by the program that started this process: whatever name it has, an address is enough.
    pub is_activated: bool,
}

/// What ids of QUIC are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicHandover {
    /// Masks what an id names.
    pub ids: [u64; 2],
    /// Signs stateless resets; 64 bytes.
    pub resets: Vec<u8>,
    /// Number of the process.
    pub process: u8,
}

/// A flow of the other process: its place, the number of its socket there, and its envelope, which only these processes read.
pub type Flow = (Place, u32, Vec<u8>);

/// What names the sockets of a listener for one transport.
pub type Place = (Name, Transport);

/// What a process starts with.
#[derive(Debug, Default)]
pub struct Inheritance {
    /// Sockets that a plan may have listeners for.
    pub sockets: Vec<Inherited>,
    /// Take nothing at sockets before [`super::Threshold::begin`].
    pub is_held: bool,
    /// The keys of session tickets.
    pub tickets: Vec<TicketHandover>,
    /// The secret behind tokens of QUIC (RFC 9000 section 8.1); empty, or 64 bytes.
    pub tokens: Vec<u8>,
    /// By what names the other process knows the sockets that are taken over.
    pub(super) taken: Vec<Place>,
    /// The predecessor of each listener of datagrams, by the same names.
    pub(super) predecessors: Vec<(Place, Arc<Predecessor>)>,
}

impl Inheritance {
    /// Returns that of a process with sockets that another made ready.
    pub fn new(sockets: Vec<Inherited>, is_held: bool) -> Self {
        Self { sockets, is_held, ..Self::default() }
    }

    /// Returns whether a socket that is left of it is at an address.
    pub(crate) fn is_at(&self, transport: Transport, address: &Address) -> bool {
        let is_there = |other: &Inherited| {
            other.transport.is_udp() == transport.is_udp() && listen::overlap(&other.address, address)
        };
        self.sockets.iter().any(is_there)
    }
}

/// Warns if a new place for datagrams covers one of the predecessor, or is covered by it: both read there, and neither knows what is
/// the other's.
pub(super) fn warn_of_other(inheritance: &Inheritance, listener: &Listener, (transport, at): (Transport, &Address)) {
    let overlaps = |other: &&Inherited| {
        !other.is_activated && other.transport.is_udp() && listen::overlap(&other.address, at) && other.address != *at
    };
    let Some(other) = inheritance.sockets.iter().filter(|_| transport.is_udp()).find(overlaps) else { return };
    let help = "change the address with a reload, before or after the upgrade: no datagram is lost then";
    let pairs: telemetry::log::Pairs<'_> =
        &[("listener", &listener.name), ("address", at), ("before", &other.address), ("help", &help)];
    telemetry::log::warn(
        "datagrams to an address that changed with the upgrade may be lost until the previous process ends",
        pairs,
    );
}

impl Inherited {
    /// Returns what decides whether a listener is served by it.
    fn place(&self) -> Bound {
        let (bind, address) = (self.bind.clone(), self.address.clone());
        Bound { bind, address, transport: self.transport, file: None, quic: None }
    }

    /// Returns a socket that was made ready for this process, under a name if it was given one.
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

    /// Returns whether these are the right sockets for a listener.
    pub(super) fn suits(&self, listener: &Listener, transport: Transport) -> bool {
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
