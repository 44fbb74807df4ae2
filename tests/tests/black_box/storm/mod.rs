//! A storm of changes: everything that can be changed changes, many times a second, while clients of all protocols work.
//!
//! No request fails, no tunnel closes, memory stays, and in the end what runs is what a fresh start with the last
//! configuration would run. [`changes`] picks the changes from a seed, [`clients`] are the load.
//!
//! Seconds and seed: `EQUIPOISE_STORM_SECONDS` (5 by default; `./test` gives it a minute) and `EQUIPOISE_STORM_SEED`.

mod changes;
mod clients;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::tls::Authority;
use super::harness::{Origin, Product, eventually, product, sys};
use changes::{Changes, Dice, SECRET, get};
use clients::{Clients, UdpEcho};

/// Changes are this far apart.
const STEP: Duration = Duration::from_millis(20);
/// How much more memory may be in use at the end than after the first third. The history of changes fills meanwhile.
const GROWTH_BYTES_MAX: u64 = 40 << 20;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// What stands behind the product.
struct World {
    sites: Vec<Origin>,
    echoes: Vec<Origin>,
    datagrams: Vec<UdpEcho>,
}

impl World {
    fn new() -> Self {
        Self {
            sites: (0..6).map(|_| clients::site()).collect(),
            echoes: (0..3).map(|_| Origin::echo()).collect(),
            datagrams: (0..3).map(|_| UdpEcho::start()).collect(),
        }
    }

    fn configuration(&self) -> String {
        let listed = |addresses: &mut dyn Iterator<Item = std::net::SocketAddr>| {
            addresses.map(|address| format!("\"{address}\"")).collect::<Vec<_>>().join(", ")
        };
        let sites = listed(&mut self.sites[..3].iter().map(Origin::address));
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
"
        )
    }
}

#[test]
fn a_storm_of_changes_fails_no_request_closes_no_tunnel_and_ends_where_a_fresh_start_would() {
    let seconds = number("EQUIPOISE_STORM_SECONDS", 5);
    let seed = number("EQUIPOISE_STORM_SEED", 20_261_122);
    println!("a storm of {seconds} s from seed {seed}");
    let world = World::new();
    let authority = Authority::new("the tests' own");
    let folder = product::folder();
    for name in ["a", "b"] {
        authority.issue(&["shop.example"]).write(folder.path(), name);
    }
    let place = folder.path().to_owned();
    let product = Product::start_in(folder, &world.configuration(), 2);
    let clients = Clients::start(&product, &authority);
    clients.all_go_on();
    let mut changes = Changes::new(&product, &world, &place, Dice::new(seed));
    let (begin, length) = (Instant::now(), Duration::from_secs(seconds));
    let (mut settled, mut made) = (None, 0_u32);
    while begin.elapsed() < length {
        changes.make();
        made += 1;
        if made % 50 == 0 {
            // A client that stands still is a failure too, and is told while the change that did it is known.
            clients.all_go_on();
        }
        if settled.is_none() && begin.elapsed() > length / 3 {
            settled = Some(sys::resident_bytes(product.pid()));
        }
        std::thread::sleep((STEP * made).saturating_sub(begin.elapsed()));
    }
    clients.all_go_on();
    let grown = sys::resident_bytes(product.pid()).saturating_sub(settled.expect("a third has passed"));
    let (applied, refused) = changes.finish();
    let done = clients.end();
    println!("{applied} changes, {refused} refused as they should be; {done:?}; {} KiB more memory", grown / 1024);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more than after the first third");
    // Among other tests there is no telling how much time it gets.
    assert!(seconds < 30 || applied > seconds as u32 * 10, "{applied} changes in {seconds} s are no storm");
    for (kind, count) in &done {
        assert!(*count > 0, "{kind} did nothing");
    }
    ends_like_a_fresh_start(&product, &place);
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
    assert_eq!(shape(&get(product, "/api/status")), shape(&get(&fresh, "/api/status")), "what runs");
    for asked in ["GET%20http://shop.example/", "GET%20http://shop.example/extra-1/x", "POST%20http://a.example/b?c=d"]
    {
        let path = format!("/api/explain?listener=web&request={asked}");
        assert_eq!(get(product, &path)["route"], get(&fresh, &path)["route"], "{asked}");
    }
    // Nothing of what has come and gone is held: sockets of listeners, connections to endpoints that are out.
    eventually("as many descriptors as a fresh start, and some for connections that are kept", || {
        sys::descriptors(product.pid()) < sys::descriptors(fresh.pid()) + 60
    });
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
            let kept =
                ["listeners", "clusters", "endpoints", "routes", "name", "address", "weight", "cluster", "protocol"];
            let of = |(key, value): (&String, &Value)| {
                // Ports of listeners are chosen by the kernel.
                let is_kept = kept.contains(&key.as_str()) && !(key == "address" && map.contains_key("protocol"));
                is_kept.then(|| (key.clone(), shape(value)))
            };
            Value::Object(map.iter().filter_map(of).collect())
        }
        other => other.clone(),
    }
}
