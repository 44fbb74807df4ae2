//! What the task of a connection and its streams share: the state of the protocol, the socket, and a box for what comes of
//! each stream.
//!
//! ```text
//! socket ──► State::receive ──► requests, to the task of the connection
//!                          ──► bodies, ends, resets ──► the box of their stream, whose task is woken
//! a stream's task ──► frames ──► Output ── the task of the connection is woken, once for a turn ──► socket
//! ```
//!
//! It belongs to one worker, and nobody holds it borrowed while anything else is polled.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use model::limits::{
    HTTP2_DISCARDED_MAX, HTTP2_DISCARDED_PER_SECOND, HTTP2_IDLE_FRAMES_MAX, HTTP2_IDLE_FRAMES_PER_SECOND,
};
use model::{Fault, RequestHead};
use wire::http1::{HeadLimits, RequestParsed};
use wire::http2::Allowance;
use wire::http2::connection::{Connection, Event, Limits, TICK};
use wire::http2::hpack::Strings;

use super::inbox::Inbox;
use super::output::Output;
use crate::io::Io;

/// Streams that are woken at once when there is room again for what they write: most of it is taken by the first.
const WOKEN_AT_ONCE: usize = 4;
/// What our PING carries that asks whether a client is there.
const ARE_YOU_THERE: [u8; 8] = *b"hallo?  ";

/// As it is shared.
pub(crate) type SharedState = Rc<RefCell<State>>;

/// What of a connection's bytes the task of the connection has to see to.
pub(crate) enum Happening {
    /// A stream was begun; its head lies in the one that was given.
    Request { stream: u32, parsed: Result<RequestParsed, Fault>, ends: bool },
    /// The rules of a stream were broken; it is gone. `is_known`: it has an exchange, which sees it.
    Broken { code: u32, is_known: bool },
    /// The client begins no more streams.
    Goodbye,
}

/// See the module.
pub(crate) struct State {
    pub(super) core: Connection,
    pub(crate) output: Output,
    /// In the order of their streams.
    pub(super) inboxes: Vec<Inbox>,
    /// When it was made.
    pub(super) began: Instant,
    /// Streams that wait for room in the output.
    pub(super) queue: VecDeque<u32>,
    /// Streams that wait for the window of the connection. The first who is woken takes all of it, so each has its turn.
    pub(super) shut: VecDeque<u32>,
    /// Whose turn it is: woken, and not yet at work.
    pub(super) turn: Option<u32>,
    /// Idle frames that the peer may still send.
    pub(super) allowance: Allowance,
    /// Streams that the peer may still throw away.
    pub(super) discards: Allowance,
    /// The task of the connection.
    pub(super) task: Waker,
    /// That is at work, and sends before it sleeps.
    pub(crate) is_attended: bool,
    /// Something was written since it has sent last.
    pub(crate) has_output: bool,
    /// The connection is at its end: so are its streams.
    pub(super) is_gone: bool,
}

impl State {
    /// A new connection, whose settings wait to be sent; its task, and how that is woken for the socket.
    pub(crate) fn new(io: Io, head: HeadLimits, (task, wire): (&Waker, &Waker), now: Instant) -> Self {
        let mut output = Output::new(io, wire.clone());
        let core = Connection::new(Limits::new(head), Strings::default(), output.out());
        Self {
            core,
            output,
            inboxes: Vec::new(),
            began: now,
            queue: VecDeque::new(),
            shut: VecDeque::new(),
            turn: None,
            allowance: Allowance::new(HTTP2_IDLE_FRAMES_MAX, HTTP2_IDLE_FRAMES_PER_SECOND, now),
            discards: Allowance::new(HTTP2_DISCARDED_MAX, HTTP2_DISCARDED_PER_SECOND, now),
            task: task.clone(),
            is_attended: true,
            has_output: true,
            is_gone: false,
        }
    }

    /// Changes the bounds of the heads that are still to come.
    pub(crate) fn limit_heads(&mut self, head: HeadLimits) {
        self.core.limit_heads(head);
    }

    /// What is received from now on is received at this time.
    pub(crate) fn set_time(&mut self, now: Instant) {
        let ticks = now.saturating_duration_since(self.began).as_millis() / TICK.as_millis();
        self.core.set_tick(ticks as u32);
    }

    /// Takes bytes up to what its task has to see to: how many are done with. `None`: all are.
    ///
    /// # Errors
    /// The code that the connection ends with; what says so waits to be sent.
    pub(crate) fn receive(&mut self, bytes: &[u8], head: &mut RequestHead) -> Result<(usize, Option<Happening>), u32> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let (used, event) = self.core.receive(rest, head, self.output.out())?;
            at += used;
            let happening = match event {
                Event::More => return Ok((at, None)),
                Event::Request { stream, parsed, ends } => Happening::Request { stream, parsed, ends },
                Event::Goodbye { .. } => Happening::Goodbye,
                Event::Broken { stream, code } => Happening::Broken { code, is_known: self.end(stream) },
                Event::Data { stream, range, ends } => {
                    self.deliver(stream, &rest[range], ends);
                    continue;
                }
                Event::Trailers { stream, fields } => {
                    if let Some(inbox) = self.inbox(stream) {
                        (inbox.trailers, inbox.is_over) = (fields, true);
                        inbox.wake();
                    }
                    continue;
                }
                Event::Reset { stream, .. } => {
                    self.end(stream);
                    continue;
                }
                Event::Opened { stream } => {
                    self.tell_of_window(stream);
                    continue;
                }
                Event::Pong(_) => continue,
            };
            return Ok((at, Some(happening)));
        }
    }

    fn deliver(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        match self.inbox(stream) {
            Some(inbox) => {
                inbox.data.extend_from_slice(bytes);
                inbox.is_over |= ends;
                inbox.wake();
            }
            None => self.core.consumed(stream, bytes.len(), self.output.out()),
        }
    }

    /// A stream is gone. Whether it has an exchange.
    fn end(&mut self, stream: u32) -> bool {
        let Some(inbox) = self.inbox(stream) else { return false };
        inbox.is_reset = true;
        inbox.wake();
        true
    }

    fn tell_of_window(&mut self, stream: u32) {
        if let Some(inbox) = self.inbox(stream) {
            inbox.wake();
        } else if stream == 0 {
            // Settings may have opened all of them.
            for inbox in &mut self.inboxes {
                if std::mem::take(&mut inbox.is_shut) {
                    inbox.wake();
                }
            }
            self.give_turn();
        }
    }

    /// Gives the turn to the next stream that waits for the window of the connection, as long as that has room. It ends when that stream
    /// has written, cannot, or is gone.
    pub(super) fn give_turn(&mut self) {
        while self.turn.is_none()
            && self.core.shared_room() > 0
            && let Some(stream) = self.shut.pop_front()
        {
            if let Some(inbox) = self.inbox(stream) {
                inbox.is_waiting = false;
                inbox.wake();
                self.turn = Some(stream);
            }
        }
    }

    /// Whether the client has sent no more frames of no use than it may, and thrown no more streams away.
    pub(crate) fn is_within_bounds(&mut self, now: Instant) -> bool {
        let counts = self.core.take_counts();
        self.discards.earn(counts.answered);
        (counts.idle == 0 || self.allowance.spend(counts.idle, now))
            && (counts.discarded == 0 || self.discards.spend(counts.discarded, now))
    }

    /// Lets the client send some more of them.
    pub(crate) fn earn(&mut self, count: u32) {
        self.allowance.earn(count);
    }

    /// Takes a stream on that was begun; see [`Stream::open`](super::Stream::open).
    pub(super) fn enter(&mut self, stream: u32, ends: bool) {
        self.inboxes.push(Inbox::new(stream, ends));
    }

    /// Turns a stream away that nobody has looked at.
    pub(crate) fn refuse(&mut self, stream: u32) {
        self.core.refuse(stream, self.output.out());
    }

    /// Hands what waits to the kernel, and lets streams go on that wait for that.
    pub(crate) fn poll_send(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.has_output = false;
        let sent = self.output.poll_send(cx);
        if !self.queue.is_empty() && self.output.has_room() {
            self.let_go_on();
        }
        sent
    }

    fn let_go_on(&mut self) {
        for _ in 0..WOKEN_AT_ONCE {
            let Some(stream) = self.queue.pop_front() else { return };
            if let Some(inbox) = self.inbox(stream) {
                inbox.is_queued = false;
                inbox.wake();
            }
        }
        if !self.queue.is_empty() {
            // When they have had their turn, the next may.
            self.has_output = true;
            self.task.wake_by_ref();
        }
    }

    /// Whether the settings of the client are here.
    pub(crate) fn is_greeted(&self) -> bool {
        self.core.has_settings()
    }

    /// Whether the client has been told which stream is the last.
    pub(crate) fn has_said_last(&self) -> bool {
        self.core.has_said_last()
    }

    pub(crate) fn say_goodbye(&mut self) {
        self.core.say_goodbye(self.output.out());
    }

    /// Says that what was begun last is the last.
    pub(crate) fn say_last(&mut self) {
        self.core.say_last(self.output.out());
    }

    pub(crate) fn ping(&mut self) {
        self.core.ping(&ARE_YOU_THERE, self.output.out());
    }

    /// Says why the connection ends, and ends its streams.
    pub(crate) fn abort(&mut self, code: u32) {
        self.core.abort(code, self.output.out());
        self.let_go();
    }

    /// Ends all streams, for their connection is at its end.
    pub(crate) fn let_go(&mut self) {
        self.is_gone = true;
        self.inboxes.iter_mut().for_each(Inbox::wake);
    }

    pub(super) fn inbox(&mut self, stream: u32) -> Option<&mut Inbox> {
        self.place(stream).map(|place| &mut self.inboxes[place])
    }

    pub(super) fn place(&self, stream: u32) -> Option<usize> {
        match self.inboxes.last() {
            // Mostly it is the only one.
            Some(last) if last.stream == stream => Some(self.inboxes.len() - 1),
            _ => self.inboxes.binary_search_by_key(&stream, |inbox| inbox.stream).ok(),
        }
    }

    /// There is something to send. The task of the connection is woken for it once, and not while the socket takes nothing.
    pub(super) fn wake_task(&mut self) {
        if !std::mem::replace(&mut self.has_output, true) && !self.is_attended && !self.output.is_blocked() {
            self.task.wake_by_ref();
        }
    }
}
