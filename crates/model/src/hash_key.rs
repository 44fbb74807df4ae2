//! The key by which requests are distinguished: by balancers, queues and sessions.

/// What of a request is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Source,
    /// The values of a header field, by its name in lower case.
    Header(String),
    /// The value of a cookie.
    Cookie(String),
    /// The value of a query parameter.
    Query(String),
    /// The path, without the query.
    Path,
    /// Path and query.
    Uri,
}
