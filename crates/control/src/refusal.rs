//! Why a change is not put into force.

use std::fmt;

use config::Diagnostics;

/// Why a configuration does not run.
#[derive(Debug)]
pub enum Refusal {
    /// It is wrong.
    Bad(Diagnostics),
    /// It is right, but the data plane could not take it: an address is in use, a log cannot be opened.
    Unpublished(String),
    /// It was meant for another configuration than the one in force, which this generation brought.
    Stale(u64),
    /// The object that it names does not exist.
    Missing {
        /// A sentence.
        message: String,
        /// A name that was probably meant.
        suggestion: Option<String>,
    },
    /// A canary is running; no other change is accepted until it ends.
    Busy,
    /// The caller is not allowed to ask for this.
    Denied {
        /// A sentence.
        message: String,
        /// What the caller can do about it.
        suggestion: String,
    },
    /// The rules under which the caller was admitted have changed since.
    Outdated,
    /// An internal error.
    Failed,
    /// An upgrade is in progress.
    Upgrading,
    /// The program is ending.
    Ending,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(diagnostics) => diagnostics.fmt(f),
            Self::Unpublished(reason) => f.write_str(reason),
            Self::Stale(revision) => write!(f, "the configuration was changed by generation {revision}"),
            Self::Missing { message, .. } | Self::Denied { message, .. } => f.write_str(message),
            Self::Busy => f.write_str("a canary is already running"),
            Self::Outdated => f.write_str("the rules of the admin listener have changed; try again"),
            Self::Failed => f.write_str("internal error: nothing was changed; the log may say why"),
            Self::Upgrading => f.write_str("an upgrade is in progress: changes are rejected until it ends"),
            Self::Ending => f.write_str("the program is shutting down"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Diagnostics> for Refusal {
    fn from(diagnostics: Diagnostics) -> Self {
        match &diagnostics.beyond {
            Some(more) => Self::Denied {
                message: format!("this would let the program use {more}, which requires a token"),
                suggestion: "add `tokens` to `admin`, or bind it to a Unix socket that only some users may open; or make the change in the file".to_owned(),
            },
            None => Self::Bad(diagnostics),
        }
    }
}
