//! How the endpoints of a cluster share its work.

use std::time::Duration;

use crate::hash_key::HashKey;
use crate::limits::BALANCE_HALF_LIFE;

/// How an endpoint is chosen. `docs/guides/write-a-balancer.md` shows how to add one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Smooth weighted round robin.
    RoundRobin,
    /// At random by weight.
    Random,
    /// Fewest exchanges in flight per weight.
    LeastRequest,
    /// The better of two that chance draws: fewer exchanges in flight per weight.
    PowerOfTwo,
    /// Shortest mean time to answer, with what is in flight, per weight.
    LeastTime {
        /// After which an answer counts half.
        half_life: Duration,
    },
    /// The better of two that chance draws, by a mean time to answer that follows peaks at once.
    PeakEwma {
        /// After which an answer counts half.
        half_life: Duration,
    },
    /// The first that has room.
    First,
    /// By a key of the request: equal keys go to the same endpoint.
    Hash(Hash),
}

/// A balancer that its name alone chooses.
#[derive(Clone, Copy, Debug)]
pub struct NamedBalance {
    /// What editors show beside the name.
    pub summary: &'static str,
    /// Makes it, with defaults.
    pub make: fn() -> Balance,
}

impl NamedBalance {
    const fn new(summary: &'static str, make: fn() -> Balance) -> Self {
        Self { summary, make }
    }

    /// Returns the name, as the configuration has it.
    pub fn name(&self) -> &'static str {
        (self.make)().name()
    }
}

impl Balance {
    /// Every balancer that its name alone chooses, the default first. The schema and the diagnostics have this order.
    pub const NAMED: &[NamedBalance] = &[
        NamedBalance::new("One after the other, by weight.", || Balance::RoundRobin),
        NamedBalance::new("At random, by weight.", || Balance::Random),
        NamedBalance::new("The one with the fewest requests in flight, by weight.", || Balance::LeastRequest),
        NamedBalance::new(
            "The better of two random endpoints, drawn by weight: the one with fewer requests in flight.",
            || Balance::PowerOfTwo,
        ),
        NamedBalance::new("The one that is expected to respond soonest.", || Balance::LeastTime {
            half_life: BALANCE_HALF_LIFE,
        }),
        NamedBalance::new(
            "The better of two random endpoints: the one that is expected to respond sooner. Reacts to slowness at once.",
            || Balance::PeakEwma { half_life: BALANCE_HALF_LIFE },
        ),
        NamedBalance::new("The first one that has room.", || Balance::First),
        NamedBalance::new(
            "The same endpoint for the same client, by its address.",
            || Balance::Hash(Hash::of_source()),
        ),
    ];

    /// As the configuration calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::LeastRequest => "least_request",
            Self::PowerOfTwo => "power_of_two",
            Self::LeastTime { .. } => "least_time",
            Self::PeakEwma { .. } => "peak_ewma",
            Self::First => "first",
            Self::Hash(hash) if *hash == Hash::of_source() => "source_hash",
            Self::Hash(_) => "hash",
        }
    }
}

/// Equal keys go to the same endpoint, and nearly all still do when endpoints come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hash {
    /// The first of these that a request has; chance stands in when it has none.
    pub on: Vec<HashKey>,
    /// How keys are mapped to endpoints.
    pub algorithm: HashAlgorithm,
    /// Bound on what an endpoint has in flight, in percent of its share of all that is in flight; 100 or more.
    pub load_max: Option<u32>,
}

impl Hash {
    /// By the client's address, with defaults.
    pub fn of_source() -> Self {
        Self { on: vec![HashKey::Source], algorithm: HashAlgorithm::Rendezvous, load_max: None }
    }
}

/// How keys are mapped to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// Points on a ring.
    Ketama,
    /// A table that endpoints fill in turns.
    Maglev,
    /// The highest score of key and endpoint.
    Rendezvous,
}
