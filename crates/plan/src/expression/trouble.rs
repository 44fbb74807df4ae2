//! What is wrong with an expression, and at which of its characters.

use model::Issue;

/// A part of the text of an expression: offsets in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first byte.
    pub start: usize,
    /// One after the last byte.
    pub end: usize,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// Returns the part from the beginning of this one to the end of the other.
    pub(crate) fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end.max(self.start) }
    }
}

/// A problem of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub span: Span,
    /// One sentence without a full stop.
    pub message: String,
    pub suggestion: Option<String>,
}

impl Trouble {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), suggestion: None }
    }

    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Takes over message and suggestion of an issue about a part.
    pub(crate) fn of(span: Span, issue: Issue) -> Self {
        Self { span, message: issue.message, suggestion: issue.suggestion }
    }

    /// Returns the issue, which points at the part.
    pub(crate) fn into_issue(self) -> Issue {
        let issue = Issue::at("", self.message).within(self.span.start, self.span.end);
        match self.suggestion {
            Some(suggestion) => issue.suggest(suggestion),
            None => issue,
        }
    }
}
