//! The connections of clients, as an administrator asks for them and the data plane tells them.

use std::net::SocketAddr;
use std::time::Duration;

use crate::Name;

/// One open connection of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenConnection {
    /// No other connection of this process has, or had, this number.
    pub id: u64,
    /// The listener that accepted it, under the name that it has now.
    pub listener: Name,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// How long it is open.
    pub open_for: Duration,
    /// The worker that carries it.
    pub worker: usize,
    /// Its listener is gone, or the program ends: it ends when it is idle.
    pub is_ending: bool,
}

/// A page of connections that is asked for.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The last number of the page before; 0 begins.
    pub after: u64,
    /// At most so many; the data plane has a bound of its own.
    pub max: usize,
    /// Those of this listener alone.
    pub listener: Option<String>,
}
