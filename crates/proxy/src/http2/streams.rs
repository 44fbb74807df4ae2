//! The state of a connection as the tasks of its streams use it.

use std::collections::VecDeque;
use std::io;
use std::task::{Context as TaskContext, Poll};

use bytes::BytesMut;
use model::fields::Fields;
use model::limits::HTTP2_IDLE_FRAMES_PER_PIECE;
use wire::http2::connection::Gone;

use super::output::FRAMES_AT_ONCE;
use super::state::{Peer, State};

/// Inboxes for which room is kept while there are none.
const ROOM_KEPT: usize = 2;

impl<P: Peer> State<P> {
    /// Ready when there is something to read, the end included: how much.
    pub(crate) fn poll_readable(&mut self, stream: u32, cx: &TaskContext<'_>) -> Poll<io::Result<usize>> {
        let is_gone = self.is_gone;
        let Some(inbox) = self.inbox(stream) else { return Poll::Ready(Err(gone())) };
        if !inbox.data.is_empty() || inbox.is_over {
            return Poll::Ready(Ok(inbox.data.len()));
        }
        if inbox.reset.is_some() || is_gone {
            return Poll::Ready(Err(gone()));
        }
        inbox.listen(cx);
        Poll::Pending
    }

    /// Takes what is here, and lets the peer send as much again.
    pub(crate) fn read(&mut self, stream: u32, room: &mut [u8]) -> usize {
        let Some(inbox) = self.inbox(stream) else { return 0 };
        let count = room.len().min(inbox.data.len());
        room[..count].copy_from_slice(&inbox.data[..count]);
        if count == inbox.data.len() {
            inbox.data = BytesMut::new();
        } else {
            bytes::Buf::advance(&mut inbox.data, count);
        }
        let before = self.output.waiting_bytes();
        self.core.consumed(stream, count, self.output.out());
        if self.output.waiting_bytes() > before {
            self.wake_task();
        }
        count
    }

    /// Whether all of the peer's half was read, and there is nothing behind it.
    pub(crate) fn is_over(&self, stream: u32) -> bool {
        self.place(stream).is_some_and(|place| {
            let inbox = &self.inboxes[place];
            inbox.is_over && inbox.data.is_empty() && inbox.trailers.is_none()
        })
    }

    /// The trailers that came, once.
    pub(crate) fn take_trailers(&mut self, stream: u32) -> Option<Box<Fields>> {
        self.inbox(stream)?.trailers.take()
    }

    /// Ready when the stream is gone.
    pub(crate) fn poll_reset(&mut self, stream: u32, cx: &TaskContext<'_>) -> Poll<()> {
        let is_gone = self.is_gone;
        match self.inbox(stream) {
            Some(inbox) if inbox.reset.is_none() && !is_gone => {
                inbox.listen(cx);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Writes as much of a body as there is room for; `ends`: our half ends with the last of them.
    pub(crate) fn poll_write(
        &mut self,
        stream: u32,
        cx: &TaskContext<'_>,
        (bytes, ends): (&[u8], bool),
    ) -> Poll<io::Result<usize>> {
        if self.is_gone {
            return Poll::Ready(Err(gone()));
        }
        if !self.output.has_room() {
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
            // Peers answer what they receive with steps of their windows and PINGs: those of gRPC each small piece. A piece
            // that their window has cut earns nothing, or windows opened byte by byte would pay for themselves.
            self.allowance.earn(HTTP2_IDLE_FRAMES_PER_PIECE);
        }
        if self.output.waiting_bytes() > 0 {
            self.wake_task();
        }
        Poll::Ready(Ok(sent))
    }

    fn write_data(&mut self, stream: u32, bytes: &[u8], ends: bool) -> io::Result<usize> {
        let room = self.core.room(stream).min(bytes.len());
        if self.output.takes_frames(room) {
            return self.write_frames(stream, bytes, ends);
        }
        self.output.expect(room);
        let mut sent = 0;
        loop {
            let taken = self.core.push_data_head(stream, bytes.len() - sent, ends, self.output.out());
            let taken = taken.map_err(|Gone| gone())?;
            self.output.put(&bytes[sent..sent + taken])?;
            sent += taken;
            if taken == 0 || sent == bytes.len() {
                return Ok(sent);
            }
        }
    }

    fn write_frames(&mut self, stream: u32, bytes: &[u8], ends: bool) -> io::Result<usize> {
        let (mut lengths, mut count, mut sent) = ([0; FRAMES_AT_ONCE], 0, 0);
        for length in &mut lengths {
            let taken = self.core.push_data_head(stream, bytes.len() - sent, ends, self.output.out());
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
        self.output.write_frames(&lengths[..count], &bytes[..sent])?;
        Ok(sent)
    }

    /// `is_shared`: for that of the connection. Where its own is shut, the opening of that wakes it.
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
        if inbox.reset.is_some() {
            return Poll::Ready(Err(gone()));
        }
        inbox.listen(cx);
        if !std::mem::replace(&mut inbox.is_queued, true) {
            self.queue.push_back(stream);
        }
        self.wake_task();
        Poll::Pending
    }

    /// Ends our half, with trailers if there are any.
    pub(crate) fn send_end(&mut self, stream: u32, trailers: Option<&Fields>) -> io::Result<()> {
        if self.is_gone {
            return Err(gone());
        }
        let out = self.output.out();
        match trailers {
            Some(trailers) => self.core.send_trailers(stream, trailers, out),
            None => self.core.push_data_head(stream, 0, true, out).map(|_| ()),
        }
        .map_err(|Gone| gone())?;
        self.wake_task();
        Ok(())
    }

    /// Ends a stream at once, if it is still there.
    pub(crate) fn reset(&mut self, stream: u32, code: u32) {
        if !self.is_gone && self.core.reset(stream, code, self.output.out()) {
            self.wake_task();
        }
    }

    /// A stream has no exchange any more. What was not read is done with.
    pub(crate) fn close(&mut self, stream: u32) {
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
            self.core.consumed(stream, inbox.data.len(), self.output.out());
            self.wake_task();
        }
    }
}

/// What those see whose stream is gone.
pub(crate) fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
