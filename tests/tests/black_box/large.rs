//! Very many clusters: what a change of one endpoint costs, and what a cluster that nobody asks for holds.
//!
//! With `EQUIPOISE_LONG` set there are 10,000 clusters of 10 endpoints, and figures are printed (`--nocapture`), best with
//! `EQUIPOISE_BIN` naming a release build. Without, there are few, and no time is looked at.

use std::time::{Duration, Instant};

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
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nadmin: {{ bind: \"127.0.0.1:0\" }}\nroutes: [{{ cluster: site }}]\n\
         clusters:\n  site: {{ endpoints: [\"{site}\"] }}\n{clusters}"
    )
}

#[test]
fn one_endpoint_of_very_many_is_changed_while_all_others_stay() {
    let is_long = std::env::var_os("EQUIPOISE_LONG").is_some();
    let (count, changes) = if is_long { (10_000, 20) } else { (300, 3) };
    let origin = Origin::saying("hello");
    let few = Product::start(&configuration(1, &origin));
    let many = Product::start(&configuration(count, &origin));
    let settled = |product: &Product| {
        // What a start has used and given back takes a moment to reach the system.
        if is_long {
            std::thread::sleep(Duration::from_secs(3));
        }
        product.resident_bytes()
    };
    let idle = settled(&many).saturating_sub(settled(&few)) / count as u64;
    assert_eq!(many.get("/").status(), 200);
    let mut took: Vec<Duration> = (0..changes)
        .map(|number| {
            let path = "PUT /api/clusters/c7/endpoints/127.0.7.3:9000/weight";
            let begun = Instant::now();
            // The answer comes once every worker has taken the plan over.
            let answer =
                many.call(path, &["Content-Type: application/json"], &format!("{{\"weight\": {}}}", 2 + number % 3));
            assert_eq!(answer.status(), 200, "{}", answer.text());
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    let after = settled(&many).saturating_sub(few.resident_bytes()) / count as u64;
    assert_eq!(many.get("/").status(), 200);
    assert_eq!(many.api("/api/status")["generation"], changes + 1);
    let shown = many.api("/api/config/clusters/c7");
    assert_eq!(shown["endpoints"][2]["weight"], 2 + (changes - 1) % 3, "{shown}");
    if is_long {
        let (median, last) = (took[took.len() / 2], took[took.len() - 1]);
        let met = |yes: bool| if yes { "met" } else { "NOT met" };
        println!("{count} clusters of 10 endpoints");
        println!(
            "  change live on all workers: median {median:?}, longest {last:?}; {LIVE_MAX:?} {}",
            met(median <= LIVE_MAX)
        );
        println!(
            "  resident per idle cluster: {idle} B, {after} B after; {CLUSTER_BYTES_MAX} B {}",
            met(idle <= CLUSTER_BYTES_MAX)
        );
    }
}
