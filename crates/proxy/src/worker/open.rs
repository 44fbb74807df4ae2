//! Counts the open connections of clients.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::Worker;
use crate::worker_plan::{ListenerCounts, ListenerLocal};

/// Counts a connection as open until it is dropped.
pub(crate) struct Open {
    worker: Rc<Worker>,
    counts: Rc<ListenerCounts>,
}

impl Open {
    pub(crate) fn new(worker: &Rc<Worker>, listener: &ListenerLocal) -> Self {
        worker.open_connections.fetch_add(1, Ordering::Relaxed);
        Self { worker: worker.clone(), counts: listener.counts.clone() }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.counts.series.of(self.worker.index).connections_closed.add(1);
        self.counts.state.close();
        self.worker.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}
