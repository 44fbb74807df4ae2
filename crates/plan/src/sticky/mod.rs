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
//! that name is back. [`cookie`] is the cookie's format, [`cookie_plan`] when it is set, [`table`] the memory, [`pinned`] what a pick makes of it.

mod cookie;
mod cookie_plan;
mod key;
mod pinned;
mod session;
mod table;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use model::limits::SESSION_COOKIES_MAX;
use model::persistence::{self as model_of, Learned, PrefixLengths, SessionBy, SessionTable, WhenAway, WhenFull};
use model::snapshot::Cluster;
use model::{Address, FieldName, RequestHead, ResponseHead};

use crate::cluster::EndpointPlan;
use crate::hash::{self, FastMap};
use cookie_plan::CookiePlan;
use key::{Key, RouteKey, route_of};
pub(crate) use pinned::Pins;
use session::GONE;
pub use session::{Moment, Session};
use table::{Agreed, Table, Tick, tenths};
pub use table::{SessionCopy, SharedSessions, TableHandover, session_age};

/// By what instances hash the keys of tables that they replicate. It is no secret: only responses of the application put keys into such a table,
/// and a client that finds another key of the same hash reaches the endpoint of that session, which any client may reach.
const AGREED_SEED: [u64; 2] = [0x6571_7569_706f_6973, 0x652d_7365_7373_696f];

/// The persistence of a cluster, compiled.
pub struct Persistence {
    settings: model_of::Persistence,
    by: By,
    /// Ids of endpoints, which tables remember, by place.
    ids: Box<[u64]>,
    /// The other way round.
    places: FastMap<u64, u32>,
}

/// What a client of Remote Desktop says of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdpCookie<'a> {
    /// Its user.
    User(&'a [u8]),
    /// The endpoint that has its session.
    Host(SocketAddr),
}

/// How sessions are told apart, compiled.
enum By {
    Cookie(Box<CookiePlan>),
    Table(Key, Arc<Table>, SessionTable),
    /// Places of endpoints by their labels.
    Route(RouteKey, FastMap<Box<[u8]>, u32>),
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
            SessionBy::Rdp(bounds) => {
                let places = endpoints.iter().zip(0..).map(|(plan, place)| (plan.endpoint.address.clone(), place));
                table(Key::Rdp(places.collect()), *bounds, settings, previous)
            }
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
                let begun = table.begun(at, chance);
                let (now, idle) = (begun.tick(at.now), idle_of(bounds));
                let keys = (0..SESSION_COOKIES_MAX).map_while(|nth| key.of((head, client), nth, &begun));
                // Others may have planted cookies of that name: the first that is known counts, else the first.
                let mut first = None;
                let mut keys = keys.inspect(|key| first = first.or(Some(*key)));
                let known = keys.find_map(|key| Some((key, in_table(table, key, now, idle)?)));
                let Some(found) = known.map(|(key, _)| key).or(first) else { return Session::default() };
                let session = self.remembered(found, known.map(|(_, id)| id));
                Session { may_begin: !key.is_learned(), ..session }
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

    /// Returns whether the cookie of a client of Remote Desktop is wanted, see [`Self::find_rdp`].
    pub fn is_by_rdp(&self) -> bool {
        matches!(self.by, By::Table(Key::Rdp(_), ..))
    }

    /// What is known of the session of a client of Remote Desktop with this cookie.
    pub fn find_rdp(&self, cookie: RdpCookie<'_>, at: Moment, chance: &mut dyn FnMut() -> u64) -> Session {
        let By::Table(Key::Rdp(places), table, bounds) = &self.by else { return Session::default() };
        match cookie {
            RdpCookie::User(user) => {
                let begun = table.begun(at, chance);
                let key = begun.key(user);
                let session = self.remembered(key, table.find(key, begun.tick(at.now), idle_of(bounds)));
                Session { may_begin: true, ..session }
            }
            // One that no endpoint has may come from a time before: the balancer chooses.
            RdpCookie::Host(address) => {
                Session { pinned: places.get(&Address::Ip(address)).copied(), ..Session::default() }
            }
        }
    }

    /// The session of a key for which the table remembers this id.
    fn remembered(&self, key: u64, remembered: Option<u64>) -> Session {
        let pinned = remembered.map(|id| self.places.get(&id).copied().unwrap_or(GONE));
        Session { pinned, key: Some(key), remembered, ..Session::default() }
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
                let begun = table.begun(at, chance);
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
    pub fn inherit(&self, known_by: &str, handed: &TableHandover, at: Moment) {
        if let By::Table(_, table, bounds) = &self.by
            && self.known_by() == known_by
        {
            table.inherit(handed, at, idle_of(bounds));
        }
    }

    /// Returns its table, if instances replicate it. `cluster`: the name of the cluster.
    pub fn shared(&self, cluster: &str) -> Option<SharedSessions> {
        let By::Table(_, table, bounds) = &self.by else { return None };
        let fingerprint = hash::of_bytes(self.known_by().as_bytes());
        let (name, table) = (cluster.to_owned(), Arc::clone(table));
        table.is_replicated().then(|| SharedSessions { name, fingerprint, table, idle: idle_of(bounds) })
    }

    fn known_by(&self) -> String {
        match &self.settings.by {
            SessionBy::Learned(Learned::Cookie(name), _) => format!("learned cookie {name}"),
            SessionBy::Learned(Learned::Header(name), _) => format!("learned header {name}"),
            SessionBy::Header(name, _) => format!("header {name}"),
            SessionBy::Source(PrefixLengths { v4, v6 }, _) => format!("source {v4} {v6}"),
            SessionBy::Rdp(_) => "rdp".to_owned(),
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
    let agreed = bounds.is_replicated.then_some(Agreed { seed: AGREED_SEED, expires: bounds.expires });
    let known = previous.and_then(|previous| match &previous.by {
        By::Table(_, table, _) if is_by_same(&previous.settings.by, &settings.by) => {
            // Keys of one that is replicated have another seed.
            Some(table).filter(|table| table.is_replicated() == bounds.is_replicated)
        }
        _ => None,
    });
    let table = match known {
        // Its bound follows when the plan comes into force: until then sessions begin and move by the plan before.
        Some(table) => table.clone(),
        None => Arc::new(Table::new(bounds.entries_max, agreed)),
    };
    By::Table(key, table, bounds)
}

fn is_by_same(one: &SessionBy, other: &SessionBy) -> bool {
    match (one, other) {
        (SessionBy::Learned(one, _), SessionBy::Learned(other, _)) => one == other,
        (SessionBy::Header(one, _), SessionBy::Header(other, _)) => one == other,
        (SessionBy::Source(one, _), SessionBy::Source(other, _)) => one == other,
        (SessionBy::Rdp(_), SessionBy::Rdp(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
