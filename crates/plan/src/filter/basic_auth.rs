//! `basic_auth`.

mod hash;
mod known;
mod users;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use model::{FieldName, Issue, LocalResponse, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{FileText, Settings};
use super::{Compiling, FilterEntry, Flow, Found, Job, Need, RequestStep, Steps, Turn, Work};
use known::Known;
use users::Users;

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<BasicAuth>("basic_auth", DOC);

const DOC: &str = r#"Requires a user name and a password (HTTP Basic authentication, RFC 7617).

`file` is an htpasswd file: `name:hash` on each line, comments after `#`; it is read again when it changes. Hashes may be
bcrypt (`htpasswd -B`, the best choice), SHA-crypt (`$5$`, `$6$`, as `mkpasswd` makes) and Apache's MD5 (`$apr1$`). `{SHA}`, `crypt`
and plain passwords are rejected, because they can be read or guessed from the file. `users` lists users in the configuration itself.
Use it with TLS only, because the password is sent unencrypted.

Password hashes are slow by design, so separate threads verify them while the workers continue; a verified password is cached,
as a keyed digest, until the list changes. If too many wait for verification, requests get 503
(`verification_full`). Wrong passwords get 401 with the `realm`.

The response time does not reveal whether a user exists: a wrong password costs one hash of each cost in the list,
whatever the name. A list with one cost is therefore the cheapest; more than 16 different costs are rejected.

`{user}` is the name, for later filters and in access logs. The field `authorization` is not forwarded to the endpoint, unless
`pass_on: true`.

```yaml
filters:
  - basic_auth: { realm: the office, file: users.htpasswd }
  - set_request_header: { x-user: "{user}" }
```
"#;

static AUTHORIZATION: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("authorization").unwrap_or_else(|_| unreachable!("a constant token")));

/// Bytes of a name and a password together, decoded. bcrypt looks at 72 of the password anyway.
const CREDENTIALS_BYTES_MAX: usize = 512;

/// Who is let in.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BasicAuth {
    /// What is protected, as browsers show it; `restricted` by default.
    #[serde(default = "restricted")]
    #[schemars(length(min = 1, max = 128))]
    realm: String,
    /// A file of names and hashes.
    file: Option<FileText>,
    /// Names, each with its hash.
    #[serde(default)]
    #[schemars(extend("writeOnly" = true))]
    users: BTreeMap<String, String>,
    /// Send the credentials to the endpoint too.
    #[serde(default)]
    pass_on: bool,
}

fn restricted() -> String {
    "restricted".to_owned()
}

impl Settings for BasicAuth {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if self.file.is_none() && self.users.is_empty() {
            return Err(Issue::at("", "there are no users, so every request would be rejected")
                .suggest("add `file` or `users`"));
        }
        if self.realm.is_empty()
            || self.realm.len() > 128
            || !self.realm.bytes().all(|byte| (b' '..0x7f).contains(&byte))
        {
            return Err(Issue::at("realm", "a realm is 1 to 128 printable characters of ASCII"));
        }
        let mut users = Users::default();
        for (name, hash) in &self.users {
            users.add(name, hash).map_err(|message| Issue::at(format!("users/{name}"), message))?;
        }
        if let Some(file) = &self.file {
            users.read(file).map_err(|message| Issue::at("file", message))?;
        }
        let quoted = self.realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{quoted}\", charset=\"UTF-8\"");
        let shared = Arc::new(Shared { users, known: Known::default() });
        Ok(Steps::of_request(BasicAuthStep { shared, challenge, passes_on: self.pass_on }))
    }
}

/// What the step and the verification beside the workers share.
struct Shared {
    users: Users,
    known: Known,
}

struct BasicAuthStep {
    shared: Arc<Shared>,
    challenge: String,
    passes_on: bool,
}

impl BasicAuthStep {
    fn refuse(&self) -> Flow {
        let fields = vec![
            ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
            ("www-authenticate".to_owned(), self.challenge.clone()),
        ];
        let body = b"a user name and a password are required\n".to_vec();
        Flow::Respond(Box::new(LocalResponse { status: 401, fields, body }))
    }

    fn let_in(&self, head: &mut RequestHead, credentials: &Credentials, turn: &mut Turn<'_>) -> Flow {
        turn.notes.set_user(&credentials.bytes[..credentials.name]);
        if !self.passes_on {
            head.fields.remove(&AUTHORIZATION);
        }
        Flow::Continue
    }
}

impl RequestStep for BasicAuthStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let Some(credentials) = Credentials::of(head) else { return self.refuse() };
        if self.shared.known.holds(&credentials.bytes) {
            return self.let_in(head, &credentials, turn);
        }
        let shared = Arc::clone(&self.shared);
        Flow::Need(Need::Work(Job(Arc::new(Verification { shared, credentials }))))
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        match Credentials::of(head) {
            Some(credentials) if matches!(found, Found::Work(true)) => self.let_in(head, &credentials, turn),
            _ => self.refuse(),
        }
    }
}

/// A name and a password as a client sent them.
struct Credentials {
    /// Name, colon, password.
    bytes: Vec<u8>,
    /// Length of the name.
    name: usize,
}

impl Credentials {
    /// Returns those of a request that has exactly one field of them.
    fn of(head: &RequestHead) -> Option<Self> {
        let mut fields = head.fields.all(&AUTHORIZATION);
        let field = fields.next().filter(|_| fields.next().is_none())?;
        let (scheme, encoded) = field.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let encoded = encoded.trim_ascii();
        if encoded.len() > CREDENTIALS_BYTES_MAX.div_ceil(3) * 4 {
            return None;
        }
        let bytes = model::base64::decode(encoded)?;
        let name = bytes.iter().position(|byte| *byte == b':')?;
        // Neither part holds controls (RFC 7617 section 2).
        let is_clean = bytes.iter().all(|byte| *byte >= b' ' && *byte != 0x7f);
        (is_clean && bytes.len() <= CREDENTIALS_BYTES_MAX).then_some(Self { bytes, name })
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        (&self.bytes[..self.name], &self.bytes[self.name + 1..])
    }
}

struct Verification {
    shared: Arc<Shared>,
    credentials: Credentials,
}

impl Work for Verification {
    fn run(&self, chance: &mut dyn FnMut() -> u64) -> bool {
        let Shared { users, known } = &*self.shared;
        // A page brings many requests with the same credentials at once: the first of them is enough.
        if known.holds(&self.credentials.bytes) {
            return true;
        }
        let (name, password) = self.credentials.parts();
        let is_good = users.verify(name, password);
        if is_good {
            known.add(&self.credentials.bytes, chance);
        }
        is_good
    }
}

#[cfg(test)]
mod tests;
