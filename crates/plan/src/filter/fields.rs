//! What the six header filters share: checking names, and the steps that set, add and remove fields.

use std::collections::HashSet;

use model::fields::reads_as;
use model::{FieldName, Fields, Issue, Known, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::guarded::{Guarded, GuardedResponse};
use super::pattern::NamePattern;
use super::settings::Ordered;
use super::template::Template;
use super::variables::Stage;
use super::{Compiling, Flow, RequestStep, ResponseStep, ResponseView, Steps, Turn};
use crate::expression::{Scope, Value, ValueText};

/// Returns the names of a list of request fields under this key.
///
/// # Errors
/// One is a pattern, is listed twice, or is of a field that filters may not change.
pub(super) fn complete_names(key: &str, list: &[String]) -> Result<Vec<FieldName>, Issue> {
    let one = |(place, name): (usize, &String)| {
        let path = format!("{key}/{place}");
        if name.contains('*') {
            let issue = Issue::at(path, format!("`{name}` is a pattern, and `{key}` takes complete names"));
            return Err(issue.suggest("list each field"));
        }
        if list[..place].iter().any(|earlier| earlier.eq_ignore_ascii_case(name)) {
            return Err(Issue::at(path, format!("`{name}` is listed twice")).suggest("leave one of them out"));
        }
        changeable_name(name, Stage::Request).map_err(|issue| issue.below(&path))
    };
    list.iter().enumerate().map(one).collect()
}

/// What happens to fields of the same name that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They are replaced.
    Set,
    /// They stay.
    Add,
}

/// Writes fields.
#[derive(Debug)]
pub(super) struct WriteFields {
    mode: Mode,
    stage: Stage,
    changes: Box<[(FieldName, Written)]>,
}

impl WriteFields {
    /// Checks names and values.
    pub(super) fn compile(
        (mode, stage): (Mode, Stage),
        fields: &Ordered<FieldValue>,
        compiling: &mut Compiling<'_>,
    ) -> Result<Self, Issue> {
        if fields.0.is_empty() {
            return Err(Issue::at("", "no field is named").suggest("write NAME: VALUE, or leave the filter out"));
        }
        let compile = |(name, value): &(String, FieldValue)| {
            let field = changeable_name(name, stage).map_err(|issue| issue.below(name))?;
            let value = Written::compile(value, stage, compiling).map_err(|issue| issue.below(name))?;
            Ok((field, value))
        };
        let changes = fields.0.iter().map(compile).collect::<Result<_, Issue>>()?;
        let names = || fields.0.iter().map(|(name, _)| name.as_str());
        refuse_twins(names().map(|name| (name.to_owned(), name)))?;
        if (mode, stage) == (Mode::Set, Stage::Request) {
            refuse_alike(&names().collect::<Vec<_>>())?;
        }
        Ok(Self { mode, stage, changes })
    }

    /// Returns the fields of a request that it writes.
    pub(super) fn guarded(&self) -> Vec<Guarded> {
        self.changes.iter().map(|(name, _)| Guarded::Name(name.clone())).collect()
    }

    /// Returns the steps of one that sets fields of a response.
    pub(super) fn into_response_steps(self) -> Steps {
        let fields = self.changes.iter().map(|(name, _)| Guarded::Exact(name.clone())).collect();
        Steps { guarded_response: GuardedResponse { when: None, fields }, ..Steps::of_response(self) }
    }

    fn write(&self, fields: &mut Fields, name: &FieldName, value: &[u8]) {
        match (self.mode, self.stage) {
            (Mode::Add, _) if value.is_empty() => {}
            (Mode::Add, _) => fields.append(name, value),
            // What a client says must not stay beside it in another spelling.
            (Mode::Set, Stage::Request) if value.is_empty() => drop(fields.remove_alike(name)),
            (Mode::Set, Stage::Request) => fields.set_alone(name, value),
            (Mode::Set, Stage::Response) if value.is_empty() => drop(fields.remove(name)),
            (Mode::Set, Stage::Response) => fields.set(name, value),
        }
    }
}

impl RequestStep for WriteFields {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        for (name, value) in &self.changes {
            if let Some(text) = value.as_literal() {
                self.write(&mut head.fields, name, text.as_bytes());
                continue;
            }
            // A value may quote the very head it is written to, so it takes shape outside.
            value.fill_for_request(head, turn);
            self.write(&mut head.fields, name, without_margin(turn.scratch));
        }
        Flow::Continue
    }
}

impl ResponseStep for WriteFields {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        for (name, value) in &self.changes {
            if let Some(text) = value.as_literal() {
                self.write(&mut head.fields, name, text.as_bytes());
                continue;
            }
            value.fill_for_response(head, view, turn);
            self.write(&mut head.fields, name, without_margin(turn.scratch));
        }
    }
}

/// Removes fields.
#[derive(Debug)]
pub(super) struct RemoveFields {
    names: Box<[FieldName]>,
    patterns: Box<[NamePattern]>,
}

impl RemoveFields {
    /// Checks the names.
    pub(super) fn compile(stage: Stage, names: &[String]) -> Result<Self, Issue> {
        if names.is_empty() {
            return Err(
                Issue::at("", "the list is empty").suggest("name the fields to remove, or leave the filter out")
            );
        }
        let (mut plain, mut patterns) = (Vec::new(), Vec::new());
        for (place, name) in names.iter().enumerate() {
            let at = |issue: Issue| issue.below(&place.to_string());
            if name.contains('*') {
                patterns.push(name_pattern(name).map_err(at)?);
            } else {
                plain.push(changeable_name(name, stage).map_err(at)?);
            }
        }
        refuse_twins(names.iter().enumerate().map(|(place, name)| (place.to_string(), name.as_str())))?;
        Ok(Self { names: plain.into(), patterns: patterns.into() })
    }

    /// Returns the fields of a request that it removes.
    pub(super) fn guarded(&self) -> Vec<Guarded> {
        let names = self.names.iter().cloned().map(Guarded::Name);
        names.chain(self.patterns.iter().cloned().map(Guarded::Pattern)).collect()
    }

    /// Returns the steps of one that removes fields of a response.
    pub(super) fn into_response_steps(self) -> Steps {
        let names = self.names.iter().cloned().map(Guarded::Exact);
        let fields = names.chain(self.patterns.iter().cloned().map(Guarded::ExactPattern)).collect();
        Steps { guarded_response: GuardedResponse { when: None, fields }, ..Steps::of_response(self) }
    }
}

impl RequestStep for RemoveFields {
    fn apply(&self, head: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        for name in &self.names {
            head.fields.remove_alike(name);
        }
        if !self.patterns.is_empty() {
            let goes = |name: &[u8]| self.patterns.iter().any(|pattern| pattern.reads_as_field(name));
            head.fields.retain(|field| reserved(field.known, Stage::Request).is_some() || !goes(field.name));
        }
        Flow::Continue
    }
}

impl ResponseStep for RemoveFields {
    fn apply(&self, head: &mut ResponseHead, _: &ResponseView<'_>, _: &mut Turn<'_>) {
        for name in &self.names {
            head.fields.remove(name);
        }
        if !self.patterns.is_empty() {
            let goes = |name: &[u8]| self.patterns.iter().any(|pattern| pattern.is_field(name));
            head.fields.retain(|field| reserved(field.known, Stage::Response).is_some() || !goes(field.name));
        }
    }
}

fn name_pattern(text: &str) -> Result<NamePattern, Issue> {
    let pattern = NamePattern::parse(text)?;
    if pattern.is_token() { Ok(pattern) } else { Err(Issue::at("", format!("`{text}` matches no header field name"))) }
}

/// Margins are no part of a field value (RFC 9110 section 5.5), HTTP/2 forbids them (RFC 9113 section 8.2.1), and
/// controls would turn into them.
pub(super) fn without_margin(value: &[u8]) -> &[u8] {
    let is_margin = |b: &u8| *b <= b' ' || *b == 0x7f;
    let start = value.iter().position(|b| !is_margin(b)).unwrap_or(value.len());
    let end = value.iter().rposition(|b| !is_margin(b)).map_or(start, |at| at + 1);
    &value[start..end]
}

/// A value of a field, as it is written.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(inline, untagged)]
pub(super) enum FieldValue {
    /// A text, which may hold variables such as `{client_ip}`.
    Text(String),
    /// A CEL expression that gives the value.
    Expression(ValueText),
}

impl<'de> Deserialize<'de> for FieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => Ok(Self::Text(text)),
            map @ serde_json::Value::Object(_) => {
                serde_json::from_value(map).map(Self::Expression).map_err(de::Error::custom)
            }
            other => Err(de::Error::custom(format!("invalid type: {other}, expected text or {{ expression: … }}"))),
        }
    }
}

/// A value of a field, compiled.
#[derive(Debug)]
enum Written {
    Template(Template),
    Expression(Value),
}

impl Written {
    fn compile(value: &FieldValue, stage: Stage, compiling: &mut Compiling<'_>) -> Result<Self, Issue> {
        match value {
            FieldValue::Text(text) => compile_value(text, stage).map(Self::Template),
            FieldValue::Expression(value) => {
                let scope = if stage == Stage::Request { Scope::Request } else { Scope::Response };
                value.compile(scope, compiling).map(Self::Expression)
            }
        }
    }

    /// Returns the whole text, when nothing in it varies.
    fn as_literal(&self) -> Option<&str> {
        match self {
            Self::Template(template) => template.as_literal(),
            Self::Expression(_) => None,
        }
    }

    /// Leaves the value in the scratch.
    fn fill_for_request(&self, head: &RequestHead, turn: &mut Turn<'_>) {
        match self {
            Self::Template(template) => {
                let (values, scratch) = turn.values(head);
                scratch.clear();
                template.write(&values, scratch);
            }
            Self::Expression(value) => value.fill_for_request(head, turn),
        }
    }

    /// Does the same once there is a response.
    fn fill_for_response(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        match self {
            Self::Template(template) => {
                let (values, scratch) = turn.response_values(head, view);
                scratch.clear();
                template.write(&values, scratch);
            }
            Self::Expression(value) => value.fill_for_response(head, view, turn),
        }
    }
}

fn compile_value(text: &str, stage: Stage) -> Result<Template, Issue> {
    let template = Template::compile(text.trim_matches([' ', '\t']), stage)?;
    if template.as_literal() == Some("") {
        let issue = Issue::at("", "the value is empty");
        return Err(issue.suggest("to remove fields, use remove_request_header or remove_response_header"));
    }
    if template.literals().all(|text| model::fields::is_field_value(text.as_bytes())) {
        Ok(template)
    } else {
        Err(Issue::at("", "a header field value cannot hold line breaks or other control characters"))
    }
}

/// Returns a name that filters may change.
pub(super) fn changeable_name(text: &str, stage: Stage) -> Result<FieldName, Issue> {
    let name = FieldName::new(text).map_err(|message| Issue::at("", message))?;
    let Some(why) = reserved(name.known(), stage) else { return Ok(name) };
    let issue = Issue::at("", format!("`{text}` cannot be changed by a filter: {why}"));
    Err(if name.known() == Known::Host { issue.suggest("use the filter rewrite: { host: … }") } else { issue })
}

/// Returns why filters may not change a field, if so. Framing and the connection itself belong to the protocol side: a filter that changed
/// them could split one message into two.
fn reserved(known: Known, stage: Stage) -> Option<&'static str> {
    match known {
        Known::ContentLength | Known::TransferEncoding | Known::Trailer => {
            Some("the proxy writes it from the body that it sends")
        }
        known if known.is_hop_by_hop() => Some("it applies to one connection only, and the proxy manages it"),
        Known::Expect if stage == Stage::Request => Some("the proxy answers it itself"),
        Known::Host if stage == Stage::Request => Some("requests always carry exactly one"),
        _ => None,
    }
}

/// Rejects names that are listed twice; each comes with its path.
fn refuse_twins<'a>(mut names: impl Iterator<Item = (String, &'a str)>) -> Result<(), Issue> {
    let mut seen = HashSet::new();
    match names.find(|(_, name)| !seen.insert(name.to_ascii_lowercase())) {
        Some((path, name)) => Err(Issue::at(path, format!("`{name}` is listed twice: case is ignored in field names"))),
        None => Ok(()),
    }
}

/// Rejects names that endpoints read as the same field: setting one removes the other.
fn refuse_alike(names: &[&str]) -> Result<(), Issue> {
    for (place, name) in names.iter().enumerate() {
        if let Some(first) = names[..place].iter().find(|first| reads_as(first.as_bytes(), name)) {
            let message = format!("many endpoints read `{name}` and `{first}`, listed earlier, as the same field");
            return Err(Issue::at(*name, message).suggest("keep one of them"));
        }
    }
    Ok(())
}
