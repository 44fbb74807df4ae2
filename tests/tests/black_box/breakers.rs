//! Circuit breakers: what is above a bound is refused at once, and a circuit opens and closes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::balancing::holding;
use super::harness::origin::ok;
use super::harness::{Message, Origin, Peer, Product, Setup, eventually};

const HOLD: &str = "GET /hold HTTP/1.1\r\nHost: test\r\n\r\n";

fn refused(product: &Product, reason: &str, count: f64) {
    let reason = format!("reason=\"{reason}\"");
    product.expect_metric("equipoise_cluster_refused_total", &["cluster=\"site\"", &reason], count);
}

fn is_refused(answer: &Message) {
    assert_eq!(answer.status(), 503, "{}", answer.text());
    assert!(retry_after(answer) >= 1, "{answer:?}");
}

fn retry_after(answer: &Message) -> u64 {
    answer.field("retry-after").and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

/// An origin that is ill while this says so.
fn ailing() -> (Origin, Arc<AtomicBool>) {
    let is_ill = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&is_ill);
    let origin = Origin::answering(move |_| match asked.load(Ordering::SeqCst) {
        true => b"HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n".to_vec(),
        false => ok("well"),
    });
    (origin, is_ill)
}

#[test]
fn more_requests_at_once_than_the_breaker_allows_are_refused_whatever_the_number_of_workers() {
    for workers in [1, 2, 4] {
        let (origin, go) = holding();
        let setup = Setup::to(&origin).cluster("circuit_breaker: { requests_max: 3 }");
        let product = setup.workers(workers).start();
        let mut clients: Vec<Peer> = (0..3).map(|_| Peer::sending(product.web(), HOLD)).collect();
        eventually("they are at the endpoint", || origin.busy() == 3);
        for _ in 0..8 {
            is_refused(&product.get("/"));
        }
        assert_eq!(product.flagged("PB")["fault"], "circuit_full");
        refused(&product, "requests", 8.0);
        (0..3).for_each(|_| go.send(()).expect("an origin"));
        for client in &mut clients {
            assert_eq!(client.response().status(), 200);
        }
        eventually("there is room again", || product.get("/").status() == 200);
    }
}

#[test]
fn a_breaker_bounds_those_that_wait_in_the_queue() {
    let (origin, go) = holding();
    let endpoint = format!("{{ address: \"{}\", connections_max: 1 }}", origin.address());
    let rules = ["queue: { requests_max: 100, timeout: 30s }", "circuit_breaker: { pending_max: 1 }"];
    let product = Setup::to_endpoints([endpoint]).cluster(rules[0]).cluster(rules[1]).start();
    let mut clients = vec![Peer::sending(product.web(), HOLD)];
    eventually("the first is at the endpoint", || origin.busy() == 1);
    clients.push(Peer::sending(product.web(), HOLD));
    product.expect_metric("equipoise_cluster_queue_length", &["cluster=\"site\""], 1.0);
    is_refused(&product.get("/"));
    product.flagged("PB");
    refused(&product, "pending", 1.0);
    for mut client in clients {
        go.send(()).expect("an origin");
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn a_breaker_bounds_connections_in_use_but_not_those_that_are_kept() {
    let (origin, go) = holding();
    let product = Setup::to(&origin).cluster("circuit_breaker: { connections_max: 1 }").start();
    for _ in 0..4 {
        assert_eq!(product.get("/").status(), 200, "one after the other, by workers that each keep a connection");
    }
    let mut held = Peer::sending(product.web(), HOLD);
    eventually("it is at the endpoint", || origin.busy() == 1);
    is_refused(&product.get("/"));
    refused(&product, "connections", 1.0);
    go.send(()).expect("an origin");
    assert_eq!(held.response().status(), 200);
    assert_eq!(product.get("/").status(), 200);
}

#[test]
fn a_breaker_bounds_how_many_are_tried_again_at_once() {
    let ill = || Origin::answering(|_| b"HTTP/1.1 503 Ill\r\nContent-Length: 0\r\n\r\n".to_vec());
    let origins = [ill(), ill()];
    let rules = ["retry: { on: [503] }", "circuit_breaker: { retries_max: 0 }"];
    let product = Setup::to_all(&origins).cluster(rules[0]).cluster(rules[1]).start();
    assert_eq!(product.get("/").status(), 503);
    assert_eq!(origins.iter().map(|origin| origin.requests().len()).sum::<usize>(), 1);
    refused(&product, "retries", 1.0);
}

#[test]
fn a_circuit_opens_when_too_much_fails_and_closes_when_all_is_well_again() {
    let (origin, is_ill) = ailing();
    let ratio = "{ share: 50%, window: 1m, requests_min: 4, open_for: 5s, trial_requests: 2 }";
    let product = Setup::to(&origin).cluster(format!("circuit_breaker: {{ error_ratio: {ratio} }}")).start();
    product.expect_metric("equipoise_cluster_circuit", &["cluster=\"site\""], 0.0);
    for _ in 0..4 {
        assert_eq!(product.get("/").status(), 500);
    }
    for _ in 0..10 {
        is_refused(&product.get("/"));
    }
    assert_eq!(origin.requests().len(), 4, "a circuit that is open spares its endpoints");
    assert_eq!(product.flagged("PO")["fault"], "circuit_open");
    refused(&product, "error_ratio", 10.0);
    product.expect_metric("equipoise_cluster_circuit_opened_total", &["cluster=\"site\""], 1.0);
    eventually("the trial fails", || product.get("/").status() == 500);
    assert_eq!(origin.requests().len(), 5);
    is_ill.store(false, Ordering::SeqCst);
    eventually("a trial goes well", || product.get("/").status() == 200);
    assert_eq!(product.get("/").status(), 200, "the other one");
    product.expect_metric("equipoise_cluster_circuit", &["cluster=\"site\""], 0.0);
    product.expect_metric("equipoise_cluster_circuit_opened_total", &["cluster=\"site\""], 2.0);
    product.expect_said(&["circuit opened", "half-open", "circuit closed"]);
}

#[test]
fn what_cannot_be_reached_opens_a_circuit_too_and_a_change_of_other_settings_leaves_it_open() {
    let refusing = super::harness::net::refusing();
    let breaker = "circuit_breaker: { error_ratio: { requests_min: 2, open_for: 1m } }";
    let setup = Setup::to_addresses(&[refusing]).cluster(breaker);
    let product = setup.start();
    assert_eq!([product.get("/").status(), product.get("/").status(), product.get("/").status()], [502, 502, 503]);
    product.reload(&setup.cluster("timeouts: { connect: 1s }").text());
    assert_eq!(product.get("/").status(), 503);
}

fn opens_for(time: &str, more: &str) -> String {
    format!("circuit_breaker: {{ error_ratio: {{ requests_min: 1, open_for: {time}{more} }} }}")
}

#[test]
fn responses_that_never_end_close_a_circuit_as_well_as_short_ones() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&is_ill);
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.request() {
            let answer = match (asked.load(Ordering::SeqCst), request.target()) {
                (true, _) => b"HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n".to_vec(),
                (false, "/events") => b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nfirst".to_vec(),
                (false, _) => ok("well"),
            };
            visit.peer.try_send(answer).ok();
        }
    });
    let product = Setup::to(&origin).cluster(opens_for("100ms", ", trial_requests: 2")).start();
    assert_eq!(product.get("/").status(), 500);
    is_ill.store(false, Ordering::SeqCst);
    let events = || {
        let mut client = Peer::sending(product.web(), "GET /events HTTP/1.1\r\nHost: test\r\n\r\n");
        let status = client.head().status();
        (status == 200).then_some(client)
    };
    let mut listening = Vec::new();
    eventually("two are tried", || {
        listening.extend(events());
        listening.len() == 2
    });
    assert_eq!(product.get("/").status(), 200);
    product.expect_metric("equipoise_cluster_circuit", &["cluster=\"site\""], 0.0);
}

#[test]
fn a_circuit_rests_from_when_the_endpoint_failed_not_from_when_it_was_asked() {
    let origin = Origin::start(|mut visit| {
        visit.request();
        let _ = visit.peer.fill();
    });
    let time_out = "timeouts: { response_head: 6s }";
    let product = Setup::to(&origin).cluster(opens_for("5s", "")).cluster(time_out).start();
    assert_eq!(product.get("/").status(), 504);
    is_refused(&product.get("/"));
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_cluster_that_hangs_opens_its_circuit_also_when_the_time_of_the_route_ends_first() {
    let origin = Origin::start(|mut visit| {
        visit.request();
        let _ = visit.peer.fill();
    });
    let product = Setup::to(&origin).cluster(opens_for("1m", "")).route("timeout: 2s").start();
    assert_eq!(product.get("/").status(), 504);
    product.flagged("PD");
    is_refused(&product.get("/"));
}

#[test]
fn those_refused_are_told_when_to_come_again_and_get_the_page_of_the_operator() {
    let refusing = super::harness::net::refusing();
    let setup = Setup::to_addresses(&[refusing]);
    let product = setup.clone().cluster(opens_for("10m", "")).start();
    assert_eq!(product.get("/").status(), 502);
    let refused = product.get("/");
    is_refused(&refused);
    assert!((500..=600).contains(&retry_after(&refused)), "what is left of the time: {refused:?}");
    assert!(refused.text().starts_with("503 "), "{}", refused.text());

    let page = "page: { body: \"<h1>Back soon</h1>\", content_type: text/html, status: 529 }";
    let rules = format!("circuit_breaker: {{ error_ratio: {{ requests_min: 1, open_for: 10m }}, {page} }}");
    product.reload(&setup.cluster(rules).text());
    let refused = product.get("/");
    assert_eq!((refused.status(), refused.text()), (529, "<h1>Back soon</h1>".into()), "the circuit is still open");
    assert_eq!(refused.field("content-type"), Some("text/html"));
    assert!((500..=600).contains(&retry_after(&refused)), "{refused:?}");
}

#[test]
fn a_pause_before_another_attempt_holds_no_connection() {
    let origin = Origin::start(|mut visit| {
        visit.answer_all(|request| (request.target() != "/ill").then(|| ok("well")));
    });
    let setup =
        Setup::to(&origin).cluster("retry: { on: [reset], same_endpoint: true, backoff: { base: 1m, max: 1m } }");
    let product = setup.cluster("circuit_breaker: { connections_max: 1 }").start();
    let _pausing = Peer::sending(product.web(), "GET /ill HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it was answered", || origin.requests().len() == 1);
    eventually("there is room", || product.get("/").status() == 200);
}

#[test]
fn a_configuration_that_cannot_be_used_leaves_an_open_circuit_as_it_is() {
    let refusing = super::harness::net::refusing();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
    let product = Setup::to_addresses(&[refusing]).cluster(opens_for("1m", "")).start();
    assert_eq!([product.get("/").status(), product.get("/").status()], [502, 503]);
    let more = format!("listeners:\n  taken: {{ bind: \"{}\" }}", taken.local_addr().expect("an address"));
    let bad = Setup::to_addresses(&[refusing]).text().replacen("listeners:", &more, 1);
    assert!(product.reload(&bad).contains("stays active"));
    assert_eq!(product.get("/").status(), 503, "the circuit is still open");
}

#[test]
fn when_another_attempt_is_refused_the_client_gets_what_came_of_the_first() {
    let refusing = [super::harness::net::refusing(), super::harness::net::refusing()];
    let product = Setup::to_addresses(&refusing).cluster(opens_for("1m", "")).start();
    assert_eq!(product.get("/").status(), 502);
    assert_eq!(product.flagged("UC")["retries"], 0);
    product.expect_metric("equipoise_endpoint_faults_total", &["fault=\"connect_failed\""], 1.0);
    is_refused(&product.get("/"));
    refused(&product, "error_ratio", 2.0);
    let setup = Setup::to_addresses(&refusing).cluster(opens_for("1m", "")).text();
    let line = "listeners:\n  line: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }";
    let product = Product::start(&setup.replacen("listeners:", line, 1));
    Peer::connect(product.address("line")).wait_closed();
    assert_eq!(product.flagged("UC")["retries"], 0);
}
