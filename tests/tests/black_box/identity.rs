//! Filters that ask who a client is: `api_key`, `introspection`, `client_certificate`, `signed_url` and `csrf`.

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::tls::{self, Authority};
use super::harness::tokens::{Signer, hmac_hex, jwks, now};
use super::harness::{Origin, Product, Setup, eventually, http3, product};
use super::http3::Site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

/// An endpoint that says what it was sent.
fn endpoint() -> Origin {
    Origin::answering(|request| {
        let fields = ["x-consumer", "x-user", "x-api-key", "authorization"].map(|name| request.all(name).join("+"));
        ok(&format!("{} {}", request.target(), fields.join("|")))
    })
}

fn start(files: &[(&str, &str)], setup: &Setup) -> Product {
    let folder = product::folder();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("our folder");
    }
    Product::start_in(folder, &setup.text(), 2)
}

fn get(product: &Product, target: &str, more: &str) -> (u16, String) {
    let answer = product.connect().ask(format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n{more}\r\n"));
    (answer.status(), answer.text())
}

#[test]
fn api_keys_name_their_consumer_over_each_version_and_are_read_again() {
    let origin = endpoint();
    let filter = "filters: [{ api_key: { file: keys.txt, consumer_header: x-consumer, from: { header: x-api-key, query: key } } }]";
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let files = [("keys.txt", &*format!("ann:secret-of-ann\nbob:sha256:{digest}\n"))];
    let product = start(&files, &Setup::to(&origin).route(filter));
    assert_eq!(get(&product, "/", "X-Api-Key: secret-of-ann\r\nX-Consumer: eve\r\n"), (200, "/ ann|||".to_owned()));
    assert_eq!(get(&product, "/?a=1&key=secret&b", ""), (200, "/?a=1&b bob|||".to_owned()));
    for (target, more) in [("/", ""), ("/", "X-Api-Key: secret-of-eve\r\n"), ("/?key=secret&key=secret", "")] {
        assert_eq!(get(&product, target, more).0, 401, "{target} {more}");
    }
    let mut client = Client::connect(product.web());
    let with = |key: &str| with_fields(request("POST", "/"), &[("x-api-key", key)]);
    assert_eq!(client.ask(with("secret-of-ann"), b"body").text(), "/ ann|||");
    let refused = client.ask(with("secret-of-eve"), b"body");
    assert_eq!((refused.status, refused.field("www-authenticate")), (401, Some("ApiKey realm=\"restricted\"")));
    let record = product.record("bob's", |record| record["user"] == "bob");
    assert_eq!(record["status"], 200);
    let file = product.folder().join("keys.txt");
    std::fs::write(file.with_extension("next"), "eve:secret-of-eve\n").expect("our folder");
    std::fs::rename(file.with_extension("next"), &file).expect("our folder");
    eventually("the new key is known", || get(&product, "/", "X-Api-Key: secret-of-eve\r\n").0 == 200);
    assert_eq!(get(&product, "/", "X-Api-Key: secret-of-ann\r\n").0, 401);
    assert!(!product.stderr().contains("secret-of"));
}

#[test]
fn secrets_are_not_shown_by_the_api() {
    let origin = endpoint();
    let filter = "filters: [{ api_key: { keys: { ann: secret-of-ann } } }, { signed_url: { secret_file: url.txt } }, \
                  { introspection: { cluster: site, path: /i, credentials_file: c.txt } }]";
    let files = [("url.txt", "secret-of-our-links\n"), ("c.txt", "gate:secret-of-gate\n")];
    let product = start(&files, &Setup::to(&origin).route(filter));
    assert!(product.admin("/api/config").text().contains("api_key"));
    for path in ["/api/config", "/api/config?as=effective", "/api/config/routes/main", "/api/status", "/metrics"] {
        let shown = product.admin(path).text();
        assert!(!shown.contains("secret-of"), "{path}: {shown}");
    }
}

#[test]
fn a_token_is_introspected_once_and_its_claims_reach_the_endpoint() {
    let origin = endpoint();
    let login = Origin::answering(|request| {
        let is_ours = request.field("authorization") == Some("Basic Z2F0ZTpzZWNyZXQ=");
        match (is_ours, request.text().as_str()) {
            (true, "token=good&token_type_hint=access_token") => {
                ok(r#"{"active":true,"username":"ann","scope":"read"}"#)
            }
            (true, "token=poor&token_type_hint=access_token") => ok(r#"{"active":true,"username":"bob","scope":"x"}"#),
            (true, "token=broken&token_type_hint=access_token") => ok("<html>"),
            (true, _) => ok(r#"{"active":false}"#),
            (false, _) => b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        }
    });
    let filter = "filters: [{ introspection: { cluster: login, path: /introspect, credentials_file: c.txt, \
                  user_claim: username, claims: { scope: read }, claim_headers: { x-user: username } } }]";
    let cluster = format!("login: {{ endpoints: [\"{}\"] }}", login.address());
    let product = start(&[("c.txt", "gate:secret\n")], &Setup::to(&origin).route(filter).cluster_more(cluster));
    let bearing = |token: &str| get(&product, "/", &format!("Authorization: Bearer {token}\r\nX-User: eve\r\n"));
    for _ in 0..3 {
        assert_eq!(bearing("good"), (200, "/ |ann||".to_owned()));
    }
    assert_eq!(login.requests().len(), 1);
    assert_eq!((bearing("poor").0, bearing("revoked").0, bearing("broken").0), (403, 401, 503));
    assert_eq!(get(&product, "/", "").0, 401);
    assert_eq!(origin.requests().len(), 3);
    let mut client = Client::connect(product.web());
    let post = with_fields(request("POST", "/"), &[("authorization", "Bearer good")]);
    assert_eq!(client.ask(post, b"body").text(), "/ |ann||");
    for (event, count) in [("asked", 4.0), ("refused", 2.0), ("forbidden", 1.0), ("unavailable", 1.0)] {
        let labels = ["filter=\"introspection\"", &format!("event=\"{event}\"")];
        product.expect_metric("equipoise_filter_events_total", &labels, count);
    }
    assert!(!product.stderr().contains("secret"));
}

#[test]
fn parallel_requests_with_a_new_token_are_one_call() {
    let origin = endpoint();
    let gate = std::sync::Arc::new(std::sync::Barrier::new(2));
    let open = std::sync::Arc::clone(&gate);
    let login = Origin::answering(move |_| {
        // The first call stays open until a second request is under way; a second call would wait here for ever.
        open.wait();
        ok(r#"{"active":true,"sub":"ann"}"#)
    });
    let filter = "filters: [{ introspection: { cluster: login, path: /i, credentials_file: c.txt, timeout: 30s } }]";
    let cluster = format!("login: {{ endpoints: [\"{}\"] }}", login.address());
    let product = start(&[("c.txt", "gate:secret\n")], &Setup::to(&origin).route(filter).cluster_more(cluster));
    let ask = || get(&product, "/", "Authorization: Bearer t\r\n").0;
    std::thread::scope(|scope| {
        let first = scope.spawn(ask);
        eventually("the call", || login.requests().len() == 1);
        let second = scope.spawn(ask);
        gate.wait();
        assert_eq!((first.join().expect("the first"), second.join().expect("the second")), (200, 200));
    });
    assert_eq!(login.requests().len(), 1);
    product.expect_metric("equipoise_filter_events_total", &["filter=\"introspection\"", "event=\"asked\""], 1.0);
}

#[test]
fn policies_by_role_method_and_path_decide_as_the_recipe_says() {
    let (origin, signer) = (endpoint(), Signer::new("k"));
    let rule = "not: { any: [{ method: [GET, HEAD], path: { prefix: /reports }, expression: '\"reader\" in jwt.claims[\"roles\"]' }, \
                { source: 127.0.0.0/8, expression: '\"admin\" in jwt.claims[\"roles\"]' }] }";
    let filters = |denies: &str| {
        format!(
            "filters: [{{ remove_request_header: [x-user] }}, \
             {{ jwt: {{ keys_file: jwks.json, issuer: \"https://login.example\", audience: shop }} }}, \
             {{ {denies}, when: {{ {rule} }} }}]"
        )
    };
    let keys = jwks(&[&signer]);
    let strict = start(&[("jwks.json", &*keys)], &Setup::to(&origin).route(filters("deny: { body: \"no\\n\" }")));
    let shadow =
        start(&[("jwks.json", &*keys)], &Setup::to(&origin).route(filters("set_request_header: { x-user: denied }")));
    for (method, target, roles, status) in [
        ("GET", "/reports/1", serde_json::json!(["reader"]), 200),
        ("POST", "/reports/1", serde_json::json!(["reader"]), 403),
        ("GET", "/reportsx", serde_json::json!(["reader"]), 403),
        ("GET", "/other", serde_json::json!(["reader", "x"]), 403),
        ("POST", "/other", serde_json::json!(["x", "admin"]), 200),
        ("GET", "/reports", serde_json::json!([]), 403),
        ("GET", "/reports", serde_json::json!(null), 403),
        ("GET", "/reports", serde_json::json!({ "reader": true }), 403),
    ] {
        let token = signer.token(serde_json::json!({ "roles": roles.clone() }));
        let asked = format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nX-User: eve\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(strict.connect().ask(asked.clone()).status(), status, "{method} {target} {roles}");
        let answer = shadow.connect().ask(asked);
        let is_marked = answer.text().contains("|denied|");
        assert_eq!((answer.status(), is_marked), (200, status == 403), "{method} {target} {roles}");
    }
}

#[test]
fn requests_are_signed_for_aws_and_what_the_client_sends_instead_is_gone() {
    let origin = Origin::answering(|request| {
        let names = ["host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "authorization"];
        ok(&names.map(|name| request.all(name).join("+")).join("|"))
    });
    let filter = "filters: [{ rewrite: { host: assets.s3.amazonaws.com } }, \
                  { aws_signature: { region: us-east-1, service: es, credentials_file: aws, body_max: 16B } }]";
    let text = "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = the-secret-key\n";
    let product = start(&[("aws", text)], &Setup::to(&origin).route(filter).listener_more(CLEAR));
    let hostile = "X-Amz-Date: 1\r\nX_Amz_Security_Token: theirs\r\nAuthorization: Bearer theirs\r\n";
    let answer = product
        .connect()
        .ask(format!("POST /a?b=c HTTP/1.1\r\nHost: shop.example\r\n{hostile}Content-Length: 4\r\n\r\nbody"));
    let signed = answer.text();
    let parts: Vec<&str> = signed.split('|').collect();
    let digest = "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5";
    assert_eq!((parts[0], parts[2], parts[3]), ("assets.s3.amazonaws.com", digest, ""), "{signed}");
    assert!(parts[1].len() == 16 && parts[1].ends_with('Z'), "{signed}");
    let begin = format!("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{}/us-east-1/es/aws4_request, ", &parts[1][..8]);
    assert!(parts[4].starts_with(&begin) && !parts[4].contains('+'), "{signed}");
    let post = |body: &[u8]| Client::connect(product.web()).ask(request("POST", "/"), body);
    assert_eq!((post(b"0123456789abcdef").status, post(b"0123456789abcdefg").status), (200, 413));
    for path in ["/api/config", "/api/config?as=effective", "/api/status", "/metrics"] {
        assert!(!product.admin(path).text().contains("the-secret-key"), "{path}");
    }
    assert!(!product.stderr().contains("the-secret-key") && !product.stdout().contains("the-secret-key"));
}

#[test]
fn when_the_authorization_server_is_away_no_new_token_passes() {
    let (origin, away) = (endpoint(), super::harness::net::free());
    let filter = "filters: [{ introspection: { cluster: login, path: /i, credentials_file: c.txt } }]";
    let cluster = format!("login: {{ endpoints: [\"{away}\"] }}");
    let product = start(&[("c.txt", "gate:secret\n")], &Setup::to(&origin).route(filter).cluster_more(cluster));
    assert_eq!(get(&product, "/", "Authorization: Bearer t\r\n").0, 503);
    assert!(origin.requests().is_empty());
}

#[test]
fn client_certificates_pass_by_their_names_over_each_version() {
    let (origin, authority) = (endpoint(), Authority::new("the clients' own"));
    let filter = "filters: [{ client_certificate: { spiffe_ids: [\"spiffe://prod.example/ns/web/*\"], common_names: [ops], \
                  issuers: [\"CN=the clients' own\"] } }, { set_request_header: { x-user: \"{user}\", x-consumer: \"{tls_client_issuer}\" } }]";
    let web = authority.issue_client_at("any", "spiffe://prod.example/ns/web/sa/main");
    let db = authority.issue_client_at("any", "spiffe://prod.example/ns/db/sa/main");
    let ops = authority.issue_client("ops");
    let trust = "client: { mode: optional, authorities: authority.pem }";
    let site = Site::of(authority, "[h1, h2, h3]", trust, Setup::to(&origin).route(filter).listener_more(CLEAR), 2);
    let cases = [
        (Some(&web), 200, "spiffe://prod.example/ns/web/sa/main"),
        (Some(&ops), 200, "ops"),
        (Some(&db), 403, ""),
        (None, 403, ""),
    ];
    for (identity, status, user) in cases {
        let config = |protocol: &'static str| {
            let protocols = std::slice::from_ref(&protocol);
            let client = tls::Client { identity, protocols, ..tls::Client::trusting(&site.authority) };
            client.config()
        };
        let text = format!("/ the clients' own|{user}||").replace("/ the", "/ CN=the");
        let mut peer = tls::connect(site.product.web(), "shop.example", &config("http/1.1"));
        let first = peer.ask("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        assert_eq!(first.status(), status, "{user}");
        let mut second = Client::connect_tls(site.product.web(), "shop.example", &config("h2"));
        let second = second.get("/");
        let mut third =
            http3::Client::connect(site.product.web(), "shop.example", &http3::trusting(&site.authority, identity));
        let third = third.get("/");
        assert_eq!((second.status, third.status), (status, status), "{user}");
        if status == 200 {
            assert_eq!([first.text(), second.text(), third.text()], [text.clone(), text.clone(), text]);
        }
    }
    assert_eq!(Client::connect(site.product.address("clear")).get("/").status, 403, "without TLS");
}

#[test]
fn signed_links_pass_until_they_expire() {
    let origin = endpoint();
    let filter = "filters: [{ signed_url: { secret_file: url.txt } }]";
    let product = start(&[("url.txt", "secret-of-our-links\n")], &Setup::to(&origin).route(filter));
    let link = |path: &str, ends: u64| {
        let message = format!("{path}?v=1&expires={ends}");
        format!("{message}&signature={}", hmac_hex("secret-of-our-links", &message))
    };
    let good = link("/files/a%20b.pdf", now() + 600);
    assert_eq!(get(&product, &good, ""), (200, "/files/a%20b.pdf?v=1 |||".to_owned()));
    let mut client = Client::connect(product.web());
    assert_eq!(client.get(&good).status, 200);
    assert_eq!((get(&product, &link("/a", now() - 2), "").0, client.get(&link("/a", now() - 2)).status), (410, 410));
    for bad in [
        good.replace("/files/", "/secret/"),
        good.replace("v=1", "v=2"),
        good[..good.len() - 1].to_owned(),
        "/a".into(),
    ] {
        assert_eq!((get(&product, &bad, "").0, client.get(&bad).status), (403, 403), "{bad}");
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn requests_from_pages_of_other_sites_are_refused() {
    let origin = endpoint();
    let filter = "filters: [{ csrf: { allow_origins: [\"https://pay.example\"] } }]";
    let product = start(&[], &Setup::to(&origin).route(filter));
    let mut client = Client::connect(product.web());
    for (more, status) in [
        ("Origin: http://shop.example", 200),
        ("Origin: https://pay.example", 200),
        ("Sec-Fetch-Site: same-origin", 200),
        ("Referer: http://shop.example/form", 200),
        ("Origin: https://evil.example", 403),
        ("Origin: null", 403),
        ("Sec-Fetch-Site: cross-site", 403),
        ("X-Other: 1", 403),
    ] {
        let head = format!("POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 2\r\n{more}\r\n\r\nhi");
        assert_eq!(product.connect().ask(head).status(), status, "{more}");
        let (name, value) = more.split_once(": ").expect("a field");
        let (name, value) = (name.to_ascii_lowercase(), value.replace("//shop.example", "//test"));
        let mut post = request("POST", "/a");
        let name: http::HeaderName = name.parse().expect("a name");
        post.headers_mut().append(name, value.parse().expect("a value"));
        assert_eq!(client.ask(post, b"hi").status, status, "{more} over HTTP/2");
    }
    assert_eq!(get(&product, "/", "Origin: https://evil.example\r\n").0, 200);
    let upgrade = "Origin: https://evil.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(get(&product, "/", upgrade).0, 403);
}
