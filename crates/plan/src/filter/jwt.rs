//! `jwt`.

mod called;
mod decrypt;
pub(super) mod keys;
mod step;
mod wrapped;

use std::sync::Arc;
use std::time::Duration;

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::credential::{Places, TakenFrom};
use super::guarded::Guarded;
use super::passing::Passing;
use super::settings::{DurationText, FileText, Ordered, Settings, suggest_nearest};
use super::{Compiling, FilterEntry, Steps};
use crate::jose::{Algorithm, Algorithms, Rules};
use called::KeysCall;
use decrypt::{Decrypt, Decryptions};
use keys::{KeysFetch, TokenKeys};
use step::{Counters, JwtStep, Verification};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Jwt>("jwt", DOC);

const DOC: &str = r#"Requires a signed token (JWT, RFC 7519), such as an OAuth 2.0 access token.

**Keys** are a JSON Web Key Set or public keys in PEM in `keys_file`, which is read again when it changes, or a key set at `keys_url`. That is
fetched in the background at the start, then again and again, and when a token names an unknown key, at most once in five seconds. When a
fetch fails, the last keys stay in use. `keys` names a `cluster` and a `path` instead: the first request that needs keys fetches them, and
one request after each interval; the cluster has its own balancing, health, limits and TLS. Before the first keys are known, requests wait up to 1.5 seconds (3.15 with `keys`) and then get 503. `keys_fetch` has
the `interval` (5m), the `timeout` of a fetch (5s), and `ca_file`, the authorities in PEM that verify the host; by default those of the system.

**Algorithms**: RS256, RS384, RS512, PS256, PS384, PS512 (RSA of 2048 to 8192 bits), ES256, ES384, ES512, EdDSA (Ed25519), HS256, HS384, HS512.
The type of a key decides which of them it verifies, and `alg` of a key narrows it down; `algorithms` narrows it down further. `none` is always
refused, and so is a token whose algorithm does not fit its key. Shared secrets (`oct`) are accepted from files only. Keys that a
token brings along or points to are ignored.

**Encrypted tokens** (JWE, RFC 7516) are accepted if `decrypt` has a `keys_file`: a key set with private keys (RSA, P-256, P-384, P-521, X25519) or
shared secrets, or private keys in PEM (all but X25519). Inside is a signed token, which is verified as ever. Algorithms of keys: RSA-OAEP, RSA-OAEP-256, ECDH-ES,
ECDH-ES+A128KW, ECDH-ES+A256KW, A128KW, A256KW, A128GCMKW, A192GCMKW, A256GCMKW, dir; of contents: A128GCM, A192GCM, A256GCM, A128CBC-HS256,
A192CBC-HS384, A256CBC-HS512. RSA1_5, passwords (PBES2) and compressed tokens (`zip`) are always refused. With `allow_unsigned`, claims may
be in the encrypted token itself, if its key is a shared secret; then `keys_file` and `keys_url` may be missing. `required: true` refuses tokens that are not encrypted.
Threads beside the workers use private keys, for 16 requests of a filter at once; further ones get 503. Limit the rate of clients before this
filter. Of one token inside, up to four encryptions are cached.

**Claims**: `exp`, `nbf` and `iat` are checked, with a `leeway` for clocks that differ. Tokens without `exp` are refused, unless
`allow_without_expiry`. `iss` must be an `issuer`, `aud` must contain an `audience`. Each claim in `claims` must have the listed value, or one
of the listed values; a claim that is a list, or the text `scope`, must contain it. Dots lead into objects, as in `realm_access.roles`.

| Request | Response |
|---|---|
| without a token | 401; with `allow_missing` it passes |
| with a bad token | 401, and `www-authenticate` says why |
| with two tokens in the same place | 400 |
| whose token lacks a claim in `claims` | 403 |

The token is expected in `authorization`, after `Bearer`, or where `from` says: in a `header` field, a `query` parameter or a `cookie`. It is not forwarded,
unless `pass_on: true`; tokens in other places of `from` never are. `claim_headers` sends
claims to the endpoint in header fields, which clients cannot forge: lists are joined by commas, without items that contain a comma.
`{user}` is the claim `sub`, or `user_claim`; `{claim:NAME}` is any claim, for later filters.
Requests that `when` exempts are not changed: they keep the client's own fields, such as `x-user`. Remove them with `remove_request_header` before, if
the filter has conditions.

Verified tokens are cached by their SHA-256 digest until they expire or the keys change: up to 4,096 for each route.
`equipoise_filter_events_total` counts `refused` requests (400, 401), `forbidden` ones (403), those for which keys were `unavailable` (503),
and for `keys_url` and `keys` also `keys_fetched` and `keys_failed`.

```yaml
filters:
  - jwt:
      keys_file: jwks.json
      issuer: https://login.example.com
      audience: shop
      claims: { groups: [staff, admin] }
      claim_headers: { x-user: sub }
```
"#;

/// Which tokens are good.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Jwt {
    /// A file with a JSON Web Key Set, or with public keys in PEM.
    keys_file: Option<FileText>,
    /// The URL of a JSON Web Key Set.
    keys_url: Option<String>,
    /// A JSON Web Key Set that is fetched through a cluster.
    keys: Option<KeysCall>,
    /// How keys are fetched.
    #[serde(default)]
    keys_fetch: KeysFetch,
    /// How encrypted tokens are decrypted; by default they are refused.
    decrypt: Option<Decrypt>,
    /// The issuer of tokens (`iss`), or a list of them; by default any.
    issuer: Option<Texts>,
    /// The audience (`aud`), or a list of which a token must have one; by default any.
    audience: Option<Texts>,
    /// Allowed algorithms; by default those of the keys.
    #[schemars(length(min = 1))]
    algorithms: Option<Vec<String>>,
    /// How far clocks may differ; 60s by default.
    #[serde(default = "one_minute")]
    leeway: DurationText,
    /// The type of tokens (`typ`), such as `at+jwt`; by default any.
    token_type: Option<String>,
    /// How old tokens may be by their `iat`, which they then need.
    age_max: Option<DurationText>,
    /// Accept tokens that never expire.
    #[serde(default)]
    allow_without_expiry: bool,
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

/// One text, or several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

fn one_minute() -> DurationText {
    DurationText(Duration::from_secs(60))
}

fn subject() -> String {
    "sub".to_owned()
}

impl Settings for Jwt {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let decryption = self.decrypt.map(Decrypt::compile).transpose()?;
        let has_keys = self.keys_file.is_some() || self.keys_url.is_some();
        let keys = match (self.keys, &decryption) {
            (Some(_), _) if has_keys => {
                let issue = Issue::at("keys", "there is already a `keys_file` or a `keys_url`");
                return Err(issue.suggest("leave one of them out"));
            }
            (Some(call), _) => TokenKeys::Called(Arc::new(call.compile(self.keys_fetch.for_cluster()?, compiling)?)),
            (None, Some(decryption)) if decryption.allows_unsigned && !has_keys => TokenKeys::Fixed(Arc::default()),
            (None, _) => TokenKeys::compile(self.keys_file, self.keys_url, self.keys_fetch, compiling)?,
        };
        let rules = Rules {
            issuers: texts("issuer", self.issuer)?,
            audiences: texts("audience", self.audience)?,
            leeway: self.leeway.0.as_secs(),
            needs_expiry: !self.allow_without_expiry,
            age_max: self.age_max.map(|age| age.0.as_secs()),
        };
        let allowed = self.algorithms.map_or(Ok(Algorithms::ALL), |names| algorithms(&names))?;
        if has_keys {
            keys.check(allowed)?;
        }
        let passing = Passing::compile(self.claims, self.claim_headers, self.user_claim)?;
        let guarded = passing.names().cloned().map(Guarded::Name).collect();
        let kind = self.token_type;
        let verification = Verification { keys, allowed, kind, rules, passing, cache: Arc::default(), decryption };
        let counters = Counters {
            refused: compiling.counter("refused"),
            forbidden: compiling.counter("forbidden"),
            unavailable: compiling.counter("unavailable"),
        };
        let step = JwtStep {
            verification: Arc::new(verification),
            places: Places::compile(&self.from, "authorization")?,
            allows_missing: self.allow_missing,
            passes_on: self.pass_on,
            waited: compiling.note(),
            decrypted: compiling.note(),
            decryptions: Arc::new(Decryptions::default()),
            counters,
        };
        Ok(Steps { guarded, ..Steps::of_request(step) })
    }
}

fn texts(key: &str, written: Option<Texts>) -> Result<Box<[String]>, Issue> {
    let list = match written {
        None => return Ok(Box::default()),
        Some(Texts::One(text)) => vec![text],
        Some(Texts::Several(list)) => list,
    };
    if list.is_empty() || list.iter().any(String::is_empty) {
        // An empty list would accept no token, and an empty text is a mistake.
        return Err(Issue::at(key, "it is empty").suggest(format!("leave `{key}` out to accept any")));
    }
    Ok(list.into())
}

fn algorithms(names: &[String]) -> Result<Algorithms, Issue> {
    let mut set = Algorithms::NONE;
    for (place, name) in names.iter().enumerate() {
        let Some(algorithm) = Algorithm::find(name) else {
            let issue = Issue::at(format!("algorithms/{place}"), format!("there is no algorithm `{name}`"));
            return Err(suggest_nearest(issue, name, Algorithm::ALL.iter().map(|known| known.as_str())));
        };
        set = set.with(algorithm);
    }
    Ok(set)
}

#[cfg(test)]
mod called_tests;
#[cfg(test)]
mod encrypted_tests;
#[cfg(test)]
mod tests;
