//! When connections want to be looked at.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Context as TaskContext;
use std::time::Instant;

use quinn_proto::ConnectionHandle;
use tokio::time::Sleep;

use super::Socket;

/// The handle of no connection: an alarm of the socket itself.
const ALARM: usize = usize::MAX;

/// The times at which something is due, and the handles of the connections. A time may be earlier than its connection now needs.
#[derive(Default)]
pub(super) struct Timers(BTreeSet<(Instant, usize)>);

impl Timers {
    fn set(&mut self, at: Instant, handle: usize) {
        self.0.insert((at, handle));
    }

    /// Returns the time of the next.
    fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the next that is due out.
    fn pop_due(&mut self, now: Instant) -> Option<(Instant, usize)> {
        let (at, _) = self.0.first()?;
        if *at <= now { self.0.pop_first() } else { None }
    }

    /// Removes those of a connection that is over.
    pub(super) fn remove(&mut self, handle: usize, times: Vec<Instant>) {
        for at in times {
            self.0.remove(&(at, handle));
        }
    }
}

impl Socket {
    pub(super) fn sleep_until_next(&self, sleep: &mut Pin<Box<Sleep>>, cx: &mut TaskContext<'_>) {
        let Some(next) = self.timers.borrow().next() else { return };
        if sleep.deadline() != next.into() {
            sleep.as_mut().reset(next.into());
        }
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    pub(super) fn expire(self: &Rc<Self>, now: Instant) {
        let is_due = self.timers.borrow().next().is_some_and(|at| at <= now);
        if is_due && self.is_outgoing {
            // The runtime does not wake the task for it.
            self.take_undelivered();
        }
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            let Some((at, handle)) = due else { return };
            let quic = self.connections.borrow().get(handle).cloned().flatten();
            if let Some(quic) = quic {
                quic.expire(at, now);
            }
        }
    }

    /// Has a connection looked at, at the latest at this time.
    pub(in crate::http3) fn set_timer(&self, at: Instant, handle: ConnectionHandle) {
        self.timers.borrow_mut().set(at, handle.0);
    }

    /// Wakes the task of the socket at this time, whatever connections want.
    pub(super) fn set_alarm(&self, at: Instant) {
        self.timers.borrow_mut().set(at, ALARM);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_come_due_in_order_and_those_of_a_connection_that_is_over_never_do() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut timers = Timers::default();
        for (ms, handle) in [(3, 1), (1, 2), (2, 1), (2, ALARM), (9, 2)] {
            timers.set(at(ms), handle);
        }
        assert_eq!((timers.next(), timers.pop_due(now)), (Some(at(1)), None));
        timers.remove(1, vec![at(2), at(3)]);
        let due: Vec<_> = std::iter::from_fn(|| timers.pop_due(at(5))).collect();
        assert_eq!(due, [(at(1), 2), (at(2), ALARM)]);
        assert_eq!(timers.next(), Some(at(9)));
    }
}
