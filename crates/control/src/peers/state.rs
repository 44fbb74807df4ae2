//! A state that a teacher sends, as far as it has come.

use std::collections::HashMap;

use plan::table::{Table, Totals};
use wire::peers::{Blocks, Records};

use super::engine::Engine;

/// See the module. It holds no more than the tables of this instance may have.
#[derive(Default)]
pub(crate) struct Collected(HashMap<String, Totals>);

impl Collected {
    /// Adds a part.
    ///
    /// # Errors
    /// It is broken, or there is more than the tables may have.
    pub(crate) fn add(&mut self, (engine, teacher): (&mut Engine, u128), blocks: &[u8]) -> Result<(), String> {
        for block in Blocks::new(blocks) {
            let block = block.map_err(|why| why.to_string())?;
            let Some(table) = engine.table_of(teacher, &block) else {
                engine.figures.skipped += Records::new(block.records).count() as u64;
                continue;
            };
            let totals = self.0.entry(block.table.to_owned()).or_default();
            for record in Records::new(block.records) {
                let record = record.map_err(|why| why.to_string())?;
                // A peer may have a larger table: what this one has no room for is left out.
                let has_room = totals.len() < table.settings().keys_max as usize;
                if has_room && record.values.len() == table.totals_len() && record.key.len() <= Table::KEY_BYTES_MAX {
                    totals.insert(record.key.to_vec(), (record.idle, record.values));
                }
            }
        }
        Ok(())
    }

    /// Returns what has come.
    pub(crate) fn take(&mut self) -> HashMap<String, Totals> {
        std::mem::take(&mut self.0)
    }
}
