//! What the task of a connection and its streams share: the state of the protocol, the socket, and a box for what comes of
//! each stream.
//!
//! ```text
//! socket ──► Link::receive ──► requests, to the task of the connection
//!                          ──► bodies, ends, resets ──► the box of their stream, whose task is woken
//! a stream's task ──► frames ──► Line ── the task of the connection is woken, once for a turn ──► socket
//! ```
//!
//! It belongs to one worker, and nobody holds it borrowed while anything else is polled.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use bytes::BytesMut;
use model::fields::Fields;
use model::limits::{
    HTTP2_DISCARDED_MAX, HTTP2_DISCARDED_PER_SECOND, HTTP2_IDLE_FRAMES_MAX, HTTP2_IDLE_FRAMES_PER_PIECE,
    HTTP2_IDLE_FRAMES_PER_SECOND,
};
use model::{Fault, RequestHead, ResponseHead};
use wire::http1::{Framing, HeadLimits, RequestParsed};
use wire::http2::Allowance;
use wire::http2::connection::{Connection, Event, Gone, Limits, TICK};
use wire::http2::hpack::Strings;

use super::line::{FRAMES_AT_ONCE, Line};
use super::stream::Stream;
use crate::io::Io;

/// Streams that are woken at once when there is room again for what they write: most of it is taken by the first.
const WOKEN_AT_ONCE: usize = 4;
/// Boxes for which room is kept while there are none.
const ROOM_KEPT: usize = 2;
/// What our PING carries that asks whether a client is there.
const ARE_YOU_THERE: [u8; 8] = *b"hallo?  ";

/// As it is shared.
pub(crate) type SharedLink = Rc<RefCell<Link>>;

/// What of a connection's bytes the task of the connection has to see to.
pub(super) enum Happening {
    /// A stream was begun; its head lies in the one that was given.
    Request { stream: u32, parsed: Result<RequestParsed, Fault>, ends: bool },
    /// The rules of a stream were broken; it is gone. `is_known`: it has an exchange, which sees it.
    Broken { code: u32, is_known: bool },
    /// The client begins no more streams.
    Goodbye,
}

/// What came of a stream, until its exchange takes it. The windows bound it.
struct Inbox {
    stream: u32,
    data: BytesMut,
    trailers: Option<Box<Fields>>,
    /// The peer's half has ended in good order.
    is_over: bool,
    /// The stream is gone.
    is_reset: bool,
    /// It has something to write, and its own window is shut.
    is_shut: bool,
    /// It has something to write, and waits for the window of the connection.
    is_waiting: bool,
    /// It has something to write, and waits for its turn.
    is_queued: bool,
    /// Of the task that carries it.
    waker: Option<Waker>,
    /// That has not been woken since it last asked for it.
    is_listening: bool,
}

impl Inbox {
    fn wake(&mut self) {
        if std::mem::take(&mut self.is_listening)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    fn listen(&mut self, cx: &TaskContext<'_>) {
        self.is_listening = true;
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }
}

/// See the module.
pub(crate) struct Link {
    core: Connection,
    pub(super) line: Line,
    /// In the order of their streams.
    inboxes: Vec<Inbox>,
    /// When it was made.
    began: Instant,
    /// Streams that wait for room on the line.
    queue: VecDeque<u32>,
    /// Streams that wait for the window of the connection. The first who is woken takes all of it, so each has its turn.
    shut: VecDeque<u32>,
    /// Whose turn it is: woken, and not yet at work.
    turn: Option<u32>,
    /// Idle frames that the peer may still send.
    allowance: Allowance,
    /// Streams that the peer may still throw away.
    discards: Allowance,
    /// The task of the connection.
    task: Waker,
    /// That is at work, and sends before it sleeps.
    pub(super) is_attended: bool,
    /// Something was written since it has sent last.
    pub(super) is_rung: bool,
    /// The connection is at its end: so are its streams.
    is_gone: bool,
}

impl Link {
    /// A new connection, whose settings wait to be sent; its task, and how that is woken for the socket.
    pub(super) fn new(io: Io, head: HeadLimits, (task, wire): (&Waker, &Waker), now: Instant) -> Self {
        let mut line = Line::new(io, wire.clone());
        let core = Connection::new(Limits::new(head), Strings::default(), line.out());
        Self {
            core,
            line,
            inboxes: Vec::new(),
            began: now,
            queue: VecDeque::new(),
            shut: VecDeque::new(),
            turn: None,
            allowance: Allowance::new(HTTP2_IDLE_FRAMES_MAX, HTTP2_IDLE_FRAMES_PER_SECOND, now),
            discards: Allowance::new(HTTP2_DISCARDED_MAX, HTTP2_DISCARDED_PER_SECOND, now),
            task: task.clone(),
            is_attended: true,
            is_rung: true,
            is_gone: false,
        }
    }

    // For the task of the connection.

    /// Changes the bounds of the heads that are still to come.
    pub(super) fn limit_heads(&mut self, head: HeadLimits) {
        self.core.limit_heads(head);
    }

    /// What is received from now on is received at this time.
    pub(super) fn set_time(&mut self, now: Instant) {
        let ticks = now.saturating_duration_since(self.began).as_millis() / TICK.as_millis();
        self.core.set_tick(ticks as u32);
    }

    /// Takes bytes up to what its task has to see to: how many are done with. `None`: all are.
    ///
    /// # Errors
    /// The code that the connection ends with; what says so waits to be sent.
    pub(super) fn receive(&mut self, bytes: &[u8], head: &mut RequestHead) -> Result<(usize, Option<Happening>), u32> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let (used, event) = self.core.receive(rest, head, self.line.out())?;
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
            None => self.core.consumed(stream, bytes.len(), self.line.out()),
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
    fn give_turn(&mut self) {
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
    pub(super) fn is_within_bounds(&mut self, now: Instant) -> bool {
        let counts = self.core.take_counts();
        self.discards.earn(counts.answered);
        (counts.idle == 0 || self.allowance.spend(counts.idle, now))
            && (counts.discarded == 0 || self.discards.spend(counts.discarded, now))
    }

    /// Lets the client send some more of them.
    pub(super) fn earn(&mut self, count: u32) {
        self.allowance.earn(count);
    }

    /// Takes a stream on that was begun.
    pub(super) fn open(link: &SharedLink, stream: u32, ends: bool) -> Stream {
        link.borrow_mut().inboxes.push(Inbox {
            stream,
            data: BytesMut::new(),
            trailers: None,
            is_over: ends,
            is_reset: false,
            is_shut: false,
            is_waiting: false,
            is_queued: false,
            waker: None,
            is_listening: false,
        });
        Stream::new(link.clone(), stream)
    }

    /// Turns a stream away that nobody has looked at.
    pub(super) fn refuse(&mut self, stream: u32) {
        self.core.refuse(stream, self.line.out());
    }

    /// Hands what waits to the kernel, and lets streams go on that wait for that.
    pub(super) fn poll_send(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.is_rung = false;
        let sent = self.line.poll_send(cx);
        if !self.queue.is_empty() && self.line.has_room() {
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
            self.is_rung = true;
            self.task.wake_by_ref();
        }
    }

    /// Whether the settings of the client are here.
    pub(super) fn is_greeted(&self) -> bool {
        self.core.has_settings()
    }

    /// Whether the client has been told which stream is the last.
    pub(super) fn has_said_last(&self) -> bool {
        self.core.has_said_last()
    }

    pub(super) fn say_goodbye(&mut self) {
        self.core.say_goodbye(self.line.out());
    }

    /// Says that what was begun last is the last.
    pub(super) fn say_last(&mut self) {
        self.core.say_last(self.line.out());
    }

    pub(super) fn ping(&mut self) {
        self.core.ping(&ARE_YOU_THERE, self.line.out());
    }

    /// Says why the connection ends, and ends its streams.
    pub(super) fn abort(&mut self, code: u32) {
        self.core.abort(code, self.line.out());
        self.let_go();
    }

    /// Ends all streams, for their connection is at its end.
    pub(super) fn let_go(&mut self) {
        self.is_gone = true;
        self.inboxes.iter_mut().for_each(Inbox::wake);
    }

    // For the task of a stream.

    /// Ready when there is something to read, the end included: how much.
    pub(super) fn poll_readable(&mut self, stream: u32, cx: &TaskContext<'_>) -> Poll<io::Result<usize>> {
        let is_gone = self.is_gone;
        let Some(inbox) = self.inbox(stream) else { return Poll::Ready(Err(gone())) };
        if !inbox.data.is_empty() || inbox.is_over {
            return Poll::Ready(Ok(inbox.data.len()));
        }
        if inbox.is_reset || is_gone {
            return Poll::Ready(Err(gone()));
        }
        inbox.listen(cx);
        Poll::Pending
    }

    /// Takes what is here, and lets the client send as much again.
    pub(super) fn read(&mut self, stream: u32, room: &mut [u8]) -> usize {
        let Some(inbox) = self.inbox(stream) else { return 0 };
        let count = room.len().min(inbox.data.len());
        room[..count].copy_from_slice(&inbox.data[..count]);
        if count == inbox.data.len() {
            inbox.data = BytesMut::new();
        } else {
            bytes::Buf::advance(&mut inbox.data, count);
        }
        let before = self.line.waiting_bytes();
        self.core.consumed(stream, count, self.line.out());
        if self.line.waiting_bytes() > before {
            self.ring();
        }
        count
    }

    /// Whether all of the client's half was read, and there is nothing behind it.
    pub(super) fn is_over(&self, stream: u32) -> bool {
        self.place(stream).is_some_and(|place| {
            let inbox = &self.inboxes[place];
            inbox.is_over && inbox.data.is_empty() && inbox.trailers.is_none()
        })
    }

    /// Whether the client's half is open.
    pub(super) fn awaits_end(&self, stream: u32) -> bool {
        !self.is_gone
            && self.place(stream).is_some_and(|place| {
                let inbox = &self.inboxes[place];
                !inbox.is_over && !inbox.is_reset
            })
    }

    /// Throws away what has come; see [`Stream::poll_discard`].
    pub(super) fn poll_discard(&mut self, stream: u32, cx: &TaskContext<'_>, left: &mut usize) -> Poll<()> {
        let is_gone = self.is_gone;
        let Some(inbox) = self.inbox(stream) else { return Poll::Ready(()) };
        let count = std::mem::take(&mut inbox.data).len();
        let is_done = is_gone || inbox.is_over || inbox.is_reset || count > *left;
        if !is_done {
            inbox.listen(cx);
        }
        *left = left.saturating_sub(count);
        if count > 0 && !is_gone {
            let before = self.line.waiting_bytes();
            // Of the connection only: other streams go on, and this one sends no more than it was allowed to.
            self.core.consumed(0, count, self.line.out());
            if self.line.waiting_bytes() > before {
                self.ring();
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(super) fn take_trailers(&mut self, stream: u32) -> Option<Box<Fields>> {
        self.inbox(stream)?.trailers.take()
    }

    /// Ready when the stream is gone.
    pub(super) fn poll_reset(&mut self, stream: u32, cx: &TaskContext<'_>) -> Poll<()> {
        let is_gone = self.is_gone;
        match self.inbox(stream) {
            Some(inbox) if !inbox.is_reset && !is_gone => {
                inbox.listen(cx);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Sends the head of a response.
    pub(super) fn send_head(
        &mut self,
        stream: u32,
        head: (&ResponseHead, u16),
        how: (Framing, bool),
    ) -> io::Result<()> {
        if self.is_gone {
            return Err(gone());
        }
        self.line.expect(0);
        self.core.send_head(stream, head, how, self.line.out()).map_err(|Gone| gone())?;
        self.ring();
        Ok(())
    }

    /// Writes as much of a body as there is room for; see [`Stream::poll_write`].
    pub(super) fn poll_write(
        &mut self,
        stream: u32,
        cx: &TaskContext<'_>,
        (bytes, ends): (&[u8], bool),
    ) -> Poll<io::Result<usize>> {
        if self.is_gone {
            return Poll::Ready(Err(gone()));
        }
        if !self.line.has_room() {
            return self.wait_for_room(stream, cx);
        }
        if self.turn.is_some_and(|turn| turn != stream) && !bytes.is_empty() {
            return self.wait_for_window(stream, cx, true);
        }
        self.turn = None;
        let sent = self.write_data(stream, bytes, ends)?;
        if !self.shut.is_empty() {
            if sent > 0 {
                self.wait_no_more(stream);
            }
            self.give_turn();
        }
        if sent == 0 && !bytes.is_empty() {
            let is_shared = self.core.shared_room() == 0;
            return self.wait_for_window(stream, cx, is_shared);
        }
        if sent == bytes.len() {
            // Clients answer what they receive with steps of their windows and PINGs: those of gRPC each small piece. A piece
            // that their window has cut earns nothing, or windows opened byte by byte would pay for themselves.
            self.allowance.earn(HTTP2_IDLE_FRAMES_PER_PIECE);
        }
        if self.line.waiting_bytes() > 0 {
            self.ring();
        }
        Poll::Ready(Ok(sent))
    }

    fn write_data(&mut self, stream: u32, bytes: &[u8], ends: bool) -> io::Result<usize> {
        let room = self.core.room(stream).min(bytes.len());
        if self.line.takes_frames(room) {
            return self.write_frames(stream, bytes, ends);
        }
        self.line.expect(room);
        let mut sent = 0;
        loop {
            let taken = self.core.push_data_head(stream, bytes.len() - sent, ends, self.line.out());
            let taken = taken.map_err(|Gone| gone())?;
            self.line.put(&bytes[sent..sent + taken])?;
            sent += taken;
            if taken == 0 || sent == bytes.len() {
                return Ok(sent);
            }
        }
    }

    fn write_frames(&mut self, stream: u32, bytes: &[u8], ends: bool) -> io::Result<usize> {
        let (mut lengths, mut count, mut sent) = ([0; FRAMES_AT_ONCE], 0, 0);
        for length in &mut lengths {
            let taken = self.core.push_data_head(stream, bytes.len() - sent, ends, self.line.out());
            *length = taken.map_err(|Gone| gone())?;
            if *length == 0 {
                break;
            }
            count += 1;
            sent += *length;
            if sent == bytes.len() {
                break;
            }
        }
        self.line.write_frames(&lengths[..count], &bytes[..sent])?;
        Ok(sent)
    }

    /// `is_shared`: for that of the connection. Where its own is shut, it is told when that is opened.
    fn wait_for_window<T>(&mut self, stream: u32, cx: &TaskContext<'_>, is_shared: bool) -> Poll<io::Result<T>> {
        let Some(inbox) = self.inbox(stream) else { return Poll::Ready(Err(gone())) };
        inbox.listen(cx);
        if !is_shared {
            inbox.is_shut = true;
        } else if !std::mem::replace(&mut inbox.is_waiting, true) {
            self.shut.push_back(stream);
        }
        Poll::Pending
    }

    /// A stream that was woken for something else found the window open before its turn.
    fn wait_no_more(&mut self, stream: u32) {
        if self.inbox(stream).is_some_and(|inbox| std::mem::take(&mut inbox.is_waiting)) {
            self.shut.retain(|waiting| *waiting != stream);
        }
    }

    fn wait_for_room<T>(&mut self, stream: u32, cx: &TaskContext<'_>) -> Poll<io::Result<T>> {
        let Some(inbox) = self.inbox(stream) else { return Poll::Ready(Err(gone())) };
        if inbox.is_reset {
            return Poll::Ready(Err(gone()));
        }
        inbox.listen(cx);
        if !std::mem::replace(&mut inbox.is_queued, true) {
            self.queue.push_back(stream);
        }
        self.ring();
        Poll::Pending
    }

    /// Ends our half, with trailers if there are any.
    pub(super) fn send_end(&mut self, stream: u32, trailers: Option<&Fields>) -> io::Result<()> {
        if self.is_gone {
            return Err(gone());
        }
        let out = self.line.out();
        match trailers {
            Some(trailers) => self.core.send_trailers(stream, trailers, out),
            None => self.core.push_data_head(stream, 0, true, out).map(|_| ()),
        }
        .map_err(|Gone| gone())?;
        self.ring();
        Ok(())
    }

    /// Ends a stream at once, if it is still there.
    pub(super) fn reset(&mut self, stream: u32, code: u32) {
        if !self.is_gone && self.core.reset(stream, code, self.line.out()) {
            self.ring();
        }
    }

    /// A stream has no exchange any more. What nobody has read is done with.
    pub(super) fn close(&mut self, stream: u32) {
        let Some(place) = self.place(stream) else { return };
        let inbox = self.inboxes.remove(place);
        if self.inboxes.is_empty() && self.inboxes.capacity() > ROOM_KEPT {
            (self.inboxes, self.queue, self.shut) = (Vec::new(), VecDeque::new(), VecDeque::new());
        }
        if inbox.is_queued {
            self.queue.retain(|queued| *queued != stream);
        }
        if inbox.is_waiting {
            self.shut.retain(|waiting| *waiting != stream);
        }
        self.turn = self.turn.filter(|turn| *turn != stream);
        if !self.shut.is_empty() {
            self.give_turn();
        }
        if !inbox.data.is_empty() && !self.is_gone {
            self.core.consumed(stream, inbox.data.len(), self.line.out());
            self.ring();
        }
    }

    fn inbox(&mut self, stream: u32) -> Option<&mut Inbox> {
        self.place(stream).map(|place| &mut self.inboxes[place])
    }

    fn place(&self, stream: u32) -> Option<usize> {
        match self.inboxes.last() {
            // Mostly it is the only one.
            Some(last) if last.stream == stream => Some(self.inboxes.len() - 1),
            _ => self.inboxes.binary_search_by_key(&stream, |inbox| inbox.stream).ok(),
        }
    }

    /// There is something to send. The task of the connection is woken for it once, and not while the socket takes nothing.
    fn ring(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) && !self.is_attended && !self.line.is_blocked() {
            self.task.wake_by_ref();
        }
    }
}

/// What those see whose stream is gone.
fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
