//! The entries of a map, as they are found.

use std::net::IpAddr;
use std::sync::Arc;

use model::map::{Entries, MapKind};
use model::{Cidr, Issue};
use regex::bytes::Regex;

use super::Key;
use super::nested::{Networks, Prefixes};
use crate::hash;
use crate::route::expression;

/// See the module.
#[derive(Default)]
pub(super) struct Table {
    entries: Arc<Entries>,
    finder: Finder,
}

enum Finder {
    /// Places of entries plus one by the hash of their keys, 0 where there is none; at most half of them are taken.
    Exact(Box<[u32]>),
    Prefix(Prefixes),
    Regex(Box<[Regex]>),
    Cidr(Networks),
}

impl Default for Finder {
    fn default() -> Self {
        Self::Exact(Box::default())
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The place of the entry.
    pub entry: u32,
    /// How much of the key it says, where one entry can lie in another.
    pub rank: usize,
}

impl Table {
    pub(super) fn new(kind: MapKind, entries: Arc<Entries>) -> Result<Self, Issue> {
        let finder = match kind {
            MapKind::Exact => Finder::Exact(slots(&entries)),
            MapKind::Prefix => Finder::Prefix(Prefixes::new(&entries)),
            MapKind::Regex => {
                let compile = |(key, _): (&[u8], &[u8])| {
                    let key = String::from_utf8_lossy(key);
                    expression::whole(&key).map_err(|issue| issue.below(&key))
                };
                Finder::Regex(entries.iter().map(compile).collect::<Result<_, _>>()?)
            }
            MapKind::Cidr => Finder::Cidr(Networks::new(&entries)),
        };
        Ok(Self { entries, finder })
    }

    /// Returns the value of an entry.
    #[inline]
    pub(super) fn value(&self, entry: u32) -> &[u8] {
        self.entries.value(entry)
    }

    /// Returns the entry that applies to a key, of those that are wanted.
    #[inline]
    pub(super) fn find(&self, key: Key<'_>, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Found> {
        if self.entries.is_empty() {
            return None;
        }
        let mut written = [0; IP_BYTES_MAX];
        let text = match key {
            Key::Text(text) => text,
            Key::Ip(_) if matches!(self.finder, Finder::Cidr(_)) => b"",
            Key::Ip(ip) => write_ip(ip, &mut written),
        };
        let wanted = |entry: &u32| is_wanted(self.entries.key(*entry));
        match &self.finder {
            Finder::Exact(slots) => {
                let entry = self.exact(slots, text).filter(wanted)?;
                Some(Found { entry, rank: 0 })
            }
            Finder::Prefix(prefixes) => {
                let entry = prefixes.find(&self.entries, text, wanted)?;
                Some(Found { entry, rank: self.entries.key(entry).len() })
            }
            Finder::Regex(regexes) => {
                let mut matching = (0..).zip(regexes).filter(|(_, regex)| regex.is_match(text));
                let (entry, _) = matching.find(|(entry, _)| wanted(entry))?;
                Some(Found { entry, rank: 0 })
            }
            Finder::Cidr(networks) => {
                let ip = match key {
                    Key::Ip(ip) => ip,
                    Key::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok()?,
                };
                let (entry, bits) = networks.find(ip, wanted)?;
                Some(Found { entry, rank: bits.into() })
            }
        }
    }

    /// Returns the entry of this very key.
    pub(super) fn entry_of(&self, key: &[u8]) -> Option<u32> {
        match &self.finder {
            Finder::Exact(slots) => self.exact(slots, key),
            Finder::Prefix(prefixes) => prefixes.exact(&self.entries, key),
            Finder::Regex(_) => (0..self.entries.len() as u32).find(|entry| self.entries.key(*entry) == key),
            Finder::Cidr(networks) => {
                let network: Cidr = std::str::from_utf8(key).ok()?.parse().ok()?;
                networks.exact(&network)
            }
        }
    }

    #[inline]
    fn exact(&self, slots: &[u32], key: &[u8]) -> Option<u32> {
        let mask = slots.len().checked_sub(1)?;
        let mut place = hash::of_bytes(key) as usize & mask;
        loop {
            let entry = slots[place].checked_sub(1)?;
            if self.entries.key(entry) == key {
                return Some(entry);
            }
            place = (place + 1) & mask;
        }
    }
}

/// The table of exact keys. Where many keys have hashes next to each other, those behind them wander on.
fn slots(entries: &Entries) -> Box<[u32]> {
    if entries.is_empty() {
        return Box::default();
    }
    let mut slots = vec![0_u32; (entries.len() * 2).next_power_of_two()];
    let mask = slots.len() - 1;
    for (entry, (key, _)) in (1..).zip(entries.iter()) {
        let mut place = hash::of_bytes(key) as usize & mask;
        while slots[place] != 0 {
            place = (place + 1) & mask;
        }
        slots[place] = entry;
    }
    slots.into()
}

/// Bytes of the longest address.
const IP_BYTES_MAX: usize = 46;

/// Writes an address, as expressions write it.
fn write_ip(ip: IpAddr, out: &mut [u8; IP_BYTES_MAX]) -> &[u8] {
    let mut rest = &mut out[..];
    // It is long enough.
    let _ = std::io::Write::write_fmt(&mut rest, format_args!("{}", ip.to_canonical()));
    let left = rest.len();
    &out[..IP_BYTES_MAX - left]
}
