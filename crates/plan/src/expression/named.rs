//! Facts as variables of templates: `{client_ip}` is `source.address`, and `{request_header:x-a}` is `request.headers["x-a"]`.

use std::io::Write;

use super::attributes::{Attribute, Fact, NumberFact, Table, TextFact};
use super::evaluate::write_duration;
use super::facts;
use super::program::Entry;
use super::subject::Subject;
use super::value::Scratch;

/// A fact, or an entry of a map of strings, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named(What);

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Fact(Fact),
    Entry(Entry),
    /// A parameter of the query as it was sent: what is made of it may be a query again.
    Parameter(Box<[u8]>),
}

impl Named {
    /// Returns what stands for a fact; of a map of strings, the entry of this name.
    ///
    /// # Errors
    /// The name is none for this map.
    pub(crate) fn new(attribute: &Attribute, name: Option<&str>) -> Result<Self, String> {
        Ok(Self(match attribute.fact {
            Fact::Table(Table::Query) => What::Parameter(name.unwrap_or_default().as_bytes().into()),
            Fact::Table(table) => What::Entry(Entry::named(table, name.unwrap_or_default())?),
            Fact::Header(name) => What::Entry(Entry::named(Table::RequestHeaders, name)?),
            fact => What::Fact(fact),
        }))
    }

    /// Returns the name of the parameter of the query that it is, if it is one.
    pub(crate) fn parameter(&self) -> Option<&[u8]> {
        if let What::Parameter(name) = &self.0 { Some(name) } else { None }
    }

    /// Returns whether it has the whole query.
    pub(crate) fn holds_query(&self) -> bool {
        matches!(self.0, What::Fact(Fact::Text(TextFact::QueryString | TextFact::Uri)))
    }

    /// Appends the value; nothing if there is none.
    pub(crate) fn write(&self, of: &Subject<'_>, out: &mut Vec<u8>) {
        match &self.0 {
            What::Fact(fact) => write_fact(*fact, of, out),
            What::Parameter(name) => out.extend_from_slice(facts::raw_parameter(of, name).unwrap_or_default()),
            What::Entry(entry) => {
                let mut scratch = Scratch::new(out);
                if let Ok(Some(text)) = facts::entry(entry, of, &mut scratch) {
                    scratch.keep(text);
                }
            }
        }
    }
}

fn write_fact(fact: Fact, of: &Subject<'_>, out: &mut Vec<u8>) {
    // Writing into memory cannot fail.
    let _ = match fact {
        Fact::Text(fact) => {
            let mut scratch = Scratch::new(out);
            if let Ok(text) = facts::text(fact, of, &mut scratch) {
                scratch.keep(text);
            }
            return;
        }
        // The port of a client that a proxy reported is not known.
        Fact::Number(fact @ NumberFact::SourcePort) if facts::number(fact, of) == 0 => return,
        Fact::Number(fact) => write!(out, "{}", facts::number(fact, of)),
        Fact::Truth(fact) => write!(out, "{}", facts::truth(fact, of)),
        Fact::Duration(fact) => return write_duration(facts::time(fact, of), out),
        Fact::Ip(fact) => match facts::ip(fact, of) {
            Some(address) => write!(out, "{address}"),
            None => return,
        },
        // These are entries.
        Fact::Header(_) | Fact::Table(_) => return,
    };
}
