//! The first that has room.

use super::{Ask, Balancer, BalancerSpec, Chance, Configured, Seed, Tier, Waiting};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "first",
    needs_settings: false,
    doc: "The first endpoint in the file that has room: one is filled before the next gets requests.\n\n\
        Set `connections_max` of the endpoints, or the first gets everything. Good to use as few endpoints as possible, so that the others can be switched off, or for licences per endpoint. Weights have no effect, except that 0 gets no requests. While the first 256 endpoints are full, a free place among them may be found some requests late.",
};

/// Full members in front that each pick looks at.
const EXACT_MAX: usize = 256;
/// Of more, so many are looked at by each pick, by turns.
const WINDOW: usize = 128;

/// Nothing is computed ahead.
pub(super) struct First;

impl First {
    pub(super) fn new(_: &[Seed], _: Configured) -> Self {
        Self
    }
}

impl Balancer for First {
    const IS_ORDERED: bool = true;

    #[inline]
    fn take(&self, tier: &Tier, _: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        take(tier, ask.tried)
    }

    fn take_for_waiting(&self, tier: &Tier, _: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        take(tier, waiting.tried)
    }

    fn reason(_: &Ask<'_>) -> &'static str {
        "it is the first that has room"
    }
}

#[inline]
fn take(tier: &Tier, tried: &[u32]) -> Option<Lease> {
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
