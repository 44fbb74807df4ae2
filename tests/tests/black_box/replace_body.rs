//! The filter `replace_body`: text in bodies is replaced as it streams, over every version, with heads that tell the truth.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::compress::long;
use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::{Origin, Peer, Setup, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const FILTER: &str = "filters: [{ replace_body: { replace: [{ text: \"http://inside/\", with: \"https://{host}/\" }, \
                      { regex: \"v([0-9]+)\\\\.[0-9]+\", with: \"v$1\" }], types: [\"text/*\"] } }]";

fn page(body: &str, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len()).into_bytes()
}

#[test]
fn text_is_replaced_over_every_version_and_heads_say_so() {
    let line = "<a href=http://inside/x>v12.7</a>\n".repeat(5_000);
    let fields = "Content-Type: text/html\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n";
    let origin = Origin::answering(move |_| page(&line, fields));
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(FILTER), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    let names = ["content-length", "etag", "accept-ranges", "content-type"];
    // With a variable the page is another for each host: no tag of the endpoint's names it.
    let wanted = [None, None, None, Some("text/html")];
    let one = first.get("/");
    assert_eq!(names.map(|name| one.field(name)), wanted);
    let whole = |host: &str| format!("<a href=https://{host}/x>v12</a>\n").repeat(5_000);
    assert!(one.text() == whole("test"));
    let two = second.get("/");
    assert_eq!(names.map(|name| two.field(name)), wanted);
    assert!(two.text() == whole("shop.example") || two.text() == whole("test"));
    let three = third.get("/");
    assert_eq!(names.map(|name| three.field(name)), wanted);
    assert!(three.text() == whole("shop.example"));
    // Of HEAD the head is the same.
    first.send("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = first.head();
    assert_eq!(names.map(|name| head.field(name)), wanted);
    assert_eq!(first.get("/").status(), 200);
    // HTTP/1.0 has no chunks: the end of the connection is that of the body.
    let mut old = Peer::connect(clear);
    old.send("GET / HTTP/1.0\r\nHost: test\r\n\r\n");
    let head = old.head();
    assert_eq!((head.field("content-length"), head.field("transfer-encoding")), (None, None));
    assert!(old.rest() == whole("test").as_bytes());
}

#[test]
fn coded_bodies_pass_unless_they_are_decoded_and_may_be_coded_after() {
    let text = "see http://inside/x, ".repeat(500);
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut coder, text.as_bytes()).expect("memory");
    let coded = coder.finish().expect("memory");
    let answer = [
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            coded.len()
        )
        .into_bytes(),
        coded.clone(),
    ]
    .concat();
    let origin = Origin::answering(move |_| answer.clone());
    let replace = "{ replace_body: { replace: [{ text: \"http://inside/\", with: \"/\" }], types: [\"text/*\"] } }";
    let asked = "GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: br\r\n\r\n";
    let alone = Setup::to(&origin).route(format!("filters: [{replace}]")).start();
    let passed = alone.connect().ask(asked);
    assert_eq!((passed.field("content-encoding"), passed.body == coded), (Some("gzip"), true));
    // Whatever the order of the list.
    let decoded = format!(
        "filters: [{{ compress: {{}} }}, {replace}, {{ decompress: {{ requests: false, responses: always }} }}]"
    );
    let all = Setup::to(&origin).route(decoded).start();
    let got = all.connect().ask(asked);
    assert_eq!(got.field("content-encoding"), Some("br"));
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut brotli::Decompressor::new(&got.body[..], 4096), &mut plain).expect("brotli");
    assert!(plain == "see /x, ".repeat(500).as_bytes());
}

#[test]
fn an_event_is_not_held_back_but_for_the_beginning_of_a_match() {
    let (tell, seen) = channel::<()>();
    let seen = Mutex::new(seen);
    let origin = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            visit.peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            for part in ["data: one\n\n", "data: http://in", "side/two\n\n"] {
                visit.peer.send(format!("{:x}\r\n{part}\r\n", part.len()));
                seen.lock().expect("nobody panicked").recv().expect("the client has it");
            }
            visit.peer.send("0\r\n\r\n");
        }
    });
    let product = Setup::to(&origin).route(FILTER).start();
    let mut peer = product.connect();
    peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    peer.head();
    let mut got = String::new();
    for wanted in ["data: one\n\n", "data: one\n\ndata: ", "data: one\n\ndata: https://test/two\n\n"] {
        while got != wanted {
            let line = String::from_utf8(peer.try_take_through(b"\r\n").expect("a chunk")).expect("text");
            let size = usize::from_str_radix(line.trim(), 16).expect("a size");
            got.push_str(&String::from_utf8(peer.take(size)).expect("text"));
            peer.take(2);
            assert!(wanted.starts_with(&got), "{got:?}");
        }
        tell.send(()).expect("the origin waits");
    }
}

#[test]
fn bodies_of_requests_are_changed_on_every_version_and_with_every_attempt() {
    // The first connection of each endpoint closes without an answer.
    let closing = || {
        Origin::start(|mut visit| {
            let index = visit.index;
            visit.answer_all(|request| (index > 0).then(|| ok(&request.text())));
        })
    };
    let origins = [closing(), closing(), closing()];
    let filter = "filters: [{ replace_body: { replace: [{ text: secret, with: \"***\" }], requests: true, responses: false, \
                  types: [text/plain] } }]\n    retry: { attempts_max: 3, on: [connect_failure, reset] }";
    let site = site(Setup::to_all(&origins).listener_more(CLEAR).route(filter), 1);
    let clear = site.product.address("clear");
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let mut first = Peer::connect(clear);
    let put = "PUT / HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\nContent-Length: 15\r\n\r\na secret secret";
    assert_eq!(first.ask(put).status(), 502, "all three have closed");
    let answer = first.ask(put);
    assert_eq!((answer.status(), answer.text().as_str()), (200, "a *** ***"));
    let fields = [("content-type", "text/plain")];
    assert_eq!(second.ask(with_fields(request("PUT", "/"), &fields), b"no secret").text(), "no ***");
    assert_eq!(third.ask(with_fields(http3::request("PUT", "/"), &fields), b"no secret").text(), "no ***");
    let chunks = "PUT / HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n\
                  3\r\nsec\r\n3\r\nret\r\n0\r\n\r\n";
    assert_eq!(first.ask(chunks).text(), "***");
    let seen: Vec<_> = origins.iter().flat_map(Origin::requests).collect();
    assert!(seen.len() >= 7 && seen.iter().all(|request| !request.text().contains("secret")));
}

#[test]
fn a_body_that_is_cut_short_does_not_look_whole() {
    let origin = Origin::start(move |mut visit| {
        visit.request();
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\nhttp://ins");
    });
    let product = Setup::to(&origin).route(FILTER).start();
    let mut peer = product.connect();
    peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    peer.head();
    assert!(!peer.rest().ends_with(b"0\r\n\r\n"), "it has no end");
    assert_eq!(product.flagged("UD")["status"], 200);
}

#[test]
fn a_long_body_takes_no_more_memory_than_a_short_one_also_with_a_client_that_stalls() {
    let length = long();
    let line = "http://inside/ http://insid v1.v1.2 a".repeat(2_000);
    let line = line.as_bytes()[..1 << 16].to_vec();
    let origin = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            visit.peer.send(format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"));
            for _ in 0..length >> 16 {
                if visit.peer.try_send(&line).is_err() {
                    return;
                }
            }
        }
    });
    let product = Setup::to(&origin).route(FILTER).cluster("timeouts: { idle: 600s }").start();
    let ask = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut stalled = product.connect();
    stalled.send(ask);
    stalled.head();
    let before = product.resident_bytes();
    let mut peer = product.connect();
    peer.send(ask);
    peer.head();
    let mut got: u64 = 0;
    loop {
        let line = String::from_utf8(peer.try_take_through(b"\r\n").expect("a chunk")).expect("text");
        let size = usize::from_str_radix(line.trim(), 16).expect("a size");
        got += size as u64;
        peer.take(size + 2);
        if size == 0 {
            break;
        }
    }
    assert!(got > length / 2 && got != length, "{got} bytes");
    let more = product.resident_bytes().saturating_sub(before);
    assert!(more < 16 << 20, "{more} bytes more");
}
