//! A store, which may be a Redis Cluster: its connections, and which of them a key goes by.
//!
//! A store is asked which node has which slot (`CLUSTER SLOTS`). One that is no Redis Cluster says so, and counts as one server. The others
//! are asked again whenever a key is elsewhere (`MOVED`) or a node does not answer, but at most once a second. Each node has a connection
//! of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Address;
use plan::filter::StoreLogin;
use wire::resp::cluster::{NODES_MAX, Node, Redirect, SlotMap, slot_of};

use super::link::Link;
use super::target::Target;
use crate::worker_plan::ClusterLocal;

/// How often the nodes are asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Store {
    cluster: model::Name,
    login: Arc<StoreLogin>,
    links: RefCell<Vec<Rc<Link>>>,
    /// Once it is known to be a Redis Cluster.
    map: RefCell<Option<Map>>,
    looked_at: Cell<Option<Instant>>,
    /// Which node is next where none answers.
    turn: Cell<usize>,
    forget: fn(&Rc<Link>),
}

/// Which node has which slot, as the one at this address has said.
struct Map {
    slots: SlotMap,
    said_by: Option<Address>,
}

impl Store {
    pub(super) fn new(local: &ClusterLocal, login: &Arc<StoreLogin>, forget: fn(&Rc<Link>)) -> Rc<Self> {
        Rc::new(Self {
            cluster: local.plan.cluster.name.clone(),
            login: login.clone(),
            links: RefCell::default(),
            map: RefCell::default(),
            looked_at: Cell::default(),
            turn: Cell::default(),
            forget,
        })
    }

    /// Returns whether it is this cluster, with this login.
    pub(super) fn is_for(&self, local: &ClusterLocal, login: &Arc<StoreLogin>) -> bool {
        self.cluster == local.plan.cluster.name && (Arc::ptr_eq(&self.login, login) || self.login == *login)
    }

    /// Returns the connection by which a key goes.
    pub(super) fn link_of(&self, local: &Rc<ClusterLocal>, key: &[u8]) -> Rc<Link> {
        let target = self.map.borrow().as_ref().and_then(|map| map.target(map.slots.owner(slot_of(key))?));
        self.link(local, target)
    }

    /// Returns the connection to which another has sent a question, and learns from that.
    pub(super) fn elsewhere(self: &Rc<Self>, local: &Rc<ClusterLocal>, redirect: &Redirect, from: &Link) -> Rc<Link> {
        let said_by = from.address();
        let target = Target::of(&redirect.node, said_by.as_ref());
        if !redirect.is_ask {
            let mut map = self.map.borrow_mut();
            let map = map.get_or_insert_with(|| Map { slots: SlotMap::default(), said_by: said_by.clone() });
            let host = target.as_ref().map(Target::host);
            map.slots.set(redirect.slot, &Node { host, port: redirect.node.port });
        }
        self.look(local);
        self.link(local, target)
    }

    /// A node does not answer: another may have its slots by now.
    pub(super) fn is_missing(self: &Rc<Self>, local: &Rc<ClusterLocal>) {
        if self.map.borrow().is_some() {
            self.look(local);
        }
    }

    /// Takes a connection that nobody uses out of the list. Returns whether it was the last.
    pub(super) fn forget(&self, link: &Rc<Link>) -> bool {
        let mut links = self.links.borrow_mut();
        links.retain(|known| !Rc::ptr_eq(known, link));
        links.is_empty()
    }

    fn link(&self, local: &Rc<ClusterLocal>, target: Option<Target>) -> Rc<Link> {
        let mut links = self.links.borrow_mut();
        // There are never many more nodes than a map has.
        let target = target.filter(|_| links.len() <= 2 * NODES_MAX);
        if let Some(link) = links.iter().find(|link| link.is_to(target.as_ref())) {
            return link.clone();
        }
        let link = Link::start(local, &self.login, target, self.forget);
        links.push(link.clone());
        link
    }

    /// Asks which node has which slot, unless it was asked a moment ago.
    pub(super) fn look(self: &Rc<Self>, local: &Rc<ClusterLocal>) {
        if self.looked_at.get().is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        let link = self.link_up().unwrap_or_else(|| self.next_link(local));
        let Some(found) = link.ask_slots() else { return };
        self.looked_at.set(Some(Instant::now()));
        let store = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            let (found, Some(store)) = (found.await.ok(), store.upgrade()) else { return };
            let map = found.map(|slots| Map { slots, said_by: link.address() });
            // A store that has no map any more is no cluster now. A node that was removed from one does not decide that.
            if map.is_some() || (link.is_up() && !store.has_others(&link)) {
                *store.map.borrow_mut() = map;
            }
        });
    }

    /// Returns a connection that answers, if there is one: to a node of the map, or else to any.
    fn link_up(&self) -> Option<Rc<Link>> {
        let links = self.links.borrow();
        let mut up = links.iter().filter(|link| link.is_up());
        up.clone().find(|link| self.is_member(link)).or_else(|| up.next()).cloned()
    }

    /// Returns whether nodes of the map answer, of which this connection leads to none.
    fn has_others(&self, link: &Rc<Link>) -> bool {
        !self.is_member(link) && self.links.borrow().iter().any(|link| link.is_up() && self.is_member(link))
    }

    /// Returns whether a connection leads to a node of the map.
    fn is_member(&self, link: &Link) -> bool {
        let map = self.map.borrow();
        map.as_ref().is_some_and(|map| map.slots.nodes().iter().any(|node| link.is_to(map.target(node).as_ref())))
    }

    /// Returns a connection to a node or endpoint, where none is known to answer: each in turn, because any node knows the others.
    fn next_link(&self, local: &Rc<ClusterLocal>) -> Rc<Link> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let target = self.map.borrow().as_ref().and_then(|map| {
            // The last turn is that of the endpoints.
            map.target(map.slots.nodes().get(turn % (map.slots.nodes().len() + 1))?)
        });
        self.link(local, target)
    }
}

impl Map {
    fn target(&self, node: &Node) -> Option<Target> {
        Target::of(node, self.said_by.as_ref())
    }
}
