//! Endpoints and configuration from a real etcd.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::net::free;
use super::harness::origin::ok;
use super::harness::poll::{SECOND, half_within};
use super::harness::{Origin, Peer, Product, eventually, poll, sys, until};
use super::reload::{Load, versatile};

/// A real one.
pub(super) struct Etcd {
    folder: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    child: Option<Child>,
}

impl Etcd {
    pub(super) fn start() -> Self {
        let mut it = Self { folder: TempDir::new().expect("a folder"), client: free(), peer: free(), child: None };
        it.run();
        it
    }

    fn run(&mut self) {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.folder.path().join("data"));
        command.args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
            "--listen-peer-urls",
            &peer,
        ]);
        command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        // What is lost when the machine loses its power does not matter here.
        command.args(["--unsafe-no-fsync", "--logger=zap", "--log-level=error"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("the Debian package etcd-server, which ./test installs"));
        until("etcd answers", || {
            Peer::try_connect(self.client)?;
            self.try_call("/v3/kv/range", &json!({ "key": base64("x") }))
        });
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            sys::signal(child.id(), libc::SIGKILL);
            child.wait().expect("a child");
        }
    }

    fn try_call(&self, path: &str, body: &Value) -> Option<Value> {
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answer = Peer::connect(self.client).ask(head);
        (answer.status() == 200).then(|| serde_json::from_slice(&answer.body).expect("JSON"))
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        self.try_call(path, body).unwrap_or_else(|| panic!("{path} {body} is refused"))
    }

    pub(super) fn put(&self, key: &str, value: &str) {
        self.call("/v3/kv/put", &json!({ "key": base64(&format!("equipoise/{key}")), "value": base64(value) }));
    }

    fn delete(&self, key: &str) {
        self.call("/v3/kv/deleterange", &json!({ "key": base64(&format!("equipoise/{key}")) }));
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    fn configuration(&self) -> String {
        configuration(&[self.client])
    }
}

/// With members of an etcd at these addresses.
fn configuration(members: &[SocketAddr]) -> String {
    let urls: Vec<String> = members.iter().map(|member| format!("\"http://{member}\"")).collect();
    format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes: [{{ cluster: site }}]\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\nproviders: {{ store: {{ etcd: {{ urls: [{}] }} }} }}\n\
         clusters: {{ site: {{ endpoints: {{ from: store }} }} }}\n",
        urls.join(", ")
    )
}

/// Stands for a member of an etcd that knows one endpoint and does what a real one does not do when it is asked to.
struct Member {
    origin: Origin,
    does: Arc<Mutex<(&'static str, SocketAddr)>>,
}

impl Member {
    /// `well`: all that it should. `stalls`: it says nothing behind the head of an answer. `ends`: its watches end at once.
    fn start(does: &'static str, endpoint: SocketAddr) -> Self {
        let does = Arc::new(Mutex::new((does, endpoint)));
        let told = Arc::clone(&does);
        let origin = Origin::start(move |mut visit| {
            let Some(request) = visit.request() else { return };
            let now = || *told.lock().expect("a word");
            let (word, endpoint) = now();
            if request.target() == "/v3/watch" {
                let created = "{\"result\":{\"created\":true}}\n";
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                let _ = visit.peer.try_send(format!("{head}{:x}\r\n{created}\r\n", created.len()));
                while now().0 == "well" {
                    std::thread::sleep(poll::STEP);
                }
                return drop(visit.peer.try_send("0\r\n\r\n"));
            }
            let (key, value) = (base64("equipoise/endpoints/site/a"), base64(&endpoint.to_string()));
            let page = json!({ "header": { "revision": "5" }, "kvs": [{ "key": key, "value": value }] });
            let answer = ok(&page.to_string());
            if word == "stalls" {
                let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
                let _ = visit.peer.try_send(&answer[..head]);
                // Until the other side gives up.
                while visit.peer.fill().is_ok_and(|count| count > 0) {}
                return;
            }
            let _ = visit.peer.try_send(answer);
        });
        Self { origin, does }
    }

    fn set(&self, does: &'static str, endpoint: SocketAddr) {
        *self.does.lock().expect("a word") = (does, endpoint);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Whoever is watched ends.
        self.set("ends", self.origin.address());
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let symbol = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= three.len() { char::from(symbol) } else { '=' });
        }
    }
    out
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
fn endpoints_follow_keys_and_no_request_fails() {
    let origins = [versatile(), versatile()];
    let names = origins.each_ref().map(|origin| origin.address().to_string());
    let etcd = Etcd::start();
    etcd.put("endpoints/site/a", &names[0]);
    let product = Product::start(&etcd.configuration());
    assert_eq!(product.get("/").status(), 200, "known before the first request");
    let load = Load::on(&product, 4);
    for _ in 0..3 {
        etcd.put("endpoints/site/b", &format!("{{ \"address\": \"{}\", \"weight\": 3 }}", names[1]));
        eventually("both are there", || endpoints(&product) == names);
        etcd.delete("endpoints/site/a");
        eventually("one is there", || endpoints(&product) == names[1..]);
        etcd.put("endpoints/site/a", &names[0]);
        eventually("both are there", || endpoints(&product).len() == 2);
        etcd.delete("endpoints/site/b");
        eventually("the other is there", || endpoints(&product) == names[..1]);
    }
    assert!(load.end() > 0);
}

#[test]
fn another_value_of_a_key_is_felt_within_a_second() {
    let origins = [Origin::saying("one"), Origin::saying("two")];
    let etcd = Etcd::start();
    etcd.put("endpoints/site/a", &origins[0].address().to_string());
    let product = Product::start(&etcd.configuration());
    half_within(SECOND, "a change of a key", |number| {
        let now = (number + 1) % 2;
        let begun = Instant::now();
        etcd.put("endpoints/site/a", &origins[now].address().to_string());
        eventually("it is felt", || product.get("/").text() == ["one", "two"][now]);
        begun.elapsed()
    });
}

#[test]
fn what_hangs_on_a_lease_leaves_with_it() {
    let (here, leased) = (Origin::saying("here"), Origin::saying("leased"));
    let etcd = Etcd::start();
    etcd.put("endpoints/site/here", &here.address().to_string());
    let lease = etcd.call("/v3/lease/grant", &json!({ "TTL": 60 }))["ID"].clone();
    let (key, value) = (base64("equipoise/endpoints/site/leased"), base64(&leased.address().to_string()));
    etcd.call("/v3/kv/put", &json!({ "key": key, "value": value, "lease": lease }));
    let product = Product::start(&etcd.configuration());
    eventually("both are there", || endpoints(&product).len() == 2);
    etcd.call("/v3/lease/revoke", &json!({ "ID": lease }));
    eventually("one is there", || endpoints(&product) == [here.address().to_string()]);
}

#[test]
fn an_etcd_that_is_killed_takes_nothing_and_is_followed_when_it_is_back() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let mut etcd = Etcd::start();
    etcd.put("endpoints/site/a", &one.address().to_string());
    let product = Product::start(&etcd.configuration());
    assert_eq!(product.get("/").text(), "one");
    etcd.stop();
    eventually("it is told", || provider(&product)["state"] == "away");
    assert_eq!(product.get("/").text(), "one");
    etcd.run();
    etcd.put("endpoints/site/a", &two.address().to_string());
    eventually("it is followed", || product.get("/").text() == "two");
    eventually("it is up", || provider(&product)["state"] == "up");
}

#[test]
fn values_that_are_wrong_are_told_and_hold_up_no_others() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let [first, second] = [&one, &two].map(|origin| origin.address().to_string());
    let etcd = Etcd::start();
    etcd.put("endpoints/site/a", &one.address().to_string());
    let product = Product::start(&etcd.configuration());
    etcd.put("endpoints/site/b", "nowhere");
    let told = "the value of `endpoints/site/b`: `nowhere` is not an address with a port";
    eventually("it is told", || provider(&product)["left_out"] == json!([told]));
    product.expect_said(&["part of a provider's state is ignored", "endpoints/site/b"]);
    assert_eq!(provider(&product)["state"], "up");
    assert_eq!(endpoints(&product), std::slice::from_ref(&first));
    etcd.put("endpoints/site/c", &second);
    eventually("both are there", || endpoints(&product) == [first.clone(), second.clone()]);
    // What was right stays, also what only the code that reads whole lists finds wrong.
    etcd.put("endpoints/site/a", "{ \"address\": \"name:80\" }");
    eventually("both are told", || provider(&product)["left_out"].as_array().is_some_and(|all| all.len() == 2));
    etcd.delete("endpoints/site/c");
    eventually("one is there", || endpoints(&product) == [first.clone()]);
    assert_eq!(product.get("/").text(), "one");
    etcd.put("endpoints/site/a", &first);
    etcd.delete("endpoints/site/b");
    eventually("nothing is left out", || provider(&product)["left_out"] == json!([]));
}

/// Whether what is left out is told by these words, each in its place.
fn leaves_out(product: &Product, words: &[&str]) -> bool {
    let told = provider(product)["left_out"].clone();
    let told: Vec<&str> = told.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    told.len() == words.len() && told.iter().zip(words).all(|(told, word)| told.contains(word))
}

#[test]
fn texts_that_are_wrong_are_told_by_their_keys_and_hold_up_nothing() {
    let (one, two, shop) = (Origin::saying("one"), Origin::saying("two"), Origin::saying("shop"));
    let route = |name: &str, cluster: &str| {
        format!("routes: [{{ name: {name}, match: {{ path: {{ prefix: /{name} }} }}, cluster: {cluster} }}]")
    };
    let etcd = Etcd::start();
    etcd.put("endpoints/site/a", &one.address().to_string());
    etcd.put("config/bad", "routes: [");
    etcd.put("config/chain", &route("chain", "chained"));
    etcd.put("config/chained", "clusters: { chained: { endpoints: [nowhere] } }");
    let product = Product::start(&etcd.configuration());
    assert_eq!(product.get("/").text(), "one", "a start is not held up");
    eventually("they are told", || leaves_out(&product, &["config/bad:", "config/chain:1:", "config/chained:1:"]));
    product.expect_said(&["part of a provider's state is ignored", "config/bad:"]);
    assert_eq!(provider(&product)["state"], "up");
    assert!(provider(&product)["problems"].is_null());
    // What comes later is taken, and so is what leaves.
    etcd.put("endpoints/site/a", &two.address().to_string());
    eventually("it has moved", || product.get("/").text() == "two");
    etcd.put(
        "config/shop",
        &format!("{}\nclusters: {{ shop: {{ endpoints: [\"{}\"] }} }}", route("shop", "shop"), shop.address()),
    );
    eventually("it is there", || product.get("/shop").text() == "shop");
    // A name that somebody has, of the files, or of a key before it.
    for (key, value) in [
        ("config/site", "clusters: { site: { endpoints: [\"127.0.0.1:1\"] } }".to_owned()),
        ("config/twin", route("shop", "shop")),
        ("config/web", "listeners: { web: { bind: \"127.0.0.1:0\" } }".to_owned()),
    ] {
        etcd.put(key, &value);
        let words = ["config/bad:", "config/chain:1:", "config/chained:1:", key];
        eventually(key, || {
            let mut words = words.to_vec();
            words.sort_unstable();
            leaves_out(&product, &words)
        });
        etcd.delete(key);
        eventually("it is gone", || provider(&product)["left_out"].as_array().is_some_and(|all| all.len() == 3));
    }
    // What was right stays as it was.
    etcd.put("config/shop", "routes: nothing");
    etcd.put("endpoints/site/a", &one.address().to_string());
    eventually("it has moved", || product.get("/").text() == "one");
    eventually("it is told", || provider(&product)["left_out"].as_array().is_some_and(|all| all.len() == 4));
    assert_eq!(product.get("/shop").text(), "shop");
    etcd.delete("config/shop");
    eventually("it is gone", || product.get("/shop").text() == "one");
    for (key, value) in [
        ("config/bad", "routes: []".to_owned()),
        ("config/chained", format!("clusters: {{ chained: {{ endpoints: [\"{}\"] }} }}", shop.address())),
    ] {
        etcd.put(key, &value);
    }
    eventually("what hung on another comes with it", || product.get("/chain").text() == "shop");
    eventually("nothing is left out", || provider(&product)["left_out"] == json!([]));
}

#[test]
fn a_key_that_goes_and_is_needed_stays_until_it_is_not_and_holds_up_nothing() {
    let (one, two, pool) = (Origin::saying("one"), Origin::saying("two"), Origin::saying("pool"));
    let etcd = Etcd::start();
    etcd.put("endpoints/site/a", &one.address().to_string());
    etcd.put("config/pool", &format!("clusters: {{ pool: {{ endpoints: [\"{}\"] }} }}", pool.address()));
    let to_pool = "routes: [{ match: { path: { prefix: /pool } }, cluster: pool }, ";
    let product = Product::start(&etcd.configuration().replace("routes: [", to_pool));
    assert_eq!((product.get("/").text(), product.get("/pool").text()), ("one".to_owned(), "pool".to_owned()));
    etcd.delete("config/pool");
    etcd.put("endpoints/site/a", &two.address().to_string());
    eventually("it has moved", || product.get("/").text() == "two");
    assert_eq!(product.get("/pool").text(), "pool");
    eventually("it is told", || leaves_out(&product, &["config/pool: was taken away, and stays as it was: "]));
    product.expect_said(&["part of a provider's state is ignored", "needs the cluster `pool`"]);
    assert!(provider(&product)["problems"].is_null());
    product.reload(&etcd.configuration());
    eventually("it is gone", || product.get("/pool").text() == "two");
    eventually("nothing is left out", || provider(&product)["left_out"] == json!([]));
}

#[test]
fn routes_and_clusters_come_from_keys_too() {
    let (one, shop) = (Origin::saying("one"), Origin::saying("shop"));
    let etcd = Etcd::start();
    etcd.put("endpoints/site/a", &one.address().to_string());
    let product = Product::start(&etcd.configuration());
    assert_eq!(product.get("/shop").text(), "one");
    let text = format!(
        "routes:\n  - {{ name: shop, match: {{ path: {{ prefix: /shop }} }}, cluster: shop }}\nclusters:\n  shop: {{ endpoints: [\"{}\"] }}\n",
        shop.address()
    );
    etcd.put("config/shop", &text);
    eventually("it is there", || product.get("/shop").text() == "shop");
    assert_eq!(product.get("/").text(), "one");
    etcd.delete("config/shop");
    eventually("it is gone", || product.get("/shop").text() == "one");
}

#[test]
fn an_answer_that_does_not_end_is_given_up_and_asked_for_again() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let member = Member::start("well", one.address());
    let text = configuration(&[member.origin.address()]).replace("etcd: {", "etcd: { timeout: 3s,");
    let product = Product::start(&text);
    assert_eq!(product.get("/").text(), "one");
    member.set("stalls", two.address());
    eventually("it is told", || provider(&product)["reason"] == "the response does not end");
    assert_eq!(product.get("/").text(), "one");
    member.set("well", two.address());
    eventually("it is followed", || product.get("/").text() == "two");
    eventually("it is up", || provider(&product)["state"] == "up");
}

#[test]
fn members_whose_watches_end_at_once_are_asked_again_after_a_pause_each_in_its_turn() {
    let one = Origin::saying("one");
    let begun = Instant::now();
    let members = [(); 2].map(|()| Member::start("ends", one.address()));
    let product = Product::start(&configuration(&members.each_ref().map(|member| member.origin.address())));
    assert_eq!(product.get("/").text(), "one");
    let watches = |member: &Member| {
        let requests = member.origin.requests();
        requests.iter().filter(|request| request.target() == "/v3/watch").count()
    };
    eventually("they are asked again", || members.iter().map(watches).sum::<usize>() >= 4);
    // Three pauses of three quarters of a second at least.
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(members.iter().all(|member| watches(member) > 0));
    assert_eq!(product.get("/").text(), "one");
}
