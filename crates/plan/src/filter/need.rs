//! What a step needs that it does not do itself: the data plane does it, and goes on with what was found.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// What a step needs before it goes on. A step never waits itself: it says what it needs, and its `resume` is called with the
/// [`Found`] of the same kind. An exchange may have [`Need::PER_EXCHANGE_MAX`] of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Work that is too slow for a worker; threads beside the workers do it.
    Work(Job),
    /// That a moment has come.
    Until(Instant),
}

impl Need {
    /// Needs of one exchange, over all its steps. One more is a fault: a step that always needs something never ends.
    pub const PER_EXCHANGE_MAX: u32 = 8;
}

/// What came of a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// What [`Work::run`] has found.
    Work(bool),
    /// The moment has come.
    Now,
}

/// Something to be found out that takes long.
pub trait Work: Send + Sync {
    /// Finds it out: computes, but does not wait. `chance` stands for all that is drawn.
    fn run(&self, chance: &mut dyn FnMut() -> u64) -> bool;
}

/// Work that an exchange waits for.
#[derive(Clone)]
pub struct Job(pub Arc<dyn Work>);

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Job {}
