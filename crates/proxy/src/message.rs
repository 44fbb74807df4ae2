//! A message with a stream of its own, as HTTP/2 and HTTP/3 have it: the one place that knows which.
//!
//! What is read are the bytes of the peer's body, what is written those of ours; heads and trailers go beside them.

use std::io;
use std::task::{Context as TaskContext, Poll};

use model::fields::Fields;
use model::{Fault, ResponseHead};
use wire::http1::Framing;

use crate::http2::{downstream, upstream};
use crate::http3;

/// See the module.
pub(crate) enum MessageStream {
    /// Of a client that speaks HTTP/2.
    Client(downstream::Stream),
    /// Towards an endpoint.
    Http2(upstream::Stream),
    /// In either direction.
    Http3(http3::Stream),
}

macro_rules! either {
    ($message:expr, $stream:ident => $what:expr) => {
        match $message {
            Self::Client($stream) => $what,
            Self::Http2($stream) => $what,
            Self::Http3($stream) => $what,
        }
    };
}

impl MessageStream {
    /// Sends the head of the final response, under another status if one is given; `ends` says that there is no body.
    ///
    /// # Errors
    /// [`Fault::ClosedInResponse`]: the stream is gone.
    pub(crate) fn respond(
        &mut self,
        head: &ResponseHead,
        (framing, status): (Framing, Option<u16>),
        ends: bool,
    ) -> Result<(), Fault> {
        let status = status.unwrap_or(head.status);
        match self {
            Self::Client(stream) => stream.respond(head, (status, framing), ends),
            // Nobody responds to an endpoint.
            Self::Http2(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Http3(stream) => stream.respond(head, (status, framing), ends),
        }
        .map_err(|_| Fault::ClosedInResponse)
    }

    /// Sends an interim response.
    ///
    /// # Errors
    /// [`Fault::ClosedInWait`]: the stream is gone.
    pub(crate) fn send_interim(&mut self, head: &ResponseHead, framing: Framing) -> Result<(), Fault> {
        match self {
            Self::Client(stream) => stream.send_interim(head, framing),
            Self::Http2(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Http3(stream) => stream.send_interim(head, framing),
        }
        .map_err(|_| Fault::ClosedInWait)
    }

    /// Whether the peer takes other connections and says nothing on that of this stream. The kernel tells of that where it is one of
    /// TCP.
    pub(crate) fn is_unresponsive(&self) -> bool {
        match self {
            Self::Client(_) | Self::Http2(_) => false,
            Self::Http3(stream) => stream.is_unresponsive(),
        }
    }

    /// Ready when there is something to read, the end included.
    pub(crate) fn poll_read_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read_ready(cx))
    }

    /// Reads as much as is here; 0 is the end of the peer's half, after which its trailers are known.
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_read(cx, room))
    }

    /// Whether everything of the peer's half has been read, and nothing is to come, trailers included.
    pub(crate) fn is_over(&self) -> bool {
        either!(self, stream => stream.is_over())
    }

    /// The trailers of the peer, once [`Self::poll_read`] has said the end.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        either!(self, stream => stream.take_trailers())
    }

    /// Writes as much as the peer's window allows. `ends` says that our half ends with the last of `bytes`.
    pub(crate) fn poll_write(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8], ends: bool) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes, ends))
    }

    /// Ready when what was written is where its connection sends it from.
    pub(crate) fn poll_flush(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Client(_) | Self::Http2(_) => Poll::Ready(Ok(())),
            Self::Http3(stream) => stream.poll_flush(cx),
        }
    }

    /// Ends our half, if that is not done, with trailers if there are any. It is to be flushed.
    pub(crate) fn end(&mut self, trailers: Option<&Fields>) -> io::Result<()> {
        either!(self, stream => stream.end(trailers))
    }

    /// Ready when the peer has reset the stream, or its connection is gone.
    pub(crate) fn poll_reset(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        either!(self, stream => stream.poll_reset(cx))
    }

    /// The end of what we had to say: whether our message is whole. If not, the peer learns that it never will be.
    pub(crate) fn finish(&mut self) -> bool {
        either!(self, stream => stream.finish())
    }

    /// Whether all of our response is on its way while the client's request is not at its end.
    pub(crate) fn awaits_end(&self) -> bool {
        match self {
            Self::Client(stream) => stream.awaits_end(),
            Self::Http2(_) => false,
            Self::Http3(stream) => stream.awaits_end(),
        }
    }

    /// Throws the rest of a client's request away, up to `left` bytes. Ready at its end, or when more has come than that.
    pub(crate) fn poll_discard(&mut self, cx: &mut TaskContext<'_>, left: &mut usize) -> Poll<()> {
        match self {
            Self::Client(stream) => stream.poll_discard(cx, left),
            Self::Http2(_) => Poll::Ready(()),
            Self::Http3(stream) => stream.poll_discard(cx, left),
        }
    }

    /// Ready when nobody but the peer can have sent what came: the handshake of its connection is over.
    pub(crate) fn poll_settled(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Client(_) | Self::Http2(_) => Poll::Ready(Ok(())),
            Self::Http3(stream) => stream.poll_connected(cx),
        }
    }

    /// Tells the peer that the message is not whole and never will be. What is buffered of it is thrown away.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::Client(stream) => stream.break_off(),
            Self::Http2(stream) => stream.break_off(),
            Self::Http3(stream) => stream.break_off(),
        }
    }

    /// What was sent of a request, if that is its whole body and it had no trailers.
    pub(crate) fn take_sent(&mut self) -> Option<Box<[u8]>> {
        match self {
            Self::Client(_) => None,
            Self::Http2(stream) => stream.take_sent(),
            Self::Http3(stream) => stream.take_sent(),
        }
    }

    /// What was sent is not needed any more.
    pub(crate) fn forget_sent(&mut self) {
        match self {
            Self::Client(_) => {}
            Self::Http2(stream) => stream.forget_sent(),
            Self::Http3(stream) => stream.forget_sent(),
        }
    }

    /// The peer's message breaks the rules: of HTTP/3 that is told (RFC 9114 section 4.1.2). With HTTP/2 it is known before.
    pub(crate) fn refuse_malformed(&mut self) {
        if let Self::Http3(stream) = self {
            stream.refuse(wire::http3::code::MESSAGE_ERROR);
        }
    }
}
