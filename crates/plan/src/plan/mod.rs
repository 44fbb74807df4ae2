//! The plan itself: what workers hold.

mod caches;
pub(crate) mod compile;
mod effect;
mod listeners;
mod logs;
pub(crate) mod publish;
mod tables;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use model::snapshot::{Listener, Snapshot};

use crate::addresses::AddressTable;
use crate::agents::AgentList;
use crate::cache::CacheStore;
use crate::cluster::ClusterPlan;
use crate::cluster::state::{ClusterState, ListenerState};
use crate::expression::{Condition, Value};
use crate::limit::{LimitName, LimitState, PerAddress};
use crate::map::MapPlan;
use crate::route::router::Router;
use crate::route::sni::SniTable;
use crate::table::Table;

pub use crate::route::plan::{ActionPlan, RoutePlan};

/// A snapshot compiled for the workers. Parts that are equal in two plans, one compiled after the other, are the same
/// `Arc`.
#[derive(Clone, Default)]
pub struct Plan {
    /// Grows with every change.
    pub generation: u64,
    /// What it was compiled from.
    pub snapshot: Arc<Snapshot>,
    /// In the order of the snapshot.
    pub listeners: Vec<Arc<ListenerPlan>>,
    /// In the order of the snapshot.
    pub clusters: Vec<Arc<ClusterPlan>>,
    /// In the order of the snapshot; see [`RoutePlan::index`].
    pub routes: Vec<Arc<RoutePlan>>,
    /// Tables of counters, in the order of the snapshot.
    pub tables: Vec<Arc<Table>>,
    /// In the order of the file.
    pub caches: Vec<Arc<CacheStore>>,
    /// Where clusters are found by the slots of their states.
    pub slots: Slots,
    /// In the order of the snapshot.
    pub maps: Vec<Arc<MapPlan>>,
    /// The condition of each access log, in the order of the snapshot; nothing where no log has one.
    pub log_conditions: Arc<[Option<Condition>]>,
    /// The values that each access log computes, in the order of the snapshot; nothing where no log has any.
    pub log_values: Arc<[Box<[Value]>]>,
}

/// Places of clusters in [`Plan::clusters`], by the slots of their states.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    places: Arc<[u32]>,
}

impl Slots {
    pub(crate) fn of(clusters: &[Arc<ClusterPlan>]) -> Self {
        let count = clusters.iter().map(|plan| plan.state.slot as usize + 1).max().unwrap_or_default();
        let mut places = vec![u32::MAX; count];
        for (plan, place) in clusters.iter().zip(0..) {
            places[plan.state.slot as usize] = place;
        }
        Self { places: places.into() }
    }
}

impl Plan {
    /// Returns the cluster whose state has this slot, if this plan has it.
    pub fn cluster_at(&self, slot: u32) -> Option<&Arc<ClusterPlan>> {
        self.clusters.get(*self.slots.places.get(slot as usize)? as usize)
    }

    /// Returns the cluster that has this state, if this plan has it.
    pub fn cluster_of(&self, state: &ClusterState) -> Option<&Arc<ClusterPlan>> {
        self.cluster_at(state.slot).filter(|plan| std::ptr::eq(&*plan.state, state))
    }

    /// Returns the cluster of this name.
    pub fn cluster(&self, name: &str) -> Option<&Arc<ClusterPlan>> {
        self.clusters.iter().find(|plan| plan.cluster.name.as_str() == name)
    }

    /// Returns the cache of this name.
    pub fn cache(&self, name: &str) -> Option<&Arc<CacheStore>> {
        self.caches.iter().find(|cache| cache.settings().name.as_str() == name)
    }

    /// Returns the table of this name.
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.iter().find(|table| table.name().as_str() == name)
    }

    /// Returns the listener of this name.
    pub fn listener(&self, name: &str) -> Option<&Arc<ListenerPlan>> {
        self.listeners.iter().find(|plan| plan.listener.name.as_str() == name)
    }
}

impl Plan {
    /// Returns the state of all limits by key: those of routes, and those on connections of an address.
    pub fn limits(&self) -> Vec<(LimitName, LimitState)> {
        let of_listener = |listener: &Arc<ListenerPlan>| {
            let (key, states) = listener.per_address.as_ref()?.limits();
            let (of, filter) = (format!("listeners/{}", listener.listener.name), "connections_per_address");
            let name = LimitName { of, filter, key, settings: 0 };
            Some(states.map(|state| (name.clone(), state)))
        };
        let listeners = self.listeners.iter().filter_map(of_listener).flatten();
        let routes = self
            .routes
            .iter()
            .flat_map(|plan| plan.chain.limits(&format!("routes/{}", plan.route.name)).collect::<Vec<_>>());
        listeners.chain(routes).collect()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("generation", &self.generation)
            .field("listeners", &self.listeners.len())
            .field("clusters", &self.clusters.len())
            .field("routes", &self.routes.len())
            .finish()
    }
}

/// A listener, compiled.
pub struct ListenerPlan {
    /// What was configured.
    pub listener: Arc<Listener>,
    /// Where its exchanges or connections go.
    pub target: ListenerTarget,
    /// Who is let in by address; `None`: everybody. The same `Arc` as long as the listener of this name has an equal list.
    pub admitted: Option<Arc<AddressTable>>,
    /// Bounds on the connections of each address.
    pub per_address: Option<PerAddress>,
    /// Tables by address that count its connections.
    pub tracked: Box<[Arc<Table>]>,
    /// Whose connections end after each response; `None`: no one's.
    pub no_keep_alive: Option<AgentList>,
    /// Shared with plans before and after this one.
    pub state: Arc<ListenerState>,
}

impl ListenerPlan {
    /// Returns whether clients from this address are accepted.
    #[inline]
    pub fn admits(&self, address: IpAddr) -> bool {
        self.admitted.as_ref().is_none_or(|table| table.allows(address))
    }
}

/// Where the exchanges or connections of a listener go.
#[derive(Clone)]
pub enum ListenerTarget {
    /// HTTP: each request finds its route.
    Http(Arc<Router>),
    /// Bytes or datagrams, all to one cluster.
    Tcp(Arc<ClusterPlan>),
    /// Bytes, by server name.
    Sni(Arc<SniTable>),
}

impl ListenerTarget {
    /// Returns whether both are the very same, so that nothing has to change.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Http(one), Self::Http(two)) => Arc::ptr_eq(one, two),
            (Self::Tcp(one), Self::Tcp(two)) => Arc::ptr_eq(one, two),
            (Self::Sni(one), Self::Sni(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}
