//! By a key of the request.

mod ketama;
mod maglev;
mod rendezvous;

use model::PickReason;
use model::snapshot::{Hash, HashAlgorithm};

use super::{Ask, Balancer, BalancerSpec, Chance, Configured, Member, Seed, Tier, Waiting};
use crate::cluster::Lease;
use crate::random::mix;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "hash",
    needs_settings: true,
    doc: "By a key of the request: equal keys go to the same endpoint.\n\n\
        `balance: { hash: { on: { header: x-user }, algorithm: ketama, load_max: 125% } }`. `on` is `source` (the client's \
        address), `path`, `uri` (path and query), `{ header: NAME }`, `{ cookie: NAME }` or `{ query: NAME }`, or a list \
        of these: the first one that the request has is used. The hash uses the request as the route's filters leave it. A request without any key goes to a random endpoint, by weight.\n\n\
        The hash depends only on the names and weights of the endpoints, so all instances with the same endpoints send a key to the same one, also after a restart. When an endpoint is added or removed, nearly all other keys stay where they are. The algorithms:\n\n\
        - `rendezvous` (the default): key and endpoint together give a score, and the highest wins. Only the keys of a removed endpoint move; shares are as even as random ones. Up to 256 endpoints are all compared; more are compared in groups, where a change moves as many keys again for each level of groups. Nearly all keys move when the number of endpoints passes 256.\n\
        - `maglev`: a lookup table that the endpoints fill in turn, each in its own order. Shares are the most even, and a pick costs one lookup for any number of endpoints; the table takes 256 KiB or more. When an endpoint is removed, a few percent of the other keys move, too; nearly all move when the number of endpoints passes 655, 2,621 or 10,485, because \
        the table grows. From *Maglev: A Fast and Reliable Software Network Load Balancer*, 2016.\n\
        - `ketama`: 160 points of each endpoint on a ring; a key belongs to the next point. Only the keys of a removed endpoint move, and the cost hardly grows with the number of endpoints. Shares differ by about 8 % (one standard deviation).\n\n\
        `load_max` limits the effect of a popular key: an endpoint gets no request while it has more than this share of the average load in flight (*Consistent Hashing with Bounded Loads*, 2016). Such requests, and those whose endpoint is full or has failed them, go to the next endpoint of the key, which is always the same while it has room.",
};

pub(super) const SOURCE_SPEC: BalancerSpec = BalancerSpec {
    name: "source_hash",
    needs_settings: false,
    doc: "Sends the same client to the same endpoint, by its address.\n\n\
        Short for `hash` with `on: source`. The address is that of the client as trusted proxies report it. Also for TCP.",
};

/// Places that a key may lead to before the first with room is taken.
const TRIES_MAX: u64 = 24;

/// What was computed ahead for the members of a tier.
pub(in crate::balance) struct HashTable {
    table: Table,
    /// Percent of an even load, and the sum of all weights.
    bound: Option<(u32, u64)>,
}

enum Table {
    Ketama(ketama::Ring),
    Maglev(Box<[u32]>),
    Rendezvous(rendezvous::Scores),
}

impl HashTable {
    pub(super) fn new(hash: &Hash, seeds: &[Seed], configured: Configured) -> Self {
        let table = match hash.algorithm {
            HashAlgorithm::Ketama => Table::Ketama(ketama::Ring::new(seeds, configured)),
            HashAlgorithm::Maglev => Table::Maglev(maglev::fill(seeds, configured.count)),
            HashAlgorithm::Rendezvous => Table::Rendezvous(rendezvous::Scores::new(seeds, configured.count)),
        };
        let weight = seeds.iter().map(|seed| u64::from(seed.weight)).sum();
        Self { table, bound: hash.load_max.map(|percent| (percent, weight)) }
    }

    /// The member that a key belongs to.
    #[inline]
    fn locate(&self, key: u64) -> usize {
        match &self.table {
            Table::Ketama(ring) => ring.locate(key),
            Table::Maglev(slots) => maglev::locate(slots, key),
            Table::Rendezvous(scores) => scores.locate(key),
        }
    }
}

impl Balancer for HashTable {
    #[inline]
    fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        match ask.key {
            Some(key) => take(tier, self, key, ask.tried),
            None => take(tier, self, chance(), ask.tried).map(|lease| lease.because(tier.reason)),
        }
    }

    fn take_for_waiting(&self, tier: &Tier, chance: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        take(tier, self, waiting.key.unwrap_or_else(chance), waiting.tried)
    }

    /// For bounded loads.
    fn counts(&self) -> bool {
        self.bound.is_some()
    }

    fn reason(ask: &Ask<'_>) -> &'static str {
        match ask.key {
            Some(_) => "it is the endpoint of the request's key",
            None => "the request has no key to hash, so the choice is random",
        }
    }
}

/// Takes a place where a key leads.
fn take(tier: &Tier, table: &HashTable, key: u64, tried: &[u32]) -> Option<Lease> {
    let because = |lease: Lease, reason| if tier.reason == PickReason::Balance { lease.because(reason) } else { lease };
    let mut place = table.locate(key);
    for again in 1..=TRIES_MAX {
        let member = &tier.members()[place];
        if (tried.is_empty() || member.is_open(tried))
            && let Some(lease) = take_bounded(tier, member, table.bound)
        {
            return Some(because(lease, if again == 1 { PickReason::Hash } else { PickReason::Overflow }));
        }
        // Hashing again spreads the overflow of one endpoint over all others, where walking on would lead to one
        // (Chen, Coleman, Shrivastava: Revisiting Consistent Hashing with Bounded Loads, 2021).
        place = table.locate(mix(key.wrapping_add(again)));
    }
    if table.bound.is_some() {
        let open = |member: &&Member| member.is_open(tried);
        let bounded = tier.members().iter().filter(open).find_map(|member| take_bounded(tier, member, table.bound));
        if let Some(lease) = bounded {
            return Some(because(lease, PickReason::Overflow));
        }
    }
    tier.take_any(place, tried).map(|lease| because(lease, PickReason::Overflow))
}

/// Exact: the member never has more than its bound, and another worker that counts at the same time moves the bound by
/// one at most.
#[inline]
fn take_bounded(tier: &Tier, member: &Member, bound: Option<(u32, u64)>) -> Option<Lease> {
    let Some((percent, total)) = bound else { return tier.take(member) };
    let even = u64::from(percent) * (u64::from(tier.busy()) + 1) * u64::from(member.weight);
    let bound = u32::try_from(even.div_ceil(100 * total)).unwrap_or(u32::MAX);
    let max = member.max.map_or(bound, |max| max.min(bound));
    member.state.try_take_new(Some(max)).then(|| tier.lease(member))
}

#[cfg(test)]
mod tests;
