//! Sessions by cookie: which one a request shows, and the one that a response sets.

use std::time::Duration;

use model::limits::SESSION_COOKIES_MAX;
use model::persistence::SessionCookie;
use model::{FieldName, RequestHead, ResponseHead};

use super::cookie::{Shown, Signer};
use super::session::{Dates, GONE, Session};
use crate::cluster::EndpointPlan;

/// Cookies from further ahead than this are of a clock that was wrong.
const AHEAD_MAX_SECONDS: u32 = 86_400;

/// How a cluster gives out and reads cookies.
pub(super) struct CookiePlan {
    pub(super) settings: SessionCookie,
    signer: Signer,
    /// `; Path=…` and what else does not change.
    attributes: Box<[u8]>,
    set_cookie: FieldName,
    pub(super) cookie: FieldName,
    cache_control: FieldName,
}

impl CookiePlan {
    pub(super) fn new(cluster: &str, settings: &SessionCookie, endpoints: &[EndpointPlan]) -> Option<Self> {
        let mut attributes = format!("; Path={}", settings.path);
        if let Some(domain) = &settings.domain {
            attributes += &format!("; Domain={domain}");
        }
        attributes += &format!("; SameSite={}", settings.same_site.as_str());
        if settings.http_only {
            attributes += "; HttpOnly";
        }
        Some(Self {
            signer: Signer::new(cluster, &settings.secrets, endpoints),
            attributes: attributes.into_bytes().into(),
            set_cookie: FieldName::new("Set-Cookie").ok()?,
            cookie: FieldName::new("Cookie").ok()?,
            cache_control: FieldName::new("Cache-Control").ok()?,
            settings: settings.clone(),
        })
    }

    /// Returns the session of the first genuine cookie with our name that has not ended.
    pub(super) fn find(&self, head: &RequestHead, now: u32) -> Session {
        let shown = model::cookie::values(&head.fields, self.settings.name.as_bytes())
            .take(SESSION_COOKIES_MAX)
            .filter_map(|value| self.signer.verify(value))
            .find(|shown| !self.has_ended(shown.dates, now));
        let Some(Shown { endpoint, dates, is_of_old_secret }) = shown else {
            return Session { may_begin: true, ..Session::default() };
        };
        let is_stale = is_of_old_secret || self.wants_refresh(dates, now);
        Session { pinned: Some(endpoint.unwrap_or(GONE)), dates: Some(dates), is_stale, ..Session::default() }
    }

    fn has_ended(&self, dates: Dates, now: u32) -> bool {
        let over = |since: u32, bound: Option<Duration>| {
            bound.is_some_and(|bound| u64::from(now.saturating_sub(since)) >= bound.as_secs().max(1))
        };
        dates.seen > now.saturating_add(AHEAD_MAX_SECONDS)
            || over(dates.seen, self.settings.idle_max)
            || over(dates.begun, self.settings.life_max)
    }

    /// Returns whether to write it again: a cookie that ends by itself is, once an eighth of that time has passed, not with each
    /// response.
    fn wants_refresh(&self, dates: Dates, now: u32) -> bool {
        let shortest = self.settings.idle_max.into_iter().chain(self.settings.max_age).min();
        shortest.is_some_and(|bound| u64::from(now.saturating_sub(dates.seen)) >= bound.as_secs().div_ceil(8).max(1))
    }

    /// Appends the cookie to a response.
    pub(super) fn set(
        &self,
        session: &Session,
        endpoint: usize,
        response: &mut ResponseHead,
        (now, is_secure): (u32, bool),
    ) {
        let dates = Dates { begun: session.dates.map_or(now, |dates| dates.begun), seen: now };
        response.fields.append_with(&self.set_cookie, |out| {
            out.extend_from_slice(self.settings.name.as_bytes());
            out.push(b'=');
            self.signer.sign(endpoint, dates, out);
            out.extend_from_slice(&self.attributes);
            if self.settings.secure.unwrap_or(is_secure) {
                out.extend_from_slice(b"; Secure");
            }
            if let Some(left) = self.max_age(dates) {
                out.extend_from_slice(format!("; Max-Age={left}").as_bytes());
            }
        });
        if self.settings.mark_private && !is_private(response) {
            response.fields.append(&self.cache_control, b"private");
        }
    }

    /// Returns the seconds that a browser is to keep it: no longer than the session may live.
    fn max_age(&self, dates: Dates) -> Option<u64> {
        let age = self.settings.max_age?.as_secs().max(1);
        let lived = u64::from(dates.seen.saturating_sub(dates.begun));
        Some(self.settings.life_max.map_or(age, |life| age.min(life.as_secs().saturating_sub(lived).max(1))))
    }
}

/// Returns whether no shared cache may keep the response anyway (RFC 9111 section 5.2.2).
fn is_private(response: &ResponseHead) -> bool {
    let fields = response.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(b"cache-control"));
    let mut directives = fields.flat_map(|field| field.value.split(|&b| b == b','));
    directives.any(|directive| {
        let directive = directive.trim_ascii();
        directive.eq_ignore_ascii_case(b"private") || directive.eq_ignore_ascii_case(b"no-store")
    })
}
