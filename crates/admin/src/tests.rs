//! The listener over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use control::{Source, View};
use serde_json::Value;
use telemetry::Telemetry;

use super::*;

/// Long enough for anything on this machine, so that a test fails rather than hangs.
const PATIENCE: Duration = Duration::from_secs(20);

fn view() -> View {
    View::new(Telemetry::new(2), 2, Box::new(|| (0, 0)))
}

/// A view of a program that runs `text`, with a data plane that takes everything.
fn running(text: &str) -> (View, control::Reconciler) {
    running_with(view(), text)
}

fn running_with(view: View, text: &str) -> (View, control::Reconciler) {
    let source = Source::Text { name: "test".into(), text: text.into(), base: ".".into() };
    let mut reconciler =
        control::Reconciler::new(source, |_| Ok(()), plan::Publisher::new(|_| Ok(())), view.clone()).unwrap();
    let candidate = reconciler.prepare().unwrap_or_else(|error| panic!("{error}"));
    reconciler.commit(candidate, control::history::Origin::Start).unwrap();
    (view, reconciler)
}

fn start(view: &View, bounds: Bounds) -> Admin {
    let bound = Bound::bind(&"127.0.0.1:0".parse().unwrap(), 0o600).unwrap();
    // No one carries anything out.
    Admin::start_with(bound, (view.clone(), control::orders::channel().0), bounds).unwrap()
}

fn connect(address: &Address) -> TcpStream {
    let stream = TcpStream::connect(address.ip().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes and reads until the other side closes.
fn converse(address: &Address, bytes: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: &Address, path: &str) -> String {
    converse(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"))
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

const SITE: &str = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:0" } }
routes: [{ cluster: site }]
clusters: { site: { endpoints: ["127.0.0.1:9001", { address: "127.0.0.1:9002", weight: 2 }] } }
admin: { bind: "127.0.0.1:0" }
"#;

#[test]
fn who_waits_for_a_change_is_not_cut_off_for_being_silent() {
    let (view, _reconciler) = running(SITE);
    let bound = Bound::bind(&"127.0.0.1:0".parse().unwrap(), 0o600).unwrap();
    let (sender, mut orders) = control::orders::channel();
    let bounds = Bounds { idle: Duration::from_secs(1), ..Bounds::default() };
    let admin = Admin::start_with(bound, (view, sender), bounds).unwrap();
    let address = admin.address().clone();
    let asking = std::thread::spawn(move || {
        let fields = format!("host: {address}\r\nconnection: close\r\nx-equipoise: 1\r\ncontent-length: 0");
        converse(&address, &format!("POST /api/reload HTTP/1.1\r\n{fields}\r\n\r\n"))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (order, answer) = runtime.block_on(orders.next());
    assert!(!order.is_trusted && order.under.is_some());
    // Far more than the time of a silent connection.
    std::thread::sleep(Duration::from_secs(3));
    answer.send(Err(control::Refusal::Failed)).unwrap();
    let answer = asking.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
}

#[test]
fn a_listener_that_is_closed_lets_nobody_in_and_is_alive() {
    let (view, _reconciler) = running(SITE);
    let admin = start(&view, Bounds::default());
    admin.close(true);
    for path in ["/api/status", "/api/config", "/metrics"] {
        assert!(get(admin.address(), path).starts_with("HTTP/1.1 503 "), "{path}");
    }
    assert!(get(admin.address(), "/healthz").starts_with("HTTP/1.1 200 "));
    admin.close(false);
    assert!(get(admin.address(), "/api/status").starts_with("HTTP/1.1 200 "));
    // Nothing is reported before there are rules by which it may be.
    let nothing = start(&self::view(), Bounds::default());
    assert!(get(nothing.address(), "/api/config").starts_with("HTTP/1.1 503 "));
}

#[test]
fn a_program_is_alive_at_once_and_ready_while_a_plan_is_live_and_it_is_not_ending() {
    let starting = view();
    let admin = start(&starting, Bounds::default());
    assert!(get(admin.address(), "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(get(admin.address(), "/readyz").starts_with("HTTP/1.1 503 "));
    let (view, _reconciler) = running(SITE);
    let admin = start(&view, Bounds::default());
    assert!(get(admin.address(), "/readyz").starts_with("HTTP/1.1 200 "));
    view.set_draining();
    let draining = get(admin.address(), "/readyz");
    assert!(draining.starts_with("HTTP/1.1 503 ") && draining.ends_with("draining\n"), "{draining}");
    assert!(get(admin.address(), "/healthz").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_program_says_that_it_is_alive_while_somebody_waits_for_its_figures() {
    let ((begun, begins), (go, wait)) = (channel::<()>(), channel::<()>());
    let wait = Mutex::new(wait);
    let lost_records = move || -> (u64, u64) {
        begun.send(()).unwrap();
        // Until the test lets it go.
        let _ = wait.lock().unwrap().recv_timeout(2 * PATIENCE);
        (0, 0)
    };
    let slow = View::new(Telemetry::new(2), 2, Box::new(lost_records));
    let (view, _reconciler) = running_with(slow, SITE);
    let admin = start(&view, Bounds::default());
    let address = admin.address().clone();
    let asking = std::thread::spawn(move || get(&address, "/metrics"));
    begins.recv_timeout(PATIENCE).unwrap();
    for path in ["/healthz", "/readyz", "/api/status"] {
        assert!(get(admin.address(), path).starts_with("HTTP/1.1 200 "), "{path}");
    }
    drop(go);
    assert!(asking.join().unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_status_tells_what_runs() {
    let (view, _reconciler) = running(SITE);
    view.set_addresses(vec![("web".into(), "127.0.0.1:4711".parse().unwrap())]);
    let admin = start(&view, Bounds::default());
    let answer = get(admin.address(), "/api/status");
    let status: Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!(status["state"], "ready");
    assert_eq!((&status["generation"], &status["workers"]), (&1.into(), &2.into()));
    assert_eq!(status["generations"][0]["origin"], "start");
    assert_eq!(status["listeners"][0]["address"], "127.0.0.1:4711");
    let endpoints = &status["clusters"][0]["endpoints"];
    assert_eq!((&endpoints[1]["name"], &endpoints[1]["weight"]), (&"127.0.0.1:9002".into(), &2.into()));
    assert_eq!((&endpoints[0]["up"], &endpoints[0]["health"]), (&true.into(), &"unchecked".into()));
    assert_eq!(status["latency_ms"]["p50"], Value::Null);
}

#[test]
fn every_field_that_the_page_reads_is_there() {
    let (view, _reconciler) = running(SITE);
    let status = json::status(&view.status(), VERSION);
    let objects = [
        ("status", &status),
        ("listener", &status["listeners"][0]),
        ("cluster", &status["clusters"][0]),
        ("endpoint", &status["clusters"][0]["endpoints"][0]),
        ("entry", &status["generations"][0]),
        ("latency_ms", &status["latency_ms"]),
    ];
    let script = PAGE.split_once("<script>").unwrap().1;
    let mut looked = 0;
    for (variable, object) in objects {
        for use_of in script.split(&format!("{variable}.")).skip(1) {
            let field: String = use_of.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            assert!(object.get(&field).is_some(), "the page reads {variable}.{field}");
            looked += 1;
        }
    }
    assert!(looked > 30, "{looked}");
}

#[test]
fn the_configuration_in_force_and_the_metrics_are_told() {
    let (view, _reconciler) = running(SITE);
    let admin = start(&view, Bounds::default());
    let config: Value = serde_json::from_str(body(&get(admin.address(), "/api/config"))).unwrap();
    assert_eq!(config["clusters"]["site"]["balance"], "round_robin");
    let metrics = get(admin.address(), "/metrics");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    for wanted in [
        "equipoise_generation 1\n",
        "equipoise_endpoint_up{cluster=\"site\",endpoint=\"127.0.0.1:9001\"} 1\n",
        "equipoise_endpoint_weight{cluster=\"site\",endpoint=\"127.0.0.1:9002\"} 2\n",
        &format!("equipoise_build_info{{version=\"{VERSION}\"}} 1\n"),
    ] {
        assert!(metrics.contains(wanted), "{wanted} in {metrics}");
    }
}

#[test]
fn the_page_stands_alone_and_may_load_nothing_foreign() {
    let admin = start(&view(), Bounds::default());
    let answer = get(admin.address(), "/");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("content-security-policy: default-src 'none'"));
    let page = body(&answer);
    let foreign = page.replace("http://www.w3.org/2000/svg", "").replace("xmlns='http://www.w3.org/2000/svg'", "");
    assert!(!foreign.contains("http://") && !foreign.contains("https://") && !foreign.contains("innerHTML"));
    let asked: Vec<_> = page.split("fetch(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(asked, ["/api/status"], "only the public API");
}

#[test]
fn a_foreign_host_is_refused_on_every_path() {
    let (view, _reconciler) = running(SITE);
    let admin = start(&view, Bounds::default());
    let port = admin.address().port().unwrap();
    for path in ["/", "/metrics", "/api/status", "/api/config", "/healthz", "/nothing"] {
        for host in [format!("rebound.example:{port}"), "10.0.0.1".into(), String::new()] {
            let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            let answer = converse(admin.address(), &request);
            assert!(answer.starts_with("HTTP/1.1 421 "), "{path} {host}: {answer}");
            assert!(!answer.contains("site"), "{answer}");
        }
    }
    let absolute = "GET http://rebound.example/api/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(converse(admin.address(), absolute).starts_with("HTTP/1.1 421 "));
    let none = "GET /api/status HTTP/1.1\r\nconnection: close\r\n\r\n";
    assert!(converse(admin.address(), none).starts_with("HTTP/1.1 400 "));
    let two = "GET /api/status HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(converse(admin.address(), two).starts_with("HTTP/1.1 400 "));
    let local = format!("GET /api/status HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\r\n");
    assert!(converse(admin.address(), &local).starts_with("HTTP/1.1 200 "));
}

#[test]
fn other_methods_are_told_which_there_are() {
    let admin = start(&view(), Bounds::default());
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let request = format!(
            "{method} /api/status HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let answer = converse(admin.address(), &request);
        assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET, HEAD\r\n"), "{method}: {answer}");
        assert!(body(&answer).contains("it knows GET, HEAD"), "{answer}");
    }
    let patch = "PATCH /api/config HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let answer = converse(admin.address(), patch);
    let allow = answer.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap_or_else(|| panic!("{answer}"));
    assert!(["GET", "PUT", "DELETE"].iter().all(|method| allow.contains(method)), "{allow}");
    let head = converse(admin.address(), "HEAD /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && body(&head).is_empty(), "{head}");
    assert!(get(admin.address(), "/api").starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_request_that_drips_is_closed_however_busy_it_looks() {
    let bounds = Bounds { idle: Duration::from_millis(150), ..Bounds::default() };
    let admin = start(&view(), bounds);
    let mut stream = connect(admin.address());
    let begun = Instant::now();
    let closed = loop {
        assert!(begun.elapsed() < PATIENCE, "still open");
        if stream.write_all(b"G").is_err() {
            break true;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(closed);
}

#[test]
fn a_silent_connection_gives_its_place_to_the_next() {
    let admin = start(&view(), Bounds { connections_max: 2, ..Bounds::default() });
    let mut silent: Vec<_> = (0..5).map(|_| connect(admin.address())).collect();
    assert!(get(admin.address(), "/healthz").starts_with("HTTP/1.1 200 "));
    // The oldest were closed, long before their time was over.
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn an_answer_that_nobody_takes_is_given_up() {
    let bounds = Bounds { idle: Duration::from_millis(200), ..Bounds::default() };
    let admin = start(&view(), bounds);
    let mut stream = connect(admin.address());
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(64);
    let begun = Instant::now();
    // Answers pile up until the buffers of the kernel are full; then our side is closed although we go on asking.
    let reset = loop {
        assert!(begun.elapsed() < PATIENCE, "still open");
        match stream.write_all(&request) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => break true,
        }
    };
    assert!(reset);
}

#[test]
fn a_taken_address_is_an_error_and_a_dropped_listener_frees_it() {
    let admin = start(&view(), Bounds::default());
    let address = admin.address().clone();
    assert_eq!(Bound::bind(&address, 0).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(admin);
    assert!(Bound::bind(&address, 0).is_ok());
}

#[test]
fn a_request_is_explained_and_a_question_that_cannot_be_read_is_refused() {
    let (view, _reconciler) = running(SITE);
    let admin = start(&view, Bounds::default());
    let answer = get(admin.address(), "/api/explain?request=GET%20http://a.example/x");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let told: Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!((told["generation"].as_u64(), told["request"].as_str()), (Some(1), Some("GET http://a.example/x")));
    let cluster = &told["outcome"]["forward"][0];
    assert_eq!((cluster["name"].as_str(), cluster["endpoints"][1]["weight"].as_u64()), (Some("site"), Some(2)));
    let answer = get(admin.address(), "/api/explain?request=GET%20ftp://a");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(body(&answer), "the scheme `ftp` is none of http, https, ws, wss and tcp\n");
    let nothing = start(&self::view(), Bounds::default());
    assert!(get(nothing.address(), "/api/explain?request=http://a/").starts_with("HTTP/1.1 503 "));
}

#[test]
fn the_document_tells_every_call_and_nothing_else() {
    let (view, _reconciler) = running(SITE);
    let admin = start(&view, Bounds::default());
    let told: Value = serde_json::from_str(body(&get(admin.address(), "/api/openapi.json"))).unwrap();
    assert_eq!(told["openapi"], "3.1.0");
    let mut count = 0;
    let mut ids = std::collections::HashSet::new();
    for (path, calls) in told["paths"].as_object().unwrap() {
        let real = path
            .replace("{kind}", "clusters")
            .replace("{generation}", "1")
            .replace("{connection}", "1")
            .replace(['{', '}'], "");
        for (method, call) in calls.as_object().unwrap() {
            count += 1;
            assert!(ids.insert(call["operationId"].as_str().unwrap().to_owned()), "{path}");
            let held = path.matches('{').count();
            let named =
                call["parameters"].as_array().map_or(0, |all| all.iter().filter(|one| one["in"] == "path").count());
            assert_eq!(named, held, "{path}");
            let request = format!(
                "{} {real} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                method.to_uppercase()
            );
            let answer = converse(admin.address(), &request);
            // Without the field that foreign pages cannot send, nothing is carried out.
            let wanted: &[&str] = if method == "get" { &["200", "404", "400"] } else { &["403"] };
            let status = answer.split(' ').nth(1).unwrap();
            assert!(wanted.contains(&status), "{method} {real}: {answer}");
            assert!(!answer.contains("there is no `/"), "{answer}");
        }
    }
    assert_eq!(count, table::CALLS.len());
}

#[test]
fn one_object_and_one_endpoint_can_be_looked_at() {
    let (view, _reconciler) = running(SITE);
    let admin = start(&view, Bounds::default());
    let json = |path: &str| -> Value { serde_json::from_str(body(&get(admin.address(), path))).unwrap() };
    assert_eq!(json("/api/config/clusters/site")["balance"], "round_robin");
    assert_eq!(json("/api/config/clusters/site?as=written").as_object().unwrap().len(), 1);
    assert_eq!(json("/api/config/routes/route-1?as=written"), serde_json::json!({ "cluster": "site" }));
    assert_eq!(json("/api/config/listeners").as_object().unwrap().len(), 1);
    assert_eq!(json("/api/clusters/site/endpoints/127.0.0.1%3A9002")["weight"], 2);
    assert_eq!(json("/api/clusters/site/endpoints")["endpoints"].as_array().unwrap().len(), 2);
    assert_eq!(json("/api/generations/1")["origin"], "start");
    for (path, message, suggestion) in [
        ("/api/config/clusters/sites", "there is no cluster `sites`", "did you mean `site`?"),
        ("/api/config/cluster/site", "there is no kind of objects called `cluster`", "did you mean `clusters`?"),
        (
            "/api/clusters/site/endpoints/127.0.0.1:9003",
            "the cluster `site` has no endpoint `127.0.0.1:9003`",
            "did you mean",
        ),
        ("/api/statuss", "there is no `/api/statuss`", "did you mean `/api/status`?"),
        ("/api/generations/9", "generation 9 is not in the history", ""),
        ("/api/generations/x", "`x` is not the number of a generation", ""),
    ] {
        let answer = get(admin.address(), path);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        let told = json(path);
        assert_eq!(told["message"], message);
        assert!(told["suggestion"].as_str().unwrap_or_default().starts_with(suggestion), "{told}");
    }
    assert!(get(admin.address(), "/api/config").contains("\r\netag: \""));
    assert!(get(admin.address(), "/api/config?as=yaml").starts_with("HTTP/1.1 400 "));
}
