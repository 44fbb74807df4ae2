//! The filter `rate_limit`: one allowance over all workers and versions, kept over reloads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::harness::http2::{Client, request, with_fields};
use super::harness::product::command;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

#[test]
fn an_allowance_holds_over_all_versions_and_what_is_beyond_is_told_when_to_come_again() {
    let origin = Origin::saying("in");
    let filters = "filters: [{ rate_limit: { rate: 2/h, burst: 3, headers: true } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    let answer = first.get("/");
    assert_eq!((answer.status(), answer.field("ratelimit-policy")), (200, Some("\"2/h\";q=3;w=5400")));
    assert!(answer.field("ratelimit").is_some_and(|left| left.starts_with("\"2/h\";r=2;t=")), "{answer:?}");
    assert_eq!((second.get("/").status, third.get("/").status), (200, 200));
    for _ in 0..2 {
        let refused = first.get("/");
        assert_eq!((refused.status(), refused.text().as_str()), (429, "too many requests\n"));
        let seconds: u32 = refused.field("retry-after").and_then(|text| text.parse().ok()).expect("a number");
        assert!((1700..=1800).contains(&seconds), "{seconds}");
        let refused = [second.get("/"), third.get("/")];
        assert!(refused.iter().all(|refused| refused.status == 429 && refused.field("retry-after").is_some()));
        assert!(refused.iter().all(|refused| refused.field("ratelimit").is_some_and(|left| left.contains(";r=0;"))));
    }
    assert_eq!(origin.requests().len(), 3, "no endpoint has seen what was rejected");
    assert_eq!(site.product.flagged("PF")["status"], 429);
    let limited = ["route=\"main\"", "filter=\"rate_limit\"", "event=\"limited\""];
    site.product.expect_metric("equipoise_filter_events_total", &limited, 6.0);
    // Explained is not limited, and a new configuration counts on.
    let admin = site.product.address("admin").to_string();
    let explained = command(&["explain", "--admin", &admin, "--listener", "clear", "http://test/"]);
    assert!(explained.status.success(), "{}", explained.stderr);
    site.product.reload_unchanged();
    assert_eq!(first.get("/").status(), 429);
    site.product.expect_metric("equipoise_filter_events_total", &limited, 7.0);
}

#[test]
fn clients_that_are_told_by_a_header_field_have_an_allowance_each() {
    let origin = Origin::saying("in");
    let filters = "filters: [{ rate_limit: { rate: 1/h, key: { header: x-api-key } } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let mut peer = Peer::connect(clear);
    let mut ask = |key: &str| peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Api-Key: {key}\r\n\r\n")).status();
    assert_eq!((ask("ann"), ask("ann"), ask("bob"), ask("bob")), (200, 429, 200, 429));
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    for (key, status) in [("ann", 429), ("eve", 200), ("eve", 429)] {
        assert_eq!(second.ask(with_fields(request("GET", "/"), &[("x-api-key", key)]), b"").status, status, "{key}");
    }
    for (key, status) in [("eve", 429), ("joe", 200), ("joe", 429)] {
        assert_eq!(
            third.ask(with_fields(http3::request("GET", "/"), &[("x-api-key", key)]), b"").status,
            status,
            "{key}"
        );
    }
}

#[test]
fn many_connections_at_once_get_exactly_what_is_allowed() {
    let origin = Origin::saying("in");
    let product = Setup::to(&origin).route("filters: [{ rate_limit: { rate: 1/h, burst: 100 } }]").workers(2).start();
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut peer = product.connect();
                for _ in 0..50 {
                    match peer.get("/").status() {
                        200 => passed.fetch_add(1, Ordering::SeqCst),
                        status => usize::from(status) - 429,
                    };
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 100);
}

#[test]
fn a_reload_keeps_what_was_counted_and_explain_spends_nothing() {
    let origin = Origin::saying("in");
    let setup = |rate: &str, name: &str| {
        let filters = format!(
            "filters: [{{ rate_limit: {{ rate: {rate}, burst: 2 }} }}, {{ set_response_header: {{ x-name: {name} }} }}]"
        );
        Setup::to(&origin).route(filters)
    };
    let product = setup("1/h", "old").start();
    assert_eq!(product.get("/").status(), 200);
    let explained = || product.admin("/api/explain?request=GET%20http://test/").text();
    assert!(!explained().contains("\"answers\":429"), "{}", explained());
    assert_eq!(product.get("/").status(), 200, "asking what would become of a request costs nothing");
    assert_eq!(product.get("/").status(), 429);
    assert!(product.reload(&setup("1/h", "new").text()).contains("configuration is live"));
    let refused = product.get("/");
    assert_eq!((refused.status(), refused.field("x-name")), (429, Some("new")));
    assert!(product.reload(&setup("1000000/s", "fast").text()).contains("configuration is live"));
    // Nobody waits longer than the new limit asks for, which is two microseconds.
    eventually("it is let through", || product.get("/").status() == 200);
}

#[test]
fn a_route_that_is_put_before_another_takes_none_of_its_counts() {
    let limited = |rest: &str| format!("  - {{ {rest}, filters: [{{ rate_limit: {{ rate: 1/h, burst: 2 }} }}] }}\n");
    let file = |routes: &str| {
        format!(
            "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes:\n{routes}admin: {{ bind: \"127.0.0.1:0\" }}\n"
        )
    };
    let main = limited("respond: { status: 200 }");
    let product = Product::start(&file(&main));
    let ask = |path: &str| product.get(path).status();
    assert_eq!((ask("/"), ask("/"), ask("/")), (200, 200, 429));
    let login = limited("match: { path: { prefix: /login } }, respond: { status: 204 }");
    assert!(product.reload(&file(&(login + &main))).contains("configuration is live"));
    assert_eq!((ask("/login"), ask("/login"), ask("/login")), (204, 204, 429));
    assert_eq!(ask("/"), 429, "its own count went with it");
}

#[test]
fn requests_beyond_the_burst_wait_for_their_turn_and_reach_the_endpoint_at_the_rate() {
    let origin = Origin::saying("in");
    let filters = "filters: [{ rate_limit: { rate: 20/s, burst: 1, over: { delay: 30s } } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(Peer::connect(clear).get("/").status(), 200));
            scope.spawn(|| assert_eq!(Client::connect(clear).get("/").status, 200));
        }
        scope.spawn(|| assert_eq!(site.connect().get("/").status, 200));
    });
    let took = begun.elapsed();
    assert!(took >= std::time::Duration::from_millis(300), "seven requests, 50 ms apart, took {took:?}");
    let event = |name: &str| format!("event=\"{name}\"");
    site.product.expect_metric_at_least("equipoise_filter_events_total", &[&event("delayed")], 6.0);
    site.product.expect_metric("equipoise_filter_events_total", &[&event("limited")], 0.0);
}

#[test]
fn requests_beyond_the_limit_are_closed_or_only_counted() {
    let origin = Origin::saying("in");
    let rule = |path: &str, over: &str| {
        format!(
            "{{ match: {{ path: {{ exact: {path} }} }}, cluster: site, filters: [{{ rate_limit: {{ rate: 1/h, over: {over} }} }}] }}"
        )
    };
    let setup = Setup::to(&origin).route_before(rule("/closed", "close")).route_before(rule("/marked", "mark"));
    let product = setup.start();
    assert_eq!(product.get("/closed").status(), 200);
    let mut peer = product.connect();
    peer.send("GET /closed HTTP/1.1\r\nHost: test\r\n\r\n");
    peer.assert_closed();
    assert!((0..5).all(|_| product.get("/marked").status() == 200));
    product.expect_metric("equipoise_filter_events_total", &["event=\"marked\""], 4.0);
    assert_eq!(origin.requests().len(), 6);
}

#[test]
fn what_responses_say_they_cost_is_a_debt_over_all_versions() {
    let origin = Origin::answering(|request| {
        let cost = request.field("x-cost").unwrap_or("0").to_owned();
        format!("HTTP/1.1 200 OK\r\nX-Tokens: {cost}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let filters = "filters: [{ rate_limit: { rate: 1000/h, burst: 1000, key: { header: x-key }, headers: true, \
                   cost: { expression: 'request.method == \"GET\" ? 0 : 100' }, \
                   response_cost: { expression: 'int(response.headers[\"x-tokens\"])' } } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    let mut over1 = |method: &str, key: &str, cost: &str| {
        let request =
            format!("{method} / HTTP/1.1\r\nHost: test\r\nX-Key: {key}\r\nX-Cost: {cost}\r\nContent-Length: 0\r\n\r\n");
        let answer = first.ask(request);
        (answer.status(), answer.field("ratelimit").unwrap_or_default().to_owned())
    };
    let left = |told: (u16, String)| {
        assert_eq!(told.0, 200);
        told.1.split([';', '=']).nth(2).and_then(|left| left.parse::<u32>().ok()).expect("what is left")
    };
    assert_eq!(left(over1("GET", "ann", "300")), 700);
    assert_eq!(left(over1("POST", "ann", "50")), 550);
    let fields = |cost| [("x-key", "ann"), ("x-cost", cost)];
    assert_eq!(second.ask(with_fields(request("GET", "/"), &fields("100")), b"").status, 200);
    assert_eq!(left(over1("GET", "ann", "")), 450);
    // The last that passes may cost more than is left.
    assert_eq!(third.ask(with_fields(http3::request("GET", "/"), &fields("5450")), b"").status, 200);
    assert_eq!((over1("GET", "ann", "0").0, over1("GET", "bob", "0").0), (429, 200));
    let refused = second.ask(with_fields(request("GET", "/"), &fields("0")), b"");
    let wait: u32 = refused.field("retry-after").and_then(|text| text.parse().ok()).expect("a number");
    assert!(refused.status == 429 && (17_900..=18_010).contains(&wait), "five hours: {wait}");
    site.product.reload_unchanged();
    assert_eq!(over1("GET", "ann", "0").0, 429, "a debt outlives a reload");
}
