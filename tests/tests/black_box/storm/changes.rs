//! Changes of everything that can be changed, picked from a seed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::harness::{Origin, Product};
use super::World;
use super::clients::UdpEcho;

/// What signs cookies and opens the API, which never tells it.
pub(super) const SECRET: &str = "0123456789abcdef0123456789abcdef";
const AUTHORIZATION: &str = "Authorization: Bearer 0123456789abcdef0123456789abcdef";
const JSON: &str = "Content-Type: application/json";

/// What the API answers.
pub(super) fn get(product: &Product, path: &str) -> Value {
    let answer = product.call(&format!("GET {path}"), &[AUTHORIZATION], "");
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.text()))
}

/// Chance from a seed (splitmix64).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Who makes changes, and what was said so far.
pub(super) struct Changes<'a> {
    product: &'a Product,
    place: PathBuf,
    dice: Dice,
    sites: Vec<SocketAddr>,
    echoes: Vec<SocketAddr>,
    datagrams: Vec<SocketAddr>,
    /// The last ones, for who has to find out which one did harm.
    last: Vec<String>,
    applied: u32,
    refused: u32,
}

impl<'a> Changes<'a> {
    pub(super) fn new(product: &'a Product, world: &World, place: &Path, dice: Dice) -> Self {
        Self {
            product,
            place: place.to_owned(),
            dice,
            sites: world.sites.iter().map(Origin::address).collect(),
            echoes: world.echoes.iter().map(Origin::address).collect(),
            datagrams: world.datagrams.iter().map(UdpEcho::address).collect(),
            last: Vec::new(),
            applied: 0,
            refused: 0,
        }
    }

    /// Makes one change.
    pub(super) fn make(&mut self) {
        match self.dice.below(22) {
            0..=2 => self.cluster_of_sites(),
            3 => self.cluster_of_streams(),
            4 => self.cluster_of_datagrams(),
            5..=7 => self.routes(),
            8 => self.listener_web(),
            9 => self.listener_secure(),
            10 => self.other_listeners(),
            11..=12 => self.weight(),
            13..=14 => self.wish(),
            15 => self.go_back(),
            16 => self.mistake(),
            17 => self.log_level(),
            18 => self.reload(),
            19 => self.access_logs(),
            20 => self.other_clusters(),
            _ => self.take_all_back(),
        }
    }

    /// Takes back what is no configuration; how many changes were made, and how many were refused.
    pub(super) fn finish(mut self) -> (u32, u32) {
        for address in self.sites.clone() {
            self.wishes(address, "ready");
        }
        (self.applied, self.refused)
    }

    fn call(&mut self, request: &str, body: &Value) -> (u16, String) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.last.push(format!("{request} {text}"));
        if self.last.len() > 8 {
            self.last.remove(0);
        }
        let answer = self.product.call(request, &[JSON, "If-Match: *", AUTHORIZATION], &text);
        (answer.status(), answer.text())
    }

    fn done(&mut self, request: &str, body: &Value) {
        let (status, text) = self.call(request, body);
        assert_eq!(status, 200, "{text}\nthe last changes: {:#?}", self.last);
        self.applied += 1;
    }

    /// Some of these, one at least, with weights. The first always, so that no cluster is ever without one.
    fn some(&mut self, addresses: &[SocketAddr]) -> Vec<Value> {
        let mut list = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            if index == 0 || self.dice.coin() {
                list.push(json!({ "address": address.to_string(), "weight": self.dice.below(9) + 1 }));
            }
        }
        list
    }

    fn cluster_of_sites(&mut self) {
        let sites = self.sites.clone();
        let balances = ["round_robin", "least_request", "random", "peak_ewma", "power_of_two"];
        let mut cluster = json!({ "endpoints": self.some(&sites), "balance": *self.dice.pick(&balances) });
        if self.dice.coin() {
            cluster["health_check"] = json!({ "http": { "path": "/healthz" }, "interval": "100ms" });
        }
        if self.dice.coin() {
            cluster["retry"] = json!({ "attempts_max": self.dice.below(3) + 2 });
        }
        if self.dice.coin() {
            cluster["queue"] = json!({ "requests_max": 1000, "timeout": "20s" });
            cluster["requests_max"] = json!(self.dice.below(20) + 4);
        }
        if self.dice.coin() {
            cluster["timeouts"] = json!({ "connect": format!("{}s", self.dice.below(5) + 5) });
        }
        if self.dice.coin() {
            cluster["pool"] = json!({ "idle_max": self.dice.below(4) });
        }
        if self.dice.coin() {
            cluster["persistence"] = json!({ "cookie": { "name": "stay", "secret": SECRET } });
        }
        self.done("PUT /api/config/clusters/site", &cluster);
    }

    fn cluster_of_streams(&mut self) {
        let echoes = self.echoes.clone();
        let cluster = json!({ "endpoints": self.some(&echoes), "timeouts": { "connect": "9s" } });
        self.done("PUT /api/config/clusters/echo", &cluster);
    }

    fn cluster_of_datagrams(&mut self) {
        let datagrams = self.datagrams.clone();
        let cluster = json!({ "endpoints": self.some(&datagrams) });
        self.done("PUT /api/config/clusters/datagrams", &cluster);
    }

    /// The route that all go by, with steps of chance, among others that come and go.
    fn routes(&mut self) {
        let mut routes = Vec::new();
        for number in 0..self.dice.below(6) {
            let name = format!("extra-{number}");
            routes.push(
                json!({ "name": name, "match": { "path": { "prefix": format!("/{name}") } }, "cluster": "site" }),
            );
        }
        let mut main = json!({ "name": "main", "cluster": "site" });
        let mut steps = Vec::new();
        if self.dice.coin() {
            steps.push(json!({ "set_response_header": { "x-generation": self.applied.to_string() } }));
        }
        if self.dice.coin() {
            steps.push(json!({ "set_request_header": { "x-storm": "{client_ip}" } }));
        }
        if self.dice.coin() {
            steps.push(json!({ "rewrite": { "path": { "prefix": { "from": "/", "to": format!("/{}", self.dice.below(9)) } } } }));
            main["match"] = json!({ "path": { "prefix": "/" } });
        }
        if self.dice.coin() {
            steps.push(json!({ "cors": { "allow_origins": ["https://shop.example"] } }));
        }
        main["filters"] = Value::Array(steps);
        if self.dice.coin() {
            main["timeout"] = json!(format!("{}s", self.dice.below(20) + 20));
        }
        routes.push(main);
        if self.dice.coin() {
            let main = routes.pop().unwrap_or_default();
            return self.done("PUT /api/config/routes/main", &main);
        }
        // As somebody does who gets all of it, edits it, and puts it back.
        let mut config = get(self.product, "/api/config?as=written");
        config["routes"] = Value::Array(routes);
        self.done("PUT /api/config", &config);
    }

    fn listener_web(&mut self) {
        let listener = json!({
            "bind": "127.0.0.1:0",
            "timeouts": { "idle": format!("{}s", self.dice.below(30) + 60) },
            "head_bytes_max": format!("{}KiB", self.dice.below(16) + 16),
        });
        self.done("PUT /api/config/listeners/web", &listener);
    }

    /// Another certificate, or the old one; either is one that clients trust.
    fn listener_secure(&mut self) {
        let name = *self.dice.pick(&["a", "b"]);
        let [chain, key] = ["pem", "key"].map(|end| self.place.join(format!("{name}.{end}")));
        let listener = json!({
            "bind": "127.0.0.1:0",
            "http_versions": ["h1", "h2", "h3"],
            "tls": { "certificates": [{ "chain": chain, "key": key }] },
            "timeouts": { "idle": format!("{}s", self.dice.below(30) + 60) },
        });
        self.done("PUT /api/config/listeners/secure", &listener);
    }

    /// Listeners that nobody uses come and go, of each kind.
    fn other_listeners(&mut self) {
        let number = self.dice.below(4);
        let path = format!("/api/config/listeners/other-{number}");
        if self.dice.coin() {
            let (status, _) = self.call(&format!("DELETE {path}"), &Value::Null);
            assert!([200, 404].contains(&status), "{status}: {:#?}", self.last);
            self.applied += u32::from(status == 200);
            return;
        }
        let listener = match number {
            0 => json!({ "bind": "127.0.0.1:0", "protocol": "tcp", "cluster": "echo" }),
            1 => json!({ "bind": "127.0.0.1:0", "protocol": "udp", "cluster": "datagrams" }),
            _ => json!({ "bind": "127.0.0.1:0", "connections_max": self.dice.below(500) + 1 }),
        };
        self.done(&format!("PUT {path}"), &listener);
    }

    /// Clusters that nobody uses come and go, with probes of their own.
    fn other_clusters(&mut self) {
        let path = format!("/api/config/clusters/other-{}", self.dice.below(3));
        if self.dice.coin() {
            let (status, _) = self.call(&format!("DELETE {path}"), &Value::Null);
            assert!([200, 404].contains(&status), "{status}: {:#?}", self.last);
            self.applied += u32::from(status == 200);
            return;
        }
        let sites = self.sites.clone();
        let cluster = json!({ "endpoints": self.some(&sites), "health_check": { "tcp": {}, "interval": "50ms" } });
        self.done(&format!("PUT {path}"), &cluster);
    }

    /// The records of requests go to other files, in other forms.
    fn access_logs(&mut self) {
        let mut config = get(self.product, "/api/config?as=written");
        let line = *self.dice.pick(&["{status} {uri}", "{time} {endpoint} {pick}"]);
        let mut logs = vec![json!({ "path": self.place.join("access.json"), "format": "json" })];
        if self.dice.coin() {
            logs.push(json!({ "path": self.place.join("access.log"), "line": line }));
        }
        config["access_logs"] = Value::Array(logs);
        self.done("PUT /api/config", &config);
    }

    fn weight(&mut self) {
        let (address, weight) = (self.sites[0], self.dice.below(100) + 1);
        self.done(&format!("PUT /api/clusters/site/endpoints/{address}/weight"), &json!({ "weight": weight }));
    }

    /// What somebody who works on an endpoint asks for; never of the first, so that one is always there.
    fn wish(&mut self) {
        let address = self.sites[1 + self.dice.below(self.sites.len() - 1)];
        let state = *self.dice.pick(&["drain", "maintenance", "ready", "ready", "up"]);
        self.wishes(address, state);
    }

    fn wishes(&mut self, address: SocketAddr, state: &str) {
        let request = format!("PUT /api/clusters/site/endpoints/{address}/state");
        let (status, text) = self.call(&request, &json!({ "state": state }));
        // It may be out just now.
        assert!([200, 404].contains(&status), "{status} {text}: {:#?}", self.last);
        self.applied += u32::from(status == 200);
    }

    fn go_back(&mut self) {
        let history = get(self.product, "/api/generations?limit=20");
        let all = history["generations"].as_array().expect("a list");
        let newest = all.len().min(10);
        let chosen = all[self.dice.below(newest)]["generation"].as_u64().expect("a number");
        self.done(&format!("POST /api/generations/{chosen}/rollback"), &Value::Null);
    }

    /// Mistakes are refused and change nothing, which the clients see.
    fn mistake(&mut self) {
        let bad = [
            ("PUT /api/config/clusters/site", json!({ "endpoints": ["no address"] })),
            ("PUT /api/config/clusters/site", json!({ "endpionts": [] })),
            ("PUT /api/config/routes/main", json!({ "cluster": "nobody" })),
            ("PUT /api/config/listeners/web", json!({ "bind": "here" })),
            ("PUT /api/config", json!({ "version": 2 })),
            ("DELETE /api/config/clusters/site", Value::Null),
        ];
        let (request, body) = &bad[self.dice.below(bad.len())];
        let (status, text) = self.call(request, body);
        assert_eq!(status, 422, "{request}: {text}");
        self.refused += 1;
    }

    fn log_level(&mut self) {
        let level = *self.dice.pick(&["info", "warn", "error"]);
        self.done("PUT /api/log", &json!({ "level": level }));
    }

    /// The file is read again, with another line in it.
    fn reload(&mut self) {
        let path = self.place.join("equipoise.yaml");
        let text = std::fs::read_to_string(&path).expect("our file");
        let kept = text.split("shutdown:").next().expect("a beginning");
        let text = format!("{kept}shutdown: {{ drain_timeout: {}s }}\n", self.dice.below(50) + 5);
        std::fs::write(&path, text).expect("our file");
        self.done("POST /api/reload", &Value::Null);
    }

    /// What the files say, and nothing else.
    fn take_all_back(&mut self) {
        self.done("DELETE /api/config", &Value::Null);
    }
}
