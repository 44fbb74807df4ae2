//! The filter `oidc`: login, session, refresh and logout with a real Dex, and with providers that misbehave.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::harness::dex::{Dex, SECRET};
use super::harness::http2::{self, Client};
use super::harness::net::free;
use super::harness::origin::ok;
use super::harness::peer::Message;
use super::harness::tokens::{Signer, jwks, now};
use super::harness::{Origin, Peer, Product, Setup, http3, product, until};
use super::http3::speaking;

const KEYS: &str = "0123456789abcdef0123456789abcdef";
const HTML: &str = "Accept: text/html\r\n";

/// What the token endpoint of a provider of ours does.
#[derive(Clone)]
enum Does {
    /// It answers with tokens that have these claims beside the usual ones; the code is the nonce.
    Well(Value),
    /// It answers this.
    Answers(Vec<u8>),
    /// It answers nothing.
    Stalls,
}

/// A provider of ours, which has its own address as issuer.
struct Provider {
    origin: Origin,
    does: Arc<Mutex<Does>>,
}

impl Provider {
    fn start() -> Self {
        let does = Arc::new(Mutex::new(Does::Well(json!({}))));
        let (doing, signer) = (Arc::clone(&does), Signer::new("k1"));
        let origin = Origin::start(move |mut visit| {
            visit.answer_all(|request| {
                let issuer = format!("http://{}", request.field("host").expect("a host"));
                match request.target() {
                    "/.well-known/openid-configuration" => Some(ok(&document(&issuer).to_string())),
                    "/keys" => Some(ok(&jwks(&[&signer]))),
                    _ => match doing.lock().expect("what it does").clone() {
                        Does::Well(claims) => Some(ok(&tokens(&signer, &issuer, request, claims))),
                        Does::Answers(bytes) => Some(bytes),
                        Does::Stalls => None,
                    },
                }
            });
        });
        Self { origin, does }
    }

    fn now(&self, does: Does) {
        *self.does.lock().expect("what it does") = does;
    }

    fn issuer(&self) -> String {
        format!("http://{}", self.origin.address())
    }
}

fn document(issuer: &str) -> Value {
    json!({
        "issuer": issuer, "authorization_endpoint": format!("{issuer}/auth"), "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"), "userinfo_endpoint": format!("{issuer}/me"), "end_session_endpoint": format!("{issuer}/end"),
    })
}

fn tokens(signer: &Signer, issuer: &str, request: &Message, claims: Value) -> String {
    let form = request.text();
    let nonce = form.split('&').find_map(|pair| pair.strip_prefix("code=")).unwrap_or_default();
    let mut all = json!({ "iss": issuer, "nonce": nonce, "email": "ann@acme.example" });
    all.as_object_mut().expect("a mapping").extend(claims.as_object().expect("a mapping").clone());
    json!({ "id_token": signer.token(all), "access_token": "secret-access", "token_type": "Bearer", "expires_in": 600 })
        .to_string()
}

/// An endpoint that says what it was sent.
fn endpoint() -> Origin {
    Origin::answering(|request| ok(&format!("{}|{}", request.all("x-user").join("+"), request.all("cookie").join("+"))))
}

fn settings(issuer: &str, more: &str) -> String {
    format!(
        "filters: [{{ oidc: {{ issuer: \"{issuer}\", cluster: login, client: {{ id: shop, secret_file: oidc.secret }}, \
         session: {{ keys_file: session.keys }}, claim_headers: {{ x-user: email }}{more} }} }}]"
    )
}

fn folder() -> tempfile::TempDir {
    let folder = product::folder();
    std::fs::write(folder.path().join("oidc.secret"), SECRET).expect("our folder");
    std::fs::write(folder.path().join("session.keys"), KEYS).expect("our folder");
    folder
}

fn start(site: &Origin, issuer: &str, more: &str) -> Product {
    let login = issuer.trim_start_matches("http://").split('/').next().expect("an address");
    let setup =
        Setup::to(site).route(settings(issuer, more)).cluster_more(format!("login: {{ endpoints: [\"{login}\"] }}"));
    Product::start_in(folder(), &setup.text(), 2)
}

fn ask(product: &Product, target: &str, fields: &str) -> Message {
    product.connect().ask(format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", product.web()))
}

fn parameter(location: &str, name: &str) -> String {
    let (_, query) = location.split_once('?').expect("a query");
    let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {location}")).to_owned()
}

/// What a browser sends back of the cookies of an answer.
fn kept(answer: &Message) -> String {
    let cookies = answer.all("set-cookie").into_iter().filter(|cookie| !cookie.ends_with("Max-Age=0"));
    cookies.map(|cookie| cookie.split(';').next().expect("a pair")).collect::<Vec<_>>().join("; ")
}

/// Begins a login and comes back with its nonce as the code. Returns the answer to the callback.
fn log_in(product: &Product, target: &str) -> Message {
    let answer = ask(product, target, HTML);
    assert_eq!(answer.status(), 302, "{}", answer.text());
    let location = answer.field("location").expect("a location");
    let (state, nonce) = (parameter(location, "state"), parameter(location, "nonce"));
    ask(product, &format!("/oauth2/callback?code={nonce}&state={state}"), &format!("Cookie: {}\r\n", kept(&answer)))
}

#[test]
fn a_user_logs_in_is_known_to_the_endpoint_and_logs_out() {
    let (provider, site) = (Provider::start(), endpoint());
    let product = start(&site, &provider.issuer(), "");
    let refused = ask(&product, "/a", "Accept: application/json\r\n");
    assert_eq!((refused.status(), refused.field("www-authenticate")), (401, Some("Bearer")));
    let answer = log_in(&product, "/a?b=c");
    assert_eq!((answer.status(), answer.field("location")), (302, Some("/a?b=c")));
    let cookie = format!("Cookie: z=1; {}\r\n", kept(&answer));
    assert_eq!(ask(&product, "/a", &format!("{cookie}X_User: eve\r\n")).text(), "ann@acme.example|z=1");
    let left = ask(&product, "/oauth2/logout", &cookie);
    assert!(left.field("location").expect("a location").starts_with(&format!("{}/end?", provider.issuer())));
    assert!(left.all("set-cookie").iter().all(|cookie| cookie.ends_with("Max-Age=0")));
    assert_eq!(site.requests().len(), 1);
    let token_request =
        provider.origin.requests().into_iter().find(|request| request.target() == "/token").expect("one");
    let nonce = token_request.text();
    let record = product.record("the callback's", |record| record["path"] == "/oauth2/callback");
    assert!(!record.to_string().contains("state="), "{record}");
    let code = nonce.split('&').find_map(|pair| pair.strip_prefix("code=")).expect("a code");
    for secret in [code, SECRET, KEYS, "secret-access"] {
        assert!(!product.stderr().contains(secret) && !product.stdout().contains(secret), "{secret}");
    }
    for event in ["redirected", "logged_in", "logged_out", "refused"] {
        let labels = ["filter=\"oidc\"", &format!("event=\"{event}\"")];
        product.expect_metric("equipoise_filter_events_total", &labels, 1.0);
    }
}

#[test]
fn hostile_callbacks_and_cookies_reach_no_endpoint() {
    let (provider, site) = (Provider::start(), endpoint());
    let product = start(&site, &provider.issuer(), "");
    let begun = ask(&product, "/", HTML);
    let location = begun.field("location").expect("a location").to_owned();
    let (state, nonce) = (parameter(&location, "state"), parameter(&location, "nonce"));
    let cookie = format!("Cookie: {}\r\n", kept(&begun));
    let callback = format!("/oauth2/callback?code={nonce}&state={state}");
    for (what, target, fields, status) in [
        ("no cookie", callback.clone(), String::new(), 400),
        ("a forged state", callback.replace(&state, &state.to_ascii_lowercase()), cookie.clone(), 400),
        ("two states", format!("{callback}&state=a"), cookie.clone(), 400),
        ("no query", "/oauth2/callback".to_owned(), cookie.clone(), 400),
        ("a changed cookie", callback.clone(), format!("{}x\r\n", cookie.trim_end()), 400),
        ("another issuer", format!("{callback}&iss=https%3A%2F%2Fevil"), cookie.clone(), 400),
        ("an error", format!("/oauth2/callback?error=access_denied&state={state}"), cookie.clone(), 403),
        ("garbage", "/oauth2/callback?%00%ff&state=%ff%00%0d%0a&code".to_owned(), cookie.clone(), 400),
        ("a session that none sealed", "/".to_owned(), format!("{HTML}Cookie: equipoise_session=1AAAA\r\n"), 302),
        ("a session in ten parts", "/".to_owned(), "Cookie: equipoise_session=:AAAA\r\n".to_owned(), 401),
    ] {
        let answer = ask(&product, &target, &fields);
        assert_eq!(answer.status(), status, "{what}: {}", answer.text());
    }
    let other = format!("/oauth2/callback?code=other-nonce&state={state}");
    assert_eq!(ask(&product, &other, &cookie).status(), 403, "the nonce of another login");
    for (target, back) in [("//evil", "/"), ("/\\evil", "/"), ("/%2f%2fevil", "/%2f%2fevil")] {
        let answer = ask(&product, target, HTML);
        if answer.status() == 400 {
            continue;
        }
        let answer = log_in(&product, target);
        assert_eq!(answer.field("location"), Some(back), "{target}");
    }
    assert!(site.requests().is_empty());
}

#[test]
fn a_provider_that_misbehaves_lets_no_one_in() {
    let (provider, site) = (Provider::start(), endpoint());
    let product = start(&site, &provider.issuer(), ", timeout: 500ms");
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n{}", "x".repeat(1 << 20)).into_bytes();
    for (what, does, status) in [
        ("stalls", Does::Stalls, 503),
        ("1 GB", Does::Answers(large), 503),
        ("garbage", Does::Answers(b"\x00\x01\x02\r\n\r\n".to_vec()), 503),
        ("no JSON", Does::Answers(ok("<html>")), 503),
        (
            "a redirect",
            Does::Answers(b"HTTP/1.1 302 Found\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n".to_vec()),
            503,
        ),
        ("an error", Does::Answers(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec()), 503),
        ("another issuer", Does::Well(json!({ "iss": "https://evil" })), 403),
        ("another audience", Does::Well(json!({ "aud": "cellar" })), 403),
        ("another nonce", Does::Well(json!({ "nonce": "other" })), 403),
        ("expired", Does::Well(json!({ "exp": now() - 61 })), 403),
    ] {
        provider.now(does);
        let answer = log_in(&product, "/");
        assert_eq!(answer.status(), status, "{what}: {}", answer.text());
        assert_eq!(kept(&answer), "", "{what}");
    }
    provider.now(Does::Well(json!({ "email": "a\r\nx-admin: 1" })));
    let answer = log_in(&product, "/");
    assert_eq!(ask(&product, "/", &format!("Cookie: {}\r\n", kept(&answer))).text(), "a  x-admin: 1|");
}

#[test]
fn a_provider_that_is_away_or_speaks_for_another_is_reported_and_lets_no_one_in() {
    let site = endpoint();
    let away = start(&site, &format!("http://{}", free()), "");
    assert_eq!(ask(&away, "/", HTML).status(), 503);
    let liar = Origin::answering(|_| ok(&document("https://login.example").to_string()));
    let product = start(&site, &format!("http://{}", liar.address()), "");
    assert_eq!(ask(&product, "/", HTML).status(), 503);
    until("it is reported", || product.stderr().contains("the discovery document is not of the issuer").then_some(()));
    assert!(site.requests().is_empty());
}

#[test]
fn users_log_in_over_http2_and_http3_too() {
    let (provider, site) = (Provider::start(), endpoint());
    let files = folder();
    let route = settings(&provider.issuer(), "").replace("oidc.secret", &file(&files, "oidc.secret"));
    let route = route.replace("session.keys", &file(&files, "session.keys"));
    let login = format!("login: {{ endpoints: [\"{}\"] }}", provider.origin.address());
    let setup = Setup::to(&site).route(route).cluster_more(login).listener_more("clear: { bind: \"127.0.0.1:0\" }");
    let site = speaking("[h1, h2, h3]", setup, 2);
    let mut second = Client::connect(site.product.address("clear"));
    let mut third = site.connect();
    let mut ask = |is_third: bool, path: &str, fields: &[(&'static str, &str)]| {
        let answer = if is_third {
            third.ask(http2::with_fields(http3::request("GET", path), fields), b"")
        } else {
            second.ask(http2::with_fields(http2::request("GET", path), fields), b"")
        };
        let location = answer.field("location").unwrap_or_default().to_owned();
        // The callback takes the cookie of the login back.
        let cookies = answer.fields.get_all("set-cookie").iter().map(|value| value.to_str().expect("text"));
        let cookie = cookies.filter(|cookie| !cookie.contains("Max-Age=0")).collect::<String>();
        (answer.status, location, cookie, answer.text())
    };
    for is_third in [false, true] {
        let (status, location, cookie, _) = ask(is_third, "/a", &[("accept", "text/html")]);
        assert_eq!((status, cookie.starts_with("__Host-")), (302, is_third), "{cookie}");
        let callback =
            format!("/oauth2/callback?code={}&state={}", parameter(&location, "nonce"), parameter(&location, "state"));
        let pair = cookie.split(';').next().expect("a pair").to_owned();
        let (status, location, cookie, text) = ask(is_third, &callback, &[("cookie", &pair)]);
        assert_eq!((status, location.as_str()), (302, "/a"), "{text}");
        let pair = cookie.split(';').next().expect("a pair").to_owned();
        assert_eq!(ask(is_third, "/a", &[("cookie", &pair)]).3, "ann@acme.example|");
    }
}

fn file(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

#[test]
fn a_real_dex_logs_a_user_in_and_refuses_a_code_that_comes_twice() {
    let site = endpoint();
    let dex = Dex::start("http://shop.example/oauth2/callback");
    let more = ", scopes: [openid, profile, email, offline_access], paths: { public_url: \"http://shop.example\" }";
    let product = start(&site, &dex.issuer, more);
    let begun = ask(&product, "/a?b=c", HTML);
    assert_eq!(begun.status(), 302, "{}", begun.text());
    let back = dex.follow(begun.field("location").expect("a location"));
    let callback = back.strip_prefix("http://shop.example").expect("our callback");
    let cookie = format!("Cookie: {}\r\n", kept(&begun));
    let answer = ask(&product, callback, &cookie);
    assert_eq!((answer.status(), answer.field("location")), (302, Some("/a?b=c")), "{}", answer.text());
    let session = format!("Cookie: {}\r\n", kept(&answer));
    assert_eq!(ask(&product, "/", &session).text(), "kilgore@kilgore.trout|");
    assert_eq!(ask(&product, callback, &cookie).status(), 403, "the code was used");
    let product = start(&site, &dex.issuer, more);
    assert_eq!(ask(&product, "/", &session).text(), "kilgore@kilgore.trout|", "another instance with the same keys");
}

/// Logs in at a Dex as a browser does. Returns the field with the cookies of the session.
fn log_in_at(dex: &Dex, product: &Product) -> String {
    let begun = ask(product, "/", HTML);
    let back = dex.follow(begun.field("location").expect("a location"));
    let callback = back.strip_prefix("http://shop.example").expect("our callback");
    let answer = ask(product, callback, &format!("Cookie: {}\r\n", kept(&begun)));
    assert_eq!(answer.status(), 302, "{}", answer.text());
    format!("Cookie: {}\r\n", kept(&answer))
}

#[test]
fn claims_of_the_userinfo_endpoint_of_a_real_dex_reach_the_endpoint_after_login_and_refresh() {
    let site = Origin::answering(|request| {
        ok(&format!("{}|{}", request.all("x-user").join("+"), request.all("x-team").join("+")))
    });
    let dex = Dex::start("http://shop.example/oauth2/callback");
    let public = "paths: { public_url: \"http://shop.example\" }, scopes: [openid, profile, email, offline_access]";
    let straight = start(&site, &dex.issuer, &format!(", {public}, userinfo: {{}}"));
    assert_eq!(ask(&straight, "/", &log_in_at(&dex, &straight)).text(), "kilgore@kilgore.trout|");
    // Dex says nothing there that its ID token does not: a server before it adds a claim. Another has the session refreshed at once.
    let address = dex.issuer.trim_start_matches("http://").trim_end_matches("/dex");
    let info = before(address, |said| {
        said["team"] = json!("red");
        said["email"] = json!("eve@evil");
    });
    let login = before(address, |said| said["expires_in"] = json!(1));
    let more = format!(", {public}, userinfo: {{ cluster: info }}");
    let route = settings(&dex.issuer, &more).replace("x-user: email", "x-user: email, x-team: team");
    let clusters = clusters(&login, &info);
    let product = Product::start_in(folder(), &Setup::to(&site).route(route).cluster_more(clusters).text(), 2);
    let session = log_in_at(&dex, &product);
    until("the session is refreshed", || {
        assert_eq!(ask(&product, "/", &session).text(), "kilgore@kilgore.trout|red");
        (info.requests().len() == 2).then_some(())
    });
    assert!(info.requests().iter().all(|request| request.target() == "/dex/userinfo"));
    assert!(login.requests()[1].text().starts_with("grant_type=refresh_token&"));
    product.expect_metric("equipoise_filter_events_total", &["filter=\"oidc\"", "event=\"refreshed\""], 1.0);
}

fn clusters(login: &Origin, info: &Origin) -> String {
    format!("login: {{ endpoints: [\"{}\"] }}\n  info: {{ endpoints: [\"{}\"] }}", login.address(), info.address())
}

/// A server before another, which changes the JSON that it answers.
fn before(address: &str, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Origin {
    let address: std::net::SocketAddr = address.parse().expect("an address");
    Origin::answering(move |request| {
        let (method, target, body) = (request.method(), request.target(), request.text());
        let fields: String = ["authorization", "content-type"]
            .iter()
            .filter_map(|name| Some(format!("{name}: {}\r\n", request.field(name)?)))
            .collect();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n{fields}");
        let said = Peer::connect(address).ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
        assert_eq!(said.status(), 200, "{}", said.text());
        let mut said = serde_json::from_str(&said.text()).expect("JSON");
        change(&mut said);
        ok(&said.to_string())
    })
}

#[test]
fn a_userinfo_endpoint_that_misbehaves_lets_no_one_in() {
    let (provider, site) = (Provider::start(), endpoint());
    let does = Arc::new(Mutex::new(Vec::new()));
    let doing = Arc::clone(&does);
    let info = Origin::answering(move |_| doing.lock().expect("what it does").clone());
    let issuer = provider.issuer();
    let login = issuer.trim_start_matches("http://");
    let clusters = format!("login: {{ endpoints: [\"{login}\"] }}\n  info: {{ endpoints: [\"{}\"] }}", info.address());
    let route = settings(&issuer, ", timeout: 500ms, userinfo: { cluster: info }");
    let product = Product::start_in(folder(), &Setup::to(&site).route(route).cluster_more(clusters).text(), 2);
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000)).into_bytes();
    let jwt = b"HTTP/1.1 200 OK\r\nContent-Type: application/jwt\r\nContent-Length: 5\r\n\r\na.b.c".to_vec();
    for (what, answer, status) in [
        ("another user", ok("{\"sub\":\"2\"}"), 403),
        ("no user", ok("{}"), 403),
        ("no JSON", ok("<html>"), 503),
        ("1 MB", large, 503),
        ("a token that none has signed", jwt, 403),
        ("garbage", b"\x00\x01\r\n\r\n".to_vec(), 503),
        ("a refusal", b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec(), 403),
    ] {
        *does.lock().expect("what it does") = answer;
        let answer = log_in(&product, "/");
        assert_eq!((answer.status(), kept(&answer)), (status, String::new()), "{what}: {}", answer.text());
    }
    assert!(site.requests().is_empty());
    assert!(!product.stderr().contains("secret-access"));
}

#[test]
fn a_logout_during_a_refresh_is_final() {
    let site = endpoint();
    let signer = Signer::new("k1");
    let (asks, asked) = std::sync::mpsc::channel();
    let (opens, opened) = std::sync::mpsc::channel::<()>();
    let opened = Mutex::new(opened);
    let provider = Origin::answering(move |request| {
        let issuer = format!("http://{}", request.field("host").expect("a host"));
        match request.target() {
            "/.well-known/openid-configuration" => ok(&document(&issuer).to_string()),
            "/keys" => ok(&jwks(&[&signer])),
            _ => {
                if request.text().starts_with("grant_type=refresh_token") {
                    let _ = asks.send(());
                    let _ = opened.lock().expect("the gate").recv();
                }
                let told = tokens(&signer, &issuer, request, json!({}));
                let mut told: Value = serde_json::from_str(&told).expect("JSON");
                (told["expires_in"], told["refresh_token"]) = (json!(1), json!("again"));
                ok(&told.to_string())
            }
        }
    });
    let product = start(&site, &format!("http://{}", provider.address()), ", timeout: 60s");
    let cookie = format!("Cookie: {}\r\n", kept(&log_in(&product, "/")));
    // The first request after the access token has expired has it refreshed; those before pass.
    let late = std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            until("the session is not refreshed", || {
                let answer = ask(&product, "/", &cookie);
                (answer.status() != 200).then_some(answer)
            })
        });
        asked.recv().expect("a refresh");
        assert_eq!(ask(&product, "/oauth2/logout", &cookie).status(), 302);
        opens.send(()).expect("the gate");
        late.join().expect("an answer")
    });
    assert_eq!((late.status(), kept(&late)), (401, String::new()), "its refresh does not bring the session back");
    assert_eq!(ask(&product, "/", &cookie).status(), 401);
}
