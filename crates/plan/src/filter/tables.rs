//! The tables that settings and conditions name.

use std::sync::Arc;

use model::Issue;

use super::Compiling;
use super::settings::suggest_nearest;
use crate::table::Table;

/// Returns the table of this name. `None`: tables are not known, because settings are only checked. `path` says where the settings name
/// it.
///
/// # Errors
/// There is none of this name.
pub(crate) fn table(compiling: &mut Compiling<'_>, name: &str, path: &str) -> Result<Option<Arc<Table>>, Issue> {
    compiling.known_table(name).map_err(|names| {
        let issue = Issue::at(path, format!("there is no table `{name}`"));
        match names.is_empty() {
            true => issue.suggest("define it in `tables` at the top level"),
            false => suggest_nearest(issue, name, names.iter().map(String::as_str)),
        }
    })
}
