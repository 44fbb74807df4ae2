//! The filters `maintenance`, `server_timing` and `rewrite_header`.

use super::harness::http2::Client;
use super::harness::product::folder;
use super::harness::{Origin, Peer, Product, Setup, eventually};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

#[test]
fn a_page_answers_over_every_version_while_the_switch_is_on() {
    let origin = Origin::saying("in");
    let filter = "filters: [{ maintenance: { on: true, retry_after: 10m, except: [10.0.0.0/8] } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filter), 1);
    let clear = site.product.address("clear");
    let one = Peer::connect(clear).get("/");
    assert_eq!(
        (one.status(), one.field("retry-after"), one.field("cache-control")),
        (503, Some("600"), Some("no-store"))
    );
    let two = Client::connect(clear).get("/");
    assert_eq!((two.status, two.text().as_str()), (503, "down for maintenance\n"));
    assert_eq!(site.connect().get("/").status, 503);
    assert!(origin.requests().is_empty());
}

#[test]
fn a_file_switches_it_without_a_reload_by_hand() {
    let origin = Origin::saying("in");
    let folder = folder();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write("switch.txt", "off\n");
    write("page.html", "<h1>soon</h1>");
    let switch = folder.path().join("switch.txt");
    let filter = "filters: [{ maintenance: { file: switch.txt, page: page.html } }]";
    let product = Product::start_in(folder, &Setup::to(&origin).route(filter).text(), 1);
    assert_eq!(product.get("/").status(), 200);
    std::fs::write(&switch, "on\n").expect("a file");
    eventually("it is on", || product.get("/").status() == 503);
    let page = product.get("/");
    assert_eq!((page.text().as_str(), page.field("content-type")), ("<h1>soon</h1>", Some("text/html; charset=utf-8")));
    std::fs::write(&switch, "nonsense\n").expect("a file");
    product.expect_said(&["switch.txt", "nonsense"]);
    assert_eq!(product.get("/").status(), 503, "what holds stays");
    std::fs::write(&switch, "off\n").expect("a file");
    eventually("it is off", || product.get("/").status() == 200);
}

#[test]
fn times_are_shown_beside_those_of_the_endpoint() {
    let origin = Origin::answering(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        b"HTTP/1.1 200 OK\r\nServer-Timing: db;dur=1\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let setup = Setup::to(&origin).route("filters: [{ server_timing: { prefix: a- } }]").route_before(
        "{ match: { path: { prefix: /own } }, respond: { status: 200 }, filters: [{ server_timing: {} }] }",
    );
    let product = setup.start();
    let answer = product.get("/");
    let shown = answer.all("server-timing");
    assert_eq!(shown[0], "db;dur=1");
    let times: Vec<(&str, f64)> = shown[1]
        .split(", ")
        .map(|time| time.split_once(";dur=").expect("a time"))
        .map(|(name, ms)| (name, ms.parse().expect("a number")))
        .collect();
    let names: Vec<&str> = times.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["a-queue", "a-connect", "a-endpoint", "a-total"]);
    assert!(times[2].1 >= 50.0 && times[3].1 >= times[2].1, "{times:?}");
    assert!(product.get("/own").field("server-timing").is_some_and(|shown| shown.starts_with("total;dur=")));
}

#[test]
fn values_of_fields_are_rewritten_both_ways_over_every_version() {
    let origin = Origin::answering(|request| {
        let seen = request.all("x-path").join("|");
        format!("HTTP/1.1 200 OK\r\nServer: thing/1.2 (x/3)\r\nX-Seen: {seen}\r\nContent-Length: 0\r\n\r\n")
            .into_bytes()
    });
    let filter = "filters: [{ rewrite_header: { request: [{ name: x-path, pattern: \"^/v([0-9]+)\", to: \"{method}-$1\" }], \
                  response: [{ name: server, pattern: \"/[0-9.]+\", to: \"\" }] } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filter), 1);
    let clear = site.product.address("clear");
    let one =
        Peer::connect(clear).ask("GET / HTTP/1.1\r\nHost: test\r\nX-Path: /v1/a\r\nX-Path: /w\r\nX-Path: /v22\r\n\r\n");
    assert_eq!((one.field("server"), one.field("x-seen")), (Some("thing (x)"), Some("GET-1/a|/w|GET-22")));
    let fields = [("x-path", "/v7/b")];
    let two = Client::connect(clear)
        .ask(super::harness::http2::with_fields(super::harness::http2::request("GET", "/"), &fields), b"");
    assert_eq!((two.field("server"), two.field("x-seen")), (Some("thing (x)"), Some("GET-7/b")));
    let three = site.connect().get("/");
    assert_eq!((three.field("server"), three.field("x-seen")), (Some("thing (x)"), Some("")));
}
