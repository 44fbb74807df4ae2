//! HTTP/2 from the client through to the endpoint: lengths, interim responses, and no stream that holds up another.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};

use super::harness::http2::{Client, request, with_fields};
use super::harness::http2_origin::{Http2Origin, Rules};
use super::harness::{Setup, eventually};

const MIB: u64 = 1024 * 1024;

fn to(origin: &Http2Origin) -> Setup {
    Setup::to_addresses(&[origin.address()])
        .listener("http_versions: [h1, h2]")
        .cluster("http_versions: [h2]")
        .workers(1)
}

fn ok_head() -> Response<()> {
    Response::new(())
}

fn fields(name: &'static str, value: &'static str) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert(name, HeaderValue::from_static(value));
    map
}

#[test]
fn heads_interim_responses_bodies_and_trailers_cross_in_both_directions() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let mut early = Response::builder().status(103).body(()).expect("a head");
            early.headers_mut().insert("link", HeaderValue::from_static("</a.css>"));
            let _ = asked.respond.send_informational(early);
            let (body, trailers) = asked.read().await.expect("a request");
            let mut head = ok_head();
            head.headers_mut()
                .insert("x-trailer", trailers.map_or(HeaderValue::from_static("none"), |map| map["x-sum"].clone()));
            let mut speech = asked.begin(head);
            speech.say(body).await;
            speech.end_with(fields("x-back", "yes"));
        })
    });
    let product = to(&origin).start();
    let mut client = Client::connect(product.web());
    let mut stream = client.open(with_fields(request("POST", "/a?b=c"), &[("te", "trailers"), ("x-kept", "1")]), false);
    client.send(&mut stream, b"a body", false);
    client.send_trailers(&mut stream, fields("x-sum", "42"));
    let (status, head) = client.head(&mut stream).expect("a response");
    assert_eq!((status, head["x-trailer"].to_str().ok()), (200, Some("42")));
    assert_eq!(stream.interim.len(), 1);
    assert_eq!((stream.interim[0].0, &stream.interim[0].1["link"]), (103, &HeaderValue::from_static("</a.css>")));
    assert_eq!(client.chunk(&mut stream).expect("a body").expect("no reset"), Bytes::from_static(b"a body"));
    let plain = client.ask(request("POST", "/plain"), b"x");
    assert_eq!((plain.field("x-trailer"), plain.text().as_str()), (Some("none"), "x"));
    assert_eq!(plain.trailers, fields("x-back", "yes"));
    let head = &origin.heads()[0];
    assert_eq!(
        (head.uri().path_and_query().map(|path| path.as_str()), &head.headers()["x-kept"]),
        (Some("/a?b=c"), &HeaderValue::from_static("1"))
    );
    assert_eq!((origin.connections(), origin.streams()), (1, 2));
}

#[test]
fn large_bodies_pass_whole_and_lengths_are_kept() {
    let body: Vec<u8> = (0..3 * 1024 * 1024 + 5).map(|at| (at % 251) as u8).collect();
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let length = asked.head.headers().get("content-length").cloned();
            let Ok((body, _)) = asked.read().await else { return };
            let mut head = ok_head();
            head.headers_mut().extend(length.map(|length| (http::header::CONTENT_LENGTH, length)));
            asked.say(head, body).await;
        })
    });
    let product = to(&origin).start();
    let mut client = Client::connect(product.web());
    let length = body.len().to_string();
    // The client reads what comes back only once all is sent: windows and buffers on the way hold far less.
    let small = client.ask(with_fields(request("PUT", "/"), &[("content-length", "3")]), b"abc");
    assert_eq!((small.field("content-length"), small.text().as_str()), (Some("3"), "abc"));
    let answer = client.ask(with_fields(request("PUT", "/"), &[("content-length", &length)]), &body);
    assert_eq!(answer.field("content-length"), Some(length.as_str()));
    assert!(answer.body == body, "it came back changed");
    let unknown = client.ask(request("PUT", "/"), &body);
    assert!(unknown.body == body && unknown.field("content-length").is_none());
}

#[test]
fn a_stream_that_is_not_read_holds_up_no_other_and_costs_no_memory() {
    let origin = Http2Origin::start(Rules::default(), |asked| {
        Box::pin(async move {
            if asked.path() == "/small" {
                return asked.answer("small").await;
            }
            let mut speech = asked.begin(ok_head());
            while speech.say(vec![7; 64 * 1024]).await {}
        })
    });
    let product = to(&origin).start();
    let mut client = Client::connect(product.web());
    assert_eq!(client.get("/small").text(), "small");
    let before = product.resident_bytes();
    let stalled: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = client.open(request("GET", "/large"), true);
            assert_eq!(client.head(&mut stream).expect("a head").0, 200);
            stream
        })
        .collect();
    let mut other = Client::connect(product.web());
    for _ in 0..10 {
        assert_eq!(other.get("/small").text(), "small");
        // Whatever is to fill up has its time.
        std::thread::sleep(Duration::from_millis(50));
    }
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB, "20 streams that nobody reads cost {grown} bytes");
    assert_eq!(origin.connections(), 1);
    drop(stalled);
    eventually("the endpoint is told that nobody wants them", || {
        client.flush();
        origin.busy() == 0
    });
    assert_eq!(other.get("/small").text(), "small");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_body_is_sent_once_the_endpoint_asks_for_it() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let _ = asked.respond.send_informational(Response::builder().status(100).body(()).expect("a head"));
            asked.answer("thanks").await;
        })
    });
    let product = to(&origin).start();
    let mut client = Client::connect(product.web());
    let expecting = with_fields(request("PUT", "/"), &[("expect", "100-continue"), ("content-length", "2")]);
    let mut stream = client.open(expecting, false);
    eventually("it is there", || {
        client.flush();
        origin.busy() == 1
    });
    client.send(&mut stream, b"hi", true);
    let (status, _) = client.head(&mut stream).expect("a response");
    assert_eq!((status, stream.interim.first().map(|interim| interim.0)), (200, Some(100)));
}
