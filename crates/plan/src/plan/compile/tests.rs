//! What stays the same from one plan to the next, and what is reported when a snapshot does not compile.

use model::AddressList;
use model::filter::FilterUse;
use model::matching::{Match, PathMatch, ValueMatch, ValueTest};
use model::snapshot::Balance::{Random, RoundRobin};
use model::snapshot::{AlpnRule, Cluster, TcpListener};
use serde_json::json;

use super::*;
use crate::testing::{Worker, cluster, compiled, endpoint, health_check, http_listener, route, snapshot, weighted};
use crate::{HealthState, Outcome};

fn tcp_listener(name: &str, target: TcpTarget) -> Listener {
    let bandwidth = model::snapshot::Bandwidth::default();
    let tcp = TcpListener { target, idle_timeout: std::time::Duration::from_secs(1), bandwidth };
    Listener { protocol: Protocol::Tcp(tcp), ..http_listener(name) }
}

fn sni(names: &[(&str, &str)], otherwise: Option<&str>) -> TcpTarget {
    TcpTarget::Sni {
        alpn: Vec::new(),
        names: names.iter().map(|(pattern, cluster)| (pattern.parse().unwrap(), Name::from(*cluster))).collect(),
        otherwise: otherwise.map(Name::from),
        hello_timeout: std::time::Duration::from_secs(1),
    }
}

fn for_host(host: &str) -> Match {
    Match { hosts: vec![host.parse().unwrap()], ..Match::default() }
}

fn on(listener: &str, route: Route) -> Route {
    Route { listeners: vec![listener.into()], ..route }
}

fn header_filter(value: &str) -> FilterUse {
    FilterUse { name: "set_request_header".into(), settings: json!({ "x-a": value }), when: None, calls: Vec::new() }
}

/// Two HTTP listeners, one for TCP, one by server name; routes to `a` on both, to `b` on `two` alone.
fn example() -> Arc<Snapshot> {
    let listeners = vec![
        http_listener("one"),
        http_listener("two"),
        tcp_listener("raw", TcpTarget::Cluster("a".into())),
        tcp_listener("sni", sni(&[("x.com", "a"), ("*.com", "b")], Some("a"))),
    ];
    let mut filtered = route("to-a", for_host("a.com"), "a");
    filtered.filters = vec![header_filter("1")];
    let routes = vec![filtered, on("two", route("to-b", Match::default(), "b"))];
    let clusters = ["a", "b"].map(|name| cluster(name, RoundRobin, weighted(&[1, 1])));
    snapshot(listeners, routes, clusters.into())
}

/// The example with a change made to it. Nothing in it is the same `Arc` as before.
fn changed(change: impl FnOnce(&mut Vec<Listener>, &mut Vec<Route>, &mut Vec<Cluster>)) -> Arc<Snapshot> {
    let example = example();
    let mut listeners = example.listeners.iter().map(|listener| (**listener).clone()).collect();
    let mut routes = example.routes.iter().map(|route| (**route).clone()).collect();
    let mut clusters = example.clusters.iter().map(|cluster| (**cluster).clone()).collect();
    change(&mut listeners, &mut routes, &mut clusters);
    snapshot(listeners, routes, clusters)
}

/// Which parts are the very same: listeners, then routes, then clusters, `=` or `x` each.
fn same_parts(one: &Plan, two: &Plan) -> String {
    fn sign<T>((one, two): (&Arc<T>, &Arc<T>)) -> char {
        if Arc::ptr_eq(one, two) { '=' } else { 'x' }
    }
    let listeners: String = one.listeners.iter().zip(&two.listeners).map(sign).collect();
    let routes: String = one.routes.iter().zip(&two.routes).map(sign).collect();
    let clusters: String = one.clusters.iter().zip(&two.clusters).map(sign).collect();
    format!("{listeners} {routes} {clusters}")
}

fn http(plan: &Plan, name: &str) -> Arc<Router> {
    match &plan.listener(name).unwrap().target {
        ListenerTarget::Http(router) => router.clone(),
        _ => panic!("{name} does not speak HTTP"),
    }
}

#[test]
fn an_equal_snapshot_gives_the_very_same_parts() {
    let before = compiled(example(), None);
    let after = compiled(changed(|_, _, _| {}), Some(&before));
    assert_eq!(same_parts(&before, &after), "==== == ==");
    assert_eq!(after.generation, 2);
}

#[test]
fn a_changed_cluster_changes_only_what_leads_to_it() {
    let before = compiled(example(), None);
    let after = compiled(changed(|_, _, clusters| clusters[1].balance = Random), Some(&before));
    assert_eq!(same_parts(&before, &after), "=x=x =x =x");
    let after = compiled(changed(|_, _, clusters| clusters[0].balance = Random), Some(&before));
    assert_eq!(same_parts(&before, &after), "xxxx x= x=");
}

#[test]
fn a_changed_route_changes_only_the_listeners_that_have_it() {
    let before = compiled(example(), None);
    let after = compiled(changed(|_, routes, _| routes[1].matches = for_host("b.com")), Some(&before));
    assert_eq!(same_parts(&before, &after), "=x== =x ==");
    let after = compiled(changed(|_, routes, _| routes.truncate(1)), Some(&before));
    assert_eq!(same_parts(&before, &after), "=x== = ==");
}

#[test]
fn a_changed_listener_changes_nothing_else_and_keeps_its_connections() {
    let before = compiled(example(), None);
    assert!(before.listeners[0].state.try_open(10));
    let after = compiled(changed(|listeners, _, _| listeners[0].connections_max = 5), Some(&before));
    assert_eq!(same_parts(&before, &after), "x=== == ==");
    assert!(Arc::ptr_eq(&http(&before, "one"), &http(&after, "one")));
    assert_eq!(after.listeners[0].state.connections(), 1);
}

#[test]
fn a_listener_keeps_the_table_of_its_addresses_until_its_list_is_another() {
    let with = |network: &str, max| {
        let denied = vec![network.parse().unwrap()];
        let list = AddressList { denied, lets_others_in: true, ..AddressList::default() };
        changed(|listeners, _, _| {
            listeners[2].address_list = Some(list);
            listeners[2].connections_max = max;
        })
    };
    let table = |plan: &Plan| plan.listeners[2].admitted.clone().unwrap();
    let open = compiled(example(), None);
    assert!(open.listeners[2].admitted.is_none() && open.listeners[2].admits("10.0.0.1".parse().unwrap()));
    let before = compiled(with("10.0.0.0/8", 10), Some(&open));
    let [inside, outside] = ["::ffff:10.0.0.1", "192.0.2.7"].map(|address| address.parse().unwrap());
    assert!(!before.listeners[2].admits(inside) && before.listeners[2].admits(outside));
    let same = compiled(with("10.0.0.0/8", 5), Some(&before));
    assert!(Arc::ptr_eq(&table(&before), &table(&same)), "the list is equal, though the listener is not");
    let other = compiled(with("192.0.2.0/24", 5), Some(&same));
    assert!(other.listeners[2].admits(inside) && !other.listeners[2].admits(outside));
}

#[test]
fn listeners_with_the_same_routes_share_one_router() {
    let plan = compiled(changed(|_, routes, _| routes.truncate(1)), None);
    assert!(Arc::ptr_eq(&http(&plan, "one"), &http(&plan, "two")));
    let plan = compiled(example(), None);
    assert_eq!((http(&plan, "one").routes().len(), http(&plan, "two").routes().len()), (1, 2));
}

#[test]
fn a_route_that_moves_in_the_file_keeps_its_filters() {
    let before = compiled(example(), None);
    let moved = changed(|_, routes, _| routes.insert(0, route("new", for_host("new.com"), "b")));
    let after = compiled(moved, Some(&before));
    assert!(Arc::ptr_eq(&before.routes[0].chain, &after.routes[1].chain));
    assert_eq!(after.routes.iter().map(|plan| plan.index).collect::<Vec<_>>(), [0, 1, 2]);
    let other = changed(|_, routes, _| routes[0].filters = vec![header_filter("2")]);
    let after = compiled(other, Some(&before));
    assert!(!Arc::ptr_eq(&before.routes[0].chain, &after.routes[0].chain));
}

#[test]
fn state_survives_by_cluster_endpoint_and_address() {
    let before = compiled(example(), None);
    let lease = Worker::new(1).lease(&before.clusters[0]);
    let after = changed(|_, _, clusters| {
        let list = &mut clusters[0].endpoints;
        list.insert(0, endpoint(5, 1, None));
        list[1].weight = 7;
        list[2].address = "127.0.0.1:1".parse().unwrap();
    });
    let after = compiled(after, Some(&before));
    let (old, new) = (&before.clusters[0], &after.clusters[0]);
    assert!(Arc::ptr_eq(&old.state, &new.state));
    assert!(Arc::ptr_eq(&old.endpoints[0].state, &new.endpoints[1].state));
    assert_eq!((lease.endpoint_index(), new.endpoints[1].state.in_flight()), (0, 1));
    assert!(!Arc::ptr_eq(&old.endpoints[1].state, &new.endpoints[2].state), "the address is another");
    let slots: Vec<u32> = new.endpoints.iter().map(|endpoint| endpoint.state.slot).collect();
    assert!(slots[0] != slots[1] && slots[1] != slots[2] && slots[0] != slots[2]);
    let renamed = compiled(
        changed(|listeners, routes, clusters| {
            clusters[0].name = "z".into();
            routes.clear();
            listeners.truncate(2);
        }),
        Some(&before),
    );
    assert!(!Arc::ptr_eq(&renamed.clusters[0].state, &before.clusters[0].state));
}

#[test]
fn an_endpoint_that_is_down_stays_down_through_changes_until_its_check_is_gone() {
    let checked = |rise| {
        changed(move |_, _, clusters| {
            clusters[0].health_check = health_check(rise, 1);
            clusters[0].endpoints[0].weight = rise;
        })
    };
    let first = compiled(checked(1), None);
    first.clusters[0].observe(0, Outcome::Failure);
    let second = compiled(checked(2), Some(&first));
    assert!(!second.clusters[0].is_up(0) && second.clusters[0].is_up(1));
    assert_eq!(Worker::new(1).lease(&second.clusters[0]).endpoint_index(), 1);
    let unchecked = compiled(example(), Some(&second));
    assert!(unchecked.clusters[0].is_up(0));
    assert_eq!(unchecked.clusters[0].observe(0, Outcome::Failure), None);
    let again = compiled(checked(1), Some(&unchecked));
    again.take_effect(&unchecked);
    assert!(again.clusters[0].is_up(0));
    assert_eq!(again.clusters[0].endpoints[0].state.health_state(), HealthState::Unknown);
}

#[test]
fn a_server_name_leads_to_its_cluster() {
    let plan = compiled(example(), None);
    let ListenerTarget::Sni(table) = &plan.listener("sni").unwrap().target else { panic!("no table") };
    let found =
        |table: &SniTable, asked| table.find(asked, std::iter::empty()).map(|cluster| cluster.cluster.name.to_string());
    let name = |asked| found(table, asked);
    assert_eq!(name(Some("X.com")).as_deref(), Some("a"));
    assert_eq!(name(Some("y.com")).as_deref(), Some("b"));
    assert_eq!(name(Some("y.org")).as_deref(), Some("a"));
    assert_eq!(name(None).as_deref(), Some("a"));
    let strict = changed(|listeners, _, _| listeners[3] = tcp_listener("sni", sni(&[("x.com", "a")], None)));
    let plan = compiled(strict, Some(&plan));
    let ListenerTarget::Sni(table) = &plan.listener("sni").unwrap().target else { panic!("no table") };
    assert_eq!([Some("x.com"), Some("y.com"), None].map(|asked| found(table, asked).is_some()), [true, false, false]);
}

#[test]
fn an_application_protocol_leads_to_its_cluster_before_the_name() {
    let rule = |protocols: &[&str], names: &[&str], cluster: &str| AlpnRule {
        protocols: protocols.iter().map(|&name| name.to_owned()).collect(),
        names: names.iter().map(|name| name.parse().unwrap()).collect(),
        cluster: Name::from(cluster),
    };
    let ruled = |rules: Vec<AlpnRule>| {
        let mut target = sni(&[("x.com", "a")], None);
        if let TcpTarget::Sni { alpn, .. } = &mut target {
            *alpn = rules;
        }
        changed(move |listeners, _, _| listeners[3] = tcp_listener("sni", target))
    };
    let rules = vec![rule(&["acme-tls/1"], &[], "b"), rule(&["h2", "h3"], &["*.x.com"], "b")];
    let plan = compiled(ruled(rules.clone()), None);
    let ListenerTarget::Sni(table) = &plan.listener("sni").unwrap().target else { panic!("no table") };
    let find = |name, offered: &[&str]| {
        let cluster = table.find(name, offered.iter().map(|protocol| protocol.as_bytes()));
        cluster.map(|cluster| cluster.cluster.name.to_string())
    };
    assert_eq!(find(Some("x.com"), &["acme-tls/1"]).as_deref(), Some("b"));
    assert_eq!(find(None, &["http/1.1", "acme-tls/1"]).as_deref(), Some("b"));
    assert_eq!(find(Some("A.X.com"), &["http/1.1", "h2"]).as_deref(), Some("b"));
    assert_eq!(find(Some("x.com"), &["h2"]).as_deref(), Some("a"), "the rule is for names below it");
    assert_eq!(find(Some("a.x.com"), &["http/1.1"]), None);
    assert_eq!(find(None, &["h2"]), None, "without a name");
    let kept = |second: &Plan| {
        let ListenerTarget::Sni(other) = &second.listener("sni").unwrap().target else { panic!("no table") };
        Arc::ptr_eq(table, other)
    };
    assert!(kept(&compiled(ruled(rules.clone()), Some(&plan))));
    assert!(!kept(&compiled(ruled(rules[..1].to_vec()), Some(&plan))), "another table for other rules");
}

#[test]
fn weighted_clusters_are_chosen_by_weight_and_never_by_weight_0() {
    let shares = vec![(Name::from("a"), 3), (Name::from("b"), 0), (Name::from("b"), 1)];
    let plan = compiled(changed(|_, routes, _| routes[0].action = Action::Weighted(shares)), None);
    let ActionPlan::Weighted(weighted) = &plan.routes[0].action else { panic!("not weighted") };
    let mut random = crate::Random::new(3);
    let to_a = (0..8_000).filter(|_| weighted.choose(random.next_u64()).cluster.name.as_str() == "a").count();
    // Six standard deviations of a binomial with n = 8,000 and p = 3/4.
    assert!(to_a.abs_diff(6_000) < 233, "{to_a}");
    assert_eq!(weighted.choose(u64::MAX).cluster.name.as_str(), "b");
    assert_eq!(weighted.choose(0).cluster.name.as_str(), "a");
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_place() {
    let before = compiled(example(), None);
    let broken = changed(|listeners, routes, _| {
        listeners[2] = tcp_listener("raw", TcpTarget::Cluster("none".into()));
        listeners[3] = tcp_listener("sni", sni(&[("*.x.com", "none")], Some("none")));
        let bad = || ValueTest::Regex("(".into());
        routes[0].matches.path = Some(PathMatch::Regex("[".into()));
        routes[0].matches.headers = vec![
            ValueMatch { name: "a b".into(), test: ValueTest::Present },
            ValueMatch { name: "x".into(), test: bad() },
        ];
        routes[0].filters = vec![
            header_filter("1"),
            FilterUse { name: "nothing".into(), settings: json!({}), when: None, calls: Vec::new() },
        ];
        routes[1].listeners = vec!["two".into(), "none".into(), "raw".into()];
        routes[1].action = Action::Cluster("none".into());
        let mut more = route("weighted", Match::default(), "a");
        more.action = Action::Weighted(vec![(Name::from("a"), 1), (Name::from("none"), 1)]);
        routes.push(more.clone());
        more.action = Action::Weighted(vec![(Name::from("a"), 0)]);
        routes.push(Route { name: "zero".into(), ..more.clone() });
        let fields = vec![("a b".into(), "x\r\ny: 1".into())];
        more.action = Action::Respond(LocalResponse { status: 99, fields, body: vec![] });
        more.matches.query = vec![ValueMatch { name: "q".into(), test: bad() }];
        more.matches.cookies = vec![ValueMatch { name: "c".into(), test: bad() }];
        routes.push(Route { name: "respond".into(), ..more });
    });
    let issues = compile(broken, Some(&before), 2).unwrap_err();
    let mut paths: Vec<&str> = issues.iter().map(|issue| issue.path.as_str()).collect();
    paths.sort_unstable();
    let expected = [
        "listeners/raw/cluster",
        "listeners/sni/sni/names/*.x.com",
        "listeners/sni/sni/otherwise",
        "routes/0/filters/1/nothing",
        "routes/0/match/headers/a b",
        "routes/0/match/headers/x/regex",
        "routes/0/match/path/regex",
        "routes/1/cluster",
        "routes/1/listeners/1",
        "routes/1/listeners/2",
        "routes/2/clusters/1/cluster",
        "routes/3/clusters",
        "routes/4/match/cookies/c/regex",
        "routes/4/match/query/q/regex",
        "routes/4/respond/headers/a b",
        "routes/4/respond/headers/a b",
        "routes/4/respond/status",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn a_name_given_twice_or_an_address_given_twice_does_no_harm() {
    let twice = changed(|_, _, clusters| {
        let first = clusters[0].endpoints[0].clone();
        clusters[0].endpoints[1] = first;
        clusters.push(clusters[0].clone());
    });
    let before = compiled(twice.clone(), None);
    let after = compiled(twice, Some(&before));
    assert_eq!(same_parts(&before, &after).split(' ').next(), same_parts(&after, &after).split(' ').next());
}

#[test]
fn datagrams_cannot_go_where_their_cluster_speaks_what_they_do_not_carry() {
    use model::proxy_protocol::SendProxy;
    use model::snapshot::{UdpListener, UpstreamTls};
    let udp = UdpListener { cluster: "a".into(), idle_timeout: std::time::Duration::from_secs(1), responses_max: None };
    let told = |change: &dyn Fn(&mut Cluster)| {
        let snapshot = changed(|listeners, _, clusters| {
            listeners.push(Listener { protocol: Protocol::Udp(udp.clone()), ..http_listener("dns") });
            change(&mut clusters[0]);
        });
        match compile(snapshot, None, 1) {
            Ok(plan) => {
                assert!(matches!(plan.listener("dns").unwrap().target, ListenerTarget::Tcp(_)));
                Vec::new()
            }
            Err(issues) => issues.iter().map(|issue| format!("{}: {}", issue.path, issue.message)).collect(),
        }
    };
    assert_eq!(told(&|_| {}), Vec::<String>::new());
    let tls = UpstreamTls { server_name: None, verify: true, authorities: None, certificate: None };
    assert_eq!(
        told(&|cluster| cluster.tls = Some(tls.clone())),
        ["listeners/dns/cluster: `a` uses TLS to its endpoints, which is not possible over UDP"]
    );
    assert_eq!(
        told(&|cluster| cluster.proxy_protocol = Some(SendProxy::V1)),
        ["listeners/dns/cluster: `a` sends the PROXY protocol, which is not supported over UDP"]
    );
    let first = "127.0.0.1:9000";
    assert_eq!(
        told(&|cluster| cluster.endpoints[0].address = model::Address::Unix("/a".into())),
        [format!("listeners/dns/cluster: the endpoint `{first}` of `a` has no ports")]
    );
}

fn named(from: &str, allowed: &[&str], otherwise: Option<&str>) -> Action {
    let allowed = allowed.iter().map(|name| Name::from(*name)).collect();
    Action::Choice(Choice { from: from.to_owned(), allowed, otherwise: otherwise.map(Name::from) })
}

#[test]
fn a_choice_of_clusters_stays_the_same_until_one_of_them_changes() {
    let choosing = |change: &dyn Fn(&mut Vec<Cluster>)| {
        changed(|_, routes, clusters| {
            routes[0].action = named("{cookie:group}", &["b"], Some("a"));
            change(clusters);
        })
    };
    let one = compiled(choosing(&|_| {}), None);
    let names: Vec<&str> = one.routes[0].action.clusters().iter().map(|plan| plan.cluster.name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    let two = compiled(choosing(&|_| {}), Some(&one));
    assert!(Arc::ptr_eq(&one.routes[0], &two.routes[0]));
    let three = compiled(choosing(&|clusters| clusters[0].connections_max = Some(1)), Some(&two));
    assert!(!Arc::ptr_eq(&two.routes[0], &three.routes[0]), "the one for other values is one of them");
}

#[test]
fn what_is_wrong_in_a_choice_of_clusters_is_reported_with_its_place() {
    let wrong = changed(|_, routes, _| {
        routes[0].action = named("{cooky:group}", &["a", "c"], Some("d"));
    });
    let issues = compile(wrong, None, 1).unwrap_err();
    let told: Vec<(&str, &str)> = issues.iter().map(|issue| (issue.path.as_str(), issue.message.as_str())).collect();
    assert_eq!(
        told,
        [
            ("routes/0/cluster/from", "there is no variable `{cooky}`"),
            ("routes/0/cluster/allowed/1", "there is no cluster `c`"),
            ("routes/0/cluster/otherwise", "there is no cluster `d`"),
        ]
    );
}

#[test]
fn a_route_that_is_asked_for_something_else_does_not_take_over_files() {
    let with = |host: &str, cluster: &str| {
        let changed = changed(|_, routes, _| {
            let filters = vec![FilterUse {
                name: "cache".into(),
                settings: json!({ "store": "a" }),
                when: None,
                calls: Vec::new(),
            }];
            routes[0] = Route { filters, ..route("to-a", for_host(host), cluster) };
        });
        let disk = Some(model::cache::CacheDisk { path: "/cache".to_owned(), max: 1 << 30 });
        let caches = vec![Arc::new(model::cache::Cache { name: "a".into(), memory: 1 << 20, disk })];
        Arc::new(Snapshot { caches, ..(*changed).clone() })
    };
    let before = compiled(with("a.com", "a"), None);
    let is_kept = |host, cluster| {
        let after = compiled(with(host, cluster), Some(&before));
        Arc::ptr_eq(&before.routes[0].chain, &after.routes[0].chain)
    };
    assert_eq!([is_kept("a.com", "a"), is_kept("b.com", "a"), is_kept("a.com", "b")], [true, false, false]);
}
