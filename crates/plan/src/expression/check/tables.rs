//! Readings of tables of counters: `tables.NAME.errors_rate`.

use std::sync::Arc;

use model::Issue;
use model::table::Reading;

use super::super::names::{Names, Tables};
use super::super::parser;
use super::super::program::{Counted, CountedKey, Number};
use super::super::subject::Scope;
use super::super::syntax::{Kind, Term};
use super::super::trouble::{Span, Trouble};
use super::Checker;
use crate::filter::settings::suggest_nearest;
use crate::table::{Table, TableKey};

impl Checker<'_> {
    /// The reading that a part names, as `tables.NAME.READING` or `tables["NAME"].READING`, if it names one.
    pub(super) fn counted(&mut self, term: &Term) -> Result<Option<Number>, Trouble> {
        let Kind::Member(of, reading, reading_at) = &term.kind else { return Ok(None) };
        let is_group = |of: &Term| matches!(&of.kind, Kind::Name(name) if name == "tables");
        let (name, at) = match &of.kind {
            Kind::Member(group, name, at) if is_group(group) => (name, *at),
            Kind::Index(group, index) if is_group(group) => match &index.kind {
                Kind::Text(name) => (name, index.span),
                _ => return Err(Trouble::new(index.span, "the name of a table is a text in quotes")),
            },
            _ => return Ok(None),
        };
        let read: Reading = reading.parse().map_err(|message: String| Trouble::new(*reading_at, message))?;
        let tables = match self.names.tables {
            Tables::Known(tables) => tables,
            Tables::Unknown => return Ok(Some(Number::Constant(0))),
            Tables::Closed => {
                let trouble = Trouble::new(term.span, "a table cannot be read here");
                return Err(trouble.suggest("read it in `when` or in a setting of a filter"));
            }
        };
        let table = found(tables, name, at)?;
        if !table.has(read) {
            let trouble = Trouble::new(*reading_at, format!("the table `{name}` does not count `{reading}`"));
            return Err(trouble.suggest("add it to `counters` or `rates` of the table"));
        }
        self.needs = self.needs.max(Scope::Request);
        if !self.used_tables.iter().any(|used| Arc::ptr_eq(used, table)) {
            self.used_tables.push(Arc::clone(table));
        }
        let key = match table.key() {
            TableKey::Known(key) => CountedKey::Known(key.clone()),
            TableKey::Expression(text) => CountedKey::Text(self.key_of(text, at)?),
        };
        Ok(Some(Number::Counted(Box::new(Counted { table: Arc::clone(table), reading: read, key }))))
    }

    /// The key of a table, which is an expression that reads no table itself.
    fn key_of(&mut self, text: &str, at: Span) -> Result<super::super::program::Text, Trouble> {
        let mut checker = Checker::new(Scope::Request, Names::from(self.names.maps));
        let term = parser::parse(text).and_then(|term| checker.written(&term));
        let key = term.map_err(|trouble| Trouble::new(at, format!("the key of the table: {}", trouble.message)))?;
        self.needs = self.needs.max(checker.needs);
        self.used.extend(checker.used);
        Ok(key)
    }
}

fn found<'a>(tables: &'a [Arc<Table>], name: &str, at: Span) -> Result<&'a Arc<Table>, Trouble> {
    if let Some(table) = tables.iter().find(|table| table.name().as_str() == name) {
        return Ok(table);
    }
    let issue = Issue::at("", format!("there is no table `{name}`"));
    Err(if tables.is_empty() {
        Trouble::of(at, issue).suggest("define it in `tables` at the top level")
    } else {
        Trouble::of(at, suggest_nearest(issue, name, tables.iter().map(|table| table.name().as_str())))
    })
}
