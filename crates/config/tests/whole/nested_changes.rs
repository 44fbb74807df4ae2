//! Nested routes and filters of listeners that are sent back as they are shown, with and without changes.

use std::path::Path;

use config::{Changes, Loaded};
use serde_json::{Value, json};

use crate::support::LOADER;

const SITE: &str = "version: 1
listeners:
  web: { bind: '127.0.0.1:8080', filters: [{ set_request_header: { authorization: 'Basic of-web' } }] }
  more: { bind: '127.0.0.1:8081' }
routes:
  - name: shop
    match: { path: { prefix: /shop } }
    filters: [{ set_request_header: { x-shop: one, x-token: of-shop } }]
    cluster: a
    routes:
      - { name: carts, match: { path: { prefix: /shop/carts } }, timeout: 3s }
      - match: { path: { prefix: /shop/admin } }
        filters: [{ set_request_header: { x-token: of-admin } }]
  - { name: last, cluster: a, listeners: [web] }
clusters:
  a: { endpoints: ['127.0.0.1:1'] }
";

fn loaded() -> Loaded {
    LOADER.load_text("site.yaml", SITE, Path::new("")).unwrap_or_else(|error| panic!("{error}"))
}

fn replaced(sent: &Value) -> (Changes, Loaded) {
    let loaded = loaded();
    let changes = LOADER.replace(&loaded, &sent.to_string()).unwrap_or_else(|error| panic!("{error}\n{sent}"));
    let after = LOADER.load_changed(&loaded, &changes).unwrap_or_else(|error| panic!("{error}\n{changes:?}"));
    (changes, after)
}

/// The names of all routes, and the settings of their filters.
fn filters(loaded: &Loaded) -> Vec<(String, Vec<Value>)> {
    let routes = loaded.snapshot.routes.iter();
    let settings = |filters: &[model::filter::FilterUse]| filters.iter().map(|used| used.settings.clone()).collect();
    routes.map(|route| (route.name.to_string(), settings(&route.filters))).collect()
}

fn wanted() -> Vec<(String, Vec<Value>)> {
    let web = json!({ "authorization": "Basic of-web" });
    let shop = json!({ "x-shop": "one", "x-token": "of-shop" });
    let admin = json!({ "x-token": "of-admin" });
    vec![
        ("carts".to_owned(), vec![web.clone(), shop.clone()]),
        ("shop.2".to_owned(), vec![web.clone(), shop.clone(), admin]),
        ("shop".to_owned(), vec![web.clone(), shop]),
        ("last".to_owned(), vec![web]),
    ]
}

#[test]
fn what_is_shown_of_nested_routes_can_be_sent_back_and_changes_nothing() {
    let loaded = loaded();
    assert_eq!(filters(&loaded), wanted());
    for shown in [loaded.effective(), loaded.written(LOADER.filters)] {
        for secret in ["of-web", "of-shop", "of-admin"] {
            assert!(!shown.to_string().contains(secret), "{shown}");
        }
        let (changes, _) = replaced(&shown);
        assert!(changes.is_empty(), "{changes:?}");
    }
    assert!(LOADER.replace(&loaded, &loaded.text()).unwrap().is_empty());
}

#[test]
fn a_nested_route_that_is_left_out_is_gone_and_all_else_is_as_it_was() {
    for (gone, name) in wanted().iter().map(|(name, _)| name.clone()).enumerate() {
        let mut sent = loaded().effective();
        sent["routes"].as_array_mut().unwrap().remove(gone);
        let mut left = wanted();
        left.remove(gone);
        assert_eq!(filters(&replaced(&sent).1), left, "without {name}");
    }
    let mut sent = loaded().effective();
    sent["routes"].as_array_mut().unwrap().reverse();
    let reversed: Vec<_> = wanted().into_iter().rev().collect();
    assert_eq!(filters(&replaced(&sent).1), reversed, "in another order");
}

#[test]
fn a_change_of_one_route_keeps_nested_ones_and_their_secrets() {
    let mut sent = loaded().effective();
    sent["routes"][3]["priority"] = 5.into();
    let (_, after) = replaced(&sent);
    assert_eq!((filters(&after), after.snapshot.routes[3].priority), (wanted(), 5));
    let shop = &after.written(LOADER.filters)["routes"][0];
    assert_eq!(shop["routes"][0]["name"], "carts", "they are nested still: {shop}");
    sent = loaded().effective();
    sent["routes"][1]["timeout"] = "9s".into();
    let (_, after) = replaced(&sent);
    assert_eq!(filters(&after), wanted());
    let timeouts: Vec<_> = after.snapshot.routes.iter().map(|route| route.timeout.map(|time| time.as_secs())).collect();
    assert_eq!(timeouts, [Some(3), Some(9), None, None]);
    let again = LOADER.replace(&after, &after.effective().to_string()).unwrap();
    assert_eq!(LOADER.load_changed(&loaded(), &again).unwrap().effective(), after.effective());
}

#[test]
fn filters_of_a_listener_are_changed_where_they_are_shown() {
    let mut sent = loaded().effective();
    sent["listeners"]["web"]["filters"].as_array_mut().unwrap().push(json!({ "set_request_header": { "x-two": "2" } }));
    let (changes, after) = replaced(&sent);
    assert_eq!(changes.places().collect::<Vec<_>>(), [("listeners/web", true)]);
    let all = filters(&after);
    assert_eq!(all[3].1, [json!({ "authorization": "Basic of-web" }), json!({ "x-two": "2" })]);
    sent["listeners"]["web"]["filters"] = json!([]);
    assert_eq!(filters(&replaced(&sent).1)[3].1, [Value::Null; 0]);
}

#[test]
fn filters_of_a_listener_with_defaults_stay_when_something_else_is_changed() {
    let text = format!("{SITE}defaults: {{ listeners: {{ fields_max: 50 }} }}\n");
    let loaded = LOADER.load_text("site.yaml", &text, Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(filters(&loaded), wanted());
    let cluster = Some("endpoints: ['127.0.0.1:2']");
    let changes = LOADER.replace_object(&loaded, &Changes::default(), ("clusters", "b"), cluster).unwrap();
    let after = LOADER.load_changed(&loaded, &changes).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(filters(&after), wanted());
    let none = LOADER.load_changed(&after, &Changes::default()).unwrap();
    assert_eq!(filters(&none), wanted());
}

#[test]
fn a_route_that_is_sent_without_nested_ones_keeps_those_that_it_has_and_an_empty_list_takes_them_out() {
    let loaded = loaded();
    let put = |text: &str| {
        let changes = LOADER.replace_object(&loaded, &Changes::default(), ("routes", "shop"), Some(text)).unwrap();
        LOADER.load_changed(&loaded, &changes).unwrap_or_else(|error| panic!("{error}\n{changes:?}"))
    };
    let names = |loaded: &Loaded| loaded.snapshot.routes.iter().map(|route| route.name.to_string()).collect::<Vec<_>>();
    let kept = put("match: { path: { prefix: /shop } }\ncluster: a\ntimeout: 9s");
    assert_eq!(names(&kept), ["carts", "shop.2", "shop", "last"]);
    assert_eq!(names(&put("match: { path: { prefix: /shop } }\ncluster: a\nroutes: []")), ["shop", "last"]);
    let other = put(
        "match: { path: { prefix: /shop } }\ncluster: a\nroutes: [{ name: new, match: { path: { exact: /shop/new } } }]",
    );
    assert_eq!(names(&other), ["new", "shop", "last"]);
}
