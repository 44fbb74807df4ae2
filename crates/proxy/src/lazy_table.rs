//! Tables of what a worker makes at first use, by slot.

use std::cell::OnceCell;

/// Places of the first row, a power of two.
const FIRST: u32 = 64;
/// Rows that it takes for any slot.
const ROWS: usize = (u32::BITS - FIRST.ilog2() + 1) as usize;

/// Places by slot, each filled once. Rows are twice as long as the one before and made when one of their places is filled, so that
/// what nobody uses takes no room, and what is there stays where it is.
pub(crate) struct LazyTable<T> {
    rows: [OnceCell<Box<[OnceCell<T>]>>; ROWS],
}

impl<T> Default for LazyTable<T> {
    fn default() -> Self {
        Self { rows: [const { OnceCell::new() }; ROWS] }
    }
}

/// The row of a slot, and the place there.
#[inline]
fn at(slot: u32) -> (usize, usize) {
    let number = u64::from(slot) + u64::from(FIRST);
    let power = number.ilog2();
    ((power - FIRST.ilog2()) as usize, (number - (1 << power)) as usize)
}

impl<T> LazyTable<T> {
    /// What is there.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let (row, place) = at(slot);
        self.rows[row].get()?[place].get()
    }

    /// What is there, or else what is made now.
    pub(crate) fn get_or_init(&self, slot: u32, make: impl FnOnce() -> T) -> &T {
        let (row, place) = at(slot);
        let count = (FIRST as usize) << row;
        self.rows[row].get_or_init(|| (0..count).map(|_| OnceCell::new()).collect())[place].get_or_init(make)
    }

    /// Everything, in the order of slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let rows = self.rows.iter().filter_map(OnceCell::get);
        rows.flat_map(|row| row.iter()).filter_map(OnceCell::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_place_of_its_own_and_keeps_what_came_first() {
        let table = LazyTable::default();
        let slots = [0, 1, 63, 64, 65, 191, 192, 5_000, 5_001];
        for slot in slots {
            assert_eq!(table.get(slot), None);
            assert_eq!(*table.get_or_init(slot, || slot), slot);
            assert_eq!(*table.get_or_init(slot, || 7), slot);
        }
        assert_eq!(table.iter().copied().collect::<Vec<_>>(), slots);
        assert_eq!(table.get(66), None);
    }

    #[test]
    fn the_places_of_a_row_follow_those_of_the_row_before() {
        assert_eq!([0, 63, 64, 191, 192].map(at), [(0, 0), (0, 63), (1, 0), (1, 127), (2, 0)]);
        let (row, place) = at(u32::MAX);
        assert!(row < ROWS && place < (FIRST as usize) << row);
    }
}
