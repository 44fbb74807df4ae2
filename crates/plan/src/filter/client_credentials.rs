//! `client_credentials`.

mod held;

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::filter::CLUSTER_FORMAT;
use model::{Fault, FieldName, Issue, RequestHead, ResponseHead};
use schemars::JsonSchema;
use serde::Deserialize;

use self::held::{Held, Standing, Token};
use super::fields::changeable_name;
use super::form_call::FormEndpoint;
use super::guarded::Guarded;
use super::settings::{DurationText, Ordered, Settings};
use super::single_flight::{Flights, Part};
use super::token_cache::{Digest, digest_of};
use super::token_endpoint::{Client, Tokens, joined_scopes, more_parameters};
use super::variables::Stage;
use super::{
    Apart, CalledCluster, Compiling, EventCounter, FilterEntry, Flow, Found, Need, Note, Reply, RequestStep,
    ResponseSource, ResponseStep, ResponseView, Steps, Turn, trace,
};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ClientCredentials>("client_credentials", DOC);

const DOC: &str = r#"Sends an access token of the proxy's own to endpoints (OAuth 2.0 client credentials, RFC 6749 section 4.4).

The proxy requests a token from an authorization server through `cluster`, with `POST path`, and sets it in `authorization` on requests to the
endpoint. The client's own field of this name is removed. `TRACE` gets 405: the response to it would show the token to the client.
Copies that `mirror` sends hold the token too.

One token serves all requests of the route. In its last minute (or its last quarter, if that is shorter), the next token is fetched, and
requests go on with the old one. While there is no token, one request has it fetched and waits; others wait up to 3.15 seconds. A fetch
goes on when the request that began it has ended: only `timeout` bounds it.

| Authorization server | What happens |
|---|---|
| refuses, or does not respond | the token stays in use until it expires; without one, requests get 503; the next fetch begins after one second |
| gives a token without `expires_in` | the token is used for five minutes |
| gives a token of another type than `Bearer`, above 8 KiB, or with an `expires_in` that is no positive number | as if it had refused |

If the endpoint answers 401, the next request has a token fetched; until that one comes, the old one stays in use. A token that is younger
than ten seconds is not replaced; this age doubles with each token in a row that the endpoint refuses, up to 640 seconds. The client gets
the 401.

The secret of the client comes from `secret_file`, which is read again when it changes, or from the environment, as in `secret: "${SECRET}"`.
`equipoise_filter_events_total` counts tokens that are `fetched`, fetches that have `failed`, and requests without a token (`unavailable`).

```yaml
filters:
  - client_credentials:
      cluster: login
      path: /oauth2/token
      client: { id: gateway, secret_file: gateway.secret }
      scopes: [orders.read]
      parameters: { audience: https://orders.internal }
```
"#;

/// Where tokens come from.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClientCredentials {
    /// The cluster of the authorization server.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// Path of the token endpoint. May have a query.
    path: String,
    /// The `host` field of the calls; by default the name of the endpoint.
    host: Option<String>,
    /// What the proxy is to the provider.
    client: Client,
    /// Scopes to ask for; by default the provider decides.
    #[serde(default)]
    scopes: Vec<String>,
    /// Further parameters of the request for a token, such as `audience` or `resource`.
    parameters: Option<Ordered<String>>,
    /// The request field that carries `Bearer` and the token; `authorization` by default.
    header: Option<String>,
    /// How long a request for a token may take; 5s by default.
    #[serde(default = "five_seconds")]
    timeout: DurationText,
}

fn five_seconds() -> DurationText {
    DurationText(Duration::from_secs(5))
}

/// Parameters that the filter decides.
const OWN_PARAMETERS: [&str; 4] = ["grant_type", "scope", "client_id", "client_secret"];
/// The first wait for the fetch of another request; 3.15 s together. An exchange that has waited that long does not call itself: a
/// provider that is slow must not get one call for each request.
const WAIT: Duration = Duration::from_millis(50);
const NO_TOKEN: &str = "there is no token for the endpoint";

impl Settings for ClientCredentials {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let (authorization, mut form) = self.client.credentials()?;
        if authorization.is_none() && !form.iter().any(|(name, _)| *name == "client_secret") {
            // RFC 6749 section 4.4.
            let issue = Issue::at("client", "only a client with a secret gets a token of its own");
            return Err(issue.suggest("add `secret_file`, or `secret: \"${CLIENT_SECRET}\"`"));
        }
        let parameters = more_parameters(self.parameters, &OWN_PARAMETERS)?;
        form.push(("grant_type", "client_credentials".to_owned()));
        if !self.scopes.is_empty() {
            form.push(("scope", joined_scopes(&self.scopes)?));
        }
        let header = self.header.as_deref().unwrap_or("authorization");
        let header = changeable_name(header, Stage::Request).map_err(|issue| issue.below("header"))?;
        let cluster: CalledCluster = compiling.cluster(&self.cluster, "cluster");
        // Other settings begin without a token; a digest, because secrets are among them.
        let kept_by =
            format!("{} {} {:?} {form:?} {parameters:?} {authorization:?}", self.cluster, self.path, self.host);
        let flight = digest_of(kept_by.as_bytes());
        let held = compiling.kept(&format!("token {flight:02x?}"), Held::default);
        let step = Arc::new(ClientCredentialsStep {
            endpoint: FormEndpoint::compile(cluster, ("path", self.path), self.host, authorization, self.timeout.0)?,
            form,
            parameters,
            header: header.clone(),
            held,
            flight,
            flights: compiling.kept("flights", || Flights::waiting(WAIT)),
            part: compiling.note(),
            used: compiling.note(),
            fetched: compiling.counter("fetched"),
            failed: compiling.counter("failed"),
            unavailable: compiling.counter("unavailable"),
        });
        Ok(Steps {
            guarded: vec![Guarded::Name(header)],
            response: Some(Box::new(Arc::clone(&step)) as Box<dyn ResponseStep>),
            ..Steps::of_request(step)
        })
    }
}

struct ClientCredentialsStep {
    endpoint: FormEndpoint,
    /// Parameters of the request; secrets.
    form: Vec<(&'static str, String)>,
    parameters: Vec<(String, String)>,
    header: FieldName,
    held: Arc<Held>,
    flight: Digest,
    flights: Arc<Flights>,
    /// The note of [`Flights::join`].
    part: usize,
    /// The note with the number of the token that the endpoint gets.
    used: usize,
    fetched: EventCounter,
    failed: EventCounter,
    unavailable: EventCounter,
}

impl RequestStep for Arc<ClientCredentialsStep> {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        head.fields.remove_alike(&self.header);
        if let Some(refusal) = trace::refusal(head) {
            return refusal;
        }
        if turn.is_rehearsal {
            return Flow::Continue;
        }
        self.seek(head, turn)
    }

    fn resume(&self, head: &mut RequestHead, _: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        self.seek(head, turn)
    }
}

impl ClientCredentialsStep {
    fn seek(self: &Arc<Self>, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let old = match self.held.look(turn.now) {
            Standing::Fresh(token) => return self.pass(&token, head, turn),
            Standing::Ending(token) => Some(token),
            Standing::Absent => None,
            Standing::Refused => return self.refuse(NO_TOKEN, turn),
        };
        match (self.flights.join(&self.flight, self.part, turn), old) {
            (Part::Calls, old) => self.fetch(old.is_none(), turn),
            (_, Some(token)) => {
                Flights::leave(self.part, turn);
                self.pass(&token, head, turn)
            }
            (Part::Waits(wait), None) => wait,
            (Part::HasWaited, None) => self.refuse(NO_TOKEN, turn),
            (Part::Crowded, None) => self.refuse("too many requests wait for a token for the endpoint", turn),
        }
    }

    fn fetch(self: &Arc<Self>, is_awaited: bool, turn: &Turn<'_>) -> Flow {
        let form = self.form.iter().map(|(name, value)| (*name, value.as_bytes()));
        let more = self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let call = self.endpoint.post_call(&form.chain(more).collect::<Vec<_>>());
        let step = Arc::clone(self);
        let take = move |reply, times| step.take(reply, times);
        let taker = self.flights.landing(&self.flight, self.part, turn, take);
        Flow::Need(Need::Apart(Box::new(Apart { call, taker, is_awaited })))
    }

    /// Takes the reply to a fetch.
    fn take(&self, reply: Result<Box<Reply>, Fault>, (begun, now): (Instant, Instant)) {
        let tokens = Tokens::read(reply).ok().and_then(|tokens| Some((tokens.access_token?, tokens.expires_in)));
        let is_taken = match tokens {
            Some((token, lasts)) => self.held.put(token, lasts, (begun, now)),
            None => {
                self.held.fail(now);
                false
            }
        };
        if is_taken { &self.fetched } else { &self.failed }.add_one();
    }

    fn pass(&self, token: &Token, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        turn.notes.set(self.used, Note::Number(token.number));
        head.fields.set_with(&self.header, |out| {
            out.extend_from_slice(b"Bearer ");
            out.extend_from_slice(token.text.as_bytes());
        });
        Flow::Continue
    }

    #[cold]
    fn refuse(&self, why: &str, turn: &Turn<'_>) -> Flow {
        turn.count(&self.unavailable);
        Flow::refuse(503, why)
    }
}

impl ResponseStep for Arc<ClientCredentialsStep> {
    fn apply(&self, head: &mut ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        if head.status == 401
            && view.source == ResponseSource::Endpoint
            && let Note::Number(number) = turn.notes.get(self.used)
        {
            self.held.refuse(number, turn.now);
        }
    }
}

#[cfg(test)]
mod tests;
