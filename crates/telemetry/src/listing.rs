//! All series at a moment: what the registry lists, and both pages are made from.

use std::sync::Arc;

use model::snapshot::Cluster;
use model::{Name, Snapshot};

use crate::figures::Gone;
use crate::series::{ClusterSeries, EndpointSeries, ListenerSeries, RouteSeries, Series};

/// Every series at a moment, in the order of names.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) listeners: Vec<(Name, Arc<ListenerSeries>)>,
    pub(crate) routes: Vec<(Name, Arc<RouteSeries>)>,
    pub(crate) clusters: Vec<(Name, Arc<ClusterSeries>)>,
    pub(crate) endpoints: Vec<((Name, Name), Arc<EndpointSeries>)>,
    pub(crate) gone: Gone,
    pub(crate) workers: usize,
}

impl Listing {
    /// Adds what is configured and was not used yet.
    pub(crate) fn add_unused(&mut self, snapshot: &Snapshot) {
        let endpoints = |cluster: &Arc<Cluster>| {
            let name = cluster.name.clone();
            let ids = cluster.endpoints.iter().map(move |endpoint| (name.clone(), endpoint.name.clone()));
            ids.collect::<Vec<_>>()
        };
        add_unused(&mut self.listeners, snapshot.listeners.iter().map(|listener| listener.name.clone()));
        add_unused(&mut self.routes, snapshot.routes.iter().map(|route| route.name.clone()));
        add_unused(&mut self.clusters, snapshot.clusters.iter().map(|cluster| cluster.name.clone()));
        add_unused(&mut self.endpoints, snapshot.clusters.iter().flat_map(endpoints));
    }
}

fn add_unused<K: Ord, S: Default>(list: &mut Vec<(K, Arc<Series<S>>)>, configured: impl Iterator<Item = K>) {
    // It has no shard, and never will.
    let nothing = Arc::new(Series::new(0));
    let is_used = |key: &K| list.binary_search_by(|(known, _)| known.cmp(key)).is_ok();
    let unused: Vec<K> = configured.filter(|key| !is_used(key)).collect();
    list.extend(unused.into_iter().map(|key| (key, Arc::clone(&nothing))));
    list.sort_by(|(one, _), (other, _)| one.cmp(other));
}
