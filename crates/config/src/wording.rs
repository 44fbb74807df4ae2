//! How the validator speaks: names of places and values, and guesses at what was meant.

use model::filter::RATE_FORMAT;
use serde_json::{Map, Value};

use crate::diagnostic::{choose, nearest};
use crate::elsewhere::{self, Place};
use crate::expectation::{Shape, allowed_values, integer_bounds, shape, target};
use crate::file::WHEN;
use crate::tree::{Kind, Node, Step};
use crate::units::{
    DURATION_FORMAT, MARGIN_FORMAT, PERCENT_FORMAT, SHIFT_FORMAT, guess_duration, guess_percent, parse_duration,
    parse_percent,
};

/// Returns the name of the place at the end of a path: cluster `api`, `tls` of listener `web`, route 3.
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

/// Says of a name whether it is one of a kind.
type Is<'a> = &'a dyn Fn(&str) -> bool;

/// Returns the key that may have been meant by an unknown one: none that is there already, as `is_there` says. `all` says where all keys
/// are.
pub(crate) fn similar_key<'k>(
    word: &str,
    names: impl Iterator<Item = &'k str> + Clone,
    is_there: Is<'_>,
    (is_filter, takes, all): (Is<'_>, Is<'_>, &str),
) -> Option<String> {
    let is_set = |name: &str| is_there(name) && names.clone().any(|known| known == name);
    let free = names.clone().filter(|name| !is_there(name));
    let is_free = |name: &str| free.clone().any(|known| known == name);
    let place = Place { is_free: &is_free, is_set: &is_set, takes, is_filter };
    elsewhere::key(word, place).or_else(|| choose(word, free.clone(), all))
}

/// Returns the keys of which exactly one is needed, if that is all these branches say.
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

/// Returns a description of a value, for a message.
pub(crate) fn describe(node: &Node) -> String {
    match &node.kind {
        Kind::Map(entries) if entries.is_empty() => "an empty map".to_owned(),
        Kind::Map(_) => "a map".to_owned(),
        Kind::List(_) => "a list".to_owned(),
        Kind::Invalid => "something else".to_owned(),
        Kind::Scalar(scalar) => {
            // What comes from the environment may be secret.
            let text = scalar.shown();
            let text = if text.chars().count() > 40 {
                text.chars().take(40).chain(['…']).collect()
            } else {
                text.to_owned()
            };
            match scalar.value() {
                Value::Null | Value::Bool(_) => format!("`{text}`"),
                Value::Number(_) => format!("the number {text}"),
                _ => format!("the text `{text}`"),
            }
        }
    }
}

/// Returns a guess at what was meant by a value of the wrong type, whose key cannot be left out if it `is_needed`. `fits` says whether a
/// value has nothing wrong by a schema.
pub(crate) fn mend_type(
    schema: &Map<String, Value>,
    root: &Value,
    (node, is_needed): (&Node, bool),
    fits: &dyn Fn(&Value, &Node) -> bool,
) -> Option<String> {
    let Kind::Scalar(scalar) = &node.kind else {
        let one = node.items().first().and_then(Node::text).filter(|_| node.items().len() == 1);
        return one.filter(|_| shape(schema) == Shape::Text).map(|text| format!("write `{text}`, without the list"));
    };
    if let Some(written) = &scalar.written {
        let item = format!("a variable stands for one value: write it as a list: `[\"{written}\"]`");
        let is_one = scalar.is_one_variable();
        return match shape(schema) {
            Shape::List => Some(item),
            Shape::Integer | Shape::Number | Shape::Boolean if is_one => {
                Some(format!("set the variable to that; the value of `{written}` is not shown"))
            }
            _ => None,
        };
    }
    let text = scalar.text.as_str();
    match (shape(schema), scalar.value()) {
        (Shape::Text, Value::Number(_)) => mend_number(schema, text),
        (Shape::Text, Value::Bool(_)) => Some(format!("put it in quotes: \"{text}\"")),
        (Shape::List, Value::String(_) | Value::Number(_)) => mend_list(schema, root, (node, text), fits),
        (Shape::Map, Value::Null) => match schema.get("required").and_then(Value::as_array).map(Vec::as_slice) {
            Some([Value::String(first), ..]) => Some(format!("it needs at least `{first}`")),
            _ => Some("write `{}` for the defaults, or leave the key out".to_owned()),
        },
        (Shape::Map, Value::String(_)) => mend_map(schema, root, text),
        (Shape::Map, Value::Number(number)) => mend_map_number(schema, root, number.as_f64()?),
        (_, Value::Null) if is_needed => Some("give a value: the key is required".to_owned()),
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

/// Returns a number where text stands.
fn mend_number(schema: &Map<String, Value>, text: &str) -> Option<String> {
    let is_zero = text.parse::<f64>().is_ok_and(|number| number == 0.0);
    match schema.get("format").and_then(Value::as_str) {
        // Where a time is needed it is hardly ever none.
        Some(DURATION_FORMAT) if is_zero => None,
        Some(DURATION_FORMAT | SHIFT_FORMAT) => Some(guess_duration(text)),
        Some(PERCENT_FORMAT | MARGIN_FORMAT) => Some(guess_percent(text)),
        Some(RATE_FORMAT) => {
            (!is_zero && text.parse::<u32>().is_ok()).then(|| format!("write `{text}/s` for a rate per second"))
        }
        _ => Some(format!("put it in quotes: \"{text}\"")),
    }
}

/// Returns a list of what stands there alone, or of the words in it, unless that is wrong too.
fn mend_list(
    schema: &Map<String, Value>,
    root: &Value,
    (node, text): (&Node, &str),
    fits: &dyn Fn(&Value, &Node) -> bool,
) -> Option<String> {
    let item = schema.get("items")?;
    let words: Vec<&str> = text.split([' ', ',', '|']).filter(|word| !word.is_empty()).collect();
    let allowed = item.as_object().map(|item| allowed_values(target(item, root).unwrap_or(item))).unwrap_or_default();
    if words.len() > 1 {
        let are_known = words.iter().all(|word| allowed.iter().any(|value| value.as_str() == Some(word)));
        return are_known.then(|| format!("write it as a list: `[{}]`", words.join(", ")));
    }
    fits(item, node).then(|| format!("write it as a list: `[{text}]`"))
}

/// Filters that need no settings: what is switched on elsewhere is an empty map here.
pub(crate) fn mend_empty(key: &str, node: &Node) -> Option<String> {
    let is_on = !matches!(node.text(), None | Some("off" | "no" | "false"));
    (matches!(key, "compress" | "deny") && is_on).then(|| format!("write `{key}: {{}}` for the defaults"))
}

/// Returns a map with one of its keys, where text stands: `/api` was meant as `{ prefix: /api }`, `20%` as `{ share: 20% }`, and `source`
/// as `{ source: {} }`.
pub(crate) fn mend_map(schema: &Map<String, Value>, root: &Value, text: &str) -> Option<String> {
    let properties = schema.get("properties")?.as_object()?;
    let alternatives = schema.get("oneOf").and_then(Value::as_array).and_then(|branches| required_keys(branches));
    if let Some(keys) = alternatives {
        if keys.contains(&text) {
            let inner = inner_keys(properties.get(text)?, root)?;
            return Some(format!("write `{{ {text}: {inner} }}`"));
        }
        let is_text = |key: &&str| properties.get(*key).is_some_and(|property| property["type"] == "string");
        let ways: Vec<String> = keys.into_iter().filter(is_text).map(|key| format!("`{{ {key}: {text} }}`")).collect();
        return (!ways.is_empty()).then(|| format!("write {}", ways.join(" or ")));
    }
    // The only key that is needed.
    if let Some([Value::String(key)]) = schema.get("required").and_then(Value::as_array).map(Vec::as_slice) {
        let property = properties.get(key).and_then(|property| resolved(property, root))?;
        return (shape(property) == Shape::Text).then(|| format!("write `{{ {key}: {text} }}`"));
    }
    // Exactly one key that such a value would do for.
    let mut fitting = properties.iter().filter(|(_, property)| reads_as_one(property, root, text)).map(|(key, _)| key);
    match (fitting.next(), fitting.next()) {
        (Some(key), None) => Some(format!("write `{{ {key}: {text} }}`")),
        _ => None,
    }
}

/// Returns a map with the only key that takes such a whole number: `503` was meant as `{ status: 503 }`.
fn mend_map_number(schema: &Map<String, Value>, root: &Value, number: f64) -> Option<String> {
    let takes = |property: &Value| {
        resolved(property, root).filter(|property| shape(property) == Shape::Integer).is_some_and(|property| {
            let (low, high) = integer_bounds(property);
            (low..=high).contains(&number)
        })
    };
    let mut fitting = schema.get("properties")?.as_object()?.iter().filter(|(_, property)| takes(property));
    match (fitting.next(), fitting.next()) {
        (Some((key, _)), None) => Some(format!("write `{{ {key}: {number} }}`")),
        _ => None,
    }
}

/// Returns where a key of a route's `match`, or `when`, was meant to stand.
pub(crate) fn mend_place(
    (key, value): (&str, &Node),
    properties: Option<&Map<String, Value>>,
    (root, filter): (&Value, Option<&str>),
) -> Option<String> {
    if let (WHEN, Some(filter)) = (key, filter) {
        return Some(format!("write it beside the name of the filter: `{{ {filter}: …, when: {{ … }} }}`"));
    }
    let conditions = resolved(properties?.get("match")?, root)?.get("properties")?.as_object()?;
    let shown = value.text().filter(|text| !value.is_from_environment() && text.len() <= 40).unwrap_or("…");
    match key {
        WHEN => {
            Some("conditions of a route belong in `match`; those of a filter, in `when` beside its name".to_owned())
        }
        "prefix" | "path" if value.text().is_some() => {
            Some(format!("write it in `match`: `match: {{ path: {{ prefix: {shown} }} }}`"))
        }
        "host" if value.text().is_some() => Some(format!("write it in `match`: `match: {{ host: {shown} }}`")),
        _ => conditions.contains_key(key).then(|| format!("write it in `match`: `match: {{ {key}: … }}`")),
    }
}

/// Returns whether a key may hold such a value: false where it is a map, and there is none.
pub(crate) fn may_hold(property: Option<&Value>, root: &Value, node: &Node) -> bool {
    let map = property.and_then(|property| resolved(property, root));
    !matches!(node.kind, Kind::Scalar(_)) || map.is_none_or(|map| shape(map) != Shape::Map)
}

/// What other products call the address of the client.
const CLIENT_ADDRESSES: [&str; 11] = [
    "src",
    "ip",
    "address",
    "source",
    "source_ip",
    "remote_ip",
    "client_ip",
    "remote_addr",
    "$remote_addr",
    "$binary_remote_addr",
    "remote_address",
];

fn names_client(branch: &Map<String, Value>) -> bool {
    let is_client = |value: &Value| value == "client";
    branch.get("const").is_some_and(is_client)
        || branch.get("enum").and_then(Value::as_array).is_some_and(|all| all.iter().any(is_client))
}

/// Returns a key of a map with one text, where only some names may stand: `x-api-key` was meant as `{ header: x-api-key }`, and
/// `request.user` as `{ expression: request.user }`. Of keys that take no such text, all are named, or the one that the text is like.
pub(crate) fn mend_named(branches: &[Value], root: &Value, node: &Node) -> Option<String> {
    let text = node.text().filter(|_| !node.is_from_environment())?;
    let takes_client = || branches.iter().any(|branch| resolved(branch, root).is_some_and(names_client));
    if CLIENT_ADDRESSES.contains(&text.to_ascii_lowercase().as_str()) && takes_client() {
        return Some("write `client` for the address of the client".to_owned());
    }
    let keys: Vec<_> = branches.iter().filter_map(|branch| needed_key(branch, root)).collect();
    let takes_any = |(_, property): &&(&str, &Map<String, Value>)| {
        shape(property) == Shape::Text && !["enum", "format"].iter().any(|k| property.contains_key(*k))
    };
    let mut fitting = keys.iter().filter(takes_any).map(|(key, _)| *key);
    if looks_computed(text) && fitting.clone().any(|key| key == "expression") {
        let quoted = if text.contains('\'') { text.to_owned() } else { format!("'{text}'") };
        return Some(format!("write `{{ expression: {quoted} }}`"));
    }
    if let Some(key) = fitting.next() {
        return Some(format!("write `{{ {key}: {text} }}`"));
    }
    let meant = nearest(text, keys.iter().map(|(key, _)| *key));
    let ways = keys.iter().filter(|(key, _)| meant.is_none_or(|meant| meant == *key));
    let ways: Vec<String> = ways.map(|(key, property)| format!("`{{ {key}: {} }}`", example(property))).collect();
    (!ways.is_empty()).then(|| format!("write {}", ways.join(" or ")))
}

/// Returns the only key that a map needs, and what it holds, where a branch is such a map.
fn needed_key<'a>(branch: &'a Value, root: &'a Value) -> Option<(&'a str, &'a Map<String, Value>)> {
    let map = resolved(branch, root).filter(|map| shape(map) == Shape::Map)?;
    let [Value::String(key)] = map.get("required")?.as_array()?.as_slice() else { return None };
    Some((key, map.get("properties")?.get(key).and_then(|property| resolved(property, root))?))
}

/// Returns the same, where the map has no other key.
pub(crate) fn single_key<'a>(branch: &'a Value, root: &'a Value) -> Option<&'a str> {
    let map = resolved(branch, root)?;
    let is_single = map.get("properties")?.as_object()?.len() == 1;
    needed_key(branch, root).filter(|_| is_single).map(|(key, _)| key)
}

/// Returns whether a text is rather an expression than a name: it names a fact, calls something, or has quotes.
fn looks_computed(text: &str) -> bool {
    let groups = ["request.", "source.", "connection.", "jwt.", "response.", "destination."];
    text.contains(['(', '[', '"', '\'', '+']) || groups.iter().any(|group| text.starts_with(group))
}

/// Returns a value that a key may have.
fn example(property: &Map<String, Value>) -> &'static str {
    match property.get("format").and_then(Value::as_str) {
        Some(DURATION_FORMAT) => "10s",
        _ => "…",
    }
}

/// Returns what must stand in a map at least; `None` when it is no map.
fn inner_keys(schema: &Value, root: &Value) -> Option<String> {
    let map = resolved(schema, root)?;
    let required = map.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let one_of = map.get("oneOf").and_then(Value::as_array).and_then(|branches| required_keys(branches));
    let first = required.first().and_then(Value::as_str).or_else(|| one_of?.first().copied());
    match first {
        Some(first) => Some(format!("{{ {first}: … }}")),
        None => (shape(map) == Shape::Map).then(|| "{}".to_owned()),
    }
}

/// Returns a property's own schema, behind what wraps optional ones.
pub(crate) fn resolved<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a Map<String, Value>> {
    let map = schema.as_object()?;
    if let Some(branches) = map.get("anyOf").and_then(Value::as_array) {
        let is_null = |branch: &&Value| branch["type"] == "null";
        let mut others = branches.iter().filter(|branch| !is_null(branch));
        return match (others.next(), others.next()) {
            (Some(only), None) => resolved(only, root),
            _ => None,
        };
    }
    match map.get("$ref").and_then(Value::as_str) {
        Some(reference) => root.pointer(reference.strip_prefix('#')?)?.as_object(),
        None => Some(map),
    }
}

/// Returns whether a text is a value of a property that is written in a way of its own: a time, a share, a size.
fn reads_as_one(property: &Value, root: &Value, text: &str) -> bool {
    let format = resolved(property, root).and_then(|map| map.get("format")).and_then(Value::as_str);
    match format {
        Some(DURATION_FORMAT) => parse_duration(text).is_ok(),
        Some(PERCENT_FORMAT) => parse_percent(text).is_ok(),
        _ => false,
    }
}

pub(crate) fn quoted(keys: &[&str]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    match keys.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => keys.concat(),
    }
}

/// Returns the beginning of a description that says what something is.
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
