//! Sessions that stay with the endpoint where they began.
//!
//! ```text
//! request ── find ──► Session ── pick ──► endpoint ── keep ──► Set-Cookie, or an entry in the table
//!                       │                                          (only if something has changed)
//!                       ├─ none known      → as the balancer likes
//!                       ├─ endpoint there  → that one, drained or of weight 0 too; full: wait for it
//!                       └─ endpoint away   → another, where the session goes on from now; or refuse
//! ```
//!
//! An endpoint is known by its name: what a cookie or table says of one that is gone is worth nothing until one of
//! that name is back. [`cookie`] is the cookie's format, [`table`] the memory, [`pinned`] what a pick makes of it.

mod cookie;
mod pinned;
mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::limits::SESSION_COOKIES_MAX;
use model::persistence::{
    self as model_of, Learned, PrefixLengths, SessionBy, SessionPick, SessionTable, WhenAway, WhenFull,
};
use model::snapshot::{Cluster, HashKey};
use model::{FieldName, RequestHead, ResponseHead};

use crate::cluster::EndpointPlan;
use crate::hash::FastMap;
use crate::route::query;
use cookie::{Dates, Shown, Signer};
pub(crate) use pinned::Pins;
pub use table::TableHandover;
use table::{Begun, Table, Tick, tenths};

/// The place of an endpoint that is not there.
const GONE: u32 = u32::MAX;
/// Cookies from further ahead than this are of a clock that was wrong.
const AHEAD_MAX_SECONDS: u32 = 86_400;

/// The persistence of a cluster, compiled.
pub struct Persistence {
    settings: model_of::Persistence,
    by: By,
    /// Ids of endpoints, which tables remember, by place.
    ids: Box<[u64]>,
    /// The other way round.
    places: FastMap<u64, u32>,
}

/// How sessions are told apart, compiled.
enum By {
    Cookie(Box<CookiePlan>),
    Table(Key, Arc<Table>, SessionTable),
    /// Places of endpoints by their labels.
    Route(RouteKey, FastMap<Box<[u8]>, u32>),
}

/// What is looked up in the table.
enum Key {
    LearnedCookie(Box<[u8]>),
    LearnedHeader(FieldName),
    Header(FieldName),
    Source(PrefixLengths),
}

enum RouteKey {
    Header(FieldName),
    Cookie(Box<[u8]>),
    Query(Box<[u8]>),
}

struct CookiePlan {
    settings: model_of::SessionCookie,
    signer: Signer,
    /// `; Path=…` and what else does not change.
    attributes: Box<[u8]>,
    set_cookie: FieldName,
    cookie: FieldName,
    cache_control: FieldName,
}

/// A moment, by both clocks: tables go by the one that never jumps, cookies by the one that others share.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// For tables.
    pub now: Instant,
    /// Since 1970, for cookies.
    pub unix: Duration,
}

impl Moment {
    fn seconds(&self) -> u32 {
        u32::try_from(self.unix.as_secs()).unwrap_or(u32::MAX)
    }
}

/// What is known of a request's session before an endpoint is picked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    /// The place of its endpoint, or [`GONE`]; `None`: no session is known.
    pinned: Option<u32>,
    /// What the table knows it by.
    key: Option<u64>,
    /// The id of the endpoint that the table remembers for it.
    remembered: Option<u64>,
    /// What its cookie said.
    dates: Option<Dates>,
    /// The cookie must be written anew even for the same endpoint.
    is_stale: bool,
    /// Without a session that is known, one begins.
    may_begin: bool,
    /// This request goes elsewhere only because its route does not lead to the session's endpoint.
    is_lent: bool,
}

impl Session {
    /// For [`crate::Ask::pinned`].
    #[inline]
    pub fn pinned(&self) -> Option<u32> {
        self.pinned
    }

    /// The request has got an endpoint. `is_lent`: as [`crate::ClusterPlan::lends`] said.
    pub fn lend(&mut self, is_lent: bool) {
        self.is_lent = is_lent;
    }

    /// What became of it, once an endpoint is picked, or none.
    pub fn outcome(&self, endpoint: Option<usize>) -> Option<SessionPick> {
        match (self.pinned, endpoint) {
            (None, Some(_)) if self.may_begin => Some(SessionPick::New),
            (None, _) => None,
            (Some(_), None) => Some(SessionPick::Refused),
            (Some(pinned), Some(endpoint)) if pinned as usize == endpoint => Some(SessionPick::Kept),
            (Some(_), Some(_)) => Some(SessionPick::Moved),
        }
    }
}

impl Persistence {
    /// `previous` is that of the plan before: its table is taken over if it knows sessions by the same.
    pub(crate) fn compile(cluster: &Cluster, endpoints: &[EndpointPlan], previous: Option<&Self>) -> Option<Self> {
        let settings = cluster.persistence.as_ref()?;
        let by = match &settings.by {
            SessionBy::Cookie(cookie) => {
                By::Cookie(Box::new(CookiePlan::new(cluster.name.as_str(), cookie, endpoints)?))
            }
            SessionBy::Learned(Learned::Cookie(name), bounds) => {
                table(Key::LearnedCookie(name.as_bytes().into()), *bounds, settings, previous)
            }
            SessionBy::Learned(Learned::Header(name), bounds) => {
                table(Key::LearnedHeader(FieldName::new(name).ok()?), *bounds, settings, previous)
            }
            SessionBy::Header(name, bounds) => {
                table(Key::Header(FieldName::new(name).ok()?), *bounds, settings, previous)
            }
            SessionBy::Source(lengths, bounds) => table(Key::Source(*lengths), *bounds, settings, previous),
            SessionBy::Route(route) => {
                let label = |(plan, place): (&EndpointPlan, u32)| {
                    Some((plan.endpoint.placement.labels.get(&route.label)?.as_bytes().into(), place))
                };
                let places = endpoints.iter().zip(0..).filter_map(label).collect();
                By::Route(RouteKey::new(&route.on)?, places)
            }
        };
        let ids: Box<[u64]> = endpoints.iter().map(|plan| plan.id).collect();
        let places = ids.iter().copied().zip(0..).collect();
        Some(Self { settings: settings.clone(), by, ids, places })
    }

    /// What is known of the session of a request, or of a connection without one, which only tables by source know.
    pub fn find(
        &self,
        head: Option<&RequestHead>,
        client: IpAddr,
        at: Moment,
        chance: &mut dyn FnMut() -> u64,
    ) -> Session {
        self.look((head, client), at, chance, Table::find)
    }

    /// The same for somebody who only wants to know: the session does not last longer by it.
    pub(crate) fn peek(
        &self,
        head: Option<&RequestHead>,
        client: IpAddr,
        at: Moment,
        chance: &mut dyn FnMut() -> u64,
    ) -> Session {
        self.look((head, client), at, chance, Table::peek)
    }

    fn look(
        &self,
        (head, client): (Option<&RequestHead>, IpAddr),
        at: Moment,
        chance: &mut dyn FnMut() -> u64,
        in_table: fn(&Table, u64, Tick, Tick) -> Option<u64>,
    ) -> Session {
        match &self.by {
            By::Cookie(plan) => head.map_or_else(Session::default, |head| plan.find(head, at.seconds())),
            By::Table(key, table, bounds) => {
                let begun = table.begun(at.now, chance);
                let (now, idle) = (begun.tick(at.now), idle_of(bounds));
                let keys = (0..SESSION_COOKIES_MAX).map_while(|nth| key.of((head, client), nth, &begun));
                // Others may have planted cookies of that name: the first that is known counts, else the first.
                let mut first = None;
                let mut keys = keys.inspect(|key| first = first.or(Some(*key)));
                let known = keys.find_map(|key| Some((key, in_table(table, key, now, idle)?)));
                let Some(found) = known.map(|(key, _)| key).or(first) else { return Session::default() };
                let remembered = known.map(|(_, id)| id);
                let pinned = remembered.map(|id| self.places.get(&id).copied().unwrap_or(GONE));
                Session { pinned, key: Some(found), remembered, may_begin: !key.is_learned(), ..Session::default() }
            }
            By::Route(key, places) => {
                let values = (0..SESSION_COOKIES_MAX).map_while(|nth| key.of(head?, nth));
                let mut may_begin = false;
                let mut values = values.inspect(|value| may_begin |= !value.is_empty());
                let place = |value: &[u8]| places.get(route_of(value)).or_else(|| places.get(value)).copied();
                let pinned = values.find_map(place);
                Session { pinned, may_begin, ..Session::default() }
            }
        }
    }

    /// Takes our cookie out of a request that goes to an endpoint.
    pub fn clean(&self, head: &mut RequestHead, scratch: &mut Vec<u8>) {
        if let By::Cookie(plan) = &self.by
            && !plan.settings.pass_on
        {
            model::cookie::remove(&mut head.fields, &plan.cookie, plan.settings.name.as_bytes(), scratch);
        }
    }

    /// Remembers that this endpoint has answered: in the table, or in a cookie of the response, which goes to a client
    /// that speaks TLS or not. `true`: a session has begun of which nothing was known when the request came.
    pub fn keep(
        &self,
        session: &Session,
        endpoint: usize,
        response: Option<(&mut ResponseHead, bool)>,
        (at, chance): (Moment, &mut dyn FnMut() -> u64),
    ) -> bool {
        let home = session.pinned.filter(|_| session.is_lent).map_or(endpoint, |pinned| pinned as usize);
        let is_moved = session.pinned != Some(home as u32);
        match &self.by {
            By::Cookie(plan) => {
                if let Some((response, is_secure)) = response
                    && (is_moved || session.is_stale)
                {
                    plan.set(session, home, response, (at.seconds(), is_secure));
                }
            }
            By::Table(key, table, bounds) => {
                let begun = table.begun(at.now, chance);
                let (now, idle) = (begun.tick(at.now), idle_of(bounds));
                let Some(&id) = self.ids.get(endpoint) else { return false };
                // What is learned is only what the application gave out: others do not fill the table.
                let is_known = !key.is_learned() || session.pinned.is_some();
                if let Some(asked) = session.key.filter(|_| is_moved && is_known) {
                    table.replace(session.remembered, (asked, id), now, idle);
                }
                let given = response.and_then(|(response, _)| key.learn(response, &begun));
                match given {
                    // It was given out before.
                    Some(given) if session.key == Some(given) && is_moved => {
                        table.replace(session.remembered, (given, id), now, idle);
                    }
                    Some(given) if session.key != Some(given) => table.put(given, id, now, idle),
                    _ => {}
                }
                return given.is_some() && session.pinned.is_none();
            }
            By::Route(..) => (),
        }
        false
    }

    /// Entries of its table, once those beyond their time are removed, and those that went before it; `None` without a
    /// table.
    pub fn table(&self, now: Instant) -> Option<(u32, u64)> {
        let By::Table(_, table, bounds) = &self.by else { return None };
        table.sweep(now, idle_of(bounds));
        Some((table.len(), table.evictions()))
    }

    /// Returns what its table remembers, for the successor, and what sessions are known by. Returns `None` if it has no table, or an
    /// unused one.
    pub fn hand_over(&self, now: Instant) -> Option<(String, TableHandover)> {
        let By::Table(_, table, bounds) = &self.by else { return None };
        Some((self.known_by(), table.hand_over(now, idle_of(bounds))?))
    }

    /// Remembers what the predecessor did, if it knew sessions by the same.
    pub fn inherit(&self, known_by: &str, handed: &TableHandover, now: Instant) {
        if let By::Table(_, table, bounds) = &self.by
            && self.known_by() == known_by
        {
            table.inherit(handed, now, idle_of(bounds));
        }
    }

    fn known_by(&self) -> String {
        match &self.settings.by {
            SessionBy::Learned(Learned::Cookie(name), _) => format!("learned cookie {name}"),
            SessionBy::Learned(Learned::Header(name), _) => format!("learned header {name}"),
            SessionBy::Header(name, _) => format!("header {name}"),
            SessionBy::Source(PrefixLengths { v4, v6 }, _) => format!("source {v4} {v6}"),
            SessionBy::Cookie(_) | SessionBy::Route(_) => String::new(),
        }
    }

    /// The plan is in force, and with it the bound of its table.
    pub(crate) fn take_effect(&self) {
        if let By::Table(_, table, bounds) = &self.by
            && table.max() != bounds.entries_max
        {
            table.resize(bounds.entries_max);
        }
    }

    fn refuses(&self) -> bool {
        self.settings.otherwise == WhenAway::Refuse
    }

    fn waits(&self) -> bool {
        self.settings.when_full == WhenFull::Wait
    }
}

fn idle_of(bounds: &SessionTable) -> Tick {
    tenths(bounds.expires).max(1)
}

/// The table of the plan before, if it is by the same.
fn table(key: Key, bounds: SessionTable, settings: &model_of::Persistence, previous: Option<&Persistence>) -> By {
    let known = previous.and_then(|previous| match &previous.by {
        By::Table(_, table, _) if is_by_same(&previous.settings.by, &settings.by) => Some(table),
        _ => None,
    });
    let table = match known {
        // Its bound follows when the plan comes into force: until then sessions begin and move by the plan before.
        Some(table) => table.clone(),
        None => Arc::new(Table::new(bounds.entries_max)),
    };
    By::Table(key, table, bounds)
}

fn is_by_same(one: &SessionBy, other: &SessionBy) -> bool {
    match (one, other) {
        (SessionBy::Learned(one, _), SessionBy::Learned(other, _)) => one == other,
        (SessionBy::Header(one, _), SessionBy::Header(other, _)) => one == other,
        (SessionBy::Source(one, _), SessionBy::Source(other, _)) => one == other,
        _ => false,
    }
}

impl Key {
    /// The key that a request or connection brings: the first, or another of a cookie that comes more than once.
    fn of(&self, (head, client): (Option<&RequestHead>, IpAddr), nth: usize, begun: &Begun) -> Option<u64> {
        let value = match (self, head) {
            (Self::LearnedCookie(name), Some(head)) => {
                let mut given = model::cookie::values(&head.fields, name).filter(|value| !value.is_empty());
                given.nth(nth)
            }
            _ if nth > 0 => None,
            (Self::Source(lengths), _) => return Some(begun.key(&masked(client, *lengths).to_be_bytes())),
            (_, None) => None,
            (Self::LearnedHeader(name) | Self::Header(name), Some(head)) => head.fields.get(name),
        };
        value.filter(|value| !value.is_empty()).map(|value| begun.key(value))
    }

    /// The key that a response gives to a session.
    fn learn(&self, response: &ResponseHead, begun: &Begun) -> Option<u64> {
        let value = match self {
            Self::LearnedCookie(name) => {
                let fields = response.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(b"set-cookie"));
                // Of several the last counts (RFC 6265 section 5.3).
                fields.filter_map(|field| model::cookie::value_set(field.value, name)).next_back()
            }
            Self::LearnedHeader(name) => response.fields.get(name).filter(|value| !value.is_empty()),
            Self::Header(_) | Self::Source(_) => None,
        };
        value.map(|value| begun.key(value))
    }

    fn is_learned(&self) -> bool {
        matches!(self, Self::LearnedCookie(_) | Self::LearnedHeader(_))
    }
}

/// The bits of an address that count. IPv4 is told from IPv6 by its first bits (RFC 4291 section 2.5.5.2), which stay.
fn masked(client: IpAddr, lengths: PrefixLengths) -> u128 {
    let without = |bits: u32| u128::MAX.checked_shl(bits).unwrap_or(0);
    match client.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()) & without(32 - u32::from(lengths.v4).min(32)),
        IpAddr::V6(address) => u128::from(address) & without(128 - u32::from(lengths.v6).min(128)),
    }
}

impl RouteKey {
    fn new(key: &HashKey) -> Option<Self> {
        match key {
            HashKey::Header(name) => FieldName::new(name).ok().map(Self::Header),
            HashKey::Cookie(name) => Some(Self::Cookie(name.as_bytes().into())),
            HashKey::Query(name) => Some(Self::Query(name.as_bytes().into())),
            HashKey::Source | HashKey::Path | HashKey::Uri => None,
        }
    }

    /// The first value, or another of a cookie that comes more than once.
    fn of<'a>(&'a self, head: &'a RequestHead, nth: usize) -> Option<&'a [u8]> {
        match self {
            Self::Cookie(name) => model::cookie::values(&head.fields, name).nth(nth),
            _ if nth > 0 => None,
            Self::Header(name) => head.fields.get(name),
            Self::Query(name) => query::parameter(head.query().unwrap_or_default(), name),
        }
    }
}

/// What stands after the last `.`.
fn route_of(value: &[u8]) -> &[u8] {
    value.iter().rposition(|&b| b == b'.').map_or(value, |at| &value[at + 1..])
}

impl CookiePlan {
    fn new(cluster: &str, settings: &model_of::SessionCookie, endpoints: &[EndpointPlan]) -> Option<Self> {
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

    /// The first genuine one of the cookies with our name that has not ended.
    fn find(&self, head: &RequestHead, now: u32) -> Session {
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

    /// A cookie that ends by itself is written anew once an eighth of that time has passed, not with each response.
    fn wants_refresh(&self, dates: Dates, now: u32) -> bool {
        let shortest = self.settings.idle_max.into_iter().chain(self.settings.max_age).min();
        shortest.is_some_and(|bound| u64::from(now.saturating_sub(dates.seen)) >= bound.as_secs().div_ceil(8).max(1))
    }

    fn set(&self, session: &Session, endpoint: usize, response: &mut ResponseHead, (now, is_secure): (u32, bool)) {
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

    /// Seconds that a browser is to keep it: no longer than the session may live.
    fn max_age(&self, dates: Dates) -> Option<u64> {
        let age = self.settings.max_age?.as_secs().max(1);
        let lived = u64::from(dates.seen.saturating_sub(dates.begun));
        Some(self.settings.life_max.map_or(age, |life| age.min(life.as_secs().saturating_sub(lived).max(1))))
    }
}

/// Whether no shared cache may keep the response anyway (RFC 9111 section 5.2.2).
fn is_private(response: &ResponseHead) -> bool {
    let fields = response.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(b"cache-control"));
    let mut directives = fields.flat_map(|field| field.value.split(|&b| b == b','));
    directives.any(|directive| {
        let directive = directive.trim_ascii();
        directive.eq_ignore_ascii_case(b"private") || directive.eq_ignore_ascii_case(b"no-store")
    })
}

#[cfg(test)]
mod tests;
