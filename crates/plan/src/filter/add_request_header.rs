//! `add_request_header`.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::{FieldValue, Mode, WriteFields};
use super::settings::{Ordered, Settings};
use super::variables::Stage;
use super::{Compiling, FilterEntry, Steps};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<AddRequestHeader>("add_request_header", DOC);

const DOC: &str = r#"Adds header fields to the request that goes to the endpoint.

Fields of the same name that the client sent are kept, and come first. If an endpoint trusts the field, use
`set_request_header` instead. An empty value adds nothing. To add a field twice, list the filter twice.

```yaml
filters:
  - add_request_header:
      via: "1.1 edge"
      x-tag: "{listener}"
```
"#;

/// Field names, each with its value. Values may hold variables such as `{client_ip}`.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct AddRequestHeader(Ordered<FieldValue>);

impl Settings for AddRequestHeader {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        WriteFields::compile((Mode::Add, Stage::Request), &self.0, compiling).map(Steps::of_request)
    }
}
