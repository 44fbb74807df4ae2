//! `set_response_header`.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::{FieldValue, Mode, WriteFields};
use super::settings::{Ordered, Settings};
use super::variables::Stage;
use super::{Compiling, FilterEntry, Steps};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<SetResponseHeader>("set_response_header", DOC);

const DOC: &str = r#"Sets header fields of the response that goes to the client.

Fields of that name from the endpoint are replaced, and removed from its trailers. Responses of the proxy itself (errors, redirects,
fixed responses) get the field, too. Values may contain variables, also of the request; if a value is empty, the field is removed.

```yaml
filters:
  - set_response_header:
      strict-transport-security: "max-age=31536000"
      x-content-type-options: nosniff
      x-served-by: "{endpoint}"
```
"#;

/// Field names, each with its value. Values may hold variables such as `{endpoint}`.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct SetResponseHeader(Ordered<FieldValue>);

impl Settings for SetResponseHeader {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        WriteFields::compile((Mode::Set, Stage::Response), &self.0, compiling).map(WriteFields::into_response_steps)
    }
}
