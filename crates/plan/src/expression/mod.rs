//! Expressions: conditions and values in CEL, the language that Envoy, Caddy and Kubernetes use, compiled once and evaluated for each
//! request without allocating.
//!
//! # In a filter
//! A setting of the type [`ConditionText`] or [`ValueText`] is `{ expression: … }`. The filter compiles it with its own `Compiling`, and keeps
//! what comes of it:
//!
//! ```text
//! struct MySettings { key: ValueText }
//!
//! fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
//!     let key = self.key.compile(Scope::Request, compiling).map_err(|issue| issue.below("key"))?;
//!     …
//! }
//!
//! fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
//!     // In a request step; in a response step it is `of_response(head, view, turn)`.
//!     if self.condition.is_true_of_request(head, turn) { … }
//!     self.key.with_request(head, turn, |key, turn| self.table.count(key, turn.now));
//! }
//! ```
//!
//! # How it works
//! `lexer` and `parser` make a tree of the text, `check` finds every name and knows every type, and makes a `program` of it, a tree of
//! operations on values of known types; `evaluate` carries that out. What is wrong is found when the configuration is loaded, and
//! points at the character.
//!
//! A fact that a request lacks, a text that is no number and a division by zero have no value, and neither has what is computed of them, as
//! in CEL; `&&`, `||`, `? :` and `orValue` may do without. A condition without a value is false, and a value is an empty text.

mod attributes;
mod check;
mod evaluate;
mod facts;
mod functions;
mod lexer;
mod named;
mod names;
mod parser;
mod program;
mod scope;
mod settings;
mod subject;
mod syntax;
mod target;
#[cfg(test)]
mod tests;
mod trouble;
mod value;

use std::fmt;
use std::sync::Arc;

use model::{Issue, RequestHead, ResponseHead};

pub use attributes::{ATTRIBUTES, Attribute};
pub use functions::{FUNCTIONS, Function};
pub(crate) use named::Named;
pub(crate) use names::{Names, Tables};
pub use scope::Scope;
pub use settings::{AmountText, ConditionText, ValueText};
pub use subject::{Ended, Subject};
pub(crate) use target::Target;

use crate::filter::{ResponseView, Turn};
use crate::map::{MapPlan, Maps};
use crate::table::Table;
use check::Checker;
use evaluate::Evaluation;
use program::{Number, Text, Truth};
use value::Scratch;

/// The maps and tables that an expression uses.
#[derive(Default)]
pub(crate) struct Used {
    pub maps: Box<[Arc<MapPlan>]>,
    pub tables: Box<[Arc<Table>]>,
}

impl Used {
    /// Returns whether all of them are the very same as those of their names.
    pub(crate) fn is_within(&self, names: Names<'_>) -> bool {
        names.maps.have(&self.maps) && names.tables.have(&self.tables)
    }

    fn of(checker: Checker<'_>) -> Self {
        Self { maps: checker.used.into(), tables: checker.used_tables.into() }
    }
}

/// An expression that is true or false.
pub struct Condition {
    source: Box<str>,
    truth: Truth,
    needs: Scope,
    reads_body: bool,
    used: Used,
}

impl Condition {
    /// Compiles an expression that is evaluated at this moment and uses no map. It may read the body of the request.
    ///
    /// # Errors
    /// What is wrong with it, and at which character; the path is empty.
    pub fn compile(text: &str, scope: Scope) -> Result<Self, Issue> {
        Self::compile_with(text, scope, Names { has_body: true, ..Names::from(Maps::Known(&[])) })
    }

    /// Compiles one that may use these maps and tables.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub(crate) fn compile_with<'n>(text: &str, scope: Scope, names: impl Into<Names<'n>>) -> Result<Self, Issue> {
        let mut checker = Checker::new(scope, names.into());
        let truth = parser::parse(text).and_then(|term| checker.truth(&term)).map_err(trouble::Trouble::into_issue)?;
        Ok(Self {
            source: text.into(),
            truth,
            needs: checker.needs,
            reads_body: checker.reads_body,
            used: Used::of(checker),
        })
    }

    /// Returns from when on all is known that it asks for.
    pub fn needs(&self) -> Scope {
        self.needs
    }

    /// Returns whether it reads the body of the request, which is to be held before.
    pub(crate) fn reads_body(&self) -> bool {
        self.reads_body
    }

    /// Returns the maps and tables that it uses.
    pub(crate) fn used(&self) -> &Used {
        &self.used
    }

    /// Returns whether it reads a table, for which its subject needs a time.
    pub fn reads_tables(&self) -> bool {
        !self.used.tables.is_empty()
    }

    /// Returns whether it holds. `scratch` may be written beyond what it holds, which stays.
    #[inline]
    pub fn is_true(&self, of: Subject<'_>, scratch: &mut Vec<u8>) -> bool {
        Evaluation { of, scratch: Scratch::new(scratch) }.truth(&self.truth).unwrap_or(false)
    }

    /// Returns whether it holds for a request, in a step of a filter.
    pub fn is_true_of_request(&self, head: &RequestHead, turn: &mut Turn<'_>) -> bool {
        let of = Subject::of_request(head, turn.facts).with_notes(turn.notes).at(turn.now);
        self.is_true(of, turn.scratch)
    }

    /// Returns whether it holds for a response, in a step of a filter.
    pub fn is_true_of_response(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> bool {
        let of = Subject::of_response(head, view, turn.facts).with_notes(turn.notes).at(turn.now);
        self.is_true(of, turn.scratch)
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.source).finish()
    }
}

/// An expression whose value is used as text, of whatever type it is.
pub struct Value {
    source: Box<str>,
    text: Text,
    needs: Scope,
    reads_body: bool,
    used: Used,
}

impl Value {
    /// Compiles an expression that is evaluated at this moment and uses no map. It may read the body of the request.
    ///
    /// # Errors
    /// What is wrong with it, and at which character; the path is empty.
    pub fn compile(text: &str, scope: Scope) -> Result<Self, Issue> {
        Self::compile_with(text, scope, Names { has_body: true, ..Names::from(Maps::Known(&[])) })
    }

    /// Compiles one that may use these maps and tables.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub(crate) fn compile_with<'n>(text: &str, scope: Scope, names: impl Into<Names<'n>>) -> Result<Self, Issue> {
        let mut checker = Checker::new(scope, names.into());
        let parsed = parser::parse(text).and_then(|term| checker.written(&term));
        let text_of = parsed.map_err(trouble::Trouble::into_issue)?;
        Ok(Self {
            source: text.into(),
            text: text_of,
            needs: checker.needs,
            reads_body: checker.reads_body,
            used: Used::of(checker),
        })
    }

    /// Returns from when on all is known that it asks for.
    pub fn needs(&self) -> Scope {
        self.needs
    }

    /// Returns whether it reads the body of the request, which is to be held before.
    pub(crate) fn reads_body(&self) -> bool {
        self.reads_body
    }

    /// Returns the maps and tables that it uses.
    pub(crate) fn used(&self) -> &Used {
        &self.used
    }

    /// Returns whether it reads a table, for which its subject needs a time.
    pub fn reads_tables(&self) -> bool {
        !self.used.tables.is_empty()
    }

    /// Returns whether the value is a number, written in decimal. One with a fraction may also be `NaN` or `inf`.
    pub fn is_number(&self) -> bool {
        matches!(self.text, Text::OfNumber(_) | Text::OfReal(_))
    }

    /// Calls with the value; with an empty text if there is none. The value may hold any bytes. `scratch` as in [`Condition::is_true`].
    #[inline]
    pub fn with<R>(&self, of: Subject<'_>, scratch: &mut Vec<u8>, call: impl FnOnce(&[u8]) -> R) -> R {
        let mut evaluation = Evaluation { of, scratch: Scratch::new(scratch) };
        match evaluation.text(&self.text) {
            Ok(text) => call(evaluation.scratch.get(text)),
            Err(value::Failed) => call(b""),
        }
    }

    /// Calls with the value for a request, in a step of a filter. The value lies in the scratch of the turn, which is out of reach meanwhile.
    pub fn with_request<R>(
        &self,
        head: &RequestHead,
        turn: &mut Turn<'_>,
        call: impl FnOnce(&[u8], &mut Turn<'_>) -> R,
    ) -> R {
        self.fill_for_request(head, turn);
        let value = std::mem::take(turn.scratch);
        let result = call(&value, turn);
        *turn.scratch = value;
        result
    }

    /// Appends the value, see [`Self::with`].
    pub fn write(&self, of: Subject<'_>, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        self.with(of, scratch, |value| out.extend_from_slice(value));
    }

    /// Leaves the value for a request in the scratch of the turn, alone.
    pub(crate) fn fill_for_request(&self, head: &RequestHead, turn: &mut Turn<'_>) {
        self.fill(Subject::of_request(head, turn.facts).with_notes(turn.notes).at(turn.now), turn.scratch);
    }

    /// Leaves the value for a response in the scratch of the turn, alone.
    pub(crate) fn fill_for_response(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        self.fill(Subject::of_response(head, view, turn.facts).with_notes(turn.notes).at(turn.now), turn.scratch);
    }

    /// Leaves the value in the scratch, alone.
    pub fn fill(&self, of: Subject<'_>, scratch: &mut Vec<u8>) {
        scratch.clear();
        let mut evaluation = Evaluation { of, scratch: Scratch::new(scratch) };
        if let Ok(text) = evaluation.text(&self.text) {
            evaluation.scratch.keep(text);
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&self.source).finish()
    }
}

/// An expression that gives a whole number, such as what a request costs.
pub struct Amount {
    source: Box<str>,
    number: Number,
    reads_body: bool,
    used: Used,
}

impl Amount {
    /// Compiles one that may use these maps and tables.
    ///
    /// # Errors
    /// What is wrong with it, and at which character; the path is empty.
    pub(crate) fn compile_with<'n>(text: &str, scope: Scope, names: impl Into<Names<'n>>) -> Result<Self, Issue> {
        let mut checker = Checker::new(scope, names.into());
        let parsed = parser::parse(text).and_then(|term| checker.number(&term));
        let number = parsed.map_err(trouble::Trouble::into_issue)?;
        Ok(Self { source: text.into(), number, reads_body: checker.reads_body, used: Used::of(checker) })
    }

    /// Returns whether it reads the body of the request, which is to be held before.
    pub(crate) fn reads_body(&self) -> bool {
        self.reads_body
    }

    /// Returns the maps and tables that it uses.
    pub(crate) fn used(&self) -> &Used {
        &self.used
    }

    /// Returns the number for a request, in a step of a filter, at least 0; `None` if it has no value.
    pub fn of_request(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Option<u64> {
        self.of(Subject::of_request(head, turn.facts).with_notes(turn.notes).at(turn.now), turn.scratch)
    }

    /// Returns the same for a response.
    pub fn of_response(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> Option<u64> {
        self.of(Subject::of_response(head, view, turn.facts).with_notes(turn.notes).at(turn.now), turn.scratch)
    }

    fn of(&self, of: Subject<'_>, scratch: &mut Vec<u8>) -> Option<u64> {
        let number = Evaluation { of, scratch: Scratch::new(scratch) }.number(&self.number).ok()?;
        Some(u64::try_from(number).unwrap_or(0))
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Amount").field(&self.source).finish()
    }
}
