//! What the provider answers to a request for tokens.

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::OidcStep;
use super::session::Session;
use crate::filter::token_endpoint::Tokens;
use crate::jose::{Algorithms, Claims, Refusal, Token};

/// Seconds before the end of the access token from which on a session is refreshed.
const EARLY: u64 = 60;

impl OidcStep {
    /// Verifies an ID token (OpenID Connect Core section 3.1.3.7).
    pub(super) fn verify(&self, token: &str, nonce: Option<&str>, now: u64) -> Result<Claims, Refusal> {
        let parsed = Token::parse(token.as_bytes())?;
        let (keys, _) = self.provider.keys.keys().ok_or(Refusal::UnknownKey)?;
        let claims = keys.verify(&parsed, Algorithms::ALL)?;
        self.rules.check(&claims, now)?;
        let text = |name: &str| claims.get(name).map(|value| value.as_str().unwrap_or_default());
        if text("azp").is_some_and(|party| party != self.provider.client_id) {
            return Err(Refusal::Audience);
        }
        if text("sub").is_none_or(str::is_empty) {
            return Err(Refusal::Malformed);
        }
        let is_nonce = |wanted: &str| {
            text("nonce").is_some_and(|nonce| verify_slices_are_equal(nonce.as_bytes(), wanted.as_bytes()).is_ok())
        };
        if !nonce.is_none_or(is_nonce) {
            return Err(Refusal::Malformed);
        }
        Ok(claims)
    }

    /// Returns a session with these tokens. What is missing stays as it was `before`.
    pub(super) fn session_of(&self, tokens: Tokens, before: Option<&Session>, key: &str, now: u64) -> Option<Session> {
        let id_token = tokens.id_token.or_else(|| before.map(|before| before.id_token.clone()))?;
        let refresh_token = tokens.refresh_token.or_else(|| before.and_then(|before| before.refresh_token.clone()));
        let lasts = tokens.expires_in.unwrap_or(3_600).max(1);
        let absolute = now.saturating_add(self.cookies.lifetimes.absolute);
        Some(Session {
            key: key.to_owned(),
            ends: before.map_or(absolute, |before| before.ends),
            used: now,
            fresh_until: now.saturating_add(lasts - EARLY.min(lasts / 4)),
            expires: now.saturating_add(lasts),
            id_token,
            refresh_token: refresh_token.filter(|_| self.refreshes_sessions),
            access_token: tokens.access_token.filter(|_| self.passes_access_token),
            more: before.map(|before| before.more.clone()).unwrap_or_default(),
        })
    }
}
