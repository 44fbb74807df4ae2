//! `rewrite_location`.

use std::ops::Range;

use model::limits::TARGET_BYTES_MAX;
use model::{FieldName, Issue, ResponseHead};
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::replacement::Replacement;
use super::settings::{Settings, one_of};
use super::template::Template;
use super::variables::{Stage, Values};
use super::{Compiling, FilterEntry, ResponseStep, ResponseView, Steps, Turn};

#[cfg(test)]
mod tests;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RewriteLocation>("rewrite_location", DOC);

const DOC: &str = r#"Changes the addresses in `Location` and `Refresh` of the responses of endpoints.

An endpoint that does not know its public name and path redirects clients to addresses that they cannot reach. Each rule has `to` and
exactly one of these:

- `from`: `to` replaces this beginning of the address.
- `pattern`: `to` replaces every match of this expression, and may quote groups as `$1`, `${1}` and, by name, `$${name}`; `$$` is a dollar sign. The
  expression matches anywhere unless it holds `^` or `$`.

The first matching rule applies; without one the address is kept. `from` and `to` may hold variables. `{received_host}` is the host that the client
asked for, even if the filter `rewrite` has changed it for the endpoint.

Scheme and host of `from` are compared without case, and `http://internal` does not match `http://internal.example` or
`http://internal:8080`. The result never begins with two slashes unless `to` or the old address does: browsers would read a host there. If
the result exceeds 16 KiB, the address is kept. Redirects and other answers of the proxy itself are left alone.

```yaml
filters:
  - rewrite_location:
      - { from: "http://internal.example:8080/app/", to: "/" }
      - { pattern: "^http://([a-z]+)\\.internal/", to: "{scheme}://{received_host}/$1/" }
```
"#;

/// Rules, of which the first that fits decides.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct RewriteLocation(#[schemars(length(min = 1))] Vec<LocationRule>);

/// What is replaced, and by what.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["from", "pattern"])))]
struct LocationRule {
    /// What an address begins with. May hold variables.
    from: Option<String>,
    /// An expression that matches in an address.
    pattern: Option<String>,
    /// What stands there instead. May hold variables.
    to: String,
}

impl Settings for RewriteLocation {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.0.is_empty() {
            return Err(Issue::at("", "the list is empty").suggest("write a rule, or leave the filter out"));
        }
        let compile =
            |(place, rule): (usize, LocationRule)| compile_rule(rule).map_err(|issue| issue.below(&place.to_string()));
        let rules = self.0.into_iter().enumerate().map(compile).collect::<Result<_, _>>()?;
        let name = |text| FieldName::new(text).map_err(|message| Issue::at("", message));
        Ok(Steps::of_response(RewriteLocationStep { rules, location: name("Location")?, refresh: name("Refresh")? }))
    }
}

fn compile_rule(rule: LocationRule) -> Result<Rule, Issue> {
    let may_be_host = rule.to.starts_with("//");
    let found = match (rule.from, rule.pattern) {
        (Some(from), None) => {
            if from.is_empty() {
                return Err(Issue::at("from", "every address begins with an empty text").suggest("use a `pattern`"));
            }
            let from = Template::compile(&from, Stage::Response).map_err(|issue| issue.below("from"))?;
            let to = plain_template(&rule.to).map_err(|issue| issue.below("to"))?;
            Found::Beginning { from, to }
        }
        (None, Some(pattern)) => {
            let pattern = crate::route::expression::anywhere(&pattern).map_err(|issue| issue.below("pattern"))?;
            let to = Replacement::compile(&rule.to, &pattern, plain_template).map_err(|issue| issue.below("to"))?;
            Found::Matches { pattern, to }
        }
        _ => return Err(Issue::at("", "exactly one of `from` and `pattern` is needed")),
    };
    Ok(Rule { found, may_be_host })
}

fn plain_template(text: &str) -> Result<Template, Issue> {
    let template = Template::compile(text, Stage::Response)?;
    let is_plain = |text: &str| text.bytes().all(|byte| byte > b' ' && byte < 0x7f);
    if template.literals().all(is_plain) {
        return Ok(template);
    }
    let issue = Issue::at("", "an address holds only visible ASCII characters");
    Err(issue.suggest("percent-encode the others, such as %20"))
}

/// Returns the length of scheme and host of an address; 0 if it has none.
fn origin_of(address: &[u8]) -> usize {
    let Some(at) = address.windows(3).position(|part| part == b"://") else { return 0 };
    let host = &address[at + 3..];
    at + 3 + host.iter().position(|&byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(host.len())
}

struct RewriteLocationStep {
    rules: Box<[Rule]>,
    location: FieldName,
    refresh: FieldName,
}

struct Rule {
    found: Found,
    /// What stands in place begins with a host on purpose.
    may_be_host: bool,
}

enum Found {
    Beginning { from: Template, to: Template },
    Matches { pattern: Regex, to: Replacement<Template> },
}

impl ResponseStep for RewriteLocationStep {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        if view.endpoint.is_none() {
            return;
        }
        let whole = |value: &[u8]| Some(0..value.len());
        self.change(&self.location, whole, (head, view), turn);
        self.change(&self.refresh, refresh_address, (head, view), turn);
    }
}

impl RewriteLocationStep {
    /// Changes the address in each field of a name. `find` says where in a value it stands.
    fn change(
        &self,
        name: &FieldName,
        find: impl Fn(&[u8]) -> Option<Range<usize>>,
        (head, view): (&mut ResponseHead, &ResponseView<'_>),
        turn: &mut Turn<'_>,
    ) {
        let mut from = 0;
        while let Some(place) = head.fields.find_from(name, from) {
            from = place + 1;
            let value = head.fields.value_at(place);
            let Some(range) = find(value) else { continue };
            let (values, scratch) = turn.response_values(head, view);
            scratch.clear();
            scratch.extend_from_slice(&value[..range.start]);
            if self.rules.iter().any(|rule| rule.write(&value[range.clone()], &values, scratch))
                && scratch.len() - range.start <= TARGET_BYTES_MAX
            {
                scratch.extend_from_slice(&value[range.end..]);
                head.fields.set_at(place, scratch);
            }
        }
    }
}

impl Rule {
    /// Writes the new address, if the rule fits the old one.
    fn write(&self, address: &[u8], values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        match &self.found {
            Found::Beginning { from, to } => {
                from.write(values, out);
                let rest = rest_after(address, &out[start..]);
                out.truncate(start);
                let Some(rest) = rest else { return false };
                to.write(values, out);
                out.extend_from_slice(rest);
            }
            Found::Matches { pattern, to } => {
                if !pattern.is_match(address) {
                    return false;
                }
                to.replace_all(pattern, (address, TARGET_BYTES_MAX), out, |text, out| text.write(values, out));
            }
        }
        let (slashes, bytes) = slashes_of(&out[start..]);
        if slashes > 1 && slashes_of(address).0 < 2 && !self.may_be_host {
            out.drain(start + 1..start + bytes);
            out[start] = b'/';
        }
        if out.len() == start {
            // An empty address would be that of the response itself.
            out.push(b'/');
        }
        true
    }
}

/// Counts the slashes that an address begins with, and the bytes up to the last of them. Browsers read `\` as they read `/`, and pass over
/// tabs and line ends.
fn slashes_of(address: &[u8]) -> (usize, usize) {
    let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    let begin = address.iter().take_while(|byte| is_slash(byte) || **byte <= b' ').count();
    let slashes = address[..begin].iter().filter(|byte| is_slash(byte)).count();
    (slashes, address[..begin].iter().rposition(is_slash).map_or(0, |last| last + 1))
}

/// What follows `from` in an address that begins with it. Case does not count in scheme and host, and a `from` that ends with its host does
/// not begin a longer one. Nothing begins with variables that are all empty.
fn rest_after<'a>(address: &'a [u8], from: &[u8]) -> Option<&'a [u8]> {
    if from.is_empty() {
        return None;
    }
    let origin_bytes = origin_of(from);
    let (beginning, rest) = address.split_at_checked(from.len())?;
    let (origin, path) = beginning.split_at(origin_bytes);
    if !origin.eq_ignore_ascii_case(&from[..origin_bytes]) || path != &from[origin_bytes..] {
        return None;
    }
    let ends_with_host = origin_bytes == from.len() && !from.ends_with(b"/") && origin_bytes > 0;
    let goes_on = ends_with_host && !matches!(rest.first(), None | Some(b'/' | b'?' | b'#'));
    (!goes_on).then_some(rest)
}

/// Returns where the address stands in a value such as `5; url=/next` (HTML, section "Refresh").
fn refresh_address(value: &[u8]) -> Option<Range<usize>> {
    let skip = |at: usize| at + value[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let mut start = skip(value.iter().position(|&byte| matches!(byte, b';' | b','))? + 1);
    if value.get(start..start + 3).is_some_and(|name| name.eq_ignore_ascii_case(b"url")) {
        let equals = skip(start + 3);
        if value.get(equals) == Some(&b'=') {
            start = skip(equals + 1);
        }
    }
    let end = match value.get(start) {
        Some(&quote @ (b'"' | b'\'')) => {
            start += 1;
            value[start..].iter().position(|&byte| byte == quote).map_or(value.len(), |length| start + length)
        }
        _ => start + value[start..].trim_ascii_end().len(),
    };
    Some(start..end)
}
