//! Host names of endpoints, clusters without endpoints, and clusters that requests name.

use std::time::Duration;

use model::snapshot::Action;

use crate::support::{load, messages};

#[test]
fn names_are_looked_up_again_unless_a_cluster_says_once() {
    let text = "version: 1
names: { resolvers: [10.0.0.2, '[::1]:5353'], ttl_min: 2s, ttl_max: 1m, timeout: 1s, interval: 10s }
clusters:
  a: { endpoints: [app.internal:80, '10.0.0.9:80'] }
  b: { endpoints: [app.internal:80], resolve: once }
  c: { endpoints: ['10.0.0.9:80'], resolve: ttl }
  d: { endpoints: ['10.0.0.7:80'] }
";
    let loaded = load(text).unwrap_or_else(|error| panic!("{error}"));
    let snapshot = &loaded.snapshot;
    let follows: Vec<bool> = snapshot.clusters.iter().map(|cluster| cluster.follows_names).collect();
    assert_eq!(follows, [true, false, false, false]);
    let names = &snapshot.names;
    let resolvers = ["10.0.0.2:53", "[::1]:5353"].map(|address| address.parse().unwrap());
    assert_eq!(names.dns.resolvers, resolvers);
    let times = [names.dns.ttl_min, names.dns.ttl_max, names.dns.timeout, names.interval].map(|time| time.as_secs());
    assert_eq!(times, [2, 60, 1, 10]);
    let plain = load("version: 1\n").unwrap_or_else(|error| panic!("{error}")).snapshot;
    assert_eq!(
        (plain.names.dns.ttl_min, plain.names.dns.ttl_max),
        (Duration::from_secs(1), Duration::from_secs(3_600))
    );
    assert_eq!((plain.names.interval, plain.names.dns.resolvers.len()), (Duration::from_secs(30), 0));
}

#[test]
fn mistakes_about_names_are_reported_where_they_stand() {
    let told = messages(
        "version: 1
names:
  resolvers: [ns.example, 10.0.0.2, '10.0.0.2:53', '10.0.0.3:0']
  ttl_min: 1m
  ttl_max: 1s
  interval: 0s
clusters:
  a: { endpoints: [app.internal:80], resolve: always }
",
    );
    assert_eq!(
        told,
        [
            "3: `ns.example` is not an address (write it like `10.0.0.2` or `10.0.0.2:5353`: host names are not resolved here)",
            "3: this resolver is listed twice",
            "3: `10.0.0.3:0` has port 0",
            "5: `ttl_max` is shorter than `ttl_min`",
            "6: `interval`: `0s` is zero (it must be greater than zero)",
            "8: `resolve` must be `ttl` or `once`, not the text `always`",
        ]
    );
}

#[test]
fn a_cluster_may_be_empty_and_a_subset_of_it_is_no_mistake() {
    let text = "version: 1
routes: [{ cluster: a, subset: { labels: { version: v2 } } }]
clusters: { a: { endpoints: [] } }
";
    let loaded = load(text).unwrap_or_else(|error| panic!("{error}"));
    assert!(loaded.snapshot.clusters[0].endpoints.is_empty());
    assert_eq!(
        messages("version: 1\nclusters: { a: {} }\n"),
        ["2: `endpoints` is missing in cluster `a` (add `endpoints`: the endpoints)"]
    );
}

#[test]
fn a_route_chooses_among_clusters_by_a_value() {
    let text = "version: 1
listeners: { web: { bind: '127.0.0.1:0' } }
routes:
  - { name: a, cluster: { from: '{cookie:group}', allowed: [one, two], otherwise: three } }
clusters: { one: { endpoints: [] }, two: { endpoints: [] }, three: { endpoints: [] } }
admin: { bind: '127.0.0.1:0' }
";
    let loaded = load(text).unwrap_or_else(|error| panic!("{error}"));
    let Action::Choice(choice) = &loaded.snapshot.routes[0].action else { panic!("no choice") };
    assert_eq!(choice.from, "{cookie:group}");
    let names: Vec<&str> = loaded.snapshot.routes[0].action.clusters().iter().map(|name| name.as_str()).collect();
    assert_eq!(names, ["one", "two", "three"]);
    assert!(loaded.warnings().is_empty(), "something leads to each: {:?}", loaded.warnings());
}

#[test]
fn mistakes_in_a_choice_of_clusters_are_reported_where_they_stand() {
    let told = messages(
        "version: 1
routes:
  - cluster:
      from: 'one'
      allowed: [one, twoo, one]
      otherwise: thre
  - cluster: { from: '{path', allowed: [one] }
  - cluster: { from: '{path}', allowed: [] }
  - cluster: { from: '{path}' }
  - cluster: { from: '{path}', allowed: [one], else: two }
  - { cluster: { from: '{path}', allowed: [one] }, redirect: { scheme: https } }
clusters:
  one: { endpoints: ['127.0.0.1:1'] }
  two: { endpoints: ['127.0.0.1:1'] }
  three: { endpoints: ['127.0.0.1:1'] }
",
    );
    assert_eq!(
        told,
        [
            "4: `one` contains no variable: all requests go to the same cluster (write `cluster: NAME`, or a variable such as `{request_header:x-cluster}`)",
            "5: there is no cluster `twoo` (did you mean `two`?)",
            "5: cluster `one` is listed twice",
            "6: there is no cluster `thre` (did you mean `three`?)",
            "7: `{` is never closed in `{path`: write `{{` for a brace",
            "8: `allowed` is empty (it needs at least one item)",
            "9: `allowed` is missing in `cluster` of route 4 (add `allowed`: the clusters that may be selected)",
            "10: unknown key `else` in `cluster` of route 5 (there is `otherwise`)",
            "11: `cluster` and `redirect` exclude each other in route 6 (keep one of them)",
        ]
    );
}
