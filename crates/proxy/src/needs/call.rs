//! A request of a filter's own to a cluster.
//!
//! It is an exchange whose client is a piece of memory: the same admission, retries, pools and health stand behind it as behind any
//! other. It has no route, so that no filter sees it, and no entry in the access log.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use model::limits::HEAD_BYTES_MAX;
use model::{Fault, Version};
use plan::ClusterPlan;
use plan::filter::{Call, Reply};
use wire::http1::Framing;

use crate::connection::{Connection, ConnectionFacts};
use crate::exchange::{CallSite, Exchange};
use crate::finish::finish_call;
use crate::grpc;
use crate::io::{Io, MemoryIo};
use crate::registry::Registration;
use crate::watch::Watch;

/// What is spoken with the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    /// gRPC, with one message each way.
    Grpc,
}

type Making<'a> = Pin<Box<dyn Future<Output = Result<Box<Reply>, Fault>> + 'a>>;

/// Makes the call, and gives its response or the fault that ended it.
///
/// # Errors
/// The exchange that it is for has ended: its client has gone, or its time is over.
pub(super) async fn made(
    (call, protocol): (Call, Protocol),
    exchange: &mut Exchange<'_>,
) -> Result<Result<Box<Reply>, Fault>, Fault> {
    let called = exchange.progress.route.and_then(|route| route.called.get(call.cluster.place()));
    let Some(cluster) = called else { return Ok(Err(Fault::UnknownCluster)) };
    let is_gone = Rc::new(Cell::new(false));
    let now = exchange.progress.look();
    let bound = exchange.connection.watch.bound();
    let ends = now + call.timeout;
    let site = exchange.call_site();
    let ends = bound.map_or(ends, |bound| bound.min(ends));
    let by = &*exchange.connection;
    let connection = connection_for((&by.facts, &by.registration), &call, (now, ends), &is_gone);
    // Not a type of its own: an exchange may have a call, and a call is an exchange.
    let mut making: Making<'_> = Box::pin(make(site, connection, (call, protocol), cluster));
    let replied = poll_fn(|cx| {
        if !is_gone.get() && exchange.connection.io.poll_reset(cx).is_ready() {
            is_gone.set(true);
        }
        making.as_mut().poll(cx)
    })
    .await;
    match replied {
        _ if is_gone.get() => Err(Fault::ClosedInWait),
        Err(Fault::DrainEnded) => Err(Fault::DrainEnded),
        Err(Fault::TotalTimeout) if bound.is_some_and(|bound| bound <= Instant::now()) => Err(Fault::TotalTimeout),
        replied => Ok(replied),
    }
}

/// A connection of the filter's, as the rest of the data plane knows them.
pub(super) fn connection_for(
    (facts, registration): (&Rc<ConnectionFacts>, &Rc<Registration>),
    call: &Call,
    (now, ends): (Instant, Instant),
    is_gone: &Rc<Cell<bool>>,
) -> Connection {
    let bytes_max = HEAD_BYTES_MAX + call.response_bytes_max;
    let mut watch = Watch::new(now, ends - now, registration.clone());
    watch.set_bound(Some(ends));
    Connection::in_memory(
        MemoryIo { bytes_max, is_gone: is_gone.clone(), ..MemoryIo::default() },
        watch,
        (facts, registration),
    )
}

/// Makes the call from a site with a connection that is its own.
///
/// # Errors
/// The fault that ended it.
pub(super) async fn make(
    site: CallSite<'_>,
    mut connection: Connection,
    (call, protocol): (Call, Protocol),
    cluster: &Arc<ClusterPlan>,
) -> Result<Box<Reply>, Fault> {
    let worker = site.worker;
    let local = site.plan.cluster(cluster).ok_or(Fault::NoEndpoint)?;
    let mut incoming = worker.take_request();
    incoming.head = call.head;
    // Of this version no interim response is of use, no chunks, and no trailers.
    incoming.head.version = Version::Http10;
    let mut exchange = Exchange::of_call(site, &mut connection, incoming);
    if protocol == Protocol::Grpc {
        exchange.call_by_grpc(call.timeout);
    }
    if !call.body.is_empty() {
        exchange.request.framing = Framing::Length(call.body.len() as u64);
        exchange.replay.hold(call.body, None, None);
    }
    exchange.progress.cluster = Some(local);
    let fault = exchange.forward(local).await.err().map(|fault| match (fault, &exchange.connection.io) {
        // The memory has refused what is beyond its bound.
        (Fault::ClosedInResponse, Io::Memory(memory)) if !memory.is_gone.get() => Fault::BadResponseBody,
        _ => fault,
    });
    let head = exchange.response.as_deref_mut().map(std::mem::take).unwrap_or_default();
    finish_call(exchange, fault);
    let Io::Memory(memory) = connection.io else { return Err(Fault::BadResponse) };
    match fault {
        Some(fault) => Err(fault),
        None => {
            let body = body_of(memory.bytes, call.response_bytes_max)?;
            let reply = Reply { head, body };
            Ok(Box::new(if protocol == Protocol::Grpc { grpc::answer(reply)? } else { reply }))
        }
    }
}

/// What follows the head, which is written as HTTP/1.1 has it.
fn body_of(mut bytes: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, Fault> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or(Fault::BadResponse)?;
    bytes.drain(..end + 4);
    if bytes.len() <= bytes_max { Ok(bytes) } else { Err(Fault::BadResponseBody) }
}
