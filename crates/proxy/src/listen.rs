//! Listening sockets. At an address of the network there is one per worker and listener, sharing the address by
//! `SO_REUSEPORT`, so that the kernel spreads new connections and no worker waits for another. A Unix socket is one, of
//! which each worker has a descriptor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use model::Address;
use model::snapshot::Listener;
use model::socket::{ListenerSocket, StreamSocket};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::socket_file::SocketFile;
use crate::sys;

/// Connections that wait at a socket for which nothing else is configured, as where the standard library makes it.
const BACKLOG: i32 = 128;

/// What was bound for a listener.
pub(crate) struct Listening {
    /// Where it really is.
    pub address: Address,
    /// One per worker.
    pub sockets: Vec<OwnedFd>,
    /// Goes with the listener.
    pub file: Option<Arc<SocketFile>>,
}

/// What arrives at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Connections, of TCP or by a Unix socket.
    Stream,
    /// Datagrams that are passed on.
    Datagram,
    /// Datagrams of QUIC, which make up connections of HTTP/3.
    Quic,
}

impl Transport {
    /// Returns what a listener listens for.
    pub(crate) fn of(listener: &Listener) -> &'static [Self] {
        match () {
            () if listener.protocol.is_udp() => &[Self::Datagram],
            () if listener.protocol.speaks_http3_only() => &[Self::Quic],
            () if listener.protocol.speaks_http3() => &[Self::Stream, Self::Quic],
            () => &[Self::Stream],
        }
    }

    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stream, Self::Datagram, Self::Quic];

    /// As it is called between processes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Datagram => "datagram",
            Self::Quic => "quic",
        }
    }

    /// Ports of datagrams are others than those of connections.
    pub(crate) fn is_udp(self) -> bool {
        self != Self::Stream
    }
}

/// Times that another free port is tried when that of connections is not free for datagrams.
const PAIRS_MAX: usize = 16;
/// Room in the kernel for the datagrams of all connections of QUIC of a worker, as far as it allows.
const QUIC_BUFFER_BYTES: usize = 4 << 20;

/// Binds sockets for all workers, without listening yet. With port 0 all share the port that the first was given.
/// `alone`: no other socket may listen there. `ours`: the files of Unix sockets that this process has already.
///
/// # Errors
/// The address is in use by another program, or cannot be bound.
pub(crate) fn bind(
    listener: &Listener,
    (transport, address): (Transport, &Address),
    workers: usize,
    alone: bool,
    ours: &[Arc<SocketFile>],
) -> io::Result<Listening> {
    let settings = &listener.socket;
    let mut address = match address {
        Address::Ip(address) => *address,
        Address::Unix(path) => return bind_unix(path, settings, workers, ours),
    };
    let kind = if transport.is_udp() { Type::DGRAM } else { Type::STREAM };
    if alone && address.port() != 0 {
        claim(address, kind, settings)?;
    }
    if address.port() == 0 && transport == Transport::Stream && listener.protocol.speaks_http3() {
        address = free_for_both(address, settings)?;
    }
    let mut sockets: Vec<OwnedFd> = Vec::with_capacity(workers);
    for _ in 0..workers {
        let socket = bind_shared(address, kind, settings)?;
        if transport == Transport::Quic {
            widen(&socket);
        }
        if address.port() == 0 {
            address = socket.local_addr()?.as_socket().unwrap_or(address);
        }
        sockets.push(socket.into());
    }
    Ok(Listening { address: address.into(), sockets, file: None })
}

/// Returns a port that is free for connections and for datagrams.
fn free_for_both(address: SocketAddr, settings: &ListenerSocket) -> io::Result<SocketAddr> {
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..PAIRS_MAX {
        let stream = prepare(address, Type::STREAM, settings)?;
        stream.bind(&address.into())?;
        let found = stream.local_addr()?.as_socket().unwrap_or(address);
        match claim(found, Type::DGRAM, settings) {
            Ok(()) => return Ok(found),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns one more socket that shares the address of others.
///
/// # Errors
/// It cannot be had.
pub(crate) fn bind_beside(address: SocketAddr, transport: Transport, settings: &ListenerSocket) -> io::Result<OwnedFd> {
    let kind = if transport.is_udp() { Type::DGRAM } else { Type::STREAM };
    let socket = bind_shared(address, kind, settings)?;
    if transport == Transport::Quic {
        widen(&socket);
    }
    Ok(socket.into())
}

/// Returns whether others can be bound beside a socket.
pub(crate) fn is_shared(socket: &OwnedFd) -> bool {
    SockRef::from(socket).reuse_port().unwrap_or(false)
}

/// Listens at an address of which a socket of this program that is to go has the port, as `127.0.0.1:9900` has that of
/// `0.0.0.0:9900`. `None`: that is not what is in the way.
///
/// # Errors
/// The address cannot be had for another reason.
pub fn in_place_of(before: BorrowedFd<'_>, address: SocketAddr) -> io::Result<Option<OwnedFd>> {
    let before = SockRef::from(&before);
    let port = before.local_addr()?.as_socket().map(|address| address.port());
    if port != Some(address.port()) {
        return Ok(None);
    }
    // Both allow it, for as long as it takes: afterwards nobody can come beside either.
    before.set_reuse_port(true)?;
    let socket = bind_plainly(address);
    before.set_reuse_port(false)?;
    Ok(Some(socket?.into()))
}

/// As the standard library does it, but for the port.
fn bind_plainly(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    // That looks once more who is there.
    socket.listen(BACKLOG)?;
    socket.set_reuse_port(false)?;
    Ok(socket)
}

fn bind_unix(
    path: &Arc<str>,
    settings: &ListenerSocket,
    workers: usize,
    ours: &[Arc<SocketFile>],
) -> io::Result<Listening> {
    SocketFile::make_way(path, ours)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&unix_address(path)?)?;
    // Nobody can connect before the permissions are right: the socket does not listen yet.
    let file = SocketFile::of(path)?;
    if let Some(file) = &file {
        file.permit(&settings.file)?.keep();
    }
    let mut sockets = Vec::with_capacity(workers);
    for _ in 1..workers {
        sockets.push(socket.try_clone()?.into());
    }
    sockets.push(socket.into());
    Ok(Listening { address: Address::Unix(path.clone()), sockets, file: file.map(Arc::new) })
}

/// Returns the address of a Unix socket as the kernel takes it: names of the abstract namespace begin with a zero byte.
pub(crate) fn unix_address(path: &str) -> io::Result<SockAddr> {
    match path.strip_prefix('@') {
        Some(name) => SockAddr::unix(format!("\0{name}")),
        None => SockAddr::unix(path),
    }
}

/// Lets the kernel hand connections to a bound socket. From here on they would be lost if the socket were dropped, so it
/// is the last that is done before a plan is in force. May be repeated when the settings change.
///
/// # Errors
/// Another program began to listen there meanwhile.
pub(crate) fn listen(socket: &OwnedFd, settings: &ListenerSocket) -> io::Result<()> {
    SockRef::from(socket).listen(i32::try_from(settings.backlog).unwrap_or(i32::MAX))
}

/// Gives a socket of QUIC room for bursts. The kernel bounds it by what the machine allows.
pub(crate) fn widen(socket: &Socket) {
    let _ = socket.set_recv_buffer_size(QUIC_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(QUIC_BUFFER_BYTES);
}

/// Sets up the connections that a socket accepts, or one connection. They inherit from the socket that accepts them, so
/// that it costs no system call for each.
///
/// # Errors
/// The kernel does not take a value.
pub(crate) fn tune(socket: &SockRef<'_>, settings: &StreamSocket, is_v4: bool) -> io::Result<()> {
    if let Some(keepalive) = &settings.keepalive {
        let params = TcpKeepalive::new().with_time(keepalive.idle).with_interval(keepalive.interval);
        socket.set_tcp_keepalive(&params.with_retries(keepalive.count))?;
    }
    if let Some(timeout) = settings.user_timeout {
        socket.set_tcp_user_timeout(Some(timeout))?;
    }
    if let Some(dscp) = settings.dscp {
        let class = u32::from(dscp) << 2;
        if is_v4 { socket.set_tos_v4(class)? } else { socket.set_tclass_v6(class)? }
    }
    Ok(())
}

/// As [`tune`] for a socket that was set up before: what is no longer given is the kernel's choice again.
///
/// # Errors
/// The kernel does not take a value.
pub(crate) fn retune(socket: &SockRef<'_>, settings: &StreamSocket, is_v4: bool) -> io::Result<()> {
    let is_stream = socket.r#type()? == Type::STREAM;
    if settings.keepalive.is_none() && is_stream {
        socket.set_keepalive(false)?;
    }
    if settings.user_timeout.is_none() && is_stream {
        socket.set_tcp_user_timeout(None)?;
    }
    let dscp = settings.dscp.or(Some(0));
    tune(socket, &StreamSocket { dscp, ..settings.clone() }, is_v4)
}

/// Sets how many connections may be taken in at once that bring data with their first packet (RFC 7413).
///
/// # Errors
/// The kernel cannot do it.
pub(crate) fn open_fast(socket: &SockRef<'_>, settings: &ListenerSocket) -> io::Result<()> {
    let count = settings.fast_open.map_or(0, |count| i32::try_from(count).unwrap_or(i32::MAX));
    sys::set(socket.as_fd(), (libc::IPPROTO_TCP, libc::TCP_FASTOPEN), count)
}

/// Returns what of the settings is meant for datagrams.
pub(crate) fn of_datagrams(settings: &ListenerSocket) -> StreamSocket {
    StreamSocket { dscp: settings.stream.dscp, ..StreamSocket::default() }
}

/// Returns whether a socket bound to one address stands in the way of another to the other.
pub(crate) fn overlap(one: &Address, other: &Address) -> bool {
    let (Address::Ip(one), Address::Ip(other)) = (one, other) else { return one == other };
    let (a, b) = (one.ip(), other.ip());
    let same_family = a.is_ipv4() == b.is_ipv4();
    one.port() == other.port() && same_family && (a == b || a.is_unspecified() || b.is_unspecified())
}

/// Fails when another program listens at the address. `SO_REUSEPORT` alone would silently share it with any program
/// of the same user.
fn claim(address: SocketAddr, kind: Type, settings: &ListenerSocket) -> io::Result<()> {
    prepare(address, kind, settings)?.bind(&address.into())
}

fn bind_shared(address: SocketAddr, kind: Type, settings: &ListenerSocket) -> io::Result<Socket> {
    let socket = prepare(address, kind, settings)?;
    socket.set_reuse_port(true)?;
    if kind == Type::STREAM {
        // Accepted sockets inherit it: one system call less for each connection.
        socket.set_tcp_nodelay(true)?;
        if settings.fast_open.is_some() {
            open_fast(&SockRef::from(&socket), settings)?;
        }
    }
    let datagrams = of_datagrams(settings);
    let stream = if kind == Type::STREAM { &settings.stream } else { &datagrams };
    tune(&SockRef::from(&socket), stream, address.is_ipv4())?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn prepare(address: SocketAddr, kind: Type, settings: &ListenerSocket) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if kind == Type::STREAM {
        // For datagrams it would mean sharing the address with anybody.
        socket.set_reuse_address(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    match settings.freebind {
        true if address.is_ipv4() => socket.set_freebind_v4(true)?,
        true => socket.set_freebind_v6(true)?,
        false => {}
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use model::snapshot::{Protocol, TcpTarget, UdpListener};

    use super::*;

    fn bind_to(address: &str, workers: usize) -> io::Result<Listening> {
        let second = std::time::Duration::from_secs(1);
        let udp = UdpListener { cluster: "site".into(), idle_timeout: second, responses_max: None };
        let listener = Listener {
            name: "web".into(),
            bind: address.parse().unwrap(),
            socket: ListenerSocket::default(),
            tls: None,
            proxy_protocol: None,
            address_list: None,
            per_address: None,
            track: Vec::new(),
            connections_max: 1,
            protocol: Protocol::Udp(udp.clone()),
        };
        let at = listener.bind.clone();
        let datagrams = bind(&listener, (Transport::Datagram, &at), workers, true, &[]);
        let target = TcpTarget::Cluster(udp.cluster);
        let tcp = model::snapshot::TcpListener { target, idle_timeout: second, bandwidth: <_>::default() };
        let listener = Listener { protocol: Protocol::Tcp(tcp), ..listener };
        let streams = bind(&listener, (Transport::Stream, &at), workers, true, &[]);
        drop(datagrams?);
        streams
    }

    fn port_of(socket: &OwnedFd) -> u16 {
        SockRef::from(socket).local_addr().unwrap().as_socket().unwrap().port()
    }

    #[test]
    fn the_port_of_a_socket_that_is_to_go_can_be_had_at_all_addresses_and_by_nobody_else() {
        let here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = here.local_addr().unwrap();
        let all = SocketAddr::from(([0, 0, 0, 0], at.port()));
        let taken = |address: SocketAddr| std::net::TcpListener::bind(address).is_err();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(in_place_of(other.as_fd(), all).unwrap().is_none());
        let everywhere = in_place_of(here.as_fd(), all).unwrap().unwrap();
        assert!(taken(all) && taken(at));
        assert!(std::net::TcpStream::connect(("127.0.0.2", at.port())).is_ok());
        drop(here);
        let here = in_place_of(everywhere.as_fd(), at).unwrap().unwrap();
        drop(everywhere);
        assert!(taken(at) && std::net::TcpStream::connect(at).is_ok());
        drop(here);
        assert!(!taken(at));
    }

    #[test]
    fn the_sockets_of_all_workers_share_one_free_port() {
        let made = bind_to("127.0.0.1:0", 3).unwrap();
        let ports: Vec<_> = made.sockets.iter().map(port_of).collect();
        assert!(ports[0] != 0 && ports.iter().all(|port| *port == ports[0]));
        assert_eq!(made.address.port(), Some(ports[0]));
    }

    #[test]
    fn data_of_the_first_packet_are_taken_where_that_is_wanted_and_no_longer_when_it_is_not() {
        let made = bind_to("127.0.0.1:0", 1).unwrap();
        let socket = SockRef::from(&made.sockets[0]);
        let waiting = || sys::get(socket.as_fd(), (libc::IPPROTO_TCP, libc::TCP_FASTOPEN)).unwrap();
        assert_eq!(waiting(), 0);
        for fast_open in [Some(7), None] {
            open_fast(&socket, &ListenerSocket { fast_open, ..ListenerSocket::default() }).unwrap();
            assert_eq!(waiting(), fast_open.unwrap_or(0) as i32);
        }
    }

    #[test]
    fn an_address_in_use_is_refused_even_though_ports_are_shared() {
        let held = bind_to("127.0.0.1:0", 1).unwrap();
        listen(&held.sockets[0], &ListenerSocket::default()).unwrap();
        let error = bind_to(&held.address.to_string(), 1).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn datagrams_share_their_port_with_nobody_else() {
        let held = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = bind_to(&held.local_addr().unwrap().to_string(), 1).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
