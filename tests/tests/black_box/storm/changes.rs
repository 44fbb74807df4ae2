//! Changes of everything that can be changed, picked from a seed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::harness::Product;
use super::World;
use super::dice::Dice;
use super::settings::{self, Tongue};

/// What signs cookies and opens the API, which never tells it.
pub(super) const SECRET: &str = "0123456789abcdef0123456789abcdef";
const AUTHORIZATION: &str = "Authorization: Bearer 0123456789abcdef0123456789abcdef";
const JSON: &str = "Content-Type: application/json";

/// Changes that are told of when a client fails: those since the clients were last looked at, and some more.
const LAST_MAX: usize = 2 * super::LOOK as usize;

/// What the API answers.
pub(super) fn get(product: &Product, path: &str) -> Value {
    let answer = product.call(&format!("GET {path}"), &[AUTHORIZATION], "");
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.text()))
}

/// How many of all changes are of a kind, its name, and what makes one.
type Kind<'a> = (usize, &'static str, fn(&mut Changes<'a>));

/// Changes of one kind: how many were made, how many were tried, and how long that took in all.
#[derive(Default)]
struct Tally {
    applied: u32,
    tried: u32,
    took: Duration,
}

/// Who makes changes, and what was said so far.
pub(super) struct Changes<'a> {
    product: &'a Product,
    world: &'a World,
    place: PathBuf,
    dice: Dice,
    sites: Vec<SocketAddr>,
    /// The last ones, for who has to find out which one did harm.
    last: Vec<String>,
    applied: u32,
    /// By kind.
    made: BTreeMap<&'static str, Tally>,
    /// What there was in those, by name.
    held: BTreeMap<String, usize>,
    /// As they should be, by why.
    refused: BTreeMap<&'static str, u32>,
}

impl Drop for Changes<'_> {
    /// Whoever has to find out why a client failed wants to know what was changed, and what the records say.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        println!("the last changes: {:#?}", self.last);
        let records = std::fs::read_to_string(self.place.join("access.json")).unwrap_or_default();
        for record in records.lines().rev().filter(|record| !record.contains(r#""flag":null"#)).take(5) {
            println!("{record}");
        }
    }
}

impl<'a> Changes<'a> {
    pub(super) fn new(product: &'a Product, world: &'a World, place: &Path, dice: Dice) -> Self {
        let sites = world.of(Tongue::Plain);
        Self {
            product,
            world,
            place: place.to_owned(),
            dice,
            sites,
            last: Vec::new(),
            applied: 0,
            made: BTreeMap::new(),
            held: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// How many changes were made so far, without those that were refused or found nothing to change.
    pub(super) fn applied(&self) -> u32 {
        self.applied
    }

    /// Every kind, and how many of 32 changes are of it.
    fn kinds() -> [Kind<'a>; 23] {
        [
            (4, "cluster of requests", Self::cluster_of_sites),
            (1, "cluster of TCP", Self::cluster_of_streams),
            (1, "cluster of UDP", Self::cluster_of_datagrams),
            (3, "routes and filters", Self::routes),
            (1, "listener in clear", |all| all.listener("web", settings::web)),
            (1, "listener by TLS and QUIC", |all| all.listener("secure", settings::secure)),
            (1, "listener of TCP", |all| all.listener("stream", settings::stream)),
            (1, "listener of UDP", |all| all.listener("dns", |dice, _| settings::dns(dice))),
            (1, "listeners that nobody uses", Self::other_listeners),
            (3, "listeners that become others", Self::spare_listeners),
            (1, "weight of an endpoint", Self::weight),
            (2, "wish for an endpoint", Self::wish),
            (1, "rollback", Self::go_back),
            (1, "mistake", Self::mistake),
            (1, "level of the log", Self::log_level),
            (1, "file, and its reload", Self::reload),
            (1, "access logs", Self::access_logs),
            (2, "clusters that nobody uses", Self::other_clusters),
            (1, "certificates and lists in files", Self::files),
            (1, "what is said once for all", Self::whole),
            (1, "provider", Self::found),
            (1, "canary", Self::canary),
            (1, "all back to the file", Self::take_all_back),
        ]
    }

    /// Makes one change, and waits until it is answered.
    pub(super) fn make(&mut self) {
        let kinds = Self::kinds();
        let mut left = self.dice.below(kinds.iter().map(|(share, ..)| share).sum());
        for (share, kind, change) in kinds {
            if left < share {
                return self.make_one(kind, change);
            }
            left -= share;
        }
    }

    fn make_one(&mut self, kind: &'static str, change: fn(&mut Self)) {
        let (before, begun) = (self.applied, Instant::now());
        change(self);
        let tally = self.made.entry(kind).or_default();
        tally.applied += self.applied - before;
        tally.tried += 1;
        tally.took += begun.elapsed();
    }

    /// Notes what was in a change.
    fn holds(&mut self, count: usize, what: impl Into<String>) {
        *self.held.entry(what.into()).or_default() += count;
    }

    /// What was changed, how often, and how long one took; what was among it; what was refused.
    pub(super) fn told(&self) -> String {
        let mut text = String::new();
        for (kind, tally) in self.made.iter().filter(|(_, tally)| tally.applied > 0) {
            let each = tally.took.as_secs_f64() * 1000. / f64::from(tally.tried);
            text += &format!("{:6} {kind}, {each:.1} ms each\n", tally.applied);
        }
        let held: Vec<String> = self.held.iter().map(|(what, count)| format!("{count} {what}")).collect();
        let refused: Vec<String> = self.refused.iter().map(|(why, count)| format!("{count} {why}")).collect();
        text + &format!("among them: {}\nrefused, as they should be: {}", held.join(", "), refused.join(", "))
    }

    /// Takes back what is no configuration.
    pub(super) fn finish(&mut self) {
        for address in self.sites.clone() {
            self.wishes(address, "ready");
        }
        // A fresh start beside this program cannot have their addresses.
        for name in ["spare-0", "spare-1", "other-2"] {
            self.take_out(&format!("/api/config/listeners/{name}"));
        }
    }

    fn call(&mut self, request: &str, body: &Value) -> (u16, String) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.last.push(format!("{request} {text}"));
        if self.last.len() > LAST_MAX {
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

    fn cluster_of_sites(&mut self) {
        let cluster = self.site();
        self.done("PUT /api/config/clusters/site", &cluster);
    }

    fn site(&mut self) -> Value {
        let tongue = *self.dice.pick(&[
            Tongue::Plain,
            Tongue::Plain,
            Tongue::Plain,
            Tongue::Tls,
            Tongue::Http2,
            Tongue::Http2Tls,
            Tongue::Http3,
        ]);
        self.holds(1, format!("clusters over {}", tongue.name()));
        settings::site(&mut self.dice, tongue, &self.world.of(tongue), self.world.agent)
    }

    fn cluster_of_streams(&mut self) {
        let cluster = settings::of_bytes(&mut self.dice, &self.world.echoes(), false);
        self.done("PUT /api/config/clusters/echo", &cluster);
    }

    fn cluster_of_datagrams(&mut self) {
        let cluster = settings::of_bytes(&mut self.dice, &self.world.datagrams(), true);
        self.done("PUT /api/config/clusters/datagrams", &cluster);
    }

    /// The route that all go by, with steps of chance, among others that come and go.
    fn routes(&mut self) {
        let main = settings::forwarding(&mut self.dice, "main", &self.place, self.applied);
        self.holds(settings::filters_of(&main), "filters");
        if self.dice.coin() {
            return self.done("PUT /api/config/routes/main", &main);
        }
        let mut routes = settings::others(&mut self.dice, &self.place, self.applied);
        self.holds(routes.iter().map(settings::filters_of).sum(), "filters");
        routes.push(main);
        self.edit(|config| config["routes"] = Value::Array(routes));
    }

    /// As somebody does who gets all of it, edits it, and puts it back.
    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut config = get(self.product, "/api/config?as=written");
        change(&mut config);
        self.done("PUT /api/config", &config);
    }

    fn listener(&mut self, name: &str, of: impl FnOnce(&mut Dice, &Path) -> Value) {
        let listener = of(&mut self.dice, &self.place);
        self.holds(1, settings::speaks(&listener));
        self.done(&format!("PUT /api/config/listeners/{name}"), &listener);
    }

    /// Takes an object out that may not be there.
    fn take_out(&mut self, path: &str) {
        let (status, _) = self.call(&format!("DELETE {path}"), &Value::Null);
        assert!([200, 404].contains(&status), "{status}: {:#?}", self.last);
        self.applied += u32::from(status == 200);
    }

    /// Listeners at ports that stay become others: of another protocol, another version, by TLS or not, at all addresses or at one.
    fn spare_listeners(&mut self) {
        let number = self.dice.below(self.world.spares.len());
        let path = format!("/api/config/listeners/spare-{number}");
        if self.dice.below(4) == 0 {
            return self.take_out(&path);
        }
        let listener = settings::spare(&mut self.dice, &self.place, self.world.spares[number].port());
        self.holds(1, settings::speaks(&listener));
        let (status, text) = self.call(&format!("PUT {path}"), &listener);
        if status != 200 && text.contains("HTTP/3 connections that started there are still open") {
            *self.refused.entry("datagrams where connections of HTTP/3 are").or_default() += 1;
            return;
        }
        assert_eq!(status, 200, "{text}\nthe last changes: {:#?}", self.last);
        self.applied += 1;
    }

    /// Listeners that nobody uses come and go, of each kind.
    fn other_listeners(&mut self) {
        let number = self.dice.below(4);
        let path = format!("/api/config/listeners/other-{number}");
        if self.dice.coin() {
            return self.take_out(&path);
        }
        let listener = match number {
            0 => settings::stream(&mut self.dice, &self.place),
            1 => settings::dns(&mut self.dice),
            2 => {
                json!({ "bind": format!("unix:{}", self.place.join("socket").display()), "socket": { "mode": "0600" } })
            }
            _ => settings::secure(&mut self.dice, &self.place),
        };
        self.done(&format!("PUT {path}"), &listener);
    }

    /// Clusters that nobody uses come and go, with probes of their own.
    fn other_clusters(&mut self) {
        let path = format!("/api/config/clusters/other-{}", self.dice.below(3));
        if self.dice.coin() {
            return self.take_out(&path);
        }
        let mut cluster = self.site();
        cluster["health_check"] = json!({ "tcp": {}, "interval": "50ms", "start": "held_out" });
        if cluster["http_versions"] == json!(["h3"]) {
            cluster["health_check"] = json!({ "http": {}, "interval": "50ms", "start": "held_out" });
        }
        self.done(&format!("PUT {path}"), &cluster);
    }

    /// The records of requests go to other places, in other forms.
    fn access_logs(&mut self) {
        let line = *self.dice.pick(&["{status} {uri}", "{time} {endpoint} {pick}"]);
        let mut logs = vec![json!({ "path": self.place.join("access.json"), "format": "json" })];
        if self.dice.coin() {
            logs.push(json!({ "path": self.place.join("access.log"), "line": line }));
        }
        if self.dice.coin() {
            let style = *self.dice.pick(&["rfc3164", "rfc5424"]);
            let to = format!("udp:{}", self.world.datagrams()[0]);
            logs.push(json!({ "syslog": { "to": to, "style": style, "facility": "local3" }, "format": "json" }));
        }
        self.edit(|config| config["access_logs"] = Value::Array(logs));
    }

    /// What files say that the configuration names.
    fn files(&mut self) {
        let file = self.dice.below(5);
        self.holds(usize::from(file < 2), "new certificates");
        match file {
            0 => self.world.issue(&self.place, "a"),
            1 => self.world.issue(&self.place, "b"),
            2 => self.write("friends", "127.0.0.0/8 # all of them\n"),
            3 => self.write("users", super::USERS),
            _ => self.write("page", "sorry: {status}\n"),
        }
        self.applied += 1;
    }

    fn write(&mut self, name: &str, text: &str) {
        let remark = if name == "page" { format!("{}\n", self.applied) } else { format!("# {}\n", self.applied) };
        // At once, as whoever writes such files should.
        let fresh = self.place.join("fresh");
        std::fs::write(&fresh, format!("{text}{remark}")).expect("our folder");
        std::fs::rename(fresh, self.place.join(name)).expect("our folder");
    }

    /// What is said once for all.
    fn whole(&mut self) {
        let zone = *self.dice.pick(&["here", "there"]);
        let seconds = self.dice.below(50) + 5;
        self.edit(|config| {
            config["zone"] = json!(zone);
            config["shutdown"] = json!({ "drain_timeout": format!("{seconds}s"), "upgrade_timeout": "40s" });
        });
    }

    /// A provider gives the endpoints of a cluster, and other ones later.
    fn found(&mut self) {
        let sites = self.sites.clone();
        let endpoints = settings::endpoints(&mut self.dice, &sites);
        let fresh = self.place.join("fresh");
        std::fs::write(&fresh, json!({ "endpoints": { "other-3": endpoints } }).to_string()).expect("our folder");
        std::fs::rename(fresh, self.place.join("found.yaml")).expect("our folder");
        let is_wanted = self.dice.below(3) > 0;
        let path = "/api/config/clusters/other-3";
        match is_wanted {
            true => self.done(&format!("PUT {path}"), &json!({ "endpoints": { "from": "found" } })),
            false => self.take_out(path),
        }
    }

    /// A cluster is tried on some of the traffic, and then comes into force or goes.
    fn canary(&mut self) {
        let cluster = self.site();
        let request = "PUT /api/config/clusters/site?canary=50%25&for=1m&errors_max=100&latency_max=10000";
        let (status, text) = self.call(request, &cluster);
        if status == 409 && text.contains("certificates or lists of listeners have just changed") {
            *self.refused.entry("canaries with files that are not in force yet").or_default() += 1;
            return;
        }
        assert_eq!(status, 200, "{text}\nthe last changes: {:#?}", self.last);
        self.applied += 1;
        for _ in 0..3 {
            get(self.product, "/api/canary");
        }
        let (status, text) = match self.dice.coin() {
            true => self.call("POST /api/canary/promote", &Value::Null),
            false => self.call("DELETE /api/canary", &Value::Null),
        };
        // A certificate or a provider may have had something new meanwhile, and the file too.
        assert!([200, 404, 409].contains(&status), "{status} {text}: {:#?}", self.last);
    }

    fn weight(&mut self) {
        let (address, weight) = (self.sites[0], self.dice.below(100) + 1);
        let request = format!("PUT /api/clusters/site/endpoints/{address}/weight");
        let (status, text) = self.call(&request, &json!({ "weight": weight }));
        // The cluster may have others just now.
        assert!([200, 404].contains(&status), "{status} {text}: {:#?}", self.last);
        self.applied += u32::from(status == 200);
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
        *self.refused.entry("mistakes").or_default() += 1;
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
        let (seconds, watch) = (self.dice.below(50) + 5, self.dice.coin());
        let text = format!("{kept}shutdown: {{ drain_timeout: {seconds}s }}\nwatch: {watch}\n");
        std::fs::write(&path, text).expect("our file");
        self.done("POST /api/reload", &Value::Null);
    }

    /// What the files say, and nothing else.
    fn take_all_back(&mut self) {
        self.done("DELETE /api/config", &Value::Null);
    }
}
