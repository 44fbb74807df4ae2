//! Snapshot to plan.
//!
//! Whatever is equal to its like in the plan before is taken from there: clusters by their settings, routes by their
//! settings and clusters, routers by their routes, listeners by their settings and target. What is new but has the id
//! of something old takes over its runtime state.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use model::fields::{is_field_value, is_token};
use model::snapshot::{Action, Cluster, ClusterChoice as Choice, Listener, Protocol, Route, Snapshot, TcpTarget};
use model::{Issue, LocalResponse, Name};

use crate::agents::AgentList;
use crate::by_name::ByName;
use crate::cache::CacheStore;
use crate::cluster::ClusterPlan;
use crate::cluster::own_tlvs::OwnTlvs;
use crate::cluster::subset::{self, SubsetPlan};
use crate::expression::{Names, Tables, Used};
use crate::filter::variables::Stage;
use crate::filter::{Chain, Template};
use crate::health::expectation;
use crate::limit::PerAddress;
use crate::map::{MapPlan, Maps};
use crate::plan::listeners::listener_plan;
use crate::plan::{ActionPlan, ListenerPlan, ListenerTarget, Plan, RoutePlan, Slots, caches, logs, tables};
use crate::route::choice::ClusterChoice;
use crate::route::conditions::Conditions;
use crate::route::redirect::RedirectPlan;
use crate::route::router::Router;
use crate::route::sni::SniTable;
use crate::route::weighted::WeightedClusters;
use crate::table::Table;

/// Compiles a snapshot. `previous` is the plan in force.
///
/// # Errors
/// Everything that is wrong, with paths from the root of the configuration: `routes/3/filters/0/cors/origins`. Nothing
/// that `previous` uses has been touched then.
pub fn compile(snapshot: Arc<Snapshot>, previous: Option<&Plan>, generation: u64) -> Result<Plan, Vec<Issue>> {
    let mut compiler = Compiler::new(&snapshot, previous);
    compiler.compile_maps();
    let wrong = tables::wrong_keys(&snapshot, compiler.maps());
    compiler.issues.extend(wrong);
    let routes = compiler.routes();
    let listeners = compiler.listeners(&routes);
    let mut wrong_logs = Vec::new();
    let (log_conditions, log_values) = logs::compile(&snapshot.access_logs, compiler.names(), &mut wrong_logs);
    compiler.issues.extend(wrong_logs);
    let Compiler { clusters, tables, caches, maps, issues, .. } = compiler;
    if !issues.is_empty() {
        return Err(issues);
    }
    let slots = Slots::of(&clusters);
    Ok(Plan {
        generation,
        snapshot,
        listeners,
        clusters,
        routes,
        tables,
        caches,
        slots,
        maps,
        log_conditions,
        log_values,
    })
}

struct Compiler<'a> {
    snapshot: &'a Snapshot,
    previous: Option<&'a Plan>,
    clusters: Vec<Arc<ClusterPlan>>,
    tables: Vec<Arc<Table>>,
    caches: Vec<Arc<CacheStore>>,
    maps: Vec<Arc<MapPlan>>,
    /// Routes of the plan before whose filters keep state.
    keepers: Vec<&'a Arc<RoutePlan>>,
    /// Places in `clusters`.
    by_name: ByName<'a, Cluster>,
    issues: Vec<Issue>,
}

/// Routers of this plan and the one before; listeners with the same routes share one.
#[derive(Default)]
struct Routers {
    known: Vec<Arc<Router>>,
}

impl<'a> Compiler<'a> {
    fn new(snapshot: &'a Snapshot, previous: Option<&'a Plan>) -> Self {
        let old = ByName::of(previous.map_or(&[], |plan| &plan.clusters), |plan| &plan.cluster.name);
        let (mut wanted, mut issues) = (labels_wanted(snapshot), Vec::new());
        let mut compile = |cluster: &Arc<Cluster>| {
            let names = if wanted.is_empty() { None } else { wanted.remove(cluster.name.as_str()) }.unwrap_or_default();
            match old.find(&cluster.name) {
                Some(same) if is_same(&same.cluster, cluster) && same.subsets.are_by(&names) => same.clone(),
                before => {
                    issues.extend(OwnTlvs::compile(cluster).err().into_iter().flatten());
                    issues.extend(issues_of(cluster));
                    let before = before.map(|plan| &**plan);
                    Arc::new(ClusterPlan::compile_for(cluster.clone(), names, before))
                }
            }
        };
        let clusters: Vec<_> = snapshot.clusters.iter().map(&mut compile).collect();
        let by_name = ByName::of(&snapshot.clusters, |cluster| &cluster.name);
        let routes = previous.iter().flat_map(|plan| &plan.routes);
        let keepers = routes.filter(|route| route.chain.keeps_state()).collect();
        let tables = tables::compile(snapshot, previous, &mut issues);
        let caches = caches::compile(snapshot, previous);
        Self { snapshot, previous, clusters, tables, caches, maps: Vec::new(), keepers, by_name, issues }
    }

    fn compile_maps(&mut self) {
        let old: &[Arc<MapPlan>] = self.previous.map_or(&[], |plan| &plan.maps);
        for map in &self.snapshot.maps {
            let before = old.iter().find(|before| *before.name() == map.name);
            let compiled = MapPlan::compile(map, before).map_err(|issue| vec![issue]);
            let compiled = self.take(compiled, || format!("maps/{}/entries", map.name));
            self.maps.extend(compiled);
        }
    }

    fn cluster(&mut self, name: &Name, path: impl FnOnce() -> String) -> Option<Arc<ClusterPlan>> {
        let place = self.by_name.place(name);
        if place.is_none() {
            self.issues.push(Issue::at(path(), format!("there is no cluster `{name}`")));
        }
        place.map(|place| self.clusters[place].clone())
    }

    fn routes(&mut self) -> Vec<Arc<RoutePlan>> {
        let old = by_name(self.previous.map_or(&[], |plan| &plan.routes), |plan| &plan.route.name);
        let snapshot = self.snapshot;
        let listeners: HashMap<&str, &Listener> =
            snapshot.listeners.iter().map(|listener| (listener.name.as_str(), &**listener)).collect();
        let mut plans = Vec::with_capacity(snapshot.routes.len());
        for (index, route) in snapshot.routes.iter().enumerate() {
            self.check_listeners(index, route, &listeners);
            plans.extend(self.route(index, route, old.get(route.name.as_str()).copied()));
        }
        plans
    }

    fn check_listeners(&mut self, index: usize, route: &Route, listeners: &HashMap<&str, &Listener>) {
        for (place, name) in route.listeners.iter().enumerate() {
            let message = match listeners.get(name.as_str()) {
                None => format!("there is no listener `{name}`"),
                Some(listener) if !listener.protocol.has_routes() => {
                    format!("the listener `{name}` does not speak HTTP, so it has no routes")
                }
                Some(_) => continue,
            };
            self.issues.push(Issue::at(format!("routes/{index}/listeners/{place}"), message));
        }
    }

    /// `None` when there were issues.
    fn route(&mut self, index: usize, route: &Arc<Route>, old: Option<&Arc<RoutePlan>>) -> Option<Arc<RoutePlan>> {
        let action = self.action(index, &route.action);
        let conditions = match old {
            Some(old) if old.route.matches == route.matches && self.is_current(old.conditions.used()) => {
                Some(old.conditions.clone())
            }
            _ => self
                .take(Conditions::compile(&route.matches, self.names()), || format!("routes/{index}/match"))
                .map(Arc::new),
        };
        let chain = self.chain(index, route, old);
        let (action, conditions, chain) = (action?, conditions?, chain?);
        let called = self.called(index, &chain)?;
        match old {
            Some(old)
                if old.index == index
                    && old.route == *route
                    && Arc::ptr_eq(&old.chain, &chain)
                    && are_same(old.action.clusters(), action.clusters())
                    && are_same(&old.called, &called)
                    && self.is_current(old.action.used())
                    && Arc::ptr_eq(&old.conditions, &conditions) =>
            {
                Some(old.clone())
            }
            _ => {
                let (timeout, subset) = (route.timeout, route.subset.as_ref().map(SubsetPlan::new));
                let route = route.clone();
                Some(Arc::new(RoutePlan { route, index, action, chain, called, timeout, subset, conditions }))
            }
        }
    }

    fn chain(&mut self, index: usize, route: &Route, old: Option<&Arc<RoutePlan>>) -> Option<Arc<Chain>> {
        let keeper = self.keeper(route, old);
        let is_keeper = |plan: &&Arc<RoutePlan>| keeper.is_some_and(|keeper| Arc::ptr_eq(keeper, plan));
        let old = old.filter(|old| !old.chain.keeps_state() || is_keeper(old)).or(keeper);
        let is_same = |old: &&Arc<RoutePlan>| {
            let is_known = old.chain.has_tables(&self.tables)
                && old.chain.has_caches(&self.caches)
                && self.maps().have(old.chain.maps());
            // With files, what is stored belongs to what the route is, too.
            let identity = |route: &Route| caches::identity((route, is_counted(&route.name)), &self.caches);
            let is_equal = *old.route == *route || identity(&old.route) == identity(route);
            old.route.filters == route.filters && is_known && is_equal
        };
        if let Some(same) = old.filter(is_same) {
            return Some(same.chain.clone());
        }
        let beside = (&*self.tables, self.maps());
        let caches = (&*self.caches, caches::identity((route, is_counted(&route.name)), &self.caches));
        let compiled = Chain::compile_among(&route.filters, keeper.map(|keeper| &*keeper.chain), beside, caches);
        self.take(compiled, || format!("routes/{index}/filters")).map(Arc::new)
    }

    /// The clusters that the filters of a route call. `None`: there was an issue.
    fn called(&mut self, index: usize, chain: &Chain) -> Option<Box<[Arc<ClusterPlan>]>> {
        let mut all = Vec::with_capacity(chain.called().len());
        for called in chain.called() {
            let path = || format!("routes/{index}/filters/{}", called.path);
            let cluster = self.cluster(&called.cluster, path);
            if called.is_grpc && cluster.as_ref().is_some_and(|cluster| cluster.cluster.pool.shared.is_none()) {
                let message = format!("gRPC needs HTTP/2 or HTTP/3, and cluster `{}` speaks neither", called.cluster);
                self.issues.push(Issue::at(path(), message).suggest("add `http_versions: [h2]` to the cluster"));
            }
            all.extend(cluster);
        }
        (all.len() == chain.called().len()).then(|| all.into())
    }

    /// The route of the plan before whose filters hand over what they keep: the one of the same name. A name that only counts routes says
    /// nothing, as others may have come before it: there it is the one that asks for the same.
    fn keeper<'p>(&self, route: &Route, old: Option<&'p Arc<RoutePlan>>) -> Option<&'p Arc<RoutePlan>>
    where
        'a: 'p,
    {
        if !is_counted(&route.name) {
            return old;
        }
        let is_same =
            |plan: &&Arc<RoutePlan>| plan.route.matches == route.matches && plan.route.listeners == route.listeners;
        old.filter(is_same).or_else(|| self.keepers.iter().copied().find(is_same))
    }

    fn action(&mut self, index: usize, action: &Action) -> Option<ActionPlan> {
        match action {
            Action::Cluster(name) => self.cluster(name, || format!("routes/{index}/cluster")).map(ActionPlan::Cluster),
            Action::Weighted(shares) => self.weighted(index, shares).map(ActionPlan::Weighted),
            Action::Choice(choice) => self.choice(index, choice).map(ActionPlan::Choice),
            Action::Redirect(redirect) => self
                .take(RedirectPlan::compile(redirect, self.names()), || format!("routes/{index}/redirect"))
                .map(ActionPlan::Redirect),
            Action::Respond(response) => {
                let checked = check_response(response).map(|()| response.clone());
                self.take(checked, || format!("routes/{index}/respond")).map(ActionPlan::Respond)
            }
        }
    }

    fn weighted(&mut self, index: usize, shares: &[(Name, u32)]) -> Option<WeightedClusters> {
        let mut found = Vec::with_capacity(shares.len());
        for (place, (name, weight)) in shares.iter().enumerate() {
            let cluster = self.cluster(name, || format!("routes/{index}/clusters/{place}/cluster"));
            found.extend(cluster.map(|cluster| (cluster, *weight)));
        }
        if found.len() < shares.len() {
            return None;
        }
        let weighted = WeightedClusters::new(found);
        if weighted.is_none() {
            self.issues.push(Issue::at(format!("routes/{index}/clusters"), "no cluster has a weight above 0"));
        }
        weighted
    }

    fn choice(&mut self, index: usize, choice: &Choice) -> Option<ClusterChoice> {
        let path = || format!("routes/{index}/cluster");
        let from = Template::compile(&choice.from, Stage::Request).map_err(|issue| vec![issue.below("from")]);
        let from = self.take(from, path);
        let mut allowed = Vec::with_capacity(choice.allowed.len());
        for (place, name) in choice.allowed.iter().enumerate() {
            allowed.extend(self.cluster(name, || format!("{}/allowed/{place}", path())));
        }
        let otherwise = choice.otherwise.as_ref().map(|name| self.cluster(name, || format!("{}/otherwise", path())));
        let is_whole = allowed.len() == choice.allowed.len() && !matches!(otherwise, Some(None));
        from.filter(|_| is_whole).map(|from| ClusterChoice::new(from, allowed, otherwise.flatten()))
    }

    fn listeners(&mut self, routes: &[Arc<RoutePlan>]) -> Vec<Arc<ListenerPlan>> {
        let old = by_name(self.previous.map_or(&[], |plan| &plan.listeners), |plan| &plan.listener.name);
        let mut routers = Routers::of(self.previous);
        let mut plans = Vec::with_capacity(self.snapshot.listeners.len());
        for listener in &self.snapshot.listeners {
            let old = old.get(listener.name.as_str()).copied();
            let target = match &listener.protocol {
                Protocol::Http(_) => Some(ListenerTarget::Http(routers.get(&listener.name, routes))),
                Protocol::Tcp(tcp) => self.tcp_target(&listener.name, &tcp.target, old.map(|plan| &plan.target)),
                Protocol::Udp(udp) => self.udp_target(&listener.name, &udp.cluster),
            };
            let agents = self.no_keep_alive(listener);
            let (per_address, tracked) = (self.per_address(listener, old), self.tracked(listener));
            let whole = target.zip(agents).zip(per_address.zip(tracked));
            plans.extend(whole.map(|(rest, counted)| listener_plan(listener, rest, counted, old)));
        }
        plans
    }

    fn no_keep_alive(&mut self, listener: &Listener) -> Option<Option<AgentList>> {
        let Some(http) = listener.protocol.http() else { return Some(None) };
        let path = || format!("listeners/{}/no_keep_alive_for", listener.name);
        self.take(AgentList::compile(&http.no_keep_alive_for), path)
    }

    fn per_address(&mut self, listener: &Listener, old: Option<&Arc<ListenerPlan>>) -> Option<Option<PerAddress>> {
        let Some(bounds) = &listener.per_address else { return Some(None) };
        let path = || format!("listeners/{}/connections_per_address", listener.name);
        let compiled = PerAddress::compile(bounds, old.and_then(|old| old.per_address.as_ref()));
        self.take(compiled.map_err(|issue| vec![issue]), path).map(Some)
    }

    /// The tables that count connections of a listener.
    fn tracked(&mut self, listener: &Listener) -> Option<Box<[Arc<Table>]>> {
        let tracked = tables::tracked(&listener.track, &self.tables).map_err(|issue| vec![issue]);
        self.take(tracked, || format!("listeners/{}/track", listener.name))
    }

    fn tcp_target(
        &mut self,
        listener: &Name,
        target: &TcpTarget,
        old: Option<&ListenerTarget>,
    ) -> Option<ListenerTarget> {
        let (alpn, names, otherwise) = match target {
            TcpTarget::Cluster(name) => {
                return self.cluster(name, || format!("listeners/{listener}/cluster")).map(ListenerTarget::Tcp);
            }
            TcpTarget::Sni { alpn, names, otherwise, .. } => (alpn, names, otherwise.as_ref()),
        };
        let mut found = Vec::with_capacity(names.len());
        for (pattern, name) in names {
            let cluster = self.cluster(name, || format!("listeners/{listener}/sni/names/{pattern}"));
            found.extend(cluster.map(|cluster| (pattern.clone(), cluster)));
        }
        let fallback = otherwise.map(|name| self.cluster(name, || format!("listeners/{listener}/sni/otherwise")));
        let mut rules = Vec::with_capacity(alpn.len());
        for (index, rule) in alpn.iter().enumerate() {
            let cluster = self.cluster(&rule.cluster, || format!("listeners/{listener}/sni/alpn/{index}/cluster"));
            rules.extend(cluster.map(|cluster| (rule, cluster)));
        }
        let table = SniTable::new(&rules, &found, fallback.flatten());
        match old {
            Some(ListenerTarget::Sni(old)) if old.is_same(&table) => Some(ListenerTarget::Sni(old.clone())),
            _ => Some(ListenerTarget::Sni(Arc::new(table))),
        }
    }

    fn udp_target(&mut self, listener: &Name, name: &Name) -> Option<ListenerTarget> {
        let path = || format!("listeners/{listener}/cluster");
        let cluster = self.cluster(name, path)?;
        let settings = &cluster.cluster;
        let wrong = if settings.tls.is_some() {
            format!("`{name}` uses TLS to its endpoints, which is not possible over UDP")
        } else if settings.proxy_protocol.is_some() {
            format!("`{name}` sends the PROXY protocol, which is not supported over UDP")
        } else if let Some(endpoint) = settings.endpoints.iter().find(|endpoint| endpoint.address.ip().is_none()) {
            format!("the endpoint `{}` of `{name}` has no ports", endpoint.name)
        } else {
            return Some(ListenerTarget::Tcp(cluster));
        };
        self.issues.push(Issue::at(path(), wrong).suggest("use a separate cluster for UDP"));
        None
    }

    /// What expressions may name.
    fn names(&self) -> Names<'_> {
        Names { maps: self.maps(), tables: Tables::Known(&self.tables), has_body: false }
    }

    /// Returns whether maps and tables that something uses are those of this plan.
    fn is_current(&self, used: Option<&Used>) -> bool {
        used.is_none_or(|used| used.is_within(self.names()))
    }

    /// The maps that expressions may use.
    fn maps(&self) -> Maps<'_> {
        Maps::Known(&self.maps)
    }

    /// Puts errors among the others, below `path`, and goes on.
    fn take<T>(&mut self, result: Result<T, Vec<Issue>>, path: impl FnOnce() -> String) -> Option<T> {
        result
            .map_err(|issues| {
                let path = path();
                self.issues.extend(issues.into_iter().map(|issue| issue.below(&path)));
            })
            .ok()
    }
}

impl Routers {
    fn of(previous: Option<&Plan>) -> Self {
        let mut routers = Self::default();
        for listener in previous.iter().flat_map(|plan| &plan.listeners) {
            if let ListenerTarget::Http(router) = &listener.target
                && !routers.known.iter().any(|known| Arc::ptr_eq(known, router))
            {
                routers.known.push(router.clone());
            }
        }
        routers
    }

    /// The router of the routes that apply to a listener.
    fn get(&mut self, listener: &Name, routes: &[Arc<RoutePlan>]) -> Arc<Router> {
        let applies = |plan: &&Arc<RoutePlan>| {
            let listeners = &plan.route.listeners;
            listeners.is_empty() || listeners.contains(listener)
        };
        let routes: Vec<_> = routes.iter().filter(applies).cloned().collect();
        let same = |router: &&Arc<Router>| {
            let pairs = router.routes().iter().zip(&routes);
            router.routes().len() == routes.len() && pairs.into_iter().all(|(one, two)| Arc::ptr_eq(one, two))
        };
        if let Some(router) = self.known.iter().find(same) {
            return router.clone();
        }
        let router = Arc::new(Router::new(routes));
        self.known.push(router.clone());
        router
    }
}

/// Whether this is the name that a route without one gets, by its place.
fn is_counted(name: &Name) -> bool {
    name.as_str().strip_prefix("route-").is_some_and(|place| place.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether two clusters are equal. Of tens of thousands most are the very same.
fn is_same(one: &Arc<Cluster>, other: &Arc<Cluster>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// What is wrong with a cluster that is not seen by its parts: the conditions of its health check.
fn issues_of(cluster: &Cluster) -> impl Iterator<Item = Issue> {
    let at = || format!("clusters/{}/health_check", cluster.name);
    let issues = cluster.health_check.as_ref().map(expectation::issues_of).unwrap_or_default();
    issues.into_iter().map(move |issue| issue.below(&at()))
}

/// By which labels the routes want subsets of each cluster.
fn labels_wanted(snapshot: &Snapshot) -> HashMap<&str, BTreeSet<subset::Names>> {
    let mut wanted: HashMap<&str, BTreeSet<subset::Names>> = HashMap::new();
    for route in &snapshot.routes {
        let Some(rule) = &route.subset else { continue };
        for cluster in route.action.clusters() {
            wanted.entry(cluster.as_str()).or_default().extend(subset::names_of(rule));
        }
    }
    wanted
}

fn by_name<T>(plans: &[Arc<T>], name: impl Fn(&T) -> &Name) -> HashMap<&str, &Arc<T>> {
    plans.iter().map(|plan| (name(plan).as_str(), plan)).collect()
}

/// Whether two lists hold the very same clusters.
fn are_same(one: &[Arc<ClusterPlan>], two: &[Arc<ClusterPlan>]) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| Arc::ptr_eq(one, two))
}

/// A fixed answer is written as it is, so its fields are checked here, once.
fn check_response(response: &LocalResponse) -> Result<(), Vec<Issue>> {
    let mut issues = Vec::new();
    if !(200..600).contains(&response.status) {
        issues.push(Issue::at("status", format!("{} is not between 200 and 599", response.status)));
    }
    for (name, value) in &response.fields {
        let path = || format!("headers/{name}");
        if !is_token(name.as_bytes()) {
            issues.push(Issue::at(path(), format!("`{name}` is not a header field name")));
        }
        if !is_field_value(value.as_bytes()) {
            issues.push(Issue::at(path(), "the value holds a control character"));
        }
    }
    if issues.is_empty() { Ok(()) } else { Err(issues) }
}

#[cfg(test)]
mod tests;
