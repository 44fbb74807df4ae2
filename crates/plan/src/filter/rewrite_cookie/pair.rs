//! What `{ from, to }` makes of the domain or path of a cookie.

use model::Issue;
use model::head::host_without_port;
use model::limits::COOKIE_ATTRIBUTE_BYTES_MAX;
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::replacement::Replacement;
use super::super::rewrite::{prefix_length, push_rest};
use super::super::template::Template;
use super::super::variables::{Stage, Values};
use super::{check_text, stands_in};

/// What is replaced, and by what.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    /// What the cookie has. May hold variables.
    from: From,
    /// What stands there instead. May hold variables.
    to: String,
}

/// A text or a regular expression.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum From {
    Text(String),
    Expression(Expression),
}

/// A regular expression.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Expression {
    /// Matches anywhere in the domain or path.
    regex: String,
}

/// The attribute that is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    Domain,
    Path,
}

/// A compiled pair.
pub(super) struct Replaced {
    attribute: Attribute,
    found: Found,
}

enum Found {
    /// The whole of a domain, or the first segments of a path.
    Text { from: Template, to: Template },
    /// Every match of an expression.
    Matches { pattern: Regex, to: Replacement<Template> },
}

/// What became of the value of an attribute.
pub(super) enum Outcome {
    /// The new one is written.
    Changed,
    /// It goes, with its name.
    Removed,
    /// It stays, and nothing is written.
    Kept,
}

impl Replaced {
    pub(super) fn compile(pair: Pair, attribute: Attribute) -> Result<Self, Issue> {
        let Pair { from, to } = pair;
        let found = match from {
            From::Text(from) => Found::Text {
                from: from_template(&from, attribute).map_err(|issue| issue.below("from"))?,
                to: to_template(&to, attribute).map_err(|issue| issue.below("to"))?,
            },
            From::Expression(Expression { regex }) => {
                let pattern = crate::route::expression::anywhere(&regex);
                let pattern = pattern.map_err(|issue| issue.below("regex").below("from"))?;
                let to = Replacement::compile(&to, &pattern, template).map_err(|issue| issue.below("to"))?;
                Found::Matches { pattern, to }
            }
        };
        Ok(Self { attribute, found })
    }

    /// Appends what replaces `value`.
    pub(super) fn write(&self, value: &[u8], values: &Values<'_>, out: &mut Vec<u8>) -> Outcome {
        let start = out.len();
        let value = if self.attribute == Attribute::Domain { without_dot(value) } else { value };
        let (is_found, may_be_empty) = match &self.found {
            Found::Text { from, to } => {
                (self.replace_text((from, to), value, values, out), to.as_literal() == Some(""))
            }
            Found::Matches { pattern, to } => (replace_matches((pattern, to), value, values, out), to.is_empty()),
        };
        if !is_found {
            return Outcome::Kept;
        }
        if out.len() == start && may_be_empty && self.attribute == Attribute::Domain {
            return Outcome::Removed;
        }
        if self.attribute.settle(start, out) {
            return Outcome::Changed;
        }
        out.truncate(start);
        Outcome::Kept
    }

    fn replace_text(
        &self,
        (from, to): (&Template, &Template),
        value: &[u8],
        values: &Values<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        from.write(values, out);
        let written = &out[start..];
        let rest = match self.attribute {
            // Of variables that are all empty nothing is known.
            _ if written.is_empty() => None,
            Attribute::Domain => {
                value.eq_ignore_ascii_case(without_dot(host_without_port(written))).then_some(&b""[..])
            }
            Attribute::Path => prefix_length(value, without_slash(written)).map(|length| &value[length..]),
        };
        out.truncate(start);
        let Some(rest) = rest else { return false };
        to.write(values, out);
        if self.attribute == Attribute::Path && out.len() > start {
            out.truncate(start + without_slash(&out[start..]).len());
            push_rest(rest, out.len() == start, out);
        }
        true
    }
}

impl Attribute {
    /// Returns whether what is written from `start` on may be its value. The port of a domain goes, for cookies know none.
    pub(super) fn settle(self, start: usize, out: &mut Vec<u8>) -> bool {
        if self == Self::Domain {
            let length = host_without_port(&out[start..]).len();
            out.truncate(start + length);
        }
        let text = &out[start..];
        let begins_well = self == Self::Domain || text.starts_with(b"/");
        !text.is_empty() && begins_well && stands_in(text)
    }
}

fn replace_matches(
    (pattern, to): (&Regex, &Replacement<Template>),
    value: &[u8],
    values: &Values<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let is_match = pattern.is_match(value);
    if is_match {
        to.replace_all(pattern, (value, COOKIE_ATTRIBUTE_BYTES_MAX), out, |text, out| text.write(values, out));
    }
    is_match
}

fn from_template(text: &str, attribute: Attribute) -> Result<Template, Issue> {
    if attribute == Attribute::Domain && text.is_empty() {
        return Err(Issue::at("", "no domain is named").suggest("write `domain: TEXT` to set it always"));
    }
    to_template(text, attribute)
}

fn to_template(text: &str, attribute: Attribute) -> Result<Template, Issue> {
    if attribute == Attribute::Path {
        check_path(text)?;
    }
    template(text)
}

/// Returns a text with variables whose plain parts can stand in a cookie.
pub(super) fn template(text: &str) -> Result<Template, Issue> {
    let template = Template::compile(text, Stage::Response)?;
    template.literals().try_for_each(check_text)?;
    Ok(template)
}

/// Checks the beginning of a path, unless a variable decides it later.
pub(super) fn check_path(text: &str) -> Result<(), Issue> {
    check_text(text)?;
    if text.starts_with(['/', '{']) {
        return Ok(());
    }
    Err(Issue::at("", "a path begins with `/`").suggest(format!("write `/{text}`")))
}

fn without_dot(domain: &[u8]) -> &[u8] {
    domain.strip_prefix(b".").unwrap_or(domain)
}

fn without_slash(path: &[u8]) -> &[u8] {
    let slashes = path.iter().rev().take_while(|&&byte| byte == b'/').count();
    &path[..path.len() - slashes]
}
