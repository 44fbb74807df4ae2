//! `rate_limit`.

mod rate;
mod table;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, LazyLock};

use model::{FieldName, Issue, LocalResponse, RequestHead, ResponseHead};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::settings::Settings;
use super::{Compiling, EventCounter, FilterEntry, Flow, Note, RequestStep, ResponseStep, ResponseView, Steps, Turn};
use rate::{Limit, Verdict};
use table::Table;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RateLimit>("rate_limit", DOC);

const DOC: &str = r#"Limits the request rate of each client, and rejects requests beyond it.

Each key, by default the address of a client, has an allowance of `burst` requests, which refills at `rate`. A request without
allowance is answered with `status` (429 by default), a line of text and `retry-after`, in seconds, rounded up; it is not counted. The
algorithm is GCRA, equivalent to a token bucket: it has no windows, so no client can send twice the rate at the boundary of two. Counting is exact over all workers of one process. Processes and machines count on their own: with three instances
a client gets up to three times the rate.

`rate` is a count and a time: `10/s`, `300/m`, `1000/h`, or with any duration `5/10s`. `burst` is by default what the rate gives in one
second, at least 1. `burst: 1` spaces requests evenly; browsers load a page with many requests at once, so give them a burst of 20 or
more.

`key` says what is counted:

- `client`, the default: the address of the client, as the listener knows it (`forwarding`, `proxy_protocol`). IPv6 addresses count by
  their network of `ipv6_prefix` bits, 64 by default, because a client has at least that many addresses of its own.
- `{ header: NAME }`: the value of a header field, such as an API key. All requests without the field count as one key, and so do those
  that have it more than once. A client can change a header field: verify it before (`basic_auth`), or add a second limit by client.

List the filter several times for several limits, such as `20/s` and `1000/h`; a request must pass each of them, and a request that the
second rejects has been counted by the first. Each use of the filter in each route counts on its own.

The table has room for `keys_max` keys of 16 bytes each, 1.6 MB by default, and is allocated when the first requests are counted. Each
key has one of eight places. When all eight are taken, a new key replaces one that has its whole allowance again, or else the one that is
nearest to it. A flood of new keys replaces its own entries: a key that has used up its allowance stays limited while one of the
other seven has more left. Set `keys_max` to several times the number of clients that send requests while an allowance refills.

A configuration change keeps the counts, also when `rate` or `burst` change: no client waits longer than the new limit requires. Another
`key`, `ipv6_prefix` or `keys_max` starts from zero, as does a new process after a restart or an upgrade.

`equipoise_filter_events_total` counts rejected requests as `limited`.

`headers: true` adds `ratelimit-policy` and `ratelimit` (draft-ietf-httpapi-ratelimit-headers) to all responses of requests that were
counted: `q` is the burst, `w` the seconds in which it refills, `r` the remaining allowance, and `t` the seconds until the next request is allowed if nothing is left, or else until the allowance is full.

```yaml
filters:
  - rate_limit: { rate: 10/s, burst: 20 }
  - rate_limit: { rate: 1000/h, burst: 100, key: { header: x-api-key }, headers: true }
    when: { path: { prefix: /api } }
```
"#;

const KEYS_MAX: u32 = 10_000_000;

/// How often requests are let through.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    /// Requests that each key may send in the long run: `10/s`, `300/m`, `1000/h` or `5/10s`.
    #[schemars(extend("format" = model::filter::RATE_FORMAT))]
    rate: String,
    /// Requests that a key may send at once, from 1 to 1,000,000; by default what the rate gives in one second, at least 1.
    #[schemars(range(min = 1, max = 1_000_000))]
    burst: Option<u32>,
    /// What is counted: `client`, the default, or `{ header: NAME }`.
    #[serde(default)]
    key: KeySetting,
    /// Bits of an IPv6 address that identify a client, from 1 to 128; 64 by default.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: Option<u8>,
    /// Status of the response to rejected requests, from 400 to 599; 429 by default.
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
    /// Limit on remembered keys, from 1 to 10,000,000, with 16 bytes each; 100,000 by default.
    #[schemars(range(min = 1, max = 10_000_000))]
    keys_max: Option<u32>,
    /// Whether responses have the fields `ratelimit` and `ratelimit-policy` with the remaining allowance.
    #[serde(default)]
    headers: bool,
}

/// What is counted, as it is written.
#[derive(Default)]
enum KeySetting {
    #[default]
    Client,
    Header(String),
}

impl<'de> Deserialize<'de> for KeySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match &value {
            Value::String(text) if text == "client" => Ok(Self::Client),
            Value::Object(map) if map.len() == 1 => match map.get("header") {
                Some(Value::String(name)) => Ok(Self::Header(name.clone())),
                _ => Err(de::Error::custom(format!("{value} is not a key: write `client` or {{ header: NAME }}"))),
            },
            _ => Err(de::Error::custom(format!("{value} is not a key: write `client` or {{ header: NAME }}"))),
        }
    }
}

impl JsonSchema for KeySetting {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "enum": ["client"] },
            {
                "type": "object",
                "properties": { "header": {
                    "type": "string",
                    "description": "Name of the header field whose value is counted.",
                } },
                "required": ["header"],
                "additionalProperties": false,
            },
        ] })
    }
}

impl Settings for RateLimit {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let limit = Limit::compile(&self.rate, self.burst)?;
        let status = self.status.unwrap_or(429);
        if !(400..600).contains(&status) {
            return Err(Issue::at("status", format!("{status} is not an error")).suggest("use 400 to 599"));
        }
        let keys_max = self.keys_max.unwrap_or(100_000);
        if !(1..=KEYS_MAX).contains(&keys_max) {
            let message = format!("{keys_max} keys are not between 1 and {KEYS_MAX}");
            return Err(Issue::at("keys_max", message).suggest("leave it out for 100000"));
        }
        let key = Key::compile(self.key, self.ipv6_prefix)?;
        // What is counted by another key, or lies elsewhere in the table, is of no use to the next plan.
        let table = compiling.kept(&format!("{key:?} {keys_max}"), || Table::new(keys_max as usize));
        let headers = self.headers.then(|| Headers::new(compiling.note(), &self.rate, &limit));
        let note = headers.as_ref().map(|headers| headers.note);
        Ok(Steps {
            response: headers.map(|headers| Box::new(headers) as Box<dyn ResponseStep>),
            ..Steps::of_request(RateLimitStep {
                limit,
                key,
                table,
                status,
                note,
                limited: compiling.counter("limited"),
            })
        })
    }
}

/// What is counted, compiled.
#[derive(Debug)]
enum Key {
    /// The bits of an IPv6 address that count are set.
    Client {
        ipv6_mask: u128,
    },
    Header(FieldName),
}

impl Key {
    fn compile(setting: KeySetting, ipv6_prefix: Option<u8>) -> Result<Self, Issue> {
        match (setting, ipv6_prefix) {
            (KeySetting::Client, prefix) => match prefix.unwrap_or(64) {
                bits @ 1..=128 => Ok(Self::Client { ipv6_mask: u128::MAX << (128 - u32::from(bits)) }),
                bits => {
                    let issue = Issue::at("ipv6_prefix", format!("{bits} is not between 1 and 128"));
                    Err(issue.suggest("use 64, or 56 or 48 if clients get larger networks"))
                }
            },
            (KeySetting::Header(_), Some(_)) => {
                let issue = Issue::at("ipv6_prefix", "`ipv6_prefix` has no effect with `key: { header: … }`");
                Err(issue.suggest("leave it out"))
            }
            (KeySetting::Header(name), None) => {
                // In lower case: the same key, however a person spells it.
                let name = FieldName::new(&name.to_ascii_lowercase());
                name.map(Self::Header).map_err(|message| Issue::at("key/header", message))
            }
        }
    }

    /// Calls with the bytes that stand for the key of a request.
    fn with<T>(&self, head: &RequestHead, client: IpAddr, call: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Client { ipv6_mask } => match client.to_canonical() {
                IpAddr::V4(address) => call(&address.octets()),
                IpAddr::V6(address) => call(&Ipv6Addr::from_bits(address.to_bits() & ipv6_mask).octets()),
            },
            Self::Header(name) => {
                let mut values = head.fields.all(name);
                // Which of several values an endpoint reads is unknown: none of them may count on its own.
                match (values.next(), values.next()) {
                    (Some(value), None) => call(value),
                    _ => call(b""),
                }
            }
        }
    }
}

struct RateLimitStep {
    limit: Limit,
    key: Key,
    table: Arc<Table>,
    status: u16,
    /// Where the verdict is noted, if responses tell of it.
    note: Option<usize>,
    limited: EventCounter,
}

impl RequestStep for RateLimitStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let client = turn.facts.client;
        let verdict = self.key.with(head, client, |key| self.table.judge(key, &self.limit, turn));
        if let Some(note) = self.note {
            turn.notes.set(note, Headers::pack(&verdict));
        }
        if verdict.is_allowed {
            return Flow::Continue;
        }
        turn.count(&self.limited);
        self.reject(&verdict)
    }
}

impl RateLimitStep {
    #[cold]
    fn reject(&self, verdict: &Verdict) -> Flow {
        // RFC 6585 section 4 and RFC 9110 section 10.2.3.
        let fields = vec![
            ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
            ("retry-after".to_owned(), verdict.wait_seconds().to_string()),
        ];
        let body = b"too many requests\n".to_vec();
        Flow::Respond(Box::new(LocalResponse { status: self.status, fields, body }))
    }
}

static POLICY: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("ratelimit-policy").unwrap_or_else(|_| unreachable!("a constant token")));
static LIMIT: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("ratelimit").unwrap_or_else(|_| unreachable!("a constant token")));

/// Writes what is left. Both fields are lists (draft-ietf-httpapi-ratelimit-headers), so limits of other filters and of the endpoint stay
/// beside it.
struct Headers {
    note: usize,
    /// Name of the policy, in quotes.
    name: String,
    policy: String,
}

impl Headers {
    fn new(note: usize, rate: &str, limit: &Limit) -> Self {
        let name = format!("\"{rate}\"");
        let seconds = limit.refill().div_ceil(1_000_000_000);
        Self { note, policy: format!("{name};q={};w={seconds}", limit.burst), name }
    }

    /// What is left in the upper half, the seconds in the lower: a year has fewer than 2^32.
    fn pack(verdict: &Verdict) -> Note {
        Note::Number(u64::from(verdict.left) << 32 | verdict.wait_seconds())
    }
}

impl ResponseStep for Headers {
    fn apply(&self, head: &mut ResponseHead, _: &ResponseView<'_>, turn: &mut Turn<'_>) {
        // An earlier filter may have answered: then nothing was counted.
        let Note::Number(packed) = turn.notes.get(self.note) else { return };
        let (left, seconds) = (packed >> 32, packed as u32);
        head.fields.append(&POLICY, self.policy.as_bytes());
        head.fields.append_with(&LIMIT, |out| {
            out.extend_from_slice(self.name.as_bytes());
            // Writing to a vector cannot fail.
            let _ = std::io::Write::write_fmt(out, format_args!(";r={left};t={seconds}"));
        });
    }
}
