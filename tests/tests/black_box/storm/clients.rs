//! Clients of every protocol, each at work on a thread of its own until it is told to stop.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::harness::http2_origin::{self, Http2Origin};
use super::super::harness::http3_origin::{self, Http3Origin};
use super::super::harness::origin::{Visit, ok};
use super::super::harness::poll::PATIENCE;
use super::super::harness::tls::{self, Authority, Client as TlsClient, connect};
use super::super::harness::{Origin, Peer, Product, eventually, http2, http3};
use super::websocket::{self, Echo};

const NAME: &str = "shop.example";

/// Answers with what the request's field `x-number` says; what asks for a WebSocket gets one, and what asks for
/// another upgrade becomes an echo.
pub(super) fn site() -> Origin {
    Origin::start(answer_all)
}

/// The same by TLS.
pub(super) fn site_tls(authority: &Authority) -> Origin {
    Origin::start_tls(of_endpoint(authority, "http/1.1"), answer_all)
}

/// The same by HTTP/2, in clear or by TLS.
pub(super) fn site_http2(authority: Option<&Authority>) -> Http2Origin {
    let rules = http2_origin::Rules {
        tls: authority.map(|authority| of_endpoint(authority, "h2")),
        ..http2_origin::Rules::default()
    };
    Http2Origin::start(rules, |mut asked| {
        Box::pin(async move {
            let number = number_of(asked.head.headers());
            if asked.read().await.is_ok() {
                asked.answer(number).await;
            }
        })
    })
}

/// The same by HTTP/3.
pub(super) fn site_http3(authority: &Authority) -> Http3Origin {
    Http3Origin::start(http3_origin::Rules::with(&of_endpoint(authority, "h3")), |mut asked| {
        Box::pin(async move {
            let number = number_of(asked.head.headers());
            if asked.read().await.is_ok() {
                asked.answer(number).await;
            }
        })
    })
}

fn number_of(fields: &http::HeaderMap) -> String {
    fields.get("x-number").and_then(|number| number.to_str().ok()).unwrap_or("none").to_owned()
}

fn of_endpoint(authority: &Authority, protocol: &str) -> Arc<rustls::ServerConfig> {
    let mut config = (*tls::origin(&authority.issue(&["127.0.0.1"]), None)).clone();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

fn answer_all(mut visit: Visit<'_>) {
    if visit.peer.skip_proxy_header().is_err() {
        return;
    }
    // Not noted: there will be very many.
    while let Some(request) = visit.peer.try_request() {
        match request.field("upgrade") {
            Some("websocket") => {
                let key = request.field("sec-websocket-key").unwrap_or_default();
                return Echo::default().serve(&mut visit.peer, key);
            }
            Some(_) => return becomes_an_echo(&mut visit.peer),
            None => (),
        }
        if visit.peer.try_send(ok(request.field("x-number").unwrap_or("none"))).is_err() {
            return;
        }
    }
}

fn becomes_an_echo(peer: &mut Peer) {
    peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n");
    loop {
        let bytes = peer.drain();
        if peer.try_send(bytes).is_err() || !peer.fill().is_ok_and(|count| count > 0) {
            return;
        }
    }
}

/// An endpoint that sends datagrams back.
pub(super) struct UdpEcho(SocketAddr);

impl UdpEcho {
    pub(super) fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        std::thread::spawn(move || {
            let mut room = [0; 2048];
            while let Ok((count, from)) = socket.recv_from(&mut room) {
                let _ = socket.send_to(&room[..count], from);
            }
        });
        Self(address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0
    }
}

/// Tells whoever asks for the state of an endpoint that it is well, and bears so much.
pub(super) fn agent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let words = ["up ready 100%\n", "50%\n", "75% ready\n"][number % 3];
            let _ = stream.and_then(|mut stream| stream.write_all(words.as_bytes()));
        }
    });
    address
}

/// All clients.
pub(super) struct Clients {
    stop: Arc<AtomicBool>,
    each: Vec<Client>,
}

/// One, and how much it has done.
struct Client {
    kind: &'static str,
    done: Arc<AtomicU64>,
    /// When it was last looked at.
    seen: u64,
    thread: JoinHandle<()>,
}

impl Clients {
    pub(super) fn start(product: &Product, authority: &Authority, spares: &[SocketAddr]) -> Self {
        let (web, secure) = (product.web(), product.address("secure"));
        let (stream, dns) = (product.address("stream"), product.address("dns"));
        let plain = TlsClient::trusting(authority).config();
        let h2 = TlsClient { protocols: &["h2"], ..TlsClient::trusting(authority) }.config();
        let h3 = http3::trusting(authority, None);
        let mut clients = Self { stop: Arc::new(AtomicBool::new(false)), each: Vec::new() };
        clients.add("HTTP/1.1", move || {
            let mut peer = Peer::connect(web);
            Box::new(move |number| asks(&mut peer, number))
        });
        clients
            .add("HTTP/1.1, a connection each", move || Box::new(move |number| asks(&mut Peer::connect(web), number)));
        let tls = Arc::clone(&plain);
        clients.add("HTTPS", move || {
            let mut peer = connect(secure, NAME, &tls);
            Box::new(move |number| asks(&mut peer, number))
        });
        let tls = Arc::clone(&plain);
        clients.add("HTTPS, a connection each", move || {
            Box::new(move |number| asks(&mut connect(secure, NAME, &tls), number))
        });
        let (of_h2, of_h3) = (Arc::clone(&h2), Arc::clone(&h3));
        clients.add("HTTP/2", move || {
            let mut client = http2::Client::connect_tls(secure, NAME, &of_h2);
            Box::new(move |number| {
                let text = number.to_string();
                let request = http2::with_fields(http2::request("GET", "/"), &[("x-number", &text)]);
                let answer = client.ask(request, b"");
                assert_eq!((answer.status, answer.text()), (200, text));
            })
        });
        clients.add("HTTP/3", move || {
            let mut client = http3::Client::connect(secure, NAME, &of_h3);
            Box::new(move |number| {
                let text = number.to_string();
                let request = http2::with_fields(http3::request("GET", "/"), &[("x-number", &text)]);
                let answer = client.ask(request, b"");
                assert_eq!((answer.status, answer.text()), (200, text));
            })
        });
        clients.add("tunnel", move || {
            let mut peer = Peer::connect(web);
            peer.send("GET /tunnel HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
            assert_eq!(peer.head().status(), 101);
            Box::new(move |number| echoes(&mut peer, number))
        });
        clients.add_websockets(web, secure, h2);
        clients.add("TCP", move || {
            let mut peer = Peer::connect(stream);
            Box::new(move |number| echoes(&mut peer, number))
        });
        clients
            .add("TCP, a connection each", move || Box::new(move |number| echoes(&mut Peer::connect(stream), number)));
        clients.add("UDP", move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            socket.connect(dns).expect("an address");
            socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time limit");
            Box::new(move |number| asks_by_datagram(&socket, number))
        });
        for address in spares.iter().copied() {
            let [plain, h3] = [&plain, &h3].map(Arc::clone);
            clients.add("whoever comes", move || Box::new(move |number| comes(address, number, [&plain, &h3])));
        }
        clients
    }

    /// Those that stay through all changes: by an upgrade, and on a stream (RFC 8441).
    fn add_websockets(&mut self, web: SocketAddr, secure: SocketAddr, h2: Arc<rustls::ClientConfig>) {
        self.add("WebSocket", move || {
            let mut peer = Peer::connect(web);
            websocket::begin(&mut peer);
            Box::new(move |number| websocket::says(&mut peer, number))
        });
        self.add("WebSocket over HTTP/2", move || {
            let mut client = http2::Client::connect_tls(secure, NAME, &h2);
            let mut asked = http2::with_fields(http2::request("CONNECT", "/chat"), &[("sec-websocket-version", "13")]);
            asked.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
            let mut stream = client.open(asked, false);
            assert_eq!(client.head(&mut stream).expect("a response").0, 200);
            Box::new(move |number| {
                let (sent, awaited) = websocket::word(number);
                client.send(&mut stream, &sent, false);
                let mut heard = Vec::new();
                while heard.len() < awaited.len() {
                    heard.extend(client.chunk(&mut stream).expect("more").expect("bytes"));
                }
                assert_eq!(heard, awaited);
            })
        });
    }

    fn add(&mut self, kind: &'static str, begin: impl FnOnce() -> Box<dyn FnMut(u64)> + Send + 'static) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&done);
        let thread = std::thread::Builder::new().name(kind.to_owned()).spawn(move || {
            let mut work = begin();
            while !stop.load(Ordering::Relaxed) {
                work(count.fetch_add(1, Ordering::Relaxed));
                // So that they leave room for the changes, and for the other tests.
                std::thread::sleep(Duration::from_millis(4));
            }
        });
        self.each.push(Client { kind, done, seen: 0, thread: thread.expect("a thread") });
    }

    /// Waits until each has done something more from now on.
    pub(super) fn all_go_on(&mut self) {
        for client in &mut self.each {
            client.seen = client.done.load(Ordering::Relaxed);
        }
        self.go_on();
    }

    /// Waits until each has done something more since it was last looked at.
    pub(super) fn go_on(&mut self) {
        for client in &mut self.each {
            eventually(client.kind, || {
                assert!(!client.thread.is_finished(), "{} failed; what it says stands above", client.kind);
                client.done.load(Ordering::Relaxed) > client.seen + 1
            });
            client.seen = client.done.load(Ordering::Relaxed);
        }
    }

    /// How much each has done, if none has failed.
    pub(super) fn end(self) -> BTreeMap<&'static str, u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut done = BTreeMap::new();
        for client in self.each {
            client.thread.join().unwrap_or_else(|_| panic!("{} failed", client.kind));
            *done.entry(client.kind).or_default() += client.done.load(Ordering::Relaxed);
        }
        done
    }
}

fn asks(peer: &mut Peer, number: u64) {
    let answer = match number % 3 {
        0 => {
            peer.ask(format!("POST /b HTTP/1.1\r\nHost: {NAME}\r\nX-Number: {number}\r\nContent-Length: 4\r\n\r\nbody"))
        }
        _ => peer.ask(format!("GET /a HTTP/1.1\r\nHost: {NAME}\r\nX-Number: {number}\r\n\r\n")),
    };
    assert_eq!((answer.status(), answer.text()), (200, number.to_string()), "{answer:?}");
    assert_eq!(answer.field("connection"), None, "{answer:?}");
}

/// Comes to a listener that may be another at any moment, or none: what is not there is refused, and what is there answers soon and
/// says nothing that is another's.
fn comes(address: SocketAddr, number: u64, [plain, h3]: [&Arc<rustls::ClientConfig>; 2]) {
    let said = match number % 4 {
        0 => Peer::try_connect(address).and_then(|peer| answered(peer, number, "")),
        1 => {
            Peer::try_connect(address).and_then(|peer| answered(peer, number, "PROXY TCP4 127.0.0.9 127.0.0.1 1 2\r\n"))
        }
        2 => tls::try_connect(address, NAME, plain).ok().and_then(|peer| answered(peer, number, "")),
        _ => by_http3(address, number, h3),
    };
    assert!(said.as_ref().is_none_or(|said| *said == number.to_string()), "{said:?}: {number}");
}

/// The body of a good answer, if there is one.
fn answered(mut peer: Peer, number: u64, before: &str) -> Option<String> {
    let text = format!("{before}GET /a HTTP/1.1\r\nHost: {NAME}\r\nX-Number: {number}\r\n\r\n");
    peer.try_send(text).ok()?;
    let mut answer = peer.try_head().ok()??;
    // An echo sends back what it gets.
    if !answer.line.starts_with("HTTP/1.1 200") {
        return None;
    }
    peer.try_body(&mut answer, true).ok()?;
    Some(answer.text())
}

fn by_http3(address: SocketAddr, number: u64, tls: &Arc<rustls::ClientConfig>) -> Option<String> {
    let mut client = http3::Client::connect_within(address, NAME, tls, Duration::from_millis(300))?;
    let text = number.to_string();
    let request = http2::with_fields(http3::request("GET", "/a"), &[("x-number", &text)]);
    let mut stream = client.try_open(request).ok()?;
    client.end(&mut stream, http::HeaderMap::new());
    let answer = client.try_answer(&mut stream).ok()?;
    (answer.status == 200).then(|| answer.text())
}

/// An answer that is on its way from an endpoint as that is taken out is lost, as datagrams may be.
fn asks_by_datagram(socket: &UdpSocket, number: u64) {
    let (text, begun) = (number.to_string(), Instant::now());
    let mut room = [0; 64];
    while begun.elapsed() < PATIENCE {
        socket.send(text.as_bytes()).expect("it is there");
        // Late answers to what was asked before are passed over.
        while let Ok(count) = socket.recv(&mut room) {
            if room[..count] == *text.as_bytes() {
                return;
            }
        }
    }
    panic!("no answer to {text}");
}

fn echoes(peer: &mut Peer, number: u64) {
    let text = format!("{number};");
    peer.send(&text);
    assert_eq!(peer.take(text.len()), text.as_bytes());
}
