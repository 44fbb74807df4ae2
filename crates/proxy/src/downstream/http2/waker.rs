//! A waker of one source among several that wake the same task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// Wakes a task, and tells it what for: one for each source.
pub(super) struct FlagWaker {
    task: Waker,
    /// Since it was last taken: its task is woken already.
    is_set: AtomicBool,
}

impl FlagWaker {
    /// Returns one that wakes `task` for one source.
    pub(super) fn new(task: &Waker) -> Arc<Self> {
        Arc::new(Self { task: task.clone(), is_set: AtomicBool::new(false) })
    }

    /// Returns whether it was woken since this was last asked. From now on it wakes its task again.
    pub(super) fn take(&self) -> bool {
        // A look costs little, and nearly always says enough.
        self.is_set.load(Ordering::Acquire) && self.is_set.swap(false, Ordering::AcqRel)
    }
}

impl Wake for FlagWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_set.swap(true, Ordering::AcqRel) {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// A task that counts how often it is woken.
    #[derive(Default)]
    pub(in super::super) struct Task(AtomicUsize);

    impl Task {
        pub(in super::super) fn woken(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Task;
    use super::*;

    #[test]
    fn a_flag_waker_wakes_its_task_once_until_it_is_taken() {
        let task = Arc::new(Task::default());
        let waker = FlagWaker::new(&task.clone().into());
        let handle = Waker::from(waker.clone());
        assert!(!waker.take());
        handle.wake_by_ref();
        handle.wake_by_ref();
        assert_eq!(task.woken(), 1);
        assert!(waker.take());
        assert!(!waker.take());
        handle.wake();
        assert_eq!(task.woken(), 2);
        assert!(waker.take());
    }
}
