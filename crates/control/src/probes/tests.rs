//! Probes against endpoints that answer well, badly, too much, too slowly or not at all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use model::Name;
use model::check::{BodyTest, CheckStep, HttpCheck, ResponseTests, ScriptStep};
use model::snapshot::{
    Balance, Cluster, ClusterSettings, Endpoint, HealthCheck, HealthCheckKind, Pem, Pool, Snapshot, UpstreamTimeouts,
    UpstreamTls,
};
use plan::{HealthState, Plan};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::step::Shared;
use super::steps::Sequence;
use super::{Probes, Reasons};

/// Long enough for anything on this machine, so that a test fails rather than hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn http_check(timeout: Duration) -> HealthCheck {
    let http = HttpCheck::get("/healthz");
    HealthCheck { fall: 2, ..HealthCheck::new(HealthCheckKind::Http(http), Duration::from_millis(20), timeout) }
}

fn tcp_check() -> HealthCheck {
    HealthCheck { steps: vec![HealthCheckKind::Tcp.into()], ..http_check(PATIENCE) }
}

/// The same check at another port.
fn at_port(port: u16, check: HealthCheck) -> HealthCheck {
    let steps = check.steps.into_iter().map(|step| CheckStep { port: Some(port), ..step }).collect();
    HealthCheck { steps, ..check }
}

/// An endpoint that answers each connection with `answer`, `times` times, `pause` apart, and closes.
async fn endpoint(answer: &'static [u8], times: usize, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; 1024];
                // How much of it came does not matter here.
                let Ok(_) = stream.read(&mut request).await else { return };
                for _ in 0..times {
                    // The probe may have seen enough and closed.
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                }
            });
        }
    });
    address
}

async fn attempt(address: SocketAddr, check: &HealthCheck) -> Result<(), String> {
    attempt_over(address, check, None).await
}

async fn attempt_over(address: SocketAddr, check: &HealthCheck, tls: Option<&UpstreamTls>) -> Result<(), String> {
    let shared = Shared::of(check, tls, None);
    Sequence::new(check, &shared, ("site", &address.into()), None).attempt(&mut None).await
}

#[tokio::test]
async fn a_good_status_is_a_success_and_a_bad_one_is_named() {
    let check = http_check(PATIENCE);
    let good = endpoint(b"HTTP/1.1 204 No Content\r\n\r\n", 1, Duration::ZERO).await;
    assert_eq!(attempt(good, &check).await, Ok(()));
    let bad = endpoint(b"HTTP/1.1 503 Service Unavailable\r\n\r\n", 1, Duration::ZERO).await;
    assert_eq!(attempt(bad, &check).await, Err("answered 503".into()));
}

#[tokio::test]
async fn headers_without_end_are_cut_off_at_the_bound() {
    let address = endpoint(b"HTTP/1.1 200 OK\r\n", 1, Duration::ZERO).await;
    let refused = attempt(address, &http_check(PATIENCE)).await.unwrap_err();
    assert!(refused.contains("closed within"), "{refused}");
    let rubbish = endpoint(b"x-filler: 0123456789abcdef\r\n", usize::MAX, Duration::ZERO).await;
    let refused = attempt(rubbish, &http_check(PATIENCE)).await.unwrap_err();
    assert!(refused.contains("not valid HTTP"), "{refused}");
}

#[tokio::test]
async fn an_answer_that_stalls_runs_into_the_timeout() {
    let drip = endpoint(b"HTTP/1.1 200 OK\r\nx: ", 1, PATIENCE).await;
    let begun = Instant::now();
    let refused = attempt(drip, &http_check(Duration::from_millis(150))).await.unwrap_err();
    assert_eq!(refused, "no response within 150ms");
    assert!(begun.elapsed() < PATIENCE);
}

#[tokio::test]
async fn an_endpoint_that_closes_or_is_not_there_is_a_failure() {
    let silent = endpoint(b"", 0, Duration::ZERO).await;
    assert_eq!(attempt(silent, &http_check(PATIENCE)).await, Err("closed without a response".into()));
    let bound = TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = bound.local_addr().unwrap();
    for check in [http_check(PATIENCE), tcp_check()] {
        let refused = attempt(gone, &check).await.unwrap_err();
        assert!(refused.starts_with("cannot connect"), "{refused}");
    }
    assert_eq!(attempt(silent, &tcp_check()).await, Ok(()), "it accepts, which is all that is asked");
}

/// An endpoint that speaks TLS with a certificate for `localhost`, and the authority that vouches for it.
async fn tls_endpoint() -> (SocketAddr, Pem) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let authority = Pem { path: "ca.pem".into(), bytes: signed.cert.pem().into_bytes().into() };
    let key = rustls_pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust us ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 1024];
            if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            }
        }
    });
    (address, authority)
}

#[tokio::test]
async fn tls_is_spoken_and_the_certificate_is_verified_unless_told_otherwise() {
    let (address, authority) = tls_endpoint().await;
    let trusting = UpstreamTls {
        server_name: Some("localhost".into()),
        verify: true,
        authorities: Some(authority),
        certificate: None,
    };
    let other_name = UpstreamTls { server_name: Some("other.example".into()), ..trusting.clone() };
    let unverified = UpstreamTls { server_name: None, verify: false, authorities: None, certificate: None };
    for check in [http_check(PATIENCE), tcp_check()] {
        let attempt = async |settings: &UpstreamTls| attempt_over(address, &check, Some(settings)).await;
        assert_eq!(attempt(&trusting).await, Ok(()));
        assert_eq!(attempt(&unverified).await, Ok(()));
        let refused = attempt(&other_name).await.unwrap_err();
        assert!(refused.starts_with("the TLS handshake failed"), "{refused}");
    }
    let plain = endpoint(b"HTTP/1.1 200 OK\r\n\r\n", 1, Duration::ZERO).await;
    let refused = attempt_over(plain, &tcp_check(), Some(&unverified)).await.unwrap_err();
    assert!(refused.starts_with("the TLS handshake failed"), "{refused}");
}

fn plan(addresses: &[SocketAddr], check: Option<HealthCheck>, previous: Option<&Plan>) -> Arc<Plan> {
    let endpoints = addresses.iter().map(|address| Endpoint {
        name: Name::from(address.to_string()),
        address: (*address).into(),
        weight: 1,
        connections_max: None,
        state: model::fitness::AdminState::Auto,
        placement: model::placement::Placed::default(),
        queue_max: None,
        agent_port: None,
    });
    let second = Duration::from_secs(1);
    let cluster = Cluster {
        name: "site".into(),
        endpoints: endpoints.collect(),
        endpoints_from: None,
        settings: Arc::new(ClusterSettings {
            connections_max: None,
            balance: Balance::RoundRobin,
            spread: model::placement::Spread::default(),
            health_check: check,
            fitness: model::fitness::Fitness::default(),
            queue: None,
            tls: None,
            socket: model::socket::ClusterSocket::default(),
            proxy_protocol: None,
            grpc_web: false,
            follows_names: false,
            pool: Pool { idle_max: 1, idle_timeout: second, requests_per_connection_max: None, shared: None },
            timeouts: UpstreamTimeouts { connect: second, response_head: second, idle: second, tunnel: None },
            retry: model::retry::Retry::default(),
            resilience: model::resilience::Resilience::default(),
            persistence: None,
        }),
    };
    let snapshot = Snapshot { clusters: vec![Arc::new(cluster)], ..Snapshot::default() };
    let plan = plan::compile(Arc::new(snapshot), previous, 1).unwrap();
    if let Some(previous) = previous {
        plan.take_effect(previous);
    }
    Arc::new(plan)
}

/// Looks until the endpoints have these states.
async fn wait_for(plan: &Plan, wanted: &[HealthState]) {
    let states = || plan.clusters[0].endpoints.iter().map(|e| e.state.health_state()).collect::<Vec<_>>();
    let reached = async {
        while states() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{:?}, not {wanted:?}", states()));
}

#[tokio::test]
async fn probes_find_out_who_is_well_and_keep_what_they_know_through_a_change_of_plan() {
    use HealthState::{Down, Up};
    let well = endpoint(b"HTTP/1.1 200 OK\r\n\r\n", 1, Duration::ZERO).await;
    let ill = endpoint(b"HTTP/1.1 500 Oops\r\n\r\n", 1, Duration::ZERO).await;
    let reasons = Arc::new(Reasons::default());
    let probes = Probes::start(Arc::clone(&reasons)).unwrap();
    let check = http_check(PATIENCE);

    let first = plan(&[well, ill], Some(check.clone()), None);
    probes.follow(Arc::clone(&first));
    wait_for(&first, &[Up, Down]).await;
    let name = |address: SocketAddr| Name::from(address.to_string());
    assert_eq!(reasons.get(&"site".into(), &name(ill)).as_deref(), Some("answered 500"));
    assert_eq!(reasons.get(&"site".into(), &name(well)), None);
    assert!(first.clusters[0].is_up(0) && !first.clusters[0].is_up(1));

    let third = endpoint(b"HTTP/1.1 200 OK\r\n\r\n", 1, Duration::ZERO).await;
    let second = plan(&[ill, third], Some(check), Some(&first));
    assert_eq!(second.clusters[0].endpoints[0].state.health_state(), Down, "not forgotten");
    probes.follow(Arc::clone(&second));
    wait_for(&second, &[Down, Up]).await;

    let unchecked = plan(&[ill, third], None, Some(&second));
    probes.follow(Arc::clone(&unchecked));
    let forgotten = async {
        while reasons.get(&"site".into(), &name(ill)).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, forgotten).await.expect("a probe that ended leaves no reason behind");
}

#[tokio::test]
async fn an_endpoint_that_recovers_comes_up_again() {
    // Bound but not listening: connections are refused, and nobody else gets the port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let probes = Probes::start(Arc::default()).unwrap();
    let plan = plan(&[address], Some(tcp_check()), None);
    probes.follow(Arc::clone(&plan));
    wait_for(&plan, &[HealthState::Down]).await;
    let _listener = socket.listen(16).unwrap();
    wait_for(&plan, &[HealthState::Up]).await;
}

/// An endpoint that answers requests one after the other on each connection, and counts both; it closes a connection
/// after `lasts` answers.
async fn keeping_endpoint(lasts: usize) -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&connections), Arc::clone(&requests));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counts.0.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 1024];
            for _ in 0..lasts {
                let Ok(1..) = stream.read(&mut request).await else { break };
                counts.1.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    });
    (address, connections, requests)
}

#[tokio::test]
async fn a_kept_connection_is_used_again_and_one_that_was_closed_meanwhile_is_replaced() {
    let (address, connections, requests) = keeping_endpoint(3).await;
    let check = HealthCheck { reuses_connection: true, ..http_check(PATIENCE) };
    let shared = Shared::of(&check, None, None);
    let target = Sequence::new(&check, &shared, ("site", &address.into()), None);
    let mut kept = None;
    for _ in 0..6 {
        assert_eq!(target.attempt(&mut kept).await, Ok(()));
    }
    let counts = (connections.load(Ordering::SeqCst), requests.load(Ordering::SeqCst));
    assert_eq!(counts, (2, 6));
}

#[tokio::test]
async fn another_port_can_be_asked() {
    let asked = endpoint(b"HTTP/1.1 200 OK\r\n\r\n", 1, Duration::ZERO).await;
    let check = at_port(asked.port(), http_check(PATIENCE));
    assert_eq!(attempt("127.0.0.1:1".parse().unwrap(), &check).await, Ok(()));
}

#[tokio::test]
async fn scripts_are_followed_and_their_steps_named() {
    let redis = endpoint(b"+PONG\r\n", 1, Duration::ZERO).await;
    let script = |expect: &str| HealthCheck {
        steps: vec![
            HealthCheckKind::Script(vec![
                ScriptStep::Send(b"PING\r\n".to_vec()),
                ScriptStep::Expect(expect.as_bytes().to_vec()),
            ])
            .into(),
        ],
        ..http_check(PATIENCE)
    };
    assert_eq!(attempt(redis, &script("+PONG")).await, Ok(()));
    assert_eq!(attempt(redis, &script("-ERR")).await, Err("script step 2: closed without \"-ERR\"".into()));
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let check = HealthCheck { timeout: Duration::from_millis(100), ..script("x") };
    assert_eq!(attempt(silent.local_addr().unwrap(), &check).await, Err("no response within 100ms".into()));
}

#[tokio::test]
async fn intervals_differ_while_down_and_while_changing() {
    let hour = Duration::from_secs(3_600);
    let failing = endpoint(b"HTTP/1.1 500 Oops\r\n\r\n", 1, Duration::ZERO).await;
    let probes = Probes::start(Arc::default()).unwrap();
    // Only the first two checks come by the interval: the first decides, and the second is half an interval away.
    let check = HealthCheck { interval: hour, interval_down: Duration::from_millis(10), ..http_check(PATIENCE) };
    let plan = plan(&[failing], Some(check), None);
    probes.follow(Arc::clone(&plan));
    wait_for(&plan, &[HealthState::Down]).await;
    // Down, so it is asked again within milliseconds: once it is well, it comes up.
    let (well, _, requests) = keeping_endpoint(1).await;
    let quick = HealthCheck {
        interval: Duration::from_millis(10),
        interval_down: hour,
        interval_changing: Duration::from_millis(10),
        rise: 5,
        ..at_port(well.port(), http_check(PATIENCE))
    };
    let next = super::tests::plan(&[failing], Some(quick), Some(&plan));
    probes.follow(Arc::clone(&next));
    wait_for(&next, &[HealthState::Up]).await;
    // Up, it is asked every few milliseconds, and so perhaps once more before we look.
    assert!(requests.load(Ordering::SeqCst) >= 5, "each success speaks against the state");
}

#[tokio::test]
async fn an_endpoint_that_is_held_out_gets_work_after_its_first_success_only() {
    let (well, ..) = keeping_endpoint(1).await;
    let check = HealthCheck { held_out: true, ..http_check(PATIENCE) };
    let first = plan(&[well], Some(check.clone()), None);
    assert!(!first.clusters[0].is_up(0));
    assert_eq!(first.clusters[0].roll().standing(0).as_str(), "held_out");
    let probes = Probes::start(Arc::default()).unwrap();
    probes.follow(Arc::clone(&first));
    wait_for(&first, &[HealthState::Up]).await;
    assert!(first.clusters[0].is_up(0));
    let (new, ..) = keeping_endpoint(1).await;
    let second = plan(&[well, new], Some(check.clone()), Some(&first));
    assert_eq!((second.clusters[0].is_up(0), second.clusters[0].is_up(1)), (true, false));
    let unchecked = plan(&[well], None, Some(&first));
    let again = plan(&[well, new], Some(check), Some(&unchecked));
    let up = (again.clusters[0].is_up(0), again.clusters[0].is_up(1));
    assert_eq!(up, (true, false), "who was at work goes on");
}

#[tokio::test]
async fn an_endpoint_that_left_the_configuration_is_asked_until_nothing_is_under_way_there() {
    let (leaves, connections, _) = keeping_endpoint(1).await;
    let (stays, ..) = keeping_endpoint(1).await;
    let probes = Probes::start(Arc::default()).unwrap();
    let first = plan(&[leaves], Some(http_check(PATIENCE)), None);
    let mut cache = plan::PickCache::default();
    let ask = plan::balance::Ask::new(Instant::now());
    let picked = first.clusters[0].pick(&mut cache, &mut || 1, &ask);
    let plan::Pick::Endpoint(lease) = picked else { panic!("{picked:?}") };
    probes.follow(Arc::clone(&first));
    wait_for(&first, &[HealthState::Up]).await;
    let second = plan(&[stays], Some(http_check(PATIENCE)), Some(&first));
    probes.follow(Arc::clone(&second));
    wait_for(&second, &[HealthState::Up]).await;
    let more_than = async |count: usize| {
        while connections.load(Ordering::SeqCst) <= count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let before = connections.load(Ordering::SeqCst);
    tokio::time::timeout(PATIENCE, more_than(before + 2)).await.expect("it is still asked");
    drop(lease);
    // At most two rounds may have begun before the end was seen.
    let last = connections.load(Ordering::SeqCst) + 2;
    tokio::time::timeout(Duration::from_millis(300), more_than(last)).await.expect_err("nobody asks any more");
}

#[tokio::test]
async fn steps_are_taken_in_order_each_at_its_port_and_the_reason_names_the_one_that_failed() {
    let well = endpoint(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 1, Duration::ZERO).await;
    let ill = endpoint(b"HTTP/1.1 503 Oops\r\n\r\n", 1, Duration::ZERO).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = || CheckStep::from(HealthCheckKind::Http(HttpCheck::get("/")));
    let tcp = || CheckStep::from(HealthCheckKind::Tcp);
    let listed = |steps: Vec<CheckStep>| HealthCheck { steps, is_listed: true, ..http_check(PATIENCE) };
    let at = |address: SocketAddr, step: CheckStep| CheckStep { port: Some(address.port()), ..step };
    assert_eq!(attempt(well, &listed(vec![tcp(), http()])).await, Ok(()));
    assert_eq!(attempt(ill, &listed(vec![tcp(), at(well, http())])).await, Ok(()));
    let found = attempt(well, &listed(vec![http(), at(ill, http()), http()])).await;
    assert_eq!(found, Err(format!("step 2 (http at port {}): answered 503", ill.port())));
    assert_eq!(attempt(ill, &listed(vec![http()])).await, Err("step 1 (http): answered 503".into()));
    // Each may have a time of its own, and all together have that of the check.
    let silent = silent.local_addr().unwrap();
    let short = CheckStep { timeout: Some(Duration::from_millis(50)), ..at(silent, http()) };
    let found = attempt(well, &listed(vec![http(), short])).await;
    assert_eq!(found, Err(format!("step 2 (http at port {}): no response within 50ms", silent.port())));
    let whole = HealthCheck { timeout: Duration::from_millis(100), ..listed(vec![tcp(), at(silent, http())]) };
    let why = format!("step 2 (http at port {}): no response within the 100ms of the whole check", silent.port());
    assert_eq!(attempt(well, &whole).await, Err(why));
}

#[tokio::test]
async fn a_body_that_drips_or_never_ends_runs_into_the_timeout_or_its_bound() {
    let wanted = ResponseTests { body: vec![BodyTest::Contains("never".into())], ..HttpCheck::get("/").wanted };
    let check = |timeout| {
        let http = HttpCheck { wanted: wanted.clone(), ..HttpCheck::get("/") };
        HealthCheck::new(HealthCheckKind::Http(http), timeout, timeout)
    };
    let stalls = endpoint(b"HTTP/1.1 200 OK\r\n\r\nabc", 1, PATIENCE).await;
    let late = attempt(stalls, &check(Duration::from_millis(100))).await;
    assert_eq!(late, Err("the response body did not end within 100ms (3 bytes came)".into()));
    let endless = endpoint(b"HTTP/1.1 200 OK\r\n\r\n", usize::MAX, Duration::ZERO).await;
    let why = "within its first 65536 bytes the body does not contain \"never\"";
    assert_eq!(attempt(endless, &check(PATIENCE)).await, Err(why.into()));
}
