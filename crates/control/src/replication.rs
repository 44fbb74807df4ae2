//! What others see of peers, and what an upgrade needs of them.

use serde_json::Value;

use crate::peers::{self, PeersStatus};
use crate::view::View;

impl View {
    /// Returns how it stands with peers; `None`: none are configured.
    pub fn peers(&self) -> Option<PeersStatus> {
        self.plan().filter(|plan| plan.snapshot.peers.is_some())?;
        self.shared_peers().map(peers::Shared::status)
    }

    /// Stops what would change replicated tables, and returns what the process that follows needs beside them.
    pub fn hand_over_peers(&self) -> Value {
        self.shared_peers().map(peers::hand_over).unwrap_or_default()
    }

    /// No process follows: replication goes on.
    pub fn resume_peers(&self) {
        self.shared_peers().into_iter().for_each(|shared| shared.engine().pause(false));
    }

    /// Takes over what [`Self::hand_over_peers`] returned in the process before. With `lacks_tables`, replicated tables have not come whole, and
    /// a peer is asked for them.
    pub fn inherit_peers(&self, told: &Value, lacks_tables: bool) {
        self.shared_peers().into_iter().for_each(|shared| peers::inherit(shared, told, lacks_tables));
    }
}
