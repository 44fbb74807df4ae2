//! Endpoints that one who waits does not want.

use model::limits::ATTEMPTS_MAX;

/// What a slot is filled with that names no endpoint.
const NOBODY: u32 = u32::MAX;
const COUNT: usize = ATTEMPTS_MAX as usize;

/// The endpoints, by slot, that have failed in one exchange: as many as it may ask. Of more, which hedges may bring, the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tried {
    /// In order, so that equal sets are equal; those of endpoints come first.
    slots: [u32; COUNT],
}

impl Tried {
    /// No endpoint has failed.
    pub const NONE: Self = Self { slots: [NOBODY; COUNT] };

    /// Returns the set of endpoints that have failed.
    pub fn new(tried: &[u32]) -> Self {
        let mut all = Self::NONE;
        let last = tried.get(tried.len().saturating_sub(COUNT)..).unwrap_or_default();
        all.slots.iter_mut().zip(last).for_each(|(slot, tried)| *slot = *tried);
        all.slots.sort_unstable();
        all
    }

    /// Returns their slots.
    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots[..self.slots.partition_point(|slot| *slot != NOBODY)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_equal_in_whatever_order_their_endpoints_failed() {
        assert_eq!(Tried::new(&[]), Tried::NONE);
        assert!(Tried::NONE.slots().is_empty());
        assert_eq!(Tried::new(&[7, 3]), Tried::new(&[3, 7]));
        assert_eq!(Tried::new(&[7, 3]).slots(), [3, 7]);
        let many: Vec<u32> = (0..COUNT as u32 + 2).collect();
        assert_eq!(Tried::new(&many).slots(), &many[2..]);
    }
}
