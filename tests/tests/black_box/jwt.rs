//! The filter `jwt`: signed tokens, over each version of HTTP, with keys from a file and from a URL.

use std::sync::{Arc, Barrier, Mutex};

use serde_json::{Value, json};

use super::harness::dex::Dex;
use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::tls::{self, Authority};
use super::harness::tokens::{Signer, base64url, confused, jwks, now};
use super::harness::{Origin, Product, Setup, eventually, http3, product};
use super::http3::{Site, speaking};

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const RULES: &str = "issuer: \"https://login.example\", audience: shop, claims: { groups: [staff] }, \
                     claim_headers: { x-user: sub, x-groups: groups }";

/// An endpoint that says what it was sent.
fn endpoint() -> Origin {
    Origin::answering(|request| {
        let fields = ["x-user", "x-groups", "x-mail", "authorization"].map(|name| request.all(name).join("+"));
        ok(&format!("{} {}", fields.join("|"), request.text()))
    })
}

fn filters(keys: &str) -> String {
    let mail = "{ set_request_header: { x-mail: \"{claim:profile.mail}\" } }";
    format!("filters: [{{ jwt: {{ {keys}, {RULES} }} }}, {mail}]")
}

fn good() -> Value {
    json!({ "groups": ["staff", "ops"], "profile": { "mail": "ann@acme.example" } })
}

const PASSED: &str = "ann|staff,ops|ann@acme.example| ";

fn start(keys: &str) -> (Origin, Product) {
    let (origin, folder) = (endpoint(), product::folder());
    std::fs::write(folder.path().join("jwks.json"), keys).expect("our folder");
    let text = Setup::to(&origin).route(filters("keys_file: jwks.json")).text();
    let product = Product::start_in(folder, &text, 2);
    (origin, product)
}

fn ask(product: &Product, token: &str) -> (u16, String, String) {
    let head = "GET /a HTTP/1.1\r\nHost: test\r\nX-User: eve\r\nX_Groups: root\r\n";
    let answer = product.connect().ask(format!("{head}Authorization: Bearer {token}\r\n\r\n"));
    (answer.status(), answer.text(), answer.field("www-authenticate").unwrap_or_default().to_owned())
}

#[test]
fn a_good_token_passes_and_its_claims_reach_the_endpoint_unforged() {
    let signer = Signer::new("k1");
    let (origin, product) = start(&jwks(&[&signer]));
    let token = signer.token(good());
    for _ in 0..3 {
        assert_eq!(ask(&product, &token), (200, PASSED.to_owned(), String::new()));
    }
    let challenged = product.get("/");
    assert_eq!((challenged.status(), challenged.field("www-authenticate")), (401, Some("Bearer")));
    let record = product.record("ann's", |record| record["user"] == "ann");
    assert_eq!(record["status"], 200, "{record}");
    assert_eq!(origin.requests().len(), 3);
    let forbidden = ask(&product, &signer.token(json!({ "groups": ["guests"] })));
    assert_eq!((forbidden.0, forbidden.2.contains("insufficient_scope")), (403, true));
    for (event, count) in [("refused", 1.0), ("forbidden", 1.0)] {
        let labels = ["filter=\"jwt\"", &format!("event=\"{event}\"")];
        product.expect_metric("equipoise_filter_events_total", &labels, count);
    }
}

#[test]
fn claims_reach_redirects_choices_of_clusters_and_proxy_headers() {
    let (signer, origin, folder) = (Signer::new("k1"), endpoint(), product::folder());
    std::fs::write(folder.path().join("jwks.json"), jwks(&[&signer])).expect("our folder");
    let guard = "filters: [{ jwt: { keys_file: jwks.json } }]";
    let home = format!(
        "{{ match: {{ path: {{ exact: /home }} }}, {guard}, redirect: {{ status: 302, to: {{ expression: '\"/users/\" + jwt.claims[\"sub\"] + \"/\" + request.user' }} }} }}"
    );
    let parts = format!(
        "{{ match: {{ path: {{ exact: /parts }} }}, {guard}, redirect: {{ path: \"/{{claim:profile.mail}}/{{user}}\" }} }}"
    );
    let choice = format!(
        "{{ match: {{ path: {{ exact: /choice }} }}, {guard}, cluster: {{ from: \"{{claim:tenant}}\", allowed: [acme], otherwise: site }} }}"
    );
    let other = Origin::saying("acme's");
    let setup = Setup::to(&origin).route_before(home).route_before(parts).route_before(choice);
    let acme = format!("acme: {{ endpoints: [\"{}\"] }}", other.address());
    let product = Product::start_in(folder, &setup.cluster_more(acme).text(), 2);
    let ask = |path: &str, claims: Value| {
        let token = signer.token(claims);
        product.connect().ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n\r\n"))
    };
    let location = |path: &str, claims: Value| ask(path, claims).field("location").unwrap_or_default().to_owned();
    assert_eq!(location("/home", good()), "http://test/users/ann/ann");
    assert_eq!(location("/parts", good()), "http://test/ann@acme.example/ann");
    let hostile = json!({ "profile": { "mail": "/evil.example\r\nx: y" } });
    assert_eq!(location("/parts", hostile), "http://test//evil.example%0D%0Ax:%20y/ann");
    assert_eq!(ask("/choice", json!({ "tenant": "acme" })).text(), "acme's");
    assert_ne!(ask("/choice", json!({ "tenant": "else" })).text(), "acme's");
}

#[test]
fn hostile_tokens_are_refused_and_reach_no_endpoint() {
    let (signer, stranger) = (Signer::new("k1"), Signer::new("k1"));
    let keys = jwks(&[&signer]);
    let (origin, product) = start(&keys);
    let token = signer.token(good());
    let payload = token.split('.').nth(1).expect("three parts").to_owned();
    let unsigned = |header: &str| format!("{}.{payload}.", base64url(header.as_bytes()));
    let x = signer.jwk()["x"].as_str().expect("a coordinate").to_owned();
    let edited = base64url(&json!({ "sub": "root", "exp": now() + 60 }).to_string().into_bytes());
    for (what, hostile) in [
        ("none", unsigned(r#"{"alg":"none"}"#)),
        ("None", unsigned(r#"{"alg":"None","kid":"k1"}"#)),
        ("no signature", token[..=token.rfind('.').expect("a dot")].to_owned()),
        ("the public key as a secret", confused(&keys, "k1")),
        ("a part of the public key as a secret", confused(&x, "k1")),
        ("another's key", stranger.token(good())),
        ("an unknown key", Signer::new("../../k1").token(good())),
        ("expired", signer.token(json!({ "groups": ["staff"], "exp": now() - 61 }))),
        ("not yet", signer.token(json!({ "groups": ["staff"], "nbf": now() + 120 }))),
        ("another audience", signer.token(json!({ "groups": ["staff"], "aud": "cellar" }))),
        ("another issuer", signer.token(json!({ "groups": ["staff"], "iss": "https://login.example/" }))),
        ("no expiry", signer.token(json!({ "groups": ["staff"], "exp": null }))),
        ("other claims", token.replace(&payload, &edited)),
        ("padding", format!("{token}=")),
        ("no base64", format!("{token}!")),
        ("five parts", format!("{token}.a.b")),
        ("a long one", "a".repeat(12_000)),
    ] {
        let (status, _, challenge) = ask(&product, &hostile);
        assert_eq!(
            (status, challenge.starts_with("Bearer error=\"invalid_token\"")),
            (401, true),
            "{what}: {challenge}"
        );
    }
    let twice = format!(
        "GET / HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    assert_eq!(product.connect().ask(twice).status(), 400);
    assert!(origin.requests().is_empty());
    assert_eq!(ask(&product, &token).0, 200);
    for secret in [&token, &payload] {
        assert!(!product.stderr().contains(secret.as_str()));
    }
}

fn served(keys_of: &[&Signer]) -> (Origin, tempfile::TempDir, Site) {
    let (origin, folder) = (endpoint(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("jwks.json");
    std::fs::write(&file, jwks(keys_of)).expect("our folder");
    let setup = Setup::to(&origin).route(filters(&format!("keys_file: \"{}\"", file.display()))).listener_more(CLEAR);
    let site = speaking("[h1, h2, h3]", setup, 2);
    (origin, folder, site)
}

#[test]
fn tokens_are_verified_over_http2_and_http3_too_also_with_bodies() {
    let signer = Signer::new("k1");
    let (_origin, _folder, site) = served(&[&signer]);
    let (mut second, mut third) = (Client::connect(site.product.address("clear")), site.connect());
    let bearer = |token: String| format!("Bearer {token}");
    for (authorization, status) in [
        (bearer(signer.token(good())), 200),
        (bearer(signer.token(json!({ "groups": [] }))), 403),
        (bearer(Signer::new("k1").token(good())), 401),
        ("Basic YTpi".to_owned(), 401),
    ] {
        let fields = [("authorization", authorization.as_str()), ("x-user", "eve")];
        for method in ["GET", "POST"] {
            let body: &[u8] = if method == "POST" { b"body" } else { b"" };
            let answers = [
                second.ask(with_fields(request(method, "/"), &fields), body),
                third.ask(with_fields(http3::request(method, "/"), &fields), body),
            ];
            for answer in answers {
                assert_eq!(answer.status, status, "{method} {authorization}");
                assert_eq!(answer.field("www-authenticate").is_some(), status != 200);
                if status == 200 {
                    assert_eq!(answer.text(), PASSED.to_owned() + std::str::from_utf8(body).expect("text"));
                }
            }
        }
    }
}

#[test]
fn a_key_file_that_changes_is_read_again_and_one_that_is_broken_is_not_taken() {
    let (first, second) = (Signer::new("k1"), Signer::new("k2"));
    let (_origin, product) = start(&jwks(&[&first]));
    let (old, new) = (first.token(good()), second.token(good()));
    assert_eq!((ask(&product, &old).0, ask(&product, &new).0), (200, 401));
    let file = product.folder().join("jwks.json");
    let swap = |text: &str| {
        std::fs::write(file.with_extension("next"), text).expect("our folder");
        std::fs::rename(file.with_extension("next"), &file).expect("our folder");
    };
    swap(&jwks(&[&second]));
    eventually("the new key is known", || ask(&product, &new).0 == 200);
    assert_eq!(ask(&product, &old).0, 401, "a token that was verified is not, any more");
    swap("{ \"keys\": [] }");
    eventually("it is reported", || product.stderr().contains("there is no key that can verify tokens"));
    assert_eq!(ask(&product, &new).0, 200);
}

/// An authority that serves the key set that it holds; none while that is empty.
fn authority_of(keys: &Arc<Mutex<String>>, identity: &tls::Identity) -> Origin {
    let keys = Arc::clone(keys);
    Origin::start_tls(tls::origin(identity, None), move |mut visit| {
        visit.answer_all(|_| {
            let text = keys.lock().expect("keys").clone();
            Some(if text.is_empty() { b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec() } else { ok(&text) })
        });
    })
}

#[test]
fn keys_at_a_url_are_fetched_rotated_and_kept_while_their_authority_is_away() {
    let (first, second) = (Signer::new("k1"), Signer::new("k2"));
    let (old, new) = (first.token(good()), second.token(good()));
    let keys = Arc::new(Mutex::new(jwks(&[&first])));
    let trusted = Authority::new("the keys' own");
    let issuer = authority_of(&keys, &trusted.issue(&["localhost"]));
    let (origin, folder) = (endpoint(), product::folder());
    trusted.write(folder.path(), "ca.pem");
    let url = format!("https://localhost:{}/jwks.json?client=secret", issuer.address().port());
    let fetched = format!("keys_url: \"{url}\", keys_fetch: {{ interval: 1h, ca_file: ca.pem }}");
    let product = Product::start_in(folder, &Setup::to(&origin).route(filters(&fetched)).text(), 2);
    // The first requests wait for the keys.
    assert_eq!(ask(&product, &old).0, 200);
    assert_eq!(issuer.only_request().line, "GET /jwks.json?client=secret HTTP/1.1");
    assert_eq!(ask(&product, &new).0, 401, "the key is unknown, and keys were just fetched");
    *keys.lock().expect("keys") = jwks(&[&second]);
    eventually("an unknown key begins a fetch", || ask(&product, &new).0 == 200);
    assert_eq!(ask(&product, &old).0, 401, "its key was withdrawn");
    keys.lock().expect("keys").clear();
    let unknown = Signer::new("k3").token(good());
    eventually("a fetch fails", || {
        assert_eq!((ask(&product, &new).0, ask(&product, &unknown).0), (200, 401));
        product.stderr().contains("keys for tokens cannot be fetched")
    });
    let told = product.stderr();
    assert!(told.contains("answered 500") && told.contains("the last keys stay in use"), "{told}");
    assert!(!told.contains("client=secret"), "a query may carry credentials");
    assert_eq!(ask(&product, &new).0, 200);
    let labels = ["filter=\"jwt\"", "event=\"keys_fetched\""];
    product.expect_metric("equipoise_filter_events_total", &labels, 2.0);
}

#[test]
fn without_keys_requests_get_503_and_an_authority_that_is_not_trusted_has_none() {
    let signer = Signer::new("k1");
    let keys = Arc::new(Mutex::new(jwks(&[&signer])));
    let (trusted, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let issuer = authority_of(&keys, &stranger.issue(&["localhost"]));
    let (origin, folder) = (endpoint(), product::folder());
    trusted.write(folder.path(), "ca.pem");
    let url = format!("https://localhost:{}/jwks.json", issuer.address().port());
    let fetched = format!("keys_url: \"{url}\", keys_fetch: {{ ca_file: ca.pem }}");
    let product = Product::start_in(folder, &Setup::to(&origin).route(filters(&fetched)).text(), 1);
    assert_eq!(ask(&product, &signer.token(good())).0, 503);
    eventually("the reason is in the log", || product.stderr().contains("the TLS handshake failed"));
    assert!(origin.requests().is_empty());
}

#[test]
fn encrypted_tokens_of_another_implementation_pass_over_each_version() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/plan/src/jose/decryption/vectors.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("the tokens")).expect("JSON");
    let (origin, folder) = (endpoint(), product::folder());
    for (name, text) in [("jwks.json", &vectors["signer"]), ("private.json", &vectors["keys"])] {
        std::fs::write(folder.path().join(name), text.to_string()).expect("our folder");
    }
    let filter = "filters: [{ jwt: { keys_file: jwks.json, issuer: us, audience: shop, decrypt: { keys_file: private.json }, \
                  claim_headers: { x-user: sub } } }]";
    let product = Product::start_in(folder, &Setup::to(&origin).route(filter).text(), 2);
    let mut client = Client::connect(product.web());
    for one in vectors["nested"].as_array().expect("a list") {
        let token = one["token"].as_str().expect("a text");
        assert_eq!(ask(&product, token).0, 200, "{one}");
        let post = with_fields(request("POST", "/"), &[("authorization", &format!("Bearer {token}"))]);
        assert_eq!(client.ask(post, b"body").text(), "ann||| body", "{one}");
        let forged = ask(&product, &format!("{}AAAA", &token[..token.len() - 4]));
        assert!(forged.0 == 401 && forged.2.contains("invalid_token"), "{forged:?}");
    }
}

#[test]
fn a_flood_of_tokens_that_take_long_leaves_room_for_passwords() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/plan/src/jose/decryption/vectors.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("the tokens")).expect("JSON");
    let (origin, folder) = (endpoint(), product::folder());
    for (name, text) in [("jwks.json", &vectors["signer"]), ("private.json", &vectors["keys"])] {
        std::fs::write(folder.path().join(name), text.to_string()).expect("our folder");
    }
    let filter = "filters: [{ jwt: { keys_file: jwks.json, decrypt: { keys_file: private.json } } }]";
    let users = "bob: \"$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\"";
    let filters = format!("filters: [{{ basic_auth: {{ users: {{ {users} }} }} }}]");
    let passwords = format!("{{ match: {{ path: {{ exact: /password }} }}, {filters}, cluster: site }}");
    let product = Product::start_in(folder, &Setup::to(&origin).route_before(passwords).route(filter).text(), 2);
    let slow = vectors["nested"].as_array().expect("a list").iter().find(|one| one["alg"] == "RSA-OAEP").expect("one");
    let (start, _) = slow["token"].as_str().expect("a text").rsplit_once('.').expect("a tag");
    let forged = format!("{start}.AAAAAAAAAAAAAAAAAAAAAA");
    let gate = Barrier::new(101);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                gate.wait();
                for _ in 0..20 {
                    let status = ask(&product, &forged).0;
                    assert!(matches!(status, 401 | 503), "{status}");
                }
            });
        }
        gate.wait();
        for _ in 0..5 {
            let asked = "GET /password HTTP/1.1\r\nHost: a\r\nAuthorization: Basic Ym9iOnNlY3JldA==\r\n\r\n";
            assert_eq!(product.connect().ask(asked).status(), 200);
        }
    });
    assert_eq!(ask(&product, slow["token"].as_str().expect("a text")).0, 200);
}

#[test]
fn keys_of_a_real_dex_are_fetched_through_its_cluster_when_they_are_needed() {
    let (origin, dex) = (endpoint(), Dex::start("http://shop.example/oauth2/callback"));
    let login = dex.issuer.trim_start_matches("http://").trim_end_matches("/dex");
    let secret = super::harness::dex::SECRET;
    let filter = format!(
        "filters: [{{ client_credentials: {{ cluster: login, path: /dex/token, client: {{ id: shop, secret: {secret} }}, scopes: [openid] }} }}, \
         {{ jwt: {{ keys: {{ cluster: login, path: /dex/keys }}, issuer: \"{}\", audience: shop, claim_headers: {{ x-user: aud }} }} }}]",
        dex.issuer
    );
    let cluster = format!("login: {{ endpoints: [\"{login}\"] }}");
    let product = Product::start(&Setup::to(&origin).route(filter).cluster_more(cluster).text());
    for _ in 0..3 {
        assert_eq!(product.get("/").text(), "shop||| ");
    }
    let mut client = Client::connect(product.web());
    assert_eq!(client.ask(request("POST", "/"), b"body").text(), "shop||| body");
    product.expect_metric("equipoise_filter_events_total", &["filter=\"jwt\"", "event=\"keys_fetched\""], 1.0);
}

#[test]
fn keys_through_a_cluster_rotate_and_an_endpoint_that_stalls_holds_nobody_up_for_long() {
    let (one, two) = (Signer::new("one"), Signer::new("two"));
    let served = Arc::new(Mutex::new(Some(jwks(&[&one]))));
    let serving = Arc::clone(&served);
    let keys = Origin::start(move |mut visit| {
        visit.answer_all(|_| serving.lock().expect("the keys").as_ref().map(|keys| ok(keys)));
    });
    let origin = endpoint();
    let filter = filters("keys: { cluster: idp, path: /jwks }, keys_fetch: { interval: 1s, timeout: 200ms }");
    let cluster = format!("idp: {{ endpoints: [\"{}\"] }}", keys.address());
    let product = Product::start(&Setup::to(&origin).route(filter).cluster_more(cluster).text());
    let passes = |signer: &Signer| ask(&product, &signer.token(good())).0;
    assert_eq!((passes(&one), passes(&two)), (200, 401));
    *served.lock().expect("the keys") = Some(jwks(&[&two]));
    eventually("the new key is known", || passes(&two) == 200);
    assert_eq!(passes(&one), 401, "the old key has left the set");
    *served.lock().expect("the keys") = None;
    let asked = keys.requests().len();
    eventually("a fetch without an answer", || passes(&two) == 200 && keys.requests().len() > asked);
    assert_eq!(passes(&two), 200, "the last keys stay in use");
}
