//! Sessions that stay with the endpoint where they began.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::address::HostPattern;
use model::fields::is_token;
use model::limits::SECRET_BYTES_MIN;
use model::persistence::{
    Learned, Persistence, PrefixLengths, SameSite, Secret, SessionBy, SessionCookie, SessionRoute, SessionTable,
    WhenAway, WhenFull,
};
use model::snapshot::{Cluster, HashKey, Route};

use super::Resolver;
use super::address::stand_in;
use crate::file;
use crate::units::Time;

/// Returns whether a client's requests of one host, or of one domain, may go to both clusters by different routes.
fn meet(routes: &[(usize, Route)], (one, other): (&str, &str), domain: &Option<String>) -> bool {
    let leads = |route: &Route, cluster: &str| route.action.clusters().iter().any(|name| name.as_str() == cluster);
    let of = |cluster| routes.iter().map(|(_, route)| route).filter(move |route| leads(route, cluster));
    if of(one).any(|route| leads(route, other)) {
        return false;
    }
    let share = |route: &Route| {
        of(other).any(|also| domain.is_some() || may_share_a_host(&route.matches.hosts, &also.matches.hosts))
    };
    of(one).any(share)
}

/// Returns whether two routes may share a host; one without hosts applies to all of them.
fn may_share_a_host(one: &[HostPattern], other: &[HostPattern]) -> bool {
    let overlap = |one: &HostPattern, other: &HostPattern| match (one, other) {
        (HostPattern::Exact(name), pattern) | (pattern, HostPattern::Exact(name)) => pattern.matches(name),
        (HostPattern::Suffix(one), HostPattern::Suffix(other)) => {
            one == other
                || HostPattern::Suffix(one.clone()).matches(other)
                || HostPattern::Suffix(other.clone()).matches(one)
        }
    };
    one.is_empty() || other.is_empty() || one.iter().any(|one| other.iter().any(|other| overlap(one, other)))
}

impl Resolver<'_> {
    pub(super) fn persistence(&mut self, at: &str, written: &file::Cluster) -> Option<Persistence> {
        let settings = written.persistence.as_ref()?;
        let at = format!("{at}/persistence");
        Some(Persistence {
            by: self.session_by(&at, settings, &written.endpoints)?,
            otherwise: match settings.otherwise {
                file::SessionAway::Another => WhenAway::Another,
                file::SessionAway::Refuse => WhenAway::Refuse,
            },
            when_full: match settings.when_full {
                file::SessionFull::Wait => WhenFull::Wait,
                file::SessionFull::Away => WhenFull::Away,
            },
        })
    }

    /// Two clusters that one client meets must not set the same cookie: each would take the other's for none. Those of one
    /// weighted list may, because a session is of one of them.
    pub(super) fn unique_cookies(&mut self, routes: &[(usize, Route)], clusters: &[Arc<Cluster>]) {
        let mut by_cookie: HashMap<_, Vec<&Cluster>> = HashMap::new();
        for cluster in clusters {
            let Some(Persistence { by: SessionBy::Cookie(cookie), .. }) = &cluster.persistence else { continue };
            let sharing = by_cookie.entry((&cookie.name, &cookie.path, &cookie.domain)).or_default();
            let meets = |first: &&&Cluster| meet(routes, (first.name.as_str(), cluster.name.as_str()), &cookie.domain);
            if let Some(first) = sharing.iter().find(meets) {
                let message = format!(
                    "the cluster `{}` sets a cookie `{}` for the same clients: each of them would ignore the other's cookie",
                    first.name, cookie.name
                );
                let at = format!("clusters/{}/persistence/cookie", cluster.name);
                let place = if self.has(&at, "name") { format!("{at}/name") } else { at };
                let mend = format!("give one of them another name: `name: {}-{}`", cookie.name, cluster.name);
                let bond = self.taken_at(&format!("clusters/{}", first.name));
                self.report_bound(&place, (message, Some(mend)), bond);
            }
            sharing.push(cluster);
        }
    }

    fn session_by(&mut self, at: &str, written: &file::Persistence, endpoints: &file::Endpoints) -> Option<SessionBy> {
        let file::Persistence { cookie, learn, header, source, route, rdp_cookie, .. } = written;
        if let Some(cookie) = cookie {
            return Some(SessionBy::Cookie(self.session_cookie(&format!("{at}/cookie"), cookie)));
        }
        if let Some(learn) = learn {
            let mut table = self.session_table(&format!("{at}/learn"), learn.entries_max, learn.expires);
            table.is_replicated = learn.replicate;
            if learn.replicate {
                self.has_peers(&format!("{at}/learn/replicate"), "sessions");
            }
            let learned = match (&learn.cookie, &learn.header) {
                (Some(name), _) => Learned::Cookie(self.session_token(&format!("{at}/learn/cookie"), name, "cookie")),
                (_, name) => {
                    let name = name.as_deref().unwrap_or_default();
                    let name = self.session_token(&format!("{at}/learn/header"), name, "header field");
                    Learned::Header(name.to_ascii_lowercase())
                }
            };
            return Some(SessionBy::Learned(learned, table));
        }
        if let Some(header) = header {
            let name = self.session_token(&format!("{at}/header/name"), &header.name, "header field");
            let table = self.session_table(&format!("{at}/header"), header.entries_max, header.expires);
            return Some(SessionBy::Header(name.to_ascii_lowercase(), table));
        }
        if let Some(source) = source {
            let table = self.session_table(&format!("{at}/source"), source.entries_max, source.expires);
            return Some(SessionBy::Source(PrefixLengths { v4: source.ipv4_prefix, v6: source.ipv6_prefix }, table));
        }
        if let Some(rdp) = rdp_cookie {
            return Some(SessionBy::Rdp(self.session_table(&format!("{at}/rdp_cookie"), rdp.entries_max, rdp.expires)));
        }
        let route = route.as_ref()?;
        Some(SessionBy::Route(self.session_route(&format!("{at}/route"), route, endpoints)?))
    }

    fn session_table(&mut self, at: &str, entries_max: u32, expires: Time) -> SessionTable {
        self.at_least_a_second(&format!("{at}/expires"), Some(expires));
        SessionTable { entries_max, expires: expires.0, is_replicated: false }
    }

    fn session_route(
        &mut self,
        at: &str,
        written: &file::SessionRoute,
        endpoints: &file::Endpoints,
    ) -> Option<SessionRoute> {
        let file::SessionRoute { cookie, header, query, label } = written;
        let on = match (cookie, header, query) {
            (Some(name), _, _) => HashKey::Cookie(self.session_token(&format!("{at}/cookie"), name, "cookie")),
            (_, Some(name), _) => {
                let name = self.session_token(&format!("{at}/header"), name, "header field");
                HashKey::Header(name.to_ascii_lowercase())
            }
            (_, _, query) => HashKey::Query(query.clone()?),
        };
        let has_label = |endpoint: &file::Endpoint| match endpoint {
            file::Endpoint::Address(_) => false,
            file::Endpoint::Settings(settings) => settings.labels.contains_key(label),
        };
        if !endpoints.are_given() && !endpoints.written().iter().any(has_label) {
            let place = if self.has(at, "label") { format!("{at}/label") } else { at.to_owned() };
            let mend = format!("write `labels: {{ {label}: NAME }}` at the endpoints");
            self.report(&place, format!("no endpoint has a label `{label}`"), Some(mend));
        }
        self.unique_labels(at, label, endpoints.written());
        Some(SessionRoute { on, label: label.clone() })
    }

    /// Rejects a value that two endpoints have: it would name neither.
    fn unique_labels(&mut self, at: &str, label: &str, endpoints: &[file::Endpoint]) {
        let cluster = at.trim_end_matches("/persistence/route");
        let mut seen: HashMap<&str, &str> = HashMap::new();
        for (index, endpoint) in endpoints.iter().enumerate() {
            let file::Endpoint::Settings(settings) = endpoint else { continue };
            let Some(value) = settings.labels.get(label) else { continue };
            if let Some(first) = seen.insert(value, &settings.address) {
                let message = format!("`{}` and `{first}` have the same label `{label}: {value}`", settings.address);
                let mend = "it identifies sessions: give each endpoint its own value".to_owned();
                self.report(&format!("{cluster}/endpoints/{index}/labels/{label}"), message, Some(mend));
            }
        }
    }

    fn session_cookie(&mut self, at: &str, written: &file::SessionCookie) -> SessionCookie {
        let is_list = matches!(written.secret, file::Secrets::Many(_));
        let mut secrets = Vec::new();
        for (index, secret) in written.secret.as_slice().iter().enumerate() {
            let path = if is_list { format!("{at}/secret/{index}") } else { format!("{at}/secret") };
            secrets.extend(self.secret(&path, secret));
        }
        self.cookie_attributes(at, written);
        for (key, bound) in
            [("max_age", written.max_age), ("idle_max", written.idle_max), ("life_max", written.life_max)]
        {
            self.at_least_a_second(&format!("{at}/{key}"), bound);
        }
        let bound = |time: Option<Time>| time.map(|time| time.0);
        let same_site = match written.same_site {
            file::SameSite::Lax => SameSite::Lax,
            file::SameSite::Strict => SameSite::Strict,
            file::SameSite::None => SameSite::None,
        };
        SessionCookie {
            name: self.session_token(&format!("{at}/name"), &written.name, "cookie"),
            secrets,
            path: written.path.clone(),
            domain: written.domain.clone(),
            same_site,
            // Browsers drop a cookie that is sent everywhere and is not `Secure`.
            secure: written.secure.or((same_site == SameSite::None).then_some(true)),
            http_only: written.http_only,
            max_age: bound(written.max_age),
            idle_max: bound(written.idle_max),
            life_max: bound(written.life_max),
            pass_on: written.pass_on,
            mark_private: written.mark_private,
        }
    }

    /// Attributes that browsers would not accept, or read as something else.
    fn cookie_attributes(&mut self, at: &str, written: &file::SessionCookie) {
        let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic() && b != b';' && b != b',');
        if !written.path.starts_with('/') || !is_plain(&written.path) {
            self.report(
                &format!("{at}/path"),
                format!("`{}` is not a path", written.path),
                Some("write `/`".to_owned()),
            );
        }
        if let Some(domain) = &written.domain {
            self.host(&format!("{at}/domain"), domain);
        }
        if matches!(written.same_site, file::SameSite::None) && written.secure == Some(false) {
            let message = "browsers drop a cookie with `same_site: none` that is not secure";
            self.report(&format!("{at}/secure"), message, Some("leave `secure` out".to_owned()));
        }
        let is_bound_to_host = written.name.starts_with("__Host-");
        if (is_bound_to_host || written.name.starts_with("__Secure-")) && written.secure != Some(true) {
            let message = format!("browsers drop a cookie `{}` that is not secure", written.name);
            self.report(&format!("{at}/name"), message, Some("write `secure: true`".to_owned()));
        }
        if is_bound_to_host && (written.domain.is_some() || written.path != "/") {
            let message = format!("browsers drop a cookie `{}` with a domain, or a path other than `/`", written.name);
            self.report(&format!("{at}/name"), message, None);
        }
    }

    pub(super) fn secret(&mut self, at: &str, written: &file::Secret) -> Option<Secret> {
        let (bytes, place): (Arc<[u8]>, String) = match written {
            file::Secret::Written(text) => (text.as_bytes().into(), at.to_owned()),
            file::Secret::File(file) => {
                let path = self.beside(&file.file);
                (self.secret_file(&format!("{at}/file"), &path)?, format!("{at}/file"))
            }
        };
        if bytes.len() < SECRET_BYTES_MIN {
            // The text itself must not be shown.
            let span = self.tree.locate(&place);
            let mend = "`openssl rand -hex 32` makes a good one".to_owned();
            let message =
                format!("the secret has {} bytes, which can be guessed: use at least {SECRET_BYTES_MIN}", bytes.len());
            self.sink.push(span, message, Some(mend));
            return None;
        }
        Some(Secret(bytes))
    }

    pub(super) fn secret_file(&mut self, at: &str, path: &Path) -> Option<Arc<[u8]>> {
        match self.file_bytes(path, super::pem::PEM_BYTES_MAX) {
            Ok(bytes) => Some(bytes.trim_ascii_end().into()),
            Err(message) => {
                self.report_unread(at, path, &message);
                // Two secrets that are not here differ all the same.
                self.loader.is_offline.then(|| format!("{:032x}", stand_in(path)).into_bytes().into())
            }
        }
    }

    fn session_token(&mut self, at: &str, name: &str, what: &str) -> String {
        if !is_token(name.as_bytes()) {
            self.report(at, format!("`{name}` is not the name of a {what}"), None);
        }
        name.to_owned()
    }

    fn at_least_a_second(&mut self, at: &str, time: Option<Time>) {
        if time.is_some_and(|time| time.0 < Duration::from_secs(1)) {
            self.report(
                at,
                "this is less than a second, the smallest unit of a cookie",
                Some("write `1s` or more".to_owned()),
            );
        }
    }
}
