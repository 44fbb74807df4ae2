//! Tables of counters, with those of the plan before.

use std::sync::Arc;

use model::Issue;
use model::snapshot::Snapshot;
use model::table::TableKey;

use super::Plan;
use crate::expression::{Scope, Value};
use crate::map::Maps;
use crate::table::Table;

/// Compiles the tables. One that is equal to its like in the plan before is that one.
pub(super) fn compile(snapshot: &Snapshot, previous: Option<&Plan>, issues: &mut Vec<Issue>) -> Vec<Arc<Table>> {
    let mut all = Vec::with_capacity(snapshot.tables.len());
    for settings in &snapshot.tables {
        let before = previous.and_then(|plan| plan.table(&settings.name));
        match before.filter(|before| before.settings() == settings) {
            Some(same) => all.push(Arc::clone(same)),
            None => match Table::compile(settings, before.map(|before| &**before)) {
                Ok(table) => all.push(Arc::new(table)),
                Err(message) => issues.push(Issue::at(format!("tables/{}/key/header", settings.name), message)),
            },
        }
    }
    all
}

/// Returns what is wrong with keys that are expressions. They are compiled where they are used.
pub(super) fn wrong_keys(snapshot: &Snapshot, maps: Maps<'_>) -> Vec<Issue> {
    let wrong = |table: &Arc<model::table::Table>| {
        let TableKey::Expression(text) = &table.key else { return None };
        let issue = Value::compile_with(text, Scope::Request, maps).err()?;
        Some(issue.below(&format!("tables/{}/key/expression", table.name)))
    };
    snapshot.tables.iter().filter_map(wrong).collect()
}
