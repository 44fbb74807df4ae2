//! Which cluster a TLS connection goes to that is passed on untouched.

use std::sync::Arc;

use model::HostPattern;

use crate::cluster::ClusterPlan;
use crate::route::hosts::{self, HostMap};

/// Clusters by the server name of the ClientHello: an exact name wins over a wildcard, a longer wildcard over a shorter.
pub struct SniTable {
    names: HostMap<Arc<ClusterPlan>>,
    otherwise: Option<Arc<ClusterPlan>>,
}

impl SniTable {
    pub(crate) fn new(names: &[(HostPattern, Arc<ClusterPlan>)], otherwise: Option<Arc<ClusterPlan>>) -> Self {
        let mut table = HostMap::default();
        // The first of two equal patterns stays.
        for (pattern, cluster) in names.iter().rev() {
            table.insert(pattern, cluster.clone());
        }
        Self { names: table, otherwise }
    }

    /// Returns the cluster for a server name in any case, or for a connection that names none. `None`: close it.
    pub fn find(&self, server_name: Option<&str>) -> Option<&Arc<ClusterPlan>> {
        let named = server_name.and_then(|name| {
            let mut host = Vec::with_capacity(name.len());
            hosts::normalise(name.as_bytes(), &mut host);
            self.names.find(&host)
        });
        named.or(self.otherwise.as_ref())
    }

    /// Returns whether every name leads to the very same cluster as in `other`, a table made from equal configuration.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same = |one: Option<&Arc<ClusterPlan>>, two: Option<&Arc<ClusterPlan>>| match (one, two) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        };
        self.names.same_as(&other.names, Arc::ptr_eq) && same(self.otherwise.as_ref(), other.otherwise.as_ref())
    }
}
