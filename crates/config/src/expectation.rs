//! What a schema asks for, in the words of a message.

use model::filter::RATE_FORMAT;
use serde_json::{Map, Value};

use crate::diagnostic::{are_listed, nearest_few};
use crate::tree::{Kind, Node};
use crate::units::{DURATION_FORMAT, MARGIN_FORMAT, PERCENT_FORMAT, SHIFT_FORMAT, SIZE_FORMAT};

/// The kinds of values, as schemas name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Integer,
    Number,
    Boolean,
    List,
    Map,
    /// Several, or none named.
    Any,
}

/// Returns the kind of value that a schema asks for.
pub(crate) fn shape(schema: &Map<String, Value>) -> Shape {
    schema.get("type").and_then(Value::as_str).map_or(Shape::Any, shape_of)
}

fn shape_of(name: &str) -> Shape {
    match name {
        "string" => Shape::Text,
        "integer" => Shape::Integer,
        "number" => Shape::Number,
        "boolean" => Shape::Boolean,
        "array" => Shape::List,
        "object" => Shape::Map,
        _ => Shape::Any,
    }
}

/// Returns all kinds of values that a schema names.
fn shapes(schema: &Map<String, Value>) -> Vec<Shape> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![shape_of(name)],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(shape_of).collect(),
        _ => Vec::new(),
    }
}

/// Returns whether the value is of a kind that the schema asks for.
pub(crate) fn is_a(schema: &Map<String, Value>, root: &Value, node: &Node) -> bool {
    if let Some(target) = target(schema, root) {
        return is_a(target, root, node);
    }
    let values = allowed_values(schema);
    if !values.is_empty() {
        let Kind::Scalar(scalar) = &node.kind else { return false };
        let actual = scalar.value();
        return values.iter().any(|value| std::mem::discriminant(*value) == std::mem::discriminant(&actual));
    }
    let wanted = shapes(schema);
    // Of branches by kind (not by keys), one must fit.
    let branches = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    if let Some(branches) = branches.filter(|_| wanted.is_empty()) {
        let fits = |branch: &Value| branch.as_object().is_none_or(|branch| is_a(branch, root, node));
        return branches.iter().any(fits);
    }
    wanted.is_empty() || wanted.iter().any(|shape| fits(*shape, node))
}

fn fits(shape: Shape, node: &Node) -> bool {
    match (&node.kind, shape) {
        (_, Shape::Any) | (Kind::Invalid, _) | (Kind::Map(_), Shape::Map) | (Kind::List(_), Shape::List) => true,
        (Kind::Scalar(scalar), _) => match scalar.value() {
            Value::Bool(_) => shape == Shape::Boolean,
            Value::String(_) => shape == Shape::Text,
            Value::Number(number) if number.is_f64() => shape == Shape::Number,
            Value::Number(_) => matches!(shape, Shape::Integer | Shape::Number),
            _ => false,
        },
        _ => false,
    }
}

pub(crate) fn target<'a>(schema: &Map<String, Value>, root: &'a Value) -> Option<&'a Map<String, Value>> {
    let reference = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    root.pointer(reference)?.as_object().filter(|target| !target.contains_key("$ref"))
}

/// Returns the values that a schema lists, by `const`, `enum`, or branches of `const`.
pub(crate) fn allowed_values(schema: &Map<String, Value>) -> Vec<&Value> {
    if let Some(value) = schema.get("const") {
        return vec![value];
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return values.iter().collect();
    }
    let Some(branches) = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array) else {
        return Vec::new();
    };
    let listed = branches.iter().map(|branch| branch.as_object().map(own_values).filter(|values| !values.is_empty()));
    listed.collect::<Option<Vec<_>>>().unwrap_or_default().concat()
}

fn own_values(branch: &Map<String, Value>) -> Vec<&Value> {
    match (branch.get("const"), branch.get("enum")) {
        (Some(value), _) => vec![value],
        (None, Some(Value::Array(values))) => values.iter().collect(),
        _ => Vec::new(),
    }
}

/// Lists values, or of many the few that are most like a word.
pub(crate) fn names_near(values: &[&Value], word: &str) -> String {
    if are_listed(values.len()) {
        return names_of(values);
    }
    let few = nearest_few(word, values.iter().filter_map(|value| value.as_str()));
    let few: Vec<Value> = few.into_iter().map(Value::from).collect();
    format!("one of {} values such as {}", values.len(), names_of(&few.iter().collect::<Vec<_>>()))
}

/// Lists values: `a`, `b` or `c`.
fn names_of(values: &[&Value]) -> String {
    let shown: Vec<String> = values
        .iter()
        .map(|value| match value {
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        })
        .collect();
    match shown.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => shown.concat(),
    }
}

/// Returns what the schema asks for: "a whole number from 1 to 5", "text or a map".
pub(crate) fn expectation(schema: &Map<String, Value>, root: &Value) -> String {
    if let Some(target) = target(schema, root) {
        return expectation(target, root);
    }
    let values = allowed_values(schema);
    if !values.is_empty() {
        return names_near(&values, "");
    }
    if let Some(branches) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array)
        && !schema.contains_key("type")
    {
        let mut parts: Vec<String> = Vec::new();
        for part in branches.iter().filter_map(Value::as_object).map(|branch| expectation(branch, root)) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        return parts.join(" or ");
    }
    match schema.get("format").and_then(Value::as_str) {
        Some(DURATION_FORMAT) => return "a duration such as `250ms`, `5s` or `1m30s`".to_owned(),
        Some(SHIFT_FORMAT) => return "a time such as `2s` or `-500ms`".to_owned(),
        Some(PERCENT_FORMAT) => return "a share such as `50%`".to_owned(),
        Some(SIZE_FORMAT) => return "a size such as `16KiB` or a number of bytes".to_owned(),
        Some(RATE_FORMAT) => return "a rate such as `10/s`".to_owned(),
        Some(MARGIN_FORMAT) => return "a percentage such as `125%`".to_owned(),
        _ => {}
    }
    let parts: Vec<String> = shapes(schema).into_iter().map(|shape| phrase(shape, schema)).collect();
    if parts.is_empty() { "something else".to_owned() } else { parts.join(" or ") }
}

fn phrase(shape: Shape, schema: &Map<String, Value>) -> String {
    match shape {
        Shape::Text => "text".to_owned(),
        Shape::Boolean => "`true` or `false`".to_owned(),
        Shape::List => "a list".to_owned(),
        Shape::Map => "a map".to_owned(),
        Shape::Any => "anything".to_owned(),
        Shape::Integer => format!("a whole number{}", bounds(schema)),
        Shape::Number => format!("a number{}", bounds(schema)),
    }
}

fn bounds(schema: &Map<String, Value>) -> String {
    let (low, high) = integer_bounds(schema);
    match (low.is_finite(), high.is_finite()) {
        (true, true) => format!(" from {low} to {high}"),
        (true, false) => format!(" from {low}"),
        (false, true) => format!(" up to {high}"),
        (false, false) => String::new(),
    }
}

/// Returns the smallest and largest number allowed, by `minimum` and `maximum` and by the width that `format` tells.
pub(crate) fn integer_bounds(schema: &Map<String, Value>) -> (f64, f64) {
    let (low, high) = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => (0.0, f64::from(u8::MAX)),
        Some("uint16") => (0.0, f64::from(u16::MAX)),
        Some("uint32") => (0.0, f64::from(u32::MAX)),
        Some("uint64" | "uint") => (0.0, f64::INFINITY),
        Some("int8") => (f64::from(i8::MIN), f64::from(i8::MAX)),
        Some("int16") => (f64::from(i16::MIN), f64::from(i16::MAX)),
        Some("int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    let given = |name: &str| schema.get(name).and_then(Value::as_f64);
    (given("minimum").map_or(low, |min| min.max(low)), given("maximum").map_or(high, |max| max.min(high)))
}
