//! From blocks to fields (RFC 7541 section 3).

use super::dynamic::{Dynamic, Name};
use super::{FIELD_OVERHEAD_BYTES, table};
use crate::compression::{Unreadable, integer, string};

/// Memory for strings that is kept between blocks, for each of two.
const SCRATCH_KEPT_BYTES: usize = 512;
/// How many times as large a list may be as allowed before it is not decoded to its end. Two bytes of a block can stand for thousands
/// that are to be remembered, so that its own size bounds nothing.
const LIST_TIMES_MAX: usize = 4;
/// Lists up to this size are always decoded to their end.
const LIST_BYTES_MIN: usize = 64 * 1024;

/// Why nothing that follows a block on the connection could be read (RFC 9113 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBlock {
    /// It breaks RFC 7541.
    Undecodable,
    /// Its list is so much larger than allowed that it is not worth reading.
    FarTooLarge,
}

impl From<Unreadable> for BadBlock {
    fn from(Unreadable: Unreadable) -> Self {
        Self::Undecodable
    }
}

/// How much of a block was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// All of it.
    Whole,
    /// The list is larger than allowed: only what was within the bound. The table is as the peer thinks it is.
    TooLarge,
}

/// Reads the blocks of one direction of a connection, all of them, in their order.
#[derive(Clone, Debug)]
pub struct Decoder {
    dynamic: Dynamic,
    /// How large the peer may make the table.
    table_bytes_max: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// `table_bytes_max` is what SETTINGS_HEADER_TABLE_SIZE says, [`super::TABLE_BYTES`] if nothing.
    pub fn new(table_bytes_max: usize) -> Self {
        Self { dynamic: Dynamic::new(table_bytes_max), table_bytes_max, name: Vec::new(), value: Vec::new() }
    }

    /// Gives `visit` each name and value of a block, as long as all of them together are no larger than `bytes_max`, each
    /// counted with 32 bytes more (RFC 9113 section 6.5.2). So a byte that stands for a long entry costs no more than any other.
    ///
    /// # Errors
    /// [`BadBlock`]: the connection is to be ended, with COMPRESSION_ERROR or ENHANCE_YOUR_CALM.
    pub fn decode(
        &mut self,
        block: &[u8],
        bytes_max: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<Decoded, BadBlock> {
        let mut rest = block;
        self.take_sizes(&mut rest)?;
        let (mut left, mut bearable) = (Some(bytes_max), LIST_BYTES_MIN.max(bytes_max.saturating_mul(LIST_TIMES_MAX)));
        let mut give = |name: &[u8], value: &[u8]| -> Result<(), BadBlock> {
            let cost = name.len() + value.len() + FIELD_OVERHEAD_BYTES;
            bearable = bearable.checked_sub(cost).ok_or(BadBlock::FarTooLarge)?;
            left = left.and_then(|left| left.checked_sub(cost));
            if left.is_some() {
                visit(name, value);
            }
            Ok(())
        };
        let Self { dynamic, name: name_scratch, value: value_scratch, .. } = self;
        while let Some(first) = rest.first().copied() {
            let (is_kept, prefix_bits) = match first {
                // Indexed (section 6.1).
                0x80.. => {
                    let (name, value) = entry(dynamic, integer(&mut rest, 7)?)?;
                    give(name, value)?;
                    continue;
                }
                // Literal, to be remembered (section 6.2.1).
                0x40..0x80 => (true, 6),
                // Another size, which stands before all fields (section 4.2).
                0x20..0x40 => return Err(BadBlock::Undecodable),
                // Literal, not to be indexed, or never indexed (sections 6.2.2, 6.2.3).
                _ => (false, 4),
            };
            let index = integer(&mut rest, prefix_bits)?;
            let literal = if index == 0 { string(&mut rest, 7, name_scratch)? } else { &[] };
            let value = string(&mut rest, 7, value_scratch)?;
            give(if index == 0 { literal } else { entry(dynamic, index)?.0 }, value)?;
            if is_kept {
                dynamic.insert(&name_of(index, literal), value);
            }
        }
        let decoded = if left.is_some() { Decoded::Whole } else { Decoded::TooLarge };
        self.trim();
        Ok(decoded)
    }

    /// Section 4.2: a block may begin with other sizes of the table.
    fn take_sizes(&mut self, rest: &mut &[u8]) -> Result<(), BadBlock> {
        while let Some(0x20..0x40) = rest.first() {
            let size = integer(rest, 5)? as usize;
            if size > self.table_bytes_max {
                return Err(BadBlock::Undecodable);
            }
            self.dynamic.resize(size);
        }
        Ok(())
    }

    /// An idle connection holds little.
    fn trim(&mut self) {
        for scratch in [&mut self.name, &mut self.value] {
            if scratch.capacity() > SCRATCH_KEPT_BYTES {
                *scratch = Vec::new();
            }
        }
    }
}

/// An entry of either table (section 2.3.3); there is none with the index 0.
fn entry(dynamic: &Dynamic, index: u64) -> Result<(&[u8], &[u8]), BadBlock> {
    let place = (index as usize).checked_sub(1).ok_or(BadBlock::Undecodable)?;
    match table::TABLE.get(place) {
        Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
        None => dynamic.get(place - table::TABLE.len()).ok_or(BadBlock::Undecodable),
    }
}

fn name_of(index: u64, literal: &[u8]) -> Name<'_> {
    match (index as usize).checked_sub(1) {
        None => Name::Bytes(literal),
        Some(place) => match table::TABLE.get(place) {
            Some((name, _)) => Name::Bytes(name.as_bytes()),
            None => Name::Own(place - table::TABLE.len()),
        },
    }
}
