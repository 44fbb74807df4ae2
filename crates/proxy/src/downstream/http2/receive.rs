//! Reads a connection, and begins the streams that this brings.

use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use model::Fault;
use model::limits::{HTTP2_PING, HTTP2_STREAMS_MAX};
use wire::http1::RequestParsed;
use wire::http2::code;

use super::shared::{Ended, limits_of};
use super::stream_task::{Active, carry};
use super::{Session, shutdown, tell};
use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::downstream::served::Served;
use crate::downstream::shutdown::Phase;
use crate::exchange::Arrived;
use crate::http2::downstream::Stream;
use crate::http2::{PeerEvent, websocket};
use crate::io::Io;
use crate::message::MessageStream;
use crate::registry::Registered;
use crate::request_head::Arrival;
use crate::watch::Watch;
use crate::worker::Incoming;

/// Reads of a connection before others get a turn.
const READS_PER_TURN_MAX: usize = 16;

impl Session<'_> {
    /// Reads what is here, as long as what waits for the client is not too much, and begins the streams that it brings.
    pub(super) fn receive(&mut self) -> Result<(), Ended> {
        for _ in 0..READS_PER_TURN_MAX {
            if !self.shared.state.borrow().output.has_room() {
                return Ok(());
            }
            if let Some(early) = self.early.take() {
                self.take_in(early)?;
                continue;
            }
            let read = {
                let output = &mut self.shared.state.borrow_mut().output;
                output.poll_read(&mut TaskContext::from_waker(&self.socket_waker), &self.worker.buffers)
            };
            match read {
                Poll::Ready(Some(buffer)) => self.take_in(buffer)?,
                Poll::Ready(None) => return Err(Ended::Closed),
                Poll::Pending => {
                    self.wants_read = false;
                    return Ok(());
                }
            }
        }
        self.wants_read = false;
        self.socket_waker.wake_by_ref();
        Ok(())
    }

    fn take_in(&mut self, mut buffer: Buffer) -> Result<(), Ended> {
        let now = Instant::now();
        if let Some((_, http)) = self.worker.plan_of(&self.registration.handle).http_listener(&self.registration) {
            self.shared.state.borrow_mut().limit_heads(limits_of(http));
        }
        self.shared.state.borrow_mut().set_time(now);
        let taken = self.take_frames(buffer.data(), now);
        buffer.advance(*taken.as_ref().unwrap_or(&0));
        if taken.is_ok() && !buffer.is_empty() {
            self.early = Some(buffer);
        } else {
            self.worker.buffers.give(buffer);
        }
        taken?;
        let mut state = self.shared.state.borrow_mut();
        if !state.is_within_bounds(now) {
            return Err(Ended::Broken(code::ENHANCE_YOUR_CALM));
        }
        if !self.is_greeted && state.is_greeted() {
            self.is_greeted = true;
            if self.phase == Phase::Open {
                drop(state);
                let rest = self.timeouts().0;
                self.watch.set(now, rest);
            }
        }
        Ok(())
    }

    /// How many bytes were looked at. Not all of them when their answers are more than is to wait: a request takes a few bytes, and
    /// a redirection, which waits for nothing, may take thousands.
    fn take_frames(&mut self, bytes: &[u8], now: Instant) -> Result<usize, Ended> {
        let mut incoming = self.worker.take_request();
        let mut at = 0;
        // What needs no more bytes is told in any case.
        while at == bytes.len() || self.shared.state.borrow().output.has_room() {
            let received = self.shared.state.borrow_mut().receive(&bytes[at..], &mut incoming.head);
            let (used, happening) = received.map_err(Ended::Broken)?;
            at += used;
            match happening {
                None => break,
                Some(PeerEvent::Head { stream, parsed, ends }) => {
                    let next = self.worker.take_request();
                    let request = std::mem::replace(&mut incoming, next);
                    self.begin((stream, ends), (request, parsed), now);
                }
                // A refused stream becomes no exchange, so its fault is recorded here. An exchange records its own.
                Some(PeerEvent::Broken { code: code::PROTOCOL_ERROR, is_known: false }) => {
                    tell(self.worker, &self.registration.handle, &self.shared.facts, Fault::Http2Error);
                }
                Some(PeerEvent::Broken { .. } | PeerEvent::Pong) => {}
                Some(PeerEvent::Goaway { .. }) => self.is_unresponsive = true,
            }
        }
        self.worker.give_request(incoming);
        Ok(at)
    }

    /// Starts an exchange for a stream, by the active plan. No more start while as many exchanges are in flight as streams are allowed,
    /// and as many again that the client has reset.
    fn begin(
        &mut self,
        (id, ends): (u32, bool),
        (mut incoming, parsed): (Box<Incoming>, Result<RequestParsed, Fault>),
        now: Instant,
    ) {
        let plan = self.worker.plan_to_carry(&self.registration.handle);
        // A client that has not heard of our GOAWAY by now does not mean to; one that is cut off has no say any more.
        let is_unheard = self.told_at.is_some_and(|told_at| told_at.elapsed() > HTTP2_PING);
        let is_too_many = self.shared.exchanges.active() >= 2 * HTTP2_STREAMS_MAX as usize;
        let may_begin = !is_unheard && !is_too_many && !self.registration.is_cut();
        let found = plan.http_listener(&self.registration).filter(|_| may_begin);
        let Some((_, http)) = found.filter(|(_, http)| !shutdown::is_enough(http, self.accepted)) else {
            self.shared.state.borrow_mut().refuse(id);
            return self.worker.give_request(incoming);
        };
        self.accepted += 1;
        if shutdown::is_enough(http, self.accepted) {
            self.send_final_goaway(now);
        }
        self.is_last_call = false;
        let timeout = http.stream_timeout;
        let active = Active::new(&self.shared);
        if parsed.as_ref().is_ok_and(|parsed| parsed.upgrade) {
            websocket::give_key(&mut incoming.head, || self.worker.random.next());
        }
        let arrived = Arrived { incoming, arrival: Arrival { begun: Some(now), whole: None }, parsed };
        let io = Io::Stream(Box::new(MessageStream::Client(Stream::open(&self.shared.state, id, ends))));
        let is_inline = self.inline.is_free();
        let (connection, registered) = self.connection_of(io, (now, timeout), is_inline);
        let served = Served { worker: self.worker.clone(), plan, index: self.registration.handle.index.get() };
        let carried = carry(served, connection, arrived, (registered, active));
        if is_inline {
            self.inline.begin(carried);
        } else {
            tokio::task::spawn_local(carried);
        }
    }

    /// The connection as the exchange of a stream sees it. The inline stream is ended together with the real connection; any other has its
    /// own place in the registry.
    fn connection_of(
        &self,
        io: Io,
        (now, timeout): (Instant, Duration),
        is_inline: bool,
    ) -> (Connection, Option<Registered>) {
        let registered = (!is_inline).then(|| self.worker.registry.register_carried(&self.registration));
        let registration =
            registered.as_ref().map_or(&self.registration, |registered| &registered.registration).clone();
        let spare = if is_inline { self.shared.spare.take() } else { None };
        let watch = match spare {
            Some(mut watch) => {
                watch.set_bound(None);
                watch.set(now, timeout);
                watch
            }
            None => Watch::new(now, timeout, registration.clone()),
        };
        let facts = self.shared.facts.clone();
        let connection = Connection {
            io,
            facts,
            watch,
            received: None,
            registration,
            requests: 1,
            leaves_by_end: false,
            is_early: false,
            is_cut_short: false,
        };
        (connection, registered)
    }
}
