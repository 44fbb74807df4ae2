//! The filter `cache` with `slice`: large responses that are fetched and stored in ranges, and what never becomes a mix of two.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::cache::response;
use super::harness::http2::{Client, request, with_fields};
use super::harness::peer::Message;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3};
use super::http3::site;

pub(super) const SLICE: usize = 64 << 10;
/// Five slices, of which the last is not full.
pub(super) const TOTAL: usize = 4 * SLICE + 1000;
const LABELS: &[&str] = &["cache=\"pages\""];

/// What a file of this version holds: no two slices are alike.
pub(super) fn content(version: usize) -> String {
    let byte = |at: usize| char::from(b'a' + ((at ^ (at >> 16) ^ (at >> 8) ^ version) % 23) as u8);
    (0..TOTAL).map(byte).collect()
}

/// An endpoint with ranges, whose answers a test may spoil.
pub(super) struct Files {
    pub(super) version: AtomicUsize,
    spoil: Mutex<Spoil>,
}

/// Makes an answer of the content.
type Answer = fn(&str) -> Vec<u8>;
type Spoil = Arc<dyn Fn(&Message, Vec<u8>) -> Vec<u8> + Send + Sync>;

impl Files {
    pub(super) fn start() -> (Arc<Self>, Origin) {
        let files = Arc::new(Self { version: AtomicUsize::new(1), spoil: Mutex::new(Arc::new(|_, answer| answer)) });
        let own = Arc::clone(&files);
        let origin = Origin::answering(move |request| {
            let answer = own.answer(request);
            let spoil = Arc::clone(&own.spoil.lock().expect("spoil"));
            spoil(request, answer)
        });
        (files, origin)
    }

    pub(super) fn spoil(&self, by: impl Fn(&Message, Vec<u8>) -> Vec<u8> + Send + Sync + 'static) {
        *self.spoil.lock().expect("spoil") = Arc::new(by);
    }

    pub(super) fn answer(&self, request: &Message) -> Vec<u8> {
        let version = self.version.load(Ordering::SeqCst);
        let (body, etag) = (content(version), format!("\"{version}\""));
        let tag = format!("ETag: {etag}");
        let fields = [&tag, "Cache-Control: max-age=600", "Surrogate-Key: files", "Vary: Accept-Language"];
        if request.field("if-none-match") == Some(&etag) {
            return format!("HTTP/1.1 304 Not Modified\r\n{tag}\r\nCache-Control: max-age=600\r\n\r\n").into_bytes();
        }
        let holds = request.field("if-range").is_none_or(|wanted| wanted == etag);
        let range = request.field("range").filter(|_| holds).and_then(|range| range.strip_prefix("bytes="));
        let Some((first, last)) = range.and_then(|range| range.split_once('-')) else {
            return response("200 OK", &fields, &body);
        };
        let (first, last) = match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), last) => (first, last.map_or(TOTAL - 1, |last| last.min(TOTAL - 1))),
            (Err(_), last) => (TOTAL - last.expect("a suffix"), TOTAL - 1),
        };
        if first >= TOTAL {
            return response("416 Range Not Satisfiable", &[&format!("Content-Range: bytes */{TOTAL}")], "");
        }
        part((first, last, TOTAL), &fields, &body[first..=last])
    }
}

pub(super) fn part((first, last, total): (usize, usize, usize), fields: &[&str], body: &str) -> Vec<u8> {
    let range = format!("Content-Range: bytes {first}-{last}/{total}");
    let fields: Vec<_> = fields.iter().copied().chain([&*range]).collect();
    response("206 Partial Content", &fields, body)
}

pub(super) fn setup(origin: &Origin, more: &str) -> Setup {
    let cache = format!("store: pages, slice: 64KiB, tags: surrogate-key, status_field: true, {more}");
    Setup::to(origin)
        .top("caches: { pages: { memory: 32MiB } }")
        .route(format!("filters: [{{ cache: {{ {cache} }} }}]"))
}

pub(super) fn get(peer: &mut Peer, fields: &str) -> Message {
    peer.ask(format!("GET /f HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n"))
}

pub(super) fn is_whole(message: &Message, version: usize) -> bool {
    message.status() == 200
        && message.field("content-length") == Some(&TOTAL.to_string())
        && message.field("content-range").is_none()
        && message.text() == content(version)
}

/// The ranges that the endpoint was asked for since the first `from` requests.
pub(super) fn asked(origin: &Origin, from: usize) -> Vec<String> {
    let text = |request: &Message| request.field("range").unwrap_or("none").to_owned();
    origin.requests()[from..].iter().map(text).collect()
}

pub(super) fn slice(number: usize) -> String {
    format!("bytes={}-{}", number * SLICE, (number + 1) * SLICE - 1)
}

/// Reads a response that is cut: the bytes of its body.
pub(super) fn cut(product: &Product, fields: &str) -> String {
    let mut peer = product.connect();
    peer.send(format!("GET /f HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n"));
    assert_eq!(peer.head().status(), 200);
    String::from_utf8(peer.rest()).expect("text")
}

#[test]
fn a_large_response_is_fetched_in_slices_and_served_whole_over_every_version() {
    let (_, origin) = Files::start();
    let site = site(setup(&origin, "").listener_more("clear: { bind: \"127.0.0.1:0\" }"), 1);
    let clear = site.product.address("clear");
    let mut peer = Peer::connect(clear);
    let first = get(&mut peer, "");
    assert!(is_whole(&first, 1));
    assert_eq!(
        (first.field("etag"), first.field("cache-status")),
        (Some("\"1\""), Some("pages; fwd=uri-miss; stored"))
    );
    assert_eq!(asked(&origin, 0), (0..5).map(slice).collect::<Vec<_>>());
    let conditions: Vec<_> =
        origin.requests().iter().map(|request| request.field("if-range").map(str::to_owned)).collect();
    assert_eq!(conditions[0], None);
    assert!(conditions[1..].iter().all(|condition| condition.as_deref() == Some("\"1\"")));
    let hit = get(&mut peer, "");
    assert!(is_whole(&hit, 1) && hit.field("age").is_some() && hit.field("surrogate-key").is_none());
    assert!(hit.field("cache-status").is_some_and(|status| status.starts_with("pages; hit")));
    let asked_before = origin.requests().len();
    let mut second = Client::connect(clear);
    let (mut third, body) = (site.connect(), content(1));
    let (one, two) = (second.ask(request("GET", "/f"), b""), third.ask(http3::request("GET", "/f"), b""));
    assert!(one.text() == body && two.text() == body);
    let range = &[("range", "bytes=65530-131080")];
    let (one, two) = (
        second.ask(with_fields(request("GET", "/f"), range), b""),
        third.ask(with_fields(http3::request("GET", "/f"), range), b""),
    );
    assert!(one.text() == body[65_530..=131_080] && two.text() == body[65_530..=131_080]);
    assert_eq!([one.field("content-range"), two.field("content-range")], [Some("bytes 65530-131080/263144"); 2]);
    // Two other hosts, of which each is fetched once at most.
    assert!(origin.requests().len() <= asked_before + 10);
    peer.send("HEAD /f HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    let head = peer.head();
    assert_eq!((head.status(), head.field("content-length")), (200, Some("263144")));
    assert!(is_whole(&get(&mut peer, ""), 1));
}

#[test]
fn a_range_fetches_only_the_slices_that_it_needs_and_the_whole_fetches_the_rest() {
    let (_, origin) = Files::start();
    let product = setup(&origin, "").start();
    let (mut peer, body) = (product.connect(), content(1));
    let mut ask = |range: &str, first: usize, last: usize| {
        let before = origin.requests().len();
        let answer = get(&mut peer, &format!("Range: bytes={range}\r\n"));
        let stated = format!("bytes {first}-{last}/{TOTAL}");
        assert_eq!((answer.status(), answer.field("content-range")), (206, Some(&*stated)), "{range}");
        assert!(answer.text() == body[first..=last], "{range}");
        asked(&origin, before)
    };
    // From the middle of one to the middle of another, behind the first.
    assert_eq!(ask("70000-140000", 70_000, 140_000), [slice(1), slice(2)]);
    assert_eq!(ask("65536-65536", SLICE, SLICE), [""; 0]);
    eventually("what was read in part is stored whole", || product.metric("equipoise_cache_entries", LABELS) == 2.0);
    assert_eq!(ask("131000-", 131_000, TOTAL - 1), [slice(3), slice(4)]);
    // The first tells the length, and is kept.
    assert_eq!(ask("-10", TOTAL - 10, TOTAL - 1), [slice(0)]);
    assert_eq!(ask("-70000", TOTAL - 70_000, TOTAL - 1), [""; 0]);
    assert_eq!(ask("0-999999", 0, TOTAL - 1), [""; 0]);
    product.expect_metric("equipoise_cache_entries", LABELS, 5.0);
    assert!(is_whole(&product.connect().ask("GET /f HTTP/1.1\r\nHost: shop.example\r\n\r\n"), 1));
    assert_eq!(origin.requests().len(), 5);
}

#[test]
fn conditions_and_ranges_beyond_the_end_are_answered_before_and_after_slices_are_stored() {
    let (_, origin) = Files::start();
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    for round in ["before", "after"] {
        let same = get(&mut peer, "If-None-Match: \"1\"\r\n");
        assert_eq!((same.status(), same.field("etag"), same.text().as_str()), (304, Some("\"1\""), ""), "{round}");
        let none = get(&mut peer, "Range: bytes=263144-\r\n");
        assert_eq!((none.status(), none.field("content-range")), (416, Some("bytes */263144")), "{round}");
        let beyond = get(&mut peer, "Range: bytes=900000-\r\n");
        assert_eq!((beyond.status(), beyond.field("content-range")), (416, Some("bytes */263144")), "{round}");
        // The range does not hold, so that all is sent, from the first byte on.
        assert!(is_whole(&get(&mut peer, "Range: bytes=140000-\r\nIf-Range: \"0\"\r\n"), 1), "{round}");
        let holds = get(&mut peer, "Range: bytes=140000-140001\r\nIf-Range: \"1\"\r\n");
        assert_eq!((holds.status(), holds.text().len()), (206, 2), "{round}");
    }
    let several = get(&mut peer, "Range: bytes=0-1,5-6\r\n");
    assert_eq!(several.status(), 206, "the endpoint has it whole");
    assert_eq!(asked(&origin, origin.requests().len() - 1), ["bytes=0-1,5-6"]);
}

#[test]
fn an_endpoint_without_ranges_has_its_responses_stored_whole() {
    let (files, origin) = Files::start();
    files.spoil(|_, _| response("200 OK", &["Cache-Control: max-age=600", "ETag: \"w\""], &content(1)));
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    assert!(is_whole(&get(&mut peer, ""), 1) && is_whole(&get(&mut peer, ""), 1));
    let part = get(&mut peer, "Range: bytes=1-2\r\n");
    assert_eq!((part.status(), part.text().as_str()), (206, &content(1)[1..3]));
    assert_eq!(origin.requests().len(), 1);
    product.expect_metric("equipoise_cache_entries", LABELS, 1.0);
}

#[test]
fn a_small_response_is_one_slice_and_an_empty_one_is_asked_for_again() {
    let (files, origin) = Files::start();
    files.spoil(|request, _| match (request.target(), request.field("range")) {
        ("/small", _) => part((0, 4, 5), &["Cache-Control: max-age=600"], "small"),
        ("/empty", Some(_)) => response("416 Range Not Satisfiable", &["Content-Range: bytes */0"], ""),
        _ => response("200 OK", &["Cache-Control: max-age=600"], ""),
    });
    let product = setup(&origin, "").start();
    for _ in 0..2 {
        let small = product.get("/small");
        assert_eq!((small.status(), small.text().as_str()), (200, "small"), "one slice needs no validator");
    }
    assert_eq!(origin.requests().len(), 1);
    let empty = product.get("/empty");
    assert_eq!((empty.status(), empty.field("content-length")), (200, Some("0")));
    assert_eq!(asked(&origin, 1), [slice(0), "none".to_owned()]);
}

#[test]
fn a_part_that_cannot_be_trusted_has_the_request_sent_again_as_the_client_sent_it() {
    let bad: [(&str, Answer); 9] = [
        ("another place", |body| part((1, SLICE, TOTAL), &["ETag: \"1\""], &body[1..=SLICE])),
        ("shorter", |body| part((0, 9, TOTAL), &["ETag: \"1\""], &body[..10])),
        ("longer", |body| part((0, SLICE, TOTAL), &["ETag: \"1\""], &body[..=SLICE])),
        ("beyond the end", |body| part((0, SLICE - 1, 10), &["ETag: \"1\""], &body[..SLICE])),
        ("no validator", |body| part((0, SLICE - 1, TOTAL), &[], &body[..SLICE])),
        ("a weak one", |body| part((0, SLICE - 1, TOTAL), &["ETag: W/\"1\""], &body[..SLICE])),
        ("another length", |body| part((0, SLICE - 1, TOTAL), &["ETag: \"1\""], &body[..SLICE - 1])),
        ("no range", |body| response("206 Partial Content", &["ETag: \"1\""], &body[..SLICE])),
        ("not for all", |body| part((0, SLICE - 1, TOTAL), &["ETag: \"1\"", "Cache-Control: private"], &body[..SLICE])),
    ];
    for (what, answer) in bad {
        let (files, origin) = Files::start();
        files.spoil(move |request, good| match request.field("range") {
            Some(range) if range == slice(0) => answer(&content(1)),
            _ => good,
        });
        let product = setup(&origin, "no_store: { expression: \"true\" }").start();
        let mut peer = product.connect();
        assert!(is_whole(&get(&mut peer, ""), 1), "{what}");
        assert_eq!(asked(&origin, 0), [slice(0), "none".to_owned()], "{what}");
        // For a while, nothing else is tried.
        assert!(is_whole(&get(&mut peer, ""), 1), "{what}");
        let part = get(&mut peer, "Range: bytes=5-6\r\n");
        assert_eq!((part.status(), part.text().as_str()), (206, &content(1)[5..7]), "{what}");
        assert_eq!(asked(&origin, 2), ["none", "bytes=5-6"], "{what}");
    }
}

#[test]
fn a_length_of_64_bits_is_stated_and_the_fetch_ends_with_the_client() {
    let (files, origin) = Files::start();
    files.spoil(|request, _| {
        let range = request.field("range").and_then(|range| range.strip_prefix("bytes=")).expect("a range");
        let tag = ["ETag: \"1\"", "Cache-Control: max-age=600"];
        let stated = format!("Content-Range: bytes {range}/9223372036854775808");
        response("206 Partial Content", &[tag[0], tag[1], &stated], &"x".repeat(SLICE))
    });
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    peer.send("GET /f HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    let head = peer.head();
    assert_eq!((head.status(), head.field("content-length")), (200, Some("9223372036854775808")));
    peer.take(3 * SLICE);
    drop(peer);
    // The last slices of what can be counted.
    let mut peer = product.connect();
    let answer = get(&mut peer, "Range: bytes=9223372036854775800-9223372036854775807\r\n");
    assert_eq!(
        (answer.status(), answer.field("content-range"), answer.text().as_str()),
        (206, Some("bytes 9223372036854775800-9223372036854775807/9223372036854775808"), "xxxxxxxx")
    );
    eventually("nothing is fetched for a client that has gone", || origin.busy() == 0);
    let before = origin.requests().len();
    assert_eq!(get(&mut peer, "Range: bytes=0-1\r\n").status(), 206);
    assert_eq!(origin.requests().len(), before, "what came whole is stored");
}

#[test]
fn a_client_never_gets_a_mix_of_two_versions() {
    let (files, origin) = Files::start();
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    let range = get(&mut peer, "Range: bytes=0-99999\r\n");
    assert_eq!(range.text(), content(1)[..100_000]);
    files.version.store(2, Ordering::SeqCst);
    // The first slices are stored and fresh, and the third is of another version.
    let old = cut(&product, "");
    assert!(old.len() == 2 * SLICE && content(1).starts_with(&old), "{}", old.len());
    assert_eq!(asked(&origin, 2), [slice(2)]);
    // What was stored is out of date by now, all of it.
    assert!(is_whole(&get(&mut peer, ""), 2));
    eventually("the new version is stored", || {
        let before = origin.requests().len();
        is_whole(&get(&mut peer, ""), 2) && origin.requests().len() == before
    });
}

#[test]
fn a_slice_that_is_not_as_it_was_stated_cuts_the_response() {
    let bad: [(&str, Answer); 7] = [
        ("another total", |body| part((SLICE, 2 * SLICE - 1, TOTAL + 1), &["ETag: \"1\""], &body[SLICE..2 * SLICE])),
        ("another place", |body| part((0, SLICE - 1, TOTAL), &["ETag: \"1\""], &body[..SLICE])),
        ("range is ignored", |body| response("200 OK", &["ETag: \"1\""], body)),
        ("no validator", |body| part((SLICE, 2 * SLICE - 1, TOTAL), &[], &body[SLICE..2 * SLICE])),
        ("gone", |_| response("404 Not Found", &[], "not here")),
        ("failed", |_| response("503 Service Unavailable", &[], "not now")),
        ("cut short", |body| {
            let mut all = part((SLICE, 2 * SLICE - 1, TOTAL), &["ETag: \"1\""], &body[SLICE..2 * SLICE]);
            all.truncate(all.len() - 100);
            all
        }),
    ];
    for (what, answer) in bad {
        let origin = Origin::start({
            let (files, _) = Files::start();
            move |mut visit| {
                while let Some(request) = visit.request() {
                    let is_bad = request.field("range").is_some_and(|range| range == slice(1));
                    let bytes = if is_bad { answer(&content(1)) } else { files.answer(&request) };
                    if visit.peer.try_send(bytes).is_err() || is_bad {
                        return;
                    }
                }
            }
        });
        let product = setup(&origin, "").start();
        let got = cut(&product, "");
        assert!(content(1).starts_with(&got), "{what}");
        let sent = if what == "cut short" { 2 * SLICE - 100 } else { SLICE };
        assert!(got.len() == sent || what == "cut short" && got.len() >= SLICE, "{what}: {}", got.len());
        assert!(!got.contains("not "), "{what}");
    }
}

#[test]
fn streams_of_http2_and_http3_are_reset_where_a_slice_is_missing() {
    let (files, origin) = Files::start();
    files.spoil(|request, good| match request.field("range") {
        Some(range) if range == slice(2) => response("500 Internal Server Error", &[], ""),
        _ => good,
    });
    let site = site(setup(&origin, "").listener_more("clear: { bind: \"127.0.0.1:0\" }"), 1);
    let mut second = Client::connect(site.product.address("clear"));
    let stream = second.open(request("GET", "/f"), true);
    assert!(second.try_answer(stream).is_err());
    let mut third = site.connect();
    let mut stream = third.open(http3::request("GET", "/f"));
    third.end(&mut stream, http::HeaderMap::new());
    assert!(third.try_answer(&mut stream).is_err());
    // Both connections go on.
    assert_eq!(second.ask(with_fields(request("GET", "/f"), &[("range", "bytes=0-9")]), b"").text(), content(1)[..10]);
    let part = third.ask(with_fields(http3::request("GET", "/f"), &[("range", "bytes=0-9")]), b"");
    assert_eq!(part.text(), content(1)[..10]);
}

#[test]
fn slices_are_purged_with_their_url_and_tag_and_outdated_by_a_change() {
    let (_, origin) = Files::start();
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    let purge = |query: &str| {
        let path = format!("DELETE /api/caches/pages/entries?{query}");
        product.call(&path, &[], "").text()
    };
    for query in ["url=http%3A%2F%2Fshop.example%2Ff", "tag=files"] {
        let before = origin.requests().len();
        assert!(is_whole(&get(&mut peer, ""), 1));
        assert_eq!(origin.requests().len(), before + 5, "{query}");
        product.expect_metric("equipoise_cache_entries", LABELS, 5.0);
        assert_eq!(purge(query), "{\"purged\":5}");
    }
    assert!(is_whole(&get(&mut peer, ""), 1));
    assert_eq!(peer.ask("POST /f HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1\r\n\r\nx").status(), 200);
    let before = origin.requests().len();
    assert!(is_whole(&get(&mut peer, ""), 1));
    assert_eq!(origin.requests().len(), before + 5);
}

#[test]
fn variants_have_slices_of_their_own_and_a_bypass_has_none() {
    let (_, origin) = Files::start();
    let product = setup(&origin, "bypass: { expression: 'has(request.headers[\"x-pass\"])' }").start();
    let mut peer = product.connect();
    for (fields, wanted) in
        [("Accept-Language: de\r\n", 5), ("Accept-Language: fr\r\n", 5), ("Accept-Language: de\r\n", 0)]
    {
        let before = origin.requests().len();
        assert!(is_whole(&get(&mut peer, fields), 1));
        assert_eq!(origin.requests().len() - before, wanted, "{fields}");
    }
    let before = origin.requests().len();
    assert!(is_whole(&get(&mut peer, "X-Pass: 1\r\n"), 1));
    assert_eq!(asked(&origin, before), ["none"]);
}

#[test]
fn a_response_is_sliced_once_it_was_asked_for_often_enough() {
    let (_, origin) = Files::start();
    let product = setup(&origin, "min_uses: 2").start();
    let mut peer = product.connect();
    assert!(is_whole(&get(&mut peer, ""), 1));
    assert_eq!(asked(&origin, 0), ["none"]);
    assert!(is_whole(&get(&mut peer, ""), 1));
    assert_eq!(origin.requests().len(), 6);
    product.expect_metric("equipoise_cache_entries", LABELS, 1.0);
    assert!(is_whole(&get(&mut peer, ""), 1));
    product.expect_metric("equipoise_cache_entries", LABELS, 5.0);
    let before = origin.requests().len();
    assert!(is_whole(&get(&mut peer, ""), 1));
    assert_eq!(origin.requests().len(), before);
}

#[test]
fn many_clients_have_each_slice_fetched_once() {
    let (files, origin) = Files::start();
    let product = setup(&origin, "").workers(2).start();
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    files.spoil(move |_, good| {
        eventually("all have asked", || open.load(Ordering::SeqCst));
        good
    });
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let mut peer = product.connect();
                peer.send("GET /f HTTP/1.1\r\nHost: shop.example\r\n\r\n");
                scope.spawn(move || is_whole(&peer.response(), 1))
            })
            .collect();
        eventually("one has been asked for", || !origin.requests().is_empty());
        gate.store(true, Ordering::SeqCst);
        assert!(clients.into_iter().all(|client| client.join().expect("a client")));
    });
    assert_eq!(origin.requests().len(), 5);
}

#[test]
fn a_stalled_client_holds_back_the_endpoint_and_one_that_leaves_ends_the_fetch() {
    let (files, origin) = Files::start();
    // Far more slices than sockets and buffers take.
    let total = 200 * SLICE;
    files.spoil(move |request, _| {
        let range = request.field("range").and_then(|range| range.strip_prefix("bytes=")).expect("a range");
        let stated = format!("Content-Range: bytes {range}/{total}");
        response("206 Partial Content", &["ETag: \"1\"", "Cache-Control: max-age=600", &stated], &"x".repeat(SLICE))
    });
    let product = setup(&origin, "").start();
    let mut slow = product.connect();
    slow.send("GET /f HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    assert_eq!(slow.head().status(), 200);
    let mut last = 0;
    eventually("the endpoint is asked for no more", || {
        let before = std::mem::replace(&mut last, origin.requests().len());
        std::thread::sleep(std::time::Duration::from_millis(300));
        before > 0 && origin.requests().len() == before
    });
    assert!(last < 200, "{last} slices were fetched ahead of the client");
    drop(slow);
    let mut peer = product.connect();
    assert_eq!(get(&mut peer, "").text().len(), total, "others go on");
}

#[test]
fn slices_on_disk_outlive_a_restart() {
    let (_, origin) = Files::start();
    let text = Setup::to(&origin)
        .top("caches: { pages: { memory: 1MiB, disk: { path: DIR/cache, max: 20MiB } } }")
        .route("filters: [{ cache: { store: pages, slice: 64KiB } }]");
    let product = text.start();
    assert!(is_whole(&get(&mut product.connect(), ""), 1));
    product.expect_metric("equipoise_cache_disk_entries", LABELS, 5.0);
    let mut ended = product;
    ended.signal(libc::SIGKILL);
    ended.wait_ended();
    let product = Product::start_in(ended.take_folder(), &text.text(), 1);
    product.expect_metric("equipoise_cache_disk_entries", LABELS, 5.0);
    let mut peer = product.connect();
    assert!(is_whole(&get(&mut peer, ""), 1));
    let part = get(&mut peer, "Range: bytes=200000-200009\r\n");
    assert_eq!((part.status(), part.text().as_str()), (206, &content(1)[200_000..200_010]));
    assert_eq!(origin.requests().len(), 5);
}

#[test]
fn a_slice_that_is_no_longer_fresh_is_validated_and_a_failing_endpoint_is_hidden() {
    let (files, origin) = Files::start();
    files.spoil(|_, good| {
        let end = good.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&good[..end]).replace("max-age=600", "max-age=0");
        [head.as_bytes(), &good[end..]].concat()
    });
    let product = setup(&origin, "").start();
    let mut peer = product.connect();
    assert!(is_whole(&get(&mut peer, ""), 1));
    assert!(is_whole(&get(&mut peer, ""), 1));
    let later = &origin.requests()[5..];
    assert_eq!(later.len(), 5);
    assert!(later.iter().all(|request| request.field("if-none-match") == Some("\"1\"")));
    files.spoil(|_, good| good);
    let kept = setup(&origin, "override_ttl: { any: 1s }, stale_if_error: 1h").start();
    let mut peer = kept.connect();
    assert!(is_whole(&get(&mut peer, ""), 1));
    files.spoil(|_, _| response("503 Service Unavailable", &[], "not now"));
    eventually("it is no longer fresh, and served", || {
        let answer = get(&mut peer, "");
        assert!(is_whole(&answer, 1));
        answer.field("cache-status").is_some_and(|status| status.contains("ttl=-"))
    });
    let before = origin.requests().len();
    assert!(is_whole(&get(&mut peer, ""), 1));
    assert_eq!(origin.requests().len(), before + 5);
}

#[test]
fn other_filters_see_the_response_as_the_client_gets_it() {
    let (_, origin) = Files::start();
    let filters = "filters: [{ set_response_header: { x-code: \"{status}\" } }, { cache: { store: pages, slice: 64KiB } }, \
                   { compress: { size_min: 1 } }]";
    let product = Setup::to(&origin).top("caches: { pages: { memory: 32MiB } }").route(filters).start();
    for _ in 0..2 {
        let plain = get(&mut product.connect(), "");
        assert!(is_whole(&plain, 1));
        assert_eq!(plain.field("x-code"), Some("200"));
    }
    assert_eq!(origin.requests().len(), 5);
}
