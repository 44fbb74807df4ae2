//! Providers: how they are configured, and what is reported about what they give.

use std::path::Path;

use config::file::EndpointSettings;
use config::{Beside, Changes, Loaded, Provided, ProvidedText};
use model::provider::{Place, ProviderKind};

use crate::support::LOADER;

const SITE: &str = "version: 1
listeners: { web: { bind: '127.0.0.1:8080' } }
routes: [{ name: main, cluster: site }]
clusters: { site: { endpoints: { from: fleet } } }
providers:
  zebra: { file: { path: sites/ } }
  fleet: { http: { url: 'http://10.0.0.1:8500/v1/equipoise.yaml?x=1', headers: { x-tenant: shop }, token: geheim } }
";

fn load(text: &str, provided: &[Provided]) -> Result<Loaded, String> {
    let changes = Changes::default();
    let beside = Beside { provided, changes: &changes };
    LOADER.load_text_with(("site.yaml", text, Path::new("/etc")), beside).map_err(|error| error.to_string())
}

fn given(provider: &str, text: &str) -> Provided {
    let text = ProvidedText { name: "a.yaml".to_owned(), folder: None, text: text.into() };
    Provided { provider: provider.to_owned(), texts: vec![text] }
}

fn refused(text: &str) -> String {
    load(text, &[]).expect_err(text)
}

#[test]
fn providers_are_read_in_the_order_of_the_file_with_their_defaults() {
    let loaded = load(SITE, &[]).unwrap();
    let [zebra, fleet] = loaded.snapshot.providers.as_slice() else { panic!("{:?}", loaded.snapshot.providers) };
    assert_eq!((zebra.name.as_str(), fleet.name.as_str()), ("zebra", "fleet"));
    let ProviderKind::File(file) = &zebra.kind else { panic!("{zebra:?}") };
    assert_eq!(file.path, Path::new("/etc/sites/"));
    let ProviderKind::Http(http) = &fleet.kind else { panic!("{fleet:?}") };
    assert_eq!((http.path.as_str(), http.origin.host.as_str()), ("/v1/equipoise.yaml?x=1", "10.0.0.1:8500"));
    assert_eq!(http.origin.place, Place::Host("10.0.0.1".into(), 8500));
    let bearer = ("authorization".to_owned(), "Bearer geheim".to_owned());
    assert_eq!(http.origin.fields, [("x-tenant".to_owned(), "shop".to_owned()), bearer]);
    let shown = loaded.effective().to_string();
    assert!(!shown.contains("geheim") && shown.contains("(hidden)"), "{shown}");
    let from = loaded.snapshot.clusters[0].endpoints_from.as_ref().unwrap();
    assert_eq!((from.provider.as_str(), &*from.key), ("fleet", "site"), "the key is the name of the cluster");
}

#[test]
fn mistakes_in_providers_are_told_with_a_mend() {
    let with = |from: &str, to: &str| refused(&SITE.replace(from, to));
    for (from, to, message, mend) in [
        ("from: fleet", "from: flet", "there is no provider `flet`", "did you mean `fleet`?"),
        ("http://10", "ftp://10", "is not a URL", "write it like `https://config.example.com/equipoise.yaml`"),
        ("token: geheim", "tls: true", "`tls` needs `https`", "write `https://`"),
        (
            "token: geheim",
            "token: a, basic_auth: { user: a, password: b }",
            "there is already a `token`",
            "leave one of them out",
        ),
        ("token: geheim", "token: ''", "it is empty, or contains characters that cannot be sent", ""),
        ("path: sites/", "path: sites/, interval: 1ms", "more often than every 10 ms is of no use", ""),
        ("x-tenant: shop", "host: shop", "`host` is set by the protocol", ""),
        ("{ file: { path: sites/ } }", "{ fil: { path: sites/ } }", "unknown key `fil`", "did you mean `file`?"),
        ("zebra:", "'a/b':", "a/b", ""),
    ] {
        let told = with(from, to);
        assert!(told.contains(message) && told.contains(mend), "{to}: {told}");
    }
    let none = refused("version: 1\nclusters: { a: { endpoints: { from: x } } }\n");
    assert!(none.contains("define it under `providers`"), "{none}");
    assert!(refused("version: 1\nproviders: { a: {} }\n").contains("providers"));
}

#[test]
fn what_providers_give_stands_behind_the_files_in_the_order_of_the_file() {
    let provided = [
        given(
            "fleet",
            "routes: [{ name: late, match: { path: { prefix: /l } }, cluster: late }]\nclusters: { late: { endpoints: ['127.0.0.1:3'] } }",
        ),
        given(
            "zebra",
            "version: 1\nroutes: [{ name: early, match: { path: { prefix: /e } }, cluster: late }]\nlisteners: { more: { bind: '127.0.0.1:81' } }",
        ),
        given("unknown", "clusters: { never: { endpoints: ['127.0.0.1:3'] } }"),
    ];
    let loaded = load(SITE, &provided).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.route_names(), ["main", "early", "late"]);
    let names: Vec<_> = loaded.snapshot.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(names, ["site", "late"]);
    // Without one of them, and with others again, from the texts that were read before.
    let changes = Changes::default();
    let fewer = LOADER.load_beside(&loaded, Beside { provided: &provided[..1], changes: &changes }).unwrap();
    assert_eq!(fewer.route_names(), ["main", "late"]);
    assert!(fewer.text().contains("late") && load(&fewer.text(), &[]).is_ok(), "it is a text of its own");
    // Changes by the API stand before them.
    let object = Some("{ endpoints: ['127.0.0.1:9'] }");
    let changes = LOADER.replace_object(&loaded, &changes, ("clusters", "late"), object).unwrap();
    let changed = LOADER.load_beside(&loaded, Beside { provided: &provided, changes: &changes }).unwrap();
    assert_eq!(changed.snapshot.clusters[1].endpoints[0].name.as_str(), "127.0.0.1:9");
}

#[test]
fn who_comes_second_with_a_name_is_refused_and_told_who_was_first() {
    let twice = "clusters:\n  site: { endpoints: ['127.0.0.1:3'] }\n";
    let told = load(SITE, &[given("zebra", twice)]).unwrap_err();
    assert!(
        told.contains("provider:zebra:a.yaml:2:3: cluster `site` is defined twice, first in site.yaml:4"),
        "{told}"
    );
    let one = |name: &str| ProvidedText {
        name: name.into(),
        folder: None,
        text: "endpoints: { site: ['127.0.0.1:1'] }".into(),
    };
    let both = Provided { provider: "zebra".into(), texts: vec![one("a.yaml"), one("b.yaml")] };
    let told = load(SITE, &[both]).unwrap_err();
    assert!(
        told.contains("b.yaml:1:14: endpoints of `site` are defined twice, first in provider:zebra:a.yaml:1"),
        "{told}"
    );
    let twice = twice.replace("site", "other");
    let told = load(SITE, &[given("fleet", &twice), given("zebra", &twice)]).unwrap_err();
    let wanted = "provider:fleet:a.yaml:2:3: cluster `other` is defined twice, first in provider:zebra:a.yaml:2";
    assert!(told.contains(wanted), "{told}");
}

#[test]
fn both_sides_of_a_conflict_are_named() {
    let route = "routes: [{ name: main, match: { path: { prefix: /z } }, cluster: site }]";
    let told = load(SITE, &[given("zebra", route)]).unwrap_err();
    let wanted = "provider:zebra:a.yaml:1:18: the name `main` is already used by the route in site.yaml:3";
    assert!(told.contains(wanted), "{told}");
    let route = route.replace("main", "r");
    let told = load(SITE, &[given("zebra", &route), given("fleet", &route)]).unwrap_err();
    let wanted = "provider:fleet:a.yaml:1:18: the name `r` is already used by the route in provider:zebra:a.yaml:1";
    assert!(told.contains(wanted), "{told}");
    let door = |name: &str| format!("listeners:\n  {name}: {{ bind: '127.0.0.1:81' }}");
    let told = load(SITE, &[given("zebra", &door("l1")), given("fleet", &door("l2"))]).unwrap_err();
    let wanted = "`127.0.0.1:81` is already used by listener `l1`, in provider:zebra:a.yaml:2";
    assert!(told.contains("provider:fleet:a.yaml:2:") && told.contains(wanted), "{told}");
    // What the file says is never to blame.
    let told = load(&format!("{SITE}admin: {{ bind: '127.0.0.1:81' }}\n"), &[given("zebra", &door("l1"))]).unwrap_err();
    let wanted = "`127.0.0.1:81` is already used by the administrator's page, in site.yaml:8";
    assert!(told.contains("provider:zebra:a.yaml:2:") && told.contains(wanted), "{told}");
}

#[test]
fn what_is_not_a_providers_to_give_is_refused_by_its_own_lines() {
    for (text, message) in [
        ("admin: { bind: '127.0.0.1:1' }", "provider:fleet:a.yaml:1:1: a provider cannot deliver `admin`"),
        ("providers: {}", "a provider cannot deliver `providers`"),
        ("include: x.yaml", "a provider cannot deliver `include`"),
        ("version: 2", "the version of this format is 1"),
        ("- a", "the document of a provider must be a map"),
        ("text", "the document of a provider must be a map"),
        ("routes: {}", "`routes` must be a list"),
        ("clusters: [a]", "`clusters` must be a map"),
        ("endpoints: [a]", "`endpoints` must be a map"),
        ("clusters: { b: { endpoints: ['127.0.0.1:x'] } }", "`127.0.0.1:x` is not an address with a port"),
        ("clusters: { b: { endpints: [] } }", "unknown key `endpints`"),
        ("routes: [{ cluster: nobody }]", "there is no cluster `nobody`"),
        ("routes: [{ respond: { body: '${HOME}' } }]", "HOME"),
        ("clusters: { a: [", "provider:fleet:a.yaml:1:16: not YAML"),
        ("endpoints: { site: ['app.example.com:80'] }", "host names are not resolved here"),
        ("endpoints: { site: ['unix:/run/a'] }", "`unix:/run/a` is not an address with a port"),
        ("endpoints: { site: ['127.0.0.1:1', '127.0.0.1:1'] }", "the endpoint `127.0.0.1:1` is listed twice"),
        ("endpoints: { site: [{ address: '127.0.0.1:1', wieght: 1 }] }", "did you mean `weight`?"),
        ("endpoints: { site: 5 }", "must be a list"),
    ] {
        let told = load(SITE, &[given("fleet", text)]).expect_err(text);
        assert!(told.contains(message), "{text}: {told}");
    }
    for nothing in ["", "# nothing\n", "{}", "version: 1", "endpoints: {}", "\u{feff}version: 1"] {
        load(SITE, &[given("fleet", nothing)]).unwrap_or_else(|error| panic!("{nothing:?}: {error}"));
    }
}

#[test]
fn endpoints_are_found_by_provider_and_key() {
    let text =
        "endpoints: { site: ['127.0.0.1:1', { address: '127.0.0.1:2', weight: 3 }], empty: [], 'a/b': ['[::1]:1'] }";
    let loaded = load(SITE, &[given("fleet", text)]).unwrap_or_else(|error| panic!("{error}"));
    let found = loaded.provided_endpoints();
    let of = |key: &str| found.get(&("fleet".to_owned(), key.to_owned())).unwrap();
    assert_eq!(
        of("site").iter().map(|one| (one.name.as_str(), one.weight)).collect::<Vec<_>>(),
        [("127.0.0.1:1", 1), ("127.0.0.1:2", 3)]
    );
    assert!(of("empty").is_empty() && of("a/b").len() == 1);
    let typed =
        [EndpointSettings::at("127.0.0.1:1"), EndpointSettings { weight: 3, ..EndpointSettings::at("127.0.0.1:2") }];
    assert_eq!(LOADER.endpoints("fleet", "site", &typed).unwrap(), *of("site"));
    assert_eq!(LOADER.endpoints_alone(text, false).unwrap()["site"], typed);
    for more in ["routes: []", "endpoints: { site: [x] }", "version: 2", "endpoints: { site: [", "a", ""] {
        assert_eq!(LOADER.endpoints_alone(more, false), None, "{more}");
    }
    let bad = [EndpointSettings::at("127.0.0.1:1"), EndpointSettings::at("here:1")];
    let told = LOADER.endpoints("fleet", "site", &bad).unwrap_err().to_string();
    assert!(told.starts_with("provider:fleet:endpoints/site:3:"), "{told}");
}

#[test]
fn the_api_changes_no_providers_and_keeps_what_is_shown() {
    let loaded = load(SITE, &[given("fleet", "endpoints: { site: ['127.0.0.1:1'] }")]).unwrap();
    for shown in [loaded.effective(), loaded.written(LOADER.filters)] {
        let changes = LOADER.replace(&loaded, &shown.to_string()).unwrap_or_else(|error| panic!("{error}"));
        assert!(changes.is_empty(), "{changes:?}");
    }
    let without = "version: 1\nlisteners: { web: { bind: '127.0.0.1:8080' } }\nclusters: { site: { endpoints: { from: fleet } } }\n";
    LOADER.replace(&loaded, without).unwrap_or_else(|error| panic!("{error}"));
    for (line, message) in [
        ("providers: { fleet: { file: { path: x } } }", "the API cannot change providers"),
        ("watch: true", "the API cannot change whether files are watched"),
    ] {
        let told = LOADER.replace(&loaded, &format!("{without}{line}\n")).unwrap_err().to_string();
        assert!(told.contains(message), "{told}");
    }
}

#[test]
fn credentials_are_hidden_whatever_they_are_called() {
    let filter = "filters: [{ set_request_header: { x-vault-token: s3cret-b, api-key: s3cret-c, x-monkey: plain } }]";
    let matched = "match: { headers: { x-auth: s3cret-d } }";
    let text = SITE
        .replace("?x=1", "?ticket=s3cret-q")
        .replace("x-tenant: shop", "x-tenant: s3cret-a, x-user: '${TOKEN}'")
        .replace("cluster: site }]", &format!("cluster: site, {filter}, {matched} }}]"));
    let loaded = load(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    for shown in [loaded.effective(), loaded.written(LOADER.filters)] {
        let printed = shown.to_string();
        assert!(!printed.contains("s3cret"), "{printed}");
        assert_eq!(shown["providers"]["fleet"]["http"]["headers"]["x-user"], "${TOKEN}");
        assert_eq!(shown["routes"][0]["filters"][0]["set_request_header"]["x-monkey"], "plain");
        let changes = LOADER.replace(&loaded, &printed).unwrap_or_else(|error| panic!("{error}"));
        assert!(changes.is_empty(), "{changes:?}");
    }
}
