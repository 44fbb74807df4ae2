//! HTTP/3 towards endpoints: messages that cross from other versions, connections that many requests share, and their ends.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use h3::error::Code;
use http::{HeaderMap, HeaderValue, Response};

use super::harness::http3_origin::{Asked, Http3Origin, Rules};
use super::harness::peer::Stream;
use super::harness::poll::STEP;
use super::harness::product::folder;
use super::harness::quic_switch::Switch;
use super::harness::tls::{self, Authority};
use super::harness::{Origin, Peer, Product, Setup, eventually, sys};
use super::http2_both::proof;

const MIB: u64 = 1024 * 1024;

/// Endpoints and the authority that vouches for them.
struct Inside {
    authority: Authority,
}

impl Inside {
    fn new() -> Self {
        Self { authority: Authority::new("inside") }
    }

    fn rules(&self) -> Rules {
        Rules::of(&self.authority)
    }

    /// To this address, with one worker, so that all requests share what it keeps.
    fn to(&self, address: SocketAddr) -> Setup {
        self.to_all(&[address])
    }

    fn to_all(&self, addresses: &[SocketAddr]) -> Setup {
        let setup = Setup::to_addresses(addresses).cluster("http_versions: [h3]");
        setup.cluster("tls: { authorities: authority.pem }").workers(1)
    }

    fn start(&self, setup: &Setup) -> Product {
        self.start_text(&setup.text())
    }

    fn start_text(&self, text: &str) -> Product {
        let folder = folder();
        self.authority.write(folder.path(), "authority.pem");
        self.authority.issue(&["127.0.0.1"]).write(folder.path(), "site");
        self.authority.issue_client("proxy").write(folder.path(), "client");
        Product::start_in(folder, text, 1)
    }
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

fn connects(product: &Product, result: &str, count: f64) {
    product.expect_metric("equipoise_endpoint_connects_total", &[&format!("result=\"{result}\"")], count);
}

#[test]
fn a_request_arrives_as_http_3_has_it_and_the_response_as_http_1_has_it() {
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |asked| {
        let mut head = respond(201);
        head.headers_mut().insert("x-from", HeaderValue::from_static("origin"));
        Box::pin(asked.say(head, "hello"))
    });
    let product = inside.start(&inside.to(origin.address()));
    let answer = product.connect().ask(
        "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nConnection: keep-alive, x-hop\r\nX-Hop: 1\r\nX-Kept: 2\r\nTE: trailers\r\n\r\n",
    );
    assert_eq!((answer.status(), answer.text().as_str()), (201, "hello"));
    assert_eq!(answer.line, "HTTP/1.1 201 Created");
    assert_eq!((answer.field("x-from"), answer.field("transfer-encoding")), (Some("origin"), Some("chunked")));
    let head = origin.only_head();
    assert_eq!(head.uri().to_string(), "https://shop.example/a/b?c=d");
    let field = |name: &str| head.headers().get(name).map(|value| value.to_str().expect("text"));
    assert_eq!((field("x-kept"), field("x-hop"), field("connection"), field("host")), (Some("2"), None, None, None));
    assert_eq!((field("x-forwarded-for"), field("x-forwarded-host")), (Some("127.0.0.1"), Some("shop.example")));
}

#[test]
fn requests_that_follow_and_requests_at_once_share_a_connection() {
    let inside = Inside::new();
    let rules = Rules { delay: Duration::from_millis(300), ..inside.rules() };
    let origin = Http3Origin::start(rules, |asked| Box::pin(asked.answer("hello")));
    let product = inside.start(&inside.to(origin.address()));
    assert_eq!(at_once(&product, 40), [200; 40]);
    for _ in 0..5 {
        assert_eq!(product.get("/").text(), "hello");
    }
    assert_eq!((origin.connections(), origin.streams()), (1, 45));
    connects(&product, "opened", 1.0);
    product.expect_metric("equipoise_endpoint_connections_reused_total", &[], 44.0);
}

/// Answers once so many scripts have run at the same time.
fn gathering(rules: Rules, count: usize) -> Http3Origin {
    let here = Arc::new(AtomicUsize::new(0));
    Http3Origin::start(rules, move |asked| {
        let here = Arc::clone(&here);
        here.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            while here.load(Ordering::SeqCst) < count {
                tokio::time::sleep(STEP).await;
            }
            asked.answer("hello").await;
        })
    })
}

#[test]
fn no_connection_gets_more_streams_than_the_endpoint_or_we_allow_and_nobody_waits_for_another() {
    let inside = Inside::new();
    // What the endpoint allows is found out; none of these would be answered if one had to wait.
    let origin = gathering(Rules { streams_max: 2, ..inside.rules() }, 7);
    let product = inside.start(&inside.to(origin.address()));
    assert_eq!(at_once(&product, 7), [200; 7]);
    assert!((4..=7).contains(&origin.connections()), "{}", origin.connections());
    let origin = gathering(inside.rules(), 5);
    let setup = inside.to(origin.address()).cluster("pool: { streams_per_connection_max: 2 }");
    let product = inside.start(&setup);
    assert_eq!(at_once(&product, 5), [200; 5]);
    assert_eq!((origin.connections(), origin.streams()), (3, 5));
}

#[test]
fn trailers_cross_in_both_directions() {
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |mut asked| {
        Box::pin(async move {
            let (body, trailers) = asked.read().await.expect("a request");
            let mut back = HeaderMap::new();
            let sum = trailers.and_then(|trailers| trailers.get("x-sum").cloned());
            back.insert("x-back", sum.unwrap_or(HeaderValue::from_static("none")));
            let mut speech = asked.begin(respond(200)).await;
            speech.say(body).await;
            speech.end_with(back).await;
        })
    });
    let product = inside.start(&inside.to(origin.address()));
    let answer = product.connect().ask(
        "POST / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n",
    );
    assert_eq!(answer.text(), "abc");
    assert_eq!(answer.trailers, [("x-back".to_owned(), "42".to_owned())]);
}

#[test]
fn a_response_may_come_before_the_request_is_whole() {
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |mut asked| {
        Box::pin(async move {
            let first = asked.piece().await.expect("a body").expect("a piece");
            asked.say(respond(200), first).await;
        })
    });
    let product = inside.start(&inside.to(origin.address()));
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
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |mut asked| {
        Box::pin(async move {
            match asked.path().as_str() {
                "/wait" => asked.wait_left().await,
                _ => asked.answer("here").await,
            }
        })
    });
    let product = inside.start(&inside.to(origin.address()));
    let mut leaves = product.connect();
    leaves.send("GET /wait HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is there", || origin.busy() == 1);
    leaves.reset();
    eventually("it is cancelled", || origin.left() == 1);
    product.flagged("CW");
    assert_eq!(product.get("/").text(), "here");
    assert_eq!((origin.connections(), origin.open()), (1, 1));
}

#[test]
fn a_response_that_is_reset_never_looks_whole() {
    let (inside, seen) = (Inside::new(), Arc::new(AtomicBool::new(false)));
    let is_seen = Arc::clone(&seen);
    let origin = Http3Origin::start(inside.rules(), move |asked| {
        let is_seen = Arc::clone(&is_seen);
        Box::pin(async move {
            let path = asked.path();
            let mut head = respond(200);
            match path.as_str() {
                "/short" => drop(head.headers_mut().insert("content-length", HeaderValue::from_static("100"))),
                "/nothing" => return asked.reset(Code::H3_INTERNAL_ERROR),
                _ => {}
            }
            let mut speech = asked.begin(head).await;
            speech.say("half").await;
            if path == "/short" {
                return speech.end().await;
            }
            // A reset overtakes what was said before it.
            while !is_seen.load(Ordering::SeqCst) {
                tokio::time::sleep(STEP).await;
            }
            speech.reset(Code::H3_INTERNAL_ERROR);
        })
    });
    let product = inside.start(&inside.to(origin.address()));
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

/// A client whose kernel takes in little.
fn narrow(product: &Product) -> Peer {
    let tcp = TcpStream::connect(product.web()).expect("a connection");
    sys::set_receive_buffer(&tcp, 16 * 1024);
    Peer::new(Stream::Plain(tcp))
}

#[test]
fn clients_that_do_not_read_cost_little_memory_and_hold_up_nobody_else() {
    let (inside, stalled, all) = (Inside::new(), Arc::new(AtomicUsize::new(0)), 12);
    let count = Arc::clone(&stalled);
    let origin = Http3Origin::start(inside.rules(), move |asked| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            if asked.path() == "/small" {
                return asked.answer("small").await;
            }
            let mut speech = asked.begin(respond(200)).await;
            let piece = vec![0; 64 * 1024];
            loop {
                let said = tokio::time::timeout(Duration::from_millis(400), speech.say(piece.clone())).await;
                if said.is_err() {
                    break;
                }
            }
            count.fetch_add(1, Ordering::SeqCst);
            speech.asked().wait_left().await;
        })
    });
    let product = inside.start(&inside.to(origin.address()));
    assert_eq!(product.get("/small").text(), "small");
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
    assert!(grown < 14 * MIB, "{all} stalled responses cost {grown} bytes");
    assert_eq!(product.get("/small").text(), "small");
    assert_eq!(origin.connections(), 1);
    drop(clients);
    eventually("all are cancelled", || origin.busy() == 0);
    assert_eq!(product.get("/small").text(), "small");
    assert_eq!(origin.connections(), 1, "the connection lives on");
}

#[test]
fn an_endpoint_that_takes_nothing_holds_the_client_back_and_is_told_of_in_time() {
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |mut asked| {
        Box::pin(async move {
            match asked.path().as_str() {
                "/warm" => asked.answer("warm").await,
                _ => asked.wait_left().await,
            }
        })
    });
    let product = inside.start(&inside.to(origin.address()).cluster("timeouts: { idle: 2s }"));
    // What the first connection of all costs is not of interest.
    assert_eq!(product.get("/warm").text(), "warm");
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
    eventually("the stream is cancelled", || origin.left() == 1);
    assert_eq!(origin.open(), 1);
}

/// Rejects this many streams, and answers the others.
fn rejecting(inside: &Inside, count: usize) -> Http3Origin {
    Http3Origin::start(inside.rules(), move |mut asked| {
        Box::pin(async move {
            if asked.index < count {
                // Whatever of the body has come: it was not looked at.
                let _ = tokio::time::timeout(Duration::from_millis(100), asked.piece()).await;
                return asked.reset(Code::H3_REQUEST_REJECTED);
            }
            let Ok((body, _)) = asked.read().await else { return };
            asked.say(respond(200), body).await;
        })
    })
}

#[test]
fn a_stream_that_is_rejected_is_begun_anew_whatever_the_method() {
    let inside = Inside::new();
    let origin = rejecting(&inside, 1);
    let product = inside.start(&inside.to(origin.address()).cluster("retry: { attempts_max: 1 }"));
    let answer = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    assert_eq!(origin.streams(), 2);
    let origin = rejecting(&inside, usize::MAX);
    let product = inside.start(&inside.to(origin.address()).cluster("retry: { attempts_max: 1 }"));
    assert_eq!(product.get("/").status(), 502);
    assert!(origin.streams() < 10, "{}", origin.streams());
}

/// SETTINGS without any (RFC 9114 section 7.2.4), on a control stream that has to stay.
const SETTINGS: [u8; 3] = [0, 4, 0];
/// HEADERS with `:status: 200`, from the static table.
const YES: [u8; 5] = [1, 3, 0, 0, 0xd9];

/// An endpoint that says hello as HTTP/3 does, and answers the first stream of each connection with these bytes; before that it says
/// `beside` on its control stream.
fn blunt(inside: &Inside, beside: &'static [&'static [u8]], answers: &'static [&'static [u8]]) -> Http3Origin {
    Http3Origin::start_raw(inside.rules(), move |quic, index| {
        let at = move |all: &'static [&'static [u8]]| *all.get(index).or(all.last()).expect("one");
        Box::pin(async move {
            let Ok(mut control) = quic.open_uni().await else { return };
            let _ = control.write_all(&SETTINGS).await;
            let Ok((mut send, mut receive)) = quic.accept_bi().await else { return };
            let _ = control.write_all(at(beside)).await;
            let answer = at(answers);
            if !answer.is_empty() {
                let _ = receive.read_to_end(100_000).await;
                let _ = send.write_all(answer).await;
                let _ = send.finish();
            }
            let _still_there = (control, send, receive);
            quic.closed().await;
        })
    })
}

#[test]
fn what_a_goodbye_does_not_let_in_is_sent_on_another_connection() {
    let inside = Inside::new();
    // GOAWAY: streams from 0 on are not looked at, which are all.
    let origin = blunt(&inside, &[&[7, 1, 0], &[]], &[&[], &YES]);
    let product = inside.start(&inside.to(origin.address()).cluster("retry: { attempts_max: 1 }"));
    let answer = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(answer.status(), 200);
    assert_eq!(origin.connections(), 2);
    eventually("the first one is closed", || origin.open() == 1);
}

#[test]
fn an_endpoint_that_breaks_the_rules_is_told_how() {
    let inside = Inside::new();
    let cases: [(&'static [u8], Option<u64>); 6] = [
        // DATA before a head; a head that cannot be decoded; a push that nobody wanted.
        (&[0, 1, b'x'], Some(0x105)),
        (&[1, 3, 0, 0, 0x80], Some(0x200)),
        (&[5, 3, 0, 0, 0], Some(0x105)),
        // Malformed heads cost their stream only: no status, a field in upper case, 101.
        (&[1, 2, 0, 0], None),
        (&[1, 7, 0, 0, 0xd9, 0x21, b'X', 1, b'v'], None),
        (&[1, 8, 0, 0, 0x5f, 9, 3, b'1', b'0', b'1'], None),
    ];
    for (answer, code) in cases {
        let answers: &'static [&'static [u8]] = Box::leak(vec![answer].into_boxed_slice());
        let origin = blunt(&inside, &[&[]], answers);
        let product = inside.start(&inside.to(origin.address()).cluster("retry: { attempts_max: 1 }"));
        assert_eq!(product.get("/").status(), 502, "{answer:?}");
        let Some(code) = code else {
            assert_eq!(origin.open(), 1, "{answer:?}");
            continue;
        };
        eventually("the connection is ended", || origin.ends().len() == 1);
        let [quinn::ConnectionError::ApplicationClosed(close)] = &origin.ends()[..] else {
            panic!("{answer:?}: {:?}", origin.ends());
        };
        assert_eq!(close.error_code.into_inner(), code, "{answer:?}");
    }
}

#[test]
fn after_a_goodbye_streams_under_way_finish_and_others_go_elsewhere() {
    let (inside, go) = (Inside::new(), Arc::new(AtomicBool::new(false)));
    let gone = Arc::clone(&go);
    let origin = Http3Origin::start(inside.rules(), move |asked| {
        let gone = Arc::clone(&gone);
        Box::pin(async move {
            if asked.path() != "/slow" {
                return asked.answer("quick").await;
            }
            asked.line.say_goodbye();
            let mut speech = asked.begin(respond(200)).await;
            speech.say("be").await;
            while !gone.load(Ordering::SeqCst) {
                tokio::time::sleep(STEP).await;
            }
            speech.say("gun").await;
            speech.end().await;
        })
    });
    let product = inside.start(&inside.to(origin.address()));
    let mut slow = product.connect();
    slow.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
    let mut answer = slow.head();
    eventually("others go elsewhere", || {
        assert_eq!(product.get("/").text(), "quick");
        origin.connections() == 2
    });
    go.store(true, Ordering::SeqCst);
    slow.try_body(&mut answer, true).expect("the rest");
    assert_eq!(answer.text(), "begun");
    eventually("the old connection is closed", || origin.open() == 1);
}

#[test]
fn an_endpoint_that_was_killed_and_is_back_is_spoken_to_again() {
    let inside = Inside::new();
    let rules = inside.rules();
    let origin = Http3Origin::start(rules.clone(), |asked| Box::pin(asked.answer("before")));
    let setup = inside.to(origin.address());
    let setup = setup.cluster("timeouts: { connect: 1s }").cluster("retry: { attempts_max: 1 }");
    let product = inside.start(&setup.cluster("pool: { ping_interval: 200ms, ping_timeout: 400ms }"));
    assert_eq!(product.get("/").text(), "before");
    let address = origin.kill();
    assert!(product.get("/").status() >= 500, "nobody is there");
    let _back = Http3Origin::start_at(address, rules, |asked| Box::pin(asked.answer("after")));
    eventually("it is spoken to again", || product.get("/").text() == "after");
}

#[test]
fn what_waits_for_an_endpoint_that_was_killed_and_is_back_unnoticed_is_sent_again_in_seconds() {
    let inside = Inside::new();
    let rules = inside.rules();
    let origin = Http3Origin::start(rules.clone(), |asked| Box::pin(asked.answer("before")));
    // By the endpoint's silence alone it would be minutes.
    let setup = inside.to(origin.address()).cluster("pool: { ping_interval: 5m, ping_timeout: 5m }");
    let product = inside.start(&setup.workers(1));
    assert_eq!(product.get("/").text(), "before");
    let address = origin.kill();
    let _back = Http3Origin::start_at(address, rules, |asked| Box::pin(asked.answer("after")));
    let mut waiting = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("others go on another connection", || product.get("/").text() == "after");
    assert_eq!(waiting.response().text(), "after");
}

#[test]
fn an_endpoint_that_stands_still_for_a_while_loses_no_request() {
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |asked| {
        Box::pin(async move {
            if asked.path() == "/still" {
                // Nothing moves there: no acknowledgement, no other connection.
                std::thread::sleep(Duration::from_secs(4));
            }
            asked.answer("here").await;
        })
    });
    let product = inside.start(&inside.to(origin.address()).workers(1));
    assert_eq!(product.get("/").text(), "here");
    let answer = product.connect().ask("POST /still HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "here"));
    assert_eq!(origin.streams(), 2, "it was sent once");
}

#[test]
fn a_thread_of_an_endpoint_that_stands_still_costs_no_request_that_cannot_be_sent_again() {
    let inside = Inside::new();
    let [one, other] =
        ["one", "other"].map(|name| Http3Origin::start(inside.rules(), move |asked| Box::pin(asked.answer(name))));
    let switch = Switch::start(&[one.address(), other.address()]);
    let setup = inside.to(switch.address()).cluster("pool: { ping_interval: 5m, ping_timeout: 5m }");
    let product = inside.start(&setup.workers(1));
    assert_eq!(product.get("/").text(), "one");
    switch.stand_still(0);
    let mut once = Peer::sending(product.web(), "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    // This one leaves the silent connection once that is known to be silent alone.
    assert_eq!(product.get("/").text(), "other");
    eventually("others go on another connection", || product.get("/").text() == "other");
    once.assert_open();
    switch.go_on();
    let answer = once.response();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "one"));
    let posts = |origin: &Http3Origin| origin.heads().iter().filter(|head| head.method() == "POST").count();
    assert_eq!((posts(&one), posts(&other)), (1, 0), "it was sent once");
}

#[test]
fn an_endpoint_that_is_slow_but_there_is_not_given_up() {
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |asked| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            asked.answer("slow").await;
        })
    });
    let setup = inside.to(origin.address()).cluster("pool: { ping_interval: 100ms, ping_timeout: 3s }");
    let product = inside.start(&setup);
    assert_eq!(product.get("/").text(), "slow");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_endpoint_that_does_not_answer_in_time_loses_the_stream_only() {
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |mut asked| {
        Box::pin(async move {
            match asked.path().as_str() {
                "/never" => asked.wait_left().await,
                _ => asked.answer("here").await,
            }
        })
    });
    let product = inside.start(&inside.to(origin.address()).cluster("timeouts: { response_head: 2s }"));
    assert_eq!(product.get("/never").status(), 504);
    eventually("it is cancelled", || origin.left() == 1);
    assert_eq!(product.get("/").text(), "here");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn connections_are_closed_when_they_are_idle_or_worn() {
    let inside = Inside::new();
    let origin = Http3Origin::saying(&inside.authority, "hello");
    let product = inside.start(&inside.to(origin.address()).cluster("pool: { idle_timeout: 1s }"));
    assert_eq!(product.get("/").status(), 200);
    eventually("it is closed", || origin.open() == 0);
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(origin.connections(), 2);
    let origin = Http3Origin::saying(&inside.authority, "hello");
    let product = inside.start(&inside.to(origin.address()).cluster("pool: { requests_per_connection_max: 2 }"));
    for _ in 0..6 {
        assert_eq!(product.get("/").status(), 200);
    }
    assert_eq!(origin.connections(), 3);
    eventually("worn ones are closed", || origin.open() == 0);
    let origin = Http3Origin::saying(&inside.authority, "hello");
    let product = inside.start(&inside.to(origin.address()).cluster("pool: { idle_max: 0 }"));
    for _ in 0..3 {
        assert_eq!(product.get("/").status(), 200);
        eventually("nothing is kept", || origin.open() == 0);
    }
}

#[test]
fn the_only_request_of_a_connection_arrives() {
    let inside = Inside::new();
    let origin = Http3Origin::saying(&inside.authority, "hello");
    let product = inside.start(&inside.to(origin.address()).cluster("pool: { requests_per_connection_max: 1 }"));
    for done in 1..=20 {
        assert_eq!(product.get("/").text(), "hello");
        // None was refused, and sent again.
        assert_eq!((origin.connections(), origin.streams()), (done, done));
    }
}

#[test]
fn connections_live_through_a_change_that_does_not_concern_them() {
    let inside = Inside::new();
    let origin = Http3Origin::saying(&inside.authority, "hello");
    let setup = inside.to(origin.address());
    let product = inside.start(&setup);
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
fn endpoints_are_told_when_the_program_ends() {
    let inside = Inside::new();
    let origin = Http3Origin::saying(&inside.authority, "hello");
    let mut product = inside.start(&inside.to(origin.address()));
    assert_eq!(product.get("/").status(), 200);
    product.signal(libc::SIGTERM);
    product.wait_ended();
    eventually("the endpoint is told", || origin.ends().len() == 1);
    let end = &origin.ends()[0];
    let is_told =
        matches!(end, quinn::ConnectionError::ApplicationClosed(close) if close.error_code.into_inner() == 0x100);
    assert!(is_told, "{end:?}");
}

#[test]
fn a_kept_connection_that_breaks_is_replaced_for_what_may_be_sent_again() {
    let inside = Inside::new();
    let origin = Http3Origin::start(inside.rules(), |asked: Asked| {
        Box::pin(async move {
            if asked.path() == "/cut" && asked.connection == 0 {
                asked.line.cut();
                return std::future::pending().await;
            }
            asked.answer("hello").await;
        })
    });
    let product = inside.start(&inside.to(origin.address()).cluster("retry: { attempts_max: 1 }"));
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(product.get("/cut").status(), 200);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_endpoint_whose_certificate_is_not_to_be_trusted_gets_nothing() {
    let inside = Inside::new();
    let another = Authority::new("another");
    for (identity, settings) in [
        (another.issue(&["127.0.0.1"]), "{ authorities: authority.pem }"),
        (inside.authority.issue(&["other.example"]), "{ authorities: authority.pem }"),
        (inside.authority.issue(&["127.0.0.1"]), "{ authorities: authority.pem, server_name: shop.example }"),
    ] {
        let rules = Rules::with(&tls::origin(&identity, None));
        let origin = Http3Origin::start(rules, |asked| Box::pin(asked.answer("sealed")));
        let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h3]");
        let product = inside.start(&setup.cluster(format!("tls: {settings}")));
        assert_eq!(product.get("/").status(), 502, "{settings}");
        assert_eq!(product.flagged("UH")["fault"], "upstream_handshake_failed");
        assert_eq!(origin.streams(), 0);
    }
}

#[test]
fn a_certificate_is_shown_to_an_endpoint_that_asks_for_one() {
    let inside = Inside::new();
    let identity = inside.authority.issue(&["shop.internal"]);
    let rules = Rules::with(&tls::origin(&identity, Some(&inside.authority)));
    let origin = Http3Origin::start(rules, |asked| Box::pin(asked.answer("sealed")));
    let setup = |more: &str| {
        let setup = Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h3]");
        setup.cluster(format!("tls: {{ authorities: authority.pem, server_name: shop.internal{more} }}"))
    };
    let with = inside.start(&setup(", certificate: { chain: client.pem, key: client.key }"));
    assert_eq!(with.get("/").text(), "sealed");
    let without = inside.start(&setup("").cluster("retry: { attempts_max: 1 }"));
    assert_eq!(without.get("/").status(), 502);
    assert_eq!(origin.streams(), 1);
}

#[test]
fn an_endpoint_at_which_nobody_is_fails_in_time() {
    let inside = Inside::new();
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let setup = inside.to(nobody.local_addr().expect("an address")).cluster("timeouts: { connect: 300ms }");
    let product = inside.start(&setup.cluster("retry: { attempts_max: 1 }"));
    assert_eq!(product.get("/").status(), 504);
    assert_eq!(product.flagged("UCT")["fault"], "connect_timeout");
    connects(&product, "failed", 1.0);
}

#[test]
fn an_endpoint_of_which_the_network_says_that_nobody_is_there_fails_at_once() {
    let inside = Inside::new();
    let gone = Http3Origin::saying(&inside.authority, "hello").kill();
    let setup = inside.to(gone).cluster("timeouts: { connect: 25s }").cluster("retry: { attempts_max: 1 }");
    let product = inside.start(&setup);
    assert_eq!(product.get("/").status(), 502);
    assert_eq!(product.flagged("UC")["fault"], "connect_failed");
    connects(&product, "failed", 1.0);
}

const UPGRADE: &str = "GET /chat?x=1 HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A product that speaks HTTP/3 to its clients, before this origin of HTTP/1.1.
fn relay(inside: &Inside, origin: &Origin) -> Product {
    let setup = Setup::to(origin).listener("http_versions: [h1, h3]");
    inside.start_text(&setup.listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }").text())
}

#[test]
fn a_websocket_becomes_a_stream_where_the_endpoint_offers_that() {
    let inside = Inside::new();
    let origin = Origin::start(|mut visit| {
        let head = visit.peer.head();
        assert_eq!(head.field("upgrade"), Some("websocket"));
        let proof = proof(head.field("sec-websocket-key").expect("a key"));
        visit.peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {proof}\r\n\r\n"
        ));
        while visit.peer.fill().is_ok_and(|count| count > 0) {
            let bytes = visit.peer.drain();
            visit.peer.send(bytes);
        }
        visit.peer.send("bye");
    });
    let behind = relay(&inside, &origin);
    let product = inside.start(&inside.to(behind.web()));
    let mut client = Peer::sending(product.web(), UPGRADE);
    let answer = client.head();
    assert_eq!((answer.status(), answer.field("upgrade")), (101, Some("websocket")));
    assert_eq!(answer.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for word in ["one", "another"] {
        client.send(word);
        assert_eq!(client.take(word.len()), word.as_bytes());
    }
    client.half_close();
    assert_eq!(client.rest(), b"bye");
    // Whoever has no WebSocket says so, and the connection goes on.
    let plain = Origin::answering(|_| b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_vec());
    let behind = relay(&inside, &plain);
    let product = inside.start(&inside.to(behind.web()));
    let answer = product.connect().ask(UPGRADE);
    assert_eq!((answer.status(), answer.text().as_str()), (403, "no"));
}

#[test]
fn a_websocket_that_the_endpoint_does_not_offer_is_told_of() {
    let inside = Inside::new();
    let origin = Http3Origin::saying(&inside.authority, "nothing");
    let product = inside.start(&inside.to(origin.address()));
    assert_eq!(product.connect().ask(UPGRADE).status(), 502);
    assert_eq!(product.flagged("UP")["fault"], "upgrade_not_offered");
    assert_eq!(origin.streams(), 0);
}
