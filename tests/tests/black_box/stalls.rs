//! Filters that handle bodies, and a client or an endpoint that stalls within one: a time-out ends the exchange, and nothing is left of it.

use std::sync::{Arc, Condvar, Mutex};

use super::harness::{Origin, Peer, Product, Setup, eventually};

/// A filter by name, as a route has it.
fn filters() -> Vec<(&'static str, String)> {
    let replace = "replace: [{ text: inside, with: outside }], types: [\"text/*\"]";
    vec![
        ("compress", "compress: { algorithms: [gzip] }".to_owned()),
        ("decompress", "decompress: { responses: always }".to_owned()),
        ("replace_body", format!("replace_body: {{ {replace} }}")),
        ("replace_body of requests", format!("replace_body: {{ {replace}, requests: true }}")),
        ("bandwidth_limit", "bandwidth_limit: { download: 1GB/s, upload: 1GB/s }".to_owned()),
        ("body_limit", "body_limit: { max: 1GiB }".to_owned()),
        ("buffer", "buffer: { request: 1MiB }".to_owned()),
        ("mirror", "mirror: { cluster: shadow }".to_owned()),
        ("cache", "cache: { store: pages }".to_owned()),
    ]
}

fn start(origin: &Origin, shadow: &Origin, filter: &str) -> Product {
    Setup::to(origin)
        .top("caches: { pages: { memory: 64MiB } }")
        .listener("timeouts: { stream: 1s }")
        .route(format!("filters: [{{ {filter} }}]"))
        .cluster("timeouts: { idle: 1s, response_head: 1s }")
        .cluster_more(format!("shadow: {{ endpoints: [\"{}\"] }}", shadow.address()))
        .start()
}

fn is_over(name: &str, product: &Product, flag: &str, fault: &str) {
    assert_eq!(product.flagged(flag)["fault"], fault, "{name}");
    eventually(&format!("{name}: the endpoint is free"), || product.metric("equipoise_endpoint_in_flight", &[]) == 0.0);
}

/// Runs a test with each filter at once: they wait for time-outs.
fn with_each(origin: &Origin, test: impl Fn(&str, &Product) + Sync) {
    let shadow = Origin::saying("a copy");
    std::thread::scope(|scope| {
        for (name, filter) in filters() {
            let (shadow, test) = (&shadow, &test);
            scope.spawn(move || test(name, &start(origin, shadow, &filter)));
        }
    });
}

/// Text that no coding makes short.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state: u64 = 1;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b' ' + ((state >> 33) % 90) as u8
    };
    (0..bytes).map(letter).collect()
}

#[test]
fn an_endpoint_that_stalls_within_its_response_ends_by_its_time_out_in_each_filter() {
    let half = noise(100_000);
    let origin = Origin::start(move |mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n");
        visit.peer.send(&half);
        while visit.peer.fill().is_ok_and(|count| count > 0) {}
    });
    with_each(&origin, |name, product| {
        let mut peer = product.connect();
        peer.send("GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n");
        assert_eq!(peer.head().status(), 200, "{name}");
        let got = peer.try_rest().unwrap_or_default();
        assert!(got.len() < 1_000_000 && !got.ends_with(b"0\r\n\r\n"), "{name}: it does not look whole");
        is_over(name, product, "UDT", "response_body_timeout");
    });
    eventually("the endpoint is let go", || origin.open() == 0);
}

#[test]
fn a_client_that_does_not_read_its_response_ends_by_its_time_out_in_each_filter() {
    let part = noise(1 << 20);
    let origin = Origin::start(move |mut visit| {
        let Some(_) = visit.request() else { return };
        visit.peer.send(format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", 32 << 20));
        for _ in 0..32 {
            if visit.peer.try_send(&part).is_err() {
                return;
            }
        }
    });
    with_each(&origin, |name, product| {
        let mut peer = product.connect();
        peer.send("GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n");
        assert_eq!(peer.head().status(), 200, "{name}");
        is_over(name, product, "CDT", "client_write_timeout");
    });
    eventually("the endpoint is let go", || origin.open() == 0);
}

#[test]
fn a_client_that_stalls_within_its_request_ends_by_its_time_out_in_each_filter() {
    let origin = Origin::saying("never whole");
    with_each(&origin, |name, product| {
        let head = "PUT / HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\n";
        let mut peer = Peer::sending(product.web(), [head.as_bytes(), &noise(50_000)].concat());
        assert_eq!(peer.response().status(), 408, "{name}");
        is_over(name, product, "CBT", "request_body_timeout");
    });
    eventually("the endpoint is let go", || origin.open() == 0);
    assert!(origin.requests().is_empty(), "no request was whole");
}

#[test]
fn an_endpoint_that_does_not_read_its_request_ends_by_its_time_out_in_each_filter() {
    let is_over_for_all = Arc::new((Mutex::new(false), Condvar::new()));
    let told = Arc::clone(&is_over_for_all);
    let origin = Origin::start(move |mut visit| {
        let _head = visit.peer.try_head();
        let (is_over, changed) = &*told;
        let _held = changed.wait_while(is_over.lock().expect("a test"), |is_over| !*is_over);
    });
    let (short, long) = (noise(1 << 20), noise(1 << 20).repeat(24));
    with_each(&origin, |name, product| {
        let body = if name == "buffer" { &short } else { &long };
        let head = format!(
            "PUT / HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut peer = product.connect();
        let (fault, flag) = if name == "buffer" { ("response_head_timeout", "URT") } else { ("send_timeout", "UST") };
        let sent = peer.try_send(head.as_bytes()).and_then(|()| peer.try_send(body));
        assert!(sent.is_err() || peer.response().status() == 504, "{name}");
        is_over(name, product, flag, fault);
    });
    *is_over_for_all.0.lock().expect("a test") = true;
    is_over_for_all.1.notify_all();
}
