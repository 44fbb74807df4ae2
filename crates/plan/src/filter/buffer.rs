//! `buffer`.

#[cfg(test)]
mod tests;

use model::{Issue, Known, RequestHead, Version};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{Settings, SizeText};
use super::{Compiling, EventCounter, FilterEntry, Flow, Found, Need, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Buffer>("buffer", DOC);

const DOC: &str = r#"Reads the whole body of a request before an endpoint is chosen.

Endpoints that have a thread or process for each request are then not held by clients that send slowly. The body is kept in memory, up to
`request`, at most 16MiB. A longer one is answered with 413; leave uploads out with `when`. A client that sends
`expect: 100-continue` gets the interim response first. The time to read it is bounded by `timeouts: { stream }` of the listener.

A body that is read whole can be sent again: retries and hedged requests apply to it whatever its size.

As many bodies are held as requests are in progress: bound these with `connections_max` of the listener and limits on streams. Requests without
a body, and upgrades, pass as they are. `equipoise_filter_events_total` counts requests that were `rejected`.

```yaml
filters:
  - buffer: { request: 1MiB }
    when: { not: { path: { prefix: /upload } } }
```
"#;

/// What is read whole.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Buffer {
    /// Longest body that is read, up to 16MiB.
    request: SizeText,
}

impl Settings for Buffer {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let size = self.request.0;
        let max = u32::try_from(size).ok().filter(|max| (1..=Need::BODY_BYTES_MAX).contains(max));
        let max = max.ok_or_else(|| {
            let issue = Issue::at("request", format!("{size} bytes are not from 1 byte to 16MiB"));
            issue.suggest("write a size such as 1MiB")
        })?;
        Ok(Steps::of_request(BufferStep { max, rejected: compiling.counter("rejected") }))
    }
}

struct BufferStep {
    max: u32,
    rejected: EventCounter,
}

fn length(head: &RequestHead) -> Option<u64> {
    std::str::from_utf8(head.fields.get_known(Known::ContentLength)?).ok()?.parse().ok()
}

impl RequestStep for BufferStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let is_coded = head.version >= Version::Http2 || head.fields.has_known(Known::TransferEncoding);
        match length(head) {
            None | Some(0) if !is_coded => Flow::Continue,
            Some(length) if length > self.max.into() => {
                turn.count(&self.rejected);
                Flow::refuse(413, "the body is too long")
            }
            _ => Flow::Need(Need::Body { max: self.max }),
        }
    }

    /// What is longer without having said so ends the exchange, with 413 too. What cannot be held is no body but a tunnel.
    fn resume(&self, _: &mut RequestHead, _: Found<'_>, _: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }
}
