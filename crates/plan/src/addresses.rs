//! Who is let in by address, of a listener or by the filter `address_list`: which networks hold an address, as sorted ranges.
//! Networks lie in one another or apart, so that all of them together cut the addresses into ranges of one verdict each.

use std::fmt;
use std::net::IpAddr;

use model::{AddressList, Cidr};

/// Buckets of a table: 4 MiB.
const BUCKETS_MAX: u64 = 1 << 20;

/// One network of a list.
pub(crate) struct Entry {
    pub(crate) network: Cidr,
    pub(crate) is_allowed: bool,
}

/// The verdict on every address.
pub struct AddressTable {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl AddressTable {
    pub(crate) fn of(list: &AddressList) -> Self {
        let allowed = list.allowed.iter().map(|network| Entry { network: *network, is_allowed: true });
        let denied = list.denied.iter().map(|network| Entry { network: *network, is_allowed: false });
        Self::new(allowed.chain(denied).collect(), list.lets_others_in)
    }

    /// Returns a table in which the most specific network decides; of equal ones, the one that denies. `others` is the verdict for the
    /// rest.
    pub(crate) fn new(entries: Vec<Entry>, others: bool) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.network.is_v4());
        let v4 = cuts(v4, others, u128::from(u32::MAX));
        let v6 = cuts(v6, others, u128::MAX);
        Self {
            v4: Ranges::new(v4.iter().map(|cut| cut.0 as u32).collect(), v4[0].1),
            v6: Ranges::new(v6.iter().map(|cut| cut.0).collect(), v6[0].1),
        }
    }

    /// Returns whether the address is allowed.
    #[inline]
    pub fn allows(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.verdict(address.to_bits()),
            IpAddr::V6(address) => self.v6.verdict(address.to_bits()),
        }
    }
}

impl fmt::Debug for AddressTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressTable").field("v4", &self.v4.starts.len()).field("v6", &self.v6.starts.len()).finish()
    }
}

/// Returns where the verdict changes, from the first address (0) on, each with the verdict from there.
fn cuts(mut entries: Vec<Entry>, others: bool, last: u128) -> Vec<(u128, bool)> {
    // Wider networks before those in them, and of equal ones the one that denies last.
    entries.sort_unstable_by_key(|entry| (entry.network.range().0, entry.network.bits(), !entry.is_allowed));
    let mut cuts = vec![(0, others)];
    let mut cut = |at: u128, verdict: bool| {
        if cuts.last().is_some_and(|(start, _)| *start == at) {
            cuts.pop();
        }
        if cuts.last().is_none_or(|(_, before)| *before != verdict) {
            cuts.push((at, verdict));
        }
    };
    // The networks that hold the present address, the widest first, each with its last address.
    let mut around: Vec<(u128, bool)> = Vec::new();
    let leave = |around: &mut Vec<(u128, bool)>, cut: &mut dyn FnMut(u128, bool)| {
        let Some((end, _)) = around.pop() else { return };
        if end < last {
            cut(end + 1, around.last().map_or(others, |(_, verdict)| *verdict));
        }
    };
    for entry in entries {
        let (start, end) = entry.network.range();
        while around.last().is_some_and(|(end, _)| *end < start) {
            leave(&mut around, &mut cut);
        }
        cut(start, entry.is_allowed);
        around.push((end, entry.is_allowed));
    }
    while !around.is_empty() {
        leave(&mut around, &mut cut);
    }
    cuts
}

/// An address as a number.
trait Address: Copy + Ord {
    /// Returns its first 64 bits, or all that it has.
    fn key(self) -> u64;
}

impl Address for u32 {
    fn key(self) -> u64 {
        self.into()
    }
}

impl Address for u128 {
    fn key(self) -> u64 {
        (self >> 64) as u64
    }
}

/// Ranges that are in turn of the one and of the other verdict.
struct Ranges<T> {
    /// The verdict of the first.
    first: bool,
    /// The first address of each, from 0 on.
    starts: Box<[T]>,
    /// The key of the second start, from which on keys are divided into buckets of equal width.
    base: u64,
    /// The width of a bucket, as a power of two.
    shift: u32,
    /// How many starts have keys before each bucket, and before the one after the last.
    buckets: Box<[u32]>,
}

impl<T: Address> Ranges<T> {
    fn new(starts: Box<[T]>, first: bool) -> Self {
        let base = starts.get(1).map_or(0, |start| start.key());
        let span = starts.last().map_or(0, |last| last.key().saturating_sub(base));
        // Where addresses are spread evenly, a bucket holds one start or two.
        let wanted = (starts.len().next_power_of_two() as u64).min(BUCKETS_MAX);
        let shift = (u64::BITS - span.leading_zeros()).saturating_sub(wanted.ilog2());
        let before = |bucket: u64| {
            starts.partition_point(|start| (start.key().saturating_sub(base) >> shift) < bucket || start.key() < base)
        };
        let mut buckets: Vec<u32> = (0..=span >> shift).map(|bucket| before(bucket) as u32).collect();
        buckets.push(starts.len() as u32);
        Self { first, base, shift, buckets: buckets.into(), starts }
    }

    #[inline]
    fn verdict(&self, address: T) -> bool {
        let Some(offset) = address.key().checked_sub(self.base) else { return self.first };
        // What lies behind the last start belongs to its bucket.
        let bucket = ((offset >> self.shift) as usize).min(self.buckets.len() - 2);
        let (from, to) = (self.buckets[bucket] as usize, self.buckets[bucket + 1] as usize);
        // The first start is 0, so that there is always one that is not above the address.
        let range = (from + self.starts[from..to].partition_point(|start| *start <= address)).saturating_sub(1);
        self.first ^ (range % 2 == 1)
    }
}
