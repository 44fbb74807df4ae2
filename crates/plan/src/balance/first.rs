//! The first that has room.

use super::{BalancerSpec, Tier};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "first",
    doc: "The first endpoint of the file that has room: fill one up before the next gets work.\n\n\
        Give the endpoints a `connections_max`, or the first gets everything. Good for work that is cheapest on as few \
        endpoints as can be, so that the others may be switched off, and for licences that are counted by endpoint. Weights \
        have no meaning here, but that 0 gets no work.",
};

#[inline]
pub(super) fn take(tier: &Tier, tried: &[u32]) -> Option<Lease> {
    tier.take_any(0, tried)
}
