//! New connections to endpoints.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use model::snapshot::Endpoint;
use model::socket::ClusterSocket;
use plan::EndpointPlan;
use tokio::net::TcpStream;

use super::Line;
use super::opening::Opening;
use super::pool::UpstreamConnection;
use super::shared::attempt::Wanted;
use crate::byte_stream::ByteStream;
use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::io::Io;
use crate::socket;
use crate::tls::ClusterTls;
use crate::worker_plan::{ClusterLocal, EndpointLocal};

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

/// Gets a line beside what else is done for a client, within the time to connect: at once, or in a while. `at` is now if it may
/// be one that was idle.
pub(crate) fn line_beside<'p>(
    exchange: &Exchange<'p>,
    local: &'p ClusterLocal,
    (endpoint, endpoint_local): (&'p EndpointPlan, &'p EndpointLocal),
    at: Option<Instant>,
) -> Result<Line, Connecting<'p>> {
    if let Some(wanted) = Wanted::new(exchange, local, (endpoint, endpoint_local), at.is_none()) {
        return wanted.at_once(at.unwrap_or_else(Instant::now)).map_err(|missing| wanted.later(missing));
    }
    let (worker, timeout) = (exchange.worker.index, local.plan.cluster.timeouts.connect);
    let shard = endpoint_local.series.of(worker);
    if let Some(kept) = at.and_then(|at| exchange.kept_for(local, endpoint_local, at)) {
        shard.reused.add(1);
        return Ok(Line::Http1(kept));
    }
    let opening = exchange.opening(&local.plan);
    let socket = &local.plan.cluster.socket;
    let target = Target { endpoint: &endpoint.endpoint, socket, tls: local.tls.as_deref() };
    Err(Box::pin(async move {
        let work = tokio::time::timeout(timeout, establish(target, opening));
        let connected = work.await.unwrap_or(Err(Fault::ConnectTimeout));
        match &connected {
            Ok(_) => shard.connects_opened.add(1),
            Err(_) => shard.connects_failed.add(1),
        }
        connected.map(Line::Http1)
    }))
}

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
