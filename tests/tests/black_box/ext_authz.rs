//! The filter `ext_authz`: a real authorization service of Envoy's protocol, and others that do what a real one does not do.

use std::time::Duration;

use h2::Reason;
use http::{HeaderMap, HeaderValue, Response};

use super::harness::http2::{Client, request, with_fields};
use super::harness::http2_origin::{Asked, Http2Origin, Rules};
use super::harness::origin::ok;
use super::harness::services::Authorization;
use super::harness::tls::Authority;
use super::harness::{Message, Origin, Peer, Product, Setup, eventually, http3, net, product, until};
use super::http3::{Site, site};

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const SLOW: &str = "timeout: 60s";

/// An endpoint that answers with what it was sent.
fn endpoint() -> Origin {
    Origin::answering(|request| {
        let fields = ["x-user", "x-group", "token", "x-secret"].map(|name| request.all(name).join("+"));
        ok(&format!("{} {fields:?} {}", request.target(), request.text()))
    })
}

fn setup(endpoint: &Origin, service: std::net::SocketAddr, more: &str) -> Setup {
    Setup::to(endpoint)
        .route(format!("filters: [{{ ext_authz: {{ cluster: auth, {more} }} }}]"))
        .cluster_more(format!("auth: {{ endpoints: [\"{service}\"], http_versions: [h2] }}"))
}

fn ask(peer: &mut Peer, token: &str) -> Message {
    peer.ask(format!("GET /a?key=1&b=2 HTTP/1.1\r\nHost: test\r\nToken: {token}\r\nX-User: forged\r\nX-Group: web\r\nX-Secret: s\r\n\r\n"))
}

fn both(setup: Setup) -> Site {
    site(setup.listener_more(CLEAR), 1)
}

const ALLOWED: &str = "/a?b=2&who=ann%20%26%20bob [\"ann\", \"web+ops\", \"\", \"\"] ";

#[test]
fn a_real_service_changes_requests_and_responses_that_it_allows_and_answers_others() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let product = setup(&endpoint, service.address, SLOW).start();
    let mut peer = product.connect();
    for _ in 0..3 {
        let allowed = ask(&mut peer, "good");
        assert_eq!((allowed.status(), allowed.text().as_str()), (200, ALLOWED));
        assert_eq!((allowed.all("set-cookie"), allowed.all("x-checked")), (vec!["seen=1"], vec!["yes"]));
    }
    let bare = ask(&mut peer, "bare");
    assert_eq!(bare.text(), "/a?key=1&b=2 [\"forged\", \"web\", \"bare\", \"s\"] ");
    assert_eq!(
        (bare.field("set-cookie"), bare.field("x-checked")),
        (None, None),
        "nothing is left from the requests before"
    );
    let denied = ask(&mut peer, "bad");
    assert_eq!((denied.status(), denied.text().as_str()), (401, "no!\n"));
    assert_eq!((denied.field("www-authenticate"), denied.field("connection")), (Some("Bearer"), None));
    let login = ask(&mut peer, "login");
    assert_eq!(
        (login.status(), login.field("location"), login.field("set-cookie")),
        (302, Some("/login"), Some("back=1"))
    );
    assert_eq!(ask(&mut peer, "plain").status(), 403);
    for (event, count) in [("refused", 3.0), ("failed", 0.0)] {
        let labels = ["filter=\"ext_authz\"", &format!("event=\"{event}\"")];
        product.expect_metric("equipoise_filter_events_total", &labels, count);
    }
    assert_eq!(endpoint.requests().len(), 4, "the endpoint gets only allowed requests");
    product.expect_metric("equipoise_cluster_requests_total", &["cluster=\"auth\""], 7.0);
}

#[test]
fn requests_over_http2_and_http3_are_authorized_too() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let site = both(setup(&endpoint, service.address, &format!("{SLOW}, body_max: 1KiB")));
    let (mut second, mut third) = (Client::connect(site.product.address("clear")), site.connect());
    for (token, status) in [("good", 200), ("bad", 401), ("good", 200), ("plain", 403)] {
        let fields = [("token", token), ("x-user", "forged")];
        for answer in [
            second.ask(with_fields(request("POST", "/"), &fields), b"body"),
            third.ask(with_fields(http3::request("POST", "/"), &fields), b"body"),
        ] {
            assert_eq!((answer.status, answer.text().ends_with(" body")), (status, status == 200));
            assert_eq!(answer.text().contains("[\"ann\", \"ops\""), status == 200, "{}", answer.text());
        }
    }
}

/// What a service was sent, as JSON: by the answer to a request whose token is `echo`.
fn echoed(answer: (u16, String)) -> serde_json::Value {
    assert_eq!(answer.0, 409, "{}", answer.1);
    serde_json::from_str::<serde_json::Value>(&answer.1).expect("JSON")["attributes"].clone()
}

#[test]
fn the_service_gets_the_attributes_that_envoy_sends() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let more = format!("{SLOW}, body_max: 1KiB, extensions: {{ route: shop, from: \"{{client_ip}}\" }}");
    let site = both(setup(&endpoint, service.address, &more));
    let clear = site.product.address("clear");
    let mut peer = Peer::connect(clear);
    let answer = peer.ask(
        "PUT /cart?item=1 HTTP/1.1\r\nHost: Shop.example:80\r\nToken: echo\r\nX-Many: a\r\nx-many: b\r\n\
         X-Envoy-Auth-Partial-Body: true\r\nKeep-Alive: 5\r\nContent-Length: 4\r\n\r\nbody",
    );
    let told = echoed((answer.status(), answer.text()));
    let http = &told["request"]["http"];
    for (key, value) in [
        ("method", "PUT"),
        ("path", "/cart?item=1"),
        ("host", "Shop.example:80"),
        ("scheme", "http"),
        ("protocol", "HTTP/1.1"),
        ("size", "4"),
        ("body", "body"),
    ] {
        assert_eq!(http[key], value, "{key}");
    }
    let headers = &http["headers"];
    for (name, value) in [
        (":method", "PUT"),
        (":path", "/cart?item=1"),
        (":authority", "Shop.example:80"),
        (":scheme", "http"),
        ("x-many", "a,b"),
        ("x-envoy-auth-partial-body", "false"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(headers["keep-alive"].is_null() && headers["host"].is_null(), "{headers}");
    let address = |end: &str| told[end]["address"]["socketAddress"].clone();
    assert_eq!(
        (&address("source")["address"], &address("destination")["address"]),
        (&"127.0.0.1".into(), &"127.0.0.1".into())
    );
    assert_eq!(address("destination")["portValue"], clear.port());
    assert!(address("source")["portValue"].as_u64().is_some_and(|port| port > 0));
    assert!(told["request"]["time"].as_str().is_some_and(|time| time.starts_with("20")), "{told}");
    assert_eq!(told["contextExtensions"], serde_json::json!({ "route": "shop", "from": "127.0.0.1" }));
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let fields = [("token", "echo"), ("cookie", "a=1"), ("cookie", "b=2")];
    let answer = second.ask(with_fields(request("GET", "/x"), &fields), b"");
    let told = echoed((answer.status, answer.text()));
    assert_eq!(
        (&told["request"]["http"]["protocol"], &told["tlsSession"]),
        (&"HTTP/2".into(), &serde_json::Value::Null)
    );
    assert_eq!(told["request"]["http"]["headers"]["cookie"], "a=1; b=2");
    let answer = third.ask(with_fields(http3::request("GET", "/x"), &fields), b"");
    let told = echoed((answer.status, answer.text()));
    assert_eq!(
        (&told["request"]["http"]["protocol"], &told["request"]["http"]["scheme"]),
        (&"HTTP/3".into(), &"https".into())
    );
    assert_eq!(told["tlsSession"]["sni"], "shop.example");
}

#[test]
fn the_name_in_a_client_certificate_is_the_principal() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let authority = Authority::new("the tests' own");
    let needed = "client: { mode: required, authorities: authority.pem }";
    let site = Site::of(authority, "[h1, h2, h3]", needed, setup(&endpoint, service.address, SLOW), 1);
    let uri = "spiffe://prod.example/ns/web/sa/main";
    for (identity, name) in
        [(site.authority.issue_client_at("web", uri), uri), (site.authority.issue_client("web"), "CN=web")]
    {
        let tls = http3::trusting(&site.authority, Some(&identity));
        let mut client = http3::Client::connect(site.product.web(), "shop.example", &tls);
        let answer = client.ask(with_fields(http3::request("GET", "/"), &[("token", "echo")]), b"");
        assert_eq!(echoed((answer.status, answer.text()))["source"]["principal"], name);
    }
}

#[test]
fn the_call_has_a_deadline_and_the_authority_of_the_settings() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let product = setup(&endpoint, service.address, "timeout: 50s, host: auth.internal").start();
    let answer = ask(&mut product.connect(), "deadline");
    let text = answer.text();
    let (left, host) = text.split_once(' ').expect("two words");
    assert_eq!((answer.status(), host), (409, "[auth.internal]"));
    assert!((1..=50_000).contains(&left.parse::<i64>().expect("a number")), "{left}");
}

#[test]
fn fields_of_the_service_are_not_the_clients_to_set_in_head_or_trailers() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let product = setup(&endpoint, service.address, &format!("{SLOW}, trusted_headers: [x-user]")).start();
    let mut peer = product.connect();
    assert_eq!(ask(&mut peer, "bare").text(), "/a?key=1&b=2 [\"\", \"web\", \"bare\", \"s\"] ");
    let head = "PUT / HTTP/1.1\r\nHost: test\r\nToken: bare\r\nX_User: forged\r\nTransfer-Encoding: chunked\r\n\r\n";
    peer.ask(format!("{head}1\r\nx\r\n0\r\nX-User: forged\r\nX-Sum: 1\r\n\r\n"));
    let last = endpoint.requests().pop().expect("a request");
    assert_eq!((last.field("x_user"), &last.trailers[..]), (None, &[("X-Sum".to_owned(), "1".to_owned())][..]));
}

#[test]
fn answers_that_a_proxy_must_not_carry_out_are_failures() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let closed = setup(&endpoint, service.address, SLOW).start();
    let open = setup(&endpoint, service.address, &format!("{SLOW}, on_failure: allow")).start();
    let other = setup(&endpoint, service.address, &format!("{SLOW}, failure_status: 503")).start();
    let tokens = ["inject", "frame", "pseudo", "unframe", "broken", "large"];
    for token in tokens {
        assert_eq!(ask(&mut closed.connect(), token).status(), 403, "{token}");
        assert_eq!(ask(&mut other.connect(), token).status(), 503, "{token}");
        assert_eq!(
            ask(&mut open.connect(), token).text(),
            format!("/a?key=1&b=2 [\"forged\", \"web\", \"{token}\", \"s\"] ")
        );
    }
    closed.expect_metric("equipoise_filter_events_total", &["event=\"failed\""], tokens.len() as f64);
}

#[test]
fn a_slow_service_is_given_up_after_the_timeout_and_one_that_is_away_at_once() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    for (address, more) in [(service.address, "timeout: 50ms"), (net::refusing(), SLOW)] {
        for (on_failure, status) in [("deny", 403), ("allow", 200)] {
            let product = setup(&endpoint, address, &format!("on_failure: {on_failure}, {more}")).start();
            assert_eq!(ask(&mut product.connect(), "slow").status(), status, "{address} {on_failure}");
        }
    }
    assert_eq!(endpoint.requests().len(), 2);
}

#[test]
fn the_call_of_a_client_that_disconnects_is_cancelled() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let site = both(setup(&endpoint, service.address, SLOW));
    let clear = site.product.address("clear");
    let counts = || ask(&mut Peer::connect(clear), "counts").text();
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    first.send("GET / HTTP/1.1\r\nHost: test\r\nToken: slow\r\n\r\n");
    let slow = [("token", "slow")];
    let stream = second.open(with_fields(request("GET", "/"), &slow), true);
    let mut other = third.open(with_fields(http3::request("GET", "/"), &slow));
    third.end(&mut other, HeaderMap::new());
    eventually("the service is asked", || {
        second.flush();
        third.flush();
        counts() == "3 0"
    });
    first.reset();
    eventually("the call of the first is cancelled", || counts() == "3 1");
    second.reset(stream, Reason::CANCEL);
    eventually("the call of the second is cancelled", || counts() == "3 2");
    third.cancel(other);
    eventually("the call of the third is cancelled", || counts() == "3 3");
    assert!(endpoint.requests().is_empty());
}

#[test]
fn a_service_that_is_killed_under_load_lets_nobody_in_and_goes_on_when_it_is_back() {
    let (endpoint, mut service) = (endpoint(), Authorization::start());
    let product = setup(&endpoint, service.address, SLOW).start();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = || {
            let mut peer = product.connect();
            let mut statuses = std::collections::BTreeSet::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for (token, good) in [("good", 200), ("bad", 401)] {
                    let status = ask(&mut peer, token).status();
                    assert!(status == good || status == 403, "{token}: {status}");
                    statuses.insert(status);
                }
            }
            statuses
        };
        let loads: Vec<_> = (0..4).map(|_| scope.spawn(load)).collect();
        let denied = || ask(&mut product.connect(), "good").status();
        for _ in 0..2 {
            eventually("requests are allowed", || denied() == 200);
            service.kill();
            eventually("requests are denied", || denied() == 403);
            service = Authorization::start_at(service.address);
        }
        eventually("requests are allowed again", || denied() == 200);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for load in loads {
            assert!(load.join().expect("no status of another kind").contains(&200));
        }
    });
}

/// A message with the bytes before it.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn grpc_head(content_type: &'static str) -> Response<()> {
    Response::builder().header("content-type", content_type).body(()).expect("a head")
}

fn status(text: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(text));
    trailers
}

/// Answers as the header field `token` says it, in ways that no good service does.
async fn misbehave(mut asked: Asked) {
    let Ok((question, _)) = asked.read().await else { return };
    // The service gets nothing of HTTP but the call itself; the token is in the message.
    let says = |token: &str| question.windows(token.len()).any(|part| part == token.as_bytes());
    // `status { code: 0 }`, and `ok_response {}`.
    let good = framed(0, &[0x0a, 0x00, 0x1a, 0x00]);
    let plain = |body: Vec<u8>| ("application/grpc", body, Some(status("0")));
    let (content_type, body, trailers) = match () {
        () if says("fine") => plain(good),
        () if says("empty") => plain(framed(0, b"")),
        () if says("garbage") => plain(b"HTTP/1.1 200 OK\r\n\r\nyes, all of it".to_vec()),
        () if says("protobuf") => plain(framed(0, b"\xff\xff\xff\xff\xff")),
        () if says("short") => plain(vec![0, 0, 0, 0, 9, 1]),
        () if says("twice") => plain([good.clone(), good].concat()),
        () if says("packed") => plain(framed(1, &[0x0a, 0x00])),
        () if says("huge") => plain(framed(0, &vec![0; 8 << 20])),
        () if says("endless") => plain(vec![0, 0xff, 0xff, 0xff, 0xff, 0]),
        () if says("html") => ("text/html", good, Some(status("0"))),
        () if says("status") => ("application/grpc", good, Some(status("7"))),
        () if says("words") => ("application/grpc", good, Some(status("zero"))),
        () if says("unended") => ("application/grpc", good, None),
        () if says("only") => {
            let mut head = grpc_head("application/grpc");
            head.headers_mut().extend(status("0"));
            return asked.end(head);
        }
        () if says("away503") => return asked.end(Response::builder().status(503).body(()).expect("a head")),
        () if says("reset") => return asked.begin(grpc_head("application/grpc")).reset(Reason::INTERNAL_ERROR),
        () if says("cut") => return asked.line.cut(),
        () => panic!("{}", String::from_utf8_lossy(&question)),
    };
    let mut speech = asked.begin(grpc_head(content_type));
    speech.say(body).await;
    match trailers {
        Some(trailers) => speech.end_with(trailers),
        None => speech.end(),
    }
}

#[test]
fn what_is_no_answer_fails_closed_whatever_it_is() {
    let endpoint = endpoint();
    let service = Http2Origin::start(Rules::default(), |asked| Box::pin(misbehave(asked)));
    let site = both(setup(&endpoint, service.address(), SLOW));
    let clear = site.product.address("clear");
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let all = [
        "garbage", "protobuf", "short", "twice", "packed", "huge", "endless", "html", "status", "words", "unended",
        "only", "away503", "reset", "cut",
    ];
    for (token, expected) in all.into_iter().map(|token| (token, 403)).chain([("fine", 200), ("empty", 200)]) {
        assert_eq!(ask(&mut Peer::connect(clear), token).status(), expected, "{token}");
        let fields = [("token", token)];
        assert_eq!(second.ask(with_fields(request("GET", "/"), &fields), b"").status, expected, "{token}");
        assert_eq!(third.ask(with_fields(http3::request("GET", "/"), &fields), b"").status, expected, "{token}");
    }
    assert_eq!(endpoint.requests().len(), 6);
    let heads = service.heads();
    let head = heads.first().expect("a call");
    assert_eq!((head.method().as_str(), head.uri().path()), ("POST", "/envoy.service.auth.v3.Authorization/Check"));
    let field = |name: &str| head.headers().get(name).map(HeaderValue::as_bytes);
    assert_eq!((field("te"), field("content-type")), (Some(&b"trailers"[..]), Some(&b"application/grpc"[..])));
    assert!(field("grpc-timeout").is_some() && field("cookie").is_none() && field("token").is_none());
}

#[test]
fn a_body_that_is_too_large_is_refused_without_a_call() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let product = setup(&endpoint, service.address, &format!("{SLOW}, body_max: 1KiB")).start();
    let mut peer = product.connect();
    peer.send("PUT / HTTP/1.1\r\nHost: test\r\nToken: good\r\nContent-Length: 1025\r\n\r\n");
    assert_eq!(peer.response().status(), 413);
    product.expect_metric("equipoise_cluster_requests_total", &["cluster=\"auth\""], 0.0);
}

#[test]
fn a_cluster_that_speaks_no_http2_is_an_error_with_its_place() {
    let endpoint = endpoint();
    let text = setup(&endpoint, endpoint.address(), SLOW).text().replace(", http_versions: [h2]", "");
    let folder = product::folder();
    std::fs::write(folder.path().join("e.yaml"), text.replace("DIR", &folder.path().display().to_string()))
        .expect("ours");
    let ended = product::command_in(folder.path(), &["check", "e.yaml"]);
    assert!(!ended.status.success());
    assert!(
        ended.stderr.contains("gRPC needs HTTP/2 or HTTP/3, and cluster `auth` speaks neither"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("http_versions: [h2]"), "{}", ended.stderr);
}

#[test]
fn a_stalled_service_does_not_stall_other_requests() {
    let (endpoint, service) = (endpoint(), Authorization::start());
    let product = setup(&endpoint, service.address, SLOW).start();
    let mut stalled: Vec<Peer> = (0..20).map(|_| product.connect()).collect();
    stalled.iter_mut().for_each(|peer| peer.send("GET / HTTP/1.1\r\nHost: test\r\nToken: slow\r\n\r\n"));
    eventually("all of them wait", || ask(&mut product.connect(), "counts").text() == "20 0");
    assert_eq!(ask(&mut product.connect(), "good").status(), 200);
    stalled[0].assert_silent(Duration::from_millis(20));
}

#[test]
fn what_a_real_service_says_beside_its_verdict_reaches_fields_conditions_and_the_log() {
    let service = Authorization::start();
    let endpoint = Origin::answering(|request| ok(&request.all("x-told").join("+")));
    let filters = format!(
        "filters: [{{ ext_authz: {{ cluster: auth, {SLOW} }} }}, \
         {{ set_request_header: {{ x-told: \"{{ext_authz:team}} {{ext_authz:level}} {{ext_authz:score}} {{ext_authz:org.id}} {{ext_authz:none}}.\" }}, \
            when: {{ expression: '\"dev\" in ext_authz.metadata[\"roles\"] && ext_authz.metadata[\"org.id\"] == \"acme\"' }} }}]"
    );
    let setup = Setup::to(&endpoint)
        .route(filters)
        .cluster_more(format!("auth: {{ endpoints: [\"{}\"], http_versions: [h2] }}", service.address));
    let red = "access_logs: [{ path: \"DIR/red.json\", format: json, when: { expression: 'ext_authz.metadata.team == \"red\"' } }, ";
    let product = Product::start_in(product::folder(), &setup.text().replace("access_logs: [", red), 2);
    let mut peer = product.connect();
    assert_eq!(ask(&mut peer, "told").text(), "red 7 0.5 acme .");
    assert_eq!(ask(&mut peer, "bare").text(), "", "nothing is left from the request before");
    assert_eq!(ask(&mut peer, "told-no").status(), 403);
    assert_eq!(ask(&mut peer, "deep").status(), 200, "more levels than are read: they are left out");
    let events = |event: &str, count: f64| {
        let event = format!("event=\"{event}\"");
        product.expect_metric("equipoise_filter_events_total", &["filter=\"ext_authz\"", &event], count);
    };
    events("failed", 0.0);
    events("metadata_too_large", 1.0);
    until("the log has both that the service has sent", || {
        let text = std::fs::read_to_string(product.folder().join("red.json")).unwrap_or_default();
        (text.lines().count() == 2).then_some(())
    });
}
