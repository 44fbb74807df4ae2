//! Idle connections to one endpoint, kept by one worker. Those of HTTP/2 and HTTP/3 are in [`SharedConnections`], idle or not.
//!
//! Last in, first out: the connection used last is the least likely to be closed by the endpoint, and those that a quiet
//! time does not need age and go. No task waits on an idle connection; the kernel's report of its end is seen when it is
//! taken out, or by the sweep.
//!
//! A connection that identifies its client, or on which an endpoint has authenticated one, is reused for that client's connection only.
//! Where its PROXY header shows something of an exchange, it is reused only for exchanges with the same values. Any client can create such
//! connections by sending credentials, so they get half of the room at most, and give way to shared ones when the pool is full.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Instant;

use model::proxy_protocol::SendProxy;
use model::snapshot;
use model::socket::ClusterSocket;
use plan::cluster::own_tlvs::Tlvs;
use wire::authentication::Bond;

use super::connection::{UpstreamConnection, let_end};
use super::opening::is_private;
use super::shared::connections::SharedConnections;
use crate::connection::ConnectionFacts;

/// See the module.
pub(crate) struct Pool {
    settings: snapshot::Pool,
    /// How its connections are made.
    made: (ClusterSocket, Option<SendProxy>),
    is_private: bool,
    idle: RefCell<VecDeque<Idle>>,
    /// How many of those are of use to one client only.
    owned: Cell<usize>,
    is_retired: Cell<bool>,
    /// If the endpoint may speak HTTP/2 or HTTP/3.
    pub shared: Option<Rc<SharedConnections>>,
}

struct Idle {
    connection: UpstreamConnection,
    /// The client's connection that it speaks for, if it is of use to no other.
    owner: Option<Weak<ConnectionFacts>>,
}

impl Idle {
    /// Weak references keep the place of what they refer to, so no other connection can have it.
    fn is_of(&self, client: &Rc<ConnectionFacts>) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.as_ptr() == Rc::as_ptr(client))
    }

    fn has_owner(&self) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner.strong_count() > 0)
    }
}

impl Pool {
    pub(crate) fn new(cluster: &snapshot::Cluster) -> Self {
        let (settings, is_private) = (cluster.pool.clone(), is_private(cluster));
        let made = (cluster.socket.clone(), cluster.proxy_protocol.clone());
        let shared = SharedConnections::new(&settings);
        let (idle, owned, is_retired) = (RefCell::default(), Cell::new(0), Cell::new(false));
        Self { settings, made, is_private, idle, owned, is_retired, shared }
    }

    /// Whether connections would be made and kept in the same way for `cluster`.
    pub(crate) fn suits(&self, cluster: &snapshot::Cluster) -> bool {
        self.settings == cluster.pool && self.made.0 == cluster.socket && self.made.1 == cluster.proxy_protocol
    }

    /// A connection for this client that is alive as far as the kernel knows. `shows` is what a new one would be made with for this
    /// exchange, [`UpstreamConnection::shown`]; it is asked only where some connections are of use to one client only.
    pub(crate) fn take(
        &self,
        now: Instant,
        client: &Rc<ConnectionFacts>,
        shows: impl FnOnce() -> Option<Box<Tlvs>>,
    ) -> Option<UpstreamConnection> {
        let mut idle = self.idle.borrow_mut();
        let shown = if self.owned.get() == 0 { None } else { shows() };
        loop {
            let place = self.place_for(client, shown.as_deref(), &idle)?;
            let mut connection = self.remove(&mut idle, place)?.connection;
            if self.is_fresh(&connection, now) && connection.io.is_quiet() {
                return Some(connection);
            }
        }
    }

    /// Its own before one that is everybody's.
    fn place_for(&self, client: &Rc<ConnectionFacts>, shown: Option<&Tlvs>, idle: &VecDeque<Idle>) -> Option<usize> {
        let last = idle.len().checked_sub(1)?;
        if self.owned.get() == 0 {
            return Some(last);
        }
        let own = idle.iter().rposition(|idle| idle.is_of(client) && idle.connection.shown.as_deref() == shown);
        own.or_else(|| idle.iter().rposition(|idle| idle.owner.is_none()))
    }

    fn remove(&self, idle: &mut VecDeque<Idle>, place: usize) -> Option<Idle> {
        let removed = idle.remove(place)?;
        self.owned.set(self.owned.get() - usize::from(removed.owner.is_some()));
        Some(removed)
    }

    /// Keeps a connection after an exchange that ended in good order. The connection of a stream is kept anyway.
    pub(crate) fn give(&self, mut connection: UpstreamConnection, now: Instant, client: &Rc<ConnectionFacts>) {
        if connection.permit().is_some() {
            return let_end(connection);
        }
        connection.requests += 1;
        connection.idle_since = now;
        let worn = self.settings.requests_per_connection_max.is_some_and(|max| connection.requests >= max);
        if worn || self.is_retired.get() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        let owner = (self.is_private || connection.bond != Bond::None).then(|| Rc::downgrade(client));
        if self.make_room(&mut idle, owner.is_some()) {
            self.owned.set(self.owned.get() + usize::from(owner.is_some()));
            idle.push_back(Idle { connection, owner });
        }
    }

    /// Sees to it that there is a place for one more; false: there is none to be had.
    fn make_room(&self, idle: &mut VecDeque<Idle>, for_one: bool) -> bool {
        let max = self.settings.idle_max as usize;
        let owned_max = if self.is_private { max } else { max.div_ceil(2) };
        let is_full = idle.len() >= max;
        if for_one && self.owned.get() >= owned_max || is_full && self.owned.get() > 0 {
            // Of no use to anyone else: the first whose client has gone, else the one that is idle longest.
            let gone = idle.iter().position(|idle| !idle.has_owner());
            let place = gone.or_else(|| idle.iter().position(|idle| idle.owner.is_some()));
            return place.is_some_and(|place| self.remove(idle, place).is_some());
        }
        if is_full && for_one {
            return self.remove(idle, 0).is_some();
        }
        !is_full
    }

    /// Whether each connection shows for whom it was made, and so is of use to that client only.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Closes idle connections and keeps none from now on: the plan of the pool is no longer active, though exchanges may still follow it.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
        self.idle.borrow_mut().clear();
        self.owned.set(0);
        if let Some(connections) = &self.shared {
            connections.retire();
        }
    }

    /// Closes what is too old, was closed by the endpoint, or speaks for a client that is gone.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut idle = self.idle.borrow_mut();
        idle.retain_mut(|idle| {
            idle.has_owner() && self.is_fresh(&idle.connection, now) && idle.connection.io.is_quiet()
        });
        self.owned.set(idle.iter().filter(|idle| idle.owner.is_some()).count());
        if let Some(connections) = &self.shared {
            connections.sweep(now);
        }
    }

    fn is_fresh(&self, connection: &UpstreamConnection, now: Instant) -> bool {
        now.saturating_duration_since(connection.idle_since) < self.settings.idle_timeout
    }
}
