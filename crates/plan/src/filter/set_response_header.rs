//! `set_response_header`.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::{Mode, WriteFields};
use super::settings::{Ordered, Settings};
use super::variables::Stage;
use super::{Compiling, FilterEntry, Steps};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<SetResponseHeader>("set_response_header", DOC);

const DOC: &str = r#"Sets header fields of the response that goes to the client.

A field that the endpoint sent is replaced, and one of the same name in its trailers is removed. Answers that the proxy gives itself (errors, redirects, fixed answers) carry
the field too. Values may hold variables, those of the request included; a value that turns out empty takes the field
away.

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
struct SetResponseHeader(Ordered<String>);

impl Settings for SetResponseHeader {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        WriteFields::compile(Mode::Set, Stage::Response, &self.0).map(WriteFields::into_response_steps)
    }
}
