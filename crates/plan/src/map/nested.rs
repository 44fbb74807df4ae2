//! Keys that lie in one another: prefixes of texts, and networks. Both are sorted so that what lies in a key follows it, and each knows the
//! narrowest key around it. What applies to a key is then the last one that does not follow it, or one around that.

use std::net::IpAddr;

use model::Cidr;
use model::map::Entries;

/// Stands for no key around.
const NONE: u32 = u32::MAX;

/// Texts, of which the longest applies that a text begins with.
pub(super) struct Prefixes {
    /// Entries in the order of their keys.
    order: Box<[u32]>,
    /// The place in `order` of the key around each.
    around: Box<[u32]>,
}

impl Prefixes {
    pub(super) fn new(entries: &Entries) -> Self {
        let mut order: Vec<u32> = (0..entries.len() as u32).collect();
        order.sort_unstable_by(|one, other| entries.key(*one).cmp(entries.key(*other)));
        let around = nest(order.len(), |outer, inner| entries.key(order[inner]).starts_with(entries.key(order[outer])));
        Self { order: order.into(), around }
    }

    #[inline]
    pub(super) fn find(&self, entries: &Entries, text: &[u8], is_wanted: impl Fn(&u32) -> bool) -> Option<u32> {
        let behind = self.order.partition_point(|entry| entries.key(*entry) <= text);
        let last = behind.checked_sub(1)?;
        let common = common(entries.key(self.order[last]), text);
        let mut place = last as u32;
        while place != NONE {
            let entry = self.order[place as usize];
            if entries.key(entry).len() <= common && is_wanted(&entry) {
                return Some(entry);
            }
            place = self.around[place as usize];
        }
        None
    }

    pub(super) fn exact(&self, entries: &Entries, key: &[u8]) -> Option<u32> {
        let place = self.order.binary_search_by(|entry| entries.key(*entry).cmp(key)).ok()?;
        Some(self.order[place])
    }
}

/// Bytes with which both begin.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// For each of so many keys the place of the narrowest one around it. `contains` says whether one key, which comes before, is around another.
fn nest(count: usize, contains: impl Fn(usize, usize) -> bool) -> Box<[u32]> {
    let mut open: Vec<usize> = Vec::new();
    let mut around = Vec::with_capacity(count);
    for place in 0..count {
        while open.last().is_some_and(|outer| !contains(*outer, place)) {
            open.pop();
        }
        around.push(open.last().map_or(NONE, |outer| *outer as u32));
        open.push(place);
    }
    around.into()
}

/// Networks, of which the most specific applies that contains an address.
pub(super) struct Networks {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl Networks {
    pub(super) fn new(entries: &Entries) -> Self {
        let parsed = (0..).zip(entries.iter()).filter_map(|(entry, (key, _))| {
            let network: Cidr = std::str::from_utf8(key).ok()?.parse().ok()?;
            Some((entry, network))
        });
        let (v4, v6): (Vec<_>, Vec<_>) = parsed.partition(|(_, network)| network.is_v4());
        Self { v4: Ranges::new(v4, |bits| bits as u32), v6: Ranges::new(v6, |bits| bits) }
    }

    /// Returns the entry and the length of its prefix.
    #[inline]
    pub(super) fn find(&self, ip: IpAddr, is_wanted: impl Fn(&u32) -> bool) -> Option<(u32, u8)> {
        match ip.to_canonical() {
            IpAddr::V4(ip) => self.v4.find(ip.to_bits(), is_wanted),
            IpAddr::V6(ip) => self.v6.find(ip.to_bits(), is_wanted),
        }
    }

    pub(super) fn exact(&self, network: &Cidr) -> Option<u32> {
        let (start, last) = network.range();
        if network.is_v4() { self.v4.exact(start as u32, last as u32) } else { self.v6.exact(start, last) }
    }
}

struct Ranges<T> {
    starts: Box<[T]>,
    lasts: Box<[T]>,
    bits: Box<[u8]>,
    entries: Box<[u32]>,
    around: Box<[u32]>,
}

impl<T: Copy + Ord> Ranges<T> {
    fn new(mut networks: Vec<(u32, Cidr)>, narrow: fn(u128) -> T) -> Self {
        networks.sort_unstable_by_key(|(_, network)| (network.range().0, network.bits()));
        let range = |network: &Cidr| (narrow(network.range().0), narrow(network.range().1));
        let starts: Box<[T]> = networks.iter().map(|(_, network)| range(network).0).collect();
        let lasts: Box<[T]> = networks.iter().map(|(_, network)| range(network).1).collect();
        let around = nest(networks.len(), |outer, inner| lasts[outer] >= starts[inner]);
        let bits = networks.iter().map(|(_, network)| network.bits()).collect();
        Self { starts, lasts, bits, entries: networks.iter().map(|(entry, _)| *entry).collect(), around }
    }

    #[inline]
    fn find(&self, address: T, is_wanted: impl Fn(&u32) -> bool) -> Option<(u32, u8)> {
        let behind = self.starts.partition_point(|start| *start <= address);
        let mut place = behind.checked_sub(1)? as u32;
        while place != NONE {
            let at = place as usize;
            if self.lasts[at] >= address && is_wanted(&self.entries[at]) {
                return Some((self.entries[at], self.bits[at]));
            }
            place = self.around[at];
        }
        None
    }

    fn exact(&self, start: T, last: T) -> Option<u32> {
        let from = self.starts.partition_point(|known| *known < start);
        let to = self.starts.partition_point(|known| *known <= start);
        (from..to).find(|place| self.lasts[*place] == last).map(|place| self.entries[place])
    }
}
