//! How much of the responses on one connection was read, for who opens its windows.

use std::cell::Cell;

/// What the readers of a connection have taken in one turn, which lasts until one of them has taken as much as its window holds.
pub(crate) struct Taken {
    turn: Cell<u32>,
    most: Cell<u32>,
    window: Cell<u32>,
}

/// What one reader has taken in a turn.
#[derive(Default)]
pub(super) struct Share {
    turn: u32,
    bytes: u32,
}

impl Taken {
    /// Nothing yet, of windows of so many bytes.
    pub(super) fn new(window: u32) -> Self {
        Self { turn: Cell::new(0), most: Cell::new(0), window: Cell::new(window) }
    }

    pub(super) fn note(&self, share: &mut Share, count: usize) {
        if share.turn != self.turn.get() {
            *share = Share { turn: self.turn.get(), bytes: 0 };
        }
        share.bytes = share.bytes.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        self.most.set(self.most.get().max(share.bytes));
    }

    /// Whether a reader has taken as much as its window holds: then another turn begins.
    pub(crate) fn take_turn(&self) -> bool {
        let is_full = self.most.get() >= self.window.get();
        if is_full {
            self.most.set(0);
            self.turn.set(self.turn.get().wrapping_add(1));
        }
        is_full
    }

    /// Windows hold so many bytes from now on.
    pub(super) fn set_window(&self, bytes: u32) {
        self.window.set(bytes);
    }
}
