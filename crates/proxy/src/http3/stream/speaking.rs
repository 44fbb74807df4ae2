//! Our half of a stream: heads, the body in DATA frames, and trailers.

use std::io;
use std::task::{Context as TaskContext, Poll, Waker, ready};

use model::ResponseHead;
use model::fields::Fields;
use wire::http1::Framing;
use wire::http3::code;
use wire::http3::frame::{kind, push_frame_head, write_frame};
use wire::http3::message;

use super::{Speaking, Stream, gone};

impl Stream {
    /// Sends an interim response.
    ///
    /// # Errors
    /// The final one is on its way.
    pub(crate) fn send_interim(&mut self, head: &ResponseHead, framing: Framing) -> io::Result<()> {
        self.send_head(head, (head.status, framing))
    }

    /// Sends the head of the final response; `ends` says that there is no body.
    ///
    /// # Errors
    /// It is sent already, or the stream is gone.
    pub(crate) fn respond(&mut self, head: &ResponseHead, how: (u16, Framing), ends: bool) -> io::Result<()> {
        self.send_head(head, how)?;
        self.has_answered = true;
        self.speaking = if ends { Speaking::Ending } else { Speaking::Body };
        self.try_flush()
    }

    fn send_head(&mut self, head: &ResponseHead, (status, framing): (u16, Framing)) -> io::Result<()> {
        if self.speaking != Speaking::Head {
            return Err(gone());
        }
        self.out.reserve(256);
        write_frame(&mut self.out, kind::HEADERS, |out| message::write_response(head, status, framing, out));
        self.try_flush()
    }

    /// Hands what is to be sent to the connection, as far as it takes it now; the rest follows later.
    pub(super) fn try_flush(&mut self) -> io::Result<()> {
        match self.poll_flush(&mut TaskContext::from_waker(Waker::noop())) {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Ready when the connection has taken all that was said, the end included.
    pub(crate) fn poll_flush(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        if self.speaking == Speaking::Ending {
            if !self.quic.finish(self.id) {
                self.is_broken = true;
                return Poll::Ready(Err(gone()));
            }
            self.speaking = Speaking::Ended;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_out(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            match ready!(self.quic.poll_write(self.id, cx, &self.out)) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(()) => return Poll::Ready(Err(self.unwanted())),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Notes that the peer wants no response any more, as a write has shown.
    fn unwanted(&mut self) -> io::Error {
        self.is_broken = true;
        gone()
    }

    /// Why our half is broken off.
    pub(super) fn reason(&self) -> u64 {
        // Of a request only that it is not wanted any more (RFC 9114 section 4.1.1).
        if self.is_broken || self.is_ours { code::REQUEST_CANCELLED } else { code::INTERNAL_ERROR }
    }

    /// Writes as much as the peer's window allows. `ends` says that our half ends with the last of `bytes`.
    pub(crate) fn poll_write(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8], ends: bool) -> Poll<io::Result<usize>> {
        if self.speaking != Speaking::Body {
            return Poll::Ready(Err(gone()));
        }
        if self.frame_left == 0 {
            // What is not taken now comes again, so the frame will be filled.
            self.frame_left = bytes.len();
            push_frame_head(&mut self.out, kind::DATA, bytes.len() as u64);
        }
        ready!(self.poll_out(cx))?;
        let piece = &bytes[..bytes.len().min(self.frame_left)];
        let count = ready!(self.quic.poll_write(self.id, cx, piece)).map_err(|()| self.unwanted())?;
        self.frame_left -= count;
        self.note_sent(&piece[..count]);
        if count == bytes.len() {
            self.counts.pieces.set(self.counts.pieces.get().saturating_add(1));
            if ends {
                self.speaking = Speaking::Ending;
                self.try_flush()?;
            }
        }
        Poll::Ready(Ok(count))
    }

    /// Ends our half, if that is not done, with trailers if there are any. It is to be flushed.
    pub(crate) fn end(&mut self, trailers: Option<&Fields>) -> io::Result<()> {
        match self.speaking {
            Speaking::Body => {}
            Speaking::Ending | Speaking::Ended => return Ok(()),
            Speaking::Head | Speaking::Broken => return Err(gone()),
        }
        if let Some(trailers) = trailers {
            self.sent = None;
            write_frame(&mut self.out, kind::HEADERS, |out| message::write_trailers(trailers, out));
        }
        self.speaking = Speaking::Ending;
        self.try_flush()
    }
}
