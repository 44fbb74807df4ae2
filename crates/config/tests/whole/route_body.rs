//! Conditions of routes on the body.

use model::matching::{ValueMatch, ValueTest};

use crate::support::load;

fn site(matches: &str) -> String {
    format!(
        "version: 1\nlisteners:\n  web: {{ bind: \"127.0.0.1:80\" }}\nroutes:\n  - name: one\n    match: {matches}\n    cluster: a\n\
         clusters:\n  a: {{ endpoints: [\"10.0.0.1:80\"] }}\n"
    )
}

fn messages(matches: &str) -> Vec<String> {
    let told = load(&site(matches)).map_err(|wrong| wrong.list.iter().map(|one| one.message.clone()).collect());
    told.err().unwrap_or_default()
}

#[test]
fn values_of_bodies_are_compared_as_those_of_fields() {
    let text = "{ body: { json: { /model: x, /n: { present: true } }, form: { a b: { regex: \"[0-9]+\" } }, grpc: { \"1.2\": y }, max: 1MiB } }";
    let loaded = load(&site(text)).unwrap_or_else(|wrong| panic!("{wrong}"));
    let body = loaded.snapshot.routes[0].matches.body.clone().unwrap();
    let one = |name: &str, test| ValueMatch { name: name.into(), test };
    assert_eq!(body.json, [one("/model", ValueTest::Exact("x".into())), one("/n", ValueTest::Present)]);
    assert_eq!(body.form, [one("a b", ValueTest::Regex("[0-9]+".into()))]);
    assert_eq!((body.grpc.len(), body.max), (1, 1 << 20));
    let body = load(&site("{ body: { json: { /a: b } } }")).unwrap().snapshot.routes[0].matches.body.clone().unwrap();
    assert_eq!(body.max, 64 << 10, "by default");
}

#[test]
fn what_cannot_be_asked_of_a_body_is_reported() {
    assert_eq!(messages("{ body: {} }"), ["nothing is asked of the body"]);
    assert_eq!(messages("{ body: { json: { /a: b }, max: 17MiB } }"), ["`max` must be from 1 byte to 16 MiB"]);
    assert_eq!(messages("{ body: { json: { /a: b }, max: 0 } }").len(), 1);
    assert!(messages("{ body: { form: { a: { regex: \"(\" } } } }")[0].contains("is not a regular expression"));
    assert!(messages("{ body: { xml: { a: b } } }")[0].contains("unknown key `xml`"));
    assert_eq!(messages("{ body: { json: { /a: { exact: b } } } }"), [""; 0]);
}

#[test]
fn a_nested_route_asks_what_the_route_above_asks_of_the_body() {
    let text = "version: 1
listeners: { web: { bind: \"127.0.0.1:80\" } }
routes:
  - match: { body: { json: { /a: { present: true }, /b: x }, max: 1KiB } }
    routes: [{ cluster: a, match: { body: { json: { /a: y }, form: { c: z } } } }]
clusters: { a: { endpoints: [\"10.0.0.1:80\"] } }
";
    let body = load(text).unwrap_or_else(|wrong| panic!("{wrong}")).snapshot.routes[0].matches.body.clone().unwrap();
    let names: Vec<&str> = body.json.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((names, body.form.len(), body.max), (vec!["/a", "/b"], 1, 1024));
    let wrong = load(&text.replace("/a: y", "/b: y")).unwrap_err();
    assert!(wrong.list[0].message.contains("contradicts that of the route above"), "{wrong}");
}
