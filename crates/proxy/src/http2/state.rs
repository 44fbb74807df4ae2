//! What the task of a connection and its streams share: the state of the protocol, the socket, and an inbox for what comes of
//! each stream. It is the same towards clients and towards endpoints, which a [`Peer`] says.
//!
//! ```text
//! socket ──► State::receive ──► heads, to the task of the connection
//!                          ──► bodies, ends, resets ──► the inbox of their stream, whose task is woken
//! a stream's task ──► frames ──► Output ── the task of the connection is woken, once for a turn ──► socket
//! ```
//!
//! It belongs to one worker, and is never borrowed while anything else is polled.

use std::collections::VecDeque;
use std::io;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use wire::http2::Allowance;
use wire::http2::connection::{Connection, Event, Role};

use super::inbox::{Inbox, Reset};
use super::output::Output;

/// Streams that are woken at once when there is room again for what they write: most of it is taken by the first.
const WOKEN_AT_ONCE: usize = 4;
/// What our PING carries that asks whether a peer is there.
const ARE_YOU_THERE: [u8; 8] = *b"hallo?  ";

/// Towards whom a connection leads.
pub(crate) trait Peer {
    /// Which end of the connection is ours.
    type Role: Role;
    /// What the inbox of a stream holds beside its body.
    type Extra: Default;
}

/// What of a connection's bytes is not for the inbox of a stream.
pub(crate) enum PeerEvent<P> {
    /// A head has come, which lies in the one that was given.
    Head { stream: u32, parsed: P, ends: bool },
    /// The rules of a stream were broken; it is gone. `is_known`: it has a task, which sees it.
    Broken { code: u32, is_known: bool },
    /// A PING of ours was answered.
    Pong,
    /// The peer has said goodbye: streams of ours after the last are refused.
    Goaway { last: u32 },
}

/// See the module.
pub(crate) struct State<P: Peer> {
    pub(crate) core: Connection<P::Role>,
    pub(crate) output: Output,
    pub(crate) peer: P,
    /// In the order of their streams.
    pub(super) inboxes: Vec<Inbox<P::Extra>>,
    /// Streams that wait for room in the output.
    pub(super) queue: VecDeque<u32>,
    /// Streams that wait for the window of the connection. The first who is woken takes all of it, so each has its turn.
    pub(super) shut: VecDeque<u32>,
    /// Whose turn it is: woken, and not yet at work.
    pub(super) turn: Option<u32>,
    /// Frames of no use that the peer may still send.
    pub(super) allowance: Allowance,
    /// The task of the connection.
    task: Waker,
    /// That is at work, and sends before it sleeps.
    pub(crate) is_attended: bool,
    /// Something was written since it has sent last.
    pub(crate) has_output: bool,
    /// The connection is at its end: so are its streams.
    pub(crate) is_gone: bool,
}

/// What [`State::receive`] returns: how many bytes are done with, and what the task of the connection has to see to.
type Received<P> = Result<(usize, Option<PeerEvent<HeadOf<P>>>), u32>;
/// What a head says that has come.
type HeadOf<P> = Result<<<P as Peer>::Role as Role>::Parsed, model::Fault>;

impl<P: Peer> State<P> {
    /// One whose task is at work, and whose settings wait to be sent.
    pub(super) fn of(
        core: Connection<P::Role>,
        output: Output,
        (peer, allowance): (P, Allowance),
        task: &Waker,
    ) -> Self {
        Self {
            core,
            output,
            peer,
            inboxes: Vec::new(),
            queue: VecDeque::new(),
            shut: VecDeque::new(),
            turn: None,
            allowance,
            task: task.clone(),
            is_attended: true,
            has_output: true,
            is_gone: false,
        }
    }

    /// Takes bytes up to what its task has to see to: how many are done with. `None`: all are.
    ///
    /// # Errors
    /// The code that the connection ends with; what says so waits to be sent.
    pub(crate) fn receive(&mut self, bytes: &[u8], head: &mut <P::Role as Role>::Head) -> Received<P> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let (used, event) = self.core.receive(rest, head, self.output.out())?;
            at += used;
            let happening = match event {
                Event::More => return Ok((at, None)),
                Event::Head { stream, parsed, ends } => PeerEvent::Head { stream, parsed, ends },
                Event::Goaway { last, .. } => PeerEvent::Goaway { last },
                Event::Broken { stream, code } => PeerEvent::Broken { code, is_known: self.end(stream, Reset::Broken) },
                Event::Pong(_) => PeerEvent::Pong,
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
                Event::Reset { stream, code } => {
                    self.end(stream, Reset::ByPeer(code));
                    continue;
                }
                Event::Opened { stream } => {
                    self.tell_of_window(stream);
                    continue;
                }
            };
            return Ok((at, Some(happening)));
        }
    }

    /// Ends streams after `last`, which the peer will not look at.
    pub(super) fn end_after(&mut self, last: u32, reset: Reset) {
        for inbox in self.inboxes.iter_mut().rev().take_while(|inbox| inbox.stream > last) {
            if !inbox.is_over && inbox.reset.is_none() {
                inbox.reset = Some(reset);
            }
            inbox.wake();
        }
    }

    /// Puts bytes of a body into the inbox of their stream.
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
    pub(super) fn end(&mut self, stream: u32, reset: Reset) -> bool {
        let Some(inbox) = self.inbox(stream) else { return false };
        inbox.reset = Some(reset);
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

    /// Takes a stream on that was begun.
    pub(super) fn add(&mut self, stream: u32, ends: bool) {
        self.inboxes.push(Inbox::new(stream, ends));
    }

    /// Whether the peer may send so many frames of no use.
    pub(super) fn spend(&mut self, idle: u32, now: Instant) -> bool {
        idle == 0 || self.allowance.spend(idle, now)
    }

    /// Lets the peer send some more of them.
    pub(crate) fn earn(&mut self, count: u32) {
        self.allowance.earn(count);
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

    /// Asks whether the peer is there.
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

    /// The inbox of a stream, while it has a task.
    pub(super) fn inbox(&mut self, stream: u32) -> Option<&mut Inbox<P::Extra>> {
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
