//! Which sockets a plan needs: those that are kept, inherited from another process, taken back, or new.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use model::snapshot::Listener;
use model::{Address, Name};
use plan::Plan;

use super::shared::{Published, Shared};
use crate::bound::{Bound, Opened, is_same_place};
use crate::http3::Generation;
use crate::listen::{self, Transport};
use crate::socket_file::SocketFile;

/// Where sockets are, and those that are new, by worker.
pub(super) type Bindings = (HashMap<(Name, Transport), Bound>, Vec<Vec<Opened>>);

impl Shared {
    /// Binds what is new. The sockets come one per worker.
    pub(super) fn bind(&self, plan: &Plan, published: &Published) -> Result<Bindings, String> {
        let mut bindings = (HashMap::new(), self.commands.iter().map(|_| Vec::new()).collect());
        for listener in &plan.snapshot.listeners {
            for transport in Transport::of(listener) {
                self.bind_one(listener, *transport, (plan, published), &mut bindings)?;
            }
        }
        Ok(bindings)
    }

    fn bind_one(
        &self,
        listener: &Listener,
        transport: Transport,
        (plan, published): (&Plan, &Published),
        (bound, sockets): &mut Bindings,
    ) -> Result<(), String> {
        let key = (listener.name.clone(), transport);
        let bind = listener.bind.clone();
        let failed = |error| {
            let way = if transport == Transport::Quic { " by UDP, for HTTP/3" } else { "" };
            format!("listener {}: cannot listen on {}{way}: {error}", listener.name, listener.bind)
        };
        // HTTP/3 has the port that the other versions have, also where any free one was asked for.
        let beside = bound.get(&(listener.name.clone(), Transport::Stream)).map(|beside| beside.address.clone());
        let beside = beside.filter(|_| transport == Transport::Quic);
        let is_kept = |(known, kept): &(&(Name, Transport), &Bound)| {
            let is_beside = beside.as_ref().is_none_or(|beside| kept.address == *beside);
            is_same_place(&known.0, kept, listener, transport) && is_beside
        };
        let at = beside.clone().unwrap_or_else(|| bind.clone());
        if let Some((_, kept)) = published.bound.iter().find(is_kept) {
            bound.insert(key, Bound { bind, ..kept.clone() });
            return Ok(());
        }
        if let Some(inherited) = self.claim(listener, transport, beside.as_ref()) {
            let adopted = self.adopt(listener, inherited, sockets).map_err(failed)?;
            bound.insert(key, adopted);
            return Ok(());
        }
        self.make_room(listener, (transport, &at));
        if transport == Transport::Datagram && published.has_connections(plan, &at) {
            return Err(failed(io::Error::other("HTTP/3 connections that started there are still open")));
        }
        let before = if transport == Transport::Quic { published.before(plan, &at) } else { Vec::new() };
        let is_left = |left: &Bound| left.transport == transport && left.address == at && left.is_in_use();
        if published.leaving.iter().any(is_left)
            && let Some(taken) = self.take_back(listener, &at, &before, sockets).map_err(failed)?
        {
            bound.insert(key, taken);
            return Ok(());
        }
        // Our own listener of another name may still hold the address: it goes with this very plan.
        let is_ours =
            |other: &Bound| other.transport.is_udp() == transport.is_udp() && listen::overlap(&other.address, &at);
        let ours = published.bound.values().any(is_ours)
            || published.leaving.iter().any(|other| other.is_in_use() && is_ours(other))
            || self.inheritance().is_at(transport, &at);
        let workers = self.commands.len();
        let files: Vec<Arc<SocketFile>> =
            published.bound.values().chain(bound.values()).filter_map(|place| place.file.clone()).collect();
        let made = listen::bind(listener, (transport, &at), workers, !ours, &files).map_err(failed)?;
        let hubs = if transport == Transport::Quic { Generation::succeed(&before, workers) } else { Vec::new() };
        let quic = Generation::of(&hubs);
        let mut hubs = hubs.into_iter();
        for (of_worker, socket) in sockets.iter_mut().zip(made.sockets) {
            of_worker.push(Opened {
                name: listener.name.clone(),
                transport,
                socket,
                hub: hubs.next(),
                predecessor: None,
                is_adopted: false,
            });
        }
        bound.insert(key, Bound { bind, address: made.address, transport, file: made.file, quic });
        Ok(())
    }
}

impl Published {
    /// Returns the sockets of QUIC that no listener of a plan has any more and that still read what comes to an address, or some of
    /// whose connections come to sockets at that; the latest last. No socket can know the connections of two that have different keys:
    /// left out are those with other keys than the one at that very address.
    fn before(&self, plan: &Plan, at: &Address) -> Vec<Generation> {
        let there = self.leaving.iter().chain(self.going(plan).map(|(_, bound)| bound));
        let there = there.filter(|bound| bound.is_in_use() && listen::overlap(&bound.address, at));
        let all: Vec<_> = there.filter_map(|bound| Some((bound.address == *at, bound.quic.clone()?))).collect();
        let owner = all.iter().rfind(|(is_at, _)| *is_at).map(|(_, quic)| quic.clone());
        let shares_keys = |quic: &Generation| owner.as_ref().is_none_or(|owner| owner.shares_keys(quic));
        all.into_iter().map(|(_, quic)| quic).filter(shares_keys).collect()
    }

    /// Returns whether connections of QUIC are left at an address that a plan has for datagrams: their datagrams look alike.
    fn has_connections(&self, plan: &Plan, at: &Address) -> bool {
        let is_there = |bound: &Bound| bound.is_in_use() && listen::overlap(&bound.address, at);
        let is_used = |name: &Name| {
            let listener = self.plan.as_ref().and_then(|plan| plan.listener(name));
            listener.is_some_and(|listener| listener.state.connections() > 0)
        };
        self.leaving.iter().any(is_there) || self.going(plan).any(|(name, bound)| is_there(bound) && is_used(name))
    }

    /// Returns the sockets of QUIC in force that a plan has no listener for.
    fn going<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (&'a Name, &'a Bound)> {
        let has_listener = |name: &Name, bound: &Bound| {
            let is_it = |listener: &Arc<Listener>| {
                Transport::of(listener).contains(&Transport::Quic)
                    && is_same_place(name, bound, listener, Transport::Quic)
            };
            plan.snapshot.listeners.iter().any(is_it)
        };
        let quic = self.bound.iter().filter(|(_, bound)| bound.transport == Transport::Quic);
        quic.map(|((name, _), bound)| (name, bound)).filter(move |(name, bound)| !has_listener(name, bound))
    }
}
