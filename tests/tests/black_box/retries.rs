//! Attempts after the first: what is tried again, what never is, and how much retries may add.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::harness::http2_origin::{Http2Origin, Rules};
use super::harness::net::{free, refusing};
use super::harness::origin::ok;
use super::harness::{Origin, Peer, Product, Setup, eventually, until};

/// An origin that answers everything with this status.
fn with_status(status: u16) -> Origin {
    Origin::answering(move |_| {
        format!("HTTP/1.1 {status} Told\r\nContent-Length: 4\r\nX-From: bad\r\n\r\nsick").into_bytes()
    })
}

/// An origin that reads every request whole and then resets the connection.
fn dying() -> Origin {
    Origin::start(|mut visit| {
        visit.request();
    })
}

fn retries(product: &Product) -> f64 {
    product.metric("equipoise_cluster_retries_total", &["cluster=\"site\""])
}

#[test]
fn a_status_that_is_tried_again_never_reaches_the_client_while_another_endpoint_is_well() {
    let origins = [with_status(503), Origin::saying("well")];
    let product = Setup::to_all(&origins).cluster("retry: { on: [502-504] }").workers(1).start();
    let mut client = product.connect();
    for _ in 0..20 {
        let response = client.get("/");
        assert_eq!((response.status(), response.text()), (200, "well".to_owned()));
    }
    assert_eq!(origins[1].requests().len(), 20);
    let tried = origins[0].requests().len() as f64;
    product.expect_metric("equipoise_cluster_retries_total", &["cluster=\"site\""], tried);
    product.expect_metric("equipoise_endpoint_faults_total", &["fault=\"retried_status\""], tried);
    assert!(origins[0].connections() <= 2, "the connection of an answer that is thrown away is kept");
}

#[test]
fn an_endpoint_that_refuses_is_asked_once_where_no_other_gets_work() {
    let endpoint = |address: SocketAddr, more: &str| format!("{{ address: \"{address}\"{more} }}");
    let away = [", state: maintenance", ", weight: 0"].map(|more| endpoint(free(), more));
    let listed = std::iter::once(endpoint(refusing(), "")).chain(away);
    let line = "line: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }";
    let product = Setup::to_endpoints(listed).listener_more(line).workers(1).start();
    assert_eq!(product.get("/").status(), 502);
    assert_eq!(product.flagged("UC")["retries"], 0);
    product.expect_metric("equipoise_endpoint_connects_total", &["result=\"failed\""], 1.0);
    Peer::connect(product.address("line")).wait_closed();
    product.expect_metric("equipoise_endpoint_connects_total", &["result=\"failed\""], 2.0);
    assert_eq!(retries(&product), 0.0);
}

#[test]
fn when_all_others_are_full_an_endpoint_that_has_failed_is_not_asked_again() {
    let (full, go) = super::balancing::holding();
    let listed = [format!("{{ address: \"{}\", connections_max: 1 }}", full.address()), format!("\"{}\"", refusing())];
    let product = Setup::to_endpoints(listed).cluster("balance: first").workers(1).start();
    let mut held = Peer::sending(product.web(), "GET /hold HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is at the endpoint", || full.busy() == 1);
    assert_eq!(product.get("/").status(), 502);
    product.expect_metric("equipoise_endpoint_connects_total", &["result=\"failed\""], 1.0);
    go.send(()).expect("an origin");
    assert_eq!(held.response().status(), 200);
}

const DEADLY: &str = "DELETE /deadly HTTP/1.1\r\nHost: test\r\n\r\n";
/// Longer than the end of an idle connection can take to be seen.
const WORK: Duration = Duration::from_secs(4);

#[test]
fn a_request_that_an_endpoint_has_worked_on_is_no_victim_of_a_stale_connection() {
    let origin = Origin::start(|mut visit| {
        while let Some(request) = visit.request() {
            if request.target() == "/deadly" {
                return std::thread::sleep(WORK);
            }
            let _ = visit.peer.try_send(ok("fine"));
        }
    });
    let product = Setup::to(&origin).cluster("retry: { attempts_max: 1 }").workers(1).start();
    let mut client = product.connect();
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(client.ask(DEADLY).status(), 502);
    product.flagged("UR");
    assert_eq!((origin.requests().len(), origin.connections()), (2, 1), "it was sent once, on the kept connection");
}

#[test]
fn nor_is_one_on_a_connection_of_http2_that_was_idle() {
    let origin = Http2Origin::start(Rules::default(), |asked| {
        Box::pin(async move {
            if asked.path() == "/deadly" {
                tokio::time::sleep(WORK).await;
                asked.line.cut();
                // The stream stays as it is until its connection is gone.
                std::future::pending::<()>().await;
            } else {
                asked.answer("fine").await;
            }
        })
    });
    let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]");
    let product = setup.cluster("retry: { attempts_max: 1 }").workers(1).start();
    let mut client = product.connect();
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(client.ask(DEADLY).status(), 502);
    product.flagged("UR");
    assert_eq!((origin.streams(), origin.connections()), (2, 1));
}

#[test]
fn without_rules_for_retries_a_status_is_passed_on() {
    let origins = [with_status(503), Origin::saying("well")];
    let product = Setup::to_all(&origins).workers(1).start();
    let statuses: Vec<u16> = (0..4).map(|_| product.get("/").status()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 2, "{statuses:?}");
    assert_eq!(retries(&product), 0.0);
}

#[test]
fn when_every_attempt_gets_a_bad_status_the_last_answer_is_passed_on_as_it_came() {
    let origins = [with_status(503), with_status(503), with_status(503)];
    let product = Setup::to_all(&origins).cluster("retry: { on: [503], attempts_max: 3 }").start();
    let response = product.get("/");
    assert_eq!((response.status(), response.text().as_str(), response.field("x-from")), (503, "sick", Some("bad")));
    let seen: Vec<usize> = origins.iter().map(|origin| origin.requests().len()).collect();
    assert_eq!(seen, [1, 1, 1], "each endpoint once");
}

#[test]
fn a_kept_body_is_sent_again_whole_and_what_follows_it_on_the_connection_is_not_lost() {
    let origins = [dying(), Origin::answering(|request| ok(&format!("{} bytes", request.body.len())))];
    let product = Setup::to_all(&origins).cluster("retry: { on: [reset] }").workers(1).start();
    let body: String = (0..15_000).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
    for _ in 0..4 {
        let mut client = product.connect();
        let put = format!("PUT /1 HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.send(format!("{put}GET /2 HTTP/1.1\r\nHost: test\r\n\r\n"));
        assert_eq!(client.response().text(), "15000 bytes");
        assert_eq!(client.response().text(), "0 bytes");
    }
    for request in origins[1].requests().iter().filter(|request| request.target() == "/1") {
        assert_eq!(request.body, body.as_bytes());
    }
    assert!(!origins[0].requests().is_empty());
}

#[test]
fn a_body_larger_than_what_is_kept_is_not_sent_again() {
    let origins = [dying(), Origin::saying("well")];
    let setup = Setup::to_all(&origins).cluster("retry: { on: [reset], body_max: 100 }").workers(1);
    let product = setup.start();
    let put = |length: usize| {
        let body = "x".repeat(length);
        let text = format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n{body}");
        product.connect().ask(text).status()
    };
    assert_eq!([put(100), put(100)], [200, 200]);
    let mut large = [put(101), put(101)];
    large.sort_unstable();
    assert_eq!(large, [200, 502]);
}

#[test]
fn a_request_that_an_endpoint_may_have_acted_on_is_sent_twice_only_if_the_operator_says_so() {
    for (rules, expected) in [("{ on: [reset] }", 502), ("{ on: [reset], methods: any }", 200)] {
        let origins = [dying(), Origin::saying("well")];
        let product = Setup::to_all(&origins).cluster(format!("retry: {rules}")).workers(1).start();
        let post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi";
        let mut statuses = [product.connect().ask(post).status(), product.connect().ask(post).status()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, expected]);
    }
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_not_kept_waiting() {
    let origin = Origin::start(|mut visit| {
        visit.peer.send("HTTP/1.1 100 Continue\r\n\r\n");
        visit.answer_all(|request| Some(ok(&format!("{} bytes", request.body.len()))));
    });
    let product = Setup::to(&origin).cluster("retry: { on: [reset] }").start();
    let mut client = product.connect();
    client.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().status(), 100);
    client.send("hi");
    assert_eq!(client.response().text(), "2 bytes");
}

#[test]
fn an_attempt_that_takes_too_long_is_given_up_for_another() {
    let silent = Origin::start(|mut visit| {
        visit.request();
        // Until the product gives up.
        let _ = visit.peer.fill();
    });
    let origins = [silent, Origin::saying("well")];
    let product = Setup::to_all(&origins).cluster("retry: { on: [timeout], timeout: 2s }").workers(1).start();
    let begun = Instant::now();
    for _ in 0..4 {
        assert_eq!(product.get("/").text(), "well");
    }
    assert!(begun.elapsed() >= Duration::from_secs(4), "two attempts ran into their bound");
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 4.0);
    eventually("a second attempt takes its turn, too", || (2.0..=4.0).contains(&retries(&product)));
}

#[test]
fn all_attempts_together_are_bounded_by_the_time_of_the_route() {
    let silent = || {
        Origin::start(|mut visit| {
            visit.request();
            let _ = visit.peer.fill();
        })
    };
    let origins = [silent(), silent(), silent()];
    let setup =
        Setup::to_all(&origins).cluster("retry: { on: [timeout], timeout: 1s, attempts_max: 10, same_endpoint: true }");
    let product = setup.route("timeout: 2500ms").start();
    let begun = Instant::now();
    assert_eq!(product.get("/").status(), 504);
    assert!(begun.elapsed() >= Duration::from_millis(2_490));
    product.flagged("PD");
    let asked = || origins.iter().map(|origin| origin.requests().len()).sum::<usize>();
    eventually("one was asked", || asked() > 0);
    assert!(asked() <= 3, "each has a second: {}", asked());
}

#[test]
fn retries_add_no_more_than_their_budget_to_the_load_of_endpoints_that_are_all_ill() {
    let origins = [with_status(503), with_status(503)];
    let rules = "retry: { on: [503], same_endpoint: true, backoff: { base: 1ms, max: 1ms }, budget: { share: 10%, per_second: 0 } }";
    let product = Setup::to_all(&origins).cluster(rules).workers(1).start();
    let mut client = product.connect();
    for _ in 0..200 {
        assert_eq!(client.get("/").status(), 503);
    }
    let seen: usize = origins.iter().map(|origin| origin.requests().len()).sum();
    assert_eq!(seen, 220, "10 % more than the clients asked for");
    product.expect_metric("equipoise_cluster_retries_refused_total", &["cluster=\"site\""], 200.0);
}

#[test]
fn the_only_endpoint_is_tried_again_after_a_pause_where_the_rules_say_so() {
    let failed = AtomicUsize::new(0);
    let origin = Origin::start(move |mut visit| {
        if failed.fetch_add(1, Ordering::SeqCst) < 2 {
            visit.request();
            return;
        }
        visit.answer_all(|_| Some(ok("recovered")));
    });
    let product =
        Setup::to(&origin).cluster("retry: { same_endpoint: true, backoff: { base: 40ms, max: 1s } }").start();
    let begun = Instant::now();
    assert_eq!(product.get("/").text(), "recovered");
    assert!(begun.elapsed() >= Duration::from_millis(20 + 40), "two pauses, each at least half of what it may be");
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn a_client_that_resets_during_a_pause_ends_its_exchange() {
    let origin = dying();
    let product =
        Setup::to(&origin).cluster("retry: { same_endpoint: true, backoff: { base: 30s, max: 30s } }").start();
    let mut client = product.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    until("the first attempt has failed", || (origin.requests().len() == 1 && origin.open() == 0).then_some(()));
    client.reset();
    product.flagged("CW");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn the_rules_of_a_route_come_before_those_of_its_cluster() {
    let origins = [with_status(503), Origin::saying("well")];
    let setup = Setup::to_all(&origins).cluster("retry: { on: [503] }");
    let product = setup
        .route_before("{ name: raw, match: { path: { exact: /raw } }, cluster: site, retry: { attempts_max: 1 } }");
    let product = product.workers(1).start();
    let raw: Vec<u16> = (0..4).map(|_| product.get("/raw").status()).collect();
    assert!(raw.contains(&503), "{raw:?}");
    assert!((0..4).all(|_| product.get("/").status() == 200));
}

#[test]
fn endpoints_that_are_killed_and_come_back_under_load_cost_no_client_an_answer() {
    let mut origins: Vec<Origin> = (0..3).map(|_| Origin::mortal(None, "alive")).collect();
    let rules = "retry: { on: [connect_failure, reset], attempts_max: 6, budget: { share: 100%, per_second: 1000 } }";
    let product = Setup::to_all(&origins).cluster(rules).start();
    let (asked, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = product.connect();
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(client.get("/").text(), "alive");
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for turn in 0..9 {
            let enough = asked.load(Ordering::SeqCst) + 50;
            eventually("clients are served", || asked.load(Ordering::SeqCst) >= enough);
            let address = origins[turn % 3].address();
            origins[turn % 3].kill();
            let enough = asked.load(Ordering::SeqCst) + 50;
            eventually("clients are served by those that are left", || asked.load(Ordering::SeqCst) >= enough);
            origins[turn % 3] = Origin::mortal(Some(address), "alive");
        }
    });
    eventually("retries are counted", || retries(&product) > 0.0);
    product.expect_metric("equipoise_http_requests_total", &["class=\"5xx\""], 0.0);
}

/// An endpoint that is a process of its own, so that it can be ended as the kernel ends one.
fn process_at(address: &str) -> Product {
    let text = format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"{address}\" }} }}\nroutes: [{{ respond: {{ status: 200, body: alive }} }}]\n"
    );
    Product::start_in(super::harness::product::folder(), &text, 1)
}

/// Ends the load also when the test fails: otherwise it would wait for it for ever.
pub(super) struct Over<'a>(pub(super) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Asks until it is over; every answer must be a good one.
fn ask_until(product: &Product, asked: &AtomicUsize, is_over: &AtomicBool, request: &str) {
    while !is_over.load(Ordering::SeqCst) {
        let mut client = product.connect();
        for _ in 0..20 {
            let answer = client.ask(request);
            assert_eq!((answer.status(), answer.text().as_str()), (200, "alive"));
            asked.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn no_client_sees_that_processes_behind_are_killed_and_started_again() {
    let rules = "retry: { on: [connect_failure, reset], attempts_max: 6, budget: { share: 100%, per_second: 1000 } }";
    for workers in [1, 2] {
        let mut processes: Vec<Product> = (0..3).map(|_| process_at(&free().to_string())).collect();
        let addresses: Vec<_> = processes.iter().map(Product::web).collect();
        let product = Setup::to_addresses(&addresses).cluster(rules).workers(workers).start();
        let (asked, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let served = |what| {
            let enough = asked.load(Ordering::SeqCst) + 60;
            eventually(what, || asked.load(Ordering::SeqCst) >= enough);
        };
        std::thread::scope(|scope| {
            let _over = Over(&is_over);
            for request in [
                "GET / HTTP/1.1\r\nHost: test\r\n\r\n",
                "PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nwhole",
                "GET /other HTTP/1.1\r\nHost: test\r\n\r\n",
                "DELETE / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n",
            ] {
                let (product, asked, is_over) = (&product, &asked, &is_over);
                scope.spawn(move || ask_until(product, asked, is_over, request));
            }
            for turn in 0..6 {
                served("clients are served");
                // Dropping ends it with SIGKILL.
                drop(processes.remove(0));
                served("clients are served by those that are left");
                processes.push(process_at(&addresses[turn % 3].to_string()));
            }
        });
        product.expect_metric("equipoise_http_requests_total", &["class=\"5xx\""], 0.0);
        product.expect_metric("equipoise_http_requests_total", &["class=\"none\""], 0.0);
        product.expect_metric_at_least("equipoise_cluster_retries_total", &["cluster=\"site\""], 1.0);
    }
}
