//! What becomes of a response: it is passed on, thrown away, or a page takes its place.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use model::limits::{BUFFER_BYTES, DISCARD_PATIENCE, DISCARDED_BYTES_MAX};
use model::{Fault, Known, ResponseHead, Version};
use plan::cache::Served;
use plan::filter::ResponseSource;
use wire::authentication::Bond;
use wire::http1::{Framing, ResponseParsed};

use super::Conversation;
use crate::answer;
use crate::connection::Next;
use crate::exchange::{Exchange, next_after};
use crate::relay::{BodyWriter, Pump, PumpFault};
use crate::respond::{self, Instead, Response};
use crate::stored;
use crate::upstream::UpstreamConnection;
use crate::worker_plan::EndpointLocal;

impl<'p> Conversation<'p> {
    /// Sends the response head, then moves the body, while what is left of the request still moves too.
    pub(super) async fn relay_response(
        &mut self,
        exchange: &mut Exchange<'p>,
        parsed: ResponseParsed,
    ) -> Result<Next, Fault> {
        let web = exchange.bridge_to_web();
        fit_for_client(exchange);
        let (stages, framing) = exchange.stages_of_response(parsed.framing, web);
        // A request that is not read whole leaves the connection in the middle of a message.
        let keeps_alive = exchange.client_keeps_alive() && self.upload.is_read();
        let response = Response::new(exchange, framing, keeps_alive);
        let keeps_alive = response.keeps_alive;
        let upstream = self.upstream.as_mut().ok_or(Fault::BadResponse)?;
        if let Some(stream) = upstream.io.message() {
            stream.forget_sent();
        }
        let mut download = Pump::new(parsed.framing, &upstream.io, response.writer(exchange));
        if parsed.framing == Framing::Chunked || upstream.io.is_message() {
            exchange.thin_response(&mut download);
        }
        download.pass(stages);
        if next_after(exchange, keeps_alive, self.upload.is_read()) == Next::Close {
            download.close_after();
        }
        let first = self.inbound.take().unwrap_or_else(|| exchange.worker.buffers.take());
        respond::begin(exchange, &mut download, (first, &response))?;
        self.download = Some(download);
        self.keeps_alive = parsed.keep_alive && parsed.framing != Framing::UntilClose;
        self.move_response(exchange).await?;
        // Without effect if the endpoint's part was done before the client's.
        exchange.witness_answer();
        Ok(next_after(exchange, keeps_alive, self.upload.is_read()))
    }

    async fn move_response(&mut self, exchange: &mut Exchange<'p>) -> Result<(), Fault> {
        let timeout = self.cluster.cluster.timeouts.idle;
        // Whether the client is waited for, of what the watch was set for.
        let mut watched = None;
        poll_fn(|cx| {
            if let Poll::Ready(Err(fault)) = self.poll_upload(cx, exchange) {
                return Poll::Ready(Err(fault));
            }
            let Some(download) = &mut self.download else { return Poll::Ready(Ok(())) };
            let buffers = &exchange.worker.buffers;
            let mut moved = Poll::Ready(Ok(()));
            if let Some(upstream) = &mut self.upstream {
                moved = download.poll_until_read(cx, &mut upstream.io, &mut exchange.connection.io, buffers);
                if matches!(moved, Poll::Ready(Ok(()))) && self.upload.is_finished() {
                    if download.moved_bytes() > BUFFER_BYTES as u64 {
                        exchange.progress.look();
                    }
                    let clean = download.take_leftover().is_none() && self.keeps_alive && !self.upload_broken;
                    let is_awaited = exchange.is_place_awaited();
                    give_back(exchange, self.endpoint_local, self.upstream.take(), clean);
                    if is_awaited {
                        // The endpoint is idle until its next request is sent: that goes first.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
            if matches!(moved, Poll::Ready(Ok(()))) {
                moved = download.poll_drain(cx, &mut exchange.connection.io, buffers);
            }
            match moved {
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(download_fault(&fault))),
                Poll::Pending => {}
            }
            let waits_for_client = download.is_blocked_on_receiver();
            if !waits_for_client && self.upload.is_read() && exchange.connection.io.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Fault::ClosedInResponse));
            }
            // Who is waited for may change without a byte that is written: what was read last is not taken at all.
            if download.take_progress() || watched != Some(waits_for_client) {
                let timeout = if waits_for_client { exchange.http.stream_timeout } else { timeout };
                exchange.connection.watch.set(Instant::now(), timeout);
                watched = Some(waits_for_client);
            }
            exchange.connection.watch.poll(cx).map(|()| {
                let phase = if waits_for_client { Fault::ClientWriteTimeout } else { Fault::ResponseBodyTimeout };
                Err(exchange.connection.watch.fault(phase))
            })
        })
        .await
    }

    /// Sends the head of a response alone, to a client whose HEAD a filter has made another method of.
    pub(super) async fn relay_head(
        &mut self,
        exchange: &mut Exchange<'p>,
        parsed: &ResponseParsed,
    ) -> Result<Next, Fault> {
        fit_for_client(exchange);
        // Of a body that nobody gets: the head says what that of GET would say.
        exchange.stages_of_response(Framing::None, None);
        self.discard_response(exchange, parsed).await;
        self.leave_request(exchange);
        answer::give_head(exchange).await
    }

    /// Sends a page, or a stored response, in place of the response that is here.
    async fn show_instead(
        &mut self,
        exchange: &mut Exchange<'p>,
        parsed: &ResponseParsed,
        instead: Instead,
    ) -> Result<Next, Fault> {
        let mut page = match instead {
            Instead::Local(page) => page,
            Instead::Stored(served) => return self.give_stored(exchange, parsed, &served).await,
        };
        page.fields.extend(fields_of(exchange.response(), &[b"set-cookie"]));
        let before = exchange.response().fields.len();
        exchange.keep_session();
        // What keeps the session is no matter of filters.
        exchange.response().fields.keep_from(before);
        let ours = fields_of(exchange.response(), &[b"set-cookie"]);
        self.discard_response(exchange, parsed).await;
        self.leave_request(exchange);
        answer::give_with(exchange, &page, &ours).await
    }

    /// Has filters answer in the place of the response that is here, or send the request on along another route.
    ///
    /// # Errors
    /// It goes on along another route, which is [`Fault::Redirected`]; a filter closes the exchange; the client has gone.
    pub(super) async fn replace(
        &mut self,
        exchange: &mut Exchange<'p>,
        parsed: &ResponseParsed,
    ) -> Result<Option<Next>, Fault> {
        match exchange.instead_of_endpoint().await {
            Ok(None) => Ok(None),
            Ok(Some(Instead::Stored(served))) if served.is_relayed() => {
                served.write_head(exchange.response());
                Ok(None)
            }
            Ok(Some(page)) => self.show_instead(exchange, parsed, page).await.map(Some),
            Err(Fault::Redirected) => {
                self.discard_response(exchange, parsed).await;
                if let Some(leftover) = self.upload.take_leftover() {
                    exchange.connection.received = Some(leftover);
                }
                Err(Fault::Redirected)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Sends a stored response in place of the response that is here.
    async fn give_stored(
        &mut self,
        exchange: &mut Exchange<'p>,
        parsed: &ResponseParsed,
        served: &Served,
    ) -> Result<Next, Fault> {
        self.discard_response(exchange, parsed).await;
        self.leave_request(exchange);
        stored::give(exchange, served).await
    }

    /// What is left of the request goes nowhere.
    fn leave_request(&mut self, exchange: &mut Exchange<'p>) {
        if let Some(leftover) = self.upload.take_leftover() {
            exchange.connection.received = Some(leftover);
        }
        exchange.is_read |= self.upload.is_read();
    }

    /// Throws a response away; the connection is kept if what is left of it comes at once, and nothing behind it.
    pub(super) async fn discard_response(&mut self, exchange: &mut Exchange<'p>, parsed: &ResponseParsed) {
        let may_be_short = match parsed.framing {
            Framing::None | Framing::Chunked => true,
            Framing::Length(length) => length <= DISCARDED_BYTES_MAX,
            Framing::UntilClose => false,
        };
        let may_be_clean = may_be_short && parsed.keep_alive && self.upload.is_finished() && !self.upload_broken;
        let clean = may_be_clean && self.discard_body(exchange, parsed.framing).await;
        give_back(exchange, self.endpoint_local, self.upstream.take(), clean);
    }

    /// Reads the body of a response that nobody gets. False: it is not over soon.
    async fn discard_body(&mut self, exchange: &Exchange<'p>, framing: Framing) -> bool {
        let buffers = &exchange.worker.buffers;
        let Some(upstream) = &mut self.upstream else { return false };
        let mut body = Pump::new(framing, &upstream.io, BodyWriter::Plain);
        if let Some(first) = self.inbound.take()
            && body.begin(b"", first, buffers).is_err()
        {
            return false;
        }
        let read = poll_fn(|cx| body.poll_discard(cx, &mut upstream.io, DISCARDED_BYTES_MAX, buffers));
        let is_read = tokio::time::timeout(DISCARD_PATIENCE, read).await.unwrap_or(false);
        body.stop(buffers);
        if let Some(leftover) = body.take_leftover() {
            buffers.give(leftover);
        }
        is_read
    }
}

/// Makes the head of an endpoint's response the one that the client gets.
fn fit_for_client(exchange: &mut Exchange<'_>) {
    let worker = exchange.worker;
    let fields = &mut exchange.response().fields;
    if !fields.has_known(Known::Date) {
        // RFC 9110 section 6.6.1 asks it of a recipient that passes on a response that has none.
        worker.with_date(|date| fields.append(worker.date_name(), date.as_bytes()));
    }
    exchange.filter_response(ResponseSource::Endpoint);
    exchange.keep_session();
}

/// The endpoint's part is done, though the client may not have all of it yet: its place is free for the next, and so is
/// the connection if it ended `clean`.
fn give_back(
    exchange: &mut Exchange<'_>,
    endpoint_local: &EndpointLocal,
    upstream: Option<UpstreamConnection>,
    clean: bool,
) {
    exchange.witness_answer();
    exchange.leave_endpoint();
    if let Some(upstream) = upstream.filter(|upstream| clean && is_wanted_by(exchange, endpoint_local, upstream)) {
        endpoint_local.pool.give(upstream, exchange.progress.now, &exchange.connection.facts);
    }
}

/// Whether anybody can use a connection again. One that is authenticated is of use to its client while that stays, and where it has
/// one request at a time: of a client with many (HTTP/2, HTTP/3) each would leave a connection, and none would find its own.
fn is_wanted_by(exchange: &Exchange<'_>, endpoint_local: &EndpointLocal, upstream: &UpstreamConnection) -> bool {
    match upstream.bond {
        Bond::None => !endpoint_local.pool.is_private() || exchange.client_keeps_alive(),
        Bond::Client => exchange.incoming.head.version < Version::Http2 && exchange.client_keeps_alive(),
        Bond::Doubtful => false,
    }
}

fn download_fault(fault: &PumpFault) -> Fault {
    match fault {
        PumpFault::Read | PumpFault::Truncated => Fault::ResponseBodyClosed,
        PumpFault::Framing | PumpFault::BadBody => Fault::BadResponseBody,
        // Only a filter's bound can be exceeded, which is no fault of the endpoint.
        PumpFault::TooLong => Fault::ResponseTooLarge,
        PumpFault::Spool => Fault::SpoolFailed,
        PumpFault::Source => Fault::ContentFailed,
        PumpFault::Write => Fault::ClosedInResponse,
    }
}

/// The fields of these names, of those that are text.
fn fields_of(response: &ResponseHead, names: &[&[u8]]) -> Vec<(String, String)> {
    let is_asked = |name: &[u8]| names.iter().any(|asked| name.eq_ignore_ascii_case(asked));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let fields = response.fields.iter().filter(|field| is_asked(field.name));
    fields.filter_map(|field| Some((text(field.name)?, text(field.value)?))).collect()
}
