//! HTTP/2 towards endpoints that make it difficult: how a request gets its stream all the same, and what never ends a
//! connection that others use.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use h2::Reason;
use http::{HeaderValue, Response};

use super::harness::http2_origin::{Asked, Http2Origin, Rules};
use super::harness::net::Blackhole;
use super::harness::origin::ok;
use super::harness::peer::{Stream, is_timeout};
use super::harness::tls::{self, Authority};
use super::harness::{Origin, Peer, Product, Setup, eventually, frames, product, sys};

/// To these, with one worker, so that all requests share what it keeps.
fn to(addresses: &[SocketAddr]) -> Setup {
    Setup::to_addresses(addresses)
        .cluster("balance: first")
        .cluster("http_versions: [h2]")
        .cluster("retry: { attempts_max: 1 }")
        .workers(1)
}

fn respond(status: u16, length: Option<&'static str>) -> Response<()> {
    let mut head = Response::builder().status(status).body(()).expect("a head");
    if let Some(length) = length {
        head.headers_mut().insert("content-length", HeaderValue::from_static(length));
    }
    head
}

/// One who says go, and one who waits for it, wherever they are.
struct Gate(Mutex<Sender<()>>, Mutex<Receiver<()>>);

impl Gate {
    fn new() -> Arc<Self> {
        let (go, wait) = channel();
        Arc::new(Self(Mutex::new(go), Mutex::new(wait)))
    }

    fn open(&self) {
        self.0.lock().expect("a channel").send(()).expect("both ends are here");
    }

    fn wait(&self) {
        self.1.lock().expect("a channel").recv().expect("both ends are here");
    }

    async fn wait_beside_others(&self) {
        while self.1.lock().expect("a channel").try_recv().is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn connects(product: &Product, result: &str, count: f64) {
    let label = format!("result=\"{result}\"");
    product.expect_metric("equipoise_endpoint_connects_total", &[&label], count);
}

/// Requests under way at an endpoint.
fn in_flight(product: &Product, count: f64) {
    product.expect_metric("equipoise_endpoint_in_flight", &[], count);
}

const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";

#[test]
fn a_response_whose_stream_ends_later_is_not_cancelled_and_holds_up_no_client() {
    let (nexts, cancelled, ended) = (Arc::<AtomicUsize>::default(), Arc::default(), Arc::<AtomicUsize>::default());
    let shared = (Arc::clone(&nexts), Arc::<AtomicUsize>::clone(&cancelled), Arc::clone(&ended));
    let origin = Http2Origin::start(Rules::default(), move |asked| {
        let (nexts, cancelled, ended) = (Arc::clone(&shared.0), Arc::clone(&shared.1), Arc::clone(&shared.2));
        Box::pin(async move {
            let path = asked.path();
            if path == "/next" {
                nexts.fetch_add(1, Ordering::SeqCst);
                return asked.answer("next").await;
            }
            let before = nexts.load(Ordering::SeqCst);
            let mut speech = asked.begin(match path.as_str() {
                "/204" => respond(204, None),
                "/304" => respond(304, None),
                "/zero" => respond(200, Some("0")),
                _ => respond(200, Some("1234")),
            });
            while nexts.load(Ordering::SeqCst) == before {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            cancelled.fetch_add(usize::from(speech.is_reset().await), Ordering::SeqCst);
            speech.end();
            ended.fetch_add(1, Ordering::SeqCst);
        })
    });
    let product = to(&[origin.address()]).start();
    let mut client = product.connect();
    for (method, path, status) in
        [("HEAD", "/", 200), ("GET", "/204", 204), ("GET", "/304", 304), ("GET", "/zero", 200)]
    {
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        assert_eq!(client.head().status(), status);
        assert_eq!(client.get("/next").text(), "next");
    }
    eventually("all have ended", || ended.load(Ordering::SeqCst) == 4);
    assert_eq!(cancelled.load(Ordering::SeqCst), 0);
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_response_head_that_is_too_large_costs_its_own_stream_only() {
    let gate = Gate::new();
    let wait = Arc::clone(&gate);
    let origin = Http2Origin::start(Rules::default(), move |asked| {
        let wait = Arc::clone(&wait);
        Box::pin(async move {
            let size: usize = asked.path()[1..].parse().unwrap_or(0);
            if size == 0 {
                wait.wait_beside_others().await;
                return asked.answer("slow").await;
            }
            let mut head = respond(200, None);
            head.headers_mut().insert("x-large", HeaderValue::from_str(&"x".repeat(size)).expect("a value"));
            asked.end(head);
        })
    });
    let product = to(&[origin.address()]).start();
    let mut slow = Peer::sending(product.web(), GET);
    eventually("it is there", || origin.busy() == 1);
    assert_eq!(product.get("/30000").status(), 200);
    for size in [40_000, 200_000] {
        let path = format!("/{size}");
        assert_eq!(product.get(&path).status(), 502);
        let record = product.record(&path, |record| record["path"] == path.as_str());
        assert_eq!((record["flag"].as_str(), record["fault"].as_str()), (Some("UL"), Some("response_head_too_large")));
    }
    gate.open();
    assert_eq!(slow.response().text(), "slow");
    assert_eq!(origin.connections(), 1);
}

/// Reads what is sent, and then resets the stream.
async fn turn_away(mut asked: Asked, reason: Reason) {
    let _ = asked.read().await;
    asked.respond.send_reset(reason);
}

#[test]
fn a_body_that_an_endpoint_may_have_acted_on_is_sent_again_only_as_the_rules_for_retries_allow() {
    let whole = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello";
    let chunked = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for (body_max, refusals, request, status) in [
        ("0", 0, whole, 502),
        ("0", 0, chunked, 502),
        // What nobody has looked at may be sent again, and then somebody has.
        ("0", 1, whole, 502),
        ("4", 0, whole, 502),
        ("5", 0, whole, 200),
        ("5", 0, chunked, 200),
        ("5", 1, chunked, 200),
    ] {
        let first = Http2Origin::start(Rules::default(), move |asked| {
            let is_refused = asked.index < refusals;
            Box::pin(turn_away(asked, if is_refused { Reason::REFUSED_STREAM } else { Reason::INTERNAL_ERROR }))
        });
        let second = Http2Origin::saying("second");
        let product = Setup::to_addresses(&[first.address(), second.address()])
            .cluster("balance: first")
            .cluster("http_versions: [h2]")
            .cluster(format!("retry: {{ on: [connect_failure, reset], methods: any, body_max: {body_max} }}"))
            .workers(1)
            .start();
        let answer = product.connect().ask(request);
        let case = format!("body_max {body_max}, {refusals} refusals, {request}");
        assert_eq!((answer.status(), second.streams()), (status, usize::from(status == 200)), "{case}");
        assert_eq!(first.streams(), refusals + 1, "{case}");
    }
}

/// What an endpoint offers as TLS begins.
fn offering(authority: &Authority, protocols: &[&str]) -> Arc<rustls::ServerConfig> {
    let mut config = (*tls::origin(&authority.issue(&["127.0.0.1"]), None)).clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn start_sealed(address: SocketAddr, authority: &Authority) -> Product {
    let folder = product::folder();
    authority.write(folder.path(), "authority.pem");
    let setup = Setup::to_addresses(&[address])
        .cluster("tls: { authorities: authority.pem }")
        .cluster("http_versions: [h1, h2]")
        .cluster("retry: { attempts_max: 1 }");
    Product::start_in(folder, &setup.text(), 1)
}

/// Speaks HTTP/2 byte by byte until the connection ends: `answer` gets each stream that begins.
fn speak(peer: &mut Peer, mut answer: impl FnMut(&mut Peer, u32)) {
    if peer.try_send(frames::frame(frames::SETTINGS, 0, 0, &[])).is_err() || peer.try_read(24).is_none() {
        return;
    }
    while let Some(frame) = frames::read(peer) {
        match (frame.kind, frame.flags & 1) {
            (frames::HEADERS, _) => answer(peer, frame.stream),
            (frames::SETTINGS | frames::PING, 0) => {
                let _ = peer.try_send(frames::frame(
                    frame.kind,
                    1,
                    0,
                    &frame.payload[..usize::from(frame.kind == frames::PING) * 8],
                ));
            }
            _ => {}
        }
    }
}

/// 200 without a body.
fn yes(peer: &mut Peer, stream: u32) {
    let _ = peer.try_send(frames::frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &[0x88]));
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn an_upgrade_goes_by_http_1_where_both_are_spoken_and_http_2_does_not_serve_it() {
    let authority = Authority::new("inside");
    let origin = Origin::start_tls(offering(&authority, &["h2", "http/1.1"]), |mut visit| {
        if visit.peer.agreed().as_deref() == Some(b"h2") {
            return speak(&mut visit.peer, yes);
        }
        while let Some(request) = visit.request() {
            let switch = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {}\r\n\r\n",
                request.field("upgrade").expect("a wish")
            );
            visit.peer.send(switch);
            let word = visit.peer.take(4);
            visit.peer.send(word);
            visit.peer.half_close();
        }
    });
    let product = start_sealed(origin.address(), &authority);
    for protocol in ["websocket", "sing-along"] {
        for _ in 0..2 {
            let mut client = Peer::sending(product.web(), UPGRADE.replace("websocket", protocol));
            assert_eq!(client.head().status(), 101, "{protocol}");
            client.send("ping");
            assert_eq!(client.take(4), b"ping");
        }
    }
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(origin.requests().len(), 4, "all else goes by HTTP/2");
}

#[test]
fn an_upgrade_at_an_endpoint_that_speaks_http_2_only_is_told_of() {
    let authority = Authority::new("inside");
    let origin = Origin::start_tls(offering(&authority, &["h2"]), |mut visit| speak(&mut visit.peer, yes));
    let product = start_sealed(origin.address(), &authority);
    assert_eq!(product.connect().ask(UPGRADE).status(), 502);
    product.flagged("UP");
    assert_eq!(product.get("/").status(), 200);
}

#[test]
fn only_a_whole_wish_for_a_websocket_becomes_one_and_other_wishes_are_left_out() {
    let rules = Rules { upgrades: true, ..Rules::default() };
    let origin = Http2Origin::start(rules, |asked| {
        let protocol = asked.head.extensions().get::<h2::ext::Protocol>().is_some();
        let said = format!("{} {protocol}", asked.head.method());
        Box::pin(asked.answer(said))
    });
    let product = to(&[origin.address()]).start();
    for request in [
        UPGRADE.replace("websocket", "sing-along"),
        UPGRADE.replace("GET", "DELETE"),
        format!("{}hi", UPGRADE.replace("Host: test\r\n", "Host: test\r\nContent-Length: 2\r\n")),
    ] {
        let method = request.split(' ').next().expect("a method").to_owned();
        let answer = product.connect().ask(&request);
        assert_eq!((answer.status(), answer.text()), (200, format!("{method} false")), "{request}");
    }
    for key in ["", "short", "dGhlIHNhbXBsZSBub25jZQ"] {
        let answer = product.connect().ask(UPGRADE.replace("dGhlIHNhbXBsZSBub25jZQ==", key));
        assert_eq!(answer.status(), 400, "{key}");
    }
    assert_eq!(origin.streams(), 3);
}

#[test]
fn one_stale_connection_of_http_1_is_enough_to_make_a_new_one() {
    let authority = Authority::new("inside");
    let all = Arc::new(Barrier::new(6));
    let origin = Origin::start_tls(offering(&authority, &["http/1.1"]), move |mut visit| {
        if visit.request().is_none() {
            return;
        }
        if visit.index < 6 {
            all.wait();
        }
        visit.peer.send(ok("fresh"));
        // The next is read, and not answered.
        visit.request();
    });
    let product = start_sealed(origin.address(), &authority);
    let mut clients: Vec<Peer> = (0..6).map(|_| Peer::sending(product.web(), GET)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "fresh"));
    assert_eq!(product.get("/").text(), "fresh");
    assert_eq!(origin.connections(), 7);
}

#[test]
fn no_connection_gets_more_streams_than_the_endpoint_allows_and_nobody_waits_for_another() {
    const ALL: usize = 7;
    let (seen, most, is_open) =
        (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let shared = (Arc::clone(&seen), Arc::clone(&most), Arc::clone(&is_open));
    let origin = Origin::start(move |mut visit| {
        let (seen, most, is_open) = &shared;
        let peer = &mut visit.peer;
        // MAX_CONCURRENT_STREAMS is 3.
        peer.send(frames::frame(frames::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 3]));
        if peer.try_read(24).is_none() {
            return;
        }
        peer.tcp().set_read_timeout(Some(Duration::from_millis(20))).expect("a time limit");
        let mut streams = Vec::new();
        loop {
            match peer.try_take(9) {
                Ok(head) => {
                    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                    while peer.try_take(length).is_err() {}
                    if head[3] == frames::HEADERS {
                        streams.push(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
                        most.fetch_max(streams.len(), Ordering::SeqCst);
                        seen.fetch_add(1, Ordering::SeqCst);
                    }
                }
                Err(error) if is_timeout(&error) && is_open.load(Ordering::SeqCst) => {
                    streams.drain(..).for_each(|stream| yes(peer, stream));
                }
                Err(error) if is_timeout(&error) => {}
                Err(_) => return,
            }
        }
    });
    let product = to(&[origin.address()]).start();
    let mut clients: Vec<Peer> = (0..ALL).map(|_| Peer::sending(product.web(), GET)).collect();
    eventually("all are there", || seen.load(Ordering::SeqCst) == ALL);
    is_open.store(true, Ordering::SeqCst);
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status(), 200));
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[test]
fn a_connection_that_fails_fails_one_of_those_who_wait_for_it() {
    let gate = Gate::new();
    let wait = Arc::clone(&gate);
    let origin = Origin::start(move |mut visit| match visit.index {
        0 => wait.wait(),
        _ => speak(&mut visit.peer, yes),
    });
    let product = to(&[origin.address()]).start();
    let mut clients: Vec<Peer> = (0..10).map(|_| Peer::sending(product.web(), GET)).collect();
    in_flight(&product, 10.0);
    gate.open();
    let mut statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 200, 200, 502]);
    assert_eq!(origin.connections(), 2);
    product.expect_metric("equipoise_endpoint_faults_total", &[], 1.0);
}

#[test]
fn a_failure_that_many_wait_for_is_one_for_the_health_of_the_endpoint() {
    let gate = Gate::new();
    let wait = Arc::clone(&gate);
    let origin = Origin::start(move |visit| {
        if visit.index == 0 {
            wait.wait();
        }
    });
    let product =
        to(&[origin.address()]).cluster("passive_health: { consecutive_failures: 5, ejected_max: 100% }").start();
    let mut clients: Vec<Peer> = (0..10).map(|_| Peer::sending(product.web(), GET)).collect();
    in_flight(&product, 10.0);
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status(), 502));
    assert_eq!(origin.connections(), 2, "once more for those who were not told");
    product.expect_metric("equipoise_endpoint_faults_total", &[], 10.0);
    product.expect_metric("equipoise_endpoint_ejected", &[], 0.0);
}

#[test]
fn who_finds_no_room_and_no_other_connection_gets_the_stream_that_ends_first() {
    let gate = Gate::new();
    let wait = Arc::clone(&gate);
    let origin = Origin::start(move |mut visit| {
        if visit.index > 0 {
            return;
        }
        let mut count = 0;
        speak(&mut visit.peer, |peer, stream| {
            count += 1;
            if count == 1 {
                wait.wait();
            }
            yes(peer, stream);
        });
    });
    let product = to(&[origin.address()]).cluster("pool: { streams_per_connection_max: 1 }").start();
    let mut first = Peer::sending(product.web(), GET);
    connects(&product, "opened", 1.0);
    in_flight(&product, 1.0);
    let mut second = Peer::sending(product.web(), GET);
    product.expect_metric_at_least("equipoise_endpoint_connects_total", &["result=\"failed\""], 1.0);
    gate.open();
    assert_eq!((first.response().status(), second.response().status()), (200, 200));
}

#[test]
fn a_connection_on_which_a_stream_was_refused_carries_as_many_as_before_after_a_while() {
    let here = Arc::new(AtomicUsize::new(0));
    let gate = Gate::new();
    let wait = Arc::clone(&gate);
    let origin = Http2Origin::start(Rules::default(), move |mut asked| {
        let (wait, here) = (Arc::clone(&wait), Arc::clone(&here));
        Box::pin(async move {
            let connection = asked.connection.to_string();
            match asked.path().as_str() {
                "/held" => wait.wait_beside_others().await,
                "/refused" if asked.connection == 0 => return asked.respond.send_reset(Reason::REFUSED_STREAM),
                "/both" => {
                    here.fetch_add(1, Ordering::SeqCst);
                    while here.load(Ordering::SeqCst) < 2 {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
                _ => {}
            }
            asked.answer(connection).await;
        })
    });
    let product = to(&[origin.address()]).start();
    let mut held = Peer::sending(product.web(), GET.replace("/ ", "/held "));
    eventually("it is there", || origin.busy() == 1);
    assert_eq!(product.get("/refused").text(), "1");
    assert_eq!(product.get("/").text(), "1", "one was as many as the first would have");
    gate.open();
    assert_eq!(held.response().text(), "0");
    let mut both: Vec<Peer> = (0..2).map(|_| Peer::sending(product.web(), GET.replace("/ ", "/both "))).collect();
    both.iter_mut().for_each(|client| assert_eq!(client.response().text(), "0"));
}

#[test]
fn a_stream_that_is_refused_beside_a_hedge_has_its_place_when_it_is_begun_anew() {
    let (asked_other, refused, end) = (Gate::new(), Gate::new(), Gate::new());
    let gates = (Arc::clone(&asked_other), Arc::clone(&refused), Arc::clone(&end));
    let first = Http2Origin::start(Rules::default(), move |mut asked| {
        let (asked_other, refused, end) = (Arc::clone(&gates.0), Arc::clone(&gates.1), Arc::clone(&gates.2));
        Box::pin(async move {
            if asked.index == 0 {
                asked_other.wait_beside_others().await;
                asked.respond.send_reset(Reason::REFUSED_STREAM);
                return refused.open();
            }
            end.wait_beside_others().await;
            asked.answer("first").await;
        })
    });
    let second = Http2Origin::start(Rules::default(), move |mut asked| {
        let (asked_other, refused) = (Arc::clone(&asked_other), Arc::clone(&refused));
        Box::pin(async move {
            asked_other.open();
            refused.wait_beside_others().await;
            // So that the other's is noticed first; if it is not, this asks for less.
            tokio::time::sleep(Duration::from_millis(300)).await;
            asked.respond.send_reset(Reason::INTERNAL_ERROR);
        })
    });
    let product = to(&[first.address(), second.address()]).cluster("hedge: { after: 50ms, budget: 100% }").start();
    let mut client = Peer::sending(product.web(), GET);
    eventually("it is there again", || first.streams() == 2 && second.busy() == 0 && second.streams() == 1);
    in_flight(&product, 1.0);
    end.open();
    assert_eq!(client.response().text(), "first");
}

#[test]
fn what_a_hedge_has_moved_gets_a_new_connection_and_another_stream_if_that_is_refused() {
    for is_refused in [false, true] {
        let slow = Blackhole::open();
        let origin = Http2Origin::start(Rules::default(), move |mut asked| {
            Box::pin(async move {
                match asked.index {
                    // An idle connection that dies as the next request comes.
                    1 if asked.connection == 0 => {
                        asked.line.cut();
                        std::future::pending().await
                    }
                    1 if is_refused => asked.respond.send_reset(Reason::REFUSED_STREAM),
                    _ => asked.answer("hello").await,
                }
            })
        });
        let product = to(&[slow.address(), origin.address()])
            .cluster("hedge: { after: 50ms, budget: 100% }")
            .cluster("timeouts: { connect: 1m }")
            .start();
        for _ in 0..2 {
            let answer = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
            assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
        }
        assert_eq!(origin.streams(), 2 + usize::from(is_refused));
    }
}

#[test]
fn a_connection_that_might_be_hedged_is_made_once() {
    let rules = Rules { delay: Duration::from_millis(100), ..Rules::default() };
    let origin = Http2Origin::start(rules, |asked| Box::pin(asked.answer("hello")));
    let product = to(&[origin.address(), Blackhole::open().address()])
        .cluster("hedge: { after: 30s, budget: 100% }")
        .cluster("pool: { streams_per_connection_max: 1 }")
        .start();
    assert_eq!(product.get("/").text(), "hello");
    connects(&product, "opened", 1.0);
    assert_eq!(origin.connections(), 1);
}

#[test]
fn what_no_uri_has_is_encoded_on_its_way_to_http_2() {
    let origin = Http2Origin::start(Rules::default(), |asked| {
        let path = asked.path();
        Box::pin(asked.answer(path))
    });
    let product = to(&[origin.address()]).start();
    assert_eq!(product.get("/a<\"b`>?c=\"<`>|{d}").text(), "/a%3C%22b%60%3E?c=%22%3C%60%3E|{d}");
}

const MIB: u64 = 1024 * 1024;

/// A client whose kernel takes in little.
fn narrow(product: &Product) -> Peer {
    let tcp = std::net::TcpStream::connect(product.web()).expect("a connection");
    sys::set_receive_buffer(&tcp, 16 * 1024);
    Peer::new(Stream::Plain(tcp))
}

#[test]
fn small_pieces_that_wait_for_clients_cost_little_more_than_their_bytes() {
    const ALL: usize = 24;
    const PIECE: usize = 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    // On every stream as much as its window allows, in pieces.
    let origin = Origin::start(move |mut visit| {
        let peer = &mut visit.peer;
        if peer.try_send(frames::frame(frames::SETTINGS, 0, 0, &[])).is_err() || peer.try_read(24).is_none() {
            return;
        }
        let mut windows = std::collections::HashMap::<u32, usize>::new();
        while let Some(frame) = frames::read(peer) {
            let stream = frame.stream;
            match frame.kind {
                frames::HEADERS => {
                    peer.send(frames::frame(frames::HEADERS, frames::END_HEADERS, stream, &[0x88]));
                    windows.insert(stream, 128 * 1024);
                }
                frames::WINDOW_UPDATE if windows.contains_key(&stream) => {
                    let step = u32::from_be_bytes(frame.payload[..4].try_into().expect("four bytes"));
                    *windows.entry(stream).or_default() += step as usize;
                }
                frames::SETTINGS if frame.flags == 0 => peer.send(frames::frame(frames::SETTINGS, 1, 0, &[])),
                _ => {}
            }
            if let Some(window) = windows.get_mut(&stream) {
                let pieces = *window / PIECE;
                *window %= PIECE;
                if peer.try_send(frames::frame(frames::DATA, 0, stream, &[0; PIECE]).repeat(pieces)).is_err() {
                    return;
                }
                count.fetch_add(pieces, Ordering::SeqCst);
            }
        }
    });
    let product = to(&[origin.address()]).start();
    let before = product.resident_bytes();
    let clients: Vec<Peer> = (0..ALL)
        .map(|_| {
            let mut client = narrow(&product);
            client.send(GET);
            client
        })
        .collect();
    eventually("all stall", || {
        let seen = sent.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(400));
        seen >= ALL * 128 * 1024 / PIECE && seen == sent.load(Ordering::SeqCst)
    });
    // Some 12 MiB, and twice that while the machine is busy, since the product comes to look at pieces in larger heaps.
    eventually("that costs little", || product.resident_bytes().saturating_sub(before) < 32 * MIB);
    assert_eq!(origin.connections(), 1);
    drop(clients);
}

#[test]
fn a_connection_that_is_closed_ends_though_the_endpoint_takes_none_of_its_last_bytes() {
    let gate = Gate::new();
    let wait = Arc::clone(&gate);
    let origin = Origin::start(move |mut visit| {
        // Windows as large as can be, and then nothing is read.
        let settings = [0, 4, 0x7f, 0xff, 0xff, 0xff];
        visit.peer.send(frames::frame(frames::SETTINGS, 0, 0, &settings));
        visit.peer.send(frames::frame(frames::WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
        wait.wait();
    });
    let product = to(&[origin.address()])
        .cluster("timeouts: { idle: 300ms }")
        .cluster("pool: { idle_max: 0, ping_interval: 1h, ping_timeout: 300ms }")
        .start();
    let before = sys::descriptors(product.pid());
    let mut client = product.connect();
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1073741824\r\n\r\n");
    client.tcp().set_write_timeout(Some(Duration::from_millis(300))).expect("a time limit");
    while client.try_send(vec![0; 64 * 1024]).is_ok() {}
    product.flagged("UST");
    drop(client);
    eventually("its socket is closed", || sys::descriptors(product.pid()) <= before);
    gate.open();
}

#[test]
fn an_endpoint_that_says_nothing_is_asked_twice_and_then_left_alone() {
    let origin = Origin::start(|mut visit| {
        let peer = &mut visit.peer;
        if peer.try_send(frames::frame(frames::SETTINGS, 0, 0, &[])).is_err() || peer.try_read(24).is_none() {
            return;
        }
        peer.send(frames::frame(frames::SETTINGS, 1, 0, &[]));
        frames::read_until(peer, frames::HEADERS, 1);
        for _ in 0..2 {
            let ping = frames::read_until(peer, frames::PING, 0);
            peer.send(frames::frame(frames::PING, 1, 0, &ping.payload));
        }
        peer.assert_silent(Duration::from_secs(4));
        peer.send(frames::frame(frames::HEADERS, frames::END_HEADERS, 1, &[0x88]));
        peer.send(frames::frame(frames::DATA, frames::END_STREAM, 1, b"done"));
        peer.wait_closed();
    });
    let product = to(&[origin.address()]).cluster("pool: { ping_interval: 100ms, ping_timeout: 2s }").start();
    assert_eq!(product.get("/").text(), "done");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn requests_after_a_rest_do_not_wait_for_an_endpoint_that_has_vanished_meanwhile() {
    let origin = Origin::start(|mut visit| {
        let is_first = visit.index == 0;
        speak(&mut visit.peer, |peer, stream| {
            yes(peer, stream);
            // As if it were gone without a word: nothing ever comes of it again.
            while is_first && frames::read(peer).is_some() {}
        });
    });
    // Without what is tested here it would be minutes.
    let product = to(&[origin.address()]).cluster("pool: { ping_interval: 5m, ping_timeout: 8s }").start();
    assert_eq!(product.get("/").status(), 200);
    // The rest of the connection.
    std::thread::sleep(Duration::from_millis(1_500));
    let mut waiting = Peer::sending(product.web(), GET);
    eventually("it is asked", || frames::count(&origin.received(0), frames::PING) == 1);
    // Until the endpoint is doubted.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(product.get("/").status(), 200, "on another connection");
    assert_eq!(waiting.response().status(), 200, "sent again when the first was given up");
    assert_eq!(frames::count(&origin.received(0), frames::PING), 1);
}

#[test]
fn an_endpoint_that_is_silent_for_a_moment_after_a_rest_loses_no_request() {
    let origin = Origin::start(|mut visit| {
        let mut count = 0;
        speak(&mut visit.peer, |peer, stream| {
            count += 1;
            if count == 2 {
                // Neither this request nor a PING is looked at for longer than it takes to be doubted.
                std::thread::sleep(Duration::from_secs(3));
            }
            yes(peer, stream);
        });
    });
    let product = to(&[origin.address()]).cluster("pool: { ping_interval: 5m, ping_timeout: 1m }").start();
    assert_eq!(product.get("/").status(), 200);
    std::thread::sleep(Duration::from_millis(1_500));
    let post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(product.connect().ask(post).status(), 200);
    eventually("its connection is used again", || {
        let before = frames::count(&origin.received(0), frames::HEADERS);
        assert_eq!(product.get("/").status(), 200);
        frames::count(&origin.received(0), frames::HEADERS) > before
    });
}

#[test]
fn what_still_comes_for_streams_that_clients_have_left_ends_nothing_else() {
    const LEFT: usize = 100;
    let gate = Gate::new();
    let wait = Arc::clone(&gate);
    let origin = Origin::start(move |mut visit| {
        let (mut streams, mut count) = (Vec::new(), 0);
        speak(&mut visit.peer, |peer, stream| {
            count += 1;
            if count <= LEFT {
                return streams.push(stream);
            }
            // All but this one are reset by now: more frames for them than a library takes from somebody it does not trust.
            if count == LEFT + 1 {
                wait.wait();
            }
            for round in 0..40 {
                for left in &streams {
                    let (kind, flags, payload) = match round {
                        0 => (frames::HEADERS, frames::END_HEADERS, &[0x88][..]),
                        _ => (frames::DATA, 0, &b"late"[..]),
                    };
                    let _ = peer.try_send(frames::frame(kind, flags, *left, payload));
                }
                // What it says to these is on its way before the next come.
                let _ = peer.try_send(frames::frame(frames::PING, 0, 0, &[0; 8]));
                while frames::read(peer).is_some_and(|frame| frame.kind != frames::PING) {}
            }
            streams.clear();
            yes(peer, stream);
        });
    });
    let product = to(&[origin.address()]).cluster("pool: { streams_per_connection_max: 200 }").start();
    let clients: Vec<Peer> = (0..LEFT).map(|_| Peer::sending(product.web(), GET)).collect();
    in_flight(&product, LEFT as f64);
    connects(&product, "opened", 1.0);
    eventually("all are there", || frames::count(&origin.received(0), frames::HEADERS) == LEFT);
    clients.into_iter().for_each(Peer::reset);
    in_flight(&product, 0.0);
    let mut last = Peer::sending(product.web(), GET);
    gate.open();
    assert_eq!(last.response().status(), 200);
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(origin.connections(), 1);
}
