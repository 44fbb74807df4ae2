//! One of several clusters, by a value of the request.

use std::sync::Arc;

use model::{Name, RequestHead};

use crate::cluster::ClusterPlan;
use crate::filter::variables::Values;
use crate::filter::{Noted, Template};

/// The clusters that a value may name.
pub struct ClusterChoice {
    from: Template,
    /// In the order of the file, and behind them the one for other values, unless it is among them.
    clusters: Box<[Arc<ClusterPlan>]>,
    /// Names that are allowed, sorted, with places in `clusters`.
    table: Box<[(Name, u32)]>,
    /// The place of the one for other values.
    otherwise: Option<u32>,
}

impl ClusterChoice {
    pub(crate) fn new(from: Template, allowed: Vec<Arc<ClusterPlan>>, otherwise: Option<Arc<ClusterPlan>>) -> Self {
        let name = |plan: &Arc<ClusterPlan>| plan.cluster.name.clone();
        let mut table: Vec<(Name, u32)> = allowed.iter().map(name).zip(0..).collect();
        table.sort_unstable_by(|one, two| one.0.as_str().cmp(two.0.as_str()));
        let mut clusters = allowed;
        let otherwise = otherwise.map(|other| {
            let known = clusters.iter().position(|plan| Arc::ptr_eq(plan, &other));
            known.unwrap_or_else(|| {
                clusters.push(other);
                clusters.len() - 1
            }) as u32
        });
        Self { from, clusters: clusters.into(), table: table.into(), otherwise }
    }

    /// Returns the cluster that the request names, or the one for other values; `None` where there is none. Upper and lower case differ.
    /// Allocates nothing once `scratch` is large enough.
    pub fn choose(&self, head: &RequestHead, noted: Noted<'_>, scratch: &mut Vec<u8>) -> Option<&Arc<ClusterPlan>> {
        scratch.clear();
        self.from.write(&Values::of_request(head, noted.facts).with_notes(noted.notes), scratch);
        let named = self.table.binary_search_by(|(name, _)| name.as_str().as_bytes().cmp(scratch));
        let place = named.map_or(self.otherwise, |found| Some(self.table[found].1))?;
        self.clusters.get(place as usize)
    }

    /// Returns all of them, in the order of the file, and the one for other values.
    pub fn clusters(&self) -> &[Arc<ClusterPlan>] {
        &self.clusters
    }
}
