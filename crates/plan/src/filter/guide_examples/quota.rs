//! `quota`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::{Issue, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{Settings, SizeText};
use super::{
    Compiling, Extent, FilterEntry, Flow, Rank, RequestStep, ResponseBodyStep, ResponseView, Stage, Steps, Tap, Turn,
};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Quota>("quota", DOC);

const DOC: &str = r#"Refuses requests once the route has sent so many bytes.

```yaml
filters:
  - quota: { max: 1GB }
```
"#;

/// How much may be sent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Quota {
    /// Bytes of all bodies together.
    max: SizeText,
}

impl Settings for Quota {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        // A change of `max` keeps what was counted: the key does not hold it.
        let sent = compiling.kept("sent", AtomicU64::default);
        Ok(Steps {
            response_body: Some(Box::new(CountStep(Arc::clone(&sent)))),
            ..Steps::of_request(QuotaStep { sent, max: self.max.0 })
        })
    }
}

struct QuotaStep {
    sent: Arc<AtomicU64>,
    max: u64,
}

impl RequestStep for QuotaStep {
    fn apply(&self, _: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        if self.sent.load(Ordering::Relaxed) < self.max {
            Flow::Continue
        } else {
            Flow::refuse(429, "the quota is used up")
        }
    }
}

struct CountStep(Arc<AtomicU64>);

impl ResponseBodyStep for CountStep {
    fn rank(&self) -> Rank {
        Rank::Account
    }

    fn begin(
        &self,
        _: &mut ResponseHead,
        _: &ResponseView<'_>,
        extent: Extent,
        _: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        (extent != Extent::Absent).then(|| (Stage::Tap(Box::new(Count(Arc::clone(&self.0)))), extent))
    }
}

struct Count(Arc<AtomicU64>);

impl Tap for Count {
    fn see(&mut self, bytes: &[u8]) {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}
