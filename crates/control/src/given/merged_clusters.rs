//! Merges the endpoints of providers into the clusters that ask for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::snapshot::{Cluster, Endpoint};
use model::{Name, Snapshot};

/// The merged clusters of the last snapshot. A cluster with the same settings and endpoints keeps its `Arc`.
#[derive(Debug, Default)]
pub(super) struct MergedClusters(Mutex<HashMap<Name, MergedCluster>>);

/// A cluster with its endpoints, and the parts it was made from.
#[derive(Debug)]
struct MergedCluster {
    bare: Arc<Cluster>,
    endpoints: Arc<[Endpoint]>,
    whole: Arc<Cluster>,
}

impl MergedClusters {
    /// Merges the endpoints that `find` returns for a provider and a key into the clusters of a snapshot.
    pub(super) fn apply<'a>(&self, snapshot: &mut Snapshot, find: impl Fn(&str, &str) -> Option<&'a Arc<[Endpoint]>>) {
        // A panic leaves it consistent: each entry is written whole.
        let mut merged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *merged);
        for cluster in &mut snapshot.clusters {
            let Some(from) = &cluster.endpoints_from else { continue };
            let Some(found) = find(from.provider.as_str(), &from.key) else { continue };
            let known = before.remove(&cluster.name);
            let is_same =
                |known: &MergedCluster| Arc::ptr_eq(&known.bare, cluster) && Arc::ptr_eq(&known.endpoints, found);
            let now = known.filter(is_same).unwrap_or_else(|| MergedCluster {
                bare: Arc::clone(cluster),
                endpoints: Arc::clone(found),
                whole: Arc::new(Cluster { endpoints: found.to_vec(), ..Cluster::clone(cluster) }),
            });
            *cluster = Arc::clone(&now.whole);
            merged.insert(cluster.name.clone(), now);
        }
    }
}
