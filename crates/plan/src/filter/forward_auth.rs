//! `forward_auth`.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use model::fields::Span;
use model::filter::CLUSTER_FORMAT;
use model::{FieldName, Fields, Issue, Known, LocalResponse, RequestHead, Scheme, Version};
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::complete_names;
use super::guarded::Guarded;
use super::settings::{DurationText, Settings, SizeText};
use super::{
    Call, CalledCluster, Compiling, EventCounter, FilterEntry, Flow, Found, Need, Reply, RequestStep, Steps, Turn,
};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ForwardAuth>("forward_auth", DOC);

const DOC: &str = r#"Asks an authorization service about each request (external authorization).

The filter sends the head of the request to `cluster` as `GET path` and waits for the response:

- **2xx** lets the request pass. The fields in `response_headers` are copied from that response into the request, such as the name of
  the user.
- **Any other status below 500** is sent to the client with its fields and its body: a 401, a 403, or a redirect to a login page.
- **5xx, no response, or a response larger than 256 KiB** is a failure: the client gets a 503, or the request passes if `on_failure`
  is `allow`.

The service sees the header fields of the request, as the filters before left them, and the request itself in `x-forwarded-method`,
`x-forwarded-proto`, `x-forwarded-host`, `x-forwarded-uri` and `x-forwarded-for`, also in `x-original-uri` and `x-original-method`. A client's
own fields of these names are replaced. `content-length`, `range`, conditional fields such as `if-match`, and hop-by-hop fields are not sent. With
`body_max` the body is sent too, by `POST`; a request with a longer one is answered 413. Fields of a 2xx do not go to the client.

The proxy removes the fields in `response_headers` from each request that it asks about, so that a client cannot forge them. Where `when`
exempts requests, add `remove_request_header` for them.
The cluster is like any other: it has its own balancing, health checks, retries, timeouts and metrics. Its calls are not in the access
log. When the client disconnects, the call is cancelled. `equipoise_filter_events_total` counts requests that the service has `refused`,
and those for which it has `failed`, which pass with `on_failure: allow`.

```yaml
filters:
  - forward_auth: { cluster: auth, path: /verify, response_headers: [x-user, x-groups] }
```
"#;

/// The largest response of the service, in bytes of its body.
const RESPONSE_BYTES_MAX: usize = 256 << 10;

/// Whom to ask, and what goes there and back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForwardAuth {
    /// The cluster of the authorization service.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// Path of the calls; `/` by default. May have a query.
    #[serde(default = "root")]
    path: String,
    /// The `host` field of the calls; by default the name of the endpoint.
    host: Option<String>,
    /// Fields of the request that are sent to the service; all of them by default.
    request_headers: Option<Vec<String>>,
    /// Fields that a 2xx response of the service adds to the request.
    #[serde(default)]
    response_headers: Vec<String>,
    /// Send bodies of up to this size to the service, at most 16MiB; by default none is sent.
    body_max: Option<SizeText>,
    /// How long a call may take; 5s by default.
    #[serde(default = "five_seconds")]
    timeout: DurationText,
    /// Whether requests pass when the service fails: `deny` (by default) or `allow`.
    #[serde(default)]
    on_failure: OnFailure,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    #[default]
    Deny,
    Allow,
}

fn root() -> String {
    "/".to_owned()
}

fn five_seconds() -> DurationText {
    DurationText(Duration::from_secs(5))
}

impl Settings for ForwardAuth {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let is_target = |byte: u8| (b'!'..0x7f).contains(&byte) && !b"#{}".contains(&byte);
        if !self.path.starts_with('/') || !self.path.bytes().all(is_target) {
            let issue = Issue::at("path", format!("`{}` is not a path", self.path));
            return Err(
                issue.suggest("write one such as `/verify`, without variables: the request is in `x-forwarded-uri`")
            );
        }
        if let Some(host) = &self.host
            && (host.is_empty() || !host.bytes().all(|byte| (b'!'..0x7f).contains(&byte) && byte != b'/'))
        {
            return Err(
                Issue::at("host", format!("`{host}` is not a host")).suggest("write one such as `auth.internal`")
            );
        }
        let body_max = match self.body_max {
            None => None,
            Some(SizeText(size)) => Some(body_max(size)?),
        };
        let response_headers = complete_names("response_headers", &self.response_headers)?;
        Ok(Steps {
            guarded: response_headers.iter().cloned().map(Guarded::Name).collect(),
            ..Steps::of_request(ForwardAuthStep {
                cluster: compiling.cluster(&self.cluster, "cluster"),
                path: self.path,
                host: self.host,
                request_headers: self.request_headers.map(|list| request_names(&list)).transpose()?,
                response_headers,
                body_max,
                timeout: self.timeout.0,
                on_failure: self.on_failure,
                refused: compiling.counter("refused"),
                failed: compiling.counter("failed"),
            })
        })
    }
}

/// Returns the longest body that an authorization service may be sent, in bytes.
pub(super) fn body_max(size: u64) -> Result<u32, Issue> {
    let max = u32::try_from(size).ok().filter(|max| (1..=Need::BODY_BYTES_MAX).contains(max));
    max.ok_or_else(|| {
        let issue = Issue::at("body_max", format!("{size} bytes are not between 1 byte and 16MiB"));
        issue.suggest("write a size such as 64KiB, or leave `body_max` out")
    })
}

fn request_names(list: &[String]) -> Result<Vec<FieldName>, Issue> {
    if let Some(place) = list.iter().position(|name| name.eq_ignore_ascii_case("host")) {
        let issue = Issue::at(format!("request_headers/{place}"), "calls have their own `host`");
        return Err(issue.suggest("the client's is in `x-forwarded-host`; `host` sets that of the calls"));
    }
    complete_names("request_headers", list)
}

struct ForwardAuthStep {
    cluster: CalledCluster,
    path: String,
    host: Option<String>,
    /// `None`: all of them.
    request_headers: Option<Vec<FieldName>>,
    response_headers: Vec<FieldName>,
    body_max: Option<u32>,
    timeout: Duration,
    on_failure: OnFailure,
    /// Requests that the service has refused, and those for which it failed.
    refused: EventCounter,
    failed: EventCounter,
}

/// The fields in which the service gets the request itself.
struct Told {
    method: FieldName,
    proto: FieldName,
    host: FieldName,
    uri: FieldName,
    client: FieldName,
    /// The same by the names that nginx users give them.
    original_uri: FieldName,
    original_method: FieldName,
    /// A client's own is not passed on: it may be trusted there.
    original_url: FieldName,
}

static TOLD: LazyLock<Told> = LazyLock::new(|| {
    let name = |text| FieldName::new(text).unwrap_or_else(|_| unreachable!("a constant token"));
    Told {
        method: name("x-forwarded-method"),
        proto: name("x-forwarded-proto"),
        host: name("x-forwarded-host"),
        uri: name("x-forwarded-uri"),
        client: name("x-forwarded-for"),
        original_uri: name("x-original-uri"),
        original_method: name("x-original-method"),
        original_url: name("x-original-url"),
    }
});

static HOST: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("host").unwrap_or_else(|_| unreachable!("a constant token")));

impl RequestStep for ForwardAuthStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        match self.body_max {
            Some(max) => Flow::Need(Need::Body { max }),
            None => self.call(head, &Arc::from([]), turn),
        }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        match found {
            Found::Body(Ok(body)) => self.call(head, body, turn),
            Found::Body(Err(_)) => Flow::refuse(413, "the request's body is too large to be authorized"),
            Found::Call(Ok(reply)) => self.judge(head, *reply, turn),
            _ => self.fail(head, turn),
        }
    }
}

impl ForwardAuthStep {
    fn call(&self, head: &RequestHead, body: &Arc<[u8]>, turn: &Turn<'_>) -> Flow {
        Flow::Need(Need::Call(Box::new(Call {
            cluster: self.cluster,
            head: self.head_of_call(head, !body.is_empty(), turn),
            body: Arc::clone(body),
            timeout: self.timeout,
            response_bytes_max: RESPONSE_BYTES_MAX,
        })))
    }

    fn head_of_call(&self, head: &RequestHead, has_body: bool, turn: &Turn<'_>) -> RequestHead {
        let mut call = RequestHead::default();
        let mut load = |text: &str| {
            let start = call.fields.load(text.as_bytes());
            Span::new(start, start + text.len())
        };
        let (method, target) = (load(if has_body { "POST" } else { "GET" }), load(&self.path));
        call.set_line(method, target, Version::Http11);
        let is_wanted = |name: &[u8]| match &self.request_headers {
            None => true,
            Some(list) => list.iter().any(|wanted| name.eq_ignore_ascii_case(wanted.as_str().as_bytes())),
        };
        for field in head.fields.iter().filter(|field| goes_along(field.known, field.name) && is_wanted(field.name)) {
            let name = std::str::from_utf8(field.name).ok().and_then(|name| FieldName::new(name).ok());
            if let Some(name) = name {
                call.fields.append(&name, field.value);
            }
        }
        if let Some(host) = &self.host {
            call.fields.set(&HOST, host.as_bytes());
        }
        let fields = &mut call.fields;
        fields.set_alone(&TOLD.method, head.method_bytes());
        fields.set_alone(&TOLD.proto, if turn.facts.scheme == Scheme::Https { b"https" } else { b"http" });
        fields.set_alone(&TOLD.host, head.authority());
        let mut uri = head.path().to_vec();
        if let Some(query) = head.query() {
            uri.push(b'?');
            uri.extend_from_slice(query);
        }
        fields.set_alone(&TOLD.uri, &uri);
        fields.set_alone(&TOLD.original_uri, &uri);
        fields.set_alone(&TOLD.original_method, head.method_bytes());
        fields.remove_alike(&TOLD.original_url);
        fields.set_alone(&TOLD.client, turn.facts.client.to_string().as_bytes());
        call
    }

    fn judge(&self, head: &mut RequestHead, reply: Reply, turn: &mut Turn<'_>) -> Flow {
        match reply.head.status {
            200..=299 => {
                turn.notes.set_verified();
                self.remove_forged(head);
                for name in &self.response_headers {
                    reply.head.fields.all(name).for_each(|value| head.fields.append(name, value));
                }
                Flow::Continue
            }
            300..=499 => {
                turn.count(&self.refused);
                let (status, fields) = (reply.head.status, passed_on(&reply.head.fields));
                Flow::Respond(Box::new(LocalResponse { status, fields, body: reply.body }))
            }
            _ => self.fail(head, turn),
        }
    }

    /// The service has seen the client's own fields, which may be what it goes by; the endpoint does not.
    fn remove_forged(&self, head: &mut RequestHead) {
        for name in &self.response_headers {
            head.fields.remove_alike(name);
        }
    }

    fn fail(&self, head: &mut RequestHead, turn: &Turn<'_>) -> Flow {
        turn.count(&self.failed);
        match self.on_failure {
            OnFailure::Allow => {
                self.remove_forged(head);
                Flow::Continue
            }
            OnFailure::Deny => Flow::refuse(503, "the authorization service is not available"),
        }
    }
}

/// Whether a field of the request is of use for the service. What asks for a part of a resource, or for it only if it has changed,
/// would be answered by something else than a verdict.
fn goes_along(known: Known, name: &[u8]) -> bool {
    const OUT: [&[u8]; 6] =
        [b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"];
    let is_of_body =
        matches!(known, Known::ContentLength | Known::TransferEncoding | Known::Trailer | Known::Expect | Known::Host);
    !is_of_body && !known.is_hop_by_hop() && !OUT.iter().any(|out| name.eq_ignore_ascii_case(out))
}

/// The fields of a refusal that the client gets.
fn passed_on(fields: &Fields) -> Vec<(String, String)> {
    let goes = |known: Known| {
        !known.is_hop_by_hop()
            && !matches!(known, Known::ContentLength | Known::TransferEncoding | Known::Trailer | Known::Date)
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let passed = fields.iter().filter(|field| goes(field.known));
    passed.filter_map(|field| Some((text(field.name)?, text(field.value)?))).collect()
}

#[cfg(test)]
mod tests;
