//! The filter `rate_limit_service`: Envoy's own rate limit service with a real Redis, and others that do what it does not do.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue, Response};

use super::harness::http2::{Client, request, with_fields};
use super::harness::http2_origin::{Asked, Http2Origin, Rules};
use super::harness::services::RateLimits;
use super::harness::{Origin, Peer, Setup, eventually, http3, net};
use super::http3::site;

/// A window that no test sees the end of.
const LIMITS: &str = "domain: shop
descriptors:
  - key: client
    rate_limit: { unit: year, requests_per_unit: 3 }
  - key: kind
    value: checkout
    descriptors:
      - key: api_key
        rate_limit: { name: keys, unit: year, requests_per_unit: 2 }
";

fn setup(origin: &Origin, service: SocketAddr, more: &str) -> Setup {
    Setup::to(origin)
        .route(format!("filters: [{{ rate_limit_service: {{ cluster: limits, domain: shop, {more} }} }}]"))
        .cluster_more(format!("limits: {{ endpoints: [\"{service}\"], http_versions: [h2] }}"))
}

/// By the header field `client`, so that each test and each client has an allowance of its own.
const BY_CLIENT: &str = "timeout: 60s, descriptors: [{ client: \"{request_header:client}\" }]";

fn ask(peer: &mut Peer, name: &str) -> super::harness::Message {
    peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nClient: {name}\r\n\r\n"))
}

#[test]
fn a_real_service_limits_requests_by_their_descriptors_over_instances_and_versions() {
    let (origin, service) = (Origin::saying("in"), RateLimits::start(LIMITS));
    let one = site(setup(&origin, service.address, BY_CLIENT).listener_more("clear: { bind: \"127.0.0.1:0\" }"), 1);
    let other = setup(&origin, service.address, BY_CLIENT).start();
    let mut first = other.connect();
    assert_eq!((ask(&mut first, "ann").status(), ask(&mut first, "bob").status()), (200, 200));
    let (mut second, mut third) = (Client::connect(one.product.address("clear")), one.connect());
    let ann = [("client", "ann")];
    let passed = second.ask(with_fields(request("GET", "/"), &ann), b"");
    // The service itself adds these.
    assert_eq!((passed.status, passed.field("ratelimit-remaining")), (200, Some("1")));
    assert_eq!(third.ask(with_fields(http3::request("GET", "/"), &ann), b"").status, 200);
    let refused = third.ask(with_fields(http3::request("GET", "/"), &ann), b"");
    assert_eq!((refused.status, refused.text().as_str()), (429, "too many requests\n"));
    assert_eq!((refused.field("ratelimit-limit"), refused.field("ratelimit-remaining")), (Some("3"), Some("0")));
    assert_eq!(refused.field("retry-after"), refused.field("ratelimit-reset"));
    assert_eq!(second.ask(with_fields(request("GET", "/"), &ann), b"").status, 429);
    assert_eq!((ask(&mut first, "ann").status(), ask(&mut first, "bob").status()), (429, 200));
    one.product.expect_metric("equipoise_filter_events_total", &["event=\"limited\""], 2.0);
    other.expect_metric("equipoise_filter_events_total", &["event=\"limited\""], 1.0);
    assert_eq!(origin.requests().len(), 5);
}

#[test]
fn a_descriptor_whose_field_is_absent_is_left_out_and_without_any_there_is_no_call() {
    let (origin, service) = (Origin::saying("in"), RateLimits::start(LIMITS));
    let more = "timeout: 60s, descriptors: [{ kind: checkout, api_key: \"{request_header:x-api-key}\" }]";
    let product = setup(&origin, service.address, more).start();
    let mut peer = product.connect();
    for _ in 0..4 {
        assert_eq!(peer.get("/").status(), 200);
    }
    product.expect_metric("equipoise_cluster_requests_total", &["cluster=\"limits\""], 0.0);
    let statuses = [(); 3].map(|()| peer.ask("GET / HTTP/1.1\r\nHost: test\r\nX-Api-Key: k\r\n\r\n").status());
    assert_eq!(statuses, [200, 200, 429]);
    product.expect_metric("equipoise_cluster_requests_total", &["cluster=\"limits\""], 3.0);
}

#[test]
fn a_request_may_count_as_several_and_a_dry_run_only_counts() {
    let (origin, service) = (Origin::saying("in"), RateLimits::start(LIMITS));
    let product = setup(&origin, service.address, &format!("{BY_CLIENT}, hits: 2, over: mark")).start();
    let mut peer = product.connect();
    for _ in 0..3 {
        assert_eq!(ask(&mut peer, "dry").status(), 200);
    }
    product.expect_metric("equipoise_filter_events_total", &["event=\"marked\""], 2.0);
}

#[test]
fn responses_show_what_is_left_in_either_form() {
    let (origin, service) = (Origin::saying("in"), RateLimits::start(LIMITS));
    let more = format!("{BY_CLIENT}, headers: true, x_ratelimit_headers: true, status: 503");
    let product = setup(&origin, service.address, &more).start();
    let mut peer = product.connect();
    for (status, left) in [(200, "2"), (200, "1"), (200, "0"), (503, "0")] {
        let answer = ask(&mut peer, "shown");
        let reset = answer.field("x-ratelimit-reset").expect("a time").to_owned();
        assert_eq!((answer.status(), answer.field("x-ratelimit-remaining")), (status, Some(left)));
        assert_eq!(answer.field("x-ratelimit-limit"), Some("3, 3;w=31536000"));
        assert_eq!(answer.field("ratelimit-policy"), Some("\"shop\";q=3;w=31536000"));
        assert_eq!(answer.field("ratelimit"), Some(&*format!("\"shop\";r={left};t={reset}")));
    }
}

#[test]
fn a_service_that_is_away_lets_requests_pass_unless_it_is_to_be_closed() {
    let (origin, mut service) = (Origin::saying("in"), RateLimits::start(LIMITS));
    let silent = Http2Origin::start(Rules::default(), |mut asked| Box::pin(async move { asked.wait_reset().await }));
    for (address, timeout) in [(net::refusing(), "60s"), (silent.address(), "50ms")] {
        for (when_away, status) in [("open", 200), ("closed", 503)] {
            let more = BY_CLIENT.replace("60s", timeout);
            let product = setup(&origin, address, &format!("{more}, when_away: {when_away}")).start();
            assert_eq!(ask(&mut product.connect(), "x").status(), status, "{address} {when_away}");
            product.expect_metric("equipoise_filter_events_total", &["event=\"away\""], 1.0);
        }
    }
    let product = setup(&origin, service.address, BY_CLIENT).start();
    let mut peer = product.connect();
    let statuses = [(); 4].map(|()| ask(&mut peer, "gone").status());
    assert_eq!(statuses, [200, 200, 200, 429]);
    service.kill();
    eventually("requests pass", || ask(&mut peer, "gone").status() == 200);
}

#[test]
fn the_call_of_a_client_that_disconnects_is_cancelled() {
    let origin = Origin::saying("in");
    let silent = Http2Origin::start(Rules::default(), |mut asked| Box::pin(async move { asked.wait_reset().await }));
    let product = setup(&origin, silent.address(), BY_CLIENT).start();
    let mut peer = product.connect();
    peer.send("GET / HTTP/1.1\r\nHost: test\r\nClient: x\r\n\r\n");
    eventually("the service is asked", || silent.streams() == 1);
    peer.reset();
    eventually("the call is cancelled", || silent.resets() == [h2::Reason::CANCEL]);
    assert!(origin.requests().is_empty());
}

/// Answers with what the request's header field `client` says, which is in the message.
async fn misbehave(mut asked: Asked) {
    let Ok((question, _)) = asked.read().await else { return };
    let says = |name: &str| question.windows(name.len()).any(|part| part == name.as_bytes());
    let header = |name: &[u8], value: &[u8]| {
        let inner = [&[0x0a, name.len() as u8][..], name, &[0x12, value.len() as u8], value].concat();
        [&[0x1a, inner.len() as u8][..], &inner].concat()
    };
    let message = match () {
        // OVER_LIMIT with a body and its type.
        () if says("page") => [&[8, 2, 0x2a, 4][..], b"<p/>", &header(b"Content-Type", b"text/html")].concat(),
        () if says("inject") => [&[8, 1][..], &header(b"x-a", b"1\r\nx-b: 2")].concat(),
        () if says("frame") => [&[8, 1][..], &header(b"transfer-encoding", b"chunked")].concat(),
        () if says("garbage") => vec![0xff; 64],
        () if says("unknown") => vec![8, 77],
        () => vec![8, 1],
    };
    let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let mut speech = asked.begin(head);
    speech.say([&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat()).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    speech.end_with(trailers);
}

#[test]
fn the_body_of_the_service_is_sent_and_answers_that_cannot_be_carried_out_do_not_count() {
    let origin = Origin::saying("in");
    let service = Http2Origin::start(Rules::default(), |asked| Box::pin(misbehave(asked)));
    let product = setup(&origin, service.address(), &format!("{BY_CLIENT}, when_away: closed")).start();
    let mut peer = product.connect();
    let page = ask(&mut peer, "page");
    assert_eq!((page.status(), page.text().as_str(), page.all("content-type")), (429, "<p/>", vec!["text/html"]));
    for (name, status) in [("inject", 503), ("frame", 503), ("garbage", 503), ("unknown", 200), ("fine", 200)] {
        assert_eq!(ask(&mut peer, name).status(), status, "{name}");
    }
    product.expect_metric("equipoise_filter_events_total", &["event=\"away\""], 3.0);
}
