//! Host names of endpoints, as the owner of the configuration has to do with them.

use model::Snapshot;

use super::Reconciler;
use crate::names::Inbox;

impl Reconciler {
    /// Tells when endpoints have other addresses.
    pub fn names(&self) -> Inbox {
        self.names.inbox()
    }

    /// Looks up the names that are in force now.
    pub(super) fn follow_names(&mut self, snapshot: &Snapshot) {
        if let Err(error) = self.names.follow(snapshot) {
            telemetry::log::error("host names of endpoints cannot be looked up again", &[("error", &error)]);
        }
    }
}
