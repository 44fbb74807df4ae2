//! The filter `decompress`: coded bodies reach endpoints decoded, over every version, with every attempt, and within bounds.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::HeaderMap;

use super::harness::http2::{Client, request, with_fields};
use super::harness::http2_origin::{Http2Origin, Rules as Http2Rules};
use super::harness::http3_origin::{Http3Origin, Rules as Http3Rules};
use super::harness::origin::ok;
use super::harness::tls::Authority;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const FILTER: &str = "filters: [{ decompress: {} }]";
const TOKENS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

fn text() -> String {
    (0..9000).map(|number| format!("line {number} of a text that repeats itself\n")).collect()
}

fn coded(token: &str, body: &[u8]) -> Vec<u8> {
    match token {
        "gzip" => {
            let mut writer = GzEncoder::new(Vec::new(), Compression::new(6));
            writer.write_all(body).expect("memory");
            writer.finish().expect("memory")
        }
        "deflate" => {
            let mut writer = ZlibEncoder::new(Vec::new(), Compression::new(6));
            writer.write_all(body).expect("memory");
            writer.finish().expect("memory")
        }
        "br" => {
            let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 4, 20);
            writer.write_all(body).expect("memory");
            writer.into_inner()
        }
        "zstd" => zstd::stream::encode_all(body, 3).expect("memory"),
        other => panic!("{other}"),
    }
}

/// A request over HTTP/1.1 with this body.
fn put(token: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("PUT /in HTTP/1.1\r\nHost: test\r\nContent-Encoding: {token}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// An origin that answers with the length of the body that it got, and what it knows of it.
fn measuring() -> Origin {
    Origin::answering(|asked| {
        let sum: u64 = asked.body.iter().map(|byte| u64::from(*byte)).sum();
        let fields = ["content-encoding", "content-length", "transfer-encoding"];
        let fields: Vec<_> = fields.iter().map(|name| asked.field(name).unwrap_or("-").to_ascii_lowercase()).collect();
        ok(&format!("{} {sum} {}", asked.body.len(), fields.join(" ")))
    })
}

fn measured(body: &[u8], fields: &str) -> String {
    format!("{} {} {fields}", body.len(), body.iter().map(|byte| u64::from(*byte)).sum::<u64>())
}

#[test]
fn coded_bodies_reach_the_endpoint_decoded_over_every_version_of_the_client() {
    let origin = measuring();
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(FILTER), 2);
    let whole = text();
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    let expected = measured(whole.as_bytes(), "- - chunked");
    for token in TOKENS {
        let sent = coded(token, whole.as_bytes());
        assert_eq!(first.ask(put(token, &sent)).text(), expected, "{token}");
        let fields = [("content-encoding", token)];
        assert_eq!(second.ask(with_fields(request("PUT", "/in"), &fields), &sent).text(), expected, "{token}");
        assert_eq!(third.ask(with_fields(http3::request("PUT", "/in"), &fields), &sent).text(), expected, "{token}");
    }
    // What is not coded passes as it is, with its length.
    let plain = first.ask("PUT /in HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nplain");
    assert_eq!(plain.text(), measured(b"plain", "- 5 -"));
    let other = first.ask(put("compress", b"plain"));
    assert_eq!(other.text(), measured(b"plain", "compress 5 -"));
}

#[test]
fn endpoints_of_http2_and_http3_get_the_decoded_body_and_no_length() {
    let whole = text();
    let second = Http2Origin::start(Http2Rules::default(), |mut asked| {
        Box::pin(async move {
            let head = asked.head.headers().clone();
            let (body, _) = asked.read().await.expect("a body");
            asked.answer(seen(&head, &body)).await;
        })
    });
    let authority = Authority::new("the origin's");
    let third = Http3Origin::start(Http3Rules::of(&authority), |mut asked| {
        Box::pin(async move {
            let head = asked.head.headers().clone();
            let (body, _) = asked.read().await.expect("a body");
            asked.answer(seen(&head, &body)).await;
        })
    });
    let folder = super::harness::product::folder();
    authority.write(folder.path(), "origin.pem");
    let others = format!(
        "third: {{ endpoints: [{{ address: \"{}\" }}], http_versions: [h3], tls: {{ authorities: origin.pem }} }}",
        third.address()
    );
    let setup = Setup::to_addresses(&[second.address()])
        .cluster("http_versions: [h2]")
        .cluster_more(others)
        .route(FILTER)
        .route_before(format!("{{ name: third, match: {{ path: {{ prefix: /third }} }}, cluster: third, {FILTER} }}"));
    let product = Product::start_in(folder, &setup.text(), 1);
    let mut client = product.connect();
    for token in TOKENS {
        let sent = coded(token, whole.as_bytes());
        let expected = format!("{} false false", whole.len());
        assert_eq!(client.ask(put(token, &sent)).text(), expected, "{token} to HTTP/2");
        let to_third = String::from_utf8_lossy(&put(token, b"")).replace("/in", "/third");
        let head = to_third.replace("Content-Length: 0", &format!("Content-Length: {}", sent.len()));
        assert_eq!(client.ask([head.as_bytes(), &sent].concat()).text(), expected, "{token} to HTTP/3");
    }
}

fn seen(head: &HeaderMap, body: &[u8]) -> String {
    let has = |name: &str| head.contains_key(name);
    format!("{} {} {}", body.len(), has("content-encoding"), has("content-length"))
}

#[test]
fn every_attempt_decodes_the_body_from_its_beginning() {
    let whole = text();
    let dying = Origin::start(|mut visit| {
        visit.request();
    });
    let origins = [dying, measuring()];
    let retry = "retry: { on: [reset], methods: any, body_max: 48KiB }";
    let product = Setup::to_all(&origins).cluster("balance: first").cluster(retry).route(FILTER).workers(1).start();
    let expected = measured(whole.as_bytes(), "- - chunked");
    for token in TOKENS {
        let sent = coded(token, whole.as_bytes());
        assert_eq!(product.connect().ask(put(token, &sent)).text(), expected, "{token}");
    }
    assert!(!origins[0].requests().is_empty(), "it was asked first");
    assert!(origins[0].requests().iter().all(|asked| asked.body == whole.as_bytes()), "and got the same");
}

#[test]
fn a_hedge_decodes_the_body_beside_the_first_attempt() {
    let whole = text();
    let silent = Origin::start(|mut visit| {
        if visit.request().is_some() {
            let _ = visit.peer.fill();
        }
    });
    let origins = [silent, measuring()];
    let hedge = "hedge: { after: 200ms, budget: 100%, methods: any }";
    let setup = Setup::to_all(&origins).cluster("balance: first").cluster(hedge);
    let product = setup.cluster("retry: { body_max: 48KiB }").route(FILTER).workers(1).start();
    let sent = coded("zstd", whole.as_bytes());
    assert_eq!(product.connect().ask(put("zstd", &sent)).text(), measured(whole.as_bytes(), "- - chunked"));
    assert_eq!(origins[0].only_request().body, whole.as_bytes(), "the first has it too");
    product.expect_metric("equipoise_cluster_hedges_total", &["cluster=\"site\"", "result=\"won\""], 1.0);
}

#[test]
fn trailers_stay_behind_a_decoded_body_and_a_client_is_asked_for_it() {
    let origin = measuring();
    let product = Setup::to(&origin).route(FILTER).start();
    let mut peer = product.connect();
    let sent = coded("gzip", b"decoded");
    peer.send(
        "PUT /in HTTP/1.1\r\nHost: test\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n",
    );
    peer.send(format!("{:x}\r\n", sent.len()));
    peer.send(&sent);
    peer.send("\r\n0\r\nX-Sum: 7\r\n\r\n");
    assert_eq!(peer.response().text(), measured(b"decoded", "- - chunked"));
    assert_eq!(origin.only_request().trailers, [("X-Sum".to_owned(), "7".to_owned())]);
}

#[test]
fn a_piece_of_a_body_is_decoded_when_its_sender_pauses() {
    let origin = Origin::start(|mut visit| {
        let Ok(Some(head)) = visit.peer.try_head() else { return };
        assert_eq!(head.field("transfer-encoding"), Some("chunked"));
        let begun = visit.peer.try_take_through(b"first\r\n").expect("a chunk");
        assert!(begun.starts_with(b"5\r\n"), "{begun:?}");
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nsaw");
        let _ = visit.peer.fill();
    });
    let product = Setup::to(&origin).route(FILTER).start();
    let mut peer = product.connect();
    let mut writer = GzEncoder::new(Vec::new(), Compression::new(6));
    writer.write_all(b"first").expect("memory");
    writer.flush().expect("memory");
    let piece = writer.get_ref();
    peer.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
    peer.send(format!("{:x}\r\n", piece.len()));
    peer.send(piece);
    peer.send("\r\n");
    assert_eq!(peer.response().text(), "saw", "the rest of the body is still to come");
}

#[test]
fn bombs_and_garbage_are_refused_and_the_endpoint_never_takes_them_for_whole() {
    let origin = measuring();
    let product = Setup::to(&origin).route(FILTER).start();
    for token in TOKENS {
        let bomb = coded(token, &vec![0; 30 << 20]);
        let refused = product.connect().ask(put(token, &bomb));
        assert_eq!(refused.status(), 413, "{token}");
        let garbage = product.connect().ask(put(token, b"this is not what it says that it is"));
        assert_eq!(garbage.status(), 400, "{token}");
        let whole = coded(token, text().as_bytes());
        let cut = product.connect().ask(put(token, &whole[..whole.len() / 2]));
        assert_eq!(cut.status(), 400, "{token}");
    }
    assert!(origin.requests().is_empty(), "no request was whole");
    eventually("nothing is left at the endpoint", || origin.open() == 0);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
}

#[test]
fn a_client_that_stalls_within_a_coded_body_ends_by_its_time_out() {
    let origin = measuring();
    let product = Setup::to(&origin).cluster("timeouts: { idle: 1s }").route(FILTER).start();
    let whole = coded("br", text().as_bytes());
    let sent = put("br", &whole);
    let mut peer = Peer::sending(product.web(), &sent[..sent.len() - 10]);
    assert_eq!(peer.response().status(), 408);
    product.flagged("CBT");
    eventually("the endpoint is let go", || origin.open() == 0);
}

#[test]
fn an_endpoint_that_stalls_holds_a_decoded_body_back_with_flat_memory() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let origin = Origin::start(move |mut visit| {
        let _head = visit.peer.try_head();
        // It reads no more until the test says so.
        let _ = told.lock().expect("a test").recv();
        while visit.peer.fill().is_ok_and(|count| count > 0) {
            visit.peer.drain();
        }
    });
    let filter = "filters: [{ decompress: { ratio_max: 100000 } }]";
    let setup = Setup::to(&origin).cluster("timeouts: { idle: 30s }").route(filter);
    let product = setup.workers(1).start();
    let before = product.resident_bytes();
    // 600 MB, of which sockets take a few.
    let bomb = coded("zstd", &vec![7; 600_000_000]);
    let mut peer = Peer::sending(product.web(), put("zstd", &bomb));
    eventually("the endpoint is reached", || origin.open() == 1);
    peer.assert_silent(Duration::from_secs(1));
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes");
    tell.send(()).expect("an origin");
}

#[test]
fn a_request_that_asks_for_another_protocol_is_decoded_too() {
    let origin = measuring();
    let product = Setup::to(&origin).route(FILTER).start();
    let sent = String::from_utf8_lossy(&put("gzip", b"")).replace("Content-Length: 0", "Content-Length: LENGTH");
    let body = coded("gzip", b"decoded");
    let head = sent.replace("Host: test", "Host: test\r\nConnection: Upgrade\r\nUpgrade: x");
    let head = head.replace("LENGTH", &body.len().to_string());
    assert_eq!(product.connect().ask([head.as_bytes(), &body].concat()).text(), measured(b"decoded", "- - chunked"));
}

#[test]
fn responses_are_decoded_for_clients_that_do_not_accept_their_coding() {
    let whole = text();
    let sent = coded("br", whole.as_bytes());
    let origin = Origin::answering(move |_| {
        let length = sent.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
        );
        [head.as_bytes(), &sent].concat()
    });
    let filters = "filters: [{ decompress: { responses: unless_accepted } }]";
    let again = "{ name: again, match: { path: { prefix: /again } }, cluster: site, \
                 filters: [{ compress: { algorithms: [gzip] } }, { decompress: { responses: always } }] }";
    let product = Setup::to(&origin).route(filters).route_before(again).start();
    let mut peer = product.connect();
    let decoded = peer.ask("GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!((decoded.text(), decoded.field("content-encoding")), (whole.clone(), None));
    assert_eq!(decoded.field("vary"), Some("Accept-Encoding"));
    let kept = peer.ask("GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip, br\r\n\r\n");
    assert_eq!((kept.field("content-encoding"), kept.field("vary")), (Some("br"), Some("Accept-Encoding")));
    // It is decoded before it is coded, whatever the list says.
    let coded = peer.ask("GET /again HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(coded.field("content-encoding"), Some("gzip"));
    let mut read = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&coded.body[..]), &mut read).expect("gzip");
    assert_eq!(read, whole);
}

/// So many parts of 64 MiB: 10 GiB with `EQUIPOISE_LONG`.
fn parts() -> usize {
    if std::env::var_os("EQUIPOISE_LONG").is_some() { 160 } else { 1 }
}

#[test]
fn a_long_body_is_decoded_with_flat_memory() {
    let count = parts() << 26;
    let origin = Origin::start(move |mut visit| {
        let Ok(Some(_head)) = visit.peer.try_head() else { return };
        let mut read = 0;
        loop {
            let Ok(line) = visit.peer.try_take_through(b"\r\n") else { return };
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).expect("a size");
            read += size;
            if visit.peer.try_take(size + 2).is_err() {
                return;
            }
            if size == 0 {
                return visit.peer.send(ok(&read.to_string()));
            }
        }
    });
    let filter = "filters: [{ decompress: { ratio_max: 100000 } }]";
    let product = Setup::to(&origin).route(filter).cluster("timeouts: { idle: 60s }").workers(1).start();
    let before = product.resident_bytes();
    let line: Vec<u8> = (0..1 << 26).map(|number: u32| (number.wrapping_mul(2_654_435_761) >> 31) as u8).collect();
    let part = coded("zstd", &line);
    let length = part.len() * parts();
    let head = format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Encoding: zstd\r\nContent-Length: {length}\r\n\r\n");
    let mut peer = Peer::sending(product.web(), head);
    for _ in 0..parts() {
        peer.send(&part);
    }
    assert_eq!(peer.response().text(), count.to_string());
    let more = product.resident_bytes().saturating_sub(before);
    assert!(more < 24 << 20, "{more} bytes more");
}

#[test]
fn a_response_that_exceeds_a_bound_is_no_fault_of_its_endpoint() {
    let sent = coded("gzip", &vec![0; 8 << 20]);
    let origin = Origin::answering(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", sent.len());
        [head.as_bytes(), &sent].concat()
    });
    let filters = "filters: [{ decompress: { responses: always, size_max: 10KiB } }]";
    let health =
        "passive_health: { consecutive_failures: 1, ejected_max: 100%, ejection_time: 10m, ejection_time_max: 10m }";
    let product = Setup::to(&origin).route(filters).cluster(health).workers(1).start();
    for _ in 0..3 {
        assert_eq!(product.get("/").status(), 502);
    }
    assert_eq!(product.flagged("PR")["fault"], "response_too_large");
    assert_eq!(origin.requests().len(), 3, "each was asked for once, and the endpoint stays in");
}
