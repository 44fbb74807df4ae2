//! `set_request_header`.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::{FieldValue, Mode, WriteFields};
use super::settings::{Ordered, Settings};
use super::variables::Stage;
use super::{Compiling, FilterEntry, Steps};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<SetRequestHeader>("set_request_header", DOC);

const DOC: &str = r#"Sets header fields of the request that goes to the endpoint.

All fields of that name that the client sent are replaced, also those spelt with `_` or another sign instead of `-`, which many
endpoints treat as the same. Values may contain variables, or be `{ expression: … }`, a CEL expression; if a value is empty (no such cookie, no TLS), the field is removed, so
that clients can never send their own, not even as a trailer. Line breaks in a variable become spaces.

`content-length`, `transfer-encoding`, `connection` and their like belong to the proxy and cannot be set here; for `host`
there is the filter `rewrite`.

```yaml
filters:
  - set_request_header:
      x-shop: "1"
      x-real-ip: "{client_ip}"
      x-client-certificate: "{tls_client_subject}"
      x-tenant: { expression: 'request.host.split(".")[0]' }
```
"#;

/// Field names, each with its value. Values may hold variables such as `{client_ip}`.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct SetRequestHeader(Ordered<FieldValue>);

impl Settings for SetRequestHeader {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let step = WriteFields::compile((Mode::Set, Stage::Request), &self.0, compiling)?;
        Ok(Steps { guarded: step.guarded(), ..Steps::of_request(step) })
    }
}
