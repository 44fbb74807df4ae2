//! The waiting queue beyond plain order of arrival: priorities, fairness, bounds, shedding, pages, exactness.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::balancing::{endpoint, hold, holding, queue_length, single};
use super::harness::{Origin, Peer, Product, Setup, eventually, product};

/// Lets those who wait through, one after the other, and says in which order they came to the origin.
fn order(origin: &Origin, go: &Sender<()>, clients: &mut [Peer]) -> Vec<String> {
    for _ in 0..clients.len() {
        go.send(()).expect("the origin waits");
    }
    for client in clients {
        assert_eq!(client.response().status(), 200);
    }
    origin.requests().iter().map(|request| request.target().trim_start_matches("/hold").to_owned()).collect()
}

/// Each waits before the next comes.
fn wait_in_line(product: &Product, requests: &[(&str, &str)]) -> Vec<Peer> {
    let mut clients = vec![hold(product, "0")];
    for (place, (name, field)) in requests.iter().enumerate() {
        // Until the first is at the origin it would itself be counted.
        let request = format!("GET /hold{name} HTTP/1.1\r\nHost: test\r\n{field}\r\n\r\n");
        if place == 0 {
            eventually("the first is at work", || product.metric("equipoise_endpoint_in_flight", &[]) == 1.0);
        }
        clients.push(Peer::sending(product.web(), request));
        eventually("it waits", || queue_length(product) == place + 1);
    }
    clients
}

#[test]
fn those_of_a_lower_class_come_first_and_an_offset_moves_one_within_its_class() {
    let (origin, go) = holding();
    let route = |path: &str, queue: &str| {
        format!("{{ match: {{ path: {{ prefix: {path} }} }}, cluster: site, queue: {{ {queue} }} }}")
    };
    let product = Setup::to_endpoints([endpoint(&origin, "connections_max: 1")])
        .cluster("queue: { requests_max: 100, timeout: 30s }")
        .route_before(route("/hold-vip", "class: -1"))
        .route_before(route("/hold-late", "offset: 1h"))
        .route_before(route("/hold-early", "offset: -1h"))
        .route_before(route("/hold-report", "class: 5, offset: -1h"))
        .start();
    let names = ["-report", "-late", "-1", "-2", "-early", "-vip"].map(|name| (name, "x: y"));
    let mut clients = wait_in_line(&product, &names);
    let wanted = ["0", "-vip", "-early", "-1", "-2", "-late", "-report"];
    assert_eq!(order(&origin, &go, &mut clients), wanted);
}

#[test]
fn the_order_of_arrival_holds_over_all_workers_while_places_come_free_and_others_come() {
    const WAITING: usize = 10;
    const CLIENTS: usize = 50;
    let (origin, go) = holding();
    let product = Setup::to_endpoints([endpoint(&origin, "connections_max: 1")])
        .cluster("queue: { requests_max: 100, timeout: 60s }")
        .workers(4)
        .start();
    let mut clients = vec![hold(&product, "0")];
    eventually("the first is at work", || origin.busy() == 1);
    for number in 1..CLIENTS {
        // From then on one comes in the very moment in which a place is freed, which is not for it.
        let freed = number.saturating_sub(WAITING);
        if freed > 0 {
            go.send(()).expect("the origin waits");
        }
        clients.push(hold(&product, &number.to_string()));
        eventually("the next is at work", || origin.requests().len() == freed + 1);
        eventually("it waits", || queue_length(&product) == number - freed);
    }
    for _ in 0..=WAITING {
        go.send(()).expect("the origin waits");
    }
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    let order: Vec<String> = origin.requests().iter().map(|request| request.target().to_owned()).collect();
    let wanted: Vec<String> = (0..CLIENTS).map(|number| format!("/hold{number}")).collect();
    assert_eq!(order, wanted);
    assert_eq!(origin.busy_max(), 1);
}

#[test]
fn keys_take_turns_and_one_that_fills_the_queue_is_displaced() {
    let (origin, go, product) = single("queue: { requests_max: 5, timeout: 30s, fair_by: { header: x-tenant } }");
    let requests = ["a1", "a2", "a3", "a4", "b1"].map(|name| (name, format!("x-tenant: {}", &name[..1])));
    let requests: Vec<(&str, &str)> = requests.iter().map(|(name, field)| (*name, field.as_str())).collect();
    let mut clients = wait_in_line(&product, &requests);
    let own = Peer::connect(product.web()).ask("GET /holda5 HTTP/1.1\r\nHost: test\r\nx-tenant: a\r\n\r\n");
    assert_eq!(own.status(), 503, "the queue is full of its own");
    clients.push(Peer::sending(product.web(), "GET /holdc1 HTTP/1.1\r\nHost: test\r\nx-tenant: c\r\n\r\n"));
    assert_eq!(clients.remove(4).response().status(), 503, "a4 makes room for c1");
    assert_eq!(order(&origin, &go, &mut clients), ["0", "a1", "b1", "c1", "a2", "a3"]);
}

#[test]
fn while_waiting_is_hopeless_some_are_shed() {
    let (origin, go, product) = single(
        "queue: { requests_max: 1000, timeout: 30s, retry_after: 1s500ms, \
         shed: { target: 20ms, interval: 100ms, from: newest } }",
    );
    let mut clients = vec![hold(&product, "")];
    eventually("the first is at work", || origin.busy() == 1);
    eventually("one is shed", || {
        clients.push(hold(&product, ""));
        product.records().iter().any(|record| record["flag"] == "PS")
    });
    let shed = product.flagged("PS");
    assert_eq!(shed["status"], 503);
    for _ in &clients {
        let _ = go.send(());
    }
    let answers: Vec<_> = clients.iter_mut().map(Peer::response).collect();
    assert_eq!(answers[0].status(), 200);
    let told = answers.iter().find(|answer| answer.status() == 503).expect("one was shed");
    assert_eq!(told.field("retry-after"), Some("2"), "whole seconds, no sooner than was said");
    product.expect_metric("equipoise_cluster_queue_length", &["cluster=\"site\""], 0.0);
}

#[test]
fn those_who_are_turned_away_see_the_page_of_the_operator() {
    let (origin, go) = holding();
    let folder = product::folder();
    std::fs::write(folder.path().join("busy.html"), "<h1>Much to do</h1>").expect("the folder is ours");
    let text = Setup::to_endpoints([endpoint(&origin, "connections_max: 1")])
        .cluster("queue: { requests_max: 1, timeout: 4s, retry_after: 7s, page: { file: busy.html, status: 529 } }")
        .route("filters: [{ set_response_header: { x-page: seen } }]")
        .text();
    let product = Product::start_in(folder, &text, 2);
    let mut first = hold(&product, "");
    eventually("the first is at work", || origin.busy() == 1);
    let mut waits = hold(&product, "");
    eventually("another waits", || queue_length(&product) == 1);
    let full = product.get("/");
    let late = waits.response();
    for (answer, flag) in [(full, "PQ"), (late, "PT")] {
        assert_eq!((answer.status(), answer.text().as_str()), (529, "<h1>Much to do</h1>"));
        assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!((answer.field("retry-after"), answer.field("x-page")), (Some("7"), Some("seen")));
        assert_eq!(product.flagged(flag)["status"], 529);
    }
    go.send(()).expect("the origin waits");
    assert_eq!(first.response().status(), 200);
    let broken = text.replace("busy.html", "nowhere.html");
    assert!(product.reload(&broken).contains("there is no such file"));
}

#[test]
fn a_bound_of_the_cluster_holds_for_all_endpoints_together() {
    let (origins, gos): (Vec<Origin>, Vec<_>) = (0..2).map(|_| holding()).unzip();
    let product = Setup::to_all(&origins)
        .cluster("requests_max: 1")
        .cluster("connections_max: 7")
        .cluster("queue: { requests_max: 10, timeout: 30s }")
        .workers(4)
        .start();
    let mut clients: Vec<Peer> = (0..4).map(|_| hold(&product, "")).collect();
    eventually("three wait", || queue_length(&product) == 3);
    let busy = || origins.iter().map(Origin::busy).sum::<usize>();
    for served in 1..=4 {
        eventually("one is at work", || busy() == 1);
        assert_eq!(queue_length(&product), 4 - served);
        let at = origins.iter().position(|origin| origin.busy() == 1).expect("one is busy");
        gos[at].send(()).expect("the origin waits");
        eventually("it was answered", || origins[at].busy() == 0 || queue_length(&product) < 4 - served);
    }
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn a_reload_that_raises_the_bound_serves_those_who_wait_at_once() {
    let (origin, go) = holding();
    let with = |places: u32| {
        Setup::to_endpoints([endpoint(&origin, &format!("connections_max: {places}"))])
            .cluster("queue: { requests_max: 10, timeout: 30s }")
    };
    let product = with(1).start();
    let mut clients: Vec<Peer> = (0..4).map(|_| hold(&product, "")).collect();
    eventually("three wait", || queue_length(&product) == 3);
    assert!(product.reload(&with(3).text()).contains("configuration is live"));
    eventually("two of them are at work", || (origin.busy(), queue_length(&product)) == (3, 1));
    assert!(product.reload(&with(2).text()).contains("configuration is live"));
    for left in (0..4).rev() {
        go.send(()).expect("the origin waits");
        eventually("no more than two after the others", || origin.busy() <= 2.max(left.min(3)));
    }
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(origin.busy_max(), 3);
}

#[test]
fn waits_end_when_the_time_is_up_neither_sooner_nor_much_later() {
    const WAIT: Duration = Duration::from_secs(1);
    let (origin, go, product) = single("queue: { requests_max: 1000, timeout: 1s }");
    let mut first = hold(&product, "");
    eventually("the first is at work", || origin.busy() == 1);
    // Each has a thread of its own, which sees the end when it comes.
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let mut peer = product.connect();
            let client = std::thread::spawn(move || {
                let sent = Instant::now();
                peer.send("GET /hold HTTP/1.1\r\nHost: test\r\n\r\n");
                assert_eq!(peer.response().status(), 503);
                sent.elapsed()
            });
            std::thread::sleep(Duration::from_millis(2));
            client
        })
        .collect();
    let mut late: Vec<Duration> = clients
        .into_iter()
        .map(|client| {
            let waited = client.join().expect("an answer");
            assert!(waited >= WAIT, "{waited:?}");
            waited - WAIT
        })
        .collect();
    late.sort_unstable();
    // The machine may be busy with other tests.
    assert!(late[late.len() / 2] <= 8 * WAIT, "median: {:?} late", late[late.len() / 2]);
    go.send(()).expect("the origin waits");
    assert_eq!(first.response().status(), 200);
}

/// An origin as lean as can be, which counts the requests that it has at once.
struct Counting {
    address: SocketAddr,
    busy: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
}

impl Counting {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (busy, most, served) = (Arc::default(), Arc::default(), Arc::default());
        let this = Self { address, busy, most, served };
        let counts = (Arc::clone(&this.busy), Arc::clone(&this.most), Arc::clone(&this.served));
        // Ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = counts.clone();
                std::thread::spawn(move || serve(stream, &counts));
            }
        });
        this
    }
}

fn serve(mut stream: TcpStream, (busy, most, served): &(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)) {
    stream.set_nodelay(true).expect("no delay");
    let mut buffer = [0; 4096];
    let mut filled = 0;
    while let Ok(count @ 1..) = stream.read(&mut buffer[filled..]) {
        filled += count;
        if !buffer[..filled].ends_with(b"\r\n\r\n") {
            continue;
        }
        filled = 0;
        most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::yield_now();
        served.fetch_add(1, Ordering::SeqCst);
        busy.fetch_sub(1, Ordering::SeqCst);
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// Sends so many requests, some at once, and reads as many answers, each of which must be 200.
fn exchange_many(web: SocketAddr, count: usize) {
    const AT_ONCE: usize = 25;
    let mut stream = TcpStream::connect(web).expect("the product listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let mut buffer = vec![0; 64 * 1024];
    let mut left = count;
    while left > 0 {
        let now = left.min(AT_ONCE);
        stream.write_all("GET / HTTP/1.1\r\nHost: t\r\n\r\n".repeat(now).as_bytes()).expect("it reads");
        let mut text = Vec::new();
        while text.windows(4).filter(|part| part == b"\r\n\r\n").count() < now {
            let count = stream.read(&mut buffer).expect("an answer in time");
            assert!(count > 0, "the connection was closed");
            text.extend_from_slice(&buffer[..count]);
        }
        let text = String::from_utf8(text).expect("text");
        assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), now, "{text}");
        assert_eq!(text.matches("HTTP/1.1").count(), now, "{text}");
        left -= now;
    }
}

/// With `EQUIPOISE_LONG` set, 100,000 for each number of workers instead of all of them.
#[test]
fn over_a_hundred_thousand_requests_an_origin_with_one_place_never_has_two_at_once() {
    const CLIENTS: usize = 8;
    let whole = 100_000;
    let each = if std::env::var_os("EQUIPOISE_LONG").is_some() { whole } else { whole / 3 };
    for workers in [1, 2, 4] {
        let origin = Counting::start();
        let product = Setup::to_endpoints([format!("{{ address: \"{}\", connections_max: 1 }}", origin.address)])
            .cluster("queue: { requests_max: 100, timeout: 60s }")
            .workers(workers)
            .start();
        let web = product.web();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let count = each / CLIENTS + usize::from(client < each % CLIENTS);
                scope.spawn(move || exchange_many(web, count));
            }
        });
        eprintln!("{workers} workers: {each} requests in {:?}", begun.elapsed());
        assert_eq!(origin.most.load(Ordering::SeqCst), 1, "{workers} workers");
        assert_eq!(origin.served.load(Ordering::SeqCst), each, "none lost, none sent twice");
        product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
    }
}
