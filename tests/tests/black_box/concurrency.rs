//! Adaptive concurrency: no more is at the endpoints than they bear, found out from how long they take.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::harness::origin::ok;
use super::harness::{Origin, Product, Setup, eventually};

/// An origin that works on so many requests at once, 20 ms on each; the others wait in it.
fn bounded(workers: usize) -> Origin {
    let free = Arc::new((Mutex::new(workers), Condvar::new()));
    Origin::answering(move |_| {
        let (count, changed) = &*free;
        let mut left = changed.wait_while(count.lock().expect("count"), |left| *left == 0).expect("count");
        *left -= 1;
        drop(left);
        std::thread::sleep(Duration::from_millis(20));
        *count.lock().expect("count") += 1;
        changed.notify_one();
        ok("done")
    })
}

fn limit(product: &Product) -> f64 {
    product.metric("equipoise_cluster_concurrency_limit", &["cluster=\"site\""])
}

/// Asks with so many clients until `holds`, and counts the answers by status: 200, 503.
fn press(product: &Product, clients: usize, holds: impl Fn() -> bool) -> [usize; 2] {
    let (is_over, counts) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = product.connect();
                while !is_over.load(Ordering::SeqCst) {
                    let status = client.get("/").status();
                    assert!(status == 200 || status == 503, "{status}");
                    counts[usize::from(status == 503)].fetch_add(1, Ordering::SeqCst);
                    if status == 503 {
                        // A client that is told to come back later does not come back at once.
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually("it holds", &holds)));
        is_over.store(true, Ordering::SeqCst);
        outcome.expect("what was waited for");
    });
    counts.map(AtomicUsize::into_inner)
}

#[test]
fn what_endpoints_cannot_bear_is_refused_and_the_limit_comes_near_to_what_they_can() {
    let origin = bounded(5);
    let product = Setup::to(&origin).cluster("adaptive_concurrency: {}").start();
    assert_eq!(limit(&product), 3.0, "the least to begin with");
    let highest = AtomicUsize::new(0);
    let [good, refused] = press(&product, 40, || {
        let before = highest.fetch_max(limit(&product) as usize, Ordering::SeqCst);
        origin.requests().len() > 600 && before >= 5
    });
    assert!(good > 0 && refused > 0);
    let highest = highest.into_inner();
    assert!((5..=25).contains(&highest), "{highest} for endpoints that work on five at once");
    assert!(origin.busy_max() < 40, "{} at once", origin.busy_max());
    assert_eq!(product.flagged("PA")["fault"], "concurrency_limit");
    product.expect_metric("equipoise_cluster_refused_total", &["reason=\"concurrency\""], refused as f64);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
}

#[test]
fn with_a_queue_what_endpoints_cannot_bear_waits() {
    let origin = bounded(5);
    let rules = ["queue: { requests_max: 100, timeout: 30s }", "adaptive_concurrency: {}"];
    let product = Setup::to(&origin).cluster(rules[0]).cluster(rules[1]).start();
    let [good, refused] = press(&product, 40, || origin.requests().len() > 500);
    assert!(good > 400 && refused == 0, "{good} {refused}");
    assert!(origin.busy_max() < 40, "{} at once", origin.busy_max());
    assert!(limit(&product) >= 3.0);
    product.expect_metric("equipoise_cluster_queue_length", &["cluster=\"site\""], 0.0);
}
