//! The variables that a [template](super::template) may name. Each stands for a fact of expressions: the list of those
//! ([`ATTRIBUTES`]) says which have a name as a variable.
//!
//! A variable that has no value in an exchange (no TLS, no such field) is empty text.

use model::Issue;

use super::settings;
pub use crate::expression::Subject as Values;
use crate::expression::{ATTRIBUTES, Attribute, Named, Scope};

/// From when on a variable has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Once the request head is there: in request steps and after.
    Request,
    /// Once there is a response: in response steps only.
    Response,
}

/// A variable, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable(Named);

/// One variable of the language.
#[derive(Clone, Copy, Debug)]
pub struct VariableSpec {
    /// Before the colon.
    pub name: &'static str,
    /// It is written with a name behind a colon.
    pub takes_name: bool,
    /// From when on it has a value.
    pub stage: Stage,
    /// What it stands for, one sentence; the reference page shows it.
    pub doc: &'static str,
    attribute: &'static Attribute,
}

/// Returns every variable there is, in the order of the facts.
pub fn variables() -> impl Iterator<Item = VariableSpec> + Clone {
    ATTRIBUTES.iter().filter_map(|attribute| {
        let (name, doc) = attribute.variable?;
        let stage = match attribute.since {
            Scope::Route | Scope::Request => Stage::Request,
            Scope::Response => Stage::Response,
            // What is known only at the end is for access logs.
            Scope::Log => return None,
        };
        Some(VariableSpec { name, takes_name: attribute.is_map(), stage, doc, attribute })
    })
}

impl Variable {
    /// Returns whether there is a variable of this name.
    pub fn is_known(name: &str) -> bool {
        variables().any(|spec| spec.name == name)
    }

    /// Finds a variable that has a value at `stage`.
    ///
    /// # Errors
    /// An unknown name (with the nearest one), a missing or surplus argument, a response variable in a request step.
    pub fn find(name: &str, argument: Option<&str>, stage: Stage) -> Result<Self, Issue> {
        let Some(spec) = variables().find(|spec| spec.name == name) else {
            let issue = Issue::at("", format!("there is no variable `{{{name}}}`"));
            let names = variables().filter(|spec| spec.stage <= stage).map(|spec| spec.name);
            return Err(settings::suggest_nearest_on("docs/reference/filters.md", issue, name, names));
        };
        if spec.stage > stage {
            let issue = Issue::at("", format!("`{{{name}}}` has no value before there is a response"));
            return Err(issue.suggest("use it in a filter for responses, such as set_response_header"));
        }
        match argument {
            Some(_) if !spec.takes_name => {
                Err(Issue::at("", format!("`{{{name}}}` takes no argument")).suggest(format!("write {{{name}}}")))
            }
            None | Some("") if spec.takes_name => {
                Err(Issue::at("", format!("`{{{name}}}` needs a name")).suggest(format!("write {{{name}:NAME}}")))
            }
            argument => Named::new(spec.attribute, argument).map(Self).map_err(|message| Issue::at("", message)),
        }
    }

    /// Appends the value.
    pub fn write(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        self.0.write(values, out);
    }

    /// Returns whether it is a parameter of the query, which is percent-encoded as the client has sent it.
    pub fn is_encoded(&self) -> bool {
        self.0.parameter().is_some()
    }

    /// Returns whether it holds a parameter of the query: the whole query, or the parameter of this name.
    pub(super) fn holds_parameter(&self, name: &str) -> bool {
        self.0.holds_query() || self.is_parameter(name)
    }

    /// Returns whether it is the parameter of the query of this name.
    pub(super) fn is_parameter(&self, name: &str) -> bool {
        self.0.parameter() == Some(name.as_bytes())
    }
}
