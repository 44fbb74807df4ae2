//! Clients of every protocol, each at work on a thread of its own until it is told to stop.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::harness::origin::ok;
use super::super::harness::poll::PATIENCE;
use super::super::harness::tls::{Authority, Client as TlsClient, connect};
use super::super::harness::{Origin, Peer, Product, eventually, http2, http3};

const NAME: &str = "shop.example";

/// Answers with what the request's field `x-number` says; what asks for an upgrade becomes an echo.
pub(super) fn site() -> Origin {
    Origin::start(|mut visit| {
        // Not noted: there will be very many.
        while let Some(request) = visit.peer.try_request() {
            if request.field("upgrade").is_some() {
                visit.peer.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n");
                loop {
                    let bytes = visit.peer.drain();
                    if visit.peer.try_send(bytes).is_err() || !visit.peer.fill().is_ok_and(|count| count > 0) {
                        return;
                    }
                }
            }
            if visit.peer.try_send(ok(request.field("x-number").unwrap_or("none"))).is_err() {
                return;
            }
        }
    })
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

/// All clients.
pub(super) struct Clients {
    stop: Arc<AtomicBool>,
    each: Vec<(&'static str, Arc<AtomicU64>, JoinHandle<()>)>,
}

impl Clients {
    pub(super) fn start(product: &Product, authority: &Authority) -> Self {
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
        clients.add("HTTPS, a connection each", move || {
            Box::new(move |number| asks(&mut connect(secure, NAME, &plain), number))
        });
        clients.add("HTTP/2", move || {
            let mut client = http2::Client::connect_tls(secure, NAME, &h2);
            Box::new(move |number| {
                let text = number.to_string();
                let request = http2::with_fields(http2::request("GET", "/"), &[("x-number", &text)]);
                let answer = client.ask(request, b"");
                assert_eq!((answer.status, answer.text()), (200, text));
            })
        });
        clients.add("HTTP/3", move || {
            let mut client = http3::Client::connect(secure, NAME, &h3);
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
        clients
    }

    fn add(&mut self, kind: &'static str, begin: impl FnOnce() -> Box<dyn FnMut(u64)> + Send + 'static) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&done);
        let thread = std::thread::Builder::new().name(kind.to_owned()).spawn(move || {
            let mut work = begin();
            while !stop.load(Ordering::Relaxed) {
                work(count.fetch_add(1, Ordering::Relaxed));
                // So that they leave room for the changes, and for the other tests.
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        self.each.push((kind, done, thread.expect("a thread")));
    }

    /// Waits until each has done something more.
    pub(super) fn all_go_on(&self) {
        let before: Vec<u64> = self.each.iter().map(|(_, done, _)| done.load(Ordering::Relaxed)).collect();
        for ((kind, done, thread), before) in self.each.iter().zip(before) {
            eventually(kind, || {
                assert!(!thread.is_finished(), "{kind} failed; what it says stands above");
                done.load(Ordering::Relaxed) > before + 1
            });
        }
    }

    /// How much each has done, if none has failed.
    pub(super) fn end(self) -> BTreeMap<&'static str, u64> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = |(kind, done, thread): (&'static str, Arc<AtomicU64>, JoinHandle<()>)| {
            thread.join().unwrap_or_else(|_| panic!("{kind} failed"));
            (kind, done.load(Ordering::Relaxed))
        };
        self.each.into_iter().map(ended).collect()
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
