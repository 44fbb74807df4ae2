//! A route as workers hold it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::snapshot::Route;
use model::{LocalResponse, Name, RequestHead};

use super::choice::ClusterChoice;
use super::conditions::Conditions;
use super::redirect::RedirectPlan;
use super::weighted::WeightedClusters;
use crate::cluster::ClusterPlan;
use crate::cluster::subset::{Subset, SubsetPlan};
use crate::expression::Used;
use crate::filter::Chain;

/// A route, compiled.
pub struct RoutePlan {
    /// What was configured.
    pub route: Arc<Route>,
    /// Its place in [`Plan::routes`](crate::Plan::routes).
    pub index: usize,
    /// What happens.
    pub action: ActionPlan,
    /// Its filters. The same `Arc` as long as the route of this name lists equal filters.
    pub chain: Arc<Chain>,
    /// Clusters that its filters call, see [`crate::filter::Call`].
    pub called: Box<[Arc<ClusterPlan>]>,
    /// Bound on the whole exchange.
    pub timeout: Option<Duration>,
    pub(crate) subset: Option<SubsetPlan>,
    pub(crate) conditions: Arc<Conditions>,
}

impl RoutePlan {
    /// Returns the name.
    pub fn name(&self) -> &Name {
        &self.route.name
    }

    /// Returns the endpoints of `cluster` that a request of this route may go to. For [`Ask::subset`](crate::Ask::subset).
    #[inline]
    pub fn subset(&self, cluster: &ClusterPlan, head: &RequestHead) -> Subset {
        self.subset.as_ref().map_or(Subset::ALL, |rule| cluster.subsets.find(rule, head))
    }
}

impl fmt::Debug for RoutePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RoutePlan({})", self.route.name)
    }
}

/// What a route does, compiled.
pub enum ActionPlan {
    /// Forward to one cluster.
    Cluster(Arc<ClusterPlan>),
    /// Forward to one of several, see [`WeightedClusters::choose`].
    Weighted(WeightedClusters),
    /// Forward to the one that the request names, see [`ClusterChoice::choose`].
    Choice(ClusterChoice),
    /// Answer here.
    Respond(LocalResponse),
    /// Send the client elsewhere.
    Redirect(RedirectPlan),
}

impl ActionPlan {
    /// Returns the clusters it may forward to.
    pub fn clusters(&self) -> &[Arc<ClusterPlan>] {
        match self {
            Self::Cluster(cluster) => std::slice::from_ref(cluster),
            Self::Weighted(weighted) => weighted.clusters(),
            Self::Choice(choice) => choice.clusters(),
            Self::Respond(_) | Self::Redirect(_) => &[],
        }
    }

    /// Returns the maps and tables that it uses.
    pub(crate) fn used(&self) -> Option<&Used> {
        match self {
            Self::Redirect(redirect) => redirect.used(),
            _ => None,
        }
    }

    /// Returns the same with the share in percent that each gets.
    pub(crate) fn shares(&self) -> Vec<(&Arc<ClusterPlan>, f64)> {
        match self {
            Self::Weighted(weighted) => weighted.shares().collect(),
            _ => self.clusters().iter().map(|cluster| (cluster, 100.0)).collect(),
        }
    }
}
