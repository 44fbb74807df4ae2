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

All fields of each name are removed, trailers included; case is ignored, and `-` and `_` are equal, as many endpoints treat them.

`*` at the beginning or the end of a name, or at both, matches any text: `x-internal-*`, `*-token`, `*debug*`. Such a pattern never
removes fields of the proxy itself, such as `host`, `content-length` and `connection`. It does remove fields that the proxy has added, such as
`x-forwarded-for` and the request id.

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
