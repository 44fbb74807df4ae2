//! When a verified token is good.

use super::{Claims, Refusal};

/// What the claims of a token must say. Times are seconds.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Allowed issuers; empty: any.
    pub issuers: Box<[String]>,
    /// Audiences of which the token must have one; empty: any.
    pub audiences: Box<[String]>,
    /// How far clocks may differ.
    pub leeway: u64,
    /// Whether a token must expire.
    pub needs_expiry: bool,
    /// How old a token may be by its `iat`.
    pub age_max: Option<u64>,
}

/// How long a token is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The first second since 1970 in which it is no longer good.
    pub ends: u64,
}

impl Rules {
    /// Checks the claims of a token at a moment, in seconds since 1970.
    ///
    /// # Errors
    /// The first rule that they break.
    pub fn check(&self, claims: &Claims, now: u64) -> Result<Lifetime, Refusal> {
        let moment = |name: &str| claims.moment(name).map_err(|()| Refusal::Malformed);
        let (expiry, not_before, issued) = (moment("exp")?, moment("nbf")?, moment("iat")?);
        let mut ends = u64::MAX;
        match expiry {
            None if self.needs_expiry => return Err(Refusal::NoExpiry),
            None => {}
            Some(expiry) => {
                ends = expiry.saturating_add(self.leeway);
                if now >= ends {
                    return Err(Refusal::Expired);
                }
            }
        }
        let latest = now.saturating_add(self.leeway);
        if not_before.is_some_and(|begins| begins > latest) || issued.is_some_and(|issued| issued > latest) {
            return Err(Refusal::NotYet);
        }
        if let Some(age_max) = self.age_max {
            let issued = issued.ok_or(Refusal::TooOld)?;
            let too_old = issued.saturating_add(age_max).saturating_add(self.leeway);
            if now >= too_old {
                return Err(Refusal::TooOld);
            }
            ends = ends.min(too_old);
        }
        let is_text = |name: &str, wanted: &[String]| {
            claims.get(name).and_then(|value| value.as_str()).is_some_and(|text| wanted.iter().any(|one| one == text))
        };
        if !self.issuers.is_empty() && !is_text("iss", &self.issuers) {
            return Err(Refusal::Issuer);
        }
        let is_for = |audience: &String| claims.has("aud", &audience.as_str().into());
        if !self.audiences.is_empty() && !self.audiences.iter().any(is_for) {
            return Err(Refusal::Audience);
        }
        Ok(Lifetime { ends })
    }
}
