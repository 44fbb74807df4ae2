//! `introspection`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use model::filter::CLUSTER_FORMAT;
use model::{Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::challenge::Lack;
use super::credential::{Carried, Place, Places, TakenFrom};
use super::form_call::{FormEndpoint, basic, only_line};
use super::guarded::Guarded;
use super::passing::{Passing, Verdict};
use super::settings::{DurationText, FileText, Ordered, Settings};
use super::single_flight::{Flights, Part};
use super::token_cache::{Cache, Digest, digest_of};
use super::{Apart, Call, Compiling, EventCounter, FilterEntry, Flow, Found, Need, Reply, RequestStep, Steps, Turn};
use crate::jose::{Claims, TOKEN_BYTES_MAX};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Introspection>("introspection", DOC);

/// How far the clock of the provider may differ from that here, as by default in `jwt`.
const LEEWAY_SECONDS: u64 = 60;

const DOC: &str = r#"Asks the authorization server about the token of each request (token introspection, RFC 7662).

Use it for tokens that only their issuer can read, or that may be revoked; `jwt` verifies signed tokens without a call. The filter sends the
token to `cluster` as `POST path`, with the name and the secret of `credentials_file` as HTTP Basic authentication: one line
`client:secret`, which is read again when it changes.

| Answer | Response to the client |
|---|---|
| `"active": true` | the request passes, if the token has the claims in `claims`; else 403 |
| any other JSON object with status 200 | 401 |
| another status, no answer, or one larger than 64 KiB | 503 |

An active token is cached by its SHA-256 digest for `cache_time` at most, and not beyond its `exp`, with a leeway of 60 seconds for clocks that
differ: so long a revoked token may still pass. Whether a token is valid in time is for the server to say: `exp`, `nbf` and `iat` of an active
token refuse nothing. Other answers are not cached. While the server is asked about a
token, other requests with it wait for the answer. The cluster is like any other: it has its own balancing, health checks, retries, limits and TLS.

`from`, `claims`, `claim_headers`, `user_claim`, `allow_missing` and `pass_on` are those of `jwt`, with members of the answer as claims.
`equipoise_filter_events_total` counts `asked` tokens, `refused` requests (400, 401), `forbidden` ones (403), and those for which the server was
`unavailable` (503).

```yaml
filters:
  - introspection:
      cluster: login
      path: /oauth2/introspect
      credentials_file: introspection.secret
      claims: { scope: read }
      claim_headers: { x-user: username }
```
"#;

/// Whom to ask, and which tokens are good.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Introspection {
    /// The cluster of the authorization server.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// Path of the introspection endpoint. May have a query.
    path: String,
    /// The `host` field of the calls; by default the name of the endpoint.
    host: Option<String>,
    /// A file with the line `client:secret`.
    credentials_file: FileText,
    /// How long a call may take; 5s by default.
    #[serde(default = "five_seconds")]
    timeout: DurationText,
    /// How long an active token is cached at most; 60s by default.
    #[serde(default = "one_minute")]
    cache_time: DurationText,
    /// Claims that a token must have, each with a value or a list of allowed values.
    claims: Option<Ordered<Value>>,
    /// Where the token is looked for; by default in the header field `authorization`.
    #[serde(default)]
    from: TakenFrom,
    /// The claim that is `{user}`; `sub` by default.
    #[serde(default = "subject")]
    user_claim: String,
    /// Request fields that carry claims to the endpoint, each with the name of its claim.
    claim_headers: Option<Ordered<String>>,
    /// Let requests without a token pass. A bad token is refused all the same.
    #[serde(default)]
    allow_missing: bool,
    /// Send the token to the endpoint too.
    #[serde(default)]
    pass_on: bool,
}

fn five_seconds() -> DurationText {
    DurationText(Duration::from_secs(5))
}

fn one_minute() -> DurationText {
    DurationText(Duration::from_secs(60))
}

fn subject() -> String {
    "sub".to_owned()
}

impl Settings for Introspection {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let authorization = authorization(&self.credentials_file).map_err(|why| Issue::at("credentials_file", why))?;
        let cluster = compiling.cluster(&self.cluster, "cluster");
        let path = ("path", self.path);
        let endpoint = FormEndpoint::compile(cluster, path, self.host, Some(authorization), self.timeout.0)?;
        let passing = Passing::compile(self.claims, self.claim_headers, self.user_claim)?;
        let guarded = passing.names().cloned().map(Guarded::Name).collect();
        let step = Arc::new(IntrospectionStep {
            endpoint,
            cache_seconds: self.cache_time.0.as_secs(),
            passing,
            places: Places::compile(&self.from, "authorization")?,
            cache: Cache::default(),
            flights: compiling.kept("flights", Flights::default),
            waited: compiling.note(),
            allows_missing: self.allow_missing,
            passes_on: self.pass_on,
            asked: compiling.counter("asked"),
            refused: compiling.counter("refused"),
            forbidden: compiling.counter("forbidden"),
            unavailable: compiling.counter("unavailable"),
        });
        Ok(Steps { guarded, ..Steps::of_request(step) })
    }
}

/// Returns the field `authorization` for the client in a file. No message contains a part of it.
fn authorization(file: &FileText) -> Result<String, String> {
    let line = only_line(file).ok();
    let parts = line.and_then(|line| line.split_once(':'));
    let parts = parts.filter(|(client, secret)| !client.is_empty() && !secret.is_empty());
    let (client, secret) = parts.ok_or_else(|| format!("`{}` is not one line `client:secret`", file.name))?;
    Ok(basic(client, secret))
}

struct IntrospectionStep {
    endpoint: FormEndpoint,
    cache_seconds: u64,
    passing: Passing,
    places: Places,
    cache: Cache<Verdict>,
    /// Calls in progress, by the digest of their token.
    flights: Arc<Flights>,
    /// The note of [`Flights::join`].
    waited: usize,
    allows_missing: bool,
    passes_on: bool,
    asked: EventCounter,
    refused: EventCounter,
    forbidden: EventCounter,
    unavailable: EventCounter,
}

/// What has come of a call, once it has ended.
type Asked = OnceLock<Result<Arc<Verdict>, Lack>>;

const UNAVAILABLE: Lack = Lack::Unavailable("the authorization server is not available");

impl IntrospectionStep {
    fn call(&self, token: &[u8]) -> Call {
        self.endpoint.post_call(&[("token", token), ("token_type_hint", b"access_token")])
    }

    /// Asks about the token in `scratch` for this request, which it ends with.
    fn ask(&self, turn: &mut Turn<'_>) -> Flow {
        turn.count(&self.asked);
        Flow::Need(Need::Call(Box::new(self.call(turn.scratch))))
    }

    /// Asks about a token for all requests that have it, also when this one ends.
    fn ask_apart(self: &Arc<Self>, digest: &Digest, turn: &mut Turn<'_>) -> Flow {
        let (step, token, began) = (Arc::clone(self), turn.scratch.clone(), turn.unix_seconds());
        let asked = Arc::new(Asked::new());
        turn.notes.keep(self.waited, Box::new(Arc::clone(&asked)));
        let call = self.call(&token);
        let taker = self.flights.landing(digest, self.waited, turn, move |reply, (begun, now)| {
            let now = began.saturating_add(now.saturating_duration_since(begun).as_secs());
            let judged = reply.map_err(|_| UNAVAILABLE).and_then(|reply| step.judge(&reply, &token, now));
            // It is taken once.
            let _ = asked.set(judged);
        });
        Flow::Need(Need::Apart(Box::new(Apart { call, taker, is_awaited: true })))
    }

    /// Judges an answer; `Err` is what the client gets.
    fn judge(&self, reply: &Reply, token: &[u8], now: u64) -> Result<Arc<Verdict>, Lack> {
        if reply.head.status != 200 {
            return Err(UNAVAILABLE);
        }
        let claims = Claims::from_json(&reply.body).ok_or(UNAVAILABLE)?;
        if claims.get("active") != Some(&Value::Bool(true)) {
            return Err(Lack::BadToken("the token is not active"));
        }
        // The provider has checked all times by its own clock, so that `exp` only bounds the cache.
        let expiry = claims.moment("exp").map_err(|()| Lack::BadToken("the token is malformed"))?;
        let expiry = expiry.map_or(u64::MAX, |expiry| expiry.saturating_add(LEEWAY_SECONDS));
        let verdict = Arc::new(self.passing.judge(claims));
        let ends = expiry.min(now.saturating_add(self.cache_seconds));
        if ends > now {
            self.cache.put(digest_of(token), 0, (now, ends), (&verdict, verdict.weight()));
        }
        Ok(verdict)
    }

    fn pass(&self, (verdict, place): (&Verdict, Place), head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if !verdict.is_allowed {
            return self.refuse(Lack::Claims, turn);
        }
        verdict.note(turn.notes);
        self.places.strip(self.passes_on.then_some(place), head, turn.scratch);
        self.passing.write(verdict, head);
        Flow::Continue
    }

    fn refuse(&self, lack: Lack, turn: &Turn<'_>) -> Flow {
        turn.count(match lack {
            Lack::Claims => &self.forbidden,
            Lack::Unavailable(_) => &self.unavailable,
            Lack::NoToken | Lack::BadRequest | Lack::BadToken(_) => &self.refused,
        });
        lack.answer()
    }
}

impl RequestStep for Arc<IntrospectionStep> {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let place = match self.places.read(head, turn.scratch, TOKEN_BYTES_MAX) {
            Carried::None if self.allows_missing => {
                self.places.strip(None, head, turn.scratch);
                self.passing.remove_forged(head);
                return Flow::Continue;
            }
            Carried::None => return self.refuse(Lack::NoToken, turn),
            Carried::Bad => return self.refuse(Lack::BadRequest, turn),
            Carried::One(place) => place,
        };
        if turn.scratch.is_empty() {
            return self.refuse(Lack::BadToken("the token is empty"), turn);
        }
        let digest = digest_of(turn.scratch);
        if let Some(verdict) = self.cache.get(&digest, 0, turn.unix_seconds()) {
            Flights::leave(self.waited, turn);
            return self.pass((&verdict, place), head, turn);
        }
        // Without a cache there is nothing to wait for.
        if self.cache_seconds == 0 {
            return self.ask(turn);
        }
        match self.flights.join(&digest, self.waited, turn) {
            Part::Waits(wait) => wait,
            Part::Crowded => self.refuse(Lack::Unavailable("too many requests need the authorization server"), turn),
            Part::Calls => {
                turn.count(&self.asked);
                self.ask_apart(&digest, turn)
            }
            // Only the first call for a token goes on without its exchange.
            Part::HasWaited => self.ask(turn),
        }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        let asked = turn.notes.take::<Arc<Asked>>(self.waited);
        if asked.is_none() && matches!(found, Found::Now) {
            return self.apply(head, turn);
        }
        // The head is as it was when the call began.
        let Carried::One(place) = self.places.read(head, turn.scratch, TOKEN_BYTES_MAX) else {
            return self.refuse(Lack::BadRequest, turn);
        };
        let judged = match (asked, found) {
            (Some(asked), _) => asked.get().cloned(),
            (None, Found::Call(Ok(reply))) => Some(self.judge(&reply, turn.scratch, turn.unix_seconds())),
            _ => None,
        };
        match judged.unwrap_or(Err(UNAVAILABLE)) {
            Ok(verdict) => self.pass((&verdict, place), head, turn),
            Err(lack) => self.refuse(lack, turn),
        }
    }
}

#[cfg(test)]
mod tests;
