//! What becomes of a request that its endpoint cannot take: backups, retries, endpoints that are equal, bounds on who waits. Over every
//! version that clients speak.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::balancing::{endpoint, holding};
use super::harness::http2_origin::{Http2Origin, Rules as Http2Rules};
use super::harness::http3_origin::{Http3Origin, Rules as Http3Rules};
use super::harness::net::refusing;
use super::harness::origin::ok;
use super::harness::poll::STEP;
use super::harness::product::folder;
use super::harness::tls::{Authority, Client as TlsClient, connect};
use super::harness::{Origin, Peer, Product, Setup, eventually, http2, http3};
use super::http3::{Site, site};
use super::udp::{Client as UdpClient, Echo};

const VERSIONS: [&str; 3] = ["HTTP/1.1", "HTTP/2", "HTTP/3"];

/// The status and text that a request gets over one version.
fn ask(site: &Site, version: &str, path: &str, node: &str) -> (u16, String) {
    let web = site.product.web();
    match version {
        "HTTP/1.1" => {
            let answer = tls(site).ask(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nX-Node: {node}\r\n\r\n"));
            (answer.status(), answer.text())
        }
        "HTTP/2" => {
            let config = TlsClient { protocols: &["h2"], ..TlsClient::trusting(&site.authority) }.config();
            let asked = http2::with_fields(http2::request("GET", path), &[("x-node", node)]);
            let answer = http2::Client::connect_tls(web, "shop.example", &config).ask(asked, b"");
            (answer.status, answer.text())
        }
        _ => {
            let asked = http2::with_fields(http3::request("GET", path), &[("x-node", node)]);
            let answer = site.connect().ask(asked, b"");
            (answer.status, answer.text())
        }
    }
}

/// The same over each of them, one after the other.
fn over_all(site: &Site, path: &str) -> [(u16, String); 3] {
    VERSIONS.map(|version| ask(site, version, path, "none"))
}

fn all(status: u16, text: &str) -> [(u16, String); 3] {
    VERSIONS.map(|_| (status, text.to_owned()))
}

/// A client of HTTP/1.1.
fn tls(site: &Site) -> Peer {
    connect(site.product.web(), "shop.example", &TlsClient::trusting(&site.authority).config())
}

/// A request that its endpoint thinks about.
fn hold(site: &Site, node: &str) -> Peer {
    let mut peer = tls(site);
    peer.send(format!("GET /hold HTTP/1.1\r\nHost: shop.example\r\nX-Node: {node}\r\n\r\n"));
    peer
}

fn let_go(go: &Sender<()>, held: &mut Peer) {
    go.send(()).expect("the origin waits");
    assert_eq!(held.response().status(), 200);
}

/// An origin that reads each request whole and then resets the connection.
fn dying() -> Origin {
    Origin::start(|mut visit| {
        visit.request();
    })
}

fn waiting(product: &Product, count: f64) {
    product.expect_metric("equipoise_cluster_queue_length", &["cluster=\"site\""], count);
}

#[test]
fn a_backup_takes_what_full_endpoints_have_no_room_for() {
    for bound in ["connections_max: 1", "requests_max: 1"] {
        let ((full, go), spare) = (holding(), Origin::saying("spare"));
        let listed = [endpoint(&full, bound), endpoint(&spare, "backup: true")];
        let site = site(Setup::to_endpoints(listed), 2);
        let mut held = hold(&site, "none");
        eventually("it is at the endpoint", || full.busy() == 1);
        assert_eq!(over_all(&site, "/"), all(200, "spare"), "{bound}");
        site.product.expect_metric("equipoise_cluster_picks_total", &["reason=\"spill\""], 3.0);
        let_go(&go, &mut held);
        site.product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
        assert_eq!(over_all(&site, "/own"), all(200, "/own"), "the endpoint itself comes first again");
    }
}

#[test]
fn a_backup_takes_what_other_endpoints_refuse_or_fail() {
    let spare = Origin::saying("spare");
    let refused = [refusing(), refusing()].map(|address| format!("\"{address}\""));
    let listed = refused.into_iter().chain([endpoint(&spare, "backup: true")]);
    let product = site(Setup::to_endpoints(listed), 2);
    assert_eq!(over_all(&product, "/"), all(200, "spare"));
    let failing = [dying(), dying()];
    let listed =
        [endpoint(&failing[0], "weight: 1"), endpoint(&failing[1], "priority: 1"), endpoint(&spare, "backup: true")];
    let product = site(Setup::to_endpoints(listed).cluster("retry: { on: [reset], backoff: { base: 1ms } }"), 2);
    assert_eq!(over_all(&product, "/"), all(200, "spare"));
    let asked = failing.each_ref().map(|origin| origin.requests().len());
    assert_eq!(asked, [3, 3], "each was asked once for each request");
}

#[test]
fn a_backup_is_asked_once_more_when_as_many_others_have_failed_as_may_be_tried() {
    let spare = Origin::saying("spare");
    let refused = [(); 5].map(|()| format!("\"{}\"", refusing()));
    let listed = || refused.iter().cloned().chain([endpoint(&spare, "backup: true")]);
    let product = site(Setup::to_endpoints(listed()), 2);
    assert_eq!(over_all(&product, "/"), all(200, "spare"));
    assert!(product.product.records().iter().all(|record| record["retries"] == 3), "three others and the backup");
    let never = site(Setup::to_endpoints(listed()).cluster("retry: { attempts_max: 1 }"), 2);
    assert_eq!(over_all(&never, "/").map(|(status, _)| status), [502; 3], "one attempt is one attempt");
    let failing = [(); 4].map(|()| dying());
    let listed = failing.iter().map(|origin| endpoint(origin, "weight: 1")).chain([endpoint(&spare, "backup: true")]);
    let product = site(Setup::to_endpoints(listed).cluster("retry: { on: [reset], backoff: { base: 1ms } }"), 2);
    assert_eq!(over_all(&product, "/"), all(200, "spare"));
    let asked: usize = failing.iter().map(|origin| origin.requests().len()).sum();
    assert_eq!(asked, 9, "three of them for each request");
}

#[test]
fn requests_wait_in_the_queue_instead_of_using_a_backup_unless_it_says_so() {
    let setup = |full: &Origin, spare: &Origin, more: &str| {
        let listed = [endpoint(full, "connections_max: 1"), endpoint(spare, "backup: true")];
        Setup::to_endpoints(listed).cluster(format!("queue: {{ requests_max: 10, timeout: 60s{more} }}"))
    };
    let ((full, go), spare) = (holding(), Origin::saying("spare"));
    let waits = site(setup(&full, &spare, ""), 2);
    let mut held = hold(&waits, "none");
    eventually("it is at the endpoint", || full.busy() == 1);
    std::thread::scope(|scope| {
        let asking = VERSIONS.map(|version| scope.spawn(|| ask(&waits, version, "/later", "none")));
        waiting(&waits.product, 3.0);
        let_go(&go, &mut held);
        for answer in asking {
            assert_eq!(answer.join().expect("an answer"), (200, "/later".to_owned()));
        }
    });
    assert!(spare.requests().is_empty());
    let lends = site(setup(&full, &spare, ", use_backups: true"), 2);
    let mut held = hold(&lends, "none");
    eventually("it is at the endpoint", || full.busy() == 1);
    assert_eq!(over_all(&lends, "/"), all(200, "spare"));
    let_go(&go, &mut held);
}

#[test]
fn with_a_queue_a_backup_still_takes_what_all_others_have_failed() {
    let (failing, spare) = (dying(), Origin::saying("spare"));
    let listed = [endpoint(&failing, "connections_max: 1"), endpoint(&spare, "backup: true")];
    let setup = Setup::to_endpoints(listed).cluster("queue: { requests_max: 10, timeout: 60s }");
    let site = site(setup.cluster("retry: { on: [reset] }"), 2);
    assert_eq!(over_all(&site, "/"), all(200, "spare"));
}

#[test]
fn streams_and_flows_of_datagrams_go_to_a_backup_too() {
    let (origin, spare) = (Origin::saying("own"), Origin::saying("spare"));
    let line = "line: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }";
    let listed = [endpoint(&origin, "connections_max: 1"), endpoint(&spare, "backup: true")];
    let product = Setup::to_endpoints(listed).listener_more(line).start();
    let mut first = Peer::connect(product.address("line"));
    assert_eq!(first.get("/").text(), "own");
    assert_eq!(Peer::connect(product.address("line")).get("/").text(), "spare");
    assert_eq!(first.get("/").text(), "own", "it is there still");
    let listed = [format!("\"{}\"", refusing()), endpoint(&spare, "backup: true")];
    let product = Setup::to_endpoints(listed).listener_more(line).start();
    assert_eq!(Peer::connect(product.address("line")).get("/").text(), "spare");
    let refused = [(); 5].map(|()| format!("\"{}\"", refusing()));
    let listed = refused.into_iter().chain([endpoint(&spare, "backup: true")]);
    let product = Setup::to_endpoints(listed).cluster("retry: { attempts_max: 3 }").listener_more(line).start();
    assert_eq!(Peer::connect(product.address("line")).get("/").text(), "spare", "once more, at the backup");
    let (one, other) = (Echo::start("a"), Echo::start("b"));
    for queue in ["", "    queue: { requests_max: 5 }\n"] {
        let product = Product::start(&format!(
            "version: 1\nlisteners: {{ dns: {{ bind: \"127.0.0.1:0\", protocol: udp, cluster: names }} }}\nclusters:\n  names:\n\
             {queue}    endpoints:\n      - {{ address: \"{}\", connections_max: 1 }}\n      - {{ address: \"{}\", backup: true }}\n\
             admin: {{ bind: \"127.0.0.1:0\" }}\n",
            one.address(),
            other.address(),
        ));
        let clients = [UdpClient::of(&product), UdpClient::of(&product)];
        assert_eq!(clients.each_ref().map(|client| client.ask("?")), ["a?", "b?"]);
    }
}

#[test]
fn an_endpoint_that_has_failed_is_not_asked_again() {
    let failing = dying();
    let site = site(Setup::to(&failing).cluster("retry: { on: [reset], backoff: { base: 1ms } }"), 2);
    let statuses = over_all(&site, "/").map(|(status, _)| status);
    assert_eq!((statuses, failing.requests().len()), ([502; 3], 3));
}

#[test]
fn the_same_endpoint_is_asked_again_after_a_pause_where_the_rules_say_so() {
    let connections = AtomicUsize::new(0);
    let origin = Origin::start(move |mut visit| {
        if connections.fetch_add(1, Ordering::SeqCst) % 3 < 2 {
            visit.request();
            return;
        }
        visit.answer_all(|_| Some(ok("recovered")));
    });
    let rules = "retry: { on: [reset], same_endpoint: true, backoff: { base: 20ms, max: 1s } }";
    let site = site(Setup::to(&origin).cluster(rules).cluster("pool: { reuse: false }"), 2);
    assert_eq!(over_all(&site, "/"), all(200, "recovered"));
    assert_eq!(origin.requests().len(), 9, "three attempts each");
}

#[test]
fn a_backup_takes_what_was_answered_with_a_status_that_is_tried_again() {
    let sick = || Origin::answering(|_| b"HTTP/1.1 503 Sick\r\nContent-Length: 4\r\n\r\nsick".to_vec());
    let (one, other, spare) = (sick(), sick(), Origin::saying("spare"));
    let rules = "retry: { on: [503], backoff: { base: 1ms } }";
    let listed = [endpoint(&one, "weight: 1"), endpoint(&other, "weight: 1"), endpoint(&spare, "backup: true")];
    let product = site(Setup::to_endpoints(listed).cluster(rules), 2);
    assert_eq!(over_all(&product, "/"), all(200, "spare"));
    assert_eq!([&one, &other].map(|origin| origin.requests().len()), [3, 3], "each was asked once for each request");
    // Without the rule the answer stands.
    let listed = [endpoint(&one, "weight: 1"), endpoint(&spare, "backup: true")];
    let product = site(Setup::to_endpoints(listed), 2);
    assert_eq!(over_all(&product, "/"), all(503, "sick"));
    // Where the backup fails too, its answer is the last.
    let last = Origin::answering(|_| b"HTTP/1.1 503 Last\r\nContent-Length: 4\r\n\r\nlast".to_vec());
    let listed = [endpoint(&one, "weight: 1"), endpoint(&last, "backup: true")];
    let product = site(Setup::to_endpoints(listed).cluster(rules), 2);
    assert_eq!(over_all(&product, "/"), all(503, "last"));
}

#[test]
fn streams_ask_no_endpoint_twice_and_none_after_the_time_for_all_attempts() {
    let line = "line: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }";
    let closed = |product: &Product| {
        Peer::connect(product.address("line")).assert_closed();
        product.record("the stream", |record| record["kind"] == "stream" && !record["flag"].is_null())
    };
    let refused = [(); 2].map(|()| format!("\"{}\"", refusing()));
    for count in [1, 2] {
        let rules = "retry: { attempts_max: 10 }";
        let setup = Setup::to_endpoints(refused[..count].to_vec()).cluster(rules).listener_more(line);
        let record = closed(&setup.start());
        assert_eq!(record["retries"], count - 1, "{record}");
    }
    // A wait in the queue for another attempt ends by then.
    let (full, go) = holding();
    let listed = [endpoint(&full, "connections_max: 1"), format!("\"{}\"", refusing())];
    let setup = Setup::to_endpoints(listed).cluster("balance: first").cluster("retry: { time_max: 500ms }");
    let product = setup.cluster("queue: { requests_max: 10, timeout: 60s }").listener_more(line).start();
    let mut first = Peer::connect(product.address("line"));
    assert_eq!(first.get("/").status(), 200);
    let begun = Instant::now();
    let record = closed(&product);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}: {record}", begun.elapsed());
    assert_eq!(first.get("/").status(), 200, "it is there still");
    drop(go);
}

#[test]
fn a_retry_waits_for_an_endpoint_that_has_not_failed_rather_than_for_one_that_has() {
    let ((full, go), failing) = (holding(), dying());
    let listed = [endpoint(&full, "connections_max: 1"), endpoint(&failing, "connections_max: 1")];
    let setup = Setup::to_endpoints(listed).cluster("balance: first").cluster("retry: { on: [reset] }");
    let site = site(setup.cluster("queue: { requests_max: 10, timeout: 60s }"), 2);
    let mut held = hold(&site, "none");
    eventually("it is at the endpoint", || full.busy() == 1);
    std::thread::scope(|scope| {
        let asking = VERSIONS.map(|version| scope.spawn(|| ask(&site, version, "/later", "none")));
        waiting(&site.product, 3.0);
        let_go(&go, &mut held);
        for answer in asking {
            assert_eq!(answer.join().expect("an answer"), (200, "/later".to_owned()));
        }
    });
    assert_eq!(failing.requests().len(), 3);
}

#[test]
fn no_attempt_begins_after_the_time_for_all_of_them() {
    let failing = dying();
    let rules = "retry: { on: [reset], attempts_max: 10, same_endpoint: true, time_max: 1s, backoff: { base: 400ms, max: 400ms }, budget: { share: 100%, per_second: 1000 } }";
    let limited = site(Setup::to(&failing).cluster(rules), 2);
    for (count, version) in VERSIONS.into_iter().enumerate() {
        let before = failing.requests().len();
        assert_eq!(ask(&limited, version, "/", "none").0, 502, "{count}");
        let asked = failing.requests().len() - before;
        // Each pause is 200 to 400 ms.
        assert!((2..=6).contains(&asked), "{asked} over {version}");
    }
    // A wait in the queue ends by then, too.
    let (full, go) = holding();
    let listed = [endpoint(&full, "connections_max: 1"), format!("\"{}\"", refusing())];
    let setup = Setup::to_endpoints(listed).cluster("balance: first").cluster("retry: { time_max: 500ms }");
    let limited = site(setup.cluster("queue: { requests_max: 10, timeout: 60s }"), 2);
    let mut held = hold(&limited, "none");
    eventually("it is at the endpoint", || full.busy() == 1);
    let begun = Instant::now();
    assert_eq!(over_all(&limited, "/").map(|(status, _)| status), [502; 3]);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let_go(&go, &mut held);
}

#[test]
fn endpoints_that_are_equally_loaded_take_turns_by_weight_over_all_workers() {
    for workers in [1, 4] {
        let origins: Vec<Origin> = (0..3).map(|_| Origin::saying("fine")).collect();
        let weights = ["weight: 2", "weight: 1", "weight: 1"];
        let listed = origins.iter().zip(weights).map(|(origin, weight)| endpoint(origin, weight));
        let site = site(Setup::to_endpoints(listed).cluster("balance: least_request"), workers);
        for round in 1..=12 {
            assert_eq!(ask(&site, VERSIONS[round % 3], "/", "none").0, 200);
            // A client sees the end of its response a moment before the endpoint counts as free.
            site.product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
        }
        let counts: Vec<usize> = origins.iter().map(|origin| origin.requests().len()).collect();
        assert_eq!(counts, [6, 3, 3], "{workers} workers");
    }
}

#[test]
fn when_enough_requests_wait_for_one_endpoint_the_next_session_moves_or_is_refused() {
    for (otherwise, expected) in [("another", (200, "other")), ("refuse", (503, ""))] {
        let ((full, go), other) = (holding(), Origin::saying("other"));
        let listed = [
            endpoint(&full, "connections_max: 1, queue_max: 1, labels: { route: full }"),
            endpoint(&other, "connections_max: 5, labels: { route: other }"),
        ];
        let sessions = format!("persistence: {{ route: {{ header: x-node }}, otherwise: {otherwise} }}");
        let setup = Setup::to_endpoints(listed).cluster(sessions).cluster("queue: { requests_max: 10, timeout: 60s }");
        let site = site(setup, 2);
        let mut held = hold(&site, "full");
        eventually("it is at the endpoint", || full.busy() == 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ask(&site, "HTTP/1.1", "/later", "full"));
            waiting(&site.product, 1.0);
            for version in VERSIONS {
                let (status, text) = ask(&site, version, "/", "full");
                assert_eq!(status, expected.0, "{version}: {text}");
                assert!(text.contains(expected.1), "{version}: {text}");
            }
            waiting(&site.product, 1.0);
            let_go(&go, &mut held);
            assert_eq!(waits.join().expect("an answer"), (200, "/later".to_owned()));
        });
    }
}

#[test]
fn without_reuse_every_request_has_a_connection_of_its_own() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin).cluster("pool: { reuse: false }"), 1);
    assert_eq!([over_all(&site, "/"), over_all(&site, "/")], [all(200, "fine"), all(200, "fine")]);
    let requests = origin.requests();
    assert!(requests.iter().all(|request| request.field("connection") == Some("close")), "{requests:?}");
    assert_eq!(origin.connections(), 6);
    eventually("none is left", || origin.open() == 0);
}

/// Sends three requests at once, each answered only once all are there, and one after the other; says how many connections
/// there were.
fn apart(product: &Product, connections: impl Fn() -> usize) -> [usize; 2] {
    let mut clients: Vec<Peer> =
        (0..3).map(|_| Peer::sending(product.web(), "GET /all HTTP/1.1\r\nHost: test\r\n\r\n")).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status(), 200));
    let at_once = connections();
    (0..3).for_each(|_| assert_eq!(product.get("/one").status(), 200));
    [at_once, connections()]
}

/// Waits until three requests are here.
async fn meet(here: &AtomicUsize) {
    here.fetch_add(1, Ordering::SeqCst);
    while here.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(STEP).await;
    }
}

#[test]
fn without_reuse_a_connection_of_http_2_carries_one_request() {
    let here = Arc::new(AtomicUsize::new(0));
    let origin = Http2Origin::start(Http2Rules::default(), move |asked| {
        let here = here.clone();
        Box::pin(async move {
            if asked.path() == "/all" {
                meet(&here).await;
            }
            asked.answer("fine").await;
        })
    });
    let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]");
    let product = setup.cluster("pool: { reuse: false }").workers(1).start();
    assert_eq!(apart(&product, || origin.connections()), [3, 6]);
    eventually("none is left", || origin.open() == 0);
}

#[test]
fn without_reuse_a_connection_of_http_3_carries_one_request() {
    let (here, authority, folder) = (Arc::new(AtomicUsize::new(0)), Authority::new("inside"), folder());
    authority.write(folder.path(), "authority.pem");
    let origin = Http3Origin::start(Http3Rules::of(&authority), move |asked| {
        let here = here.clone();
        Box::pin(async move {
            if asked.path() == "/all" {
                meet(&here).await;
            }
            asked.answer("fine").await;
        })
    });
    let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h3]");
    let setup = setup.cluster("tls: { authorities: authority.pem }").cluster("pool: { reuse: false }");
    let product = Product::start_in(folder, &setup.text(), 1);
    assert_eq!(apart(&product, || origin.connections()), [3, 6]);
    eventually("none is left", || origin.open() == 0);
}
