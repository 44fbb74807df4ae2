//! Endpoints from Consul. A stand-in answers with what the API of Consul 1.22 says, blocking queries included: to build the real one
//! takes minutes.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::discovery_etcd::base64;
use super::harness::{Message, Origin, Product, eventually};
use super::reload::{Load, versatile};

/// What it knows, and at which index.
#[derive(Default)]
struct Known {
    index: u64,
    instances: Vec<Value>,
    stored: Vec<Value>,
    is_down: bool,
    /// The token may see nothing.
    hides: bool,
    /// Waits are over soon, with the index that there was.
    is_impatient: bool,
    /// Questions that wait now, and the most there were at once.
    held: [usize; 2],
}

#[derive(Clone, Default)]
struct Consul(Arc<(Mutex<Known>, Condvar)>);

impl Consul {
    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.0.0.lock().expect("what is known");
        known.index += 1;
        change(&mut known);
        self.0.1.notify_all();
    }

    /// A change that no index tells of.
    fn change_silently(&self, change: impl FnOnce(&mut Known)) {
        self.change(|known| {
            known.index -= 1;
            change(known);
        });
    }

    fn instances(&self, all: &[(SocketAddr, &str)]) {
        self.change(|known| known.instances = all.iter().map(|(address, status)| instance(*address, status)).collect());
    }

    /// Waits as long as nothing is newer than the index that is asked for.
    fn answer(&self, request: &Message) -> Vec<u8> {
        let (path, query) = request.target().split_once('?').unwrap_or((request.target(), ""));
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let asked: u64 = value("index").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut known = self.0.0.lock().expect("what is known");
        known.held[0] += 1;
        known.held[1] = known.held[1].max(known.held[0]);
        let waits = |known: &mut Known| asked > 0 && known.index == asked && !known.is_down;
        let patience = if known.is_impatient { Duration::from_millis(50) } else { Duration::from_secs(30) };
        let (mut known, _) = self.0.1.wait_timeout_while(known, patience, waits).expect("what is known");
        known.held[0] -= 1;
        if known.is_down || request.field("x-consul-token") != Some("secret") {
            let (status, why) =
                if known.is_down { ("500 x", "No cluster leader") } else { ("403 x", "Permission denied") };
            return format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{why}", why.len()).into_bytes();
        }
        // Only who does not wait is told.
        let filtered = if known.hides && asked == 0 { "X-Consul-Results-Filtered-By-ACLs: true\r\n" } else { "" };
        let (status, body) = match path {
            "/v1/health/service/web" if known.hides => ("200 OK", json!([])),
            "/v1/kv/eq/" if known.hides => ("404 Not Found", Value::Null),
            "/v1/health/service/web" => ("200 OK", json!(known.instances)),
            "/v1/kv/eq/" if known.stored.is_empty() => ("404 Not Found", Value::Null),
            "/v1/kv/eq/" => ("200 OK", json!(known.stored)),
            _ => ("200 OK", json!([])),
        };
        let body = if status == "200 OK" { body.to_string() } else { String::new() };
        let fields = format!("X-Consul-Index: {}\r\n{filtered}Content-Length: {}\r\n", known.index, body.len());
        format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{fields}\r\n{body}").into_bytes()
    }
}

/// As `GET /v1/health/service/NAME` shows one.
fn instance(address: SocketAddr, status: &str) -> Value {
    json!({
        "Node": { "ID": "40e4a748-2192-161a-0510-9bf59fe950b5", "Node": "foobar", "Address": "10.1.10.12", "Datacenter": "dc1" },
        "Service": {
            "ID": format!("web-{address}"), "Service": "web", "Tags": ["v1"], "Address": address.ip().to_string(),
            "Port": address.port(), "Meta": { "version": "v1" }, "Weights": { "Passing": 10, "Warning": 1 }, "Namespace": "default",
        },
        "Checks": [
            { "Node": "foobar", "CheckID": "serfHealth", "Status": "passing", "ServiceID": "" },
            { "Node": "foobar", "CheckID": "service:web", "Status": status, "ServiceID": "web" },
        ],
    })
}

fn start(consul: &Consul) -> (Origin, Product) {
    let known = consul.clone();
    let api = Origin::answering(move |request| known.answer(request));
    let product = Product::start(&format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes: [{{ cluster: site }}]\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         providers: {{ mesh: {{ consul: {{ url: \"http://{}\", token: secret, prefix: eq/, wait: 20s }} }} }}\n\
         clusters: {{ site: {{ endpoints: {{ from: mesh, key: v1.web }} }} }}\n",
        api.address()
    ));
    (api, product)
}

fn provider(product: &Product) -> Value {
    product.api("/api/providers")["providers"][0].clone()
}

fn endpoints(product: &Product) -> Vec<(String, u64)> {
    let cluster = product.api("/api/clusters/site/endpoints");
    let list = cluster["endpoints"].as_array().expect("a list");
    let shown = |one: &Value| Some((one["name"].as_str()?.to_owned(), one["weight"].as_u64()?));
    list.iter().map(|one| shown(one).expect("a name and a weight")).collect()
}

#[test]
fn endpoints_follow_the_catalog_and_no_request_fails() {
    let origins = [versatile(), versatile()];
    let [one, two] = origins.each_ref().map(Origin::address);
    let consul = Consul::default();
    consul.instances(&[(one, "passing")]);
    let (api, product) = start(&consul);
    assert_eq!(product.get("/").status(), 200, "known before the first request");
    let load = Load::on(&product, 4);
    for _ in 0..3 {
        consul.instances(&[(one, "warning"), (two, "passing")]);
        eventually("both are there", || {
            let mut found = endpoints(&product);
            found.sort_by_key(|(_, weight)| *weight);
            found == [(one.to_string(), 1), (two.to_string(), 10)]
        });
        consul.instances(&[(one, "critical"), (two, "passing")]);
        eventually("one is left out", || endpoints(&product) == [(two.to_string(), 10)]);
        consul.instances(&[(one, "passing")]);
        eventually("the other is gone", || endpoints(&product) == [(one.to_string(), 10)]);
    }
    assert!(load.end() > 0);
    let asked = api.requests();
    assert!(
        asked.iter().any(|one| one.target().starts_with("/v1/health/service/web?tag=v1&index=1&wait=20000ms&stale"))
    );
    // It waits between changes, and does not ask again and again.
    assert!(asked.len() < 200, "{}", asked.len());
}

#[test]
fn a_consul_that_fails_takes_nothing_and_an_index_that_goes_back_begins_anew() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let consul = Consul::default();
    consul.change(|known| known.index = 100);
    consul.instances(&[(one.address(), "passing")]);
    let (_api, product) = start(&consul);
    assert_eq!(product.get("/").text(), "one");
    consul.change(|known| known.is_down = true);
    eventually("it is told", || {
        provider(&product)["reason"].as_str().is_some_and(|why| why.contains("No cluster leader"))
    });
    assert_eq!(product.get("/").text(), "one");
    // Its state was restored from an older one.
    consul.change(|known| (known.is_down, known.index) = (false, 2));
    consul.instances(&[(two.address(), "passing")]);
    eventually("it is followed", || product.get("/").text() == "two");
    eventually("it is up", || provider(&product)["state"] == "up");
}

#[test]
fn a_token_that_may_see_nothing_for_a_while_takes_nothing_though_no_index_tells_of_it() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let consul = Consul::default();
    consul.change(|known| known.is_impatient = true);
    consul.instances(&[(one.address(), "passing")]);
    let (_api, product) = start(&consul);
    assert_eq!(product.get("/").text(), "one");
    consul.change_silently(|known| known.hides = true);
    eventually("it is told", || {
        provider(&product)["reason"].as_str().is_some_and(|why| why.contains("let the token see none of them"))
    });
    assert_eq!(product.get("/").text(), "one");
    consul.change_silently(|known| known.hides = false);
    eventually("it is up", || provider(&product)["state"] == "up");
    assert_eq!(product.get("/").text(), "one");
    // Others may be seen from now on.
    consul.change_silently(|known| known.instances = vec![instance(two.address(), "passing")]);
    eventually("it is followed", || product.get("/").text() == "two");
}

#[test]
fn the_store_brings_endpoints_and_routes() {
    let (one, shop) = (Origin::saying("one"), Origin::saying("shop"));
    let consul = Consul::default();
    consul.instances(&[(one.address(), "passing")]);
    let (_api, product) = start(&consul);
    assert_eq!(product.get("/shop").text(), "one");
    let text = base64(
        "{ routes: [{ match: { path: { prefix: /shop } }, cluster: shop }], clusters: { shop: { endpoints: { from: mesh } } } }",
    );
    let value = base64(&shop.address().to_string());
    consul.change(|known| {
        known.stored = vec![
            json!({ "Key": "eq/", "Value": null }),
            json!({ "Key": "eq/config/shop", "Value": text }),
            json!({ "Key": "eq/endpoints/shop/a", "Value": value }),
        ];
    });
    eventually("it is there", || product.get("/shop").text() == "shop");
    assert_eq!(product.get("/").text(), "one");
    consul.change(|known| known.stored.clear());
    eventually("it is gone", || product.get("/shop").text() == "one");
}

#[test]
fn an_instance_with_the_name_of_a_host_is_told_and_a_wrong_text_of_the_store_holds_up_nothing() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let consul = Consul::default();
    let mut named = instance(two.address(), "passing");
    named["Service"]["Address"] = json!("web.example.com");
    consul.change(|known| {
        known.instances = vec![instance(one.address(), "passing"), named.clone()];
        known.stored = vec![json!({ "Key": "eq/config/bad", "Value": base64("routes: [") })];
    });
    let (_api, product) = start(&consul);
    assert_eq!(product.get("/").text(), "one");
    let told = format!(
        "v1.web: the instance `web-{}` has the address `web.example.com`, which is not an IP address: host names are not resolved here",
        two.address()
    );
    eventually("both are told", || {
        let left_out = provider(&product)["left_out"].clone();
        let has = |wanted: &str| {
            left_out
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one.as_str().is_some_and(|one| one.starts_with(wanted))))
        };
        has(&told) && has("config/bad:")
    });
    consul.change(|known| known.instances = vec![instance(two.address(), "passing"), named]);
    eventually("it is followed", || product.get("/").text() == "two");
}

#[test]
fn many_names_hold_no_more_connections_than_an_agent_lets_a_client_have() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let consul = Consul::default();
    consul.instances(&[(one.address(), "passing")]);
    let known = consul.clone();
    let api = Origin::answering(move |request| known.answer(request));
    let keys = 0..120;
    let clusters: String =
        keys.clone().map(|n| format!("  c{n}: {{ endpoints: {{ from: mesh, key: t{n}.web }} }}\n")).collect();
    let routes: String =
        keys.clone().map(|n| format!("  - {{ match: {{ path: {{ exact: /{n} }} }}, cluster: c{n} }}\n")).collect();
    let product = Product::start(&format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nadmin: {{ bind: \"127.0.0.1:0\" }}\n\
         providers: {{ mesh: {{ consul: {{ url: \"http://{}\", token: secret, wait: 20s }} }} }}\n\
         routes:\n{routes}clusters:\n{clusters}",
        api.address()
    ));
    let all_say = |body: &str| keys.clone().all(|n| product.get(&format!("/{n}")).text() == body);
    eventually("all are known", || all_say("one"));
    consul.instances(&[(two.address(), "passing")]);
    eventually("all are followed", || all_say("two"));
    let [_, most] = consul.0.0.lock().expect("what is known").held;
    assert!(most <= 64 + 8, "{most}");
}
