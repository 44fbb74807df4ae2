//! `ext_authz`.

use std::time::Duration;

use model::filter::CLUSTER_FORMAT;
use model::{FieldName, Issue, LocalResponse, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use self::metadata::Unread;
use self::question::{Question, SentBody};
use self::verdict::{Allowed, Verdict};
use super::field_changes::LeftChanges;
use super::fields::complete_names;
use super::forward_auth;
use super::grpc_call::GrpcMethod;
use super::guarded::Guarded;
use super::settings::{DurationText, Ordered, Settings, SizeText};
use super::template::Template;
use super::variables::Stage;
use super::{
    Beginning, Compiling, EventCounter, FilterEntry, Flow, Found, Need, RequestStep, ResponseStep, Steps, Turn,
};

mod metadata;
mod question;
mod verdict;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ExtAuthz>("ext_authz", DOC);

const DOC: &str = r#"Asks an authorization service over gRPC about each request, by the protocol of Envoy's `ext_authz`.

The filter calls `envoy.service.auth.v3.Authorization/Check` at `cluster`, which needs `http_versions: [h2]` (or `h3`), and waits for the
answer. It is the protocol of services such as Open Policy Agent's plugin for Envoy.

- **Status 0** (OK) lets the request pass, with the changes of `ok_response`: header fields to set, append and remove, query parameters to
  set and remove, and fields to add to the response.
- **Any other status in the answer** denies the request: the client gets status, fields and body of `denied_response`, or 403.
- **No answer** is a failure: the service cannot be reached, exceeds `timeout`, ends the call with a gRPC status that is not 0, or sends
  something that is not an answer or larger than 256 KiB. The client gets `failure_status`, or the request passes if `on_failure` is `allow`.

The service gets the addresses of both ends, the name in the client's certificate (its first URI, DNS name, or its subject), the time, and
of the request its id, method, path with query, host, scheme, version, size, and header fields in lower case, with `:method`, `:path`,
`:authority` and `:scheme` among them. Fields are as the filters before left them; those of one name are joined by commas. Hop-by-hop fields
are not sent. With `body_max` it also gets the body; a request with a longer one is answered 413. With `allow_partial: true` the service gets the
first `body_max` bytes of a longer body. The call does not wait for more, and all of the body is streamed to the endpoint afterwards, without
retries once it has begun. Among the fields of the request, `x-envoy-auth-partial-body` tells the service whether the body may be longer
(`true`) or is whole (`false`). What follows those bytes is not authorized: the service must not decide by what it does not see.

An `ok_response` must not touch `host`, pseudo-header fields, hop-by-hop fields and those of framing, and no value may have a line break:
such an answer is a failure. At most 64 fields of 32 KiB together may change. A field that is set replaces what the client sent by
the same name. Fields that the service does not set in each answer belong into `trusted_headers`: the proxy removes the client's own
once the service has seen them, also from trailers. Where `when` exempts requests, add `remove_request_header` for them.

Calls are not in the access log. When the client disconnects, the call is cancelled. The service's `dynamic_metadata` is
`ext_authz.metadata["NAME"]` in expressions and `{ext_authz:NAME}` in texts, also for access logs. It has up to 1,024 values in 16 levels, and
64 KiB of names and texts: larger ones are left out as a whole, and counted as `metadata_too_large`.
`equipoise_filter_events_total` counts requests that the service has `refused`, and those for which it has `failed`, which pass with
`on_failure: allow`.

```yaml
filters:
  - ext_authz: { cluster: auth, trusted_headers: [x-user], extensions: { route: shop } }
```
"#;

const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// Whom to ask, and what goes there and back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExtAuthz {
    /// The cluster of the authorization service, which speaks HTTP/2 or HTTP/3.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// The `:authority` of the calls; by default the name of the endpoint.
    host: Option<String>,
    /// How long a call may take, up to 60s; 200ms by default.
    timeout: Option<DurationText>,
    /// Whether requests pass when the service fails: `deny` (by default) or `allow`.
    #[serde(default)]
    on_failure: OnFailure,
    /// Status of the response when the service fails, from 400 to 599; 403 by default.
    #[schemars(range(min = 400, max = 599))]
    failure_status: Option<u16>,
    /// Header fields of the request that are sent to the service; all of them by default.
    request_headers: Option<Vec<String>>,
    /// Header fields of the request that only the service sets: the client's own are removed.
    #[serde(default)]
    trusted_headers: Vec<String>,
    /// Send bodies of up to this size to the service, at most 16MiB; by default none is sent.
    body_max: Option<SizeText>,
    /// Send the first `body_max` bytes of a longer body, instead of the answer 413.
    #[serde(default)]
    allow_partial: bool,
    /// Send the body as bytes (`raw_body`), for bodies that are not text in UTF-8.
    #[serde(default)]
    body_as_bytes: bool,
    /// Values by their names that the service gets as `context_extensions`. May hold variables.
    extensions: Option<Ordered<String>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    #[default]
    Deny,
    Allow,
}

impl Settings for ExtAuthz {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let failure_status = self.failure_status.unwrap_or(403);
        if !(400..600).contains(&failure_status) {
            return Err(
                Issue::at("failure_status", format!("{failure_status} is not an error")).suggest("use 400 to 599")
            );
        }
        let body_max = self.body_max.map(|SizeText(size)| forward_auth::body_max(size)).transpose()?;
        if self.body_as_bytes && body_max.is_none() {
            return Err(Issue::at("body_as_bytes", "no body is sent").suggest("add `body_max`, or leave it out"));
        }
        if self.allow_partial && body_max.is_none() {
            return Err(Issue::at("allow_partial", "no body is sent").suggest("add `body_max`, or leave it out"));
        }
        let timeout = self.timeout.map_or(Duration::from_millis(200), |timeout| timeout.0);
        let extensions = self.extensions.map_or(Vec::new(), |written| written.0).into_iter().map(|(name, value)| {
            let value =
                Template::compile(&value, Stage::Request).map_err(|issue| issue.below(&name).below("extensions"))?;
            Ok((name, value))
        });
        let trusted_headers = complete_names("trusted_headers", &self.trusted_headers)?;
        let note = compiling.note();
        let step = ExtAuthzStep {
            method: GrpcMethod::compile(CHECK, &self.cluster, self.host, timeout, compiling)?,
            question: Question {
                request_headers: self
                    .request_headers
                    .map(|list| complete_names("request_headers", &list))
                    .transpose()?,
                extensions: extensions.collect::<Result<_, Issue>>()?,
                is_body_raw: self.body_as_bytes,
            },
            trusted_headers: trusted_headers.clone(),
            body_max,
            allow_partial: self.allow_partial,
            on_failure: self.on_failure,
            failure_status,
            note,
            refused: compiling.counter("refused"),
            failed: compiling.counter("failed"),
            metadata_too_large: compiling.counter("metadata_too_large"),
        };
        Ok(Steps {
            guarded: trusted_headers.into_iter().map(Guarded::Name).collect(),
            response: Some(Box::new(LeftChanges(note)) as Box<dyn ResponseStep>),
            ..Steps::of_request(step)
        })
    }
}

struct ExtAuthzStep {
    method: GrpcMethod,
    question: Question,
    trusted_headers: Vec<FieldName>,
    body_max: Option<u32>,
    allow_partial: bool,
    on_failure: OnFailure,
    failure_status: u16,
    /// Where changes of the response are left.
    note: usize,
    /// Requests that the service has refused, and those for which it failed.
    refused: EventCounter,
    failed: EventCounter,
    /// Answers whose metadata are left out.
    metadata_too_large: EventCounter,
}

impl RequestStep for ExtAuthzStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        match self.body_max {
            Some(max) if self.allow_partial => Flow::Need(Need::Beginning { max, wants_part: true }),
            Some(max) => Flow::Need(Need::Body { max }),
            None => self.call(head, None, turn),
        }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        match found {
            Found::Body(Ok(body)) => self.call(head, self.sent(body, false), turn),
            Found::Beginning(Beginning::Whole(body)) => self.call(head, self.sent(body, false), turn),
            Found::Beginning(Beginning::Part(body)) => self.call(head, self.sent(body, true), turn),
            Found::Body(Err(_)) | Found::Beginning(Beginning::Unread) => {
                Flow::refuse(413, "the request's body is too large to be authorized")
            }
            Found::Call(Ok(reply)) => self.answered(&reply.body, head, turn),
            _ => self.fail(head, turn),
        }
    }
}

impl ExtAuthzStep {
    fn call(&self, head: &RequestHead, body: Option<SentBody<'_>>, turn: &mut Turn<'_>) -> Flow {
        Flow::Need(self.method.call(|message| self.question.write(message, head, body, turn)))
    }

    /// Returns what of a body the service gets. One that is held already may be longer.
    fn sent<'b>(&self, body: &'b [u8], is_part: bool) -> Option<SentBody<'b>> {
        let max = self.body_max.map_or(0, |max| max as usize);
        Some(SentBody { bytes: &body[..body.len().min(max)], is_part: is_part || body.len() > max })
    }

    fn answered(&self, message: &[u8], head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let (verdict, metadata) = (Verdict::read(message), metadata::read(message));
        let (verdict, metadata) = match (verdict, metadata) {
            (Ok(verdict @ Verdict::Denied(_)), metadata) => (verdict, metadata.unwrap_or_default()),
            (Ok(verdict), Ok(metadata)) => (verdict, metadata),
            (Ok(verdict), Err(Unread::TooLarge)) => {
                turn.count(&self.metadata_too_large);
                (verdict, None)
            }
            _ => return self.fail(head, turn),
        };
        if let Some(metadata) = metadata {
            turn.notes.add_metadata(self.note, Box::new(metadata));
        }
        match verdict {
            Verdict::Denied(response) => self.refuse(response, turn),
            Verdict::Allowed(allowed) => self.pass(*allowed, head, turn),
        }
    }

    fn pass(&self, allowed: Allowed, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        turn.notes.set_verified();
        self.remove_forged(head);
        allowed.apply(head, turn.scratch);
        LeftChanges::leave(self.note, allowed.response, turn);
        Flow::Continue
    }

    #[cold]
    fn refuse(&self, response: Box<LocalResponse>, turn: &Turn<'_>) -> Flow {
        turn.count(&self.refused);
        Flow::Respond(response)
    }

    /// The service has seen the client's own fields, which may be what it goes by; the endpoint does not.
    fn remove_forged(&self, head: &mut RequestHead) {
        for name in &self.trusted_headers {
            head.fields.remove_alike(name);
        }
    }

    #[cold]
    fn fail(&self, head: &mut RequestHead, turn: &Turn<'_>) -> Flow {
        turn.count(&self.failed);
        match self.on_failure {
            OnFailure::Allow => {
                self.remove_forged(head);
                Flow::Continue
            }
            OnFailure::Deny => Flow::refuse(self.failure_status, "the authorization service is not available"),
        }
    }
}

#[cfg(test)]
mod tests;
