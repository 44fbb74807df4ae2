//! Tables of counters by key, which routes count into and conditions read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Name;

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Unique; the stable id.
    pub name: Name,
    /// What its entries are by.
    pub key: TableKey,
    /// Entries at most.
    pub keys_max: u32,
    /// How long an entry is kept after its last count.
    pub expire: Duration,
    /// What is counted, each once.
    pub counters: Vec<Counter>,
    /// What is counted over the last while, each once, with the length of that while.
    pub rates: Vec<(Counter, Duration)>,
    /// Peers count into it, too.
    pub is_replicated: bool,
}

/// What the entries of a table are by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableKey {
    /// The network of the client, by so many bits of its address.
    Client {
        /// Of IPv4, 1 to 32.
        ipv4_prefix: u8,
        /// Of IPv6, 1 to 128.
        ipv6_prefix: u8,
    },
    /// The value of a header field. Lower case.
    Header(String),
    /// The value of an expression (CEL).
    Expression(String),
}

/// Something that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// Requests.
    Requests,
    /// Requests whose response has a status from 400 to 499.
    Errors,
    /// Requests whose response has a status from 500 on, or that failed without one.
    Failures,
    /// Bytes of request bodies.
    BytesIn,
    /// Bytes of response bodies.
    BytesOut,
    /// What a filter marks.
    Marks,
    /// Connections that listeners have accepted.
    Connections,
    /// Connections that are open now. It has no rate.
    OpenConnections,
}

impl Counter {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Requests,
        Self::Errors,
        Self::Failures,
        Self::BytesIn,
        Self::BytesOut,
        Self::Marks,
        Self::Connections,
        Self::OpenConnections,
    ];

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Errors => "errors",
            Self::Failures => "failures",
            Self::BytesIn => "bytes_in",
            Self::BytesOut => "bytes_out",
            Self::Marks => "marks",
            Self::Connections => "connections",
            Self::OpenConnections => "open_connections",
        }
    }

    /// Returns whether it says how many there are now, and not how many there have been: it has no rate, and no one sets it.
    pub const fn is_level(self) -> bool {
        matches!(self, Self::OpenConnections)
    }

    /// Returns whether it counts connections of listeners, which are known by their address alone.
    pub const fn is_of_connections(self) -> bool {
        matches!(self, Self::Connections | Self::OpenConnections)
    }
}

impl FromStr for Counter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| format!("`{text}` is no counter; known: {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// What can be read of an entry: a counter, such as `errors`, or its rate, such as `errors_rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reading {
    /// What is counted.
    pub counter: Counter,
    /// Over the last while only.
    pub is_rate: bool,
}

impl FromStr for Reading {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (counter, is_rate) = text.strip_suffix("_rate").map_or((text, false), |counter| (counter, true));
        let wrong = |message| format!("{message}, and each but `open_connections` with `_rate`");
        match counter.parse::<Counter>().map_err(wrong)? {
            level if is_rate && level.is_level() => {
                Err(format!("`{}` has no rate: use `connections_rate`", level.as_str()))
            }
            counter => Ok(Self { counter, is_rate }),
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.counter.as_str(), if self.is_rate { "_rate" } else { "" })
    }
}

/// A condition on the entry of a request in a table: every reading is above its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableTest {
    /// The table.
    pub table: Name,
    /// Readings, with what they must be above.
    pub above: Vec<(Reading, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_named_after_counters() {
        for counter in Counter::ALL {
            for is_rate in [false, true] {
                let reading = Reading { counter, is_rate };
                let parsed = reading.to_string().parse();
                assert_eq!(parsed.ok(), (!is_rate || !counter.is_level()).then_some(reading));
            }
        }
        let told = "`hits` is no counter; known: requests, errors, failures, bytes_in, bytes_out, marks, connections, \
                    open_connections, and each but `open_connections` with `_rate`";
        assert_eq!("hits".parse::<Reading>(), Err(told.to_owned()));
        assert!("_rate".parse::<Reading>().is_err() && "".parse::<Counter>().is_err());
    }
}
