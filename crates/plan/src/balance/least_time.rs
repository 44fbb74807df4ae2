//! Shortest time to answer, with what is in flight.

use super::{Ask, BalancerSpec, Chance, Member, Tier, least};
use crate::balance::response_time::{Tick, Timing};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "least_time",
    needs_settings: false,
    doc: "The endpoint that will answer soonest: mean time to answer × (exchanges in flight + 1) / weight.\n\n\
        The time is that from the request being sent to the head of its response; for TCP that to connect. \
        `{ least_time: { half_life: 10s } }` says after which time an answer counts half. While nothing is heard of an \
        endpoint its mean fades, so that one that was slow is tried again. An endpoint of which nothing is known gets one \
        request to begin with. A failure, or a status from 500 to 599, counts as a second at least: who fails fast does \
        not look fast. Endpoints that are equal, such as those of which nothing is known, take turns by \
        weight. With more than 64 endpoints, the balancer looks at 16 of them that chance draws.\n\n\
        Good when endpoints differ in speed, steadily. Where they have bad moments, or several instances of the program \
        face the same endpoints, `peak_ewma` follows faster and does not herd.",
};

/// What is not known yet is taken to last so long while it is being found out, in microseconds.
const UNKNOWN: f32 = 1e6;

#[inline]
pub(super) fn take(
    tier: &Tier,
    (turns, timing): (&[u32], Timing),
    chance: &mut Chance<'_>,
    ask: &Ask<'_>,
) -> Option<Lease> {
    let now = Tick::of(ask.now);
    least::take(tier, turns, chance, (ask.tried, |member: &Member| burden(member, now, timing)))
}

/// The time until a new exchange is answered, as far as can be told, by weight.
#[inline]
pub(super) fn burden(member: &Member, now: Tick, timing: Timing) -> f64 {
    let in_flight = member.state.in_flight() as f32;
    let mean = member.state.response_time().read(now, timing);
    // Means that have faded below a microsecond tell nothing any more.
    let time = if mean < 1.0 { UNKNOWN * in_flight } else { mean * (in_flight + 1.0) };
    f64::from(time) / f64::from(member.weight)
}
