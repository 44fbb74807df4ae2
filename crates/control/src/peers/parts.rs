//! Records of a table in blocks, as they are sent.

use wire::peers::{Block, write_block};

/// Bytes of the records in one segment or part of a state.
const PART_BYTES: usize = 256 << 10;

/// Blocks of one table, none too long.
pub(super) struct Parts<'a> {
    table: &'a str,
    fingerprint: u64,
    records: Vec<u8>,
    done: Vec<Vec<u8>>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(table: &'a str, fingerprint: u64) -> Self {
        Self { table, fingerprint, records: Vec::new(), done: Vec::new() }
    }

    /// Adds a record, which `write` appends.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.records);
        if self.records.len() >= PART_BYTES {
            self.flush();
        }
    }

    /// Ends a block, which may be empty.
    pub(super) fn flush(&mut self) {
        let mut blocks = Vec::with_capacity(self.records.len() + 80);
        let Self { table, fingerprint, records, .. } = self;
        write_block(&Block { table, fingerprint: *fingerprint, records }, &mut blocks);
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
