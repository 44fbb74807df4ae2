//! `api_key`.

mod keys;

use std::collections::BTreeMap;

use model::{FieldName, Issue, LocalResponse, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::{Carried, Places, TakenFrom};
use super::fields::changeable_name;
use super::guarded::Guarded;
use super::settings::{FileText, Settings};
use super::variables::Stage;
use super::{Compiling, EventCounter, FilterEntry, Flow, RequestStep, Steps, Turn};
use keys::{KEY_BYTES_MAX, Keys};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<ApiKey>("api_key", DOC);

const DOC: &str = r#"Requires an API key.

`file` lists the keys: `consumer:key` on each line, comments after `#`; it is read again when it changes. A key is plain text of 8 to 1024
characters, or its SHA-256 digest: `sha256:` and 64 hexadecimal digits, as `printf %s KEY | sha256sum` prints them. A consumer may have
several keys, so that they can be rotated. `keys` lists keys in the configuration itself.

The key is expected in the header field `x-api-key`, or where `from` says: in a `header` field, a `query` parameter or a `cookie`. With
several of them, the first that has a key decides, in this order. Requests without a key, with an unknown key, or with two keys in the same place get 401.

Only digests are kept in memory, and they are compared in constant time. Hashing hides a key only if it is random and long: create keys
with `openssl rand -hex 32`. Use the filter with TLS only, because keys are sent unencrypted.

The name of the consumer is `{user}` for later filters and in access logs, and goes to the endpoint in `consumer_header`, which clients
cannot forge. The key is removed from the request, unless `pass_on: true`; keys in
other places of `from` are always removed. `equipoise_filter_events_total` counts requests that are
`refused`.

Requests that `when` exempts are not changed: they keep the client's own `consumer_header`. Remove it with `remove_request_header` before, if the
filter has conditions.

```yaml
filters:
  - api_key: { file: keys.txt, consumer_header: x-consumer }
```
"#;

/// Which keys are valid, and where requests carry them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApiKey {
    /// A file of consumers and keys.
    file: Option<FileText>,
    /// Consumers, each with its key or the digest of it.
    #[serde(default)]
    #[schemars(extend("writeOnly" = true))]
    keys: BTreeMap<String, String>,
    /// Where the key is looked for; by default in the header field `x-api-key`.
    #[serde(default)]
    from: TakenFrom,
    /// The request field that carries the name of the consumer to the endpoint.
    consumer_header: Option<String>,
    /// Send the key to the endpoint too.
    #[serde(default)]
    pass_on: bool,
}

impl Settings for ApiKey {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.file.is_none() && self.keys.is_empty() {
            return Err(
                Issue::at("", "there are no keys, so every request would be rejected").suggest("add `file` or `keys`")
            );
        }
        let mut keys = Keys::default();
        for (consumer, key) in &self.keys {
            keys.add(consumer, key).map_err(|message| Issue::at(format!("keys/{consumer}"), message))?;
        }
        if let Some(file) = &self.file {
            keys.read(file).map_err(|message| Issue::at("file", message))?;
        }
        let places = Places::compile(&self.from, "x-api-key")?;
        let consumer_header = self.consumer_header.map(|name| changeable_name(&name, Stage::Request)).transpose();
        let consumer_header = consumer_header.map_err(|issue| issue.below("consumer_header"))?;
        let refused = compiling.counter("refused");
        let guarded = consumer_header.iter().cloned().map(Guarded::Name).collect();
        let step = ApiKeyStep { keys, places, consumer_header, passes_on: self.pass_on, refused };
        Ok(Steps { guarded, ..Steps::of_request(step) })
    }
}

struct ApiKeyStep {
    keys: Keys,
    places: Places,
    consumer_header: Option<FieldName>,
    passes_on: bool,
    refused: EventCounter,
}

impl RequestStep for ApiKeyStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let found = match self.places.read(head, turn.scratch, KEY_BYTES_MAX) {
            Carried::One(place) => self.keys.consumer(turn.scratch).map(|consumer| (consumer, place)),
            Carried::None | Carried::Bad => None,
        };
        let Some((consumer, place)) = found else {
            turn.count(&self.refused);
            return refuse();
        };
        turn.notes.set_user(consumer.as_bytes());
        self.places.strip(self.passes_on.then_some(place), head, turn.scratch);
        if let Some(name) = &self.consumer_header {
            head.fields.set_alone(name, consumer.as_bytes());
        }
        Flow::Continue
    }
}

fn refuse() -> Flow {
    let fields = vec![
        ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
        // A 401 has a challenge (RFC 9110 section 15.5.2); no scheme is registered for keys.
        ("www-authenticate".to_owned(), "ApiKey realm=\"restricted\"".to_owned()),
    ];
    let body = b"a valid API key is required\n".to_vec();
    Flow::Respond(Box::new(LocalResponse { status: 401, fields, body }))
}

#[cfg(test)]
mod tests;
