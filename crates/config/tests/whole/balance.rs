//! How endpoints are chosen, as it may be written.

use model::limits;
use model::placement::{Aperture, LabelValue, Otherwise, Placement, Spread};
use model::snapshot::{Balance, Cluster, Hash, HashAlgorithm, HashKey};

use crate::support::{load, messages};

/// A cluster of two endpoints with this line.
fn with(line: &str) -> String {
    format!("version: 1\nclusters:\n  a:\n    endpoints: ['127.0.0.1:1', '127.0.0.1:2']\n    {line}\n")
}

fn cluster(line: &str) -> Cluster {
    match load(&with(line)) {
        Ok(loaded) => (*loaded.snapshot.clusters[0]).clone(),
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

/// What is told about a line, without the number of the line.
fn told(line: &str) -> Vec<String> {
    messages(&with(line)).into_iter().map(|message| message.trim_start_matches("5: ").to_owned()).collect()
}

#[test]
fn simple_balancers_have_a_name() {
    for (name, balance) in [
        ("round_robin", Balance::RoundRobin),
        ("random", Balance::Random),
        ("least_request", Balance::LeastRequest),
        ("power_of_two", Balance::PowerOfTwo),
        ("least_time", Balance::LeastTime { half_life: limits::BALANCE_HALF_LIFE }),
        ("peak_ewma", Balance::PeakEwma { half_life: limits::BALANCE_HALF_LIFE }),
        ("first", Balance::First),
        ("source_hash", Balance::Hash(Hash::of_source())),
    ] {
        assert_eq!(cluster(&format!("balance: {name}")).balance, balance);
        assert_eq!(balance.name(), name);
    }
}

#[test]
fn times_are_averaged_over_what_is_written() {
    let half_life = std::time::Duration::from_millis(1_500);
    assert_eq!(cluster("balance: { peak_ewma: { half_life: 1s500ms } }").balance, Balance::PeakEwma { half_life });
    assert_eq!(cluster("balance: { least_time: { half_life: 1s500ms } }").balance, Balance::LeastTime { half_life });
    assert_eq!(cluster("balance: { least_time: {} }").balance, cluster("balance: least_time").balance);
}

#[test]
fn a_hash_says_what_it_goes_by() {
    let hash = |text: &str| match cluster(&format!("balance: {{ hash: {text} }}")).balance.clone() {
        Balance::Hash(hash) => hash,
        other => panic!("{other:?}"),
    };
    assert_eq!(hash("{ on: source }"), Hash::of_source());
    assert_eq!(hash("{ on: path }").on, [HashKey::Path]);
    let all =
        hash("{ on: [{ cookie: Id }, { header: X-User }, { query: u }, uri], algorithm: maglev, load_max: 125% }");
    let keys =
        [HashKey::Cookie("Id".into()), HashKey::Header("x-user".into()), HashKey::Query("u".into()), HashKey::Uri];
    assert_eq!(all, Hash { on: keys.into(), algorithm: HashAlgorithm::Maglev, load_max: Some(125) });
    assert_eq!(Balance::Hash(all).name(), "hash");
}

/// The names that stand alone, as diagnostics list them.
fn names() -> String {
    let mut names: Vec<String> = Balance::NAMED.iter().map(|named| format!("`{}`", named.name())).collect();
    let last = names.pop().unwrap();
    format!("{} or {last}", names.join(", "))
}

#[test]
fn mistakes_in_a_balancer_are_told_with_what_to_write() {
    let (of, names) = (|text: &str| told(&format!("balance: {text}")), names());
    assert_eq!(
        of("least_requests"),
        [format!("`balance` must be {names}, not the text `least_requests` (did you mean `least_request`?)")]
    );
    assert_eq!(
        of("hash"),
        [format!(
            "`balance` must be {names}, not the text `hash` (did you mean `{{ hash: {{ on: … }} }}`? See docs/guides/coming-from-nginx.md)"
        )]
    );
    assert_eq!(of("[random]"), [format!("`balance` must be {names} or a map, not a list")]);
    assert_eq!(of("{ hahs: { on: path } }"), ["unknown key `hahs` in `balance` of cluster `a` (did you mean `hash`?)"]);
    assert_eq!(
        of("{ hash: {} }"),
        ["`on` is missing in `balance.hash` of cluster `a` (add `on`: the part of a request that is the key)"]
    );
}

#[test]
fn mistakes_in_a_key_are_told_with_what_to_write() {
    let of = |text: &str| told(&format!("balance: {{ hash: {text} }}"));
    let fields = "`header`, `cookie` or `query`";
    assert_eq!(of("{ on: {} }"), [format!("`balance.hash.on` of cluster `a` needs one of {fields}")]);
    assert_eq!(of("{ on: [] }"), ["`on` is empty (it needs at least one item)"]);
    assert_eq!(of("{ on: user }"), ["`on` must be `source`, `path` or `uri`, not the text `user`"]);
    assert_eq!(
        of("{ on: { header: a, cookie: b } }"),
        ["`header` and `cookie` exclude each other in `balance.hash.on` of cluster `a` (keep one of them)"]
    );
    assert_eq!(of("{ on: { header: 'a b' } }"), ["`a b` is not the name of a header field"]);
    assert_eq!(of("{ on: [path, { cookie: '' }] }"), ["`` is not the name of a cookie"]);
    assert_eq!(
        of("{ on: path, algorithm: ring, load_max: 99% }"),
        [
            "`algorithm` must be `ketama`, `maglev` or `rendezvous`, not the text `ring`",
            "`load_max`: `99%` is not a percentage of 100% or more (write it like `125%`, from 100% to 10000%)",
        ]
    );
    assert_eq!(
        of("{ on: path, load_max: 125 }"),
        ["`load_max` must be a percentage such as `125%`, not the number 125 (did you mean `125%`?)"]
    );
}

/// A cluster of these endpoints, with more lines at its end and at the end of the file.
fn of_endpoints(endpoints: &str, line: &str, top: &str) -> String {
    format!("version: 1\nclusters:\n  a:\n    endpoints: [{endpoints}]\n    {line}\n{top}\n")
}

#[test]
fn endpoints_have_a_place_among_each_other() {
    let endpoints =
        "'127.0.0.1:1', { address: '127.0.0.1:2', priority: 3, zone: eu-1 }, { address: '127.0.0.1:3', backup: true }";
    let text = of_endpoints(endpoints, "overprovisioning: 200%", "");
    let cluster = load(&text).unwrap().snapshot.clusters[0].clone();
    let placement = |index: usize| Placement::clone(&cluster.endpoints[index].placement);
    assert_eq!(placement(0), Placement::default());
    assert_eq!(placement(1), Placement { priority: 3, zone: Some("eu-1".to_owned()), ..Placement::default() });
    assert!(placement(2).is_backup);
    assert_eq!(cluster.spread, Spread { overprovisioning: 200, own_zone: None, aperture: None });
    assert_eq!(load(&with("")).unwrap().snapshot.clusters[0].spread.overprovisioning, limits::OVERPROVISIONING);
}

#[test]
fn the_own_zone_is_written_at_the_top_and_matters_where_it_is_preferred() {
    let own_zone = |line: &str| {
        let text = of_endpoints("'127.0.0.1:1'", line, "zone: \"eu-${PORT}\"");
        load(&text).unwrap().snapshot.clusters[0].spread.own_zone.clone()
    };
    assert_eq!(own_zone("prefer_own_zone: true").as_deref(), Some("eu-8443"));
    assert_eq!(own_zone("prefer_own_zone: false"), None);
    let loader = config::Loader {
        environment: &|name| (name == "EQUIPOISE_ZONE").then(|| "us-2".to_owned()),
        ..crate::support::LOADER
    };
    let text = of_endpoints("'127.0.0.1:1'", "prefer_own_zone: true", "");
    let loaded = loader.load_text("site.yaml", &text, std::path::Path::new("/nowhere")).unwrap();
    assert_eq!(loaded.snapshot.clusters[0].spread.own_zone.as_deref(), Some("us-2"));
    assert_eq!(loaded.effective()["zone"], "us-2");
}

#[test]
fn mistakes_in_a_place_are_told_with_what_to_write() {
    assert_eq!(
        told("prefer_own_zone: true"),
        ["the zone of this instance is unknown (write `zone: NAME` at the top of the file, or set EQUIPOISE_ZONE)"]
    );
    assert_eq!(
        told("overprovisioning: 90%"),
        ["`overprovisioning`: `90%` is not a percentage of 100% or more (write it like `125%`, from 100% to 10000%)"]
    );
    let text = of_endpoints("{ address: '127.0.0.1:2', priority: 200, zone: '' }", "", "");
    assert_eq!(
        messages(&text),
        ["4: `priority` must be a whole number from 0 to 127, not 200", "4: `zone`: it is empty"]
    );
}

/// A file with a cluster of three labelled endpoints and a route with this line.
fn routed(line: &str) -> String {
    format!(
        "version: 1
listeners: {{ web: {{ bind: '127.0.0.1:0' }} }}
routes:
  - cluster: a
    {line}
clusters:
  a:
    endpoints:
      - {{ address: '127.0.0.1:1', labels: {{ version: v1, stage: live }} }}
      - {{ address: '127.0.0.1:2', labels: {{ version: v2 }} }}
      - '127.0.0.1:3'
"
    )
}

#[test]
fn a_route_may_go_by_labels() {
    let rule = |line: &str| load(&routed(line)).unwrap().snapshot.routes[0].subset.clone();
    assert_eq!(rule(""), None);
    let plain = rule("subset: { labels: { version: v2 } }").unwrap();
    assert_eq!(plain.labels["version"], LabelValue::Written("v2".to_owned()));
    assert_eq!(plain.otherwise, Otherwise::Nobody);
    let by_request =
        rule("subset: { labels: { version: { header: X-Version }, stage: live }, otherwise: any }").unwrap();
    assert_eq!(by_request.labels["version"], LabelValue::Header("x-version".to_owned()));
    assert_eq!(by_request.otherwise, Otherwise::Anybody);
    let labels = [("version".to_owned(), "v1".to_owned())].into();
    let other = rule("subset: { labels: { version: v2 }, otherwise: { version: v1 } }").unwrap();
    assert_eq!(other.otherwise, Otherwise::Labels(labels));
}

#[test]
fn mistakes_in_a_subset_are_told_with_what_to_write() {
    let of = |line: &str| messages(&routed(line));
    assert_eq!(
        of("subset: { labels: { version: v3, colour: { header: x } } }"),
        ["5: no endpoint of cluster `a` has `version: v3`", "5: no endpoint of cluster `a` has a label `colour`"]
    );
    assert_eq!(
        of("subset: { labels: { version: { header: 'a b' } }, otherwise: all }"),
        ["5: `a b` is not the name of a header field", "5: `otherwise` must be `refuse` or `any`, not the text `all`",]
    );
    assert_eq!(of("subset: { labels: {} }"), ["5: `labels` is empty (name at least one)"]);
    assert_eq!(
        of("subset: {}"),
        [
            "5: `labels` is missing in `subset` of route 1 (add `labels`: the labels by name, with their value, or with the header field that holds it)"
        ]
    );
    let text = routed("subset: { labels: { version: v1 } }").replace("cluster: a\n", "respond: {}\n");
    assert_eq!(
        messages(&text),
        ["5: `subset` has no effect for a route that forwards to no cluster (leave it out, or name a cluster)"]
    );
}

#[test]
fn an_aperture_knows_its_instance() {
    let cluster = cluster("aperture: { instance: 2, instances: 5 }");
    let wanted = Aperture { instance: 2, instances: 5, endpoints_min: limits::APERTURE_ENDPOINTS_MIN };
    assert_eq!(cluster.spread.aperture, Some(wanted));
    assert_eq!(
        told("aperture: { instance: 5, instances: 5 }"),
        ["there is no instance 5 of 5: they are counted from 0"]
    );
    let text = of_endpoints("'127.0.0.1:1'", "aperture: { instance: 0, instances: 5 }\n    balance: source_hash", "");
    assert_eq!(
        messages(&text),
        ["5: with an aperture, instances send equal keys to different endpoints (remove `hash` or `aperture`)"]
    );
}
