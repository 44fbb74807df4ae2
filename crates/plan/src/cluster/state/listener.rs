//! What all workers share about one listener.

use std::sync::atomic::{AtomicU32, Ordering};

use super::take_below;
use crate::padded::Padded;

/// Connections of one listener, over all workers.
#[derive(Debug, Default)]
pub struct ListenerState {
    connections: Padded<AtomicU32>,
}

impl ListenerState {
    /// Counts a new connection if fewer than `max` are open; exact for any number of workers. Every `true` is paid back
    /// by one [`Self::close`].
    pub fn try_open(&self, max: u32) -> bool {
        take_below(&self.connections, max, Ordering::Relaxed)
    }

    /// Counts a connection as closed.
    pub fn close(&self) {
        let before = self.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "closed more often than opened");
    }

    /// Connections open now.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }
}
