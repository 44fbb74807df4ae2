//! One request and its response on what leads to an endpoint.
//!
//! The request body and the response move at the same time: an endpoint may answer before it has read the whole
//! request, and what it answers is passed on at once.

pub(crate) mod hedge;
mod relay;
mod tunnel;
pub(crate) mod upload;

use std::future::poll_fn;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::{Duration, Instant};

use model::limits::{INTERIM_RESPONSES_MAX, REPLAY_BYTES_MAX};
use model::{Fault, Method, Version};
use plan::{ClusterPlan, EndpointPlan};
use wire::authentication::{Bond, bond_of};
use wire::http1::{
    Framing, HeadLimits, HeadScan, ResponseParsed, SendRequest, SendResponse, parse_response, write_request,
};

use self::upload::{refused_upload, upload_fault, upload_of, writer_of};
use super::shared::stream::{self, Ended};
use super::{Line, UpstreamConnection, hedge_rules};
use crate::buffer::Buffer;
use crate::connection::Next;
use crate::exchange::Exchange;
use crate::http2::websocket;
use crate::message::MessageStream;
use crate::relay::{Pump, PumpFault};
use crate::respond::send_interim;
use crate::retry::policy;
use crate::worker_plan::EndpointLocal;

/// See the module.
pub(crate) struct Conversation<'p> {
    cluster: &'p ClusterPlan,
    endpoint_local: &'p EndpointLocal,
    /// Given back as soon as the endpoint's part is done.
    upstream: Option<UpstreamConnection>,
    upload: Pump,
    /// The endpoint takes no more of the request; its response may still come.
    upload_broken: bool,
    sent_at: Option<Instant>,
    download: Option<Pump>,
    scan: HeadScan,
    inbound: Option<Buffer>,
    /// Interim responses on their way to the client, and how much of them is written.
    interim: (Vec<u8>, usize),
    interim_count: u32,
    /// The response lets the connection live on.
    keeps_alive: bool,
    /// Another conversation of the exchange has the client's ear: interim responses are not passed on.
    is_beside: bool,
}

impl<'p> Conversation<'p> {
    /// Sends the request head on a stream of its own, or writes it into one buffer with what came of the body.
    pub(crate) fn begin(
        exchange: &mut Exchange<'p>,
        (cluster, endpoint, endpoint_local): (&'p ClusterPlan, &EndpointPlan, &'p EndpointLocal),
        line: Line,
    ) -> Result<Self, Fault> {
        let framing = exchange.request.framing;
        if matches!(line, Line::Shared(_)) {
            fit_for_stream(exchange, cluster);
        }
        exchange.pass_deadline_on();
        let mut head = exchange.worker.scratch.borrow_mut();
        head.clear();
        let upstream = match line {
            Line::Http1(mut upstream) => {
                upstream.begin(exchange.progress.now);
                let how = SendRequest {
                    framing: exchange.framing_for_endpoint(),
                    host_fallback: endpoint.endpoint.name.as_str(),
                    upgrade: exchange.wants_upgrade(),
                    keep_alive: cluster.cluster.pool.idle_max > 0,
                };
                write_request(&exchange.incoming.head, &how, &mut head);
                upstream
            }
            Line::Shared(permit) => {
                stream::begin(exchange, (&endpoint.endpoint, cluster.cluster.tls.is_some()), permit)?
            }
        };
        let writer = writer_of(exchange, &upstream.io);
        let mut upload = upload_of(exchange, framing, writer);
        let buffers = &exchange.worker.buffers;
        let received = &mut exchange.connection.received;
        // What follows a request without a body, or with one that was read ahead, is the next request: it stays where it is.
        let has_none = framing == Framing::None || upload.is_resumed();
        let is_next_request = has_none && received.as_ref().is_some_and(|buffer| !buffer.is_empty());
        let first = match exchange.replay.again() {
            Some(kept) => {
                let mut first = buffers.take();
                // A larger one is made by the first of its stages.
                let _fits = kept.bytes.len() <= REPLAY_BYTES_MAX && first.append(&kept.bytes);
                Some(first)
            }
            None if is_next_request => None,
            None => received.take(),
        };
        exchange.replay.is_taken = true;
        let first = first.unwrap_or_else(|| buffers.take());
        let begun = upload.begin(&head, first, buffers);
        begun.map_err(|fault| refused_upload(&mut exchange.connection.io, &fault))?;
        Ok(Self {
            cluster,
            endpoint_local,
            upstream: Some(upstream),
            upload,
            upload_broken: false,
            sent_at: None,
            download: None,
            scan: HeadScan::default(),
            inbound: None,
            interim: (Vec::new(), 0),
            interim_count: 0,
            keeps_alive: false,
            is_beside: false,
        })
    }

    /// The same beside another that began before it.
    fn beside(self) -> Self {
        Self { is_beside: true, ..self }
    }

    pub(crate) async fn run(&mut self, exchange: &mut Exchange<'p>) -> Result<Next, Fault> {
        let is_first = exchange.progress.retries == 0 && exchange.progress.hedges == 0;
        let hedged = exchange.progress.cluster.filter(|_| is_first && exchange.is_replayable());
        let hedged = hedged.and_then(|local| Some((hedge_rules::rules(exchange, local)?, &**local)));
        // On a connection that is one client's nobody else can answer for its endpoint.
        let parsed = match hedged.filter(|_| self.upstream.as_ref().is_none_or(|line| line.bond == Bond::None)) {
            None => self.await_head(exchange).await?,
            // Boxed: it is rare, and its state would make every exchange larger.
            Some(hedged) => Box::pin(self.await_first(exchange, hedged)).await?,
        };
        if parsed.switching {
            // Only what was asked for, and only once the request is whole (RFC 9110 section 15.2.2).
            if !exchange.wants_upgrade() || !self.upload.is_finished() {
                return Err(Fault::BadResponse);
            }
            // Boxed: a tunnel lasts, and its state would make every exchange larger.
            return Box::pin(self.tunnel(exchange)).await;
        }
        self.note_authentication(exchange);
        exchange.witness_head();
        if exchange.progress.cluster.is_some_and(|local| policy(exchange, local).on.hold_after_answer()) {
            self.keep_sent(exchange, None);
        }
        if exchange.progress.cluster.is_some_and(|local| exchange.retries_status(local)) {
            // Boxed: it is rare, and its state would make every exchange larger.
            Box::pin(self.discard_response(exchange, &parsed)).await;
            return Err(Fault::RetriedStatus);
        }
        if exchange.may_be_replaced()
            // Boxed: it is rare, and its state would make every exchange larger.
            && let Some(next) = Box::pin(self.replace(exchange, &parsed)).await?
        {
            return Ok(next);
        }
        let mut parsed = parsed;
        let head = &exchange.incoming.head;
        if head.method != head.received_method() {
            if exchange.is_head() {
                // Boxed: it is rare, and its state would make every exchange larger.
                return Box::pin(self.relay_head(exchange, &parsed)).await;
            }
            let has_content = !matches!(exchange.response().status, 204 | 304);
            if has_content && exchange.incoming.head.method == Method::Head {
                // The endpoint has only told its length (RFC 9110 section 9.3.2), and the client waits for it.
                parsed.framing = Framing::Length(0);
            }
        }
        self.relay_response(exchange, parsed).await
    }

    /// Looks whether the endpoint takes what follows on the connection for this client's, before any filter changes the response.
    fn note_authentication(&mut self, exchange: &Exchange<'p>) {
        let (Some(upstream), Some(response)) = (&mut self.upstream, &exchange.response) else { return };
        if upstream.bond == Bond::None && !upstream.io.is_message() {
            upstream.bond = bond_of(&exchange.incoming.head.fields, response);
        }
        // Clients of HTTP/2 and HTTP/3 have many requests on one connection: see `is_wanted_by`.
        let is_call = exchange.connection.io.is_memory();
        if upstream.bond == Bond::Client && exchange.incoming.head.version < Version::Http2 && !is_call {
            let slot = exchange.progress.endpoint.map(|(endpoint, _)| endpoint.state.slot);
            exchange.connection.facts.authenticated_at.set(slot);
        }
    }

    /// Keeps what was sent on a stream, should it be needed again: what nobody has looked at because the stream was refused, and
    /// else as much as the rules for retries allow.
    fn keep_sent(&mut self, exchange: &mut Exchange<'p>, fault: Option<Fault>) {
        let allowed = exchange.progress.cluster.map_or(0, |local| policy(exchange, local).body_bytes_max);
        let max = if fault == Some(Fault::StreamRefused) { REPLAY_BYTES_MAX } else { allowed };
        let stream = self.upstream.as_mut().and_then(|upstream| upstream.io.message());
        if let Some(sent) = stream.and_then(MessageStream::take_sent)
            && !exchange.replay.body.as_ref().is_some_and(|body| body.is_held)
        {
            exchange.replay.keep_sent(sent, exchange.changes_request_body());
        }
        // Also what was kept after a refusal, when another endpoint has looked at it since.
        exchange.replay.body.take_if(|body| !body.is_held && body.bytes.len() > max);
    }

    /// Sends the request and reads until the head of the final response is there, in `exchange.heads.response`.
    async fn await_head(&mut self, exchange: &mut Exchange<'p>) -> Result<ResponseParsed, Fault> {
        self.begin_waiting(exchange);
        let parsed = poll_fn(|cx| match self.poll_answer(cx, exchange) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => self.poll_patience(cx, exchange).map(Err),
        })
        .await?;
        self.note_first_byte(exchange);
        Ok(parsed)
    }

    fn begin_waiting(&self, exchange: &mut Exchange<'p>) {
        let timeout = self.upload_timeout(exchange);
        exchange.connection.watch.set(exchange.progress.now, timeout);
    }

    /// Ready with the head of the final response, or with what came of the endpoint instead.
    fn poll_answer(
        &mut self,
        cx: &mut TaskContext<'_>,
        exchange: &mut Exchange<'p>,
    ) -> Poll<Result<ResponseParsed, Fault>> {
        if let Poll::Ready(Err(fault)) = self.poll_upload(cx, exchange) {
            return Poll::Ready(Err(fault));
        }
        self.poll_head(cx, exchange)
    }

    /// Ready when the client has gone or the time is over. To be asked when there is no answer.
    fn poll_patience(&self, cx: &mut TaskContext<'_>, exchange: &mut Exchange<'p>) -> Poll<Fault> {
        // While the request is read, its reader sees a reset.
        let is_read = self.upload.is_read() || self.upstream.is_none();
        if is_read && exchange.connection.io.poll_reset(cx).is_ready() {
            return Poll::Ready(Fault::ClosedInWait);
        }
        ready!(exchange.connection.watch.poll(cx));
        let phase = self.waiting_fault();
        let fault = exchange.connection.watch.fault(phase);
        if fault == Fault::TotalTimeout && phase.consequence().against_health {
            exchange.witness_lateness();
        }
        Poll::Ready(fault)
    }

    /// Notes how long the endpoint took. What it took to answer before it had the whole request is not known, which 0 says: it
    /// may not have worked on it at all, or have waited for its client.
    fn note_first_byte(&self, exchange: &mut Exchange<'p>) {
        let now = exchange.progress.look();
        exchange.progress.phases.first_byte = self.sent_at.map_or(Duration::ZERO, |sent_at| now - sent_at);
    }

    /// What a time-out means before the response head is there.
    fn waiting_fault(&self) -> Fault {
        match (self.sent_at, self.upload.is_blocked_on_receiver()) {
            // Only others are waited for.
            _ if self.upstream.is_none() => Fault::ResponseHeadTimeout,
            _ if self.upload_broken => Fault::SendFailed,
            (Some(_), _) => Fault::ResponseHeadTimeout,
            (None, true) => Fault::SendTimeout,
            (None, false) => Fault::RequestBodyTimeout,
        }
    }

    fn upload_timeout(&self, exchange: &Exchange<'_>) -> Duration {
        self.cluster.cluster.timeouts.idle.min(exchange.http.stream_timeout)
    }

    /// Moves the request towards the endpoint.
    fn poll_upload(&mut self, cx: &mut TaskContext<'_>, exchange: &mut Exchange<'p>) -> Poll<Result<(), Fault>> {
        if self.upload_broken || self.upload.is_finished() {
            return Poll::Ready(Ok(()));
        }
        let Some(upstream) = &mut self.upstream else { return Poll::Ready(Ok(())) };
        let buffers = &exchange.worker.buffers;
        let moved = self.upload.poll(cx, &mut exchange.connection.io, &mut upstream.io, buffers);
        match moved {
            Poll::Ready(Ok(())) => {
                self.sent_at = Some(exchange.progress.look());
                self.expect_head(exchange);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(PumpFault::Write)) => {
                // The endpoint may have answered before it stopped reading.
                self.upload_broken = true;
                self.upload.stop(buffers);
                exchange.progress.look();
                self.expect_head(exchange);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(fault)) => Poll::Ready(Err(upload_fault(&fault))),
            Poll::Pending => {
                if self.upload.take_progress() && !self.is_beside {
                    let timeout = self.upload_timeout(exchange);
                    exchange.connection.watch.set(Instant::now(), timeout);
                }
                Poll::Pending
            }
        }
    }

    /// Nothing more is sent: from now on the endpoint's time to answer counts.
    fn expect_head(&self, exchange: &mut Exchange<'p>) {
        // The watch is that of the first attempt.
        if self.download.is_none() && !self.is_beside {
            let timeout = self.head_timeout(exchange);
            exchange.connection.watch.set(exchange.progress.now, timeout);
        }
    }

    fn head_timeout(&self, exchange: &Exchange<'p>) -> Duration {
        let whole = self.cluster.cluster.timeouts.response_head;
        let tried = exchange.progress.cluster.and_then(|local| policy(exchange, local).timeout);
        tried.map_or(whole, |tried| whole.min(tried))
    }

    /// Passes interim responses on to the client.
    fn poll_interim(&mut self, cx: &mut TaskContext<'_>, exchange: &mut Exchange<'p>) -> Poll<Result<(), Fault>> {
        let (bytes, written) = &mut self.interim;
        let io = &mut exchange.connection.io;
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while *written < bytes.len() {
            *written += ready!(io.poll_write(cx, &bytes[*written..])).map_err(|_| Fault::ClosedInWait)?;
        }
        ready!(io.poll_flush(cx)).map_err(|_| Fault::ClosedInWait)?;
        self.interim = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    fn poll_head(
        &mut self,
        cx: &mut TaskContext<'_>,
        exchange: &mut Exchange<'p>,
    ) -> Poll<Result<ResponseParsed, Fault>> {
        loop {
            // Whatever comes next waits until an interim response is written whole: nothing may be written into it, and
            // the client's slowness bounds what is held for it.
            ready!(self.poll_interim(cx, exchange))?;
            let parsed = match self.upstream.as_mut().and_then(|upstream| upstream.io.message()) {
                None => ready!(self.poll_next_head(cx, exchange))?,
                Some(stream) => match stream::poll_head(cx, exchange, stream) {
                    Poll::Ready(Ok(parsed)) => parsed,
                    Poll::Ready(Err(ended)) => return Poll::Ready(Err(self.ended_fault(ended))),
                    // What is not heard there is asked for anew, sooner than the connection is given up, if that does no harm.
                    Poll::Pending
                        if stream.is_unresponsive() && self.interim_count == 0 && exchange.may_send_again() =>
                    {
                        return Poll::Ready(Err(Fault::StaleConnection));
                    }
                    Poll::Pending => return Poll::Pending,
                },
            };
            if !(100..200).contains(&exchange.response().status) || parsed.switching {
                if let Some(permit) = self.upstream.as_ref().and_then(UpstreamConnection::permit) {
                    permit.note_answer();
                }
                return Poll::Ready(Ok(parsed));
            }
            self.pass_interim(exchange)?;
        }
    }

    /// The next head on a connection of HTTP/1.1, interim or final.
    fn poll_next_head(
        &mut self,
        cx: &mut TaskContext<'_>,
        exchange: &mut Exchange<'p>,
    ) -> Poll<Result<ResponseParsed, Fault>> {
        loop {
            if let Some(parsed) = self.parse_inbound(exchange)? {
                return Poll::Ready(Ok(parsed));
            }
            match ready!(self.poll_read(cx, exchange)) {
                Some(count) if count > 0 => {}
                _ => return Poll::Ready(Err(self.closed_fault())),
            }
        }
    }

    fn parse_inbound(&mut self, exchange: &mut Exchange<'p>) -> Result<Option<ResponseParsed>, Fault> {
        let Some(buffer) = &mut self.inbound else { return Ok(None) };
        let limits = HeadLimits::default();
        let method = exchange.incoming.head.method;
        let head = exchange.response();
        let parsed = parse_response(buffer.data(), &limits, &mut self.scan, method, head)?;
        if let Some(parsed) = &parsed {
            buffer.consume_head(parsed.head_len);
            self.scan.reset();
        }
        Ok(parsed)
    }

    /// Makes an interim response ready for the client. HTTP/1.0 knows none (RFC 9110 section 15.2).
    fn pass_interim(&mut self, exchange: &mut Exchange<'p>) -> Result<(), Fault> {
        self.interim_count += 1;
        if self.interim_count > INTERIM_RESPONSES_MAX {
            return Err(Fault::BadResponse);
        }
        let to = exchange.incoming.head.version;
        if to > Version::Http10 && !self.is_beside {
            let how = SendResponse { framing: Framing::None, to, keep_alive: true, upgrade: false };
            send_interim(exchange, &how, &mut self.interim.0)?;
        }
        Ok(())
    }

    /// Reads once into `inbound`. `None`: the connection broke.
    fn poll_read(&mut self, cx: &mut TaskContext<'_>, exchange: &Exchange<'p>) -> Poll<Option<usize>> {
        let Some(upstream) = &mut self.upstream else { return Poll::Ready(None) };
        if ready!(upstream.io.poll_read_ready(cx)).is_err() {
            return Poll::Ready(None);
        }
        let buffers = &exchange.worker.buffers;
        let mut buffer = self.inbound.take().unwrap_or_else(|| buffers.take());
        buffer.make_room();
        let read = upstream.io.poll_read(cx, buffer.room());
        if let Poll::Ready(Ok(count)) = read {
            buffer.filled(count);
        }
        if buffer.is_empty() {
            buffers.give(buffer);
        } else {
            self.inbound = Some(buffer);
        }
        read.map(Result::ok)
    }

    /// Why a stream has no response head.
    fn ended_fault(&self, ended: Ended) -> Fault {
        match (ended, self.upstream.as_ref().and_then(UpstreamConnection::permit)) {
            (Ended::Refused, Some(permit)) => permit.note_refusal(),
            (Ended::Reset, Some(permit)) => permit.note_end(),
            _ => {}
        }
        match ended {
            Ended::Refused => Fault::StreamRefused,
            Ended::Malformed(fault) => fault,
            Ended::Reset if self.upload_broken => Fault::SendFailed,
            Ended::Reset => Fault::ClosedBeforeResponse,
            Ended::Closed => self.closed_fault(),
        }
    }

    fn closed_fault(&self) -> Fault {
        let nothing_came = self.inbound.is_none() && self.interim_count == 0;
        if nothing_came && self.upstream.as_ref().is_some_and(UpstreamConnection::may_be_stale) {
            Fault::StaleConnection
        } else if self.upload_broken {
            Fault::SendFailed
        } else {
            Fault::ClosedBeforeResponse
        }
    }

    /// Gives memory back, keeps what the client sent ahead and what may be sent again after the `fault`, and adds up what was moved.
    pub(crate) fn end(&mut self, exchange: &mut Exchange<'p>, fault: Option<Fault>) {
        let buffers = &exchange.worker.buffers;
        if let Some(leftover) = self.upload.take_leftover() {
            exchange.connection.received = Some(leftover);
        }
        if exchange.progress.status == 0 {
            self.keep_sent(exchange, fault);
        }
        exchange.progress.is_interim_cut = self.interim.1 > 0;
        exchange.is_read |= self.upload.is_read();
        self.upload.stop(buffers);
        match exchange.replay.again() {
            // It is counted once, however often it was sent.
            Some(kept) if !kept.is_coded => exchange.progress.received_bytes = kept.len(),
            _ => exchange.progress.received_bytes += self.upload.moved_bytes(),
        }
        if let Some(mut download) = self.download.take() {
            download.stop(buffers);
            exchange.progress.sent_bytes += download.sent_bytes();
        }
        if let Some(buffer) = self.inbound.take() {
            buffers.give(buffer);
        }
    }
}

/// Changes of a request what a stream cannot say.
fn fit_for_stream(exchange: &mut Exchange<'_>, cluster: &ClusterPlan) {
    // An upgrade to anything but a WebSocket is a wish that is left out (RFC 9110 section 7.8).
    exchange.request.upgrade &= websocket::is_asked_for(&exchange.incoming.head, exchange.request.framing);
    if cluster.cluster.grpc_web {
        exchange.bridge_from_web();
    }
}
