//! Very many clusters: what a change of one endpoint costs, and what a cluster that nobody asks for holds.
//!
//! With `EQUIPOISE_LONG` set there are 10,000 clusters of 10 endpoints, and figures are printed (`--nocapture`), best with
//! `EQUIPOISE_BIN` naming a release build. Without, there are few, and no time is looked at.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::harness::product::folder;
use crate::harness::{Origin, Product};

/// What a change is meant to take at most until all workers go by it, and an idle cluster to hold, its endpoints included.
const LIVE_MAX: Duration = Duration::from_millis(50);
const CLUSTER_BYTES_MAX: u64 = 4_096;

fn configuration(clusters: usize, origin: &Origin) -> String {
    let endpoint = |cluster: usize, place: usize| format!("\"127.{}.{}.{place}:9000\"", cluster / 250, cluster % 250);
    let cluster = |number: usize| {
        let endpoints: Vec<String> = (1..=10).map(|place| endpoint(number, place)).collect();
        format!("  c{number}: {{ endpoints: [{}] }}\n", endpoints.join(", "))
    };
    let clusters: String = (0..clusters).map(cluster).collect();
    let site = origin.address();
    format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nadmin: {{ bind: \"127.0.0.1:0\" }}\n\
         routes: [{{ cluster: site }}, {{ match: {{ path: {{ exact: /given }} }}, cluster: given }}]\n\
         providers: {{ fleet: {{ file: {{ path: fleet.yaml, interval: 20ms }} }} }}\n\
         clusters:\n  site: {{ endpoints: [\"{site}\"] }}\n  given: {{ endpoints: {{ from: fleet }} }}\n{clusters}"
    )
}

/// Has the provider give this endpoint.
fn give(folder: &Path, origin: &Origin) {
    let beside = folder.join(".fleet.yaml.new");
    fs::write(&beside, format!("endpoints: {{ given: [\"{}\"] }}\n", origin.address())).expect("a file");
    fs::rename(&beside, folder.join("fleet.yaml")).expect("renamed");
}

fn started(clusters: usize, origin: &Origin) -> Product {
    let folder: TempDir = folder();
    give(folder.path(), origin);
    Product::start_in(folder, &configuration(clusters, origin), 2)
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

/// The time from a file that a provider looks at until a request goes where that says.
fn changed_by_provider(product: &Product, (from, to): (&Origin, &str)) -> Duration {
    let begun = Instant::now();
    give(product.folder(), from);
    while product.get("/given").text() != to {
        assert!(begun.elapsed() < Duration::from_secs(60), "what the provider gives never comes into force");
    }
    begun.elapsed()
}

/// Shortest, median, nine of ten, longest.
fn spread(mut took: Vec<Duration>) -> ([Duration; 4], String) {
    took.sort_unstable();
    let at = |tenth: usize| took[(took.len() - 1) * tenth / 10];
    let all = [at(0), at(5), at(9), at(10)];
    let [min, median, most, max] = all.map(|time| time.as_secs_f64() * 1_000.0);
    (all, format!("min {min:.1} ms, median {median:.1}, p90 {most:.1}, max {max:.1}"))
}

#[test]
fn one_endpoint_of_very_many_is_changed_while_all_others_stay() {
    let is_long = std::env::var_os("EQUIPOISE_LONG").is_some();
    let (count, changes) = if is_long { (10_000, 40) } else { (300, 3) };
    let (origin, other) = (Origin::saying("hello"), Origin::saying("other"));
    let (few, many) = (started(1, &origin), started(count, &origin));
    let settled = |product: &Product| {
        // What a start has used and given back takes a moment to reach the system.
        if is_long {
            std::thread::sleep(Duration::from_secs(3));
        }
        product.resident_bytes()
    };
    let idle = settled(&many).saturating_sub(settled(&few)) / count as u64;
    assert_eq!(many.get("/").status(), 200);
    let took: Vec<Duration> = (0..changes).map(|number| changed_by_call(&many, number)).collect();
    let given: Vec<Duration> = [(&other, "other"), (&origin, "hello")]
        .into_iter()
        .cycle()
        .take(changes as usize)
        .map(|one| changed_by_provider(&many, one))
        .collect();
    let after = settled(&many).saturating_sub(few.resident_bytes()) / count as u64;
    assert_eq!(many.get("/").status(), 200);
    let shown = many.api("/api/config/clusters/c7");
    assert_eq!(shown["endpoints"][2]["weight"], 2 + (changes - 1) % 3, "{shown}");
    if is_long {
        let ([_, median, ..], by_call) = spread(took);
        let (_, by_provider) = spread(given);
        let met = |yes: bool| if yes { "met" } else { "NOT met" };
        println!("{count} clusters of 10 endpoints");
        println!("  change by a call, live on all workers: {by_call}; {LIVE_MAX:?} {}", met(median <= LIVE_MAX));
        println!("  change by a provider that looks every 20 ms, and twice: {by_provider}");
        println!(
            "  resident per idle cluster: {idle} B, {after} B after; {CLUSTER_BYTES_MAX} B {}",
            met(idle <= CLUSTER_BYTES_MAX)
        );
    }
}
