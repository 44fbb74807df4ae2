//! `${NAME}` and `${NAME:-default}` in values, from the environment. `$${` stands for `${`.
//!
//! Only whole scalars are replaced, after parsing: a variable can never add a key or change the shape of the file.

use std::sync::Arc;

use crate::diagnostic::Sink;
use crate::source::Span;
use crate::tree::{Kind, Node, Scalar};
use crate::yaml::{Budget, UNFOLDED_BYTES_MAX};

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
                let message = format!("variables fill in more than {UNFOLDED_BYTES_MAX} bytes");
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

/// The text with variables filled in, and whether there was any.
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
        out.push_str(&value_of(&rest[at + 2..at + end], environment)?);
        used = true;
        if out.len() > UNFOLDED_BYTES_MAX {
            let message = format!("variables fill in more than {UNFOLDED_BYTES_MAX} bytes");
            return Err((message, "put the text into a file".to_owned()));
        }
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    Ok((out, used))
}

/// The value of what stands between the braces.
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
        assert_eq!(filled("${}").unwrap_err(), "`` is not the name of an environment variable");
    }
}
