//! Listening sockets: one per worker and listener, sharing the address by `SO_REUSEPORT`, so that the kernel spreads new
//! connections and no worker waits for another.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel holds for one worker until it accepts them. The system's `somaxconn` may lower it.
const BACKLOG: i32 = 4096;

/// Binds one socket per worker, without listening yet. With port 0 all share the port that the first was given.
/// `alone`: no other socket may listen there.
///
/// # Errors
/// The address is in use by another program, or cannot be bound.
pub(crate) fn bind(address: SocketAddr, workers: usize, alone: bool) -> io::Result<Vec<TcpListener>> {
    if alone && address.port() != 0 {
        claim(address)?;
    }
    let mut sockets: Vec<TcpListener> = Vec::with_capacity(workers);
    for _ in 0..workers {
        let address = match sockets.first() {
            Some(first) => first.local_addr()?,
            None => address,
        };
        sockets.push(bind_shared(address)?);
    }
    Ok(sockets)
}

/// Lets the kernel hand connections to a bound socket. From here on they would be lost if the socket were dropped, so it
/// is the last step before a plan is committed.
///
/// # Errors
/// Another program began to listen there meanwhile.
pub(crate) fn listen(socket: &TcpListener) -> io::Result<()> {
    socket2::SockRef::from(socket).listen(BACKLOG)
}

/// Whether a socket bound to one address stands in the way of another to the other.
pub(crate) fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip(), other.ip());
    let same_family = a.is_ipv4() == b.is_ipv4();
    one.port() == other.port() && same_family && (a == b || a.is_unspecified() || b.is_unspecified())
}

/// Fails when another program listens at the address. `SO_REUSEPORT` alone would silently share it with any program
/// of the same user.
fn claim(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}

fn bind_shared(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Accepted sockets inherit it: one system call less for each connection.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_of_all_workers_share_one_free_port() {
        let sockets = bind("127.0.0.1:0".parse().unwrap(), 3, true).unwrap();
        let ports: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        assert!(ports[0] != 0 && ports.iter().all(|port| *port == ports[0]));
    }

    #[test]
    fn an_address_in_use_is_refused_even_though_ports_are_shared() {
        let held = bind("127.0.0.1:0".parse().unwrap(), 1, true).unwrap();
        listen(&held[0]).unwrap();
        let error = bind(held[0].local_addr().unwrap(), 1, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
