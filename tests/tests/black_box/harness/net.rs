//! Addresses where nobody answers.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::sys;

/// Sockets that are bound and do not listen, held until the tests are over.
static BOUND: Mutex<Vec<Socket>> = Mutex::new(Vec::new());

/// An address that refuses connections and that nobody else is given.
pub(crate) fn refusing() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
    BOUND.lock().expect("sockets").push(socket);
    address
}

/// An address where the product may listen. Its port is none of those that the kernel gives out by itself.
pub(crate) fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 100) as u16 * 100;
    loop {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let address = SocketAddr::from(([127, 0, 0, 1], first + number % 1_000));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
        assert!(number < 1_000, "no port is free");
    }
}

/// An address where connections are neither accepted nor refused: the queue of its listener is full.
pub(crate) struct Blackhole {
    address: SocketAddr,
    _listener: TcpListener,
    _fill: Vec<TcpStream>,
}

impl Blackhole {
    /// Opens one.
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        sys::set_backlog(&listener, 0);
        let address = listener.local_addr().expect("an address");
        let mut fill = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(150)) {
            fill.push(stream);
            assert!(fill.len() < 64, "the queue never fills");
        }
        Self { address, _listener: listener, _fill: fill }
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
