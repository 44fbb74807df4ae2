//! `fault`.

#[cfg(test)]
mod tests;

use std::time::Duration;

use model::{FieldName, Issue, LocalResponse, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::bandwidth_limit::ByteRate;
use super::paced::Paced;
use super::settings::{DurationText, Settings};
use super::share::Share;
use super::{
    Compiling, EventCounter, FilterEntry, Flow, Found, Need, Pace, RequestStep, ResponseBodyStep, Steps, Turn,
};
use crate::units;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<FaultInjection>("fault", DOC);

const DOC: &str = r#"Delays, aborts or slows down a share of the requests, to test how clients behave when a service is slow or fails.

`delay` holds a request for `time`, plus a random part of `jitter`, before an endpoint is chosen. The delay counts towards `timeout` of the
route. The request ends if the client disconnects meanwhile.

`abort` answers instead of an endpoint, with `status` and a line of text. With `close: true`, the connection, or the stream of HTTP/2 and
HTTP/3, is closed without a response; the fault is `closed_by_filter`. `grpc_status` answers gRPC requests with this status, and others
with `status`. Without it, the gRPC status follows from `status`, for example 503 is `UNAVAILABLE`.

`bandwidth` sends the bodies of responses, and what WebSockets and other tunnels send to the client, no faster than `rate`, as
`bandwidth_limit` does for each stream.

`share` is a percentage with up to four decimals, 100% by default. A delayed request may be aborted, too: the shares are drawn
independently, and the delay comes first.

With `header`, only requests with this field qualify, so that a tester can select them. Its value may set how strong the fault is:

- for `delay`, a duration such as `250ms`, of at most `time`; any other value stands for `time`.
- for `abort`, a status from 400 to 599; any other value stands for `status`.
- for `bandwidth`, a rate such as `10kB/s`, of at most `rate`; any other value stands for `rate`.

The endpoint gets the field, too; remove it with `remove_request_header`. Anyone can send the field: restrict the filter with `when`.

`equipoise_filter_events_total` counts `delayed`, `aborted` and `slowed` requests. `explain` shows faults only if their share is 100%.

```yaml
filters:
  - fault: { delay: { time: 200ms, jitter: 100ms, share: 10% }, abort: { status: 503, share: 0.5% } }
  - fault: { delay: { time: 10s, header: x-fault-delay }, abort: { header: x-fault-abort } }
    when: { source: [10.0.0.0/8] }
  - fault: { bandwidth: { rate: 10kB/s, share: 5% } }
```
"#;

/// Longest delay: clients and memory are held meanwhile.
const DELAY_MAX: Duration = Duration::from_secs(3_600);

/// At least one of these.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FaultInjection {
    /// Holds requests before they are forwarded.
    delay: Option<Delay>,
    /// Answers requests instead of forwarding them.
    abort: Option<Abort>,
    /// Sends bodies of responses slowly.
    bandwidth: Option<Bandwidth>,
}

/// How long, and which requests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Delay {
    /// How long a request is held; at most 1h.
    time: DurationText,
    /// Upper bound of a random time that is added; none by default, at most 1h.
    jitter: Option<DurationText>,
    /// Share of the requests; 100% by default.
    #[schemars(regex(pattern = Share::PATTERN))]
    share: Option<String>,
    /// Only requests with this header field are delayed; its value may be a duration of at most `time`.
    header: Option<String>,
}

/// With what answer, and which requests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Abort {
    /// Status of the response, from 400 to 599; 503 by default.
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
    /// Status for gRPC requests, from 1 to 16.
    #[schemars(range(min = 1, max = 16))]
    grpc_status: Option<u8>,
    /// Close instead of answering.
    #[serde(default)]
    close: bool,
    /// Share of the requests; 100% by default.
    #[schemars(regex(pattern = Share::PATTERN))]
    share: Option<String>,
    /// Only requests with this header field are aborted; its value may be a status.
    header: Option<String>,
}

/// How fast, and which responses.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bandwidth {
    /// Bytes per second, such as `10kB/s`.
    rate: ByteRate,
    /// Share of the requests; 100% by default.
    #[schemars(regex(pattern = Share::PATTERN))]
    share: Option<String>,
    /// Only responses to requests with this header field are slowed down; its value may be a rate of at most `rate`.
    header: Option<String>,
}

impl Settings for FaultInjection {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.delay.is_none() && self.abort.is_none() && self.bandwidth.is_none() {
            let issue = Issue::at("", "none of `delay`, `abort` and `bandwidth` is set");
            return Err(issue.suggest("write `delay: { time: 200ms, share: 10% }` or `abort: { share: 5% }`"));
        }
        let delay = self.delay.map(Delay::compile).transpose().map_err(|issue| issue.below("delay"))?;
        let abort = self.abort.map(Abort::compile).transpose().map_err(|issue| issue.below("abort"))?;
        let bandwidth = self.bandwidth.map(|bandwidth| {
            let when = Chosen::compile(bandwidth.share, bandwidth.header).map_err(|issue| issue.below("bandwidth"))?;
            let slow = Slow { rate: bandwidth.rate, when, slowed: compiling.counter("slowed") };
            let step = Paced(move |head: &RequestHead, turn: &mut Turn<'_>| slow.pace(head, turn));
            Ok(Box::new(step) as Box<dyn ResponseBodyStep>)
        });
        let bandwidth = bandwidth.transpose()?;
        let (delayed, aborted) = (compiling.counter("delayed"), compiling.counter("aborted"));
        let has_requests = delay.is_some() || abort.is_some();
        let request =
            has_requests.then(|| Box::new(FaultStep { delay, abort, delayed, aborted }) as Box<dyn RequestStep>);
        Ok(Steps { request, response_body: bandwidth, ..Steps::default() })
    }
}

impl Delay {
    fn compile(self) -> Result<DelayRule, Issue> {
        let bounded = |time: DurationText, at: &str| {
            let is_bounded = time.0 <= DELAY_MAX;
            is_bounded.then_some(time.0).ok_or_else(|| Issue::at(at, "more than 1h").suggest("use at most `1h`"))
        };
        let jitter = self.jitter.map(|jitter| bounded(jitter, "jitter")).transpose()?.unwrap_or_default();
        Ok(DelayRule { time: bounded(self.time, "time")?, jitter, when: Chosen::compile(self.share, self.header)? })
    }
}

impl Abort {
    fn compile(self) -> Result<AbortRule, Issue> {
        if self.close {
            let unused = [("status", self.status.is_some()), ("grpc_status", self.grpc_status.is_some())];
            if let Some((key, _)) = unused.into_iter().find(|(_, is_given)| *is_given) {
                let issue = Issue::at(key, format!("`{key}` has no effect with `close`: no response is sent"));
                return Err(issue.suggest("leave one of them out"));
            }
        }
        let status = self.status.unwrap_or(503);
        if !(400..600).contains(&status) {
            return Err(Issue::at("status", format!("{status} is not an error status")).suggest("use 400 to 599"));
        }
        if let Some(grpc @ (0 | 17..)) = self.grpc_status {
            let issue = Issue::at("grpc_status", format!("{grpc} is not an error status of gRPC"));
            return Err(issue.suggest("use 1 to 16"));
        }
        let when = Chosen::compile(self.share, self.header)?;
        let content_type = FieldName::new("content-type").map_err(|message| Issue::at("", message))?;
        Ok(AbortRule { status, grpc_status: self.grpc_status, closes: self.close, when, content_type })
    }
}

/// Which requests get a fault.
struct Chosen {
    share: Share,
    header: Option<FieldName>,
}

impl Chosen {
    fn compile(share: Option<String>, header: Option<String>) -> Result<Self, Issue> {
        let share = Share::parse(share.as_deref()).map_err(|issue| issue.below("share"))?;
        let name = |text: String| FieldName::new(&text).map_err(|message| Issue::at("header", message));
        Ok(Self { share, header: header.map(name).transpose()? })
    }

    /// Whether this request gets it. A field of the request may say how strong it is.
    fn draws<'a>(&self, head: &'a RequestHead, turn: &mut Turn<'_>) -> Option<&'a str> {
        let asked = match &self.header {
            None => "",
            Some(name) => std::str::from_utf8(head.fields.get(name)?).unwrap_or_default().trim(),
        };
        self.share.draws(turn).then_some(asked)
    }
}

struct DelayRule {
    time: Duration,
    jitter: Duration,
    when: Chosen,
}

impl DelayRule {
    /// How long this request is delayed, if it is.
    fn draw(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Option<Duration> {
        let asked = self.when.draws(head, turn)?;
        let time = units::duration(asked).map_or(self.time, |asked| asked.min(self.time));
        let jitter = self.jitter.as_millis() as u64;
        let more = if jitter == 0 || turn.is_rehearsal { 0 } else { (turn.chance)() % (jitter + 1) };
        Some(time + Duration::from_millis(more))
    }
}

struct AbortRule {
    status: u16,
    grpc_status: Option<u8>,
    closes: bool,
    when: Chosen,
    content_type: FieldName,
}

impl AbortRule {
    #[cold]
    fn answer(&self, head: &RequestHead, asked: &str) -> Flow {
        if self.closes {
            return Flow::Close;
        }
        let content_type = head.fields.get(&self.content_type).unwrap_or_default();
        if let Some(grpc) = self.grpc_status.filter(|_| content_type.starts_with(b"application/grpc")) {
            let fields = [
                ("content-type", String::from_utf8_lossy(content_type).into_owned()),
                ("grpc-status", grpc.to_string()),
                ("grpc-message", "injected fault".to_owned()),
            ];
            let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
            return Flow::Respond(Box::new(LocalResponse { status: 200, fields, body: Vec::new() }));
        }
        let asked = asked.parse().ok().filter(|status| (400..600).contains(status));
        Flow::refuse(asked.unwrap_or(self.status), "injected fault")
    }
}

struct FaultStep {
    delay: Option<DelayRule>,
    abort: Option<AbortRule>,
    delayed: EventCounter,
    aborted: EventCounter,
}

impl RequestStep for FaultStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        match self.delay.as_ref().and_then(|delay| delay.draw(head, turn)) {
            Some(time) => {
                turn.count(&self.delayed);
                Flow::Need(Need::Until(turn.now + time))
            }
            None => self.abort(head, turn),
        }
    }

    fn resume(&self, head: &mut RequestHead, _: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        self.abort(head, turn)
    }
}

impl FaultStep {
    fn abort(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Flow {
        let Some(abort) = &self.abort else { return Flow::Continue };
        let Some(asked) = abort.when.draws(head, turn) else { return Flow::Continue };
        turn.count(&self.aborted);
        abort.answer(head, asked)
    }
}

/// Responses that are sent slowly.
struct Slow {
    rate: ByteRate,
    when: Chosen,
    slowed: EventCounter,
}

impl Slow {
    /// The pace of the response to this request, if it is slowed.
    fn pace(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Option<Box<dyn Pace>> {
        let asked = self.when.draws(head, turn)?;
        let rate = ByteRate::parse(asked).map_or(self.rate, |asked| asked.or_lower(self.rate));
        turn.count(&self.slowed);
        Some(rate.of_stream(0, turn.now))
    }
}
