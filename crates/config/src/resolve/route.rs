//! Routes.

use std::collections::{BTreeMap, HashMap};

use model::fields::is_token;
use model::matching::{BodyMatch, Match, PathMatch, ValueMatch, ValueTest};
use model::proxy_protocol::TlvName;
use model::snapshot::{Action, ClusterChoice, Redirect, Route};
use model::template::Piece;
use model::{Issue, LocalResponse, Name};

use super::Resolver;
use super::address::is_host_name;
use crate::diagnostic::{choose, nearest};
use crate::file;
use crate::part;
use crate::tree::Text;

/// Conditions on the body of one route, each of which looks through all of it.
const BODY_TESTS_MAX: usize = 16;
/// The largest body that is held for conditions, in bytes.
const BODY_BYTES_MAX: u32 = 16 << 20;

/// How names of conditions are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Fields,
    Parameters,
    Cookies,
    Tlvs,
}

impl Resolver<'_> {
    pub(super) fn route(&mut self, index: usize, written: &mut file::Route) -> Option<Route> {
        let at = format!("routes/{index}");
        let name = written.name.get_or_insert_with(|| format!("route-{}", index + 1)).clone();
        self.route_listeners(&at, &written.listeners);
        self.note_forms(&written.listeners);
        let matches = self.matches(&format!("{at}/match"), &written.matches);
        let filters = self.filters(index, &written.filters);
        let action = self.action(&at, written);
        Some(Route {
            name: name.into(),
            above: self.above.get(index).into_iter().flatten().map(Text::name).collect(),
            listeners: written.listeners.iter().map(|name| Name::from(name.as_str())).collect(),
            matches,
            priority: written.priority,
            is_internal: written.internal,
            filters,
            action: action?,
            timeout: written.timeout.map(|time| time.0),
            early_data: written.early_data,
            precedence: self.precedence(&format!("{at}/queue"), written),
            subset: self.subset(&format!("{at}/subset"), written),
            retry: written.retry.as_ref().map(|retry| self.retry(&format!("{at}/retry"), retry)),
            hedge: written.hedge.as_ref().map(|hedge| self.hedge(&format!("{at}/hedge"), hedge)),
        })
    }

    /// Checks that names of routes are unique; a given name may also equal a counted one.
    pub(super) fn unique_route_names(&mut self, routes: &[(usize, Route)]) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, route) in routes {
            if let Some(first) = seen.insert(route.name.as_str(), *index) {
                let path = format!("routes/{index}/name");
                let place = self.place_of(&format!("routes/{first}"), &path);
                let message = format!("the name `{}` is already used by the route in {place}", route.name);
                let bond = self.taken_at(&format!("routes/{first}"));
                self.report_bound(&path, (message, Some("give one of them another name".to_owned())), bond);
            }
        }
    }

    fn route_listeners(&mut self, at: &str, names: &[String]) {
        for (index, name) in names.iter().enumerate() {
            let path = format!("{at}/listeners/{index}");
            let Some(listeners) = &self.objects.listeners else { return };
            match listeners.get(name.as_str()) {
                Some(true) => {}
                Some(false) => {
                    let message = format!("listener `{name}` speaks tcp and has no routes");
                    let mend = "name its cluster in the listener".to_owned();
                    let bond = self.taken_at(&format!("listeners/{name}"));
                    self.report_bound(&path, (message, Some(mend)), bond);
                }
                None => {
                    let suggestion = self.sink.wants_suggestions().then(|| {
                        let mut known: Vec<&str> = listeners.keys().copied().collect();
                        known.sort_unstable();
                        choose(name, known, "all are under `listeners`")
                    });
                    let suggestion = suggestion.flatten();
                    self.report_lack(&path, ("listeners", name), suggestion);
                }
            }
        }
    }

    pub(super) fn matches(&mut self, at: &str, written: &file::Match) -> Match {
        let is_one = |value: &file::OneOrMany| matches!(value, file::OneOrMany::One(_));
        Match {
            hosts: self.parsed(&format!("{at}/host"), written.host.as_slice(), is_one(&written.host)),
            path: written.path.as_ref().and_then(|path| self.path_match(&format!("{at}/path"), path)),
            methods: self.methods(&format!("{at}/method"), &written.method),
            headers: self.values(&format!("{at}/headers"), &written.headers, Names::Fields),
            query: self.values(&format!("{at}/query"), &written.query, Names::Parameters),
            cookies: self.values(&format!("{at}/cookies"), &written.cookies, Names::Cookies),
            proxy_tlvs: self.values(&format!("{at}/proxy_tlvs"), &written.proxy_tlvs, Names::Tlvs),
            sources: self.parsed(&format!("{at}/source"), written.source.as_slice(), is_one(&written.source)),
            expression: written.expression.clone(),
            body: written.body.as_ref().map(|body| Box::new(self.body_match(&format!("{at}/body"), body))),
        }
    }

    fn body_match(&mut self, at: &str, written: &file::BodyMatch) -> BodyMatch {
        let max = u32::try_from(written.max.0).ok().filter(|max| (1..=BODY_BYTES_MAX).contains(max));
        if max.is_none() {
            let message = format!("`max` must be from 1 byte to {} MiB", BODY_BYTES_MAX >> 20);
            self.report(&format!("{at}/max"), message, None);
        }
        let mut values = |key: &str, list| self.values(&format!("{at}/{key}"), list, Names::Parameters);
        let (json, form, grpc) =
            (values("json", &written.json), values("form", &written.form), values("grpc", &written.grpc));
        let found = BodyMatch { json, form, grpc, max: max.unwrap_or(BODY_BYTES_MAX) };
        if found.is_empty() && self.sink.is_empty() {
            self.report(at, "nothing is asked of the body", Some("add `json`, `form` or `grpc`".to_owned()));
        }
        if found.len() > BODY_TESTS_MAX {
            let message = format!("{} conditions on the body are more than {BODY_TESTS_MAX}", found.len());
            self.report(at, message, Some("ask for fewer values".to_owned()));
        }
        found
    }

    fn path_match(&mut self, at: &str, written: &file::PathMatch) -> Option<PathMatch> {
        match written {
            file::PathMatch { exact: Some(path), .. } => {
                Some(PathMatch::Exact(self.plain_path(&format!("{at}/exact"), path)))
            }
            file::PathMatch { prefix: Some(path), .. } => {
                Some(PathMatch::Prefix(self.plain_path(&format!("{at}/prefix"), path)))
            }
            file::PathMatch { regex: Some(regex), .. } => {
                self.path_expression(&format!("{at}/regex"), regex);
                Some(PathMatch::Regex(regex.clone()))
            }
            _ => None,
        }
    }

    /// Checks a path; gives the form in which it is compared.
    fn plain_path(&mut self, at: &str, path: &str) -> String {
        if !path.starts_with('/') {
            self.report(at, format!("the path `{path}` does not begin with `/`"), Some(format!("write `/{path}`")));
        } else if path.contains(['?', '#']) {
            let mend = "match the query with `query`".to_owned();
            self.report(at, format!("the path `{path}` contains a query or fragment"), Some(mend));
        } else if path.contains('*') {
            let mend = format!("write `prefix: {}`, or `regex`", path.trim_end_matches(['*', '/']));
            self.report(at, format!("`*` is not a wildcard in the path `{path}`"), Some(mend));
        } else if path.bytes().any(|b| b <= b' ' || b >= 0x7f) {
            let mend = "write such characters percent-encoded, as clients send them".to_owned();
            self.report(at, format!("the path `{path}` contains a character that no request may have"), Some(mend));
        } else {
            return self.compared_path(at, path);
        }
        path.to_owned()
    }

    fn methods(&mut self, at: &str, written: &file::OneOrMany) -> Vec<String> {
        for (index, method) in written.as_slice().iter().enumerate() {
            let path = written.path(at, index);
            if !is_token(method.as_bytes()) || method.contains('|') {
                self.report(&path, format!("`{method}` is not a method"), mend_methods(method));
            } else if method.bytes().any(|b| b.is_ascii_lowercase()) {
                let mend = format!("write `{}`: methods are case-sensitive", method.to_ascii_uppercase());
                self.report(&path, format!("`{method}` is not a method that clients send"), Some(mend));
            }
        }
        written.as_slice().to_vec()
    }

    fn values(&mut self, at: &str, written: &BTreeMap<String, file::ValueTest>, names: Names) -> Vec<ValueMatch> {
        let mut all: Vec<ValueMatch> = Vec::new();
        for (name, test) in written {
            let same = |other: &ValueMatch| names == Names::Fields && other.name.eq_ignore_ascii_case(name);
            if names == Names::Tlvs
                && let Err(message) = TlvName::parse(name)
            {
                let span = self.key_span(at, name);
                self.sink.push(
                    span,
                    message,
                    nearest(name, TlvName::names()).map(|known| format!("did you mean `{known}`?")),
                );
                continue;
            }
            let problem = if names == Names::Tlvs {
                None
            } else if names != Names::Parameters && !is_token(name.as_bytes()) {
                let what = if names == Names::Fields { "header field" } else { "cookie" };
                Some(format!("`{name}` is not the name of a {what}"))
            } else if names == Names::Fields && name.eq_ignore_ascii_case("host") {
                Some("the host is matched by `host`".to_owned())
            } else {
                all.iter().any(same).then(|| format!("`{name}` is listed twice"))
            };
            if let Some(message) = problem {
                let span = self.key_span(at, name);
                self.sink.push(span, message, None);
                continue;
            }
            if let Some(test) = value_test(test) {
                if let ValueTest::Regex(pattern) = &test {
                    self.expression(&format!("{at}/{name}/regex"), pattern);
                }
                all.push(ValueMatch { name: name.clone(), test });
            }
        }
        all
    }

    pub(super) fn issue(&mut self, issue: Issue) {
        let span = part::place_of(self.documents, self.tree, &issue);
        let (message, suggestion) = self.discreet(&issue.path, issue.message, issue.suggestion);
        self.sink.push(span, message, suggestion);
    }

    fn action(&mut self, at: &str, written: &file::Route) -> Option<Action> {
        match &written.cluster {
            Some(file::RouteCluster::Name(name)) => {
                self.cluster_exists(&format!("{at}/cluster"), name);
                return Some(Action::Cluster(name.as_str().into()));
            }
            Some(file::RouteCluster::Choice(choice)) => {
                return Some(Action::Choice(self.cluster_choice(&format!("{at}/cluster"), choice)));
            }
            None => {}
        }
        if let Some(clusters) = &written.clusters {
            return Some(self.weighted(&format!("{at}/clusters"), clusters));
        }
        if let Some(redirect) = &written.redirect {
            return Some(Action::Redirect(self.redirect(&format!("{at}/redirect"), redirect)));
        }
        let respond = written.respond.as_ref()?;
        Some(Action::Respond(self.respond(&format!("{at}/respond"), respond)))
    }

    fn weighted(&mut self, at: &str, written: &[file::WeightedCluster]) -> Action {
        let mut all: Vec<(Name, u32)> = Vec::new();
        for (index, part) in written.iter().enumerate() {
            let path = format!("{at}/{index}/cluster");
            self.cluster_exists(&path, &part.cluster);
            if all.iter().any(|(name, _)| name.as_str() == part.cluster) {
                self.report(&path, format!("cluster `{}` is listed twice", part.cluster), None);
            }
            all.push((part.cluster.as_str().into(), part.weight));
        }
        if all.iter().all(|(_, weight)| *weight == 0) {
            self.report(at, "all weights are 0", Some("give at least one cluster a weight".to_owned()));
        }
        Action::Weighted(all)
    }

    fn cluster_choice(&mut self, at: &str, written: &file::ClusterChoice) -> ClusterChoice {
        match model::template::parse(&written.from) {
            Err(message) => self.report(&format!("{at}/from"), message, None),
            Ok(pieces) if pieces.iter().all(|piece| matches!(piece, Piece::Literal(_))) => {
                let message = format!("`{}` contains no variable: all requests go to the same cluster", written.from);
                let mend = "write `cluster: NAME`, or a variable such as `{request_header:x-cluster}`".to_owned();
                self.report(&format!("{at}/from"), message, Some(mend));
            }
            Ok(_) => {}
        }
        for (index, name) in written.allowed.iter().enumerate() {
            let path = format!("{at}/allowed/{index}");
            self.cluster_exists(&path, name);
            if written.allowed[..index].contains(name) {
                self.report(&path, format!("cluster `{name}` is listed twice"), None);
            }
        }
        if let Some(name) = &written.otherwise {
            self.cluster_exists(&format!("{at}/otherwise"), name);
        }
        ClusterChoice {
            from: written.from.clone(),
            allowed: written.allowed.iter().map(|name| name.as_str().into()).collect(),
            otherwise: written.otherwise.as_deref().map(Name::from),
        }
    }

    fn redirect(&mut self, at: &str, written: &file::Redirect) -> Redirect {
        let file::Redirect { status, scheme, host, port, path, to } = written.clone();
        if to.is_some() {
            for key in ["scheme", "host", "port", "path"] {
                if self.has(at, key) {
                    let span = self.key_span(at, key);
                    let message = format!("`{key}` has no effect beside `to`, which is the whole location");
                    self.sink.push(span, message, Some("leave it out".to_owned()));
                }
            }
        }
        if let Some(host) = &host {
            self.host(&format!("{at}/host"), host);
        }
        if let Some(path) = &path {
            let place = format!("{at}/path");
            match model::template::parse(path) {
                Err(message) => self.report(&place, message, None),
                Ok(_) if !path.starts_with('/') && !path.starts_with('{') => {
                    self.report(&place, format!("the path `{path}` does not begin with `/`"), mend_redirect_path(path));
                }
                Ok(_) => self.field_value(&place, path),
            }
        }
        if ["scheme", "host", "port", "path", "to"].iter().all(|key| !self.has(at, key)) {
            let mend = "add `scheme`, `host`, `port`, `path` or `to`".to_owned();
            self.report(at, "the redirect leads back to the same address", Some(mend));
        }
        Redirect { status, scheme, host, port, path, to: to.map(|to| to.expression) }
    }

    fn respond(&mut self, at: &str, written: &file::Respond) -> LocalResponse {
        let mut fields = Vec::new();
        for (name, value) in &written.headers {
            let path = format!("{at}/headers/{name}");
            self.field_value(&path, value);
            if self.field_name(&path, name).is_some() {
                fields.push((name.clone(), value.clone()));
            }
        }
        if !written.body.is_empty() && matches!(written.status, 204 | 205 | 304) {
            self.report(&format!("{at}/body"), format!("a response with status {} has no body", written.status), None);
        }
        LocalResponse { status: written.status, fields, body: written.body.clone().into_bytes() }
    }
}

pub(super) fn value_test(written: &file::ValueTest) -> Option<ValueTest> {
    let test = match written {
        file::ValueTest::Exact(text) => return Some(ValueTest::Exact(text.clone())),
        file::ValueTest::Test(test) => test,
    };
    match (&test.exact, &test.regex, test.present, test.absent) {
        (Some(text), ..) => Some(ValueTest::Exact(text.clone())),
        (_, Some(regex), ..) => Some(ValueTest::Regex(regex.clone())),
        (_, _, Some(_), _) => Some(ValueTest::Present),
        (_, _, _, Some(_)) => Some(ValueTest::Absent),
        _ => None,
    }
}

/// Returns a list of the methods that stand there in one text.
fn mend_methods(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split(['|', ',', ' ']).filter(|word| !word.is_empty()).collect();
    let are_methods = words.len() > 1 && words.iter().all(|word| word.bytes().all(|b| b.is_ascii_alphabetic()));
    are_methods.then(|| format!("write a list: `[{}]`", words.join(", ").to_ascii_uppercase()))
}

/// Returns what to write for the path of a redirect that is none: of a URL its parts, unless they are no parts of their own.
fn mend_redirect_path(path: &str) -> Option<String> {
    let Some((scheme, rest)) = path.split_once("://") else { return Some(format!("write `/{path}`")) };
    let scheme = Some(scheme).filter(|scheme| matches!(*scheme, "http" | "https"))?;
    if let Some(after) = rest.strip_prefix("{host}") {
        let is_kept = matches!(after, "" | "{path}" | "{uri}");
        return is_kept.then(|| format!("write `redirect: {{ scheme: {scheme} }}`: host and path are kept"));
    }
    let (authority, rest) = rest.split_at(rest.find(['/', '{']).unwrap_or(rest.len()));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, format!(", port: {}", port.parse::<u16>().ok().filter(|port| *port > 0)?)),
        None => (authority, String::new()),
    };
    let path = match rest {
        "{path}" | "{uri}" => String::new(),
        "" => ", path: /".to_owned(),
        rest if rest.starts_with('/') => format!(", path: \"{rest}\""),
        _ => return None,
    };
    is_host_name(host).then(|| format!("write `redirect: {{ scheme: {scheme}, host: {host}{port}{path} }}`"))
}
