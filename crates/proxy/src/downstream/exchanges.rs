//! The exchanges of a connection that carries streams.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Instant;

/// The number of exchanges in flight, and since when there are none.
pub(super) struct Exchanges {
    active: Cell<usize>,
    /// When the last one ended.
    rested_at: Cell<Instant>,
    /// The task of the connection, while it waits for an exchange to end.
    waker: RefCell<Option<Waker>>,
}

impl Exchanges {
    /// Of a connection that begins.
    pub(super) fn new(now: Instant) -> Self {
        Self { active: Cell::new(0), rested_at: Cell::new(now), waker: RefCell::new(None) }
    }

    /// Returns the number of exchanges in flight.
    pub(super) fn active(&self) -> usize {
        self.active.get()
    }

    /// Returns whether no exchange is in flight.
    pub(super) fn is_at_rest(&self) -> bool {
        self.active.get() == 0
    }

    /// When the last one ended.
    pub(super) fn rested_at(&self) -> Instant {
        self.rested_at.get()
    }

    /// Wakes a task when the next exchange ends.
    pub(super) fn wake_at_end(&self, waker: &Waker) {
        *self.waker.borrow_mut() = Some(waker.clone());
    }

    /// Counts one more.
    pub(super) fn begin(&self) {
        self.active.set(self.active.get() + 1);
    }

    /// Counts one less, and wakes the task that waits for that.
    pub(super) fn end(&self) {
        self.active.set(self.active.get() - 1);
        if self.is_at_rest() {
            self.rested_at.set(Instant::now());
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_once_for_the_end_of_an_exchange_and_rest_begins_with_the_last() {
        let begun = Instant::now().checked_sub(Duration::from_secs(9)).unwrap();
        let (exchanges, task) = (Exchanges::new(begun), Arc::new(Task::default()));
        exchanges.begin();
        exchanges.begin();
        exchanges.wake_at_end(&task.clone().into());
        exchanges.end();
        assert_eq!((exchanges.active(), exchanges.rested_at()), (1, begun));
        exchanges.end();
        assert!(exchanges.is_at_rest() && exchanges.rested_at() > begun);
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
    }
}
