//! Walks the spanned tree along the JSON Schema and reports every problem where it stands.
//!
//! It knows the constructs that `schemars` emits for our types and for filters. Branches (`anyOf`, `oneOf`) are read as
//! a person would: the branch that fits best is the one that was meant, and its problems are told.

mod branches;
mod keys;

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::diagnostic::{Sink, are_listed, choose, nearest};
use crate::elsewhere;
use crate::expectation::{Shape, allowed_values, expectation, integer_bounds, is_a, names_near, shape};
use crate::faulty::{Faulty, Part};
use crate::file::{NAME_FORMAT, WHEN};
use crate::source::Span;
use crate::tree::{Key, Kind, Node, Scalar, Step};
use crate::units::{
    DURATION_FORMAT, MARGIN_FORMAT, PERCENT_FORMAT, SHIFT_FORMAT, SIZE_FORMAT, parse_duration, parse_margin,
    parse_percent, parse_shift, parse_size,
};
use crate::wording::{gist, lower_first, mend_empty, mend_type, mismatch, place, required_keys};

/// `$ref`s followed in a row: a schema that refers to itself ends here.
const REFERENCES_MAX: usize = 32;

/// Checks a whole tree. `known` was found right by the same schema: named objects that are the very same there are not looked
/// at again.
pub(crate) fn validate(schema: &Value, tree: &Node, known: Option<&Node>, sink: &mut Sink) -> Faulty {
    Validator { known, ..Validator::new(schema, tree) }.run(schema, sink)
}

/// The same of a tree whose objects were joined with their defaults, which are at these places.
pub(crate) fn validate_joined(
    schema: &Value,
    (tree, of_defaults): (&Node, HashSet<Span>),
    known: Option<&Node>,
    sink: &mut Sink,
) -> Faulty {
    Validator { known, of_defaults, ..Validator::new(schema, tree) }.run(schema, sink)
}

/// The same by a schema whose references lead into another one, the root.
pub(crate) fn validate_part((root, schema): (&Value, &Value), tree: &Node, sink: &mut Sink) -> Faulty {
    Validator::new(root, tree).run(schema, sink)
}

/// What was found, by its place.
fn collect(marks: Vec<(String, Vec<Part>)>, found: Vec<Found>, sink: &mut Sink) -> Faulty {
    let mut faulty = Faulty::default();
    for (object, path) in marks {
        faulty.add(object, path);
    }
    for Found { span, message, suggestion } in found {
        sink.push(span, message, suggestion);
    }
    faulty
}

struct Found {
    span: Span,
    message: String,
    suggestion: Option<String>,
}

struct Validator<'a> {
    root: &'a Value,
    tree: &'a Node,
    known: Option<&'a Node>,
    /// Places of keys that come from defaults. A key of an object that is nearly one of them is meant to override it.
    of_defaults: HashSet<Span>,
    path: Vec<Step<'a>>,
    /// Whether the key that was last looked at has to be there.
    is_needed: bool,
    /// Places with something wrong: the object, and the path below it.
    marks: Vec<(String, Vec<Part>)>,
    found: Vec<Found>,
    /// Whether suggestions are still looked for; with very many problems they cost too much.
    advise: bool,
}

impl<'a> Validator<'a> {
    fn new(root: &'a Value, tree: &'a Node) -> Self {
        let (path, marks, found) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            root,
            tree,
            known: None,
            of_defaults: HashSet::new(),
            path,
            is_needed: false,
            marks,
            found,
            advise: true,
        }
    }

    fn run(mut self, schema: &'a Value, sink: &mut Sink) -> Faulty {
        self.check(schema, self.tree);
        collect(self.marks, self.found, sink)
    }

    fn check(&mut self, schema: &'a Value, node: &'a Node) {
        if matches!(node.kind, Kind::Invalid) {
            self.mark();
            return;
        }
        let schema = self.follow(schema);
        let Some(map) = schema.as_object() else { return };
        for part in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.check(part, node);
        }
        let values = allowed_values(map);
        if !values.is_empty() {
            self.check_value(&values, node);
            return;
        }
        for name in ["anyOf", "oneOf"] {
            if let Some(branches) = map.get(name).and_then(Value::as_array) {
                match required_keys(branches) {
                    Some(keys) => self.check_one_of_keys(&keys, node),
                    None => self.check_branches(map, branches, node),
                }
            }
        }
        if !self.check_type(map, node) {
            return;
        }
        match &node.kind {
            Kind::Map(entries) => self.check_map(map, node, entries),
            Kind::List(items) => self.check_list(map, node, items),
            Kind::Scalar(scalar) => self.check_scalar(map, node, scalar),
            Kind::Invalid => {}
        }
    }

    fn follow(&self, mut schema: &'a Value) -> &'a Value {
        for _ in 0..REFERENCES_MAX {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return schema };
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            let Some(target) = target else { return &Value::Null };
            schema = target;
        }
        &Value::Null
    }

    fn report(&mut self, span: Span, message: String, suggestion: Option<String>) {
        self.mark();
        self.tell(span, message, suggestion);
    }

    /// Reports something that leaves the value fit to be looked at further.
    fn tell(&mut self, span: Span, message: String, suggestion: Option<String>) {
        self.advise = self.advise && self.found.len() < 100;
        self.found.push(Found { span, message, suggestion });
    }

    fn mark(&mut self) {
        let parts: Vec<Part> = self
            .path
            .iter()
            .map(|step| match step {
                Step::Key(key) => Part::Key(key.text.to_string()),
                Step::Index(index) => Part::Index(*index),
            })
            .collect();
        let (object, inner) = match parts.as_slice() {
            [] => return,
            [Part::Key(kind), Part::Key(name), ..] if kind == "listeners" || kind == "clusters" => {
                (format!("{kind}/{name}"), 2)
            }
            [Part::Key(kind), Part::Index(index), ..] => (format!("{kind}/{index}"), 2),
            [Part::Key(kind), ..] => (kind.clone(), 1),
            [Part::Index(_), ..] => return,
        };
        self.marks.push((object, parts[inner..].to_vec()));
    }

    /// Where a problem with the current node is shown: at its key when the value itself spans several lines.
    fn focus(&self, node: &Node) -> Span {
        match (&node.kind, self.path.last()) {
            (Kind::Scalar(_), _) if node.span.end > node.span.column => node.span,
            (_, Some(Step::Key(key))) => key.span,
            _ => node.span,
        }
    }

    /// The name of the current node in a message.
    fn subject(&self) -> String {
        match self.path.last() {
            None => "the file".to_owned(),
            Some(Step::Key(key)) => format!("`{}`", key.text),
            Some(Step::Index(_)) => {
                let list = self.path.iter().rev().find_map(|step| match step {
                    Step::Key(key) => Some(key.text.as_str()),
                    Step::Index(_) => None,
                });
                format!("an item of `{}`", list.unwrap_or_default())
            }
        }
    }

    fn check_value(&mut self, values: &[&Value], node: &'a Node) {
        let actual = match &node.kind {
            Kind::Scalar(scalar) => scalar.value(),
            _ => Value::Null,
        };
        if values.contains(&&actual) {
            return;
        }
        let text = node.text().unwrap_or_default();
        // What comes from the environment is compared with nothing: what is like it would tell of it.
        let word = if node.is_from_environment() { "" } else { text };
        let message = mismatch(&self.subject(), &names_near(values, word), node);
        let list = self.path.iter().rev().find_map(|step| match step {
            Step::Key(key) => Some(key.text.as_str()),
            Step::Index(_) => None,
        });
        let suggestion = if values.iter().any(|value| value.as_str() == Some(text)) {
            Some(format!("put it in quotes: \"{text}\""))
        } else if self.advise {
            let near = || nearest(word, values.iter().filter_map(|value| value.as_str()));
            elsewhere::value(list.unwrap_or_default(), word)
                .or_else(|| near().map(|name| format!("did you mean `{name}`?")))
                .or_else(|| (!are_listed(values.len())).then(|| ALL_VALUES.to_owned()))
        } else {
            None
        };
        self.report(self.focus(node), message, suggestion);
    }

    /// A guess at what was meant by a value of the wrong type.
    fn mend_type(&self, map: &Map<String, Value>, node: &Node) -> Option<String> {
        let fits = |schema: &Value, node: &Node| {
            let mut sink = Sink::default();
            validate_part((self.root, schema), node, &mut sink);
            sink.is_empty()
        };
        mend_type(map, self.root, (node, self.is_needed), &fits)
    }

    fn check_type(&mut self, map: &Map<String, Value>, node: &Node) -> bool {
        // What has branches has told by these.
        let has_branches = !map.contains_key("type") && ["anyOf", "oneOf"].iter().any(|name| map.contains_key(*name));
        if has_branches || is_a(map, self.root, node) {
            return true;
        }
        let wanted = expectation(map, self.root);
        let suggestion = match self.path.last() {
            Some(Step::Key(key)) if shape(map) == Shape::Map => mend_empty(&key.text, node),
            _ => None,
        };
        // What comes from the environment may be secret.
        let text = node.text().filter(|_| shape(map) == Shape::Map && !node.is_from_environment());
        let alone = || elsewhere::value_alone(&self.path, text?);
        let suggestion = suggestion.or_else(alone).or_else(|| self.mend_type(map, node));
        self.report(self.focus(node), mismatch(&self.subject(), &wanted, node), suggestion);
        false
    }

    fn check_map(&mut self, schema: &'a Map<String, Value>, node: &'a Node, entries: &'a [(Key, Node)]) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let known = self.known_by_name();
        for (key, value) in entries {
            if known.as_ref().is_some_and(|known| known.same(key, value).is_some()) {
                continue;
            }
            if key.text == "<<" {
                let mend = "merge keys are not part of YAML 1.2; use an alias where its value is needed".to_owned();
                self.path.push(Step::Key(key));
                self.report(key.span, "`<<` is not supported".to_owned(), Some(mend));
                self.path.pop();
                continue;
            }
            let known = properties.and_then(|properties| properties.get(key.text.as_str()));
            match known.or_else(|| schema.get("additionalProperties").filter(|other| !other.is_boolean())) {
                Some(child) => {
                    self.path.push(Step::Key(key));
                    self.check_name(schema, key);
                    self.is_needed = required(schema).any(|name| name == key.text.as_str());
                    self.check(child, value);
                    self.path.pop();
                }
                None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                    self.unknown_key(properties, (key, value), entries);
                }
                None => {}
            }
        }
        self.check_required(schema, node);
        let (fewest, mut most) = (count(schema, "minProperties"), count(schema, "maxProperties"));
        let span = self.focus(node);
        let mut held = entries.len() as u64;
        if self.inside_filter() {
            // One filter; `when` is none.
            held -= entries.iter().filter(|(key, _)| key.text == WHEN).count() as u64;
            most = fewest;
        }
        if fewest.is_some_and(|fewest| held < fewest) {
            let message =
                format!("{} {}", self.subject(), if entries.is_empty() { "is empty" } else { "names no filter" });
            let names = properties.map(|known| known.keys().map(String::as_str).filter(|name| *name != WHEN));
            self.tell(span, message, names.and_then(|names| choose("", names, ALL_FILTERS)));
        } else if most.is_some_and(|most| held > most) {
            let message = format!("{} holds {held} keys where one is allowed", self.subject());
            self.tell(span, message, Some("begin each with its own `- `".to_owned()));
        }
    }

    /// The named objects that are known, where such are looked at.
    fn check_required(&mut self, schema: &'a Map<String, Value>, node: &'a Node) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for name in required(schema) {
            if node.get(name).is_some() {
                continue;
            }
            let property = properties.and_then(|properties| properties.get(name));
            let about = property.and_then(|property| property.get("description")).and_then(Value::as_str);
            let suggestion = about.map(|text| format!("add `{name}`: {}", lower_first(gist(text))));
            let message = format!("`{name}` is missing in {}", self.place(self.path.len()));
            self.report(self.focus(node), message, suggestion);
        }
    }

    fn check_list(&mut self, schema: &'a Map<String, Value>, node: &'a Node, items: &'a [Node]) {
        if let Some(item) = schema.get("items") {
            self.is_needed = false;
            for (index, node) in items.iter().enumerate() {
                self.path.push(Step::Index(index));
                self.check(item, node);
                self.path.pop();
            }
        }
        let length = items.len() as u64;
        if count(schema, "minItems").is_some_and(|fewest| length < fewest) {
            let message = format!("{} is empty", self.subject());
            self.report(self.focus(node), message, Some("it needs at least one item".to_owned()));
        }
        if let Some(most) = count(schema, "maxItems").filter(|most| length > *most) {
            let message = format!("{} holds {length} items, more than {most}", self.subject());
            self.report(self.focus(node), message, None);
        }
    }

    fn check_scalar(&mut self, schema: &Map<String, Value>, node: &Node, scalar: &Scalar) {
        let value = scalar.value();
        if let Value::Number(number) = &value {
            let (low, high) = integer_bounds(schema);
            let number = number.as_f64().unwrap_or(f64::NAN);
            if !(number >= low && number <= high) {
                let actual = scalar.shown();
                let message = format!("{} must be {}, not {actual}", self.subject(), expectation(schema, self.root));
                self.report(self.focus(node), message, None);
            }
            return;
        }
        if let Value::String(text) = &value {
            self.check_text(schema, node, text);
        }
    }

    fn check_text(&mut self, schema: &Map<String, Value>, node: &Node, text: &str) {
        let checked = match schema.get("format").and_then(Value::as_str) {
            Some(DURATION_FORMAT) => parse_duration(text).map(|_| ()),
            Some(SHIFT_FORMAT) => parse_shift(text).map(|_| ()),
            Some(SIZE_FORMAT) => parse_size(text).map(|_| ()),
            Some(PERCENT_FORMAT) => parse_percent(text).map(|_| ()),
            Some(MARGIN_FORMAT) => parse_margin(text).map(|_| ()),
            Some(NAME_FORMAT) => check_name(text).map_err(|message| (message, Some(NAME_RULE.to_owned()))),
            _ => check_length(schema, text),
        };
        if let (Err((message, suggestion)), Kind::Scalar(scalar)) = (checked, &node.kind) {
            let (message, suggestion) = scalar.discreet(format!("{}: {message}", self.subject()), suggestion);
            self.report(self.focus(node), message, suggestion);
        }
    }

    /// Names the object that the first `depth` steps lead to, as a person would.
    fn place(&self, depth: usize) -> String {
        place(&self.path[..depth], self.tree)
    }
}

/// Where all keys, values and filters are, when there are too many to list.
const ALL_KEYS: &str = "all are in docs/reference/configuration.md and in `equipoise schema`";
const ALL_VALUES: &str = "all are in docs/reference/configuration.md and in `equipoise schema`";
const ALL_FILTERS: &str = "all are in docs/reference/filters.md";

const NAME_RULE: &str =
    "names start with a letter, a digit or `_`, contain only these, `-` and `.`, and have at most 64 characters";

/// Checks the name of an object.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if first && rest && name.len() <= 64 { Ok(()) } else { Err(format!("`{name}` cannot be a name")) }
}

fn check_length(schema: &Map<String, Value>, text: &str) -> Result<(), (String, Option<String>)> {
    let length = text.chars().count() as u64;
    if let Some(fewest) = count(schema, "minLength").filter(|fewest| length < *fewest) {
        let message = if length == 0 { "it is empty".to_owned() } else { format!("shorter than {fewest} characters") };
        return Err((message, None));
    }
    match count(schema, "maxLength").filter(|most| length > *most) {
        Some(most) => Err((format!("longer than {most} characters"), None)),
        None => Ok(()),
    }
}

/// The keys that a map must have.
fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn count(schema: &Map<String, Value>, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_u64)
}
