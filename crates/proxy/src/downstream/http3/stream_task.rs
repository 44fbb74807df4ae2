//! The task of one stream.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use model::limits::HTTP3_END_PATIENCE;
use model::{Fault, Method};
use quinn_proto::StreamId;
use wire::http1::{Framing, HeadLimits, RequestParsed};
use wire::http3::code;
use wire::http3::message::{self, BadHead};

use super::shared::Shared;
use crate::connection::Connection;
use crate::downstream::linger;
use crate::downstream::served::Served;
use crate::exchange::{self, Arrived};
use crate::http2::websocket;
use crate::http3::{NoHead, Quic, Stream};
use crate::io::Io;
use crate::message::MessageStream;
use crate::registry::Registration;
use crate::request_head::Arrival;
use crate::watch::Watch;
use crate::worker::Worker;

/// Counts an exchange as in flight until it is dropped.
pub(super) struct Active(Rc<Shared>);

impl Active {
    pub(super) fn new(shared: &Rc<Shared>) -> Self {
        shared.exchanges.begin();
        Self(shared.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.exchanges.end();
    }
}

/// Carries one stream: the same story as on any connection.
pub(super) async fn carry(
    Served { worker, plan, index }: Served,
    registration: Rc<Registration>,
    (quic, id): (Rc<Quic>, StreamId),
    active: Active,
) {
    let found = plan.listeners.get(index).and_then(|listener| Some((listener, listener.http()?)));
    let Some((listener, http)) = found else {
        quic.reset(id, code::REQUEST_REJECTED);
        return quic.stop(id, code::REQUEST_REJECTED);
    };
    let registered = worker.registry.register_carried(&registration);
    poll_fn(|cx| {
        registered.registration.set_waker(cx.waker());
        Poll::Ready(())
    })
    .await;
    let now = Instant::now();
    let is_early = !quic.is_connected();
    let mut stream = Stream::new(quic.clone(), id, http.head_bytes_max, active.0.counts.clone());
    let mut watch = Watch::new(now, http.head_timeout, registered.registration.clone());
    let mut incoming = worker.take_request();
    let limits = HeadLimits { head_bytes_max: http.head_bytes_max, fields_max: http.fields_max };
    let read = receive(&worker, (&mut stream, &mut watch), (&limits, &mut incoming.head)).await;
    let whole = Instant::now();
    watch.set(whole, http.stream_timeout);
    let parsed = match read {
        Ok(parsed) => Ok(parsed),
        Err(NoRequest::Fault(fault)) => Err(fault),
        Err(NoRequest::Other) => {
            worker.give_request(incoming);
            if stream.is_broken() {
                active.0.note_discarded();
            }
            return;
        }
    };
    if parsed.as_ref().is_ok_and(|parsed| parsed.upgrade) {
        websocket::give_key(&mut incoming.head, || worker.random.next());
    }
    let mut connection = Connection {
        io: Io::Stream(Box::new(MessageStream::Http3(stream))),
        facts: active.0.facts.borrow().clone(),
        watch,
        received: None,
        registration: registered.registration.clone(),
        requests: 1,
        leaves_by_end: false,
        is_early,
        is_cut_short: false,
    };
    let arrived = Arrived { incoming, arrival: Arrival { begun: Some(now), whole: Some(whole) }, parsed };
    exchange::carry(&worker, (&plan, listener, http), &mut connection, arrived).await;
    if let Some(buffer) = connection.received.take() {
        worker.buffers.give(buffer);
    }
    let Connection { io, watch, .. } = &mut connection;
    if let Some(stream) = io.message()
        && stream.awaits_end()
    {
        linger(stream, watch).await;
    }
    if let Some(MessageStream::Http3(stream)) = connection.io.message() {
        active.0.note_end(stream, now);
    }
}

/// How receiving a head ended when there is none.
enum NoRequest {
    /// There is no client to respond to, or no request.
    Other,
    /// What came is no acceptable request.
    Fault(Fault),
}

/// Reads the head of a request.
async fn receive(
    worker: &Worker,
    (stream, watch): (&mut Stream, &mut Watch),
    (limits, head): (&HeadLimits, &mut model::RequestHead),
) -> Result<RequestParsed, NoRequest> {
    let come = poll_fn(|cx| match stream.poll_head(cx) {
        Poll::Ready(come) => Poll::Ready(Ok(come)),
        Poll::Pending => watch.poll(cx).map(|()| Err(watch.fault(Fault::HeadTimeout))),
    });
    let ends = match come.await {
        Ok(Ok(ends)) => ends,
        Ok(Err(NoHead::TooLarge)) => return Err(NoRequest::Fault(Fault::HeadTooLarge)),
        Ok(Err(NoHead::Incomplete)) => {
            stream.refuse(code::REQUEST_INCOMPLETE);
            return Err(NoRequest::Other);
        }
        Ok(Err(NoHead::Gone | NoHead::Reset(_) | NoHead::Refused)) => return Err(NoRequest::Other),
        Err(fault) => return Err(NoRequest::Fault(fault)),
    };
    let read = message::read_request(stream.section(), (limits, ends), &mut worker.sections.borrow_mut(), head);
    stream.begin_body();
    let mut parsed = read.map_err(|bad| match bad {
        BadHead::Fault(fault) => NoRequest::Fault(fault),
        BadHead::Malformed(fault) => {
            // RFC 9114 section 4.1.2. The record has the fault, and the client gets this code.
            stream.refuse(code::MESSAGE_ERROR);
            NoRequest::Fault(fault)
        }
        BadHead::Undecodable => {
            stream.end_connection(code::DECOMPRESSION_FAILED);
            NoRequest::Other
        }
    })?;
    let has_no_body = matches!(head.method, Method::Get | Method::Head | Method::Options | Method::Trace);
    if has_no_body && parsed.framing == Framing::Chunked && ends_soon(stream, watch).await {
        parsed.framing = Framing::None;
    }
    Ok(parsed)
}

/// Whether a message that should have no body ends without one. Some clients say so a moment after its head, and an endpoint
/// that knows it need not be told of chunks, nor is the request any less one that can be sent again.
async fn ends_soon(stream: &mut Stream, watch: &mut Watch) -> bool {
    watch.set(Instant::now(), HTTP3_END_PATIENCE);
    poll_fn(|cx| match stream.poll_read_ready(cx) {
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending => watch.poll(cx),
    })
    .await;
    stream.is_over()
}
