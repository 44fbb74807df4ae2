//! Tables of counters, with those of the plan before.

use std::sync::Arc;

use model::snapshot::Snapshot;
use model::table::TableKey;
use model::{Issue, Name};

use super::Plan;
use crate::expression::{Names, Scope, Value};
use crate::filter::settings::suggest_nearest;
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

/// Finds the tables that count connections of a listener.
///
/// # Errors
/// There is none of a name, or it is not by address. Paths are below the setting.
pub(super) fn tracked(names: &[Name], tables: &[Arc<Table>]) -> Result<Box<[Arc<Table>]>, Issue> {
    let find = |name: &Name| {
        let Some(table) = tables.iter().find(|table| table.name() == name) else {
            let issue = Issue::at("", format!("there is no table `{name}`"));
            return Err(match tables.is_empty() {
                true => issue.suggest("define it in `tables` at the top level"),
                false => suggest_nearest(issue, name.as_str(), tables.iter().map(|table| table.name().as_str())),
            });
        };
        let settings = table.settings();
        if !matches!(settings.key, TableKey::Client { .. }) {
            let message = format!("the table `{name}` is not by address, which is all that is known of a connection");
            return Err(Issue::at("", message).suggest("use a table with `key: client`"));
        }
        let counted = settings.counters.iter().chain(settings.rates.iter().map(|(counter, _)| counter));
        if !counted.into_iter().any(|counter| counter.is_of_connections()) {
            let issue = Issue::at("", format!("the table `{name}` counts no connections"));
            return Err(issue.suggest(
                "add `connections` or `open_connections` to its `counters`, or `connections` to its `rates`",
            ));
        }
        Ok(Arc::clone(table))
    };
    names.iter().map(find).collect()
}

/// Returns what is wrong with keys that are expressions. They are compiled where they are used.
pub(super) fn wrong_keys(snapshot: &Snapshot, maps: Maps<'_>) -> Vec<Issue> {
    let names = Names::from(maps);
    let wrong = |table: &Arc<model::table::Table>| {
        let TableKey::Expression(text) = &table.key else { return None };
        let issue = Value::compile_with(text, Scope::Request, names).err()?;
        Some(issue.below(&format!("tables/{}/key/expression", table.name)))
    };
    snapshot.tables.iter().filter_map(wrong).collect()
}
