//! The filter `compress`: bodies in the coding that clients accept, over every version, with heads that tell the truth.

use std::io::Read;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::harness::http2::{Answer, Client, request, with_fields};
use super::harness::http2_origin::{Http2Origin, Rules as Http2Rules};
use super::harness::http3_origin::{Http3Origin, Rules as Http3Rules};
use super::harness::origin::{Visit, ok};
use super::harness::tls::Authority;
use super::harness::{Origin, Peer, Setup, http3};
use super::http3::{Site, site};

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const FILTER: &str = "filters: [{ compress: { size_min: 100 } }]";

fn text() -> String {
    (0..4000).map(|number| format!("line {number} of a text that repeats itself\n")).collect()
}

/// A response with a text of this type and these fields.
fn page(body: &str, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len()).into_bytes()
}

/// What a body stands for.
pub(super) fn decoded(coding: Option<&str>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        None => out.extend_from_slice(body),
        Some("gzip") => drop(flate2::read::GzDecoder::new(body).read_to_end(&mut out).expect("gzip")),
        Some("br") => drop(brotli::Decompressor::new(body, 4096).read_to_end(&mut out).expect("brotli")),
        Some("zstd") => out = zstd::stream::decode_all(body).expect("zstd"),
        Some(other) => panic!("{other}"),
    }
    out
}

/// Status, fields by these names, and body.
type Got = (u16, Vec<Option<String>>, Vec<u8>);

struct Clients {
    first: Peer,
    second: Client,
    third: super::harness::http3::Client,
}

impl Clients {
    fn of(site: &Site) -> Self {
        let clear = site.product.address("clear");
        Self { first: Peer::connect(clear), second: Client::connect(clear), third: site.connect() }
    }

    /// The same request over HTTP/1.1, HTTP/2 and HTTP/3.
    fn ask(&mut self, method: &str, path: &str, accept: &str, names: &[&str]) -> [Got; 3] {
        let sent = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nAccept-Encoding: {accept}\r\n\r\n");
        let one = if method == "HEAD" {
            self.first.send(sent);
            self.first.head()
        } else {
            self.first.ask(sent)
        };
        let owned = |value: Option<&str>| value.map(str::to_owned);
        let one = (one.status(), names.iter().map(|name| owned(one.field(name))).collect(), one.body);
        let fields = [("accept-encoding", accept)];
        let of = |answer: Answer| -> Got {
            (answer.status, names.iter().map(|name| owned(answer.field(name))).collect(), answer.body)
        };
        let two = of(self.second.ask(with_fields(request(method, path), &fields), b""));
        let three = self.third.ask(with_fields(http3::request(method, path), &fields), b"");
        [one, two, (three.status, names.iter().map(|name| owned(three.field(name))).collect(), three.body)]
    }
}

const HEADS: [&str; 6] = ["content-encoding", "vary", "etag", "content-length", "accept-ranges", "content-type"];

#[test]
fn a_text_comes_in_the_coding_that_the_client_likes_best_over_every_version() {
    let whole = text();
    let fields = "Content-Type: text/html\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n";
    let answer = page(&whole, fields);
    let origin = Origin::answering(move |_| answer.clone());
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(FILTER), 2);
    let mut clients = Clients::of(&site);
    for (accept, coding) in
        [("gzip", "gzip"), ("br", "br"), ("zstd", "zstd"), ("gzip;q=0.5, zstd;q=0.1, br;q=0", "gzip"), ("*", "zstd")]
    {
        for (status, fields, body) in clients.ask("GET", "/", accept, &HEADS) {
            let wanted = [Some(coding), Some("Accept-Encoding"), Some("W/\"a\""), None, None, Some("text/html")];
            assert_eq!((status, fields.iter().map(Option::as_deref).collect()), (200, wanted.to_vec()), "{accept}");
            assert!(body.len() < whole.len() / 4, "{accept}: {}", body.len());
            assert!(decoded(Some(coding), &body) == whole.as_bytes(), "{accept}");
        }
        // Of HEAD the head is the same.
        for (status, fields, body) in clients.ask("HEAD", "/", accept, &HEADS) {
            let wanted = [Some(coding), Some("Accept-Encoding"), Some("W/\"a\""), None, None, Some("text/html")];
            assert_eq!((status, fields.iter().map(Option::as_deref).collect()), (200, wanted.to_vec()), "{accept}");
            assert!(body.is_empty());
        }
    }
    for accept in ["identity", "br;q=0, gzip;q=0, zstd;q=0", "snappy", ""] {
        for (_, fields, body) in clients.ask("GET", "/", accept, &HEADS) {
            let length = whole.len().to_string();
            let wanted =
                [None, Some("Accept-Encoding"), Some("\"a\""), Some(&*length), Some("bytes"), Some("text/html")];
            assert_eq!(fields.iter().map(Option::as_deref).collect::<Vec<_>>(), wanted, "{accept}");
            assert!(body == whole.as_bytes());
        }
    }
}

#[test]
fn what_must_not_be_coded_passes_as_it_is() {
    let whole = text();
    let cases = [
        ("/type", page(&whole, "Content-Type: image/png\r\n")),
        ("/coded", page(&whole, "Content-Type: text/html\r\nContent-Encoding: x-own\r\n")),
        ("/asks", page(&whole, "Content-Type: text/html\r\nCache-Control: public, no-transform\r\n")),
        ("/short", page("short", "Content-Type: text/html\r\n")),
        (
            "/part",
            format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Type: text/html\r\nContent-Range: bytes 0-{}/900000\r\n\
                 Content-Length: {}\r\n\r\n{whole}",
                whole.len() - 1,
                whole.len()
            )
            .into_bytes(),
        ),
    ];
    let answers = Arc::new(cases);
    let by_path = Arc::clone(&answers);
    let origin = Origin::answering(move |asked| {
        by_path.iter().find(|(path, _)| *path == asked.target()).map_or_else(|| ok("?"), |(_, answer)| answer.clone())
    });
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(FILTER), 2);
    let mut clients = Clients::of(&site);
    for (path, answer) in &*answers {
        for (_, fields, body) in clients.ask("GET", path, "gzip, br, zstd", &["content-encoding", "content-length"]) {
            let own = (*path == "/coded").then(|| "x-own".to_owned());
            assert_eq!(fields, [own, Some(body.len().to_string())], "{path}");
            assert!(answer.ends_with(&body), "{path}");
        }
    }
}

#[test]
fn answers_of_our_own_are_coded_too() {
    let origin = Origin::saying("unused");
    let whole = text().replace('\n', " ");
    let answer = format!(
        "{{ match: {{ path: {{ exact: /own }} }}, respond: {{ status: 200, headers: {{ content-type: text/plain }}, body: \"{whole}\" }}, \
         {FILTER} }}"
    );
    let site = site(Setup::to(&origin).listener_more(CLEAR).route_before(answer), 2);
    let mut clients = Clients::of(&site);
    for accept in ["gzip", "br", "zstd"] {
        for (status, fields, body) in clients.ask("GET", "/own", accept, &["content-encoding", "content-length"]) {
            assert_eq!((status, fields), (200, vec![Some(accept.to_owned()), None]));
            assert!(decoded(Some(accept), &body) == whole.as_bytes(), "{accept}");
        }
        for (status, fields, body) in clients.ask("HEAD", "/own", accept, &["content-encoding", "content-length"]) {
            assert_eq!((status, fields, body.len()), (200, vec![Some(accept.to_owned()), None], 0));
        }
    }
    let mut old = Peer::connect(site.product.address("clear"));
    old.send("GET /own HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    assert!(old.rest().ends_with(whole.as_bytes()), "clients of HTTP/1.0 get it plain");
}

/// A head that says that a style sheet follows.
fn style() -> http::Response<()> {
    http::Response::builder().header("content-type", "text/css").body(()).expect("a head")
}

fn is_coded_over_every_version(site: &Site, body: &str) {
    for (status, fields, coded) in Clients::of(site).ask("GET", "/", "zstd", &["content-encoding"]) {
        assert_eq!((status, fields), (200, vec![Some("zstd".to_owned())]));
        assert!(decoded(Some("zstd"), &coded) == body.as_bytes());
    }
}

#[test]
fn bodies_of_http2_endpoints_are_coded() {
    let body = text();
    let said = body.clone();
    let origin = Http2Origin::start(Http2Rules::default(), move |asked| Box::pin(asked.say(style(), said.clone())));
    let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]");
    is_coded_over_every_version(&site(setup.listener_more(CLEAR).route(FILTER), 2), &body);
}

#[test]
fn bodies_of_http3_endpoints_are_coded() {
    let (body, authority) = (text(), Authority::new("inside"));
    let said = body.clone();
    let origin =
        Http3Origin::start(Http3Rules::of(&authority), move |asked| Box::pin(asked.say(style(), said.clone())));
    let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h3]");
    let setup = setup.cluster("tls: { authorities: authority.pem }").listener_more(CLEAR).route(FILTER);
    is_coded_over_every_version(&Site::of(authority, "[h1, h2, h3]", "", setup, 2), &body);
}

/// Sends an event, and the next one only when it is told that the client has the one before.
fn events(mut visit: Visit<'_>, seen: &Mutex<std::sync::mpsc::Receiver<()>>) {
    while visit.request().is_some() {
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        for number in 0..5 {
            let event = format!("data: event number {number}\n\n");
            visit.peer.send(format!("{:x}\r\n{event}\r\n", event.len()));
            seen.lock().expect("nobody panicked").recv().expect("the client has it");
        }
        visit.peer.send("0\r\n\r\n");
    }
}

#[test]
fn an_event_reaches_its_client_when_it_is_sent_and_not_with_the_next() {
    let (tell, seen) = channel();
    let seen = Mutex::new(seen);
    let origin = Origin::start(move |visit| events(visit, &seen));
    let product =
        Setup::to(&origin).route("filters: [{ compress: { types: [text/event-stream], algorithms: [gzip] } }]").start();
    let mut peer = product.connect();
    peer.send("GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(peer.head().field("content-encoding"), Some("gzip"));
    let (mut decoder, mut plain) = (flate2::write::GzDecoder::new(Vec::new()), String::new());
    for number in 0..5 {
        while !plain.ends_with(&format!("data: event number {number}\n\n")) {
            let line = String::from_utf8(peer.try_take_through(b"\r\n").expect("a chunk")).expect("text");
            let size = usize::from_str_radix(line.trim(), 16).expect("a size");
            std::io::Write::write_all(&mut decoder, &peer.take(size)).expect("gzip");
            peer.take(2);
            std::io::Write::flush(&mut decoder).expect("gzip");
            plain = String::from_utf8(decoder.get_ref().clone()).expect("text");
        }
        tell.send(()).expect("the origin waits");
    }
}

#[test]
fn a_body_that_is_cut_short_does_not_look_whole() {
    let whole = text();
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{whole}", whole.len() + 9);
    let origin = Origin::start(move |mut visit| {
        visit.request();
        visit.peer.send(&answer);
    });
    let product = Setup::to(&origin).route(FILTER).start();
    let mut peer = product.connect();
    peer.send("GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: br\r\n\r\n");
    let head = peer.head();
    assert_eq!((head.field("content-encoding"), head.field("transfer-encoding")), (Some("br"), Some("chunked")));
    let rest = peer.rest();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it has no end");
    assert_eq!(product.flagged("UD")["status"], 200);
}

/// Bytes of a long body: 10 GiB where somebody asks for it.
pub(super) fn long() -> u64 {
    if std::env::var_os("EQUIPOISE_LONG").is_some() { 10 << 30 } else { 64 << 20 }
}

#[test]
fn a_long_body_takes_no_more_memory_than_a_short_one_also_with_a_client_that_stalls() {
    let length = long();
    let line: Vec<u8> = (0..1 << 16).map(|number: u32| (number.wrapping_mul(2_654_435_761) >> 25) as u8).collect();
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
    let filter = "filters: [{ compress: { levels: { gzip: 1 } } }]";
    let product = Setup::to(&origin).route(filter).cluster("timeouts: { idle: 600s }").start();
    let ask = "GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n";
    // One that reads its head alone.
    let mut stalled = product.connect();
    stalled.send(ask);
    stalled.head();
    let before = product.resident_bytes();
    let mut peer = product.connect();
    peer.send(ask);
    peer.head();
    let mut coded: u64 = 0;
    loop {
        let line = String::from_utf8(peer.try_take_through(b"\r\n").expect("a chunk")).expect("text");
        let size = usize::from_str_radix(line.trim(), 16).expect("a size");
        coded += size as u64;
        peer.take(size + 2);
        if size == 0 {
            break;
        }
    }
    assert!(coded > length / 100, "{coded} bytes");
    let more = product.resident_bytes().saturating_sub(before);
    assert!(more < 16 << 20, "{more} bytes more");
}

#[test]
fn an_endpoint_that_sends_steadily_but_slowly_is_not_silent() {
    let origin = Origin::start(|mut visit| {
        visit.request();
        visit.peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2500\r\n\r\n");
        for _ in 0..25 {
            // A tenth of the time that the endpoint may be silent.
            std::thread::sleep(std::time::Duration::from_millis(100));
            visit.peer.send([b'x'; 100]);
        }
    });
    let product = Setup::to(&origin).route(FILTER).cluster("timeouts: { idle: 1s }").start();
    let answer = product.connect().ask("GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: br\r\n\r\n");
    assert_eq!(decoded(answer.field("content-encoding"), &answer.body), [b'x'; 2500]);
}

#[test]
fn trailers_follow_a_coded_body_however_full_its_last_buffer_is() {
    let noise: Vec<u8> = (0..90_000_u32)
        .scan(1_u32, |state, _| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some(b'A' + (*state >> 26) as u8)
        })
        .collect();
    let origin = Origin::start(move |mut visit| {
        while let Some(asked) = visit.request() {
            let size: usize = asked.target()[1..].parse().expect("a size");
            visit.peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
            visit.peer.send([format!("{size:x}\r\n").as_bytes(), &noise[..size], b"\r\n0\r\n"].concat());
            visit.peer.send(format!("X-Long: {}\r\n\r\n", "t".repeat(2000)));
        }
    });
    let product = Setup::to(&origin).route(FILTER).start();
    let mut peer = product.connect();
    for accept in ["zstd", "br", "gzip"] {
        for size in (82_000..90_000).step_by(250) {
            let answer = peer.ask(format!(
                "GET /{size} HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nAccept-Encoding: {accept}\r\n\r\n"
            ));
            assert_eq!(decoded(answer.field("content-encoding"), &answer.body).len(), size, "{accept}");
            assert_eq!(answer.trailers.len(), 1, "{accept} {size}");
        }
    }
}

#[test]
fn head_says_what_get_says_also_where_a_filter_asks_by_get() {
    let answer = page(&text(), "Content-Type: text/html\r\nETag: \"a\"\r\n");
    let origin = Origin::answering(move |_| answer.clone());
    let filters = "filters: [{ rewrite: { method: GET } }, { compress: {} }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    for (_, fields, body) in Clients::of(&site).ask("HEAD", "/", "gzip", &HEADS[..4]) {
        let wanted = [Some("gzip"), Some("Accept-Encoding"), Some("W/\"a\""), None];
        assert_eq!(fields.iter().map(Option::as_deref).collect::<Vec<_>>(), wanted);
        assert!(body.is_empty());
    }
}
