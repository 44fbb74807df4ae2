//! `buffer`.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use model::limits::{BUFFER_BYTES, HELD_BODY_TIME};
use model::{Issue, Known, RequestHead, ResponseHead, Version};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{DurationText, Settings, SizeText};
use super::{
    Compiling, EventCounter, Extent, FilterEntry, Flow, Found, Hold, HoldCounts, Need, Rank, RequestStep,
    ResponseBodyStep, ResponseSource, ResponseView, Spool, Stage, Steps, Turn, Usage,
};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Buffer>("buffer", DOC);

const DOC: &str = r#"Buffers bodies, so that slow clients do not hold endpoints.

`request` reads the whole body of a request before an endpoint is chosen. The body is kept in memory, up to `request`, at most 16MiB. A longer
one goes to the spool if there is one, and is answered with 413 if not. A client that sends `expect: 100-continue` gets the interim response
first. The time to read the body is bounded by `request_timeout` (10m), and the time between two reads by `timeouts: { stream }` of the listener.
A body that is read whole can be sent again: retries and hedged requests apply to it whatever its size.

`response` reads the body of a response from the endpoint ahead of the client: up to `response` of each body, and `memory_max` (64MiB) of all
bodies together. A client that reads fast gets every byte at once; a slow one gets the rest after the endpoint is free again. What memory has
no room for goes to the spool. Without one, the endpoint is read at the pace of the client from there on. Responses of the proxy itself are not
buffered.

`spool` is a directory for bodies that memory has no room for. Files have no name and the mode 0600; they are gone with the exchange, also after
a crash. Each has up to `body_max` (1GiB), all together `total_max` (8GiB). A response beyond these bounds is streamed; a request beyond
`body_max` gets 413, and one beyond `total_max` 503. If a file cannot be written, because the disk is full or the directory is missing, a
request gets 503. A response is streamed, or cut short with `on_failure: end`. Threads beside the workers read and write files.

As many bodies of requests are held in memory as requests are in progress: bound these with `connections_max` of the listener and limits on
streams. A WebSocket over HTTP/2 or HTTP/3, and an upgrade without a body, pass as they are. An upgrade with a body is forwarded as an
ordinary request, without `upgrade`.

`equipoise_filter_events_total` counts requests that were `rejected` for their length, bodies that were `spooled`, and `spool_failed`.

```yaml
filters:
  - buffer: { request: 1MiB }
    when: { not: { path: { prefix: /upload } } }
  - buffer: { response: 256KiB, spool: { directory: /var/spool/equipoise } }
    when: { path: { prefix: /download } }
```
"#;

const MEMORY_MAX: u64 = 64 << 20;
const FILE_MAX: u64 = 1 << 30;
const FILES_MAX: u64 = 8 << 30;
/// The largest bound on a file: an offset must fit.
const FILE_LARGEST: u64 = 1 << 50;
/// The largest `response`.
const RESPONSE_MAX: u64 = 64 << 20;
/// The least `response`: what is read at once.
const RESPONSE_MIN: u64 = BUFFER_BYTES as u64;
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Which bodies are buffered, and where.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Buffer {
    /// Bytes of a request's body that are kept in memory, up to 16MiB. Bodies of requests are streamed by default.
    request: Option<SizeText>,
    /// Time limit to read the body of a request, at most 24h; 10m by default.
    request_timeout: Option<DurationText>,
    /// Bytes of a response's body that are kept in memory, from 64KiB to 64MiB. Bodies of responses are streamed by default.
    response: Option<SizeText>,
    /// Bytes of all responses of this filter in memory, over all workers; 64MiB by default.
    memory_max: Option<SizeText>,
    /// Where bytes go that memory has no room for; by default nowhere.
    spool: Option<SpoolSettings>,
}

/// A directory for bodies that memory has no room for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SpoolSettings {
    /// The absolute path of an existing directory that the process may write to.
    #[schemars(regex(pattern = "^/"))]
    directory: String,
    /// Bytes of one file; 1GiB by default.
    body_max: Option<SizeText>,
    /// Bytes of all files of this filter, over all workers; 8GiB by default.
    total_max: Option<SizeText>,
    /// What happens to a response whose file cannot be written: `stream`, the default, or `end`.
    #[serde(default)]
    on_failure: OnFailure,
}

/// What happens to a response whose file cannot be written.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    /// It is streamed at the pace of the client.
    #[default]
    Stream,
    /// It is cut short.
    End,
}

impl Settings for Buffer {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.request.is_none() && self.response.is_none() {
            let issue = Issue::at("", "neither `request` nor `response` is set");
            return Err(issue.suggest("write `request: 1MiB` or `response: 256KiB`"));
        }
        let unused = [
            ("request_timeout", self.request_timeout.is_some() && self.request.is_none(), "request"),
            ("memory_max", self.memory_max.is_some() && self.response.is_none(), "response"),
        ];
        if let Some((key, _, needed)) = unused.into_iter().find(|(_, is_unused, _)| *is_unused) {
            return Err(Issue::at(key, format!("`{key}` has no effect without `{needed}`")).suggest("leave it out"));
        }
        let within = self.request_timeout.map_or(HELD_BODY_TIME, |time| time.0);
        if within > TIMEOUT_MAX {
            return Err(Issue::at("request_timeout", "more than 24h").suggest("use at most `24h`"));
        }
        let spool = self.spool.map(SpoolSettings::compile).transpose().map_err(|issue| issue.below("spool"))?;
        let hold = Hold {
            memory: 0,
            memory_max: self.memory_max.map_or(MEMORY_MAX, |size| size.0),
            within,
            spool,
            usage: compiling.kept("usage", Usage::default),
            counts: HoldCounts { spooled: compiling.counter("spooled"), failed: compiling.counter("spool_failed") },
        };
        let rejected = compiling.counter("rejected");
        let request = self.request.map(|size| Ok(BufferRequest { hold: of_requests(&hold, size)?, rejected }));
        let response = self.response.map(|size| Ok(BufferResponse(of_responses(&hold, size)?)));
        Ok(Steps {
            request: request.transpose()?.map(|step| Box::new(step) as Box<_>),
            response_body: response.transpose()?.map(|step| Box::new(step) as Box<_>),
            ..Steps::default()
        })
    }
}

fn of_requests(hold: &Hold, SizeText(size): SizeText) -> Result<Arc<Hold>, Issue> {
    if !(1..=Need::BODY_BYTES_MAX.into()).contains(&size) {
        let issue = Issue::at("request", format!("{size} bytes are not from 1 byte to 16MiB"));
        return Err(issue.suggest("write a size such as 1MiB"));
    }
    Ok(Arc::new(with_memory(hold, size)))
}

fn of_responses(hold: &Hold, SizeText(size): SizeText) -> Result<Arc<Hold>, Issue> {
    if !(RESPONSE_MIN..=RESPONSE_MAX).contains(&size) {
        let issue = Issue::at("response", format!("{size} bytes are not from 64KiB to 64MiB"));
        return Err(issue.suggest("write a size such as 256KiB"));
    }
    if hold.memory_max < size {
        let issue = Issue::at("memory_max", "less than `response`, which one body may take");
        return Err(issue.suggest("raise it, or lower `response`"));
    }
    Ok(Arc::new(with_memory(hold, size)))
}

fn with_memory(hold: &Hold, memory: u64) -> Hold {
    let Hold { memory_max, within, spool, usage, counts, .. } = hold;
    Hold {
        memory,
        memory_max: *memory_max,
        within: *within,
        spool: spool.clone(),
        usage: Arc::clone(usage),
        counts: counts.clone(),
    }
}

impl SpoolSettings {
    fn compile(self) -> Result<Spool, Issue> {
        if !self.directory.starts_with('/') || self.directory.contains('\0') {
            let issue = Issue::at("directory", format!("`{}` is not an absolute path", self.directory));
            return Err(issue.suggest("write one such as `/var/spool/equipoise`"));
        }
        let body_max = self.body_max.map_or(FILE_MAX, |size| size.0);
        let total_max = self.total_max.map_or(FILES_MAX.max(body_max), |size| size.0);
        if !(RESPONSE_MIN..=FILE_LARGEST).contains(&body_max) {
            let issue = Issue::at("body_max", format!("{body_max} bytes are not from 64KiB to 1,048,576GiB"));
            return Err(issue.suggest("write a size such as 1GiB"));
        }
        if total_max < body_max {
            let issue = Issue::at("total_max", "less than `body_max`, which one file may take");
            return Err(issue.suggest("raise it, or lower `body_max`"));
        }
        let ends_on_failure = self.on_failure == OnFailure::End;
        Ok(Spool { directory: self.directory.into(), body_max, total_max, ends_on_failure })
    }
}

struct BufferRequest {
    hold: Arc<Hold>,
    rejected: EventCounter,
}

fn length(head: &RequestHead) -> Option<u64> {
    std::str::from_utf8(head.fields.get_known(Known::ContentLength)?).ok()?.parse().ok()
}

impl RequestStep for BufferRequest {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let is_coded = head.version >= Version::Http2 || head.fields.has_known(Known::TransferEncoding);
        match length(head) {
            None | Some(0) if !is_coded => Flow::Continue,
            Some(length) if length > self.hold.request_max() => {
                turn.count(&self.rejected);
                Flow::refuse(413, "the body is too long")
            }
            _ => Flow::Need(Need::Hold(Arc::clone(&self.hold))),
        }
    }

    /// What is longer without having said so has ended the exchange, with 413 too.
    fn resume(&self, _: &mut RequestHead, _: Found<'_>, _: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }
}

struct BufferResponse(Arc<Hold>);

impl ResponseBodyStep for BufferResponse {
    fn rank(&self) -> Rank {
        Rank::Account
    }

    fn begin(
        &self,
        _: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        _: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        let has_body = !matches!(extent, Extent::Absent | Extent::Known(0));
        let is_held = has_body && view.source == ResponseSource::Endpoint;
        is_held.then(|| (Stage::Hold(Arc::clone(&self.0)), extent))
    }
}
