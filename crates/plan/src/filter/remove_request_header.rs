//! `remove_request_header`.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::RemoveFields;
use super::settings::Settings;
use super::variables::Stage;
use super::{Compiling, FilterEntry, Steps};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RemoveRequestHeader>("remove_request_header", DOC);

const DOC: &str = r#"Removes header fields of the request before it goes to the endpoint.

All fields of each name are removed; case is ignored, and so is whether they are spelt with `-` or `_`, which many endpoints take
for the same. They do not come as trailers behind the body either.

`*` at the beginning or the end of a name, or at both, matches any text: `x-internal-*`, `*-token`, `*debug*`. Such a pattern never
removes `host`, `content-length`, `connection` and their like, which belong to the proxy. It does remove what the proxy has set
before, such as `x-forwarded-for` and the request id.

```yaml
filters:
  - remove_request_header: [x-debug, "x-internal-*"]
```
"#;

/// Names of the fields.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct RemoveRequestHeader(#[schemars(length(min = 1))] Vec<String>);

impl Settings for RemoveRequestHeader {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let step = RemoveFields::compile(Stage::Request, &self.0)?;
        Ok(Steps { guarded: step.guarded(), ..Steps::of_request(step) })
    }
}
