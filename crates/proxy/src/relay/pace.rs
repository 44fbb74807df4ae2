//! Holds a body to its rate.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use plan::filter::Pace;
use tokio::time::Sleep;

/// The longest wait after which a pump looks again: a peer that watches the pump sees that it is alive.
const LOOK: Duration = Duration::from_secs(1);

/// One pace of a body, and what it lets through at present.
pub(super) struct Pacing {
    pace: Box<dyn Pace>,
    /// Bytes that may be written once `from` has come.
    reserved: usize,
    from: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Pacing {
    pub(super) fn new(pace: Box<dyn Pace>) -> Self {
        Self { pace, reserved: 0, from: Instant::now(), sleep: None }
    }

    /// Ready with how many of the bytes may be written, at least one. If it is not ready, its task is woken in time.
    pub(super) fn poll(&mut self, cx: &mut TaskContext<'_>, wanted: usize) -> Poll<usize> {
        let now = tokio::time::Instant::now().into_std();
        if self.reserved == 0 {
            let (count, from) = self.pace.reserve(wanted, now);
            (self.reserved, self.from) = (count.max(1), from);
        }
        if self.from <= now {
            return Poll::Ready(self.reserved.min(wanted));
        }
        let until = tokio::time::Instant::from_std(self.from.min(now + LOOK));
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        sleep.as_mut().reset(until);
        if sleep.as_mut().poll(cx).is_ready() {
            // Just now, or this task has used up its turn: it looks again at once.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// So many bytes were written.
    pub(super) fn written(&mut self, count: usize) {
        self.reserved = self.reserved.saturating_sub(count);
    }
}

impl Drop for Pacing {
    fn drop(&mut self) {
        // A stream that ends before its turn leaves the turn to others.
        if self.reserved > 0 {
            self.pace.give_back(self.reserved, Instant::now());
        }
    }
}
