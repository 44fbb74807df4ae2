//! `require_header`.

use model::{FieldName, Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::Settings;
use super::{Compiling, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RequireHeader>("require_header", DOC);

const DOC: &str = r#"Refuses requests that lack a header field.

The field may be empty; it only has to be there.

```yaml
filters:
  - require_header: { name: x-api-version, status: 428 }
```
"#;

/// What must be there.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RequireHeader {
    /// Name of the field.
    name: String,
    /// Status of the answer to requests without it; 400 by default.
    #[serde(default = "bad_request")]
    #[schemars(range(min = 400, max = 499))]
    status: u16,
}

fn bad_request() -> u16 {
    400
}

impl Settings for RequireHeader {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if !(400..500).contains(&self.status) {
            return Err(
                Issue::at("status", format!("{} does not blame the client", self.status)).suggest("use 400 to 499")
            );
        }
        let name = FieldName::new(&self.name).map_err(|message| Issue::at("name", message))?;
        Ok(Steps::of_request(RequireHeaderStep { name, status: self.status }))
    }
}

struct RequireHeaderStep {
    name: FieldName,
    status: u16,
}

impl RequestStep for RequireHeaderStep {
    fn apply(&self, head: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        match head.fields.get(&self.name) {
            Some(_) => Flow::Continue,
            None => Flow::refuse(self.status, "a header field is missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Beside, World, compiled, request};
    use super::*;

    #[test]
    fn a_request_without_the_field_is_refused() {
        let steps = compiled(&ENTRY, &json!({ "name": "X-Api-Version" }));
        let step = steps.request.unwrap();
        let apply = |fields| {
            let mut head = request("GET", "/", fields);
            step.apply(&mut head, &mut Beside::new().turn(&World::new().facts()))
        };
        assert_eq!(apply(&[("x-api-version", "")]), Flow::Continue);
        assert_eq!(apply(&[("x-api", "1")]), Flow::refuse(400, "a header field is missing"));
    }

    #[test]
    fn a_bad_name_and_a_status_that_does_not_blame_the_client_are_issues() {
        for (settings, path) in [(json!({ "name": "a b" }), "name"), (json!({ "name": "a", "status": 200 }), "status")]
        {
            assert_eq!((ENTRY.check)(&settings).unwrap_err().path, path);
        }
    }
}
