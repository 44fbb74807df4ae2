//! One timer per connection for all its time-outs.
//!
//! Every phase of an exchange has a deadline, and nearly none is ever reached. So a new deadline only writes a field; the
//! timer is touched when it is to ring earlier than before, or rings too early and is set again. Nor is it told again whom to
//! wake, as long as that is the same task: telling it takes four atomic operations, each as long as a dozen others.

use std::future::Future;
use std::pin::{Pin, pin};
use std::ptr;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use model::Fault;
use tokio::task::coop::unconstrained;
use tokio::time::Sleep;

use crate::registry::Registration;

/// Deadlines further away than this are never reached in practice; the bound keeps the arithmetic safe.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// See the module.
pub(crate) struct Watch {
    /// Its own deadline is when it rings.
    sleep: Pin<Box<Sleep>>,
    deadline: Instant,
    /// Bound on the whole exchange; `deadline` never lies behind it.
    bound: Option<Instant>,
    /// What the waker points to that the timer holds until it rings: nothing else can be there meanwhile, so that it tells one
    /// task from another. Null: it holds none.
    heard_by: *const (),
    registration: Rc<Registration>,
}

impl Watch {
    pub(crate) fn new(now: Instant, timeout: Duration, registration: Rc<Registration>) -> Self {
        let deadline = now + timeout.min(FAR);
        let sleep = Box::pin(tokio::time::sleep_until(deadline.into()));
        Self { sleep, deadline, bound: None, heard_by: ptr::null(), registration }
    }

    /// Sets the deadline of the phase that begins now.
    pub(crate) fn set(&mut self, now: Instant, timeout: Duration) {
        let deadline = now + timeout.min(FAR);
        self.deadline = self.bound.map_or(deadline, |bound| deadline.min(bound));
    }

    /// Sets or lifts the bound on the whole exchange.
    pub(crate) fn set_bound(&mut self, bound: Option<Instant>) {
        self.bound = bound;
    }

    /// Returns the time limit of the whole exchange.
    pub(crate) fn bound(&self) -> Option<Instant> {
        self.bound
    }

    /// Returns which fault it is that the watch rang: that of the `phase`, unless the bound on the exchange or the end of the program came
    /// first.
    pub(crate) fn fault(&self, phase: Fault) -> Fault {
        if self.registration.is_cut() {
            Fault::DrainEnded
        } else if self.bound.is_some_and(|bound| self.deadline >= bound) {
            Fault::TotalTimeout
        } else {
            phase
        }
    }

    /// Ready when the deadline has passed, or everything is to end at once. Call it only when all else is pending.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.registration.is_cut() {
            return Poll::Ready(());
        }
        if self.deadline < self.rings_at() {
            self.ring_at_deadline();
        }
        if self.is_heard_by(cx.waker()) && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        // A deadline holds also for a task that has used up its turn.
        while pin!(unconstrained(self.sleep.as_mut())).poll(cx).is_ready() {
            if self.rings_at() >= self.deadline {
                return Poll::Ready(());
            }
            self.ring_at_deadline();
        }
        self.heard_by = cx.waker().data();
        Poll::Pending
    }

    fn rings_at(&self) -> Instant {
        self.sleep.deadline().into_std()
    }

    fn is_heard_by(&self, waker: &Waker) -> bool {
        !self.heard_by.is_null() && ptr::eq(self.heard_by, waker.data())
    }

    fn ring_at_deadline(&mut self) {
        self.sleep.as_mut().reset(self.deadline.into());
        // If it has rung meanwhile, it holds no waker any more.
        self.heard_by = ptr::null();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    async fn rings_after(watch: &mut Watch) -> Duration {
        let begun = tokio::time::Instant::now();
        poll_fn(|cx| watch.poll(cx)).await;
        begun.elapsed()
    }

    fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_and_an_earlier_deadline_both_hold() {
        let begun = now();
        let mut watch = Watch::new(begun, Duration::from_secs(5), Registration::loose());
        watch.set(begun, Duration::from_secs(9));
        assert_eq!(rings_after(&mut watch).await.as_secs(), 9);
        let begun = now();
        watch.set(begun, Duration::from_secs(60));
        watch.set(begun, Duration::from_secs(2));
        assert_eq!(rings_after(&mut watch).await.as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_phase_outlives_the_bound_of_the_exchange() {
        let begun = now();
        let mut watch = Watch::new(begun, Duration::from_secs(5), Registration::loose());
        watch.set_bound(Some(begun + Duration::from_secs(3)));
        watch.set(begun, Duration::from_secs(60));
        assert_eq!(rings_after(&mut watch).await.as_secs(), 3);
        assert_eq!(watch.fault(Fault::ResponseHeadTimeout), Fault::TotalTimeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_has_rung_unseen_rings_for_the_next_deadline() {
        let mut watch = Watch::new(now(), Duration::from_secs(1), Registration::loose());
        for timeout in [9, 2, 5] {
            poll_fn(|cx| {
                assert!(watch.poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            watch.set(now(), Duration::from_secs(20));
            tokio::time::sleep(Duration::from_secs(12)).await;
            watch.set(now(), Duration::from_secs(timeout));
            assert_eq!(rings_after(&mut watch).await.as_secs(), timeout);
            watch.set(now(), Duration::from_secs(3));
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_that_has_looked_last_is_woken() {
        let tasks = [Arc::new(Woken::default()), Arc::new(Woken::default())];
        let mut watch = Watch::new(now(), Duration::from_secs(1), Registration::loose());
        for task in [&tasks[0], &tasks[0], &tasks[1], &tasks[0], &tasks[1]] {
            let waker = Waker::from(task.clone());
            assert!(watch.poll(&mut TaskContext::from_waker(&waker)).is_pending());
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(tasks.map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
    }
}
