//! The connections of clients, as the data plane tells them. How it does is behind two functions.

use std::net::SocketAddr;
use std::time::Duration;

use model::Name;

/// One open connection of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenConnection {
    /// No other connection of this process has, or had, this number.
    pub id: u64,
    /// The listener that accepted it.
    pub listener: Name,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// How long it is open.
    pub open_for: Duration,
    /// The worker that carries it.
    pub worker: usize,
    /// It ends when it is idle.
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

/// Gives a page, by number. Waits for the workers.
pub type List = dyn Fn(&Page) -> Vec<OpenConnection> + Send + Sync;
/// Ends one at once. `false`: it is not there.
pub type End = dyn Fn(u64) -> bool + Send + Sync;

/// What can be asked.
pub struct Connections {
    /// Lists.
    pub list: Box<List>,
    /// Ends.
    pub end: Box<End>,
}
