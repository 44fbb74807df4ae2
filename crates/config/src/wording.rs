//! How the validator speaks: names of places and values, and guesses at what was meant.

use serde_json::{Map, Value};

use crate::diagnostic::{did_you_mean, nearest};
use crate::expectation::{Shape, shape};
use crate::tree::{Key, Kind, Node};
use crate::units::{DURATION_FORMAT, MARGIN_FORMAT, PERCENT_FORMAT, SHIFT_FORMAT, guess_duration, guess_percent};
use crate::validate::Step;

/// Names the place at the end of a path: cluster `api`, `tls` of listener `web`, route 3.
pub(crate) fn place(path: &[Step<'_>], tree: &Node) -> String {
    let (owner, rest) = match path {
        [] => return "the file".to_owned(),
        [Step::Key(kind), Step::Key(name), rest @ ..] if kind.text == "listeners" || kind.text == "clusters" => {
            (format!("{} `{}`", kind.text.trim_end_matches('s'), name.text), rest)
        }
        [Step::Key(kind), Step::Index(index), rest @ ..] if kind.text == "routes" => {
            let name =
                tree.get("routes").and_then(|routes| routes.items().get(*index)).and_then(|route| route.get("name"));
            let name = name.and_then(Node::text);
            (name.map_or_else(|| format!("route {}", index + 1), |name| format!("route `{name}`")), rest)
        }
        [Step::Key(kind), Step::Index(index), rest @ ..] if kind.text == "access_logs" => {
            (format!("access log {}", index + 1), rest)
        }
        [Step::Key(first), rest @ ..] => (format!("`{}`", first.text), rest),
        [Step::Index(_), ..] => return "the file".to_owned(),
    };
    let inner: Vec<&str> = rest
        .iter()
        .filter_map(|step| match step {
            Step::Key(key) => Some(key.text.as_str()),
            Step::Index(_) => None,
        })
        .collect();
    if inner.is_empty() { owner } else { format!("`{}` of {owner}", inner.join(".")) }
}

/// The key that may have been meant by an unknown one. Those that are there already are less likely.
pub(crate) fn similar_key<'k>(
    word: &str,
    names: impl Iterator<Item = &'k str> + Clone,
    entries: &[(Key, Node)],
) -> Option<String> {
    let there = |name: &&str| entries.iter().any(|(other, _)| other.text == **name);
    match (nearest(word, names.clone().filter(|name| !there(name))), nearest(word, names.clone())) {
        (Some(name), _) => Some(format!("did you mean `{name}`?")),
        (None, Some(name)) => Some(format!("did you mean `{name}`, which is here already?")),
        (None, None) => did_you_mean(word, names),
    }
}

/// The keys of which exactly one is needed, if that is all these branches say.
pub(crate) fn required_keys(branches: &[Value]) -> Option<Vec<&str>> {
    branches
        .iter()
        .map(|branch| match branch.as_object()?.get("required")?.as_array()?.as_slice() {
            [Value::String(key)] if branch.as_object()?.len() == 1 => Some(key.as_str()),
            _ => None,
        })
        .collect()
}

/// Says that a value is not what is wanted.
pub(crate) fn mismatch(subject: &str, wanted: &str, node: &Node) -> String {
    match &node.kind {
        Kind::Scalar(scalar) if scalar.value().is_null() => format!("{subject} is empty, but must be {wanted}"),
        _ => format!("{subject} must be {wanted}, not {}", describe(node)),
    }
}

/// What a value is, for a message.
pub(crate) fn describe(node: &Node) -> String {
    match &node.kind {
        Kind::Map(entries) if entries.is_empty() => "an empty map".to_owned(),
        Kind::Map(_) => "a map".to_owned(),
        Kind::List(_) => "a list".to_owned(),
        Kind::Invalid => "something else".to_owned(),
        Kind::Scalar(scalar) => {
            // What comes from the environment may be secret.
            let text = scalar.written.as_ref().unwrap_or(&scalar.text);
            let text =
                if text.chars().count() > 40 { text.chars().take(40).chain(['…']).collect() } else { text.clone() };
            match scalar.value() {
                Value::Null | Value::Bool(_) => format!("`{text}`"),
                Value::Number(_) => format!("the number {text}"),
                _ => format!("the text `{text}`"),
            }
        }
    }
}

/// A guess at what was meant by a value of the wrong type.
pub(crate) fn mend_type(schema: &Map<String, Value>, node: &Node) -> Option<String> {
    let Kind::Scalar(scalar) = &node.kind else {
        let one = node.items().first().and_then(Node::text).filter(|_| node.items().len() == 1);
        return one.filter(|_| shape(schema) == Shape::Text).map(|text| format!("write `{text}`, without the list"));
    };
    if scalar.written.is_some() {
        return None;
    }
    let text = scalar.text.as_str();
    match (shape(schema), scalar.value()) {
        (Shape::Text, Value::Number(_))
            if matches!(schema.get("format").and_then(Value::as_str), Some(DURATION_FORMAT | SHIFT_FORMAT)) =>
        {
            Some(guess_duration(text))
        }
        (Shape::Text, Value::Number(_))
            if matches!(schema.get("format").and_then(Value::as_str), Some(PERCENT_FORMAT | MARGIN_FORMAT)) =>
        {
            Some(guess_percent(text))
        }
        (Shape::Text, Value::Number(_) | Value::Bool(_)) => Some(format!("put it in quotes: \"{text}\"")),
        (Shape::List, Value::String(_) | Value::Number(_)) => Some(format!("write it as a list: `[{text}]`")),
        (Shape::Map, Value::Null) => match schema.get("required").and_then(Value::as_array).map(Vec::as_slice) {
            Some([Value::String(first), ..]) => Some(format!("it needs at least `{first}`")),
            _ => Some("write `{}` for the defaults, or leave the key out".to_owned()),
        },
        (Shape::Map, Value::String(_)) => mend_map(schema, text),
        (_, Value::Null) => Some("give a value, or leave the key out for the default".to_owned()),
        (Shape::Integer, Value::String(_)) if text.parse::<u64>().is_ok() => {
            Some(format!("write it without quotes: {text}"))
        }
        (Shape::Boolean, Value::String(_)) if matches!(text, "yes" | "on" | "true") => Some("write `true`".to_owned()),
        (Shape::Boolean, Value::String(_)) if matches!(text, "no" | "off" | "false") => {
            Some("write `false`".to_owned())
        }
        _ => None,
    }
}

/// A map with one of its keys, where text stands: `/api` was meant as `{ prefix: /api }`.
pub(crate) fn mend_map(schema: &Map<String, Value>, text: &str) -> Option<String> {
    let keys = required_keys(schema.get("oneOf")?.as_array()?)?;
    let is_text = |key: &&str| schema["properties"][*key]["type"] == "string";
    let ways: Vec<String> = keys.into_iter().filter(is_text).map(|key| format!("`{{ {key}: {text} }}`")).collect();
    (!ways.is_empty()).then(|| format!("write {}", ways.join(" or ")))
}

pub(crate) fn quoted(keys: &[&str]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    match keys.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => keys.concat(),
    }
}

/// The beginning of a description that says what something is.
pub(crate) fn gist(text: &str) -> &str {
    let end = [". ", ": ", ", such as"].iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

pub(crate) fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        // `HTTP: …` and `TLS …` stay as they are.
        Some(first) if !letters.clone().next().is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}
