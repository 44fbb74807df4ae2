//! The tables that settings and conditions name.

use std::sync::Arc;

use model::{Issue, RequestHead};

use super::limit_key::RequestKey;
use super::settings::suggest_nearest;
use super::{Compiling, Turn};
use crate::expression::{Scope, Subject};
use crate::table::{Table, TableKey};

/// A table with the key of requests in it.
pub(crate) struct KeyedTable {
    /// The table.
    pub table: Arc<Table>,
    key: RequestKey,
}

impl KeyedTable {
    /// Returns the table of this name. `None`: tables are not known, because settings are only checked. `path` says where the settings
    /// name it.
    ///
    /// # Errors
    /// There is none of this name, or its key cannot be computed.
    pub(crate) fn find(compiling: &mut Compiling<'_>, name: &str, path: &str) -> Result<Option<Self>, Issue> {
        let found = compiling.known_table(name).map_err(|names| {
            let issue = Issue::at(path, format!("there is no table `{name}`"));
            match names.is_empty() {
                true => issue.suggest("define it in `tables` at the top level"),
                false => suggest_nearest(issue, name, names.iter().map(String::as_str)),
            }
        })?;
        let Some(table) = found else { return Ok(None) };
        let key = match table.key() {
            TableKey::Known(key) => RequestKey::Known(key.clone()),
            TableKey::Expression(text) => {
                let wrong = |issue: Issue| Issue::at(path, format!("the key of the table: {}", issue.message));
                RequestKey::Expression(compiling.value(text, Scope::Request).map_err(wrong)?)
            }
        };
        Ok(Some(Self { table, key }))
    }

    /// Calls with the bytes of the key of a request, in a step of a filter.
    pub(crate) fn with_key<T>(
        &self,
        head: &RequestHead,
        turn: &mut Turn<'_>,
        call: impl FnOnce(&Table, &[u8], &mut Turn<'_>) -> T,
    ) -> T {
        self.key.with(head, turn, |key, turn| call(&self.table, key, turn))
    }

    /// Calls with the bytes of the key of a request.
    pub(crate) fn with_key_of<T>(&self, of: Subject<'_>, scratch: &mut Vec<u8>, call: impl FnOnce(&[u8]) -> T) -> T {
        self.key.with_subject(of, scratch, call)
    }
}
