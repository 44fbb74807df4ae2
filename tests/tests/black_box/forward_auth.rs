//! The filter `forward_auth`: an authorization service is asked before the endpoint is.

use std::time::Duration;

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::{Message, Origin, Peer, Product, Setup, eventually, http3, net};
use super::http3::{Site, site};

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

/// An endpoint that answers with the user that the request names.
fn endpoint() -> Origin {
    Origin::answering(|request| ok(&format!("{:?} {}", request.all("x-user"), request.text())))
}

/// A service that lets those pass who say `token: good`.
fn service() -> Origin {
    Origin::answering(|request| match request.field("token") {
        Some("good") => b"HTTP/1.1 200 OK\r\nX-User: ann\r\nContent-Length: 2\r\n\r\nok".to_vec(),
        Some("login") => b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n".to_vec(),
        Some("broken") => b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec(),
        Some("large") => [b"HTTP/1.1 403 No\r\nContent-Length: 300000\r\n\r\n".to_vec(), vec![b'x'; 300_000]].concat(),
        _ => b"HTTP/1.1 403 Forbidden\r\nX-Why: bad token\r\nContent-Length: 4\r\n\r\nno!\n".to_vec(),
    })
}

fn setup(endpoint: &Origin, service: &Origin, more: &str) -> Setup {
    let filter = format!("forward_auth: {{ cluster: auth, path: /verify, response_headers: [x-user], {more} }}");
    Setup::to(endpoint)
        .route(format!("filters: [{{ {filter} }}]"))
        .cluster_more(format!("auth: {{ endpoints: [\"{}\"] }}", service.address()))
}

fn start(endpoint: &Origin, service: &Origin, more: &str) -> Product {
    setup(endpoint, service, more).start()
}

fn ask(peer: &mut Peer, token: &str) -> Message {
    peer.ask(format!("GET /a?b=1 HTTP/1.1\r\nHost: test\r\nToken: {token}\r\nX-User: forged\r\n\r\n"))
}

fn both(endpoint: &Origin, service: &Origin, more: &str) -> Site {
    site(setup(endpoint, service, more).listener_more(CLEAR), 1)
}

#[test]
fn who_is_let_in_is_named_and_who_is_not_gets_what_the_service_says() {
    let (endpoint, service) = (endpoint(), service());
    let product = start(&endpoint, &service, "");
    let mut peer = product.connect();
    for _ in 0..3 {
        assert_eq!(ask(&mut peer, "good").text(), "[\"ann\"] ");
    }
    let denied = ask(&mut peer, "bad");
    assert_eq!((denied.status(), denied.text().as_str(), denied.field("x-why")), (403, "no!\n", Some("bad token")));
    let sent_on = ask(&mut peer, "login");
    assert_eq!((sent_on.status(), sent_on.field("location")), (302, Some("/login")));
    for token in ["broken", "large"] {
        assert_eq!(ask(&mut peer, token).status(), 503, "{token}");
    }
    for (event, count) in [("refused", 2.0), ("failed", 2.0)] {
        let labels = ["filter=\"forward_auth\"", &format!("event=\"{event}\"")];
        product.expect_metric("equipoise_filter_events_total", &labels, count);
    }
    assert_eq!(endpoint.requests().len(), 3, "the endpoint sees what was let in alone");
    let asked = &service.requests()[0];
    assert_eq!((asked.method(), asked.target()), ("GET", "/verify"));
    assert_eq!((asked.field("x-forwarded-uri"), asked.field("x-forwarded-host")), (Some("/a?b=1"), Some("test")));
    assert_eq!((asked.field("x-user"), asked.field("token")), (Some("forged"), Some("good")));
    assert!(service.connections() <= 4, "connections to the service are kept: {}", service.connections());
    product.expect_metric("equipoise_cluster_requests_total", &["cluster=\"auth\""], 7.0);
    eventually("each request is in the access log", || product.records().len() >= 7);
    assert_eq!(product.records().len(), 7, "calls are not in it");
}

#[test]
fn requests_over_http2_and_http3_are_authorized_too() {
    let (endpoint, service) = (endpoint(), service());
    let site = both(&endpoint, &service, "");
    let (mut second, mut third) = (Client::connect(site.product.address("clear")), site.connect());
    for (token, status) in [("good", 200), ("bad", 403), ("good", 200)] {
        let fields = [("token", token)];
        assert_eq!(second.ask(with_fields(request("GET", "/"), &fields), b"").status, status);
        assert_eq!(third.ask(with_fields(http3::request("GET", "/"), &fields), b"").status, status);
        let mut answer = second.ask(with_fields(request("POST", "/"), &fields), b"body");
        assert_eq!(answer.status, status);
        answer = third.ask(with_fields(http3::request("POST", "/"), &fields), b"body");
        assert_eq!((answer.status, answer.text().ends_with(" body")), (status, status == 200));
    }
}

#[test]
fn a_body_of_any_framing_goes_to_the_service_and_then_whole_to_the_endpoint() {
    let endpoint = endpoint();
    let service = Origin::answering(|request| match request.text().contains("evil") {
        true => b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec(),
        false => ok(""),
    });
    let site = both(&endpoint, &service, "body_max: 1MiB");
    let clear = site.product.address("clear");
    let large = "0123456789".repeat(20_000);
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    for (body, status) in [("good", 200), ("evil", 403), (large.as_str(), 200), ("", 200)] {
        let check = |status_then: u16, text: String, how: &str| {
            assert_eq!((status_then, status == 200 && !text.ends_with(body)), (status, false), "{how}");
        };
        let mut first = Peer::connect(clear);
        let answer = first.ask(format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        check(answer.status(), answer.text(), "a length");
        let chunk = if body.is_empty() { String::new() } else { format!("{:x}\r\n{body}\r\n", body.len()) };
        let answer =
            first.ask(format!("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n"));
        check(answer.status(), answer.text(), "chunks");
        let answer = second.ask(request("PUT", "/"), body.as_bytes());
        check(answer.status, answer.text(), "HTTP/2");
        let answer = third.ask(http3::request("PUT", "/"), body.as_bytes());
        check(answer.status, answer.text(), "HTTP/3");
    }
    let asked = service.requests();
    assert!(asked.iter().any(|asked| asked.method() == "POST" && asked.text() == large));
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read_or_as_it_comes() {
    let (endpoint, service) = (endpoint(), Origin::saying(""));
    let product = start(&endpoint, &service, "body_max: 1KiB");
    let mut peer = product.connect();
    peer.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 1025\r\n\r\n");
    assert_eq!(peer.response().status(), 413);
    let mut peer = product.connect();
    let chunks = format!("400\r\n{}\r\n", "x".repeat(1024));
    peer.send(format!("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}1\r\n"));
    peer.send("x");
    assert_eq!(peer.response().status(), 413);
    assert_eq!((service.requests().len(), endpoint.requests().len()), (0, 0));
}

#[test]
fn a_limit_of_the_body_holds_before_and_behind_the_filter() {
    let (endpoint, service) = (endpoint(), Origin::saying(""));
    let (limit, filter) = ("{ body_limit: { max: 10 } }", "{ forward_auth: { cluster: auth, body_max: 1KiB } }");
    for filters in [format!("{limit}, {filter}"), format!("{filter}, {limit}")] {
        let product = Setup::to(&endpoint)
            .route(format!("filters: [{filters}]"))
            .cluster_more(format!("auth: {{ endpoints: [\"{}\"] }}", service.address()))
            .start();
        let body = "0123456789x";
        let head = "PUT / HTTP/1.1\r\nHost: test\r\n";
        let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\nb\r\n{body}\r\n0\r\n\r\n");
        assert_eq!(product.connect().ask(chunked).status(), 413, "{filters}");
        assert_eq!(product.connect().ask(format!("{head}Content-Length: 11\r\n\r\n{body}")).status(), 413, "{filters}");
        assert_eq!(product.connect().ask(format!("{head}Content-Length: 10\r\n\r\n{}", &body[..10])).status(), 200);
    }
    assert_eq!(endpoint.requests().len(), 2);
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let (endpoint, service) = (endpoint(), Origin::saying(""));
    let product = start(&endpoint, &service, "body_max: 1KiB");
    let mut peer = product.connect();
    peer.send("PUT / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(peer.head().status(), 100);
    peer.send("body");
    assert_eq!(peer.response().text(), "[] body");
    assert_eq!(endpoint.only_request().field("expect"), None);
}

#[test]
fn trailers_and_the_next_request_stay_behind_a_body_that_is_held() {
    let (endpoint, service) = (endpoint(), Origin::saying(""));
    let product = start(&endpoint, &service, "body_max: 1KiB");
    let mut peer = product.connect();
    let first = "PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 7\r\n\r\n";
    peer.send(format!("{first}GET /next HTTP/1.1\r\nHost: test\r\n\r\n"));
    assert_eq!(peer.response().text(), "[] body");
    assert_eq!(peer.response().text(), "[] ");
    let requests = endpoint.requests();
    assert_eq!(requests[0].trailers, [("X-Sum".to_owned(), "7".to_owned())]);
    assert_eq!(requests[1].target(), "/next");
}

#[test]
fn a_service_that_is_away_or_silent_fails_closed_unless_it_is_allowed_to_fail() {
    let endpoint = endpoint();
    let silent = Origin::start(|mut visit| {
        visit.request();
        visit.peer.wait_closed();
    });
    let gone = net::refusing();
    for (address, more) in [(gone, ""), (silent.address(), "timeout: 50ms")] {
        for (on_failure, status) in [("deny", 503), ("allow", 200)] {
            let filter = format!("forward_auth: {{ cluster: auth, on_failure: {on_failure}, {more} }}");
            let product = Setup::to(&endpoint)
                .route(format!("filters: [{{ {filter} }}]"))
                .cluster_more(format!("auth: {{ endpoints: [\"{address}\"] }}"))
                .start();
            assert_eq!(product.get("/").status(), status, "{address} {on_failure}");
        }
    }
}

#[test]
fn the_call_of_a_client_that_disconnects_is_cancelled() {
    let endpoint = endpoint();
    let service = Origin::start(|mut visit| {
        visit.request();
        visit.peer.wait_closed();
    });
    let product = start(&endpoint, &service, "timeout: 1h");
    let mut peer = product.connect();
    peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("the service is asked", || service.connections() == 1);
    peer.reset();
    eventually("the call is over", || service.open() == 0);
    assert!(endpoint.requests().is_empty());
}

#[test]
fn the_service_is_tried_again_like_any_cluster_and_a_change_leads_to_another() {
    let endpoint = endpoint();
    let first = Origin::start(|mut visit| drop(visit.request()));
    let second = Origin::saying("");
    let setup = |endpoints: &str| {
        Setup::to(&endpoint)
            .route("filters: [{ forward_auth: { cluster: auth } }]")
            .cluster_more(format!("auth: {{ endpoints: [{endpoints}], retry: {{ on: [reset] }} }}"))
    };
    let product = setup(&format!("\"{}\", \"{}\"", first.address(), second.address())).start();
    let mut peer = product.connect();
    for _ in 0..4 {
        assert_eq!(peer.get("/").status(), 200);
    }
    assert!(!second.requests().is_empty() && first.connections() > 0);
    let third = Origin::saying("");
    product.reload(&setup(&format!("\"{}\"", third.address())).text());
    assert_eq!((peer.get("/").status(), third.requests().len()), (200, 1));
}

#[test]
fn a_cluster_that_is_not_there_is_an_error_with_its_place_and_one_that_is_only_called_is_used() {
    let endpoint = endpoint();
    let text = Setup::to(&endpoint)
        .route("filters: [{ forward_auth: { cluster: auht } }]")
        .cluster_more(format!("auth: {{ endpoints: [\"{}\"] }}", endpoint.address()))
        .text();
    let check = |text: &str| {
        let folder = super::harness::product::folder();
        let text = text.replace("DIR", &folder.path().display().to_string());
        std::fs::write(folder.path().join("e.yaml"), text).expect("our folder");
        super::harness::product::command_in(folder.path(), &["check", "e.yaml"])
    };
    let ended = check(&text);
    assert!(ended.stderr.contains("there is no cluster `auht`") && ended.stderr.contains("`auth`"), "{}", ended.stderr);
    let ended = check(&text.replace("auht", "auth"));
    assert!(ended.status.success() && !ended.stderr.contains("leads to"), "{}", ended.stderr);
}

#[test]
fn a_stalled_service_does_not_stall_other_requests() {
    let endpoint = endpoint();
    let service = Origin::start(|mut visit| {
        if visit.request().is_some_and(|request| request.field("token") == Some("good")) {
            visit.peer.send(ok(""));
        }
        visit.peer.wait_closed();
    });
    let product = start(&endpoint, &service, "timeout: 1h");
    let mut stalled: Vec<Peer> = (0..20).map(|_| product.connect()).collect();
    stalled.iter_mut().for_each(|peer| peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n"));
    eventually("all of them wait", || service.connections() == 20);
    assert_eq!(ask(&mut product.connect(), "good").status(), 200);
    stalled[0].assert_silent(Duration::from_millis(20));
}
