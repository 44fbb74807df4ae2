//! The filter `cache`: what is answered without an endpoint, and what never is.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::harness::http2::{Client, request};
use super::harness::peer::Message;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

/// A response with these fields.
pub(super) fn response(status: &str, fields: &[&str], body: &str) -> Vec<u8> {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// An origin whose responses have these fields and count themselves, of `/a` as `/a 1`.
fn counting(fields: &'static [&'static str]) -> Origin {
    let count = AtomicUsize::new(0);
    Origin::answering(move |request| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        response("200 OK", fields, &format!("{} {number}", request.target()))
    })
}

pub(super) fn setup(origin: &Origin, more: &str) -> Setup {
    Setup::to(origin)
        .top("caches: { pages: { memory: 8MiB } }")
        .route(format!("filters: [{{ cache: {{ store: pages, status_field: true, {more} }} }}]"))
}

fn get(peer: &mut Peer, path: &str, fields: &str) -> Message {
    peer.ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"))
}

fn status_of(message: &Message) -> &str {
    message.field("cache-status").unwrap_or("")
}

#[test]
fn a_fresh_response_is_served_over_every_version_without_an_endpoint() {
    let origin = counting(&["Cache-Control: max-age=60", "ETag: \"1\"", "X-A: b"]);
    let site = site(setup(&origin, "").listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let mut peer = Peer::connect(clear);
    let ask = "GET /a?b HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    let first = peer.ask(ask);
    assert_eq!((first.text().as_str(), status_of(&first)), ("/a?b 1", "pages; fwd=uri-miss; stored"));
    let hit = peer.ask(ask);
    assert_eq!((hit.status(), hit.text().as_str(), hit.field("x-a")), (200, "/a?b 1", Some("b")));
    assert!(status_of(&hit).starts_with("pages; hit; ttl="), "{}", status_of(&hit));
    assert!(hit.field("age").is_some() && hit.field("date").is_some());
    peer.send("HEAD /a?b HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    let head = peer.head();
    assert_eq!((head.status(), head.field("content-length")), (200, Some("6")));
    let mut second = Client::connect(clear);
    let (one, two) = (second.ask(request("GET", "/a?b"), b""), second.ask(request("GET", "/a?b"), b""));
    assert_eq!(one.text(), two.text());
    let mut third = site.connect();
    let (one, two) = (third.ask(http3::request("GET", "/a?b"), b""), third.ask(http3::request("GET", "/a?b"), b""));
    assert_eq!((one.text(), two.text()), (two.text(), one.text()));
    let asked = origin.requests().len();
    assert_eq!(third.ask(http3::request("GET", "/a?b"), b"").text(), one.text());
    assert_eq!(peer.ask(ask).text(), "/a?b 1");
    assert_eq!(origin.requests().len(), asked);
}

#[test]
fn a_large_body_is_served_whole_and_by_ranges() {
    let body: &'static str = "0123456789abcdef".repeat(20_000).leak();
    let origin = Origin::answering(move |_| {
        response(
            "200 OK",
            &["Cache-Control: max-age=60", "ETag: \"1\"", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"],
            body,
        )
    });
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    assert!(peer.get("/").text() == body);
    assert!(peer.get("/").text() == body);
    for (range, first, last) in [
        ("0-0", 0, 0),
        ("65530-65540", 65_530, 65_540),
        ("-5", 319_995, 319_999),
        ("319990-", 319_990, 319_999),
        ("100-400000", 100, 319_999),
    ] {
        let part = get(&mut peer, "/", &format!("Range: bytes={range}\r\n"));
        assert_eq!(
            (part.status(), part.field("content-range")),
            (206, Some(format!("bytes {first}-{last}/320000").as_str()))
        );
        assert!(part.text() == body[first..=last], "{range}");
    }
    let none = get(&mut peer, "/", "Range: bytes=320000-\r\n");
    assert_eq!((none.status(), none.field("content-range"), none.text().as_str()), (416, Some("bytes */320000"), ""));
    for whole in [
        "Range: bytes=0-1,4-5\r\n",
        "Range: bytes=0-1\r\nRange: bytes=2-3\r\n",
        "Range: bytes=0-1\r\nIf-Range: \"2\"\r\n",
        "Range: lines=1-2\r\n",
    ] {
        let all = get(&mut peer, "/", whole);
        assert_eq!((all.status(), all.text().len()), (200, 320_000), "{whole}");
    }
    let part = get(&mut peer, "/", "Range: bytes=0-1\r\nIf-Range: \"1\"\r\n");
    assert_eq!((part.status(), part.text().as_str()), (206, "01"));
    for condition in [
        "If-None-Match: \"0\", W/\"1\"\r\n",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "If-None-Match: *\r\nRange: bytes=0-1\r\n",
    ] {
        let same = get(&mut peer, "/", condition);
        assert_eq!((same.status(), same.text().as_str(), same.field("etag")), (304, "", Some("\"1\"")), "{condition}");
        assert_eq!(same.field("content-length"), None);
    }
    assert_eq!(origin.requests().len(), 1);
    // A client that stops reading holds nobody up, and the connection of another goes on.
    let mut slow = product.connect();
    slow.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n".repeat(50));
    assert!(peer.get("/").text() == body);
}

#[test]
fn what_is_not_for_all_is_never_stored() {
    let origin = Origin::answering(|request| {
        let field = request.field("x-respond").unwrap_or("x-none: 1");
        let control =
            if field.starts_with("Cache-Control") { field } else { &format!("{field}\r\nCache-Control: max-age=60") };
        response("200 OK", &[control], request.field("x-user").unwrap_or(""))
    });
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    let mut ask = |path: &str, respond: &str, user: &str, more: &str| {
        get(&mut peer, path, &format!("X-Respond: {respond}\r\nX-User: {user}\r\n{more}")).text()
    };
    for (path, respond, more) in [
        ("/private", "Cache-Control: private, max-age=60", ""),
        ("/no-store", "Cache-Control: no-store", ""),
        ("/cookie", "Set-Cookie: a=b", ""),
        ("/vary", "Vary: *", ""),
        ("/authorization", "X-A: b", "Authorization: Basic eDp5\r\n"),
        ("/body", "X-A: b", "Content-Length: 1\r\n"),
    ] {
        let more_ = if path == "/body" { "Content-Length: 0\r\nIf-Match: \"1\"\r\n" } else { more };
        assert_eq!(ask(path, respond, "ann", more_), "ann", "{path}");
        assert_eq!(ask(path, respond, "bob", more_), "bob", "{path}");
    }
    // A response that is for all though the request had credentials (RFC 9111 section 3.5).
    assert_eq!(ask("/public", "Cache-Control: max-age=60, public", "ann", "Authorization: Basic eDp5\r\n"), "ann");
    assert_eq!(ask("/public", "Cache-Control: max-age=60, public", "bob", ""), "ann");
}

#[test]
fn a_body_that_is_cut_short_or_too_long_is_not_stored() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.request() {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n";
            let said = match request.target() {
                "/cut" if number == 0 => format!("{head}Content-Length: 100\r\n\r\nhalf"),
                "/chunks" if number == 2 => format!("{head}Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
                "/close" => format!("{head}Connection: close\r\n\r\nbody {number}"),
                "/long" => format!("{head}Content-Length: 3000\r\n\r\n{number:03000}"),
                _ => format!("{head}Content-Length: 5\r\n\r\nwhole"),
            };
            let ends = !said.contains("whole") && !said.contains("3000");
            if visit.peer.try_send(said).is_err() || ends {
                return;
            }
        }
    });
    let product = setup(&origin, "body_max: 2KiB").start();
    for path in ["/cut", "/chunks"] {
        let mut peer = product.connect();
        peer.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        peer.wait_closed();
        assert_eq!(product.get(path).text(), "whole", "{path}");
    }
    for path in ["/close", "/long"] {
        assert_ne!(product.get(path).text(), product.get(path).text(), "{path}");
    }
    assert_eq!(status_of(&product.get("/long")), "pages; fwd=uri-miss", "it does not claim to be stored");
}

#[test]
fn variants_are_told_apart_and_codings_in_another_order_are_not() {
    let origin = Origin::answering(|request| {
        let fields = ["Cache-Control: max-age=60", "Vary: Accept-Encoding, X-Lang"];
        response("200 OK", &fields, &format!("{:?} {:?}", request.field("accept-encoding"), request.field("x-lang")))
    });
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    let mut ask = |fields: &str| get(&mut peer, "/", fields).text();
    let first = ask("Accept-Encoding: gzip, br\r\nX-Lang: de\r\n");
    assert_eq!(ask("Accept-Encoding: br;q=0.9,gzip\r\nX-Lang: de\r\n"), first);
    assert_ne!(ask("Accept-Encoding: gzip\r\nX-Lang: de\r\n"), first);
    assert_ne!(ask("Accept-Encoding: gzip, br\r\nX-Lang: en\r\n"), first);
    assert_ne!(ask("Accept-Encoding: gzip, br\r\n"), first);
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn a_stale_response_is_validated_and_the_client_gets_what_it_asked_for() {
    let origin = Origin::answering(|request| match request.field("if-none-match") {
        Some("\"1\"") => {
            b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nX-Seen: again\r\nCache-Control: max-age=10\r\nAge: 20\r\n\r\n"
                .to_vec()
        }
        _ => response("200 OK", &["ETag: \"1\"", "Cache-Control: max-age=10", "Age: 20"], "body"),
    });
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").text(), "body");
    // Its own condition does not reach the endpoint, and does not hold here.
    let whole = get(&mut peer, "/", "If-None-Match: \"other\"\r\n");
    assert_eq!((whole.status(), whole.text().as_str(), whole.field("x-seen")), (200, "body", Some("again")));
    assert!(status_of(&whole).contains("fwd=stale"), "{}", status_of(&whole));
    assert_eq!(get(&mut peer, "/", "If-None-Match: \"1\"\r\n").status(), 304);
    let part = get(&mut peer, "/", "Range: bytes=1-2\r\n");
    assert_eq!((part.status(), part.text().as_str()), (206, "od"));
    let told: Vec<_> =
        origin.requests().iter().map(|request| request.field("if-none-match").map(str::to_owned)).collect();
    assert_eq!(told, [None, Some("\"1\"".to_owned()), Some("\"1\"".to_owned()), Some("\"1\"".to_owned())]);
    assert!(origin.requests().iter().all(|request| request.field("range").is_none()));
    events(&product, [("missed", 1.0), ("revalidated", 3.0), ("hit", 0.0)]);
}

fn events<const N: usize>(product: &Product, counts: [(&str, f64); N]) {
    for (event, count) in counts {
        let labels = ["route=\"main\"", "filter=\"cache\"", &format!("event=\"{event}\"")];
        product.expect_metric("equipoise_filter_events_total", &labels, count);
    }
}

#[test]
fn a_stale_response_is_served_at_once_and_fetched_again_beside() {
    let origin = counting(&["Cache-Control: max-age=10, stale-while-revalidate=600", "Age: 20"]);
    let product = setup(&origin, "").start();
    assert_eq!(product.get("/").text(), "/ 1");
    // The client goes at once; the fetch goes on.
    let mut peer = product.connect();
    assert_eq!(peer.get("/").text(), "/ 1");
    drop(peer);
    eventually("it was fetched again", || origin.requests().len() == 2);
    eventually("the new one is served", || product.get("/").text() != "/ 1");
    let request = &origin.requests()[1];
    assert_eq!((request.method(), request.target(), request.field("host")), ("GET", "/", Some("test")));
}

#[test]
fn a_stale_response_is_served_when_the_endpoint_fails() {
    let (bad, count) = (std::sync::Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let state = bad.clone();
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.request() {
            let said = match state.load(Ordering::SeqCst) {
                0 => response("200 OK", &["Cache-Control: max-age=10", "Age: 20"], "good"),
                1 => response("503 Service Unavailable", &[], "bad"),
                2 => response("404 Not Found", &["Cache-Control: no-store"], "none"),
                _ => return,
            };
            count.fetch_add(1, Ordering::SeqCst);
            let _ = request;
            if visit.peer.try_send(said).is_err() {
                return;
            }
        }
    });
    let product = setup(&origin, "stale_if_error: 1h").start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").text(), "good");
    for failure in [1, 3] {
        bad.store(failure, Ordering::SeqCst);
        let answer = peer.get("/");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "good"), "{failure}");
        assert!(status_of(&answer).starts_with("pages; hit; ttl=-"), "{}", status_of(&answer));
        assert!(peer.get("/other").status() >= 500, "nothing is stored of it");
    }
    bad.store(2, Ordering::SeqCst);
    assert_eq!(peer.get("/").status(), 404);
    bad.store(1, Ordering::SeqCst);
    assert_eq!(peer.get("/").status(), 503, "what is gone is not served again");
}

#[test]
fn requests_for_one_response_are_collapsed() {
    let gate = std::sync::Arc::new(std::sync::Mutex::new(()));
    let (held, inner) = (gate.lock().expect("free"), gate.clone());
    let origin = Origin::answering(move |request| {
        drop(inner.lock());
        let control =
            if request.target() == "/private" { "Cache-Control: private" } else { "Cache-Control: max-age=60" };
        response("200 OK", &[control], "once")
    });
    let product = setup(&origin, "lock: 60s").workers(2).start();
    let mut peers: Vec<_> = (0..20).map(|_| Peer::connect(product.web())).collect();
    for peer in &mut peers {
        peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    eventually("one request is there", || origin.requests().len() == 1);
    // One that waits may go.
    peers.pop().expect("one of twenty").reset();
    drop(held);
    for peer in &mut peers {
        assert_eq!(peer.response().text(), "once");
    }
    assert_eq!(origin.requests().len(), 1);
    // What is not stored is not waited for one after the other.
    for peer in &mut peers {
        peer.send("GET /private HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    for peer in &mut peers {
        assert_eq!(peer.response().text(), "once");
    }
    assert_eq!(origin.requests().len(), 20);
}

#[test]
fn clients_that_want_other_variants_or_cannot_share_a_response_are_answered() {
    let gate = std::sync::Arc::new(std::sync::Mutex::new(()));
    let inner = gate.clone();
    let origin = Origin::start(move |mut visit| {
        while let Some(request) = visit.request() {
            drop(inner.lock());
            let fields = ["Cache-Control: max-age=60", "Vary: X-Lang"];
            let lang = request.field("x-lang").unwrap_or("none");
            let said = match request.target() {
                "/close" => format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{}\r\n\r\n{lang}", fields[0]).into_bytes(),
                _ => response("200 OK", &fields, lang),
            };
            if visit.peer.try_send(said).is_err() || request.target() == "/close" {
                return;
            }
        }
    });
    let product = setup(&origin, "lock: 60s").workers(2).start();
    let mut asked = 0;
    for path in ["/vary", "/close"] {
        let held = gate.lock().expect("free");
        let mut peers: Vec<_> = (0..20).map(|_| Peer::connect(product.web())).collect();
        for (number, peer) in peers.iter_mut().enumerate() {
            peer.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-Lang: l{number}\r\n\r\n"));
        }
        eventually("one request is there", || origin.requests().len() > asked);
        drop(held);
        for (number, peer) in peers.iter_mut().enumerate() {
            let answer = peer.response();
            assert_eq!((answer.status(), answer.text()), (200, format!("l{number}")), "{path}");
        }
        asked += 20;
        assert_eq!(origin.requests().len(), asked, "{path}");
    }
}

#[test]
fn a_client_that_leaves_while_others_wait_leaves_the_fetch_to_them() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            let number = count.fetch_add(1, Ordering::SeqCst);
            if number == 0 {
                let _ =
                    visit.peer.try_send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nfi");
                let _ = told.lock().expect("free").recv();
                return;
            }
            if visit.peer.try_send(response("200 OK", &["Cache-Control: max-age=60"], "second")).is_err() {
                return;
            }
        }
    });
    let product = setup(&origin, "lock: 60s").start();
    let mut first = product.connect();
    first.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    first.head();
    let mut second = product.connect();
    second.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    first.reset();
    assert_eq!(second.response().text(), "second");
    drop(tell);
}

#[test]
fn a_change_of_a_resource_removes_it_and_the_key_follows_the_settings() {
    let origin = counting(&["Cache-Control: max-age=60"]);
    let more = "key: { ignore: [\"utm_*\"], add: [{ expression: 'request.headers[\"x-plan\"]' }] }, bypass: { expression: 'request.path == \"/never\"' }, min_uses: 1";
    let product = setup(&origin, more).start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/a").text(), "/a 1");
    assert_eq!(peer.get("/a?utm_source=x").text(), "/a 1");
    assert_eq!(get(&mut peer, "/a", "X-Plan: gold\r\n").text(), "/a 2");
    // Fields that no one has named do not matter, whatever they say.
    assert_eq!(
        get(&mut peer, "/a", "X-Forwarded-Host: evil\r\nX-Original-URL: /evil\r\nCache-Control: no-cache\r\n").text(),
        "/a 1"
    );
    assert_eq!(peer.ask("GET /a HTTP/1.1\r\nHost: other\r\n\r\n").text(), "/a 3");
    assert_eq!(peer.ask("POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n").text(), "/a 4");
    assert_eq!(peer.get("/a").text(), "/a 5");
    assert_eq!((peer.get("/never").text(), peer.get("/never").text()), ("/never 6".into(), "/never 7".into()));
}

#[test]
fn what_is_stored_survives_a_reload_and_a_flood_of_keys_is_bounded() {
    let origin = counting(&["Cache-Control: max-age=600"]);
    let all = setup(&origin, "");
    let product = all.start();
    let mut peer = product.connect();
    assert_eq!((peer.get("/a").text(), peer.get("/a").text()), ("/a 1".into(), "/a 1".into()));
    product.reload(&all.text().replace("8MiB", "2MiB"));
    assert_eq!(product.get("/a").text(), "/a 1");
    let mut peer = product.connect();
    for number in 0..6_000 {
        peer.get(&format!("/flood?{number}"));
    }
    assert!(product.metric("equipoise_cache_bytes", &["cache=\"pages\""]) <= f64::from(2 << 20));
    assert!(product.metric("equipoise_cache_evictions_total", &["cache=\"pages\""]) > 1_000.0);
    assert_eq!(product.get("/a").text(), "/a 1", "what was asked for again stays in a scan");
}

#[test]
fn responses_are_purged_by_url_prefix_and_tag() {
    let count = AtomicUsize::new(0);
    let origin = Origin::answering(move |request| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let tag =
            if request.target().starts_with("/p") { "Surrogate-Key: products one" } else { "Surrogate-Key: other" };
        response("200 OK", &["Cache-Control: max-age=60", "ETag: \"1\"", tag], &number.to_string())
    });
    let product = setup(&origin, "tags: surrogate-key").start();
    let mut peer = product.connect();
    let mut all = || {
        ["/p/1", "/p/2", "/q?x"].map(|path| {
            let answer = peer.ask(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n\r\n"));
            assert_eq!(answer.field("surrogate-key"), None, "tags are no matter of clients");
            answer.text()
        })
    };
    let purge = |query: &str| {
        let answer = product.call(&format!("DELETE /api/caches/pages/entries{query}"), &[], "");
        (answer.status(), answer.text())
    };
    assert_eq!(all(), ["1", "2", "3"]);
    assert_eq!(all(), ["1", "2", "3"]);
    assert_eq!(purge("?url=http%3A%2F%2FSHOP.example%3A80%2Fq%3Fx"), (200, "{\"purged\":1}".into()));
    assert_eq!(all(), ["1", "2", "4"]);
    assert_eq!(purge("?prefix=http%3A%2F%2Fshop.example%2Fp%2F1"), (200, "{\"purged\":1}".into()));
    assert_eq!(all(), ["5", "2", "4"]);
    assert_eq!(purge("?tag=products"), (200, "{\"purged\":2}".into()));
    assert_eq!(all(), ["6", "7", "4"]);
    assert_eq!(purge("?soft=true"), (200, "{\"purged\":3}".into()));
    assert_eq!(all(), ["8", "9", "10"]);
    assert!(origin.requests().iter().rev().take(3).all(|request| request.field("if-none-match") == Some("\"1\"")));
    assert_eq!(purge(""), (200, "{\"purged\":3}".into()));
    for (query, status) in
        [("?url=/q", 422), ("?url=http%3A%2F%2Fa%2F&tag=x", 400), ("?soft=yes", 400), ("?uri=x", 400)]
    {
        assert_eq!(purge(query).0, status, "{query}");
    }
    assert_eq!(product.call("DELETE /api/caches/page/entries", &[], "").status(), 404);
    let told = product.api("/api/caches/pages");
    assert_eq!(
        (told["entries"].as_u64(), told["bytes"].as_u64(), told["purged"].as_u64()),
        (Some(0), Some(0), Some(10))
    );
}

#[test]
fn a_page_of_one_user_that_says_nothing_about_caching_is_never_that_of_another() {
    let origin = Origin::answering(|request| {
        if request.target() == "/gone" {
            return response("404 Not Found", &[], "gone");
        }
        response("200 OK", &[], request.field("cookie").unwrap_or("nobody"))
    });
    let product = Setup::to(&origin)
        .top("caches: { pages: { memory: 8MiB } }")
        .route("filters: [{ cache: { store: pages, stale_while_revalidate: 30s, stale_if_error: 1h, status_field: true } }]")
        .start();
    let mut peer = product.connect();
    for user in ["a=ann", "a=bob", "a=ann"] {
        let got = get(&mut peer, "/account", &format!("Cookie: {user}\r\n"));
        assert_eq!((got.text().as_str(), status_of(&got)), (user, "pages; fwd=uri-miss"));
    }
    assert_eq!([(); 2].map(|()| status_of(&get(&mut peer, "/gone", "")).to_owned()), ["pages; fwd=uri-miss"; 2]);
}

#[test]
fn two_users_of_an_authorization_service_never_get_each_other_s_response() {
    let service = Origin::answering(|request| {
        let user = request.field("token").unwrap_or("").to_owned();
        response("200 OK", &[&format!("X-User: {user}")], "")
    });
    let origin = Origin::answering(|request| {
        let user = request.field("x-user").unwrap_or("").to_owned();
        response("200 OK", &["Cache-Control: max-age=60", "ETag: \"1\""], &user)
    });
    let auth = "{ forward_auth: { cluster: auth, path: /verify, response_headers: [x-user] } }";
    let cache = "{ cache: { store: pages, status_field: true } }";
    for filters in [format!("[{auth}, {cache}]"), format!("[{cache}, {auth}]")] {
        let product = Setup::to(&origin)
            .top("caches: { pages: { memory: 8MiB } }")
            .route(format!("filters: {filters}"))
            .cluster_more(format!("auth: {{ endpoints: [\"{}\"] }}", service.address()))
            .start();
        let mut peer = product.connect();
        for user in ["ann", "bob", "ann", "bob"] {
            let got = get(&mut peer, "/me", &format!("Token: {user}\r\n"));
            assert_eq!((got.text().as_str(), status_of(&got)), (user, "pages; fwd=uri-miss"), "{filters}");
        }
    }
}
