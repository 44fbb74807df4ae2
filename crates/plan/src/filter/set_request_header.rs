//! `set_request_header`.

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::{Mode, WriteFields};
use super::settings::{Ordered, Settings};
use super::variables::Stage;
use super::{Compiling, FilterEntry, Steps};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<SetRequestHeader>("set_request_header", DOC);

const DOC: &str = r#"Sets header fields of the request that goes to the endpoint.

A field that is there already is replaced, whatever the client sent, however often, and also where it is spelt with `_` or another sign for
`-`, which many endpoints take for the same. Values may hold variables; a value that turns out empty (no such cookie, no TLS)
takes the field away, so that a client can never smuggle in its own; nor can it as a trailer behind the body. Line breaks in a
variable become spaces.

`content-length`, `transfer-encoding`, `connection` and their like belong to the proxy and cannot be set here; for `host`
there is the filter `rewrite`.

```yaml
filters:
  - set_request_header:
      x-shop: "1"
      x-real-ip: "{client_ip}"
      x-client-certificate: "{tls_client_subject}"
```
"#;

/// Field names, each with its value. Values may hold variables such as `{client_ip}`.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
struct SetRequestHeader(Ordered<String>);

impl Settings for SetRequestHeader {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let step = WriteFields::compile(Mode::Set, Stage::Request, &self.0)?;
        Ok(Steps { guarded: step.guarded(), ..Steps::of_request(step) })
    }
}
