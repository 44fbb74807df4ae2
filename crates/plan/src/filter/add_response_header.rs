//! `add_response_header`.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::{FieldValue, Mode, WriteFields};
use super::settings::{Ordered, Settings};
use super::variables::Stage;
use super::{Compiling, FilterEntry, Steps};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<AddResponseHeader>("add_response_header", DOC);

const DOC: &str = r#"Adds header fields to the response that goes to the client.

Fields of the same name from the endpoint are kept, and come first. Responses of the proxy itself get the field, too.
An empty value adds nothing. To add a field twice, list the filter twice.

```yaml
filters:
  - add_response_header:
      set-cookie: "seen=1; Path=/; SameSite=Lax"
      vary: Accept-Language
```
"#;

/// Field names, each with its value. Values may hold variables such as `{endpoint}`.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct AddResponseHeader(Ordered<FieldValue>);

impl Settings for AddResponseHeader {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        WriteFields::compile((Mode::Add, Stage::Response), &self.0, compiling).map(Steps::of_response)
    }
}
