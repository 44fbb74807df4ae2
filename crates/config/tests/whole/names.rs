//! Host names of endpoints, clusters without endpoints, and clusters that requests name.

use std::time::Duration;


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
fn mistakes_about_names_are_told_where_they_stand() {
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
            "3: `ns.example` is not an address (write it like `10.0.0.2` or `10.0.0.2:5353`: names are not looked up here)",
            "3: this resolver stands here twice",
            "3: `10.0.0.3:0` has port 0",
            "5: `ttl_max` is shorter than `ttl_min`",
            "6: `interval`: `0s` is no time at all (it must be longer than 0)",
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
