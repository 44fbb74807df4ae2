//! `${NAME}` and `${NAME:-default}` in values, from the environment. `$${` stands for `${`.
//!
//! Only whole scalars are replaced, after parsing: a variable can never add a key or change the shape of the file. A scalar that is
//! one variable and nothing else has the type that its place asks for, with quotes or without; see [`take_types`].

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::diagnostic::Sink;
use crate::source::Span;
use crate::tree::{Kind, Node, Scalar};
use crate::yaml::{Budget, UNFOLDED_BYTES_MAX};

/// `$ref`s and branches inside one another.
const SCHEMA_DEPTH_MAX: usize = 64;
/// Branches of a schema that are looked at for one value.
const BRANCHES_MAX: usize = 256;

/// Replaces variables everywhere in the tree. A scalar that cannot be filled in is reported and becomes invalid.
pub(crate) fn fill(
    node: &mut Node,
    environment: &dyn Fn(&str) -> Option<String>,
    budget: &mut Budget,
    sink: &mut Sink,
) {
    match &mut node.kind {
        Kind::Map(entries) => {
            Arc::make_mut(entries).iter_mut().for_each(|(_, node)| fill(node, environment, budget, sink));
        }
        Kind::List(items) => {
            Arc::make_mut(items).iter_mut().for_each(|node| fill(node, environment, budget, sink));
        }
        Kind::Scalar(scalar) if scalar.text.contains("${") => {
            if fill_scalar(scalar, node.span, environment, budget, sink).is_none() {
                node.kind = Kind::Invalid;
            }
        }
        Kind::Scalar(_) | Kind::Invalid => {}
    }
}

fn fill_scalar(
    scalar: &mut Scalar,
    span: Span,
    environment: &dyn Fn(&str) -> Option<String>,
    budget: &mut Budget,
    sink: &mut Sink,
) -> Option<()> {
    match replace(&scalar.text, environment) {
        Ok((text, used)) => {
            let Some(left) = budget.unfolded_bytes.checked_sub(text.len()) else {
                let message = format!("variables expand to more than {UNFOLDED_BYTES_MAX} bytes");
                sink.push(span, message, None);
                return None;
            };
            budget.unfolded_bytes = left;
            if text != *scalar.text {
                let written = std::mem::replace(&mut scalar.text, text.into());
                scalar.written = used.then(|| Box::new(written));
            } else if used {
                scalar.written = Some(Box::new(text.into()));
            }
            Some(())
        }
        Err((message, suggestion)) => {
            sink.push(span, message, Some(suggestion));
            None
        }
    }
}

/// Returns the text with variables filled in, and whether there was any.
fn replace(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<(String, bool), (String, String)> {
    let mut out = String::new();
    let mut used = false;
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let end = rest[at..].find('}').ok_or_else(|| {
            ("`${` is never closed".to_owned(), "write `${NAME}`, or `$${` for the characters themselves".to_owned())
        })?;
        let inside = &rest[at + 2..at + end];
        if is_group(inside) {
            out.push_str(&rest[at..=at + end]);
        } else {
            out.push_str(&value_of(inside, environment)?);
            used = true;
        }
        if out.len() > UNFOLDED_BYTES_MAX {
            let message = format!("variables expand to more than {UNFOLDED_BYTES_MAX} bytes");
            return Err((message, "put the text into a file".to_owned()));
        }
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    Ok((out, used))
}

/// Returns whether this is the number of a group, as replacements of expressions quote it: no variable has such a name.
fn is_group(inside: &str) -> bool {
    !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the value of what stands between the braces.
fn value_of(inside: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, (String, String)> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !first || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let mend = "write `${NAME}` or `${NAME:-default}`, or `$${` for the characters themselves";
        return Err((format!("`{name}` is not the name of an environment variable"), mend.to_owned()));
    }
    match (environment(name), default) {
        // As in a shell, `:-` stands in for an empty variable too.
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err((
            format!("the environment variable `{name}` is not set"),
            format!("set it, or give a default: `${{{name}:-…}}`"),
        )),
    }
}

/// Gives every scalar that is one variable and nothing else the type that the schema asks for: a number or a truth value where such
/// a one is wanted, and text where text is wanted, whatever it looks like. `way` are the keys that lead from the root of the schema to
/// the node; any key stands for the item of a list.
pub(crate) fn take_types(schema: &Value, way: &[&str], node: &mut Node) {
    if !holds_variable(node) {
        return;
    }
    let mut here = Vec::new();
    flatten(schema, schema, &mut here, 0);
    for key in way {
        here = below(schema, &here, Some(key));
    }
    settle(schema, &here, node);
}

fn holds_variable(node: &Node) -> bool {
    match &node.kind {
        Kind::Map(entries) => entries.iter().any(|(_, node)| holds_variable(node)),
        Kind::List(items) => items.iter().any(holds_variable),
        Kind::Scalar(scalar) => scalar.is_one_variable(),
        Kind::Invalid => false,
    }
}

fn settle(root: &Value, here: &[&Map<String, Value>], node: &mut Node) {
    match &mut node.kind {
        Kind::Map(entries) => {
            for (key, node) in Arc::make_mut(entries).iter_mut().filter(|(_, node)| holds_variable(node)) {
                settle(root, &below(root, here, Some(&key.text)), node);
            }
        }
        Kind::List(items) => {
            let below = below(root, here, None);
            Arc::make_mut(items).iter_mut().for_each(|node| settle(root, &below, node));
        }
        Kind::Scalar(scalar) if scalar.is_one_variable() => take_type(here, scalar),
        Kind::Scalar(_) | Kind::Invalid => {}
    }
}

fn take_type(here: &[&Map<String, Value>], scalar: &mut Scalar) {
    let asks = |kinds: &[&str]| here.iter().any(|map| asked(map).iter().any(|kind| kinds.contains(kind)));
    let bare = Scalar { plain: true, ..scalar.clone() };
    match bare.value() {
        Value::Number(_) if asks(&["integer", "number"]) => scalar.plain = true,
        Value::Bool(_) if asks(&["boolean"]) => scalar.plain = true,
        // Without quotes, nothing is no text.
        Value::Null if scalar.text.is_empty() => {}
        _ if asks(&["string"]) => scalar.plain = false,
        _ => {}
    }
}

/// Returns the types that one schema names itself.
fn asked(map: &Map<String, Value>) -> Vec<&str> {
    let of_value = |value: &Value| match value {
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        _ => "",
    };
    match (map.get("const"), map.get("enum"), map.get("type")) {
        (Some(value), ..) => vec![of_value(value)],
        (_, Some(Value::Array(values)), _) => values.iter().map(of_value).collect(),
        (.., Some(Value::String(one))) => vec![one.as_str()],
        (.., Some(Value::Array(several))) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Returns the schemas of the value under a key, or of the items of a list.
fn below<'s>(root: &'s Value, here: &[&'s Map<String, Value>], key: Option<&str>) -> Vec<&'s Map<String, Value>> {
    let mut found = Vec::new();
    for map in here {
        let named = key.and_then(|key| map.get("properties")?.get(key));
        let schema = named.or_else(|| map.get("additionalProperties").filter(|_| key.is_some()));
        if let Some(schema) = schema.or_else(|| map.get("items")) {
            flatten(root, schema, &mut found, 0);
        }
    }
    found
}

/// Collects a schema with all its branches.
fn flatten<'s>(root: &'s Value, schema: &'s Value, found: &mut Vec<&'s Map<String, Value>>, depth: usize) {
    let Some(map) = schema.as_object().filter(|_| depth < SCHEMA_DEPTH_MAX && found.len() < BRANCHES_MAX) else {
        return;
    };
    let target = map.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    if let Some(target) = target.and_then(|pointer| root.pointer(pointer)) {
        flatten(root, target, found, depth + 1);
    }
    found.push(map);
    for branches in ["anyOf", "oneOf", "allOf"] {
        for branch in map.get(branches).and_then(Value::as_array).into_iter().flatten() {
            flatten(root, branch, found, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, String> {
        let environment = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${A}".to_owned()),
            _ => None,
        };
        replace(text, &environment).map(|(text, _)| text).map_err(|(message, _)| message)
    }

    #[test]
    fn variables_defaults_and_escapes_are_filled_in() {
        assert_eq!(filled("x${A}y${A}").unwrap(), "x1y1");
        assert_eq!(filled("${B:-two}").unwrap(), "two");
        assert_eq!(filled("${B:-}").unwrap(), "");
        assert_eq!(filled("${EMPTY:-full}").unwrap(), "full");
        assert_eq!(filled("${EMPTY}").unwrap(), "");
        assert_eq!(filled("$${A} and $$ and $5").unwrap(), "${A} and $$ and $5");
    }

    #[test]
    fn what_a_variable_holds_is_not_filled_in_again() {
        assert_eq!(filled("${NESTED}").unwrap(), "${A}");
    }

    #[test]
    fn a_variable_that_is_missing_or_misspelt_is_an_error() {
        assert_eq!(filled("${B}").unwrap_err(), "the environment variable `B` is not set");
        assert_eq!(filled("${").unwrap_err(), "`${` is never closed");
        assert_eq!(filled("${a-b}").unwrap_err(), "`a-b` is not the name of an environment variable");
        // Groups of expressions, which replacements quote.
        assert_eq!(filled("${1}a$2${A}").unwrap(), format!("${{1}}a$2{}", filled("${A}").unwrap()));
        assert_eq!(filled("${}").unwrap_err(), "`` is not the name of an environment variable");
    }
}
