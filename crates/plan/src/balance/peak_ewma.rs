//! Peak-sensitive mean of response times, and two choices.

use super::{Ask, BalancerSpec, Chance, Tier, least_time, power_of_two};
use crate::balance::response_time::{Tick, Timing};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "peak_ewma",
    needs_settings: false,
    doc: "Of two endpoints that chance draws by weight, the one that will answer sooner, and slowness is noticed at once.\n\n\
        As `least_time`, with two differences: a time that is longer than the mean becomes the mean at once, and the mean \
        comes down again with `half_life` (10 s if not given); and only two endpoints are compared, so that not everybody \
        runs to the one that looks best. Known from Finagle and Linkerd.\n\n\
        The best choice where latency matters and endpoints have bad moments: pauses for garbage collection, a full disk, a \
        cold cache, a noisy neighbour.",
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
