//! The search for the member that bears least, whatever is meant by that.

use super::{Chance, Member, Tier};
use crate::cluster::Lease;
use crate::random::scale;

/// Members up to which each is looked at.
const SCAN_MAX: usize = 64;
/// Members that are drawn where there are more.
const SAMPLE: usize = 16;

/// Takes a place at the member with the least burden. Another worker may fill it first: then the search is made again, at
/// most once for each member.
#[inline]
pub(super) fn take(
    tier: &Tier,
    chance: &mut Chance<'_>,
    tried: &[u32],
    burden: impl Fn(&Member) -> f64,
) -> Option<Lease> {
    let count = tier.members().len();
    if count > SCAN_MAX {
        return take_of_sample(tier, chance, tried, burden);
    }
    for _ in 0..count {
        if let Some(lease) = tier.take(least_of_all(tier, chance, tried, &burden)?) {
            return Some(lease);
        }
    }
    tier.take_any(0, tried)
}

fn least_of_all<'a>(
    tier: &'a Tier,
    chance: &mut Chance<'_>,
    tried: &[u32],
    burden: &impl Fn(&Member) -> f64,
) -> Option<&'a Member> {
    let mut best: Option<(&Member, f64)> = None;
    let mut equals = 1_u32;
    let mut equal_weight = 0;
    for member in tier.members().iter().filter(|member| member.is_open(tried)) {
        let bears = burden(member);
        let least = best.map_or(f64::INFINITY, |(_, least)| least);
        if bears < least {
            best = Some((member, bears));
            equals = 1;
            equal_weight = u64::from(member.weight);
        } else if bears == least {
            equals += 1;
            equal_weight += u64::from(member.weight);
        }
    }
    let (first, least) = best?;
    if equals == 1 {
        return Some(first);
    }
    // The one that `drawn` falls on. Burdens may have moved since they were compared: the first stands in when too few
    // equals are left.
    let mut drawn = scale(chance(), equal_weight);
    for member in tier.members().iter().filter(|member| member.is_open(tried)) {
        if burden(member) == least {
            match drawn.checked_sub(member.weight.into()) {
                Some(rest) => drawn = rest,
                None => return Some(member),
            }
        }
    }
    Some(first)
}

/// The least of some that are drawn. Among equals the first counts, which chance has drawn.
#[inline]
fn take_of_sample(
    tier: &Tier,
    chance: &mut Chance<'_>,
    tried: &[u32],
    burden: impl Fn(&Member) -> f64,
) -> Option<Lease> {
    let count = tier.members().len() as u64;
    let mut place = 0;
    for _ in 0..2 {
        let mut best: Option<(&Member, f64)> = None;
        for _ in 0..SAMPLE {
            place = scale(chance(), count) as usize;
            let member = &tier.members()[place];
            if member.is_open(tried) {
                let bears = burden(member);
                if best.is_none_or(|(_, least)| bears < least) {
                    best = Some((member, bears));
                }
            }
        }
        if let Some(lease) = best.and_then(|(member, _)| tier.take(member)) {
            return Some(lease);
        }
    }
    tier.take_any(place, tried)
}
