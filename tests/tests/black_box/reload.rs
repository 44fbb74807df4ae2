//! A change of configuration: no request fails, no connection closes, nothing that was known is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use super::harness::net::{free, refusing};
use super::harness::origin::{Visit, ok};
use super::harness::{Origin, Peer, Product, Setup, eventually};

/// Answers requests with 200; a request for `/tunnel` becomes an echo.
pub(crate) fn versatile() -> Origin {
    fn tunnel(visit: &mut Visit<'_>) {
        visit.peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n");
        loop {
            let bytes = visit.peer.drain();
            if visit.peer.try_send(bytes).is_err() || !visit.peer.fill().is_ok_and(|count| count > 0) {
                return;
            }
        }
    }
    Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            if request.target() == "/tunnel" {
                return tunnel(&mut visit);
            }
            if visit.peer.try_send(ok("fine")).is_err() {
                return;
            }
        }
    })
}

/// A tunnel to an origin that echoes.
pub(super) fn tunnel(product: &Product) -> Peer {
    let mut peer = product.connect();
    peer.send("GET /tunnel HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(peer.head().status(), 101);
    peer
}

/// What is said into it comes back.
pub(super) fn echoes(peer: &mut Peer) {
    peer.send("still here");
    assert_eq!(peer.take(10), b"still here");
}

/// Two configurations that differ in routes, filters, endpoints, balancing, time-outs and listeners.
fn alternatives(origins: &[Origin]) -> [String; 2] {
    let one = Setup::to_all(&origins[..2])
        .route("filters: [{ set_response_header: { x-generation: one } }]")
        .cluster("balance: least_request")
        .text();
    let two = Setup::to_all(&origins[1..])
        .route_before("{ name: more, match: { path: { prefix: /b } }, cluster: more, timeout: 20s }")
        .cluster("timeouts: { response_head: 20s }")
        .cluster_more(format!("more: {{ endpoints: [\"{}\"] }}", origins[2].address()))
        .listener("timeouts: { idle: 70s }")
        .text()
        .replace("routes:\n", "  extra: { bind: \"127.0.0.1:0\" }\nroutes:\n");
    [one, two]
}

/// Clients that ask on connections they keep, until they are told to stop.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    pub(crate) fn on(product: &Product, clients: usize) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..clients)
            .map(|client| {
                let (stop, done, web) = (Arc::clone(&stop), Arc::clone(&done), product.web());
                std::thread::spawn(move || {
                    let mut peer = Peer::connect(web);
                    while !stop.load(Ordering::Relaxed) {
                        let answer = match client % 2 {
                            0 => peer.get("/a"),
                            _ => peer.ask("POST /b HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody"),
                        };
                        assert_eq!((answer.status(), answer.field("connection")), (200, None), "{answer:?}");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Self { stop, done, threads }
    }

    pub(crate) fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no request failed and no connection was closed");
        }
        self.done.load(Ordering::Relaxed)
    }
}

#[test]
fn twenty_changes_under_load_fail_no_request_and_close_no_connection() {
    let origins = [versatile(), versatile(), versatile()];
    let texts = alternatives(&origins);
    let product = Product::start(&texts[0]);
    let mut tunnels = [tunnel(&product), tunnel(&product)];
    let load = Load::on(&product, 6);
    for change in 1..=20 {
        let before = load.done();
        eventually("the load goes on", || load.done() > before + 20);
        let said = product.reload(&texts[change % 2]);
        assert!(said.contains("configuration is live"), "{said}");
        for peer in &mut tunnels {
            echoes(peer);
        }
    }
    let done = load.end();
    let status = product.api("/api/status");
    assert_eq!(status["generation"], 21);
    product.expect_metric("equipoise_generation", &[], 21.0);
    // Counters are kept: nothing of it was forgotten on the way.
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], done as f64);
    product.expect_metric("equipoise_route_requests_total", &["route=\"main\"", "class=\"4xx\""], 0.0);
    assert!(product.records().iter().all(|record| record["flag"].is_null()));
}

#[test]
fn a_change_takes_effect_on_connections_that_are_already_open() {
    let origins = [versatile(), versatile(), versatile()];
    let texts = alternatives(&origins);
    let product = Product::start(&texts[0]);
    let mut peer = product.connect();
    assert_eq!(peer.get("/").field("x-generation"), Some("one"));
    product.reload(&texts[1]);
    assert_eq!(peer.get("/").field("x-generation"), None);
    product.reload(&texts[0]);
    assert_eq!(peer.get("/").field("x-generation"), Some("one"));
}

#[test]
fn a_bad_configuration_changes_nothing_and_says_why() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin);
    let product = setup.start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").text(), "fine");
    for (number, bad) in [
        setup.text().replace("clusters:", "clustres:"),
        setup.text().replace("cluster: site", "cluster: sight"),
        setup.text().replace("listeners:", "listeners: ["),
        String::new(),
        "\0\u{1}".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let said = product.reload(&bad);
        assert!(said.contains("stays active"), "{said}");
        assert_eq!(peer.get("/").text(), "fine");
        assert_eq!(product.get("/").text(), "fine");
        product.expect_metric("equipoise_generations_refused_total", &[], number as f64 + 1.0);
    }
    product.expect_said(&["equipoise.yaml:", "did you mean `clusters`?", "`site`"]);
    assert_eq!(product.api("/api/status")["generation"], 1);
    product.reload(&setup.text());
    assert_eq!(product.api("/api/status")["generation"], 2);
}

#[test]
fn a_configuration_whose_address_is_taken_changes_nothing_at_all() {
    let (origin, other) = (Origin::saying("before"), Origin::saying("after"));
    let setup = Setup::to(&origin);
    let product = setup.start();
    let taken = format!("  extra: {{ bind: \"{}\" }}\nroutes:\n", origin.address());
    let said = product.reload(&Setup::to(&other).text().replace("routes:\n", &taken));
    assert!(said.contains("stays active"), "{said}");
    product.expect_said(&[&origin.address().to_string()]);
    for _ in 0..10 {
        assert_eq!(product.get("/").text(), "before");
    }
    assert_eq!(other.connections(), 0);
}

#[test]
fn a_listener_comes_and_goes_and_others_do_not_notice() {
    let origin = versatile();
    let setup = Setup::to(&origin);
    let product = setup.start();
    let mut kept = tunnel(&product);
    let web = product.web();
    let extra = free();
    let with = setup.text().replace("routes:\n", &format!("  extra: {{ bind: \"{extra}\" }}\nroutes:\n"));
    product.reload(&with);
    assert_eq!(Peer::connect(extra).get("/").text(), "fine");
    let status = product.api("/api/status");
    assert_eq!(status["listeners"].as_array().map(Vec::len), Some(2));
    product.reload(&setup.text());
    eventually("the extra one is gone", || std::net::TcpStream::connect(extra).is_err());
    assert_eq!(product.web(), web);
    assert_eq!(product.get("/").text(), "fine");
    echoes(&mut kept);
}

#[test]
fn an_endpoint_that_is_down_stays_down() {
    let (dead, origin) = (refusing(), Origin::saying("alive"));
    let setup = Setup::to_addresses(&[dead, origin.address()])
        .cluster("health_check: { tcp: {}, interval: 100ms, timeout: 10s, rise: 1, fall: 1 }");
    let product = setup.start();
    let label = format!("endpoint=\"{dead}\"");
    eventually("it is down", || product.metric("equipoise_endpoint_up", &[&label]) == 0.0);
    let retries = product.metric("equipoise_cluster_retries_total", &[]);
    for _ in 0..5 {
        product.reload(&setup.clone().route("timeout: 10s").text());
        for _ in 0..4 {
            assert_eq!(product.get("/").text(), "alive");
        }
        product.reload(&setup.text());
        for _ in 0..4 {
            assert_eq!(product.get("/").text(), "alive");
        }
    }
    assert_eq!(product.metric("equipoise_cluster_retries_total", &[]), retries, "the dead one was tried");
}

#[test]
fn what_is_at_work_counts_towards_limits_after_a_change() {
    let (go, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::answering(move |_| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok("done")
    });
    let endpoint = format!("{{ address: \"{}\", connections_max: 1 }}", origin.address());
    let setup = Setup::to_endpoints([endpoint]).cluster("queue: { requests_max: 10, timeout: 30s }");
    let product = setup.start();
    let request = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut clients = vec![Peer::sending(product.web(), request), Peer::sending(product.web(), request)];
    let waiting = || product.metric("equipoise_cluster_queue_length", &["cluster=\"site\""]);
    eventually("one works, one waits", || origin.busy() == 1 && waiting() == 1.0);
    product.reload(&setup.clone().route("filters: [{ set_request_header: { x-a: \"1\" } }]").text());
    clients.push(Peer::sending(product.web(), request));
    eventually("two wait", || waiting() == 2.0);
    for _ in &clients {
        go.send(()).expect("the origin waits");
    }
    for client in &mut clients {
        assert_eq!(client.response().text(), "done");
    }
    assert_eq!(origin.busy_max(), 1);
}

#[test]
fn connections_to_endpoints_are_kept_and_those_of_removed_endpoints_are_closed() {
    let (stays, goes) = (Origin::saying("stays"), Origin::saying("goes"));
    let both = Setup::to_addresses(&[stays.address(), goes.address()]).workers(1);
    let product = both.start();
    for _ in 0..4 {
        product.get("/");
    }
    assert_eq!((stays.connections(), goes.connections()), (1, 1));
    product.reload(&Setup::to(&stays).text());
    for _ in 0..4 {
        assert_eq!(product.get("/").text(), "stays");
    }
    assert_eq!(stays.connections(), 1);
    eventually("nothing is kept to the removed one", || goes.open() == 0);
}

#[test]
fn an_exchange_that_is_under_way_ends_under_the_rules_it_began_with() {
    let (go, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let old = Origin::answering(move |_| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok("old")
    });
    let new = Origin::saying("new");
    let product = Setup::to(&old).start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is under way", || old.busy() == 1);
    product.reload(&Setup::to(&new).text());
    assert_eq!(product.get("/").text(), "new");
    go.send(()).expect("the origin waits");
    assert_eq!(peer.response().text(), "old");
    assert_eq!(peer.get("/").text(), "new");
}

#[test]
fn tcp_streams_outlive_a_change() {
    let (one, two) = (Origin::echo(), Origin::echo());
    let text = |origin: &Origin| {
        format!(
            "version: 1\nlisteners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: echo }}\n\
             clusters:\n  echo: {{ endpoints: [\"{}\"] }}\n",
            origin.address()
        )
    };
    let product = Product::start(&text(&one));
    let mut old = Peer::connect(product.address("line"));
    echoes(&mut old);
    product.reload(&text(&two));
    let mut new = Peer::connect(product.address("line"));
    echoes(&mut new);
    echoes(&mut old);
    assert_eq!((one.connections(), two.connections()), (1, 1));
}

#[test]
fn a_listener_that_gets_another_name_loses_no_request() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin);
    let extra = free();
    let named =
        |name: &str| setup.text().replace("routes:\n", &format!("  {name}: {{ bind: \"{extra}\" }}\nroutes:\n"));
    let product = Product::start(&named("one"));
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(Peer::connect(extra).get("/").text(), "fine");
                    served.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for name in ["two", "three", "one", "two", "one", "three"] {
        let before = served.load(Ordering::SeqCst);
        eventually("requests are served", || {
            served.load(Ordering::SeqCst) >= before + 20 || clients.iter().any(|client| client.is_finished())
        });
        let said = product.reload(&named(name));
        assert!(said.contains("configuration is live"), "{said}");
    }
    stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().expect("no request fails");
    }
}

#[test]
fn a_request_that_is_under_way_outlives_its_listener() {
    let (go, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::answering(move |_| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok("done")
    });
    let setup = Setup::to(&origin);
    let extra = free();
    let with = setup.text().replace("routes:\n", &format!("  extra: {{ bind: \"{extra}\" }}\nroutes:\n"));
    let product = Product::start(&with);
    let mut peer = Peer::sending(extra, "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is under way", || origin.busy() == 1);
    product.reload(&setup.text());
    eventually("the listener is gone", || std::net::TcpStream::connect(extra).is_err());
    go.send(()).expect("the origin waits");
    assert_eq!(peer.response().text(), "done");
}
