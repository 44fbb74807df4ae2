//! `concurrency_limit`.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use model::{Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::limit_key::{RequestKey, RequestKeySetting};
use super::over::{Excess, Over, too_many};
use super::settings::Settings;
use super::statuses::LimitStatus;
use super::{AtEnd, Compiling, Ended, FilterEntry, Flow, Found, RequestStep, Steps, Turn};
use crate::limit::InFlight;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ConcurrencyLimit>("concurrency_limit", DOC);

const DOC: &str = r#"Limits the requests in flight of each client, and rejects requests beyond it.

A request is in flight from this filter to the end of its exchange: until its response is sent, its WebSocket or tunnel is closed, or its
client is gone. Each key, by default the address of a client, may have `max` of them at once. A further request is answered with `status`
(429 by default) and a line of text. Counting is exact over all workers of one process, and over HTTP/1.1, HTTP/2 and HTTP/3.

`key` says what is counted, as in `rate_limit`: `client` (IPv6 addresses by their network of `ipv6_prefix` bits, 64 by default), or
`{ header: NAME }`. `max: 0` rejects every request.

`over` says what becomes of requests beyond the limit, as in `rate_limit`, but for `delay`: a queue belongs to a cluster (`queue`). With
`mark`, a request beyond the limit is counted too.

A key takes memory only while it has requests in flight. A configuration change keeps the counts, also when `max` changes; requests that
are in flight then are not interrupted. Another `key` or `ipv6_prefix` starts from zero, and so does a new process.

`equipoise_filter_events_total` counts requests beyond the limit as `limited`, or `marked` in a dry run.

```yaml
filters:
  - concurrency_limit: { max: 10 }
  - concurrency_limit: { max: 2, key: { header: x-api-key }, status: 503 }
    when: { path: { prefix: /reports } }
```
"#;

const MAX_MAX: u32 = 1_000_000;

/// How many requests may be in flight.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConcurrencyLimit {
    /// Requests in flight of each key, from 0 to 1,000,000.
    #[schemars(range(min = 0, max = 1_000_000))]
    max: u32,
    /// What is counted: `client`, the default, `{ header: NAME }` or `{ expression: CEL }`.
    #[serde(default)]
    key: RequestKeySetting,
    /// Bits of an IPv6 address that identify a client, from 1 to 128; 64 by default.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: Option<u8>,
    /// What becomes of requests beyond the limit: `refuse` (the default), `close`, `mark` or `{ tarpit: TIME }`.
    #[serde(default)]
    over: Over,
    /// Status of the response to rejected requests, from 400 to 599; 429 by default.
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
}

impl Settings for ConcurrencyLimit {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.max > MAX_MAX {
            let issue = Issue::at("max", format!("{} is more than {MAX_MAX}", self.max));
            return Err(issue.suggest("leave the filter out for no limit"));
        }
        if matches!(self.over, Over::Delay(_)) {
            let issue = Issue::at("over/delay", "a request cannot wait for others of its key to end");
            return Err(issue.suggest("use `queue` of the cluster, or `rate_limit` with `over: { delay: … }`"));
        }
        let excess = Excess::compile(self.over, self.status, compiling)?;
        let key = self.key.compile(self.ipv6_prefix, compiling)?;
        let places = compiling.kept(&format!("{key:?}"), InFlight::default);
        let counts_excess = self.over == Over::Mark;
        Ok(Steps::of_request(ConcurrencyLimitStep { max: self.max, key, places, excess, counts_excess }))
    }
}

/// Requests in flight leave when their exchange ends.
impl AtEnd for InFlight {
    fn at_end(&self, token: u64, _: &Ended) {
        self.leave(token);
    }
}

struct ConcurrencyLimitStep {
    max: u32,
    key: RequestKey,
    places: Arc<InFlight>,
    excess: Excess,
    /// A request beyond the limit goes on, so that it is in flight too.
    counts_excess: bool,
}

impl RequestStep for ConcurrencyLimitStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let InTurn { is_within, place } = self.key.with(head, turn, |key, turn| self.enter(key, turn));
        if let Some(place) = place {
            turn.notes.at_end(Arc::clone(&self.places) as Arc<dyn AtEnd>, place);
        }
        if is_within {
            turn.notes.raise_limit(LimitStatus::Passed);
            return Flow::Continue;
        }
        self.excess.flow(turn, |status| too_many(status, None))
    }

    fn resume(&self, _: &mut RequestHead, _: Found<'_>, _: &mut Turn<'_>) -> Flow {
        self.excess.resume(|status| too_many(status, None))
    }
}

/// What came of one request.
struct InTurn {
    is_within: bool,
    /// To be given back.
    place: Option<u64>,
}

impl ConcurrencyLimitStep {
    fn enter(&self, key: &[u8], turn: &mut Turn<'_>) -> InTurn {
        let places = &self.places;
        if turn.is_rehearsal {
            return InTurn { is_within: places.count(key) < self.max, place: None };
        }
        let place = places.enter(key, self.max, turn.chance);
        let is_within = place.is_some();
        let place = if is_within || !self.counts_excess { place } else { places.enter(key, u32::MAX, turn.chance) };
        InTurn { is_within, place }
    }
}
