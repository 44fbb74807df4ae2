//! What a route asks of a request.

use crate::address::{Cidr, HostPattern};
use crate::status::StatusRange;
use crate::table::TableTest;

/// All conditions must hold; an empty list or `None` holds always.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// Any of these hosts.
    pub hosts: Vec<HostPattern>,
    /// The path.
    pub path: Option<PathMatch>,
    /// Any of these methods, upper case as sent.
    pub methods: Vec<String>,
    /// All of these header fields.
    pub headers: Vec<ValueMatch>,
    /// All of these query parameters (first occurrence, percent-decoded).
    pub query: Vec<ValueMatch>,
    /// All of these cookies.
    pub cookies: Vec<ValueMatch>,
    /// All of these values of a PROXY header, by the names of [`crate::proxy_protocol::TlvName`].
    pub proxy_tlvs: Vec<ValueMatch>,
    /// Any of these networks holds the client.
    pub sources: Vec<Cidr>,
    /// An expression that holds.
    pub expression: Option<String>,
}

/// When a filter applies: all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct When {
    /// What routes may ask too.
    pub matches: Match,
    /// Any of these statuses of the response; none means any.
    pub statuses: Vec<StatusRange>,
    /// All of these hold of the request's entries in tables.
    pub tables: Vec<TableTest>,
    /// This does not hold.
    pub not: Option<Box<When>>,
    /// One of these holds; none means that nothing is asked.
    pub any: Vec<When>,
    /// All of these hold.
    pub all: Vec<When>,
}

/// How a path is compared: in the form into which its listener brings it, with case kept and without the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// Whole path segments from the start: `/api` matches `/api` and `/api/x`, not `/apix`.
    Prefix(String),
    /// A regular expression for the whole path (anchored at both ends).
    Regex(String),
}

/// A condition on a named value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueMatch {
    /// Name of the field (case ignored), parameter or cookie (case kept), or of a value of a PROXY header.
    pub name: String,
    /// What its value must be.
    pub test: ValueTest,
}

/// What a value must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueTest {
    /// There at all.
    Present,
    /// Not there.
    Absent,
    /// Exactly this.
    Exact(String),
    /// Matches this expression as a whole.
    Regex(String),
}

impl ValueTest {
    /// Returns the reason for which a value fails the test, such as `is missing`.
    pub fn unmet(&self) -> String {
        match self {
            Self::Present => "is missing".to_owned(),
            Self::Absent => "is there".to_owned(),
            Self::Exact(text) => format!("is not `{text}`"),
            Self::Regex(pattern) => format!("does not match `{pattern}`"),
        }
    }
}
