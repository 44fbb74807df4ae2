//! The filter `buffer` with responses, and with a spool: slow clients hold no endpoint, memory and disk are bounded, and no byte is lost.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::harness::http2::{Client, request};
use super::harness::peer::Stream;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3, sys};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const MIB: usize = 1 << 20;
const PIECE: usize = 1 << 16;

/// Any piece of a body says where it is from.
fn pattern(from: usize, count: usize) -> Vec<u8> {
    (from..from + count)
        .map(|place| ((place >> 2) as u32 ^ (place >> 13) as u32).wrapping_mul(2_654_435_761))
        .map(|word| (word >> 24) as u8)
        .collect()
}

fn is_pattern(from: usize, bytes: &[u8]) -> bool {
    pattern(from, bytes.len()) == bytes
}

/// Answers with the pattern, as long as the path says, in chunks below `/chunked/`. Counts the responses that it has sent whole.
fn sized(sent: &Arc<AtomicUsize>) -> Origin {
    let sent = Arc::clone(sent);
    Origin::start(move |mut visit| {
        while let Some(asked) = visit.request() {
            let (_, length) = asked.target().rsplit_once('/').expect("a path");
            let length: usize = length.parse().expect("a length");
            let is_chunked = asked.target().starts_with("/chunked/");
            let framing =
                if is_chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {length}") };
            visit.peer.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"));
            for from in (0..length).step_by(PIECE) {
                let mut piece = pattern(from, PIECE.min(length - from));
                if is_chunked {
                    piece = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
                }
                if visit.peer.try_send(piece).is_err() {
                    return;
                }
            }
            if is_chunked {
                visit.peer.send("0\r\nX-Trailer: behind\r\n\r\n");
            }
            sent.fetch_add(1, Ordering::SeqCst);
        }
    })
}

fn buffered(origin: &Origin, settings: &str) -> Setup {
    Setup::to(origin).route(format!("filters: [{{ buffer: {settings} }}]")).listener("timeouts: { stream: 600s }")
}

/// A client whose kernel takes in little.
fn narrow(address: std::net::SocketAddr) -> Peer {
    let tcp = TcpStream::connect(address).expect("a connection");
    sys::set_receive_buffer(&tcp, 16 * 1024);
    Peer::new(Stream::Plain(tcp))
}

fn ask(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\nTE: trailers\r\n\r\n")
}

/// Whether the spool has no file that has a name.
fn is_empty(product: &Product) -> bool {
    std::fs::read_dir(product.folder())
        .expect("the folder")
        .flatten()
        .all(|entry| !entry.file_name().to_string_lossy().starts_with(".equipoise"))
}

const SPOOL: &str = "spool: { directory: DIR, body_max: 64MiB, total_max: 256MiB }";

#[test]
fn an_endpoint_is_free_while_slow_clients_of_all_versions_read_and_no_byte_is_lost() {
    let sent = Arc::new(AtomicUsize::new(0));
    let origin = sized(&sent);
    let length = 24 * MIB + 77;
    let site = site(buffered(&origin, &format!("{{ response: 256KiB, {SPOOL} }}")).listener_more(CLEAR), 2);
    let clear = site.product.address("clear");
    let mut first = narrow(clear);
    first.send(ask(&format!("/{length}")));
    let mut chunked = narrow(clear);
    chunked.send(ask(&format!("/chunked/{length}")));
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let waiting = second.open(request("GET", &format!("/{length}")), true);
    second.flush();
    let mut asked = third.open(http3::request("GET", &format!("/chunked/{length}")));
    third.end(&mut asked, http::HeaderMap::new());
    third.flush();
    eventually("the endpoint is done with all of them", || sent.load(Ordering::SeqCst) == 4);
    site.product.expect_metric("equipoise_filter_events_total", &["event=\"spooled\""], 4.0);
    assert!(is_empty(&site.product));
    for peer in [&mut first, &mut chunked] {
        let answer = peer.response();
        assert!(answer.body.len() == length && is_pattern(0, &answer.body));
        assert_eq!(answer.trailers.len(), usize::from(answer.field("content-length").is_none()));
    }
    assert!(is_pattern(0, &second.answer(waiting).body));
    let third_answer = third.answer(asked);
    assert!(third_answer.body.len() == length && is_pattern(0, &third_answer.body));
    // The connections carry others.
    assert_eq!((first.get("/5").body.len(), chunked.get("/6").body.len()), (5, 6));
}

#[test]
fn memory_alone_frees_the_endpoint_too_within_its_bound() {
    let sent = Arc::new(AtomicUsize::new(0));
    let origin = sized(&sent);
    let product = buffered(&origin, "{ response: 24MiB, memory_max: 32MiB }").start();
    let length = 20 * MIB;
    let before = product.resident_bytes();
    let mut first = narrow(product.web());
    first.send(ask(&format!("/{length}")));
    eventually("it is free", || sent.load(Ordering::SeqCst) == 1);
    let others: Vec<Peer> = (0..3)
        .map(|_| {
            let mut other = narrow(product.web());
            other.send(ask(&format!("/{length}")));
            other.head();
            other
        })
        .collect();
    let more = product.resident_bytes().saturating_sub(before);
    assert!(more < 56 << 20, "{more} bytes more");
    std::thread::scope(|scope| {
        for mut other in others {
            scope.spawn(move || assert!(is_pattern(0, &other.take(length))));
        }
        assert!(is_pattern(0, &first.response().body));
    });
}

#[test]
fn a_spool_that_cannot_be_written_means_streaming_or_the_end() {
    let sent = Arc::new(AtomicUsize::new(0));
    let origin = sized(&sent);
    let length = 24 * MIB;
    let broken = |more: &str| {
        buffered(&origin, &format!("{{ response: 64KiB, spool: {{ directory: DIR/missing{more} }} }}")).start()
    };
    let streams = broken("");
    let mut client = narrow(streams.web());
    client.send(ask(&format!("/{length}")));
    client.head();
    streams.expect_metric_at_least("equipoise_filter_events_total", &["event=\"spool_failed\""], 1.0);
    streams.expect_said(&["cannot write a body to the spool", "missing"]);
    assert!(is_pattern(0, &client.take(length)), "it is streamed");
    assert_eq!(client.get("/3").body.len(), 3);
    let ends = broken(", on_failure: end");
    let mut client = narrow(ends.web());
    client.send(ask(&format!("/{length}")));
    assert_eq!(ends.flagged("PW")["fault"], "spool_failed");
    client.head();
    assert!(client.rest().len() < length, "it is cut short");
}

#[test]
fn an_endpoint_that_stalls_or_breaks_off_ends_a_response_that_is_held() {
    let origin = Origin::start(|mut visit| {
        while let Some(asked) = visit.request() {
            visit.peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 8 * MIB));
            visit.peer.send(pattern(0, 100_000));
            if asked.target() == "/breaks" {
                return;
            }
            visit.peer.wait_closed();
        }
    });
    let product = buffered(&origin, "{ response: 64KiB }").cluster("timeouts: { idle: 300ms }").start();
    for (path, flag) in [("/stalls", "UDT"), ("/breaks", "UD")] {
        let mut client = product.connect();
        client.send(ask(path));
        client.head();
        assert!(is_pattern(0, &client.take(100_000)), "what has come passes at once");
        assert!(client.rest().is_empty());
        assert_eq!(product.flagged(flag)["status"], 200);
    }
}

#[test]
fn long_requests_wait_in_files_and_are_sent_again_from_there() {
    let broken = AtomicUsize::new(0);
    let origin = Origin::start(move |mut visit| {
        while let Some(asked) = visit.request() {
            let is_whole = is_pattern(0, &asked.body);
            // The first attempt of each gets no response.
            if broken.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                return;
            }
            let text = format!("{} {is_whole} {}", asked.body.len(), asked.trailers.len());
            visit.peer.send(super::harness::origin::ok(&text));
        }
    });
    let setup = buffered(&origin, &format!("{{ request: 64KiB, {SPOOL} }}"))
        .cluster("retry: { on: [reset], same_endpoint: true }");
    let site = site(setup.listener_more(CLEAR), 2);
    let clear = site.product.address("clear");
    let body = pattern(0, 4 * MIB + 5);
    let wanted = format!("{} true 0", body.len());
    let mut first = Peer::connect(clear);
    first.send(format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len()));
    first.send(&body);
    assert_eq!(first.response().text(), wanted);
    let mut chunks = Vec::new();
    for piece in body.chunks(99_991) {
        chunks.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    first.send("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    first.send([&chunks[..], b"0\r\nX-Trailer: behind\r\n\r\n"].concat());
    assert_eq!(first.response().text(), wanted.replace(" 0", " 1"));
    assert_eq!(Client::connect(clear).ask(request("PUT", "/"), &body).text(), wanted);
    assert_eq!(site.connect().ask(http3::request("PUT", "/"), &body).text(), wanted);
    // What fits into memory goes nowhere else.
    let small = Client::connect(clear).ask(request("PUT", "/"), &body[..65_536]);
    assert_eq!(small.text(), "65536 true 0");
    site.product.expect_metric("equipoise_filter_events_total", &["event=\"spooled\""], 4.0);
    assert!(is_empty(&site.product));
}

#[test]
fn requests_beyond_the_bounds_of_the_spool_and_those_of_a_broken_one_are_refused() {
    let origin = Origin::saying("in");
    let start = |spool: &str| buffered(&origin, &format!("{{ request: 1KiB, spool: {{ {spool} }} }}")).start();
    let put = |product: &Product, length: usize| {
        let mut peer = product.connect();
        peer.send("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
        let _ = peer.try_send([format!("{length:x}\r\n").as_bytes(), &pattern(0, length), b"\r\n0\r\n\r\n"].concat());
        peer.response().status()
    };
    let product = start("directory: DIR, body_max: 64KiB, total_max: 1MiB");
    assert_eq!([60_000, 65_537, 60_000].map(|length| put(&product, length)), [200, 413, 200]);
    let known = product.connect().ask("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 65537\r\n\r\n");
    assert_eq!(known.status(), 413);
    let broken = start("directory: DIR/missing");
    assert_eq!([1_024, 1_025, 1_000].map(|length| put(&broken, length)), [200, 503, 200]);
    assert_eq!(broken.flagged("PW")["fault"], "spool_failed");
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn a_request_that_trickles_in_has_a_time_limit() {
    let origin = Origin::saying("in");
    let product = buffered(&origin, "{ request: 1KiB, request_timeout: 500ms }").start();
    let mut peer = product.connect();
    peer.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n");
    // Never silent for long.
    peer.set_read_timeout(Duration::from_millis(50));
    let mut sent = 0;
    while sent < 400 && peer.wait_some().is_err() && peer.try_send("x").is_ok() {
        sent += 1;
    }
    assert!(sent < 400, "twenty seconds have passed");
    assert_eq!(peer.response().status(), 408);
    assert_eq!(product.flagged("CBT")["status"], 408);
    assert!(origin.requests().is_empty());
}

#[test]
fn an_upgrade_with_a_body_is_an_ordinary_request() {
    let origin = Origin::saying("in");
    let product = buffered(&origin, "{ request: 1KiB }").start();
    let mut peer = product.connect();
    peer.send(
        "PUT / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 4\r\n\r\nbo",
    );
    peer.assert_silent(Duration::from_millis(100));
    assert_eq!(origin.connections(), 0, "it is held");
    peer.send("dy");
    assert_eq!(peer.response().text(), "in");
    let seen = origin.only_request();
    assert_eq!((seen.text(), seen.field("upgrade")), ("body".to_owned(), None));
}

#[test]
fn a_long_response_takes_no_more_memory_than_a_short_one_however_slow_its_client_is() {
    let sent = Arc::new(AtomicUsize::new(0));
    let origin = sized(&sent);
    let length = super::compress::long() as usize;
    let product = buffered(&origin, &format!("{{ response: 256KiB, {SPOOL} }}")).start();
    let mut warm = product.connect();
    assert!(is_pattern(0, &warm.get("/1000000").body));
    let before = product.resident_bytes();
    let mut client = narrow(product.web());
    client.send(ask(&format!("/{length}")));
    client.head();
    product.expect_metric("equipoise_filter_events_total", &["event=\"spooled\""], 1.0);
    for from in (0..length).step_by(PIECE) {
        assert!(is_pattern(from, &client.take(PIECE.min(length - from))), "at {from}");
    }
    let more = product.resident_bytes().saturating_sub(before);
    assert!(more < 16 << 20, "{more} bytes more");
    assert_eq!(sent.load(Ordering::SeqCst), 2);
}
