//! Receives the head of an HTTP/1 request on a client's connection, or finds that the connection is one of HTTP/2.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use model::Fault;
use model::snapshot::HttpListener;
use wire::http1::{HeadLimits, RequestParsed, parse_request};
use wire::http2::{Preface, preface};

use crate::connection::{Connection, Next};
use crate::worker::{Incoming, Worker};

/// How receiving a head ended when there is none.
pub(crate) enum NoRequest {
    /// No request had begun.
    Other(Next),
    /// What came is no acceptable request.
    Fault(Fault),
}

/// When a request head came.
#[derive(Default)]
pub(crate) struct Arrival {
    /// Its first byte.
    pub begun: Option<Instant>,
    /// Its last, if it did not come at once.
    pub whole: Option<Instant>,
}

/// Reads until a request head is whole. Bytes behind it stay in `connection.received`.
pub(crate) async fn receive(
    worker: &Worker,
    connection: &mut Connection,
    http: &HttpListener,
    (incoming, arrival): (&mut Incoming, &mut Arrival),
) -> Result<RequestParsed, NoRequest> {
    let limits = HeadLimits { head_bytes_max: http.head_bytes_max, fields_max: http.fields_max };
    poll_fn(|cx| {
        loop {
            if connection.requests == 0
                && let Some(buffer) = &connection.received
                && let Some(told) = look_for_preface(buffer.data(), http, connection.io.is_encrypted())
            {
                match told {
                    Ok(Preface::Whole) => return Poll::Ready(Err(NoRequest::Other(Next::Http2))),
                    Err(fault) => return Poll::Ready(Err(NoRequest::Fault(fault))),
                    Ok(_) if arrival.begun.is_none() => {
                        let now = Instant::now();
                        arrival.begun = Some(now);
                        connection.watch.set(now, http.head_timeout);
                    }
                    Ok(_) => {}
                }
            } else if let Some(buffer) = &mut connection.received {
                match parse_request(buffer.data(), &limits, &mut incoming.scan, &mut incoming.head) {
                    Err(fault) => return Poll::Ready(Err(NoRequest::Fault(fault))),
                    Ok(Some(parsed)) => {
                        buffer.consume_head(parsed.head_len);
                        note_whole(arrival);
                        return Poll::Ready(Ok(parsed));
                    }
                    // Empty lines before a request are no request yet (RFC 9112 section 2.2).
                    Ok(None) if incoming.scan.has_begun() && arrival.begun.is_none() => {
                        let now = Instant::now();
                        arrival.begun = Some(now);
                        connection.watch.set(now, http.head_timeout);
                    }
                    Ok(None) => {}
                }
            }
            match connection.read_more(&worker.buffers, cx) {
                Poll::Ready(Some(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Err(closed(arrival, Fault::ClosedInHead))),
                Poll::Pending => {
                    if connection.received.is_none() {
                        return Poll::Ready(Err(NoRequest::Other(Next::NotYet)));
                    }
                    connection.pack_received(&worker.buffers);
                    let expired = connection.watch.poll(cx);
                    return expired.map(|()| Err(closed(arrival, connection.watch.fault(Fault::HeadTimeout))));
                }
            }
        }
    })
    .await
}

/// Most heads come in one piece, and one look at the clock is enough for them.
fn note_whole(arrival: &mut Arrival) {
    let now = Instant::now();
    match arrival.begun {
        None => arrival.begun = Some(now),
        Some(_) => arrival.whole = Some(now),
    }
}

/// Returns the end of the wait for a head: nobody's fault as long as none had begun.
fn closed(arrival: &Arrival, fault: Fault) -> NoRequest {
    if arrival.begun.is_some() { NoRequest::Fault(fault) } else { NoRequest::Other(Next::Close) }
}

/// Looks at the first bytes of a connection. `None`: they are a request of HTTP/1, and it may be spoken. Where TLS ends here,
/// the version was agreed on before (RFC 9113 section 3.2), so that the preface is nothing but a bad request. Where it ended at
/// a proxy before us, that one knows what was agreed on, and we see only the bytes.
fn look_for_preface(bytes: &[u8], http: &HttpListener, is_encrypted: bool) -> Option<Result<Preface, Fault>> {
    let found = if http.versions.h2 && !is_encrypted { preface(bytes) } else { Preface::No };
    match found {
        Preface::No if http.versions.h1 => None,
        Preface::No => Some(Err(Fault::VersionNotSupported)),
        found => Some(Ok(found)),
    }
}
