//! What an instance has counted itself, by table and key, from its journal.

use std::collections::HashMap;
use std::sync::Arc;

use plan::table::Table;
use wire::peers::{Blocks, Journal, Records};

/// Of one table.
#[derive(Default)]
pub(super) struct Own {
    /// All entries were removed before.
    pub(super) is_cleared: bool,
    /// Increments of each counter by key.
    pub(super) sums: HashMap<Vec<u8>, Vec<i64>>,
}

/// Returns what was counted after a number in tables of now; `None`: not all of it is kept. What a table counted when it had another shape is
/// left out.
pub(super) fn own_after(journal: &Journal, tables: &[Arc<Table>], mut position: u64) -> Option<HashMap<String, Own>> {
    let mut all: HashMap<String, Own> = HashMap::new();
    while let Some((_, last, _, blocks)) = journal.after(position).ok()? {
        position = last;
        for block in Blocks::new(blocks).flatten() {
            let is_same =
                |table: &Arc<Table>| table.name().as_str() == block.table && table.fingerprint() == block.fingerprint;
            if !tables.iter().any(is_same) {
                continue;
            }
            let own = all.entry(block.table.to_owned()).or_default();
            for record in Records::new(block.records).flatten() {
                if record.is_all {
                    *own = Own { is_cleared: true, ..Own::default() };
                    continue;
                }
                let sum = own.sums.entry(record.key.to_vec()).or_default();
                sum.resize(sum.len().max(record.values.len()), 0);
                sum.iter_mut().zip(record.values).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
            }
        }
    }
    Some(all)
}
