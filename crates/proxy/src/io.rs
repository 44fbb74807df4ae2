//! A byte stream to a peer: that of a connection, or one stream of an HTTP/2 or HTTP/3 connection. The one place that knows the
//! difference.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker, ready};

use model::fields::Fields;
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;

use crate::byte_stream::ByteStream;
use crate::feed::Feed;
use crate::message::MessageStream;
use crate::stored::pipe::Pipe;

/// See the module.
pub(crate) enum Io {
    Connection(ByteStream),
    /// The body of a message in either direction. Its heads and trailers go beside it.
    Stream(Box<MessageStream>),
    /// Memory: what takes the response to a call of the proxy's own.
    Memory(Box<MemoryIo>),
}

/// A client that is no connection: all that is sent to it stays here, and it sends nothing but what it is fed.
#[derive(Default)]
pub(crate) struct MemoryIo {
    /// What was sent to it.
    pub bytes: Vec<u8>,
    /// Bound on that; more is an error.
    pub bytes_max: usize,
    /// It has gone, as a connection that is reset.
    pub is_gone: Rc<Cell<bool>>,
    /// What it sends.
    pub feed: Option<Rc<Feed>>,
    /// What is sent to it is dropped.
    pub is_sink: bool,
    /// What takes what is sent to it, as it can.
    pub pipe: Option<Rc<Pipe>>,
}

impl MemoryIo {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_sink {
            return Ok(bytes.len());
        }
        if self.bytes.len() + bytes.len() > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }
}

impl Io {
    /// The stream, where a message has one of its own.
    pub(crate) fn message(&mut self) -> Option<&mut MessageStream> {
        match self {
            Self::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// The connection, where this is one.
    pub(crate) fn into_connection(self) -> Option<ByteStream> {
        match self {
            Self::Connection(connection) => Some(connection),
            Self::Stream(_) | Self::Memory(_) => None,
        }
    }

    /// Whether this is what the TLS handshake with a client has agreed to speak.
    pub(crate) fn has_agreed_on(&self, protocol: &[u8]) -> bool {
        matches!(self, Self::Connection(connection) if connection.has_agreed_on(protocol))
    }

    /// Whether a message here has a stream of its own, so that its end is that of the stream.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Whether this is the client's side of a call that a filter has made.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Whether what is sent here is a slice, which another exchange puts together with others.
    pub(crate) fn is_piped(&self) -> bool {
        self.pipe().is_some()
    }

    /// What takes what is sent here, where that is a slice.
    pub(crate) fn pipe(&self) -> Option<&Pipe> {
        match self {
            Self::Memory(memory) => memory.pipe.as_deref(),
            Self::Connection(_) | Self::Stream(_) => None,
        }
    }

    /// Whether the end of a message here is its own, also where its length is known: that of a stream, or of what memory is fed.
    pub(crate) fn ends_by_itself(&self) -> bool {
        match self {
            Self::Connection(_) => false,
            Self::Stream(_) => true,
            Self::Memory(memory) => memory.feed.is_some(),
        }
    }

    /// The trailers of what was read to its end, where they come beside it.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        match self {
            Self::Connection(_) => None,
            Self::Stream(stream) => stream.take_trailers(),
            Self::Memory(memory) => memory.feed.as_ref()?.take_trailers(),
        }
    }

    /// Whether the endpoint has chosen HTTP/2 as the connection began (RFC 7301).
    pub(crate) fn has_chosen_http2(&self) -> bool {
        matches!(self, Self::Connection(connection) if connection.has_chosen_http2())
    }

    /// The connection, if what is written here goes to the socket as it is.
    pub(crate) fn as_plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Connection(ByteStream::Plain(tcp)) => Some(tcp),
            _ => None,
        }
    }

    /// Whether what is written here is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Connection(connection) if connection.is_encrypted())
    }

    /// See [`ByteStream::poll_read_ready`].
    pub(crate) fn poll_read_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Connection(connection) => connection.poll_read_ready(cx),
            Self::Stream(stream) => stream.poll_read_ready(cx),
            Self::Memory(memory) => memory.feed.as_ref().map_or(Poll::Pending, |feed| feed.poll_read_ready(cx)),
        }
    }

    /// Reads into `room`; 0 is the end of the stream. See [`ByteStream::poll_read`].
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_read(cx, room),
            Self::Stream(stream) => stream.poll_read(cx, room),
            Self::Memory(memory) => memory.feed.as_ref().map_or(Poll::Pending, |feed| feed.poll_read(cx, room)),
        }
    }

    /// Ready when the peer has reset the connection or the stream: it will take no answer. See [`ByteStream::poll_reset`].
    pub(crate) fn poll_reset(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        match self {
            Self::Connection(connection) => connection.poll_reset(cx),
            Self::Stream(stream) => stream.poll_reset(cx),
            Self::Memory(memory) if memory.is_gone.get() => Poll::Ready(()),
            Self::Memory(_) => Poll::Pending,
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match self {
            Self::Connection(connection) => return connection.poll_write(cx, bytes),
            Self::Stream(stream) => ready!(stream.poll_write(cx, bytes, false)),
            Self::Memory(memory) => match &memory.pipe {
                Some(pipe) => ready!(pipe.poll_write(cx, bytes)),
                None => memory.write(bytes),
            },
        };
        match written {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            other => Poll::Ready(other),
        }
    }

    /// Like [`Self::poll_write`], for the last bytes before our half is ended: the end travels with them.
    pub(crate) fn poll_write_last(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Connection(connection) => connection.poll_write_last(cx, bytes),
            Self::Stream(stream) => stream.poll_write(cx, bytes, true),
            Self::Memory(_) => self.poll_write(cx, bytes),
        }
    }

    /// Ready when TLS has handed all it encrypted to the kernel; at once without TLS. What is in a stream of HTTP/2,
    /// its connection sends.
    pub(crate) fn poll_flush(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Connection(connection) => connection.poll_flush(cx),
            Self::Stream(stream) => stream.poll_flush(cx),
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ends our half: that of the connection, or END_STREAM of a stream.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Connection(connection) => connection.poll_shutdown(cx),
            Self::Stream(stream) => match stream.end(None) {
                Ok(()) => stream.poll_flush(cx),
                Err(error) => Poll::Ready(Err(error)),
            },
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether an idle connection can carry another exchange: nothing has arrived on it, neither an end nor bytes that
    /// nobody asked for. Costs no system call unless the kernel has reported something.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut cx = TaskContext::from_waker(Waker::noop());
        // Also for a task that has used up its turn, or a dead connection would look quiet.
        let look = unconstrained(poll_fn(|cx| {
            if self.poll_read_ready(cx).is_pending() {
                return Poll::Ready(true);
            }
            // With TLS 1.3 it may be a session ticket, which reading takes in.
            Poll::Ready(self.poll_read(cx, &mut [0; 8]).is_pending())
        }));
        matches!(pin!(look).poll(&mut cx), Poll::Ready(true))
    }

    /// Makes the kernel answer with a reset instead of an orderly end when the connection is dropped. A stream is reset now.
    pub(crate) fn reset_on_close(&mut self) {
        match self {
            Self::Connection(connection) => connection.reset_on_close(),
            Self::Stream(stream) => stream.reset(),
            Self::Memory(_) => {}
        }
    }
}

/// Writes all of `bytes` and flushes. Of a stream they are the last.
pub(crate) async fn write_all(io: &mut Io, bytes: &[u8]) -> io::Result<()> {
    let mut written = 0;
    poll_fn(|cx| {
        while written < bytes.len() {
            let rest = &bytes[written..];
            written += ready!(if io.is_message() { io.poll_write_last(cx, rest) } else { io.poll_write(cx, rest) })?;
        }
        io.poll_flush(cx)
    })
    .await
}
