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
    /// What is asked of the request's body. Only of routes.
    pub body: Option<Box<BodyMatch>>,
}

/// Conditions on values in a request's body, all of which must hold. None holds of a body that is longer, encoded or malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMatch {
    /// Values of a JSON text, by JSON Pointer (RFC 6901).
    pub json: Vec<ValueMatch>,
    /// Values of a form (`application/x-www-form-urlencoded`), by name.
    pub form: Vec<ValueMatch>,
    /// Fields of the first message of a gRPC call, by numbers such as `1.3`.
    pub grpc: Vec<ValueMatch>,
    /// Bytes of the body that are held; at most 16 MiB.
    pub max: u32,
}

impl BodyMatch {
    /// Returns how many conditions there are.
    pub fn len(&self) -> usize {
        self.json.len() + self.form.len() + self.grpc.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
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
