//! `aws_signature`.

use model::fields::reads_as;
use model::{FieldName, Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use self::credentials::Credentials;
use self::signature::Scope;
use super::guarded::Guarded;
use super::settings::{FileText, Settings, SizeText};
use super::{Compiling, EventCounter, FilterEntry, Flow, Found, Need, RequestStep, Steps, Turn, forward_auth};

mod credentials;
mod signature;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<AwsSignature>("aws_signature", DOC);

const DOC: &str = r#"Signs requests to endpoints with AWS Signature Version 4.

Use it before Amazon S3, other AWS services, and stores that speak their protocol, such as MinIO. Clients need no credentials of AWS. The client's own
`authorization`, `x-amz-date`, `x-amz-content-sha256` and `x-amz-security-token` are replaced; combine the filter with one that decides
which clients may use yours.

The signature covers method, path, query, `host`, `content-type`, all `x-amz-` fields, and the payload. The endpoint verifies `host`: set it with
`rewrite: { host: … }`. List `aws_signature` behind all filters that change requests.

| `payload` | What is signed of the body |
|---|---|
| `signed` (default, except for `s3`) | its SHA-256 digest: the proxy holds the body, up to `body_max`; a longer one gets 413 |
| `unsigned` (default for `s3`) | nothing (`UNSIGNED-PAYLOAD`): bodies of any size are streamed. S3 accepts it over TLS only |

Credentials are in `credentials_file`, which has the format of `~/.aws/credentials` and is read again when it changes, or in the environment:
`access_key_id: "${AWS_ACCESS_KEY_ID}"`, `secret_access_key` and `session_token`. Bodies must not be changed by other filters when they are signed.
Bodies in chunks with signatures of their own (`aws-chunked`) get 501: switch them off in the client.
`equipoise_filter_events_total` counts requests that are `signed`, and those that are `refused` because they cannot be.

```yaml
filters:
  - rewrite: { host: assets.s3.eu-central-1.amazonaws.com }
  - aws_signature: { region: eu-central-1, service: s3, credentials_file: aws-credentials }
```
"#;

const BODY_MAX: u64 = 1 << 20;

/// With what requests are signed, and for whom.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AwsSignature {
    /// The region of the service, such as `eu-central-1`.
    region: String,
    /// The service, such as `s3`, `execute-api` or `es`.
    #[serde(rename = "service")]
    signed_for: String,
    /// A file with credentials in the format of `~/.aws/credentials`.
    credentials_file: Option<FileText>,
    /// The profile in `credentials_file`; `default` by default.
    profile: Option<String>,
    /// The identifier of the access key, such as `${AWS_ACCESS_KEY_ID}`.
    access_key_id: Option<String>,
    /// The secret of the access key, such as `${AWS_SECRET_ACCESS_KEY}`.
    #[schemars(extend("writeOnly" = true))]
    secret_access_key: Option<String>,
    /// The token of temporary credentials, such as `${AWS_SESSION_TOKEN}`.
    #[schemars(extend("writeOnly" = true))]
    session_token: Option<String>,
    /// Whether the body is signed: `signed`, or `unsigned` (S3 only, and its default).
    payload: Option<Payload>,
    /// The largest body that is signed, at most 16MiB; 1MiB by default.
    body_max: Option<SizeText>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Payload {
    Signed,
    Unsigned,
}

impl Settings for AwsSignature {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let is_word = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        for (key, text, example) in [("region", &self.region, "eu-central-1"), ("service", &self.signed_for, "s3")] {
            if !is_word(text) {
                let issue = Issue::at(key, format!("`{text}` is not a {key}"));
                return Err(issue.suggest(format!("write one such as `{example}`")));
            }
        }
        let is_s3 = self.signed_for == "s3";
        let payload = self.payload.unwrap_or(if is_s3 { Payload::Unsigned } else { Payload::Signed });
        if payload == Payload::Unsigned && !is_s3 {
            let issue = Issue::at("payload", format!("`{}` accepts no unsigned payload", self.signed_for));
            return Err(issue.suggest("leave it out, or use the service `s3`"));
        }
        if payload == Payload::Unsigned && self.body_max.is_some() {
            let issue = Issue::at("body_max", "the body is not signed, so it has no bound here");
            return Err(issue.suggest("leave it out, or add `payload: signed`"));
        }
        let size = self.body_max.map_or(BODY_MAX, |SizeText(size)| size);
        let credentials = match (self.credentials_file, self.access_key_id, self.secret_access_key) {
            (Some(file), None, None) => {
                let profile = self.profile.as_deref().unwrap_or("default");
                Credentials::read(&file.text, profile)
                    .map_err(|why| Issue::at("credentials_file", format!("`{}` {why}", file.name)))?
            }
            (None, Some(id), Some(secret)) => {
                Credentials::new(id, &secret, self.session_token).map_err(|(key, why)| Issue::at(key, why))?
            }
            (None, _, _) => {
                let issue = Issue::at("", "there are no credentials");
                return Err(issue.suggest("add `credentials_file`, or `access_key_id` and `secret_access_key`"));
            }
            (Some(_), _, _) => {
                let issue = Issue::at("credentials_file", "there are credentials in the configuration, too");
                return Err(issue.suggest("leave one of them out"));
            }
        };
        let names = OWN.map(|name| FieldName::new(name).unwrap_or_else(|_| unreachable!("a constant token")));
        let step = AwsSignatureStep {
            scope: Scope { region: self.region, signed_for: self.signed_for, is_s3 },
            credentials,
            body_max: (payload == Payload::Signed).then(|| forward_auth::body_max(size)).transpose()?,
            names: names.clone(),
            signed: compiling.counter("signed"),
            refused: compiling.counter("refused"),
        };
        Ok(Steps { guarded: names.into_iter().map(Guarded::Name).collect(), ..Steps::of_request(step) })
    }
}

/// Fields that the filter sets, in the order of [`AwsSignatureStep::names`].
const OWN: [&str; 4] = ["authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"];

struct AwsSignatureStep {
    scope: Scope,
    credentials: Credentials,
    /// The largest body that is signed; `None`: bodies are not.
    body_max: Option<u32>,
    names: [FieldName; 4],
    signed: EventCounter,
    refused: EventCounter,
}

impl RequestStep for AwsSignatureStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let [_, _, digest, _] = &self.names;
        if head.fields.all(digest).any(|payload| payload.starts_with(b"STREAMING-")) {
            // The chunks of the body have signatures of the client: without its digest, the endpoint would store them as part of it.
            return self.refuse(501, "a body in signed chunks (aws-chunked) cannot be signed again", turn);
        }
        match self.body_max {
            Some(max) => Flow::Need(Need::Body { max }),
            None => self.sign(head, signature::UNSIGNED, turn),
        }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        match found {
            Found::Body(Ok(body)) => self.sign(head, &signature::hash(body), turn),
            _ => self.refuse(413, "the request's body is too large to be signed", turn),
        }
    }
}

impl AwsSignatureStep {
    #[cold]
    fn refuse(&self, status: u16, text: &str, turn: &Turn<'_>) -> Flow {
        turn.count(&self.refused);
        Flow::refuse(status, text)
    }

    fn sign(&self, head: &mut RequestHead, payload: &str, turn: &mut Turn<'_>) -> Flow {
        if head.authority().is_empty() {
            return self.refuse(400, "a request without a host cannot be signed", turn);
        }
        // No spelling of a field that the filter sets may stay beside it.
        head.fields.retain(|field| !self.names.iter().any(|name| reads_as(field.name, name.as_str())));
        if turn.is_rehearsal {
            // What is shown must not be a signature that could be used.
            return Flow::Continue;
        }
        signature::settle_query(head, turn.scratch);
        let time = signature::time(turn.unix_seconds());
        let [authorization, date, digest, token] = &self.names;
        head.fields.set(date, time.as_bytes());
        head.fields.set(digest, payload.as_bytes());
        if let Some(session) = &self.credentials.session_token {
            head.fields.set(token, session.as_bytes());
        }
        let value = self.scope.authorization(&self.credentials, head, &time, payload);
        head.fields.set(authorization, value.as_bytes());
        turn.count(&self.signed);
        Flow::Continue
    }
}

#[cfg(test)]
mod tests;
