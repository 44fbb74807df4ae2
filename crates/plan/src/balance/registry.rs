//! What a balancer is made of, and how all of them become one type.

use super::tier::Tier;
use super::{Ask, Chance};
use crate::cluster::Lease;

/// One balancer, as the reference page describes it.
#[derive(Clone, Copy, Debug)]
pub struct BalancerSpec {
    /// The value of `balance:`, [`model::snapshot::Balance::name`].
    pub name: &'static str,
    /// The name alone does not choose it: it has no defaults.
    pub needs_settings: bool,
    /// Markdown: first line a summary, then explanation.
    pub doc: &'static str,
}

/// What a balancer has computed ahead for one tier. `new` makes it of the settings, the seeds of the members and what is `Configured`,
/// whenever the members or their weights change. All workers share it.
pub(super) trait Balancer {
    /// Free places go to waiting requests in the order of the members.
    const IS_ORDERED: bool = false;

    /// Takes a place at a member that has room and was not tried. `None`: there is none.
    fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease>;

    /// Takes a place for a request that has waited in the queue. `None`, the default, lets it have any free place.
    fn take_for_waiting(&self, _: &Tier, _: &mut Chance<'_>, _: &Waiting<'_>) -> Option<Lease> {
        None
    }

    /// Whether the tier counts the places that are taken, for [`Tier::busy`].
    fn counts(&self) -> bool {
        false
    }

    /// Returns why a member was chosen, as `explain` says it.
    fn reason(ask: &Ask<'_>) -> &'static str;
}

/// What is known of a request that has waited. The time is not.
pub(super) struct Waiting<'a> {
    /// As [`Ask::key`].
    pub(super) key: Option<u64>,
    /// As [`Ask::tried`].
    pub(super) tried: &'a [u32],
}

/// Makes one type of all balancers, so that a pick calls each directly, and the list for the reference page. A line has the variant
/// of `Balance` with its settings, then the [`Balancer`] and what stands on the page.
macro_rules! balancers {
    ($($variant:ident $(($settings:ident))? $({ $setting:ident })? => $module:ident::{$balancer:ident, $($spec:ident),+};)+) => {
        /// Every balancer, the default first.
        pub const BALANCERS: &[BalancerSpec] = &[$($($module::$spec),+),+];

        /// The balancer of a tier, with what it has computed ahead.
        enum Choice {
            $($variant($module::$balancer),)+
        }

        impl Choice {
            fn new(balance: &Balance, seeds: &[Seed], configured: Configured) -> Self {
                match balance {
                    $(Balance::$variant $(($settings))? $({ $setting })? => {
                        Self::$variant($module::$balancer::new($($settings,)? $(*$setting,)? seeds, configured))
                    })+
                }
            }

            #[inline]
            fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
                match self {
                    $(Self::$variant(balancer) => balancer.take(tier, chance, ask),)+
                }
            }

            fn take_for_waiting(
                &self,
                tier: &Tier,
                chance: &mut Chance<'_>,
                waiting: &Waiting<'_>,
            ) -> Option<Lease> {
                match self {
                    $(Self::$variant(balancer) => balancer.take_for_waiting(tier, chance, waiting),)+
                }
            }

            fn counts(&self) -> bool {
                match self {
                    $(Self::$variant(balancer) => balancer.counts(),)+
                }
            }

            fn is_ordered(&self) -> bool {
                match self {
                    $(Self::$variant(_) => <$module::$balancer as Balancer>::IS_ORDERED,)+
                }
            }
        }

        /// Returns why a balancer chose an endpoint, as `explain` says it.
        pub(crate) fn reason(balance: &Balance, ask: &Ask<'_>) -> &'static str {
            match balance {
                $(Balance::$variant { .. } => <$module::$balancer as Balancer>::reason(ask),)+
            }
        }
    };
}

pub(super) use balancers;
