//! What filters count of what they do, for the page of metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts one kind of event of a filter on its route, over all workers, from one configuration to the next.
#[derive(Clone, Debug, Default)]
pub struct EventCounter(Arc<AtomicU64>);

impl EventCounter {
    pub(super) fn new(count: Arc<AtomicU64>) -> Self {
        Self(count)
    }

    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What was counted of one kind of event.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The filter, as the configuration calls it.
    pub filter: &'static str,
    /// The event.
    pub event: &'static str,
    count: Arc<AtomicU64>,
}

impl Counted {
    pub(super) fn new(filter: &'static str, event: &'static str, count: Arc<AtomicU64>) -> Self {
        Self { filter, event, count }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}
