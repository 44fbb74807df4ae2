//! Small dense numbers for things that live across plans, so that workers can index tables by them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

/// Where numbers come from; one for each kind of thing.
pub(crate) struct SlotSpace(Mutex<Free>);

struct Free {
    returned: BinaryHeap<Reverse<u32>>,
    next: u32,
}

/// A number held by one live thing. It returns to its space when dropped.
pub(crate) struct Slot {
    number: u32,
    space: &'static SlotSpace,
}

impl SlotSpace {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Free { returned: BinaryHeap::new(), next: 0 }))
    }

    /// Returns the smallest number that is free, so that tables stay as small as they can be.
    pub(crate) fn take(&'static self) -> Slot {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match free.returned.pop() {
            Some(Reverse(number)) => number,
            None => {
                free.next += 1;
                free.next - 1
            }
        };
        Slot { number, space: self }
    }
}

impl Slot {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.space.0.lock().unwrap_or_else(PoisonError::into_inner).returned.push(Reverse(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_among_the_living_and_the_smallest_free_one_comes_next() {
        static SPACE: SlotSpace = SlotSpace::new();
        let mut held: Vec<Slot> = (0..4).map(|_| SPACE.take()).collect();
        assert_eq!(held.iter().map(Slot::number).collect::<Vec<_>>(), [0, 1, 2, 3]);
        held.remove(2);
        held.remove(0);
        assert_eq!(held.iter().map(Slot::number).collect::<Vec<_>>(), [1, 3]);
        let again = [SPACE.take(), SPACE.take(), SPACE.take()];
        assert_eq!(again.each_ref().map(Slot::number), [0, 2, 4]);
    }
}
