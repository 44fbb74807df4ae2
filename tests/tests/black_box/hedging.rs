//! The same request at two endpoints, when the first takes long.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::harness::net::Blackhole;
use super::harness::origin::ok;
use super::harness::{Origin, Peer, Product, Setup, eventually};

fn hedges(product: &Product, result: &str) -> f64 {
    product.metric("equipoise_cluster_hedges_total", &["cluster=\"site\"", &format!("result=\"{result}\"")])
}

/// Waits until this many were sent, and this many of them won.
fn expect_hedges(product: &Product, sent: f64, won: f64) {
    for (result, wanted) in [("sent", sent), ("won", won)] {
        let result = format!("result=\"{result}\"");
        product.expect_metric("equipoise_cluster_hedges_total", &["cluster=\"site\"", &result], wanted);
    }
}

/// Time for the product to notice that a connection has ended, on a busy machine too.
const NOTICED: Duration = Duration::from_secs(2);

/// An origin that reads requests and never answers; each is at work until its connection is given up.
fn silent() -> Origin {
    Origin::start(|mut visit| {
        if visit.request().is_some() {
            let _busy = visit.book.busy();
            let _ = visit.peer.fill();
        }
    })
}

/// With a budget that allows everything, and longer than a busy machine takes for what is not meant to be hedged: also
/// a connection that takes long would be.
fn rules(more: &str) -> String {
    format!("hedge: {{ after: 1s, budget: 100%{more} }}")
}

#[test]
fn a_request_that_takes_long_goes_to_another_endpoint_and_the_first_answer_wins() {
    for workers in [1, 2] {
        let origins = [silent(), Origin::saying("quick")];
        let product = Setup::to_all(&origins).cluster(rules("")).workers(workers).start();
        let begun = Instant::now();
        let mut client = product.connect();
        for _ in 0..6 {
            assert_eq!(client.get("/").text(), "quick");
        }
        assert!(begun.elapsed() < Duration::from_secs(55), "no time-out was waited for");
        assert_eq!(origins[1].requests().len(), 6);
        eventually("the silent one has its turns, and each is hedged", || {
            let slow = origins[0].requests().len() as f64;
            slow >= 2.0 && (hedges(&product, "sent"), hedges(&product, "won")) == (slow, slow)
        });
        eventually("connections of those that lost are closed", || origins[0].busy() == 0);
        product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
        let record = product.record("a hedged one", |record| record["hedges"] == 1);
        assert_eq!(record["endpoint_address"].as_str(), Some(origins[1].address().to_string().as_str()));
        assert_eq!((record["retries"].as_u64(), record["flag"].as_str()), (Some(0), None));
    }
}

#[test]
fn the_first_may_still_win_after_the_other_was_asked() {
    let (tell, told) = channel::<()>();
    let told = Mutex::new(told);
    let first = Origin::answering(move |_| {
        told.lock().expect("channel").recv().expect("the other was asked");
        ok("first")
    });
    let tell = Mutex::new(tell);
    let second = Origin::start(move |mut visit| {
        visit.request();
        tell.lock().expect("channel").send(()).expect("the first waits");
        let _ = visit.peer.fill();
    });
    let origins = [first, second];
    let product = Setup::to_all(&origins).cluster("balance: first").cluster(rules("")).start();
    let mut client = product.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "first");
    }
    expect_hedges(&product, 3.0, 0.0);
    assert_eq!(origins[0].connections(), 1, "the connection of the winner is kept");
    eventually("that of the other is not", || origins[1].open() == 0 && origins[1].connections() == 3);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
}

#[test]
fn hedges_stay_within_their_budget() {
    let slow = |body: &'static str| {
        Origin::answering(move |_| {
            std::thread::sleep(Duration::from_millis(250));
            ok(body)
        })
    };
    let origins = [slow("a"), slow("b")];
    let product = Setup::to_all(&origins).cluster("hedge: { after: 5ms, budget: 10% }").workers(1).start();
    let mut client = product.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/").status(), 200);
    }
    eventually("they are counted", || (hedges(&product, "sent"), hedges(&product, "refused")) == (2.0, 18.0));
}

#[test]
fn what_would_do_harm_twice_or_cannot_be_sent_twice_is_not_hedged() {
    let slow = Origin::answering(|request| {
        let plain = request.method() == "GET" && request.field("upgrade").is_none();
        std::thread::sleep(Duration::from_secs(if plain { 20 } else { 3 }));
        ok(&format!("{} bytes", request.body.len()))
    });
    let origins = [slow, Origin::saying("other")];
    let product = Setup::to_all(&origins).cluster("balance: first").cluster(rules("")).start();
    let ask = |text: &str| product.connect().ask(text).text();
    assert_eq!(ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi"), "2 bytes");
    assert_eq!(ask("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi"), "2 bytes", "its body is not kept");
    assert_eq!(ask("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"), "0 bytes");
    assert!(origins[1].requests().is_empty());
    assert_eq!(product.get("/").text(), "other");
}

#[test]
fn a_kept_body_goes_to_both_and_what_follows_on_the_connection_is_not_lost() {
    let origins = [silent(), Origin::answering(|request| ok(&format!("{} bytes", request.body.len())))];
    let setup = Setup::to_all(&origins).cluster("balance: first").cluster("retry: { body_max: 16KiB }");
    let product = setup.cluster(rules("")).start();
    let body = "x".repeat(15_000);
    let put = format!("PUT /1 HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut client = product.connect();
    client.send(format!("{put}GET /2 HTTP/1.1\r\nHost: test\r\n\r\n"));
    assert_eq!(client.response().text(), "15000 bytes");
    assert_eq!(client.response().text(), "0 bytes");
    eventually("the silent one got the body, too", || origins[0].requests().iter().any(|r| r.body == body.as_bytes()));
    let record = product.record("the first", |record| record["path"] == "/1");
    assert_eq!((record["received_bytes"].as_u64(), record["hedges"].as_u64()), (Some(15_000), Some(1)));
}

/// Two origins: once the second is asked, the first ends without an answer; then the second gives this one.
fn failing_before(answer: Vec<u8>) -> (Origin, Origin) {
    let (go, wait) = channel::<()>();
    let (go, wait) = (Mutex::new(go), Mutex::new(wait));
    let (tell, gone) = channel::<()>();
    let (tell, gone) = (Mutex::new(tell), Mutex::new(gone));
    let first = Origin::start(move |mut visit| {
        visit.request();
        wait.lock().expect("channel").recv().expect("the other was asked");
        drop(visit);
        tell.lock().expect("channel").send(()).expect("the other waits");
    });
    let second = Origin::answering(move |_| {
        go.lock().expect("channel").send(()).expect("the first waits");
        gone.lock().expect("channel").recv().expect("the first fails");
        std::thread::sleep(NOTICED);
        answer.clone()
    });
    (first, second)
}

#[test]
fn when_the_first_fails_the_answer_of_the_other_is_waited_for() {
    let (first, second) = failing_before(ok("second"));
    let origins = [first, second];
    let product = Setup::to_all(&origins).cluster("balance: first").cluster(rules("")).start();
    assert_eq!(product.get("/").text(), "second");
    product.expect_metric("equipoise_endpoint_faults_total", &["fault=\"closed_before_response\""], 1.0);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
}

#[test]
fn an_error_of_the_other_does_not_end_the_first() {
    let first = Origin::answering(|request| {
        if request.target() == "/slow" {
            // Much longer than two hedges need to be sent, on a busy machine too.
            std::thread::sleep(Duration::from_millis(6_000));
        }
        ok("first")
    });
    let second = Origin::answering(|_| b"HTTP/1.1 503 Ill\r\nContent-Length: 0\r\n\r\n".to_vec());
    let third = super::harness::net::refusing();
    let product = Setup::to_addresses(&[first.address(), second.address(), third])
        .cluster("balance: first")
        .cluster(rules(", attempts_max: 3"))
        .start();
    let mut client = product.connect();
    // Two hedges for one request: the budget must be saved up.
    for path in ["/", "/", "/slow"] {
        assert_eq!(client.get(path).text(), "first");
    }
    expect_hedges(&product, 2.0, 0.0);
}

#[test]
fn a_client_that_goes_away_ends_every_attempt() {
    let origins = [silent(), silent()];
    let product = Setup::to_all(&origins).cluster(rules("")).start();
    let client = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("both are asked", || origins.iter().all(|origin| origin.busy() == 1));
    client.reset();
    product.flagged("CW");
    eventually("both are let go", || origins.iter().all(|origin| origin.busy() == 0));
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
}

#[test]
fn one_endpoint_alone_is_asked_once_and_the_time_of_the_route_bounds_all_attempts() {
    let origin = silent();
    let product = Setup::to(&origin).cluster(rules("")).route("timeout: 4s").start();
    assert_eq!(product.get("/").status(), 504);
    product.flagged("PD");
    assert_eq!(origin.requests().len(), 1);
    let origins = [silent(), silent()];
    let product = Setup::to_all(&origins).route(rules("")).route("timeout: 4s").start();
    assert_eq!(product.get("/").status(), 504);
    product.flagged("PD");
    eventually("by the rules of the route", || origins.iter().all(|origin| origin.requests().len() == 1));
}

#[test]
fn a_percentile_of_recent_answers_tells_what_is_long() {
    /// Longer than a busy machine holds anything up.
    const SLOW: Duration = Duration::from_secs(3);
    let count = std::sync::atomic::AtomicUsize::new(0);
    let uneven = Origin::answering(move |_| {
        // One in fifty takes long.
        if count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 50 == 49 {
            std::thread::sleep(SLOW);
        }
        ok("uneven")
    });
    let origins = [uneven, Origin::saying("even")];
    let rules = "hedge: { after: p90, budget: 50% }";
    let product = Setup::to_all(&origins).cluster("balance: first").cluster(rules).workers(1).start();
    let mut client = product.connect();
    let mut slow_before = 0;
    for _ in 0..150 {
        let begun = Instant::now();
        client.get("/");
        slow_before += usize::from(begun.elapsed() >= SLOW);
    }
    assert!(slow_before >= 2, "nothing is known in the beginning");
    for _ in 0..150 {
        let begun = Instant::now();
        client.get("/");
        assert!(begun.elapsed() < SLOW, "no slow one is waited for");
    }
    eventually("they are counted", || hedges(&product, "won") >= 3.0);
}

#[test]
fn a_status_that_is_tried_again_counts_where_it_came_from_and_the_next_is_one_that_was_not_asked() {
    let (first, second) = failing_before(b"HTTP/1.1 503 Ill\r\nContent-Length: 0\r\n\r\n".to_vec());
    let origins = [first, second, Origin::saying("third")];
    let setup = Setup::to_all(&origins).cluster("balance: first").cluster("retry: { on: [503] }");
    let product = setup.cluster(rules("")).start();
    assert_eq!(product.get("/").text(), "third");
    assert_eq!(origins[1].requests().len(), 1);
    for (origin, fault) in [(0, "closed_before_response"), (1, "retried_status")] {
        let labels = [format!("endpoint=\"{}\"", origins[origin].address()), format!("fault=\"{fault}\"")];
        product.expect_metric("equipoise_endpoint_faults_total", &[&labels[0], &labels[1]], 1.0);
    }
}

#[test]
fn a_new_connection_for_one_that_was_stale_has_the_place_of_that() {
    let (go, wait) = channel::<()>();
    let (go, wait) = (Mutex::new(go), Mutex::new(wait));
    let (tell, gone) = channel::<()>();
    let (tell, gone) = (Mutex::new(tell), Mutex::new(gone));
    let (end, held) = channel::<()>();
    let held = Mutex::new(held);
    let first = Origin::start(move |mut visit| {
        visit.request();
        let busy = visit.book.busy();
        if visit.index > 0 {
            held.lock().expect("channel").recv().expect("the test lets it go");
        }
        drop(busy);
        visit.peer.try_send(ok("first")).ok();
        if visit.index == 0 {
            visit.request();
            wait.lock().expect("channel").recv().expect("the other was asked");
            drop(visit);
            tell.lock().expect("channel").send(()).expect("the other waits");
        }
    });
    let second = Origin::start(move |mut visit| {
        visit.request();
        go.lock().expect("channel").send(()).expect("the first waits");
        gone.lock().expect("channel").recv().expect("the first fails");
        std::thread::sleep(NOTICED);
    });
    let origins = [first, second];
    let product = Setup::to_all(&origins).cluster("balance: first").cluster(rules("")).workers(1).start();
    let mut client = product.connect();
    assert_eq!(client.get("/").text(), "first");
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is there again", || origins[0].busy() == 1 && origins[1].open() == 0);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 1.0);
    end.send(()).expect("an origin");
    assert_eq!(client.response().text(), "first");
    assert_eq!((origins[0].connections(), origins[1].requests().len()), (2, 1), "that is not hedged again");
}

#[test]
fn a_hedge_that_fails_counts_for_the_circuit() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let first = Origin::answering(move |_| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok("first")
    });
    let origins = [first, Origin::start(|mut visit| _ = visit.request())];
    let breaker = "circuit_breaker: { error_ratio: { requests_min: 1, open_for: 1m } }";
    let product = Setup::to_all(&origins).cluster("balance: first").cluster(rules("")).cluster(breaker).start();
    let mut client = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    product.expect_metric("equipoise_cluster_circuit", &["cluster=\"site\""], 2.0);
    go.send(()).expect("an origin");
    assert_eq!((client.response().text(), product.get("/").status()), ("first".to_owned(), 503));
}

#[test]
fn every_attempt_has_the_time_that_one_may_take_and_all_that_hang_are_told_of() {
    let origins = [silent(), silent()];
    let setup = Setup::to_all(&origins).cluster("timeouts: { response_head: 800ms }");
    let product = setup.cluster("hedge: { after: 400ms, budget: 100% }").start();
    let begun = Instant::now();
    assert_eq!(product.get("/").status(), 504);
    assert!(begun.elapsed() >= Duration::from_millis(1_200), "{:?}", begun.elapsed());
    for origin in &origins {
        let endpoint = format!("endpoint=\"{}\"", origin.address());
        let labels = [endpoint.as_str(), "fault=\"response_head_timeout\""];
        product.expect_metric("equipoise_endpoint_faults_total", &labels, 1.0);
    }
}

#[test]
fn a_connection_that_takes_long_is_hedged_too_whatever_the_method() {
    let (slow, quick) = (Blackhole::open(), Origin::saying("quick"));
    let product = Setup::to_addresses(&[slow.address(), quick.address()])
        .cluster("balance: first")
        .cluster(rules(""))
        .cluster("timeouts: { connect: 1m }")
        .start();
    let mut client = product.connect();
    let begun = Instant::now();
    assert_eq!(client.get("/").text(), "quick");
    let posted = client.ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(posted.text(), "quick", "nothing was sent to the other");
    assert!(begun.elapsed() < Duration::from_secs(55), "no time-out was waited for");
    eventually("they are counted", || (hedges(&product, "sent"), hedges(&product, "won")) == (2.0, 2.0));
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
    let record = product.record("a hedged one", |record| record["hedges"] == 1);
    assert_eq!(record["endpoint_address"].as_str(), Some(quick.address().to_string().as_str()));
    assert_eq!(quick.requests().last().map(|request| request.text()), Some("abc".into()));
}

#[test]
fn a_first_connection_that_fails_waits_for_the_other_and_both_that_fail_are_one_fault() {
    let (slow, other) = (Blackhole::open(), Blackhole::open());
    let product = Setup::to_addresses(&[slow.address(), other.address()])
        .cluster("balance: first")
        .cluster(rules(""))
        .cluster("timeouts: { connect: 3s }")
        .cluster("retry: { attempts_max: 1 }")
        .start();
    assert_eq!(product.get("/").status(), 504);
    let endpoint = |address: std::net::SocketAddr| format!("endpoint=\"{address}\"");
    for address in [slow.address(), other.address()] {
        let labels = [endpoint(address), "fault=\"connect_timeout\"".to_owned()];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        product.expect_metric("equipoise_endpoint_faults_total", &labels, 1.0);
    }
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
}

#[test]
fn when_the_time_of_the_route_ends_every_attempt_is_told_to_the_circuit() {
    let setup = |addresses: &[std::net::SocketAddr]| {
        Setup::to_addresses(addresses)
            .cluster(rules(""))
            .cluster("circuit_breaker: { error_ratio: { requests_min: 2, open_for: 10m } }")
            .cluster("timeouts: { connect: 1m }")
            .route("timeout: 4s")
    };
    let (one, other) = (silent(), silent());
    let (closed, shut) = (Blackhole::open(), Blackhole::open());
    for addresses in [[one.address(), other.address()], [closed.address(), shut.address()]] {
        let product = setup(&addresses).start();
        assert_eq!((product.get("/").status(), product.get("/").status()), (504, 503));
    }
}
