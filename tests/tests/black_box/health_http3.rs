//! Active checks of endpoints that speak HTTP/3 alone: nothing listens at their port of TCP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, HeaderValue, Response};

use super::harness::http3_origin::{Asked, Http3Origin, Rules};
use super::harness::product::folder;
use super::harness::tls::Authority;
use super::harness::{Product, Setup, eventually};

/// With checks as they are given, and two workers.
fn start(authority: &Authority, addresses: &[SocketAddr], check: &str) -> Product {
    let folder = folder();
    authority.write(folder.path(), "authority.pem");
    let setup = Setup::to_addresses(addresses)
        .cluster("http_versions: [h3]")
        .cluster("tls: { authorities: authority.pem }")
        .cluster(format!("health_check: {{ {check}, interval: 50ms, timeout: 5s, rise: 2, fall: 2 }}"));
    Product::start_in(folder, &setup.text(), 2)
}

fn is_up(product: &Product, address: SocketAddr) -> bool {
    product.metric("equipoise_endpoint_up", &[&format!("endpoint=\"{address}\"")]) == 1.0
}

/// Why the first endpoint is not well.
fn reason(product: &Product) -> String {
    let status = product.api("/api/status");
    status["clusters"][0]["endpoints"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_endpoint_is_asked_over_http_3_and_gets_no_work_until_it_is_well_again() {
    let (authority, state) = (Authority::new("inside"), Arc::new(AtomicBool::new(true)));
    let is_sick = Arc::clone(&state);
    let sick = Http3Origin::start(Rules::of(&authority), move |asked| {
        let status = if is_sick.load(Ordering::SeqCst) && asked.path() == "/health?full" { 503 } else { 200 };
        let head = Response::builder().status(status).header("x-role", "primary").body(()).expect("a head");
        Box::pin(asked.say(head, "all is well"))
    });
    let well = Http3Origin::start(Rules::of(&authority), |asked| {
        let head = Response::builder().header("x-role", "primary").body(()).expect("a head");
        Box::pin(asked.say(head, "all is well here"))
    });
    let check = "http: { path: \"/health?full\", host: check.example, headers: { X-Probe: \"1\" }, \
                 expect_headers: { x-role: primary }, expect_body: is well }";
    let product = start(&authority, &[sick.address(), well.address()], check);
    eventually("it is taken out", || !is_up(&product, sick.address()));
    assert!(reason(&product).contains("answered 503"), "{}", reason(&product));
    for _ in 0..20 {
        assert_eq!(product.get("/work").text(), "all is well here");
    }
    let asked = sick.heads();
    assert!(asked.iter().all(|head| head.uri().path() == "/health"), "{asked:?}");
    let first = asked.first().expect("a check");
    assert_eq!(
        (first.method().as_str(), first.uri().authority().map(|host| host.as_str())),
        ("GET", Some("check.example"))
    );
    assert_eq!(first.headers()["x-probe"], "1");
    assert!(first.headers()["user-agent"].as_bytes().starts_with(b"equipoise-probe/"), "{first:?}");
    state.store(false, Ordering::SeqCst);
    eventually("it is brought back", || is_up(&product, sick.address()));
    eventually("it gets work", || {
        product.get("/work");
        sick.heads().iter().any(|head| head.uri().path() == "/work")
    });
    product.expect_said(&["endpoint is down", "endpoint is up"]);
}

#[test]
fn an_endpoint_that_goes_is_taken_out_and_brought_back_when_it_is_there_again() {
    let authority = Authority::new("inside");
    let (stays, goes) = (Http3Origin::saying(&authority, "stays"), Http3Origin::saying(&authority, "goes"));
    let product = start(&authority, &[stays.address(), goes.address()], "http: { method: HEAD }");
    eventually("both are asked", || stays.streams() > 1 && goes.streams() > 1);
    assert!(is_up(&product, goes.address()));
    let address = goes.kill();
    eventually("it is taken out", || !is_up(&product, address));
    for _ in 0..20 {
        assert_eq!(product.get("/").text(), "stays");
    }
    let back = Http3Origin::start_at(address, Rules::of(&authority), |asked| Box::pin(asked.answer("back")));
    eventually("it is brought back", || is_up(&product, address));
    eventually("it gets work", || product.get("/").text() == "back");
    // Each check says that its connection is over.
    eventually("checks leave no connections behind", || back.ends().len() > 3 && back.open() <= 4);
}

#[test]
fn who_is_not_to_be_trusted_or_only_speaks_quic_is_not_well() {
    let (authority, other) = (Authority::new("inside"), Authority::new("elsewhere"));
    let stranger = Http3Origin::saying(&other, "trust me");
    let product = start(&authority, &[stranger.address()], "http: {}");
    eventually("it is taken out", || !is_up(&product, stranger.address()));
    assert!(reason(&product).starts_with("the QUIC handshake failed"), "{}", reason(&product));
    let mute = Http3Origin::start_raw(Rules::of(&authority), |quic, _| {
        Box::pin(async move { quic.close(quinn::VarInt::from_u32(0x10a), b"") })
    });
    let product = start(&authority, &[mute.address()], "http: {}");
    eventually("it is taken out", || !is_up(&product, mute.address()));
    assert!(reason(&product).contains("closed by peer"), "{}", reason(&product));
    assert_eq!(product.get("/").status(), 503);
}

/// Answers a call as gRPC has it: with this message, and this status behind it.
async fn say(mut asked: Asked, message: &'static [u8], status: &'static str) {
    if asked.read().await.is_err() {
        return;
    }
    let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let mut speech = asked.begin(head).await;
    speech.say(message).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    speech.end_with(trailers).await;
}

const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
const NOT_SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 2];
const QUESTION: &str = "/grpc.health.v1.Health/Check";

#[test]
fn an_endpoint_is_asked_by_grpc_over_http_3_and_is_out_while_it_does_not_serve() {
    let (authority, state) = (Authority::new("inside"), Arc::new(AtomicBool::new(true)));
    let is_sick = Arc::clone(&state);
    let sick = Http3Origin::start(Rules::of(&authority), move |asked| match asked.path().as_str() {
        QUESTION if is_sick.load(Ordering::SeqCst) => Box::pin(say(asked, NOT_SERVING, "0")),
        QUESTION => Box::pin(say(asked, SERVING, "0")),
        _ => Box::pin(asked.answer("was sick")),
    });
    let well = Http3Origin::start(Rules::of(&authority), |asked| match asked.path().as_str() {
        QUESTION => Box::pin(say(asked, SERVING, "0")),
        _ => Box::pin(asked.answer("well")),
    });
    let check = "grpc: { service: shop, host: check.example, headers: { X-Probe: \"1\" } }";
    let product = start(&authority, &[sick.address(), well.address()], check);
    eventually("it is taken out", || !is_up(&product, sick.address()));
    assert!(reason(&product).contains("says NOT_SERVING"), "{}", reason(&product));
    assert!(is_up(&product, well.address()));
    for _ in 0..20 {
        assert_eq!(product.get("/work").text(), "well");
    }
    let asked = sick.heads();
    assert!(asked.iter().all(|head| head.uri().path() == QUESTION), "{asked:?}");
    let first = asked.first().expect("a check");
    assert_eq!(
        (first.method().as_str(), first.uri().authority().map(|host| host.as_str())),
        ("POST", Some("check.example"))
    );
    for (name, value) in
        [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "5000m"), ("x-probe", "1")]
    {
        assert_eq!(first.headers()[name], value, "{first:?}");
    }
    state.store(false, Ordering::SeqCst);
    eventually("it is brought back", || is_up(&product, sick.address()));
    eventually("it gets work", || product.get("/work").text() == "was sick");
    eventually("checks leave no connections behind", || well.ends().len() > 3 && well.open() <= 4);
}

#[test]
fn who_answers_a_call_over_http_3_with_anything_else_is_not_well() {
    let authority = Authority::new("inside");
    let page = Http3Origin::saying(&authority, "<html>");
    let product = start(&authority, &[page.address()], "grpc: {}");
    eventually("a page is no answer", || reason(&product).contains("not that of gRPC"));
    let failed = Http3Origin::start(Rules::of(&authority), |asked| Box::pin(say(asked, SERVING, "14")));
    let product = start(&authority, &[failed.address()], "grpc: {}");
    eventually("its status counts", || reason(&product).contains("status 14 of gRPC, UNAVAILABLE"));
    let endless = Http3Origin::start(Rules::of(&authority), |asked| {
        Box::pin(async move {
            let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
            let mut speech = asked.begin(head).await;
            while speech.say(vec![0_u8; 512]).await {}
        })
    });
    let product = start(&authority, &[endless.address()], "grpc: {}");
    eventually("it has a bound", || reason(&product).contains("the answer is longer than 1024 bytes"));
    assert!(!is_up(&product, endless.address()));
}
