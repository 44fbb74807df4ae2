//! Idle connections to one endpoint, kept by one worker.
//!
//! Last in, first out: the connection used last is the least likely to be closed by the endpoint, and those that a quiet
//! time does not need age and go. No task waits on an idle connection; the kernel's report of its end is seen when it is
//! taken out, or by the sweep.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Instant;

use model::snapshot;

use crate::io::Io;

/// A connection to an endpoint.
pub(crate) struct UpstreamConnection {
    pub io: Io,
    /// Exchanges carried before the present one.
    pub requests: u64,
    idle_since: Instant,
}

impl UpstreamConnection {
    pub(crate) fn new(io: Io, now: Instant) -> Self {
        Self { io, requests: 0, idle_since: now }
    }

    /// Whether it has carried an exchange before, so that the endpoint may have closed it while it was idle.
    pub(crate) fn is_reused(&self) -> bool {
        self.requests > 0
    }
}

/// See the module.
pub(crate) struct Pool {
    settings: snapshot::Pool,
    idle: RefCell<VecDeque<UpstreamConnection>>,
    is_retired: Cell<bool>,
}

impl Pool {
    pub(crate) fn new(settings: snapshot::Pool) -> Self {
        Self { settings, idle: RefCell::default(), is_retired: Cell::new(false) }
    }

    pub(crate) fn settings(&self) -> &snapshot::Pool {
        &self.settings
    }

    /// A connection that is alive as far as the kernel knows.
    pub(crate) fn take(&self, now: Instant) -> Option<UpstreamConnection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(mut connection) = idle.pop_back() {
            if self.is_fresh(&connection, now) && connection.io.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection after an exchange that ended in good order.
    pub(crate) fn give(&self, mut connection: UpstreamConnection, now: Instant) {
        connection.requests += 1;
        connection.idle_since = now;
        let worn = self.settings.requests_per_connection_max.is_some_and(|max| connection.requests >= max);
        let mut idle = self.idle.borrow_mut();
        if !worn && !self.is_retired.get() && idle.len() < self.settings.idle_max as usize {
            idle.push_back(connection);
        }
    }

    /// Closes what is idle and keeps nothing any more: the plan that the pool belongs to is no longer in force, though
    /// exchanges may still follow it.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
        self.idle.borrow_mut().clear();
    }

    /// Closes what is too old or was closed by the endpoint.
    pub(crate) fn sweep(&self, now: Instant) {
        self.idle.borrow_mut().retain_mut(|connection| self.is_fresh(connection, now) && connection.io.is_quiet());
    }

    fn is_fresh(&self, connection: &UpstreamConnection, now: Instant) -> bool {
        now.saturating_duration_since(connection.idle_since) < self.settings.idle_timeout
    }
}
