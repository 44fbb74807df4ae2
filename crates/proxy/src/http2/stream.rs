//! One HTTP/2 stream to an endpoint as an [`Io`](crate::io::Io): what is read are the bytes of the peer's body, what is written those
//! of ours. Heads and trailers go beside them.
//!
//! ```text
//! we:        the head is sent as the stream begins ──► Body
//! the peer:  Head, interim or final ──► Body
//! ```
//!
//! Flow control is end to end: the peer gets its window back when bytes have been read from here, and we write no more
//! than its window allows. So a slow reader holds its own stream and no other, and nothing is buffered without bound.
//! Dropped before both halves have ended, the stream is reset by the library: NO_ERROR where only the peer's half was
//! open (RFC 9113 section 8.1), else CANCEL.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use model::fields::Fields;
use model::limits::{BUFFER_BYTES, HEAD_BYTES_MAX, REPLAY_BYTES_MAX};

use super::heads;
use super::window::{Share, Taken};
use crate::buffer::Buffer;

/// Pieces of a request that are kept at most to be sent again: a stream of small messages is none that will end soon.
const SENT_PIECES_MAX: usize = 64;

/// Pieces from this size on are kept as they are; waiting costs them little beside their bytes.
const LARGE_PIECE_BYTES: usize = 1024;

/// From how many bytes on a buffer is handed on as it is, and not copied: what waits never holds more than twice its size.
const HANDED_ON_BYTES_MIN: usize = BUFFER_BYTES / 2;

/// See the module.
pub(crate) struct Stream {
    send: SendStream<Bytes>,
    /// END_STREAM is on its way.
    has_ended: bool,
    listening: Listening,
    /// Taken from the stream, not yet read: it still counts against the peer's window.
    data: Bytes,
    /// The same, what follows.
    gathered: Gathered,
    trailers: Option<Box<Fields>>,
    /// What was just sent has filled much of the room for what waits.
    has_filled: bool,
    /// The peer's half has ended in good order.
    is_over: bool,
    /// What was sent of a request, as long as it may be needed again and there is not too much of it.
    sent: Option<Vec<Bytes>>,
    /// What was read on its connection, and what of it here.
    taken: (Rc<Taken>, Share),
}

/// The peer's half.
enum Listening {
    /// It has not answered.
    Head(h2::client::ResponseFuture),
    Body(RecvStream),
    /// Its trailers are too large, or malformed.
    Broken,
}

impl Stream {
    /// A stream that we have begun towards an endpoint with the head of a request, and `ended` with it if there is no body.
    pub(crate) fn requested(
        send: SendStream<Bytes>,
        response: h2::client::ResponseFuture,
        ended: bool,
        taken: Rc<Taken>,
    ) -> Self {
        Self {
            send,
            taken: (taken, Share::default()),
            has_ended: ended,
            listening: Listening::Head(response),
            data: Bytes::new(),
            gathered: Gathered::default(),
            trailers: None,
            has_filled: false,
            is_over: false,
            sent: (!ended).then(Vec::new),
        }
    }

    /// What was sent, if that is the whole body of a request and it had no trailers.
    pub(crate) fn take_sent(&mut self) -> Option<Box<[u8]>> {
        let sent = self.sent.take()?;
        self.has_ended.then(|| sent.concat().into_boxed_slice())
    }

    /// What was sent is not needed any more.
    pub(crate) fn forget_sent(&mut self) {
        self.sent = None;
    }

    /// Ready with the next head of the endpoint, and whether the message ends with it; interim ones come before the final
    /// one, after which it is not to be asked again.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Result<(http::response::Parts, bool), h2::Error>> {
        let Listening::Head(response) = &mut self.listening else { return Poll::Pending };
        if let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
            return Poll::Ready(interim.map(|interim| (interim.into_parts().0, false)));
        }
        let (parts, body) = ready!(Pin::new(response).poll(cx))?.into_parts();
        let ends = body.is_end_stream();
        self.listening = Listening::Body(body);
        Poll::Ready(Ok((parts, ends)))
    }

    /// Ready when there is something to read, the end included.
    pub(crate) fn poll_read_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        while self.data.is_empty() {
            match self.gathered.take() {
                Some(data) => self.data = data,
                None if self.is_over => break,
                None => self.data = ready!(self.poll_piece(cx))?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what is here while nobody can read it: small pieces cost far more by themselves than together. The peer's window
    /// bounds it, and stays as it is until it is read. Wakes `cx` when there is more.
    pub(crate) fn gather(&mut self, cx: &mut TaskContext<'_>) {
        while !self.is_over {
            // An error comes again, when all before it is read.
            let Poll::Ready(Ok(piece)) = self.poll_piece(cx) else { return };
            self.gathered.add(piece);
        }
    }

    /// The next piece of the body, an empty one with its end.
    fn poll_piece(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<Bytes>> {
        let Listening::Body(body) = &mut self.listening else { return Poll::Ready(Err(not_begun())) };
        if let Some(data) = ready!(body.poll_data(cx)) {
            return Poll::Ready(data.map_err(broken));
        }
        if let Some(trailers) = ready!(body.poll_trailers(cx)).map_err(broken)? {
            let is_small = heads::list_bytes(&trailers) <= HEAD_BYTES_MAX;
            let Some(trailers) = is_small.then(|| heads::read_trailers(&trailers).ok()).flatten() else {
                self.listening = Listening::Broken;
                return Poll::Ready(Err(not_begun()));
            };
            self.trailers = trailers;
        }
        self.is_over = true;
        Poll::Ready(Ok(Bytes::new()))
    }

    /// Reads as much as is here; 0 is the end of the peer's half, after which its trailers are known.
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut count = 0;
        while count < room.len() {
            match self.poll_read_ready(cx) {
                Poll::Ready(Ok(())) if self.data.is_empty() => break,
                Poll::Ready(Ok(())) => count += self.take_into(&mut room[count..]),
                // What came before is not lost, and the error comes again.
                _ if count > 0 => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(count))
    }

    fn take_into(&mut self, room: &mut [u8]) -> usize {
        let count = room.len().min(self.data.len());
        room[..count].copy_from_slice(&self.data.split_to(count));
        if let Listening::Body(body) = &mut self.listening {
            self.taken.0.note(&mut self.taken.1, count);
            // Wakes the connection. Fails only for more than was received.
            let _ = body.flow_control().release_capacity(count);
        }
        count
    }

    /// Whether everything of the peer's half has been read, and nothing is to come, trailers included.
    pub(crate) fn is_over(&self) -> bool {
        let has_ended = match &self.listening {
            Listening::Body(body) => self.is_over || body.is_end_stream(),
            Listening::Head(_) | Listening::Broken => false,
        };
        has_ended && self.data.is_empty() && self.gathered.is_empty() && self.trailers.is_none()
    }

    /// The trailers of the peer, once [`Self::poll_read`] has said the end.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.trailers.take()
    }

    /// Writes as much as the peer's window allows. `ends` says that our half ends with the last of `bytes`.
    pub(crate) fn poll_write(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8], ends: bool) -> Poll<io::Result<usize>> {
        let count = ready!(self.poll_room(cx, bytes.len()))?.min(bytes.len());
        let is_whole = count == bytes.len();
        self.send_piece(Bytes::copy_from_slice(&bytes[..count]), ends && is_whole)?;
        Poll::Ready(Ok(count))
    }

    /// Takes a buffer as it is, if it is worth it and there is room for all of it. False: it is left.
    pub(crate) fn poll_hand_on(
        &mut self,
        cx: &mut TaskContext<'_>,
        buffer: &mut Option<Buffer>,
        ends: bool,
    ) -> Poll<io::Result<bool>> {
        let Some(length) = buffer.as_ref().map(Buffer::len).filter(|length| *length >= HANDED_ON_BYTES_MIN) else {
            return Poll::Ready(Ok(false));
        };
        if ready!(self.poll_room(cx, length))? < length {
            return Poll::Ready(Ok(false));
        }
        let piece = buffer.take().map(Buffer::into_bytes).unwrap_or_default();
        Poll::Ready(self.send_piece(piece, ends).map(|()| true))
    }

    /// How much may be written, and not none.
    fn poll_room(&mut self, cx: &mut TaskContext<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        if self.has_ended {
            return Poll::Ready(Err(not_begun()));
        }
        let send = &mut self.send;
        // Each question takes the lock of the connection.
        let mut room = send.capacity();
        if room < wanted {
            send.reserve_capacity(wanted);
            room = send.capacity();
        }
        if room < wanted && std::mem::take(&mut self.has_filled) {
            // Once the connection has had its turn there is room for more than crumbs.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        while room == 0 {
            room = match ready!(send.poll_capacity(cx)) {
                Some(room) => room.map_err(broken)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        Poll::Ready(Ok(room))
    }

    /// Sends a piece for which there is room.
    fn send_piece(&mut self, piece: Bytes, ends: bool) -> io::Result<()> {
        if let Some(sent) = &mut self.sent {
            sent.push(piece.clone());
            if sent.len() > SENT_PIECES_MAX || sent.iter().map(Bytes::len).sum::<usize>() > REPLAY_BYTES_MAX {
                self.sent = None;
            }
        }
        self.has_filled = piece.len() >= HANDED_ON_BYTES_MIN;
        self.send.send_data(piece, ends).map_err(broken)?;
        self.has_ended = ends;
        Ok(())
    }

    /// Ends our half, if that is not done, with trailers if there are any.
    pub(crate) fn end(&mut self, trailers: Option<&Fields>) -> io::Result<()> {
        if self.has_ended {
            return Ok(());
        }
        match trailers {
            Some(trailers) => self.send.send_trailers(heads::of_trailers(trailers)),
            None => self.send.send_data(Bytes::new(), true),
        }
        .map_err(broken)?;
        self.has_ended = true;
        if trailers.is_some() {
            self.sent = None;
        }
        Ok(())
    }

    /// Ready when the peer has reset the stream, or its connection is gone.
    pub(crate) fn poll_reset(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.send.poll_reset(cx).map(drop)
    }

    /// The end of what we had to say: whether our message is whole. If not, the peer is told that it never will be.
    pub(crate) fn finish(&mut self) -> bool {
        if !self.has_ended {
            self.reset(Reason::INTERNAL_ERROR);
        }
        self.has_ended
    }

    /// Tells the peer that the message is not whole and never will be. What is buffered of it is thrown away.
    pub(crate) fn reset(&mut self, reason: Reason) {
        self.send.send_reset(reason);
    }
}

/// Pieces in order, small ones put together.
#[derive(Default)]
struct Gathered {
    pieces: VecDeque<Bytes>,
    /// After those.
    small: BytesMut,
}

impl Gathered {
    fn add(&mut self, piece: Bytes) {
        if piece.len() < LARGE_PIECE_BYTES {
            self.small.extend_from_slice(&piece);
            return;
        }
        if !self.small.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.small).freeze());
        }
        self.pieces.push_back(piece);
    }

    fn take(&mut self) -> Option<Bytes> {
        let small = &mut self.small;
        self.pieces.pop_front().or_else(|| (!small.is_empty()).then(|| std::mem::take(small).freeze()))
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.small.is_empty()
    }
}

fn not_begun() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

fn broken(error: h2::Error) -> io::Error {
    if error.is_io() { error.into_io().unwrap_or_else(not_begun) } else { io::ErrorKind::ConnectionReset.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_are_gathered_stay_in_order_and_small_ones_become_one() {
        let mut gathered = Gathered::default();
        let large = vec![b'l'; LARGE_PIECE_BYTES];
        for piece in
            [b"a".to_vec(), b"b".to_vec(), large.clone(), b"c".to_vec(), Vec::new(), large.clone(), b"d".to_vec()]
        {
            gathered.add(piece.into());
        }
        let taken: Vec<Bytes> = std::iter::from_fn(|| gathered.take()).collect();
        assert_eq!(taken, [b"ab".to_vec(), large.clone(), b"c".to_vec(), large, b"d".to_vec()]);
        assert!(gathered.is_empty());
    }
}
