//! Fewest exchanges in flight.

use super::{BalancerSpec, Chance, Member, Tier};
use crate::cluster::Lease;
use crate::random::scale;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "least_request",
    doc: "The endpoint with the fewest exchanges in flight for its weight.\n\n\
        An endpoint of weight 2 is taken to bear twice as many at once as one of weight 1. The counts are those of the \
        whole process, and every endpoint is looked at. Among equals, such as all idle endpoints, chance decides by weight. \
        Good when requests differ much in cost.",
};

/// Exchanges in flight at a member of some weight.
#[derive(Clone, Copy)]
struct Load {
    in_flight: u64,
    weight: u64,
}

impl Load {
    fn of(member: &Member) -> Self {
        Self { in_flight: member.state.in_flight().into(), weight: member.weight.into() }
    }

    /// Compares `in_flight / weight` without dividing.
    fn order(self, other: Self) -> std::cmp::Ordering {
        (self.in_flight * other.weight).cmp(&(other.in_flight * self.weight))
    }
}

/// Another worker may fill the chosen one first: then the search is made again, at most once for each endpoint.
#[inline]
pub(super) fn take(tier: &Tier, chance: &mut Chance<'_>, tried: &[u32]) -> Option<Lease> {
    for _ in 0..tier.members().len() {
        if let Some(lease) = tier.take(least_loaded(tier, chance, tried)?) {
            return Some(lease);
        }
    }
    tier.take_any(0, tried)
}

fn least_loaded<'a>(tier: &'a Tier, chance: &mut Chance<'_>, tried: &[u32]) -> Option<&'a Member> {
    let mut best: Option<(&Member, Load)> = None;
    let mut equals = 1_u32;
    let mut equal_weight = 0;
    for member in tier.members().iter().filter(|member| member.is_open(tried)) {
        let load = Load::of(member);
        let order = best.map_or(std::cmp::Ordering::Less, |(_, least)| load.order(least));
        if order.is_lt() {
            best = Some((member, load));
            equals = 1;
            equal_weight = load.weight;
        } else if order.is_eq() {
            equals += 1;
            equal_weight += load.weight;
        }
    }
    let (first, least) = best?;
    if equals == 1 { Some(first) } else { Some(among_equals(tier, least, scale(chance(), equal_weight), tried, first)) }
}

/// The one that `drawn`, a number below the sum of the weights of all that bear `least`, falls on. Counts may have moved
/// since they were compared; `otherwise` stands in when too few equals are left.
fn among_equals<'a>(tier: &'a Tier, least: Load, mut drawn: u64, tried: &[u32], otherwise: &'a Member) -> &'a Member {
    for member in tier.members().iter().filter(|member| member.is_open(tried)) {
        if Load::of(member).order(least).is_eq() {
            match drawn.checked_sub(member.weight.into()) {
                Some(rest) => drawn = rest,
                None => return member,
            }
        }
    }
    otherwise
}
