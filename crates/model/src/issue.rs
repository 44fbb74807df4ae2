//! One thing that is wrong with a piece of configuration, found by code that knows nothing of files.

use std::fmt;

/// A problem inside a configured object: where (as a path below that object), what, and the mend.
/// The configuration crate joins it with file and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Path from the root of the configuration or of the object, such as `routes/3/filters/0/cors/origins/1`. Parts
    /// are separated by `/`; list places are numbers from 0. Empty: the object itself.
    pub path: String,
    /// What is wrong, one sentence without a full stop.
    pub message: String,
    /// How to mend it, if that is known.
    pub suggestion: Option<String>,
    /// Which part of the text at `path` it is about, in bytes; `None`: all of it.
    pub part: Option<(usize, usize)>,
}

impl Issue {
    /// Returns a problem at `path`.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), suggestion: None, part: None }
    }

    /// Adds how to mend it.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Says that it is about the part of the text from one byte up to another.
    #[must_use]
    pub fn within(mut self, start: usize, end: usize) -> Self {
        self.part = Some((start, end));
        self
    }

    /// Puts `prefix` before the path, as a caller one level up does.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Self {
        self.path = if self.path.is_empty() { prefix.to_owned() } else { format!("{prefix}/{}", self.path) };
        self
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " ({suggestion})"),
            None => Ok(()),
        }
    }
}
