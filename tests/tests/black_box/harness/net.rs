//! Addresses where nobody answers.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::sys;

/// An address that refuses connections: one that was free a moment ago.
pub(crate) fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
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
