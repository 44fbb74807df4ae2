//! Stream sockets of two kinds under one type.
//!
//! A connected Unix socket goes by the type of a TCP stream: reading, writing, looking ahead, shutting down and waiting are
//! the same system calls for both, so nothing above has to ask which it is, and TCP pays nothing for it. What is of TCP
//! alone fails on the other, and is only asked where that does no harm (`nodelay`, addresses).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use model::Address;
use model::socket::{ClusterSocket, ListenerSocket, Source, StreamSocket};
use plan::ClusterPlan;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixListener};

use crate::listen;
use crate::sys;

/// Pause before a Unix socket is asked again whose listener has a full queue: the kernel has no way to wait for it.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// A socket on which a worker accepts.
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    pub(crate) fn new(socket: OwnedFd, bind: &Address) -> io::Result<Self> {
        Ok(match bind {
            Address::Ip(_) => Self::Tcp(TcpListener::from_std(socket.into())?),
            Address::Unix(_) => Self::Unix(UnixListener::from_std(socket.into())?),
        })
    }

    pub(crate) fn poll_accept(&self, cx: &mut TaskContext<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx),
            Self::Unix(listener) => {
                let (stream, _) = ready!(listener.poll_accept(cx))?;
                Poll::Ready(stream.into_std().and_then(adopted))
            }
        }
    }

    /// Returns the same socket for another process.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Self::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Takes what the kernel holds, then closes. It asks the kernel itself: the runtime knows only what the kernel had
    /// reported before.
    pub(crate) fn drain(self, mut take: impl FnMut(TcpStream, SocketAddr)) {
        match self {
            Self::Tcp(listener) => {
                let Ok(listener) = listener.into_std() else { return };
                while let Ok((tcp, peer)) = listener.accept() {
                    let ready = tcp.set_nonblocking(true).and_then(|()| TcpStream::from_std(tcp));
                    if let Ok(tcp) = ready {
                        take(tcp, peer);
                    }
                }
            }
            Self::Unix(listener) => {
                let Ok(listener) = listener.into_std() else { return };
                while let Ok((stream, _)) = listener.accept() {
                    if let Ok((stream, peer)) = adopted(stream) {
                        take(stream, peer);
                    }
                }
            }
        }
    }

    /// Sets it up as configured now. What cannot be set stays as it was.
    pub(crate) fn tune(&self, settings: &ListenerSocket) {
        let backlog = i32::try_from(settings.backlog).unwrap_or(i32::MAX);
        let done = match self {
            Self::Tcp(listener) => {
                let is_v4 = listener.local_addr().is_ok_and(|address| address.is_ipv4());
                let socket = SockRef::from(listener);
                // Those that it accepts inherit it. One that another process has made may be without.
                socket
                    .set_tcp_nodelay(true)
                    .and_then(|()| listen::retune(&socket, &settings.stream, is_v4))
                    .and_then(|()| listen::open_fast(&socket, settings))
                    .and_then(|()| socket.listen(backlog))
            }
            Self::Unix(listener) => SockRef::from(listener).listen(backlog),
        };
        if let Err(error) = done {
            telemetry::log::warn("a listening socket cannot be reconfigured", &[("error", &error.to_string())]);
        }
    }
}

/// Returns a Unix stream under the type of the others, and what stands for its peer.
fn adopted(stream: UnixStream) -> io::Result<(TcpStream, SocketAddr)> {
    stream.set_nonblocking(true)?;
    let tcp = TcpStream::from_std(OwnedFd::from(stream).into())?;
    Ok((tcp, Address::Unix("".into()).or_local()))
}

/// Connects; where the client's address is to be seen, from that. `speaks_first`: the first data are ours, so that they may go
/// with the first packet. Nothing would be sent at all where both sides wait.
///
/// # Errors
/// As the kernel says.
pub(crate) async fn connect(
    address: &Address,
    settings: &ClusterSocket,
    client: Option<IpAddr>,
    speaks_first: bool,
) -> io::Result<TcpStream> {
    let address = match address {
        Address::Ip(address) => *address,
        Address::Unix(path) => return connect_unix(path).await,
    };
    let tcp = if settings.source == Source::Kernel && settings.stream.is_default() && !settings.fast_open {
        TcpStream::connect(address).await?
    } else {
        let socket = prepare(address, settings, client)?;
        if settings.fast_open && speaks_first {
            // What cannot be sped up is as it was.
            let _ = sys::set(socket.as_fd(), (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT), 1);
        }
        socket.connect(address).await?
    };
    // Requests are written whole: waiting for more to fill a segment would only delay them.
    let _ = tcp.set_nodelay(true);
    Ok(tcp)
}

/// Returns a socket for the datagrams of one client to one endpoint.
///
/// # Errors
/// As the kernel says.
pub(crate) fn datagrams_to(address: SocketAddr, settings: &ClusterSocket, client: IpAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    let class = StreamSocket { dscp: settings.stream.dscp, ..StreamSocket::default() };
    listen::tune(&SockRef::from(&socket), &class, address.is_ipv4())?;
    show(&SockRef::from(&socket), address, settings, Some(client.to_canonical()))?;
    socket.connect(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// Returns a socket for QUIC connections to endpoints, from this address if one is given.
///
/// # Errors
/// As the kernel says.
pub(crate) fn datagrams_from(is_v4: bool, source: Option<IpAddr>) -> io::Result<std::net::UdpSocket> {
    let any: IpAddr = if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let address = SocketAddr::new(source.unwrap_or(any), 0);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    if !is_v4 {
        socket.set_only_v6(true)?;
    }
    listen::widen(&socket);
    sys::tell_undelivered(socket.as_fd(), is_v4)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn prepare(address: SocketAddr, settings: &ClusterSocket, client: Option<IpAddr>) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    listen::tune(&SockRef::from(&socket), &settings.stream, address.is_ipv4())?;
    // Lets ports be shared by connections to different endpoints.
    socket.set_reuseaddr(true)?;
    show(&SockRef::from(&socket), address, settings, client)?;
    Ok(socket)
}

/// Binds a socket to the address that the other side is to see.
fn show(socket: &SockRef<'_>, address: SocketAddr, settings: &ClusterSocket, client: Option<IpAddr>) -> io::Result<()> {
    let fits = |source: &IpAddr| source.is_ipv4() == address.is_ipv4();
    let source = match &settings.source {
        Source::Kernel => None,
        Source::Address(addresses) => addresses.iter().copied().find(fits),
        // Of another family it cannot be shown.
        Source::Client => client.filter(fits),
    };
    if settings.source == Source::Client && source.is_some() {
        be_transparent(socket, address.is_ipv4())?;
    }
    match source {
        Some(source) => socket.bind(&SocketAddr::new(source, 0).into()),
        None => Ok(()),
    }
}

fn be_transparent(socket: &SockRef<'_>, is_v4: bool) -> io::Result<()> {
    if is_v4 { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) }
}

/// Returns whether connections can be made as the clusters require.
///
/// # Errors
/// A sentence: this process may not use addresses that are not its own.
pub(crate) fn check(clusters: &[Arc<ClusterPlan>]) -> Result<(), String> {
    for cluster in clusters.iter().map(|plan| &plan.cluster) {
        if cluster.socket.source == Source::Client {
            let probe = Socket::new(Domain::IPV4, Type::STREAM, None);
            probe.and_then(|socket| be_transparent(&SockRef::from(&socket), true)).map_err(|error| {
                let needed = "`source_address: client` needs the capability CAP_NET_ADMIN";
                format!("cluster {}: {needed}: {error}", cluster.name)
            })?;
        }
    }
    Ok(())
}

async fn connect_unix(path: &str) -> io::Result<TcpStream> {
    let address = listen::unix_address(path)?;
    loop {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address) {
            Ok(()) => return TcpStream::from_std(socket.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(FULL_QUEUE_PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}
