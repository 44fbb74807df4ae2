//! `signed_url`.

mod secrets;

use model::{Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{FileText, Settings};
use super::template::Template;
use super::variables::Stage;
use super::{Compiling, EventCounter, FilterEntry, Flow, RequestStep, Steps, Turn};
use crate::route::query::{decoded, equals_decoded, split_at_equals};
use secrets::{Algorithm, Secrets, parse_signature};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<SignedUrl>("signed_url", DOC);

const DOC: &str = r#"Requires URLs that your application has signed, such as download links that expire.

The application adds the time when the link expires, in seconds since 1970, as the query parameter `expires`, computes HMAC-SHA256 of path and
query as they then are, such as `/files/a.pdf?expires=1800000000`, and adds the result as the query parameter `signature`, in hexadecimal or
base64url. A request without a valid signature gets 403, and after `expires` 410. Both parameters are removed from the request, unless
`pass_on: true`. What is signed is the path and query as the client sent them, without `signature`.

`secret_file` has a secret of at least 16 bytes on each line, comments after `#`; it is read again when it changes. A signature with any
of them is valid, so that secrets can be rotated.

`message` signs another text, which may hold variables, and must hold the parameter `expires`. It cannot hold `{query}` or `{uri}`, which
contain the signature. With `algorithm: md5` and `{secret}` in the message,
the filter accepts the links of nginx's `secure_link` module: `message: "{query_param:expires}{path}{client_ip} {secret}"`. MD5 is for
links that exist; use HMAC-SHA256 for others. Signatures are compared in constant time. `equipoise_filter_events_total` counts
`refused` and `expired` requests.

```yaml
filters:
  - signed_url: { secret_file: url-secrets.txt }
```
"#;

/// What is signed, and how.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignedUrl {
    /// A file with a secret on each line.
    secret_file: FileText,
    /// `hmac_sha256` (by default) or `md5`.
    #[serde(default)]
    algorithm: Algorithm,
    /// The text that is signed; by default path and query without the signature.
    message: Option<String>,
    /// The query parameter with the signature; `signature` by default.
    #[serde(default = "signature")]
    #[schemars(length(min = 1))]
    signature: String,
    /// The query parameter with the time when the link expires; `expires` by default.
    #[serde(default = "expires")]
    #[schemars(length(min = 1))]
    expires: String,
    /// Accept links without a time, which never expire.
    #[serde(default)]
    allow_without_expiry: bool,
    /// Send the two parameters to the endpoint too.
    #[serde(default)]
    pass_on: bool,
}

fn signature() -> String {
    "signature".to_owned()
}

fn expires() -> String {
    "expires".to_owned()
}

const SECRET: &str = "{secret}";

impl Settings for SignedUrl {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        for (key, name) in [("signature", &self.signature), ("expires", &self.expires)] {
            if name.is_empty() {
                return Err(Issue::at(key, "the name of a parameter is empty"));
            }
        }
        if self.signature == self.expires {
            return Err(Issue::at("expires", "it is the parameter of the signature, too"));
        }
        let message = self.message.as_deref().map(|text| self.message(text)).transpose();
        let message = message.map_err(|issue| issue.below("message"))?;
        if self.algorithm == Algorithm::Md5 && message.as_ref().is_none_or(|message| message.behind.is_none()) {
            let issue = Issue::at("message", "with `md5` the message must hold the secret");
            return Err(
                issue.suggest("write the text of `secure_link_md5`, such as `{query_param:expires}{path} {secret}`")
            );
        }
        let secrets = Secrets::read(&self.secret_file, self.algorithm).map_err(|why| Issue::at("secret_file", why))?;
        Ok(Steps::of_request(SignedUrlStep {
            secrets,
            message,
            signature: self.signature.into(),
            expires: self.expires.into(),
            needs_expiry: !self.allow_without_expiry,
            passes_on: self.pass_on,
            refused: compiling.counter("refused"),
            expired: compiling.counter("expired"),
        }))
    }
}

impl SignedUrl {
    fn message(&self, text: &str) -> Result<Message, Issue> {
        let parts: Vec<&str> = text.split(SECRET).collect();
        let message = match (&parts[..], self.algorithm) {
            ([whole], _) => Message { front: Template::compile(whole, Stage::Request)?, behind: None },
            ([front, behind], Algorithm::Md5) => Message {
                front: Template::compile(front, Stage::Request)?,
                behind: Some(Template::compile(behind, Stage::Request)?),
            },
            ([_, _], Algorithm::HmacSha256) => {
                let issue = Issue::at("", "`{secret}` is for `algorithm: md5`: the secret is the key of the HMAC");
                return Err(issue.suggest("leave `{secret}` out"));
            }
            _ => return Err(Issue::at("", "`{secret}` is there twice")),
        };
        self.check_variables(&message)?;
        Ok(message)
    }

    /// Checks that links can be verified, and that the time when they expire is signed.
    fn check_variables(&self, message: &Message) -> Result<(), Issue> {
        let variables = || message.front.variables().chain(message.behind.iter().flat_map(Template::variables));
        if variables().any(|variable| variable.holds_parameter(&self.signature)) {
            let issue = Issue::at("", "the message holds the signature itself, so that no link could be valid");
            return Err(issue.suggest("write `{path}` and `{query_param:NAME}` of each parameter that is signed"));
        }
        if !self.allow_without_expiry && !variables().any(|variable| variable.is_parameter(&self.expires)) {
            let issue =
                Issue::at("", "the message lacks the time when the link expires, so that anyone could change it");
            return Err(issue.suggest(format!("add `{{query_param:{}}}`", self.expires)));
        }
        Ok(())
    }
}

/// A text that is signed.
struct Message {
    front: Template,
    /// What follows the secret, if the secret is a part of the text.
    behind: Option<Template>,
}

struct SignedUrlStep {
    secrets: Secrets,
    message: Option<Message>,
    signature: Box<str>,
    expires: Box<str>,
    needs_expiry: bool,
    passes_on: bool,
    refused: EventCounter,
    expired: EventCounter,
}

/// Why a link is refused.
enum Lack {
    Invalid,
    Expired,
}

impl SignedUrlStep {
    fn check(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Result<(), Lack> {
        let query = head.received_query().unwrap_or_default();
        let signature = only(query, &self.signature).ok_or(Lack::Invalid)?;
        let signature: Vec<u8> = decoded(signature).take(130).collect();
        let signature = parse_signature(&signature).ok_or(Lack::Invalid)?;
        let ends = match only(query, &self.expires) {
            Some(digits) => Some(seconds(digits).ok_or(Lack::Invalid)?),
            None if self.needs_expiry || count(query, &self.expires) > 0 => return Err(Lack::Invalid),
            None => None,
        };
        let unix = turn.unix_seconds();
        let is_signed = match &self.message {
            None => {
                turn.scratch.clear();
                write_received(head, &self.signature, turn.scratch);
                self.secrets.verify(turn.scratch, None, &signature)
            }
            Some(message) => {
                let (values, scratch) = turn.values(head);
                scratch.clear();
                message.front.write(&values, scratch);
                let secret_at = scratch.len();
                message.behind.iter().for_each(|behind| behind.write(&values, scratch));
                self.secrets.verify(scratch, message.behind.is_some().then_some(secret_at), &signature)
            }
        };
        match ends {
            _ if !is_signed => Err(Lack::Invalid),
            Some(ends) if ends < unix => Err(Lack::Expired),
            _ => Ok(()),
        }
    }

    fn strip(&self, head: &mut RequestHead, scratch: &mut Vec<u8>) {
        let Some(query) = head.query() else { return };
        scratch.clear();
        write_pairs(query, &[&*self.signature, &*self.expires], scratch);
        head.set_query(scratch);
    }
}

/// Writes path and query as they were received, without the parameter of the signature.
fn write_received(head: &RequestHead, signature: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(head.received_path());
    out.push(b'?');
    let start = out.len();
    write_pairs(head.received_query().unwrap_or_default(), &[signature], out);
    if out.len() == start {
        out.pop();
    }
}

/// Writes the parameters of a query but for those of these names.
fn write_pairs(query: &[u8], without: &[&str], out: &mut Vec<u8>) {
    let is_other = |pair: &&[u8]| !without.iter().any(|name| equals_decoded(split_at_equals(pair).0, name.as_bytes()));
    for (place, pair) in query.split(|&byte| byte == b'&').filter(is_other).enumerate() {
        if place > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(pair);
    }
}

fn values<'a>(query: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = query.split(|&byte| byte == b'&').map(split_at_equals);
    pairs.filter(|(key, _)| equals_decoded(key, name.as_bytes())).map(|(_, value)| value)
}

/// Returns the value of a parameter that is there once.
fn only<'a>(query: &'a [u8], name: &'a str) -> Option<&'a [u8]> {
    let mut values = values(query, name);
    values.next().filter(|_| values.next().is_none())
}

fn count(query: &[u8], name: &str) -> usize {
    values(query, name).count()
}

fn seconds(digits: &[u8]) -> Option<u64> {
    let is_number = (1..=12).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

impl RequestStep for SignedUrlStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        match self.check(head, turn) {
            Ok(()) => {
                if !self.passes_on {
                    self.strip(head, turn.scratch);
                }
                Flow::Continue
            }
            Err(Lack::Invalid) => {
                turn.count(&self.refused);
                Flow::refuse(403, "the link is not valid")
            }
            Err(Lack::Expired) => {
                turn.count(&self.expired);
                Flow::refuse(410, "the link has expired")
            }
        }
    }
}

#[cfg(test)]
mod tests;
