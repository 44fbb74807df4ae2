//! `defaults`: what listeners, routes and clusters have where they do not say it themselves.

use std::path::Path;
use std::sync::Arc;

use config::{Beside, Changes, Loaded, Provided, ProvidedText};
use serde_json::{Value, json};

use crate::support::{LOADER, load, messages};

/// A site with these defaults, this listener, this route and this cluster, each on a line of its own.
fn site(defaults: &str, listener: &str, route: &str, cluster: &str) -> String {
    format!(
        "version: 1\ndefaults: {defaults}\nlisteners:\n  web: {{ bind: \"127.0.0.1:80\"{listener} }}\nroutes:\n  - {{ name: main{route} }}\n\
         clusters:\n  a: {{ endpoints: [\"10.0.0.1:80\", \"10.0.0.2:80\"]{cluster} }}\n"
    )
}

fn shown(text: &str) -> Value {
    load(text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}")).effective()
}

/// The cluster `a` as it is meant.
fn cluster(defaults: &str, own: &str) -> Value {
    shown(&site(&format!("{{ clusters: {defaults} }}"), "", ", cluster: a", own))["clusters"]["a"].clone()
}

#[test]
fn what_an_object_does_not_say_is_as_the_defaults_have_it() {
    let defaults = "{ listeners: { connections_max: 7, timeouts: { head: 3s } }, routes: { timeout: 9s }, clusters: { requests_max: 5 } }";
    let all = shown(&site(defaults, "", ", cluster: a", ""));
    assert_eq!(all["listeners"]["web"]["connections_max"], 7);
    assert_eq!(all["listeners"]["web"]["timeouts"]["head"], "3s");
    assert_eq!(all["routes"][0]["timeout"], "9s");
    assert_eq!(all["clusters"]["a"]["requests_max"], 5);
    assert_eq!(all["defaults"]["clusters"], json!({ "requests_max": 5 }), "they are shown as well");
    let snapshot = load(&site(defaults, ", connections_max: 8", ", cluster: a, timeout: 2s", "")).unwrap().snapshot;
    assert_eq!(snapshot.listeners[0].connections_max, 8, "what the object says wins");
    assert_eq!(snapshot.routes[0].timeout.map(|time| time.as_secs()), Some(2));
    assert_eq!(snapshot.clusters[0].connections_max, Some(5));
}

#[test]
fn maps_with_settings_are_joined_and_lists_names_and_choices_are_replaced() {
    let joined = cluster("{ timeouts: { connect: 1s, idle: 2s }, pool: { idle_max: 3 } }", ", timeouts: { idle: 4s }");
    assert_eq!((&joined["timeouts"]["connect"], &joined["timeouts"]["idle"]), (&json!("1s"), &json!("4s")));
    assert_eq!(joined["pool"]["idle_max"], 3);
    // A switch or settings: both are settings here.
    let tls = cluster("{ tls: { verify: false, server_name: x.example } }", ", tls: { server_name: y.example }");
    assert_eq!((&tls["tls"]["verify"], &tls["tls"]["server_name"]), (&json!(false), &json!("y.example")));
    assert_eq!(cluster("{ tls: { verify: false } }", ", tls: false")["tls"], false);
    // Of a choice nothing is left.
    let check = cluster("{ health_check: { http: { path: /a }, interval: 9s } }", ", health_check: { tcp: {} }");
    assert_eq!((&check["health_check"]["http"], check["health_check"]["interval"] == "9s"), (&Value::Null, false));
    let balance = cluster("{ balance: { hash: { on: path } } }", ", balance: { least_time: {} }");
    assert_eq!(balance["balance"]["hash"], Value::Null);
    assert_eq!(cluster("{ balance: random }", "")["balance"], "random");
    let all = shown(&site(
        "{ routes: { filters: [{ set_response_header: { a: b } }] } }",
        "",
        ", cluster: a, filters: [{ set_response_header: { c: d } }]",
        "",
    ));
    assert_eq!(all["routes"][0]["filters"], json!([{ "set_response_header": { "c": "d" } }]));
    let fields = "health_check: { http: { headers: { a: b } } }";
    let check = cluster(&format!("{{ {fields} }}"), ", health_check: { http: { headers: { c: d } } }");
    assert_eq!(check["health_check"]["http"]["headers"], json!({ "c": "d" }));
}

#[test]
fn an_object_that_wants_none_has_none() {
    let own = cluster("{ requests_max: 5, health_check: { tcp: {} } }", ", defaults: false");
    assert_eq!(
        (&own["requests_max"], &own["health_check"], &own["defaults"]),
        (&Value::Null, &Value::Null, &json!(false))
    );
}

#[test]
fn what_does_not_fit_an_object_or_is_not_whole_is_left_out_there() {
    let defaults = "{ listeners: { timeouts: { head: 3s }, idle_timeout: 8s, http3: { max_age: 1h }, tls: { version_min: \"1.3\" }, \
                    responses_max: 1 }, routes: { retry: { attempts_max: 3 }, early_data: true } }";
    let text = site(defaults, "", ", redirect: { scheme: https }", "");
    let text = text.replace(
        "routes:\n",
        "  tcp: { bind: \"127.0.0.1:81\", protocol: tcp, cluster: a }\n  udp: { bind: \"127.0.0.1:82\", protocol: udp, cluster: a }\nroutes:\n",
    );
    let all = shown(&text);
    let listeners = &all["listeners"];
    assert_eq!((&listeners["web"]["timeouts"]["head"], &listeners["web"]["tls"]), (&json!("3s"), &Value::Null));
    assert_eq!((&listeners["tcp"]["idle_timeout"], &listeners["udp"]["idle_timeout"]), (&json!("8s"), &json!("8s")));
    assert_eq!((&listeners["tcp"]["responses_max"], &listeners["udp"]["responses_max"]), (&Value::Null, &json!(1)));
    assert_eq!((&all["routes"][0]["retry"], &all["routes"][0]["early_data"]), (&Value::Null, &json!(true)));
}

#[test]
fn what_is_wrong_with_a_default_is_told_once_at_its_place() {
    let wrong = |defaults: &str| {
        messages(
            &site(defaults, "", ", cluster: a", "").replace("  a: {", "  b: { endpoints: [\"10.0.0.3:80\"] }\n  a: {"),
        )
    };
    let only = |defaults: &str, wanted: &str| assert_eq!(wrong(defaults), [wanted], "{defaults}");
    only(
        "{ listeners: { bind: \"127.0.0.1:1\" } }",
        "2: `bind` cannot have a default: each listener has its own (write it in each listener)",
    );
    only(
        "{ routes: { match: { path: { exact: / } } } }",
        "2: `match` cannot have a default: each route has its own (write it in each route)",
    );
    for (kind, key) in [
        ("routes", "name"),
        ("routes", "cluster"),
        ("clusters", "endpoints"),
        ("listeners", "protocol"),
        ("listeners", "sni"),
    ] {
        let one = kind.trim_end_matches('s');
        let wanted = format!("2: `{key}` cannot have a default: each {one} has its own (write it in each {one})");
        only(&format!("{{ {kind}: {{ {key}: x }} }}"), &wanted);
    }
    only("{ clusters: { requests_max: 0 } }", "2: `requests_max` must be a whole number from 1 to 4294967295, not 0");
    only(
        "{ clusters: { health_check: { interval: 3s } } }",
        "2: `clusters.health_check` of `defaults` needs one of `tcp`, `tls`, `http`, `grpc`, `script` or `steps`",
    );
    // Found when it is understood, and the same for both clusters.
    only(
        "{ clusters: { tls: { server_name: \"a b\" } } }",
        "2: `a b` is not a host name, nor an address, without a port",
    );
    assert_eq!(wrong("{ clusters: { retri: {} } }").len(), 1);
    assert_eq!(wrong("{ cluster: {} }").len(), 1);
    assert_eq!(wrong("[]").len(), 1);
    assert_eq!(wrong("{ clusters: [] }").len(), 1);
    let two = wrong("{ routes: { filters: [{ set_response_header: { a: b }, cors: {} }] } }");
    assert!(
        two.iter().any(|told| told.starts_with("2: an item of `filters` holds 2 keys where one is allowed")),
        "{two:?}"
    );
}

#[test]
fn what_is_wrong_between_a_default_and_an_object_is_told_where_the_default_stands() {
    let text = "version: 1\ndefaults:\n  clusters:\n    proxy_protocol: v2\nlisteners: { web: { bind: \"127.0.0.1:80\" } }\n\
                routes: [{ cluster: a }]\nclusters: { a: { endpoints: [\"10.0.0.1:80\"], http_versions: [h2] } }\n";
    let told = messages(text);
    assert!(told.len() == 1 && told[0].starts_with("4: `proxy_protocol` names the client of a connection"), "{told:?}");
}

fn with(loaded: &Loaded, defaults: &str) -> Loaded {
    let text = loaded.text().replacen("\"requests_max\": 5", defaults, 1);
    let changes = LOADER.replace(loaded, &text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    LOADER.load_changed(loaded, &changes).unwrap()
}

#[test]
fn a_change_of_defaults_reaches_the_objects_that_use_them_and_no_others() {
    let text = site("{ clusters: { requests_max: 5 } }", "", ", cluster: a", "");
    let text = format!(
        "{text}  own: {{ endpoints: [\"10.0.0.3:80\"], requests_max: 1 }}\n  none: {{ endpoints: [\"10.0.0.4:80\"], defaults: false }}\n"
    );
    let first = load(&text).unwrap();
    let bound = |loaded: &Loaded| loaded.snapshot.clusters.iter().map(|one| one.connections_max).collect::<Vec<_>>();
    assert_eq!(bound(&first), [Some(5), Some(1), None]);
    let second = with(&first, "\"requests_max\": 6");
    assert_eq!(bound(&second), [Some(6), Some(1), None]);
    let is_same = |at: usize, one: &Loaded, other: &Loaded| one.snapshot.clusters[at] == other.snapshot.clusters[at];
    assert_eq!([0, 1, 2].map(|at| is_same(at, &first, &second)), [false, true, true]);
    // What only the one says that it does not reach is the very same, not just alike.
    assert!(Arc::ptr_eq(&first.snapshot.clusters[2], &second.snapshot.clusters[2]));
    // A change of something else leaves what was joined as it was.
    let edit = config::EndpointEdit::Add("\"10.0.0.9:80\"".to_owned());
    let changes = LOADER.edit_endpoints(&first, &Changes::default(), "none", &edit).unwrap().unwrap();
    let third = LOADER.load_changed(&first, &changes).unwrap();
    assert_eq!((bound(&third), third.snapshot.clusters[2].endpoints.len()), (bound(&first), 2));
    assert!([0, 1].iter().all(|at| Arc::ptr_eq(&first.snapshot.clusters[*at], &third.snapshot.clusters[*at])));
    // And back, out of an earlier one that had other defaults.
    let fourth = LOADER.load_changed(&second, &Changes::default()).unwrap();
    assert_eq!(bound(&fourth), bound(&first));
    let without =
        first.text().replacen("\"requests_max\": 5", "{}", 1).replace("\"defaults\":\n  \"clusters\":\n    {}\n", "");
    let changes = LOADER.replace(&first, &without).unwrap();
    assert_eq!(bound(&LOADER.load_changed(&first, &changes).unwrap()), [None, Some(1), None]);
}

#[test]
fn what_is_shown_can_be_put_again_and_changes_nothing() {
    let text = site(
        "{ clusters: { requests_max: 5, tls: { verify: false }, persistence: { cookie: { name: s, secret: \"0123456789abcdef0123\" } } } }",
        "",
        ", cluster: a",
        "",
    );
    let loaded = load(&text).unwrap();
    assert_eq!(loaded.effective()["defaults"]["clusters"]["persistence"]["cookie"]["secret"], "(hidden)");
    assert_eq!(loaded.effective()["defaults"]["clusters"]["persistence"]["cookie"]["name"], "s");
    for again in [loaded.effective().to_string(), loaded.text(), loaded.written(LOADER.filters).to_string()] {
        let changes = LOADER.replace(&loaded, &again).unwrap_or_else(|wrong| panic!("{wrong}\n{again}"));
        assert!(changes.is_empty(), "{again}: {changes:?}");
    }
}

#[test]
fn objects_of_providers_and_of_included_files_take_the_defaults_and_answer_for_themselves() {
    let file = "version: 1\ndefaults: { clusters: { requests_max: 5, proxy_protocol: v2 } }\nlisteners: { web: { bind: \"127.0.0.1:80\" } }\n\
                providers: { fleet: { file: { path: x } } }\n";
    let given = |cluster: &str| {
        let text = format!("clusters: {{ a: {{ endpoints: [\"10.0.0.1:80\"]{cluster} }} }}");
        let text = ProvidedText { name: "given".to_owned(), folder: None, text: text.into() };
        let provided = [Provided { provider: "fleet".to_owned(), texts: vec![text] }];
        let beside = Beside { provided: &provided, changes: &Changes::default() };
        LOADER.load_text_with(("site.yaml", file, Path::new("/nowhere")), beside)
    };
    assert_eq!(given("").unwrap().snapshot.clusters[0].connections_max, Some(5));
    assert_eq!(given(", defaults: false").unwrap().snapshot.clusters[0].connections_max, None);
    let wrong = given(", http_versions: [h2]").unwrap_err();
    assert_eq!(wrong.list.len(), 1, "{wrong}");
    assert_eq!(wrong.list[0].file, "provider:fleet:given", "the provider is told, and the file stays good");
}

#[test]
fn the_schema_knows_defaults_without_keys_that_have_to_be_there() {
    let schema = config::schema(LOADER.filters);
    let definition = |name: &str| schema["$defs"][name].clone();
    let defaults = &schema["properties"]["defaults"];
    assert!(defaults.to_string().contains("#/$defs/Defaults"), "{defaults}");
    for (name, own, other) in
        [("Listener", "bind", "tls"), ("Route", "match", "filters"), ("Cluster", "endpoints", "timeouts")]
    {
        let partial = definition(&format!("{name}Defaults"));
        assert!(partial["properties"][own].is_null() && !partial["properties"][other].is_null(), "{name}");
        assert!(partial["required"].is_null() && partial["oneOf"].is_null(), "{name}");
        assert_eq!(partial["additionalProperties"], false);
    }
    assert!(definition("TlsDefaults")["required"].is_null());
    assert_eq!(definition("Tls")["required"], json!(["certificates"]));
}
