//! What endpoints do wrong, what the client is told, and what stands in the log: each fault under its own flag.

use std::time::{Duration, Instant};

use super::harness::net::{Blackhole, refusing};
use super::harness::origin::ok;
use super::harness::{Message, Origin, Peer, Product, Setup, eventually};

/// Asks once and asserts status and flag of what comes of it.
fn fails(product: &Product, path: &str, status: u16, flag: &str) -> Message {
    let answer = product.get(path);
    assert_eq!(answer.status(), status, "{path}: {}", answer.text());
    let record = product.flagged(flag);
    assert_eq!((record["status"].as_u64(), record["path"].as_str()), (Some(status.into()), Some(path)), "{record}");
    eventually("it is counted", || product.metric("equipoise_faults_total", &["listener=\"web\""]) >= 1.0);
    answer
}

#[test]
fn a_refused_connection_is_answered_502() {
    let product = Setup::to_addresses(&[refusing()]).start();
    let mut peer = product.connect();
    let answer = peer.get("/");
    assert_eq!(answer.status(), 502);
    assert_eq!(peer.get("/").status(), 502, "the client's connection lives on");
    let record = product.flagged("UC");
    assert_eq!(record["fault"], "connect_failed");
    product.expect_metric("equipoise_faults_total", &["fault=\"connect_failed\"", "source=\"upstream\""], 2.0);
}

#[test]
fn another_endpoint_is_tried_when_one_refuses() {
    let origin = Origin::saying("alive");
    let product = Setup::to_addresses(&[refusing(), origin.address()]).start();
    for _ in 0..10 {
        let answer = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(answer.text(), "alive");
    }
    assert_eq!(origin.requests().len(), 10);
    assert!(origin.requests().iter().all(|request| request.text() == "hi"));
    let retried = product.record("a retry", |record| record["retries"] == 1);
    assert_eq!((retried["status"].as_u64(), retried["flag"].as_str()), (Some(200), None));
    product.expect_metric_at_least("equipoise_cluster_retries_total", &["cluster=\"site\""], 1.0);
    assert_eq!(retried["endpoint_address"].as_str(), Some(origin.address().to_string().as_str()));
}

#[test]
fn an_endpoint_that_does_not_accept_in_time_is_answered_504() {
    let blackhole = Blackhole::open();
    let product = Setup::to_addresses(&[blackhole.address()]).cluster("timeouts: { connect: 200ms }").start();
    let start = Instant::now();
    fails(&product, "/", 504, "UCT");
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn a_client_that_resets_while_its_endpoint_is_connected_to_is_not_waited_for() {
    let blackhole = Blackhole::open();
    let product = Setup::to_addresses(&[blackhole.address()]).cluster("timeouts: { connect: 1m }").start();
    let mut client = product.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    product.expect_metric("equipoise_endpoint_in_flight", &[], 1.0);
    client.reset();
    product.flagged("CW");
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
}

#[test]
fn another_endpoint_is_tried_when_one_does_not_accept() {
    let (origin, blackhole) = (Origin::saying("alive"), Blackhole::open());
    let product =
        Setup::to_addresses(&[blackhole.address(), origin.address()]).cluster("timeouts: { connect: 1s }").start();
    for _ in 0..4 {
        assert_eq!(product.get("/").text(), "alive");
    }
}

#[test]
fn an_endpoint_that_does_not_answer_in_time_is_answered_504_and_given_up() {
    let origin = Origin::start(|mut visit| {
        let _ = visit.request();
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).cluster("timeouts: { response_head: 200ms }").start();
    fails(&product, "/", 504, "URT");
    eventually("its connection is closed", || origin.connections() > 0 && origin.open() == 0);
    assert_eq!((origin.connections(), origin.requests().len()), (1, 1), "it was not tried again");
}

#[test]
fn an_interim_response_does_not_stop_the_clock() {
    let origin = Origin::start(|mut visit| {
        let _ = visit.request();
        visit.peer.send("HTTP/1.1 103 Early Hints\r\n\r\n");
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).cluster("timeouts: { response_head: 3s }").start();
    let mut peer = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 103);
    assert_eq!(peer.response().status(), 504);
}

#[test]
fn an_exchange_that_takes_longer_than_its_route_allows_is_ended() {
    let origin = Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            if request.target() == "/body" {
                visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
                // Never idle, and never done.
                while visit.peer.try_send("x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            visit.peer.wait_closed();
        }
    });
    let product = Setup::to(&origin).route("timeout: 3s").start();
    fails(&product, "/head", 504, "PD");
    let mut peer = Peer::sending(product.web(), "GET /body HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 200);
    // All of it would take over half an hour.
    assert!(peer.wait_closed() < Duration::from_secs(60));
    let record = product.record("the body", |record| record["path"] == "/body");
    assert_eq!(record["flag"], "PD");
    eventually("the endpoint is free", || origin.open() == 0);
}

#[test]
fn an_endpoint_that_closes_or_resets_before_its_response_is_answered_502() {
    let origin = Origin::start(|mut visit| {
        let Some(request) = visit.request() else { return };
        match request.target() {
            "/reset" => visit.peer.reset(),
            "/half" => visit.peer.send("HTTP/1.1 200 OK\r\nContent-Le"),
            _ => {}
        }
    });
    let product = Setup::to(&origin).start();
    for path in ["/close", "/reset", "/half"] {
        let answer = product.get(path);
        assert_eq!(answer.status(), 502, "{path}");
        let record = product.record(path, |record| record["path"] == path);
        assert!(matches!(record["flag"].as_str(), Some("UR" | "UB")), "{record}");
    }
    assert_eq!(origin.requests().len(), 3, "each was sent once");
    product.flagged("UR");
}

#[test]
fn an_endpoint_that_goes_away_while_it_is_sent_a_body_is_answered_502() {
    let origin = Origin::start(|mut visit| {
        let _ = visit.peer.try_head();
        visit.peer.reset();
    });
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 268435456\r\n\r\n");
    let chunk = vec![0; 64 * 1024];
    while peer.try_send(&chunk).is_ok() {
        peer.set_read_timeout(Duration::from_millis(1));
        if !peer.fill().is_err_and(|error| super::harness::peer::is_timeout(&error)) {
            break;
        }
    }
    peer.set_read_timeout(super::harness::poll::PATIENCE);
    assert_eq!(peer.response().status(), 502);
    let record = product.record("the upload", |record| record["method"] == "POST");
    assert!(matches!(record["flag"].as_str(), Some("US" | "UR")), "{record}");
    assert_eq!(origin.connections(), 1, "body bytes are never sent twice");
}

#[test]
fn what_is_no_response_is_answered_502_and_not_passed_on() {
    const BAD: &[&str] = &[
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "\x15\x03\x03\0\x02\x02\x46\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 High\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2x0 Odd\r\nContent-Length: 0\r\n\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: test\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: a\rb\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX A: 1\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: 1\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: 1\r\n folded\r\nContent-Length: 0\r\n\r\n",
    ];
    let origin = Origin::answering(|request| {
        let number: usize = request.target()[1..].parse().expect("a number");
        BAD[number].as_bytes().to_vec()
    });
    let product = Setup::to(&origin).start();
    for (number, bad) in BAD.iter().enumerate() {
        let path = format!("/{number}");
        let answer = product.get(&path);
        assert_eq!(answer.status(), 502, "{bad:?}");
        let record = product.record(&path, |record| record["path"] == path);
        assert_eq!(record["flag"], "UB", "{bad:?}: {record}");
    }
}

#[test]
fn a_response_with_both_framings_is_refused_or_made_whole() {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec()
    });
    let product = Setup::to(&origin).workers(1).start();
    // RFC 9112 section 6.3 rule 3: the transfer coding counts, Content-Length is removed before it is passed on.
    for _ in 0..2 {
        let answer = product.get("/");
        if answer.status() != 502 {
            assert_eq!((answer.text().as_str(), answer.field("content-length")), ("hello", None));
        }
    }
    assert_eq!(origin.connections(), 2, "such a connection is not used again");
}

#[test]
fn a_response_head_beyond_its_bounds_is_answered_502() {
    let origin = Origin::answering(|request| match request.target() {
        "/long" => format!("HTTP/1.1 200 OK\r\nX-A: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(80_000)).into_bytes(),
        _ => format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "X-A: 1\r\n".repeat(600)).into_bytes(),
    });
    let product = Setup::to(&origin).start();
    fails(&product, "/long", 502, "UL");
    assert_eq!(product.get("/many").status(), 502);
}

#[test]
fn an_answer_of_our_own_says_what_happened_and_gives_nothing_back_of_the_request() {
    let product = Setup::to_addresses(&[refusing()]).route("match: { path: { prefix: /site } }").start();
    let missing = fails(&product, "/%3Cscript%3E", 404, "PN");
    assert!(!missing.text().contains("script"), "{}", missing.text());
    assert!(missing.field("content-length").is_some() && missing.field("date").is_some());
    let mut peer = product.connect();
    peer.send("HEAD /none HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = peer.head();
    assert_eq!(head.status(), 404);
    assert_eq!(peer.get("/none").status(), 404, "HEAD left no body behind");
    assert_eq!(peer.get("/site").status(), 502);
}

#[test]
fn an_endpoint_of_no_weight_gets_nothing_even_when_all_others_are_down() {
    let origin = Origin::saying("never");
    let idle = format!("{{ address: \"{}\", weight: 0 }}", origin.address());
    let down = refusing();
    let product = Setup::to_endpoints([idle, format!("\"{down}\"")])
        .cluster("health_check: { http: { path: /h }, interval: 50ms, timeout: 1s, rise: 1, fall: 1 }")
        .start();
    let label = format!("endpoint=\"{down}\"");
    eventually("it is down", || product.metric("equipoise_endpoint_up", &[&label]) == 0.0);
    fails(&product, "/work", 503, "PE");
    assert!(origin.requests().iter().all(|request| request.target() == "/h"));
}

#[test]
fn a_fault_of_one_exchange_leaves_others_alone() {
    let origin = Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            match request.target() {
                "/good" => visit.peer.send(ok("good")),
                "/bad" => return,
                _ => return visit.peer.reset(),
            }
        }
    });
    let product = Setup::to(&origin).start();
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let web = product.web();
            std::thread::spawn(move || {
                let mut peer = Peer::connect(web);
                for round in 0..30 {
                    match (number + round) % 3 {
                        0 => assert_eq!(peer.get("/bad").status(), 502),
                        1 => assert_eq!(peer.get("/reset").status(), 502),
                        _ => assert_eq!(peer.get("/good").text(), "good"),
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("every exchange got its own answer");
    }
}
