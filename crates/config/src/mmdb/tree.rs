//! The search tree: a node for each bit of an address, with a record for each side.

use super::data::{Bad, Data};

/// Bytes between the tree and the data.
pub(super) const GAP: usize = 16;

/// See the module.
pub(super) struct Tree<'a> {
    bytes: &'a [u8],
    nodes: u32,
    /// Bits of a record: 24, 28 or 32.
    record_bits: usize,
    is_v6: bool,
}

/// Called with the bits, the length and the offset of the data of each network that has some.
type Each<'f> = dyn FnMut(u128, u8, u32) -> Result<(), Bad> + 'f;

/// Where a walk is.
struct Place {
    record: u32,
    bits: u128,
    length: u8,
}

impl<'a> Tree<'a> {
    /// Reads what the metadata says of the tree of a file.
    pub(super) fn read(file: &'a [u8], metadata: &Data<'_>) -> Result<Self, Bad> {
        let number = |name: &str| metadata.number_at(0, name)?.ok_or(Bad("its metadata is incomplete"));
        if number("binary_format_major_version")? != 2 {
            return Err(Bad("it has another version than 2"));
        }
        let nodes = u32::try_from(number("node_count")?).map_err(|_| Bad("it has too many nodes"))?;
        let record_bits = number("record_size")? as usize;
        let is_v6 = match number("ip_version")? {
            4 => false,
            6 => true,
            _ => return Err(Bad("it is neither of IPv4 nor of IPv6")),
        };
        if !matches!(record_bits, 24 | 28 | 32) {
            return Err(Bad("its records have none of 24, 28 and 32 bits"));
        }
        let tree = Self { bytes: file, nodes, record_bits, is_v6 };
        if nodes == 0 || file.len() < tree.bytes() + GAP {
            return Err(Bad("it ends within the tree"));
        }
        Ok(Self { bytes: &file[..tree.bytes()], ..tree })
    }

    /// Returns the length of the tree.
    pub(super) fn bytes(&self) -> usize {
        self.nodes as usize * self.record_bits / 4
    }

    /// Calls with each network that has data, in the order of addresses. Networks of IPv4 are below `::/96`; other places of the tree
    /// that lead to them, such as `2002::/16`, are left out.
    pub(super) fn walk(&self, each: &mut Each<'_>) -> Result<(), Bad> {
        let start = if self.is_v6 { 0 } else { 96 };
        let v4 = self.v4();
        // No node leads to a second place, so that as many steps as there are nodes are enough.
        let mut left = u64::from(self.nodes) + 1;
        let mut open = vec![Place { record: 0, bits: 0, length: start }];
        while let Some(Place { record, bits, length }) = open.pop() {
            if record < self.nodes {
                if v4 == Some(record) && !(length == 96 && bits == 0) {
                    continue;
                }
                left = left.checked_sub(1).ok_or(Bad("its tree has loops"))?;
                if length == 128 {
                    return Err(Bad("its tree is deeper than an address"));
                }
                let [zero, one] = self.node(record);
                let side = 1_u128 << (127 - length);
                open.push(Place { record: one, bits: bits | side, length: length + 1 });
                open.push(Place { record: zero, bits, length: length + 1 });
            } else if record > self.nodes {
                let offset = (record - self.nodes).checked_sub(GAP as u32).ok_or(Bad("a record leads nowhere"))?;
                // A network that is wider than all of IPv4 holds for that, too.
                if bits == 0 && length < 96 {
                    each(0, 96, offset)?;
                }
                each(bits, length, offset)?;
            }
        }
        Ok(())
    }

    /// The node at which addresses of IPv4 begin, in a tree of IPv6.
    fn v4(&self) -> Option<u32> {
        let mut record = 0;
        for _ in 0..if self.is_v6 { 96 } else { 0 } {
            if record >= self.nodes {
                return None;
            }
            record = self.node(record)[0];
        }
        (self.is_v6 && record < self.nodes).then_some(record)
    }

    /// The records of a node, which exists.
    fn node(&self, node: u32) -> [u32; 2] {
        let size = self.record_bits / 4;
        let bytes = &self.bytes[node as usize * size..][..size];
        let number = |bytes: &[u8]| bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        match self.record_bits {
            28 => {
                let (high, low) = (u32::from(bytes[3] >> 4), u32::from(bytes[3] & 0xf));
                [high << 24 | number(&bytes[..3]), low << 24 | number(&bytes[4..])]
            }
            _ => [number(&bytes[..size / 2]), number(&bytes[size / 2..])],
        }
    }
}
