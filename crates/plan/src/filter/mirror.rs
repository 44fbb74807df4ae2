//! `mirror`, and what the data plane needs of it: the copy that is to be sent, with its bounds and counters.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use model::filter::CLUSTER_FORMAT;
use model::{FieldName, Issue, Known, Method, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::{FieldValue, Mode, WriteFields};
use super::settings::{DurationText, Ordered, Settings, SizeText};
use super::share::Share;
use super::variables::Stage;
use super::{CalledCluster, Compiling, EventCounter, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<MirrorSettings>("mirror", DOC);

const DOC: &str = r#"Sends a copy of requests to another cluster as well, and drops its responses.

`cluster` gets the request as the endpoint gets it: after all filters, with its body, which is streamed while the endpoint gets it. The copy
has the balancing, retries, limits, health checks and time-outs of that cluster; the response is read and dropped. It is not in
the access log; the metrics of the cluster and its endpoints count it. `share` is the percentage of requests that are copied, 100% by default.

The original request never waits for its copy. The copy begins when an endpoint is chosen for the original: requests that are rejected before, for
example by a full queue, are not copied. A copy is dropped in these cases:

- `requests_max` copies are in progress (1000).
- The cluster takes the body more slowly than the endpoint, and the copy is more than `lag_max` behind (1MiB), or all copies together
  hold more than `memory_max` (64MiB).
- The body has more than `body_max`; without it, bodies of any length are copied. A copy of a body of unknown length ends at the first byte
  above it, and counts as `dropped`.
- The original ends before its body is complete, because the client or the endpoint has broken it off. An endpoint of the mirror sees a
  body that is cut short then.
- It is not over `timeout` (1m) after it began; raise it for long uploads.

Retries and hedges of the original are not copied again. Requests that filters or the route answer, upgrades such as WebSocket, and `CONNECT`
are not copied.

Copies hold the credentials that other filters set, such as the token of `client_credentials`; `set_headers: { authorization: none }`
replaces them.

`host` sets the `host` of the copy, and `set_headers` sets further fields of it; values may hold variables. Let the mirror know that it
must not charge cards or send mail.

`equipoise_filter_events_total` counts copies: `sent` ones, of those `dropped` and `failed` ones (no endpoint answered), and `skipped` ones, which
were not begun because of a limit.

```yaml
filters:
  - mirror: { cluster: shadow, share: 10%, set_headers: { x-shadow: "1" } }
```
"#;

const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);
const REQUESTS_MAX: u32 = 1_000;
const LAG_MAX: u64 = 1 << 20;
const MEMORY_MAX: u64 = 64 << 20;
/// Least bytes that a copy may be behind: what is read at once.
const LAG_MIN: u64 = 64 << 10;

/// What is copied, and where to.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MirrorSettings {
    /// The cluster that gets the copies.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// Share of the requests that are copied; 100% by default.
    #[schemars(regex(pattern = Share::PATTERN))]
    share: Option<String>,
    /// `host` of the copies; that of the request by default.
    host: Option<String>,
    /// Header fields that are set in the copies. Values may hold variables.
    set_headers: Option<Ordered<FieldValue>>,
    /// Longest body that is copied; unlimited by default.
    body_max: Option<SizeText>,
    /// Bytes of a body that a copy may be behind the original, at least 64KiB; 1MiB by default.
    lag_max: Option<SizeText>,
    /// Bytes that all copies of this filter together may be behind; 64MiB by default.
    memory_max: Option<SizeText>,
    /// Copies in progress, over all workers, from 1 to 100,000; 1000 by default.
    #[schemars(range(min = 1, max = 100_000))]
    requests_max: Option<u32>,
    /// Time limit of a copy, from its beginning to the end of its response, at most 24h; 1m by default.
    timeout: Option<DurationText>,
}

impl Settings for MirrorSettings {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let share = Share::parse(self.share.as_deref()).map_err(|issue| issue.below("share"))?;
        if let Some(host) = &self.host
            && (host.is_empty() || !host.bytes().all(|byte| (b'!'..0x7f).contains(&byte) && byte != b'/'))
        {
            let issue = Issue::at("host", format!("`{host}` is not a host"));
            return Err(issue.suggest("write one such as `shadow.internal`"));
        }
        let fields =
            self.set_headers.map(|fields| WriteFields::compile((Mode::Set, Stage::Request), &fields, compiling));
        let fields = fields.transpose().map_err(|issue| issue.below("set_headers"))?;
        let requests_max = self.requests_max.unwrap_or(REQUESTS_MAX);
        if !(1..=100_000).contains(&requests_max) {
            return Err(Issue::at("requests_max", format!("{requests_max} is not from 1 to 100,000")));
        }
        let timeout = self.timeout.map_or(TIMEOUT, |timeout| timeout.0);
        if timeout > TIMEOUT_MAX {
            return Err(Issue::at("timeout", "more than 24h").suggest("use at most `24h`"));
        }
        let lag_max = self.lag_max.map_or(LAG_MAX, |size| size.0);
        let memory_max = self.memory_max.map_or(MEMORY_MAX, |size| size.0);
        if lag_max < LAG_MIN {
            return Err(Issue::at("lag_max", "less than 64KiB, which is read at once").suggest("use at least `64KiB`"));
        }
        if memory_max < lag_max {
            return Err(Issue::at("memory_max", "less than `lag_max`, which one copy may take"));
        }
        let mirror = Mirror {
            cluster: compiling.cluster(&self.cluster, "cluster"),
            timeout,
            body_max: self.body_max.map_or(u64::MAX, |size| size.0),
            lag_max,
            memory_max,
            requests_max: requests_max as usize,
            host: self.host,
            fields,
            in_progress: compiling.kept("in progress", InProgress::default),
            counts: Counts {
                sent: compiling.counter("sent"),
                skipped: compiling.counter("skipped"),
                dropped: compiling.counter("dropped"),
                failed: compiling.counter("failed"),
            },
        };
        Ok(Steps::of_request(MirrorStep { share, mirror: Arc::new(mirror) }))
    }
}

struct MirrorStep {
    share: Share,
    mirror: Arc<Mirror>,
}

impl RequestStep for MirrorStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if head.method != Method::Connect && self.share.draws(turn) {
            turn.notes.mirrors.push(Arc::clone(&self.mirror));
        }
        Flow::Continue
    }
}

/// What all copies of one filter hold, over all workers and plans.
#[derive(Default)]
struct InProgress {
    requests: AtomicUsize,
    /// Bytes of bodies that wait to be sent.
    bytes: AtomicU64,
}

struct Counts {
    sent: EventCounter,
    skipped: EventCounter,
    dropped: EventCounter,
    failed: EventCounter,
}

/// How a copy of a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorEnd {
    /// An endpoint has answered.
    Answered,
    /// It was given up, because its body could not be copied whole.
    Dropped,
    /// No endpoint has answered.
    Failed,
}

/// A request is to be copied like this, if the bounds allow it, when its cluster is known.
pub struct Mirror {
    /// Where the copy goes.
    pub cluster: CalledCluster,
    /// Bound on all of it, from the wait for an endpoint to the last byte of the response.
    pub timeout: Duration,
    /// Bound on the body, in bytes.
    pub body_max: u64,
    lag_max: u64,
    memory_max: u64,
    requests_max: usize,
    host: Option<String>,
    fields: Option<WriteFields>,
    in_progress: Arc<InProgress>,
    counts: Counts,
}

impl Mirror {
    /// Begins a copy. `None`, and counted: a bound does not allow it. `length`: that of the body, if it is known.
    pub fn begin(self: &Arc<Self>, length: Option<u64>) -> Option<MirrorPlace> {
        let before = self.in_progress.requests.fetch_add(1, Ordering::Relaxed);
        let place = MirrorPlace(Arc::clone(self));
        if before >= self.requests_max || length.is_some_and(|length| length > self.body_max) {
            self.counts.skipped.add_one();
            return None;
        }
        self.counts.sent.add_one();
        Some(place)
    }

    /// Makes the head of the request that of its copy.
    pub fn fit(&self, head: &mut RequestHead, turn: &mut Turn<'_>) {
        // The copy of a body is not asked for.
        head.fields.remove_known(Known::Expect);
        if let (Some(host), Ok(name)) = (&self.host, FieldName::new("host")) {
            head.fields.set(&name, host.as_bytes());
        }
        if let Some(fields) = &self.fields {
            // It continues always.
            let _ = fields.apply(head, turn);
        }
    }

    /// Takes room for bytes that wait to be sent, of a copy of which `seen` bytes came before, and `waiting` of these wait still. `false`: a
    /// bound does not allow it. That may be `body_max`, if the length was not known when the copy began.
    pub fn take_room(&self, seen: u64, waiting: u64, bytes: u64) -> bool {
        let all = &self.in_progress.bytes;
        if seen.saturating_add(bytes) > self.body_max || waiting + bytes > self.lag_max {
            return false;
        }
        if all.fetch_add(bytes, Ordering::Relaxed) + bytes > self.memory_max {
            all.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Gives room back.
    pub fn give_room(&self, bytes: u64) {
        self.in_progress.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One copy in progress, of those that the bounds allow.
#[derive(Debug)]
pub struct MirrorPlace(Arc<Mirror>);

impl MirrorPlace {
    /// How it is done.
    pub fn mirror(&self) -> &Arc<Mirror> {
        &self.0
    }

    /// The copy is over.
    pub fn end(self, how: MirrorEnd) {
        match how {
            MirrorEnd::Answered => {}
            MirrorEnd::Dropped => self.0.counts.dropped.add_one(),
            MirrorEnd::Failed => self.0.counts.failed.add_one(),
        }
    }
}

impl Drop for MirrorPlace {
    fn drop(&mut self) {
        self.0.in_progress.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").field("cluster", &self.cluster).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
