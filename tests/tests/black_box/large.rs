//! Very many clusters: what a change of one endpoint costs, and what a cluster that nobody asks for holds.
//!
//! With `EQUIPOISE_LONG` set there are 10,000 clusters of 10 endpoints, and figures are printed (`--nocapture`), best with
//! `EQUIPOISE_BIN` naming a release build. Without, there are few, and no time is looked at.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::discovery_etcd::Etcd;
use crate::harness::origin::ok;
use crate::harness::product::folder;
use crate::harness::{Origin, Product};

/// What a change is meant to take at most until all workers go by it, and an idle cluster to hold, its endpoints included.
const LIVE_MAX: Duration = Duration::from_millis(50);
const CLUSTER_BYTES_MAX: u64 = 4_096;
/// Between two looks at whether a change is felt: a client that asks all the time takes the core that the change needs.
const STEP: Duration = Duration::from_millis(1);
/// So many requests in a row go by a change when all workers do.
const FELT: usize = 4;
/// What was used and given back takes a moment to reach the system.
const SETTLED: Duration = Duration::from_secs(3);

/// Who gives endpoints: a file, a site and an etcd.
struct Givers {
    page: Arc<Mutex<String>>,
    site: Origin,
    etcd: Etcd,
}

impl Givers {
    fn start() -> Self {
        let page = Arc::new(Mutex::new(String::new()));
        let told = Arc::clone(&page);
        let site = Origin::answering(move |_| ok(&told.lock().expect("a page")));
        Self { page, site, etcd: Etcd::start() }
    }

    /// As a provider of this kind is configured.
    fn settings(&self) -> String {
        let (site, etcd) = (self.site.address(), self.etcd.url());
        format!(
            "{{ file: {{ file: {{ path: fleet.yaml }} }}, site: {{ http: {{ url: \"http://{site}/\", interval: 10ms }} }}, \
             etcd: {{ etcd: {{ urls: [\"{etcd}\"] }} }} }}"
        )
    }

    /// Has one of them give this endpoint.
    fn give(&self, giver: &str, folder: &std::path::Path, origin: &Origin) {
        let text = format!("endpoints: {{ given: [\"{}\"] }}\n", origin.address());
        match giver {
            "file" => {
                let beside = folder.join(".fleet.yaml.new");
                fs::write(&beside, text).expect("a file");
                fs::rename(&beside, folder.join("fleet.yaml")).expect("renamed");
            }
            "site" => *self.page.lock().expect("a page") = text,
            _ => self.etcd.put("endpoints/given/one", &origin.address().to_string()),
        }
    }
}

fn configuration(clusters: usize, origin: &Origin, givers: &Givers) -> String {
    let endpoint = |cluster: usize, place: usize| format!("\"127.{}.{}.{place}:9000\"", cluster / 250, cluster % 250);
    let cluster = |number: usize| {
        let endpoints: Vec<String> = (1..=10).map(|place| endpoint(number, place)).collect();
        format!("  c{number}: {{ endpoints: [{}] }}\n", endpoints.join(", "))
    };
    let clusters: String = (0..clusters).map(cluster).collect();
    let (site, providers) = (origin.address(), givers.settings());
    let given = ["file", "site", "etcd"].map(|name| {
        let endpoints = format!("{{ from: {name}, key: given }}");
        (
            format!(", {{ match: {{ path: {{ exact: /{name} }} }}, cluster: {name} }}"),
            format!("  {name}: {{ endpoints: {endpoints} }}\n"),
        )
    });
    let (routes, given): (Vec<String>, Vec<String>) = given.into_iter().unzip();
    let (routes, given) = (routes.concat(), given.concat());
    format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nadmin: {{ bind: \"127.0.0.1:0\" }}\n\
         routes: [{{ cluster: home }}{routes}]\nproviders: {providers}\n\
         clusters:\n  home: {{ endpoints: [\"{site}\"] }}\n{given}{clusters}"
    )
}

fn started(clusters: usize, origin: &Origin, givers: &Givers) -> Product {
    let folder = folder();
    ["file", "site", "etcd"].iter().for_each(|giver| givers.give(giver, folder.path(), origin));
    Product::start_in(folder, &configuration(clusters, origin, givers), 2)
}

/// The time that a change takes until the API answers: every worker goes by it then.
fn changed_by_call(product: &Product, number: u64) -> Duration {
    let path = "PUT /api/clusters/c7/endpoints/127.0.7.3:9000/weight";
    let begun = Instant::now();
    let answer =
        product.call(path, &["Content-Type: application/json"], &format!("{{\"weight\": {}}}", 2 + number % 3));
    assert_eq!(answer.status(), 200, "{}", answer.text());
    begun.elapsed()
}

/// The time from when a provider is given something until requests go where that says, whichever worker has them.
fn changed_by(giver: &str, (product, givers): (&Product, &Givers), (from, to): (&Origin, &str)) -> Duration {
    let path = format!("/{giver}");
    let begun = Instant::now();
    givers.give(giver, product.folder(), from);
    let mut felt = 0;
    while felt < FELT {
        assert!(begun.elapsed() < Duration::from_secs(60), "what {giver} gives never comes into force");
        if product.get(&path).text() == to {
            felt += 1;
        } else {
            felt = 0;
            std::thread::sleep(STEP);
        }
    }
    begun.elapsed()
}

/// Shortest, median, nine of ten, longest, and whether most are within the bound.
fn spread(mut took: Vec<Duration>) -> String {
    took.sort_unstable();
    let at = |tenth: usize| took[(took.len() - 1) * tenth / 10];
    let [min, median, most, max] = [at(0), at(5), at(9), at(10)].map(|time| time.as_secs_f64() * 1_000.0);
    let is_met = if at(9) <= LIVE_MAX { "met" } else { "NOT met" };
    format!("min {min:.1} ms, median {median:.1}, p90 {most:.1}, max {max:.1}; p90 within {LIVE_MAX:?} {is_met}")
}

#[test]
fn one_endpoint_of_very_many_is_changed_while_all_others_stay() {
    let is_long = std::env::var_os("EQUIPOISE_LONG").is_some();
    let (count, changes) = if is_long { (10_000, 40) } else { (300, 3) };
    let (origin, other, third) = (Origin::saying("hello"), Origin::saying("other"), Origin::saying("third"));
    let givers = Givers::start();
    let (few, many) = (started(1, &origin, &givers), started(count, &origin, &givers));
    let held = || {
        if is_long {
            std::thread::sleep(SETTLED);
        }
        many.resident_bytes().saturating_sub(few.resident_bytes()) / count as u64
    };
    let idle = held();
    assert_eq!(many.get("/").status(), 200);
    let by_call = (0..changes).map(|number| changed_by_call(&many, number)).collect();
    let mut told = vec![("a call, which answers then", spread(by_call), held())];
    for (giver, what) in [
        ("file", "another file in its place, looked at every 500 ms"),
        ("etcd", "a key in an etcd"),
        ("site", "a page asked for by HTTP every 10 ms"),
    ] {
        // More than two: a worker that goes by the change before the last one is not to be taken for one that goes by the last.
        let turns =
            [(&other, "other"), (&third, "third"), (&origin, "hello")].into_iter().cycle().take(changes as usize);
        let took = turns.map(|one| changed_by(giver, (&many, &givers), one)).collect();
        told.push((what, spread(took), held()));
    }
    assert_eq!(many.get("/").status(), 200);
    let shown = many.api("/api/config/clusters/c7");
    assert_eq!(shown["endpoints"][2]["weight"], 2 + (changes - 1) % 3, "{shown}");
    if is_long {
        println!("{count} clusters of 10 endpoints; a change of one, live on all workers, by");
        told.iter().for_each(|(what, spread, held)| println!("  {what}: {spread}; resident per cluster then {held} B"));
        let most = told.iter().map(|(.., held)| *held).chain([idle]).max().unwrap_or_default();
        println!("  resident per idle cluster: {idle} B before, {most} B at most");
        assert!(most <= CLUSTER_BYTES_MAX, "an idle cluster holds {most} B, also after changes");
    }
}
