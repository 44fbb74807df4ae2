//! TLS towards clients and endpoints: from the PEM files of a plan to what a handshake needs.
//!
//! The rest of the data plane sees only [`ListenerTls`] and [`ClusterTls`]; the TLS library's names stay in here.
//! Material is built before a plan is published, off the workers' threads, and what is unchanged is taken over.

mod certificates;
mod downstream;
mod noted;
mod provider;
mod tickets;
mod upstream;

use std::collections::HashMap;
use std::sync::Arc;

use model::{Issue, Name};
use plan::Plan;

pub use downstream::TicketHandover;
pub(crate) use downstream::{ListenerTls, facts_of, facts_of_quic, set_token_secret, token_secret};
pub(crate) use noted::Noted;
pub use tickets::TicketKey;
pub(crate) use upstream::ClusterTls;

/// The TLS side of one plan.
#[derive(Default)]
pub(crate) struct TlsMaterial {
    listeners: HashMap<Name, Arc<ListenerTls>>,
    clusters: HashMap<Name, Arc<ClusterTls>>,
    /// Of the process before, for listeners that begin.
    inherited: Vec<TicketHandover>,
}

impl TlsMaterial {
    /// Builds what `plan` needs, taking over from `previous` what is unchanged.
    ///
    /// # Errors
    /// Every certificate, key or authority that cannot be used.
    pub(crate) fn build(plan: &Plan, previous: &Self) -> Result<Self, Vec<Issue>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut built = Self::default();
        let mut issues = Vec::new();
        for listener in &plan.snapshot.listeners {
            let Some(settings) = &listener.tls else { continue };
            let path = format!("listeners/{}/tls", listener.name);
            let speaks = listener.protocol.alpn();
            let inherited = previous.inherited.iter().find(|tickets| tickets.listener == listener.name.as_str());
            let quic = downstream::QuicSettings::of(listener, &plan.snapshot.routes);
            match ListenerTls::build(
                (settings, speaks, quic),
                &provider,
                (previous.listeners.get(&listener.name), inherited),
            ) {
                Ok(tls) => drop(built.listeners.insert(listener.name.clone(), tls)),
                Err(more) => issues.extend(more.into_iter().map(|issue| issue.below(&path))),
            }
        }
        for cluster in &plan.snapshot.clusters {
            let Some(settings) = &cluster.tls else { continue };
            let path = format!("clusters/{}/tls", cluster.name);
            let settings = (settings, cluster.pool.versions());
            match ClusterTls::build(settings, &provider, previous.clusters.get(&cluster.name)) {
                Ok(tls) => drop(built.clusters.insert(cluster.name.clone(), tls)),
                Err(issue) => issues.push(issue.below(&path)),
            }
        }
        if issues.is_empty() { Ok(built) } else { Err(issues) }
    }

    /// Nothing yet but the keys of tickets of another process.
    pub(crate) fn after(inherited: Vec<TicketHandover>) -> Self {
        Self { inherited, ..Self::default() }
    }

    /// Returns the keys of tickets of all listeners, for another process.
    pub(crate) fn tickets(&self) -> Vec<TicketHandover> {
        self.listeners.iter().map(|(name, tls)| tls.hand_over(name.as_str())).collect()
    }

    pub(crate) fn listener(&self, name: &Name) -> Option<Arc<ListenerTls>> {
        self.listeners.get(name).cloned()
    }

    pub(crate) fn cluster(&self, name: &Name) -> Option<Arc<ClusterTls>> {
        self.clusters.get(name).cloned()
    }
}
