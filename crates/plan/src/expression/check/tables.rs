//! Readings of tables of counters: `tables.NAME.errors_rate`, or of another key `tables.NAME[source.address].errors_rate`.

use std::sync::Arc;

use model::Issue;
use model::table::Reading;

use super::super::attributes::IpFact;
use super::super::names::{Names, Tables};
use super::super::parser;
use super::super::program::{Counted, CountedKey, Ip, Number, Text};
use super::super::scope::Scope;
use super::super::syntax::{Kind, Term};
use super::super::trouble::{Span, Trouble};
use super::{Checker, Typed, mistyped};
use crate::filter::settings::suggest_nearest;
use crate::limit::Key;
use crate::table::{Table, TableKey};

impl Checker<'_> {
    /// The reading that a part names, as `tables.NAME.READING` or `tables.NAME[KEY].READING`, if it names one.
    pub(super) fn counted(&mut self, term: &Term) -> Result<Option<Number>, Trouble> {
        let Kind::Member(of, reading, reading_at) = &term.kind else { return Ok(None) };
        let (name, at, given) = match (named(of)?, &of.kind) {
            (Some((name, at)), _) => (name, at, None),
            (None, Kind::Index(table, key)) => match named(table)? {
                Some((name, at)) => (name, at, Some(&**key)),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let read: Reading = reading.parse().map_err(|message: String| Trouble::new(*reading_at, message))?;
        let tables = match self.names.tables {
            Tables::Known(tables) => tables,
            Tables::Unknown => {
                // The key can be checked even so.
                given.map(|key| self.typed(key)).transpose()?;
                return Ok(Some(Number::Constant(0)));
            }
            Tables::Closed => {
                let trouble = Trouble::new(term.span, "a table cannot be read here");
                return Err(
                    trouble.suggest("read it in `match`, in `when`, in a setting of a filter, or in an access log")
                );
            }
        };
        let table = found(tables, name, at)?;
        if !table.has(read) {
            let trouble = Trouble::new(*reading_at, format!("the table `{name}` does not count `{reading}`"));
            return Err(trouble.suggest("add it to `counters` or `rates` of the table"));
        }
        // A filter before this one may count the request: it is asked no earlier than its turn.
        self.needs = self.needs.max(Scope::Request.min(self.scope));
        if !self.used_tables.iter().any(|used| Arc::ptr_eq(used, table)) {
            self.used_tables.push(Arc::clone(table));
        }
        let key = match given {
            Some(term) => self.given_key(table, term)?,
            None => self.own_key(table, name, at)?,
        };
        Ok(Some(Number::Counted(Box::new(Counted { table: Arc::clone(table), reading: read, key }))))
    }

    /// The key that the exchange itself has in a table.
    fn own_key(&mut self, table: &Table, name: &str, at: Span) -> Result<CountedKey, Trouble> {
        match table.key() {
            TableKey::Known(Key::Client(network)) => Ok(CountedKey::Address(*network, Ip::Fact(IpFact::Source))),
            TableKey::Known(key @ Key::Header(_)) => Ok(CountedKey::Known(key.clone())),
            TableKey::Expression(text) => self.key_of(text, (name, at)).map(CountedKey::Text),
        }
    }

    /// A key that the expression gives.
    fn given_key(&mut self, table: &Table, term: &Term) -> Result<CountedKey, Trouble> {
        let typed = self.typed(term)?;
        match (table.key(), typed) {
            (TableKey::Known(Key::Client(network)), Typed::Ip(ip)) => Ok(CountedKey::Address(*network, ip)),
            (TableKey::Known(Key::Client(network)), Typed::Text(text)) => {
                Ok(CountedKey::Address(*network, Ip::OfText(Box::new(text))))
            }
            (TableKey::Known(Key::Client(_)), other) => {
                let trouble = mistyped(term.span, "ip", &other);
                Err(trouble.suggest("the table is keyed by address: write `source.address` or another address"))
            }
            (_, typed) => self.as_text(term.span, typed).map(CountedKey::Text),
        }
    }

    /// The key of a table, which is an expression that reads no table itself.
    fn key_of(&mut self, text: &str, (name, at): (&str, Span)) -> Result<Text, Trouble> {
        let names = Names::from(self.names.maps);
        let mut checker = Checker::new(Scope::Request.min(self.scope), names);
        let term = parser::parse(text).and_then(|term| checker.written(&term));
        let key = term.map_err(|trouble| {
            let trouble = Trouble::new(at, format!("the key of the table: {}", trouble.message));
            match self.scope {
                Scope::Route => trouble.suggest(format!("give a key that is known: `tables.{name}[KEY].READING`")),
                _ => trouble,
            }
        })?;
        self.needs = self.needs.max(checker.needs);
        self.used.extend(checker.used);
        Ok(key)
    }
}

/// The name in `tables.NAME` or `tables["NAME"]`, if a part is one of these.
fn named(term: &Term) -> Result<Option<(&str, Span)>, Trouble> {
    let is_group = |of: &Term| matches!(&of.kind, Kind::Name(name) if name == "tables");
    match &term.kind {
        Kind::Member(group, name, at) if is_group(group) => Ok(Some((name, *at))),
        Kind::Index(group, index) if is_group(group) => match &index.kind {
            Kind::Text(name) => Ok(Some((name, index.span))),
            _ => Err(Trouble::new(index.span, "the name of a table is a text in quotes")),
        },
        _ => Ok(None),
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
