//! The filter `cache` with `slice` beside other filters, and endpoints that refuse to go on with a download.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::cache::response;
use super::cache_slices::{Files, SLICE, TOTAL, asked, content, cut, get, is_whole, part, setup, slice};
use super::compress::decoded;
use super::harness::product::{Ended, command_in, folder};
use super::harness::{Origin, Peer, Setup, eventually};

const CACHES: &str = "caches: { pages: { memory: 32MiB } }";

fn check(origin: &Origin, filters: &str) -> Ended {
    let folder = folder();
    let text = Setup::to(origin).top(CACHES).route(format!("filters: [{filters}]")).text();
    let text = text.replace("DIR", &folder.path().display().to_string());
    std::fs::write(folder.path().join("site.yaml"), text).expect("our folder");
    command_in(folder.path(), &["check", "site.yaml"])
}

#[test]
fn a_condition_of_the_cache_holds_for_the_slices_of_a_response_that_it_held_for() {
    for when in ["headers: { range: { absent: true } }", "path: { prefix: /public }"] {
        let (files, origin) = Files::start();
        let filters = format!(
            "filters: [{{ cache: {{ store: pages, slice: 64KiB }}, when: {{ {when} }} }}, \
             {{ rewrite: {{ path: {{ prefix: {{ from: /public, to: /f }} }} }} }}]"
        );
        let product = Setup::to(&origin).top(CACHES).route(filters).start();
        let mut peer = product.connect();
        let ask = |peer: &mut Peer| peer.ask("GET /public HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        assert!(is_whole(&ask(&mut peer), 1), "{when}");
        let before = origin.requests().len();
        assert!(is_whole(&ask(&mut peer), 1), "{when}");
        assert_eq!((before, origin.requests().len()), (5, 5), "{when}");
        // What the endpoint answers in the place of a slice never becomes a part of the body.
        for (status, body) in [("200 OK", content(2)), ("404 Not Found", "x".repeat(SLICE))] {
            let name = status.to_owned();
            files.spoil(move |request, good| match request.field("range") {
                Some(range) if range == slice(3) => response(&name, &["ETag: \"2\""], &body),
                _ => good,
            });
            let product = Setup::to(&origin)
                .top(CACHES)
                .route("filters: [{ cache: { store: pages, slice: 64KiB }, when: { headers: { range: { absent: true } } } }]")
                .start();
            let got = cut(&product, "");
            assert!(got.len() == 3 * SLICE && content(1).starts_with(&got), "{when} {status}: {}", got.len());
        }
    }
}

#[test]
fn filters_that_would_answer_the_ranges_of_slices_are_refused_behind_them() {
    let (_, origin) = Files::start();
    let cache = "{ cache: { store: pages, slice: 64KiB } }";
    let files = "{ files: { root: /tmp } }";
    let good = check(&origin, &format!("{files}, {cache}"));
    assert!(good.status.success(), "{}", good.stderr);
    for (behind, mend) in [
        (files, "list `files` before `cache`, or remove `slice`"),
        ("{ cache: { store: pages } }", "remove one `cache`, or remove `slice`"),
    ] {
        let wrong = check(&origin, &format!("{cache}, {behind}"));
        assert!(!wrong.status.success());
        let said = wrong.stderr;
        assert!(said.contains("stands behind this `cache` and would answer the ranges of its slices"), "{said}");
        assert!(said.contains(mend), "{said}");
    }
}

#[test]
fn an_endpoint_that_cannot_continue_a_download_sends_the_next_one_whole() {
    let (files, origin) = Files::start();
    // If-Range is answered by the whole, with the same validator.
    files.spoil(|request, good| match request.field("if-range") {
        Some(_) => response("200 OK", &["ETag: \"1\"", "Cache-Control: max-age=600"], &content(1)),
        None => good,
    });
    let product = setup(&origin, "").start();
    assert_eq!(cut(&product, "").len(), SLICE);
    let mut peer = product.connect();
    assert!(is_whole(&get(&mut peer, ""), 1));
    assert_eq!(asked(&origin, 2), ["none"]);
    assert!(is_whole(&get(&mut peer, ""), 1));
}

#[test]
fn a_refusal_of_one_client_cuts_its_download_and_leaves_the_slices_of_all() {
    for (status, fields) in [
        ("400 Bad Request", ""),
        ("401 Unauthorized", ""),
        ("403 Forbidden", ""),
        ("429 Too Many Requests", ""),
        ("431 Request Header Fields Too Large", ""),
        ("501 Not Implemented", ""),
        ("302 Found", ""),
        ("200 OK", "Cookie: a=b\r\n"),
        ("404 Not Found", "Cookie: a=b\r\n"),
    ] {
        let (files, origin) = Files::start();
        let product = setup(&origin, "").start();
        let mut peer = product.connect();
        assert_eq!(get(&mut peer, "Range: bytes=0-199999\r\n").status(), 206);
        assert_eq!(origin.requests().len(), 4);
        files.spoil(move |_, _| response(status, &["Cache-Control: private"], "not for you"));
        assert_eq!(cut(&product, fields).len(), 4 * SLICE, "{status}");
        files.spoil(|_, good| good);
        assert!(is_whole(&get(&mut peer, ""), 1), "{status}");
        assert_eq!(asked(&origin, 5), [slice(4)], "{status}: the slices before it are still stored");
    }
}

#[test]
fn a_new_version_for_all_outdates_the_slices_also_for_a_client_with_cookies() {
    let (files, origin) = Files::start();
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    assert_eq!(get(&mut peer, "Range: bytes=0-99999\r\n").status(), 206);
    files.version.store(2, Ordering::SeqCst);
    assert_eq!(cut(&product, "Cookie: a=b\r\n").len(), 2 * SLICE);
    assert!(is_whole(&get(&mut peer, "Cookie: a=b\r\n"), 2));
}

#[test]
fn a_304_does_not_bring_back_a_slice_that_was_outdated_while_it_was_on_its_way() {
    let (files, origin) = Files::start();
    let aged = |good: Vec<u8>, to: &str| {
        let end = good.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        [String::from_utf8_lossy(&good[..end]).replace("max-age=600", to).as_bytes(), &good[end..]].concat()
    };
    files.spoil(move |_, good| aged(good, "max-age=0"));
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    assert!(is_whole(&get(&mut peer, ""), 1));
    // The first slice is validated while another request changes the file.
    let step = Arc::new(AtomicUsize::new(0));
    let held = Arc::clone(&step);
    files.spoil(move |request, good| {
        if request.field("if-none-match").is_some() && held.fetch_max(1, Ordering::SeqCst) == 0 {
            eventually("the file has changed", || held.load(Ordering::SeqCst) == 2);
        }
        good
    });
    peer.send("GET /f HTTP/1.1\r\nHost: shop.example\r\nRange: bytes=0-9\r\n\r\n");
    eventually("it is validated", || step.load(Ordering::SeqCst) == 1);
    let change = product.connect().ask("POST /f HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(change.status(), 200);
    // Times are whole seconds, and the confirmation has to come in a later one than the change.
    std::thread::sleep(Duration::from_millis(1100));
    files.version.store(2, Ordering::SeqCst);
    step.store(2, Ordering::SeqCst);
    assert_eq!(peer.response().text(), content(1)[..10]);
    assert_eq!(get(&mut peer, "Range: bytes=0-9\r\n").text(), content(2)[..10]);
}

#[test]
fn what_a_filter_knows_of_the_client_goes_with_each_slice() {
    let (files, origin) = Files::start();
    files.spoil(|_, good| {
        let end = good.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        [String::from_utf8_lossy(&good[..end]).replace("max-age", "public, max-age").as_bytes(), &good[end..]].concat()
    });
    let filters = "filters: [{ api_key: { keys: { ann: secret-of-ann } } }, { cache: { store: pages, slice: 64KiB } }, \
                   { set_request_header: { x-user: \"{user}\" } }]";
    let product = Setup::to(&origin).top(CACHES).route(filters).start();
    assert!(is_whole(&get(&mut product.connect(), "x-api-key: secret-of-ann\r\n"), 1));
    let users: Vec<_> = origin.requests().iter().map(|request| request.field("x-user").map(str::to_owned)).collect();
    assert_eq!(users, vec![Some("ann".to_owned()); 5]);
}

#[test]
fn a_response_that_is_fetched_in_slices_is_compressed_as_one_that_is_stored() {
    let (files, origin) = Files::start();
    files.spoil(|request, good| match request.target() {
        "/small" => part((0, 99, 100), &["Cache-Control: max-age=600", "Content-Type: text/plain"], &"x".repeat(100)),
        _ => {
            let end = good.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
            [&good[..end], b"\r\nContent-Type: text/plain", &good[end..]].concat()
        }
    });
    let filters = "filters: [{ cache: { store: pages, slice: 64KiB } }, { compress: { size_min: 1 } }]";
    let product = Setup::to(&origin).top(CACHES).route(filters).start();
    let mut peer = product.connect();
    for (path, wanted) in [("/f", content(1)), ("/small", "x".repeat(100))] {
        for round in ["fetched", "stored"] {
            let answer =
                peer.ask(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nAccept-Encoding: gzip\r\n\r\n"));
            assert_eq!((answer.status(), answer.field("content-encoding")), (200, Some("gzip")), "{path} {round}");
            assert!(decoded(Some("gzip"), &answer.body) == wanted.as_bytes(), "{path} {round}");
        }
        let part = peer.ask(format!(
            "GET {path} HTTP/1.1\r\nHost: shop.example\r\nAccept-Encoding: gzip\r\nRange: bytes=5-9\r\n\r\n"
        ));
        assert_eq!((part.status(), part.field("content-encoding")), (206, None));
        assert_eq!(part.text(), wanted[5..10]);
    }
    assert!(TOTAL > 4 * SLICE && origin.requests().len() == 6);
}

#[test]
fn limits_behind_slices_are_warned_of() {
    let (_, origin) = Files::start();
    let (cache, limit) = ("{ cache: { store: pages, slice: 64KiB } }", "{ concurrency_limit: { max: 1 } }");
    let odd = check(&origin, &format!("{cache}, {limit}"));
    assert!(odd.status.success(), "{}", odd.stderr);
    let warning = "`concurrency_limit` stands behind `cache`: it counts each slice of a download, and may cut it";
    assert!(odd.stderr.contains(warning), "{}", odd.stderr);
    assert!(odd.stderr.contains("list `concurrency_limit` before `cache`"), "{}", odd.stderr);
    let good = check(&origin, &format!("{limit}, {cache}"));
    assert!(good.status.success() && !good.stderr.contains("stands behind"), "{}", good.stderr);
}

#[test]
fn a_slice_that_trickles_in_ends_with_the_timeout_of_the_route() {
    let origin = Origin::start({
        let (files, _) = Files::start();
        move |mut visit| {
            while let Some(request) = visit.request() {
                let mut bytes = files.answer(&request);
                if request.field("range").is_none_or(|range| range != slice(1)) {
                    visit.peer.send(bytes);
                    continue;
                }
                let rest = bytes.split_off(bytes.len() - SLICE);
                visit.peer.send(bytes);
                for byte in rest {
                    std::thread::sleep(Duration::from_millis(50));
                    if visit.peer.try_send([byte]).is_err() {
                        return;
                    }
                }
            }
        }
    });
    let product = Setup::to(&origin)
        .top(CACHES)
        .route("timeout: 1s")
        .route("filters: [{ cache: { store: pages, slice: 64KiB } }]")
        .start();
    assert_eq!(get(&mut product.connect(), "Range: bytes=0-9\r\n").status(), 206);
    // The first slice is stored: the exchange itself asks no endpoint.
    let got = cut(&product, "");
    assert!((SLICE..SLICE + 100).contains(&got.len()) && content(1).starts_with(&got), "{}", got.len());
}
