//! Checks over HTTP that send a request of their own and look into the answer, over every version; and checks of several steps.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response};

use super::harness::net::refusing;
use super::harness::origin::ok;
use super::harness::product::{command, command_in, folder};
use super::harness::tls::{self, Authority};
use super::harness::{Origin, Product, Setup, eventually, http2_origin, http3_origin};

/// Why the first endpoint is not well.
fn reason(product: &Product) -> String {
    let status = product.api("/api/status");
    status["clusters"][0]["endpoints"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

fn is_up(product: &Product) -> bool {
    product.metric("equipoise_endpoint_up", &[]) == 1.0
}

/// Starts with a check of this origin; it fails and succeeds at once.
fn checking(origin: &Origin, check: &str) -> Product {
    let check = format!("health_check: {{ {check}, interval: 50ms, rise: 1, fall: 1 }}");
    Setup::to(origin).cluster(check).start()
}

/// Waits until a check of this origin fails for this reason.
fn fails(origin: &Origin, check: &str, why: &str) {
    let product = checking(origin, check);
    eventually(&format!("{check} fails: {why}"), || reason(&product) == why);
    assert!(!is_up(&product));
}

fn answering(head: &'static str, body: &'static str) -> Origin {
    let text = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
    Origin::answering(move |_| text.clone().into_bytes())
}

/// The fields of the question that the test asks, and their values.
const FIELDS: [(&str, &str); 4] =
    [("content-type", "application/json"), ("content-length", "16"), ("accept-encoding", "identity"), ("x-probe", "1")];

/// The status and the body of the answer: good for the one question that the test asks.
fn judge(method: &str, fields: [Option<&str>; 4], body: &[u8], is_sick: bool) -> (u16, &'static str) {
    let wanted = FIELDS.map(|(_, value)| Some(value));
    if (method, body, fields) != ("POST", &b"{\"user\":\"probe\"}"[..], wanted) {
        return (400, "this is not what was to be asked");
    }
    match is_sick {
        true => (200, "{\"status\": \"degraded\", \"checks\": [{\"db\": {\"ms\": 900}}]}"),
        false => (200, "{\"status\": \"ok\", \"checks\": [{\"db\": {\"ms\": 7}}]}"),
    }
}

/// The same for an endpoint of HTTP/2 or HTTP/3.
fn judge_head(head: &Request<()>, body: &[u8], is_sick: bool) -> (Response<()>, &'static str) {
    let fields = FIELDS.map(|(name, _)| head.headers().get(name).and_then(|value| value.to_str().ok()));
    let (status, said) = judge(head.method().as_str(), fields, body, is_sick);
    (Response::builder().status(status).header("x-role", "primary").body(()).expect("a head"), said)
}

/// The check of the test over every version.
const LOGIN: &str = "health_check: { http: { method: POST, path: /login, body: '{\"user\":\"probe\"}', \
                     headers: { Host: shop.example, content-type: application/json, x-probe: \"1\" }, \
                     expect_json: [{ path: .status, equals: ok }, { path: \"$.checks[0].db.ms\", regex: '[0-9]{1,2}' }], \
                     expect_headers: { x-role: { regex: 'prim.*' } }, not: { body: fatal } }, \
                     interval: 50ms, timeout: 10s, rise: 1, fall: 1 }";

/// Lets the endpoint fall sick and get well again, and looks at what is said of it.
fn sickens_and_recovers(product: &Product, is_sick: &AtomicBool) {
    eventually("it is asked and well", || {
        is_up(product) && product.api("/api/status")["clusters"][0]["endpoints"][0]["health"] == "up"
    });
    is_sick.store(true, Ordering::SeqCst);
    let why = "JSON at `.status` is \"degraded\", expected \"ok\"";
    eventually("it is taken out", || reason(product) == why);
    assert!(!is_up(product));
    let admin = product.address("admin").to_string();
    let shown = command(&["ctl", "--admin", &admin, "endpoints", "site"]).stdout;
    assert!(shown.contains(why), "{shown}");
    product.expect_said(&["endpoint is down", "JSON at `.status` is \\\"degraded\\\", expected \\\"ok\\\""]);
    is_sick.store(false, Ordering::SeqCst);
    eventually("it is brought back", || is_up(product));
}

#[test]
fn a_question_of_ones_own_is_asked_over_http_1_1_and_its_json_is_looked_at() {
    let state = Arc::new(AtomicBool::new(false));
    let is_sick = Arc::clone(&state);
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.request() {
            let (sent, fields) = (request.text(), FIELDS.map(|(name, _)| request.field(name)));
            let (status, body) = judge(request.method(), fields, sent.as_bytes(), is_sick.load(Ordering::SeqCst));
            assert_eq!(request.field("host"), Some("shop.example"));
            let length = body.len();
            visit
                .peer
                .send(format!("HTTP/1.1 {status} So\r\nX-Role: primary\r\nContent-Length: {length}\r\n\r\n{body}"));
        }
    });
    sickens_and_recovers(&Setup::to(&origin).cluster(LOGIN).start(), &state);
}

#[test]
fn endpoints_that_speak_http_2_alone_are_asked_over_it() {
    let state = Arc::new(AtomicBool::new(false));
    let is_sick = Arc::clone(&state);
    let origin = http2_origin::Http2Origin::start(http2_origin::Rules::default(), move |mut asked| {
        let is_sick = Arc::clone(&is_sick);
        Box::pin(async move {
            let Ok((body, _)) = asked.read().await else { return };
            let (head, said) = judge_head(&asked.head, &body, is_sick.load(Ordering::SeqCst));
            asked.say(head, said).await;
        })
    });
    let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]").cluster(LOGIN);
    sickens_and_recovers(&setup.start(), &state);
    let asked = origin.heads();
    assert!(asked.iter().all(|head| *head.uri() == "http://shop.example/login"), "{asked:?}");
    eventually("checks leave no connections behind", || origin.open() <= 1);
}

#[test]
fn a_question_of_ones_own_is_asked_over_http_3_and_its_json_is_looked_at() {
    let (authority, state) = (Authority::new("inside"), Arc::new(AtomicBool::new(false)));
    let is_sick = Arc::clone(&state);
    let origin = http3_origin::Http3Origin::start(http3_origin::Rules::of(&authority), move |mut asked| {
        let is_sick = Arc::clone(&is_sick);
        Box::pin(async move {
            let Ok((body, _)) = asked.read().await else { return };
            let (head, said) = judge_head(&asked.head, &body, is_sick.load(Ordering::SeqCst));
            asked.say(head, said).await;
        })
    });
    let place = folder();
    authority.write(place.path(), "authority.pem");
    let setup = Setup::to_addresses(&[origin.address()])
        .cluster("http_versions: [h3]")
        .cluster("tls: { authorities: authority.pem }")
        .cluster(LOGIN);
    sickens_and_recovers(&Product::start_in(place, &setup.text(), 2), &state);
}

#[test]
fn reasons_say_what_is_wrong_with_an_answer() {
    let origin = answering("X-Role: replica\r\n", "version v2 is degraded");
    for (check, why) in [
        ("expect_headers: { x-role: primary }", "the header `x-role` is \"replica\", expected \"primary\""),
        ("expect_headers: { x-other: { present: true } }", "the header `x-other` is missing"),
        ("not: { headers: { x-role: { regex: 'rep.*' } } }", "the header `x-role` is \"replica\", which `not` refuses"),
        ("expect_body: well", "the body does not contain \"well\""),
        ("expect_body: [degraded, { regex: 'v[3-9]' }]", "the body does not match `v[3-9]`"),
        ("not: { body: degraded }", "the body contains \"degraded\", which `not` refuses"),
        ("not: { statuses: [200] }", "answered 200"),
        ("expect_json: { path: .status, equals: ok }", "the body is not JSON: expected value at line 1 column 1"),
    ] {
        fails(&origin, &format!("http: {{ {check} }}, timeout: 10s"), why);
    }
    let good = "http: { expect_body: { regex: 'v[0-9] is' }, expect_headers: { x-role: { regex: '[a-z]+' }, x-no: { absent: true } }, \
                not: { statuses: [500-599], body: { regex: 'v[3-9]' } } }, timeout: 10s, start: held_out";
    let product = checking(&origin, good);
    eventually("what fits is well", || is_up(&product));
}

/// Sends this over and over, as long as it is taken.
fn without_end(begin: &'static str, again: &'static str, pause: Duration) -> Origin {
    Origin::start(move |mut visit| {
        let _ = visit.request();
        visit.peer.send(begin);
        while visit.peer.try_send(again).is_ok() {
            std::thread::sleep(pause);
        }
    })
}

#[test]
fn hostile_answers_end_within_bounds_and_say_why() {
    let (no_pause, json) = (Duration::ZERO, "http: { expect_json: { path: .a, equals: 1 } }, timeout: 10s");
    const FILLER: &str =
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n";
    let endless = without_end("HTTP/1.1 200 OK\r\n\r\n", FILLER, no_pause);
    fails(
        &endless,
        "http: { expect_body: never }, timeout: 10s",
        "within its first 65536 bytes the body does not contain \"never\"",
    );
    let small = "http: { expect_body: { regex: never }, response_bytes_max: 1KiB }, timeout: 10s";
    fails(&endless, small, "within its first 1024 bytes the body does not match `never`");
    fails(&endless, json, "the body is longer than 65536 bytes (`response_bytes_max`), too long to read as JSON");
    let drip = without_end("HTTP/1.1 200 OK\r\n\r\n", "x", Duration::from_millis(5));
    let product = checking(&drip, "http: { expect_body: never }, timeout: 300ms");
    eventually("a slow drip runs into the time-out", || {
        let why = reason(&product);
        why.starts_with("the response body did not end within 300ms (") && why.ends_with(" bytes came)")
    });
    let heads = without_end(
        "HTTP/1.1 200 OK\r\n",
        "X-A: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
        no_pause,
    );
    let product = checking(&heads, json);
    eventually("a head without end is refused", || !reason(&product).is_empty());
    assert!(reason(&product).contains("the response") && !is_up(&product), "{}", reason(&product));
    fails(
        &answering("Content-Encoding: gzip\r\n", "\u{1f}"),
        json,
        "the body is compressed (\"gzip\"), so it cannot be checked",
    );
    fails(&answering("", "{\"a\": 1"), json, "the body is not JSON: EOF while parsing an object at line 1 column 7");
    fails(&answering("", ""), json, "the body is empty, expected JSON");
    let deep: &'static str = "[".repeat(60_000).leak();
    fails(&answering("", deep), json, "the body is not JSON: EOF while parsing a list at line 1 column 60000");
    let bytes = Origin::answering(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"a\":\"\xff\"}".to_vec());
    let product = checking(&bytes, json);
    eventually("what is no UTF-8 is no JSON", || reason(&product).starts_with("the body is not JSON: "));
}

#[test]
fn steps_ask_several_ports_and_the_reason_names_the_step() {
    let (page, metrics) = (Origin::saying("well"), Arc::new(AtomicBool::new(true)));
    let is_ready = Arc::clone(&metrics);
    let beside = Origin::answering(move |_| match is_ready.load(Ordering::SeqCst) {
        true => ok("{\"ready\": true}"),
        false => ok("{\"ready\": false}"),
    });
    let port = beside.address().port();
    let check = format!(
        "steps: [{{ tcp: {{}} }}, {{ http: {{ path: /live }} }}, \
         {{ http: {{ path: /ready, expect_json: {{ path: .ready, equals: true }} }}, port: {port}, timeout: 5s }}, \
         {{ script: [{{ send: \"GET /last HTTP/1.0\\r\\n\\r\\n\" }}, {{ expect: well }}] }}], timeout: 10s, start: held_out"
    );
    let product = checking(&page, &check);
    eventually("all steps pass", || is_up(&product));
    eventually("the last step is taken", || page.requests().iter().any(|request| request.target() == "/last"));
    assert!(page.requests().iter().any(|request| request.target() == "/live"));
    metrics.store(false, Ordering::SeqCst);
    let why = format!("step 3 (http at port {port}): JSON at `.ready` is false, expected true");
    eventually("it is taken out", || reason(&product) == why);
    product.expect_said(&["endpoint is down", &format!("step 3 (http at port {port})")]);
    metrics.store(true, Ordering::SeqCst);
    eventually("it is brought back", || is_up(&product));
    let nobody = refusing().port();
    let refused = checking(&page, &format!("steps: [{{ http: {{}} }}, {{ tcp: {{}}, port: {nobody} }}], timeout: 10s"));
    eventually("a port that refuses fails its step", || {
        reason(&refused).starts_with(&format!("step 2 (tcp at port {nobody}): cannot connect: "))
    });
    let silent = Origin::start(|mut visit| _ = visit.peer.wait_closed());
    let port = silent.address().port();
    let slow = format!("steps: [{{ tcp: {{}} }}, {{ http: {{}}, port: {port} }}], timeout: 200ms");
    fails(&page, &slow, &format!("step 2 (http at port {port}): no response within the 200ms of the whole check"));
}

#[test]
fn steps_speak_the_version_of_their_cluster_at_its_port_and_http_1_1_at_others() {
    let authority = Authority::new("inside");
    let second = http2_origin::Http2Origin::saying("live");
    let third = http3_origin::Http3Origin::saying(&authority, "live");
    for (version, address) in [("h2", second.address()), ("h3", third.address())] {
        let state = Arc::new(AtomicBool::new(true));
        let is_ready = Arc::clone(&state);
        let answer = move |mut visit: super::harness::origin::Visit<'_>| {
            visit.answer_all(|_| Some(ok(if is_ready.load(Ordering::SeqCst) { "ready" } else { "not yet" })));
        };
        let place = folder();
        authority.write(place.path(), "authority.pem");
        let (beside, more) = match version {
            "h2" => (Origin::start(answer), ""),
            // The whole cluster speaks TLS.
            _ => (
                Origin::start_tls(tls::origin(&authority.issue(&["127.0.0.1"]), None), answer),
                "tls: { authorities: authority.pem }",
            ),
        };
        let port = beside.address().port();
        let check = format!(
            "health_check: {{ steps: [{{ http: {{ path: /live, expect_body: live }} }}, \
             {{ http: {{ path: /ready, expect_body: ready }}, port: {port} }}], timeout: 10s, interval: 50ms, rise: 1, fall: 1, start: held_out }}"
        );
        let mut setup = Setup::to_addresses(&[address]).cluster(format!("http_versions: [{version}]")).cluster(check);
        if version == "h3" {
            setup = setup.cluster(more);
        }
        let product = Product::start_in(place, &setup.text(), 1);
        eventually("both steps pass", || is_up(&product));
        state.store(false, Ordering::SeqCst);
        let why = format!("step 2 (http at port {port}): ");
        eventually("it is taken out", || reason(&product).starts_with(&why));
        state.store(true, Ordering::SeqCst);
        eventually("it is brought back", || is_up(&product));
        assert!(beside.requests().iter().all(|request| request.target() == "/ready"));
    }
    let heads = second.heads().into_iter().chain(third.heads());
    assert!(heads.into_iter().all(|head| head.uri().path() == "/live"));
}

#[test]
fn mistakes_in_expressions_and_paths_of_checks_are_told_with_their_place() {
    let place = folder();
    let mut file = std::fs::File::create(place.path().join("site.yaml")).expect("our folder");
    let text = r#"version: 1
listeners: { web: { bind: "127.0.0.1:0" } }
routes: [{ cluster: a }]
clusters:
  a:
    endpoints: ["127.0.0.1:1"]
    health_check:
      http:
        expect_body: { regex: "(" }
        expect_headers:
          x-a: { regex: "[z-a]" }
        expect_json:
          - { path: .a..b, equals: 1 }
          - { path: "items[0]", regex: "*" }
        not:
          body: [ok, { regex: "x{1000}{1000}" }]
  b:
    endpoints: ["127.0.0.1:2"]
    health_check:
      steps:
        - tcp: {}
        - http: { expect_json: { path: "$.a[*]", present: true } }
"#;
    file.write_all(text.as_bytes()).expect("our folder");
    let ended = command_in(place.path(), &["check", "-c", "site.yaml"]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stdout);
    for (line, wanted) in [
        (9, "`(` is not a regular expression: unclosed group"),
        (11, "`[z-a]` is not a regular expression: "),
        (13, "`.a..b` is not a path in JSON: a key is missing after the dot at character 3"),
        (14, "`items[0]` is not a path in JSON: neither `.` nor `[` at character 1"),
        (14, "`*` is not a regular expression: "),
        (16, "the expression is too large once compiled"),
        (22, "`$.a[*]` is not a path in JSON: neither a number nor a key in quotes within `[]` at character 4"),
    ] {
        let place = format!("site.yaml:{line}:");
        let told = ended.stderr.lines().any(|told| told.starts_with(&place) && told.contains(wanted));
        assert!(told, "{place} {wanted} is not in:\n{}", ended.stderr);
    }
    assert!(ended.stderr.contains("write it like `.status`, `.checks.db.status`"), "{}", ended.stderr);
}
