//! Records of tables: of one key, what was counted, or what there is.

use super::Broken;
use super::bytes::{array, long, signed, take, text, variable, write_signed, write_text, write_variable};
use super::frame::NAME_BYTES_MAX;

/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 64;
/// Values of a record.
pub const VALUES_MAX: usize = 32;
/// Bytes of the records of one block.
pub const BLOCK_BYTES_MAX: usize = 512 << 10;

const RESET: u8 = 1;
const ALL: u8 = 2;

/// One key of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record<'a> {
    /// At most [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The entry was removed; what else was counted since is in `values`.
    pub is_reset: bool,
    /// All entries of the table were removed; there is no key and no value then.
    pub is_all: bool,
    /// Milliseconds since the last count.
    pub idle: u64,
    /// Increments, or totals; at most [`VALUES_MAX`].
    pub values: Vec<i64>,
}

impl Record<'_> {
    /// Appends it to the records of a block.
    pub fn write(&self, to: &mut Vec<u8>) {
        let key = &self.key[..self.key.len().min(KEY_BYTES_MAX)];
        to.push(key.len() as u8);
        to.extend(key);
        to.push(if self.is_reset { RESET } else { 0 } | if self.is_all { ALL } else { 0 });
        write_variable(self.idle, to);
        let values = &self.values[..self.values.len().min(VALUES_MAX)];
        to.push(values.len() as u8);
        values.iter().for_each(|value| write_signed(*value, to));
    }
}

/// The records of a block.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn read(&mut self) -> Result<Record<'a>, Broken> {
        let [length] = array(&mut self.0)?;
        if usize::from(length) > KEY_BYTES_MAX {
            return Err(Broken("a key is too long"));
        }
        let key = take(&mut self.0, usize::from(length))?;
        let [flags] = array(&mut self.0)?;
        let idle = variable(&mut self.0)?;
        let [count] = array(&mut self.0)?;
        if usize::from(count) > VALUES_MAX {
            return Err(Broken("a record has too many values"));
        }
        let values = (0..count).map(|_| signed(&mut self.0)).collect::<Result<_, _>>()?;
        Ok(Record { key, is_reset: flags & RESET != 0, is_all: flags & ALL != 0, idle, values })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.0 = &[];
        }
        Some(read)
    }
}

/// The records of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The name of the table.
    pub table: &'a str,
    /// What the table counts: those of another fingerprint cannot be taken in.
    pub fingerprint: u64,
    /// For [`Records::new`].
    pub records: &'a [u8],
}

/// Appends a block.
pub fn write_block(block: &Block<'_>, to: &mut Vec<u8>) {
    write_text(block.table, to);
    to.extend(block.fingerprint.to_be_bytes());
    to.extend((block.records.len() as u32).to_be_bytes());
    to.extend(block.records);
}

/// Blocks, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a>(&'a [u8]);

impl<'a> Blocks<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn read(&mut self) -> Result<Block<'a>, Broken> {
        let table = text(&mut self.0, NAME_BYTES_MAX)?;
        let fingerprint = long(&mut self.0)?;
        let length = u32::from_be_bytes(array(&mut self.0)?);
        Ok(Block { table, fingerprint, records: take(&mut self.0, length as usize)? })
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<Block<'a>, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.0 = &[];
        }
        Some(read)
    }
}
