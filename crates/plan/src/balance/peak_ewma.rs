//! Peak-sensitive mean of response times, and two choices.

use super::{Ask, BalancerSpec, Chance, Tier, least_time, power_of_two};
use crate::balance::response_time::{Tick, Timing};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "peak_ewma",
    needs_settings: false,
    doc: "The better of two random endpoints, drawn by weight: the one that is expected to respond sooner. Reacts to slowness at once.\n\n\
        Like `least_time`, with two differences: a time above the mean becomes the mean at once, which then decays with `half_life` (10 s by default); and only two endpoints are compared, so that not all requests go to the one that looks best. Known from Finagle and Linkerd.\n\n\
        The best choice if latency matters and the speed of endpoints varies: garbage collection pauses, a full disk, a cold cache, a noisy neighbour.",
};

#[inline]
pub(super) fn take(
    tier: &Tier,
    (sums, timing): (&[u64], Timing),
    chance: &mut Chance<'_>,
    ask: &Ask<'_>,
) -> Option<Lease> {
    let now = Tick::of(ask.now);
    power_of_two::take_lighter(tier, sums, chance, (ask.tried, |member| least_time::burden(member, now, timing)))
}
