//! Peers, as the owner of the configuration has to do with them.

use super::Reconciler;

impl Reconciler {
    /// Replicates the tables of the active configuration.
    pub(super) fn follow_peers(&mut self) {
        let Some(running) = &self.running else { return };
        if let Err(error) = self.peers.follow(&running.plan) {
            telemetry::log::error("tables cannot be replicated", &[("error", &error)]);
        }
    }

    /// Another process has taken over: peers get what this one still counts, and it hears nothing more.
    pub fn retire_peers(&self) {
        self.peers.retire();
    }
}
