//! `header_names`.

use model::fields::is_token;
use model::{Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::guarded::{Guarded, Signs};
use super::settings::Settings;
use super::{Compiling, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<HeaderNames>("header_names", DOC);

const DOC: &str = r#"Rejects requests whose header field names contain unusual characters, or removes these fields.

Letters, digits and `-` are always allowed. HTTP allows other characters too, but some endpoints read `_` or `.` as `-`: a client
could spell a field in a way that no rule matches. `allow` lists further characters, such as `"_"`.

With `action: refuse`, the default, such a request is answered with `status`. With `action: remove`, it is forwarded without these
fields. In both cases trailers with such names are removed.

Fields that the listener adds, such as the request id, are checked too: allow the characters of their names.

```yaml
filters:
  - header_names: { allow: "_", action: remove }
```
"#;

/// Which names are allowed, and what becomes of others.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HeaderNames {
    /// Characters that names may contain besides letters, digits and `-`; none by default.
    #[serde(default)]
    allow: String,
    /// What happens to a request with other names.
    #[serde(default)]
    action: Action,
    /// Status of the response to rejected requests; 400 by default.
    #[schemars(range(min = 400, max = 499))]
    status: Option<u16>,
}

/// What happens to a request with other names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// It is answered with an error.
    #[default]
    Refuse,
    /// It goes on without these fields.
    Remove,
}

impl Settings for HeaderNames {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        for sign in self.allow.chars() {
            let text = sign.to_string();
            if sign.is_ascii_alphanumeric() || sign == '-' {
                let issue = Issue::at("allow", format!("`{sign}` is always allowed"));
                return Err(issue.suggest("list only characters beside letters, digits and `-`"));
            }
            if !is_token(text.as_bytes()) {
                let issue = Issue::at("allow", format!("{sign:?} cannot stand in a header field name"));
                return Err(issue.suggest("use some of !#$%&'*+.^_`|~"));
            }
        }
        let status = match (self.action, self.status) {
            (Action::Remove, Some(_)) => {
                let issue = Issue::at("status", "`status` has no effect with `action: remove`");
                return Err(issue.suggest("leave it out"));
            }
            (Action::Refuse, Some(status)) if !(400..500).contains(&status) => {
                let issue = Issue::at("status", format!("{status} is not a client error"));
                return Err(issue.suggest("use 400 to 499"));
            }
            (_, status) => status.unwrap_or(400),
        };
        let signs = Signs::with(&self.allow);
        let guarded = vec![Guarded::Beyond(Box::new(signs.clone()))];
        let step = HeaderNamesStep { signs, refusal: (self.action == Action::Refuse).then_some(status) };
        Ok(Steps { guarded, ..Steps::of_request(step) })
    }
}

struct HeaderNamesStep {
    signs: Signs,
    /// The status, where requests are refused.
    refusal: Option<u16>,
}

impl RequestStep for HeaderNamesStep {
    fn apply(&self, head: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        // No field of framing or of the connection has another sign than `-` in its name.
        if head.fields.iter().all(|field| self.signs.spell(field.name)) {
            return Flow::Continue;
        }
        if let Some(status) = self.refusal {
            return Flow::refuse(status, "a header field has a name that is not allowed");
        }
        head.fields.retain(|field| self.signs.spell(field.name));
        Flow::Continue
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{answered, chain, issue, listed, passed, request};

    const SENT: &[(&str, &str)] =
        &[("Host", "h"), ("x_user", "1"), ("x.y", "2"), ("X-9", "3"), ("content-length", "0")];

    #[test]
    fn a_request_with_an_unusual_name_is_refused() {
        let filters = chain(json!([{ "header_names": {} }]));
        assert_eq!(answered(&filters, &mut request("GET", "/", SENT)).status, 400);
        assert_eq!(answered(&filters, &mut request("GET", "/", &[("a_b", "")])).status, 400);
        passed(&filters, request("GET", "/", &[("Host", "h"), ("X-9", "")]));
        let filters = chain(json!([{ "header_names": { "allow": "_.", "status": 431 } }]));
        passed(&filters, request("GET", "/", SENT));
        assert_eq!(answered(&filters, &mut request("GET", "/", &[("a~b", "")])).status, 431);
    }

    #[test]
    fn fields_of_unusual_names_are_removed_and_come_as_no_trailers() {
        let filters = chain(json!([{ "header_names": { "action": "remove" } }]));
        let left = passed(&filters, request("GET", "/", SENT));
        assert_eq!(listed(&left.fields), "Host: h|X-9: 3|content-length: 0");
        let filters = chain(json!([{ "header_names": { "action": "remove", "allow": "_" } }]));
        let left = passed(&filters, request("GET", "/", SENT));
        assert_eq!(listed(&left.fields), "Host: h|x_user: 1|X-9: 3|content-length: 0");
        let covers = |name: &str| filters.guarded().iter().any(|guarded| guarded.covers(name.as_bytes()));
        assert!(covers("x.y") && !covers("x_y") && !covers("X-Y"));
    }

    #[test]
    fn mistakes_are_found_when_the_configuration_is_checked() {
        for (settings, told) in [
            (
                json!({ "allow": "_a" }),
                "allow: `a` is always allowed (list only characters beside letters, digits and `-`)",
            ),
            (
                json!({ "allow": "-" }),
                "allow: `-` is always allowed (list only characters beside letters, digits and `-`)",
            ),
            (json!({ "allow": ":" }), "allow: ':' cannot stand in a header field name (use some of !#$%&'*+.^_`|~)"),
            (json!({ "allow": "ä" }), "allow: 'ä' cannot stand in a header field name (use some of !#$%&'*+.^_`|~)"),
            (
                json!({ "action": "remove", "status": 400 }),
                "status: `status` has no effect with `action: remove` (leave it out)",
            ),
            (json!({ "status": 302 }), "status: 302 is not a client error (use 400 to 499)"),
        ] {
            assert_eq!(issue("header_names", settings), told);
        }
    }
}
