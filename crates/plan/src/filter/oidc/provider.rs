//! What is asked of the provider: URLs for the browser, and calls.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use model::base64::encode_url;
use model::provider::split_url;

use super::session::Login;
use crate::filter::Need;
use crate::filter::form_call::{FormEndpoint, push_pairs};
use crate::filter::jwt::keys::TokenKeys;
use crate::jose::Metadata;

/// Bytes of a URL that a browser is sent to. Beyond that the hint at the session is left out.
const LOGOUT_URL_BYTES_MAX: usize = 6_000;

/// The provider, and what this client is to it.
pub(super) struct Provider {
    pub(super) keys: TokenKeys,
    /// The endpoints, if they are given by hand.
    pub(super) fixed: Option<Arc<Metadata>>,
    pub(super) tokens: FormEndpoint,
    pub(super) client_id: String,
    /// What the form says of the client; a secret.
    pub(super) form: Vec<(&'static str, String)>,
    pub(super) scopes: String,
    /// Further parameters of the login.
    pub(super) parameters: Vec<(String, String)>,
}

impl Provider {
    /// Returns the endpoints, once they are known.
    pub(super) fn metadata(&self) -> Option<Arc<Metadata>> {
        match (&self.fixed, &self.keys) {
            (Some(fixed), _) => Some(Arc::clone(fixed)),
            (None, TokenKeys::Fetched(source)) => source.metadata(),
            (None, TokenKeys::Fixed(_) | TokenKeys::Called(_)) => None,
        }
    }

    /// Returns the URL where the user logs in (OpenID Connect Core section 3.1.2.1, with PKCE, RFC 7636).
    pub(super) fn login_url(&self, metadata: &Metadata, login: &Login, redirect_uri: &str) -> String {
        let challenge = encode_url(digest(&SHA256, login.verifier.as_bytes()).as_ref());
        let own: [(&str, &str); 8] = [
            ("response_type", "code"),
            ("client_id", &self.client_id),
            ("redirect_uri", redirect_uri),
            ("scope", &self.scopes),
            ("state", &login.state),
            ("nonce", &login.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let more = self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs: Vec<_> = own.into_iter().chain(more).map(|(name, value)| (name, value.as_bytes())).collect();
        with_pairs(&metadata.authorization_url, &pairs)
    }

    /// Returns the URL where the provider ends its own session, if it has one (OpenID Connect RP-Initiated Logout).
    pub(super) fn logout_url(
        &self,
        metadata: &Metadata,
        id_token: Option<&str>,
        back_to: Option<&str>,
    ) -> Option<String> {
        let url = metadata.end_session_url.as_ref()?;
        let mut pairs = vec![("client_id", self.client_id.as_bytes())];
        pairs.extend(back_to.map(|back_to| ("post_logout_redirect_uri", back_to.as_bytes())));
        let without = with_pairs(url, &pairs);
        pairs.extend(id_token.map(|token| ("id_token_hint", token.as_bytes())));
        Some(with_pairs(url, &pairs)).filter(|url| url.len() <= LOGOUT_URL_BYTES_MAX).or(Some(without))
    }

    /// Exchanges a code for tokens.
    pub(super) fn redeem(&self, metadata: &Metadata, code: &[u8], login: &Login, redirect_uri: &str) -> Need {
        self.post(
            metadata,
            &[
                ("grant_type", b"authorization_code"),
                ("code", code),
                ("redirect_uri", redirect_uri.as_bytes()),
                ("code_verifier", login.verifier.as_bytes()),
            ],
        )
    }

    /// Exchanges a refresh token for tokens.
    pub(super) fn refresh(&self, metadata: &Metadata, token: &str) -> Need {
        self.post(metadata, &[("grant_type", b"refresh_token"), ("refresh_token", token.as_bytes())])
    }

    fn post(&self, metadata: &Metadata, pairs: &[(&str, &[u8])]) -> Need {
        let own = self.form.iter().map(|(name, value)| (*name, value.as_bytes()));
        let pairs: Vec<_> = pairs.iter().copied().chain(own).collect();
        let (host, path) = host_and_path(&metadata.token_url);
        self.tokens.post_to(&path, Some(&host), &pairs)
    }
}

/// Returns host and path of a URL that was checked.
pub(super) fn host_and_path(url: &str) -> (String, String) {
    let Some((_, host, port, path)) = split_url(url) else { return (String::new(), "/".to_owned()) };
    (port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")), path.to_owned())
}

fn with_pairs(url: &str, pairs: &[(&str, &[u8])]) -> String {
    let mut out = url.as_bytes().to_vec();
    out.push(if url.contains('?') { b'&' } else { b'?' });
    push_pairs(&mut out, pairs);
    String::from_utf8_lossy(&out).into_owned()
}
