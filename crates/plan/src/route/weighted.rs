//! One of several clusters, at random by weight.

use std::sync::Arc;

use crate::cluster::ClusterPlan;
use crate::random::scale;

/// Clusters with their shares. At least one has a weight above 0.
pub struct WeightedClusters {
    clusters: Box<[Arc<ClusterPlan>]>,
    /// Sums of the weights up to and with each cluster.
    sums: Box<[u64]>,
    /// Whether sessions stay with the endpoints of any of them.
    has_sessions: bool,
}

impl WeightedClusters {
    /// Creates a choice. Returns `None` unless the sum of the weights is above 0.
    pub(crate) fn new(shares: Vec<(Arc<ClusterPlan>, u32)>) -> Option<Self> {
        let add = |sum: &mut u64, (_, weight): &(_, u32)| {
            *sum += u64::from(*weight);
            Some(*sum)
        };
        let sums: Box<[u64]> = shares.iter().scan(0, add).collect();
        let clusters: Box<[Arc<ClusterPlan>]> = shares.into_iter().map(|(cluster, _)| cluster).collect();
        let has_sessions = clusters.iter().any(|cluster| cluster.persistence.is_some());
        sums.last().is_some_and(|&total| total > 0).then_some(Self { clusters, sums, has_sessions })
    }

    /// Returns the cluster that 64 random bits fall on; one of weight 0 never.
    #[inline]
    pub fn choose(&self, random: u64) -> &Arc<ClusterPlan> {
        let drawn = scale(random, self.sums[self.sums.len() - 1]);
        &self.clusters[self.sums.partition_point(|&sum| sum <= drawn)]
    }

    /// Returns all of them, each with its share in percent.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&Arc<ClusterPlan>, f64)> {
        let total = self.sums.last().copied().unwrap_or(1) as f64;
        let before = std::iter::once(0).chain(self.sums.iter().copied());
        let weights = self.sums.iter().zip(before).map(|(sum, before)| sum - before);
        self.clusters.iter().zip(weights.map(move |weight| weight as f64 * 100.0 / total))
    }

    /// Returns whether a request may have a session in one of them.
    #[inline]
    pub fn have_sessions(&self) -> bool {
        self.has_sessions
    }

    /// Returns all of them, in the order of the file.
    pub fn clusters(&self) -> &[Arc<ClusterPlan>] {
        &self.clusters
    }
}
