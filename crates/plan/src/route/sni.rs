//! Which cluster a TLS connection goes to that is passed on untouched.

use std::sync::Arc;

use model::HostPattern;
use model::snapshot::AlpnRule;

use crate::cluster::ClusterPlan;
use crate::route::hosts::{self, HostMap};

/// Clusters by the ClientHello. Rules by application protocol come first, in their order; then names: an exact name wins over a
/// wildcard, a longer wildcard over a shorter.
pub struct SniTable {
    rules: Vec<Rule>,
    names: HostMap<Arc<ClusterPlan>>,
    otherwise: Option<Arc<ClusterPlan>>,
}

/// An [`AlpnRule`].
struct Rule {
    protocols: Box<[Box<[u8]>]>,
    /// `None`: every name, and none.
    names: Option<HostMap<()>>,
    cluster: Arc<ClusterPlan>,
}

impl SniTable {
    pub(crate) fn new(
        rules: &[(&AlpnRule, Arc<ClusterPlan>)],
        names: &[(HostPattern, Arc<ClusterPlan>)],
        otherwise: Option<Arc<ClusterPlan>>,
    ) -> Self {
        let mut table = HostMap::default();
        // The first of two equal patterns stays.
        for (pattern, cluster) in names.iter().rev() {
            table.insert(pattern, cluster.clone());
        }
        let rules = rules.iter().map(|(rule, cluster)| Rule::new(rule, cluster.clone())).collect();
        Self { rules, names: table, otherwise }
    }

    /// Returns the cluster for a server name in any case, or for a connection that names none, whose client offers those application
    /// protocols. `None`: close it.
    pub fn find<'a>(
        &self,
        server_name: Option<&str>,
        protocols: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Option<&Arc<ClusterPlan>> {
        let mut host = Vec::new();
        if let Some(name) = server_name {
            hosts::normalise(name.as_bytes(), &mut host);
        }
        let host = server_name.map(|_| host.as_slice());
        let ruled = self.rules.iter().find(|rule| rule.fits(host, protocols.clone())).map(|rule| &rule.cluster);
        let named = || host.and_then(|host| self.names.find(host));
        ruled.or_else(named).or(self.otherwise.as_ref())
    }

    /// Returns whether every connection leads to the very same cluster as in `other`, a table made from equal configuration.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same = |one: Option<&Arc<ClusterPlan>>, two: Option<&Arc<ClusterPlan>>| match (one, two) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        };
        self.rules.len() == other.rules.len()
            && self.rules.iter().zip(&other.rules).all(|(one, two)| one.is_same(two))
            && self.names.same_as(&other.names, Arc::ptr_eq)
            && same(self.otherwise.as_ref(), other.otherwise.as_ref())
    }
}

impl Rule {
    fn new(rule: &AlpnRule, cluster: Arc<ClusterPlan>) -> Self {
        let names = (!rule.names.is_empty()).then(|| {
            let mut names = HostMap::default();
            rule.names.iter().for_each(|pattern| names.insert(pattern, ()));
            names
        });
        Self { protocols: rule.protocols.iter().map(|name| name.as_bytes().into()).collect(), names, cluster }
    }

    fn fits<'a>(&self, host: Option<&[u8]>, mut protocols: impl Iterator<Item = &'a [u8]>) -> bool {
        protocols.any(|offered| self.protocols.iter().any(|protocol| **protocol == *offered))
            && self.names.as_ref().is_none_or(|names| host.is_some_and(|host| names.find(host).is_some()))
    }

    fn is_same(&self, other: &Self) -> bool {
        let names = match (&self.names, &other.names) {
            (Some(one), Some(two)) => one.same_as(two, |(), ()| true),
            (one, two) => one.is_none() && two.is_none(),
        };
        names && self.protocols == other.protocols && Arc::ptr_eq(&self.cluster, &other.cluster)
    }
}
