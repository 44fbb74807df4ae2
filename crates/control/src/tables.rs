//! What the administrator sees and changes of tables of counters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::table::{Reading, TableKey};
use plan::table::{Row, Table};

use crate::chance::chance;
use crate::view::View;

/// A table as it is now.
#[derive(Clone, Debug)]
pub struct TableStatus {
    /// Its name.
    pub name: String,
    /// What its entries are by: `client`, or the name of a field.
    pub key: String,
    /// Entries at most.
    pub keys_max: u32,
    /// Entries, those included whose time is over and whose place is free for others.
    pub entries: u64,
    /// Entries that made room for others before their time.
    pub evictions: u64,
    /// Bytes that each entry takes.
    pub entry_bytes: usize,
    /// How long an entry is kept after its last count.
    pub expire: Duration,
    /// What can be read of each entry.
    pub readings: Vec<String>,
}

/// An entry of a table.
#[derive(Clone, Debug)]
pub struct TableRow {
    /// Its key, as a person writes it.
    pub key: String,
    /// What it has counted, in the order of the table's settings.
    pub readings: Vec<(String, u64)>,
    /// Time since its last count.
    pub idle: Duration,
}

/// Why a question about a table has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableProblem {
    /// There is none of this name, but these.
    NoTable(Vec<String>),
    /// It counts nothing of this name, but these.
    NoReading(String, Vec<String>),
    /// The key cannot be one of this table.
    BadKey(String),
    /// It counts what is there now, which no one sets.
    Level(String),
    /// There is no entry of this key.
    NoEntry,
}

impl View {
    /// Returns all tables, in the order of the file.
    pub fn tables(&self) -> Vec<TableStatus> {
        self.plan().iter().flat_map(|plan| &plan.tables).map(|table| status(table)).collect()
    }

    /// Returns a table, and the entries that have most of a reading, at most `max`, the greatest first. Without `by`, it is the first that the table
    /// counts.
    ///
    /// # Errors
    /// There is no such table, or it does not count this.
    pub fn table_top(
        &self,
        name: &str,
        by: Option<&str>,
        max: usize,
    ) -> Result<(TableStatus, Vec<TableRow>), TableProblem> {
        let table = self.table(name)?;
        let readings = readings(&table);
        let by = match by {
            Some(text) => reading(&table, text)?,
            None => *readings.first().ok_or_else(|| TableProblem::NoReading(String::new(), Vec::new()))?,
        };
        Ok((status(&table), table.top(by, max, Instant::now()).into_iter().map(shown).collect()))
    }

    /// Returns the entry of a key.
    ///
    /// # Errors
    /// There is no such table or entry, or the key cannot be one of the table.
    pub fn table_row(&self, name: &str, key: &str) -> Result<TableRow, TableProblem> {
        let table = self.table(name)?;
        let key = table.parse_key(key).map_err(TableProblem::BadKey)?;
        table.row(&key, Instant::now()).map(shown).ok_or(TableProblem::NoEntry)
    }

    /// Sets readings of a key, whose entry is made if there is none, and returns it.
    ///
    /// # Errors
    /// As [`Self::table_row`], or the table does not count this. Nothing is changed then.
    pub fn set_table_row(&self, name: &str, key: &str, values: &[(String, u64)]) -> Result<TableRow, TableProblem> {
        let table = self.table(name)?;
        let parsed = table.parse_key(key).map_err(TableProblem::BadKey)?;
        let is_level = |text: &&(String, u64)| reading(&table, &text.0).is_ok_and(|reading| reading.counter.is_level());
        if let Some((text, _)) = values.iter().find(is_level) {
            return Err(TableProblem::Level(text.clone()));
        }
        let values: Vec<_> =
            values.iter().map(|(text, value)| Ok((reading(&table, text)?, *value))).collect::<Result<_, _>>()?;
        table.set(&parsed, &values, Instant::now(), &mut chance);
        self.table_row(name, key)
    }

    /// Forgets the entry of a key, or all of them. Returns how many there were.
    ///
    /// # Errors
    /// There is no such table, or the key cannot be one of it.
    pub fn clear_table(&self, name: &str, key: Option<&str>) -> Result<usize, TableProblem> {
        let table = self.table(name)?;
        let key = key.map(|key| table.parse_key(key)).transpose().map_err(TableProblem::BadKey)?;
        Ok(table.clear(key.as_deref(), Instant::now()))
    }

    fn table(&self, name: &str) -> Result<Arc<Table>, TableProblem> {
        let plan = self.plan();
        let found = plan.as_ref().and_then(|plan| plan.table(name)).cloned();
        found.ok_or_else(|| {
            let names = plan.iter().flat_map(|plan| &plan.tables).map(|table| table.name().to_string());
            TableProblem::NoTable(names.collect())
        })
    }
}

fn readings(table: &Table) -> Vec<Reading> {
    let settings = table.settings();
    let counters = settings.counters.iter().map(|counter| Reading { counter: *counter, is_rate: false });
    let rates = settings.rates.iter().map(|(counter, _)| Reading { counter: *counter, is_rate: true });
    counters.chain(rates).collect()
}

fn reading(table: &Table, text: &str) -> Result<Reading, TableProblem> {
    let known = text.parse().ok().filter(|reading| table.has(*reading));
    known.ok_or_else(|| {
        TableProblem::NoReading(text.to_owned(), readings(table).iter().map(ToString::to_string).collect())
    })
}

fn status(table: &Table) -> TableStatus {
    let settings = table.settings();
    TableStatus {
        name: settings.name.to_string(),
        key: match &settings.key {
            TableKey::Client { .. } => "client".to_owned(),
            TableKey::Header(name) => name.clone(),
            TableKey::Expression(text) => text.clone(),
        },
        keys_max: settings.keys_max,
        entries: table.entries(),
        evictions: table.evictions(),
        entry_bytes: table.entry_bytes(),
        expire: settings.expire,
        readings: readings(table).iter().map(ToString::to_string).collect(),
    }
}

fn shown(row: Row) -> TableRow {
    let readings = row.readings.into_iter().map(|(reading, value)| (reading.to_string(), value)).collect();
    TableRow { key: row.key, readings, idle: row.idle }
}
