//! `oidc`.

mod compile;
mod login;
mod provider;
mod refreshes;
mod seal;
mod session;
mod step;
mod tokens;
mod userinfo;

use std::sync::Arc;
use std::time::Duration;

use model::filter::CLUSTER_FORMAT;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::jwt::keys::KeysFetch;
use super::passing::Passing;
use super::settings::{DurationText, FileText, Ordered};
use super::token_endpoint::Client;
use super::{EventCounter, FilterEntry};
use crate::jose::Rules;
use provider::Provider;
use refreshes::Refreshes;
use session::Cookies;
use userinfo::{UserInfo, UserInfoSettings};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Oidc>("oidc", DOC);

const DOC: &str = r#"Has users log in at an OpenID Connect provider, and keeps their session in a sealed cookie.

A browser without a session is redirected to the provider (authorization code flow with PKCE, `state` and `nonce`), and comes back to the page
that it asked for. The session is in cookies that only the holder of `session.keys_file` can read or write (AES-256-GCM): instances that have
the same file accept each other's sessions. The endpoint sees neither the cookies nor, by default, a token.

**The provider** is found by its `issuer`: the proxy fetches `/.well-known/openid-configuration` below it and the keys in the
background, as `keys_fetch` says. With `endpoints`, they are given by hand. Tokens are requested through `cluster`, whose
endpoints are those of the provider's token endpoint: it has its own TLS, retries, limits and health. ID tokens are verified as by `jwt`: signature,
issuer, audience, nonce, expiry.

| Request | Response |
|---|---|
| with a session | passes, if the user has the claims in `claims`; else 403 |
| of a page, without a session | 302 to the provider |
| another one, without a session | 401, see `without_session` |
| to `paths.callback` | 302 to the page; 400 if the browser has not begun this login; 403 if the provider or its token is refused |
| to `paths.logout` | 302 to the end session endpoint of the provider, or to `paths.after_logout` |
| while the provider is needed and not available | 503 |

A request counts as one of a page if it is GET or HEAD and has `sec-fetch-mode: navigate`, or, without that field, `text/html` in `accept`.

**Sessions** end `session.lifetime` after the login, after `session.idle_timeout` without a request, and at the logout. If the provider gives a refresh token,
a session is refreshed a minute before its access token expires: one request at a time asks the provider, and others go on with the old session. When
the provider refuses, the user logs in again; while it is not available, the session lasts until the access token expires.
A copied cookie stays usable until the session ends: no instance keeps a list of sessions. Over TLS, names of cookies begin with `__Host-`.

`session.keys_file` has one secret of at least 32 bytes on each line: the first seals, and all open. To rotate, put a new one on top.
Instead of files, `client.secret` and `session.keys` take secrets from the environment: `session: { keys: "${SESSION_KEYS}" }`.

With `userinfo: {}`, the proxy asks the provider's userinfo endpoint after each login and refresh, and adds the claims that the ID token does not
have. Its `sub` must be that of the ID token, or the login is refused. A signed answer (`application/jwt`) is verified as the ID token is, and an
encrypted one is refused. While the endpoint is not available, logins get 503, and refreshed sessions keep the claims that they had. The claims are in
the cookie: `userinfo: { claims: [groups] }` keeps it small. Without `claims` there, the largest are left out where not all fit, but none that
`claims`, `claim_headers` or `user_claim` of the filter name: if these are too large, logins get 500, and refreshed sessions keep the claims that they had.

`claims`, `claim_headers` and `user_claim` are those of `jwt`. `equipoise_filter_events_total` counts `redirected`, `logged_in`, `refreshed`, `logged_out`, `refused`,
`forbidden` and `unavailable`, `keys_fetched` and `keys_failed`, and as `claims_left_out` answers of the userinfo endpoint that do not fit.

```yaml
filters:
  - oidc:
      issuer: https://login.example.com
      cluster: login
      client: { id: shop, secret_file: oidc.secret }
      session: { keys_file: session.keys }
      claim_headers: { x-user: email }
```
"#;

/// Where users log in, and what becomes of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Oidc {
    /// The issuer: a URL, exactly as the provider writes it.
    issuer: String,
    /// The cluster of the provider's token endpoint.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// What the proxy is to the provider.
    client: Client,
    /// The session of a user.
    session: SessionSettings,
    /// The endpoints of the provider; by default they are discovered.
    endpoints: Option<Endpoints>,
    /// How the discovery document and keys are fetched.
    #[serde(default)]
    keys_fetch: KeysFetch,
    /// Paths of the filter on its own host.
    #[serde(default)]
    paths: PathSettings,
    /// Scopes to ask for; `openid`, `profile` and `email` by default.
    scopes: Option<Vec<String>>,
    /// Further parameters of the login, such as `prompt` or `acr_values`.
    parameters: Option<Ordered<String>>,
    /// Add claims of the provider's userinfo endpoint to those of the ID token. By default it is not asked.
    userinfo: Option<UserInfoSettings>,
    /// What requests without a session get: `auto` (by default), `redirect` or `refuse`.
    #[serde(default)]
    without_session: WithoutSession,
    /// How long a request for tokens may take; 5s by default.
    #[serde(default = "five_seconds")]
    timeout: DurationText,
    /// How far clocks may differ; 60s by default.
    #[serde(default = "one_minute")]
    leeway: DurationText,
    /// Claims that a user must have, each with a value or a list of allowed values.
    claims: Option<Ordered<Value>>,
    /// Request fields that carry claims to the endpoint, each with the name of its claim.
    claim_headers: Option<Ordered<String>>,
    /// The claim that is `{user}`; `sub` by default.
    #[serde(default = "subject")]
    user_claim: String,
    /// Send the access token to the endpoint, in `authorization`. `TRACE` then gets 405: the response to it would show the token.
    #[serde(default)]
    pass_access_token: bool,
}

/// The endpoints of a provider without discovery.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Endpoints {
    /// Where users log in.
    authorization_url: String,
    /// Where codes are exchanged for tokens; `cluster` leads there.
    token_url: String,
    /// Where the provider ends its own session.
    end_session_url: Option<String>,
    /// Where the provider says more about a user; needed by `userinfo`.
    userinfo_url: Option<String>,
    /// The URL of its keys.
    keys_url: Option<String>,
    /// A file with its keys.
    keys_file: Option<FileText>,
}

/// The session of a user.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SessionSettings {
    /// A file with secrets of at least 32 bytes, one on each line: the first seals, and all open.
    keys_file: Option<FileText>,
    /// Such secrets themselves, one on each line, such as `${SESSION_KEYS}`.
    #[schemars(extend("writeOnly" = true))]
    keys: Option<String>,
    /// The name of the cookie; `equipoise_session` by default. Over TLS it begins with `__Host-`.
    #[serde(default = "cookie_name")]
    cookie: String,
    /// A session ends after so long without a request; 1h by default.
    #[serde(default = "one_hour")]
    idle_timeout: DurationText,
    /// A session ends so long after the login; 12h by default.
    #[serde(default = "twelve_hours")]
    lifetime: DurationText,
    /// Refresh sessions with the refresh token, if the provider gives one; true by default.
    #[serde(default = "yes")]
    refresh: bool,
}

/// Paths of the filter on its own host.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PathSettings {
    /// Where the provider sends browsers back to; `/oauth2/callback` by default. The provider must know it as redirect URI.
    #[serde(default = "callback")]
    callback: String,
    /// Where users log out; `/oauth2/logout` by default.
    #[serde(default = "logout")]
    logout: String,
    /// Where browsers go after the logout: a path, or a URL. The provider must know it; by default it decides.
    after_logout: Option<String>,
    /// Scheme, host and port as browsers see them; by default those of the request.
    public_url: Option<String>,
}

/// What requests without a session get.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WithoutSession {
    /// Pages are redirected to the provider, others are answered 401.
    #[default]
    Auto,
    /// All are redirected to the provider.
    Redirect,
    /// All are answered 401.
    Refuse,
}

impl Default for PathSettings {
    fn default() -> Self {
        Self { callback: callback(), logout: logout(), after_logout: None, public_url: None }
    }
}

fn callback() -> String {
    "/oauth2/callback".to_owned()
}

fn logout() -> String {
    "/oauth2/logout".to_owned()
}

fn cookie_name() -> String {
    "equipoise_session".to_owned()
}

fn yes() -> bool {
    true
}

fn one_hour() -> DurationText {
    DurationText(Duration::from_secs(3_600))
}

fn twelve_hours() -> DurationText {
    DurationText(Duration::from_secs(12 * 3_600))
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

struct Counters {
    redirected: EventCounter,
    logged_in: EventCounter,
    refreshed: EventCounter,
    logged_out: EventCounter,
    refused: EventCounter,
    forbidden: EventCounter,
    unavailable: EventCounter,
    claims_left_out: EventCounter,
}

struct OidcStep {
    issuer: String,
    provider: Provider,
    userinfo: Option<UserInfo>,
    rules: Rules,
    passing: Passing,
    cookies: Cookies,
    refreshes: Arc<Refreshes>,
    /// The note with the number of the session whose cookies go with the response.
    left: usize,
    paths: PathSettings,
    without_session: WithoutSession,
    /// How long a refresh takes at most.
    timeout: Duration,
    refreshes_sessions: bool,
    passes_access_token: bool,
    /// The note that counts the waits for keys.
    waited: usize,
    counters: Counters,
}

#[cfg(test)]
mod tests;
