//! gRPC: calls from clients to endpoints and back, answers made here, deadlines, and what is tried again.

use std::time::Duration;

use h2::Reason;
use http::{HeaderMap, HeaderValue, Request, Response};

use super::harness::http2::{Answer, Client};
use super::harness::http2_origin::{Asked, Http2Origin, Rules};
use super::harness::{Setup, eventually};

fn to(origins: &[&Http2Origin]) -> Setup {
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address()).collect();
    Setup::to_addresses(&addresses).listener("http_versions: [h2]").cluster("http_versions: [h2]").workers(1)
}

/// A call as clients send it.
fn call(path: &str) -> Request<()> {
    Request::builder()
        .method("POST")
        .uri(format!("http://shop.example{path}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .body(())
        .expect("a head")
}

fn call_within(path: &str, timeout: &'static str) -> Request<()> {
    let mut head = call(path);
    head.headers_mut().insert("grpc-timeout", HeaderValue::from_static(timeout));
    head
}

/// A message of gRPC: not compressed, its length, itself.
fn message(text: &str) -> Vec<u8> {
    [&[0][..], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn ok_head() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).expect("a head")
}

/// The trailers of a call that ended with this status.
fn ended(status: u8) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    trailers
}

/// An answer that is a status and nothing else.
fn status_only(asked: Asked, status: u8) {
    let mut head = ok_head();
    head.headers_mut().insert("grpc-status", HeaderValue::from(u16::from(status)));
    asked.end(head);
}

async fn echo(mut asked: Asked) {
    let Ok((body, _)) = asked.read().await else { return };
    let mut speech = asked.begin(ok_head());
    speech.say(body).await;
    speech.end_with(ended(0));
}

/// An origin that ends every call with this status alone.
fn ending(status: u8) -> Http2Origin {
    Http2Origin::start(Rules::default(), move |mut asked| {
        Box::pin(async move {
            let _ = asked.read().await;
            status_only(asked, status);
        })
    })
}

fn status_of(answer: &Answer) -> Option<String> {
    let status = answer.fields.get("grpc-status").or_else(|| answer.trailers.get("grpc-status"));
    status.map(|status| status.to_str().expect("text").to_owned())
}

#[test]
fn a_call_passes_with_its_messages_and_its_trailers() {
    let origin = Http2Origin::start(Rules::default(), |asked| Box::pin(echo(asked)));
    let product = to(&[&origin]).start();
    let answer = Client::connect(product.web()).ask(call("/shop.Cart/Add"), &message("a pear"));
    assert_eq!((answer.status, answer.body), (200, message("a pear")));
    assert_eq!(answer.trailers.get("grpc-status").map(HeaderValue::as_bytes), Some(&b"0"[..]));
    assert!(answer.fields.get("grpc-status").is_none());
    let head = origin.only_head();
    assert_eq!(head.headers().get("te").map(HeaderValue::as_bytes), Some(&b"trailers"[..]));
    assert_eq!(head.headers().get("content-type").map(HeaderValue::as_bytes), Some(&b"application/grpc+proto"[..]));
}

#[test]
fn messages_go_both_ways_for_longer_than_any_time_out_as_long_as_some_go() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let Ok(mut send) = asked.respond.send_response(ok_head(), false) else { return };
            while let Some(Ok(piece)) = asked.body.data().await {
                let _ = asked.body.flow_control().release_capacity(piece.len());
                let _ = send.send_data(piece, false);
            }
            let _ = send.send_trailers(ended(0));
        })
    });
    let product = to(&[&origin]).cluster("timeouts: { idle: 3s, response_head: 3s }").start();
    let mut client = Client::connect(product.web());
    let mut talk = client.open(call("/shop.Chat/Talk"), false);
    assert_eq!(client.head(&mut talk).expect("a head").0, 200);
    for step in 0..30 {
        let word = message(&format!("word {step:02}"));
        client.send(&mut talk, &word, false);
        assert_eq!(client.chunk(&mut talk).expect("a message").expect("no reset"), word);
        // Longer in all than any bound on silence.
        std::thread::sleep(Duration::from_millis(150));
    }
    client.send(&mut talk, b"", true);
    assert!(client.chunk(&mut talk).is_none());
}

#[test]
fn faults_and_answers_of_our_own_are_statuses_of_grpc() {
    let away = super::harness::net::refusing();
    let setup = Setup::to_addresses(&[away])
        .listener("http_versions: [h2]")
        .cluster("http_versions: [h2]")
        .route_before("{ match: { path: { prefix: /gone } }, respond: { status: 404, body: nothing } }")
        .route_before("{ match: { path: { prefix: /fine } }, respond: { status: 200, body: fine } }");
    let product = setup.start();
    let mut client = Client::connect(product.web());
    let down = client.ask(call("/shop.Cart/Add"), &message("x"));
    assert_eq!((down.status, down.body.len()), (200, 0));
    assert_eq!(down.field("grpc-status"), Some("14"));
    assert_eq!(down.field("grpc-message"), Some("The endpoint refused the connection or could not be reached."));
    assert_eq!(down.field("content-type"), Some("application/grpc"));
    let gone = client.ask(call("/gone/away"), &message("x"));
    assert_eq!((gone.status, gone.field("grpc-status")), (200, Some("12")));
    assert_eq!(gone.field("grpc-message"), Some("Not Found"));
    let fine = client.ask(call("/fine/thing"), &message("x"));
    assert_eq!((fine.text().as_str(), fine.field("grpc-status")), ("fine", None));
    let mut plain = call("/gone/away");
    plain.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc-web"));
    assert_eq!(client.ask(plain, &message("x")).status, 404, "that is not gRPC");
    product.flagged("UC");
}

#[test]
fn metadata_that_is_too_much_is_a_status_too() {
    let origin = Http2Origin::start(Rules::default(), |asked| Box::pin(echo(asked)));
    let product = to(&[&origin]).start();
    let mut client = Client::connect(product.web());
    let mut many = call("/shop.Cart/Add");
    for number in 0..130 {
        let name = http::HeaderName::try_from(format!("x-{number}")).expect("a name");
        many.headers_mut().insert(name, HeaderValue::from_static("y"));
    }
    let mut large = call("/shop.Cart/Add");
    large.headers_mut().insert("x-large", HeaderValue::try_from("y".repeat(40_000)).expect("a value"));
    for call in [many, large] {
        let answer = client.ask(call, &message("x"));
        assert_eq!((answer.status, answer.field("grpc-status")), (200, Some("8")));
    }
    assert_eq!(client.ask(call("/shop.Cart/Add"), &message("x")).body, message("x"));
    assert_eq!(origin.streams(), 1);
}

#[test]
fn a_deadline_ends_the_call_and_is_passed_on() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| Box::pin(async move { asked.wait_reset().await }));
    let product = to(&[&origin]).start();
    let mut client = Client::connect(product.web());
    let answer = client.ask(call_within("/shop.Cart/Add", "3S"), &message("x"));
    assert_eq!(status_of(&answer).as_deref(), Some("4"));
    product.flagged("PD");
    eventually("the endpoint is told", || origin.resets() == [Reason::CANCEL]);
    let passed = origin.only_head().headers()["grpc-timeout"].to_str().expect("text").to_owned();
    let micros: u64 = passed.strip_suffix('u').expect("microseconds").parse().expect("a number");
    assert!((1..=3_000_000).contains(&micros), "{passed}");
}

#[test]
fn of_the_clients_deadline_and_the_routes_bound_the_sooner_counts() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| Box::pin(async move { asked.wait_reset().await }));
    let product = to(&[&origin]).route("timeout: 2s").start();
    let mut client = Client::connect(product.web());
    for timeout in ["1H", "99999999S", "nonsense"] {
        let answer = client.ask(call_within("/shop.Cart/Add", timeout), &message("x"));
        assert_eq!(status_of(&answer).as_deref(), Some("4"), "{timeout}");
    }
    eventually("all were passed on", || origin.heads().len() == 3);
    let passed: Vec<_> = origin.heads().iter().map(|head| head.headers()["grpc-timeout"].clone()).collect();
    for timeout in &passed[..2] {
        assert!(timeout.to_str().expect("text").ends_with('u'), "{passed:?}");
    }
    assert_eq!(passed[2], "nonsense", "what is no time is the endpoint's to judge");
}

#[test]
fn a_deadline_of_the_clients_own_opens_no_circuit_and_ejects_nobody_but_that_of_the_route_does() {
    let start = || {
        Http2Origin::start(Rules::default(), |mut asked| {
            Box::pin(async move {
                let path = asked.path();
                match path.as_str() {
                    "/shop.Cart/Hang" => asked.wait_reset().await,
                    "/shop.Cart/Late" => {
                        let _ = asked.read().await;
                        status_only(asked, 4);
                    }
                    _ => echo(asked).await,
                }
            })
        })
    };
    let origins = [start(), start()];
    let breaker = "circuit_breaker: { error_ratio: { requests_min: 1, open_for: 1m } }";
    let ejecting = "passive_health: { consecutive_5xx: 1, ejection_time: 1m, ejected_max: 100% }";
    let setup = to(&[&origins[0], &origins[1]]).cluster(breaker).cluster(ejecting);
    let product = setup.start();
    let mut client = Client::connect(product.web());
    let mut status = |path: &str, timeout| status_of(&client.ask(call_within(path, timeout), &message("x")));
    for timeout in ["1m", "300m", "300m"] {
        assert_eq!(status("/shop.Cart/Hang", timeout).as_deref(), Some("4"));
    }
    for _ in 0..3 {
        assert_eq!(status("/shop.Cart/Late", "50m").as_deref(), Some("4"), "the endpoint says so");
    }
    assert_eq!(status("/shop.Cart/Add", "1H").as_deref(), Some("0"), "others are served");
    product.expect_metric("equipoise_cluster_circuit", &["cluster=\"site\""], 0.0);
    product.expect_metric("equipoise_endpoint_up", &["cluster=\"site\""], 2.0);

    let product = setup.start();
    let mut client = Client::connect(product.web());
    let mut status = |path: &str| status_of(&client.ask(call_within(path, "1H"), &message("x")));
    assert_eq!(status("/shop.Cart/Late").as_deref(), Some("4"));
    assert_eq!(
        status("/shop.Cart/Add").as_deref(),
        Some("14"),
        "an hour was left, so it is the endpoint's own failure"
    );

    let product = setup.route("timeout: 1s").start();
    let mut client = Client::connect(product.web());
    let mut status = |path: &str| status_of(&client.ask(call_within(path, "1H"), &message("x")));
    assert_eq!(status("/shop.Cart/Hang").as_deref(), Some("4"));
    assert_eq!(status("/shop.Cart/Add").as_deref(), Some("14"), "the cluster hangs, by the measure of its operator");
    product.flagged("PO");
}

#[test]
fn a_call_that_ends_with_a_status_alone_is_tried_elsewhere_if_the_rules_say_so() {
    let (ill, well) = (ending(14), Http2Origin::start(Rules::default(), |asked| Box::pin(echo(asked))));
    let rules = "retry: { on: [grpc_unavailable], methods: any }";
    let product = to(&[&ill, &well]).cluster(rules).start();
    let mut client = Client::connect(product.web());
    for _ in 0..4 {
        let answer = client.ask(call("/shop.Cart/Add"), &message("a pear"));
        assert_eq!((status_of(&answer).as_deref(), answer.body), (Some("0"), message("a pear")));
    }
    assert!(ill.streams() > 0 && well.streams() == 4);
    product.expect_metric("equipoise_cluster_retries_total", &["cluster=\"site\""], ill.streams() as f64);
    let statuses = |rules: &str, status| {
        let (ill, well) = (ending(status), Http2Origin::start(Rules::default(), |asked| Box::pin(echo(asked))));
        let product = to(&[&ill, &well]).cluster(rules).start();
        let mut client = Client::connect(product.web());
        let all: Vec<_> =
            (0..2).map(|_| status_of(&client.ask(call("/a/b"), &message("x"))).unwrap_or_default()).collect();
        (all.contains(&status.to_string()), all.contains(&"0".to_owned()))
    };
    assert_eq!(statuses(rules, 8), (true, true), "another status is passed on");
    assert_eq!(
        statuses("retry: { on: [grpc_unavailable] }", 14),
        (true, true),
        "a POST is sent twice only if that is said"
    );
}

#[test]
fn a_call_that_an_endpoint_has_not_looked_at_is_sent_again_with_its_message() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            match asked.index {
                0 => {
                    // Not before the message is here: it must be sent anew.
                    let _ = asked.read().await;
                    asked.respond.send_reset(Reason::REFUSED_STREAM);
                }
                _ => echo(asked).await,
            }
        })
    });
    let product = to(&[&origin]).start();
    let answer = Client::connect(product.web()).ask(call("/shop.Cart/Add"), &message("a pear"));
    assert_eq!((status_of(&answer).as_deref(), answer.body), (Some("0"), message("a pear")));
}
