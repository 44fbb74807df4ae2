//! The connections of clients, as the data plane tells them. How it does is behind two functions.

use model::connections::{OpenConnection, Page};

/// Gives a page, by number. Waits for the workers; `None`: one of them did not tell in time.
pub type List = dyn Fn(&Page) -> Option<Vec<OpenConnection>> + Send + Sync;
/// Ends one at once. `false`: it is not there.
pub type End = dyn Fn(u64) -> bool + Send + Sync;

/// What can be asked.
pub struct Connections {
    /// Lists.
    pub list: Box<List>,
    /// Ends.
    pub end: Box<End>,
}
