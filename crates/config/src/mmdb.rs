//! MaxMind DB files (version 2 of the format): networks, and what is known of them, such as their country.
//!
//! A map takes one field of each network. Neighbours with equal values become one network. A file is foreign: each offset is checked, no
//! node of the tree is walked twice, and the work is bounded, so that a file with loops or with very many nested values is an error.

mod data;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use model::map::{Collector, Entries, MapKind};

use data::{Bad, Data};
use tree::Tree;

/// Precedes the metadata, which is within the last bytes of a file.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
const METADATA_BYTES_MAX: usize = 128 * 1024;
/// Fields that are named where the one that is asked for does not exist.
const FIELDS_NAMED: usize = 8;

/// Returns whether this is such a file.
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    metadata_at(bytes).is_some()
}

/// Reads a file into a map of networks: the value of each is that of a field, such as `country.iso_code` or `subdivisions.0.iso_code`. A
/// network without the field has no entry.
///
/// # Errors
/// Why the file cannot be read, or that no network has the field, with some that there are.
pub fn entries(bytes: &[u8], field: &str) -> Result<Entries, String> {
    let at = metadata_at(bytes).ok_or("it is not a MaxMind DB")?;
    let told = |Bad(why)| format!("the MaxMind DB is damaged: {why}");
    let tree = Tree::read(bytes, &Data::new(&bytes[at + MARKER.len()..])).map_err(told)?;
    let data = Data::new(bytes.get(tree.bytes() + tree::GAP..at).unwrap_or_default());
    let mut reading = Reading { data, path: field.split('.').collect(), known: HashMap::new(), values: HashMap::new() };
    let networks = reading.networks(&tree).map_err(told)?;
    if networks.is_empty() {
        let some = reading.data.fields(FIELDS_NAMED);
        let some: Vec<String> = some.iter().map(|name| format!("`{name}`")).collect();
        return Err(format!("no network has the field `{field}`; the first has {}", some.join(", ")));
    }
    let mut values = vec![Rc::from(""); reading.values.len()];
    for (text, place) in reading.values {
        values[place as usize] = text;
    }
    let mut collector = Collector::new(MapKind::Cidr);
    for Network { bits, length, value } in networks {
        let network = match (length, bits >> 32) {
            (96.., 0) => format!("{}/{}", Ipv4Addr::from(bits as u32), length - 96),
            _ => format!("{}/{length}", Ipv6Addr::from(bits)),
        };
        collector.add(&network, &values[value as usize])?;
    }
    collector.finish().map_err(|_| "the MaxMind DB is damaged: a network is there twice".to_owned())
}

/// Returns where the metadata begins, with its marker.
fn metadata_at(bytes: &[u8]) -> Option<usize> {
    let from = bytes.len().saturating_sub(METADATA_BYTES_MAX);
    bytes[from..].windows(MARKER.len()).rposition(|window| window == MARKER).map(|at| from + at)
}

/// A network with the place of its value. Networks of IPv4 are below `::/96`.
#[derive(Clone, Copy)]
struct Network {
    bits: u128,
    length: u8,
    value: u32,
}

/// One reading of a file.
struct Reading<'a> {
    data: Data<'a>,
    path: Vec<&'a str>,
    /// Places of values by the offset of their record; `None`: it lacks the field.
    known: HashMap<u32, Option<u32>>,
    /// Each once, with its place.
    values: HashMap<Rc<str>, u32>,
}

impl Reading<'_> {
    fn networks(&mut self, tree: &Tree<'_>) -> Result<Vec<Network>, Bad> {
        let mut networks: Vec<Network> = Vec::new();
        tree.walk(&mut |bits, length, offset| {
            if let Some(value) = self.value(offset)? {
                join(&mut networks, Network { bits, length, value });
            }
            Ok(())
        })?;
        Ok(networks)
    }

    fn value(&mut self, offset: u32) -> Result<Option<u32>, Bad> {
        if let Some(known) = self.known.get(&offset) {
            return Ok(*known);
        }
        let text = self.data.text_at(offset as usize, &self.path)?;
        let next = self.values.len() as u32;
        let place = text.map(|text| *self.values.entry(text.into()).or_insert(next));
        self.known.insert(offset, place);
        Ok(place)
    }
}

/// Appends a network; with the one before it, if both are halves of another one and have the same value.
fn join(networks: &mut Vec<Network>, mut network: Network) {
    while let Some(last) = networks.last() {
        let half = 1_u128.checked_shl(u32::from(128 - network.length)).unwrap_or(0);
        let is_pair = last.length == network.length && last.bits ^ network.bits == half && half != 0;
        // All of IPv4 is not half of a network of IPv6.
        if !is_pair || last.value != network.value || (last.length == 96 && last.bits == 0) {
            break;
        }
        network = Network { length: network.length - 1, ..*last };
        networks.pop();
    }
    networks.push(network);
}
