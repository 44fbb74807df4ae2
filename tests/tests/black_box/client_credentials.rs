//! The filter `client_credentials`: tokens for endpoints from a real Dex, and from servers that misbehave.

use std::sync::{Arc, Barrier, Mutex};

use super::harness::dex::{Dex, SECRET};
use super::harness::http2::{Client, request};
use super::harness::origin::ok;
use super::harness::{Origin, Product, Setup, eventually, product};

/// An endpoint that says what it was sent.
fn endpoint() -> Origin {
    Origin::answering(|request| ok(&request.all("authorization").join("+")))
}

fn start(site: &Origin, login: &str, filter: &str) -> Product {
    let folder = product::folder();
    std::fs::write(folder.path().join("client.secret"), format!("{SECRET}\n")).expect("our folder");
    let filter = format!("filters: [{{ client_credentials: {{ cluster: login, {filter} }} }}]");
    let cluster = format!("login: {{ endpoints: [\"{login}\"] }}");
    Product::start_in(folder, &Setup::to(site).route(filter).cluster_more(cluster).text(), 2)
}

fn get(product: &Product) -> (u16, String) {
    let answer = product.connect().ask("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer theirs\r\n\r\n");
    (answer.status(), answer.text())
}

/// The settings for a server of ours.
const OURS: &str = "path: /token, client: { id: gate, secret_file: client.secret }";

fn granted(token: &str, seconds: u64) -> Vec<u8> {
    ok(&format!("{{\"access_token\":\"{token}\",\"token_type\":\"bearer\",\"expires_in\":{seconds}}}"))
}

#[test]
fn a_real_dex_gives_a_token_that_its_own_keys_verify() {
    let site = endpoint();
    let dex = Dex::start("http://shop.example/oauth2/callback");
    let login = dex.issuer.trim_start_matches("http://").trim_end_matches("/dex");
    for authentication in ["basic", "post"] {
        let client = format!("{{ id: shop, secret_file: client.secret, authentication: {authentication} }}");
        let product = start(&site, login, &format!("path: /dex/token, client: {client}, scopes: [openid, profile]"));
        let (status, text) = get(&product);
        assert_eq!(status, 200, "{text}");
        assert_eq!(get(&product), (200, text.clone()), "the same token");
        assert_eq!(Client::connect(product.web()).ask(request("POST", "/"), b"body").text(), text);
        product.expect_metric("equipoise_filter_events_total", &["event=\"fetched\""], 1.0);
        // An instance in front of the endpoint verifies it.
        let filter =
            format!("filters: [{{ jwt: {{ keys_url: \"{}/keys\", issuer: \"{0}\", audience: shop }} }}]", dex.issuer);
        let verifies = Product::start(&Setup::to(&site).route(filter).text());
        let asked = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: {text}\r\n\r\n");
        assert_eq!(verifies.connect().ask(asked).status(), 200);
        for path in ["/api/config", "/api/config?as=effective", "/api/status", "/metrics"] {
            assert!(!product.admin(path).text().contains(SECRET), "{path}");
        }
    }
    let product = start(&site, login, "path: /dex/token, client: { id: shop, secret: wrong }");
    assert_eq!(get(&product).0, 503);
    product.expect_metric("equipoise_filter_events_total", &["event=\"failed\""], 1.0);
    assert!(!product.stderr().contains("wrong"));
}

#[test]
fn parallel_requests_without_a_token_are_one_fetch() {
    let site = endpoint();
    let gate = Arc::new(Barrier::new(2));
    let open = Arc::clone(&gate);
    let login = Origin::answering(move |_| {
        // The first fetch stays open until other requests have begun; a second would wait here for ever.
        open.wait();
        granted("one", 600)
    });
    let product = start(&site, &login.address().to_string(), &format!("{OURS}, timeout: 30s"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| get(&product));
        eventually("the fetch", || login.requests().len() == 1);
        let others: Vec<_> = (0..4).map(|_| scope.spawn(|| get(&product))).collect();
        gate.wait();
        for one in others.into_iter().chain([first]) {
            assert_eq!(one.join().expect("a request"), (200, "Bearer one".to_owned()));
        }
    });
    assert_eq!(login.requests().len(), 1);
}

#[test]
fn a_client_that_leaves_while_it_fetches_holds_nobody_up() {
    let site = endpoint();
    let login = Origin::start(|mut visit| {
        if visit.index == 0 {
            // Until the proxy gives the fetch up.
            while visit.request().is_some() {}
        }
        visit.answer_all(|_| Some(granted("two", 600)));
    });
    let product = start(&site, &login.address().to_string(), &format!("{OURS}, timeout: 500ms"));
    let mut leaves = product.connect();
    leaves.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the fetch", || login.requests().len() == 1);
    leaves.reset();
    eventually("a token", || get(&product) == (200, "Bearer two".to_owned()));
}

#[test]
fn answers_without_a_usable_token_let_no_request_pass() {
    let site = endpoint();
    let does: Arc<Mutex<Vec<u8>>> = Arc::default();
    let doing = Arc::clone(&does);
    let login = Origin::answering(move |_| doing.lock().expect("what it does").clone());
    for answer in [
        b"HTTP/1.1 401 No\r\nContent-Length: 28\r\n\r\n{\"error\":\"invalid_client\"}\r\n".to_vec(),
        b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ok("<html>"),
        ok("{\"access_token\":\"a\\r\\nx: y\"}"),
        ok("{\"access_token\":\"a\",\"access_token\":\"b\"}"),
        ok(&format!("{{\"access_token\":\"{}\"}}", "x".repeat(70_000))),
        granted("", 600),
    ] {
        *does.lock().expect("what it does") = answer.clone();
        let product = start(&site, &login.address().to_string(), OURS);
        assert_eq!(get(&product).0, 503, "{}", String::from_utf8_lossy(&answer));
        let asked = login.requests().len();
        assert_eq!((get(&product).0, login.requests().len()), (503, asked), "the server is not asked again at once");
    }
    assert_eq!(site.requests().len(), 0);
}

#[test]
fn a_fetch_outlives_the_time_of_its_request_and_its_client() {
    let site = endpoint();
    let gate = Arc::new(Barrier::new(2));
    let open = Arc::clone(&gate);
    let login = Origin::answering(move |_| {
        open.wait();
        granted("one", 600)
    });
    let folder = product::folder();
    std::fs::write(folder.path().join("client.secret"), SECRET).expect("our folder");
    let filter = format!("filters: [{{ client_credentials: {{ cluster: login, {OURS}, timeout: 30s }} }}]");
    let setup = Setup::to(&site).route(filter).route("timeout: 300ms");
    let cluster = format!("login: {{ endpoints: [\"{}\"] }}", login.address());
    let product = Product::start_in(folder, &setup.cluster_more(cluster).text(), 2);
    // The time of this request is over before there is a reply.
    assert_eq!(get(&product).0, 504);
    let mut leaves = product.connect();
    leaves.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    leaves.reset();
    gate.wait();
    eventually("the token", || get(&product) == (200, "Bearer one".to_owned()));
    assert_eq!(login.requests().len(), 1);
}

#[test]
fn a_request_that_would_show_the_token_to_its_client_is_refused() {
    let site = endpoint();
    let login = Origin::answering(|_| granted("one", 600));
    let product = start(&site, &login.address().to_string(), OURS);
    assert_eq!(get(&product), (200, "Bearer one".to_owned()));
    let answer = product.connect().ask("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((answer.status(), answer.text().contains("one")), (405, false));
    assert_eq!(Client::connect(product.web()).ask(request("TRACE", "/"), b"").status, 405);
    assert_eq!(site.requests().len(), 1);
}
