//! A place at an endpoint, for as long as it is held.

use std::fmt;
use std::sync::Arc;

use model::PickReason;

use super::state::EndpointState;
use crate::balance::TierState;

/// A place at an endpoint, held as long as the exchange or connection lasts. Dropping it gives the place back or, if
/// someone waits, hands it to the first in the queue.
#[must_use = "dropping a lease gives its place back"]
pub struct Lease {
    state: Arc<EndpointState>,
    index: u32,
    /// Where the place is counted beside the endpoint itself, if the balancer wants that.
    counted: Option<Arc<TierState>>,
    /// Whether it is counted for the bound of the cluster.
    pub(super) is_bounded: bool,
    reason: PickReason,
}

impl Lease {
    /// Wraps a place that was taken already.
    #[inline]
    pub(crate) fn new(
        state: &Arc<EndpointState>,
        index: u32,
        counted: Option<Arc<TierState>>,
        reason: PickReason,
    ) -> Self {
        Self { state: state.clone(), index, counted, is_bounded: false, reason }
    }

    /// Returns the same, picked for another reason.
    #[inline]
    pub fn because(mut self, reason: PickReason) -> Self {
        self.reason = reason;
        self
    }

    /// Returns why this endpoint was picked.
    #[inline]
    pub fn reason(&self) -> PickReason {
        self.reason
    }

    /// Returns the same for a plan where the endpoint has another place.
    pub(crate) fn at(mut self, index: u32) -> Self {
        self.index = index;
        self
    }

    /// Returns the index in [`crate::ClusterPlan::endpoints`] of the plan that picked it.
    #[inline]
    pub fn endpoint_index(&self) -> usize {
        self.index as usize
    }

    /// Returns the endpoint's state.
    #[inline]
    pub fn state(&self) -> &Arc<EndpointState> {
        &self.state
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Some(tier) = &self.counted {
            tier.leave();
        }
        self.state.release(self.is_bounded);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease(endpoint {}, slot {})", self.index, self.state.slot)
    }
}
