//! The sockets that were bound for listeners, and where they are.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use model::snapshot::Listener;
use model::{Address, Name};

use crate::http3::{Generation, Hub};
use crate::listen::Transport;
use crate::predecessor::PredecessorLink;
use crate::socket_file::SocketFile;

/// A socket that was bound for a worker.
pub(crate) struct Opened {
    pub name: Name,
    pub transport: Transport,
    pub socket: OwnedFd,
    /// For connections of QUIC.
    pub hub: Option<Hub>,
    /// For flows that are the predecessor's.
    pub predecessor: Option<PredecessorLink>,
    /// It came from another process, and is set up as that was asked for.
    pub is_adopted: bool,
}

/// Where a socket is.
#[derive(Clone)]
pub(crate) struct Bound {
    /// As configured.
    pub bind: Address,
    /// As the kernel has it.
    pub address: Address,
    /// What arrives there.
    pub transport: Transport,
    /// Of a Unix socket; not in the workers, so that it goes when the listener does.
    pub file: Option<Arc<SocketFile>>,
    /// Of QUIC.
    pub quic: Option<Generation>,
}

impl Bound {
    /// Whether sockets are there that carry connections of QUIC.
    pub(crate) fn is_in_use(&self) -> bool {
        self.quic.as_ref().is_some_and(Generation::is_there)
    }

    /// Whether these are the same sockets of QUIC.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.quic.iter().zip(&other.quic).any(|(one, other)| one.is(other))
    }
}

/// Whether the socket of the listener called `name` serves `listener`. By address: a listener that only gets another name
/// keeps its socket and its connections, for a socket cannot be closed without losing clients that are just
/// connecting. Several listeners may ask for a free port, so there the name decides.
pub(crate) fn is_same_place(name: &Name, bound: &Bound, listener: &Listener, transport: Transport) -> bool {
    let is_free_port = listener.bind.port() == Some(0);
    let is_there =
        bound.bind == listener.bind && (!is_free_port || *name == listener.name) || bound.address == listener.bind;
    is_there && bound.transport == transport
}
