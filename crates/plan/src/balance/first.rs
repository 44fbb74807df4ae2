//! The first that has room.

use super::{BalancerSpec, Tier};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "first",
    needs_settings: false,
    doc: "The first endpoint of the file that has room: fill one up before the next gets work.\n\n\
        Give the endpoints a `connections_max`, or the first gets everything. Good for work that is cheapest on as few \
        endpoints as can be, so that the others may be switched off, and for licences that are counted by endpoint. Weights \
        have no meaning here, but that 0 gets no work. While more than 256 endpoints in front are full, a place that comes \
        free among them may be found some requests later.",
};

/// Full members in front that each pick looks at.
const EXACT_MAX: usize = 256;
/// Of more, so many are looked at by each pick, by turns.
const WINDOW: usize = 128;

#[inline]
pub(super) fn take(tier: &Tier, tried: &[u32]) -> Option<Lease> {
    let mark = tier.mark();
    if mark <= EXACT_MAX || mark >= tier.members().len() {
        return take_from(tier, 0, tried);
    }
    let begin = tier.turn() * WINDOW % mark;
    let window = tier.members()[begin..mark.min(begin + WINDOW)].iter();
    let found = (begin..).zip(window).find(|(_, member)| member.is_open(tried));
    let taken = found.and_then(|(place, member)| Some((place, tier.take(member)?)));
    match taken {
        Some((place, lease)) => {
            tier.set_mark(place);
            Some(lease)
        }
        None => take_from(tier, mark, tried),
    }
}

/// The first from some place on, around the circle, which becomes the mark.
fn take_from(tier: &Tier, start: usize, tried: &[u32]) -> Option<Lease> {
    let (before, after) = tier.members().split_at(start);
    let places = (start..).zip(after).chain((0..).zip(before));
    for (place, member) in places.filter(|(_, member)| member.is_open(tried)) {
        if let Some(lease) = tier.take(member) {
            // Those that are left out for having been tried may well have room.
            if tried.is_empty() && place != tier.mark() {
                tier.set_mark(place);
            }
            return Some(lease);
        }
    }
    None
}
