//! `response_limit`.

#[cfg(test)]
mod tests;

use model::{Issue, Known, Method, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{Settings, SizeText};
use super::{
    Answers, BadBody, Coded, Coder, Compiling, EventCounter, Extent, FilterEntry, Flow, Rank, ResponseBodyStep,
    ResponseSource, ResponseStep, ResponseView, Stage, Steps, Turn, Turning,
};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ResponseLimit>("response_limit", DOC);

const DOC: &str = r#"Limits the size of the bodies of responses of endpoints.

A response with a `content-length` above `max` is replaced by 502, and its body is not read. A body of unknown length, or one of gRPC, is
counted while it passes; at the first byte above the limit it is cut short, so that the client sees that it is not whole. The bytes are those that the
endpoint sends; if the route has `decompress`, list this filter first. Responses to `HEAD` and those of the proxy itself are not limited, nor are upgraded connections.

`equipoise_filter_events_total` counts responses that were `rejected`; those that were cut short have a fault in the access log.

```yaml
filters:
  - response_limit: { max: 10MiB }
```
"#;

/// How long bodies may be.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResponseLimit {
    /// Bytes of the body, transfer coding not counted.
    max: SizeText,
}

impl Settings for ResponseLimit {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let (max, rejected) = (self.max.0, compiling.counter("rejected"));
        Ok(Steps {
            response: Some(Box::new(LimitHead { max, rejected })),
            ..Steps::of_response_body(LimitBody { max })
        })
    }
}

struct LimitHead {
    max: u64,
    rejected: EventCounter,
}

impl ResponseStep for LimitHead {
    fn answers(&self) -> Answers {
        Answers::All
    }

    fn answer(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> Flow {
        let length = head.fields.get_known(Known::ContentLength);
        let length = length.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        let has_body = view.request.received_method() != Method::Head && !matches!(head.status, 204 | 304);
        if view.source != ResponseSource::Endpoint || !has_body || length.is_none_or(|length| length <= self.max) {
            return Flow::Continue;
        }
        turn.count(&self.rejected);
        Flow::refuse(502, "the response is too long")
    }
}

struct LimitBody {
    max: u64,
}

impl ResponseBodyStep for LimitBody {
    fn rank(&self) -> Rank {
        // The body is in the sender's form.
        Rank::Decode
    }

    fn begin(
        &self,
        _: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        _: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        // Calls of gRPC are not replaced, so that their bodies are cut short also when they say that they are too long.
        let may_be_too_long = match extent {
            Extent::Unknown => true,
            Extent::Known(length) => length > self.max,
            Extent::Absent => false,
        };
        let is_limited = may_be_too_long && view.source == ResponseSource::Endpoint;
        is_limited.then(|| (Stage::Coder(Box::new(Counted { left: self.max })), extent))
    }
}

/// Passes bytes on as long as there are not too many.
struct Counted {
    left: u64,
}

impl Coder for Counted {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let count = input.len().min(room.len());
        self.left = self.left.checked_sub(count as u64).ok_or(BadBody::TooLong)?;
        room[..count].copy_from_slice(&input[..count]);
        Ok(Coded { read: count, written: count, is_done: turning != Turning::More && count == input.len() })
    }
}
