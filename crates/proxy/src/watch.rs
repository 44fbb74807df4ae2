//! One timer per connection for all its time-outs.
//!
//! Every phase of an exchange has a deadline, and nearly none is ever reached. So a new deadline only writes a field; the
//! timer is touched when it is to ring earlier than before, or rings too early and is set again.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use model::Fault;
use tokio::task::coop::unconstrained;
use tokio::time::Sleep;

use crate::registry::Tether;

/// Deadlines further away than this are never reached in practice; the bound keeps the arithmetic safe.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// See the module.
pub(crate) struct Watch {
    sleep: Pin<Box<Sleep>>,
    rings_at: Instant,
    deadline: Instant,
    /// Bound on the whole exchange; `deadline` never lies behind it.
    bound: Option<Instant>,
    tether: Rc<Tether>,
}

impl Watch {
    pub(crate) fn new(now: Instant, timeout: Duration, tether: Rc<Tether>) -> Self {
        let deadline = now + timeout.min(FAR);
        let sleep = Box::pin(tokio::time::sleep_until(deadline.into()));
        Self { sleep, rings_at: deadline, deadline, bound: None, tether }
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

    /// The bound on the whole exchange.
    pub(crate) fn bound(&self) -> Option<Instant> {
        self.bound
    }

    /// Which fault it is that the watch rang: that of the `phase`, unless the bound on the exchange or the end of the
    /// program came first.
    pub(crate) fn fault(&self, phase: Fault) -> Fault {
        if self.tether.is_cut() {
            Fault::DrainEnded
        } else if self.bound.is_some_and(|bound| self.deadline >= bound) {
            Fault::TotalTimeout
        } else {
            phase
        }
    }

    /// Ready when the deadline has passed, or everything is to end at once. Call it only when all else is pending.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.tether.is_cut() {
            return Poll::Ready(());
        }
        if self.deadline < self.rings_at {
            self.ring_at_deadline();
        }
        // A deadline holds also for a task that has used up its turn.
        while pin!(unconstrained(self.sleep.as_mut())).poll(cx).is_ready() {
            if self.rings_at >= self.deadline {
                return Poll::Ready(());
            }
            self.ring_at_deadline();
        }
        Poll::Pending
    }

    fn ring_at_deadline(&mut self) {
        self.sleep.as_mut().reset(self.deadline.into());
        self.rings_at = self.deadline;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn rings_after(watch: &mut Watch) -> Duration {
        let begun = tokio::time::Instant::now();
        poll_fn(|cx| watch.poll(cx)).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_and_an_earlier_deadline_both_hold() {
        let now = tokio::time::Instant::now().into_std();
        let mut watch = Watch::new(now, Duration::from_secs(5), Tether::loose());
        watch.set(now, Duration::from_secs(9));
        assert_eq!(rings_after(&mut watch).await.as_secs(), 9);
        let now = tokio::time::Instant::now().into_std();
        watch.set(now, Duration::from_secs(60));
        watch.set(now, Duration::from_secs(2));
        assert_eq!(rings_after(&mut watch).await.as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_phase_outlives_the_bound_of_the_exchange() {
        let now = tokio::time::Instant::now().into_std();
        let mut watch = Watch::new(now, Duration::from_secs(5), Tether::loose());
        watch.set_bound(Some(now + Duration::from_secs(3)));
        watch.set(now, Duration::from_secs(60));
        assert_eq!(rings_after(&mut watch).await.as_secs(), 3);
        assert_eq!(watch.fault(Fault::ResponseHeadTimeout), Fault::TotalTimeout);
    }
}
