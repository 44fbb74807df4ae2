//! Addresses where nobody answers.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock};
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
    loop {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        assert!(number < RANGE, "no port is free");
        let address = SocketAddr::from(([127, 0, 0, 1], range() + number));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// Ports that one process of tests has for itself.
const RANGE: u16 = 500;

/// The first of them. What other tests take on this machine at the same time is another range: a name without a file is
/// held for each until its process is over.
fn range() -> u16 {
    static HELD: OnceLock<(u16, UnixListener)> = OnceLock::new();
    let hold = |number: u16| {
        let name = UnixAddress::from_abstract_name(format!("equipoise-tests-ports-{number}")).ok()?;
        Some((20_000 + number * RANGE, UnixListener::bind_addr(&name).ok()?))
    };
    HELD.get_or_init(|| (0..24).find_map(hold).expect("a range that nobody has")).0
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
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
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
