//! HTTP/2 towards endpoints: messages that cross from HTTP/1.1, connections that many requests share, and their ends.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use h2::Reason;
use http::{HeaderMap, HeaderValue, Response};

use super::harness::http2_origin::{Asked, Http2Origin, Rules, Work};
use super::harness::peer::Stream;
use super::harness::poll::STEP;
use super::harness::tls::{self, Authority};
use super::harness::{Origin, Peer, Product, Setup, eventually, product, sys};

const MIB: u64 = 1024 * 1024;

/// To this origin, with one worker, so that all requests share what it keeps.
fn to(origin: &Http2Origin) -> Setup {
    Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]").workers(1)
}

fn respond(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).expect("a head")
}

/// As many clients at once, each with one GET; their answers.
fn at_once(product: &Product, count: usize) -> Vec<u16> {
    let mut clients: Vec<Peer> = (0..count).map(|_| product.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    clients.iter_mut().map(|client| client.response().status()).collect()
}

fn opened(product: &Product, count: f64) {
    product.expect_metric("equipoise_endpoint_connects_total", &["result=\"opened\""], count);
}

fn reused(product: &Product, count: f64) {
    product.expect_metric("equipoise_endpoint_connections_reused_total", &[], count);
}

#[test]
fn a_request_arrives_as_http_2_has_it_and_the_response_as_http_1_has_it() {
    let origin = Http2Origin::start(Rules::default(), |asked| {
        let mut head = respond(201);
        head.headers_mut().insert("x-from", HeaderValue::from_static("origin"));
        Box::pin(asked.say(head, "hello"))
    });
    let product = to(&origin).start();
    let answer = product.connect().ask(
        "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nConnection: keep-alive, x-hop\r\nX-Hop: 1\r\nX-Kept: 2\r\nTE: trailers\r\n\r\n",
    );
    assert_eq!((answer.status(), answer.text().as_str()), (201, "hello"));
    assert_eq!(answer.line, "HTTP/1.1 201 Created");
    assert_eq!((answer.field("x-from"), answer.field("transfer-encoding")), (Some("origin"), Some("chunked")));
    assert!(answer.field("date").is_some());
    let head = origin.only_head();
    assert_eq!(head.uri().to_string(), "http://shop.example/a/b?c=d");
    let field = |name: &str| head.headers().get(name).map(|value| value.to_str().expect("text"));
    assert_eq!((field("x-kept"), field("x-hop"), field("connection"), field("host")), (Some("2"), None, None, None));
    assert_eq!((field("x-forwarded-for"), field("x-forwarded-host")), (Some("127.0.0.1"), Some("shop.example")));
}

#[test]
fn responses_without_a_body_have_none() {
    let origin = Http2Origin::start(Rules::default(), |asked| {
        Box::pin(async move {
            match asked.path().as_str() {
                "/204" => asked.end(respond(204)),
                "/empty" => asked.end(respond(200)),
                _ => {
                    let mut head = respond(200);
                    head.headers_mut().insert("content-length", HeaderValue::from_static("1234"));
                    asked.end(head);
                }
            }
        })
    });
    let product = to(&origin).start();
    let mut client = product.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status(), head.field("content-length")), (200, Some("1234")));
    let none = client.get("/204");
    assert_eq!((none.status(), none.field("content-length"), none.field("transfer-encoding")), (204, None, None));
    let empty = client.get("/empty");
    assert_eq!((empty.status(), empty.field("content-length")), (200, Some("0")));
    assert_eq!((origin.connections(), origin.streams()), (1, 3));
}

#[test]
fn a_crowd_that_comes_while_the_first_connection_is_made_shares_it() {
    let rules = Rules { delay: Duration::from_millis(400), ..Rules::default() };
    let origin = Http2Origin::start(rules, |asked| Box::pin(asked.answer("hello")));
    let product = to(&origin).start();
    assert_eq!(at_once(&product, 40), [200; 40]);
    assert_eq!((origin.connections(), origin.streams()), (1, 40));
    opened(&product, 1.0);
    reused(&product, 39.0);
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(origin.connections(), 1);
}

/// Answers once so many scripts have run at the same time.
fn gathering(count: usize) -> Http2Origin {
    let here = Arc::new(AtomicUsize::new(0));
    Http2Origin::start(Rules::default(), move |asked| {
        let here = Arc::clone(&here);
        here.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            while here.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            asked.answer("hello").await;
        })
    })
}

#[test]
fn no_connection_gets_more_streams_than_we_want() {
    let origin = gathering(5);
    let product = to(&origin).cluster("pool: { streams_per_connection_max: 2 }").start();
    assert_eq!(at_once(&product, 5), [200; 5]);
    assert_eq!((origin.connections(), origin.streams()), (3, 5));
}

#[test]
fn large_bodies_pass_whole_in_both_directions() {
    const SIZE: usize = 8 * 1024 * 1024 + 77;
    let body: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    let wanted = body.clone();
    let origin = Http2Origin::start(Rules::default(), move |mut asked| {
        let wanted = wanted.clone();
        Box::pin(async move {
            let same = asked.read().await.is_ok_and(|(whole, _)| whole == wanted);
            let mut head = respond(200);
            head.headers_mut().insert("x-same", HeaderValue::from_static(if same { "true" } else { "false" }));
            asked.say(head, wanted).await;
        })
    });
    let product = to(&origin).start();
    let mut client = product.connect();
    client.send(format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {SIZE}\r\n\r\n"));
    client.send(&body);
    let answer = client.response();
    assert_eq!(answer.field("x-same"), Some("true"));
    assert!(answer.body == body, "the response came through changed");
    let length = origin.only_head().headers().get("content-length").cloned();
    assert_eq!(length, HeaderValue::from_str(&SIZE.to_string()).ok());
    client.send("PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in body.chunks(100_003) {
        client.send(format!("{:x}\r\n", chunk.len()));
        client.send(chunk);
        client.send("\r\n");
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().field("x-same"), Some("true"));
    assert_eq!(origin.connections(), 1);
}

/// A client whose kernel takes in little.
fn narrow(product: &Product) -> Peer {
    let tcp = TcpStream::connect(product.web()).expect("a connection");
    sys::set_receive_buffer(&tcp, 16 * 1024);
    Peer::new(Stream::Plain(tcp))
}

#[test]
fn clients_that_do_not_read_cost_little_memory_and_hold_up_nobody_else() {
    let (stalled, all) = (Arc::new(AtomicUsize::new(0)), 12);
    let count = Arc::clone(&stalled);
    let origin = Http2Origin::start(Rules::default(), move |asked| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            if asked.path() == "/small" {
                return asked.answer("small").await;
            }
            let mut speech = asked.begin(respond(200));
            let piece = vec![0; 64 * 1024];
            loop {
                let said = tokio::time::timeout(Duration::from_millis(400), speech.say(piece.clone())).await;
                if said.is_err() {
                    break;
                }
            }
            count.fetch_add(1, Ordering::SeqCst);
            speech.wait_reset().await;
        })
    });
    let product = to(&origin).start();
    let before = product.resident_bytes();
    let clients: Vec<Peer> = (0..all)
        .map(|_| {
            let mut peer = narrow(&product);
            peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            peer
        })
        .collect();
    eventually("all stall", || stalled.load(Ordering::SeqCst) == all);
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 12 * MIB, "{all} stalled responses cost {grown} bytes");
    assert_eq!(product.get("/small").text(), "small");
    assert_eq!(origin.connections(), 1);
    drop(clients);
    eventually("all are cancelled", || origin.resets().len() == all);
    assert!(origin.resets().iter().all(|reason| *reason == Reason::CANCEL), "{:?}", origin.resets());
    assert_eq!(product.get("/small").text(), "small");
    assert_eq!(origin.connections(), 1, "the connection lives on");
}

#[test]
fn an_endpoint_that_takes_nothing_holds_the_client_back_and_is_told_of_in_time() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| Box::pin(async move { asked.wait_reset().await }));
    let product = to(&origin).cluster("timeouts: { idle: 700ms }").start();
    let before = product.resident_bytes();
    let mut client = product.connect();
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1073741824\r\n\r\n");
    client.tcp().set_write_timeout(Some(Duration::from_millis(300))).expect("a time limit");
    let mut sent = 0;
    while sent < 1024 * MIB && client.try_send(vec![0; 64 * 1024]).is_ok() {
        sent += 64 * 1024;
    }
    assert!(sent < 64 * MIB, "{sent} bytes were taken for an endpoint that does not read");
    // Pages of 2 MB that the system gives for the first byte in them count whole.
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 10 * MIB, "{grown} bytes more");
    product.flagged("UST");
    eventually("the stream is cancelled", || origin.resets() == [Reason::CANCEL]);
    assert_eq!(origin.open(), 1);
}

#[test]
fn trailers_cross_in_both_directions() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let (body, trailers) = asked.read().await.expect("a request");
            let mut back = HeaderMap::new();
            let sum = trailers.and_then(|trailers| trailers.get("x-sum").cloned());
            back.insert("x-back", sum.unwrap_or(HeaderValue::from_static("none")));
            let mut speech = asked.begin(respond(200));
            speech.say(body).await;
            speech.end_with(back);
        })
    });
    let product = to(&origin).start();
    let answer = product.connect().ask(
        "POST / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n",
    );
    assert_eq!(answer.text(), "abc");
    assert_eq!(answer.trailers, [("x-back".to_owned(), "42".to_owned())]);
    let head = origin.only_head();
    assert_eq!(head.headers().get("te").map(HeaderValue::as_bytes), Some(&b"trailers"[..]));
}

#[test]
fn interim_responses_are_passed_on_and_a_body_is_sent_once_it_is_asked_for() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let _ = asked.respond.send_informational(respond(103));
            let _ = asked.respond.send_informational(respond(100));
            asked.answer("done").await;
        })
    });
    let product = to(&origin).start();
    let mut client = product.connect();
    client.send("PUT / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_eq!([client.head().status(), client.head().status()], [103, 100]);
    client.send("hi");
    let answer = client.response();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "done"));
}

#[test]
fn a_response_may_come_before_the_request_is_whole() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let first = asked.body.data().await.expect("a body").expect("a piece");
            let mut speech = asked.begin(respond(200));
            speech.say(first).await;
            speech.end();
        })
    });
    let product = to(&origin).start();
    let mut client = product.connect();
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\nfirst");
    let answer = client.response();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "first"));
    let small = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(small.text(), "hi");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_client_that_leaves_cancels_its_stream_and_no_other() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            match asked.path().as_str() {
                "/wait" => asked.wait_reset().await,
                _ => asked.answer("here").await,
            }
        })
    });
    let product = to(&origin).start();
    let mut leaves = product.connect();
    leaves.send("GET /wait HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is there", || origin.busy() == 1);
    leaves.reset();
    eventually("it is cancelled", || origin.resets() == [Reason::CANCEL]);
    product.flagged("CW");
    assert_eq!(product.get("/").text(), "here");
    assert_eq!((origin.connections(), origin.open()), (1, 1));
}

#[test]
fn a_response_that_is_reset_never_looks_whole() {
    let seen = Arc::new(AtomicBool::new(false));
    let is_seen = Arc::clone(&seen);
    let origin = Http2Origin::start(Rules::default(), move |mut asked| {
        let is_seen = Arc::clone(&is_seen);
        Box::pin(async move {
            let mut head = respond(200);
            match asked.path().as_str() {
                "/short" => drop(head.headers_mut().insert("content-length", HeaderValue::from_static("100"))),
                "/nothing" => return asked.respond.send_reset(Reason::INTERNAL_ERROR),
                _ => {}
            }
            let (is_short, mut speech) = (asked.path() == "/short", asked.begin(head));
            speech.say("half").await;
            if is_short {
                return speech.end();
            }
            // A reset may overtake what was said before it.
            while !is_seen.load(Ordering::SeqCst) {
                tokio::time::sleep(STEP).await;
            }
            speech.reset(Reason::INTERNAL_ERROR);
        })
    });
    let product = to(&origin).start();
    for path in ["/reset", "/short"] {
        let mut client = Peer::sending(product.web(), format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let mut answer = client.head();
        assert_eq!(answer.status(), 200);
        seen.store(true, Ordering::SeqCst);
        assert!(client.try_body(&mut answer, true).is_err(), "{path}: {answer:?}");
        product.record(path, |record| record["path"] == path && record["flag"] == "UD");
    }
    assert_eq!(product.get("/nothing").status(), 502);
    product.flagged("UR");
    assert_eq!((origin.connections(), origin.open()), (1, 1), "a stream's end is not the connection's");
}

/// Refuses the first so many streams.
fn refusing(count: usize) -> Http2Origin {
    Http2Origin::start(Rules::default(), move |mut asked: Asked| -> Work {
        Box::pin(async move {
            if asked.index < count {
                asked.respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                asked.answer("at last").await;
            }
        })
    })
}

#[test]
fn a_stream_that_is_refused_is_begun_anew_whatever_the_method() {
    let origin = refusing(2);
    let product = to(&origin).cluster("retry: { attempts_max: 1 }").start();
    let answer = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "at last"));
    assert_eq!((origin.streams(), origin.connections()), (3, 3), "each time on another connection");
}

#[test]
fn an_endpoint_that_refuses_every_stream_is_not_asked_for_ever() {
    let origin = refusing(usize::MAX);
    let product = to(&origin).cluster("retry: { attempts_max: 1 }").start();
    assert_eq!(product.get("/").status(), 502);
    assert_eq!(product.flagged("UQ")["fault"], "stream_refused");
    assert_eq!(origin.streams(), 4);
    let others = Http2Origin::saying("well");
    let both = Setup::to_addresses(&[origin.address(), others.address()]).cluster("http_versions: [h2]").workers(1);
    let product = both.start();
    for _ in 0..4 {
        let answer = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(answer.text(), "well", "another endpoint may have any request that none has looked at");
    }
}

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const SETTINGS_ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];

/// Speaks HTTP/2 byte by byte: greets, and waits for the head of a request. Its stream.
fn greet(peer: &mut Peer) -> Option<u32> {
    peer.try_send([SETTINGS, SETTINGS_ACK].concat()).ok()?;
    peer.take(24);
    loop {
        let head = peer.try_take(9).ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        peer.try_take(length).ok()?;
        if head[3] == 1 {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

#[test]
fn what_comes_after_a_goodbye_is_sent_on_another_connection() {
    let origin = Origin::start(|mut visit| {
        let Some(stream) = greet(&mut visit.peer) else { return };
        if visit.index == 0 {
            // GOAWAY: the last stream that is looked at is 0, which is none.
            visit.peer.send([0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        } else {
            // HEADERS with END_STREAM: `:status: 200`, from the static table.
            let id = stream.to_be_bytes();
            visit.peer.send([0, 0, 1, 1, 5, id[0], id[1], id[2], id[3], 0x88]);
        }
        visit.peer.wait_closed();
    });
    let product = Setup::to(&origin).cluster("http_versions: [h2]").cluster("retry: { attempts_max: 1 }").start();
    let answer = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answer.status(), 200);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn after_a_goodbye_streams_under_way_finish_and_others_go_elsewhere() {
    let (go, gone) = mpsc::channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let origin = Http2Origin::start(Rules::default(), move |asked| {
        let gone = Arc::clone(&gone);
        Box::pin(async move {
            if asked.path() != "/slow" {
                return asked.answer("quick").await;
            }
            asked.line.say_goodbye();
            let mut speech = asked.begin(respond(200));
            speech.say("be").await;
            while gone.lock().expect("a channel").try_recv().is_err() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            speech.say("gun").await;
            speech.end();
        })
    });
    let product = to(&origin).start();
    let mut slow = product.connect();
    slow.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut answer = slow.head();
    eventually("others go elsewhere", || {
        assert_eq!(product.get("/").text(), "quick");
        origin.connections() == 2
    });
    go.send(()).expect("it waits");
    slow.try_body(&mut answer, true).expect("the rest");
    assert_eq!(answer.text(), "begun");
    eventually("the old connection is closed", || origin.open() == 1);
}

#[test]
fn a_connection_that_has_died_unnoticed_is_given_up() {
    let origin = Origin::start(|mut visit| {
        if greet(&mut visit.peer).is_some() {
            visit.peer.wait_closed();
        }
    });
    let product = Setup::to(&origin)
        .cluster("http_versions: [h2]")
        .cluster("pool: { ping_interval: 200ms, ping_timeout: 200ms }")
        .start();
    assert_eq!(product.get("/").status(), 502);
    product.flagged("UR");
}

#[test]
fn an_endpoint_that_is_slow_but_there_is_not_given_up() {
    let origin = Http2Origin::start(Rules::default(), |asked| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            asked.answer("slow").await;
        })
    });
    let product = to(&origin).cluster("pool: { ping_interval: 100ms, ping_timeout: 3s }").start();
    assert_eq!(product.get("/").text(), "slow");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn connections_are_closed_when_they_are_idle_or_worn() {
    let origin = Http2Origin::saying("hello");
    let product = to(&origin).cluster("pool: { idle_timeout: 1s }").start();
    assert_eq!(product.get("/").status(), 200);
    eventually("it is closed", || origin.open() == 0);
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(origin.connections(), 2);
    let origin = Http2Origin::saying("hello");
    let product = to(&origin).cluster("pool: { requests_per_connection_max: 2 }").start();
    for _ in 0..6 {
        assert_eq!(product.get("/").status(), 200);
    }
    assert_eq!(origin.connections(), 3);
    eventually("worn ones are closed", || origin.open() == 0);
    let origin = Http2Origin::saying("hello");
    let product = to(&origin).cluster("pool: { idle_max: 0 }").start();
    for _ in 0..3 {
        assert_eq!(product.get("/").status(), 200);
        eventually("nothing is kept", || origin.open() == 0);
    }
}

#[test]
fn connections_live_through_a_change_that_does_not_concern_them() {
    let origin = Http2Origin::saying("hello");
    let setup = to(&origin);
    let product = setup.start();
    assert_eq!(product.get("/").status(), 200);
    product.reload(&setup.clone().route("timeout: 9s").text());
    assert_eq!(product.get("/").status(), 200);
    assert_eq!((origin.connections(), origin.open()), (1, 1));
    product.reload(&setup.cluster("pool: { streams_per_connection_max: 9 }").text());
    eventually("the old one is closed", || origin.open() == 0);
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_kept_connection_that_breaks_is_replaced_for_what_may_be_sent_again() {
    let origin = Http2Origin::start(Rules::default(), |asked| {
        Box::pin(async move {
            if asked.path() == "/cut" && asked.connection == 0 {
                asked.line.cut();
                return std::future::pending().await;
            }
            asked.answer("hello").await;
        })
    });
    let product = to(&origin).cluster("retry: { attempts_max: 1 }").start();
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(product.get("/cut").status(), 200);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_endpoint_that_does_not_speak_http_2_is_told_of() {
    let origin = Origin::saying("old");
    let product = Setup::to(&origin).cluster("http_versions: [h2]").start();
    assert_eq!(product.get("/").status(), 502);
    product.flagged("UH");
    product.expect_metric("equipoise_endpoint_connects_total", &["result=\"failed\""], 1.0);
}

/// An endpoint with TLS that offers these protocols.
fn sealed(authority: &Authority, protocols: &[&str]) -> Http2Origin {
    let config = offering(authority, protocols);
    let rules = Rules { tls: Some(config), ..Rules::default() };
    Http2Origin::start(rules, |asked| Box::pin(asked.answer("two")))
}

fn offering(authority: &Authority, protocols: &[&str]) -> Arc<rustls::ServerConfig> {
    let mut config = (*tls::origin(&authority.issue(&["127.0.0.1"]), None)).clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn start_sealed(address: std::net::SocketAddr, authority: &Authority, versions: &str) -> Product {
    let folder = product::folder();
    authority.write(folder.path(), "authority.pem");
    let setup = Setup::to_addresses(&[address])
        .cluster("tls: { authorities: authority.pem }")
        .cluster(format!("http_versions: {versions}"));
    Product::start_in(folder, &setup.text(), 1)
}

#[test]
fn with_tls_the_endpoint_chooses_the_version() {
    let authority = Authority::new("inside");
    for (versions, offers) in [("[h2]", &["h2"][..]), ("[h1, h2]", &["h2"]), ("[h1, h2]", &["h2", "http/1.1"])] {
        let origin = sealed(&authority, offers);
        let product = start_sealed(origin.address(), &authority, versions);
        assert_eq!(at_once(&product, 5), [200; 5]);
        assert_eq!((origin.connections(), origin.heads()[0].uri().scheme_str()), (1, Some("https")));
    }
    for offers in [&["http/1.1"][..], &[]] {
        let origin = Origin::start_tls(offering(&authority, offers), |mut visit| {
            visit.answer_all(|_| Some(super::harness::origin::ok("one")));
        });
        let product = start_sealed(origin.address(), &authority, "[h1, h2]");
        let mut clients: Vec<Peer> = (0..5).map(|_| product.connect()).collect();
        for _ in 0..3 {
            clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n"));
            clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "one"));
        }
        assert!(origin.connections() <= 5, "each is kept");
    }
}

#[test]
fn an_endpoint_that_will_not_choose_http_2_is_told_of() {
    let authority = Authority::new("inside");
    for offers in [&["http/1.1"][..], &[]] {
        let origin = Origin::start_tls(offering(&authority, offers), |mut visit| while visit.request().is_some() {});
        let product = start_sealed(origin.address(), &authority, "[h2]");
        assert_eq!(product.get("/").status(), 502);
        product.flagged("UH");
        assert!(origin.requests().is_empty());
    }
}

#[test]
fn a_hedge_that_loses_is_cancelled_and_its_connection_lives_on() {
    let slow = Http2Origin::start(Rules::default(), |mut asked| Box::pin(async move { asked.wait_reset().await }));
    let quick = Http2Origin::saying("quick");
    let product = Setup::to_addresses(&[slow.address(), quick.address()])
        .cluster("http_versions: [h2]")
        .cluster("hedge: { after: 300ms, budget: 100% }")
        .workers(1)
        .start();
    for _ in 0..4 {
        assert_eq!(product.get("/").text(), "quick");
    }
    eventually("losers are cancelled", || !slow.resets().is_empty() && slow.resets().len() == slow.streams());
    assert!(slow.resets().iter().all(|reason| *reason == Reason::CANCEL));
    assert_eq!((slow.connections(), slow.open()), (1, 1));
    assert_eq!((quick.connections(), quick.open()), (1, 1));
}

#[test]
fn an_endpoint_that_does_not_answer_in_time_loses_the_stream_only() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            match asked.path().as_str() {
                "/never" => asked.wait_reset().await,
                "/half" => {
                    let mut speech = asked.begin(respond(200));
                    speech.say("half").await;
                    speech.wait_reset().await;
                }
                _ => asked.answer("hello").await,
            }
        })
    });
    let product = to(&origin).cluster("timeouts: { response_head: 3s, idle: 3s }").start();
    assert_eq!(product.get("/never").status(), 504);
    product.flagged("URT");
    let mut client = Peer::sending(product.web(), "GET /half HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut answer = client.head();
    assert!(client.try_body(&mut answer, true).is_err());
    product.flagged("UDT");
    eventually("both are cancelled", || origin.resets().len() == 2);
    assert_eq!(product.get("/").text(), "hello");
    assert_eq!(origin.connections(), 1);
}

const UPGRADE: &str = "GET /chat?x=1 HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn a_websocket_becomes_a_stream_where_the_endpoint_offers_that() {
    let origin = Http2Origin::start(Rules { upgrades: true, ..Rules::default() }, |mut asked| {
        Box::pin(async move {
            let protocol =
                asked.head.extensions().get::<h2::ext::Protocol>().map(|protocol| protocol.as_str().to_owned());
            if protocol.as_deref() != Some("websocket") || asked.head.headers().contains_key("sec-websocket-key") {
                return asked.end(respond(400));
            }
            let Ok(mut send) = asked.respond.send_response(respond(200), false) else { return };
            while let Some(Ok(piece)) = asked.body.data().await {
                let _ = asked.body.flow_control().release_capacity(piece.len());
                let _ = send.send_data(piece, false);
            }
            let _ = send.send_data("bye".into(), true);
        })
    });
    let product = to(&origin).start();
    let mut client = Peer::sending(product.web(), UPGRADE);
    let answer = client.head();
    assert_eq!((answer.status(), answer.field("upgrade")), (101, Some("websocket")));
    assert_eq!(answer.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for word in ["one", "another"] {
        client.send(word);
        assert_eq!(client.take(word.len()), word.as_bytes());
    }
    assert_eq!(origin.only_head().uri().to_string(), "http://test/chat?x=1");
    client.half_close();
    assert_eq!(client.rest(), b"bye");
    eventually("its stream is over", || origin.busy() == 0);
    assert_eq!(origin.open(), 1, "the connection lives on");
}

/// Who has said all may reset the stream without an error (RFC 9113 section 8.1), as libraries do that drop one.
#[test]
fn a_websocket_that_its_endpoint_ends_and_leaves_reaches_the_client_whole() {
    let origin = Http2Origin::start(Rules { upgrades: true, ..Rules::default() }, |mut asked| {
        Box::pin(async move {
            let Ok(mut send) = asked.respond.send_response(respond(200), false) else { return };
            while let Some(Ok(piece)) = asked.body.data().await {
                let _ = asked.body.flow_control().release_capacity(piece.len());
                if piece.ends_with(b"?") {
                    break;
                }
            }
            let _ = send.send_data("bye".repeat(10_000).into(), true);
        })
    });
    let product = to(&origin).start();
    let mut client = Peer::sending(product.web(), UPGRADE);
    assert_eq!(client.head().status(), 101);
    client.send("anything else?");
    assert_eq!(client.try_rest().expect("an end in good order").len(), 30_000);
    assert_eq!(product.record("the tunnel", |_| true)["fault"], serde_json::Value::Null);
}

#[test]
fn a_websocket_that_the_endpoint_does_not_offer_or_want_is_told_of() {
    let refuses = Http2Origin::start(Rules { upgrades: true, ..Rules::default() }, |asked| {
        Box::pin(asked.say(respond(403), "not you"))
    });
    let answer = to(&refuses).start().connect().ask(UPGRADE);
    assert_eq!((answer.status(), answer.text().as_str()), (403, "not you"));
    let origin = Http2Origin::saying("nothing");
    let product = to(&origin).start();
    assert_eq!(product.connect().ask(UPGRADE).status(), 502);
    assert_eq!(product.flagged("UP")["fault"], "upgrade_not_offered");
    assert_eq!(origin.streams(), 0);
}
