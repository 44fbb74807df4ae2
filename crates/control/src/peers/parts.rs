//! Records of a table in blocks, as they are sent.

use plan::table::Table;
use wire::peers::{Block, Record, write_block};

/// Bytes of the records in one segment or part of a state.
pub(super) const PART_BYTES: usize = 256 << 10;

/// Blocks of one table, none too long.
pub(super) struct Parts<'a> {
    table: &'a Table,
    records: Vec<u8>,
    done: Vec<Vec<u8>>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(table: &'a Table) -> Self {
        Self { table, records: Vec::new(), done: Vec::new() }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &Record<'_>) {
        record.write(&mut self.records);
        if self.records.len() >= PART_BYTES {
            self.flush();
        }
    }

    /// Ends a block, which may be empty.
    pub(super) fn flush(&mut self) {
        let mut blocks = Vec::with_capacity(self.records.len() + 80);
        let table = self.table.name().as_str();
        write_block(&Block { table, fingerprint: self.table.fingerprint(), records: &self.records }, &mut blocks);
        self.records.clear();
        self.done.push(blocks);
    }

    /// Returns all blocks.
    pub(super) fn finish(mut self) -> Vec<Vec<u8>> {
        if !self.records.is_empty() {
            self.flush();
        }
        self.done
    }
}
