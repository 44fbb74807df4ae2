//! What providers give in parts, taken and left out.

use super::*;
use crate::given::{State, Text};

/// With two stores that are never there: what they want the tests put into the inbox.
fn with_stores(routes: &str) -> String {
    format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes: [{routes}]\n\
         clusters: {{ site: {{ endpoints: {{ from: a }} }} }}\nproviders:\n  \
         b: {{ etcd: {{ urls: [\"http://127.0.0.1:1\"] }} }}\n  \
         a: {{ etcd: {{ urls: [\"http://127.0.0.1:1\"] }} }}\n"
    )
}

fn cluster(name: &str, port: u16) -> String {
    format!("clusters: {{ {name}: {{ endpoints: [\"127.0.0.1:{port}\"] }} }}")
}

fn state(texts: &[(&str, &str)], site: &str) -> State {
    let text = |(name, text): &(&str, &str)| Text { name: (*name).into(), text: (*text).into(), ..Text::default() };
    let endpoints = [("site".to_owned(), vec![config::file::EndpointSettings::at(site)])];
    State { texts: texts.iter().map(text).collect(), endpoints: endpoints.into(), by_parts: true, ..State::default() }
}

impl Fixture {
    /// Takes what providers want as the program does.
    fn take(&mut self) -> Option<u64> {
        let fitted = self.reconciler.preparation().prepare_provided();
        self.reconciler.refuse(&fitted.refused);
        fitted.candidate.map(|candidate| self.reconciler.commit(candidate, fitted.origin).unwrap())
    }

    fn send(&mut self, name: &str, texts: &[(&str, &str)], site: &str) -> Option<u64> {
        self.reconciler.providers.inbox().send(name, state(texts, site), None);
        self.take()
    }

    /// Where the endpoints of a cluster are. `None`: it is not there.
    fn endpoints(&self, cluster: &str) -> Option<Vec<String>> {
        let plan = self.reconciler.view().plan().unwrap();
        let found = plan.cluster(cluster)?;
        Some(found.cluster.endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect())
    }

    fn left_out(&self, name: &str) -> Vec<String> {
        let statuses = self.reconciler.inbox().statuses();
        statuses.into_iter().find(|status| status.name == name).map(|status| status.left_out).unwrap()
    }

    fn problems(&self) -> Vec<String> {
        self.reconciler.inbox().statuses().into_iter().filter_map(|status| status.problems).collect()
    }

    /// By the API.
    fn put(&mut self, text: &str) {
        let order = order(crate::Change::Replace(text.to_owned()));
        let (candidate, origin) = self.reconciler.preparation().prepare_change(&order).unwrap();
        self.reconciler.commit(candidate, origin).unwrap();
    }

    fn set_routes(&mut self, routes: &str) {
        self.write("site.yaml", &with_stores(routes));
        self.reconciler.reload().unwrap_or_else(|error| panic!("{error}"));
    }
}

const TO_SITE: &str = "{ cluster: site }";
const TO_POOL: &str = "{ cluster: pool }";

fn ports(ports: &[u16]) -> Option<Vec<String>> {
    Some(ports.iter().map(|port| format!("127.0.0.1:{port}")).collect())
}

#[test]
fn a_part_that_is_taken_away_and_needed_stays_and_holds_up_nothing_else() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    let (pool, other) = (cluster("pool", 1), cluster("other", 2));
    fixture.send("a", &[("config/pool", &pool), ("config/z", &other)], "127.0.0.1:3");
    fixture.set_routes(TO_POOL);
    // With it goes what nothing needs, and its endpoints move.
    assert!(fixture.send("a", &[("config/new", &cluster("new", 4))], "127.0.0.1:5").is_some());
    assert_eq!((fixture.endpoints("pool"), fixture.endpoints("other")), (ports(&[1]), None));
    assert_eq!((fixture.endpoints("new"), fixture.endpoints("site")), (ports(&[4]), ports(&[5])));
    let told = fixture.left_out("a");
    let place = fixture.path("site.yaml").display().to_string();
    let why = format!("config/pool: was taken away, and stays as it was: {place}:3:21 needs the cluster `pool`");
    assert_eq!((told, fixture.problems()), (vec![why], Vec::new()));
    // What comes later is taken as ever.
    fixture.send("a", &[("config/new", &cluster("new", 4))], "127.0.0.1:6");
    assert_eq!((fixture.endpoints("pool"), fixture.endpoints("site")), (ports(&[1]), ports(&[6])));
    fixture.send("a", &[("config/new", &cluster("new", 7))], "127.0.0.1:6");
    assert_eq!((fixture.endpoints("pool"), fixture.endpoints("new")), (ports(&[1]), ports(&[7])));
    assert_eq!(fixture.left_out("a").len(), 1);
    // So is one that says something else, without what is needed.
    fixture.send("a", &[("config/pool", &cluster("pool", 8))], "127.0.0.1:6");
    assert_eq!((fixture.endpoints("pool"), fixture.left_out("a")), (ports(&[8]), Vec::new()));
    fixture.send("a", &[("config/more", &cluster("more", 9)), ("config/pool", "routes: []")], "127.0.0.1:6");
    assert_eq!((fixture.endpoints("pool"), fixture.endpoints("more")), (ports(&[8]), ports(&[9])));
    assert!(fixture.left_out("a")[0].starts_with("config/pool: has changed, and stays"), "{:?}", fixture.left_out("a"));
    // It goes with who needs it.
    fixture.set_routes(TO_SITE);
    assert_eq!((fixture.endpoints("pool"), fixture.left_out("a")), (None, Vec::new()));
}

#[test]
fn a_part_that_is_kept_goes_with_what_needs_it_by_another_provider_or_the_api() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    let (pool, route) = (cluster("pool", 1), "routes: [{ name: r, match: { path: { prefix: /r } }, cluster: pool }]");
    fixture.send("a", &[("config/pool", &pool)], "127.0.0.1:3");
    let wrong = "routes: [{ name: r, match: { path: /r }, cluster: pool }]";
    fixture.send("b", &[("config/wrong", wrong)], "127.0.0.1:3");
    fixture.send("a", &[], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("pool"), fixture.left_out("a")), (None, Vec::new()), "what is wrong needs nothing");
    fixture.send("a", &[("config/pool", &pool)], "127.0.0.1:3");
    fixture.send("b", &[("config/r", route)], "127.0.0.1:3");
    assert_eq!(fixture.left_out("b"), Vec::<String>::new());
    fixture.send("a", &[], "127.0.0.1:3");
    assert_eq!(fixture.endpoints("pool"), ports(&[1]));
    assert!(fixture.left_out("a")[0].contains("provider:b:config/r:1:"), "{:?}", fixture.left_out("a"));
    fixture.send("b", &[], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("pool"), fixture.left_out("a")), (None, Vec::new()));

    fixture.send("a", &[("config/pool", &pool)], "127.0.0.1:3");
    fixture.set_routes(TO_POOL);
    fixture.send("a", &[], "127.0.0.1:3");
    assert_eq!(fixture.take(), None, "nothing is new");
    assert_eq!(fixture.endpoints("pool"), ports(&[1]));
    fixture.put(&with_stores(TO_SITE));
    assert!(fixture.take().is_some(), "it is tried again");
    assert_eq!((fixture.endpoints("pool"), fixture.left_out("a")), (None, Vec::new()));
    assert_eq!(fixture.take(), None);
}

#[test]
fn a_part_that_is_kept_stands_where_it_was_and_goes_over_to_a_process_that_follows() {
    let route = |name: &str, cluster: &str| {
        format!(
            "routes: [{{ name: {name}, match: {{ path: {{ prefix: /{name} }} }}, cluster: {cluster} }}]\n{}",
            self::cluster(name, 1)
        )
    };
    let names = |fixture: &Fixture| {
        let plan = fixture.reconciler.view().plan().unwrap();
        plan.routes.iter().map(|route| route.route.name.to_string()).collect::<Vec<_>>()
    };
    let mut fixture = Fixture::started(&with_stores("{ name: own, cluster: site }"));
    // One needs another of the same provider, and that a third.
    let texts = [("config/1", route("p", "site")), ("config/2", route("q", "p")), ("config/3", route("r", "q"))];
    let all = texts.each_ref().map(|(name, text)| (*name, text.as_str()));
    fixture.send("a", &all, "127.0.0.1:3");
    assert_eq!(names(&fixture), ["own", "p", "q", "r"]);
    fixture.send("a", &all[2..], "127.0.0.1:4");
    assert_eq!(
        (names(&fixture), fixture.endpoints("site")),
        (["own", "p", "q", "r"].map(String::from).into(), ports(&[4]))
    );
    let told = fixture.left_out("a");
    assert!(told.len() == 2 && told[0].contains("config/2:1:") && told[1].contains("config/3:1:"), "{told:?}");
    // The one that follows has what this one had, whatever its provider says first.
    let handed = fixture.follow();
    fixture.reconciler.inherit(&handed);
    fixture.start();
    assert_eq!(names(&fixture), ["own", "p", "q", "r"]);
    fixture.send("a", &all[2..], "127.0.0.1:5");
    assert_eq!((fixture.left_out("a"), fixture.endpoints("site")), (told, ports(&[5])));
    fixture.send("a", &[], "127.0.0.1:5");
    assert_eq!((names(&fixture), fixture.left_out("a")), (vec!["own".to_owned()], Vec::new()));
}

#[test]
fn what_is_in_force_of_one_provider_is_not_pushed_out_by_news_of_another() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    fixture.send("a", &[("config/x", &cluster("x", 1)), ("config/y", "routes: []")], "127.0.0.1:3");
    // It is as it was: its news are wrong.
    fixture.send("a", &[("config/x", "clusters: { x: { endpoints: [nowhere] } }")], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("x"), fixture.left_out("a").len()), (ports(&[1]), 1));
    // `b` stands before `a`: of two that have a name it is `a` that is told of.
    fixture.send("b", &[("config/new", &cluster("new", 2)), ("config/x", &cluster("x", 9))], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("x"), fixture.endpoints("new")), (ports(&[1]), ports(&[2])));
    let told = fixture.left_out("b");
    assert!(told.len() == 1 && told[0].starts_with("config/x: provider:a:config/x:1:13: cluster `x`"), "{told:?}");
    assert!(fixture.left_out("a")[0].contains("nowhere"), "{:?}", fixture.left_out("a"));
    // The same of names of routes, and once it has gone the other may have it.
    let route = "routes: [{ name: r, match: { path: { prefix: /r } }, cluster: site }]";
    fixture.send("a", &[("config/x", "clusters: { x: { endpoints: [nowhere] } }"), ("config/r", route)], "127.0.0.1:3");
    fixture.send("b", &[("config/r", route)], "127.0.0.1:3");
    let told = fixture.left_out("b");
    assert!(told.len() == 1 && told[0].starts_with("config/r: provider:a:config/r:1:"), "{told:?}");
    fixture.send("b", &[("config/x", &cluster("x", 9))], "127.0.0.1:3");
    fixture.send("a", &[], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("x"), fixture.left_out("b")), (ports(&[9]), Vec::new()));
}

#[test]
fn a_part_that_has_changed_and_was_kept_is_taken_when_the_api_takes_away_what_needed_it() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    fixture.send("a", &[("config/pool", &cluster("pool", 1))], "127.0.0.1:3");
    fixture.set_routes(TO_POOL);
    fixture.send("a", &[("config/pool", &cluster("new", 2))], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("pool"), fixture.endpoints("new")), (ports(&[1]), None));
    fixture.put(&with_stores(TO_SITE));
    assert!(fixture.take().is_some(), "it is tried again");
    assert_eq!((fixture.endpoints("pool"), fixture.endpoints("new")), (None, ports(&[2])));
    assert_eq!((fixture.left_out("a"), fixture.take()), (Vec::new(), None));
}

#[test]
fn what_one_provider_has_in_force_is_not_given_up_because_another_takes_away_what_it_needs() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    // One whose state is whole or nothing, as that of a file.
    let whole = |fixture: &Fixture, text: &str| {
        let state = State { by_parts: false, ..state(&[("all", text)], "127.0.0.1:3") };
        fixture.reconciler.providers.inbox().send("b", state, None);
    };
    whole(&fixture, &cluster("shared", 1));
    fixture.take();
    let route = ("config/r", "routes: [{ name: r, match: { path: { prefix: /r } }, cluster: shared }]");
    let wrong = ("config/wrong", "clusters: { x: { endpoints: [nowhere] } }");
    fixture.send("a", &[route, wrong], "127.0.0.1:3");
    assert_eq!((fixture.left_out("a").len(), fixture.endpoints("shared")), (1, ports(&[1])));
    // That something of `a` is left out makes nothing of it that is in force a matter of choice.
    whole(&fixture, &cluster("other", 2));
    fixture.take();
    assert_eq!((fixture.endpoints("shared"), fixture.endpoints("other")), (ports(&[1]), None));
    assert_eq!((fixture.left_out("a").len(), fixture.problems().len()), (1, 1));
    // What comes with it and is right is taken.
    whole(&fixture, &cluster("other", 3));
    let good = cluster("x", 4);
    fixture.reconciler.providers.inbox().send("a", state(&[route, ("config/x", &good)], "127.0.0.1:3"), None);
    fixture.take();
    assert_eq!((fixture.endpoints("shared"), fixture.endpoints("x")), (ports(&[1]), ports(&[4])));
    assert_eq!((fixture.endpoints("other"), fixture.left_out("a")), (None, Vec::new()));
}

/// Everything of it together or nothing.
fn whole(text: &str) -> State {
    State { by_parts: false, ..state(&[("config/all", text)], "127.0.0.1:3") }
}

fn with_cluster(text: &str, more: &str) -> String {
    text.replace("clusters: { site", &format!("clusters: {{ {more}: {{ endpoints: [\"127.0.0.1:9\"] }}, site"))
}

#[test]
fn files_that_are_new_push_nothing_out_that_is_in_force_though_another_part_of_it_is_wrong() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    let wrong = ("config/w", "routes: [{ name: w, match: { path: /w }, cluster: site }]");
    fixture.send("a", &[wrong, ("config/x", &cluster("x", 1))], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("x"), fixture.left_out("a").len()), (ports(&[1]), 1));
    fixture.write("site.yaml", &with_cluster(&with_stores(TO_SITE), "x"));
    let refused = fixture.reconciler.reload().unwrap_err().to_string();
    assert!(refused.contains("`x` is defined twice"), "{refused}");
    assert_eq!((fixture.endpoints("x"), fixture.left_out("a").len()), (ports(&[1]), 1));
}

#[test]
fn what_one_lacked_is_taken_with_what_came_behind_it_though_a_third_is_wrong() {
    let mut fixture =
        Fixture::started(&format!("{}  c: {{ etcd: {{ urls: [\"http://127.0.0.1:1\"] }} }}\n", with_stores(TO_SITE)));
    let inbox = fixture.reconciler.providers.inbox();
    inbox.send("b", whole("routes: [{ name: r, match: { path: { prefix: /r } }, cluster: pool }]"), None);
    inbox.send("c", whole("nonsense: 1"), None);
    assert_eq!((fixture.take(), fixture.problems().len()), (None, 2));
    fixture.send("a", &[("config/pool", &cluster("pool", 1))], "127.0.0.1:3");
    let problems = fixture.problems();
    assert_eq!((fixture.endpoints("pool"), problems.len()), (ports(&[1]), 1), "{problems:?}");
    assert!(problems[0].contains("nonsense"), "{problems:?}");
}

#[test]
fn what_was_lacking_and_comes_by_the_api_brings_in_what_lacked_it() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    let route =
        |name: &str| format!("routes: [{{ name: {name}, match: {{ path: {{ prefix: /{name} }} }}, cluster: pool }}]");
    fixture.reconciler.providers.inbox().send("b", whole(&route("all")), None);
    fixture.send("a", &[("config/r", &route("r"))], "127.0.0.1:3");
    assert_eq!((fixture.left_out("a").len(), fixture.problems().len()), (1, 1));
    fixture.put(&with_cluster(&with_stores(TO_SITE), "pool"));
    let inbox = fixture.reconciler.providers.inbox();
    assert!(inbox.is_due(), "they are tried again");
    assert!(fixture.take().is_some());
    assert_eq!((fixture.left_out("a"), fixture.problems()), (Vec::new(), Vec::new()));
}

/// A cluster with a cookie, and a route to it.
fn sticky(name: &str, port: u16) -> String {
    format!(
        "clusters: {{ {name}: {{ endpoints: [\"127.0.0.1:{port}\"], \
         persistence: {{ cookie: {{ name: lb, secret: 0123456789abcdef }} }} }} }}\n\
         routes: [{{ name: {name}, match: {{ path: {{ prefix: /{name} }} }}, cluster: {name} }}]"
    )
}

#[test]
fn a_cookie_that_clients_have_already_is_told_of_the_part_that_is_new() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    let (early, late, new) = (sticky("early", 1), sticky("late", 2), cluster("new", 4));
    fixture.send("a", &[("config/z", &late)], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("late"), fixture.left_out("a")), (ports(&[2]), Vec::new()));
    // Of two that have it the second is told of: that is the one in force.
    let texts = [("config/a", early.as_str()), ("config/n", new.as_str()), ("config/z", late.as_str())];
    fixture.send("a", &texts, "127.0.0.1:3");
    assert_eq!((fixture.endpoints("late"), fixture.endpoints("new")), (ports(&[2]), ports(&[4])));
    assert_eq!(fixture.endpoints("early"), None);
    let told = fixture.left_out("a");
    assert!(told.len() == 1 && told[0].starts_with("config/a: provider:a:config/z:1:"), "{told:?}");
    assert!(told[0].contains("the cluster `early` sets a cookie `lb` for the same clients"), "{told:?}");
    // Once the other has gone it may have it.
    fixture.send("a", &texts[..2], "127.0.0.1:3");
    assert_eq!((fixture.endpoints("early"), fixture.left_out("a")), (ports(&[1]), Vec::new()));
}

#[test]
fn a_listener_that_is_to_have_no_routes_stays_while_one_names_it_and_holds_up_nothing_else() {
    let mut fixture = Fixture::started(&with_stores(TO_SITE));
    let route = "routes: [{ name: r, listeners: [side], match: { path: { prefix: /r } }, cluster: site }]";
    let side = |more: &str| format!("listeners: {{ side: {{ bind: \"127.0.0.1:0\"{more} }} }}");
    let (http, tcp) = (side(""), side(", protocol: tcp, cluster: site"));
    fixture.send("a", &[("config/l", &http), ("config/r", route)], "127.0.0.1:3");
    assert_eq!(fixture.left_out("a"), Vec::<String>::new());
    let new = cluster("new", 4);
    fixture.send("a", &[("config/l", &tcp), ("config/n", &new), ("config/r", route)], "127.0.0.1:3");
    assert_eq!(fixture.endpoints("new"), ports(&[4]));
    let told = fixture.left_out("a");
    assert!(told.len() == 1 && told[0].starts_with("config/l: provider:a:config/r:1:"), "{told:?}");
    assert!(told[0].contains("listener `side` speaks tcp and has no routes"), "{told:?}");
    let plan = fixture.reconciler.view().plan().unwrap();
    assert!(plan.routes.iter().any(|route| route.route.name.as_str() == "r"), "the route is in force");
    // It comes in with the route gone.
    fixture.send("a", &[("config/l", &tcp), ("config/n", &new)], "127.0.0.1:3");
    assert_eq!(fixture.left_out("a"), Vec::<String>::new());
}
