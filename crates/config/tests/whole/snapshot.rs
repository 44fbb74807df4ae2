//! Files without mistakes, and what they come to.

use std::path::Path;
use std::time::Duration;

use model::Issue;
use model::check::{BodyTest, CheckStep, GrpcCheck, HttpCheck, JsonMatch, JsonTest, ResponseTests, ScriptStep};
use model::fitness::AdminState;
use model::limits;
use model::matching::{PathMatch, ValueMatch, ValueTest};
use model::snapshot::{
    Action, Balance, ClientAuth, HealthCheckKind, LogFormat, LogTarget, Protocol, SyslogStyle, TcpTarget, TlsVersion,
};
use serde_json::json;

use crate::support::{LOADER, load, messages, set_certs, write_certificates};

#[test]
fn what_is_left_out_has_the_defaults_of_the_limits() {
    let text = "version: 1
listeners: { web: { bind: '127.0.0.1:0' } }
routes: [{ cluster: a }]
clusters: { a: { endpoints: ['127.0.0.1:1'] } }
";
    let snapshot = load(text).unwrap().snapshot;
    let listener = &snapshot.listeners[0];
    assert_eq!((listener.name.as_str(), listener.connections_max), ("web", limits::CONNECTIONS_MAX));
    let Protocol::Http(http) = &listener.protocol else { panic!("not HTTP") };
    assert_eq!((http.head_bytes_max, http.fields_max), (limits::HEAD_BYTES_MAX, limits::FIELDS_MAX));
    assert_eq!((http.head_timeout, http.idle_timeout), (limits::REQUEST_HEAD, limits::KEEP_ALIVE));
    assert_eq!(http.stream_timeout, limits::STREAM_IDLE);
    assert_eq!(http.request_id.as_deref(), Some("x-request-id"));
    assert!(http.forwarding.x_forwarded && !http.forwarding.forwarded && http.forwarding.trusted.is_empty());
    let cluster = &snapshot.clusters[0];
    assert_eq!((&cluster.balance, cluster.endpoints[0].weight), (&Balance::RoundRobin, 1));
    assert_eq!(
        (cluster.pool.idle_max, cluster.pool.idle_timeout),
        (limits::IDLE_UPSTREAM_CONNECTIONS_MAX, limits::UPSTREAM_IDLE)
    );
    assert_eq!((cluster.timeouts.connect, cluster.timeouts.response_head), (limits::CONNECT, limits::RESPONSE_HEAD));
    assert_eq!((snapshot.routes[0].name.as_str(), snapshot.routes[0].priority), ("route-1", 0));
    assert_eq!((snapshot.drain_timeout, snapshot.admin.clone()), (limits::DRAIN, None));
}

#[test]
fn routes_say_what_they_ask_and_do() {
    let text = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:0" } }
routes:
  - name: all
    listeners: [web]
    match:
      host: [Shop.Example.com, "*.example.org"]
      path: { prefix: /api }
      method: GET
      headers: { x-a: "1", x-b: { regex: "[0-9]+" }, x-c: { present: true }, x-d: { absent: true } }
      query: { q: { exact: "" } }
      cookies: { Session: { present: true } }
      source: [10.0.0.0/8, "::1"]
    priority: -5
    filters: [{ set_request_header: { x-z: "1", x-a: "2" } }, { remove_response_header: [server] }]
    timeout: 1m30s
    clusters: [{ cluster: a, weight: 9 }, { cluster: b, weight: 0 }]
  - redirect: { scheme: https, port: 8443, path: "/new{path}" }
  - respond: { status: 503, headers: { retry-after: "5" }, body: "later\n" }
clusters:
  b: { endpoints: ["[::1]:2"] }
  a: { endpoints: ["app.internal:80"] }
"#;
    let snapshot = load(text).unwrap().snapshot;
    let names: Vec<&str> = snapshot.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(names, ["b", "a"], "the order of the file");
    assert_eq!(snapshot.clusters[1].endpoints[0].name.as_str(), "app.internal:80");
    assert_eq!(snapshot.clusters[1].endpoints[0].address.to_string(), "10.0.0.1:80");
    let route = &snapshot.routes[0];
    assert_eq!(route.matches.hosts[0].to_string(), "shop.example.com");
    assert_eq!(route.matches.path, Some(PathMatch::Prefix("/api".into())));
    assert_eq!(route.matches.headers[1].test, ValueTest::Regex("[0-9]+".into()));
    assert_eq!(route.matches.headers[3].test, ValueTest::Absent);
    assert_eq!(route.matches.cookies[0].name, "Session");
    assert_eq!((route.matches.sources.len(), route.priority), (2, -5));
    assert_eq!(route.timeout, Some(Duration::from_secs(90)));
    assert_eq!(route.filters[0].name, "set_request_header");
    assert_eq!(route.filters[0].settings.to_string(), r#"{"x-z":"1","x-a":"2"}"#, "in the order of the file");
    let Action::Weighted(parts) = &route.action else { panic!("not weighted") };
    assert_eq!((parts[0].1, parts[1].1), (9, 0));
    let Action::Redirect(redirect) = &snapshot.routes[1].action else { panic!("not a redirect") };
    assert_eq!((redirect.status, redirect.port), (302, Some(8443)));
    let Action::Respond(respond) = &snapshot.routes[2].action else { panic!("not an answer") };
    assert_eq!((respond.status, respond.body.as_slice()), (503, b"later\n".as_slice()));
    assert_eq!(respond.fields, [("retry-after".to_owned(), "5".to_owned())]);
}

#[test]
fn clusters_logs_and_tcp_listeners_take_all_their_settings() {
    let text = r#"
version: 1
listeners:
  db: { bind: "127.0.0.1:0", protocol: tcp, cluster: a, idle_timeout: 1h }
  sni: { bind: "127.0.0.1:0", protocol: tcp, sni: { alpn: [{ protocols: h2, names: "*.a.example", cluster: a }], names: { "*.a.example": a }, otherwise: a, hello_timeout: 2s } }
  quiet: { bind: "127.0.0.1:0", request_id: false, head_bytes_max: 8KiB, timeouts: { idle: 30s } }
clusters:
  a:
    endpoints: [{ address: "127.0.0.1:1", weight: 2, connections_max: 100 }, "127.0.0.1:2"]
    balance: least_request
    health_check: { http: { path: /up, host: a.example, statuses: [200, "300-399", 204-206] }, interval: 500ms, rise: 1 }
    queue: { requests_max: 10 }
    tls: { server_name: a.example, verify: false }
    pool: { idle_max: 0 }
    timeouts: { connect: 1s }
access_logs: [{ stdout: true, format: json }, { path: logs/access.log, line: "{status}" }, { syslog: { to: "udp:127.0.0.1:514", facility: local7, severity: notice } }]
shutdown: { drain_timeout: 5s }
admin: { bind: "0.0.0.0:9000", allow_remote: true }
"#;
    let snapshot = load(text).unwrap().snapshot;
    let Protocol::Tcp(tcp) = &snapshot.listeners[0].protocol else { panic!("not TCP") };
    assert_eq!(tcp.idle_timeout, Duration::from_secs(3_600));
    let Protocol::Tcp(tcp) = &snapshot.listeners[1].protocol else { panic!("not TCP") };
    let TcpTarget::Sni { alpn, names, otherwise, hello_timeout } = &tcp.target else { panic!("not by name") };
    assert_eq!((alpn[0].protocols[0].as_str(), alpn[0].names.len(), alpn[0].cluster.as_str()), ("h2", 1, "a"));
    assert_eq!((names.len(), otherwise.is_some(), *hello_timeout), (1, true, Duration::from_secs(2)));
    let Protocol::Http(http) = &snapshot.listeners[2].protocol else { panic!("not HTTP") };
    assert_eq!((http.request_id.clone(), http.head_bytes_max), (None, 8_192));
    assert_eq!((http.idle_timeout, http.head_timeout), (Duration::from_secs(30), limits::REQUEST_HEAD));
    let cluster = &snapshot.clusters[0];
    assert_eq!((cluster.endpoints[0].weight, cluster.endpoints[0].connections_max), (2, Some(100)));
    let check = cluster.health_check.as_ref().unwrap();
    let HealthCheckKind::Http(http) = &check.steps[0].kind else { panic!("not HTTP") };
    assert_eq!(http.wanted.statuses, [(200, 200), (300, 399), (204, 206)]);
    assert_eq!((check.interval_down, check.interval_changing, check.held_out), (check.interval, check.interval, false));
    assert_eq!((check.interval, check.rise, check.fall), (Duration::from_millis(500), 1, 3));
    assert_eq!(cluster.queue.as_ref().unwrap().timeout, Duration::from_secs(5));
    assert!(!cluster.tls.as_ref().unwrap().verify);
    assert_eq!((cluster.pool.idle_max, cluster.timeouts.connect), (0, Duration::from_secs(1)));
    assert_eq!(snapshot.access_logs[0].format, LogFormat::Json);
    assert_eq!(snapshot.access_logs[1].target, LogTarget::File("/nowhere/logs/access.log".into()));
    let LogTarget::Syslog(syslog) = &snapshot.access_logs[2].target else { panic!("{:?}", snapshot.access_logs[2]) };
    assert_eq!(
        (syslog.to.to_string().as_str(), syslog.priority, syslog.tag.as_str()),
        ("udp:127.0.0.1:514", 189, "equipoise")
    );
    assert_eq!(syslog.style, SyslogStyle::Rfc5424);
    assert_eq!(snapshot.drain_timeout, Duration::from_secs(5));
    assert_eq!(snapshot.admin.as_ref().unwrap().bind.to_string(), "0.0.0.0:9000");
}

#[test]
fn passive_health_takes_its_settings_and_has_defaults() {
    let text = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:0", protocol: tcp, cluster: a } }
clusters:
  a: { endpoints: ["127.0.0.1:1"], passive_health: {} }
  b:
    endpoints: ["127.0.0.1:1"]
    passive_health:
      consecutive_failures: 0
      consecutive_5xx: 7
      failure_rate: { max: 20% }
      success_rate: { deviations: 2.5, endpoints_min: 3 }
      latency: { factor: 4 }
      interval: 1s
      ejection_time: 2s
      ejection_time_max: 2s
      ejected_max: 10%
  c:
    endpoints: ["127.0.0.1:1", { address: "127.0.0.1:2", state: drain }]
    panic_threshold: 40%
    slow_start: 30s
"#;
    let snapshot = load(text).unwrap().snapshot;
    let passive = |index: usize| snapshot.clusters[index].fitness.passive.as_ref();
    let defaults = passive(0).unwrap();
    assert_eq!(
        (defaults.consecutive_failures, defaults.consecutive_5xx, defaults.has_windows()),
        (Some(5), None, false)
    );
    assert_eq!((defaults.ejection_time, defaults.ejected_percent_max), (Duration::from_secs(30), 50));
    let given = passive(1).unwrap();
    assert_eq!((given.consecutive_failures, given.consecutive_5xx), (None, Some(7)));
    assert_eq!(given.failure_rate.as_ref().map(|rate| (rate.percent_max, rate.requests_min)), Some((20, 50)));
    let rate = given.success_rate.as_ref().unwrap();
    assert_eq!((rate.deviations, rate.enough_percent, rate.endpoints_min), (2.5, 95, 3));
    assert_eq!(given.latency.as_ref().map(|rule| (rule.factor, rule.enough)), Some((4.0, Duration::from_millis(100))));
    assert_eq!((given.ejection_time_max, given.ejected_percent_max), (Duration::from_secs(2), 10));
    let cluster = &snapshot.clusters[2];
    assert!(passive(2).is_none());
    assert_eq!((cluster.fitness.panic_percent, cluster.fitness.slow_start), (40, Some(Duration::from_secs(30))));
    assert_eq!(snapshot.clusters[0].fitness.panic_percent, 0);
    assert_eq!([0, 1].map(|index: usize| cluster.endpoints[index].state), [AdminState::Auto, AdminState::Drain]);
}

#[test]
fn checks_take_all_their_settings() {
    let text = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:0", protocol: tcp, cluster: a } }
clusters:
  a:
    endpoints: ["127.0.0.1:1"]
    health_check:
      http: { method: HEAD, headers: { X-Probe: "1" }, expect_headers: { x-role: primary } }
      port: 8081
      interval: 10s
      interval_down: 1s
      interval_changing: 500ms
      jitter: 10%
      start: held_out
      reuse_connection: true
  b:
    endpoints: ["127.0.0.1:1"]
    health_check: { script: [{ send: "PING\r\n" }, { expect: "+PONG" }, { send_hex: "51 0d0A" }, { expect_hex: "00ff" }] }
  c: { endpoints: ["127.0.0.1:1"], health_check: { tls: { server_name: a.example, verify: false } } }
  d: { endpoints: ["127.0.0.1:1"], health_check: { grpc: {} } }
  e: { endpoints: ["127.0.0.1:1"], health_check: { grpc: { service: shop.Basket, host: "a.example:1", headers: { A: b } } } }
"#;
    let snapshot = load(text).unwrap().snapshot;
    let check = |index: usize| snapshot.clusters[index].health_check.as_ref().unwrap();
    let kind = |index: usize| &check(index).steps[0].kind;
    let HealthCheckKind::Http(http) = kind(0) else { panic!("not HTTP") };
    let pair = |name: &str, value: &str| [(name.to_owned(), value.to_owned())];
    assert!(http.method == "HEAD" && http.fields == pair("X-Probe", "1"));
    assert_eq!(http.wanted.fields, [field("x-role", ValueTest::Exact("primary".into()))]);
    let seconds = [check(0).interval_down, check(0).interval_changing].map(|time| time.as_millis());
    assert_eq!((seconds, check(0).jitter_percent, check(0).steps[0].port), ([1_000, 500], 10, Some(8081)));
    assert!(check(0).held_out && check(0).reuses_connection);
    let steps = [
        ScriptStep::Send(b"PING\r\n".to_vec()),
        ScriptStep::Expect(b"+PONG".to_vec()),
        ScriptStep::Send(b"Q\r\n".to_vec()),
        ScriptStep::Expect(vec![0, 255]),
    ];
    assert_eq!(*kind(1), HealthCheckKind::Script(steps.to_vec()));
    let HealthCheckKind::Tls(tls) = kind(2) else { panic!("not TLS") };
    assert_eq!((tls.server_name.as_deref(), tls.verify), (Some("a.example"), false));
    assert_eq!(*kind(3), HealthCheckKind::Grpc(GrpcCheck::default()));
    let asked =
        GrpcCheck { name: "shop.Basket".into(), host: Some("a.example:1".into()), fields: pair("A", "b").to_vec() };
    assert_eq!(*kind(4), HealthCheckKind::Grpc(asked));
}

fn field(name: &str, test: ValueTest) -> ValueMatch {
    ValueMatch { name: name.into(), test }
}

#[test]
fn checks_over_http_take_a_request_and_conditions_on_its_response() {
    let text = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:0", protocol: tcp, cluster: a } }
clusters:
  a:
    endpoints: ["127.0.0.1:1"]
    health_check:
      http:
        method: POST
        path: /login
        headers: { Host: "shop.example:81", content-type: application/json }
        body: '{"user":"probe"}'
        expect_headers: { x-a: b, x-b: { regex: "v[0-9]+" }, x-c: { present: true }, x-d: { absent: true } }
        expect_body: [ok, { contains: fine }, { regex: "^a" }]
        expect_json:
          - { path: .status, equals: ok }
          - { path: ".n[0]", equals: 1.5 }
          - { path: .up, equals: true }
          - { path: .version, regex: "1\\..*" }
          - { path: .a, present: true }
          - { path: .b, absent: true }
        not: { statuses: [503, "520-529"], headers: { x-e: f }, body: error, json: { path: .c, equals: down } }
        response_bytes_max: 1MiB
  b: { endpoints: ["127.0.0.1:1"], health_check: { http: {} } }
"#;
    let snapshot = load(text).unwrap().snapshot;
    let check = |index: usize| match &snapshot.clusters[index].health_check.as_ref().unwrap().steps[0].kind {
        HealthCheckKind::Http(http) => http.clone(),
        other => panic!("{other:?}"),
    };
    let json = |path: &str, test: JsonTest| JsonMatch { path: path.into(), test };
    let fields = [
        field("x-a", ValueTest::Exact("b".into())),
        field("x-b", ValueTest::Regex("v[0-9]+".into())),
        field("x-c", ValueTest::Present),
        field("x-d", ValueTest::Absent),
    ];
    let wanted = ResponseTests {
        statuses: vec![(100, 599)],
        fields: fields.to_vec(),
        body: vec![BodyTest::Contains("ok".into()), BodyTest::Contains("fine".into()), BodyTest::Regex("^a".into())],
        json: vec![
            json(".status", JsonTest::Equals("ok".into())),
            json(".n[0]", JsonTest::Equals(1.5.into())),
            json(".up", JsonTest::Equals(true.into())),
            json(".version", JsonTest::Regex(r"1\..*".into())),
            json(".a", JsonTest::Present),
            json(".b", JsonTest::Absent),
        ],
    };
    let refused = ResponseTests {
        statuses: vec![(503, 503), (520, 529)],
        fields: vec![field("x-e", ValueTest::Exact("f".into()))],
        body: vec![BodyTest::Contains("error".into())],
        json: vec![json(".c", JsonTest::Equals("down".into()))],
    };
    let all = HttpCheck {
        method: "POST".into(),
        path: "/login".into(),
        host: Some("shop.example:81".into()),
        fields: vec![("content-type".into(), "application/json".into())],
        body: b"{\"user\":\"probe\"}"[..].into(),
        wanted,
        refused,
        response_bytes_max: 1 << 20,
    };
    assert_eq!(check(0), all);
    assert_eq!(check(1), HttpCheck::get("/"));
}

#[test]
fn steps_of_a_check_have_ports_and_times_of_their_own() {
    let text = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:0", protocol: tcp, cluster: a } }
clusters:
  a:
    endpoints: ["127.0.0.1:1"]
    health_check:
      steps:
        - { http: { path: /live } }
        - { tcp: {}, port: 9100, timeout: 500ms }
        - { grpc: { service: shop }, port: 9200 }
      port: 9000
      timeout: 3s
"#;
    let snapshot = load(text).unwrap().snapshot;
    let check = snapshot.clusters[0].health_check.as_ref().unwrap();
    let step = |kind, port| CheckStep { kind, port: Some(port), timeout: None };
    let grpc = GrpcCheck { name: "shop".into(), ..GrpcCheck::default() };
    let steps = [
        step(HealthCheckKind::Http(HttpCheck::get("/live")), 9000),
        CheckStep { timeout: Some(Duration::from_millis(500)), ..step(HealthCheckKind::Tcp, 9100) },
        step(HealthCheckKind::Grpc(grpc), 9200),
    ];
    assert_eq!((check.steps.as_slice(), check.is_listed, check.timeout), (&steps[..], true, Duration::from_secs(3)));
}

const TLS: &str = r#"
version: 1
listeners:
  secure:
    bind: "127.0.0.1:0"
    tls:
      certificates: [{ chain: "${CERTS}/site.pem", key: "${CERTS}/site.key" }]
      version_min: "1.3"
      client: { mode: required, authorities: "${CERTS}/site.pem", identity_header: X-Client }
clusters:
  a: { endpoints: ["127.0.0.1:1"], tls: { authorities: "${CERTS}/ca.pem" } }
  b: { endpoints: ["127.0.0.1:1"], tls: true }
  c: { endpoints: ["127.0.0.1:1"], tls: false }
"#;

#[test]
fn certificates_are_read_once_and_read_again_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    set_certs(folder.path());
    write_certificates(folder.path(), &["site", "ca"]);
    let loaded = load(TLS).unwrap();
    let tls = loaded.snapshot.listeners[0].tls.as_ref().unwrap();
    assert_eq!(tls.version_min, TlsVersion::Tls13);
    let ClientAuth::Required(trust) = &tls.client else { panic!("not required") };
    assert_eq!(trust.identity_header.as_deref(), Some("x-client"));
    assert_eq!(trust.authorities, tls.certificates[0].chain);
    let upstream: Vec<bool> = loaded.snapshot.clusters.iter().map(|cluster| cluster.tls.is_some()).collect();
    assert_eq!(upstream, [true, true, false]);
    let named: Vec<_> = ["site.pem", "site.key", "ca.pem"].iter().map(|name| folder.path().join(name)).collect();
    assert_eq!(loaded.referenced_files(), named);

    let same = LOADER.reload_files(&loaded).unwrap();
    assert_eq!(same.snapshot, loaded.snapshot);
    write_certificates(folder.path(), &["site"]);
    let renewed = LOADER.reload_files(&loaded).unwrap();
    assert_ne!(renewed.snapshot.listeners[0], loaded.snapshot.listeners[0]);
    assert_eq!(renewed.snapshot.clusters, loaded.snapshot.clusters);
    std::fs::remove_file(folder.path().join("ca.pem")).unwrap();
    let told = LOADER.reload_files(&loaded).unwrap_err().to_string();
    assert!(told.contains("site.yaml:11:"), "{told}");
}

#[test]
fn wrong_files_are_told_at_the_line_that_names_them() {
    let folder = tempfile::tempdir().unwrap();
    set_certs(folder.path());
    write_certificates(folder.path(), &["site"]);
    std::fs::rename(folder.path().join("site.key"), folder.path().join("x")).unwrap();
    std::fs::rename(folder.path().join("site.pem"), folder.path().join("site.key")).unwrap();
    std::fs::rename(folder.path().join("x"), folder.path().join("site.pem")).unwrap();
    std::fs::write(folder.path().join("ca.pem"), "no PEM").unwrap();
    let place = folder.path().display();
    let told: Vec<String> = messages(TLS).iter().map(|line| line.replace(&place.to_string(), "C")).collect();
    assert_eq!(
        told,
        [
            "7: `C/site.pem`: it holds a private key, but no certificate (are `chain` and `key` mixed up?)",
            "7: `C/site.key`: it holds a certificate, but no private key (are `chain` and `key` mixed up?)",
            "9: `C/site.pem`: it holds a private key, but no certificate (are `chain` and `key` mixed up?)",
            "11: `C/ca.pem`: it is not PEM: no `-----BEGIN …-----` in it",
        ]
    );
}

#[test]
fn later_issues_are_shown_at_their_lines() {
    let text = "version: 1
listeners: { web: { bind: '127.0.0.1:0' } }
routes:
  - match: { path: { regex: '.' }, headers: { 'x-a': { regex: 'b' } } }
    filters:
      - set_request_header:
          x-shop: '{nope}'
    respond: {}
";
    let loaded = load(text).unwrap();
    let at = |path: &str| {
        let shown = loaded.diagnose(&Issue::at(path, "wrong").suggest("mend it"));
        (shown.line, shown.column)
    };
    assert_eq!(at("routes/0/match/path/regex"), (4, 29));
    assert_eq!(at("routes/0/match/headers/x-a/regex"), (4, 63));
    assert_eq!(at("routes/0/filters/0/set_request_header/x-shop"), (7, 19));
    assert_eq!(at("routes/0/filters/0/set_request_header/x-shop/deeper/3"), (7, 19));
    assert_eq!(at("routes/0/filters/0"), (6, 9));
    assert_eq!(at("routes/7"), (3, 1));
    assert_eq!(at("nowhere"), (1, 1));
    let shown = loaded.diagnose(&Issue::at("routes/0/match/path/regex", "wrong").suggest("mend it")).to_string();
    assert!(shown.starts_with("site.yaml:4:29: wrong\n   4 |   - match: { path: { regex: '.' }"), "{shown}");
}

#[test]
fn the_effective_configuration_has_defaults_and_no_secrets() {
    let text = r#"
version: 1
listeners:
  web: { bind: "127.0.0.1:${PORT}", connections_max: ${PORT} }
  raw: { bind: "127.0.0.1:0", protocol: tcp, cluster: a }
routes:
  - filters:
      - set_request_header: { x-token: "Bearer ${TOKEN}", authorization: plain }
      - basic_auth: { realm: "${TOKEN}", users: { ann: "$2y$10$hash" } }
    match: { headers: { cookie: a=b } }
    cluster: a
clusters: { a: { endpoints: ["localhost:80"] } }
"#
    .replace("${PORT} }", "'x' }");
    assert_eq!(messages(&text).len(), 1, "a quoted number is text");
    let text = text.replace("connections_max: 'x'", "connections_max: 7");
    let loaded = load(&text).unwrap();
    assert_eq!(loaded.snapshot.listeners[0].bind.to_string(), "127.0.0.1:8443");
    let shown = loaded.effective();
    let printed = shown.to_string();
    assert!(!printed.contains("s3cret") && !printed.contains("hash") && !printed.contains("plain"), "{printed}");
    assert_eq!(shown["listeners"]["web"]["bind"], "127.0.0.1:${PORT}");
    assert_eq!(shown["listeners"]["web"]["timeouts"], json!({ "head": "10s", "idle": "1m15s", "stream": "5m" }));
    assert_eq!(shown["listeners"]["web"].get("idle_timeout"), None);
    assert_eq!(shown["listeners"]["raw"].get("timeouts"), None);
    assert_eq!(shown["listeners"]["raw"]["idle_timeout"], "5m");
    assert_eq!(shown["routes"][0]["name"], "route-1");
    assert_eq!(shown["routes"][0]["filters"][0]["set_request_header"]["x-token"], "Bearer ${TOKEN}");
    assert_eq!(shown["routes"][0]["filters"][0]["set_request_header"]["authorization"], "(hidden)");
    assert_eq!(shown["routes"][0]["filters"][1]["basic_auth"]["users"], "(hidden)");
    assert_eq!(shown["routes"][0]["match"]["headers"]["cookie"], "(hidden)");
    assert_eq!(shown["clusters"]["a"]["balance"], "round_robin");
    assert_eq!(shown["shutdown"]["drain_timeout"], "30s");
}

#[test]
fn a_number_may_come_from_the_environment() {
    let text = "version: 1
listeners:
  web:
    bind: 127.0.0.1:0
    connections_max: ${PORT}
    fields_max: ${NONE:-64}
    request_id: \"${NONE:-x-id}\"
";
    let snapshot = load(text).unwrap().snapshot;
    assert_eq!(snapshot.listeners[0].connections_max, 8443);
    let Protocol::Http(http) = &snapshot.listeners[0].protocol else { panic!("not HTTP") };
    assert_eq!((http.fields_max, http.request_id.as_deref()), (64, Some("x-id")));
}

#[test]
fn json_is_accepted_and_so_are_aliases() {
    let text = "{\"version\": 1,\n \"clusters\": {\"a\": {\"endpoints\": [\"127.0.0.1:1\"], \"tls\": null}}}";
    assert_eq!(
        messages(text),
        [
            "2: `tls` is empty, but must be `true` or `false` or a map (give a value, or leave the key out for the default)"
        ]
    );
    assert_eq!(load(&text.replace(", \"tls\": null", "")).unwrap().snapshot.clusters.len(), 1);
    let text = "version: 1
clusters:
  a: { endpoints: &nodes ['127.0.0.1:1'], timeouts: &slow { connect: 9s } }
  b: { endpoints: *nodes, timeouts: *slow }
";
    let snapshot = load(text).unwrap().snapshot;
    assert_eq!(snapshot.clusters[1].endpoints, snapshot.clusters[0].endpoints);
    assert_eq!(snapshot.clusters[1].timeouts.connect, Duration::from_secs(9));
}

#[test]
fn the_example_of_the_design_loads() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path(), &["site"]);
    let text = r#"version: 1
listeners:
  web: { bind: "127.0.0.1:8080" }                      # http is the default protocol
  secure:
    bind: "127.0.0.1:8443"
    http_versions: [h1, h2, h3]
    tls: { certificates: [{ chain: site.pem, key: site.key }] }
  postgres: { bind: "127.0.0.1:5432", protocol: tcp, cluster: database }
routes:
  - match: { host: shop.example.com, path: { prefix: /api } }   # listeners: [secure] limits it to some
    filters: [{ set_request_header: { x-shop: "1" } }]
    cluster: api
  - cluster: site                                       # matches everything
clusters:
  site: { endpoints: ["127.0.0.1:9001", "127.0.0.1:9002"] }
  api:
    balance: least_request
    endpoints:
      - "127.0.0.1:9003"
      - { address: "127.0.0.1:9004", weight: 2, connections_max: 100 }
    health_check: { http: { path: /healthz }, interval: 2s }
    queue: { requests_max: 1000, timeout: 5s }
  database: { endpoints: ["127.0.0.1:5433"] }
admin: { bind: "127.0.0.1:9900" }
"#;
    let loaded = LOADER.load_text("site.yaml", text, folder.path()).unwrap();
    assert_eq!((loaded.snapshot.listeners.len(), loaded.snapshot.clusters.len()), (3, 3));
}

#[test]
fn twenty_thousand_routes_load_within_a_moment() {
    let mut text = String::from("version: 1\nlisteners: { web: { bind: '127.0.0.1:0' } }\nroutes:\n");
    for n in 0..20_000 {
        text.push_str(&format!(
            "  - {{ match: {{ host: h{n}.example, path: {{ prefix: /p{n} }} }}, cluster: c{} }}\n",
            n % 1_000
        ));
    }
    text.push_str("clusters:\n");
    for n in 0..1_000 {
        text.push_str(&format!("  c{n}: {{ endpoints: ['10.0.{}.{}:80'] }}\n", n / 250, n % 250 + 1));
    }
    let begun = std::time::Instant::now();
    let loaded = LOADER.load_text("big.yaml", &text, Path::new("")).unwrap();
    assert_eq!(loaded.snapshot.routes.len(), 20_000);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // All of them wrong: the bound on what is reported is a bound on the time, too.
    let begun = std::time::Instant::now();
    let wrong = LOADER.load_text("big.yaml", &text.replace("cluster: c", "cluster: x"), Path::new("")).unwrap_err();
    assert_eq!((wrong.list.len(), wrong.left_out), (config::DIAGNOSTICS_MAX, 20_000 - config::DIAGNOSTICS_MAX));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
