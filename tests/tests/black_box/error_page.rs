//! The filter `error_page`: pages of one's own in place of errors.

use super::harness::http2::{Client, request, with_fields};
use super::harness::net::refusing;
use super::harness::origin::ok;
use super::harness::{Origin, Product, Setup, eventually, http3, product};
use super::http3::site;

/// A page for whatever goes wrong here.
const OWN: &str = "filters: [{ error_page: { status: 5xx, body: \"<p>{status} {reason} {fault} {uri}\", headers: { x-page: own } } }]";

#[test]
fn a_fault_is_answered_by_the_page_in_every_version() {
    let site = site(Setup::to_addresses(&[refusing()]).route(OWN), 2);
    let wanted = "<p>502 Bad Gateway connect_failed /&lt;b&gt;?&amp;";
    let mut client = site.connect();
    let answer = client.get("/%3Cb%3E");
    assert_eq!(answer.status, 502);
    assert_eq!(answer.text(), "<p>502 Bad Gateway connect_failed /%3Cb%3E");
    let head = client.ask(http3::request("HEAD", "/"), b"");
    assert_eq!((head.status, head.field("x-page"), head.body.len()), (502, Some("own"), 0));
    let plain = Setup::to_addresses(&[refusing()]).route(OWN).start();
    let mut peer = plain.connect();
    let answer = peer.get("/<b>?&");
    assert_eq!((answer.status(), answer.text().as_str(), answer.field("x-page")), (502, wanted, Some("own")));
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(peer.get("/again").status(), 502, "the connection lives on");
    let length = answer.text().len().to_string();
    peer.send("HEAD /<b>?& HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = peer.head();
    assert_eq!((head.status(), head.field("content-length")), (502, Some(length.as_str())));
    assert_eq!(peer.get("/after").status(), 502, "there was no body");
    let mut client = Client::connect(plain.web());
    assert_eq!(client.get("/a").text(), "<p>502 Bad Gateway connect_failed /a");
    assert_eq!(plain.flagged("UC")["status"], 502);
}

#[test]
fn calls_of_grpc_keep_their_own_answers() {
    let product = Setup::to_addresses(&[refusing()]).route(OWN).start();
    let mut client = Client::connect(product.web());
    let call = with_fields(request("POST", "/a.B/C"), &[("content-type", "application/grpc"), ("te", "trailers")]);
    let answer = client.ask(call, b"");
    assert_eq!((answer.status, answer.field("grpc-status"), answer.field("x-page")), (200, Some("14"), None));
}

#[test]
fn an_api_gets_json_and_a_browser_html_and_what_filters_answer_has_pages_too() {
    let origin = Origin::saying("in");
    let filters = "filters: [{ error_page: { status: 4xx, body: html } }, \
                   { error_page: { status: 4xx, content_type: application/json, body: '{\"status\": {status}}' } }, \
                   { error_page: { status: 403, faults: [refused_by_filter], body: text, content_type: text/plain } }, \
                   { body_limit: { max: 3 } }, { address_list: { deny: [127.0.0.1] }, when: { path: { prefix: /in } } }]";
    let product = Setup::to(&origin).route(filters).start();
    let ask = |path: &str, accept: &str| {
        product.connect().ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\nAccept: {accept}\r\n\r\n"))
    };
    for (accept, body, content_type) in [
        ("text/html,*/*;q=0.8", "html", "text/html; charset=utf-8"),
        ("application/json", "{\"status\": 403}", "application/json"),
        ("text/plain, text/html;q=0.9", "text", "text/plain"),
    ] {
        let answer = ask("/in", accept);
        assert_eq!((answer.status(), answer.text().as_str()), (403, body), "{accept}");
        assert_eq!(answer.field("content-type"), Some(content_type));
    }
    assert_eq!(ask("/", "text/html").text(), "in");
    let mut long = product.connect();
    let answer = long.ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nlong");
    assert_eq!((answer.status(), answer.text().as_str()), (413, "html"));
    long.assert_closed();
}

#[test]
fn an_error_that_a_page_replaces_costs_no_connection_to_its_endpoint_unless_it_is_long() {
    let origin = Origin::answering(|request| match request.target() {
        "/long" => b"HTTP/1.1 404 None\r\nContent-Length: 1000000\r\n\r\nbegun".to_vec(),
        "/chunks" => b"HTTP/1.1 404 None\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nnone\r\n0\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 404 None\r\nContent-Length: 4\r\n\r\nnone".to_vec(),
    });
    let page = "filters: [{ error_page: { status: 404, body: sorry, intercept: true } }]";
    let product = Setup::to(&origin).route(page).workers(1).start();
    let mut client = product.connect();
    for path in ["/chunks", "/", "/chunks", "/chunks", "/"] {
        let answer = client.get(path);
        assert_eq!((answer.status(), answer.text().as_str()), (404, "sorry"));
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(client.get("/long").text(), "sorry");
    assert_eq!(client.get("/chunks").text(), "sorry");
    assert_eq!(origin.connections(), 2, "nobody reads a megabyte for a connection");
}

/// An origin that answers with the status that the path names, some fields and a body.
fn failing() -> Origin {
    Origin::answering(|request| {
        let status = request.target().trim_start_matches('/').to_owned();
        let head =
            "X-Inside: 1\r\nServer: secret\r\nSet-Cookie: a=1\r\nRetry-After: 7\r\nWWW-Authenticate: Basic realm=\"r\"";
        match status.as_str() {
            "chunked" => {
                format!("HTTP/1.1 500 Oops\r\n{head}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ninner\r\n0\r\n\r\n")
            }
            status => format!("HTTP/1.1 {status} Oops\r\n{head}\r\nContent-Length: 5\r\n\r\ninner"),
        }
        .into_bytes()
    })
}

#[test]
fn answers_of_endpoints_are_replaced_where_that_is_asked_for() {
    let origin = failing();
    let page = "error_page: { status: [404, 500, 503], body: \"page {status} {endpoint}\", as: 502, intercept: true }";
    let product = Setup::to(&origin).route(format!("filters: [{{ {page}, when: {{ status: 5xx }} }}]")).start();
    let mut peer = product.connect();
    for path in ["/500", "/503", "/chunked", "/500"] {
        let answer = peer.get(path);
        let wanted = format!("page {} {}", if path == "/503" { 503 } else { 500 }, origin.address());
        assert_eq!((answer.status(), answer.text()), (502, wanted), "{path}");
        assert_eq!((answer.field("x-inside"), answer.field("server")), (None, None));
        assert_eq!(answer.all("set-cookie"), ["a=1"]);
        assert_eq!((answer.field("retry-after"), answer.field("www-authenticate").is_some()), (Some("7"), true));
    }
    assert_eq!(peer.get("/404").text(), "inner", "its condition does not hold");
    assert_eq!(peer.get("/200").text(), "inner");
    let mut client = Client::connect(product.web());
    assert!(client.get("/503").text().starts_with("page 503"));
    let posted = peer.ask("POST /500 HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello");
    assert!(posted.text().starts_with("page 500"));
    assert_eq!(peer.get("/200").text(), "inner", "the connection lives on");
}

#[test]
fn an_answer_of_an_endpoint_stays_without_that_wish() {
    let origin = failing();
    let product = Setup::to(&origin).route("filters: [{ error_page: { body: page } }]").start();
    let answer = product.get("/500");
    assert_eq!((answer.status(), answer.text().as_str(), answer.field("x-inside")), (500, "inner", Some("1")));
}

#[test]
fn an_early_refusal_of_a_long_upload_is_replaced_and_the_connection_closed() {
    let origin = Origin::start(|mut visit| {
        drop(visit.peer.head());
        visit.peer.send("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy");
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).route("filters: [{ error_page: { body: page, intercept: true } }]").start();
    let mut client = product.connect();
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nbegun");
    let answer = client.response();
    assert_eq!((answer.status(), answer.text().as_str(), answer.field("connection")), (503, "page", Some("close")));
    client.wait_closed();
}

#[test]
fn a_page_in_a_file_is_read_again_when_it_changes() {
    let folder = product::folder();
    let page = folder.path().join("sorry.html");
    std::fs::write(&page, "<style>p { color: red }</style>one {status}").expect("our folder");
    let text = Setup::to_addresses(&[refusing()]).route("filters: [{ error_page: { file: sorry.html } }]").text();
    let product = Product::start_in(folder, &text, 2);
    assert_eq!(product.get("/").text(), "<style>p { color: red }</style>one 502");
    std::fs::write(page.with_extension("next"), "two {status}").expect("our folder");
    std::fs::rename(page.with_extension("next"), &page).expect("our folder");
    eventually("the new page is shown", || product.get("/").text() == "two 502");
}

#[test]
fn fixed_answers_of_a_last_route_have_pages() {
    let origin = Origin::answering(|_| ok("in"));
    let product = Setup::to(&origin)
        .route("match: { path: { prefix: /in } }")
        .route_before(
            "{ name: rest, respond: { status: 404 }, filters: [{ error_page: { status: 404, body: \"no {path}\" } }] }",
        )
        .start();
    let answer = product.get("/<x>");
    assert_eq!((answer.status(), answer.text().as_str()), (404, "no /&lt;x&gt;"));
    assert_eq!(product.get("/in").text(), "in");
}
