//! `defaults` in a running program: by its file, by the API, and for what providers give.

use serde_json::{Value, json};

use super::admin_api::{done, refused};
use super::harness::{Message, Origin, Peer, Setup, eventually};

fn setup(origin: &Origin) -> Setup {
    let address = origin.address();
    Setup::to(origin)
        .top("defaults: { routes: { filters: [{ set_response_header: { x-from: defaults } }] }, clusters: { requests_max: 5 } }")
        .route_before("{ name: own, match: { path: { prefix: /own } }, cluster: own, filters: [] }")
        .route_before("{ name: none, match: { path: { prefix: /none } }, cluster: none, defaults: false }")
        .cluster_more(format!("own: {{ endpoints: [\"{address}\"], requests_max: 7 }}"))
        .cluster_more(format!("none: {{ endpoints: [\"{address}\"], defaults: false }}"))
}

fn bounds(config: &Value) -> [Value; 3] {
    ["site", "own", "none"].map(|name| config["clusters"][name]["requests_max"].clone())
}

#[test]
fn objects_have_what_the_defaults_say_and_a_change_reaches_those_that_use_it() {
    let origin = Origin::saying("in");
    let product = setup(&origin).start();
    let from = |path: &str| product.get(path).field("x-from").map(str::to_owned);
    assert_eq!([from("/"), from("/own"), from("/none")], [Some("defaults".to_owned()), None, None]);
    let config = product.api("/api/config");
    assert_eq!(bounds(&config), [json!(5), json!(7), Value::Null]);
    // Sent back as it was shown, it changes nothing.
    assert_eq!(
        done(&product, "PUT /api/config", &["if-match: *", "content-type: application/json"], &config.to_string())["changed"],
        false
    );
    // By the API.
    let mut written = product.api("/api/config?as=written");
    written["defaults"]["clusters"]["requests_max"] = json!(6);
    let told =
        done(&product, "PUT /api/config", &["if-match: *", "content-type: application/json"], &written.to_string());
    assert_eq!(told["changed"], true, "{told}");
    let clusters: Vec<&str> = told["differences"]
        .as_array()
        .expect("differences")
        .iter()
        .filter_map(|one| one["path"].as_str())
        .filter(|path| path.starts_with("clusters/"))
        .collect();
    assert!(!clusters.is_empty() && clusters.iter().all(|path| path.starts_with("clusters/site")), "{told}");
    assert_eq!(bounds(&product.api("/api/config")), [json!(6), json!(7), Value::Null]);
    // What was shown before comes back with the generation.
    done(&product, "POST /api/generations/1/rollback", &["if-match: *"], "");
    assert_eq!(bounds(&product.api("/api/config")), [json!(5), json!(7), Value::Null]);
    // By the file, and to nothing.
    let text = setup(&origin).text();
    product.reload(&text.replace("x-from: defaults", "x-from: file"));
    eventually("the new one is in force", || from("/").as_deref() == Some("file"));
    let place = text.find("defaults: { routes").expect("the defaults");
    let end = place + text[place..].find('\n').expect("their line");
    product.reload(&format!("{}{}", &text[..place], &text[end..]));
    eventually("there are none", || from("/").is_none());
    assert_eq!(bounds(&product.api("/api/config")), [Value::Null, json!(7), Value::Null]);
}

#[test]
fn listeners_take_their_defaults_where_they_mean_something_and_override_them() {
    let origin = Origin::saying("in");
    let product = Setup::to(&origin)
        .top("defaults: { listeners: { fields_max: 3, request_id: false } }")
        .listener_more("wide: { bind: \"127.0.0.1:0\", fields_max: 5 }")
        .listener_more("none: { bind: \"127.0.0.1:0\", defaults: false }")
        .listener_more("line: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }")
        .start();
    let status = |name: &str, fields: usize| {
        let more: String = (1..fields).map(|number| format!("X-{number}: 1\r\n")).collect();
        let request = format!("GET / HTTP/1.1\r\nHost: test\r\n{more}\r\n");
        Peer::connect(product.address(name)).ask(request).status()
    };
    assert_eq!([3, 4].map(|fields| status("web", fields)), [200, 431]);
    assert_eq!([5, 6].map(|fields| status("wide", fields)), [200, 431]);
    assert_eq!([status("none", 50), status("line", 50)], [200, 200]);
    let with_id = |message: &Message| message.field("x-request-id").is_some();
    let requests = origin.requests();
    assert_eq!(requests.iter().map(with_id).collect::<Vec<_>>(), [false, false, true, false]);
}

#[test]
fn a_default_that_is_wrong_is_refused_with_its_own_place() {
    let origin = Origin::saying("in");
    let product = setup(&origin).start();
    let mut written = product.api("/api/config?as=written");
    written["defaults"]["clusters"] = json!({ "endpoints": [] });
    let told = refused(
        &product,
        "PUT /api/config",
        &["if-match: *", "content-type: application/json"],
        &written.to_string(),
        422,
    );
    assert_eq!(
        told["diagnostics"][0]["message"], "`endpoints` cannot have a default: each cluster has its own",
        "{told}"
    );
    assert_eq!(told["diagnostics"].as_array().map(Vec::len), Some(1));
    product.reload(&setup(&origin).text().replace("x-from: defaults", "\"x from\": defaults"));
    product.expect_said(&[":17:68: `x from` is not a header field name"]);
    assert_eq!(product.get("/").field("x-from"), Some("defaults"), "nothing has changed");
}

#[test]
fn what_a_provider_gives_takes_the_defaults_too() {
    let origin = Origin::saying("in");
    let folder = super::harness::product::folder();
    let given = format!(
        "clusters: {{ given: {{ endpoints: [\"{}\"] }} }}\nroutes: [{{ match: {{ path: /given }}, cluster: given }}]\n",
        origin.address()
    );
    let given = given.replace("path: /given", "path: { exact: /given }");
    std::fs::write(folder.path().join("given.yaml"), given).expect("our folder");
    let text = setup(&origin).top("providers: { fleet: { file: { path: given.yaml } } }").text();
    let product = super::harness::Product::start_in(folder, &text, 1);
    assert_eq!(product.get("/given").field("x-from"), Some("defaults"));
    assert_eq!(product.api("/api/config")["clusters"]["given"]["requests_max"], 5);
}
