//! Sockets of the process before whose address covers that of a listener of datagrams here, or is covered by it (`192.0.2.1:443`,
//! `0.0.0.0:443`). The kernel prefers the socket of the one address, whoever has it. So this process reads all of them for as long as
//! the process before is there: each port passes on what is for connections or flows of that, and gives what comes anew to the port of
//! the listener that has this address now.
//!
//! ```text
//!   to the one address ──► its socket ──────────► whose is it? ── that of the process before ──► by its way
//!   to any other ────────► socket of all ───────►      └─ nobody's yet ─► the port of the listener here, if it covers the address
//! ```
//! Of QUIC they are ports that no listener has any more, as after a change of the configuration ([`retired`]); of UDP they are relays
//! ([`crate::datagram::relay`]).

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use model::snapshot::Listener;
use model::{Address, Name};
use plan::Plan;

use crate::datagram::{self, Port};
use crate::downstream;
use crate::handover::{Beside, Heritage, Inherited, Place, QuicEstate, keys_of, nonblocking};
use crate::http3::{Generation, Mesh, is_after, mesh};
use crate::listen::{self, Transport};
use crate::past::Past;
use crate::reconcile::{Bound, Opened, Shared};
use crate::registry::Seat;
use crate::retired;
use crate::worker::Worker;

/// Where this process reads at sockets of the process before.
#[derive(Debug)]
pub(crate) struct Cover {
    address: Address,
    transport: Transport,
    quic: Option<QuicEstate>,
    /// There as long as any port reads there.
    past: Weak<Past>,
}

impl Cover {
    fn is_at(&self, transport: Transport, address: &Address) -> bool {
        let is_there = self.past.strong_count() > 0 && listen::overlap(&self.address, address);
        is_there && self.transport.is_udp() == transport.is_udp()
    }
}

/// A port of UDP at a socket of the process before.
pub(crate) struct Relay {
    /// As another process is told of it.
    pub place: Place,
    pub bound: Bound,
    pub port: Rc<Port>,
}

impl Heritage {
    /// Whether sockets are read that came from the process before, at an address that covers this one, or is covered by it.
    pub(crate) fn covers(&self, transport: Transport, address: &Address) -> bool {
        self.covers.iter().any(|cover| cover.is_at(transport, address))
    }

    /// Sockets whose address covers that of a listener, or is covered by it. Those that another listener goes on with are its own.
    fn take_covering(&mut self, plan: &Plan, (transport, at): (Transport, &Address)) -> Vec<Inherited> {
        let has_listener = |one: &Inherited| {
            let is_it = |listener: &Arc<Listener>| {
                Transport::of(listener).contains(&one.transport) && one.suits(listener, one.transport)
            };
            plan.snapshot.listeners.iter().any(is_it)
        };
        let is_covering = |one: &mut Inherited| {
            let overlaps = listen::overlap(&one.address, at) && one.address != *at;
            let is_known = (one.transport == Transport::Quic) == one.quic.is_some() && !one.ways.is_empty();
            one.transport == transport && overlaps && is_known && !has_listener(one)
        };
        if transport.is_udp() { self.sockets.extract_if(.., is_covering).collect() } else { Vec::new() }
    }

    /// The highest number of all ports whose ids are made with these keys.
    fn latest(&self, quic: &QuicEstate) -> u8 {
        let known = self.sockets.iter().filter_map(|one| one.quic.as_ref());
        let kin =
            known.chain(self.covers.iter().filter_map(|cover| cover.quic.as_ref())).filter(|one| one.is_kin(quic));
        kin.fold(quic.process, |latest, one| if is_after(one.process, latest) { one.process } else { latest })
    }
}

impl Shared {
    /// Makes ready to read at sockets of the process before that cover an address, or are covered by it.
    ///
    /// # Errors
    /// A descriptor cannot be had.
    pub(crate) fn cover(
        &self,
        (listener, plan): (&Listener, &Plan),
        (transport, at): (Transport, &Address),
        by_worker: &mut [Vec<Opened>],
    ) -> io::Result<()> {
        let heritage = &mut *self.heritage();
        for inherited in heritage.take_covering(plan, (transport, at)) {
            let quic = inherited.quic.clone().map(|quic| {
                // Ids that these make would be told from all others; and the listener's own follow.
                let process = heritage.latest(&quic).wrapping_add(1);
                QuicEstate { process, ..quic }
            });
            let Inherited { name, transport, address, sockets, ways, .. } = inherited;
            let past = Arc::new(Past::new(ways));
            let place = (name.unwrap_or_else(|| listener.name.clone()), transport);
            heritage.pasts.push((place.clone(), past.clone()));
            heritage.taken.push(place);
            let name = listener.name.clone();
            match &quic {
                Some(quic) => {
                    let keys = (keys_of(Some(quic.clone())).0, quic.process);
                    let meshes = mesh(sockets.len(), keys, Some(&past));
                    let (bind, quic) = (address.clone(), Generation::of(&meshes));
                    self.covered().push(Bound { bind, address: address.clone(), transport, file: None, quic });
                    deal(name, (transport, sockets), meshes, by_worker)?;
                }
                None => relays((name, transport), sockets, &past, by_worker)?,
            }
            let past = Arc::downgrade(&past);
            heritage.covers.push(Cover { address, transport, quic, past });
        }
        Ok(())
    }

    /// The ports of a listener of HTTP/3 that follow these of this process, or those of the process before whose sockets are read too.
    pub(crate) fn succeed(&self, before: &[Generation], at: &Address, ports: usize) -> Vec<Mesh> {
        let covered = if before.is_empty() { self.after_covered(at, ports) } else { None };
        covered.unwrap_or_else(|| Generation::succeed(before, ports))
    }

    /// The ports of a listener of HTTP/3 at an address that covers those of the process before, or is covered by them: they know what is
    /// the others'. `None`: there are none.
    fn after_covered(&self, at: &Address, ports: usize) -> Option<Vec<Mesh>> {
        let heritage = self.heritage();
        let cover = heritage.covers.iter().rfind(|cover| cover.is_at(Transport::Quic, at))?;
        let (quic, past) = (cover.quic.as_ref()?, cover.past.upgrade()?);
        let process = heritage.latest(quic);
        Some(mesh(ports, keys_of(Some(QuicEstate { process, ..quic.clone() })), Some(&past)))
    }

    /// What ids are to be made with at sockets that are taken over: they follow all others with these keys.
    pub(crate) fn after_kin(&self, quic: Option<QuicEstate>) -> Option<QuicEstate> {
        quic.map(|quic| QuicEstate { process: self.heritage().latest(&quic), ..quic })
    }
}

/// Gives sockets of QUIC to the workers, in turn.
fn deal(
    name: Name,
    (transport, sockets): (Transport, Vec<OwnedFd>),
    meshes: Vec<Mesh>,
    by_worker: &mut [Vec<Opened>],
) -> io::Result<()> {
    let workers = by_worker.len();
    for (number, (socket, mesh)) in sockets.into_iter().zip(meshes).enumerate() {
        nonblocking(&socket)?;
        let (name, mesh) = (name.clone(), Some(mesh));
        let opened = Opened { name, transport, socket, mesh, beside: None, is_adopted: true, is_covering: true };
        by_worker[number % workers].push(opened);
    }
    Ok(())
}

/// Gives sockets of UDP to the workers, each of which has to know what is not its own.
fn relays(
    (name, transport): Place,
    sockets: Vec<OwnedFd>,
    past: &Arc<Past>,
    by_worker: &mut [Vec<Opened>],
) -> io::Result<()> {
    let (workers, ports) = (by_worker.len(), by_worker.len().max(sockets.len()));
    for port in 0..ports {
        let Some(socket) = sockets.get(port % sockets.len().max(1)) else { break };
        let (name, socket) = (name.clone(), socket.try_clone()?);
        nonblocking(&socket)?;
        let beside = Some(Beside { past: past.clone(), port, ports });
        let opened = Opened { name, transport, socket, mesh: None, beside, is_adopted: true, is_covering: true };
        by_worker[port % workers].push(opened);
    }
    Ok(())
}

/// Reads at a socket of the process before from now on.
///
/// # Errors
/// It cannot be waited for.
pub(crate) fn start(worker: &Rc<Worker>, bound: Bound, index: usize, opened: Opened) -> io::Result<()> {
    let Opened { name, transport, socket, mesh, beside, .. } = opened;
    let seat = Rc::new(Seat::new(index));
    // Nobody is let in here.
    seat.closing.set(true);
    *seat.last_plan.borrow_mut() = Some(worker.plan());
    if let Some(mesh) = mesh {
        let port = downstream::http3::open(worker, (socket.into(), mesh), seat, Rc::default(), || ())?;
        retired::remember(worker, (&name, &bound), &port);
        return Ok(());
    }
    let port = Port::new(worker, socket.into(), (seat, beside, true))?;
    let place = (retired::name(&name, &bound.address), transport);
    worker.relays.borrow_mut().push(Relay { place, bound, port: port.clone() });
    let worker = worker.clone();
    tokio::task::spawn_local(async move {
        datagram::relay(port.clone()).await;
        worker.relays.borrow_mut().retain(|relay| !Rc::ptr_eq(&relay.port, &port));
    });
    Ok(())
}

/// Whether a port at one address takes what is sent to another.
pub(crate) fn takes(ip: IpAddr, to: Option<IpAddr>) -> bool {
    ip.is_unspecified() || to.is_none_or(|to| to.to_canonical() == ip.to_canonical())
}
