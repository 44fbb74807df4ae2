//! `bandwidth_limit`.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{Issue, RequestHead};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::limit_key::{RequestKey, RequestKeySetting};
use super::paced::Paced;
use super::settings::{Settings, SizeText};
use super::{
    Compiling, Extent, FilterEntry, MakeStage, Pace, Rank, RequestBodyStep, ResponseBodyStep, Stage, Steps, Turn,
};
use crate::limit::Rates;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<BandwidthLimit>("bandwidth_limit", DOC);

const DOC: &str = r#"Limits the rate at which bodies are sent to clients and to endpoints.

`download` limits bodies of responses, and `upload` bodies of requests: bytes per second, such as `1MB/s` or `64KiB/s`. `after` lets so many
bytes of each response pass at full speed first. Nothing is read from the sender while bytes are held back, so that the proxy holds no more
memory than otherwise, and the time-outs for slow clients and endpoints do not count that time; the `timeout` of a route does.

`per` says what has the rate:

- `stream`, the default: each request by itself. A client with several connections or streams gets the rate on each.
- `key`: all requests of a `key` together, over all workers: `client`, the default (IPv6 addresses by their network of `ipv6_prefix` bits,
  64 by default), `{ header: NAME }`, or `{ expression: CEL }`. They take turns of a sixteenth of a second.

Chunks are counted with their framing, and a head of HTTP/1.1 with its body. Compressed bodies count as they are sent. WebSockets and other
tunnels are held to the rates too, in both directions, as they are sent; `after` counts from their beginning. A body that a filter or a retry rule keeps in memory is read from the client at full speed. State by key has room
for `keys_max` keys of 32 bytes each, and is kept as that of `rate_limit`.

```yaml
filters:
  - bandwidth_limit: { download: 1MB/s, after: 10MB }
  - bandwidth_limit: { download: 5MB/s, upload: 1MB/s, per: key }
```
"#;

/// Of a second; a quantum is what the rate gives in this time.
const TURNS_PER_SECOND: u64 = 16;
/// The largest quantum in bytes.
const QUANTUM_MAX: u64 = 64 << 10;
/// How far a sender that was held up by others may catch up, in nanoseconds.
const BURST: u64 = 1_000_000_000 / TURNS_PER_SECOND;
const RATE_MAX: u64 = 1_000_000_000_000;

/// How fast bodies move.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BandwidthLimit {
    /// Bytes per second of bodies of responses, such as `1MB/s`.
    download: Option<ByteRate>,
    /// Bytes per second of bodies of requests, such as `500kB/s`.
    upload: Option<ByteRate>,
    /// Bytes of each response that are not limited; none by default.
    after: Option<SizeText>,
    /// What has the rate: `stream`, the default, or `key`.
    #[serde(default)]
    per: Per,
    /// With `per: key`, what is counted: `client`, the default, `{ header: NAME }` or `{ expression: CEL }`.
    key: Option<RequestKeySetting>,
    /// Bits of an IPv6 address that identify a client, from 1 to 128; 64 by default.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: Option<u8>,
    /// Limit on remembered keys, from 1 to 10,000,000; 100,000 by default.
    #[schemars(range(min = 1, max = 10_000_000))]
    keys_max: Option<u32>,
}

/// What has a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Per {
    /// Each request.
    #[default]
    Stream,
    /// All requests of a key.
    Key,
}

/// Bytes per second, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteRate(u64);

impl<'de> Deserialize<'de> for ByteRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || de::Error::custom(format!("`{text}` is not a rate such as 1MB/s or 64KiB/s"));
        Self::parse(&text).ok_or_else(wrong)
    }
}

impl JsonSchema for ByteRate {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteRate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+ *(B|kB|KB|MB|GB|KiB|MiB|GiB)?/s$" })
    }
}

impl ByteRate {
    /// Reads a rate such as `64KiB/s`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let size = SizeText::parse(text.strip_suffix("/s")?.trim_end())?;
        (1..=RATE_MAX).contains(&size).then_some(Self(size))
    }

    /// Returns the lower of two rates.
    pub(super) fn or_lower(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// Returns what holds one stream to this rate, but for its first bytes.
    pub(super) fn of_stream(self, free: u64, now: Instant) -> Box<dyn Pace> {
        Box::new(Alone { rate: self, free, next: now })
    }

    /// Nanoseconds of so many bytes, rounded up.
    fn cost(self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.0)) as u64
    }

    fn quantum(self) -> u64 {
        (self.0 / TURNS_PER_SECOND).clamp(1, QUANTUM_MAX)
    }
}

/// Returns what holds one direction of a connection to so many bytes per second, at least 1.
pub fn pace_of_connection(bytes_per_second: u64, now: Instant) -> Box<dyn Pace> {
    ByteRate(bytes_per_second.max(1)).of_stream(0, now)
}

impl Settings for BandwidthLimit {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.download.is_none() && self.upload.is_none() {
            return Err(Issue::at("", "no rate is given").suggest("add `download: 1MB/s`, `upload: 1MB/s` or both"));
        }
        let after = self.after.map_or(0, |size| size.0);
        if after > 0 && (self.download.is_none() || self.per == Per::Key) {
            let issue = Issue::at("after", "`after` is for `download` of each stream");
            return Err(issue.suggest("leave it out"));
        }
        let by_key = match (self.per, self.key.is_some() || self.ipv6_prefix.is_some() || self.keys_max.is_some()) {
            (Per::Stream, false) => None,
            (Per::Stream, true) => {
                let issue = Issue::at("per", "`key`, `ipv6_prefix` and `keys_max` have no effect with `per: stream`");
                return Err(issue.suggest("write `per: key`"));
            }
            (Per::Key, _) => Some(ByKey::compile(&self, compiling)?),
        };
        let by_key = by_key.map(Arc::new);
        let response_body = self.download.map(|rate| {
            let by_key = by_key.clone();
            Box::new(Paced(move |head: &RequestHead, turn: &mut Turn<'_>| {
                Some(download(rate, (after, by_key.as_deref()), head, turn))
            })) as Box<dyn ResponseBodyStep>
        });
        let request_body = self.upload.map(|rate| Box::new(UploadStep { rate, by_key }) as Box<dyn RequestBodyStep>);
        Ok(Steps { response_body, request_body, ..Steps::default() })
    }
}

/// Rates that all requests of a key share.
struct ByKey {
    key: RequestKey,
    down: Arc<Rates>,
    up: Arc<Rates>,
}

impl ByKey {
    fn compile(settings: &BandwidthLimit, compiling: &mut Compiling<'_>) -> Result<Self, Issue> {
        let keys_max = settings.keys_max.unwrap_or(100_000);
        if !(1..=10_000_000).contains(&keys_max) {
            let message = format!("{keys_max} keys are not between 1 and 10000000");
            return Err(Issue::at("keys_max", message).suggest("leave it out for 100000"));
        }
        let key = settings.key.clone().unwrap_or_default().compile(settings.ipv6_prefix, compiling)?;
        let mut rates =
            |name: &str| compiling.kept(&format!("{name} {key:?} {keys_max}"), || Rates::new(keys_max as usize));
        let (down, up) = (rates("down"), rates("up"));
        Ok(Self { key, down, up })
    }
}

/// The pace of the response to this request.
fn download(
    rate: ByteRate,
    (after, by_key): (u64, Option<&ByKey>),
    head: &RequestHead,
    turn: &mut Turn<'_>,
) -> Box<dyn Pace> {
    match by_key {
        None => rate.of_stream(after, turn.now),
        Some(by_key) => Box::new(Shared::new(rate, (by_key, &by_key.down), head, turn)),
    }
}

struct UploadStep {
    rate: ByteRate,
    by_key: Option<Arc<ByKey>>,
}

impl RequestBodyStep for UploadStep {
    fn rank(&self) -> Rank {
        Rank::Account
    }

    fn begin(&self, head: &mut RequestHead, extent: Extent, turn: &mut Turn<'_>) -> Option<(MakeStage, Extent)> {
        let (rate, now) = (self.rate, turn.now);
        let make: MakeStage = match &self.by_key {
            None => Box::new(move || Stage::Pace(rate.of_stream(0, now))),
            Some(by_key) => {
                let shared = Shared::new(rate, (by_key, &by_key.up), head, turn);
                Box::new(move || Stage::Pace(Box::new(shared.clone())))
            }
        };
        Some((make, extent))
    }

    fn pace_tunnel(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Option<Box<dyn Pace>> {
        Some(match &self.by_key {
            None => self.rate.of_stream(0, turn.now),
            Some(by_key) => Box::new(Shared::new(self.rate, (by_key, &by_key.up), head, turn)),
        })
    }
}

/// The pace of one stream.
struct Alone {
    rate: ByteRate,
    /// Bytes that are not limited.
    free: u64,
    /// When the next bytes may leave.
    next: Instant,
}

impl Pace for Alone {
    fn reserve(&mut self, wanted: usize, now: Instant) -> (usize, Instant) {
        if self.free > 0 {
            let count = self.free.min(wanted as u64);
            self.free -= count;
            return (count as usize, now);
        }
        let count = self.rate.quantum().min(wanted as u64);
        // What was not used for a while is lost, but for a moment, so that a timer that rings late costs nothing.
        let earliest = now.checked_sub(Duration::from_nanos(BURST)).unwrap_or(now);
        let begins = self.next.max(earliest);
        self.next = begins + Duration::from_nanos(self.rate.cost(count));
        (count as usize, begins)
    }
}

/// The pace of a stream that shares the rate of its key.
#[derive(Clone)]
struct Shared {
    rate: ByteRate,
    rates: Arc<Rates>,
    number: u64,
}

impl Shared {
    fn new(rate: ByteRate, (by_key, rates): (&ByKey, &Arc<Rates>), head: &RequestHead, turn: &mut Turn<'_>) -> Self {
        let number = by_key.key.with(head, turn, |key, turn| rates.number_of(key, turn.now, turn.chance));
        Self { rate, rates: Arc::clone(rates), number }
    }
}

impl Pace for Shared {
    fn reserve(&mut self, wanted: usize, now: Instant) -> (usize, Instant) {
        let count = self.rate.quantum().min(wanted as u64);
        let wait = self.rates.reserve(self.number, (self.rate.cost(count), BURST), now);
        (count as usize, now + Duration::from_nanos(wait))
    }

    fn give_back(&mut self, count: usize, now: Instant) {
        self.rates.give_back(self.number, self.rate.cost(count as u64), now);
    }
}
