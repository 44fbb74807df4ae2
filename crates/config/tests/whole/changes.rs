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
fn a_route_that_is_taken_out_leaves_the_others_their_names() {
    let site = SITE.replace("  - { name: last", "  - { cluster: a }\n  - { cluster: a }\n  - { name: last");
    let loaded = LOADER.load_text("site.yaml", &site, Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    let load = |changes: &Changes| LOADER.load_changed(&loaded, changes).unwrap_or_else(|error| panic!("{error}"));
    let without = |loaded: &Loaded, changes: &Changes, name| {
        LOADER.replace_object(loaded, changes, ("routes", name), None).unwrap()
    };
    let changes = without(&loaded, &Changes::default(), "route-2");
    let after = load(&changes);
    assert_eq!(after.route_names(), ["route-1", "route-3", "last"]);
    let names: Vec<_> = after.snapshot.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["route-1", "route-3", "last"]);
    assert!(format!("{:?}", after.snapshot.routes[2].filters).contains("Basic secret"));
    let again = without(&after, &changes, "route-2");
    assert_eq!(load(&again).route_names(), after.route_names(), "it is gone already");
    // One that comes by its name takes no one else's, and one that is counted to such a name is reported.
    let more = LOADER.replace_object(&after, &changes, ("routes", "route-2"), Some("cluster: a")).unwrap();
    assert_eq!(load(&more).route_names(), ["route-1", "route-3", "last", "route-2"]);
    let whole = "version: 1\nroutes:\n  - { name: route-2, respond: {} }\n  - respond: {}\n";
    let refused = LOADER.replace(&after, whole).unwrap_err().to_string();
    assert!(refused.contains("the name `route-2` is already used by the route"), "{refused}");
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

#[test]
fn paths_of_included_files_mean_the_same_wherever_they_are_written_anew() {
    let folder = tempfile::TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let secret = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
    std::fs::create_dir_all(at("conf.d")).unwrap();
    std::fs::create_dir(at("conf.d/state")).unwrap();
    secret("conf.d/s.key", "0123456789abcdef of the site");
    // Another one of the same name, where the main file is.
    secret("s.key", "0123456789abcdef of somebody else");
    secret("conf.d/t.key", "0123456789abcdef-of-a-token");
    let main =
        "version: 1\ninclude: conf.d\nlisteners: { web: { bind: '127.0.0.1:8080' } }\nroutes: [{ cluster: site }]\n";
    std::fs::write(at("main.yaml"), main).unwrap();
    let site = "clusters:\n  site:\n    endpoints: ['127.0.0.1:1']\n    persistence: { cookie: { name: s, secret: { file: s.key } } }\naccess_logs: [{ path: a.log }]\nadmin: { bind: '127.0.0.1:9900', state: state, tokens: [{ name: me, role: admin, token: { file: t.key } }] }\n";
    std::fs::write(at("conf.d/site.yaml"), site).unwrap();
    let loaded = LOADER.load_file(&at("main.yaml")).unwrap_or_else(|error| panic!("{error}"));
    let told =
        |loaded: &Loaded| format!("{:?} {:?}", loaded.snapshot.clusters[0].persistence, loaded.referenced_files());
    let before = told(&loaded);
    assert!(before.contains("conf.d/s.key") && before.contains("conf.d/t.key"), "{before}");
    assert_eq!(loaded.snapshot.admin.as_ref().unwrap().state, Some(at("conf.d/state")));
    // What is shown, and what was active, can be put back.
    for text in [loaded.written(LOADER.filters).to_string(), loaded.text()] {
        assert_eq!(LOADER.replace(&loaded, &text).unwrap_or_else(|error| panic!("{error}")), Changes::default());
        assert_eq!(LOADER.go_back(&loaded, &text).unwrap_or_else(|error| panic!("{error}")), Changes::default());
    }
    let edits = [EndpointEdit::Add("'127.0.0.1:2'".into()), EndpointEdit::Weight("127.0.0.1:1".into(), 5)];
    for edit in edits {
        let changes = LOADER.edit_endpoints(&loaded, &Changes::default(), "site", &edit).unwrap().unwrap();
        let changed = LOADER.load_changed(&loaded, &changes).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(told(&changed), before, "{edit:?}");
        let again = LOADER
            .load_file_with(&at("main.yaml"), config::Beside { provided: &[], changes: &changes })
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(told(&again), before, "after a start");
    }
    let reach = loaded.reach(LOADER.filters);
    assert!(
        reach.iter().any(|one| one.starts_with("the file `conf.d/a.log` in `access_logs/path`"))
            && reach.iter().any(|one| one.starts_with("the file `conf.d/s.key` in ")),
        "{reach:?}"
    );
}

#[test]
fn what_looks_like_a_variable_and_is_none_stays_what_it_is() {
    let text = SITE.replace("'127.0.0.1:2'", "'127.0.0.1:2', zone: 'a$${X}b'");
    let loaded = LOADER.load_text("site.yaml", &text, Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    let mut shown = loaded.effective();
    assert_eq!(shown["clusters"]["a"]["endpoints"][1]["zone"], "a$${X}b");
    shown["clusters"]["a"]["endpoints"][1]["weight"] = 3.into();
    let changes = LOADER.replace(&loaded, &shown.to_string()).unwrap_or_else(|error| panic!("{error}"));
    let changed = LOADER.load_changed(&loaded, &changes).unwrap_or_else(|error| panic!("{error}"));
    assert!(changed.text().contains("a$${X}b"), "{}", changed.text());
}

#[test]
fn secrets_that_differ_are_told_apart_and_not_shown() {
    let one = loaded();
    let other = LOADER.load_text("site.yaml", &SITE.replace("Basic secret", "Basic other"), Path::new("")).unwrap();
    assert_eq!(one.effective(), other.effective());
    assert_ne!(one.sealed(), other.sealed());
    assert_eq!(one.sealed(), loaded().sealed());
    assert!(!other.sealed().to_string().contains("Basic"), "{}", other.sealed());
    assert_eq!(config::unsealed(one.sealed().clone()), one.effective());
}

#[test]
fn two_tokens_are_never_the_same() {
    let text = SITE.replace("tokens: [", "tokens: [{ name: eye, role: read, token: 0123456789abcdef }, ");
    let refused = LOADER.load_text("site.yaml", &text, Path::new("")).unwrap_err().to_string();
    assert!(refused.contains("it is the same as that of `eye`: a client with it could be either"), "{refused}");
}

#[test]
fn whatever_is_sent_is_refused_with_a_reason_or_can_be_put_again() {
    let whole = SITE
        .replace("admin: { bind: '127.0.0.1:9900', tokens: [{ name: me, role: admin, token: 0123456789abcdef }] }", "");
    let seeds = [
        whole.as_str(),
        "version: 1\n",
        "{ endpoints: ['127.0.0.1:9', { address: '127.0.0.1:8', weight: 7 }], balance: random, queue: { requests_max: 5 } }",
        "{ match: { path: { prefix: /x } }, cluster: a }",
        "web",
        "{ address: '127.0.0.1:7', weight: 3 }",
    ];
    // SplitMix64.
    let mut state = 7_u64;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize
    };
    let pieces: Vec<char> = "{}[]:,'\"\n -#&*!|>%@`$~0a\u{85}é".chars().collect();
    let mut taken = 0;
    for round in 0..3_000 {
        let seed = seeds[next() % seeds.len()];
        let mut text: Vec<char> = seed.chars().collect();
        for _ in 0..next() % 4 {
            let at = next() % text.len().max(1);
            match next() % 3 {
                0 if !text.is_empty() => drop(text.remove(at)),
                1 => text.insert(at.min(text.len()), pieces[next() % pieces.len()]),
                _ => text.truncate(text.len().saturating_sub(next() % 9)),
            }
        }
        let text: String = text.into_iter().collect();
        match config::check_change((next() % 6) as u8, &text) {
            Ok(()) => taken += 1,
            Err(diagnostics) => assert!(!diagnostics.to_string().is_empty(), "round {round}: {text}"),
        }
    }
    assert!(taken > 100, "{taken}");
}

/// A site of many clusters, whose endpoints have names.
fn many() -> String {
    let cluster = |number: u32| format!("  c{number}: {{ endpoints: ['host-{number}:80', '127.0.0.1:1'] }}\n");
    let clusters: String = (0..200).map(cluster).collect();
    format!(
        "version: 1\nlisteners: {{ web: {{ bind: '127.0.0.1:8080' }} }}\nroutes: [{{ cluster: c0 }}]\nclusters:\n{clusters}"
    )
}

#[test]
fn of_very_many_clusters_only_those_that_changed_are_looked_at_again() {
    let asked = std::cell::RefCell::new(Vec::new());
    let resolve_host = |_: &model::provider::NameLookup, host: &str, port: u16| {
        asked.borrow_mut().push(host.to_owned());
        Ok(vec![(std::net::Ipv4Addr::LOCALHOST, port).into()])
    };
    let loader = config::Loader { resolve_host: &resolve_host, ..LOADER };
    let loaded = loader.load_text("site.yaml", &many(), Path::new("")).unwrap();
    assert_eq!(asked.take().len(), 200);
    let weigh = |loaded: &Loaded, changes: &Changes, cluster: &str, weight| {
        let edit = EndpointEdit::Weight("127.0.0.1:1".to_owned(), weight);
        let changes = loader.edit_endpoints(loaded, changes, cluster, &edit).unwrap().unwrap();
        (loader.load_changed(loaded, &changes).unwrap(), changes)
    };
    let (second, changes) = weigh(&loaded, &Changes::default(), "c7", 5);
    assert_eq!(asked.take(), ["host-7"]);
    let (third, changes) = weigh(&second, &changes, "c199", 6);
    // What stands beside the files is read again each time.
    assert_eq!(asked.take(), ["host-7", "host-199"]);
    let same = |one: &Loaded, other: &Loaded| {
        let pairs = one.snapshot.clusters.iter().zip(&other.snapshot.clusters);
        pairs.filter(|(one, other)| std::sync::Arc::ptr_eq(one, other)).count()
    };
    assert_eq!((same(&loaded, &second), same(&loaded, &third)), (199, 198));
    let (before, after) = second.sealed_beside(&third);
    let shown: Vec<&str> = after["clusters"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((before["clusters"].as_object().unwrap().len(), shown), (2, vec!["c7", "c199"]));
    // What came of parts is what comes of the whole.
    let whole = loader
        .load_text_with(("site.yaml", &many(), Path::new("")), config::Beside { provided: &[], changes: &changes });
    let whole = whole.unwrap();
    assert_eq!((whole.effective(), &whole.snapshot), (third.effective(), &third.snapshot));
    assert!(whole.says_same(&third) && !whole.says_same(&second));
    assert_eq!((&*third.whole().text(), third.whole()), (third.text().as_str(), whole.whole()));
}

#[test]
fn a_configuration_that_is_read_again_shares_what_is_equal() {
    let read = |text: &str| {
        let resolve_host = |_: &model::provider::NameLookup, _: &str, port: u16| {
            Ok(vec![(std::net::Ipv4Addr::LOCALHOST, port).into()])
        };
        config::Loader { resolve_host: &resolve_host, ..LOADER }.load_text("site.yaml", text, Path::new("")).unwrap()
    };
    let before = read(&many());
    let mut after = read(&many().replace("'host-7:80'", "{ address: 'host-7:80', weight: 3 }"));
    after.share_with(&before);
    let pairs = before.snapshot.clusters.iter().zip(&after.snapshot.clusters);
    let other: Vec<_> = pairs.filter(|(one, other)| !std::sync::Arc::ptr_eq(one, other)).collect();
    assert_eq!(other.len(), 1);
    assert_eq!((other[0].0.endpoints[0].weight, other[0].1.endpoints[0].weight), (1, 3));
    assert!(std::sync::Arc::ptr_eq(&before.snapshot.routes[0], &after.snapshot.routes[0]));
}

#[test]
fn where_only_the_order_of_clusters_differs_all_of_them_are_told() {
    let text = |clusters: &str| {
        format!(
            "version: 1\nlisteners: {{ web: {{ bind: '127.0.0.1:8080' }} }}\nroutes: [{{ cluster: a }}]\nclusters: {clusters}\n"
        )
    };
    let [a, b] = ["a: { endpoints: ['127.0.0.1:1'] }", "b: { endpoints: ['127.0.0.1:2'] }"];
    let read = |text: String| LOADER.load_text("site.yaml", &text, Path::new("")).unwrap();
    let (one, other) = (read(text(&format!("{{ {a}, {b} }}"))), read(text(&format!("{{ {b}, {a} }}"))));
    let (before, after) = one.sealed_beside(&other);
    let names = |value: &serde_json::Value| value["clusters"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        (names(&before), names(&after)),
        (vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned(), "a".to_owned()])
    );
    let (before, after) = one.sealed_beside(&one.clone());
    assert!(names(&before).is_empty() && names(&after).is_empty());
}

#[test]
fn what_may_not_be_used_is_refused_before_it_is_looked_at() {
    let loaded = loaded();
    let within = config::Loader { within: Some(&loaded), ..LOADER };
    let none = Changes::default();
    let page = "endpoints: ['127.0.0.1:1']\nqueue: { requests_max: 1, page: { file: /nowhere/page.html } }";
    let variable = "endpoints: ['127.0.0.1:1', { address: '127.0.0.1:2', zone: '${NOT_SET}' }]";
    for (object, wanted) in [
        (page, "the file `/nowhere/page.html` in `clusters/queue/page/file`"),
        (variable, "a variable of the environment by `${NOT_SET}` in `clusters/a/endpoints/zone`"),
        ("endpoints: ['unix:/run/x']", "the socket `unix:/run/x` in `clusters`"),
    ] {
        let changes = within.replace_object(&loaded, &none, ("clusters", "a"), Some(object)).unwrap();
        let refused = within.load_changed(&loaded, &changes).unwrap_err();
        assert_eq!((refused.beyond.as_deref(), refused.list.len()), (Some(wanted), 0));
        let mut whole = loaded.written(LOADER.filters);
        whole["clusters"]["a"] = serde_json::json!({ "endpoints": ["unix:/run/x"] });
        assert!(within.replace(&loaded, &whole.to_string()).unwrap_err().beyond.is_some());
    }
    let fine = within.replace_object(&loaded, &none, ("clusters", "a"), Some("endpoints: ['127.0.0.1:1']")).unwrap();
    within.load_changed(&loaded, &fine).unwrap_or_else(|error| panic!("{error}"));
}
