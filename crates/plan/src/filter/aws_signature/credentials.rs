//! Credentials of AWS.

use std::fmt;

/// Bytes of one value: tokens of temporary credentials have more than a thousand.
const BYTES_MAX: usize = 8 << 10;

/// See the module.
pub(super) struct Credentials {
    pub(super) id: String,
    /// `AWS4` and the secret of the access key.
    pub(super) secret: String,
    pub(super) session_token: Option<String>,
}

/// They are secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Checks credentials.
    ///
    /// # Errors
    /// The key of the one that is none, and why. No message contains a secret.
    pub(super) fn new(
        id: String,
        secret: &str,
        session_token: Option<String>,
    ) -> Result<Self, (&'static str, &'static str)> {
        let is_text = |text: &str| {
            !text.is_empty() && text.len() <= BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) || !is_text(&id) {
            return Err(("access_key_id", "it is not the identifier of an access key"));
        }
        if !is_text(secret) {
            return Err(("secret_access_key", "it is not a secret without spaces"));
        }
        // An environment variable that is set to nothing is no token.
        let session_token = session_token.filter(|token| !token.is_empty());
        if session_token.as_deref().is_some_and(|token| !is_text(token)) {
            return Err(("session_token", "it is not a token without spaces"));
        }
        Ok(Self { id, secret: format!("AWS4{secret}"), session_token })
    }

    /// Reads those of a profile. Lines before the first `[profile]` are of `default`.
    ///
    /// # Errors
    /// What is missing. No message contains a value.
    pub(super) fn read(text: &str, profile: &str) -> Result<Self, String> {
        let (mut section, mut found) = ("default", [None, None, None]);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.trim();
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| section == profile) else { continue };
            let keys = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"];
            if let Some(place) = keys.iter().position(|known| *known == key.trim()) {
                found[place] = Some(value.trim());
            }
        }
        let [id, secret, token] = found;
        let (Some(id), Some(secret)) = (id, secret) else {
            return Err(format!("has no `aws_access_key_id` and `aws_secret_access_key` in the profile `{profile}`"));
        };
        let made = Self::new(id.to_owned(), secret, token.map(str::to_owned));
        made.map_err(|(key, why)| format!("has a bad `aws_{key}`: {why}"))
    }
}
