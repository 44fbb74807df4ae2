//! What the example adds to `crates/model/src/snapshot/balance.rs`, each line within the item that it belongs to.

pub(super) struct NamedBalance {
    pub(super) summary: &'static str,
    pub(super) make: fn() -> Balance,
}

impl NamedBalance {
    const fn new(summary: &'static str, make: fn() -> Balance) -> Self {
        Self { summary, make }
    }
}

pub(super) enum Balance {
    /// The most free places.
    MostRoom,
}

impl Balance {
    #[rustfmt::skip]
    pub(super) const NAMED: &[NamedBalance] = &[
        NamedBalance::new("The one with the most free places.", || Balance::MostRoom),
    ];

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::MostRoom => "most_room",
        }
    }
}
