//! Text with variables, such as `{client_ip}` or `{request_header:user-agent}`: the one syntax that header filters,
//! redirects and access-log lines share. `{{` and `}}` stand for the braces themselves.
//!
//! This module only splits; the compiler of a template gives variables their meaning.

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text that stands as it is.
    Literal(String),
    /// `{name}` or `{name:argument}`.
    Variable {
        /// Before the colon.
        name: String,
        /// After the colon, if there is one.
        argument: Option<String>,
    },
}

/// Splits a template.
///
/// # Errors
/// A sentence that names the place: a brace that is never closed, an empty name, a lone `}`.
pub fn parse(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let tail = &rest[at..];
        if tail.starts_with("{{") || tail.starts_with("}}") {
            literal.push_str(&tail[..1]);
            rest = &tail[2..];
            continue;
        }
        if tail.starts_with('}') {
            return Err(format!("`}}` without `{{` in `{text}`: write `}}}}` for a brace"));
        }
        let end =
            tail.find('}').ok_or_else(|| format!("`{{` is never closed in `{text}`: write `{{{{` for a brace"))?;
        let (name, argument) = match tail[1..end].split_once(':') {
            Some((name, argument)) => (name, Some(argument.to_owned())),
            None => (&tail[1..end], None),
        };
        if name.is_empty() {
            return Err(format!("`{{}}` names no variable in `{text}`"));
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Variable { name: name.to_owned(), argument });
        rest = &tail[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_splits_into_text_and_variables() {
        let pieces = parse("a {{x}} {client_ip}-{request_header:X-A}").unwrap();
        assert_eq!(
            pieces,
            vec![
                Piece::Literal("a {x} ".into()),
                Piece::Variable { name: "client_ip".into(), argument: None },
                Piece::Literal("-".into()),
                Piece::Variable { name: "request_header".into(), argument: Some("X-A".into()) },
            ]
        );
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn a_broken_template_says_where() {
        for bad in ["{", "a}b", "{}", "{a", "{:x}"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
