//! What the token endpoint of a provider gets and answers (RFC 6749): who the client is, and tokens.

use model::{Fault, Issue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::Reply;
use super::form_call::{basic, only_line};
use super::settings::{FileText, Ordered};
use crate::jose::Claims;

/// What the proxy is to the provider.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    /// The identifier of the client.
    pub(super) id: String,
    /// A file with its secret; without any secret the client is public.
    secret_file: Option<FileText>,
    /// Its secret itself, such as `${OIDC_SECRET}`.
    #[schemars(extend("writeOnly" = true))]
    secret: Option<String>,
    /// How the secret is sent: as HTTP Basic authentication (`basic`, by default), or in the form (`post`).
    #[serde(default)]
    authentication: Authentication,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Authentication {
    #[default]
    Basic,
    Post,
}

/// A field `authorization`, and parameters of a form.
pub(super) type Credentials = (Option<String>, Vec<(&'static str, String)>);

impl Client {
    /// Returns how the client authenticates (RFC 6749 section 2.3.1).
    ///
    /// # Errors
    /// The identifier or the secret is none. No message contains a secret.
    pub(super) fn credentials(&self) -> Result<Credentials, Issue> {
        if self.id.is_empty() || self.id.contains(char::is_control) {
            return Err(Issue::at("client/id", "it is not the identifier of a client"));
        }
        let id = ("client_id", self.id.clone());
        let secret = match (&self.secret_file, &self.secret) {
            (None, None) => return Ok((None, vec![id])),
            (Some(file), None) => only_line(file).map_err(|why| Issue::at("client/secret_file", why))?,
            (None, Some(secret)) => secret.trim(),
            (Some(_), Some(_)) => return Err(twice("client/secret", "secret_file")),
        };
        if secret.is_empty() || secret.contains(char::is_control) {
            return Err(Issue::at("client/secret", "it is not one line of text"));
        }
        Ok(match self.authentication {
            Authentication::Basic => (Some(basic(&self.id, secret)), Vec::new()),
            Authentication::Post => (None, vec![id, ("client_secret", secret.to_owned())]),
        })
    }
}

/// Returns scopes as the value of a parameter (RFC 6749 section 3.3).
///
/// # Errors
/// A scope has characters that no scope may have.
pub(super) fn joined_scopes(list: &[String]) -> Result<String, Issue> {
    let is_scope =
        |scope: &String| !scope.is_empty() && scope.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    if let Some((place, scope)) = list.iter().enumerate().find(|(_, scope)| !is_scope(scope)) {
        return Err(Issue::at(format!("scopes/{place}"), format!("`{scope}` is not a scope")));
    }
    Ok(list.join(" "))
}

/// Returns further parameters of a request.
///
/// # Errors
/// A parameter is one of those that the filter sets itself.
pub(super) fn more_parameters(written: Option<Ordered<String>>, own: &[&str]) -> Result<Vec<(String, String)>, Issue> {
    let parameters = written.map(|ordered| ordered.0).unwrap_or_default();
    if let Some((name, _)) = parameters.iter().find(|(name, _)| own.contains(&name.as_str())) {
        let issue = Issue::at(format!("parameters/{name}"), format!("the filter sets `{name}` itself"));
        return Err(issue.suggest("leave it out"));
    }
    // Names go into the form as they are.
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    if let Some((name, _)) = parameters.iter().find(|(name, _)| name.is_empty() || !is_name(name)) {
        return Err(Issue::at("parameters", format!("`{name}` is not the name of a parameter")));
    }
    Ok(parameters)
}

/// Returns the issue of a setting that is there in another form.
pub(super) fn twice(path: &str, other: &str) -> Issue {
    Issue::at(path, format!("there is already a `{other}`")).suggest("leave one of them out")
}

/// The tokens of one answer (RFC 6749 section 5.1, OpenID Connect Core section 3.1.3.3).
pub(super) struct Tokens {
    pub(super) id_token: Option<String>,
    pub(super) access_token: Option<String>,
    pub(super) refresh_token: Option<String>,
    /// Seconds.
    pub(super) expires_in: Option<u64>,
}

/// Why there are no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTokens {
    /// The provider refuses the code, the refresh token or the client.
    Refused,
    /// It does not answer, or not with tokens.
    Unavailable,
}

impl Tokens {
    /// Reads an answer.
    pub(super) fn read(reply: Result<Box<Reply>, Fault>) -> Result<Self, NoTokens> {
        let reply = reply.map_err(|_| NoTokens::Unavailable)?;
        match reply.head.status {
            200 => {}
            400 | 401 | 403 => return Err(NoTokens::Refused),
            _ => return Err(NoTokens::Unavailable),
        }
        let members = Claims::from_json(&reply.body).ok_or(NoTokens::Unavailable)?;
        let text = |name: &str| members.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let expires_in = members.get("expires_in").filter(|value| !value.is_null());
        let expires_in = expires_in.map(|value| seconds(value).ok_or(NoTokens::Unavailable)).transpose()?;
        let is_bearer = members
            .get("token_type")
            .is_none_or(|kind| kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")));
        // It goes into a header field.
        let is_sent = |token: &String| is_bearer && token.bytes().all(|byte| byte.is_ascii_graphic());
        let access_token = text("access_token").filter(is_sent);
        Ok(Self { id_token: text("id_token"), access_token, refresh_token: text("refresh_token"), expires_in })
    }
}

/// Reads a number of seconds, of which some providers write a fraction or a text. Returns `None` if it is not at least one.
fn seconds(value: &Value) -> Option<u64> {
    let whole = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let fraction = || value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|seconds| seconds.is_finite());
    whole.or_else(|| fraction().map(|seconds| seconds as u64)).filter(|seconds| *seconds >= 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::response;
    use super::*;

    fn read(members: &Value) -> Result<(Option<String>, Option<u64>), NoTokens> {
        let reply = Reply { head: response(200, &[]), body: members.to_string().into_bytes() };
        Tokens::read(Ok(Box::new(reply))).map(|tokens| (tokens.access_token, tokens.expires_in))
    }

    #[test]
    fn lifetimes_are_numbers_from_one_second_on_or_missing() {
        for (written, lasts) in [
            (json!(30), Some(30)),
            (json!("30"), Some(30)),
            (json!(30.9), Some(30)),
            (json!("30.0"), Some(30)),
            (json!(1e20), Some(u64::MAX)),
            (json!(null), None),
        ] {
            assert_eq!(read(&json!({ "access_token": "a", "expires_in": written })).unwrap().1, lasts, "{written}");
        }
        for bad in [json!(0), json!(-1), json!("-1"), json!(0.5), json!("soon"), json!("NaN"), json!(true), json!([30])]
        {
            let read = read(&json!({ "access_token": "a", "expires_in": bad }));
            assert_eq!(read, Err(NoTokens::Unavailable), "{bad}");
        }
    }

    #[test]
    fn types_other_than_the_text_bearer_give_no_token() {
        for (kind, is_token) in [
            (json!("BEARER"), true),
            (json!("mac"), false),
            (json!(1), false),
            (json!(null), false),
            (json!([]), false),
        ] {
            let token = read(&json!({ "access_token": "a", "token_type": kind })).unwrap().0;
            assert_eq!(token.is_some(), is_token, "{kind}");
        }
        assert!(read(&json!({ "access_token": "a" })).unwrap().0.is_some());
    }
}
