//! What the program's side of the data plane shares: ways to the workers, and what is published.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::Name;
use plan::Plan;
use telemetry::{AccessLogs, Telemetry};
use tokio::sync::mpsc::UnboundedSender;

use crate::bound::Bound;
use crate::handover::Inheritance;
use crate::handover::inherited::Spare;
use crate::listen::Transport;
use crate::tls::TlsMaterial;
use crate::worker::command::Command;

/// Longest wait for a worker to acknowledge. A worker is never busy with one thing for long.
pub(super) const ACKNOWLEDGE: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Shared {
    pub commands: Vec<UnboundedSender<Command>>,
    pub(super) published: Mutex<Published>,
    pub(super) open_connections: Arc<AtomicUsize>,
    pub(super) telemetry: Arc<Telemetry>,
    pub inheritance: Mutex<Inheritance>,
    /// The access logs in force; apart, so that reading their figures does not wait while a plan is published.
    pub(super) logs: Mutex<Option<Arc<AccessLogs>>>,
    /// Sockets that workers are to have beside those that came from another process.
    pub spares: Mutex<Vec<Spare>>,
}

/// What is in force.
#[derive(Default)]
pub(crate) struct Published {
    pub tls: Arc<TlsMaterial>,
    pub plan: Option<Arc<Plan>>,
    /// The plan that is tried, with its TLS.
    pub(super) tried: Option<(Arc<Plan>, Arc<TlsMaterial>)>,
    pub bound: HashMap<(Name, Transport), Bound>,
    /// Sockets of QUIC that no listener has any more, as long as they have connections.
    pub(super) leaving: Vec<Bound>,
}

impl Shared {
    pub(crate) fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn logs(&self) -> MutexGuard<'_, Option<Arc<AccessLogs>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the files of Unix sockets, so that no client comes by them any more.
    pub(super) fn remove_files(&self) {
        for bound in self.published().bound.values_mut() {
            bound.file = None;
        }
    }

    pub(crate) fn tell_all(&self, command: impl Fn() -> Command) {
        for worker in &self.commands {
            // A worker that is gone has nothing to do.
            let _ = worker.send(command());
        }
    }
}
