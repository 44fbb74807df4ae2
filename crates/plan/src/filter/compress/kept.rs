//! Engines of bodies that are over, which a worker keeps for the next: allocating and filling the tables of one costs more than coding
//! 10 kB. Brotli's are not kept, because they cannot be reset; the allocator keeps their memory.

use std::cell::RefCell;

use super::engine::{Algorithm, Engine};

/// Engines of one algorithm and level that a worker keeps.
const KEPT_OF_A_KIND_MAX: usize = 4;
/// Engines that a worker keeps, for routes with different levels.
pub(super) const KEPT_MAX: usize = 12;

thread_local! {
    static KEPT: RefCell<Vec<(Kind, Engine)>> = const { RefCell::new(Vec::new()) };
}

/// Engines of one kind stand in for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) algorithm: Algorithm,
    pub(super) level: u8,
}

/// An engine for a body of this length, if it is known: one that is kept, or else a new one. `None` if there is no memory.
pub(super) fn take(kind: Kind, length: Option<u64>) -> Option<Engine> {
    let mut engine = take_kept(kind).or_else(|| Engine::new(kind.algorithm, kind.level))?;
    engine.begin(length).then_some(engine)
}

fn take_kept(kind: Kind) -> Option<Engine> {
    let take = |kept: &RefCell<Vec<(Kind, Engine)>>| {
        let mut kept = kept.try_borrow_mut().ok()?;
        let place = kept.iter().position(|(other, _)| *other == kind)?;
        Some(kept.remove(place).1)
    };
    KEPT.try_with(take).ok().flatten()
}

/// Keeps an engine whose body is over, unless there are enough.
pub(super) fn keep(kind: Kind, engine: Engine) {
    if !engine.is_reusable() {
        return;
    }
    // A thread that ends keeps nothing.
    let _ = KEPT.try_with(|kept| {
        let Ok(mut kept) = kept.try_borrow_mut() else { return };
        let alike = kept.iter().filter(|(other, _)| *other == kind).count();
        if alike < KEPT_OF_A_KIND_MAX {
            // The oldest goes: its level may be one that no route has any more.
            if kept.len() == KEPT_MAX {
                kept.remove(0);
            }
            kept.push((kind, engine));
        }
    });
}

/// Engines of one kind that are kept, and all.
#[cfg(test)]
pub(super) fn counts(kind: Kind) -> (usize, usize) {
    KEPT.with_borrow(|kept| (kept.iter().filter(|(other, _)| *other == kind).count(), kept.len()))
}
