//! One HTTP/2 stream to an endpoint as an [`Io`](crate::io::Io): what is read are the bytes of the response's body, what is written those
//! of the request's. Heads and trailers go beside them.
//!
//! ```text
//! we:           the head is sent as the stream begins ──► Body
//! the endpoint: Head, interim or final ──► Body
//! ```
//!
//! Flow control is end to end: the endpoint gets its window back when bytes have been read from here, and we write no more
//! than its window allows, and than its connection has room for. So a slow reader holds its own stream and no other, and nothing is
//! buffered without bound. Dropped before both halves have ended, the stream is reset with CANCEL.

use std::io;
use std::task::{Context as TaskContext, Poll, ready};

use model::fields::Fields;
use model::limits::REPLAY_BYTES_MAX;
use model::{RequestHead, ResponseHead};
use wire::http2::code;
use wire::http2::connection::{NotSent, RequestSent};

use super::state::{HeadRead, SharedState};
use super::window::Share;
use crate::http2::Reset;

/// See the module.
pub(crate) struct Stream {
    state: SharedState,
    id: u32,
    /// END_STREAM is on its way.
    has_ended: bool,
    /// What was sent of a request, as long as it may be needed again and there is not too much of it.
    sent: Option<Vec<u8>>,
    /// What was read here of what was read on the connection.
    share: Share,
}

impl Stream {
    /// Begins a stream with the head of a request.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) fn begin(state: SharedState, head: &RequestHead, how: &RequestSent<'_>) -> Result<Self, NotSent> {
        let id = state.borrow_mut().request(head, how)?;
        let sent = (!how.ends).then(Vec::new);
        Ok(Self { state, id, has_ended: how.ends, sent, share: Share::default() })
    }

    /// What was sent, if that is the whole body of a request and it had no trailers.
    pub(crate) fn take_sent(&mut self) -> Option<Box<[u8]>> {
        let sent = self.sent.take()?;
        self.has_ended.then(|| sent.into_boxed_slice())
    }

    /// What was sent is not needed any more.
    pub(crate) fn forget_sent(&mut self) {
        self.sent = None;
    }

    /// Ready with the next head of the endpoint, which is swapped with `head`, and whether the message ends with it; interim ones come
    /// before the final one, after which it is not to be asked again.
    ///
    /// # Errors
    /// There will be none, and how the stream ended; `None`: the connection is gone.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut TaskContext<'_>,
        head: &mut Box<ResponseHead>,
    ) -> Poll<Result<HeadRead, Option<Reset>>> {
        self.state.borrow_mut().poll_head(self.id, cx, head)
    }

    /// Ready when there is something to read, the end included.
    pub(crate) fn poll_read_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.state.borrow_mut().poll_readable(self.id, cx).map_ok(|_| ())
    }

    /// Reads as much as is here; 0 is the end of the endpoint's half, after which its trailers are known.
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        let count = match ready!(state.poll_readable(self.id, cx))? {
            0 => 0,
            _ => state.read(self.id, room),
        };
        state.peer.taken.note(&mut self.share, count);
        Poll::Ready(Ok(count))
    }

    /// Whether everything of the endpoint's half has been read, and nothing is to come, trailers included.
    pub(crate) fn is_over(&self) -> bool {
        self.state.borrow().is_over(self.id)
    }

    /// The trailers of the endpoint, once [`Self::poll_read`] has said the end.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.state.borrow_mut().take_trailers(self.id)
    }

    /// Writes as much as the endpoint's windows allow. `ends` says that our half ends with the last of `bytes`.
    pub(crate) fn poll_write(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8], ends: bool) -> Poll<io::Result<usize>> {
        if self.has_ended {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        let count = ready!(self.state.borrow_mut().poll_write(self.id, cx, (bytes, ends)))?;
        self.has_ended = ends && count == bytes.len();
        match &mut self.sent {
            Some(sent) if sent.len() + count <= REPLAY_BYTES_MAX => sent.extend_from_slice(&bytes[..count]),
            _ => self.sent = None,
        }
        Poll::Ready(Ok(count))
    }

    /// Ends our half, if that is not done, with trailers if there are any.
    pub(crate) fn end(&mut self, trailers: Option<&Fields>) -> io::Result<()> {
        if !self.has_ended {
            self.state.borrow_mut().send_end(self.id, trailers)?;
            self.has_ended = true;
            if trailers.is_some() {
                self.sent = None;
            }
        }
        Ok(())
    }

    /// Ready when the endpoint has reset the stream, or its connection is gone.
    pub(crate) fn poll_reset(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.state.borrow_mut().poll_reset(self.id, cx)
    }

    /// The end of what we had to say: whether our message is whole. If not, the endpoint learns that it never will be.
    pub(crate) fn finish(&mut self) -> bool {
        if !self.has_ended {
            self.break_off();
        }
        self.has_ended
    }

    /// Tells the endpoint that the message is not whole and never will be.
    pub(crate) fn break_off(&mut self) {
        self.state.borrow_mut().reset(self.id, code::INTERNAL_ERROR);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.reset(self.id, code::CANCEL);
        state.close(self.id);
    }
}
