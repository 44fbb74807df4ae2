//! Calls to an endpoint of a provider of tokens: with a form as their body (RFC 6749 appendix B), or for a document.

use std::sync::LazyLock;
use std::time::Duration;

use model::fields::Span;
use model::{FieldName, Issue, RequestHead, Version, base64};

use super::settings::FileText;
use super::{Call, CalledCluster, Need};
use crate::route::query::encode_from;

/// The largest answer, in bytes of its body.
pub(super) const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// What is the same in all calls.
pub(super) struct FormEndpoint {
    cluster: CalledCluster,
    path: String,
    host: Option<String>,
    /// The field `authorization`, a secret: it must not be shown.
    authorization: Option<String>,
    timeout: Duration,
}

/// Names of the fields of a call.
struct Names {
    host: FieldName,
    authorization: FieldName,
    content_type: FieldName,
    accept: FieldName,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let name = |text| FieldName::new(text).unwrap_or_else(|_| unreachable!("a constant token"));
    Names {
        host: name("host"),
        authorization: name("authorization"),
        content_type: name("content-type"),
        accept: name("accept"),
    }
});

impl FormEndpoint {
    /// Checks the settings. `path` comes with the key that names it.
    ///
    /// # Errors
    /// The path or the host is none.
    pub(super) fn compile(
        cluster: CalledCluster,
        (key, path): (&str, String),
        host: Option<String>,
        authorization: Option<String>,
        timeout: Duration,
    ) -> Result<Self, Issue> {
        let is_visible = |text: &str| text.bytes().all(|byte| (b'!'..0x7f).contains(&byte) && byte != b'#');
        if !path.starts_with('/') || !is_visible(&path) {
            let issue = Issue::at(key, format!("`{path}` is not a path"));
            return Err(issue.suggest("write one such as `/oauth2/introspect`"));
        }
        if let Some(host) = host.as_ref().filter(|host| host.is_empty() || !is_visible(host) || host.contains('/')) {
            let issue = Issue::at("host", format!("`{host}` is not a host"));
            return Err(issue.suggest("write one such as `login.internal`"));
        }
        Ok(Self { cluster, path, host, authorization, timeout })
    }

    /// Returns the call with these parameters.
    pub(super) fn post_call(&self, pairs: &[(&str, &[u8])]) -> Call {
        self.form_call(&self.path, None, pairs)
    }

    /// Returns the need for a call with another path, and with this host where the settings name none.
    pub(super) fn post_to(&self, path: &str, host: Option<&str>, pairs: &[(&str, &[u8])]) -> Need {
        Need::Call(Box::new(self.form_call(path, host, pairs)))
    }

    fn form_call(&self, path: &str, host: Option<&str>, pairs: &[(&str, &[u8])]) -> Call {
        let mut head = self.head("POST", path, host);
        head.fields.set(&NAMES.content_type, b"application/x-www-form-urlencoded");
        head.fields.set(&NAMES.accept, b"application/json");
        let mut body = Vec::new();
        push_pairs(&mut body, pairs);
        self.call(head, body, RESPONSE_BYTES_MAX)
    }

    /// Returns the call for a document of at most so many bytes.
    pub(super) fn get_call(&self, response_bytes_max: usize) -> Call {
        let mut head = self.head("GET", &self.path, None);
        head.fields.set(&NAMES.accept, b"application/jwk-set+json, application/json");
        self.call(head, Vec::new(), response_bytes_max)
    }

    /// Returns the need for what the holder of an access token may read there (RFC 6750 section 2.1).
    pub(super) fn get_with(&self, token: &str, (path, host): (&str, &str)) -> Need {
        let mut head = self.head("GET", path, Some(host));
        head.fields.set(&NAMES.accept, b"application/json, application/jwt");
        head.fields.set_with(&NAMES.authorization, |out| {
            out.extend_from_slice(b"Bearer ");
            out.extend_from_slice(token.as_bytes());
        });
        Need::Call(Box::new(self.call(head, Vec::new(), RESPONSE_BYTES_MAX)))
    }

    fn head(&self, method: &str, path: &str, host: Option<&str>) -> RequestHead {
        let mut head = RequestHead::default();
        let mut load = |text: &str| {
            let start = head.fields.load(text.as_bytes());
            Span::new(start, start + text.len())
        };
        let (method, target) = (load(method), load(path));
        head.set_line(method, target, Version::Http11);
        if let Some(host) = self.host.as_deref().or(host) {
            head.fields.set(&NAMES.host, host.as_bytes());
        }
        if let Some(authorization) = &self.authorization {
            head.fields.set(&NAMES.authorization, authorization.as_bytes());
        }
        head
    }

    fn call(&self, head: RequestHead, body: Vec<u8>, response_bytes_max: usize) -> Call {
        Call { cluster: self.cluster, head, body: body.into(), timeout: self.timeout, response_bytes_max }
    }
}

/// Appends parameters, percent-encoded.
pub(super) fn push_pairs(out: &mut Vec<u8>, pairs: &[(&str, &[u8])]) {
    for (place, (name, value)) in pairs.iter().enumerate() {
        if place > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b'=');
        let start = out.len();
        out.extend_from_slice(value);
        encode_from(out, start);
    }
}

/// Returns the field `authorization` for a client (RFC 6749 section 2.3.1: both parts are encoded as in a form).
pub(super) fn basic(client: &str, secret: &str) -> String {
    let mut pair = client.as_bytes().to_vec();
    encode_from(&mut pair, 0);
    pair.push(b':');
    let start = pair.len();
    pair.extend_from_slice(secret.as_bytes());
    encode_from(&mut pair, start);
    format!("Basic {}", base64::encode(&pair))
}

/// Returns the only line of a file with a secret.
///
/// # Errors
/// The file has no line, or several. The message does not contain it.
pub(super) fn only_line(file: &FileText) -> Result<&str, String> {
    let line = file.text.trim();
    let is_line = !line.is_empty() && !line.contains(char::is_control);
    if is_line { Ok(line) } else { Err(format!("`{}` is not one line of text", file.name)) }
}
