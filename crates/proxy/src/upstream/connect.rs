//! New connections to endpoints.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use tokio::net::TcpStream;

use super::pool::UpstreamConnection;
use crate::connection::Connection;
use crate::io::Io;
use crate::tls::UpstreamTlsNow;

/// Connects for a client, TLS included, within `timeout`. `opening` is sent before anything else, TLS too.
///
/// # Errors
/// [`Fault::ConnectFailed`], [`Fault::ConnectTimeout`], [`Fault::UpstreamHandshakeFailed`], [`Fault::ClosedInWait`] when
/// the client has reset, or [`Fault::TotalTimeout`] when the exchange's own bound came first.
pub(crate) async fn connect(
    endpoint: &model::snapshot::Endpoint,
    tls: Option<&UpstreamTlsNow>,
    opening: Option<Vec<u8>>,
    client: &mut Connection,
    timeout: Duration,
) -> Result<UpstreamConnection, Fault> {
    client.watch.set(Instant::now(), timeout);
    let mut work = pin!(establish(endpoint, tls, opening));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending if client.io.poll_reset(cx).is_ready() => Poll::Ready(Err(Fault::ClosedInWait)),
        Poll::Pending => client.watch.poll(cx).map(|()| Err(client.watch.fault(Fault::ConnectTimeout))),
    })
    .await
}

/// Connects beside what else is done for a client, TLS included, within `timeout`.
///
/// # Errors
/// [`Fault::ConnectFailed`], [`Fault::ConnectTimeout`] or [`Fault::UpstreamHandshakeFailed`].
pub(crate) async fn connect_beside(
    endpoint: &model::snapshot::Endpoint,
    tls: Option<&UpstreamTlsNow>,
    opening: Option<Vec<u8>>,
    timeout: Duration,
) -> Result<UpstreamConnection, Fault> {
    let work = tokio::time::timeout(timeout, establish(endpoint, tls, opening));
    work.await.unwrap_or(Err(Fault::ConnectTimeout))
}

async fn establish(
    endpoint: &model::snapshot::Endpoint,
    tls: Option<&UpstreamTlsNow>,
    opening: Option<Vec<u8>>,
) -> Result<UpstreamConnection, Fault> {
    let tcp = TcpStream::connect(endpoint.address).await.map_err(|_| Fault::ConnectFailed)?;
    // Requests are written whole: waiting for more to fill a segment would only delay them.
    let _ = tcp.set_nodelay(true);
    if let Some(bytes) = opening {
        say(&tcp, &bytes).await.map_err(|_| Fault::ConnectFailed)?;
    }
    let io = match tls {
        None => Io::Plain(tcp),
        Some(tls) => {
            let name = tls.name_for(endpoint).ok_or(Fault::UpstreamHandshakeFailed)?;
            // Boxed: a handshake is rare, and its state would make every exchange larger.
            let stream = Box::pin(tls.connector.connect(name, tcp)).await;
            Io::Connected(Box::new(stream.map_err(|_| Fault::UpstreamHandshakeFailed)?))
        }
    };
    Ok(UpstreamConnection::new(io, Instant::now()))
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
