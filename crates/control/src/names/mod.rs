//! Host names of endpoints, looked up again and again while the configuration that names them is in force.
//!
//! ```text
//!  Follower ── a task per name: look up ─▶ Book ─▶ sleep as long as the answer holds ─┐
//!              ▲                            │                                          │
//!              └────────────────────────────┼──────────────────────────────────────────┘
//!                                           └─▶ an address is gone: Inbox ─▶ owner: Moved, laid over the snapshot
//! ```
//! Nothing is read again for that, and the configuration stays as it was written. A name that cannot be looked up keeps its
//! address.

mod book;
mod bounded;
mod follow;
mod look_up;
mod moved;

pub use book::Inbox;

pub(crate) use book::Book;
pub(crate) use bounded::Names;
pub(crate) use follow::Follower;
pub(crate) use moved::{Move, Moved};
