//! New connections to endpoints.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use model::snapshot::Endpoint;
use model::socket::ClusterSocket;
use tokio::net::TcpStream;

use super::connection::{Line, UpstreamConnection};
use super::opening::Opening;
use crate::byte_stream::ByteStream;
use crate::connection::Connection;
use crate::io::Io;
use crate::socket;
use crate::tls::ClusterTls;

/// Where a connection goes, and how it is set up.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub endpoint: &'a Endpoint,
    pub socket: &'a ClusterSocket,
    pub tls: Option<&'a ClusterTls>,
}

/// Connects for a client, TLS included, within `timeout`.
///
/// # Errors
/// As [`attended`], and [`Fault::ConnectFailed`] or [`Fault::UpstreamHandshakeFailed`].
pub(crate) async fn connect(
    target: Target<'_>,
    opening: Opening,
    client: &mut Connection,
    timeout: Duration,
) -> Result<UpstreamConnection, Fault> {
    attended(pin!(establish(target, opening)), client, timeout).await
}

/// Does the `work` that gets a client its connection, within `timeout`.
///
/// # Errors
/// Those of the work, [`Fault::ConnectTimeout`], [`Fault::ClosedInWait`] when the client has reset, or
/// [`Fault::TotalTimeout`] when the exchange's own bound came first.
pub(crate) async fn attended<T>(
    mut work: Pin<&mut (impl Future<Output = Result<T, Fault>> + ?Sized)>,
    client: &mut Connection,
    timeout: Duration,
) -> Result<T, Fault> {
    client.watch.set(Instant::now(), timeout);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending if client.io.poll_reset(cx).is_ready() => Poll::Ready(Err(Fault::ClosedInWait)),
        Poll::Pending => client.watch.poll(cx).map(|()| Err(client.watch.fault(Fault::ConnectTimeout))),
    })
    .await
}

/// A line that is being got.
pub(crate) type Connecting<'p> = Pin<Box<dyn Future<Output = Result<Line, Fault>> + 'p>>;

/// Connects, TLS included.
///
/// # Errors
/// [`Fault::ConnectFailed`] or [`Fault::UpstreamHandshakeFailed`].
pub(super) async fn establish(target: Target<'_>, opening: Opening) -> Result<UpstreamConnection, Fault> {
    let Target { endpoint, socket, tls } = target;
    let speaks_first = !opening.may_wait || opening.header.is_some() || tls.is_some();
    let tcp = socket::connect(&endpoint.address, socket, opening.client, speaks_first).await;
    let tcp = tcp.map_err(|_| Fault::ConnectFailed)?;
    if let Some(bytes) = opening.header {
        say(&tcp, &bytes).await.map_err(|_| Fault::ConnectFailed)?;
    }
    let io = match tls {
        None => ByteStream::Plain(tcp),
        Some(tls) => {
            let name = tls.name_for(endpoint).ok_or(Fault::UpstreamHandshakeFailed)?;
            // Boxed: a handshake is rare, and its state would make every exchange larger.
            let stream = Box::pin(tls.connector.connect(name, tcp)).await;
            ByteStream::Connected(Box::new(stream.map_err(|_| Fault::UpstreamHandshakeFailed)?))
        }
    };
    let mut connection = UpstreamConnection::new(Io::Connection(io), Instant::now());
    connection.shown = opening.shown;
    Ok(connection)
}

/// Writes all of `bytes`; they are few, and a new connection takes them at once.
async fn say(tcp: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        tcp.writable().await?;
        match tcp.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
