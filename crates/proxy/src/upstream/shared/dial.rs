//! The task of one connection to an endpoint that many exchanges share: connects, drives, and tells the pool of the beginning
//! and the end.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use model::Fault;
use model::limits::UPSTREAM_DIAL_PAUSE;
use model::snapshot::{Endpoint, SharedVersion};
use model::socket::ClusterSocket;
use telemetry::EndpointSeries;

use super::connection::Carrier;
use super::connections::{Dial, SharedConnections};
use super::{http2, http3};
use crate::buffer::BufferPool;
use crate::http3::Outgoing;
use crate::tls::ClusterTls;
use crate::upstream::UpstreamConnection;
use crate::upstream::connect::{Target, establish};
use crate::upstream::opening::Opening;

/// What it takes to make a connection.
pub(crate) struct Dialing {
    pub endpoint: Endpoint,
    pub socket: ClusterSocket,
    pub tls: Option<Arc<ClusterTls>>,
    pub timeout: Duration,
    pub series: Arc<EndpointSeries>,
    pub worker: usize,
    pub buffers: Rc<BufferPool>,
    /// Where connections over UDP begin.
    pub outgoing: Rc<Outgoing>,
}

/// What came of it.
enum Opened {
    Http1(UpstreamConnection),
    Http2(Box<http2::Driver>),
    Http3(Box<http3::Driver>),
}

/// Makes a connection in a task of its own, so that it does not end with the client for whom it was begun.
pub(crate) fn dial(connections: &Rc<SharedConnections>, dial: Rc<Dial>, how: Dialing) {
    tokio::task::spawn_local(run(connections.clone(), dial, Rc::new(how)));
}

/// Makes a connection beside one whose endpoint is silent, for those who come, unless one is being made.
pub(super) fn dial_beside(connections: &Rc<SharedConnections>, how: &Rc<Dialing>) {
    if let Some(dial) = connections.begin_dial() {
        tokio::task::spawn_local(run(connections.clone(), dial, how.clone()));
    }
}

async fn run(connections: Rc<SharedConnections>, dial: Rc<Dial>, how: Rc<Dialing>) {
    let opened = loop {
        let work = Box::pin(open(&connections, &how));
        let opened = tokio::time::timeout(how.timeout, work).await.unwrap_or(Err(Fault::ConnectTimeout));
        let shard = how.series.of(how.worker);
        match &opened {
            Ok(_) => shard.connects_opened.add(1),
            Err(_) => shard.connects_failed.add(1),
        }
        if opened.is_ok() || !connections.is_busy() {
            break opened;
        }
        // Waiting exchanges get a stream as others end, within the time to connect: the endpoint is busy, and may accept no more
        // connections than it has.
        tokio::time::sleep(UPSTREAM_DIAL_PAUSE).await;
        if !dial.is_wanted() {
            return connections.abandon(&dial);
        }
    };
    match opened {
        Err(fault) => connections.fail(&dial, fault),
        Ok(Opened::Http1(connection)) => connections.add_http1(&dial, connection),
        Ok(Opened::Http2(mut driver)) => {
            drop(how);
            let connection = connections.add(&dial, Carrier::Http2(driver.state().clone()));
            drop(dial);
            driver.drive(&connections, &connection).await;
            // First, so that nobody is sent there when the streams under way are told.
            connections.forget(&connection);
        }
        Ok(Opened::Http3(mut driver)) => {
            let connection = connections.add(&dial, Carrier::Http3(driver.session().clone()));
            drop(dial);
            driver.drive(&connections, &connection, &how).await;
        }
    }
}

async fn open(connections: &SharedConnections, how: &Dialing) -> Result<Opened, Fault> {
    if connections.shared.version == SharedVersion::Http3 {
        return http3::open(connections, how).await.map(Opened::Http3);
    }
    let target = Target { endpoint: &how.endpoint, socket: &how.socket, tls: how.tls.as_deref() };
    let connection = establish(target, Opening::default()).await?;
    if how.tls.is_some() && !connection.io.has_chosen_http2() {
        // Over TLS, HTTP/2 is spoken when it was chosen, and only then (RFC 9113 section 3.2).
        let is_wrong = connections.shared.is_only;
        return if is_wrong { Err(Fault::UpstreamHandshakeFailed) } else { Ok(Opened::Http1(connection)) };
    }
    let io = connection.io.into_connection().ok_or(Fault::UpstreamHandshakeFailed)?;
    let driver = http2::shake_hands(connections, io, how.buffers.clone()).await;
    driver.map(Opened::Http2).ok_or(Fault::UpstreamHandshakeFailed)
}
