//! What balancers choose from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use model::PickReason;
use model::snapshot::Balance;

use super::Choice;
use crate::cluster::Lease;
use crate::cluster::state::EndpointState;
use crate::hash::FastMap;
use crate::padded::Padded;
use crate::random::{GOLDEN, mix};

/// An endpoint that may get work.
pub(crate) struct Member {
    pub(super) state: Arc<EndpointState>,
    pub(super) index: u32,
    pub(super) weight: u32,
    pub(super) max: Option<u32>,
}

impl Member {
    #[inline]
    pub(super) fn is_open(&self, tried: &[u32]) -> bool {
        !tried.contains(&self.state.slot) && !self.state.is_closed(self.max)
    }
}

/// Endpoints of equal preference, prepared for one balancer.
pub(crate) struct Tier {
    members: Box<[Member]>,
    choice: Choice,
    state: Arc<TierState>,
    /// Whether places taken here are counted in `state`.
    counts: bool,
    /// Where the shares of this tier and all before it end, of [`super::priority::WHOLE`].
    pub(super) share_end: u64,
    /// Why members of this tier are picked, if nothing more is to be said of a pick.
    pub(super) reason: PickReason,
}

/// What tells the tiers of a cluster apart, whatever plan they are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TierKey {
    /// What its subset is called by; 0 for the whole cluster.
    pub(super) subset: u64,
    /// Whether it is of backups, which come last.
    pub(super) is_backup: bool,
    /// The smaller comes first.
    pub(super) priority: u32,
    /// Whether it is of endpoints in other zones, which come after those in the own one.
    pub(super) is_far: bool,
}

/// What all workers share about a tier, whatever view shows it.
#[derive(Default)]
pub(crate) struct TierState {
    turns: Padded<AtomicUsize>,
    busy: Padded<AtomicU32>,
    /// Where the first member with room was found: those before it were full. Only a hint.
    mark: AtomicUsize,
    /// Places that were handed to those who waited.
    handed: AtomicUsize,
}

impl TierState {
    /// Becomes what another is.
    pub(crate) fn copy_from(&self, other: &Self) {
        self.turns.store(other.turns.load(Ordering::Relaxed), Ordering::Relaxed);
        self.busy.store(other.busy.load(Ordering::Relaxed), Ordering::Relaxed);
        self.mark.store(other.mark.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Counts a place.
    pub(crate) fn enter(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives back what [`Tier::lease`] counted.
    pub(crate) fn leave(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A member as balancers prepare for it: the same on every instance of the program that has the same configuration.
#[derive(Clone, Copy)]
pub(super) struct Seed {
    /// Hash of the endpoint's name.
    pub(super) id: u64,
    pub(super) weight: u32,
}

/// Returns the weights of these members.
pub(super) fn weights(seeds: &[Seed]) -> Vec<u32> {
    seeds.iter().map(|seed| seed.weight).collect()
}

/// The endpoints of a tier that are configured, whether they are up or not: what is sized by them stays as it is while
/// endpoints go down and come up.
#[derive(Clone, Copy, Default)]
pub(super) struct Configured {
    pub(super) count: usize,
    pub(super) weight: u64,
    /// How many parts of a member's weight are one of the weight that is configured.
    pub(super) scale: u32,
}

impl Tier {
    /// `share_end` and `reason` are left to the caller.
    pub(super) fn new(
        balance: &Balance,
        members: Vec<(Member, u64)>,
        configured: Configured,
        state: Arc<TierState>,
    ) -> Self {
        let seeds: Vec<Seed> = members.iter().map(|(member, id)| Seed { id: *id, weight: member.weight }).collect();
        let members: Box<[Member]> = members.into_iter().map(|(member, _)| member).collect();
        let choice = Choice::new(balance, &seeds, configured);
        let counts = choice.counts();
        Self { members, choice, state, counts, share_end: 0, reason: PickReason::Balance }
    }

    #[inline]
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Members whose places are counted in the tier as well, by the places of their endpoints, and where.
    pub(crate) fn counted(&self) -> Option<(impl Iterator<Item = u32>, &Arc<TierState>)> {
        self.counts.then(|| (self.members.iter().map(|member| member.index), &self.state))
    }

    /// The slots of its endpoints.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.members.iter().map(|member| member.state.slot)
    }

    /// The places of its endpoints.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        self.members.iter().map(|member| member.index)
    }

    #[inline]
    pub(super) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The next turn. Relaxed: turns only have to differ.
    #[inline]
    pub(super) fn turn(&self) -> usize {
        self.state.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// The turn that comes next, without taking it.
    #[inline]
    pub(super) fn next_turn(&self) -> usize {
        self.state.turns.load(Ordering::Relaxed)
    }

    /// Goes on from one turn to another, unless another worker has gone on from there already: then says to which.
    #[inline]
    pub(super) fn pass_turn(&self, from: usize, to: usize) -> Result<usize, usize> {
        self.state.turns.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn mark(&self) -> usize {
        self.state.mark.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set_mark(&self, place: usize) {
        self.state.mark.store(place, Ordering::Relaxed);
    }

    /// Bits that look random, others at each call, for places that are handed over: there nobody's chance is at hand.
    pub(super) fn bits(&self) -> u64 {
        mix((self.state.handed.fetch_add(1, Ordering::Relaxed) as u64).wrapping_mul(GOLDEN))
    }

    /// Places taken now, if they are counted.
    #[inline]
    pub(super) fn busy(&self) -> u32 {
        self.state.busy.load(Ordering::Relaxed)
    }

    /// Takes any free place, whatever the balancer would choose, for one who waited: whose turn it is was settled before.
    /// `known`: only at members with these slots; at none that were `tried`.
    pub(super) fn take_free(&self, known: Option<&FastMap<u32, u32>>, tried: &[u32]) -> Option<Lease> {
        let start = if self.choice.is_ordered() { 0 } else { self.bits() as usize };
        let (before, after) = self.members.split_at(start.checked_rem(self.members.len())?);
        let is_known = |member: &Member| known.is_none_or(|known| known.contains_key(&member.state.slot));
        let may_be = |member: &Member| is_known(member) && !tried.contains(&member.state.slot);
        let open = |member: &&Member| may_be(member) && !member.state.is_full(member.max);
        let taken = after.iter().chain(before).filter(open).find(|member| member.state.try_take(member.max));
        taken.map(|member| self.lease(member))
    }

    /// Takes a place at a member for a newcomer, if it has one.
    #[inline]
    pub(super) fn take(&self, member: &Member) -> Option<Lease> {
        member.state.try_take_new(member.max).then(|| self.lease(member))
    }

    /// The lease for a place that was taken.
    #[inline]
    pub(super) fn lease(&self, member: &Member) -> Lease {
        let counted = self.counts.then(|| {
            self.state.enter();
            self.state.clone()
        });
        Lease::new(&member.state, member.index, counted, self.reason)
    }

    /// Takes the first free place from `start` on, around the circle. Sees every member.
    pub(super) fn take_any(&self, start: usize, tried: &[u32]) -> Option<Lease> {
        let start = start.checked_rem(self.members.len())?;
        let (before, after) = self.members.split_at(start);
        after.iter().chain(before).find_map(|member| if member.is_open(tried) { self.take(member) } else { None })
    }
}
