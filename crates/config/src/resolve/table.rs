//! Tables, and conditions on what they hold.

use std::time::Duration;

use model::fields::is_token;
use model::table::{Counter, Reading, Table, TableKey, TableTest};

use super::Resolver;
use crate::file::{self, OneOrMany};
use crate::tree::Kind;
use crate::units::show_duration;

/// The length of the while over which a rate counts.
const PERIODS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

impl Resolver<'_> {
    pub(super) fn table(&mut self, name: &str, written: &mut file::Table) -> Option<Table> {
        let at = format!("tables/{name}");
        let key = self.table_key(&at, written)?;
        let mut counters = Vec::new();
        for (index, counter) in written.counters.iter().enumerate() {
            let counter = counter_of(*counter);
            if counters.contains(&counter) {
                self.report(
                    &format!("{at}/counters/{index}"),
                    "this is listed twice",
                    Some("keep one of them".to_owned()),
                );
            }
            counters.push(counter);
        }
        let mut rates = Vec::new();
        for (counter, period) in &written.rates {
            let counter = counter_of(*counter);
            if counter.is_level() {
                let message = format!("`{}` has no rate", counter.as_str());
                let mend = "write `connections`, and list `open_connections` in `counters`".to_owned();
                self.report(&format!("{at}/rates/{}", counter.as_str()), message, Some(mend));
            }
            if !PERIODS.contains(&period.0) {
                let mend = Some("use a time such as 10s, 1m or 1h".to_owned());
                self.report(&format!("{at}/rates/{}", counter.as_str()), "a rate counts over 1s to 24h", mend);
            }
            // An entry that was not counted for as long as `expire` begins again, and its rate with it.
            if period.0 > written.expire.0 {
                let (period, expire) = (show_duration(period.0), show_duration(written.expire.0));
                let message = format!("the rate counts over {period}, but entries expire after {expire}");
                let mend = format!("set `expire` to at least {period}, or shorten the rate");
                self.warn(&format!("{at}/rates/{}", counter.as_str()), message, Some(mend));
            }
            rates.push((counter, period.0));
        }
        if counters.is_empty() && rates.is_empty() {
            let mend = "add `counters: [requests]` or `rates: { requests: 10s }`".to_owned();
            self.report(&at, "the table counts nothing", Some(mend));
        }
        if written.replicate {
            self.has_peers(&format!("{at}/replicate"), "the table");
        }
        let (keys_max, expire, is_replicated) = (written.keys_max, written.expire.0, written.replicate);
        Some(Table { name: name.into(), key, keys_max, expire, counters, rates, is_replicated })
    }

    /// Reports something that is to be replicated if there are no peers.
    pub(super) fn has_peers(&mut self, at: &str, what: &str) {
        if self.tree.get("peers").is_none() {
            let mend = "add `peers` with `listen` and `members` at the top level, or leave `replicate` out".to_owned();
            self.report(at, format!("there are no peers to replicate {what} to"), Some(mend));
        }
    }

    fn table_key(&mut self, at: &str, written: &file::Table) -> Option<TableKey> {
        match &written.key {
            file::TableKey::Client => Some(TableKey::Client {
                ipv4_prefix: written.ipv4_prefix.unwrap_or(32),
                ipv6_prefix: written.ipv6_prefix.unwrap_or(64),
            }),
            file::TableKey::Expression(text) => {
                self.no_prefixes(at, "expression");
                Some(TableKey::Expression(text.clone()))
            }
            file::TableKey::Header(name) => {
                self.no_prefixes(at, "header");
                if !is_token(name.as_bytes()) {
                    self.report(&format!("{at}/key/header"), format!("`{name}` is not a header field name"), None);
                    return None;
                }
                Some(TableKey::Header(name.to_ascii_lowercase()))
            }
        }
    }

    /// Reports bits of addresses beside a key that is none.
    fn no_prefixes(&mut self, at: &str, kind: &str) {
        for key in ["ipv4_prefix", "ipv6_prefix"] {
            if self.has(at, key) {
                let span = self.key_span(at, key);
                let message = format!("`{key}` has no effect with `key: {{ {kind}: … }}`");
                self.sink.push(span, message, Some("leave it out".to_owned()));
            }
        }
    }

    /// Resolves the conditions on tables of the `when` at a place.
    pub(super) fn table_tests(&mut self, at: &str, written: &OneOrMany<file::TableTest>) -> Vec<TableTest> {
        let mut tests = Vec::new();
        for (index, test) in written.as_slice().iter().enumerate() {
            let at = written.path(&format!("{at}/table"), index);
            let mut above = Vec::new();
            for (text, bound) in &test.above {
                match text.parse::<Reading>() {
                    Ok(reading) => above.push((reading, *bound)),
                    Err(message) => self.report(&format!("{at}/above/{text}"), message, None),
                }
            }
            self.check_test(&at, &test.name, &above);
            tests.push(TableTest { table: test.name.as_str().into(), above });
        }
        tests
    }

    /// Reports a table that is not there, and what it does not count.
    fn check_test(&mut self, at: &str, name: &str, above: &[(Reading, u64)]) {
        let tables = self.tree.get("tables");
        let table = tables.and_then(|tables| tables.get(name));
        let Some(table) = table else {
            let known = match tables.map(|tables| &tables.kind) {
                None => true,
                Some(kind) => matches!(kind, Kind::Map(_)),
            };
            if known {
                let mend = Some("define it in `tables` at the top level".to_owned());
                self.report(&format!("{at}/name"), format!("there is no table `{name}`"), mend);
            }
            return;
        };
        for (reading, _) in above {
            let counter = reading.counter.as_str();
            let is_counted = match (reading.is_rate, table.get(if reading.is_rate { "rates" } else { "counters" })) {
                (true, Some(rates)) => rates.get(counter).is_some(),
                (false, Some(counters)) => counters.items().iter().any(|item| item.text() == Some(counter)),
                (_, None) => false,
            };
            if !is_counted {
                let place = if reading.is_rate {
                    format!("`rates: {{ {counter}: 10s }}`")
                } else {
                    format!("`{counter}` to `counters`")
                };
                let message = format!("the table `{name}` does not count `{reading}`");
                self.report(&format!("{at}/above/{reading}"), message, Some(format!("add {place} there")));
            }
        }
    }
}

fn counter_of(counter: file::TableCounter) -> Counter {
    match counter {
        file::TableCounter::Requests => Counter::Requests,
        file::TableCounter::Errors => Counter::Errors,
        file::TableCounter::Failures => Counter::Failures,
        file::TableCounter::BytesIn => Counter::BytesIn,
        file::TableCounter::BytesOut => Counter::BytesOut,
        file::TableCounter::Marks => Counter::Marks,
        file::TableCounter::Connections => Counter::Connections,
        file::TableCounter::OpenConnections => Counter::OpenConnections,
    }
}
