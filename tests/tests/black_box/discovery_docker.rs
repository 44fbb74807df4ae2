//! Endpoints and routes from labels of containers. A stand-in answers on a Unix socket as Docker Engine 26.1.5 does, down to its chunks.
//! `cargo xtask conformance docker` has a real engine, which needs root and namespaces.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::{Origin, Product, eventually};
use super::reload::{Load, versatile};

const CONTAINER: &str = "b29fed917545f853b02742d55a4a08d8f806bf53794dfc8ffaaf7349b57c54b1";
const NETWORK: &str = "cdcc1b249fd743a19e1718c521546d0f5354b87254b62d13c19db85dd5a249f9";
const IMAGE: &str = "sha256:8b0e7937cb2652780e87474c6dd2bf8443ed642ef68c124716725f9dcf7aa2f6";
const HEAD: &str = "HTTP/1.1 200 OK\r\nApi-Version: 1.45\r\nContent-Type: application/json\r\nDocker-Experimental: false\r\nOstype: linux\r\n\
                    Server: Docker/26.1.5+dfsg1 (linux)\r\nDate: Sun, 22 Nov 2026 19:13:01 GMT\r\nTransfer-Encoding: chunked\r\n\r\n";

#[derive(Default)]
struct Known {
    containers: Vec<Value>,
    /// Who listens to events.
    streams: Vec<UnixStream>,
    /// Who listens and was told nothing yet, not even a head: Podman is so.
    waiting: Vec<UnixStream>,
    is_podman: bool,
    paths: Vec<String>,
    is_down: bool,
}

struct Engine {
    folder: TempDir,
    known: Arc<Mutex<Known>>,
}

impl Engine {
    fn start(containers: Vec<Value>) -> Self {
        let folder = TempDir::new().expect("a folder");
        let known = Arc::new(Mutex::new(Known { containers, ..Known::default() }));
        let listener = UnixListener::bind(folder.path().join("docker.sock")).expect("a socket");
        let shared = Arc::clone(&known);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // Whoever goes away early is not waited for.
                let _ = answer(stream, &shared);
            }
        });
        Self { folder, known }
    }

    /// Other containers, which events tell: a chunk each, as one starts.
    fn change(&self, containers: Vec<Value>) {
        let mut known = self.known.lock().expect("what is known");
        known.containers = containers;
        let connected = json!({
            "Type": "network", "Action": "connect",
            "Actor": { "ID": NETWORK, "Attributes": { "container": CONTAINER, "name": "shop_default", "type": "bridge" } },
            "scope": "local", "time": 1_795_374_781, "timeNano": 1_795_374_781_268_630_657_u64,
        });
        let started = json!({
            "status": "start", "id": CONTAINER, "from": "shop/site:latest", "Type": "container", "Action": "start",
            "Actor": { "ID": CONTAINER, "Attributes": { "equipoise.enable": "true", "image": "shop/site:latest", "name": "shop-site-1" } },
            "scope": "local", "time": 1_795_374_781, "timeNano": 1_795_374_781_464_083_930_u64,
        });
        let Known { streams, waiting, .. } = &mut *known;
        streams.extend(
            waiting.drain(..).filter_map(|mut stream| stream.write_all(HEAD.as_bytes()).is_ok().then_some(stream)),
        );
        for event in [connected, started] {
            let chunk = chunk(&format!("{event}\n"));
            known.streams.retain_mut(|stream| stream.write_all(chunk.as_bytes()).is_ok());
        }
    }

    /// Ends all streams and answers nothing more, or does again.
    fn set_down(&self, is_down: bool) {
        let mut known = self.known.lock().expect("what is known");
        known.is_down = is_down;
        known.streams.clear();
        known.waiting.clear();
    }

    fn configuration(&self) -> String {
        format!(
            "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes: [{{ cluster: site }}]\n\
             admin: {{ bind: \"127.0.0.1:0\" }}\n\
             providers: {{ engine: {{ docker: {{ url: \"unix:{}\" }} }} }}\n\
             clusters: {{ site: {{ endpoints: {{ from: engine }} }} }}\n",
            self.folder.path().join("docker.sock").display()
        )
    }
}

fn answer(mut stream: UnixStream, known: &Mutex<Known>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut known = known.lock().expect("what is known");
    known.paths.push(path.clone());
    if known.is_down {
        return Ok(());
    }
    if path.starts_with("/events?") {
        if known.is_podman {
            known.waiting.push(stream);
            return Ok(());
        }
        stream.write_all(HEAD.as_bytes())?;
        known.streams.push(stream);
        return Ok(());
    }
    let body = Value::from(known.containers.clone()).to_string();
    write!(stream, "{HEAD}{}0\r\n\r\n", chunk(&format!("{body}\n")))
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// As `GET /containers/json` shows one.
fn container(name: &str, address: SocketAddr, status: &str, labels: Value) -> Value {
    let mut all = json!({
        "equipoise.enable": "true", "equipoise.port": address.port().to_string(),
        "com.docker.compose.project": "shop", "com.docker.compose.service": "site",
    });
    for (label, value) in labels.as_object().into_iter().flatten() {
        all[label] = value.clone();
    }
    json!({
        "Id": CONTAINER, "Names": [format!("/{name}")], "Image": "shop/site:latest", "ImageID": IMAGE, "Command": "/run", "Created": 1_795_374_781,
        "Ports": [{ "PrivatePort": 8080, "Type": "tcp" }], "Labels": all, "State": "running", "Status": status,
        "HostConfig": { "NetworkMode": "shop_default" },
        "NetworkSettings": { "Networks": { "shop_default": {
            "IPAMConfig": null, "Links": null, "Aliases": null, "MacAddress": "02:42:ac:1f:fb:02", "NetworkID": NETWORK, "EndpointID": NETWORK,
            "Gateway": "172.31.251.1", "IPAddress": address.ip().to_string(), "IPPrefixLen": 24, "IPv6Gateway": "", "GlobalIPv6Address": "",
            "GlobalIPv6PrefixLen": 0, "DriverOpts": null, "DNSNames": null,
        } } },
        "Mounts": [],
    })
}

fn plain(name: &str, origin: &Origin) -> Value {
    container(name, origin.address(), "Up 5 minutes", json!({}))
}

fn provider(product: &Product) -> Value {
    product.api("/api/providers")["providers"][0].clone()
}

fn endpoints(product: &Product) -> Vec<String> {
    let cluster = product.api("/api/clusters/site/endpoints");
    let list = cluster["endpoints"].as_array().expect("a list");
    list.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn endpoints_follow_containers_and_no_request_fails() {
    let [one, two] = [versatile(), versatile()];
    let engine = Engine::start(vec![plain("shop-site-1", &one)]);
    let product = Product::start(&engine.configuration());
    assert_eq!(product.get("/").status(), 200, "known before the first request");
    let load = Load::on(&product, 4);
    let starting = container("shop-site-2", two.address(), "Up 1 second (health: starting)", json!({}));
    let names = [one.address().to_string(), two.address().to_string()];
    for _ in 0..3 {
        engine.change(vec![plain("shop-site-1", &one), starting.clone()]);
        engine.change(vec![plain("shop-site-1", &one), plain("shop-site-2", &two)]);
        eventually("both are there", || endpoints(&product) == names);
        engine.change(vec![starting.clone(), plain("shop-site-1", &one)]);
        eventually("one is not healthy", || endpoints(&product) == names[..1]);
        engine.change(vec![plain("shop-site-2", &two)]);
        eventually("the other is there", || endpoints(&product) == names[1..]);
    }
    assert!(load.end() > 0);
    let known = engine.known.lock().expect("what is known");
    assert!(known.paths[0].starts_with("/events?filters=%7B%22"), "{:?}", known.paths);
    assert!(known.paths[1].starts_with("/containers/json?filters="), "{:?}", known.paths);
}

#[test]
fn an_engine_that_is_away_takes_nothing_and_is_followed_when_it_is_back() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let engine = Engine::start(vec![plain("a", &one)]);
    let product = Product::start(&engine.configuration());
    assert_eq!(product.get("/").text(), "one");
    engine.set_down(true);
    eventually("it is told", || provider(&product)["state"] == "away");
    assert_eq!(product.get("/").text(), "one");
    engine.known.lock().expect("what is known").containers = vec![plain("a", &two)];
    engine.set_down(false);
    eventually("it is followed", || product.get("/").text() == "two");
    eventually("it is up", || provider(&product)["state"] == "up");
}

#[test]
fn an_engine_that_says_nothing_before_its_first_event_is_followed() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let podman = |name: &str, origin: &Origin| {
        let mut one = plain(name, origin);
        // Podman 5.4 says neither.
        one["HostConfig"] = Value::Null;
        one["Ports"] = json!([]);
        one
    };
    let engine = Engine::start(vec![podman("a", &one)]);
    engine.known.lock().expect("what is known").is_podman = true;
    let product = Product::start(&engine.configuration());
    assert_eq!(product.get("/").text(), "one");
    assert_eq!(provider(&product)["state"], "up");
    for endpoint in [&two, &one, &two] {
        engine.change(vec![podman("a", endpoint)]);
        eventually("it is followed", || endpoints(&product) == [endpoint.address().to_string()]);
    }
    engine.set_down(true);
    eventually("it is told", || provider(&product)["state"] == "away");
    engine.set_down(false);
    eventually("it is up", || provider(&product)["state"] == "up");
}

#[test]
fn labels_make_routes_and_mistakes_in_them_are_told() {
    let (one, shop) = (Origin::saying("one"), Origin::saying("shop"));
    let engine = Engine::start(vec![plain("a", &one)]);
    let product = Product::start(&engine.configuration());
    assert_eq!(product.get("/shop").text(), "one");
    let labels = json!({ "equipoise.cluster": "shop", "equipoise.route.path": "/shop" });
    let routed = container("shop", shop.address(), "Up 5 minutes (healthy)", labels);
    let mut wrong = plain("wrong", &shop);
    wrong["Labels"]["equipoise.weight"] = json!("heavy");
    engine.change(vec![plain("a", &one), routed, wrong]);
    eventually("it is there", || product.get("/shop").text() == "shop");
    assert_eq!(endpoints(&product), [one.address().to_string()], "the other is left out");
    eventually("that is told", || product.stderr().contains("wrong: `equipoise.weight` is \\\"heavy\\\""));
    engine.change(vec![plain("a", &one)]);
    eventually("it is gone", || product.get("/shop").text() == "one");
}

#[test]
fn labels_of_a_route_that_cannot_be_hold_up_no_other_container() {
    let (one, two, shop) = (Origin::saying("one"), Origin::saying("two"), Origin::saying("shop"));
    let engine = Engine::start(vec![plain("a", &one)]);
    let product = Product::start(&engine.configuration());
    let labelled = |name: &str, labels: Value| container(name, shop.address(), "Up 5 minutes", labels);
    let shop_at = |path: &str| json!({ "equipoise.cluster": "shop", "equipoise.route.path": path });
    let wrong = json!({ "equipoise.cluster": "other", "equipoise.route.host": "a b" });
    let of_the_file = json!({ "equipoise.cluster": "site", "equipoise.route.path": "/site" });
    for (labels, told) in [
        (shop_at("nope"), "b: its labels do not form a route: "),
        (wrong, "b: its labels do not form a route: "),
        (of_the_file, "site:1:"),
    ] {
        let endpoint = [&one, &two][usize::from(product.get("/").text() == "one")];
        // What is right comes behind what is wrong, and has the same key.
        let right = labelled("c", shop_at("/shop"));
        engine.change(vec![plain("a", endpoint), labelled("b", labels), right]);
        eventually("it has moved", || endpoints(&product).contains(&endpoint.address().to_string()));
        eventually("the other is there", || product.get("/shop").text() == "shop");
        eventually("it is told", || {
            let left_out = provider(&product)["left_out"].clone();
            left_out
                .as_array()
                .is_some_and(|all| all.len() == 1 && all[0].as_str().is_some_and(|one| one.starts_with(told)))
        });
        assert!(provider(&product)["problems"].is_null());
        engine.change(vec![plain("a", endpoint)]);
        eventually("nothing is left out", || provider(&product)["left_out"] == json!([]));
    }
}

#[test]
fn labels_that_mean_nothing_are_told() {
    let one = Origin::saying("one");
    let labels = json!({ "equipoise.wieght": "3" });
    let mut other = plain("b", &one);
    other["Labels"]["equipoise.enable"] = json!("TRUE");
    let engine = Engine::start(vec![container("a", one.address(), "Up 5 minutes", labels), other]);
    let product = Product::start(&engine.configuration());
    assert_eq!(product.get("/").text(), "one");
    let first = "a: there is no label `equipoise.wieght`, it is ignored (did you mean `weight`?)";
    let second = "b: `equipoise.enable` is \"TRUE\", neither \"true\" nor \"false\"";
    eventually("they are told", || {
        let told = provider(&product)["left_out"].clone();
        let has = |wanted: &str| told.as_array().is_some_and(|all| all.iter().any(|one| one == wanted));
        has(first) && has(second)
    });
    let known = engine.known.lock().expect("what is known");
    assert!(known.paths.iter().any(|path| path.contains("equipoise.enable%22")), "{:?}", known.paths);
}
