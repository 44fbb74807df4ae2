//! `remove_response_header`.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::RemoveFields;
use super::settings::Settings;
use super::variables::Stage;
use super::{Compiling, FilterEntry, Steps};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RemoveResponseHeader>("remove_response_header", DOC);

const DOC: &str = r#"Removes header fields of the response before it goes to the client.

All fields of each name are removed, trailers included; case is ignored. `*` at the beginning or the end of a name, or at both, matches any text:
`x-amz-*`. Such a pattern never removes `content-length`, `connection` and their like, which belong to the proxy, nor `grpc-status` from
trailers.

```yaml
filters:
  - remove_response_header: [server, x-powered-by, "x-internal-*"]
```
"#;

/// Names of the fields.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct RemoveResponseHeader(#[schemars(length(min = 1))] Vec<String>);

impl Settings for RemoveResponseHeader {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        RemoveFields::compile(Stage::Response, &self.0).map(RemoveFields::into_response_steps)
    }
}
