//! One stream of a client as an [`Io`](crate::io::Io): what is read are the bytes of the request's body, what is written those of the
//! response's. Heads and trailers go beside them.
//!
//! ```text
//! Head ── interim* ── respond ──► Body ──► Ended
//! ```
//!
//! Flow control is end to end: the client gets its window back when bytes have been read from here, and we write no more
//! than its window allows, and than its connection has room for. So a slow reader holds its own stream and no other, and nothing is
//! buffered without bound. Dropped before both halves have ended, the stream is reset: NO_ERROR where only the client's half was
//! open (RFC 9113 section 8.1), else CANCEL. The former is put off for a moment by `downstream::linger`.

use std::io;
use std::task::{Context as TaskContext, Poll, ready};

use model::ResponseHead;
use model::fields::Fields;
use wire::http1::Framing;
use wire::http2::code;

use super::state::SharedState;

/// How far our half is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendState {
    /// The final response has not begun.
    Head,
    Body,
    /// All is on its way.
    Ended,
}

/// See the module.
pub(crate) struct Stream {
    state: SharedState,
    id: u32,
    send_state: SendState,
}

impl Stream {
    /// Takes a stream on that was begun; it `ends` with its head if the request has no body.
    pub(crate) fn open(state: &SharedState, id: u32, ends: bool) -> Self {
        state.borrow_mut().add(id, ends);
        Self { state: state.clone(), id, send_state: SendState::Head }
    }

    /// Sends an interim response.
    ///
    /// # Errors
    /// The final one is on its way, or the stream is gone.
    pub(crate) fn send_interim(&mut self, head: &ResponseHead, framing: Framing) -> io::Result<()> {
        self.state.borrow_mut().send_head(self.id, (head, head.status), (framing, false))
    }

    /// Sends the head of the final response; `ends` says that there is no body.
    ///
    /// # Errors
    /// It is sent already, or the stream is gone.
    pub(crate) fn respond(
        &mut self,
        head: &ResponseHead,
        (status, framing): (u16, Framing),
        ends: bool,
    ) -> io::Result<()> {
        self.state.borrow_mut().send_head(self.id, (head, status), (framing, ends))?;
        self.send_state = if ends { SendState::Ended } else { SendState::Body };
        Ok(())
    }

    /// Ready when there is something to read, the end included.
    pub(crate) fn poll_read_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.state.borrow_mut().poll_readable(self.id, cx).map_ok(|_| ())
    }

    /// Reads as much as is here; 0 is the end of the client's half, after which its trailers are known.
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        let count = match ready!(state.poll_readable(self.id, cx))? {
            0 => 0,
            _ => state.read(self.id, room),
        };
        Poll::Ready(Ok(count))
    }

    /// Whether everything of the client's half has been read, and nothing is to come, trailers included.
    pub(crate) fn is_over(&self) -> bool {
        self.state.borrow().is_over(self.id)
    }

    /// The trailers of the client, once [`Self::poll_read`] has said the end.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.state.borrow_mut().take_trailers(self.id)
    }

    /// Writes as much as the client's windows allow. `ends` says that our half ends with the last of `bytes`.
    pub(crate) fn poll_write(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8], ends: bool) -> Poll<io::Result<usize>> {
        if self.send_state != SendState::Body {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        let count = ready!(self.state.borrow_mut().poll_write(self.id, cx, (bytes, ends)))?;
        if ends && count == bytes.len() {
            self.send_state = SendState::Ended;
        }
        Poll::Ready(Ok(count))
    }

    /// Ends our half, if that is not done, with trailers if there are any.
    pub(crate) fn end(&mut self, trailers: Option<&Fields>) -> io::Result<()> {
        if self.send_state == SendState::Body {
            self.state.borrow_mut().send_end(self.id, trailers)?;
            self.send_state = SendState::Ended;
        }
        Ok(())
    }

    /// Ready when the client has reset the stream, or its connection is gone.
    pub(crate) fn poll_reset(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.state.borrow_mut().poll_reset(self.id, cx)
    }

    /// The end of what we had to say: whether our message is whole. If not, the client is told that it never will be.
    pub(crate) fn finish(&mut self) -> bool {
        if self.send_state != SendState::Ended {
            self.break_off();
        }
        self.send_state == SendState::Ended
    }

    /// Whether all of the response is on its way while the client's half is still open.
    pub(crate) fn awaits_end(&self) -> bool {
        self.send_state == SendState::Ended && self.state.borrow().awaits_end(self.id)
    }

    /// Throws the rest of the request away, up to `left` bytes, without opening the window of the stream. Ready at its end, or when
    /// more has come than that.
    pub(crate) fn poll_discard(&mut self, cx: &mut TaskContext<'_>, left: &mut usize) -> Poll<()> {
        self.state.borrow_mut().poll_discard(self.id, cx, left)
    }

    /// Tells the client that the message is not whole and never will be.
    pub(crate) fn break_off(&mut self) {
        self.state.borrow_mut().reset(self.id, code::INTERNAL_ERROR);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let code = if self.send_state == SendState::Ended { code::NO_ERROR } else { code::CANCEL };
        let mut state = self.state.borrow_mut();
        state.reset(self.id, code);
        state.close(self.id);
    }
}
