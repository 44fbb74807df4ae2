//! What ends a pump before its body is over.

use plan::filter::BadBody;

/// Why a pump stopped before the end.
#[derive(Debug)]
pub(crate) enum PumpFault {
    /// The sender's connection broke.
    Read,
    /// The sender ended before the body was whole.
    Truncated,
    /// The sender broke the framing rules.
    Framing,
    /// The body is longer than it may be.
    TooLong,
    /// The body is not what it is said to be: a stage cannot read it.
    BadBody,
    /// What was held cannot be read or written.
    Spool,
    /// What the body is read from cannot be read, or is shorter than it was.
    Source,
    /// The receiver's connection broke.
    Write,
}

impl From<BadBody> for PumpFault {
    fn from(bad: BadBody) -> Self {
        match bad {
            BadBody::Malformed => Self::BadBody,
            BadBody::TooLong => Self::TooLong,
        }
    }
}
