//! `rate_limit_service`.

use std::time::Duration;

use model::filter::CLUSTER_FORMAT;
use model::protobuf::Writer;
use model::{Issue, LocalResponse, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use self::answer::{Answer, Shows};
use super::field_changes::LeftChanges;
use super::grpc_call::GrpcMethod;
use super::over::{Excess, Over, too_many};
use super::settings::{DurationText, Ordered, Settings};
use super::statuses::LimitStatus;
use super::template::Template;
use super::variables::Stage;
use super::{Compiling, EventCounter, FilterEntry, Flow, Found, Note, RequestStep, ResponseStep, Steps, Turn};

mod answer;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<RateLimitService>("rate_limit_service", DOC);

const DOC: &str = r#"Asks a rate limit service over gRPC about each request, by the protocol of Envoy's global rate limit.

The filter calls `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit` at `cluster`, which needs `http_versions: [h2]` (or `h3`), and
waits for the answer. Services made for Envoy work unchanged, such as its own, `envoyproxy/ratelimit`. For limits without a service of its
own use `rate_limit`, which also counts in a Redis that instances share.

`descriptors` say what is counted. Each is a list of keys with their values, in the order in which the service has them configured. A value
may hold variables. If one of its values is empty, such as that of a header field that the request does not have, the descriptor is left
out; without any descriptor the service is not asked. In terms of Envoy's actions:

| Envoy | here |
|---|---|
| `remote_address: {}` | `remote_address: "{client_ip}"` |
| `request_headers: { header_name: x-api-key, descriptor_key: key }` | `key: "{request_header:x-api-key}"` |
| `generic_key: { descriptor_value: checkout }` | `generic_key: checkout` |
| `destination_cluster: {}` | `destination_cluster: NAME` |

- **Within the limit**, the request passes, with the request and response header fields that the service adds.
- **Beyond it**, `over` decides as for `rate_limit`: `refuse` (the default) answers with `status`, 429 by default, the fields and body that the
  service gives, and `retry-after`, if it says when the limit is reset. `close`, `{ tarpit: 10s }`, and `mark` for a dry run work too.
- **Without an answer** in `timeout`, requests pass (`when_away: open`, the default), or are answered with 503 (`closed`).

`headers: true` adds `ratelimit-policy` and `ratelimit` to responses, for the limit of which the least is left, and `x_ratelimit_headers: true`
adds `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`, as Envoy has them.

`equipoise_filter_events_total` counts requests beyond the limit as `limited`, or `marked` in a dry run, and those that the service did not
judge as `away`. When the client disconnects, the call is cancelled.

```yaml
filters:
  - rate_limit_service:
      cluster: limits
      domain: shop
      descriptors:
        - { remote_address: "{client_ip}" }
        - { generic_key: checkout, key: "{request_header:x-api-key}" }
```
"#;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const DESCRIPTORS_MAX: usize = 16;
const ENTRIES_MAX: usize = 16;
/// Bytes of a value; what is longer is cut, which makes such values one.
const VALUE_BYTES_MAX: usize = 1024;
const HITS_MAX: u32 = 1_000_000;

/// Whom to ask, and about what.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateLimitService {
    /// The cluster of the rate limit service, which speaks HTTP/2 or HTTP/3.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// The `:authority` of the calls; by default the name of the endpoint.
    host: Option<String>,
    /// The domain of the limits, as the service has it configured.
    #[schemars(length(min = 1, max = 128))]
    domain: String,
    /// What is counted: up to 16 descriptors, each of up to 16 keys with their values. Values may hold variables.
    #[schemars(length(min = 1, max = 16))]
    descriptors: Vec<Ordered<String>>,
    /// What a request counts as (`hits_addend`), from 1 to 1,000,000; 1 by default.
    #[schemars(range(min = 1, max = 1_000_000))]
    hits: Option<u32>,
    /// How long a request waits for the service, up to 60s; 20ms by default.
    timeout: Option<DurationText>,
    /// What becomes of requests that the service does not judge: `open` (by default) lets them pass, `closed` rejects them with 503.
    #[serde(default)]
    when_away: WhenAway,
    /// What becomes of requests beyond the limit: `refuse` (the default), `close`, `mark` or `{ tarpit: TIME }`.
    #[serde(default)]
    over: Over,
    /// Status of the response to rejected requests, from 400 to 599; 429 by default.
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
    /// Whether responses have the fields `ratelimit` and `ratelimit-policy` with the remaining allowance.
    #[serde(default)]
    headers: bool,
    /// Whether responses have the fields `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`.
    #[serde(default)]
    x_ratelimit_headers: bool,
}

/// What becomes of requests that the service does not judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum WhenAway {
    /// They pass.
    #[default]
    Open,
    /// They are rejected with 503.
    Closed,
}

impl Settings for RateLimitService {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.domain.is_empty() || self.domain.len() > 128 {
            let message = format!("a domain has 1 to 128 bytes, not {}", self.domain.len());
            return Err(Issue::at("domain", message).suggest("write the domain of the service's configuration"));
        }
        if let Over::Delay(_) = self.over {
            let issue =
                Issue::at("over", "the service does not say when it is a request's turn, so none can be delayed");
            return Err(issue.suggest("use refuse, close, mark or { tarpit: 10s }"));
        }
        let hits = self.hits.unwrap_or(1);
        if !(1..=HITS_MAX).contains(&hits) {
            let issue = Issue::at("hits", format!("{hits} is not between 1 and {HITS_MAX}"));
            return Err(issue.suggest("leave it out for 1"));
        }
        let timeout = self.timeout.map_or(Duration::from_millis(20), |timeout| timeout.0);
        let note = compiling.note();
        let step = RateLimitCallStep {
            method: GrpcMethod::compile(SHOULD_RATE_LIMIT, &self.cluster, self.host, timeout, compiling)?,
            domain: self.domain,
            descriptors: descriptors(self.descriptors)?,
            hits,
            when_away: self.when_away,
            excess: Excess::compile(self.over, self.status, compiling)?,
            shows: Shows { draft: self.headers, with_x: self.x_ratelimit_headers },
            note,
            wait: compiling.note(),
            away: compiling.counter("away"),
        };
        let response: Box<dyn ResponseStep> = Box::new(LeftChanges(note));
        Ok(Steps { response: Some(response), ..Steps::of_request(step) })
    }
}

/// Keys with their values.
type Descriptor = Box<[(String, Template)]>;

fn descriptors(written: Vec<Ordered<String>>) -> Result<Vec<Descriptor>, Issue> {
    let out_of = |path: &str, what: &str, count: usize, max: usize| {
        let issue = Issue::at(path, format!("there are {count} {what}, and 1 to {max} are possible"));
        issue.suggest(format!("list up to {max}"))
    };
    if !(1..=DESCRIPTORS_MAX).contains(&written.len()) {
        return Err(out_of("descriptors", "descriptors", written.len(), DESCRIPTORS_MAX));
    }
    let one = |(place, Ordered(entries)): (usize, Ordered<String>)| {
        let path = format!("descriptors/{place}");
        if !(1..=ENTRIES_MAX).contains(&entries.len()) {
            return Err(out_of(&path, "keys", entries.len(), ENTRIES_MAX));
        }
        let entry = |(key, value): (String, String)| {
            let at = format!("{path}/{key}");
            if key.is_empty() || key.len() > VALUE_BYTES_MAX {
                let message = format!("a key has 1 to {VALUE_BYTES_MAX} bytes, not {}", key.len());
                return Err(Issue::at(&path, message));
            }
            let value = Template::compile(&value, Stage::Request).map_err(|issue| issue.below(&at))?;
            if value.as_literal() == Some("") {
                let issue = Issue::at(at, "the value is empty, so the descriptor would never be sent");
                return Err(issue.suggest("write a text, with variables such as `{client_ip}`"));
            }
            Ok((key, value))
        };
        entries.into_iter().map(entry).collect()
    };
    written.into_iter().enumerate().map(one).collect()
}

struct RateLimitCallStep {
    method: GrpcMethod,
    domain: String,
    descriptors: Vec<Descriptor>,
    hits: u32,
    when_away: WhenAway,
    excess: Excess,
    shows: Shows,
    /// Where changes of the response are left.
    note: usize,
    /// Where the wait of a request that is held back is noted, in seconds.
    wait: usize,
    /// Requests that the service did not judge.
    away: EventCounter,
}

impl RequestStep for RateLimitCallStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let mut count = 0;
        let need = self.method.call(|message| count = self.write(message, head, turn));
        if count == 0 { Flow::Continue } else { Flow::Need(need) }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        match found {
            Found::Call(Ok(reply)) => match Answer::read(&reply.body) {
                Ok(answer) => self.decide(answer, head, turn),
                Err(_) => self.without(turn),
            },
            Found::Now => {
                let wait = if let Note::Number(seconds) = turn.notes.get(self.wait) { Some(seconds) } else { None };
                self.excess.resume(|status| too_many(status, wait))
            }
            _ => self.without(turn),
        }
    }
}

impl RateLimitCallStep {
    /// Writes the question; returns the number of descriptors.
    fn write(&self, out: &mut Writer, head: &RequestHead, turn: &mut Turn<'_>) -> usize {
        out.text(1, self.domain.as_bytes());
        let mut count = 0;
        for descriptor in &self.descriptors {
            let mut written = Writer::default();
            let is_whole = descriptor.iter().all(|(key, value)| {
                let (values, scratch) = turn.values(head);
                scratch.clear();
                value.write(&values, scratch);
                scratch.truncate(VALUE_BYTES_MAX);
                written.message(1, |entry| {
                    entry.text(1, key.as_bytes());
                    entry.text(2, scratch);
                });
                !scratch.is_empty()
            });
            if is_whole {
                out.bytes(2, &written.into_bytes());
                count += 1;
            }
        }
        out.number(3, self.hits.into());
        count
    }

    fn decide(&self, answer: Answer, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        answer.request.apply_to_request(head);
        let mut response = answer.response;
        if self.shows.draft || self.shows.with_x {
            answer::show(&answer.statuses, self.shows, &self.domain, &mut response);
        }
        LeftChanges::leave(self.note, response, turn);
        if !answer.is_over {
            turn.notes.raise_limit(LimitStatus::Passed);
            return Flow::Continue;
        }
        let wait = answer.statuses.iter().filter(|status| status.is_over).filter_map(|status| status.reset).max();
        if let Some(seconds) = wait {
            turn.notes.set(self.wait, Note::Number(seconds));
        }
        self.excess.flow(turn, |status| match answer.body {
            body if body.is_empty() => too_many(status, wait),
            body => LocalResponse { body, ..too_many(status, wait) },
        })
    }

    /// Goes on where the service does not answer.
    #[cold]
    fn without(&self, turn: &Turn<'_>) -> Flow {
        turn.count(&self.away);
        match self.when_away {
            WhenAway::Open => Flow::Continue,
            WhenAway::Closed => Flow::refuse(503, "the rate limit is not available"),
        }
    }
}

#[cfg(test)]
mod tests;
