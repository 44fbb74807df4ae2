//! Limits by key: how often, and how many at once. Filters of routes and listeners share them.
//!
//! State is shared by all workers, exact, and bounded: [`Rates`] is a table of fixed size, and [`InFlight`] has an entry for each key
//! that holds a place.

mod handed;
mod in_flight;
mod key;
mod network;
mod per_address;
mod rate;
mod rates;
mod state;

pub use handed::Handed;
pub use in_flight::InFlight;
pub use key::Key;
pub use network::Network;
pub use per_address::{Beyond, OpenPlace, PerAddress};
pub use rate::{Limit, Verdict};
pub use rates::Rates;
pub use state::{LimitName, LimitState};
