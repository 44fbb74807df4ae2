//! gRPC-Web: calls of browsers, by HTTP/1.1, to endpoints that speak gRPC. That of text is base64.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue, Response};

use super::harness::http2_origin::{Http2Origin, Rules};
use super::harness::origin::ok;
use super::harness::tls::{self, Authority};
use super::harness::{Message, Origin, Product, Setup, eventually, product};

fn start(origin: &Http2Origin, more: &str) -> Product {
    Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]").cluster(more).workers(1).start()
}

fn start_with_idle(origin: &Http2Origin, idle: &str) -> Product {
    let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]").cluster("grpc_web: true");
    setup.cluster(format!("timeouts: {{ idle: {idle} }}")).workers(1).start()
}

/// A message of gRPC: not compressed, its length, itself.
fn message(text: &str) -> Vec<u8> {
    [&[0][..], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn head() -> Response<()> {
    Response::builder().header("content-type", "application/grpc+proto").body(()).expect("a head")
}

fn ask(product: &Product, content_type: &str) -> Message {
    let body = message("a pear");
    let head = format!(
        "POST /shop.Cart/Add HTTP/1.1\r\nHost: shop.example\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    product.connect().ask([head.as_bytes(), &body].concat())
}

#[test]
fn a_call_of_grpc_web_is_one_of_grpc_to_the_endpoint_and_its_trailers_end_the_body() {
    let origin = echo();
    let product = start(&origin, "grpc_web: true");
    let answer = ask(&product, "application/grpc-web+proto");
    assert_eq!((answer.status(), answer.field("content-type")), (200, Some("application/grpc-web+proto")));
    let trailers = b"\x80\0\0\0\x10grpc-status: 0\r\n";
    assert_eq!(answer.body, [&message("a pear")[..], trailers].concat());
    assert!(answer.trailers.is_empty());
    let asked = origin.only_head();
    let field = |name: &str| asked.headers().get(name).map(|value| value.to_str().expect("text"));
    assert_eq!((field("content-type"), field("te")), (Some("application/grpc+proto"), Some("trailers")));
}

#[test]
fn a_status_alone_stays_in_the_head_and_faults_are_statuses_too() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let _ = asked.read().await;
            if asked.index > 0 {
                return asked.respond.send_reset(h2::Reason::INTERNAL_ERROR);
            }
            let mut head = head();
            head.headers_mut().insert("grpc-status", HeaderValue::from_static("5"));
            asked.end(head);
        })
    });
    let product = start(&origin, "grpc_web: true");
    let answer = ask(&product, "application/grpc-web");
    assert_eq!((answer.field("grpc-status"), answer.body.len()), (Some("5"), 0));
    assert_eq!(answer.field("content-type"), Some("application/grpc-web+proto"));
    let failed = ask(&product, "application/grpc-web");
    assert_eq!((failed.status(), failed.field("grpc-status")), (200, Some("14")));
    assert_eq!(failed.field("content-type"), Some("application/grpc-web"));
    product.flagged("UR");
}

#[test]
fn what_is_not_asked_for_is_not_done() {
    let origin = Http2Origin::start(Rules::default(), |asked| Box::pin(asked.answer("plain")));
    let product = start(&origin, "grpc_web: false");
    assert_eq!(ask(&product, "application/grpc-web").text(), "plain");
    let product = start(&origin, "grpc_web: true");
    assert_eq!(ask(&product, "application/json").text(), "plain");
    let types: Vec<_> = origin.heads().iter().map(|head| head.headers()["content-type"].clone()).collect();
    assert_eq!(types, ["application/grpc-web", "application/json"]);
}

#[test]
fn an_endpoint_whose_calls_end_with_unavailable_is_left_out_as_one_that_answers_503() {
    let ending = |status: &'static str| {
        Http2Origin::start(Rules::default(), move |mut asked| {
            Box::pin(async move {
                let _ = asked.read().await;
                let mut head = head();
                head.headers_mut().insert("grpc-status", HeaderValue::from_static(status));
                asked.end(head);
            })
        })
    };
    // NOT_FOUND is what a client brings about.
    let (ill, well) = (ending("14"), ending("5"));
    let product = Setup::to_addresses(&[ill.address(), well.address()])
        .cluster("http_versions: [h2]")
        .cluster("grpc_web: true")
        .cluster("passive_health: { consecutive_5xx: 2, ejected_max: 50%, ejection_time: 10m, ejection_time_max: 10m }")
        .workers(1)
        .start();
    let statuses: Vec<_> =
        (0..12).map(|_| ask(&product, "application/grpc-web").field("grpc-status").map(str::to_owned)).collect();
    let failed = statuses.iter().filter(|status| status.as_deref() == Some("14")).count();
    assert_eq!((failed, ill.streams(), well.streams()), (2, 2, 10), "{statuses:?}");
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// As a segment of base64 of its own.
fn segment(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0, |word, byte| word << 8 | usize::from(*byte)) << (8 * (3 - three.len()));
        let digits = (0..4).map(|place| char::from(DIGITS[word >> (18 - 6 * place) & 63]));
        text.extend(digits.take(three.len() + 1).chain(std::iter::repeat_n('=', 3 - three.len())));
    }
    text
}

/// What segments stand for, one after the other.
fn plain(text: &[u8]) -> Vec<u8> {
    assert_eq!(text.len() % 4, 0, "whole groups");
    let digit = |byte: &u8| DIGITS.iter().position(|digit| digit == byte).unwrap_or(0) as u32;
    let group = |group: &[u8]| {
        let word = group.iter().fold(0, |word, byte| word << 6 | digit(byte));
        let count = 3 - group.iter().filter(|byte| **byte == b'=').count();
        word.to_be_bytes()[1..][..count].to_vec()
    };
    text.chunks(4).flat_map(group).collect()
}

/// An endpoint of gRPC that says everything back.
fn echo() -> Http2Origin {
    Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let Ok((body, _)) = asked.read().await else { return };
            let mut speech = asked.begin(head());
            speech.say(body).await;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            speech.end_with(trailers);
        })
    })
}

fn ask_text(product: &Product, fields: &str, body: &str) -> Message {
    let length = body.len();
    let head =
        format!("POST /shop.Cart/Add HTTP/1.1\r\nHost: shop.example\r\n{fields}Content-Length: {length}\r\n\r\n");
    product.connect().ask([head.as_bytes(), body.as_bytes()].concat())
}

const TEXT: &str = "Content-Type: application/grpc-web-text+proto\r\n";
const TRAILERS: &[u8] = b"\x80\0\0\0\x10grpc-status: 0\r\n";

#[test]
fn a_call_of_text_is_one_of_bytes_to_the_endpoint_and_its_answer_is_text_with_its_trailers() {
    let origin = echo();
    let product = start(&origin, "grpc_web: true");
    let sent = message("a pear");
    // Each segment is padded by itself.
    let body = segment(&sent[..4]) + &segment(&sent[4..5]) + &segment(&sent[5..]);
    assert!(body.contains("==") && !body.ends_with('='), "{body}");
    let answer = ask_text(&product, TEXT, &body);
    assert_eq!((answer.status(), answer.field("content-type")), (200, Some("application/grpc-web-text+proto")));
    assert_eq!(plain(&answer.body), [&sent[..], TRAILERS].concat());
    let asked = origin.only_head();
    let field = |name: &str| asked.headers().get(name).map(|value| value.to_str().expect("text"));
    assert_eq!((field("content-type"), field("content-length")), (Some("application/grpc+proto"), None));
}

#[test]
fn who_asks_decides_by_accept_in_which_form_the_answer_comes() {
    let origin = echo();
    let product = start(&origin, "grpc_web: true");
    let sent = message("a pear");
    let binary = String::from_utf8(sent.clone()).expect("small numbers are text too");
    for (fields, body, content_type, is_text) in [
        (
            "Content-Type: application/grpc-web\r\nAccept: application/grpc-web-text\r\n",
            &binary,
            "application/grpc-web-text+proto",
            true,
        ),
        (
            "Content-Type: application/grpc-web-text\r\nAccept: application/grpc-web\r\n",
            &segment(&sent),
            "application/grpc-web+proto",
            false,
        ),
        (
            "Content-Type: application/grpc-web-text\r\nAccept: */*\r\n",
            &segment(&sent),
            "application/grpc-web-text+proto",
            true,
        ),
    ] {
        let answer = ask_text(&product, fields, body);
        assert_eq!(answer.field("content-type"), Some(content_type), "{fields}");
        let read = if is_text { plain(&answer.body) } else { answer.body.clone() };
        assert_eq!(read, [&sent[..], TRAILERS].concat(), "{fields}");
    }
}

#[test]
fn large_calls_of_text_cross_whole_whatever_pieces_they_come_in() {
    let origin = echo();
    let product = start(&origin, "grpc_web: true");
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let answer = ask_text(&product, TEXT, &segment(&sent));
    assert_eq!(plain(&answer.body), [&sent[..], TRAILERS].concat());
    // Pieces that end within a group of four.
    let text = segment(&sent[..1000]);
    let pieces =
        text.as_bytes().chunks(7).map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
    let mut client = product.connect();
    client.send(format!(
        "POST /shop.Cart/Add HTTP/1.1\r\nHost: shop.example\r\n{TEXT}Transfer-Encoding: chunked\r\n\r\n"
    ));
    for piece in pieces {
        client.send(piece);
    }
    client.send("0\r\n\r\n");
    assert_eq!(plain(&client.response().body), [&sent[..1000], TRAILERS].concat());
}

#[test]
fn what_is_no_base64_or_is_too_long_is_refused_and_never_reaches_the_endpoint_as_whole() {
    let origin = echo();
    let product = start(&origin, "grpc_web: true");
    let good = segment(&message("a pear"));
    let bad = [
        "AAAAAAZwZWFy!===".to_owned(),
        good.clone() + "A",
        good.clone() + "AA=",
        good.clone() + "====",
        "AA\r\n".to_owned(),
    ];
    for body in &bad {
        let answer = ask_text(&product, TEXT, body);
        // INTERNAL, as of a request that breaks the rules of HTTP.
        assert_eq!((answer.status(), answer.field("grpc-status")), (200, Some("13")), "{body:?}");
        assert_eq!(answer.field("content-type"), Some("application/grpc-web-text"));
    }
    product.flagged("CF");
    product.expect_metric("equipoise_faults_total", &["fault=\"bad_request_body\""], bad.len() as f64);
    let sound = ask_text(&product, TEXT, &good);
    assert_eq!(plain(&sound.body), [&message("a pear")[..], TRAILERS].concat());
    let bounded = Setup::to_addresses(&[origin.address()])
        .cluster("http_versions: [h2]")
        .cluster("grpc_web: true")
        .route("filters: [{ body_limit: { max: 16 } }]")
        .start();
    assert_eq!(plain(&ask_text(&bounded, TEXT, &good).body), [&message("a pear")[..], TRAILERS].concat());
    assert_eq!(ask_text(&bounded, TEXT, &(good + "AAAA")).status(), 413);
}

#[test]
fn a_call_of_text_that_is_tried_again_is_decoded_again() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let Ok((body, _)) = asked.read().await else { return };
            let is_first = asked.index == 0;
            let mut head = head();
            if is_first {
                head.headers_mut().insert("grpc-status", HeaderValue::from_static("14"));
                return asked.end(head);
            }
            let mut speech = asked.begin(head);
            speech.say(body).await;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            speech.end_with(trailers);
        })
    });
    let product = Setup::to_addresses(&[origin.address()])
        .cluster("http_versions: [h2]")
        .cluster("grpc_web: true")
        .cluster("retry: { on: [grpc_unavailable], methods: any, same_endpoint: true }")
        .workers(1)
        .start();
    let answer = ask_text(&product, TEXT, &segment(&message("a pear")));
    assert_eq!((origin.streams(), plain(&answer.body)), (2, [&message("a pear")[..], TRAILERS].concat()));
}

#[test]
fn a_call_of_text_that_is_hedged_is_decoded_for_both_endpoints() {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let silent = {
        let bodies = Arc::clone(&bodies);
        Http2Origin::start(Rules::default(), move |mut asked| {
            let bodies = Arc::clone(&bodies);
            Box::pin(async move {
                let Ok((body, _)) = asked.read().await else { return };
                bodies.lock().expect("bodies").push(body.to_vec());
                std::future::pending::<()>().await;
            })
        })
    };
    let other = echo();
    let product = Setup::to_addresses(&[silent.address(), other.address()])
        .cluster("http_versions: [h2]")
        .cluster("balance: first")
        .cluster("grpc_web: true")
        .cluster("hedge: { after: 20ms, methods: any, budget: 100% }")
        .cluster("retry: { body_max: 16KiB }")
        .workers(1)
        .start();
    let answer = ask_text(&product, TEXT, &segment(&message("a pear")));
    assert_eq!(plain(&answer.body), [&message("a pear")[..], TRAILERS].concat());
    assert_eq!(*bodies.lock().expect("bodies"), [message("a pear")]);
}

#[test]
fn a_text_that_goes_to_another_endpoint_over_http1_is_framed_as_its_head_says() {
    let authority = Authority::new("inside");
    let identity = authority.issue(&["127.0.0.1"]);
    let mut two = (*tls::origin(&identity, None)).clone();
    two.alpn_protocols = vec![b"h2".to_vec()];
    let refusing = Http2Origin::start(Rules { tls: Some(Arc::new(two)), ..Rules::default() }, |mut asked| {
        Box::pin(async move { asked.respond.send_reset(h2::Reason::REFUSED_STREAM) })
    });
    let one = Origin::start_tls(tls::origin(&identity, None), |mut visit| visit.answer_all(|_| Some(ok("one"))));
    let folder = product::folder();
    authority.write(folder.path(), "authority.pem");
    let setup = Setup::to_addresses(&[refusing.address(), one.address()]).workers(1);
    let setup = setup.cluster("http_versions: [h2, h1]").cluster("tls: { authorities: authority.pem }");
    let text = setup.cluster("balance: first").cluster("grpc_web: true").cluster("retry: {}").text();
    let product = Product::start_in(folder, &text, 1);
    // Unframed, the endpoint would take this for an empty body and a request of its own.
    let hidden = "0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    let body = wire_text(hidden.as_bytes());
    let answer = product.connect().ask(format!(
        "POST /shop.Cart/Add HTTP/1.1\r\nHost: shop.example\r\nContent-Type: application/grpc-web-text\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(answer.status(), 200, "{answer:?}");
    let asked = one.only_request();
    assert_eq!((asked.method(), asked.text().as_str()), ("POST", hidden));
}

/// Base64, as the text form has it.
fn wire_text(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut bits = 0_u32;
        (0..3).for_each(|place| bits = bits << 8 | u32::from(*group.get(place).unwrap_or(&0)));
        for place in 0..4 {
            let sign = char::from(SIGNS[(bits >> (18 - 6 * place) & 63) as usize]);
            text.push(if place <= group.len() { sign } else { '=' });
        }
    }
    text
}

/// Pieces of 64 KiB of a long answer: 10 GiB with `EQUIPOISE_LONG`.
fn pieces() -> u64 {
    let length: u64 = if std::env::var_os("EQUIPOISE_LONG").is_some() { 10 << 30 } else { 64 << 20 };
    length >> 16
}

const CALL_OF_TEXT: &str = "POST /shop.Cart/Watch HTTP/1.1\r\nHost: shop.example\r\n\
     Content-Type: application/grpc-web-text\r\nContent-Length: 8\r\n\r\nAAAAAAA=";

#[test]
fn a_long_answer_as_text_takes_no_more_memory_than_a_short_one_also_with_a_client_that_stalls() {
    let piece = bytes::Bytes::from(vec![7; 1 << 16]);
    let origin = Http2Origin::start(Rules::default(), move |mut asked| {
        let piece = piece.clone();
        Box::pin(async move {
            let _ = asked.read().await;
            let mut speech = asked.begin(head());
            for _ in 0..pieces() {
                if !speech.say(piece.clone()).await {
                    return;
                }
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            speech.end_with(trailers);
        })
    });
    let product = start_with_idle(&origin, "600s");
    let mut stalled = product.connect();
    stalled.send(CALL_OF_TEXT);
    stalled.head();
    let before = product.resident_bytes();
    let mut peer = product.connect();
    peer.send(CALL_OF_TEXT);
    peer.head();
    let (mut coded, mut last) = (0, Vec::new());
    loop {
        let line = String::from_utf8(peer.try_take_through(b"\r\n").expect("a chunk")).expect("text");
        let size = usize::from_str_radix(line.trim(), 16).expect("a size");
        let chunk = peer.take(size + 2);
        if size == 0 {
            break;
        }
        coded += size as u64;
        last = chunk;
    }
    assert!(coded >= (pieces() << 16) / 3 * 4, "{coded} bytes");
    assert!(plain(&last[..last.len() - 2]).ends_with(b"grpc-status: 0\r\n"));
    let more = product.resident_bytes().saturating_sub(before);
    assert!(more < 16 << 20, "{more} bytes more");
}

#[test]
fn an_endpoint_that_stalls_within_its_answer_ends_the_call_of_grpc_web_by_its_time_out() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let _ = asked.read().await;
            let mut speech = asked.begin(head());
            speech.say("half of it").await;
            speech.wait_reset().await;
        })
    });
    let product = start_with_idle(&origin, "1s");
    let mut peer = product.connect();
    peer.send(CALL_OF_TEXT);
    assert_eq!(peer.head().status(), 200);
    let cut = peer.rest();
    assert!(!cut.ends_with(b"0\r\n\r\n"), "it does not look whole");
    assert_eq!(product.flagged("UDT")["fault"], "response_body_timeout");
    eventually("the endpoint's stream is reset", || origin.busy() == 0);
}

#[test]
fn a_client_that_stalls_within_its_call_of_grpc_web_ends_by_its_time_out() {
    let origin = echo();
    let product = start_with_idle(&origin, "1s");
    let mut peer = product.connect();
    peer.send(&CALL_OF_TEXT[..CALL_OF_TEXT.len() - 4]);
    assert_eq!(peer.response().field("grpc-status"), Some("2"));
    assert_eq!(product.flagged("CBT")["fault"], "request_body_timeout");
}

#[test]
fn a_content_coding_of_a_call_as_text_is_taken_off_before_the_text_is_read() {
    let origin = echo();
    let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]").cluster("grpc_web: true");
    let product = setup.route("filters: [{ decompress: {} }]").workers(1).start();
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    std::io::Write::write_all(&mut writer, segment(&message("a pear")).as_bytes()).expect("memory");
    let body = writer.finish().expect("memory");
    let head = format!(
        "POST /shop.Cart/Add HTTP/1.1\r\nHost: shop.example\r\nContent-Type: application/grpc-web-text\r\n\
         Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = product.connect().ask([head.as_bytes(), &body].concat());
    assert!(plain(&answer.body).starts_with(&message("a pear")), "{answer:?}");
}
