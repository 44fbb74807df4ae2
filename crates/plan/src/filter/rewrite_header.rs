//! `rewrite_header`.

use model::limits::TARGET_BYTES_MAX;
use model::{FieldName, Fields, Issue, RequestHead, ResponseHead};
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::changeable_name;
use super::guarded::{Guarded, GuardedResponse};
use super::replacement::Replacement;
use super::settings::Settings;
use super::template::Template;
use super::variables::{Stage, Values};
use super::{Compiling, FilterEntry, Flow, RequestStep, ResponseStep, ResponseView, Steps, Turn};

#[cfg(test)]
mod tests;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RewriteHeader>("rewrite_header", DOC);

const DOC: &str = r#"Replaces matches of regular expressions in the values of header fields.

`request` lists rules for requests on their way to the endpoint, `response` rules for responses on their way to the client, those of the proxy
itself included. Each rule has:

- `name`: the field. If the message has it several times, each value is changed on its own.
- `pattern`: an expression. It matches anywhere unless it holds `^` or `$`, and every match is replaced. Classes such as `\w` mean ASCII.
- `to`: what stands there instead. It may hold variables, and quote groups as `$1`, `${1}` and, by name, `$${name}`; `$$` is a dollar sign.

Rules apply one after the other, so a later one sees what an earlier one has made. A message without the field is not changed, and a value
that becomes empty stays as an empty one: use `when` and `remove_response_header` to remove it. If a value would exceed 16 KiB, it is kept
as it is. Clients and endpoints cannot send these fields as trailers.

For `location` and `set-cookie` see `rewrite_location` and `rewrite_cookie`, which know their syntax. `host` is changed by `rewrite`.

```yaml
filters:
  - rewrite_header:
      request:
        - { name: x-api-version, pattern: "^v([0-9]+)\\..*$", to: "$1" }
      response:
        - { name: content-security-policy, pattern: "internal\\.example", to: "{host}" }
        - { name: server, pattern: "/[0-9.]+", to: "" }
```
"#;

/// At least one of these.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RewriteHeader {
    /// Rules for requests.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    request: Option<Vec<Rule>>,
    /// Rules for responses.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    response: Option<Vec<Rule>>,
}

/// What is replaced in which field.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Name of the field.
    name: String,
    /// An expression.
    pattern: String,
    /// What stands in place of its matches. May hold variables.
    to: String,
}

const RULES_MAX: usize = 64;

impl Settings for RewriteHeader {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.request.is_none() && self.response.is_none() {
            let issue = Issue::at("", "neither `request` nor `response` has a rule");
            return Err(issue.suggest("write `response: [{ name: server, pattern: \"/[0-9.]+\", to: \"\" }]`"));
        }
        let of = |rules: Option<Vec<Rule>>, stage, key: &str| {
            rules.map(|rules| Rules::compile(rules, stage).map_err(|issue| issue.below(key))).transpose()
        };
        let request = of(self.request, Stage::Request, "request")?;
        let response = of(self.response, Stage::Response, "response")?;
        let guarded = request.iter().flat_map(Rules::names).map(Guarded::Name).collect();
        let fields = response.iter().flat_map(Rules::names).map(Guarded::Exact).collect();
        Ok(Steps {
            request: request.map(|rules| Box::new(rules) as Box<_>),
            response: response.map(|rules| Box::new(rules) as Box<_>),
            guarded,
            guarded_response: GuardedResponse { when: None, fields },
            ..Steps::default()
        })
    }
}

struct Rules(Box<[RuleStep]>);

struct RuleStep {
    name: FieldName,
    pattern: Regex,
    to: Replacement<Template>,
}

impl Rules {
    fn compile(rules: Vec<Rule>, stage: Stage) -> Result<Self, Issue> {
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Err(Issue::at("", format!("{} rules are not from 1 to {RULES_MAX}", rules.len())));
        }
        let one = |(place, rule): (usize, Rule)| {
            RuleStep::compile(&rule, stage).map_err(|issue| issue.below(&place.to_string()))
        };
        rules.into_iter().enumerate().map(one).collect::<Result<_, _>>().map(Self)
    }

    fn names(&self) -> impl Iterator<Item = FieldName> {
        self.0.iter().map(|rule| rule.name.clone())
    }
}

impl RuleStep {
    fn compile(rule: &Rule, stage: Stage) -> Result<Self, Issue> {
        let name = changeable_name(&rule.name, stage).map_err(|issue| issue.below("name"))?;
        let pattern = crate::route::expression::anywhere(&rule.pattern).map_err(|issue| issue.below("pattern"))?;
        let template = |text: &str| Template::compile(text, stage);
        let to = Replacement::compile(&rule.to, &pattern, template).map_err(|issue| issue.below("to"))?;
        Ok(Self { name, pattern, to })
    }

    /// Finds the first field at or after `from` in which something is replaced.
    fn find(&self, fields: &Fields, from: usize) -> Option<usize> {
        let mut from = from;
        while let Some(place) = fields.find_from(&self.name, from) {
            if self.pattern.is_match(fields.value_at(place)) {
                return Some(place);
            }
            from = place + 1;
        }
        None
    }

    /// Writes the new value. False: it would be too long.
    fn write(&self, old: &[u8], values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        out.clear();
        self.to.replace_all(&self.pattern, (old, TARGET_BYTES_MAX), out, |text, out| text.write(values, out));
        out.len() <= TARGET_BYTES_MAX
    }
}

impl RequestStep for Rules {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        for rule in &self.0 {
            let mut from = 0;
            while let Some(place) = rule.find(&head.fields, from) {
                from = place + 1;
                let (values, scratch) = turn.values(head);
                if rule.write(head.fields.value_at(place), &values, scratch) {
                    head.fields.set_at(place, scratch);
                }
            }
        }
        Flow::Continue
    }
}

impl ResponseStep for Rules {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        for rule in &self.0 {
            let mut from = 0;
            while let Some(place) = rule.find(&head.fields, from) {
                from = place + 1;
                let (values, scratch) = turn.response_values(head, view);
                if rule.write(head.fields.value_at(place), &values, scratch) {
                    head.fields.set_at(place, scratch);
                }
            }
        }
    }
}
