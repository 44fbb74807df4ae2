//! The filter `basic_auth`: names and passwords.

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::{Origin, Product, Setup, eventually, http3, product, tls};
use super::http3::site;

const ANN: &str = "ann:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";
const BOB: &str = "bob:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\n";
/// So many rounds that one password takes a good part of a second, whatever the machine.
const SLOW: &str = "eve:$6$rounds=1000000$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1\n";
const ANN_SECRET: &str = "Basic YW5uOnNlY3JldA==";
const BOB_SECRET: &str = "Basic Ym9iOnNlY3JldA==";
const EVE_WRONG: &str = "Basic ZXZlOnNlY3JldA==";

/// An origin that says whom it was told of, and a product that lets these users in below `/in`.
fn start(users: &str) -> (Origin, Product) {
    let origin =
        Origin::answering(|request| ok(&format!("{:?} {:?}", request.field("x-user"), request.field("authorization"))));
    let folder = product::folder();
    std::fs::write(folder.path().join("users.txt"), users).expect("our folder");
    let filters =
        "filters: [{ basic_auth: { realm: office, file: users.txt } }, { set_request_header: { x-user: \"{user}\" } }]";
    let text = Setup::to(&origin)
        .route("match: { path: { prefix: /in } }")
        .route(filters)
        .route_before("{ name: open, cluster: site }")
        .text();
    let product = Product::start_in(folder, &text, 1);
    (origin, product)
}

fn ask(product: &Product, path: &str, authorization: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nAuthorization: {authorization}\r\n\r\n");
    let answer = product.connect().ask(request);
    (answer.status(), answer.text())
}

#[test]
fn who_has_a_name_and_a_password_is_let_in_and_named() {
    let (origin, product) = start(&format!("{ANN}{BOB}"));
    let challenged = product.get("/in");
    assert_eq!(challenged.status(), 401);
    assert_eq!(challenged.field("www-authenticate"), Some("Basic realm=\"office\", charset=\"UTF-8\""));
    assert!(origin.requests().is_empty());
    for _ in 0..3 {
        assert_eq!(ask(&product, "/in", ANN_SECRET), (200, "Some(\"ann\") None".to_owned()));
        assert_eq!(ask(&product, "/in", BOB_SECRET), (200, "Some(\"bob\") None".to_owned()));
    }
    for wrong in ["Basic YW5uOndyb25n", "Basic bm9ib2R5OnNlY3JldA==", "Basic Ym9iOg==", "Bearer x", "Basic !"] {
        assert_eq!(ask(&product, "/in", wrong).0, 401, "{wrong}");
    }
    let record = product.record("ann's", |record| record["user"] == "ann");
    assert_eq!((record["status"].as_u64(), record["flag"].as_str()), (Some(200), None), "{record}");
    assert_eq!(product.flagged("PF")["status"], 401);
    assert_eq!(ask(&product, "/", "Basic x").0, 200, "the other route asks for nothing");
}

#[test]
fn requests_by_http2_and_with_bodies_wait_for_the_answer_too() {
    let (origin, product) = start(ANN);
    let mut client = Client::connect(product.web());
    let post = with_fields(request("POST", "/in"), &[("authorization", ANN_SECRET)]);
    assert_eq!(client.ask(post, b"hello").text(), "Some(\"ann\") None");
    assert_eq!(client.get("/in").status, 401);
    let mut peer = product.connect();
    let head = format!("POST /in HTTP/1.1\r\nHost: test\r\nAuthorization: {ANN_SECRET}\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(peer.ask(format!("{head}hello")).status(), 200);
    assert_eq!(peer.ask(format!("{head}world")).status(), 200);
    let bodies: Vec<_> = origin.requests().iter().map(|request| request.text()).collect();
    assert_eq!(bodies, ["hello", "hello", "world"]);
}

#[test]
fn the_worker_carries_on_while_passwords_are_verified_and_too_many_are_refused() {
    let (_origin, product) = start(&format!("{ANN}{SLOW}"));
    assert_eq!(ask(&product, "/in", ANN_SECRET).0, 200);
    let mut client = Client::connect(product.web());
    let wait = || with_fields(request("GET", "/in"), &[("authorization", EVE_WRONG)]);
    let mut waiting: Vec<_> = (0..64).map(|_| client.open(wait(), true)).collect();
    // The only worker has them all; while they wait, others are served.
    assert_eq!(ask(&product, "/", "x").0, 200);
    assert_eq!(ask(&product, "/in", ANN_SECRET).0, 200, "what is known needs no verification");
    waiting.extend((0..32).map(|_| client.open(wait(), true)));
    let refused = product.flagged("PV");
    assert_eq!((refused["fault"].as_str(), refused["status"].as_u64()), (Some("verification_full"), Some(503)));
    assert_eq!(ask(&product, "/in", ANN_SECRET).0, 200);
    drop(waiting);
}

#[test]
fn users_are_read_again_when_the_file_changes() {
    let (_origin, product) = start(ANN);
    assert_eq!((ask(&product, "/in", ANN_SECRET).0, ask(&product, "/in", BOB_SECRET).0), (200, 401));
    let file = product.folder().join("users.txt");
    let swap = |text: &str| {
        std::fs::write(file.with_extension("next"), text).expect("our folder");
        std::fs::rename(file.with_extension("next"), &file).expect("our folder");
    };
    swap(BOB);
    eventually("bob is let in", || ask(&product, "/in", BOB_SECRET).0 == 200);
    assert_eq!(ask(&product, "/in", ANN_SECRET).0, 401, "what was known is forgotten");
    swap("eve:secret\n");
    let told = "`users.txt`, line 1: this is not a bcrypt, SHA-crypt or `$apr1$` hash; create one with `htpasswd -B`";
    eventually("it is told of", || product.stderr().contains(told));
    assert_eq!(ask(&product, "/in", BOB_SECRET).0, 200);
    assert!(!product.stderr().contains("eve:secret"));
}

#[test]
fn the_time_of_a_refusal_does_not_tell_whether_a_name_exists() {
    // Twenty times as slow as the others; which password it is of does not matter.
    let dear = SLOW.replace("rounds=1000000", "rounds=200000");
    let origin = Origin::saying("in");
    let line = |entry: &str| entry.trim_end().replacen(':', ": '", 1) + "'";
    let users = [ANN, BOB, &dear].map(line).join(", ");
    let site = site(Setup::to(&origin).route(format!("filters: [{{ basic_auth: {{ users: {{ {users} }} }} }}]")), 1);
    let config = |protocol: &'static str| {
        tls::Client { protocols: std::slice::from_ref(&protocol), ..tls::Client::trusting(&site.authority) }.config()
    };
    let mut over_http2 = Client::connect_tls(site.product.web(), "shop.example", &config("h2"));
    let mut over_http3 = site.connect();
    for version in ["HTTP/1.1", "HTTP/2", "HTTP/3"] {
        let mut status = |authorization: &str| {
            let fields = [("authorization", authorization)];
            match version {
                "HTTP/1.1" => {
                    let mut peer = tls::connect(site.product.web(), "shop.example", &config("http/1.1"));
                    let head = "GET /in HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n";
                    peer.ask(format!("{head}Authorization: {authorization}\r\n\r\n")).status()
                }
                "HTTP/2" => over_http2.ask(with_fields(request("GET", "/in"), &fields), b"").status,
                _ => over_http3.ask(with_fields(http3::request("GET", "/in"), &fields), b"").status,
            }
        };
        let mut fastest = |authorization: &str| {
            let mut time = || {
                let begun = std::time::Instant::now();
                assert_eq!(status(authorization), 401, "{version}");
                begun.elapsed()
            };
            (0..3).map(|_| time()).min().expect("a time")
        };
        let nobodys = fastest("Basic bm9ib2R5OnNlY3JldA==");
        for (name, wrong) in [("ann", "Basic YW5uOndyb25n"), ("bob", "Basic Ym9iOg=="), ("eve", EVE_WRONG)] {
            let time = fastest(wrong);
            let told = format!("{name} over {version}: {time:?}, a name that nobody has: {nobodys:?}");
            assert!(time * 4 > nobodys && nobodys * 4 > time, "{told}");
        }
    }
}
