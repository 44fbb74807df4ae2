//! Active checks take endpoints out and bring them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::harness::net::{free, refusing};
use super::harness::origin::ok;
use super::harness::peer::is_end;
use super::harness::{Origin, Peer, Product, Setup, eventually, until};
use super::retries::Over;

fn up(product: &Product, origin: &Origin) -> bool {
    product.metric("equipoise_endpoint_up", &[&format!("endpoint=\"{}\"", origin.address())]) == 1.0
}

/// An origin that answers 200, or 503 while it is sick.
fn patient() -> (Origin, Arc<AtomicBool>) {
    let sick = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&sick);
    let origin = Origin::answering(move |_| match state.load(Ordering::SeqCst) {
        true => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
        false => ok("well"),
    });
    (origin, sick)
}

#[test]
fn an_endpoint_whose_check_fails_gets_no_work_until_it_is_well_again() {
    let ((sick, state), well) = (patient(), Origin::saying("well"));
    let product = Setup::to_addresses(&[sick.address(), well.address()])
        .cluster("health_check: { http: { path: \"/health?full\", host: check.example }, interval: 50ms, timeout: 10s, rise: 2, fall: 2 }")
        .start();
    state.store(true, Ordering::SeqCst);
    eventually("it is taken out", || !up(&product, &sick));
    for _ in 0..20 {
        assert_eq!(product.get("/work").text(), "well");
    }
    assert!(sick.requests().iter().all(|request| request.target() == "/health?full"));
    let check = sick.requests().pop().expect("a check");
    assert_eq!((check.method(), check.field("host")), ("GET", Some("check.example")));
    let status = product.api("/api/status");
    let told = &status["clusters"][0]["endpoints"][0];
    assert_eq!(told["up"], false);
    assert!(told["reason"].as_str().is_some_and(|reason| reason.contains("503")), "{told}");
    state.store(false, Ordering::SeqCst);
    eventually("it is brought back", || up(&product, &sick));
    eventually("it gets work", || {
        product.get("/work");
        sick.requests().iter().any(|request| request.target() == "/work")
    });
    product.expect_said(&["endpoint is down", "endpoint is up"]);
}

#[test]
fn a_port_that_refuses_is_taken_out_and_brought_back_once_it_accepts() {
    let goes = Origin::start_at(free(), |mut visit| visit.answer_all(|_| Some(ok("goes"))));
    let stays = Origin::saying("stays");
    let address = goes.address();
    let product = Setup::to_addresses(&[stays.address(), address])
        .cluster("health_check: { tcp: {}, interval: 50ms, timeout: 10s, rise: 1, fall: 1 }")
        .start();
    let is_up = || product.metric("equipoise_endpoint_up", &[&format!("endpoint=\"{address}\"")]) == 1.0;
    eventually("both are checked", || is_up() && goes.connections() > 0);
    drop(goes);
    eventually("it is taken out", || !is_up());
    let retries = product.metric("equipoise_cluster_retries_total", &[]);
    for _ in 0..20 {
        assert_eq!(product.get("/").text(), "stays");
    }
    assert_eq!(product.metric("equipoise_cluster_retries_total", &[]), retries, "it is not even tried");
    let back = Origin::start_at(address, |mut visit| visit.answer_all(|_| Some(ok("back"))));
    eventually("it is brought back", is_up);
    eventually("it gets work", || product.get("/").text() == "back");
    drop(back);
}

#[test]
fn one_failure_is_not_enough_where_more_are_asked_for() {
    let checks = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&checks);
    // Every third check fails.
    let origin = Origin::answering(move |_| match counter.fetch_add(1, Ordering::SeqCst) % 3 {
        2 => b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("fine"),
    });
    let product = Setup::to(&origin)
        .cluster("health_check: { http: { path: /h, statuses: [200, \"202-204\"] }, interval: 20ms, timeout: 10s, rise: 1, fall: 2 }")
        .start();
    eventually("many checks are done", || checks.load(Ordering::SeqCst) > 12);
    assert!(up(&product, &origin));
    assert!(!product.stderr().contains("endpoint is down"), "{}", product.stderr());
}

#[test]
fn a_check_that_is_not_answered_in_time_has_failed() {
    let origin = Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            if request.target() == "/h" {
                visit.peer.wait_closed();
                return;
            }
            visit.peer.send(ok("fine"));
        }
    });
    let product = Setup::to(&origin)
        .cluster("health_check: { http: { path: /h }, interval: 50ms, timeout: 50ms, rise: 1, fall: 2 }")
        .start();
    eventually("it is taken out", || !up(&product, &origin));
    assert_eq!(product.get("/").status(), 503);
    product.flagged("PE");
    eventually("checks leave no connection behind", || origin.open() <= 1);
}

#[test]
fn rubbish_and_endless_answers_to_a_check_are_failures() {
    let rubbish = Origin::answering(|_| b"SSH-2.0-rubbish\r\n\r\n".to_vec());
    let endless = Origin::start(|mut visit| {
        let _ = visit.request();
        visit.peer.send("HTTP/1.1 200 OK\r\n");
        while visit.peer.try_send(format!("X-A: {}\r\n", "x".repeat(1000))).is_ok() {}
    });
    let product = Setup::to_addresses(&[rubbish.address(), endless.address()])
        .cluster("health_check: { http: { path: /h }, interval: 50ms, timeout: 1s, rise: 1, fall: 1 }")
        .start();
    eventually("both are out", || !up(&product, &rubbish) && !up(&product, &endless));
}

#[test]
fn an_endpoint_without_a_check_is_used_as_it_is() {
    let origin = Origin::saying("fine");
    let product = Setup::to_addresses(&[refusing(), origin.address()]).start();
    for _ in 0..10 {
        assert_eq!(product.get("/").text(), "fine");
    }
    assert!(up(&product, &origin));
}

#[test]
fn tcp_streams_follow_the_checks_too() {
    let ((sick, state), well) = (patient(), Origin::echo());
    let product = Product::start(&format!(
        "version: 1\nlisteners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: echo }}\nclusters:\n  echo:\n\
         \x20   endpoints: [\"{}\", \"{}\"]\n\
         \x20   health_check: {{ http: {{ path: /h }}, interval: 50ms, timeout: 10s, rise: 1, fall: 1 }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n",
        sick.address(),
        well.address()
    ));
    state.store(true, Ordering::SeqCst);
    // The echo gives the check its own request back, which is no response: both are down.
    eventually("both are out", || product.metric("equipoise_endpoint_up", &[]) == 0.0);
    eventually("no stream is taken", || {
        super::harness::Peer::try_connect(product.address("line")).is_none_or(|mut peer| {
            peer.set_read_timeout(std::time::Duration::from_secs(1));
            peer.fill().map_or_else(|error| is_end(&error), |count| count == 0)
        })
    });
    state.store(false, Ordering::SeqCst);
    eventually("one is back", || up(&product, &sick));
    let answer = until("it gets streams", || {
        let mut peer = super::harness::Peer::try_connect(product.address("line"))?;
        peer.try_send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").ok()?;
        let mut answer = peer.try_head().ok()??;
        peer.try_body(&mut answer, true).ok()?;
        Some(answer)
    });
    assert_eq!(answer.text(), "well");
}

/// An endpoint's line in the status.
fn told(product: &Product, origin: &Origin) -> serde_json::Value {
    let status = product.api("/api/status");
    let endpoints = status["clusters"][0]["endpoints"].as_array().cloned().unwrap_or_default();
    let name = origin.address().to_string();
    endpoints.into_iter().find(|endpoint| endpoint["name"] == name.as_str()).expect("the endpoint")
}

#[test]
fn an_endpoint_that_fails_requests_in_a_row_is_ejected_and_comes_back() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&broken);
    let failing = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            if state.load(Ordering::SeqCst) {
                return;
            }
            visit.peer.send(ok("mended"));
        }
    });
    let well = Origin::saying("well");
    let product = Setup::to_addresses(&[failing.address(), well.address()])
        .cluster("passive_health: { consecutive_failures: 3, ejection_time: 5s }")
        .workers(2)
        .start();
    let mut failed = 0;
    eventually("it is ejected", || {
        if product.get("/").status() != 200 {
            failed += 1;
        }
        told(&product, &failing)["standing"] == "ejected"
    });
    assert_eq!(failed, 3, "three in a row, on whichever worker, and no more");
    let shown = told(&product, &failing);
    assert_eq!((&shown["up"], &shown["reason"]), (&false.into(), &"3 failures in a row".into()));
    assert!(shown["ejected_for_s"].as_f64().is_some_and(|left| left <= 5.0), "{shown}");
    let endpoint = format!("endpoint=\"{}\"", failing.address());
    product.expect_metric("equipoise_endpoint_ejections_total", &[&endpoint, "cause=\"consecutive_failures\""], 1.0);
    broken.store(false, Ordering::SeqCst);
    eventually("it works again", || product.get("/").text() == "mended");
    product.expect_metric("equipoise_endpoint_ejected", &[&endpoint], 0.0);
    product.expect_said(&["endpoint is ejected", "cause=consecutive_failures", "endpoint is no longer ejected"]);
}

#[test]
fn streams_of_events_in_which_nothing_happens_eject_nobody() {
    let quiet = || {
        Origin::start(|mut visit| {
            if visit.request().is_some() {
                visit.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                visit.peer.wait_closed();
            }
        })
    };
    let origins = [quiet(), quiet()];
    let product = Setup::to_all(&origins)
        .cluster("timeouts: { idle: 1s }")
        .cluster("passive_health: { consecutive_failures: 2, ejected_max: 100% }")
        .start();
    let request = "GET /events HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut clients: Vec<Peer> = (0..6).map(|_| Peer::sending(product.web(), request)).collect();
    for client in &mut clients {
        assert_eq!(client.head().status(), 200);
        client.wait_closed();
    }
    product.expect_metric("equipoise_endpoint_faults_total", &["fault=\"response_body_timeout\""], 6.0);
    for origin in &origins {
        assert_eq!(told(&product, origin)["standing"], "fit");
    }
}

#[test]
fn a_client_whose_long_target_comes_back_in_too_large_a_head_ejects_nobody() {
    let repeating = || {
        Origin::answering(|request| {
            let location = request.target().repeat(12);
            format!("HTTP/1.1 301 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        })
    };
    let origins = [repeating(), repeating()];
    let ejecting = "passive_health: { consecutive_failures: 2, ejected_max: 100% }";
    let product = Setup::to_all(&origins).cluster(ejecting).start();
    let path = format!("/{}", "a".repeat(6_000));
    for _ in 0..6 {
        assert_eq!(product.get(&path).status(), 502);
    }
    product.expect_metric("equipoise_endpoint_faults_total", &["fault=\"response_head_too_large\""], 6.0);
    for origin in &origins {
        assert_eq!(told(&product, origin)["standing"], "fit");
    }
}

#[test]
fn without_passive_health_nobody_is_ejected() {
    let failing = Origin::start(|mut visit| _ = visit.request());
    let product = Setup::to_addresses(&[failing.address(), Origin::saying("well").address()]).start();
    for _ in 0..20 {
        product.get("/");
    }
    assert_eq!(told(&product, &failing)["standing"], "fit");
    assert!(!product.admin("/metrics").text().contains("equipoise_endpoint_ejected"));
}

#[test]
fn an_endpoint_that_answers_5xx_more_often_than_may_be_is_ejected() {
    let failing = Origin::answering(|request| {
        let status = if request.target() == "/bad" { "500 Internal Server Error" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let well = Origin::saying("well");
    let product = Setup::to_addresses(&[failing.address(), well.address()])
        .cluster(
            "passive_health: { consecutive_failures: 0, failure_rate: { max: 40%, requests_min: 4 }, interval: 2s }",
        )
        .start();
    // Every other request goes there, and every other of those is bad: never two in a row.
    eventually("it is ejected", || {
        for path in ["/bad", "/bad", "/", "/"] {
            product.get(path);
        }
        told(&product, &failing)["standing"] == "ejected"
    });
    let reason = told(&product, &failing)["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.ends_with("requests failed"), "{reason}");
    assert_eq!(told(&product, &well)["standing"], "fit");
}

#[test]
fn an_endpoint_much_slower_than_the_others_is_ejected() {
    let slow = Origin::answering(|_| {
        std::thread::sleep(std::time::Duration::from_millis(300));
        ok("slow")
    });
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let product = Setup::to_addresses(&[slow.address(), one.address(), two.address()])
        .cluster("passive_health: { latency: { enough: 100ms, requests_min: 3 }, interval: 4s }")
        .start();
    eventually("it is ejected", || {
        for _ in 0..9 {
            product.get("/");
        }
        told(&product, &slow)["standing"] == "ejected"
    });
    let reason = told(&product, &slow)["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.starts_with("responses take"), "{reason}");
}

#[test]
fn tcp_endpoints_that_refuse_connections_are_ejected_too() {
    let well = Origin::echo();
    let refused = refusing();
    let product = Product::start(&format!(
        "version: 1\nlisteners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: echo }}\nclusters:\n  echo:\n\
         \x20   endpoints: [\"{refused}\", \"{}\"]\n\
         \x20   passive_health: {{ consecutive_failures: 2, ejection_time: 10m, ejection_time_max: 10m }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n",
        well.address()
    ));
    let stream = || {
        let mut peer = super::harness::Peer::connect(product.address("line"));
        peer.send("hello");
        assert_eq!(peer.take(5), b"hello");
    };
    for _ in 0..6 {
        stream();
    }
    product.expect_metric("equipoise_endpoint_ejected", &[&format!("endpoint=\"{refused}\"")], 1.0);
    product.expect_metric("equipoise_cluster_streams_total", &[], 6.0);
    product.expect_metric("equipoise_cluster_retries_total", &[], 2.0);
    for _ in 0..6 {
        stream();
    }
    product.expect_metric("equipoise_cluster_streams_total", &[], 12.0);
    assert_eq!(product.metric("equipoise_cluster_retries_total", &[]), 2.0, "it is not even tried");
}

/// An origin that is a process of its own, and so can be killed.
fn process(body: &str) -> Product {
    let admin = "admin: { bind: \"127.0.0.1:0\" }";
    Product::start(&format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes: [{{ respond: {{ status: 200, body: \"{body}\" }} }}]\n{admin}\n"
    ))
}

#[test]
fn an_origin_that_is_killed_under_load_is_ejected_and_costs_no_more_than_what_was_under_way() {
    const CLIENTS: usize = 4;
    const EJECTING: usize = 2;
    let (mut killed, stays) = (process("killed"), process("stays"));
    let product = Setup::to_addresses(&[killed.web(), stays.web()])
        .cluster(format!(
            "passive_health: {{ consecutive_failures: {EJECTING}, ejection_time: 10m, ejection_time_max: 10m }}"
        ))
        .workers(2)
        .start();
    let (end, failed, served) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let endpoint = format!("endpoint=\"{}\"", killed.web());
    std::thread::scope(|scope| {
        let _over = Over(&end);
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut peer = product.connect();
                while !end.load(Ordering::SeqCst) {
                    let answer = peer.get("/");
                    let count = if answer.status() == 200 { &served } else { &failed };
                    count.fetch_add(1, Ordering::SeqCst);
                    if answer.field("connection") == Some("close") {
                        peer = product.connect();
                    }
                }
            });
        }
        eventually("both work", || served.load(Ordering::SeqCst) > 100);
        killed.signal(9);
        killed.wait_ended();
        eventually("it is ejected", || product.metric("equipoise_endpoint_ejected", &[&endpoint]) == 1.0);
        let more = || {
            let before = served.load(Ordering::SeqCst);
            eventually("work goes on", || served.load(Ordering::SeqCst) > before + 100);
        };
        // Whoever was on the way to it as it was ejected has come to an end after this.
        more();
        let tries = failed_connects(&product, &endpoint);
        more();
        assert_eq!(failed_connects(&product, &endpoint), tries, "it is not even tried");
    });
    let failed = failed.into_inner();
    // Until it is ejected those who failed may come to it again, and then each has at most one under way.
    assert!(failed <= EJECTING + CLIENTS, "{failed} requests failed: more than eject it and were under way then");
}

fn failed_connects(product: &Product, endpoint: &str) -> f64 {
    product.metric("equipoise_endpoint_connects_total", &[endpoint, "result=\"failed\""])
}

/// A cluster of these endpoints, each with its state.
fn with_states(origins: &[(&Origin, &str)], cluster: &str) -> Setup {
    let line = |(origin, state): &(&Origin, &str)| format!("{{ address: \"{}\", state: {state} }}", origin.address());
    Setup::to_endpoints(origins.iter().map(line)).cluster(cluster)
}

#[test]
fn an_endpoint_that_drains_keeps_its_streams_and_gets_nothing_new() {
    let (one, two) = (Origin::echo(), Origin::echo());
    let text = |state: &str| {
        format!(
            "version: 1\nlisteners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: echo }}\nclusters:\n  echo:\n\
             \x20   endpoints: [{{ address: \"{}\", state: {state} }}, \"{}\"]\nadmin: {{ bind: \"127.0.0.1:0\" }}\n",
            one.address(),
            two.address()
        )
    };
    let product = Product::start(&text("auto"));
    let mut peers: Vec<_> = (0..2).map(|_| super::harness::Peer::connect(product.address("line"))).collect();
    let talk = |peer: &mut super::harness::Peer| {
        peer.send("hello");
        assert_eq!(peer.take(5), b"hello");
    };
    peers.iter_mut().for_each(talk);
    assert_eq!((one.connections(), two.connections()), (1, 1));
    product.reload(&text("drain"));
    eventually("it drains", || told(&product, &one)["standing"] == "drain");
    for _ in 0..4 {
        talk(&mut super::harness::Peer::connect(product.address("line")));
    }
    peers.iter_mut().for_each(talk);
    assert_eq!(one.connections(), 1, "nothing new");
    product.reload(&text("auto"));
    eventually("it gets work again", || {
        talk(&mut super::harness::Peer::connect(product.address("line")));
        one.connections() > 1
    });
}

#[test]
fn states_that_are_forced_overrule_the_checks_and_maintenance_ends_them() {
    let ((forced, sick), kept_down, worked_on) = (patient(), Origin::saying("down"), Origin::saying("maintained"));
    sick.store(true, Ordering::SeqCst);
    let states = [(&forced, "up"), (&kept_down, "down"), (&worked_on, "maintenance")];
    let product =
        with_states(&states, "health_check: { http: { path: /h }, interval: 20ms, timeout: 10s, rise: 1, fall: 1 }")
            .start();
    eventually("it is found to be down", || told(&product, &forced)["health"] == "down");
    eventually("checks go on where it is forced down", || kept_down.requests().len() > 3);
    assert_eq!(product.get("/").status(), 503, "it gets work, and answers what it answers");
    assert!(forced.requests().iter().any(|request| request.target() == "/"));
    assert_eq!(told(&product, &kept_down)["standing"], "forced_down");
    assert_eq!(told(&product, &worked_on)["standing"], "maintenance");
    assert_eq!(worked_on.connections(), 0, "it is left alone");
}

#[test]
fn below_the_threshold_of_panic_endpoints_that_are_down_get_work_too() {
    let ((one, sick_one), (two, sick_two)) = (patient(), patient());
    let product = Setup::to_addresses(&[one.address(), two.address()])
        .cluster("panic_threshold: 50%")
        .cluster("health_check: { http: { path: /h }, interval: 20ms, timeout: 10s, rise: 1, fall: 1 }")
        .start();
    sick_one.store(true, Ordering::SeqCst);
    eventually("one is out", || !up(&product, &one));
    assert_eq!(product.metric("equipoise_cluster_panic", &[]), 0.0);
    assert_eq!(product.get("/").text(), "well");
    sick_two.store(true, Ordering::SeqCst);
    eventually("both are out", || !up(&product, &two));
    product.expect_metric("equipoise_cluster_panic", &[], 1.0);
    assert_ne!(product.get("/").field("content-length"), None);
    assert!(product.records().iter().all(|record| record["flag"] != "PE"));
    eventually("it is said", || product.stderr().contains("panic threshold reached"));
    sick_one.store(false, Ordering::SeqCst);
    eventually("it is over", || product.stderr().contains("panic mode ended: enough endpoints are healthy"));
    product.expect_metric("equipoise_cluster_panic", &[], 0.0);
}

#[test]
fn an_endpoint_that_comes_up_starts_slowly() {
    let ((back, sick), stays) = (patient(), Origin::saying("stays"));
    sick.store(true, Ordering::SeqCst);
    let product = Setup::to_addresses(&[back.address(), stays.address()])
        .cluster("slow_start: 1h")
        .cluster("health_check: { http: { path: /h }, interval: 20ms, timeout: 10s, rise: 1, fall: 1 }")
        .start();
    eventually("it is out", || !up(&product, &back));
    sick.store(false, Ordering::SeqCst);
    eventually("it is back", || up(&product, &back));
    let got = (0..110).filter(|_| product.get("/").text() == "well").count();
    assert_eq!(got, 10, "a tenth of what the other gets");
    let endpoint = format!("endpoint=\"{}\"", back.address());
    let weights = [&endpoint, ""].map(|label| product.metric("equipoise_endpoint_weight_now", &[label]));
    assert_eq!(weights, [2.0, 22.0]);
}

#[test]
fn checks_by_http_expect_fields_and_bodies() {
    let role = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&role);
    let origin = Origin::answering(move |_| {
        let role = if state.load(Ordering::SeqCst) { "primary" } else { "replica" };
        format!(
            "HTTP/1.1 200 OK\r\nX-Role: {role}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nall\r\n5\r\n well\r\n0\r\n\r\n"
        )
        .into_bytes()
    });
    let http = "http: { path: /h, headers: { x-probe: \"1\" }, expect_headers: { x-role: primary }, expect_body: \"all well\" }";
    let product = Setup::to(&origin)
        .cluster(format!(
            "health_check: {{ {http}, interval: 20ms, timeout: 10s, rise: 1, fall: 1, reuse_connection: true }}"
        ))
        .start();
    eventually("many checks are done", || origin.requests().len() > 5);
    assert_eq!(origin.connections(), 1, "all over one connection");
    assert_eq!((up(&product, &origin), origin.requests()[0].field("x-probe")), (true, Some("1")));
    role.store(false, Ordering::SeqCst);
    eventually("it is taken out", || !up(&product, &origin));
    let reason = told(&product, &origin)["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("x-role"), "{reason}");
}

#[test]
fn checks_by_script_talk_to_what_is_not_http() {
    let line = |answer: &'static str| {
        Origin::start(move |mut visit| {
            if visit.peer.try_take_through(b"\r\n").is_ok() {
                visit.peer.send(answer);
                visit.peer.wait_closed();
            }
        })
    };
    let endless = Origin::start(|mut visit| while visit.peer.try_send("x".repeat(1_000)).is_ok() {});
    let (well, ill) = (line("+PONG\r\n"), line("-LOADING\r\n"));
    let product = Setup::to_addresses(&[well.address(), ill.address(), endless.address()])
        .cluster(
            "health_check: { script: [{ send: \"PING\\r\\n\" }, { expect: \"+PONG\" }], interval: 50ms, timeout: 3s, fall: 1 }",
        )
        .start();
    eventually("those that do not answer so are out", || !up(&product, &ill) && !up(&product, &endless));
    assert!(up(&product, &well));
    let reason = |origin| told(&product, origin)["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(reason(&ill), "no response within 3s");
    assert!(reason(&endless).contains("within 16384 bytes"), "{}", reason(&endless));
}

#[test]
fn an_endpoint_that_is_held_out_gets_nothing_before_its_first_good_check() {
    let ((slow, sick), well) = (patient(), Origin::saying("well"));
    sick.store(true, Ordering::SeqCst);
    let product = Setup::to_addresses(&[slow.address(), well.address()])
        .cluster(
            "health_check: { http: { path: /h }, interval: 20ms, timeout: 10s, rise: 1, fall: 1, start: held_out }",
        )
        .start();
    eventually("one is let in", || up(&product, &well));
    for _ in 0..10 {
        assert_eq!(product.get("/").text(), "well");
    }
    assert!(slow.requests().iter().all(|request| request.target() == "/h"));
    sick.store(false, Ordering::SeqCst);
    eventually("the other is let in too", || up(&product, &slow));
}

#[test]
fn an_agent_tells_how_much_work_an_endpoint_wants() {
    let says = Arc::new(std::sync::Mutex::new("ready up 50%\n".to_owned()));
    let state = Arc::clone(&says);
    let agent = Origin::start(move |mut visit| {
        let text = state.lock().expect("no panic").clone();
        visit.peer.send(text);
    });
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let product = Setup::to_endpoints([
        format!("{{ address: \"{}\", agent_port: {} }}", one.address(), agent.address().port()),
        format!("\"{}\"", two.address()),
    ])
    .cluster("agent_check: { interval: 20ms, timeout: 10s }")
    .start();
    let share = || (0..30).filter(|_| product.get("/").text() == "one").count();
    eventually("it gets half of the work of the other", || share() == 10);
    let say = |text: &str| *says.lock().expect("no panic") = text.to_owned();
    say("drain\n");
    eventually("it drains", || told(&product, &one)["standing"] == "drain");
    assert_eq!(share(), 0);
    say("ready down # out of memory\n");
    eventually("it is down", || told(&product, &one)["standing"] == "down");
    eventually("it says why", || told(&product, &one)["reason"] == "the agent reports down: out of memory");
    say("\u{0}\u{0} rubbish \n");
    let visits = agent.connections();
    eventually("it has said rubbish", || agent.connections() > visits + 2);
    assert_eq!(told(&product, &one)["standing"], "down", "rubbish says nothing");
    say("ready,up,100%");
    eventually("it gets all of its share", || share() == 15);
    product.expect_said(&["agent reports", "drain"]);
}

#[test]
fn an_answer_that_is_thrown_away_for_another_attempt_counts_by_its_status() {
    let failing = Origin::answering(|_| b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec());
    let well = Origin::saying("well");
    let start = |passive: &str| {
        Setup::to_addresses(&[failing.address(), well.address()])
            .cluster("retry: { on: [503] }")
            .cluster(format!("passive_health: {{ ejection_time: 5m, {passive} }}"))
            .start()
    };
    let by_failures = start("consecutive_failures: 2");
    let by_statuses = start("consecutive_5xx: 2");
    for _ in 0..8 {
        assert_eq!((by_failures.get("/").text(), by_statuses.get("/").text()), ("well".into(), "well".into()));
    }
    assert_eq!(told(&by_failures, &failing)["standing"], "fit", "it answers");
    assert_eq!(told(&by_statuses, &failing)["standing"], "ejected");
}

/// A frame of HTTP/2 on the first stream (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short frame");
    let stream = u8::from(kind != SETTINGS);
    [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// An endpoint that answers gRPC's question of health after `shop`, written by hand: `SERVING`, or `NOT_SERVING` while it
/// is sick.
fn grpc_health() -> (Origin, Arc<AtomicBool>) {
    let sick = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&sick);
    let origin = Origin::start(move |mut visit| {
        let mut got = Vec::new();
        // Before anything else, both sides tell their settings (RFC 9113 section 3.4).
        let mut answer = frame(SETTINGS, 0, b"");
        while !got.windows(6).any(|window| window == b"\x0a\x04shop") {
            match visit.peer.fill() {
                Ok(count) if count > 0 => got.extend(visit.peer.drain()),
                _ => return,
            }
        }
        assert!(got.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        let status = if state.load(Ordering::SeqCst) { 2 } else { 1 };
        // Field lines of RFC 7541: `:status 200` and the name `content-type` by their places in its table, the rest as text.
        answer.extend(frame(HEADERS, END_HEADERS, b"\x88\x0f\x10\x10application/grpc"));
        answer.extend(frame(DATA, 0, &[0, 0, 0, 0, 2, 8, status]));
        answer.extend(frame(HEADERS, END_HEADERS | END_STREAM, b"\x00\x0bgrpc-status\x010"));
        let _ = visit.peer.try_send(answer);
        visit.peer.wait_closed();
    });
    (origin, sick)
}

#[test]
fn an_endpoint_is_taken_out_while_it_says_by_grpc_that_it_does_not_serve() {
    let (origin, (grpc, sick)) = (Origin::saying("well"), grpc_health());
    let port = grpc.address().port();
    let product = Setup::to(&origin)
        .cluster(format!("health_check: {{ grpc: {{ service: shop }}, port: {port}, interval: 50ms, timeout: 10s, rise: 1, fall: 1, start: held_out }}"))
        .start();
    eventually("it says that it serves", || up(&product, &origin));
    assert_eq!(product.get("/").text(), "well");
    sick.store(true, Ordering::SeqCst);
    eventually("it is taken out", || !up(&product, &origin));
    assert_eq!(told(&product, &origin)["reason"], "says NOT_SERVING");
    assert_eq!(product.get("/").status(), 503);
    product.flagged("PE");
    sick.store(false, Ordering::SeqCst);
    eventually("it is brought back", || up(&product, &origin));
    eventually("checks leave no connection behind", || grpc.open() <= 1);
}
