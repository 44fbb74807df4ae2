//! How the endpoints of a cluster share its work.

use std::time::Duration;

use crate::hash_key::HashKey;

/// How an endpoint is chosen. New balancers are added here and as a file in `plan::balance`.
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

impl Balance {
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
