//! What the rest of the program can ask of a worker, as data: [`super::run`] carries it out.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use model::Address;
use plan::Plan;
use telemetry::AccessLogs;

use crate::bound::Opened;
use crate::clients::Question;
use crate::handover::inherited::Place;
use crate::handover::on_worker::{Offered, Paused};
use crate::handover::retired::Duplicate;
use crate::tls::TlsMaterial;

/// A command to a worker.
pub(crate) enum Command {
    Commit(Box<Commit>),
    /// Try a plan beside the one in force, or none any more.
    Try(Option<Box<Try>>, Sender<()>),
    /// Accept nothing more; end connections as they become idle, those that another process takes over the listeners of one after the
    /// other within this time. Dropped when every socket is closed.
    Drain(Sender<()>, Duration),
    /// End every connection at once.
    Cut,
    /// About connections of clients.
    Ask(Question),
    /// Offer every socket where something arrives to another process.
    Offer(Sender<Offered>),
    /// Another process has the sockets of these places. Dropped when that is so for this worker.
    Give(Arc<[Place]>, Sender<()>),
    /// Another process is about to read the sockets of datagrams, or not after all. Answered with the flows that there are.
    Pause(bool, Sender<Paused>),
    /// Dropped by a worker that is alive.
    Pulse {
        _answer: Sender<()>,
    },
    /// Duplicate the sockets of QUIC at an address that no listener has any more.
    DuplicateRetired(Address, Sender<io::Result<Duplicate>>),
    /// End the flows at an address that no listener has any more. Dropped when their sockets are closed.
    FreeRetired(Address, Sender<()>),
    /// Take what arrives at the sockets that were held, and at these.
    Begin(Vec<Opened>),
    Stop,
}

/// A plan with everything that was made ready for it.
pub(crate) struct Commit {
    pub plan: Arc<Plan>,
    pub tls: Arc<TlsMaterial>,
    /// New sockets of this worker.
    pub sockets: Vec<Opened>,
    pub logs: Option<Arc<AccessLogs>>,
    pub done: Sender<()>,
}

/// A plan to be tried.
pub(crate) struct Try {
    pub plan: Arc<Plan>,
    pub tls: Arc<TlsMaterial>,
    pub share_percent: u8,
    pub counts: Arc<telemetry::trial::Trial>,
}
