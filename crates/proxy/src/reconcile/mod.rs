//! How a plan reaches the workers, and how they take it over.
//!
//! ```text
//! publish: build TLS, open logs, bind new sockets,
//!          then listen on them                      any failure: nothing has changed
//!        → commit on every worker, acknowledged     nothing in it can fail but the registration of a bound socket
//! ```
//! Connections belong to workers, not to plans: they see the new plan with their next request.
//!
//! | File | |
//! |---|---|
//! | `workers.rs` | what the program sees: starts, drains and ends the workers |
//! | `publish.rs` | the path of a plan, as above; a plan that is tried |
//! | `bind.rs` | which sockets a plan needs: kept, inherited, taken back, or new ones |
//! | `shared.rs` | what these share |

mod bind;
mod publish;
mod shared;
mod workers;

pub(crate) use self::shared::Shared;
pub use self::workers::{Options, Workers, check};
