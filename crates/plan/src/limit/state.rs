//! The state of a limit, and which limit of a plan has it.

use std::sync::Arc;
use std::time::Instant;

use super::{Handed, InFlight, Rates};

/// Which limit of a plan this is. Two limits of a list of filters may have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitName {
    /// The route or listener, such as `routes/main`.
    pub of: String,
    /// The filter, or the setting of the listener.
    pub filter: &'static str,
    /// What is counted, and what else decides where an entry lies.
    pub key: String,
    /// Hash of the settings of the filter, the same in every version.
    pub settings: u64,
}

/// The state of a limit, which plans share.
#[derive(Clone)]
pub enum LimitState {
    /// How often.
    Rates(Arc<Rates>),
    /// How many at once.
    InFlight(Arc<InFlight>),
}

impl LimitState {
    /// Returns `rates` or `places`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Rates(_) => "rates",
            Self::InFlight(_) => "places",
        }
    }

    /// Takes over what the process before has counted; see [`Rates::inherit`] and [`InFlight::inherit`].
    pub fn inherit(&self, handed: &Handed, now: Instant) {
        match self {
            Self::Rates(rates) => rates.inherit(handed, now),
            Self::InFlight(places) => places.inherit(handed),
        }
    }
}
