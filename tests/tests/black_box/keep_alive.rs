//! Clients whose connections are not kept, by what they call themselves.

use super::harness::origin::ok_for;
use super::harness::product::{command_in, folder};
use super::harness::{Origin, Product, Setup, http2};
use super::http3::site;

const OLD: &str = "no_keep_alive_for: [\"MSIE [1-6]\\\\.\", \"^Old/\"]";

fn get(path: &str, agent: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n{agent}\r\n")
}

fn start() -> (Origin, Product) {
    let origin = Origin::answering(|request| ok_for(request, "fine"));
    let product = Setup::to(&origin)
        .listener(OLD)
        .route("filters: [{ remove_request_header: [user-agent] }]")
        .route_before("{ match: { path: { exact: /fixed } }, respond: { status: 204 } }")
        .start();
    (origin, product)
}

#[test]
fn a_connection_ends_after_the_response_to_a_client_that_is_listed() {
    let (origin, product) = start();
    for path in ["/", "/fixed"] {
        for agent in [
            "User-Agent: Mozilla/4.0 (MSIE 6.0)\r\n",
            "User-Agent: Old/1\r\n",
            "User-Agent: a\r\nUser-Agent: Old/1\r\n",
        ] {
            let mut peer = product.connect();
            // What follows is not looked at, and does not destroy the response.
            peer.send([get(path, agent), get(path, agent)].concat());
            let answer = peer.response();
            assert!(answer.status() < 300, "{agent}");
            assert_eq!(answer.field("connection"), Some("close"), "{agent}");
            peer.assert_closed();
        }
    }
    assert_eq!(origin.requests().len(), 3, "one of each connection");
    // With a body, and one that is still on its way.
    let mut peer = product.connect();
    let head = "POST / HTTP/1.1\r\nHost: test\r\nUser-Agent: Old/1\r\nContent-Length: 4\r\n\r\n";
    assert_eq!(peer.ask(format!("{head}body")).field("connection"), Some("close"));
    peer.assert_closed();
    let mut peer = product.connect();
    peer.send(head.replace("POST /", "POST /fixed"));
    assert_eq!(peer.response().status(), 204);
    peer.send("body");
    peer.assert_closed();
}

#[test]
fn connections_of_all_others_are_kept_and_so_is_every_one_without_the_setting() {
    let (origin, product) = start();
    let plain = Setup::to(&origin).start();
    for (product, agents) in [
        (
            &product,
            &["", "User-Agent: Mozilla/5.0 (MSIE 16.0)\r\n", "User-Agent: Very Old/1\r\n", "X-Agent: Old/1\r\n"][..],
        ),
        (&plain, &["User-Agent: Old/1\r\n"][..]),
    ] {
        let mut peer = product.connect();
        for agent in agents {
            for path in ["/", "/fixed"] {
                let answer = peer.ask(get(path, agent));
                assert_eq!(answer.field("connection"), None, "{agent}");
            }
        }
    }
}

#[test]
fn streams_of_http2_and_http3_end_no_connection() {
    let origin = Origin::answering(|request| ok_for(request, "fine"));
    let site = site(Setup::to(&origin).listener(OLD), 1);
    let mut client = site.connect();
    let (_origin, product) = start();
    let mut second = http2::Client::connect(product.web());
    for _ in 0..3 {
        let mut asked = super::harness::http3::request("GET", "/");
        asked.headers_mut().insert("user-agent", "Old/1".parse().expect("a value"));
        assert_eq!(client.ask(asked, b"").text(), "fine");
        let asked = http2::with_fields(http2::request("GET", "/"), &[("user-agent", "Old/1")]);
        assert_eq!(second.ask(asked, b"").text(), "fine");
    }
}

#[test]
fn a_change_of_the_list_counts_for_the_next_request() {
    let (origin, product) = start();
    let agent = "User-Agent: New/1\r\n";
    let mut peer = product.connect();
    assert_eq!(peer.ask(get("/", agent)).field("connection"), None);
    product.reload(&Setup::to(&origin).listener("no_keep_alive_for: [New]").text());
    assert_eq!(peer.ask(get("/", agent)).field("connection"), Some("close"));
    peer.assert_closed();
}

#[test]
fn what_is_no_list_of_expressions_is_refused() {
    let check = |listener: &str| {
        let folder = folder();
        let text = Setup::to_addresses(&["127.0.0.1:9".parse().expect("an address")]).listener(listener).text();
        std::fs::write(folder.path().join("check.yaml"), text.replace("DIR/", "")).expect("our folder");
        command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr
    };
    let many = format!("no_keep_alive_for: [{}]", vec!["a"; 33].join(", "));
    for (listener, told) in [
        ("no_keep_alive_for: [a, \"(\"]", "`(` is not a regular expression: unclosed group"),
        ("no_keep_alive_for: [\"a{1000}{1000}\"]", "the expression is too large once compiled"),
        ("no_keep_alive_for: Old", "`no_keep_alive_for` must be a list"),
        (&*many, "32"),
        ("keepalive_disable: [a]", "did you mean `no_keep_alive_for`?"),
        ("http_versions: [h2]\n    no_keep_alive_for: [a]", "this has no effect without `h1`"),
    ] {
        let stderr = check(listener);
        assert!(stderr.contains(told) && stderr.contains("check.yaml:"), "{listener}: {told}\n{stderr}");
    }
}
