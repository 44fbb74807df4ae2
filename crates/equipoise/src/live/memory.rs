//! When memory goes back to the system: at once while the program starts, and after changes, which use far more for a moment than they
//! leave behind.

use std::time::{Duration, Instant};

use crate::memory;

/// How long after the last change its memory is given back: not between changes that follow one another.
const REST_AFTER: Duration = Duration::from_secs(1);

/// What memory is still to be given back.
pub(super) struct Memory {
    /// When the last change was prepared, if what workers have released since was not given back yet.
    changed_at: Option<Instant>,
    /// When the program started, as long as memory goes back at once.
    starting: Option<Instant>,
    /// A change was prepared, and its memory was not given back yet.
    has_prepared: bool,
}

impl Memory {
    /// Begins with the start of the program.
    pub(super) fn of_a_start() -> Self {
        let now = Some(Instant::now());
        Self { changed_at: now, starting: now, has_prepared: false }
    }

    /// Notes that a change was prepared.
    pub(super) fn note_prepared(&mut self) {
        (self.changed_at, self.has_prepared) = (Some(Instant::now()), true);
    }

    /// Gives back what the last change took: the configuration before it, and what was discarded.
    pub(super) fn rest(&mut self) {
        if std::mem::take(&mut self.has_prepared) {
            memory::give_back();
        }
    }

    /// Gives back what is due. To be called about once a second.
    pub(super) fn look_after(&mut self) {
        // Also where changes follow each other without a rest: it costs every worker.
        if self.starting.take_if(|at| at.elapsed() >= REST_AFTER).is_some() {
            memory::give_back_at_once(false);
        }
        if self.changed_at.take_if(|at| at.elapsed() >= REST_AFTER).is_some() {
            memory::give_back();
        }
    }
}
