//! The endpoints of a cluster, compiled.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use model::snapshot::{Cluster, Endpoint};
use model::{Address, Name};

use crate::cluster::state::{ClusterState, EndpointState};
use crate::hash;

/// An endpoint, compiled.
#[derive(Clone)]
pub struct EndpointPlan {
    /// What was configured.
    pub endpoint: Configured,
    /// Hash of its name, by which consistent hashes know it.
    pub(crate) id: u64,
    /// Shared with plans before and after this one.
    pub state: Arc<EndpointState>,
}

impl EndpointPlan {
    /// Returns what makes it the same from plan to plan.
    pub(crate) fn identity(&self) -> (&Name, &Address) {
        (&self.endpoint.name, &self.endpoint.address)
    }
}

/// The endpoints of a cluster, compiled. Of a small cluster that nothing watches over they are made at the first look at them:
/// of very many clusters most may never get one, and what is known of an endpoint takes more room than its settings.
pub struct Endpoints {
    list: OnceLock<Box<[EndpointPlan]>>,
    cluster: Arc<Cluster>,
    state: Arc<ClusterState>,
}

impl Endpoints {
    /// Returns those of a cluster, none of them made yet.
    pub(super) fn new(cluster: &Arc<Cluster>, state: &Arc<ClusterState>) -> Self {
        Self { list: OnceLock::new(), cluster: Arc::clone(cluster), state: Arc::clone(state) }
    }

    /// Makes them now. What is known of endpoints stays as it is; see [`crate::Plan::take_effect`] for what a change means for it.
    pub(super) fn make_after(&self, previous: Option<&Self>) {
        // Nothing else knows of them yet.
        let _ = self.list.set(self.compile(previous));
    }

    fn compile(&self, previous: Option<&Self>) -> Box<[EndpointPlan]> {
        // One that has not made its own may do so at any time: then both have the same.
        if previous.is_some_and(|endpoints| !endpoints.are_made()) {
            return self.make();
        }
        let known = previous.map(Self::by_identity).unwrap_or_default();
        let compile = |(place, endpoint): (usize, &Endpoint)| {
            let state = match known.get(&(&endpoint.name, &endpoint.address)) {
                Some(kept) => kept.state.clone(),
                None => Arc::new(EndpointState::new(self.state.clone())),
            };
            self.plan_of(place, state)
        };
        self.cluster.endpoints.iter().enumerate().map(compile).collect()
    }

    /// Returns them by what makes them the same from plan to plan.
    pub(crate) fn by_identity(&self) -> HashMap<(&Name, &Address), &EndpointPlan> {
        self.iter().map(|plan| (plan.identity(), plan)).collect()
    }

    /// Returns whether anything has looked at them.
    pub fn are_made(&self) -> bool {
        self.list.get().is_some()
    }

    /// Returns them as they are, for a look at all clusters: of those that were never used, copies that go again.
    pub fn peek(&self) -> Cow<'_, [EndpointPlan]> {
        match self.list.get() {
            Some(list) => Cow::Borrowed(list),
            None => {
                let new = || Arc::new(EndpointState::new(Arc::clone(&self.state)));
                Cow::Owned((0..self.cluster.endpoints.len()).map(|place| self.plan_of(place, new())).collect())
            }
        }
    }

    fn plan_of(&self, place: usize, state: Arc<EndpointState>) -> EndpointPlan {
        let name = &self.cluster.endpoints[place].name;
        let settings = Configured { cluster: Arc::clone(&self.cluster), index: place as u32 };
        EndpointPlan { endpoint: settings, id: hash::of_bytes(name.as_str().as_bytes()), state }
    }

    #[cold]
    fn make(&self) -> Box<[EndpointPlan]> {
        let states = self.state.make_endpoints(&self.cluster.endpoints).into_iter();
        states.enumerate().map(|(place, state)| self.plan_of(place, state)).collect()
    }
}

impl Deref for Endpoints {
    type Target = [EndpointPlan];

    #[inline]
    fn deref(&self) -> &[EndpointPlan] {
        self.list.get_or_init(|| self.make())
    }
}

impl<'a> IntoIterator for &'a Endpoints {
    type Item = &'a EndpointPlan;
    type IntoIter = std::slice::Iter<'a, EndpointPlan>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The settings of an endpoint: a place in those of its cluster.
#[derive(Clone)]
pub struct Configured {
    cluster: Arc<Cluster>,
    index: u32,
}

impl Deref for Configured {
    type Target = Endpoint;

    #[inline]
    fn deref(&self) -> &Endpoint {
        &self.cluster.endpoints[self.index as usize]
    }
}
