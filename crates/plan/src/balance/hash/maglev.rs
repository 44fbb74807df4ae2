//! Maglev: a table that the members fill in turns, each in its own order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::super::Seed;
use crate::random::{mix, scale};

/// Sizes of tables: primes just below powers of two. The first is taken that has 100 slots for each endpoint. Another size
/// is another table altogether, so there are few of them, and even the smallest is large.
const SIZES: [u32; 4] = [65_521, 262_139, 1_048_573, 4_194_301];

/// The order in which a member looks for free slots: a step that has no divisor in common with the size reaches all.
struct Order {
    place: u32,
    slot: u32,
    step: u32,
}

/// Members of one weight, who take their turns together.
struct Group {
    weight: u32,
    orders: Vec<Order>,
    turns: u64,
}

/// The place of the owner of each slot.
///
/// A member of weight w takes its n-th turn at the time n / w. So the turns of the others stay in their order when a
/// member goes, which is what keeps nearly all slots with their owners.
pub(super) fn fill(seeds: &[Seed], configured: usize) -> Box<[u32]> {
    let size = size(configured.max(seeds.len()));
    let mut groups = groups(seeds, size);
    let mut slots = vec![0; size as usize].into_boxed_slice();
    // One bit for each slot, so that looking for a free one stays in the cache.
    let mut taken = vec![0_u64; size as usize / 64 + 1];
    let mut filled = 0;
    let time = |group: &Group| ((group.turns + 1) as f64 / f64::from(group.weight)).to_bits();
    // Bits of floating point numbers above zero are in the order of the numbers.
    let mut next: BinaryHeap<_> = groups.iter().enumerate().map(|(at, group)| Reverse((time(group), at))).collect();
    while let Some(Reverse((_, at))) = next.pop() {
        let group = &mut groups[at];
        for order in &mut group.orders {
            let slot = order.next_free(&mut taken, size);
            slots[slot as usize] = order.place;
            filled += 1;
            if filled == size {
                return slots;
            }
        }
        group.turns += 1;
        next.push(Reverse((time(group), at)));
    }
    slots
}

/// The owner of the slot that a key falls on.
#[inline]
pub(super) fn locate(slots: &[u32], key: u64) -> usize {
    slots[scale(key, slots.len() as u64) as usize] as usize
}

fn size(count: usize) -> u32 {
    SIZES.into_iter().find(|&size| size as usize >= 100 * count).unwrap_or(SIZES[SIZES.len() - 1])
}

/// Heaviest first; those of one weight in the order of their ids, whatever the order of the file.
fn groups(seeds: &[Seed], size: u32) -> Vec<Group> {
    let mut by_weight: BTreeMap<Reverse<u32>, Vec<(u64, u32)>> = BTreeMap::new();
    for (seed, place) in seeds.iter().zip(0..) {
        by_weight.entry(Reverse(seed.weight)).or_default().push((seed.id, place));
    }
    let group = |(Reverse(weight), mut members): (_, Vec<(u64, u32)>)| {
        members.sort_unstable();
        let order = |(id, place)| Order {
            place,
            slot: scale(mix(id), size.into()) as u32,
            step: 1 + scale(mix(!id), u64::from(size) - 1) as u32,
        };
        Group { weight, orders: members.into_iter().map(order).collect(), turns: 0 }
    };
    by_weight.into_iter().map(group).collect()
}

impl Order {
    /// Takes the next slot that nobody has; there must be one.
    fn next_free(&mut self, taken: &mut [u64], size: u32) -> u32 {
        loop {
            let slot = self.slot;
            self.slot += self.step;
            if self.slot >= size {
                self.slot -= size;
            }
            let bit = 1 << (slot % 64);
            if taken[slot as usize / 64] & bit == 0 {
                taken[slot as usize / 64] |= bit;
                return slot;
            }
        }
    }
}
