//! What the balancers promise to those who choose one.

use std::sync::mpsc::Sender;

use super::balancing::{hold, holding};
use super::harness::origin::ok;
use super::harness::{Origin, Product, Setup, eventually};

/// Which origin answers, by its place, for a request with these fields.
fn place(product: &Product, fields: &str) -> String {
    let mut peer = product.connect();
    peer.send(format!("GET / HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
    peer.response().text()
}

/// Origins that answer with their place.
fn numbered(count: usize) -> Vec<Origin> {
    (0..count).map(|place| Origin::answering(move |_| ok(&place.to_string()))).collect()
}

#[test]
fn equal_keys_go_to_the_same_endpoint_on_all_workers_and_other_keys_to_others() {
    for algorithm in ["ketama", "maglev", "rendezvous"] {
        let origins = numbered(4);
        let hash = format!("balance: {{ hash: {{ on: [{{ header: x-user }}, source], algorithm: {algorithm} }} }}");
        let product = Setup::to_all(&origins).cluster(hash).workers(4).start();
        let mut places = std::collections::BTreeSet::new();
        for user in 0..40 {
            let first = place(&product, &format!("X-User: {user}\r\n"));
            for _ in 0..3 {
                assert_eq!(place(&product, &format!("x-user: {user}\r\nOther: {user}{first}\r\n")), first);
            }
            places.insert(first);
        }
        assert_eq!(places.len(), 4, "{algorithm} reaches every endpoint");
        let by_source = place(&product, "");
        assert!((0..10).all(|_| place(&product, "") == by_source));
    }
}

#[test]
fn a_key_stays_where_it_is_when_another_endpoint_leaves_the_file() {
    let origins = numbered(4);
    let setup = |origins: &[Origin]| Setup::to_all(origins).cluster("balance: { hash: { on: { cookie: id } } }");
    let product = setup(&origins).start();
    let ask = |user: u32| place(&product, &format!("Cookie: a=b; id={user}\r\n"));
    let before: Vec<String> = (0..60).map(ask).collect();
    product.reload(&setup(&origins[..3]).text());
    for (user, before) in (0..60).zip(before) {
        let after = ask(user);
        assert!(after == before || before == "3", "{user} moved from {before} to {after}");
        assert_ne!(after, "3");
    }
}

#[test]
fn a_popular_key_spreads_once_its_endpoint_has_its_bounded_load() {
    let held: Vec<(Origin, Sender<()>)> = (0..2).map(|_| holding()).collect();
    let addresses: Vec<_> = held.iter().map(|(origin, _)| origin.address()).collect();
    let product = Setup::to_addresses(&addresses).cluster("balance: { hash: { on: path, load_max: 150% } }").start();
    let busy = || held.iter().map(|(origin, _)| origin.busy()).collect::<Vec<_>>();
    let mut clients = Vec::new();
    for count in 1..=12 {
        clients.push(hold(&product, ""));
        eventually("it arrived", || busy().iter().sum::<usize>() == count);
        // 150 % of half of all, rounded up.
        let bound = (3 * count).div_ceil(4);
        assert!(busy().iter().all(|busy| *busy <= bound), "{:?} of {count}", busy());
    }
    assert!(busy().contains(&9) && busy().contains(&3), "the key's own endpoint takes what it may: {:?}", busy());
    for ((_, go), count) in held.iter().zip(busy()) {
        (0..count).for_each(|_| go.send(()).expect("the origin waits"));
    }
    assert!(clients.iter_mut().all(|client| client.response().status() == 200));
}

#[test]
fn first_uses_the_next_endpoint_only_while_the_one_before_is_full() {
    let ((full, go), next) = (holding(), Origin::saying("next"));
    let first = format!("{{ address: \"{}\", connections_max: 1 }}", full.address());
    let listed = [first, format!("\"{}\"", next.address())];
    let product = Setup::to_endpoints(listed).cluster("balance: first").start();
    assert!((0..10).all(|_| product.get("/").text() == "/"));
    let mut held = hold(&product, "");
    eventually("it arrived", || full.busy() == 1);
    assert!((0..10).all(|_| product.get("/").text() == "next"));
    go.send(()).expect("the origin waits");
    assert_eq!(held.response().status(), 200);
    eventually("the first has room again", || product.get("/").text() == "/");
}

#[test]
fn balancers_that_go_by_time_avoid_the_slow_endpoint() {
    for balance in ["least_time", "peak_ewma", "{ peak_ewma: { half_life: 30s } }"] {
        let slow = Origin::answering(|_| {
            // Far more than any answer of the other takes.
            std::thread::sleep(std::time::Duration::from_millis(300));
            ok("slow")
        });
        let fast = Origin::saying("fast");
        let product =
            Setup::to_addresses(&[slow.address(), fast.address()]).cluster(format!("balance: {balance}")).start();
        for _ in 0..100 {
            product.get("/");
        }
        let asked = slow.requests().len();
        assert!((1..=3).contains(&asked), "{balance} asked the slow one {asked} times");
    }
}

#[test]
fn balancers_that_go_by_time_avoid_the_endpoint_that_fails_fast() {
    for balance in ["least_time", "peak_ewma"] {
        let broken = Origin::answering(|_| b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n".to_vec());
        let fine = Origin::saying("fine");
        let listed = [broken.address(), fine.address()];
        let product = Setup::to_addresses(&listed).cluster(format!("balance: {balance}")).start();
        let failed = (0..100).filter(|_| product.get("/").status() == 500).count();
        assert!((1..=3).contains(&failed), "{balance} asked the broken one {failed} times");
    }
}

/// An endpoint with checks that pass as long as its origin lives.
fn placed(origin: &Origin, settings: &str) -> String {
    format!("{{ address: \"{}\", {settings} }}", origin.address())
}

const CHECKED: &str = "health_check: { tcp: {}, interval: 50ms, timeout: 10s, rise: 1, fall: 1 }";

/// Which endpoints answer, each once.
fn answering(product: &Product) -> std::collections::BTreeSet<String> {
    (0..40).map(|_| product.get("/").text()).collect()
}

#[test]
fn a_backup_is_used_only_while_all_others_are_down() {
    let mut origins = numbered(3);
    let settings = ["weight: 1", "weight: 1", "backup: true"];
    let listed: Vec<String> = origins.iter().zip(settings).map(|(origin, settings)| placed(origin, settings)).collect();
    let product = Setup::to_endpoints(listed).cluster(CHECKED).start();
    assert_eq!(answering(&product), ["0", "1"].map(str::to_owned).into());
    drop(origins.remove(0));
    eventually("the first is down", || answering(&product) == ["1".to_owned()].into());
    drop(origins.remove(0));
    eventually("the backup takes over", || answering(&product) == ["2".to_owned()].into());
}

#[test]
fn the_next_priority_takes_what_the_first_cannot_bear() {
    let mut origins = numbered(4);
    let settings = ["priority: 0", "priority: 0", "priority: 1", "priority: 1"];
    let listed: Vec<String> = origins.iter().zip(settings).map(|(origin, settings)| placed(origin, settings)).collect();
    let product = Setup::to_endpoints(listed).cluster(CHECKED).start();
    assert_eq!(answering(&product), ["0", "1"].map(str::to_owned).into());
    drop(origins.remove(1));
    // One of two, times 140 %, bears 70 %; the rest goes on.
    eventually("work spills over", || answering(&product) == ["0", "2", "3"].map(str::to_owned).into());
    let second = (0..300).filter(|_| product.get("/").text() != "0").count();
    // 90 are expected, a standard deviation is 8.
    assert!((45..140).contains(&second), "{second}");
    drop(origins.remove(0));
    eventually("the first priority is down", || answering(&product) == ["2", "3"].map(str::to_owned).into());
}

#[test]
fn the_own_zone_is_preferred_while_it_can_bear_the_work() {
    let mut origins = numbered(2);
    let listed = [placed(&origins[0], "zone: near"), placed(&origins[1], "zone: far")];
    let product =
        Setup::to_endpoints(listed).cluster(CHECKED).cluster("prefer_own_zone: true").top("zone: near").start();
    assert_eq!(answering(&product), ["0".to_owned()].into());
    drop(origins.remove(0));
    eventually("the far one takes over", || answering(&product) == ["1".to_owned()].into());
}

#[test]
fn a_route_reaches_only_the_endpoints_with_its_labels() {
    let origins = numbered(3);
    let settings = ["labels: { version: v1 }", "labels: { version: v2 }", "weight: 1"];
    let listed: Vec<String> = origins.iter().zip(settings).map(|(origin, settings)| placed(origin, settings)).collect();
    let by_header =
        "{ match: { path: { prefix: /try } }, subset: { labels: { version: { header: x-version } } }, cluster: site }";
    let product = Setup::to_endpoints(listed)
        .route_before(format!("{{ name: by-header, {}", &by_header[2..]))
        .route("subset: { labels: { version: v1 }, otherwise: any }")
        .start();
    assert_eq!(answering(&product), ["0".to_owned()].into());
    let tried = |fields: &str| {
        let mut peer = product.connect();
        peer.send(format!("GET /try HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        let answer = peer.response();
        (answer.status(), answer.text())
    };
    assert!((0..5).all(|_| tried("X-Version: v2\r\n") == (200, "1".to_owned())));
    assert!((0..5).all(|_| tried("X-Version: v1\r\n") == (200, "0".to_owned())));
    assert_eq!(tried("X-Version: v3\r\n").0, 503);
    assert_eq!(tried("").0, 503);
}
