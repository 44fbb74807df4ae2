//! `cors`.

use std::sync::Arc;

use model::{FieldName, Fields, Issue, Known, LocalResponse, Method, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::origins::{OriginSetting, Origins, compile_origins};
use super::settings::{DurationText, Settings};
use super::{Compiling, FilterEntry, Flow, RequestStep, ResponseStep, ResponseView, Steps, Turn};

#[cfg(test)]
mod tests;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Cors>("cors", DOC);

const DOC: &str = r#"Lets pages of other origins use this route, by the CORS protocol of the Fetch standard.

Preflight requests (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) are answered by the proxy with 204. All other requests are forwarded, and
their responses get the fields that let the browser show them to the page, error responses of the proxy included. For an origin that is not
allowed these fields are left out, also in the answer to its preflight, so the browser refuses. CORS binds browsers only: it does
not restrict other clients.

`Access-Control-*` fields from the endpoint are replaced, and `Vary: Origin` is added whenever the response depends on the
origin, so that caches store them separately.

An origin in `allow_origins` is one of:

- `https://shop.example.com`: this one, with its port if it is not the usual one;
- `https://*.example.com`: every name below `example.com`, at any depth, not `example.com` itself;
- `{ regex: … }`: an expression for the whole origin;
- `"null"`: pages without an origin, such as local files and sandboxed frames; only if named;
- `"*"`: every origin. Not together with `allow_credentials`: the Fetch standard forbids it.

`"*"` in `allow_methods`, `allow_headers` and `expose_headers` means all (of request fields, all but `authorization`),
likewise not with credentials. `GET`, `HEAD` and `POST` need not be listed. If the route asks for methods, let it include
`OPTIONS`. List `cors` before filters that answer requests themselves: a preflight carries no credentials.

```yaml
filters:
  - cors:
      allow_origins: ["https://shop.example.com", "https://*.partner.example"]
      allow_methods: [PUT, DELETE]
      allow_headers: [content-type, authorization]
      allow_credentials: true
      max_age: 10m
```
"#;

/// Who may use the route, and how.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cors {
    /// Origins that may: `https://a.example`, `https://*.a.example`, `{ regex: … }`, `"null"` or `"*"`.
    #[schemars(length(min = 1))]
    allow_origins: Vec<OriginSetting>,
    /// Methods beside GET, HEAD and POST.
    #[serde(default)]
    allow_methods: Vec<String>,
    /// Request header fields beside those that every page may send.
    #[serde(default)]
    allow_headers: Vec<String>,
    /// Response header fields that the page may read beside the usual ones.
    #[serde(default)]
    expose_headers: Vec<String>,
    /// Whether cookies and other credentials may be sent.
    #[serde(default)]
    allow_credentials: bool,
    /// How long a browser may remember the answer to a preflight; whole seconds.
    max_age: Option<DurationText>,
}

impl Settings for Cors {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let credentials = self.allow_credentials;
        let names = Names::new()?;
        let field = |name, list: &[String], key| compile_list(name, list, credentials).map_err(|e: Issue| e.below(key));
        let exposed = field("access-control-expose-headers", &self.expose_headers, "expose_headers")?;
        let methods = field("access-control-allow-methods", &self.allow_methods, "allow_methods")?;
        let headers = field("access-control-allow-headers", &self.allow_headers, "allow_headers")?;
        let age = self.max_age.map(compile_age).transpose().map_err(|issue| issue.below("max_age"))?;
        let origins =
            compile_origins(&self.allow_origins, credentials).map_err(|issue| issue.below("allow_origins"))?;
        let preflight = [methods, headers, age].into_iter().flatten().collect();
        let policy = Arc::new(Policy { origins, credentials, exposed, preflight, names });
        Ok(Steps { response: Some(Box::new(policy.clone())), ..Steps::of_request(policy) })
    }
}

/// A field that is the same in every answer.
type FixedField = (FieldName, String);

fn field_name(text: &str) -> Result<FieldName, Issue> {
    FieldName::new(text).map_err(|message| Issue::at("", message))
}

/// Methods and field names are tokens both.
fn compile_list(name: &str, list: &[String], credentials: bool) -> Result<Option<FixedField>, Issue> {
    for (place, text) in list.iter().enumerate() {
        let at = |message: &str| Issue::at(place.to_string(), format!("`{text}` {message}"));
        if !model::fields::is_token(text.as_bytes()) {
            return Err(at("is not a name"));
        }
        if text == "*" && credentials {
            return Err(at("does not stand for all when allow_credentials is true (Fetch standard)")
                .suggest("name each one, or leave allow_credentials out"));
        }
    }
    if list.is_empty() { Ok(None) } else { Ok(Some((field_name(name)?, list.join(", ")))) }
}

fn compile_age(DurationText(age): DurationText) -> Result<FixedField, Issue> {
    if age.subsec_nanos() != 0 {
        return Err(Issue::at("", "whole seconds are needed here"));
    }
    Ok((field_name("access-control-max-age")?, age.as_secs().to_string()))
}

/// Names of the fields whose values differ from answer to answer.
#[derive(Debug)]
struct Names {
    allow_origin: FieldName,
    allow_credentials: FieldName,
    vary: FieldName,
    request_method: FieldName,
}

impl Names {
    fn new() -> Result<Self, Issue> {
        Ok(Self {
            allow_origin: field_name("access-control-allow-origin")?,
            allow_credentials: field_name("access-control-allow-credentials")?,
            vary: field_name("vary")?,
            request_method: field_name("access-control-request-method")?,
        })
    }
}

/// The settings, compiled.
#[derive(Debug)]
struct Policy {
    origins: Origins,
    credentials: bool,
    exposed: Option<FixedField>,
    preflight: Box<[FixedField]>,
    names: Names,
}

impl Policy {
    /// Returns whether the request is a CORS preflight (Fetch standard, section "CORS-preflight request").
    fn is_preflight(&self, request: &RequestHead) -> bool {
        request.method == Method::Options
            && request.fields.has_known(Known::Origin)
            && request.fields.get(&self.names.request_method).is_some()
    }

    /// Returns what `access-control-allow-origin` says to this request, if anything.
    fn allowed<'a>(&self, request: &'a RequestHead) -> Option<&'a [u8]> {
        if matches!(self.origins, Origins::Any) {
            return Some(b"*");
        }
        let mut origins = request.fields.all_known(Known::Origin);
        let (Some(origin), None) = (origins.next(), origins.next()) else { return None };
        self.origins.allows(origin).then_some(origin)
    }
}

impl RequestStep for Arc<Policy> {
    /// Answers preflights. What the answer says is written by the response step, as for every response.
    fn apply(&self, head: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        if self.is_preflight(head) {
            return Flow::Respond(Box::new(LocalResponse { status: 204, ..LocalResponse::default() }));
        }
        Flow::Continue
    }
}

impl ResponseStep for Arc<Policy> {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, _: &mut Turn<'_>) {
        let fields = &mut head.fields;
        fields.retain(|field| !is_cors_field(field.name));
        if matches!(self.origins, Origins::Listed(_)) {
            vary_by_origin(fields, &self.names.vary);
        }
        let Some(origin) = self.allowed(view.request) else { return };
        fields.append(&self.names.allow_origin, origin);
        if self.credentials {
            fields.append(&self.names.allow_credentials, b"true");
        }
        let fixed = if self.is_preflight(view.request) { &*self.preflight } else { self.exposed.as_slice() };
        for (name, value) in fixed {
            fields.append(name, value.as_bytes());
        }
    }
}

fn is_cors_field(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"access-control-";
    name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// Adds `vary: Origin`, also for requests without `Origin` and for rejected ones: a cache must not give their response to others.
fn vary_by_origin(fields: &mut Fields, vary: &FieldName) {
    let names_it = |value: &[u8]| {
        let mut members = value.split(|&b| b == b',').map(<[u8]>::trim_ascii);
        members.any(|member| member == b"*" || member.eq_ignore_ascii_case(b"origin"))
    };
    if !fields.all(vary).any(names_it) {
        fields.append(vary, b"Origin");
    }
}
