//! `server_timing`.

#[cfg(test)]
mod tests;

use std::io::Write;
use std::time::Duration;

use model::{FieldName, Issue, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::Settings;
use super::{Compiling, FilterEntry, ResponseStep, ResponseView, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Timings>("server_timing", DOC);

const DOC: &str = r#"Adds a `server-timing` field to responses, which browsers show in their developer tools.

The field lists times in milliseconds (W3C Server Timing). That of the endpoint, if there is one, is kept beside it.

- `queue`: waiting for an endpoint;
- `connect`: connecting to it, TLS included; 0 on a kept connection;
- `endpoint`: from the sent request to the first byte of the response;
- `total`: from the first byte of the request until the response head is forwarded. Reading a large request, filters that call a service, and retries
  are included.

Responses of the proxy itself have `total` alone. `prefix` is put in front of the names, for example to tell several proxies apart. Anyone who
gets a response can read the times: restrict the filter with `when` if that matters.

```yaml
filters:
  - server_timing: { prefix: edge- }
```
"#;

/// How times are named.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Timings {
    /// What is put in front of each name; nothing by default.
    #[schemars(length(max = 32))]
    prefix: Option<String>,
}

impl Settings for Timings {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let prefix = self.prefix.unwrap_or_default();
        if prefix.len() > 32 || !prefix.is_empty() && !model::fields::is_token(prefix.as_bytes()) {
            let issue = Issue::at("prefix", format!("`{prefix}` cannot be part of a name"));
            return Err(issue.suggest("use letters, digits and `-`, at most 32"));
        }
        let name = FieldName::new("server-timing").map_err(|message| Issue::at("", message))?;
        Ok(Steps::of_response(TimingsStep { name, prefix }))
    }
}

struct TimingsStep {
    name: FieldName,
    prefix: String,
}

impl ResponseStep for TimingsStep {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, _: &mut Turn<'_>) {
        let elapsed = view.elapsed;
        head.fields.append_with(&self.name, |out| {
            let mut write = |name: &str, time: Duration, end: &str| {
                let ms = time.as_secs_f64() * 1_000.0;
                // Writing to a vector cannot fail.
                let _ = write!(out, "{}{name};dur={ms:.3}{end}", self.prefix);
            };
            if view.endpoint.is_some() {
                write("queue", elapsed.queue, ", ");
                write("connect", elapsed.connect, ", ");
                write("endpoint", elapsed.first_byte, ", ");
            }
            write("total", elapsed.total, "");
        });
    }
}
