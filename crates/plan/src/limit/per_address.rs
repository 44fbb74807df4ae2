//! Bounds on the connections of each client address at one listener.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use model::snapshot::ConnectionsPerAddress;
use model::{AddressList, Issue};

use super::{InFlight, Limit, LimitState, Network, Rates};
use crate::addresses::AddressTable;

/// The bounds, compiled. Listeners of later plans take over what was counted.
pub struct PerAddress {
    network: Network,
    keys_max: u32,
    max: u32,
    limit: Option<Limit>,
    /// Those without bounds.
    except: Option<AddressTable>,
    open: Arc<InFlight>,
    rates: Arc<Rates>,
}

/// A connection that counts as open until this is dropped.
pub struct OpenPlace {
    open: Arc<InFlight>,
    place: u64,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// The address has as many connections as it may.
    Max,
    /// It opens them too fast.
    Rate,
}

impl OpenPlace {
    /// Takes a place of a key, without a bound.
    pub(crate) fn take(open: &Arc<InFlight>, key: &[u8], chance: &mut dyn FnMut() -> u64) -> Option<Self> {
        let place = open.enter(key, u32::MAX, chance)?;
        Some(Self { open: Arc::clone(open), place })
    }
}

impl PerAddress {
    /// Compiles the bounds of a listener that had those of `before`.
    ///
    /// # Errors
    /// The rate cannot be understood, or its burst is out of range. Paths are below the bounds.
    pub fn compile(bounds: &ConnectionsPerAddress, before: Option<&Self>) -> Result<Self, Issue> {
        let limit = bounds.rate.as_ref().map(|rate| Limit::compile(rate, bounds.burst)).transpose()?;
        let network = Network::new(bounds.ipv4_prefix, bounds.ipv6_prefix);
        // What is counted by other networks is of no use, nor are rates that lie elsewhere in their table.
        let same = before.filter(|before| before.network == network);
        let open = same.map_or_else(Arc::default, |same| Arc::clone(&same.open));
        let rates = same.filter(|same| same.keys_max == bounds.keys_max).map(|same| Arc::clone(&same.rates));
        let except = (!bounds.except.is_empty()).then(|| {
            let list = AddressList { allowed: bounds.except.clone(), denied: Vec::new(), lets_others_in: false };
            AddressTable::of(&list)
        });
        Ok(Self {
            network,
            keys_max: bounds.keys_max,
            max: bounds.max.unwrap_or(u32::MAX),
            limit,
            except,
            open,
            rates: rates.unwrap_or_else(|| Arc::new(Rates::new(bounds.keys_max as usize))),
        })
    }

    /// Counts a new connection of this address. `None`: it has no bounds. `chance` gives the keys of hashes, once.
    ///
    /// # Errors
    /// The address is beyond a bound; nothing was counted.
    pub fn open(
        &self,
        address: IpAddr,
        now: Instant,
        chance: &mut dyn FnMut() -> u64,
    ) -> Result<Option<OpenPlace>, Beyond> {
        if self.is_excepted(address) {
            return Ok(None);
        }
        self.network.with(address, |key| {
            let place = self.open.enter(key, self.max, chance).ok_or(Beyond::Max)?;
            let open = OpenPlace { open: Arc::clone(&self.open), place };
            match &self.limit {
                Some(limit) if !self.rates.spend(key, limit, now, chance).is_allowed => Err(Beyond::Rate),
                _ => Ok(Some(open)),
            }
        })
    }

    /// Returns what is kept of addresses, and what tells whether another process keeps it in the same way.
    pub(crate) fn limits(&self) -> (String, [LimitState; 2]) {
        let states = [LimitState::InFlight(Arc::clone(&self.open)), LimitState::Rates(Arc::clone(&self.rates))];
        (format!("{:?} {}", self.network, self.keys_max), states)
    }

    /// Returns whether the address has as many connections as it may already, without counting one.
    pub fn is_full(&self, address: IpAddr) -> bool {
        !self.is_excepted(address) && self.network.with(address, |key| self.open.count(key)) >= self.max
    }

    fn is_excepted(&self, address: IpAddr) -> bool {
        self.except.as_ref().is_some_and(|table| table.allows(address))
    }
}

impl Drop for OpenPlace {
    fn drop(&mut self) {
        self.open.leave(self.place);
    }
}
