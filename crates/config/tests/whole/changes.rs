//! Changes beside the files.

use std::path::Path;

use config::{Changes, EndpointEdit, Loaded};

use crate::support::LOADER;

const SITE: &str = "version: 1
listeners: { web: { bind: '127.0.0.1:8080' } }
routes:
  - { match: { path: { prefix: /a } }, cluster: a }
  - { name: last, cluster: a, filters: [{ set_request_header: { authorization: 'Basic secret' } }] }
clusters:
  a: { endpoints: ['127.0.0.1:1', { address: '127.0.0.1:2', weight: 2 }] }
admin: { bind: '127.0.0.1:9900', tokens: [{ name: me, role: admin, token: 0123456789abcdef }] }
";

fn loaded() -> Loaded {
    LOADER.load_text("site.yaml", SITE, Path::new("")).unwrap_or_else(|error| panic!("{error}"))
}

fn changed(changes: &Changes) -> Loaded {
    LOADER.load_changed(&loaded(), changes).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_is_shown_can_be_sent_back_and_changes_nothing() {
    let loaded = loaded();
    for shown in [loaded.effective(), loaded.written(LOADER.filters)] {
        assert!(!shown.to_string().contains("secret") && !shown.to_string().contains("0123456789"), "{shown}");
        let changes = LOADER.replace(&loaded, &shown.to_string()).unwrap_or_else(|error| panic!("{error}"));
        assert!(changes.is_empty(), "{changes:?}");
    }
    assert!(LOADER.replace(&loaded, &loaded.text()).unwrap().is_empty());
}

#[test]
fn a_change_within_what_is_shown_keeps_what_is_hidden() {
    let loaded = loaded();
    let mut shown = loaded.effective();
    shown["routes"][1]["priority"] = 5.into();
    let changes = LOADER.replace(&loaded, &shown.to_string()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(changes.places().collect::<Vec<_>>(), [("routes", true)]);
    let snapshot = changed(&changes).snapshot;
    assert_eq!(snapshot.routes[1].priority, 5);
    assert!(format!("{:?}", snapshot.routes[1].filters).contains("Basic secret"), "{:?}", snapshot.routes[1].filters);
}

#[test]
fn a_whole_configuration_is_judged_by_its_own_lines() {
    let wrong = "version: 1\nlisteners: { web: { bind: '127.0.0.1:8080' } }\nroutes: [{ cluster: b }]\nclusters: {}\nzoone: x\n";
    let refused = LOADER.replace(&loaded(), wrong).unwrap_err();
    let told: Vec<_> = refused.list.iter().map(|one| (one.file.as_str(), one.line)).collect();
    assert_eq!(told, [("request", 3), ("request", 5)], "{refused}");
    for (text, message) in [
        ("version: 1\nadmin: { bind: '127.0.0.1:1' }\n", "the API cannot change its own listener"),
        ("version: 1\ninclude: other.yaml\n", "files are not read here"),
        (
            "version: 1\nclusters: { a: { endpoints: ['127.0.0.1:1'], tls: { server_name: (hidden) } } }\n",
            "keeps a secret",
        ),
        ("[", "not YAML"),
        ("- 1", "map"),
    ] {
        let refused = LOADER.replace(&loaded(), text).unwrap_err().to_string();
        assert!(refused.contains(message), "{text}: {refused}");
    }
}

#[test]
fn one_object_is_put_added_and_taken_out() {
    let loaded = loaded();
    let none = Changes::default();
    let put = |changes: &Changes, at, text| LOADER.replace_object(&loaded, changes, at, text).unwrap();
    let changes = put(&none, ("clusters", "b"), Some("{ endpoints: ['127.0.0.1:9'] }"));
    let changes = put(&changes, ("routes", "new"), Some("cluster: b"));
    let snapshot = changed(&changes).snapshot;
    assert_eq!((snapshot.clusters.len(), snapshot.routes.len()), (2, 3));
    assert_eq!(snapshot.routes[2].name.as_str(), "new");
    let changes = put(
        &put(&none, ("routes", "route-1"), None),
        ("clusters", "a"),
        Some("{ endpoints: ['127.0.0.1:1'], balance: random }"),
    );
    let after = changed(&changes);
    assert_eq!(after.route_names(), ["last"]);
    assert_eq!(after.snapshot.clusters[0].endpoints.len(), 1);
    let refused = LOADER.load_changed(&loaded, &put(&none, ("clusters", "a"), None)).unwrap_err().to_string();
    assert!(refused.contains("there is no cluster `a`"), "{refused}");
    let refused = LOADER
        .load_changed(&loaded, &put(&none, ("clusters", "a"), Some("endpoints: ['127.0.0.1:1']\nbalanse: x")))
        .unwrap_err();
    assert_eq!((refused.list[0].file.as_str(), refused.list[0].line), ("api:clusters/a", 2), "{refused}");
    let other = LOADER.replace_object(&loaded, &none, ("routes", "last"), Some("name: first\ncluster: a")).unwrap_err();
    assert!(other.to_string().contains("the route is called `first` here and `last` in the address"), "{other}");
}

#[test]
fn endpoints_come_go_and_get_another_weight() {
    let loaded = loaded();
    let edit = |edit: EndpointEdit| LOADER.edit_endpoints(&loaded, &Changes::default(), "a", &edit).unwrap();
    let endpoints = |changes: &Changes| -> Vec<(String, u32)> {
        let cluster = &changed(changes).snapshot.clusters[0];
        cluster.endpoints.iter().map(|endpoint| (endpoint.name.to_string(), endpoint.weight)).collect()
    };
    let pairs =
        |list: &[(&str, u32)]| list.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect::<Vec<_>>();
    let one = "127.0.0.1:1";
    let added = edit(EndpointEdit::Add("{ address: '127.0.0.1:3', weight: 7 }".into())).unwrap();
    assert_eq!(endpoints(&added), pairs(&[(one, 1), ("127.0.0.1:2", 2), ("127.0.0.1:3", 7)]));
    assert_eq!(endpoints(&edit(EndpointEdit::Remove(one.into())).unwrap()), pairs(&[("127.0.0.1:2", 2)]));
    assert_eq!(endpoints(&edit(EndpointEdit::Weight(one.into(), 9)).unwrap()), pairs(&[(one, 9), ("127.0.0.1:2", 2)]));
    assert_eq!(edit(EndpointEdit::Weight("127.0.0.1:2".into(), 2)), Some(Changes::default()), "as it was");
    assert_eq!(edit(EndpointEdit::Remove("127.0.0.1:99".into())), None);
    assert_eq!(LOADER.edit_endpoints(&loaded, &Changes::default(), "b", &EndpointEdit::Remove(one.into())), Ok(None));
}
