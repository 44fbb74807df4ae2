//! The search for the member that bears least, whatever is meant by that.

use model::limits::LEAST_TURNS_MAX;

use super::{Chance, Member, Tier, round_robin};
use crate::cluster::Lease;
use crate::random::scale;

/// Members up to which each is looked at.
const SCAN_MAX: usize = 64;
/// Members that are drawn where there are more.
const SAMPLE: usize = 16;

/// Times that a worker tries to take a turn that others take at the same moment. Then two of them may take the same one.
const RACES_MAX: u32 = 8;

/// Places in the tier, one for each turn among equals: every place as often as its weight, spread out. Empty where members are
/// drawn.
pub(super) fn turns(weights: &[u32]) -> Box<[u32]> {
    if weights.len() > SCAN_MAX { Box::default() } else { round_robin::sequence_within(weights, LEAST_TURNS_MAX) }
}

/// Takes a place at the member with the least burden; equals take turns. Another worker may fill it first: then the search is
/// made again, at most once for each member.
#[inline]
pub(super) fn take(
    tier: &Tier,
    turns: &[u32],
    chance: &mut Chance<'_>,
    (tried, burden): (&[u32], impl Fn(&Member) -> f64),
) -> Option<Lease> {
    let count = tier.members().len();
    if count > SCAN_MAX {
        return take_of_sample(tier, chance, tried, burden);
    }
    for _ in 0..count {
        if let Some(lease) = tier.take(least_of_all(tier, turns, tried, &burden)?) {
            return Some(lease);
        }
    }
    tier.take_any(0, tried)
}

fn least_of_all<'a>(
    tier: &'a Tier,
    turns: &[u32],
    tried: &[u32],
    burden: &impl Fn(&Member) -> f64,
) -> Option<&'a Member> {
    let mut least = f64::INFINITY;
    // A bit for each place: there are no more than SCAN_MAX.
    let mut equals = 0_u64;
    for (place, member) in tier.members().iter().enumerate().filter(|(_, member)| member.is_open(tried)) {
        let bears = burden(member);
        if bears < least {
            least = bears;
            equals = 1 << place;
        } else if bears == least {
            equals |= 1 << place;
        }
    }
    let place =
        if equals.count_ones() > 1 { whose_turn(tier, turns, equals) } else { equals.trailing_zeros() as usize };
    tier.members().get(place)
}

/// The place, of several that are equal, whose turn comes next. Turns of others are passed over, and come again in the next
/// round. All workers take turns from one counter.
fn whose_turn(tier: &Tier, turns: &[u32], equals: u64) -> usize {
    let mut place = equals.trailing_zeros();
    let mut from = tier.next_turn();
    for _ in 0..RACES_MAX {
        let Some(begin) = from.checked_rem(turns.len()) else { break };
        let (before, after) = turns.split_at(begin);
        let coming = after.iter().chain(before).enumerate();
        let Some((passed, &next)) = coming.into_iter().find(|(_, place)| equals >> **place & 1 == 1) else { break };
        place = next;
        match tier.pass_turn(from, from.wrapping_add(passed + 1)) {
            Ok(_) => break,
            Err(other) => from = other,
        }
    }
    place as usize
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
