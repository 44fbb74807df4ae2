//! Shortest time to answer, with what is in flight.

use std::time::Duration;

use super::{
    Ask, Balancer, BalancerSpec, Chance, Configured, Member, Seed, Tier, Waiting, least, least_request, weights,
};
use crate::balance::response_time::{Tick, Timing};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "least_time",
    needs_settings: false,
    doc: "The endpoint that is expected to respond soonest: mean response time × (exchanges in flight + 1) / weight.\n\n\
        The time runs from sending the request to the head of its response; for TCP it is the time to connect. `{ least_time: { half_life: 10s } }` sets the time after which a response counts half. Without responses the mean decays, so that a slow endpoint is tried again. An unknown endpoint first gets one request. A failure, or a status from 500 to 599, counts as at least one second, so that failing fast does not look fast. Equal endpoints, such as unknown ones, take turns by weight. With more than 64 endpoints, the balancer compares 16 random ones.\n\n\
        Good when endpoints differ constantly in speed. If their speed varies, or several instances of the program use the same endpoints, `peak_ewma` adapts faster and avoids herding.",
};

/// What is not known yet is taken to last so long while it is being found out, in microseconds.
const UNKNOWN: f32 = 1e6;

/// As [`least_request`], and how times are averaged.
pub(super) struct LeastTime {
    turns: Box<[u32]>,
    timing: Timing,
}

impl LeastTime {
    pub(super) fn new(half_life: Duration, seeds: &[Seed], _: Configured) -> Self {
        Self { turns: least::turns(&weights(seeds)), timing: Timing::new(half_life, false) }
    }
}

impl Balancer for LeastTime {
    #[inline]
    fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        let now = Tick::of(ask.now);
        least::take(tier, &self.turns, chance, (ask.tried, |member: &Member| burden(member, now, self.timing)))
    }

    /// By load, as there is no time to go by.
    fn take_for_waiting(&self, tier: &Tier, chance: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        least_request::take(tier, &self.turns, chance, waiting.tried)
    }

    fn reason(_: &Ask<'_>) -> &'static str {
        "it is likely to answer soonest"
    }
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
