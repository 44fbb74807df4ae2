//! What a program that takes over knows from the one before: nothing is found out anew, nothing is counted from nothing, and
//! datagrams find their connections and flows.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::HandshakeKind;

use super::harness::http3;
use super::harness::origin::ok;
use super::harness::poll::PATIENCE;
use super::harness::product::{executable, folder};
use super::harness::tls::{Client as TlsClient, connect};
use super::harness::{Origin, Peer, Product, Setup, eventually, net, sys};
use super::http3::site;
use super::udp;

fn named(name: &'static str) -> Origin {
    Origin::answering(move |request| match request.target() {
        "/healthz" if name == "bad" => b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok(name),
    })
}

#[test]
fn an_endpoint_that_is_down_is_not_tried_by_the_new_one() {
    let origins = [named("good"), named("bad")];
    let product = Setup::to_all(&origins)
        .cluster("health_check: { http: { path: /healthz }, interval: 30s, timeout: 10s, rise: 1, fall: 1 }")
        .start();
    product.expect_metric("equipoise_endpoint_up", &[], 1.0);
    for _ in 0..2 {
        product.upgrade();
        for _ in 0..30 {
            assert_eq!(product.get("/").text(), "good");
        }
    }
}

#[test]
fn an_endpoint_that_was_ejected_stays_out_and_is_counted() {
    let bad = Origin::start(|mut visit| drop(visit.request()));
    let origins = [named("good"), bad];
    let product = Setup::to_all(&origins)
        .cluster("passive_health: { consecutive_failures: 2, ejection_time: 10m, ejection_time_max: 10m }")
        .cluster("balance: round_robin")
        .start();
    eventually("it is ejected", || {
        product.get("/");
        product.metric("equipoise_endpoint_ejected", &[]) == 1.0
    });
    product.upgrade();
    for _ in 0..20 {
        assert_eq!(product.get("/").text(), "good");
    }
    product.expect_metric("equipoise_endpoint_ejected", &[], 1.0);
    product.expect_metric("equipoise_endpoint_ejections_total", &["cause=\"consecutive_failures\""], 1.0);
}

#[test]
fn a_circuit_that_is_open_stays_open_and_its_count_goes_on() {
    let origin = Origin::answering(|_| b"HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n".to_vec());
    let product =
        Setup::to(&origin).cluster("circuit_breaker: { error_ratio: { requests_min: 2, open_for: 10m } }").start();
    eventually("it opens", || product.get("/").status() == 503);
    let asked = origin.requests().len();
    for _ in 0..2 {
        product.upgrade();
        assert_eq!(product.get("/").status(), 503);
    }
    assert_eq!(origin.requests().len(), asked);
    product.expect_metric("equipoise_cluster_circuit_opened_total", &["cluster=\"site\""], 1.0);
    product.expect_metric("equipoise_cluster_circuit", &["cluster=\"site\""], 2.0);
}

#[test]
fn sessions_of_a_table_stay_where_they_are() {
    let names = ["a", "b", "c", "d"];
    let origins = names.map(named);
    let product =
        Setup::to_all(&origins).cluster("balance: random").cluster("persistence: { header: { name: x-user } }").start();
    let visit =
        |user: usize| product.connect().ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-User: u{user}\r\n\r\n")).text();
    let before: Vec<String> = (0..40).map(visit).collect();
    for _ in 0..2 {
        product.upgrade();
        let after: Vec<String> = (0..40).map(visit).collect();
        assert_eq!(after, before);
    }
    product.expect_metric("equipoise_cluster_session_entries", &[], 40.0);
}

#[test]
fn allowances_and_long_keys_of_tables_go_over() {
    let origin = named("good");
    let product = Setup::to(&origin)
        .top("tables: { users: { key: { header: x-user }, counters: [requests] } }")
        .route(
            "filters: [{ track: { table: users } }, { rate_limit: { rate: 1/h, burst: 20, key: { header: x-user } } }, \
             { deny: { status: 451 }, when: { table: { name: users, above: { requests: 18 } } } }]",
        )
        .start();
    let user = "user".repeat(15);
    let ask = || product.connect().ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-User: {user}\r\n\r\n")).status();
    (0..12).for_each(|_| assert_eq!(ask(), 200));
    product.upgrade();
    (0..6).for_each(|_| assert_eq!(ask(), 200));
    assert_eq!(ask(), 451, "the table has counted 19");
    product.upgrade();
    assert_eq!(ask(), 451);
    (0..5).for_each(|_| assert_eq!(ask(), 429));
    assert_eq!(product.get("/").status(), 200, "another key");
}

#[test]
fn requests_that_the_old_process_holds_count_until_they_end() {
    let origin = super::reload::versatile();
    let (gates, waiting) = std::sync::mpsc::channel();
    let slow = Origin::start(move |mut visit| {
        let _ = visit.request();
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
        let (gate, opened) = std::sync::mpsc::channel::<()>();
        let _ = gates.send(gate);
        let _ = opened.recv_timeout(PATIENCE);
        visit.peer.send("done");
    });
    let product = Setup::to(&origin)
        .cluster_more(format!("slow: {{ endpoints: [\"{}\"] }}", slow.address()))
        .route_before("{ name: slow, match: { path: { prefix: /slow } }, cluster: slow, filters: [{ concurrency_limit: { max: 2 } }] }")
        .start();
    let begin = || {
        let mut peer = product.connect();
        peer.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
        (peer, waiting.recv_timeout(PATIENCE).expect("it reaches the origin"))
    };
    let held = [begin(), begin()];
    assert_eq!(product.get("/slow").status(), 429);
    product.upgrade();
    for _ in 0..3 {
        assert_eq!(product.get("/slow").status(), 429, "the old process holds both places");
    }
    let [(mut first, gate), second] = held;
    gate.send(()).expect("it waits");
    assert!(first.rest().ends_with(b"done"));
    // The old process says so within a second.
    let mut third = None;
    eventually("the place is free", || {
        let mut peer = product.connect();
        peer.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
        third = waiting.recv_timeout(std::time::Duration::from_millis(100)).ok().map(|gate| (peer, gate));
        third.is_some()
    });
    assert_eq!(product.get("/slow").status(), 429);
    drop((second, third));
}

#[test]
fn counters_go_on_and_what_the_old_one_still_counts_is_added() {
    let origin = super::reload::versatile();
    let product = Setup::to(&origin).start();
    let mut kept = product.connect();
    for _ in 0..10 {
        assert_eq!(kept.get("/").status(), 200);
    }
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 10.0);
    product.upgrade();
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 10.0);
    // By the old one, which has the connection.
    assert_eq!(kept.get("/").status(), 200);
    drop(kept);
    for _ in 0..5 {
        product.get("/");
    }
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 16.0);
    product.expect_metric("equipoise_endpoint_requests_total", &["class=\"2xx\""], 16.0);
    product.upgrade();
    product.get("/");
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 17.0);
    product.expect_metric("equipoise_http_request_seconds_count", &["listener=\"web\""], 17.0);
    product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
}

#[test]
fn counters_of_what_the_new_one_has_not_used_yet_go_on_too() {
    let origin = named("good");
    let mut product = Setup::to(&origin).start();
    let counted = |product: &Product, wanted: f64| {
        for of in ["route", "cluster", "endpoint"] {
            product.expect_metric(&format!("equipoise_{of}_requests_total"), &["class=\"2xx\""], wanted);
        }
    };
    for _ in 0..10 {
        assert_eq!(product.get("/").status(), 200);
    }
    counted(&product, 10.0);
    product.upgrade();
    assert_eq!(product.wait_ended().code(), Some(0), "nobody tells any more what it has counted");
    counted(&product, 10.0);
    product.get("/");
    counted(&product, 11.0);
}

#[test]
fn wishes_and_changes_by_the_api_go_over_without_a_folder_for_them() {
    let origins = ["a", "b"].map(named);
    let product = Setup::to_all(&origins).start();
    let text = product.api("/api/status").to_string();
    let endpoint = origins[0].address();
    assert!(text.contains(&endpoint.to_string()));
    let wished = product.call(
        &format!("PUT /api/clusters/site/endpoints/{endpoint}/state"),
        &["Content-Type: application/json"],
        "{ \"state\": \"drain\" }",
    );
    assert_eq!(wished.status(), 200, "{}", wished.text());
    let weighed = product.call(
        &format!("PUT /api/clusters/site/endpoints/{}/weight", origins[1].address()),
        &["Content-Type: application/json"],
        "{ \"weight\": 7 }",
    );
    assert_eq!(weighed.status(), 200, "{}", weighed.text());
    let (changes, generation) = (product.api("/api/changes"), product.api("/api/status")["generation"].as_u64());
    product.upgrade();
    assert_eq!(product.api("/api/changes"), changes);
    assert_eq!(product.api("/api/status")["generation"].as_u64(), generation.map(|generation| generation + 1));
    for _ in 0..10 {
        assert_eq!(product.get("/").text(), "b");
    }
}

#[test]
fn what_providers_gave_goes_over_though_they_are_away_by_then() {
    let origins = [named("one"), named("two")];
    let folder = folder();
    let endpoints = |origin: &Origin| format!("endpoints: {{ site: [\"{}\"] }}\n", origin.address());
    let put = |folder: &Path, name: &str, text: &str| {
        std::fs::write(folder.join("new"), text).expect("ours");
        std::fs::rename(folder.join("new"), folder.join(name)).expect("ours");
    };
    put(folder.path(), "fleet.yaml", &endpoints(&origins[0]));
    put(folder.path(), "doors.yaml", "listeners: { more: { bind: \"127.0.0.1:0\" } }\n");
    let text = "version: 1\nlisteners: { web: { bind: \"127.0.0.1:0\" } }\nadmin: { bind: \"127.0.0.1:0\" }\n\
        routes: [{ cluster: site }]\nclusters: { site: { endpoints: { from: fleet } } }\nproviders:\n  \
        fleet: { file: { path: fleet.yaml, interval: 20ms } }\n  doors: { file: { path: doors.yaml, interval: 20ms } }\n";
    let product = Product::start_in(folder, text, 2);
    let answers = || [product.web(), product.address("more")].map(|address| Peer::connect(address).get("/").text());
    assert_eq!(answers(), ["one", "one"]);
    for name in ["fleet.yaml", "doors.yaml"] {
        std::fs::remove_file(product.folder().join(name)).expect("ours");
    }
    let are_away = || {
        let told = product.api("/api/providers");
        told["providers"].as_array().expect("a list").iter().all(|one| one["state"] == "away")
    };
    eventually("they are away", are_away);
    for _ in 0..2 {
        product.upgrade();
        assert_eq!(answers(), ["one", "one"]);
        eventually("they are away for the new one, too", are_away);
    }
    put(product.folder(), "fleet.yaml", &endpoints(&origins[1]));
    eventually("what it says comes into force", || answers() == ["two", "two"]);
}

#[test]
fn clients_resume_their_sessions_of_tls() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin), 2);
    let tls = TlsClient::trusting(&site.authority).config();
    let visit = || {
        let mut peer = connect(site.product.web(), "shop.example", &tls);
        assert_eq!(peer.get("/").text(), "fine");
        peer.tls().handshake_kind()
    };
    assert_ne!(visit(), Some(HandshakeKind::Resumed));
    for _ in 0..2 {
        site.product.upgrade();
        assert_eq!(visit(), Some(HandshakeKind::Resumed));
    }
}

#[test]
fn connections_of_http3_live_on_in_the_old_one_and_new_ones_are_the_new_one_s() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.request() {
            if request.target() == "/slow" {
                visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 400004\r\n\r\nhalf");
                wait.lock().expect("channel").recv().expect("the test lets it go");
                visit.peer.send(vec![7; 400_000]);
            } else if visit.peer.try_send(ok("fine")).is_err() {
                return;
            }
        }
    });
    let site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    let mut slow = client.open(http3::request("GET", "/slow"));
    client.end(&mut slow, <_>::default());
    assert_eq!(client.head(&mut slow).expect("a head").0, 200);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (stopped, count, web, tls) = (Arc::clone(&stop), Arc::clone(&done), site.product.web(), site.tls());
    let load = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let mut client = http3::Client::connect(web, "shop.example", &tls);
            assert_eq!(client.get("/").text(), "fine");
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    for _ in 0..2 {
        let before = done.load(Ordering::Relaxed);
        eventually("others come", || done.load(Ordering::Relaxed) > before || load.is_finished());
        site.product.upgrade();
        assert_eq!(site.connect().get("/").text(), "fine");
    }
    // From another port, where the kernel may give its datagrams to another worker of another process.
    client.move_away();
    go.send(()).expect("the origin waits");
    let mut received = 0;
    while let Some(chunk) = client.chunk(&mut slow).expect("the connection lives") {
        received += chunk.len();
    }
    assert_eq!(received, 400_004);
    stop.store(true, Ordering::Relaxed);
    load.join().expect("no connection failed");
}

#[test]
fn a_connection_of_http3_outlives_the_other_ports_of_the_old_process() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.request() {
            if request.target() == "/slow" {
                visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 400004\r\n\r\nhalf");
                wait.lock().expect("channel").recv().expect("the test lets it go");
                visit.peer.send(vec![7; 400_000]);
            } else if visit.peer.try_send(ok("fine")).is_err() {
                return;
            }
        }
    });
    let site = site(Setup::to(&origin).top("shutdown: { drain_timeout: 5m }"), 2);
    let mut client = site.connect();
    let mut slow = client.open(http3::request("GET", "/slow"));
    client.end(&mut slow, <_>::default());
    assert_eq!(client.head(&mut slow).expect("a head").0, 200);
    // So many that either worker has some. They do not hear that they are closed, for they move during calls only.
    let connect = || {
        let mut client = site.connect();
        assert_eq!(client.get("/").text(), "fine");
        client
    };
    let others: Vec<http3::Client> = std::iter::repeat_with(connect).take(20).collect();
    let (old, new) = (site.product.serving(), site.product.upgrade());
    // What both have are the sockets of the admin listener, and of the one port that has the download.
    let are_over = || sys::sockets(old).intersection(&sys::sockets(new)).count() <= 2;
    eventually("the other port is over", are_over);
    for other in &others {
        // What it says from there is for a connection that nobody has.
        other.move_away();
        other.flush();
    }
    go.send(()).expect("the origin waits");
    let mut received = 0;
    while let Some(chunk) = client.chunk(&mut slow).expect("the connection lives") {
        received += chunk.len();
    }
    assert_eq!(received, 400_004);
}

#[test]
fn connections_of_http3_that_the_new_one_does_not_want_are_carried_to_their_end() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 400004\r\n\r\nhalf");
            wait.lock().expect("channel").recv().expect("the test lets it go");
            visit.peer.send(vec![7; 400_000]);
        }
    });
    let mut site = site(Setup::to(&origin).top("shutdown: { drain_timeout: 5m }"), 2);
    let mut client = site.connect();
    let mut slow = client.open(http3::request("GET", "/slow"));
    client.end(&mut slow, <_>::default());
    assert_eq!(client.head(&mut slow).expect("a head").0, 200);
    let file = site.product.folder().join("equipoise.yaml");
    let text = std::fs::read_to_string(&file).expect("ours");
    let without = text.replace("[h1, h2, h3]", "[h1, h2]");
    assert_ne!(without, text);
    std::fs::write(&file, without).expect("ours");
    site.product.upgrade();
    go.send(()).expect("the origin waits");
    let mut received = 0;
    while let Some(chunk) = client.chunk(&mut slow).expect("the connection lives") {
        received += chunk.len();
    }
    assert_eq!(received, 400_004);
    drop((slow, client));
    assert_eq!(site.product.wait_ended().code(), Some(0), "it has heard that its client went");
}

#[test]
fn http3_that_comes_back_with_the_new_one_finds_its_port_though_the_old_one_still_has_connections_there() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.request() {
            visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 400004\r\n\r\nhalf");
            if request.target() == "/slow" {
                wait.lock().expect("channel").recv().expect("the test lets it go");
            }
            visit.peer.send(vec![7; 400_000]);
        }
    });
    let mut site = site(Setup::to(&origin).top("shutdown: { drain_timeout: 5m }"), 2);
    let address = net::free();
    let file = site.product.folder().join("equipoise.yaml");
    let with = std::fs::read_to_string(&file).expect("ours").replacen("\"127.0.0.1:0\"", &format!("\"{address}\""), 1);
    let tls = site.tls();
    let connect = || http3::Client::connect(address, "shop.example", &tls);
    site.product.reload(&with);
    let mut client = connect();
    let mut slow = client.open(http3::request("GET", "/slow"));
    client.end(&mut slow, <_>::default());
    assert_eq!(client.head(&mut slow).expect("a head").0, 200);
    let said = site.product.reload(&with.replace("[h1, h2, h3]", "[h1, h2]"));
    assert!(said.contains("configuration is live"), "{said}");
    std::fs::write(&file, &with).expect("ours");
    site.product.upgrade();
    for _ in 0..8 {
        assert_eq!(connect().get("/").status, 200);
    }
    go.send(()).expect("the origin waits");
    let mut received = 0;
    while let Some(chunk) = client.chunk(&mut slow).expect("the connection lives") {
        received += chunk.len();
    }
    assert_eq!(received, 400_004);
    drop((slow, client));
    assert_eq!(site.product.wait_ended().code(), Some(0), "it has heard that its client went");
}

/// What ends a service tells the new process alone, and kills what is left when that has gone.
#[test]
fn a_new_process_that_is_told_to_end_waits_for_what_the_old_one_carries_to_its_end() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 400004\r\n\r\nhalf");
            wait.lock().expect("channel").recv().expect("the test lets it go");
            visit.peer.send(vec![7; 400_000]);
        }
    });
    let mut site = site(Setup::to(&origin).top("shutdown: { drain_timeout: 30s }"), 2);
    let mut client = site.connect();
    let mut slow = client.open(http3::request("GET", "/slow"));
    client.end(&mut slow, <_>::default());
    assert_eq!(client.head(&mut slow).expect("a head").0, 200);
    let new = site.product.upgrade();
    let drains = || site.product.stderr().matches("info draining").count();
    let before = drains();
    sys::signal(new, libc::SIGTERM);
    eventually("the new one drains too", || drains() > before);
    // Its listeners have gone before it could end.
    eventually("it accepts nothing", || std::net::TcpStream::connect(site.product.web()).is_err());
    go.send(()).expect("the origin waits");
    let mut received = 0;
    while let Some(chunk) = client.chunk(&mut slow).expect("the connection lives") {
        received += chunk.len();
    }
    assert_eq!(received, 400_004);
    assert!(std::path::Path::new(&format!("/proc/{new}")).exists(), "it waits");
    drop(client);
    assert_eq!(site.product.wait_ended().code(), Some(0));
}

#[test]
fn connections_of_http3_of_an_old_process_that_is_killed_are_reset_by_the_new_one() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
            // Until the test is over.
            let _ = wait.lock().expect("channel").recv();
        }
    });
    let mut site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    let mut slow = client.open(http3::request("GET", "/slow"));
    client.end(&mut slow, <_>::default());
    assert_eq!(client.head(&mut slow).expect("a head").0, 200);
    site.product.upgrade();
    site.product.signal(libc::SIGKILL);
    site.product.wait_ended();
    // It says something, and learns that nobody knows it. By itself it would wait for minutes.
    client.let_go(slow);
    let error = client.with_quic("its end", async |quic| quic.closed().await);
    assert!(matches!(error, quinn::ConnectionError::Reset), "{error:?}");
    drop(go);
}

#[test]
fn flows_of_datagrams_stay_with_their_endpoint() {
    let (one, other) = (udp::Echo::start("a"), udp::Echo::start("b"));
    let product = udp::start("idle_timeout: 60s", &[&one, &other], "");
    let clients: Vec<udp::Client> = (0..12).map(|_| udp::Client::of(&product)).collect();
    let asked = |text: &str| clients.iter().map(|client| client.ask(text)).collect::<Vec<_>>();
    let before = asked("x");
    let sources = one.sources().len() + other.sources().len();
    for _ in 0..2 {
        product.upgrade();
        for _ in 0..3 {
            assert_eq!(asked("x"), before);
        }
    }
    assert_eq!(one.sources().len() + other.sources().len(), sources, "no flow has begun anew");
    let late = udp::Client::of(&product);
    assert!(late.ask("new").ends_with("new"));
}

#[test]
fn flows_of_an_old_process_that_is_killed_begin_anew() {
    let one = udp::Echo::start("a");
    let mut product = udp::start("idle_timeout: 60s", &[&one], "");
    let clients: Vec<udp::Client> = (0..6).map(|_| udp::Client::of(&product)).collect();
    let all_are_answered = || clients.iter().for_each(|client| assert_eq!(client.ask("x"), "ax"));
    all_are_answered();
    product.upgrade();
    all_are_answered();
    assert_eq!(one.sources().len(), 6);
    product.signal(libc::SIGKILL);
    product.wait_ended();
    all_are_answered();
    assert_eq!(one.sources().len(), 12);
}

#[test]
fn systemd_is_told_of_everything_that_happens() {
    let origin = Origin::saying("fine");
    let folder = folder();
    let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a new path");
    // Read at once: the kernel keeps few, and what says only that it is alive would take the place of the others.
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut room = [0; 512];
        while let Ok(count) = socket.recv(&mut room)
            && told.send(String::from_utf8_lossy(&room[..count]).into_owned()).is_ok()
        {}
    });
    let heard = || tells.recv_timeout(PATIENCE).expect("something is said");
    // All but what says only that it is alive.
    let said = || std::iter::repeat_with(heard).find(|said| said != "WATCHDOG=1").expect("endless");
    let text = Setup::to(&origin).text().replace("DIR", folder.path().to_str().expect("a path"));
    std::fs::write(folder.path().join("equipoise.yaml"), text).expect("ours");
    let mut command = Command::new(executable());
    command.args(["run", "-c", "equipoise.yaml", "--workers", "2", "--pid-file", "pid"]);
    command.env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "200000");
    let mut product = Product::spawn_command(&mut command, folder);
    assert_eq!(said(), "READY=1");
    eventually("it says that it is alive", || heard() == "WATCHDOG=1");
    product.signal(libc::SIGHUP);
    assert!(said().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(said(), "READY=1");
    let pid_file = product.folder().join("pid");
    let written = |pid: u32| std::fs::read_to_string(&pid_file).is_ok_and(|found| found == format!("{pid}\n"));
    eventually("its number is written", || written(product.pid()));
    let pid = product.upgrade();
    assert_eq!(said(), format!("MAINPID={pid}\nREADY=1"));
    assert_eq!(product.wait_ended().code(), Some(0));
    eventually("its number is written", || written(pid));
    eventually("the new one says that it is alive", || heard() == "WATCHDOG=1");
    sys::signal(pid, libc::SIGTERM);
    assert_eq!(said(), "STOPPING=1");
    eventually("the file goes", || !pid_file.exists());
}

#[test]
fn the_admin_address_may_be_a_socket_that_was_made_ready() {
    let (origin, folder) = (Origin::saying("fine"), folder());
    let made = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let bind = format!("admin: {{ bind: \"{}\"", made.local_addr().expect("an address"));
    let text = Setup::to(&origin).text().replace("admin: { bind: \"127.0.0.1:0\"", &bind);
    let text = text.replace("DIR", folder.path().to_str().expect("a path"));
    std::fs::write(folder.path().join("equipoise.yaml"), text).expect("ours");
    let mut command = Command::new("sh");
    let path = executable().display();
    command.args(["-c", &format!("LISTEN_PID=$$ LISTEN_FDS=1 exec {path} run -c equipoise.yaml --workers 1")]);
    sys::pass(&mut command, vec![made.into()]);
    let product = Product::spawn_command(&mut command, folder);
    assert_eq!(product.api("/api/status")["generation"], 1);
    assert!(!product.stderr().contains("has no listener"), "{}", product.stderr());
    product.upgrade();
    assert!(product.api("/api/status")["generation"].is_u64());
}

#[test]
fn what_was_left_open_and_is_no_socket_is_told() {
    let folder = folder();
    let setup = Setup::to(&Origin::saying("fine")).text().replace("DIR", "/tmp");
    std::fs::write(folder.path().join("equipoise.yaml"), setup).expect("ours");
    let path = executable().display();
    let run = format!("LISTEN_PID=$$ LISTEN_FDS=1 exec {path} run -c equipoise.yaml 3</dev/null");
    let ended = Command::new("sh").args(["-c", &run]).current_dir(folder.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("descriptor 3 of LISTEN_FDS is not a socket"), "{said}");
    assert!(ended.status.code().is_some_and(|code| code != 0), "{:?}", ended.status);
}

#[test]
fn sockets_of_another_process_are_set_up_as_they_are_configured_here() {
    let origin = Origin::saying("fine");
    let folder = folder();
    let made = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, ours) = (made.local_addr().expect("an address"), made.try_clone().expect("a descriptor"));
    let text = |settings: &str, folder: &Path| {
        let setup = Setup::to(&origin).listener(settings).text();
        let text = setup.replace("bind: \"127.0.0.1:0\"\n", &format!("bind: \"{address}\"\n"));
        text.replace("DIR", folder.to_str().expect("a path"))
    };
    let none = "socket: {}";
    std::fs::write(folder.path().join("equipoise.yaml"), text(none, folder.path())).expect("ours");
    let mut command = Command::new("sh");
    let path = executable().display();
    command.args(["-c", &format!("LISTEN_PID=$$ LISTEN_FDS=1 exec {path} run -c equipoise.yaml --workers 2")]);
    sys::pass(&mut command, vec![made.into()]);
    let product = Product::spawn_command(&mut command, folder);
    let has = || {
        let socket = socket2::SockRef::from(&ours);
        let told = "it is a socket of TCP";
        (socket.tcp_nodelay().expect(told), socket.keepalive().expect(told), socket.tos_v4().expect(told))
    };
    let answers = || assert_eq!(Peer::connect(address).get("/").text(), "fine");
    answers();
    assert_eq!(has(), (true, false, 0), "small pieces of an answer wait for nothing");
    for (settings, wanted) in [
        ("socket: { keepalive: { idle: 300s }, dscp: 10 }", (true, true, 40)),
        ("socket: { dscp: 12 }", (true, false, 48)),
        (none, (true, false, 0)),
    ] {
        std::fs::write(product.folder().join("equipoise.yaml"), text(settings, product.folder())).expect("ours");
        product.upgrade();
        eventually(settings, || has() == wanted);
        answers();
    }
    let busy = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let busy = format!("socket: {{ dscp: 10 }}\n  x: {{ bind: \"{}\" }}", busy.local_addr().expect("an address"));
    std::fs::write(product.folder().join("equipoise.yaml"), text(&busy, product.folder())).expect("ours");
    let said = product.upgrade_in_vain();
    assert!(said.contains("cannot listen on"), "{said}");
    assert_eq!(has(), (true, false, 0), "of the active configuration");
    answers();
}

#[test]
fn systemd_is_told_that_all_workers_are_alive_while_a_configuration_is_waited_for() {
    let origin = Origin::saying("fine");
    let folder = folder();
    let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a new path");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let heard = || {
        let mut room = [0; 512];
        let count = socket.recv(&mut room).expect("something is said");
        String::from_utf8_lossy(&room[..count]).into_owned()
    };
    let setup = Setup::to(&origin);
    let text = setup.text().replace("DIR", folder.path().to_str().expect("a path"));
    let file = folder.path().join("equipoise.yaml");
    std::fs::write(&file, text).expect("ours");
    let mut command = Command::new(executable());
    command.args(["run", "-c", "equipoise.yaml", "--workers", "2"]);
    command.env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "40000");
    let product = Product::spawn_command(&mut command, folder);
    // So many that it takes a while.
    std::fs::write(&file, setup.large_text(product.folder())).expect("ours");
    product.signal(libc::SIGHUP);
    eventually("it reads", || heard().starts_with("RELOADING=1"));
    let mut beats = 0;
    eventually("it has read", || {
        let said = heard();
        beats += u32::from(said == "WATCHDOG=1");
        said == "READY=1"
    });
    assert!(beats >= 3, "{beats} signs of life while it read");
    assert_eq!(product.get("/").text(), "fine");
}

#[test]
fn sockets_that_were_made_ready_are_found_by_name_or_address() {
    let origin = Origin::saying("fine");
    let folder = folder();
    let streams = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let addresses = streams.each_ref().map(|socket| socket.local_addr().expect("an address"));
    // One by its address, one by its name alone, and one for datagrams.
    let text = Setup::to(&origin)
        .text()
        .replace("127.0.0.1:0\"\nroutes", &format!("{}\"\n  named: {{ bind: \"127.0.0.1:1\" }}\n  dns: {{ bind: \"{}\", protocol: udp, cluster: site }}\nroutes", addresses[0], datagrams.local_addr().expect("an address")))
        .replace("DIR", folder.path().to_str().expect("a path"));
    std::fs::write(folder.path().join("equipoise.yaml"), text).expect("ours");
    // Before anybody accepts: it waits in the socket.
    let early = Peer::sending(addresses[0], "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut command = Command::new("sh");
    let path = executable().display();
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=3 LISTEN_FDNAMES=unknown:named:unknown exec {path} run -c equipoise.yaml --workers 3"
    );
    command.args(["-c", &script]);
    let descriptors: Vec<OwnedFd> = streams.into_iter().map(OwnedFd::from).chain([datagrams.into()]).collect();
    sys::pass(&mut command, descriptors);
    let product = Product::spawn_command(&mut command, folder);
    let mut early = early;
    assert_eq!(early.response().text(), "fine");
    assert_eq!((product.address("web"), product.address("named")), (addresses[0], addresses[1]));
    for address in addresses {
        assert_eq!(Peer::connect(address).get("/").text(), "fine");
    }
    product.upgrade();
    for address in addresses {
        assert_eq!(Peer::connect(address).get("/").text(), "fine");
    }
}
