//! What an expression may name beside facts.

use std::sync::Arc;

use crate::map::Maps;
use crate::table::Table;

/// Maps and tables that an expression may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub maps: Maps<'a>,
    pub tables: Tables<'a>,
    /// Whether the body of the request can be read, as while filters act.
    pub has_body: bool,
}

/// Tables of counters that an expression may read.
#[derive(Clone, Copy)]
pub(crate) enum Tables<'a> {
    /// None can be read at this place.
    Closed,
    /// Nothing is known of them yet: any name is good.
    Unknown,
    Known(&'a [Arc<Table>]),
}

impl Tables<'_> {
    /// Returns whether all of these are among them.
    pub(crate) fn have(&self, used: &[Arc<Table>]) -> bool {
        let Self::Known(tables) = self else { return used.is_empty() };
        used.iter().all(|table| tables.iter().any(|known| Arc::ptr_eq(known, table)))
    }
}

impl<'a> From<Maps<'a>> for Names<'a> {
    /// Returns maps alone: neither a table nor the body of a request can be read.
    fn from(maps: Maps<'a>) -> Self {
        Self { maps, tables: Tables::Closed, has_body: false }
    }
}

impl std::fmt::Debug for Tables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("Closed"),
            Self::Unknown => f.write_str("Unknown"),
            Self::Known(tables) => f.debug_list().entries(tables.iter().map(|table| table.name())).finish(),
        }
    }
}
