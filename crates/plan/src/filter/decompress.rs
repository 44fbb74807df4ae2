//! `decompress`.

mod decoder;
#[cfg(test)]
mod tests;

use model::{Issue, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::coding::Names;
use super::settings::{Settings, SizeText};
use super::{
    Compiling, Extent, FilterEntry, MakeStage, Rank, RequestBodyStep, ResponseBodyStep, ResponseView, Stage, Steps,
    Turn,
};
use decoder::{Bounds, Coding, Decoder};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Decompress>("decompress", DOC);

const DOC: &str = r#"Decompresses bodies that are coded with gzip, deflate, brotli or zstd.

By default it decodes the bodies of requests, for applications that cannot. `content-encoding` and `content-length` are removed, and the
body goes to the endpoint in chunks, or in the frames of HTTP/2 and HTTP/3. A body that has another coding, or several, passes as it is.
So does one with `content-range`, `content-digest`, `repr-digest`, `digest` or `content-md5`, or with `cache-control: no-transform`.

A small body can decode to a huge one. `ratio_max` bounds how many times longer than its coded form a body becomes, beyond its first 64KiB.
`size_max` bounds its length. A request that exceeds a bound gets 413, and one that is malformed gets 400. If part of the request has gone to
an endpoint by then, that request is broken off. `body_limit` counts coded bytes.

`responses` decodes bodies of responses: `always`, for example to have them coded again by `compress`, or `unless_accepted`, for clients that
do not accept the coding (as `gunzip` does in NGINX). A response that exceeds a bound or is malformed gets 502, or is broken off if its head has been
sent; a bound that is exceeded does not count against the endpoint.

While a body passes, its decoder holds up to 48 KiB (gzip, deflate), 8 MiB (zstd) or 4 MiB (brotli), as the sender chooses.
Larger windows exceed the bounds too, and so does a gzip body of many tiny members.

```yaml
filters:
  - decompress: {}
  - decompress: { requests: false, responses: unless_accepted }
    when: { path: { prefix: /archive } }
```
"#;

const RATIO_MAX: u32 = 100;

/// Which bodies are decoded, and how far.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Decompress {
    /// Whether bodies of requests are decoded; true by default.
    #[serde(default = "yes")]
    requests: bool,
    /// Which bodies of responses are decoded; none by default.
    responses: Option<Responses>,
    /// How many times longer than its coded form a body may be; 100 by default.
    #[schemars(range(min = 1, max = 100_000))]
    ratio_max: Option<u32>,
    /// How long a decoded body may be; without it, as long as `ratio_max` allows.
    size_max: Option<SizeText>,
}

/// Which bodies of responses are decoded.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Responses {
    /// All.
    Always,
    /// Those whose coding the client does not accept.
    UnlessAccepted,
}

fn yes() -> bool {
    true
}

impl Settings for Decompress {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if !self.requests && self.responses.is_none() {
            let issue = Issue::at("requests", "neither requests nor responses are decoded");
            return Err(issue.suggest("set `responses`, or leave the filter out"));
        }
        let ratio_max = self.ratio_max.unwrap_or(RATIO_MAX);
        if ratio_max == 0 {
            return Err(Issue::at("ratio_max", "no body fits into nothing").suggest("use 1 or more"));
        }
        let bounds = Bounds { ratio_max: ratio_max.into(), size_max: self.size_max.map_or(u64::MAX, |size| size.0) };
        let mut steps = Steps::default();
        if self.requests {
            steps.request_body = Some(Box::new(DecodeRequest { bounds, names: Names::new()? }));
        }
        if let Some(which) = self.responses {
            steps.response_body = Some(Box::new(DecodeResponse { which, bounds, names: Names::new()? }));
        }
        Ok(steps)
    }
}

struct DecodeRequest {
    bounds: Bounds,
    names: Names,
}

impl RequestBodyStep for DecodeRequest {
    fn rank(&self) -> Rank {
        Rank::Decode
    }

    fn begin(&self, head: &mut RequestHead, _: Extent, turn: &mut Turn<'_>) -> Option<(MakeStage, Extent)> {
        let coding = self.names.coding(&head.fields).and_then(Coding::named)?;
        if !self.names.may_change_body(&head.fields) {
            return None;
        }
        self.names.decoded(&mut head.fields, turn.scratch);
        let (bounds, digests) = (self.bounds, self.names.digests.clone());
        let make = move || Stage::Coder(Box::new(Decoder::new(coding, bounds, &digests)));
        Some((Box::new(make), Extent::Unknown))
    }
}

struct DecodeResponse {
    which: Responses,
    bounds: Bounds,
    names: Names,
}

impl ResponseBodyStep for DecodeResponse {
    fn rank(&self) -> Rank {
        Rank::Decode
    }

    fn begin(
        &self,
        head: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        let token = self.names.coding(&head.fields)?;
        let coding = Coding::named(token)?;
        let is_accepted = self.names.accepts(&view.request.fields, token);
        if !self.names.may_change(head, view.request) || !self.names.allows(view.request) {
            return None;
        }
        if self.which == Responses::UnlessAccepted {
            self.names.vary(&mut head.fields, turn.scratch);
            if is_accepted {
                return None;
            }
        }
        self.names.decoded(&mut head.fields, turn.scratch);
        if extent == Extent::Absent {
            return None;
        }
        Some((Stage::Coder(Box::new(Decoder::new(coding, self.bounds, &self.names.digests))), Extent::Unknown))
    }
}
