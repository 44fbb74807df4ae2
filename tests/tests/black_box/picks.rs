//! Why an endpoint was picked, as metrics, log and explanations tell it: one test for each reason.

use std::net::UdpSocket;

use super::balancing::{endpoint, hold, holding};
use super::harness::net::refusing;
use super::harness::{Origin, Peer, Product, Setup, eventually};

fn expect(product: &Product, reason: &str, wanted: f64) {
    let reason = format!("reason=\"{reason}\"");
    product.expect_metric("equipoise_cluster_picks_total", &["cluster=\"site\"", &reason], wanted);
}

/// Asks, and waits until the one pick that follows is counted, and logged, as this.
fn expect_pick(product: &Product, path: &str, reason: &str) {
    assert_eq!(product.get(path).status(), 200);
    expect(product, reason, 1.0);
    let record = product.record(reason, |record| record["pick"] == reason);
    assert_eq!(record["path"], path);
}

fn two() -> [Origin; 2] {
    [Origin::saying("one"), Origin::saying("two")]
}

#[test]
fn the_balancer_s_own_choice_is_counted_and_explained_by_the_same_word() {
    let origins = two();
    let product = Setup::to_all(&origins).start();
    let told = product.api("/api/explain?request=GET%20http://test/");
    assert_eq!(told["outcome"]["forward"][0]["pick"], "balance", "{told}");
    expect_pick(&product, "/", "balance");
    (0..3).for_each(|_| drop(product.get("/")));
    expect(&product, "balance", 4.0);
    product.expect_metric("equipoise_cluster_picks_total", &[], 4.0);
}

#[test]
fn an_endpoint_without_a_rival_is_picked_as_the_only_one() {
    let origins = two();
    let listed = [endpoint(&origins[0], "weight: 1"), endpoint(&origins[1], "state: maintenance")];
    let product = Setup::to_endpoints(listed).start();
    let told = product.api("/api/explain?request=GET%20http://test/");
    assert_eq!(told["outcome"]["forward"][0]["why"], "no other is available");
    expect_pick(&product, "/", "only");
}

#[test]
fn the_key_of_a_request_picks_and_is_passed_on_while_its_endpoint_is_full() {
    let ((one, go_one), (other, go_other)) = (holding(), holding());
    let listed = [endpoint(&one, "connections_max: 1"), endpoint(&other, "connections_max: 1")];
    let product = Setup::to_endpoints(listed).cluster("balance: { hash: { on: [{ header: x-user }] } }").start();
    let keyed = |_| Peer::sending(product.web(), "GET /hold HTTP/1.1\r\nHost: test\r\nX-User: anna\r\n\r\n");
    let mut clients: Vec<Peer> = Vec::new();
    for count in 1..=2 {
        clients.push(keyed(count));
        eventually("it arrived", || one.busy() + other.busy() == count);
    }
    expect(&product, "hash", 1.0);
    expect(&product, "overflow", 1.0);
    for go in [go_one, go_other] {
        go.send(()).expect("the origin waits");
    }
    assert!(clients.iter_mut().all(|client| client.response().status() == 200));
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
    // Without a key, chance decides.
    expect_pick(&product, "/", "balance");
}

#[test]
fn a_bounded_load_passes_a_key_on() {
    let ((one, go_one), (other, go_other)) = (holding(), holding());
    let product = Setup::to_addresses(&[one.address(), other.address()])
        .cluster("balance: { hash: { on: path, load_max: 101% } }")
        .start();
    let mut clients: Vec<Peer> = Vec::new();
    // One more than half of all at an endpoint is more than 101 % of an even load.
    for count in 1..=4 {
        clients.push(hold(&product, ""));
        eventually("it arrived", || one.busy() + other.busy() == count);
    }
    eventually("both are used", || one.busy() > 0 && other.busy() > 0);
    let counts = [one.busy().max(other.busy()), one.busy().min(other.busy())].map(|count| count as f64);
    expect(&product, "hash", counts[0]);
    expect(&product, "overflow", counts[1]);
    for (origin, go) in [(&one, &go_one), (&other, &go_other)] {
        (0..origin.busy()).for_each(|_| go.send(()).expect("the origin waits"));
    }
    assert!(clients.iter_mut().all(|client| client.response().status() == 200));
}

#[test]
fn the_own_zone_and_others_are_told_apart() {
    let origins = two();
    let setup = |state: &str| {
        let listed = [endpoint(&origins[0], &format!("zone: near{state}")), endpoint(&origins[1], "zone: far")];
        Setup::to_endpoints(listed).cluster("prefer_own_zone: true").top("zone: near")
    };
    let product = setup("").start();
    expect_pick(&product, "/", "own_zone");
    product.reload(&setup(", state: maintenance").text());
    expect_pick(&product, "/far", "other_zone");
    let told = product.api("/api/explain?request=GET%20http://test/");
    let why = "its turn comes next, in another zone: the own zone has too little capacity";
    assert_eq!(told["outcome"]["forward"][0]["why"], why);
}

#[test]
fn backups_and_later_priorities_are_spilled_to() {
    let origins = two();
    for later in ["backup: true", "priority: 1"] {
        let listed = [endpoint(&origins[0], "state: maintenance"), endpoint(&origins[1], later)];
        expect_pick(&Setup::to_endpoints(listed).start(), "/", "spill");
    }
    // What is too much for the first goes there as well.
    let (full, go) = holding();
    let listed = [endpoint(&full, "connections_max: 1"), endpoint(&origins[1], "priority: 1")];
    let product = Setup::to_endpoints(listed).start();
    let mut held = hold(&product, "");
    eventually("it arrived", || full.busy() == 1);
    expect_pick(&product, "/", "spill");
    expect(&product, "balance", 1.0);
    go.send(()).expect("the origin waits");
    assert_eq!(held.response().status(), 200);
}

#[test]
fn a_panic_is_the_reason_while_hardly_anybody_is_fit() {
    let origins = two();
    let check = format!("health_check: {{ tcp: {{}}, port: {}, interval: 50ms, fall: 1 }}", refusing().port());
    let product = Setup::to_all(&origins).cluster(check).cluster("panic_threshold: 50%").start();
    product.expect_metric("equipoise_cluster_panic", &[], 1.0);
    expect_pick(&product, "/", "panic");
}

#[test]
fn who_takes_over_for_a_subset_is_picked_as_its_fallback() {
    let origins = two();
    let listed =
        [endpoint(&origins[0], "labels: { version: v2 }, state: maintenance"), endpoint(&origins[1], "weight: 1")];
    let product = Setup::to_endpoints(listed).route("subset: { labels: { version: v2 }, otherwise: any }").start();
    expect_pick(&product, "/", "fallback");
}

#[test]
fn a_session_picks_its_endpoint() {
    let origins = two();
    let product = Setup::to_all(&origins).cluster("persistence: { source: {} }").start();
    expect_pick(&product, "/first", "balance");
    expect_pick(&product, "/second", "session");
}

#[test]
fn a_further_attempt_after_a_failure_is_a_retry() {
    let well = Origin::saying("well");
    let product = Setup::to_addresses(&[refusing(), well.address()]).cluster("balance: first").start();
    assert_eq!(product.get("/").text(), "well");
    expect(&product, "retry", 1.0);
    expect(&product, "balance", 1.0);
    let record = product.record("the retry", |record| record["pick"] == "retry");
    assert_eq!(record["retries"], 1);
}

#[test]
fn who_waited_got_its_place_from_the_queue() {
    let (origin, go) = holding();
    let product = Setup::to_endpoints([endpoint(&origin, "connections_max: 1")])
        .cluster("queue: { requests_max: 10, timeout: 60s }")
        .start();
    let mut first = hold(&product, "");
    eventually("it arrived", || origin.busy() == 1);
    let mut second = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    product.expect_metric("equipoise_cluster_queue_length", &[], 1.0);
    go.send(()).expect("the origin waits");
    assert_eq!((first.response().status(), second.response().status()), (200, 200));
    expect(&product, "queue", 1.0);
    expect(&product, "only", 1.0);
    assert_eq!(product.record("that waited", |record| record["pick"] == "queue")["path"], "/");
}

#[test]
fn an_attempt_beside_another_is_a_hedge() {
    let silent = Origin::start(|mut visit| {
        if visit.request().is_some() {
            let _ = visit.peer.fill();
        }
    });
    let quick = Origin::saying("quick");
    let product = Setup::to_addresses(&[silent.address(), quick.address()])
        .cluster("hedge: { after: 1s, budget: 100% }")
        .cluster("balance: first")
        .start();
    assert_eq!(product.get("/").text(), "quick");
    expect(&product, "hedge", 1.0);
    expect(&product, "balance", 1.0);
    let record = product.record("that of the hedge", |record| record["pick"] == "hedge");
    assert_eq!(record["endpoint_address"], quick.address().to_string());
}

#[test]
fn picks_for_streams_and_flows_are_counted_too() {
    let origin = Origin::echo();
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let product = Product::start(&format!(
        "version: 1\n\
         listeners:\n\
         \x20 line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }}\n\
         \x20 dns: {{ bind: \"127.0.0.1:0\", protocol: udp, cluster: names }}\n\
         clusters:\n\
         \x20 site: {{ endpoints: [\"{}\"] }}\n\
         \x20 names: {{ endpoints: [\"{}\"] }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
        origin.address(),
        echo.local_addr().expect("an address"),
    ));
    let mut peer = Peer::connect(product.address("line"));
    peer.send("x");
    assert_eq!(peer.take(1), b"x");
    drop(peer);
    expect(&product, "only", 1.0);
    assert_eq!(product.record("the stream", |record| record["kind"] == "stream")["pick"], "only");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client.send_to(b"x", product.address("dns")).expect("it is taken");
    product.expect_metric("equipoise_cluster_picks_total", &["cluster=\"names\"", "reason=\"only\""], 1.0);
}
