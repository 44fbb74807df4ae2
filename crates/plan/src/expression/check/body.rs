//! The body of the request: where it can be read, and ways into its JSON.

use super::super::attributes::{Attribute, Fact, Table};
use super::super::program::Entry;
use super::super::scope::Scope;
use super::super::syntax::{Call, Kind, Term};
use super::super::trouble::{Span, Trouble};
use super::{Checker, dotted};
use crate::json::Path;

impl Checker<'_> {
    /// Notes that the body is read, if it can be at this place.
    pub(super) fn meet_body(&mut self, name: &str, span: Span) -> Result<(), Trouble> {
        let wrong =
            |place: &str, mend: &str| Err(Trouble::new(span, format!("`{name}` cannot be read {place}")).suggest(mend));
        match self.scope {
            Scope::Route => wrong(
                "when the route is chosen",
                "use `body` of `match`, such as `body: { json: { /model: gpt-4 } }`, or a condition of a filter",
            ),
            Scope::Log => wrong(
                "when the exchange is over",
                "write the value into a header field by `set_request_header`, and read that one here",
            ),
            _ if !self.names.has_body => {
                wrong("here, where no filter has it read", "use it in `when`, or in a setting of a filter")
            }
            Scope::Request | Scope::Response => {
                self.reads_body = true;
                Ok(())
            }
        }
    }

    /// Says how to write `request.body.json(…).name`, which asks a member of no value.
    pub(super) fn refuse_call_of_json(&self, of: &Term) -> Result<(), Trouble> {
        match &of.kind {
            Kind::Call(call) => refuse_json(call),
            _ => Ok(()),
        }
    }

    /// The value in the body that a way of several steps means, such as `request.body.json.messages[0].role`.
    pub(super) fn entry_of_body(&mut self, term: &Term) -> Result<Option<Entry>, Trouble> {
        let Some((root, attribute)) = root(term) else { return Ok(None) };
        let mut steps = Vec::new();
        let mut at = term;
        while !std::ptr::eq(at, root) {
            let (of, step) = step(at)?;
            steps.push((step, at.span));
            at = of;
        }
        let is_place = matches!(&term.kind, Kind::Index(_, index) if matches!(index.kind, Kind::Int(_)));
        if steps.len() < 2 && !is_place {
            // It is an entry as of any map of strings.
            return Ok(None);
        }
        self.meet(attribute, root.span)?;
        if let Some((_, span)) = steps.iter().find(|(step, _)| step.starts_with('/')) {
            let trouble = Trouble::new(*span, "a JSON Pointer cannot be one step of several");
            return Err(trouble.suggest("write all of it as one, such as `request.body.json[\"/messages/0/role\"]`"));
        }
        Ok(Some(Entry::Json(Path::Steps(steps.into_iter().rev().map(|(step, _)| step.into()).collect()))))
    }
}

/// The part of a way that is `request.body.json`, if it begins with that, and what is known of it.
fn root(term: &Term) -> Option<(&Term, &'static Attribute)> {
    let mut at = term;
    loop {
        let (Kind::Member(of, ..) | Kind::Index(of, _)) = &at.kind else { return None };
        let attribute = dotted(at).and_then(|name| Attribute::find(&name));
        if let Some(attribute) = attribute.filter(|found| found.fact == Fact::Table(Table::Json)) {
            return Some((at, attribute));
        }
        at = of;
    }
}

/// The last step of a way, and the way before it.
fn step(term: &Term) -> Result<(&Term, String), Trouble> {
    match &term.kind {
        Kind::Member(of, name, _) => Ok((of, name.clone())),
        Kind::Index(of, index) => match &index.kind {
            Kind::Text(name) => Ok((of, name.clone())),
            Kind::Int(place @ 0..) => Ok((of, place.to_string())),
            _ => {
                let trouble = Trouble::new(index.span, "a step is a text in quotes, or a number from 0 on");
                Err(trouble.suggest("for names that are computed, define a map under `maps`"))
            }
        },
        _ => Err(Trouble::new(term.span, "only facts and maps have members")),
    }
}

/// Says how to write `request.body.json(…)`, which is no function.
pub(super) fn refuse_json(call: &Call) -> Result<(), Trouble> {
    let is_body = call.receiver.as_ref().and_then(dotted).is_some_and(|name| name == "request.body");
    if !is_body || call.name != "json" {
        return Ok(());
    }
    let name = match &*call.arguments {
        [Term { kind: Kind::Text(name), .. }] => name.as_str(),
        _ => "NAME",
    };
    let trouble = Trouble::new(call.at, "`request.body.json` is a map, not a function");
    Err(trouble.suggest(format!("write `request.body.json[\"{name}\"]`")))
}
