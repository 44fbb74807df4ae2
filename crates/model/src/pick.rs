//! Why an endpoint was picked.

/// Why an attempt goes to the endpoint that it goes to. Of several reasons the one counts that stands first here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PickReason {
    /// It is asked beside another one that takes long.
    Hedge,
    /// All were full, and its place was the next that came free.
    Queue,
    /// Another attempt has failed before.
    Retry,
    /// The session of the request belongs to it.
    Session,
    /// Fallback: no endpoint of the route's subset is available.
    Fallback,
    /// Panic mode: too few endpoints are healthy, so health is ignored.
    Panic,
    /// It is a backup, or of a later priority: those before it cannot bear everything, or are full.
    Spill,
    /// It is in another zone: those in the own one cannot bear everything, or are full.
    OtherZone,
    /// It is in the own zone, which comes before others.
    OwnZone,
    /// The key of the request falls on another one, which is full or beyond its `load_max`.
    Overflow,
    /// The key of the request falls on it.
    Hash,
    /// It is the only one that may get work.
    Only,
    /// The balancer chose it among all.
    Balance,
}

impl PickReason {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Hedge,
        Self::Queue,
        Self::Retry,
        Self::Session,
        Self::Fallback,
        Self::Panic,
        Self::Spill,
        Self::OtherZone,
        Self::OwnZone,
        Self::Overflow,
        Self::Hash,
        Self::Only,
        Self::Balance,
    ];

    /// Returns the name in metrics, logs and explanations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hedge => "hedge",
            Self::Queue => "queue",
            Self::Retry => "retry",
            Self::Session => "session",
            Self::Fallback => "fallback",
            Self::Panic => "panic",
            Self::Spill => "spill",
            Self::OtherZone => "other_zone",
            Self::OwnZone => "own_zone",
            Self::Overflow => "overflow",
            Self::Hash => "hash",
            Self::Only => "only",
            Self::Balance => "balance",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_numbers() {
        for (number, reason) in PickReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number, "{reason:?}");
        }
    }
}
