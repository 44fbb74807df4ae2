//! Why something could not be measured, in one line for the table.

use std::fmt;
use std::io;
use std::path::Path;

/// A reason, for a person.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    reason: String,
    interrupted: bool,
}

impl Failure {
    /// A failure for the given reason.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), interrupted: false }
    }

    /// An error with a file.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        Self::new(format!("{}: {error}", path.display()))
    }

    /// Ctrl-C was pressed.
    pub(crate) fn interrupted() -> Self {
        Self { reason: "interrupted".to_owned(), interrupted: true }
    }

    /// Whether the whole run has to stop.
    pub(crate) fn is_interruption(&self) -> bool {
        self.interrupted
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string())
    }
}
