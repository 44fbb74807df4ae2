//! Which responses may be stored, and for how long (RFC 9111 sections 3 and 4.2).

use model::fields::Fields;
use model::{RequestHead, ResponseHead};

use super::control::{Directives, SECONDS_MAX, seconds};
use super::date;
use super::validate::named;

/// Statuses of which a response without further words may be stored (RFC 9110 section 15.1).
const HEURISTIC: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];
/// Statuses that are never stored: a part needs its whole, and a validation its response.
const NEVER: [u16; 2] = [206, 304];

/// How old a response is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// When it came.
    pub received: u64,
    /// How old it was then, in seconds.
    pub age: u64,
}

impl Clock {
    /// Computes the age at arrival (RFC 9111 section 4.2.3). `asked`: when the request was sent.
    pub fn of(head: &ResponseHead, asked: u64, received: u64) -> Self {
        let date = named(&head.fields, b"date").next().and_then(date::parse);
        let apparent = date.map_or(0, |date| received.saturating_sub(date));
        let told = named(&head.fields, b"age").next().and_then(seconds).unwrap_or(0);
        Self { received, age: apparent.max(told + received.saturating_sub(asked)).min(SECONDS_MAX) }
    }

    /// Returns the age in seconds.
    pub fn age(self, now: u64) -> u64 {
        (self.age + now.saturating_sub(self.received)).min(SECONDS_MAX)
    }
}

/// For how long a response may be served, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// From its origin on, as fresh.
    pub lifetime: u64,
    /// Beyond that, while it is fetched again.
    pub stale_while_revalidate: u64,
    /// Beyond that, when the endpoint fails.
    pub stale_if_error: u64,
}

/// What the operator says beside the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Lifetimes by status, for responses that state none.
    pub ttl: Ttl,
    /// Lifetimes by status, whatever the response states.
    pub override_ttl: Ttl,
    /// Upper bound on a lifetime that follows from `Last-Modified`.
    pub heuristic_max: u64,
    /// For responses that state none.
    pub stale_while_revalidate: u64,
    /// For responses that state none.
    pub stale_if_error: u64,
    /// Responses with `Set-Cookie` are stored.
    pub stores_cookies: bool,
}

/// Lifetimes by status, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ttl {
    /// Of these statuses.
    pub by_status: Box<[(u16, u64)]>,
    /// Of all others.
    pub any: Option<u64>,
}

impl Ttl {
    /// Returns the lifetime of a status.
    pub fn of(&self, status: u16) -> Option<u64> {
        self.by_status.iter().find(|(known, _)| *known == status).map(|(_, ttl)| *ttl).or(self.any)
    }
}

/// Returns for how long the response to a request may be stored and served. Returns `None` if it may not be stored, or it would be of no
/// use. `is_personal`: a filter has verified who the client is.
pub fn freshness(
    (request, is_personal): (&RequestHead, bool),
    response: &ResponseHead,
    received: u64,
    rules: &Rules,
) -> Option<Freshness> {
    let fields = &response.fields;
    let status = response.status;
    if status < 200 || NEVER.contains(&status) {
        return None;
    }
    let plain = Directives::of(named(fields, b"cache-control"));
    let targeted = Directives::targeted(named(fields, b"cdn-cache-control"));
    let told = targeted.unwrap_or(plain);
    // RFC 9111 section 5.2.2.3: a status that is understood.
    let is_understood = told.must_understand && (HEURISTIC.contains(&status) || matches!(status, 302 | 307));
    if told.private || told.no_store && !is_understood {
        return None;
    }
    if !rules.stores_cookies && named(fields, b"set-cookie").next().is_some() {
        return None;
    }
    // RFC 9111 section 3.5.
    let is_authorized = is_personal || named(&request.fields, b"authorization").next().is_some();
    if is_authorized && !(told.public || told.must_revalidate || told.s_maxage.is_some()) {
        return None;
    }
    let stated = stated_lifetime(fields, &told, targeted.is_some(), received);
    let lifetime = match (rules.override_ttl.of(status), stated, rules.ttl.of(status)) {
        (Some(lifetime), ..) | (None, Some(lifetime), _) | (None, None, Some(lifetime)) => lifetime,
        // What the operator does not vouch for is not guessed for a request that may be personal.
        (None, None, None) if named(&request.fields, b"cookie").next().is_some() && !told.public => 0,
        (None, None, None) if told.public || HEURISTIC.contains(&status) => heuristic(fields, received, rules),
        (None, None, None) => return None,
    };
    let may_be_stale = !(told.must_revalidate || told.proxy_revalidate || told.no_cache);
    // The operator's windows prolong what is fresh for a while. What was never fresh may be personal: it only says so itself.
    let rule = |window: u64| if lifetime > 0 { window } else { 0 };
    let stale = |stated: Option<u64>, window: u64| if may_be_stale { stated.unwrap_or(rule(window)) } else { 0 };
    let fresh = Freshness {
        lifetime: if told.no_cache { 0 } else { lifetime },
        stale_while_revalidate: stale(told.stale_while_revalidate, rules.stale_while_revalidate),
        stale_if_error: stale(told.stale_if_error, rules.stale_if_error),
    };
    let has_validator = named(fields, b"etag").chain(named(fields, b"last-modified")).next().is_some();
    let is_of_use = fresh.lifetime > 0 || fresh.stale_while_revalidate > 0 || fresh.stale_if_error > 0;
    (is_of_use || has_validator && status == 200).then_some(fresh)
}

/// RFC 9111 section 4.2.1, for a shared cache.
fn stated_lifetime(fields: &Fields, told: &Directives, is_targeted: bool, received: u64) -> Option<u64> {
    if let Some(seconds) = told.s_maxage.or(told.max_age) {
        return Some(seconds);
    }
    if is_targeted {
        // RFC 9213 section 2.2: `Expires` is ignored, too.
        return None;
    }
    let mut expires = named(fields, b"expires");
    let first = expires.next()?;
    let date = named(fields, b"date").next().and_then(date::parse).unwrap_or(received);
    // RFC 9111 section 5.3: what is no date, such as `0`, is in the past.
    let is_alone = expires.next().is_none();
    let expires = date::parse(first).filter(|_| is_alone);
    Some(expires.map_or(0, |expires| expires.saturating_sub(date)).min(SECONDS_MAX))
}

/// RFC 9111 section 4.2.2: a tenth of the time since the last change.
fn heuristic(fields: &Fields, received: u64, rules: &Rules) -> u64 {
    let modified = named(fields, b"last-modified").next().and_then(date::parse);
    let date = named(fields, b"date").next().and_then(date::parse).unwrap_or(received);
    modified.map_or(0, |modified| (date.saturating_sub(modified) / 10).min(rules.heuristic_max))
}

#[cfg(test)]
mod tests {
    use super::super::entry::testing::{fields, response};
    use super::*;

    const NOW: u64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn judged_of(request: &[(&str, &str)], status: u16, list: &[(&str, &str)], rules: &Rules) -> Option<Freshness> {
        let mut head = RequestHead::default();
        head.fields = fields(request);
        let request = head;
        freshness((&request, false), &response(status, list), NOW, rules)
    }

    fn lifetime(status: u16, list: &[(&str, &str)]) -> Option<u64> {
        let rules = Rules { heuristic_max: 86_400, ..Rules::default() };
        judged_of(&[], status, list, &rules).map(|fresh| fresh.lifetime)
    }

    fn control(value: &str) -> Option<u64> {
        lifetime(200, &[("cache-control", value)])
    }

    #[test]
    fn lifetimes_go_by_s_maxage_then_max_age_then_expires() {
        // RFC 9111 section 4.2.1.
        assert_eq!(control("max-age=60, s-maxage=5"), Some(5));
        assert_eq!(control("max-age=60"), Some(60));
        let expires = ("expires", "Sun, 06 Nov 1994 08:50:37 GMT");
        assert_eq!(lifetime(200, &[expires, ("date", DATE)]), Some(60));
        assert_eq!(lifetime(200, &[expires, ("cache-control", "max-age=1")]), Some(1));
        // RFC 9111 section 5.3, with a validator, as there is no other use of it.
        assert_eq!(lifetime(200, &[("expires", "0"), ("etag", "\"1\"")]), Some(0));
        // RFC 9213 section 2.2.
        let targeted = ("cdn-cache-control", "max-age=7");
        assert_eq!(lifetime(200, &[targeted, ("cache-control", "no-store"), expires]), Some(7));
        assert_eq!(lifetime(200, &[("cdn-cache-control", "MAX-AGE=7"), ("cache-control", "max-age=1")]), Some(1));
        assert_eq!(lifetime(200, &[("cdn-cache-control", "no-store"), ("cache-control", "max-age=1")]), None);
    }

    #[test]
    fn windows_of_the_operator_prolong_only_what_was_fresh() {
        let rules = Rules { stale_while_revalidate: 30, stale_if_error: 60, ..Rules::default() };
        let windows = |request: &[(&str, &str)], status: u16, list: &[(&str, &str)]| {
            let fresh = judged_of(request, status, list, &rules)?;
            Some((fresh.lifetime, fresh.stale_while_revalidate, fresh.stale_if_error))
        };
        let cookie = [("cookie", "session=1")];
        for request in [&cookie[..], &[]] {
            assert_eq!(windows(request, 200, &[]), None, "nothing says that it is for all");
            assert_eq!(windows(request, 404, &[]), None);
            assert_eq!(windows(request, 200, &[("cache-control", "max-age=0")]), None);
            assert_eq!(windows(request, 200, &[("etag", "\"1\"")]), Some((0, 0, 0)), "to be validated each time");
            assert_eq!(windows(request, 200, &[("cache-control", "max-age=5")]), Some((5, 30, 60)));
            let own = [("cache-control", "max-age=0, stale-while-revalidate=7, stale-if-error=9")];
            assert_eq!(windows(request, 200, &own), Some((0, 7, 9)), "it says so itself");
        }
    }

    #[test]
    fn responses_that_are_not_for_all_are_not_stored() {
        // RFC 9111 section 3.
        for value in ["private, max-age=60", "no-store, max-age=60", "private=\"set-cookie\", max-age=60", "max-age=0"]
        {
            assert_eq!(control(value), None, "{value}");
        }
        assert_eq!(lifetime(200, &[("set-cookie", "a=b"), ("cache-control", "max-age=60")]), None);
        let cookies = Rules { stores_cookies: true, ..Rules::default() };
        assert!(judged_of(&[], 200, &[("set-cookie", "a=b"), ("cache-control", "max-age=60")], &cookies).is_some());
        for status in [206, 304, 100] {
            assert_eq!(lifetime(status, &[("cache-control", "max-age=60")]), None, "{status}");
        }
        assert_eq!(control("no-store, must-understand, max-age=60"), Some(60));
        assert_eq!(lifetime(599, &[("cache-control", "no-store, must-understand, max-age=60")]), None);
    }

    #[test]
    fn a_request_with_authorization_needs_leave_to_be_shared() {
        // RFC 9111 section 3.5.
        let ask = |value: &str| {
            let list = [("cache-control", value)];
            judged_of(&[("Authorization", "Basic x")], 200, &list, &Rules::default()).is_some()
        };
        assert!(!ask("max-age=60"));
        assert!(ask("max-age=60, public") && ask("s-maxage=60") && ask("max-age=60, must-revalidate"));
        let request = RequestHead::default();
        let head = response(200, &[("cache-control", "max-age=60")]);
        assert!(freshness((&request, true), &head, NOW, &Rules::default()).is_none());
    }

    #[test]
    fn without_a_stated_lifetime_the_operator_or_last_modified_decides() {
        let modified = ("last-modified", "Sun, 06 Nov 1994 08:32:57 GMT");
        // RFC 9111 section 4.2.2.
        assert_eq!(lifetime(200, &[modified, ("date", DATE)]), Some(100));
        assert_eq!(lifetime(200, &[("etag", "\"1\"")]), Some(0), "to be validated");
        assert_eq!((lifetime(200, &[]), lifetime(500, &[modified])), (None, None));
        let ttl = Ttl { by_status: [(404, 5)].into(), any: Some(1) };
        let rules = Rules { ttl: ttl.clone(), ..Rules::default() };
        let of = |status, list: &[(&str, &str)], rules| judged_of(&[], status, list, rules).map(|fresh| fresh.lifetime);
        assert_eq!((of(404, &[], &rules), of(500, &[], &rules)), (Some(5), Some(1)));
        assert_eq!(of(404, &[("cache-control", "max-age=9")], &rules), Some(9));
        let rules = Rules { override_ttl: ttl, ..Rules::default() };
        assert_eq!(of(404, &[("cache-control", "max-age=9")], &rules), Some(5));
        assert_eq!(of(404, &[("cache-control", "private")], &rules), None);
        let cookie = judged_of(
            &[("cookie", "a")],
            200,
            &[modified, ("date", DATE)],
            &Rules { heuristic_max: 9, ..Rules::default() },
        );
        assert_eq!(cookie.map(|fresh| fresh.lifetime), Some(0), "nothing is guessed for a request with cookies");
    }

    #[test]
    fn stale_windows_are_those_of_the_response_and_end_with_must_revalidate() {
        let rules = Rules { stale_while_revalidate: 10, stale_if_error: 20, ..Rules::default() };
        let windows = |value: &str| {
            let fresh = judged_of(&[], 200, &[("cache-control", value), ("etag", "\"1\"")], &rules).unwrap();
            (fresh.lifetime, fresh.stale_while_revalidate, fresh.stale_if_error)
        };
        // RFC 5861, and RFC 9111 section 4.2.4.
        assert_eq!(windows("max-age=1"), (1, 10, 20));
        assert_eq!(windows("max-age=1, stale-while-revalidate=3, stale-if-error=0"), (1, 3, 0));
        for forbidden in ["must-revalidate", "proxy-revalidate"] {
            assert_eq!(windows(&format!("max-age=1, stale-if-error=9, {forbidden}")), (1, 0, 0));
        }
        assert_eq!(windows("max-age=1, no-cache"), (0, 0, 0));
    }

    #[test]
    fn the_age_of_a_response_is_the_greater_of_what_is_told_and_what_is_seen() {
        // RFC 9111 section 4.2.3.
        let clock = |list: &[(&str, &str)]| Clock::of(&response(200, list), NOW - 2, NOW);
        assert_eq!(clock(&[("age", "5"), ("date", DATE)]).age, 7);
        assert_eq!(clock(&[("date", "Sun, 06 Nov 1994 08:49:27 GMT")]).age, 10);
        assert_eq!(clock(&[("date", "Sun, 06 Nov 1995 08:49:27 GMT"), ("age", "x")]).age, 2);
        assert_eq!(clock(&[]).age(NOW + 5), 7);
    }
}
