//! The administrator's address.

use super::harness::{Origin, Peer, Setup};

#[test]
fn the_status_tells_where_everything_really_is() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    product.get("/");
    product.get("/");
    product.expect_metric("equipoise_http_requests_total", &[], 2.0);
    product.expect_metric("equipoise_cluster_requests_total", &[], 2.0);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
    let status = product.api("/api/status");
    assert_eq!((status["state"].as_str(), status["workers"].as_u64()), (Some("ready"), Some(2)));
    assert_eq!((status["generation"].as_u64(), status["requests"].as_u64()), (Some(1), Some(2)));
    assert_eq!(status["pid"].as_u64(), Some(product.pid().into()));
    assert_eq!(status["listeners"][0]["name"], "web");
    assert_eq!(status["listeners"][0]["address"].as_str(), Some(product.web().to_string().as_str()));
    let cluster = &status["clusters"][0];
    assert_eq!((cluster["name"].as_str(), cluster["requests"].as_u64()), (Some("site"), Some(2)));
    let endpoint = &cluster["endpoints"][0];
    assert_eq!(endpoint["address"].as_str(), Some(origin.address().to_string().as_str()));
    assert_eq!((endpoint["up"].as_bool(), endpoint["in_flight"].as_u64()), (Some(true), Some(0)));
}

#[test]
fn probes_of_an_orchestrator_are_answered() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    assert_eq!(product.admin("/healthz").status(), 200);
    assert_eq!(product.admin("/readyz").status(), 200);
    assert_eq!(product.admin("/nothing").status(), 404);
}

#[test]
fn the_effective_configuration_can_be_read_back_and_run() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).cluster("balance: least_request").start();
    let config = product.api("/api/config");
    assert_eq!(config["clusters"]["site"]["balance"], "least_request");
    assert_eq!(config["clusters"]["site"]["timeouts"]["connect"], "5s", "defaults are filled in");
    let again = super::harness::Product::start(&config.to_string());
    assert_eq!(again.get("/").text(), "fine");
}

#[test]
fn the_metrics_are_a_page_that_prometheus_can_read() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    product.get("/");
    product.connect().ask("GET / HTTP/1.1\r\n\r\n");
    let page = product.admin("/metrics");
    assert!(page.field("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    let text = page.text();
    assert!(text.ends_with('\n'));
    let mut known = std::collections::HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(known.insert(rest.split(' ').next().expect("a name").to_owned()), "twice: {line}");
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            let name = series.split('{').next().expect("a name");
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(known.contains(name) || known.contains(base), "no TYPE before {line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert_eq!(series.contains('{'), series.ends_with('}'), "{line}");
        }
    }
    let label = |name: &str, labels: &[&str]| product.metric(name, labels);
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\"", "listener=\"web\""], 1.0);
    product.expect_metric("equipoise_http_requests_total", &["class=\"4xx\""], 1.0);
    product.expect_metric("equipoise_faults_total", &["fault=\"bad_request\"", "source=\"downstream\""], 1.0);
    product.expect_metric("equipoise_cluster_requests_total", &["cluster=\"site\"", "class=\"2xx\""], 1.0);
    product.expect_metric("equipoise_route_requests_total", &["route=\"main\""], 1.0);
    product.expect_metric("equipoise_http_request_seconds_count", &["listener=\"web\""], 1.0);
    product.expect_metric("equipoise_http_request_seconds_bucket", &["listener=\"web\"", "le=\"+Inf\""], 1.0);
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 2.0);
    product.expect_metric("equipoise_workers", &[], 2.0);
    assert!(label("process_resident_memory_bytes", &[]) > 1e6);
    assert!(label("process_cpu_seconds_total", &[]) >= 0.0);
}

#[test]
fn names_of_hosts_and_methods_cannot_grow_the_metrics() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    peer.get("/");
    product.expect_metric("equipoise_endpoint_requests_total", &[], 1.0);
    let lines = product.admin("/metrics").text().lines().count();
    for number in 0..100 {
        peer.ask(format!("M{number} /{number} HTTP/1.1\r\nHost: h{number}\r\nX-{number}: 1\r\n\r\n"));
    }
    product.expect_metric("equipoise_endpoint_requests_total", &[], 101.0);
    assert_eq!(product.admin("/metrics").text().lines().count(), lines);
}

#[test]
fn a_foreign_page_in_a_browser_cannot_use_it() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let ask = |head: &str| {
        let mut peer = Peer::connect(product.address("admin"));
        peer.ask(format!("{head}Connection: close\r\n\r\n"))
    };
    // A name that was pointed at this address (DNS rebinding) is still the foreign page's own.
    assert_eq!(ask("GET /api/config HTTP/1.1\r\nHost: evil.example\r\n").status(), 421);
    let address = product.address("admin");
    let own = ask(&format!("GET /api/config HTTP/1.1\r\nHost: {address}\r\n"));
    assert_eq!((own.status(), own.all("access-control-allow-origin")), (200, vec![]));
    assert_eq!(ask(&format!("POST /api/config HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n")).status(), 405);
    let change =
        format!("PUT /api/config HTTP/1.1\r\nHost: {address}\r\nIf-Match: *\r\nContent-Type: application/json\r\n");
    let foreign = ask(&format!("{change}Origin: http://evil.example\r\nContent-Length: 0\r\n"));
    assert_eq!(foreign.status(), 403);
    let form =
        format!("POST /api/reload HTTP/1.1\r\nHost: {address}\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n");
    assert_eq!(ask(&form).status(), 403);
}

#[test]
fn silent_connections_do_not_lock_the_administrator_out() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let _silent: Vec<Peer> = (0..50).map(|_| Peer::connect(product.address("admin"))).collect();
    assert_eq!(product.get("/").text(), "fine", "traffic does not notice");
    assert_eq!(product.admin("/healthz").status(), 200);
}

#[test]
fn the_page_is_whole_in_itself() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let page = product.admin("/");
    assert_eq!(page.status(), 200);
    assert!(page.field("content-type").is_some_and(|kind| kind.starts_with("text/html")));
    assert!(page.field("content-security-policy").is_some());
    let text = page.text();
    assert!(text.contains("/api/status") && !text.contains("src=\"http"), "nothing is loaded from elsewhere");
}

#[test]
fn a_process_is_alive_and_tells_its_figures_while_a_configuration_waits_to_be_published() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin);
    let product = setup.start();
    // So many that it takes a while.
    std::fs::write(product.folder().join("equipoise.yaml"), setup.large_text(product.folder()))
        .expect("the folder is ours");
    product.signal(libc::SIGHUP);
    let mut rounds = 0;
    while product.api("/api/status")["generation"] == 1 {
        for path in ["/metrics", "/api/config", "/healthz", "/readyz"] {
            assert_eq!(product.admin(path).status(), 200, "{path}");
        }
        rounds += 1;
    }
    assert!(rounds >= 3, "{rounds} rounds were answered meanwhile");
    assert_eq!(product.get("/").text(), "fine");
}
