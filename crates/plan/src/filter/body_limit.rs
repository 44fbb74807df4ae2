//! `body_limit`.

use model::{Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{Settings, SizeText};
use super::{Compiling, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<BodyLimit>("body_limit", DOC);

const DOC: &str = r#"Limits the size of request bodies; a larger one is answered with 413.

A request with a `content-length` above the limit is rejected before an endpoint is chosen, and before a client that sends
`expect: 100-continue` starts its body. A body of unknown length (chunked, or HTTP/2 and HTTP/3) is counted while it is
forwarded: at the first byte above the limit the exchange is aborted, and the endpoint sees a truncated body, never one that looks complete. A
response that has already started is truncated, too. Trailers are not counted, nor are upgraded
connections. In logs and metrics the fault is `body_too_large`; clients of gRPC get `RESOURCE_EXHAUSTED`.

Without this filter the size is unlimited: bodies are streamed, and cost no memory. If several apply, the last one counts, so one with
`when:` may allow more than the one before it.

```yaml
filters:
  - body_limit: { max: 10MiB }
```
"#;

/// How long bodies may be.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BodyLimit {
    /// Bytes of the body, transfer coding not counted; 0 allows none.
    max: SizeText,
}

impl Settings for BodyLimit {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        Ok(Steps::of_request(BodyLimitStep { max: self.max.0 }))
    }
}

struct BodyLimitStep {
    max: u64,
}

impl RequestStep for BodyLimitStep {
    fn apply(&self, _: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        turn.notes.body_max = Some(self.max);
        Flow::Continue
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{chain, issue, passed_with, request};

    #[test]
    fn the_last_bound_counts_and_is_gone_with_the_request() {
        let chain = chain(json!([{ "body_limit": { "max": "1KiB" } }, { "body_limit": { "max": 20 } }]));
        let (_, mut beside) = passed_with(&chain, request("POST", "/", &[]));
        assert_eq!(beside.notes.body_max, Some(20));
        beside.notes.clear();
        assert_eq!(beside.notes.body_max, None);
    }

    #[test]
    fn sizes_are_written_as_everywhere() {
        for (text, bytes) in [("0", 0), ("100", 100), ("1kB", 1_000), ("2 MiB", 2 << 20), ("1GiB", 1 << 30)] {
            let (_, beside) =
                passed_with(&chain(json!([{ "body_limit": { "max": text } }])), request("POST", "/", &[]));
            assert_eq!(beside.notes.body_max, Some(bytes), "{text}");
        }
        for wrong in [json!("1 XB"), json!("KiB"), json!(-1), json!("99999999999GiB"), json!(null)] {
            assert!(issue("body_limit", json!({ "max": wrong })).contains("is not a size such as"), "{wrong}");
        }
        assert_eq!(issue("body_limit", json!({})), ": missing field `max`");
    }
}
