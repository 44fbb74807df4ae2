//! A storm of changes: everything that can be changed changes, many times a second, while clients of all protocols work.
//!
//! No request fails, no tunnel closes, memory stays, and in the end what runs is what a fresh start with the last
//! configuration would run. [`changes`] picks the changes from a seed, [`clients`] are the load.
//!
//! Seconds and seed: `EQUIPOISE_STORM_SECONDS` (5 by default; `./test` gives it a minute) and `EQUIPOISE_STORM_SEED`.
//!
//! One after the other, each as soon as the one before is answered, so that all of them follow from the seed. For [`LONG`] and more, it
//! is a storm of its own that has to reach [`CHANGES_PER_SECOND`]: of a release build (`EQUIPOISE_BIN`), since a debug build on two cores
//! with all clients and endpoints beside it makes 28.

mod changes;
mod clients;
mod dice;
mod settings;
mod websocket;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::http2_origin::Http2Origin;
use super::harness::http3_origin::Http3Origin;
use super::harness::poll::{self, PATIENCE};
use super::harness::tls::Authority;
use super::harness::{Origin, Product, eventually, net, product, sys};
use changes::{Changes, SECRET, get};
use clients::{Clients, UdpEcho};
use dice::Dice;
use settings::Tongue;

/// What a long storm has to reach, as a mean over all of it.
const CHANGES_PER_SECOND: f64 = 50.;
/// What it aims at: those that are slow for once, and the looks at the clients, leave enough.
const STEP: Duration = Duration::from_millis(15);
/// Among the other tests there is no telling how much time there is; less than this would be no storm at all.
const CHANGES_PER_SECOND_AMONG_OTHERS: f64 = 2.;
/// From here on it is not among other tests.
const LONG: Duration = Duration::from_secs(30);
/// The clients are looked at after so many changes.
const LOOK: u32 = 50;
/// How much more memory may be in use at the end than after the first third: 2 to 7 MiB are seen.
const GROWTH_BYTES_MAX: u64 = 20 << 20;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A name with a hash, for which nobody comes.
const USERS: &str = "ann:$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM.\n";

/// What stands behind the product, and around it.
struct World {
    authority: Authority,
    sites: Vec<Origin>,
    by_tls: Vec<Origin>,
    by_http2: Vec<Http2Origin>,
    by_http2_tls: Vec<Http2Origin>,
    by_http3: Vec<Http3Origin>,
    echoes: Vec<Origin>,
    datagrams: Vec<UdpEcho>,
    agent: SocketAddr,
    /// Where listeners come and go whose clients know that.
    spares: Vec<SocketAddr>,
}

impl World {
    fn new() -> Self {
        let authority = Authority::new("the tests' own");
        Self {
            sites: (0..6).map(|_| clients::site()).collect(),
            by_tls: (0..3).map(|_| clients::site_tls(&authority)).collect(),
            by_http2: (0..3).map(|_| clients::site_http2(None)).collect(),
            by_http2_tls: (0..3).map(|_| clients::site_http2(Some(&authority))).collect(),
            by_http3: (0..3).map(|_| clients::site_http3(&authority)).collect(),
            echoes: (0..3).map(|_| Origin::echo()).collect(),
            datagrams: (0..3).map(|_| UdpEcho::start()).collect(),
            agent: clients::agent(),
            spares: (0..2).map(|_| net::free()).collect(),
            authority,
        }
    }

    /// The endpoints that are spoken to so.
    fn of(&self, tongue: Tongue) -> Vec<SocketAddr> {
        match tongue {
            Tongue::Plain => self.sites.iter().map(Origin::address).collect(),
            Tongue::Tls => self.by_tls.iter().map(Origin::address).collect(),
            Tongue::Http2 => self.by_http2.iter().map(Http2Origin::address).collect(),
            Tongue::Http2Tls => self.by_http2_tls.iter().map(Http2Origin::address).collect(),
            Tongue::Http3 => self.by_http3.iter().map(Http3Origin::address).collect(),
        }
    }

    fn echoes(&self) -> Vec<SocketAddr> {
        self.echoes.iter().map(Origin::address).collect()
    }

    fn datagrams(&self) -> Vec<SocketAddr> {
        self.datagrams.iter().map(UdpEcho::address).collect()
    }

    /// Writes the files that configurations name.
    fn write(&self, place: &Path) {
        self.issue(place, "a");
        self.issue(place, "b");
        self.authority.write(place, "clients.pem");
        for (name, text) in
            [("friends", "127.0.0.0/8\n"), ("users", USERS), ("page", "sorry\n"), ("found.yaml", "endpoints: {}\n")]
        {
            std::fs::write(place.join(name), text).expect("our folder");
        }
    }

    /// A new certificate for the name of all clients.
    fn issue(&self, place: &Path, name: &str) {
        self.authority.issue(&["shop.example"]).write(place, name);
    }

    fn configuration(&self) -> String {
        let listed = |addresses: &mut dyn Iterator<Item = std::net::SocketAddr>| {
            addresses.map(|address| format!("\"{address}\"")).collect::<Vec<_>>().join(", ")
        };
        let sites: Vec<String> = self.sites[..3]
            .iter()
            .map(|site| format!("{{ address: \"{}\", labels: {{ version: v1, route: any }} }}", site.address()))
            .collect();
        let sites = sites.join(", ");
        let echoes = listed(&mut self.echoes[..2].iter().map(Origin::address));
        let datagrams = listed(&mut self.datagrams[..2].iter().map(UdpEcho::address));
        format!(
            "version: 1
listeners:
  web: {{ bind: \"127.0.0.1:0\" }}
  secure:
    bind: \"127.0.0.1:0\"
    http_versions: [h1, h2, h3]
    tls: {{ certificates: [{{ chain: DIR/a.pem, key: DIR/a.key }}] }}
  stream: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: echo }}
  dns: {{ bind: \"127.0.0.1:0\", protocol: udp, cluster: datagrams }}
routes:
  - {{ name: main, cluster: site }}
clusters:
  site: {{ endpoints: [{sites}] }}
  echo: {{ endpoints: [{echoes}] }}
  datagrams: {{ endpoints: [{datagrams}] }}
admin: {{ bind: \"127.0.0.1:0\", tokens: [{{ name: storm, role: admin, token: {SECRET} }}] }}
access_logs: [{{ path: DIR/access.json, format: json }}]
providers: {{ found: {{ file: {{ path: DIR/found.yaml, interval: 50ms }} }} }}
zone: here
"
        )
    }
}

#[test]
fn a_storm_of_changes_fails_no_request_closes_no_tunnel_and_ends_where_a_fresh_start_would() {
    let seconds = number("EQUIPOISE_STORM_SECONDS", 5);
    let seed = number("EQUIPOISE_STORM_SEED", 20_261_122);
    println!("a storm of {seconds} s from seed {seed}, over {}", product::executable().display());
    let world = World::new();
    let folder = product::folder();
    world.write(folder.path());
    let place = folder.path().to_owned();
    let product = Product::start_in(folder, &world.configuration(), 2);
    let mut clients = Clients::start(&product, &world.authority, &world.spares);
    clients.all_go_on();
    let mut changes = Changes::new(&product, &world, &place, Dice::new(seed));
    let length = Duration::from_secs(seconds);
    let (took, memory) = blow(&product, &mut clients, &mut changes, length);
    let (applied, each_second) = (changes.applied(), f64::from(changes.applied()) / took.as_secs_f64());
    changes.finish();
    let done = clients.end();
    println!("{applied} changes in {:.1} s, {each_second:.1} each second:\n{}", took.as_secs_f64(), changes.told());
    for (kind, count) in &done {
        println!("{count:6} by {kind}");
        assert!(*count > 0, "{kind} did nothing");
    }
    let each: Vec<String> = memory.iter().map(|bytes| format!("{:.1}", *bytes as f64 / f64::from(1 << 20))).collect();
    println!("none of these failed; memory in MiB, after each sixth of the time: {}", each.join(", "));
    let grown = memory[memory.len() - 1].saturating_sub(memory[1]);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more than after the first third");
    let wanted = if length < LONG { CHANGES_PER_SECOND_AMONG_OTHERS } else { CHANGES_PER_SECOND };
    assert!(each_second >= wanted, "{each_second:.1} changes each second are no storm; it takes {wanted}");
    ends_like_a_fresh_start(&product, &place);
}

/// Makes changes for so long: how long it took to its end, and how much memory was in use after each sixth of that.
fn blow(product: &Product, clients: &mut Clients, changes: &mut Changes<'_>, length: Duration) -> (Duration, Vec<u64>) {
    let begin = Instant::now();
    let (mut memory, mut looked) = (Vec::new(), 0);
    while begin.elapsed() < length {
        changes.make();
        if changes.applied() >= looked + LOOK {
            // A client that stands still is a failure too, and is told while the change that did it is known.
            clients.go_on();
            looked = changes.applied();
        }
        if memory.len() < 5 && begin.elapsed() > length * (memory.len() as u32 + 1) / 6 {
            memory.push(sys::resident_bytes(product.pid()));
        }
        std::thread::sleep((STEP * changes.applied()).saturating_sub(begin.elapsed()));
    }
    let took = begin.elapsed();
    clients.all_go_on();
    memory.push(sys::resident_bytes(product.pid()));
    (took, memory)
}

/// What was said last, told to a program that has just started, gives what runs here.
fn ends_like_a_fresh_start(product: &Product, place: &Path) {
    let written = get(product, "/api/config?as=written");
    let folder = product::folder();
    for entry in std::fs::read_dir(place).expect("our folder").flatten() {
        let name = entry.file_name();
        if [".pem", ".key"].iter().any(|end| name.to_string_lossy().ends_with(end)) {
            std::fs::copy(entry.path(), folder.path().join(name)).expect("our folder");
        }
    }
    let written = written.to_string().replace("(hidden)", SECRET);
    let fresh = Product::start_in(folder, &written, 2);
    assert_eq!(get(product, "/api/config"), get(&fresh, "/api/config"), "the configuration in force");
    runs_the_same(product, &fresh);
    for asked in ["GET%20http://shop.example/", "GET%20http://shop.example/extra-1/x", "POST%20http://a.example/b?c=d"]
    {
        let path = format!("/api/explain?listener=web&request={asked}");
        assert_eq!(get(product, &path)["route"], get(&fresh, &path)["route"], "{asked}");
    }
    for asked in ["GET /", "GET /extra/x7", "GET /a?q=1", "OPTIONS /x5", "GET /redirect", "GET /respond", "POST /b"] {
        assert_eq!(answer(product, asked), answer(&fresh, asked), "{asked}");
    }
    // Nothing of what has come and gone is held: sockets of listeners, connections to endpoints that are out.
    eventually("as many descriptors as a fresh start, and some for connections that are kept", || {
        sys::descriptors(product.pid()) < sys::descriptors(fresh.pid()) + 60
    });
}

/// The same runs, and checks and ejections come to the same.
fn runs_the_same(product: &Product, fresh: &Product) {
    let begun = Instant::now();
    loop {
        let [here, there] = [product, fresh].map(|one| shape(&get(one, "/api/status")));
        if here == there {
            return;
        }
        let differ = [only_in(&here, &there), only_in(&there, &here)];
        assert!(begun.elapsed() < PATIENCE, "here, and not there, and the other way round: {differ:#?}");
        std::thread::sleep(poll::STEP);
    }
}

/// What workers make of a request, without what is another's each time.
fn answer(product: &Product, asked: &str) -> (u16, String, Vec<(String, String)>) {
    let request = format!(
        "{asked} HTTP/1.1\r\nHost: shop.example\r\nX-Number: 3\r\nOrigin: https://shop.example\r\nContent-Length: 0\r\n\r\n"
    );
    let mut answer = product.connect().ask(request);
    answer.fields.retain(|(name, _)| !["date", "set-cookie"].contains(&name.to_ascii_lowercase().as_str()));
    (answer.status(), answer.text(), answer.fields)
}

/// The listeners and clusters that are not the same in the other.
fn only_in(one: &Value, other: &Value) -> Vec<String> {
    let listed = |status: &Value, key: &str| status[key].as_array().cloned().unwrap_or_default();
    let missing = |key: &str| {
        let others = listed(other, key);
        listed(one, key).into_iter().filter(move |item| !others.contains(item)).map(|item| item.to_string())
    };
    missing("listeners").chain(missing("clusters")).collect()
}

/// Names and standings of what runs, without what depends on traffic.
fn shape(status: &Value) -> Value {
    match status {
        Value::Array(items) => {
            let mut shapes: Vec<Value> = items.iter().map(shape).collect();
            shapes.sort_by_key(Value::to_string);
            Value::Array(shapes)
        }
        Value::Object(map) => {
            let kept = [
                "listeners",
                "clusters",
                "endpoints",
                "name",
                "address",
                "weight",
                "protocol",
                "tls",
                "balance",
                "up",
                "standing",
                "health",
                "wish",
                "panics",
            ];
            let of = |(key, value): (&String, &Value)| {
                // Ports of listeners are chosen by the kernel.
                let is_port = key == "address" && map.contains_key("protocol");
                let is_kept = kept.contains(&key.as_str()) && !is_port;
                is_kept.then(|| (key.clone(), shape(value)))
            };
            Value::Object(map.iter().filter_map(of).collect())
        }
        other => other.clone(),
    }
}
